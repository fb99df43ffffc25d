/* Multi-head latent attention and the indexer that chooses its keys.
 * Reference: transformers 5.12, models/{deepseek_v3,deepseek_v2,deepseek_v32}/modeling_*.py. */
#include "deepseek.h"

/* Pairs (x0, x1) rotated on strided slices, by the halves of tables that hold every frequency twice. */
static struct oom_val rotate_pairs(struct oom_tape *t, struct oom_val x, const struct oom_rope *r)
{
	struct oom_rope h = *r;

	h.cos.width /= 2;
	h.sin.width /= 2;
	return oom_rope_halves(t, x, &h);
}

/* view_as_complex(x.float()) * frequencies, back in x's type (DeepSeek-V2). */
static struct oom_val rotate_complex(struct oom_tape *t, struct oom_val x, const struct oom_rope *r)
{
	const enum oom_dtype dt = x.dt;
	struct oom_val y = oom_op_cast(t, x, OOM_F32);

	/* .float() is x itself; reshape of the transposed view copies */
	if (x.dt == OOM_F32)
		y = oom_op_copy(t, "reshape", y);
	y = oom_op_mul(t, y, r->cos);
	return oom_op_cast(t, y, dt);
}

static struct oom_val rotate(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			     const struct oom_rope *r, uint64_t heads)
{
	const struct deepseek *own = deepseek_of(a);

	if (deepseek_kind_of(a)->complex_rope)
		return rotate_complex(t, x, r);
	if (own->interleave)
		return rotate_pairs(t, x, r);
	return oom_rope_apply(t, x, r, heads, own->rot, own->rot);
}

static struct oom_val index_rotated(struct oom_tape *t, const struct oom_decoder_layer *l,
				    struct oom_val x, uint64_t heads)
{
	const struct deepseek *own = deepseek_of(l->a);

	x = oom_rope_apply(t, x, &l->rope, heads, own->index_dim, own->rot);
	/* .float(), and what autocast makes of it for the product */
	return oom_amp_cast(t, oom_op_cast(t, x, OOM_F32));
}

/* The lightning indexer: scores of every query against every key, the largest kept.  Both x and q
 * are borrowed. */
static void choose_keys(struct oom_tape *t, const struct oom_decoder_layer *l, struct oom_val x,
			struct oom_val q)
{
	const struct deepseek *own = deepseek_of(l->a);
	const uint64_t H = own->index_heads, d = own->index_dim;
	const struct oom_dim heads = {H, "index_n_heads"}, one = {d, "index_head_dim"},
			     top = {own->index_topk, "index_topk"};
	struct oom_frame f = {.t = t};
	struct oom_val k, s, w;

	q = oom_op_linear(t, "wq_b", q, (struct oom_dim){H * d, NULL}, 0);
	k = oom_name(&f, oom_op_linear(t, "wk", x, one, 0));
	oom_param(t, "k_norm.weight", 0, d, OOM_P_NORM | OOM_P_UNUSED);
	oom_param(t, "k_norm.bias", 0, d, OOM_P_NORM | OOM_P_UNUSED);
	w = oom_new_like(t, "native_layer_norm", k, t->amp ? OOM_F32 : k.dt);
	oom_forget(&f, k);
	q = index_rotated(t, l, q, H);
	k = index_rotated(t, l, w, 1);
	/* broadcast over the queries: matmul copies it */
	if (oom_cond_above(t, t->m_b, 1))
		k = oom_op_expand_copy(t, k, t->m_bss, one);
	s = oom_op_bmm(t, "index scores", q, k, t->m_bss, heads, d);
	s = oom_op_unary(t, OOM_RELU, oom_op_unary(t, OOM_SCALE, s));
	/* _keep_in_fp32_modules: not quantised either */
	w = oom_op_linear(t, "weights_proj", x, heads, OOM_NO_QUANT);
	w = oom_op_unary(t, OOM_SCALE, oom_op_cast(t, w, OOM_F32));
	s = oom_name(&f, oom_op_bmm(t, "weighted scores", w, s, t->m_bss, D(1), H));
	oom_name(&f, oom_new_like(t, "causal scores", s, OOM_F32));
	oom_forget(&f, s);
	oom_name(&f, oom_cond_above(t, t->m_s, top.n) ?
			     oom_new(t, "topk", t->m_bs, top, OOM_I64) :
			     oom_new(t, "topk", t->m_bss, D(1), OOM_I64));
	oom_leave(&f, oom_none());
}

/* The choice as an additive mask; under no_grad, so that the indexer's weights never get a gradient
 * (DeepSeek-V3.2: DeepseekV32Indexer.forward and the lines of the attention that use it). */
static struct oom_val sparse_mask(struct oom_tape *t, const struct oom_decoder_layer *l,
				  struct oom_val x, struct oom_val q, bool chosen)
{
	const enum oom_dtype dt = x.dt;
	struct oom_frame f = {.t = t};
	const bool grad = t->grad;
	struct oom_val m;

