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
