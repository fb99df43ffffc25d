/* Llama-like decoders with an attention of their own: DiffLlama subtracts one half of the heads
 * from the other, Doge adds a learned mask made of the values and weighs its residuals.
 * Reference: transformers 5.12, models/{diffllama,doge}/modeling_*.py. */
#include <math.h>

#include "blocks/decoder.h"
#include "config/keys.h"

struct diffllama {
	uint64_t keys;                  /* that Doge's dynamic mask keeps */
	bool moe;
};
OOM_OWN(diffllama, struct diffllama);

struct diffllama_kind {
	bool pairs;                     /* heads come in pairs, one subtracted from the other */
	bool weighed;                   /* residuals times a weight of their own */
	bool experts;                   /* the config may ask for them */
	struct oom_val (*attention)(struct oom_frame *layer, const struct oom_decoder_layer *l,
				    struct oom_val x);
};
OOM_KIND(diffllama, struct diffllama_kind);

static const struct oom_key_row diffllama_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"),
	LIKE(n_kv_heads, "num_key_value_heads", 1, n_heads),
	QUOTIENT(head_dim, "head_dim", d_model, n_heads), OOM_USUAL_KEYS,
	ACT(act, "hidden_act", "silu"), OOM_BIAS_KEYS(false), FLAG(mlp_bias, "mlp_bias", false),
	REAL(dropout, "hidden_dropout", 0),
	OR_OWN(struct diffllama, keys, "keep_window_size", 2048),
	FLAG_OWN(struct diffllama, moe, "is_moe", false), OOM_KEYS_END};

static void diffllama_parse(struct oom_arch *a)
{
	struct diffllama *own = diffllama_own(a);

	if (!diffllama_kind_of(a)->pairs)
		a->window = oom_read_count_or(&a->rd, "sliding_window", 0);
	own->moe &= diffllama_kind_of(a)->experts;
	if (!a->n_kv_heads || (diffllama_kind_of(a)->pairs && a->n_heads % 2))
		oom_read_fail(&a->rd,
			      "num_attention_heads (%llu) and num_key_value_heads must be "
			      "positive, and even for diffllama",
			      (unsigned long long)a->n_heads);
	if (own->moe) {
		a->n_experts = oom_read_count(&a->rd, "num_experts", 1);
		a->top_k = oom_read_count(&a->rd, "num_experts_per_tok", 1);
	}
}

/* exp(sum(q * k)) in fp32, back in the model's type: one of the two weights of the difference. */
static struct oom_val lambda(struct oom_tape *t, const char *q, const char *k, uint64_t d,
			     enum oom_dtype dt)
{
	struct oom_val x;

	t->scope = "self_attn";
	x = oom_op_mul(t, oom_param(t, q, 0, d, 0), oom_param(t, k, 0, d, 0));
	x = oom_op_sum(t, oom_op_cast(t, x, OOM_F32), OOM_MONO_ONE, D(1));
	return oom_op_cast(t, oom_op_unary(t, OOM_EXP, x), dt);
}

/* attention of all heads over values joined in pairs; the second half of the heads is subtracted
 * from the first */
