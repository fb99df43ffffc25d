/* DeepSeek-V4: residual streams mixed by hyper-connections, one key-value head for all queries
 * beside compressed entries of earlier windows, attention sinks, grouped output projections,
 * experts with clamped gates. Reference: transformers 5.12,
 * models/deepseek_v4/modeling_deepseek_v4.py.
 *
 * The compressed entries' masks and the indexer's choice are left out, and the warning says so. */
#include <stdio.h>
#include <string.h>

#include "blocks/blocks.h"

enum {
	Q_RANK,
	O_GROUPS,
	O_RANK,
	STREAMS,
	ITERS,
	INDEX_HEADS,
	INDEX_DIM,
	RATE_CSA,
	RATE_HCA,
	ROT,
	NEXTN
};
enum { CSA = 1, HCA = 2, HASH = 4 };    /* of kind[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = 1;
	a->head_dim = oom_read_count(r, "head_dim", 1);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->window = oom_read_count_or(r, "sliding_window", 0);
	a->n_experts = oom_read_count(r, "n_routed_experts", 1);
	a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	a->d_expert = a->d_ff = oom_read_count(r, "moe_intermediate_size", 1);
	a->d_shared = a->d_expert;
	a->extra[Q_RANK] = oom_read_count(r, "q_lora_rank", 1);
	a->extra[O_GROUPS] = oom_read_count(r, "o_groups", 1);
	a->extra[O_RANK] = oom_read_count(r, "o_lora_rank", 1);
	a->extra[STREAMS] = oom_read_count(r, "hc_mult", 1);
	a->extra[ITERS] = oom_read_count_or(r, "hc_sinkhorn_iters", 20);
	a->extra[INDEX_HEADS] = oom_read_count(r, "index_n_heads", 1);
	a->extra[INDEX_DIM] = oom_read_count(r, "index_head_dim", 1);
	a->extra[RATE_CSA] = oom_read_count_or(r, "compress_rates.compressed_sparse_attention", 4);
	a->extra[RATE_HCA] = oom_read_count_or(r, "compress_rates.heavily_compressed_attention",
					       128);
	a->extra[ROT] = oom_read_count_or(r, "qk_rope_head_dim", 64);
	if (a->extra[STREAMS] > 64 || a->extra[ITERS] > 100 || !a->extra[RATE_CSA] ||
	    !a->extra[RATE_HCA] || a->extra[RATE_CSA] > 65536 || a->extra[RATE_HCA] > 65536 ||
	    a->extra[ROT] > a->head_dim || a->n_heads * a->head_dim % a->extra[O_GROUPS] ||
	    a->top_k > a->n_experts) {
		oom_read_fail(r,
			      "deepseek_v4: hc_mult (at most 64), hc_sinkhorn_iters (at most 100), "
			      "compress_rates, o_groups, "
			      "qk_rope_head_dim and num_experts_per_tok do not describe a model");
		return;
	}
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i),
			   *mlp = oom_read_item(r, "mlp_layer_types", (uint32_t)i);

		if (!type)
			type = i < 2 ? "heavily_compressed_attention" :
			       i % 2 ? "heavily_compressed_attention" :
				       "compressed_sparse_attention";
		a->kind[i] = (uint8_t)((!strcmp(type, "compressed_sparse_attention")  ? CSA :
					!strcmp(type, "heavily_compressed_attention") ? HCA :
											0) |
				       ((mlp ? !strcmp(mlp, "hash_moe") : i < 3) ? HASH : 0));
	}
	snprintf(a->warning, sizeof(a->warning),
		 "deepseek_v4: attention over compressed entries is approximated.");
	a->approximate = true;
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope[2];        /* main, compress */
	struct oom_val mask;
};

/* x * rsqrt(mean(x.float()^2) + eps).to(type): no weight */
static struct oom_val unweighted(struct oom_tape *t, struct oom_val x, uint64_t width)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const struct oom_dim one = {x.width / width, NULL};
	struct oom_val v = oom_op_mean(
		t, oom_op_unary(t, OOM_SQUARE, oom_op_cast(t, oom_keep(x), OOM_F32)), x.mono, one);

	v = oom_op_cast(t, oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, v)), dt);
	return oom_op_mul(t, x, v);
}

struct mix {
	struct oom_val post, comb, x;
};

static struct oom_val divided(struct oom_tape *t, struct oom_val c, uint64_t n)
{
	struct oom_val s = oom_op_unary(t, OOM_ADD_SCALAR,
					oom_op_sum(t, oom_keep(c), c.mono,
						   (struct oom_dim){n, "hc_mult"}));