	t->grad = false;
	if (!chosen)
		choose_keys(t, l, x, q);
	m = oom_name(&f, oom_new(t, "index mask", t->m_bss, D(1), OOM_U8));
	if (oom_is_none(l->mask)) {
		oom_rename(&f, m, oom_new(t, "index mask", t->m_bss, D(1), OOM_U8));
		oom_name(&f, oom_new(t, "zeros", t->m_bss, D(1), dt));
	}
	m = oom_leave(&f, oom_new(t, "sparse mask", t->m_bss, D(1), dt));
	t->grad = grad;
	return m;
}

/* Queries without and with positions: p.  *resid: what the indexer makes its own of. */
static void latent_queries(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
			   struct oom_val p[2], struct oom_val *resid)
{
	const struct deepseek *own = deepseek_of(a);
	const uint64_t H = a->n_heads;
	const struct oom_dim qd = {H * (own->nope + own->rot), "n_heads * qk_head_dim"},
			     parts[2] = {{H * own->nope, "n_heads * qk_nope_head_dim"},
					 {H * own->rot, "n_heads * qk_rope_head_dim"}},
			     rank = {own->q_rank, "q_lora_rank"};
	struct oom_tape *t = f->t;
	struct oom_val q;

	if (own->q_rank) {
		q = oom_op_linear(t, "q_a_proj", x, rank, a->qkv_bias ? OOM_BIAS : 0);
		q = oom_norm(t, a->norm, "q_a_layernorm", q, 0);
		if (deepseek_kind_of(a)->sparse)
			*resid = q = oom_name(f, q);
		q = oom_op_linear(t, "q_b_proj", q, qd, 0);
	} else {
		q = oom_op_linear(t, "q_proj", x, qd, 0);
	}
	oom_op_split(t, oom_op_heads(t, q), 2, parts, p);
}

struct oom_val deepseek_latent_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
					 uint32_t i, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct deepseek_kind *kind = deepseek_kind_of(a);
	const struct deepseek *own = deepseek_of(a);
	const uint64_t H = a->n_heads, nope = own->nope, rot = own->rot, rank = own->kv_rank;
	const struct oom_dim h = {x.width, x.text},
			     qd = {H * (nope + rot), "n_heads * qk_head_dim"},
			     rd = {H * rot, "n_heads * qk_rope_head_dim"},
			     cd = {rank + rot, "kv_lora_rank + qk_rope_head_dim"},
			     cs[2] = {{rank, "kv_lora_rank"}, {rot, "qk_rope_head_dim"}},
			     kd = {H * (nope + a->v_head_dim), "n_heads * (qk_nope + v)_head_dim"},
			     ks[2] = {{H * nope, "n_heads * qk_nope_head_dim"},
				      {H * a->v_head_dim, "n_heads * v_head_dim"}};
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, c[2], k[2], p[2], y, resid = oom_none();

	x = oom_arg(&f, x);
	latent_queries(&f, a, x, p, &resid);
	y = oom_op_linear(t, "kv_a_proj_with_mqa", x, cd, a->qkv_bias ? OOM_BIAS : 0);
	oom_op_split(t, y, 2, cs, c);
	c[0] = oom_norm(t, a->norm, "kv_a_layernorm", c[0], 0);
	if (kind->twice) {                      /* scaled up for their ranks */
		p[0] = oom_op_unary(t, OOM_SCALE, p[0]);
		p[1] = oom_op_unary(t, OOM_SCALE, p[1]);
		c[0] = oom_op_unary(t, OOM_SCALE, c[0]);
	}
	oom_op_split(t, oom_op_heads(t, oom_op_linear(t, "kv_b_proj", c[0], kd, 0)), 2, ks, k);
	/* q_pass, compressed_kv, q_rot, k_rot and the states: names to the end */
	p[0] = oom_name(&f, p[0]);
	c[1] = oom_name(&f, c[1]);
	p[1] = oom_name(&f, rotate(t, a, p[1], &l->rope, H));
	c[1] = oom_name(&f, rotate(t, a, c[1], &l->rope, 1));
	c[1] = oom_op_expand(t, c[1], c[1].mono, rd);
	q = oom_op_cat(t, p[0], p[1], qd);
	k[0] = oom_op_cat(t, k[0], c[1], qd);
	/* 1 + beta * log(1 + floor(position / length)), cast to the queries' type */
	if (kind->scaled_query) {
		y = oom_new(t, "query scale", t->m_s, D(1), OOM_F32);
		q = oom_op_mul(t, q, oom_op_cast(t, y, q.dt));
	}
	at.caller = layer;
	at.mask = l->mask;
	if (kind->sparse)
		at.mask = oom_name(&f, sparse_mask(t, l, x, resid,
						   oom_layer_kind(a, i) & DEEPSEEK_CHOSEN));
	q = oom_name(&f, q);
	oom_name_each(&f, k, 2);
	y = oom_attention_core(t, &at, q, k[0], k[1]);
	return oom_leave(&f, oom_op_linear(t, "o_proj", y, h, a->o_bias ? OOM_BIAS : 0));
}
