/* ESM-2: a protein encoder, norms first, learned or rotary positions rotated in fp32.
 * Reference: transformers 5.12, models/esm/modeling_esm.py. */
#include <string.h>

#include "blocks/encoder.h"

struct esm {
	bool rotary;                    /* else learned positions */
	bool token_dropout, norm_before;
};
OOM_OWN(esm, struct esm);

static const struct oom_key_row esm_keys[] = {
	OOM_ENCODER_KEYS, REAL(dropout, "hidden_dropout_prob", 0.1),
	REAL(classifier_dropout, "hidden_dropout_prob", 0.1),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0.1),
	FLAG(tie, "tie_word_embeddings", true),
	FLAG_OWN(struct esm, token_dropout, "token_dropout", false),
	FLAG_OWN(struct esm, norm_before, "emb_layer_norm_before", false), OOM_KEYS_END};

static void esm_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *positions = oom_read_string(r, "position_embedding_type", "absolute");

	a->act = OOM_ACT_GELU_PYTHON;
	esm_own(a)->rotary = positions && !strcmp(positions, "rotary");
	oom_check_heads(a);
	if (oom_read_bool(r, "is_folding_model", false))
		oom_read_fail(r, "esm with a folding trunk (is_folding_model) is not modelled");
}

/* EsmAttention.forward; in: the normed x */
static struct oom_val esm_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				    struct oom_val in, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	at.mask = l->mask;
	at.caller = &f;                         /* "attn_output, _ = self.self(...)" */
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = true;
	q = oom_op_heads(t, oom_op_linear(t, "query", in, h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "key", in, h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "value", in, h, OOM_BIAS));
	q = oom_op_unary(t, OOM_SCALE, q);
	if (esm_of(a)->rotary)
		oom_rope_fp32(t, &q, &k, &l->rope, a->n_heads, a->n_heads, a->head_dim);
	return oom_leave(&f, oom_output(t, a->dropout, NULL, oom_attention_core(t, &at, q, k, v),
					x));
}

static struct oom_val esm_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val in, y;

	(void)i;
	in = oom_name(&f, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true));
	x = oom_name(&f, esm_attention(t, l, in, x));
	oom_forget(&f, in);                     /* a local of EsmAttention */
	in = oom_name(&f, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true));
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", in, D(a->d_ff), OOM_BIAS));
	return oom_leave(&f, oom_output(t, a->dropout, NULL, y, x));
}

/* Masked tokens zeroed, the rest scaled up for them: the division by a tensor promotes to fp32. */
static struct oom_val esm_drop_tokens(struct oom_tape *t, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val is_mask = oom_new(t, "is mask", t->m_bs, D(1), OOM_U8), ratio;

	x = oom_op_masked(t, "masked_fill", x, is_mask);
	ratio = oom_new(t, "1 - mask_ratio_observed", t->m_b, D(1), OOM_F32);
	return oom_op_cast(t, oom_op_div(t, oom_op_unary(t, OOM_SCALE, x), ratio), dt);
}

static struct oom_val esm_embeddings(struct oom_tape *t, const struct oom_arch *a,
				     struct oom_val *word)
{
	const struct esm *e = esm_of(a);
	const struct oom_dim h = D(a->d_model);
	struct oom_frame f = {.t = t};
	struct oom_val ids = oom_name(&f, oom_positions_from_ids(t)), x, pos;

	oom_buffer(t, a->max_positions, OOM_I64);
	x = oom_name(&f, oom_word_embeddings(t, a, "word_embeddings", h, word));
	if (e->token_dropout)
		x = esm_drop_tokens(t, x);
	if (!e->rotary) {
		pos = oom_op_embedding(t, "position_embeddings", ids, a->max_positions, h, 0);
		x = oom_op_add(t, x, oom_name(&f, pos));
	}
	if (e->norm_before)
		x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	if (t->plan->padding_mask)
		x = oom_op_mul(t, x, oom_input(t, "attention_mask", t->m_bs, 1, OOM_I64));
	return oom_leave(&f, x);
}

static struct oom_val esm_model(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const uint64_t depth = oom_depth(t, a->n_layers);
	struct oom_decoder_layer l = {.a = a, .rope = {oom_none(), oom_none()}};
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_name(&f, esm_embeddings(t, a, word));

	l.mask = oom_name_shared(&f, oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b,
						   t->m_s, t->m_s));
	if (esm_of(a)->rotary)
		l.rope = oom_name_tables(&f, oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 1));
	oom_param(t, "contact_head.regression", 1, depth * a->n_heads, OOM_P_LINEAR | OOM_P_UNUSED);
	oom_param(t, "contact_head.regression.bias", 0, 1, OOM_P_UNUSED);
	x = oom_name(&f, oom_layers(t, (uint32_t)depth, NULL, esm_block, &l, x));
	x = oom_op_layer_norm(t, "emb_layer_norm_after", x, 0, true, true);
	oom_forget_shared(&f);
	return oom_leave(&f, x);
}

static struct oom_val esm_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_model, .act = a->act, .add_bias = true,
				  .owner = "lm_head", .norm = "layer_norm"};
	struct oom_val word, x = esm_model(t, a, &word);

	return t->task == OOM_TASK_SEQ_CLS ? oom_cls_head(t, a, OOM_ACT_TANH, x) :
					     oom_mlm_loss(t, a, &m, x, word);
}

const struct oom_family oom_family_esm = {
	.name = "esm",
	.summary = "protein encoder, norms first, learned or rotary positions",
	.source = "transformers 5.12 models/esm/modeling_esm.py",
	.types = OOM_TYPE("esm"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "query+value",
	.keys = esm_keys,
	.parse = esm_parse,
	.step = esm_step,
};
