/* Rotary positions: the tables, and their application.  Reference: transformers 5.12,
 * models/llama/modeling_llama.py (LlamaRotaryEmbedding, apply_rotary_pos_emb). */
#include "blocks.h"

/* inv_freq @ positions in fp32, cat(freqs, freqs), cos and sin, cast to the model's type; under
 * no_grad.  `times` tables come out of `axes` rows of frequencies. */
static struct oom_rope tables(struct oom_tape *t, uint16_t mono, uint64_t axes, uint64_t times,
			      uint64_t dim, enum oom_dtype dt, unsigned buffers)
{
	const bool grad = t->grad;
	struct oom_rope r;
	struct oom_val freqs, emb, pos;
	const struct oom_dim half = {axes * dim / 2, "head_dim / 2"},
			     full = {times * dim, "head_dim"};

	for (unsigned i = 0; i < buffers; i++)
		oom_buffer(t, dim / 2, OOM_F32);
	t->grad = false;
	pos = oom_new(t, "position ids", mono, (struct oom_dim){axes, NULL}, OOM_F32);
	freqs = oom_new(t, "rotary freqs", mono, half, OOM_F32);
	emb = oom_new(t, "rotary emb", mono, full, OOM_F32);
	r.cos = oom_new(t, "cos", mono, full, OOM_F32);
	r.cos = oom_op_unary(t, OOM_SCALE, r.cos);
	r.sin = oom_new(t, "sin", mono, full, OOM_F32);
	r.sin = oom_op_unary(t, OOM_SCALE, r.sin);
	r.cos = oom_op_cast(t, r.cos, dt);
	r.sin = oom_op_cast(t, r.sin, dt);
	oom_drop(t, freqs);
	oom_drop(t, emb);
	oom_drop(t, pos);
	t->grad = grad;
	return r;
}

struct oom_rope oom_rope_tables(struct oom_tape *t, uint64_t dim, enum oom_dtype dt,
				unsigned buffers)
{
	/* samples that share sequences have positions of their own in each */
	return tables(t, t->plan->packing ? t->m_bs : t->m_s, 1, 1, dim, dt, buffers);
}

struct oom_rope oom_name_tables(struct oom_frame *f, struct oom_rope r)
{
	r.cos = oom_name_shared(f, r.cos);
	r.sin = oom_name_shared(f, r.sin);
	return r;
}

struct oom_rope oom_rope_tables_3d(struct oom_tape *t, uint64_t dim, enum oom_dtype dt,
				   unsigned buffers, bool merged)
{
	return tables(t, t->m_bs, 3, merged ? 1 : 3, dim, dt, buffers);
}

struct oom_rope oom_rope_tables_of(struct oom_tape *t, const struct oom_arch *a, uint64_t dim, enum oom_dtype dt)
{
	if (a->rope_axes)
		return oom_rope_tables_3d(t, dim, dt, 2, a->rope_axes != OOM_ROPE_3D_LAYER);
	return oom_rope_tables(t, dim, dt, 2);
}

struct oom_val oom_rope_apply(struct oom_tape *t, struct oom_val q, const struct oom_rope *r,
			      uint64_t heads, uint64_t head_dim, uint64_t rot_dim)
{
	const struct oom_dim half = {heads * rot_dim / 2, "heads * rotary_dim / 2"};
	const struct oom_dim whole = {heads * rot_dim, "heads * rotary_dim"};
	struct oom_val rot = q, rest = oom_none(), qc, x1, x2, rs;

	/* liger_rotary_pos_emb and Unsloth's Fast_RoPE_Embedding write over their operands (ops/rope.py,
	 * kernels/rope_embedding.py) */
	if (oom_kernel_runs(t, OOM_KERNEL_ROPE) && rot_dim == head_dim)
		return q;
	if (rot_dim < head_dim) {               /* q[..., :rot], q[..., rot:] */
		rot = oom_op_slice(t, oom_keep(q), q.mono, whole);
		rest = oom_op_slice(t, q, q.mono,
				    (struct oom_dim){heads * (head_dim - rot_dim), NULL});
	}
	qc = oom_op_mul(t, oom_keep(rot), oom_keep(r->cos));
	x1 = oom_op_slice(t, oom_keep(rot), q.mono, half);
	x2 = oom_op_slice(t, rot, q.mono, half);
	x2 = oom_op_unary(t, OOM_NEG, x2);
	rs = oom_op_cat(t, x2, x1, whole);
	rs = oom_op_mul(t, rs, oom_keep(r->sin));
	qc = oom_op_add(t, qc, rs);
	if (rot_dim < head_dim)
		qc = oom_op_cat(t, qc, rest,
				(struct oom_dim){heads * head_dim, "heads * head_dim"});
	return qc;
}

