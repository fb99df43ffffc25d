/* Attention through stand-ins of the keys.  References: transformers 5.12,
 * models/nystromformer/modeling_nystromformer.py (NystromformerSelfAttention), Xiong et al. 2021,
 * arXiv:2102.03902; models/yoso/modeling_yoso.py (YosoCumulation), Zeng et al. 2021,
 * arXiv:2111.09714. */
#include "image.h"
#include "sparse.h"

/* torch.max over everything: one number, of which autograd keeps what it was found in. */
static struct oom_val maximum(struct oom_tape *t, struct oom_val x)
{
	const bool rg = oom_wants_grad(t, x);
	const int32_t n = rg ? oom_node(t, OOM_NODE_MEAN, "max") : -1;
	struct oom_val y;

	oom_node_edge(t, n, x);
	oom_node_save(t, n, x);
	y = oom_new(t, "max", OOM_MONO_ONE, D(1), (enum oom_dtype)x.dt);
	oom_node_save(t, n, y);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	return y;
}

/* iterative_inv: six rounds of Z = Z/4 (13 - KZ (15 - KZ (7 - KZ))); k is kept. */
static struct oom_val inverse(struct oom_tape *t, struct oom_val k, uint64_t heads, uint64_t marks)
{
	const struct oom_dim square = {heads * marks * marks, "n_heads * num_landmarks^2"};
	struct oom_frame f = {.t = t};
	struct oom_val scale, z, quarter, kz = oom_none(), y;

	oom_name(&f, oom_new(t, "identity", OOM_MONO_ONE, D(marks * marks), OOM_F32));
	scale = maximum(t, oom_op_sum(t, oom_keep(k), t->m_b, D(heads * marks)));
	scale = oom_op_unary(t, OOM_SCALE, oom_op_unary(t, OOM_RSQRT, scale));  /* 1 / x, as a power and a product */
	z = oom_name(&f, oom_op_mul(t, scale, k));
	for (int i = 0; i < 6; i++) {
		struct oom_val some;

		y = oom_op_bmm(t, "key_value", k, z, t->m_b, square, marks);
		kz = i ? oom_rename(&f, kz, y) : oom_name(&f, y);
		quarter = oom_op_unary(t, OOM_SCALE, oom_keep(z));
		some = oom_new(t, "13, 15 and 7 identities", OOM_MONO_ONE, D(3 * marks * marks), OOM_F32);
		y = oom_op_unary(t, OOM_ADD_SCALAR, oom_keep(kz));
		y = oom_op_bmm(t, "key_value", kz, y, t->m_b, square, marks);
		y = oom_op_unary(t, OOM_ADD_SCALAR, y);
		y = oom_op_bmm(t, "key_value", kz, y, t->m_b, square, marks);
		y = oom_op_unary(t, OOM_ADD_SCALAR, y);
		oom_discard(t, some);
		z = oom_rename(&f, z, oom_op_bmm(t, "value", quarter, y, t->m_b, square, marks));
	}
	return oom_leave(&f, z);
}

/* softmax(q K') inverse(softmax(Q' K')) (softmax(Q' k) v), Q' and K' the segments' means, a part of the
 * attention's forward, whose names these are. */
static struct oom_val by_landmarks(struct oom_frame *f, const struct oom_arch *a, uint64_t marks,
				   struct oom_val q, struct oom_val k, struct oom_val v,
				   struct oom_val mask)
{
	struct oom_tape *t = f->t;
	const uint64_t heads = a->n_heads;
	const struct oom_dim few = {heads * marks * a->head_dim, "n_heads * num_landmarks * head_dim"},
			     row = {heads * marks, "n_heads * num_landmarks"};
	const uint64_t d = a->head_dim;
	struct oom_val ql, kl, k1, k2, k3, s, p, y;

	ql = oom_name(f, oom_op_mean(t, q, t->m_b, few));
	kl = oom_name(f, oom_op_mean(t, k, t->m_b, few));
	s = oom_op_bmm(t, "kernel_1", q, kl, t->m_bs, row, d);
	k1 = oom_name(f, oom_op_softmax(t, s, false));
	s = oom_op_bmm(t, "kernel_2", ql, kl, t->m_b, (struct oom_dim){row.n * marks, NULL}, d);
	k2 = oom_name(f, oom_op_softmax(t, s, false));
	s = oom_op_bmm(t, "scores", ql, k, t->m_bs, row, d);
	if (!oom_is_none(mask))
		s = oom_op_add(t, s, mask);
	s = oom_name(f, s);
	k3 = oom_name(f, oom_op_softmax(t, s, false));
	y = inverse(t, k2, heads, marks);
	p = oom_name(f, oom_op_bmm(t, "attention_probs", k1, y, t->m_bs, row, marks));
	y = oom_op_bmm(t, "new_value", k3, v, t->m_b, few, oom_mono_now(t, t->m_s));
	y = oom_name(f, y);
	return oom_op_bmm(t, "context", p, y, t->m_bs, D(a->d_model), marks);
}

