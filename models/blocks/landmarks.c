/* Attention through stand-ins of the keys.  References: transformers 5.12,
 * models/nystromformer/modeling_nystromformer.py (NystromformerSelfAttention), Xiong et al. 2021,
 * arXiv:2102.03902; models/yoso/modeling_yoso.py (YosoCumulation), Zeng et al. 2021,
 * arXiv:2111.09714. */
#include "image.h"
#include "sparse.h"

/* iterative_inv: six rounds of Z = Z/4 (13 - KZ (15 - KZ (7 - KZ))); k is kept. */
static struct oom_val inverse(struct oom_tape *t, struct oom_val k, uint64_t heads, uint64_t marks)
{
	const struct oom_dim square = {heads * marks * marks, "n_heads * num_landmarks^2"};
	struct oom_val scale, z;

	scale = oom_op_sum(t, oom_keep(k), t->m_b, D(heads * marks));
	scale = oom_op_mean(t, scale, OOM_MONO_ONE, D(1));      /* max: one number of all */
	z = oom_op_mul(t, oom_op_unary(t, OOM_RSQRT, scale), oom_keep(k));
	for (int i = 0; i < 6; i++) {
		struct oom_val kz = oom_op_bmm(t, "key_value", oom_keep(k), oom_keep(z), t->m_b,
					       square, marks),
			       y;

		y = oom_op_unary(t, OOM_ADD_SCALAR, oom_keep(kz));
		y = oom_op_bmm(t, "key_value", oom_keep(kz), y, t->m_b, square, marks);
		y = oom_op_unary(t, OOM_ADD_SCALAR, y);
		y = oom_op_bmm(t, "key_value", oom_keep(kz), y, t->m_b, square, marks);
		y = oom_op_unary(t, OOM_ADD_SCALAR, y);
		z = oom_op_bmm(t, "value", oom_op_unary(t, OOM_SCALE, z), y, t->m_b, square, marks);
		oom_drop(t, kz);
	}
	return z;
}

/* softmax(q K') inverse(softmax(Q' K')) (softmax(Q' k) v), Q' and K' the segments' means. */
static struct oom_val by_landmarks(struct oom_tape *t, const struct oom_arch *a, uint64_t marks,
				   struct oom_val q, struct oom_val k, struct oom_val v,
				   struct oom_val mask)
{
	const uint64_t heads = a->n_heads;
	const struct oom_dim few = {heads * marks * a->head_dim, "n_heads * num_landmarks * head_dim"},
			     row = {heads * marks, "n_heads * num_landmarks"};
	struct oom_val ql = oom_op_mean(t, oom_keep(q), t->m_b, few),
		       kl = oom_op_mean(t, oom_keep(k), t->m_b, few), k1, k2, k3, s, p, y;

	k1 = oom_op_softmax(t, oom_op_bmm(t, "kernel_1", oom_keep(q), oom_keep(kl), t->m_bs, row,
					  a->head_dim), false);
	k2 = oom_op_softmax(t, oom_op_bmm(t, "kernel_2", oom_keep(ql), oom_keep(kl), t->m_b,
					  (struct oom_dim){heads * marks * marks, NULL},
					  a->head_dim), false);
	s = oom_op_bmm(t, "scores", oom_keep(ql), oom_keep(k), t->m_bs, row, a->head_dim);
	if (!oom_is_none(mask))
		s = oom_op_add(t, s, oom_keep(mask));
	k3 = oom_op_softmax(t, oom_keep(s), false);
	p = oom_op_bmm(t, "attention_probs", oom_keep(k1), inverse(t, k2, heads, marks), t->m_bs,
		       row, marks);
	y = oom_op_bmm(t, "new_value", oom_keep(k3), oom_keep(v), t->m_b, few,
		       oom_mono_now(t, t->m_s));
	y = oom_op_bmm(t, "context", oom_keep(p), y, t->m_bs, D(a->d_model), marks);
	oom_drop_all(t, (struct oom_val[]){ql, kl, k1, k2, k3, s, p}, 7);
	return y;
}

struct oom_val oom_nystrom_attention(struct oom_tape *t, const struct oom_arch *a, struct oom_val q,
				     struct oom_val k, struct oom_val v, struct oom_val mask)
{
	struct oom_reader r = a->rd;
	const uint64_t marks = oom_read_count_or(&r, "num_landmarks", 64),
		       kernel = oom_read_count_or(&r, "conv_kernel_size", 0);
	struct oom_val s = oom_none(), p = oom_none(), y;

	q = oom_op_unary(t, OOM_SCALE, q);
	k = oom_op_unary(t, OOM_SCALE, k);
	if (marks == oom_read_count_or(&r, "segment_means_seq_len", 64)) {
		s = oom_op_bmm(t, "scores", oom_keep(q), oom_keep(k), t->m_bss, D(a->n_heads),
			       a->head_dim);
		if (!oom_is_none(mask))
			s = oom_op_add(t, s, oom_keep(mask));
		p = oom_op_softmax(t, oom_keep(s), false);
		y = oom_op_bmm(t, "context", oom_keep(p), oom_keep(v), t->m_bs, D(a->d_model),
			       oom_mono_now(t, t->m_s));
	} else {
		y = by_landmarks(t, a, marks, q, k, v, mask);
	}
	if (kernel)
		y = oom_op_add_inplace(t, y,
				       oom_op_conv(t, "conv", oom_keep(v), a->n_heads, kernel,
						   false, t->m_bs, D(a->d_model)));
	y = oom_op_merge_heads(t, y);
	oom_drop_all(t, (struct oom_val[]){q, k, s, p}, 4);
	oom_done(t, v);
	return y;
}

struct oom_val oom_yoso_attention(struct oom_tape *t, const struct oom_arch *a, struct oom_val q,
				  struct oom_val k, struct oom_val v)
{
	struct oom_val s, y, masked[2];

	q = oom_op_copy(t, "reshape", q);
	k = oom_op_copy(t, "reshape", k);
	v = oom_op_copy(t, "reshape", v);
	q.perm = k.perm = v.perm = false;
	q = oom_normalize(t, q, a->n_heads);
	k = oom_normalize(t, k, a->n_heads);
	/* YosoCumulation keeps the expectation, (1 - acos(q k) / pi)^n, and works like a product
	 * of a function of the scores with the values */
	s = oom_op_bmm(t, "scores", oom_keep(q), oom_keep(k), t->m_bss, D(a->n_heads), a->head_dim);
	s = oom_op_unary(t, OOM_EXP, s);
	/* times the queries' mask, times the keys' */
	for (int i = 0; i < 2; i++)
		masked[i] = oom_new_like(t, "mul", s, (enum oom_dtype)s.dt);
	oom_drop_all(t, masked, 2);
	y = oom_op_bmm(t, "cumulation", s, oom_keep(v), t->m_bs, D(a->d_model),
		       oom_mono_now(t, t->m_s));
	y = oom_normalize(t, y, a->n_heads);
	y = oom_op_merge_heads(t, y);
	oom_drop_all(t, (struct oom_val[]){q, k, v}, 3);
	return y;
}