struct oom_val oom_rope_halves(struct oom_tape *t, struct oom_val x, const struct oom_rope *r)
{
	const struct oom_dim half[2] = {{x.width / 2, NULL}, {x.width / 2, NULL}},
			     whole = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val p[2], c, s;

	oom_op_split(t, x, 2, half, p);
	oom_name_each(&f, p, 2);
	c = oom_op_mul(t, p[0], r->cos);
	c = oom_op_add(t, c, oom_op_mul(t, p[1], r->sin));
	s = oom_op_mul(t, oom_take(&f, p[1]), r->cos);
	s = oom_op_add(t, s, oom_op_mul(t, oom_take(&f, p[0]), r->sin));
	return oom_op_cat(t, c, s, whole);
}

struct oom_val oom_rope_heads(struct oom_tape *t, struct oom_val x, const struct oom_rope *r,
			      uint64_t heads, uint64_t head_dim)
{
	struct oom_frame f = {.t = t};

	x = oom_arg(&f, x);
	return oom_op_heads(t, oom_leave(&f, oom_rope_apply(t, x, r, heads, head_dim, head_dim)));
}

void oom_rope_pair(struct oom_tape *t, struct oom_val *q, struct oom_val *k,
		   const struct oom_rope *r, uint64_t heads, uint64_t kv_heads, uint64_t head_dim,
		   uint64_t rot_dim)
{
	const struct oom_val old[2] = {*q, *k};

	*q = oom_rope_apply(t, oom_share(t, old[0]), r, heads, head_dim, rot_dim);
	*k = oom_rope_apply(t, oom_share(t, old[1]), r, kv_heads, head_dim, rot_dim);
	oom_done(t, old[0]);
	oom_done(t, old[1]);
}

static struct oom_val rope_fp32_one(struct oom_tape *t, struct oom_val x, const struct oom_rope *r,
				    uint64_t heads, uint64_t head_dim)
{
	const struct oom_dim half = {heads * head_dim / 2, "heads * head_dim / 2"},
			     whole = {heads * head_dim, "heads * head_dim"};
	struct oom_val y = oom_op_mul(t, oom_op_cast(t, oom_keep(x), OOM_F32), oom_keep(r->cos)), f,
		       x1, x2;

	f = oom_op_cast(t, oom_keep(x), OOM_F32);
	x1 = oom_op_slice(t, oom_keep(f), f.mono, half);
	x2 = oom_op_slice(t, oom_keep(f), f.mono, half);
	x2 = oom_op_cat(t, oom_op_unary(t, OOM_NEG, x2), x1, whole);
	oom_drop(t, f);
	return oom_op_add(t, y, oom_op_mul(t, x2, oom_keep(r->sin)));
}

void oom_rope_fp32(struct oom_tape *t, struct oom_val *q, struct oom_val *k,
		   const struct oom_rope *r, uint64_t heads, uint64_t kv_heads, uint64_t head_dim)
{
	const enum oom_dtype dt = (enum oom_dtype)q->dt;
	/* arguments and the caller's names until both are rotated */
	const struct oom_val old_q = *q, old_k = *k;
	struct oom_val q32 = rope_fp32_one(t, old_q, r, heads, head_dim);
	struct oom_val k32 = rope_fp32_one(t, old_k, r, kv_heads, head_dim);

	*q = oom_op_cast(t, oom_keep(q32), dt);
	*k = oom_op_cast(t, oom_keep(k32), dt);
	oom_drop(t, q32);
	oom_drop(t, k32);
	oom_done(t, old_q);
	oom_done(t, old_k);
}

