/* DeepSeek-V4: residual streams mixed by hyper-connections, one key-value head for all queries
 * beside compressed entries of earlier windows, attention sinks, grouped output projections,
 * experts with clamped gates. Reference: transformers 5.12,
 * models/deepseek_v4/modeling_deepseek_v4.py.
 *
 * The compressed entries' masks and the indexer's choice are left out, and the warning says so. */
#include "blocks/decoder.h"
#include "config/keys.h"

enum { CSA = 1, HCA = 2, HASH = 4 };    /* of kind[] */

struct deepseek_v4 {
	uint64_t q_rank, o_groups, o_rank, streams, iters, index_heads, index_dim, rot;
	uint64_t rate_csa, rate_hca;
};
OOM_OWN(deepseek_v4, struct deepseek_v4);

static const struct oom_key_row deepseek_v4_keys[] = {
	OOM_DECODER_KEYS, MUST(head_dim, "head_dim"), OOM_USUAL_KEYS,
	ACT(act, "hidden_act", "silu"), OR(window, "sliding_window", 0),
	MUST(n_experts, "n_routed_experts"), MUST(top_k, "num_experts_per_tok"),
	MUST(d_expert, "moe_intermediate_size"), LIKE(d_ff, NULL, 1, d_expert),
	LIKE(d_shared, NULL, 1, d_expert), MUST_OWN(struct deepseek_v4, q_rank, "q_lora_rank"),
	MUST_OWN(struct deepseek_v4, o_groups, "o_groups"),
	MUST_OWN(struct deepseek_v4, o_rank, "o_lora_rank"),
	MUST_OWN(struct deepseek_v4, streams, "hc_mult"),
	OR_OWN(struct deepseek_v4, iters, "hc_sinkhorn_iters", 20),
	MUST_OWN(struct deepseek_v4, index_heads, "index_n_heads"),
	MUST_OWN(struct deepseek_v4, index_dim, "index_head_dim"),
	OR_OWN(struct deepseek_v4, rate_csa, "compress_rates.compressed_sparse_attention", 4),
	OR_OWN(struct deepseek_v4, rate_hca, "compress_rates.heavily_compressed_attention", 128),
	OR_OWN(struct deepseek_v4, rot, "qk_rope_head_dim", 64), OOM_KEYS_END};

static void deepseek_v4_parse(struct oom_arch *a)
{
	const struct deepseek_v4 *own = deepseek_v4_of(a);
	struct oom_reader *r = &a->rd;

	a->n_kv_heads = 1;
	if (own->streams > 64 || own->iters > 100 || !own->rate_csa || !own->rate_hca ||
	    own->rate_csa > 65536 || own->rate_hca > 65536 || own->rot > a->head_dim ||
	    a->n_heads * a->head_dim % own->o_groups || a->top_k > a->n_experts) {
		oom_read_fail(r,
			      "deepseek_v4: hc_mult (at most 64), hc_sinkhorn_iters (at most 100), "
			      "compress_rates, o_groups, "
			      "qk_rope_head_dim and num_experts_per_tok do not describe a model");
		return;
	}
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const bool odd = i < 2 || i % 2,
			   csa = oom_read_says(a, "layer_types", i, "compressed_sparse_attention", !odd),
			   hca = oom_read_says(a, "layer_types", i, "heavily_compressed_attention", odd);

		a->kind[i] = (uint8_t)((csa ? CSA : hca ? HCA : 0) |
				       (oom_read_says(a, "mlp_layer_types", i, "hash_moe", i < 3) ? HASH : 0));
	}
	oom_warn(a, "deepseek_v4: attention over compressed entries is approximated.");
	a->approximate = true;
}

/* x * rsqrt(mean(x.float()^2) + eps).to(type): no weight */
static struct oom_val unweighted(struct oom_tape *t, struct oom_val x, uint64_t width)
{
	const enum oom_dtype dt = x.dt;
	const struct oom_dim one = {x.width / width, NULL};
	struct oom_frame f = {.t = t};
	struct oom_val v;

	x = oom_arg(&f, x);
	v = oom_op_unary(t, OOM_SQUARE, oom_op_cast(t, x, OOM_F32));
	v = oom_op_mean(t, v, x.mono, one);
	v = oom_op_cast(t, oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, v)), dt);
	return oom_op_mul(t, oom_take(&f, x), v);
}

struct mix {
	struct oom_val post, comb, x;
};

