/* Reformer: local and hashed attention in reversible layers.
 * Reference: transformers 5.12, models/reformer/modeling_reformer.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/encoder.h"

enum { LSH = 1 };
/* extra[]: width of all heads; elements of the axial tables; keys a query meets */
enum { HEADS_D, AXIAL, KEYS };

static double item(struct oom_reader *r, const char *key, uint32_t i)
{
	const double v = oom_read_item_real(r, key, i, 0);

	return v >= 0 && v < 1e7 ? v : 0;
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *layers;

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "feed_forward_size", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = oom_read_count_or(r, "attention_head_size", 64);
	a->extra[HEADS_D] = a->n_heads * a->head_dim;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->act = oom_read_act(r, "hidden_act", "relu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0.05);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	a->attn_dropout = oom_read_real(r, "local_attention_probs_dropout_prob", 0.05);
	if (oom_read_bool(r, "axial_pos_embds", true))
		for (uint32_t i = 0; i < 2; i++)
			a->extra[AXIAL] += (uint64_t)(item(r, "axial_pos_shape", i) *
						      item(r, "axial_pos_embds_dim", i));
	a->extra[KEYS] = oom_read_count_or(r, "local_attn_chunk_length", 64) * 2;
	layers = oom_read_key(r, "attn_layers");
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

		a->kind[i] = type && !strcmp(type, "lsh") ? LSH : 0;
	}
	a->kinds = true;
	a->approximate = true;
	snprintf(a->warning, sizeof(a->warning),
		 "reformer: parameters are exact; activations are approximated: reversible layers "
		 "as "
		 "checkpointed ones, buckets as two chunks of keys.");
}

struct layer {
	const struct oom_arch *a;
};

/* The two streams, attention's output and the hidden states, are one value of twice the width. */
static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const bool lsh = a->kind[i < a->n_layers ? i : a->n_layers - 1] & LSH;
	const struct oom_dim h = D(a->d_model), inner = D(a->extra[HEADS_D]), parts[2] = {h, h};
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val in[2], q, k, v, y;

	at.sk = a->extra[KEYS] && a->extra[KEYS] < 1 << 24 ?
			oom_len_min(t, OOM_MONO_ONE, a->extra[KEYS]) :
			t->m_s;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = at.written_out = at.scores_local = true;
	oom_op_split(t, x, 2, parts, in);
	y = oom_op_layer_norm(t, "layer_norm", oom_keep(in[1]), 0, true, true);
	q = oom_op_linear(t, lsh ? "query_key" : "query", oom_keep(y), inner, 0);
	k = lsh ? oom_share(t, q) : oom_op_linear(t, "key", oom_keep(y), inner, 0);
	v = oom_op_linear(t, "value", y, inner, 0);
	y = oom_attention_core(t, &at, oom_op_heads(t, q), oom_op_heads(t, k), oom_op_heads(t, v));
	y = oom_op_dropout(t, oom_op_linear(t, "dense", y, h, 0), a->dropout);
	in[0] = oom_op_add(t, in[0], y);
	y = oom_op_layer_norm(t, "layer_norm", oom_keep(in[0]), 0, true, true);
	y = oom_op_dropout(t, oom_op_linear(t, "dense", y, D(a->d_ff), OOM_BIAS), a->dropout);
	y = oom_op_linear(t, "dense", oom_activation(t, a->act, y), h, OOM_BIAS);
	in[1] = oom_op_add(t, in[1], oom_op_dropout(t, y, a->dropout));
	return oom_op_cat(t, in[0], in[1], D(2 * a->d_model));
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val x, pos;

	x = oom_op_embedding(t, "word_embeddings", oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
			     a->vocab, h, 0);
	x = oom_op_dropout(t, oom_input_grads(t, x), a->dropout);
	if (a->extra[AXIAL]) {
		t->scope = "position_embeddings";
		pos = oom_op_expand_copy(t, oom_param(t, "weights", 0, a->extra[AXIAL], OOM_P_FP32),
					 t->m_bs, h);
		pos = oom_op_dropout(t, pos, a->dropout);
	} else {
		pos = oom_op_embedding(t, "position_embeddings",
				       oom_input(t, "position ids", t->m_s, 1, OOM_I64),
				       a->max_positions, h, 0);
	}
	x = oom_op_add(t, x, pos);
	return oom_op_cat(t, oom_keep(x), x, D(2 * a->d_model));
}

static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	struct oom_val x = oom_op_slice(t, oom_keep(h), t->m_b, D(2 * a->d_model)), loss;

	x = oom_op_linear(t, "dense", oom_op_dropout(t, x, a->classifier_dropout), D(a->d_model),
			  OOM_BIAS);
	x = oom_op_dropout(t, oom_op_unary(t, OOM_TANH, x), a->classifier_dropout);
	x = oom_op_linear(t, "out_proj", x, (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	loss = oom_cls_loss(t, a, x);
	oom_drop(t, h);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_plan *real = t->plan;
	struct oom_plan reversible = *real;
	struct layer l = {.a = a};
	struct oom_val x, loss;

	/* a reversible layer is computed again in backward */
	reversible.grad_ckpt = OOM_CKPT_FULL;
	t->plan = &reversible;
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l,
		       embeddings(t, a));
	t->plan = real;
	x = oom_op_dropout(t, oom_op_layer_norm(t, "layer_norm", x, 0, true, true), a->dropout);
	if (t->task == OOM_TASK_SEQ_CLS)
		return classify(t, a, x);
	if (oom_fuses_head(t)) {
		struct oom_arch untied = *a;

		untied.tie = false;
		return oom_fused_head(t, &untied, x, x, "decoder", true);
	}
	t->vocab = a->vocab;
	loss = oom_op_linear(t, "decoder", oom_keep(x), (struct oom_dim){a->vocab, "vocab_size"},
			     OOM_BIAS | OOM_IS_HEAD);
	loss = t->task == OOM_TASK_CAUSAL_LM ? oom_causal_lm_loss(t, a, loss) :
					       oom_plain_lm_loss(t, loss, false, t->m_bs);
	oom_drop(t, x);
	return loss;
}

const struct oom_family oom_family_reformer = {
	.name = "reformer",
	.summary = "local and hashed attention in reversible layers",
	.source = "transformers 5.12 models/reformer/modeling_reformer.py",
	.types = OOM_TYPE("reformer"),
	.lora_targets = "value",
	.parse = parse,
	.step = step,
};