/* ---- queries and keys of an attention layer ---- */

/* query_rot, query_pass and theirs live as long as the module, whose frame is given. */
static void rotate_inline(struct oom_frame *module, const struct oom_attn *a, uint64_t rot,
			  const struct oom_rope *r, struct oom_val *q, struct oom_val *k)
{
	const uint64_t heads[2] = {a->heads, a->kv_heads};
	struct oom_val *const x[2] = {q, k};
	struct oom_val turned[2], part;
	struct oom_tape *t = module->t;

	for (int i = 0; i < 2; i++) {
		const struct oom_dim width = {heads[i] * rot, "heads * rotary_dim"};

		*x[i] = oom_name(module, *x[i]);
		part = oom_op_slice(t, *x[i], x[i]->mono, width);
		turned[i] = oom_name(module, oom_rope_apply(t, part, r, heads[i], rot, rot));
	}
	for (int i = 0; i < 2; i++) {
		const struct oom_dim rest = {heads[i] * (a->d - rot), NULL},
				     whole = {heads[i] * a->d, "heads * head_dim"};

		part = oom_op_slice(t, *x[i], x[i]->mono, rest);
		*x[i] = oom_op_cat(t, turned[i], part, whole);
	}
}

/* The tables a layer makes anew, named in f. */
static struct oom_rope layer_tables(struct oom_frame *f, const struct oom_attn *a, uint64_t rot)
{
	const struct oom_dim width = {rot, "rotary_dim"};
	struct oom_tape *t = f->t;
	struct oom_rope r = *a->rope;
	struct oom_val *const table[2] = {&r.cos, &r.sin};

	for (int i = 0; i < 2; i++) {
		const enum oom_dtype dt = (enum oom_dtype)table[i]->dt;

		if (a->rope_sections)
			*table[i] = oom_name(f, oom_new(t, "cat", a->mq, width, dt));
		if (a->rope_spread)
			*table[i] = oom_name(f, oom_new_like(t, "repeat_interleave", *table[i], dt));
	}
	return r;
}

/* apply_rotary_pos_emb: both arguments stay alive until both results exist. */
void oom_attn_rotate(struct oom_frame *module, const struct oom_attn *a, struct oom_val *q, struct oom_val *k)
{
	const uint64_t rot = a->rot_dim ? a->rot_dim : a->d;
	const enum oom_dtype dt = (enum oom_dtype)q->dt;
	const bool back = a->rope_fp32 || a->rope_back;
	struct oom_tape *t = module->t;
	struct oom_frame f = {.t = t};
	struct oom_rope r = layer_tables(&f, a, rot);

	if (back) {                             /* the caller's names hold what was given */
		*q = oom_arg(&f, *q);
		*k = oom_arg(&f, *k);
	}
	if (a->rope_fp32) {
		*q = oom_op_cast(t, *q, OOM_F32);
		*k = oom_op_cast(t, *k, OOM_F32);
	}
	if (a->rope_inline && rot < a->d)
		rotate_inline(module, a, rot, &r, q, k);
	else
		oom_rope_pair(t, q, k, &r, a->heads, a->kv_heads, a->d, rot);
	/* torch.cat([rotated, rest]) of nothing left: a copy */
	if (a->rope_cat && rot == a->d) {
		*q = oom_op_copy(t, "cat", *q);
		*k = oom_op_copy(t, "cat", *k);
	}
	if (back) {                             /* both fp32 results until the function returns */
		*q = oom_name(&f, *q);
		*k = oom_name(&f, *k);
		*q = oom_op_cast(t, *q, dt);
		*k = oom_op_cast(t, *k, dt);
	}
	oom_leave(&f, oom_none());
}
