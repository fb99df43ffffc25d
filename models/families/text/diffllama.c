/* Llama-like decoders with an attention of their own: DiffLlama subtracts one half of the heads
 * from the other, Doge adds a learned mask made of the values and weighs its residuals.
 * Reference: transformers 5.12, models/{diffllama,doge}/modeling_*.py. */
#include <math.h>
#include <string.h>

#include "blocks/blocks.h"

enum { DOGE, WINDOW, MOE };             /* extra[]; WINDOW: keys the dynamic mask keeps */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[DOGE] = !strcmp(a->model_type, "doge");
	a->norm = OOM_NORM_RMS;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", false);
	a->mlp_bias = oom_read_bool(r, "mlp_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->dropout = oom_read_real(r, "hidden_dropout", 0);
	a->window = oom_read_count_or(r, "sliding_window", 0);
	a->extra[WINDOW] = oom_read_count_or(r, "keep_window_size", 2048);
	a->extra[MOE] = a->extra[DOGE] && oom_read_bool(r, "is_moe", false);
	if (!a->n_kv_heads || (!a->extra[DOGE] && a->n_heads % 2))
		oom_read_fail(r,
			      "num_attention_heads (%llu) and num_key_value_heads must be "
			      "positive, and even for diffllama",
			      (unsigned long long)a->n_heads);
	if (a->extra[MOE]) {
		a->n_experts = oom_read_count(r, "num_experts", 1);
		a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	}
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
};

/* exp(sum(q * k)) in fp32, back in the model's type: one of the two weights of the difference. */
static struct oom_val lambda(struct oom_tape *t, const char *q, const char *k, uint64_t d,
			     enum oom_dtype dt)
{
	struct oom_val x = oom_op_mul(t, oom_param(t, q, 0, d, 0), oom_param(t, k, 0, d, 0));

	x = oom_op_sum(t, oom_op_cast(t, x, OOM_F32), OOM_MONO_ONE, D(1));
	return oom_op_cast(t, oom_op_unary(t, OOM_EXP, x), dt);
}

/* attention of all heads over values joined in pairs; the second half of the heads is subtracted
 * from the first */
static struct oom_val differential(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint64_t heads = a->n_heads, d = a->head_dim;
	const struct oom_dim h = {x.width, x.text}, qd = {heads * d, "n_heads * head_dim"},
			     kd = {a->n_kv_heads * d, "n_kv_heads * head_dim"};
	const struct oom_dim wide = {2 * heads * d, "2 * n_heads * head_dim"}, half[2] = {qd, qd};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v, p[2], w, w2, y;

	q = oom_op_heads(t, oom_op_linear(t, "q_proj", oom_keep(x), qd, bias));
	k = oom_op_heads(t, oom_op_linear(t, "k_proj", oom_keep(x), kd, bias));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", oom_keep(x), kd, bias));
	oom_rope_pair(t, &q, &k, &l->rope, heads, a->n_kv_heads, d, d);
	if (heads != a->n_kv_heads) {
		k = oom_op_expand_copy(t, k, k.mono, qd);
		v = oom_op_expand_copy(t, v, v.mono, qd);
	}
	v = oom_op_copy(t, "cat of chunks", v);
	v = oom_op_expand_copy(t, v, v.mono, wide);
	at.layer_names_weights = true;
	at.kv_heads = heads;
	at.dv = 2 * d;
	at.mask = l->mask;
	v.perm = false;
	y = oom_attention_core(t, &at, q, k, v);
	w = lambda(t, "lambda_q1", "lambda_k1", d, (enum oom_dtype)q.dt);
	w2 = lambda(t, "lambda_q2", "lambda_k2", d, (enum oom_dtype)q.dt);
	w = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_add(t, w, w2));
	oom_op_split(t, y, 2, half, p);
	y = oom_op_add(t, p[0], oom_op_mul(t, w, p[1]));
	y = oom_op_unary(t, OOM_SCALE, oom_norm(t, OOM_NORM_RMS_PLAIN, "groupnorm", y, 2 * d));
	y = oom_op_linear(t, "o_proj", oom_op_merge_heads(t, y), h, bias);
	oom_done(t, x);                         /* a name of the layer until it has returned */
	return y;
}

/* exp(A * softplus(dt(values))), one number a key, spread over the queries, masked, only the
 * largest kept. */
static struct oom_val dynamic_mask(struct oom_tape *t, const struct layer *l, struct oom_val v,
				   enum oom_dtype dt)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim kv = {a->n_kv_heads, "n_kv_heads"};
	struct oom_val A = oom_param(t, "A", 0, a->n_kv_heads, 0), m, fill;

	m = oom_op_linear(t, "dt_proj", oom_op_merge_heads(t, v), kv, a->qkv_bias ? OOM_BIAS : 0);
	m = oom_op_unary(t, OOM_EXP, oom_op_mul(t, A, oom_op_unary(t, OOM_SOFTPLUS, m)));
	m = oom_op_expand(t, m, t->m_bss, kv);
	if (!oom_is_none(l->mask)) {
		fill = oom_new(t, "mask != 0", l->mask.mono, D(1), OOM_U8);
		if (l->mask.dt == OOM_U8)
			oom_scratch(t, "where", l->mask.mono, 1, dt);
		m = oom_op_masked(t, "masked_fill", m, fill);
	}
	if (oom_cond_above(t, t->m_s, a->extra[WINDOW])) {
		fill = oom_new(t, "active mask", m.mono, kv, dt);
		oom_scratch(t, "scatter", m.mono, kv.n, dt);
		oom_scratch(t, "topk indices", oom_mono_mul(t, t->m_b, t->m_s),
			    kv.n * a->extra[WINDOW], OOM_I64);
		oom_drop(t, fill);
		m = oom_op_masked(t, "masked_fill", m,
				  oom_new(t, "active == 0", m.mono, kv, OOM_U8));
	}
	if (a->n_heads != a->n_kv_heads)
		m = oom_op_expand_copy(t, m, m.mono, (struct oom_dim){a->n_heads, "n_heads"});
	return m;
}

