/* Reformer: local and hashed attention in reversible layers.
 * Reference: transformers 5.12, models/reformer/modeling_reformer.py. */
#include <string.h>

#include "blocks/encoder.h"

enum { REFORMER_LSH = 1 };

struct reformer {
	uint64_t axial;                 /* elements of the axial tables; 0: one of positions */
	uint64_t chunk;                 /* keys of a chunk */
};
OOM_OWN(reformer, struct reformer);

static const struct oom_key_row reformer_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"), MUST(d_ff, "feed_forward_size"),
	MUST(n_heads, "num_attention_heads"), OR(head_dim, "attention_head_size", 64),
	MUST(max_positions, "max_position_embeddings"), ACT(act, "hidden_act", "relu"),
	REAL(dropout, "hidden_dropout_prob", 0.05),
	REAL(attn_dropout, "local_attention_probs_dropout_prob", 0.05),
	OR_OWN(struct reformer, chunk, "local_attn_chunk_length", 64), OOM_KEYS_END};

static double reformer_item(struct oom_reader *r, const char *key, uint32_t i)
{
	const double v = oom_read_item_real(r, key, i, 0);

	return v >= 0 && v < 1e7 ? v : 0;
}

static void reformer_read_layers(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *layers = oom_read_key(r, "attn_layers");

	a->n_layers = oom_read_count_or(r, "num_hidden_layers",
					layers && layers->type == OOM_KEY_LIST ? layers->n_items :
										 0);
	if (!a->n_layers || a->n_layers > OOM_MAX_LAYERS) {
		oom_read_fail(r, "attn_layers must list 1 to %d layers, \"local\" or \"lsh\"",
			      OOM_MAX_LAYERS);
		return;
	}
	for (uint32_t i = 0; i < a->n_layers; i++) {
		const char *type = oom_read_item(r, "attn_layers", i);

		a->kind[i] = type && !strcmp(type, "lsh") ? REFORMER_LSH : 0;
	}
	a->kinds = true;
}

static void reformer_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	if (oom_read_bool(r, "axial_pos_embds", true))
		for (uint32_t i = 0; i < 2; i++)
			reformer_own(a)->axial +=
				(uint64_t)(reformer_item(r, "axial_pos_shape", i) *
					   reformer_item(r, "axial_pos_embds_dim", i));
	reformer_read_layers(a);
	a->approximate = true;
	oom_warn(a, "reformer: parameters are exact; activations are approximated: reversible "
		 "layers as checkpointed ones, buckets as two chunks of keys.");
}

static struct oom_val reformer_attention(struct oom_tape *t, const struct oom_arch *a, bool lsh,
					 struct oom_val x)
{
	const struct oom_dim h = D(a->d_model), inner = D(a->n_heads * a->head_dim);
	const uint64_t keys = 2 * reformer_of(a)->chunk;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, y;

	at.sk = keys && keys < 1 << 24 ? oom_len_min(t, OOM_MONO_ONE, keys) : t->m_s;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = at.written_out = at.scores_local = true;
	y = oom_name(&f, oom_op_layer_norm(t, "layer_norm", x, 0, true, true));
	q = oom_op_linear(t, lsh ? "query_key" : "query", y, inner, 0);
	q = oom_name(&f, q);
	k = lsh ? oom_give(&f, q) : oom_op_linear(t, "key", y, inner, 0);
	v = oom_op_linear(t, "value", oom_take(&f, y), inner, 0);
	y = oom_attention_core(t, &at, oom_op_heads(t, oom_take(&f, q)), oom_op_heads(t, k),
			       oom_op_heads(t, v));
	y = oom_op_dropout(t, oom_op_linear(t, "dense", y, h, 0), a->dropout);
	return oom_leave(&f, y);
}

static struct oom_val reformer_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	struct oom_val y = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);

	y = oom_op_dropout(t, oom_op_linear(t, "dense", y, D(a->d_ff), OOM_BIAS), a->dropout);
	y = oom_op_linear(t, "dense", oom_activation(t, a->act, y), D(a->d_model), OOM_BIAS);
	return oom_op_dropout(t, y, a->dropout);
}

/* The two streams, attention's output and the hidden states, are one value of twice the width. */
static struct oom_val reformer_block(struct oom_tape *t, const void *ctx, uint32_t i,
				     struct oom_val x)
{
	const struct oom_arch *a = *(const struct oom_arch *const *)ctx;
	const bool lsh = a->kind[i < a->n_layers ? i : a->n_layers - 1] & REFORMER_LSH;
	const struct oom_dim h = D(a->d_model), parts[2] = {h, h};
	struct oom_frame f = {.t = t};
	struct oom_val in[2];

	oom_op_split(t, x, 2, parts, in);
	oom_name_each(&f, in, 2);
	in[0] = oom_name(&f, oom_op_add(t, in[0], reformer_attention(t, a, lsh, in[1])));
	in[1] = oom_name(&f, oom_op_add(t, in[1], reformer_mlp(t, a, in[0])));
	return oom_leave(&f, oom_op_cat(t, in[0], in[1], D(2 * a->d_model)));
}

static struct oom_val reformer_embeddings(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t axial = reformer_of(a)->axial;
	const struct oom_dim h = D(a->d_model);
	struct oom_frame f = {.t = t};
	struct oom_val x, pos;

	x = oom_op_embedding(t, "word_embeddings", oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
			     a->vocab, h, 0);
	x = oom_op_dropout(t, oom_input_grads(t, x), a->dropout);
	if (axial) {
		t->scope = "position_embeddings";
		pos = oom_op_expand_copy(t, oom_param(t, "weights", 0, axial, OOM_P_FP32), t->m_bs,
					 h);
		pos = oom_op_dropout(t, pos, a->dropout);
	} else {
		pos = oom_position_embeddings(t, a, h);
	}
	x = oom_name(&f, oom_op_add(t, x, pos));
	return oom_leave(&f, oom_op_cat(t, x, x, D(2 * a->d_model)));
}

static struct oom_val reformer_model(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_plan *real = t->plan;
	struct oom_plan reversible = *real;
	struct oom_val x;

	/* a reversible layer is computed again in backward */
	reversible.grad_ckpt = OOM_CKPT_FULL;
	t->plan = &reversible;
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, reformer_block, &a,
		       reformer_embeddings(t, a));
	t->plan = real;
	return oom_op_dropout(t, oom_op_layer_norm(t, "layer_norm", x, 0, true, true), a->dropout);
}

static struct oom_val reformer_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_val x = reformer_model(t, a), y;

	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_cls_head(t, a, OOM_ACT_TANH, x);
	if (oom_fuses_head(t)) {
		struct oom_arch untied = *a;

		untied.tie = false;
		return oom_fused_head(t, &untied, x, x, "decoder", true);
	}
	t->vocab = a->vocab;
	x = oom_name(&f, x);
	y = oom_op_linear(t, "decoder", x, (struct oom_dim){a->vocab, "vocab_size"},
			  OOM_BIAS | OOM_IS_HEAD);
	y = t->task == OOM_TASK_CAUSAL_LM ? oom_causal_lm_loss(t, a, y) :
					    oom_plain_lm_loss(t, y, false, t->m_bs);
	return oom_leave(&f, y);
}

const struct oom_family oom_family_reformer = {
	.name = "reformer",
	.summary = "local and hashed attention in reversible layers",
	.source = "transformers 5.12 models/reformer/modeling_reformer.py",
	.types = OOM_TYPE("reformer"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "value",
	.keys = reformer_keys,
	.parse = reformer_parse,
	.step = reformer_step,
};