static struct oom_val differential(struct oom_frame *layer, const struct oom_decoder_layer *l,
				   struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint64_t heads = a->n_heads, d = a->head_dim;
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_layer_attn(t, l, false);
	const struct oom_dim h = {x.width, x.text}, qd = oom_q_width(&at),
			     wide = {2 * heads * d, "2 * n_heads * head_dim"}, half[2] = {qd, qd};
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, p[2], w, w2, y;

	x = oom_arg(&f, x);                     /* a name of the layer until it has returned */
	q = oom_op_heads(t, oom_op_linear(t, "q_proj", x, qd, bias));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", x, oom_k_width(&at), bias));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", x, oom_k_width(&at), bias));
	oom_rope_pair(t, &q, &k, &l->rope, heads, a->n_kv_heads, d, d);
	if (heads != a->n_kv_heads) {
		k = oom_op_expand_copy(t, k, k.mono, qd);
		v = oom_op_expand_copy(t, v, v.mono, qd);
	}
	v = oom_op_copy(t, "cat of chunks", v);
	v = oom_op_expand_copy(t, v, v.mono, wide);
	at.caller = layer;
	at.kv_heads = heads;
	at.dv = 2 * d;
	v.perm = false;
	y = oom_attention_core(t, &at, q, k, v);
	w = lambda(t, "lambda_q1", "lambda_k1", d, q.dt);
	w2 = lambda(t, "lambda_q2", "lambda_k2", d, q.dt);
	w = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_add(t, w, w2));
	oom_op_split(t, y, 2, half, p);
	y = oom_op_add(t, p[0], oom_op_mul(t, w, p[1]));
	/* nn.RMSNorm: on autocast's fp32 list (aten/src/ATen/autocast_mode.h), and its result stays there, with the
	 * residual stream behind it */
	if (t->amp)
		y = oom_op_cast(t, y, OOM_F32);
	y = oom_op_unary(t, OOM_SCALE, oom_norm(t, OOM_NORM_RMS_PLAIN, "groupnorm", y, 2 * d));
	return oom_leave(&f, oom_op_linear(t, "o_proj", oom_op_merge_heads(t, y), h, bias));
}

/* exp(A * softplus(dt(values))), one number per key, spread over the queries, masked, only the
 * largest kept. */
static struct oom_val dynamic_mask(struct oom_tape *t, const struct oom_decoder_layer *l, struct oom_val v,
				   enum oom_dtype dt)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim kv = {a->n_kv_heads, "n_kv_heads"};
	const char *scope = t->scope;
	struct oom_val A, m, fill;

	t->scope = "self_attn";
	A = oom_param(t, "A", 0, a->n_kv_heads, 0);
	t->scope = scope;
	m = oom_op_linear(t, "dt_proj", oom_op_merge_heads(t, v), kv, a->qkv_bias ? OOM_BIAS : 0);
	m = oom_op_unary(t, OOM_EXP, oom_op_mul(t, A, oom_op_unary(t, OOM_SOFTPLUS, m)));
	m = oom_op_expand(t, m, t->m_bss, kv);
	if (!oom_is_none(l->mask)) {
		fill = oom_new(t, "mask != 0", l->mask.mono, D(1), OOM_U8);
		if (l->mask.dt == OOM_U8)
			oom_scratch(t, "where", l->mask.mono, 1, dt);
		m = oom_op_masked(t, "masked_fill", m, fill);
	}
	if (oom_cond_above(t, t->m_s, diffllama_of(a)->keys)) {
		struct oom_frame f = {.t = t};

		oom_name(&f, oom_new(t, "active mask", m.mono, kv, dt));
		oom_scratch(t, "scatter", m.mono, kv.n, dt);
		oom_scratch(t, "topk indices", oom_mono_mul(t, t->m_b, t->m_s),
			    kv.n * diffllama_of(a)->keys, OOM_I64);
		oom_leave(&f, oom_none());
		m = oom_op_masked(t, "masked_fill", m,
				  oom_new(t, "active == 0", m.mono, kv, OOM_U8));
	}
	if (a->n_heads != a->n_kv_heads)
		m = oom_op_expand_copy(t, m, m.mono, (struct oom_dim){a->n_heads, "n_heads"});
	return m;
}

static struct oom_val dynamic(struct oom_frame *layer, const struct oom_decoder_layer *l,
			      struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	const enum oom_dtype dt = x.dt;
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_layer_attn(t, l, false);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	x = oom_arg(&f, x);
	q = oom_op_linear(t, "q_proj", x, oom_q_width(&at), bias);
	q = oom_op_heads(t, oom_norm(t, a->norm, "q_norm", q, at.d));
	k = oom_op_linear(t, "k_proj", x, oom_k_width(&at), bias);
	k = oom_op_heads(t, oom_norm(t, a->norm, "k_norm", k, at.d));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", x, oom_k_width(&at), bias));
	oom_rope_pair(t, &q, &k, &l->rope, at.heads, at.kv_heads, at.d, at.d);
	v = oom_name(&f, v);
	at.caller = layer;
	at.mask = oom_name(&f, dynamic_mask(t, l, v, dt));
	at.causal = false;
	q = oom_attention_core(t, &at, q, k, oom_take(&f, v));
	return oom_leave(&f, oom_op_linear(t, "o_proj", q, h, bias));
}