static struct oom_val dynamic(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint64_t d = a->head_dim;
	const struct oom_dim h = {x.width, x.text}, qd = {a->n_heads * d, "n_heads * head_dim"},
			     kd = {a->n_kv_heads * d, "n_kv_heads * head_dim"};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v;

	q = oom_op_linear(t, "q_proj", oom_keep(x), qd, bias);
	q = oom_op_heads(t, oom_norm(t, a->norm, "q_norm", q, d));
	k = oom_op_linear(t, "k_proj", oom_keep(x), kd, bias);
	k = oom_op_heads(t, oom_norm(t, a->norm, "k_norm", k, d));
	v = oom_op_heads(t, oom_op_linear(t, "v_proj", oom_keep(x), kd, bias));
	oom_rope_pair(t, &q, &k, &l->rope, a->n_heads, a->n_kv_heads, d, d);
	at.layer_names_weights = true;
	at.mask = dynamic_mask(t, l, oom_share(t, v), dt);
	at.causal = false;
	q = oom_attention_core(t, &at, q, k, v);
	q = oom_op_linear(t, "o_proj", q, h, bias);
	oom_drop(t, at.mask);
	oom_done(t, x);
	return q;
}

/* Doge's retrieval experts: rows of two embeddings picked by a product of two rankings, beside
 * the shared expert. */
static struct oom_val retrieval_experts(struct oom_tape *t, const struct oom_arch *a,
					struct oom_val x)
{
	const uint64_t keys = (uint64_t)floor(sqrt((double)a->n_experts));
	const struct oom_dim k = {a->top_k, "top_k"}, h = {x.width, x.text},
			     rows = {a->top_k * x.width, "top_k * d_model"};
	struct oom_val s, idx, down, up, y;

	s = oom_op_linear(t, "router_gate", oom_keep(x),
			  (struct oom_dim){2 * keys, "2 * sqrt(n_experts)"}, 0);
	s = oom_op_gather(t, "topk", s,
			  oom_new(t, "topk index", s.mono, (struct oom_dim){2 * keys, NULL},
				  OOM_I64),
			  s.mono, (struct oom_dim){2 * keys, NULL});
	s = oom_op_expand_copy(t, s, s.mono, (struct oom_dim){keys * keys, "sqrt(n_experts) ^ 2"});
	idx = oom_new(t, "indices", s.mono, k, OOM_I64);
	s = oom_op_softmax(t, oom_op_gather(t, "topk", s, oom_keep(idx), s.mono, k), false);
	t->scope = "mlp";
	down = oom_param(t, "down_embed.weight", a->n_experts, x.width, OOM_P_EXPERT);
	up = oom_param(t, "up_embed.weight", a->n_experts, x.width, OOM_P_EXPERT);
	down = oom_op_embedding_param(t, down, oom_keep(idx), a->n_experts, rows);
	up = oom_op_embedding_param(t, up, idx, a->n_experts, rows);
	y = oom_op_bmm(t, "experts_weights", down, oom_keep(x), x.mono, k, x.width);
	y = oom_op_mul(t, oom_activation(t, a->act, y), s);
	y = oom_op_bmm(t, "experts_states", y, up, x.mono, h, a->top_k);
	return oom_op_add(t, oom_gated_mlp(t, x, a->act, D(a->d_ff), a->mlp_bias), y);
}

static struct oom_val join(struct oom_tape *t, const struct oom_arch *a, const char *name,
			   struct oom_val x, struct oom_val h)
{
	if (!a->extra[DOGE])
		return oom_op_add(t, x, h);
	h = oom_op_dropout(t, h, a->dropout);
	return oom_op_add(t, oom_op_mul(t, oom_param(t, name, 0, a->d_model, 0), x), h);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);

	(void)i;
	h = a->extra[DOGE] ? dynamic(t, l, h) : differential(t, l, h);
	x = join(t, a, "input_residual", x, h);
	h = oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	h = a->extra[MOE] ? retrieval_experts(t, a, h) :
			    oom_gated_mlp(t, h, a->act, D(a->d_ff), a->mlp_bias);
	return join(t, a, "post_attention_residual", x, h);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, positions,
		ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	first = oom_share(t, x);
	dt = (enum oom_dtype)x.dt;
	/* position_ids: every layer's argument, and a local of the model until it returns */
	positions = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask = oom_make_mask(t, true, a->extra[DOGE] ? a->window : 0, dt, t->m_b, t->m_s, t->m_s);
	l.rope = oom_rope_tables(t, a->head_dim, dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop_shared(t, positions);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

static const struct oom_family_type types[] = {
	{"diffllama", NULL}, {"doge", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_diffllama = {
	.name = "diffllama",
	.summary = "pre-norm decoder with differential attention, or a learned dynamic mask (Doge)",
	.source = "transformers 5.12 models/diffllama/modeling_diffllama.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
