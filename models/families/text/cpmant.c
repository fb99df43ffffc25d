/* CPM-Ant: learned prompt tokens before every sequence, a relative bias by position and segment,
 * attention written out. Reference: transformers 5.12, models/cpmant/modeling_cpmant.py. */
#include "blocks/blocks.h"
#include "config/keys.h"

struct cpmant {
	uint64_t prompt, prompt_types, segments, buckets;
};
OOM_OWN(cpmant, struct cpmant);

static const struct oom_key_row cpmant_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"), MUST(d_ff, "dim_ff"),
	MUST(n_layers, "num_hidden_layers"), MUST(n_heads, "num_attention_heads"),
	MUST(head_dim, "dim_head"), FLAG(tie, "tie_word_embeddings", true),
	REAL(dropout, "dropout_p", 0), OR_OWN(struct cpmant, prompt, "prompt_length", 32),
	OR_OWN(struct cpmant, prompt_types, "prompt_types", 32),
	OR_OWN(struct cpmant, segments, "segment_types", 32),
	OR_OWN(struct cpmant, buckets, "position_bias_num_buckets", 512), OOM_KEYS_END};

static void cpmant_parse(struct oom_arch *a)
{
	struct cpmant *c = cpmant_own(a);

	a->act = OOM_ACT_GELU;
	a->vocab += c->prompt_types * c->prompt;
	c->buckets += c->segments * c->segments;        /* rows of the bias table */
	if (c->prompt > 1 << 20 || c->segments > 1 << 16)
		oom_read_fail(&a->rd,
			      "prompt_length and segment_types must be at most 2^20 and 2^16");
}

struct cpmant_layer {
	const struct oom_arch *a;
	struct oom_val mask, bias;
	uint16_t m_len, m_tokens;       /* with the prompt */
};

/* (x * rsqrt(mean(x.float()^2) + eps)).to(type) * weight: only the mean, which has a name, is taken
 * in fp32. */
static struct oom_val cpmant_norm(struct oom_tape *t, const char *name, struct oom_val x)
{
	const enum oom_dtype dt = x.dt;
	const char *scope = t->scope;
	struct oom_frame f = {.t = t};
	struct oom_val w, v, y;

	x = oom_arg(&f, x);
	t->scope = name;
	w = oom_norm_param(t, "weight", x.width);
	v = oom_op_unary(t, OOM_SQUARE, oom_op_cast(t, x, OOM_F32));
	v = oom_name(&f, oom_op_mean(t, v, x.mono, D(1)));
	y = oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, v));
	y = oom_op_mul(t, x, y);
	y = oom_op_mul(t, oom_op_cast(t, y, dt), w);
	t->scope = scope;
	return oom_leave(&f, y);
}

/* scores == False and masked_fill, twice: before the softmax and after it */
static struct oom_val cpmant_filled(struct oom_tape *t, const struct cpmant_layer *l,
				    struct oom_val s)
{
	return oom_op_masked(t, "masked_fill", s,
			     oom_new(t, "not attended", l->mask.mono, D(1), OOM_U8));
}

static struct oom_val cpmant_attention(struct oom_tape *t, const struct cpmant_layer *l,
				       struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text},
			     q = {a->n_heads * a->head_dim, "n_heads * dim_head"},
			     heads = {a->n_heads, "n_heads"};
	const uint16_t scores = oom_mono_mul(t, l->m_tokens, l->m_len);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], s;

	x = oom_arg(&f, x);
	p[0] = oom_op_heads(t, oom_op_linear(t, "project_q", x, q, 0));
	p[1] = oom_op_heads(t, oom_op_linear(t, "project_k", x, q, 0));
	p[2] = oom_op_heads(t, oom_op_linear(t, "project_v", x, q, 0));
	oom_name_each(&f, p, 3);
	s = oom_op_bmm(t, "scores", p[0], p[1], scores, heads, a->head_dim);
	s = oom_op_add(t, oom_op_unary(t, OOM_SCALE, s), l->bias);
	s = cpmant_filled(t, l, s);
	s = cpmant_filled(t, l, oom_op_softmax(t, s, false));
	s = oom_op_dropout(t, s, a->dropout);
	s = oom_op_bmm(t, "attention", s, p[2], l->m_tokens, q, oom_mono_now(t, l->m_len));
	s = oom_op_linear(t, "attention_out", oom_op_merge_heads(t, s), h, 0);
	return oom_op_dropout(t, oom_leave(&f, s), a->dropout);
}