	return oom_op_div(t, c, s);
}

/* Weights of the streams, made doubly stochastic (Sinkhorn), and the one sequence they collapse
 * to. */
static struct mix connect(struct oom_tape *t, const struct oom_arch *a, const char *name,
			  struct oom_val x)
{
	const uint64_t n = a->extra[STREAMS], w = (2 + n) * n;
	const struct oom_dim parts[3] = {{n, "hc_mult"}, {n, "hc_mult"}, {n * n, "hc_mult ^ 2"}},
			     h = D(a->d_model);
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val y = unweighted(t, oom_op_cast(t, oom_keep(x), OOM_F32), x.width), fn, base,
		       scale, p[3];
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
	for (uint64_t i = 1; i < a->extra[ITERS]; i++)
		m.comb = divided(t, divided(t, m.comb, n), n);
	y = oom_op_mul(t, p[0], oom_keep(x));
	m.x = oom_op_cast(t, oom_op_sum(t, y, x.mono, h), dt);
	return m;
}

/* post * y for every stream + comb @ streams */
static struct oom_val spread(struct oom_tape *t, struct mix *m, struct oom_val y, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
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
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const uint16_t m_len = oom_len_ceil(t, OOM_MONO_ONE, rate),
		       windows = oom_mono_mul(t, t->m_b, m_len);
	struct oom_val kv = oom_op_linear(t, "kv_proj", oom_keep(x), w, 0),
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

static struct oom_val rotated(struct oom_tape *t, const struct layer *l, struct oom_val x,
			      uint64_t heads, uint64_t d, int table)
{
	return oom_rope_apply(t, x, &l->rope[table], heads, d, l->a->extra[ROT]);
}

/* o_a_proj: every group of heads through a matrix of its own */
static struct oom_val grouped_output(struct oom_tape *t, const struct oom_arch *a, struct oom_val y)
{
	const uint64_t g = a->extra[O_GROUPS], in = a->n_heads * a->head_dim / g;
	const struct oom_dim out = {g * a->extra[O_RANK], "o_groups * o_lora_rank"};
	struct oom_val w;

	t->scope = "o_a_proj";
	w = oom_amp_cast(t, oom_param(t, "weight", out.n, in, OOM_P_LINEAR));
	y = oom_op_bmm(t, "o_a_proj", oom_op_copy(t, "groups", y), w, t->m_bs, out, in);
	return oom_op_linear(t, "o_b_proj", oom_op_copy(t, "groups", y), D(a->d_model), 0);
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, uint8_t kind,
				struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint64_t d = a->head_dim;
	const struct oom_dim qd = {a->n_heads * d, "n_heads * head_dim"};
	const int table = kind & (CSA | HCA) ? 1 : 0;
	const uint16_t scores = oom_mono_mul(t, t->m_bs, t->m_s);
	struct oom_val q, kv, resid, s, y, sinks;

	resid = oom_norm(t, a->norm, "q_a_norm",
			 oom_op_linear(t, "q_a_proj", oom_keep(x),
				       (struct oom_dim){a->extra[Q_RANK], "q_lora_rank"}, 0),
			 0);
	q = oom_op_heads(t, oom_op_linear(t, "q_b_proj", oom_keep(resid), qd, 0));
	q = rotated(t, l, unweighted(t, q, d), a->n_heads, d, table);
	kv = oom_norm(t, a->norm, "kv_norm",
		      oom_op_linear(t, "kv_proj", oom_keep(x), (struct oom_dim){d, "head_dim"}, 0),
		      0);
	kv = rotated(t, l, kv, 1, d, table);
	if (kind & (CSA | HCA)) {
		struct oom_val c = compress(t, a, oom_keep(x), d,
					    a->extra[kind & CSA ? RATE_CSA : RATE_HCA], kind & CSA);

		kv = oom_op_cat_into(t, kv, c, kv.mono, (struct oom_dim){d, "head_dim"});
		/* the indexer's own compressor: its results only choose */
		if (kind & CSA) {
			const uint64_t i = a->extra[INDEX_DIM];

			oom_linear_unused(t, "kv_proj", a->d_model, 2 * i, 0);
			oom_linear_unused(t, "gate_proj", a->d_model, 2 * i, 0);
			t->scope = "indexer";
			oom_param(t, "position_bias", a->extra[RATE_CSA], 2 * i, OOM_P_UNUSED);
			oom_param(t, "kv_norm.weight", 0, i, OOM_P_NORM | OOM_P_UNUSED);
			oom_linear_unused(t, "q_b_proj", a->extra[Q_RANK],
					  a->extra[INDEX_HEADS] * i, 0);
			oom_linear_unused(t, "weights_proj", a->d_model, a->extra[INDEX_HEADS], 0);
		}
	}
	/* eager_attention_forward with the sinks as one more key */
	t->scope = "self_attn";
	sinks = oom_param(t, "sinks", 0, a->n_heads, 0);
	s = oom_op_bmm(t, "scores", q, oom_op_expand_copy(t, oom_keep(kv), kv.mono, qd), scores,
		       D(a->n_heads), d);
	s = oom_op_unary(t, OOM_SCALE, s);
	if (!oom_is_none(l->mask))
		s = oom_op_add(t, s, oom_keep(l->mask));
	s = oom_op_cat(t, s, oom_op_expand(t, sinks, s.mono, D(a->n_heads)), D(a->n_heads));
	s = oom_op_softmax(t, oom_op_unary(t, OOM_ADD_SCALAR, s), false);
	s = oom_op_cast(t, oom_op_dropout(t, s, a->attn_dropout), (enum oom_dtype)kv.dt);
	y = oom_op_bmm(t, "attention", s, oom_op_expand_copy(t, kv, kv.mono, qd), t->m_bs, qd,
		       oom_mono_now(t, t->m_s));
	y = rotated(t, l, oom_op_merge_heads(t, y), a->n_heads, d, table);
	oom_drop(t, resid);
	oom_done(t, x);
	return grouped_output(t, a, y);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .d_shared = a->d_shared,
				  .act = a->act,
				  .norm_topk = true,
				  .router_fp32 = true,
				  .route_plain = true,
				  .scale_weights = true,
				  .glu = OOM_GLU_CLAMPED};
	struct mix c = connect(t, a, "attn_hc", x);

	x = spread(t, &c, attention(t, l, kind, oom_norm(t, a->norm, "input_layernorm", c.x, 0)),
		   x);
	oom_buffer(t, kind & HASH ? a->vocab * a->top_k : a->n_experts,
		   kind & HASH ? OOM_I64 : OOM_F32);
	c = connect(t, a, "ffn_hc", x);
	return spread(t, &c,
		      oom_moe_mlp(t, &m, oom_norm(t, a->norm, "post_attention_layernorm", c.x, 0)),
		      x);
}

