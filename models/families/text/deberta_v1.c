/* DeBERTa, the first version: disentangled attention from one projection, layer norms written out.
 * Reference: transformers 5.12, models/deberta/modeling_deberta.py. */
#include "deberta.h"

struct deberta_v1 {
	uint64_t span;                  /* rows of relative positions to either side; 0: none */
	bool term[2];                   /* c2p, p2c: the terms of the scores */
	bool biased;                    /* positions in the input */
	bool legacy;                    /* the older language model head */
	double pooler_dropout;
};
OOM_OWN(deberta_v1, struct deberta_v1);

static const struct oom_key_row deberta_v1_keys[] = {
	OOM_DEBERTA_KEYS, FLAG_OWN(struct deberta_v1, biased, "position_biased_input", true),
	FLAG_OWN(struct deberta_v1, legacy, "legacy", true),
	REAL_OWN(struct deberta_v1, pooler_dropout, "pooler_dropout", 0), OOM_KEYS_END};

static void deberta_v1_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct deberta_v1 *own = deberta_v1_own(a);
	double span = oom_read_real(r, "max_relative_positions", -1);

	a->classifier_dropout = oom_read_real(r, "cls_dropout", a->dropout);
	/* the newer head multiplies by the embeddings themselves */
	if (!own->legacy)
		a->tie = true;
	span = span < 1 ? (double)a->max_positions : span;
	if (oom_read_bool(r, "relative_attention", false)) {
		if (!(span >= 1 && span <= 1 << 24))
			oom_read_fail(r, "max_relative_positions is %g", span);
		else
			own->span = (uint64_t)span;
	}
	oom_deberta_terms(r, &own->term[0], &own->term[1]);
	oom_check_heads(a);
	if (oom_read_bool(r, "talking_head", false))
		oom_read_fail(r, "deberta with talking heads (talking_head) is not modelled");
}

struct deberta_v1_layer {
	const struct oom_arch *a;
	struct oom_val rel;             /* the relative embeddings */
	struct oom_kept *kept;
};

/* DebertaLayerNorm: mean and variance in fp32, the difference made twice. */
static struct oom_val deberta_v1_norm(struct oom_tape *t, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const char *scope = t->scope;
	struct oom_frame f = {.t = t};
	struct oom_val w, b, h, mean, v, y;

	t->scope = "LayerNorm";
	x = oom_arg(&f, x);
	w = oom_norm_param(t, "weight", x.width);
	b = oom_norm_param(t, "bias", x.width);
	h = oom_name(&f, oom_op_cast(t, x, OOM_F32));
	mean = oom_name(&f, oom_op_mean(t, h, h.mono, D(1)));
	v = oom_op_unary(t, OOM_SQUARE, oom_op_add(t, h, mean));
	v = oom_name(&f, oom_op_mean(t, v, h.mono, D(1)));
	y = oom_op_add(t, h, mean);
	y = oom_op_div(t, y, oom_op_unary(t, OOM_SQRT, oom_op_unary(t, OOM_ADD_SCALAR, v)));
	oom_forget(&f, h);
	y = oom_name(&f, oom_op_cast(t, y, dt));
	y = oom_op_add(t, oom_op_mul(t, w, y), b);
	t->scope = scope;
	return oom_leave(&f, y);
}

/* disentangled_att_bias: two terms over 2 x min(s, span) relative positions; matmul copies what
 * it broadcasts. */
static struct oom_val deberta_v1_bias(struct oom_tape *t, const struct deberta_v1_layer *l,
				      struct oom_val q, struct oom_val k)
{
	const struct oom_arch *a = l->a;
	const uint16_t rows = oom_len_min(t, OOM_MONO_ONE, deberta_v1_of(a)->span);
	const uint16_t wide = oom_mono_mul(t, t->m_bs, rows), each = oom_mono_mul(t, t->m_b, rows);
	const struct oom_dim h2 = D(2 * a->d_model), heads2 = D(2 * a->n_heads);
	struct oom_frame f = {.t = t};
	struct oom_val rel, score = oom_none(), x, index;

	rel = oom_op_slice(t, oom_op_dropout(t, l->rel, a->dropout), rows, h2);
	rel = oom_name(&f, rel);
	for (int term = 0; term < 2; term++) {
		if (!deberta_v1_of(a)->term[term])
			continue;
		x = oom_op_linear_in(t, term ? "pos_q_proj" : "pos_proj", rel, a->d_model,
				     D(a->d_model), term ? OOM_BIAS : 0);
		x.width = h2.n;                 /* both sides */
		x = oom_op_expand_copy(t, oom_name(&f, x), each, h2);
		index = oom_name(&f, oom_relative_positions(t, term));
		x = oom_op_bmm(t, term ? "p2c" : "c2p", term ? k : q, x, wide, heads2, a->head_dim);
		x = oom_name(&f, oom_deberta_look_up(t, a->n_heads, x, index));
		score = oom_is_none(score) ? oom_op_unary(t, OOM_ADD_SCALAR, x) :
					     oom_op_add_inplace(t, score, x);
	}
	return oom_leave(&f, score);
}