struct oom_val oom_nystrom_attention(struct oom_tape *t, const struct oom_arch *a, struct oom_val q,
				     struct oom_val k, struct oom_val v, struct oom_val mask)
{
	struct oom_reader r = a->rd;
	const uint64_t marks = oom_read_count_or(&r, "num_landmarks", 64),
		       kernel = oom_read_count_or(&r, "conv_kernel_size", 0);
	struct oom_frame f = {.t = t};
	struct oom_val s, p, y;

	v = oom_arg(&f, v);
	q = oom_name(&f, oom_op_unary(t, OOM_SCALE, q));
	k = oom_name(&f, oom_op_unary(t, OOM_SCALE, k));
	if (marks == oom_read_count_or(&r, "segment_means_seq_len", 64)) {
		s = oom_op_bmm(t, "scores", q, k, t->m_bss, D(a->n_heads),
			       a->head_dim);
		if (!oom_is_none(mask))
			s = oom_op_add(t, s, mask);
		s = oom_name(&f, s);
		p = oom_name(&f, oom_op_softmax(t, s, false));
		y = oom_op_bmm(t, "context", p, v, t->m_bs, D(a->d_model),
			       oom_mono_now(t, t->m_s));
	} else {
		if (!t->amp && q.dt != OOM_F32)
			oom_tape_warn(t, "Nystromformer multiplies by an identity in fp32: with fewer landmarks than "
				     "tokens it does not run in pure 16 bit; --precision amp-bf16 or fp32");
		y = by_landmarks(&f, a, marks, q, k, v, mask);
	}
	if (kernel)
		y = oom_op_add_inplace(t, y,
				       oom_op_conv(t, "conv", v, a->n_heads, kernel,
						   false, t->m_bs, D(a->d_model)));
	return oom_leave(&f, oom_op_merge_heads(t, y));
}

/* YosoCumulation.forward: where no graph is made. */
static struct oom_val cumulation(struct oom_tape *t, const struct oom_arch *a, struct oom_val q,
				 struct oom_val k, struct oom_val v, struct oom_val mask)
{
	const struct oom_dim heads = D(a->n_heads);
	const enum oom_dtype dt = (enum oom_dtype)q.dt;
	const bool rg = oom_wants_grad(t, q) || oom_wants_grad(t, k) || oom_wants_grad(t, v);
	struct oom_val s, masked, weights, y;
	int32_t n = -1;

	/* (1 - acos(q k) / pi)^n: every term frees the one before */
	s = oom_new(t, "scores", t->m_bss, heads, dt);
	for (int i = 0; i < 4; i++) {
		y = oom_new(t, "expectation", t->m_bss, heads, dt);
		oom_drop(t, s);
		s = y;
	}
	/* times the queries' mask, times the keys' */
	masked = oom_new(t, "mul", t->m_bss, heads, dt);
	weights = oom_new(t, "expectation", t->m_bss, heads, dt);
	oom_drop(t, masked);
	oom_drop(t, s);
	y = oom_new(t, "cumulation", t->m_bs, D(a->d_model), dt);
	if (rg) {
		const struct oom_val kept[] = {mask, weights, q, k, v};

		n = oom_node(t, OOM_NODE_CUMULATION, "YosoCumulation");
		oom_node_edge(t, n, q);
		oom_node_edge(t, n, k);
		oom_node_edge(t, n, v);
		for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
			oom_node_save(t, n, kept[i]);
		if (n >= 0) {
			t->nodes[n].aux_mono = t->m_bss;
			t->nodes[n].aux_width = a->n_heads;
		}
		y = oom_node_out(t, n, 0, y);
	}
	oom_drop(t, weights);
	oom_done(t, q);
	oom_done(t, k);
	oom_done(t, v);
	return y;
}

struct oom_val oom_yoso_attention(struct oom_tape *t, const struct oom_arch *a, struct oom_val q,
				  struct oom_val k, struct oom_val v)
{
	struct oom_frame f = {.t = t};
	struct oom_val y, mask;

	if (t->amp && t->grad)
		oom_tape_warn(t, "YOSO's own backward mixes types under autocast, where it does not run: "
			     "--precision fp32 or bf16");
	q = oom_op_copy(t, "reshape", q);
	k = oom_op_copy(t, "reshape", k);
	v = oom_name(&f, oom_op_copy(t, "reshape", v));
	q.perm = k.perm = v.perm = false;
	/* 1 + mask / 10000, repeated for every head, as numbers */
	y = oom_new(t, "repeat_interleave", t->m_bs, D(a->n_heads), OOM_F32);
	mask = oom_name(&f, oom_new(t, "attention_mask", t->m_bs, D(a->n_heads), OOM_I32));
	oom_drop(t, y);
	q = oom_name(&f, oom_normalize(t, q, a->n_heads));
	k = oom_name(&f, oom_normalize(t, k, a->n_heads));
	y = cumulation(t, a, q, k, v, mask);
	y = oom_normalize(t, y, a->n_heads);
	return oom_leave(&f, oom_op_merge_heads(t, y));
}