/* Doge's retrieval experts: rows of two embeddings picked by a product of two rankings, beside
 * the shared expert. */
static struct oom_val retrieval_experts(struct oom_tape *t, const struct oom_arch *a,
					struct oom_val x)
{
	const uint64_t keys = (uint64_t)floor(sqrt((double)a->n_experts));
	const struct oom_dim k = {a->top_k, "top_k"}, h = {x.width, x.text},
			     rows = {a->top_k * x.width, "top_k * d_model"};
	const struct oom_dim two = {2 * keys, "2 * sqrt(n_experts)"};
	struct oom_frame f = {.t = t};
	struct oom_val s, idx, down, up, y;

	x = oom_arg(&f, x);
	s = oom_op_linear(t, "router_gate", x, two, 0);
	s = oom_op_gather(t, "topk", s, oom_new(t, "topk index", s.mono, two, OOM_I64), s.mono,
			  two);
	s = oom_op_expand_copy(t, s, s.mono, (struct oom_dim){keys * keys, "sqrt(n_experts) ^ 2"});
	idx = oom_name(&f, oom_new(t, "indices", s.mono, k, OOM_I64));
	s = oom_op_softmax(t, oom_op_gather(t, "topk", s, idx, s.mono, k), false);
	t->scope = "mlp";
	down = oom_param(t, "down_embed.weight", a->n_experts, x.width, OOM_P_EXPERT);
	up = oom_param(t, "up_embed.weight", a->n_experts, x.width, OOM_P_EXPERT);
	down = oom_op_embedding_param(t, down, idx, a->n_experts, rows);
	up = oom_op_embedding_param(t, up, oom_take(&f, idx), a->n_experts, rows);
	y = oom_op_bmm(t, "experts_weights", down, x, x.mono, k, x.width);
	y = oom_op_mul(t, oom_activation(t, a->act, y), s);
	y = oom_op_bmm(t, "experts_states", y, up, x.mono, h, a->top_k);
	return oom_op_add(t, oom_gated_mlp(t, oom_take(&f, x), a->act, D(a->d_ff), a->mlp_bias), y);
}

static struct oom_val join(struct oom_tape *t, const struct oom_arch *a, const char *name,
			   struct oom_val x, struct oom_val h)
{
	if (!diffllama_kind_of(a)->weighed)
		return oom_op_add(t, x, h);
	h = oom_op_dropout(t, h, a->dropout);
	return oom_op_add(t, oom_op_mul(t, oom_param(t, name, 0, a->d_model, 0), x), h);
}

static struct oom_val diffllama_block(struct oom_tape *t, const void *ctx, uint32_t i,
				      struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val h;

	(void)i;
	h = diffllama_kind_of(a)->attention(&f, l, oom_norm(t, a->norm, "input_layernorm", x, 0));
	x = oom_name(&f, join(t, a, "input_residual", x, h));
	h = oom_norm(t, a->norm, "post_attention_layernorm", x, 0);
	h = diffllama_of(a)->moe ? retrieval_experts(t, a, h) :
				   oom_gated_mlp(t, h, a->act, D(a->d_ff), a->mlp_bias);
	return oom_leave(&f, join(t, a, "post_attention_residual", oom_take(&f, x), h));
}

static const struct diffllama_kind diffllama = {.pairs = true, .attention = differential};
static const struct diffllama_kind doge = {
	.weighed = true, .experts = true, .attention = dynamic};
static const struct oom_family_type diffllama_types[] = {
	{"diffllama", &diffllama}, {"doge", &doge}, {NULL, NULL},
};

const struct oom_family oom_family_diffllama = {
	.name = "diffllama",
	.summary = "pre-norm decoder with differential attention, or a learned dynamic mask (Doge)",
	.source = "transformers 5.12 models/diffllama/modeling_diffllama.py",
	.types = diffllama_types,
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_proj+v_proj",
	.keys = diffllama_keys,
	.parse = diffllama_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .position_ids = true,
			       .rope = true, .window = true, .block = diffllama_block),
};