/* DisentangledSelfAttention.forward */
static struct oom_val deberta_v1_attention(struct oom_tape *t, const struct deberta_v1_layer *l,
					   struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h}, heads = D(a->n_heads);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], s, bias = oom_none();

	x = oom_name(&f, oom_op_linear(t, "in_proj", x, D(3 * a->d_model), 0));
	oom_op_split(t, oom_op_heads(t, x), 3, parts, p);
	t->scope = "self";
	p[0] = oom_op_add(t, p[0], oom_param(t, "q_bias", 0, a->d_model, OOM_P_FP32));
	p[2] = oom_op_add(t, p[2], oom_param(t, "v_bias", 0, a->d_model, OOM_P_FP32));
	p[0] = oom_op_unary(t, OOM_SCALE, p[0]);
	oom_name_each(&f, p, 3);
	s = oom_op_bmm(t, "scores", p[0], p[1], t->m_bss, heads, a->head_dim);
	if (deberta_v1_of(a)->span)
		bias = oom_name(&f, deberta_v1_bias(t, l, p[0], p[1]));
	s = oom_is_none(bias) ? oom_op_unary(t, OOM_ADD_SCALAR, s) : oom_op_add(t, s, bias);
	oom_name(&f, oom_new(t, "attention_mask.bool()", t->m_bss, D(1), OOM_U8));
	s = oom_op_masked(t, "masked_fill", s, oom_new(t, "bitwise_not", t->m_bss, D(1), OOM_U8));
	s = oom_name(&f, s);
	s = oom_name(&f, oom_op_dropout(t, oom_op_softmax(t, s, false), a->attn_dropout));
	s = oom_op_bmm(t, "context", s, p[2], t->m_bs, h, oom_mono_now(t, t->m_s));
	return oom_leave(&f, oom_op_merge_heads(t, s));
}

static struct oom_val deberta_v1_output(struct oom_tape *t, const struct oom_arch *a,
					struct oom_val from, struct oom_val input)
{
	struct oom_frame f = {.t = t};
	struct oom_val y;

	from = oom_arg(&f, from);
	input = oom_arg(&f, input);
	y = oom_op_linear(t, "dense", from, D(a->d_model), OOM_BIAS);
	y = oom_name(&f, oom_op_dropout(t, y, a->dropout));
	return oom_leave(&f, deberta_v1_norm(t, oom_op_add(t, y, input)));
}

static struct oom_val deberta_v1_block(struct oom_tape *t, const void *ctx, uint32_t i,
				       struct oom_val x)
{
	const struct deberta_v1_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	x = oom_name(&f, deberta_v1_output(t, a, deberta_v1_attention(t, l, x), x));
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", x, D(a->d_ff), OOM_BIAS));
	y = deberta_v1_output(t, a, y, x);
	oom_kept_add(t, l->kept, y);            /* output_hidden_states=True, always */
	return oom_leave(&f, y);
}

static struct oom_val deberta_v1_model(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val *word)
{
	const struct deberta_v1 *own = deberta_v1_of(a);
	struct oom_kept kept;
	struct deberta_v1_layer l = {.a = a, .rel = oom_none(), .kept = &kept};
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_deberta_embeddings(t, a, own->biased, deberta_v1_norm, word);

	x = oom_name(&f, x);
	kept.n = 0;
	kept.in_training = true;
	kept.without_grad = false;
	oom_name_shared(&f, oom_deberta_mask(t));
	if (own->span) {
		oom_name_shared(&f, oom_new(t, "relative_pos", oom_mono_mul(t, t->m_s, t->m_s),
					    D(1), OOM_I64));
		t->scope = "rel_embeddings";
		l.rel = oom_param(t, "weight", 2 * own->span, a->d_model, OOM_P_EMBEDDING);
	}
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, deberta_v1_block, &l, x);
	oom_kept_drop(t, &kept);
	return oom_leave(&f, x);
}

static struct oom_val deberta_v1_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct deberta_v1 *own = deberta_v1_of(a);
	struct oom_val word, x = deberta_v1_model(t, a, &word);

	return oom_deberta_heads(t, a, own->legacy, own->pooler_dropout, x, word);
}

const struct oom_family oom_family_deberta_v1 = {
	.name = "deberta_v1",
	.summary = "post-norm encoder with disentangled attention, the first version",
	.source = "transformers 5.12 models/deberta/modeling_deberta.py",
	.types = OOM_TYPE("deberta"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "in_proj",
	.keys = deberta_v1_keys,
	.parse = deberta_v1_parse,
	.step = deberta_v1_step,
};