static struct oom_val divided(struct oom_tape *t, struct oom_val c, uint64_t n)
{
	const struct oom_dim width = {n, "hc_mult"};
	struct oom_frame f = {.t = t};
	struct oom_val s;

	c = oom_name(&f, c);
	s = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_sum(t, c, c.mono, width));
	return oom_op_div(t, oom_take(&f, c), s);
}

/* Weights of the streams x, borrowed, made doubly stochastic (Sinkhorn), and the one sequence they
 * collapse to. */
static struct mix connect(struct oom_tape *t, const struct oom_arch *a, const char *name,
			  struct oom_val x)
{
	const uint64_t n = deepseek_v4_of(a)->streams, w = (2 + n) * n;
	const struct oom_dim parts[3] = {{n, "hc_mult"}, {n, "hc_mult"}, {n * n, "hc_mult ^ 2"}},
			     h = D(a->d_model);
	const enum oom_dtype dt = x.dt;
	struct oom_val y = unweighted(t, oom_op_cast(t, x, OOM_F32), x.width), fn, base, scale, p[3];
	struct mix m;

	t->scope = name;
	fn = oom_op_cast(t, oom_param(t, "fn", w, x.width, 0), OOM_F32);
	base = oom_param(t, "base", 0, w, 0);
	scale = oom_param(t, "scale", 0, 3, 0);
	y = oom_op_matmul_param(t, "mix", y, fn, oom_none(),
				(struct oom_dim){w, "(2 + hc_mult) * hc_mult"});
	y = oom_op_add(t, oom_op_mul(t, y, scale), base);
	oom_op_split(t, y, 3, parts, p);
	p[0] = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_unary(t, OOM_SIGMOID, p[0]));
	m.post = oom_op_unary(t, OOM_SCALE, oom_op_unary(t, OOM_SIGMOID, p[1]));
	m.comb = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_softmax(t, p[2], false));
	m.comb = divided(t, m.comb, n);
	for (uint64_t i = 1; i < deepseek_v4_of(a)->iters; i++)
		m.comb = divided(t, divided(t, m.comb, n), n);
	y = oom_op_mul(t, p[0], x);
	m.x = oom_op_cast(t, oom_op_sum(t, y, x.mono, h), dt);
	return m;
}

/* post * y for every stream + comb @ streams; consumes x. */
static struct oom_val spread(struct oom_tape *t, struct mix *m, struct oom_val y, struct oom_val x)
{
	const enum oom_dtype dt = x.dt;
	const struct oom_dim w = {x.width, x.text};
	struct oom_val b;

	y = oom_op_expand(t, y, x.mono, w);
	y.perm = false;
	y = oom_op_mul(t, oom_op_cast(t, m->post, dt), y);
	b = oom_op_bmm(t, "mixed streams", oom_op_cast(t, m->comb, dt), x, y.mono, w, 4);
	return oom_op_add(t, y, b);
}

/* Windows of source tokens weighed into one entry each: gate + position bias, softmax, sum,
 * norm. */
static struct oom_val compress(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			       uint64_t d, uint64_t rate, bool overlap)
{
	const uint64_t wide = overlap ? 2 * d : d;
	const struct oom_dim w = {wide, "compressor width"};
	const enum oom_dtype dt = x.dt;
	const uint16_t m_len = oom_len_ceil(t, OOM_MONO_ONE, rate),
		       windows = oom_mono_mul(t, t->m_b, m_len);
	struct oom_val kv = oom_op_linear(t, "kv_proj", x, w, 0),
		       g = oom_op_linear(t, "gate_proj", x, w, 0);

	t->scope = "compressor";
	g = oom_op_add(t, g, oom_param(t, "position_bias", rate, wide, 0));
	/* laid out anew over this window and the one before it */
	if (overlap) {
		g = oom_op_copy(t, "new_gate", g);
		kv = oom_op_copy(t, "new_kv", kv);
	}
	g = oom_op_cast(t, oom_op_softmax(t, g, true), dt);
	kv = oom_op_sum(t, oom_op_mul(t, kv, g), windows, (struct oom_dim){d, "head_dim"});
	return oom_norm(t, a->norm, "kv_norm", kv, 0);
}

static struct oom_val rotated(struct oom_tape *t, const struct oom_decoder_layer *l, struct oom_val x,
			      uint64_t heads, uint64_t d, bool compressed)
{
	return oom_rope_apply(t, x, compressed ? &l->local : &l->rope, heads, d, deepseek_v4_of(l->a)->rot);
}

