/* ESM-2: a protein encoder, norms first, learned or rotary positions rotated in fp32.
 * Reference: transformers 5.12, models/esm/modeling_esm.py. */
#include <string.h>

#include "blocks/encoder.h"

enum { ROTARY, TOKEN_DROPOUT, NORM_BEFORE };    /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *positions = oom_read_string(r, "position_embedding_type", "absolute");

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->dropout = a->classifier_dropout = oom_read_real(r, "hidden_dropout_prob", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->act = OOM_ACT_GELU_PYTHON;
	a->extra[ROTARY] = positions && !strcmp(positions, "rotary");
	a->extra[TOKEN_DROPOUT] = oom_read_bool(r, "token_dropout", false);
	a->extra[NORM_BEFORE] = oom_read_bool(r, "emb_layer_norm_before", false);
	if (a->d_model % a->n_heads)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
	if (oom_read_bool(r, "is_folding_model", false))
		oom_read_fail(r, "esm with a folding trunk (is_folding_model) is not modelled");
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
	struct oom_rope rope;
};

static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val in,
			     struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v;

	at.mask = l->mask;
	at.weights = weights;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = true;
	q = oom_op_heads(t, oom_op_linear(t, "query", oom_keep(in), h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "key", oom_keep(in), h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "value", oom_keep(in), h, OOM_BIAS));
	q = oom_op_unary(t, OOM_SCALE, q);
	if (a->extra[ROTARY])
		oom_rope_fp32(t, &q, &k, &l->rope, a->n_heads, a->n_heads, a->head_dim);
	return oom_attention_core(t, &at, q, k, v);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val in = oom_op_layer_norm(t, "LayerNorm", oom_keep(x), 0, true, true),
		       weights = oom_none();

	(void)i;
	x = oom_output(t, a->dropout, NULL, attend(t, l, in, &weights), x);
	oom_drop(t, weights);                   /* "attn_output, _", of EsmAttention */
	oom_drop(t, in);
	in = oom_op_layer_norm(t, "LayerNorm", oom_keep(x), 0, true, true);
	x = oom_output(t, a->dropout, NULL,
		       oom_activation(t, a->act,
				      oom_op_linear(t, "dense", oom_keep(in), D(a->d_ff),
						    OOM_BIAS)),
		       x);
	oom_drop(t, in);
	return x;
}

/* Masked tokens zeroed, the rest scaled up for them: the division by a tensor promotes to fp32. */
static struct oom_val drop_tokens(struct oom_tape *t, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val is_mask = oom_new(t, "is mask", t->m_bs, D(1), OOM_U8), ratio;

	x = oom_op_masked(t, "masked_fill", x, is_mask);
	ratio = oom_new(t, "1 - mask_ratio_observed", t->m_b, D(1), OOM_F32);
	return oom_op_cast(t, oom_op_div(t, oom_op_unary(t, OOM_SCALE, x), ratio), dt);
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	struct oom_val pos = oom_positions_from_ids(t), w, x, e = oom_none();

	oom_buffer(t, a->max_positions, OOM_I64);
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	w = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, D(a->d_model));
	w = oom_input_grads(t, w);
	x = oom_share(t, w);
	if (a->extra[TOKEN_DROPOUT])
		x = drop_tokens(t, x);
	if (!a->extra[ROTARY]) {
		e = oom_op_embedding(t, "position_embeddings", oom_keep(pos), a->max_positions,
				     D(a->d_model), 0);
		x = oom_op_add(t, x, oom_keep(e));
	}
	if (a->extra[NORM_BEFORE])
		x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	if (t->plan->padding_mask)
		x = oom_op_mul(t, x, oom_input(t, "attention_mask", t->m_bs, 1, OOM_I64));
	oom_drop(t, e);
	oom_drop(t, w);
	oom_drop(t, pos);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_model, .act = a->act, .add_bias = true};
	const uint64_t depth = oom_depth(t, a->n_layers);
	struct layer l = {.a = a, .rope = {oom_none(), oom_none()}};
	struct oom_val word, x = embeddings(t, a, &word), first, hidden;

	l.mask = oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	if (a->extra[ROTARY])
		l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 1);
	oom_drop(t, oom_param(t, "contact_head.regression", 1, depth * a->n_heads,
			      OOM_P_LINEAR | OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "contact_head.regression.bias", 0, 1, OOM_P_UNUSED));
	first = oom_share(t, x);
	x = oom_layers(t, (uint32_t)depth, NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	hidden = oom_share(t, x);
	x = oom_op_layer_norm(t, "emb_layer_norm_after", x, 0, true, true);
	oom_drop(t, hidden);
	oom_drop(t, first);
	return t->task == OOM_TASK_SEQ_CLS ? oom_cls_head(t, a, OOM_ACT_TANH, x) :
					     oom_mlm_loss(t, a, &m, x, word);
}

const struct oom_family oom_family_esm = {
	.name = "esm",
	.summary = "protein encoder, norms first, learned or rotary positions",
	.source = "transformers 5.12 models/esm/modeling_esm.py",
	.types = OOM_TYPE("esm"),
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