static struct oom_val cpmant_feed_forward(struct oom_tape *t, const struct oom_arch *a,
					  struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, ff = D(a->d_ff);
	struct oom_frame f = {.t = t};
	struct oom_val g;

	x = oom_arg(&f, x);
	g = oom_activation(t, a->act, oom_op_linear(t, "w_0", x, ff, 0));
	g = oom_op_mul(t, g, oom_op_linear(t, "w_1", x, ff, 0));
	g = oom_op_linear(t, "w_out", oom_op_dropout(t, g, a->dropout), h, 0);
	return oom_op_dropout(t, oom_leave(&f, g), a->dropout);
}

static struct oom_val cpmant_block(struct oom_tape *t, const void *ctx, uint32_t i,
				   struct oom_val x)
{
	const struct cpmant_layer *l = ctx;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	y = cpmant_attention(t, l, cpmant_norm(t, "layernorm_before_attention", x));
	x = oom_name(&f, oom_op_add(t, x, y));
	y = cpmant_feed_forward(t, l->a, cpmant_norm(t, "layernorm_before_ffn", x));
	return oom_leave(&f, oom_op_add(t, x, y));
}

static struct oom_val cpmant_bias(struct oom_tape *t, const struct cpmant_layer *l)
{
	const uint16_t plane = oom_mono_mul(t, l->m_tokens, l->m_len);
	const struct oom_arch *a = l->a;
	const uint64_t rows = cpmant_of(a)->buckets;
	struct oom_val b;

	t->scope = "position_bias";
	b = oom_param(t, "relative_attention_bias", rows, a->n_heads, 0);
	b = oom_op_embedding_param(t, b, oom_new(t, "buckets", plane, D(1), OOM_I32), rows,
				   D(a->n_heads));
	return oom_op_copy(t, "contiguous", b);
}

/* CpmAntModel.forward, whose result is a slice: the prompt is cut off. */
static struct oom_val cpmant_model(struct oom_tape *t, const struct oom_arch *a,
				   struct oom_val *embed)
{
	const struct cpmant *c = cpmant_of(a);
	struct cpmant_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x, y, ids, segments;

	l.m_len = oom_len_plus(t, OOM_MONO_ONE, c->prompt);
	l.m_tokens = oom_mono_mul(t, t->m_b, l.m_len);
	ids = oom_name(&f, oom_new(t, "prompt and ids", l.m_tokens, D(1), OOM_I32));
	segments = oom_name(&f, oom_new(t, "segments", l.m_tokens, D(1), OOM_I32));
	oom_name(&f, oom_new(t, "length", t->m_b, D(1), OOM_I32));
	for (int i = 0; i < 3; i++)             /* context, position, span */
		oom_name(&f, oom_new(t, "prompt and ids", l.m_tokens, D(1), OOM_I32));
	t->scope = "input_embedding";
	*embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, *embed, ids, a->vocab, D(a->d_model)));
	y = oom_name(&f, oom_op_embedding(t, "segment_embedding", segments, c->segments, D(a->d_model), 0));
	x = oom_name(&f, oom_op_add(t, x, y));
	/* of int32: the context that it is made from holds numbers */
	l.mask = oom_new(t, "attention mask", oom_mono_mul(t, l.m_tokens, l.m_len), D(1), OOM_I32);
	l.mask = oom_name_shared(&f, l.mask);
	l.bias = oom_name_shared(&f, cpmant_bias(t, &l));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, cpmant_block, &l, x);
	x = oom_op_slice(t, cpmant_norm(t, "output_layernorm", x), t->m_bs, D(a->d_model));
	oom_forget_shared(&f);
	x.perm = true;                          /* rows of another length: the head copies it */
	return oom_leave(&f, x);
}
static struct oom_val cpmant_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_val embed, x = cpmant_model(t, a, &embed);

	if (oom_fuses_head(t))                  /* hidden.view(-1, d) of the slice */
		return oom_fused_ce(t, a, x, embed, "lm_head");
	x = oom_name(&f, oom_lm_head(t, a, x, embed, "lm_head", false));
	return oom_leave(&f, oom_plain_lm_loss(t, x, false, t->m_bs));
}
const struct oom_family oom_family_cpmant = {
	.name = "cpmant",
	.summary = "prompt tokens before the text, a relative bias by position and segment",
	.source = "transformers 5.12 models/cpmant/modeling_cpmant.py",
	.types = OOM_TYPE("cpmant"),
	.lora_targets = "project_q+project_v",
	.keys = cpmant_keys,
	.parse = cpmant_parse,
	.step = cpmant_step,
};