/* o_a_proj: every group of heads through a matrix of its own */
static struct oom_val grouped_output(struct oom_tape *t, const struct oom_arch *a, struct oom_val y)
{
	const uint64_t g = deepseek_v4_of(a)->o_groups, in = a->n_heads * a->head_dim / g;
	const struct oom_dim out = {g * deepseek_v4_of(a)->o_rank, "o_groups * o_lora_rank"};
	struct oom_val w;

	t->scope = "o_a_proj";
	w = oom_amp_cast(t, oom_param(t, "weight", out.n, in, OOM_P_LINEAR));
	y = oom_op_bmm(t, "o_a_proj", oom_op_copy(t, "groups", y), w, t->m_bs, out, in);
	return oom_op_linear(t, "o_b_proj", oom_op_copy(t, "groups", y), D(a->d_model), 0);
}

/* The indexer's own compressor: its results only choose. */
static void idle_indexer(struct oom_tape *t, const struct oom_arch *a)
{
	const struct deepseek_v4 *own = deepseek_v4_of(a);
	const uint64_t d = own->index_dim;

	oom_linear_unused(t, "kv_proj", a->d_model, 2 * d, 0);
	oom_linear_unused(t, "gate_proj", a->d_model, 2 * d, 0);
	t->scope = "indexer";
	oom_param(t, "position_bias", own->rate_csa, 2 * d, OOM_P_UNUSED);
	oom_param(t, "kv_norm.weight", 0, d, OOM_P_NORM | OOM_P_UNUSED);
	oom_linear_unused(t, "q_b_proj", own->q_rank, own->index_heads * d, 0);
	oom_linear_unused(t, "weights_proj", a->d_model, own->index_heads, 0);
}

/* eager_attention_forward with the sinks as one more key; consumes q and kv. */
static struct oom_val with_sinks(struct oom_tape *t, const struct oom_decoder_layer *l,
				 struct oom_val q, struct oom_val kv)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim qd = {a->n_heads * a->head_dim, "n_heads * head_dim"},
			     heads = D(a->n_heads);
	struct oom_frame f = {.t = t};
	struct oom_val s, k, sinks;

	kv = oom_name(&f, kv);
	t->scope = "self_attn";
	sinks = oom_param(t, "sinks", 0, a->n_heads, 0);
	k = oom_op_expand_copy(t, kv, kv.mono, qd);
	s = oom_op_unary(t, OOM_SCALE, oom_op_bmm(t, "scores", q, k, t->m_bss, heads, a->head_dim));
	if (!oom_is_none(l->mask))
		s = oom_op_add(t, s, l->mask);
	s = oom_op_cat(t, s, oom_op_expand(t, sinks, s.mono, heads), heads);
	s = oom_op_softmax_own(t, oom_op_unary(t, OOM_ADD_SCALAR, s));
	s = oom_op_cast(t, oom_op_dropout(t, s, a->attn_dropout), kv.dt);
	k = oom_op_expand_copy(t, oom_take(&f, kv), kv.mono, qd);
	s = oom_op_bmm(t, "attention", s, k, t->m_bs, qd, oom_mono_now(t, t->m_s));
	return oom_op_merge_heads(t, s);
}

static struct oom_val attention(struct oom_tape *t, const struct oom_decoder_layer *l, uint8_t kind,
				struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct deepseek_v4 *own = deepseek_v4_of(a);
	const uint64_t d = a->head_dim;
	const struct oom_dim qd = {a->n_heads * d, "n_heads * head_dim"}, kd = {d, "head_dim"},
			     rank = {own->q_rank, "q_lora_rank"};
	const bool compressed = kind & (CSA | HCA);
	struct oom_frame f = {.t = t};
	struct oom_val q, kv, resid, y;

	x = oom_arg(&f, x);
	resid = oom_norm(t, a->norm, "q_a_norm", oom_op_linear(t, "q_a_proj", x, rank, 0), 0);
	resid = oom_name(&f, resid);
	q = oom_op_heads(t, oom_op_linear(t, "q_b_proj", resid, qd, 0));
	q = rotated(t, l, unweighted(t, q, d), a->n_heads, d, compressed);
	kv = oom_norm(t, a->norm, "kv_norm", oom_op_linear(t, "kv_proj", x, kd, 0), 0);
	kv = rotated(t, l, kv, 1, d, compressed);
	if (compressed) {
		y = compress(t, a, x, d, kind & CSA ? own->rate_csa : own->rate_hca, kind & CSA);
		kv = oom_op_cat_into(t, kv, y, kv.mono, kd);
	}
	if (kind & CSA)
		idle_indexer(t, a);
	y = rotated(t, l, with_sinks(t, l, q, kv), a->n_heads, d, compressed);
	return grouped_output(t, a, oom_leave(&f, y));
}