/* The streams weighed into one before the last norm. */
static struct oom_val head(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim n = {a->extra[STREAMS], "hc_mult"};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val y = unweighted(t, oom_op_cast(t, oom_keep(x), OOM_F32), x.width), fn, base,
		       scale;

	t->scope = "hc_head";
	fn = oom_op_cast(t, oom_param(t, "hc_fn", n.n, x.width, 0), OOM_F32);
	base = oom_op_cast(t, oom_param(t, "hc_base", 0, n.n, 0), OOM_F32);
	scale = oom_op_cast(t, oom_param(t, "hc_scale", 0, 1, 0), OOM_F32);
	y = oom_op_add(t,
		       oom_op_mul(t, oom_op_matmul_param(t, "mixes", y, fn, oom_none(), n), scale),
		       base);
	y = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_unary(t, OOM_SIGMOID, y));
	return oom_op_cast(t, oom_op_sum(t, oom_op_mul(t, y, x), t->m_bs, D(a->d_model)), dt);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	const struct oom_dim wide = {a->extra[STREAMS] * a->d_model, "hc_mult * d_model"};
	struct layer l = {.a = a};
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	dt = (enum oom_dtype)x.dt;
	first = oom_share(t, x);
	l.mask = oom_make_eager_mask(t, dt);
	x = oom_op_expand_copy(t, x, x.mono, wide);
	l.rope[0] = oom_rope_tables(t, a->extra[ROT], dt, 2);
	l.rope[1] = oom_rope_tables(t, a->extra[ROT], dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	for (int i = 0; i < 2; i++) {
		oom_drop_shared(t, l.rope[i].cos);
		oom_drop_shared(t, l.rope[i].sin);
	}
	oom_drop_shared(t, l.mask);
	x = oom_norm(t, a->norm, "norm", head(t, a, x), 0);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_deepseek_v4 = {
	.name = "deepseek_v4",
	.summary = "hyper-connected streams, one key-value head beside compressed windows, sinks, "
		   "clamped experts",
	.source = "transformers 5.12 models/deepseek_v4/modeling_deepseek_v4.py",
	.types = OOM_TYPE("deepseek_v4"),
	.lora_targets = "q_a_proj+q_b_proj+kv_proj",
	.parse = parse,
	.step = step,
};