static struct oom_val deepseek_v4_block(struct oom_tape *t, const void *ctx, uint32_t i,
					struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = oom_layer_kind(a, i);
	const struct oom_moe m = OOM_MOE(a, .d_shared = a->d_shared, .norm_topk = true,
					 .router_fp32 = true, .route_plain = true,
					 .scale_weights = true, .glu = OOM_GLU_CLAMPED);
	struct oom_frame f = {.t = t};
	struct mix c = connect(t, a, "attn_hc", x);
	struct oom_val h;

	h = attention(t, l, kind, oom_norm(t, a->norm, "input_layernorm", c.x, 0));
	x = oom_name(&f, spread(t, &c, h, x));
	oom_buffer(t, kind & HASH ? a->vocab * a->top_k : a->n_experts,
		   kind & HASH ? OOM_I64 : OOM_F32);
	c = connect(t, a, "ffn_hc", x);
	h = oom_moe_mlp(t, &m, oom_norm(t, a->norm, "post_attention_layernorm", c.x, 0));
	return oom_leave(&f, spread(t, &c, h, oom_take(&f, x)));
}

/* The streams weighed into one, and the last norm. */
static struct oom_val deepseek_v4_finish(struct oom_tape *t, const struct oom_arch *a,
					 struct oom_val x)
{
	const struct oom_dim n = {deepseek_v4_of(a)->streams, "hc_mult"};
	const enum oom_dtype dt = x.dt;
	struct oom_frame f = {.t = t};
	struct oom_val y, fn, base, scale;

	x = oom_name(&f, x);
	y = unweighted(t, oom_op_cast(t, x, OOM_F32), x.width);
	t->scope = "hc_head";
	fn = oom_op_cast(t, oom_param(t, "hc_fn", n.n, x.width, 0), OOM_F32);
	base = oom_op_cast(t, oom_param(t, "hc_base", 0, n.n, 0), OOM_F32);
	scale = oom_op_cast(t, oom_param(t, "hc_scale", 0, 1, 0), OOM_F32);
	y = oom_op_mul(t, oom_op_matmul_param(t, "mixes", y, fn, oom_none(), n), scale);
	y = oom_op_unary(t, OOM_SIGMOID, oom_op_add(t, y, base));
	y = oom_op_mul(t, oom_op_unary(t, OOM_ADD_SCALAR, y), oom_take(&f, x));
	y = oom_op_cast(t, oom_op_sum(t, y, t->m_bs, D(a->d_model)), dt);
	return oom_norm(t, a->norm, "norm", y, 0);
}

static struct oom_val deepseek_v4_prepare(struct oom_frame *f, const struct oom_arch *a,
					  struct oom_decoder_layer *l, struct oom_val x)
{
	const struct oom_dim wide = {deepseek_v4_of(a)->streams * a->d_model, "hc_mult * d_model"};
	const enum oom_dtype dt = x.dt;
	struct oom_tape *t = f->t;

	l->mask = oom_name_shared(f, oom_make_eager_mask(t, dt));
	x = oom_op_expand_copy(t, x, x.mono, wide);
	l->rope = oom_name_tables(f, oom_rope_tables(t, deepseek_v4_of(a)->rot, dt, 2));
	l->local = oom_name_tables(f, oom_rope_tables(t, deepseek_v4_of(a)->rot, dt, 2));
	return x;
}

const struct oom_family oom_family_deepseek_v4 = {
	.name = "deepseek_v4",
	.summary = "hyper-connected streams, one key-value head beside compressed windows, sinks, "
		   "clamped experts",
	.source = "transformers 5.12 models/deepseek_v4/modeling_deepseek_v4.py",
	.types = OOM_TYPE("deepseek_v4"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_a_proj+q_b_proj+kv_proj",
	.keys = deepseek_v4_keys,
	.parse = deepseek_v4_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .kinds = true, .block = deepseek_v4_block,
			       .prepare = deepseek_v4_prepare, .finish = deepseek_v4_finish),
};
