/* Derivatives of attention kernels: gradients and workspaces. */
#include "derivatives.h"
#include "tape/round.h"

/* mha_varlen_bwd: softmax_d and an fp32 accumulator for dq; grouped heads expand dk and dv to
 * the query heads. */
void oom_derive_flash(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	const uint64_t heads = n->heads, d = n->d, kv = n->aux_width;
	const uint64_t dr = d <= 128 ? oom_round_up(d, 32) : oom_round_up(d, 64);
	struct oom_val s[6];
	int k = 0;

	for (int i = 0; i < 3; i++)
		g[i] = oom_grad_fresh(t, n->name, n->edge[i].mono, n->edge[i].width, n->dt,
			     n->perm >> i & 1);
	/* the kernel wants out and its gradient as [b, s, h, d] */
	if (!(n->perm & 1))
		s[k++] = oom_scratch_hold(t, "out copy", n->mono, n->width, (enum oom_dtype)n->dt);
	if (!n->gperm[0])
		s[k++] = oom_scratch_hold(t, "grad copy", n->mono, n->width, (enum oom_dtype)n->dt);
	s[k++] = oom_scratch_hold(t, "softmax_d", n->aux_mono, heads, OOM_F32);
	s[k++] = oom_scratch_hold(t, "dq accumulator", n->aux_mono, heads * dr, OOM_F32);
	if (heads != kv)
		for (int i = 0; i < 2; i++)
			s[k++] = oom_scratch_hold(t, "expanded dk dv", n->edge[1].mono, heads * d,
						  (enum oom_dtype)n->dt);
	for (int i = 0; i < k; i++)
		oom_drop(t, s[i]);
}

/* dk and dv that do not fit in registers, in fp32, for each of the parts the keys are split into:
 * at most 200 over batch x heads of them (attention_backward.cu, num_splits_key).  The batch and
 * the length decide: others record anew. */
static struct oom_val dk_workspace(struct oom_tape *t, const struct oom_node *n, uint64_t heads,
				   uint64_t width)
{
	const uint16_t keys = n->edge[1].mono;
	const uint64_t b = t->val_b, most = 200 / (b * heads) ? 200 / (b * heads) : 1;
	const uint64_t length = b ? oom_mono_now(t, keys) / b : 0;
	uint64_t splits = oom_ceil_div(length, 128);

	if (most > 1 || splits < 1) {
		oom_cond_above(t, t->m_b, b);
		oom_cond_above(t, t->m_b, b - 1);
		oom_cond_above(t, keys, b * splits * 128);
		if (splits)
			oom_cond_above(t, keys, b * (splits - 1) * 128);
	}
	splits = splits > most ? most : splits;
	return oom_scratch_hold(t, "dk dv workspace", t->m_b, heads * splits * 128 * width, OOM_F32);
}

/* mem_efficient backward: delta and a per-tile fp32 workspace for dq (sizes approximate: tile 64
 * or 128). */
void oom_derive_efficient(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	const uint64_t heads = n->heads, d = n->d, dv = n->width / heads;
	const uint64_t wide = d > dv ? d : dv;
	const bool half = n->dt != OOM_F32;
	const uint64_t bi = wide <= 64 || !half ? 64 : 128, cap = wide <= 64 ? 64 : 128;
	const uint64_t cols = oom_ceil_div(d, cap), dw = oom_round_up(d, 32);
	const uint64_t tile = bi * (dw < 128 ? dw : 128);
	const uint16_t blocks = oom_mono_tiles(t, n->aux_mono, n->length, (uint32_t)bi);
	struct oom_val s[4];
	int k = 0;

	for (int i = 0; i < 3; i++)
		g[i] = oom_grad_fresh(t, n->name, n->edge[i].mono, n->edge[i].width, n->dt, true);
	if (n->n_edge > 3 && oom_needs_grad(n, 3))      /* a learned bias (grad_bias of the kernel) */
		g[3] = oom_grad_for_edge(t, n, 3, n->dt);
	if (!n->gperm[0])
		s[k++] = oom_scratch_hold(t, "grad copy", n->mono, n->width, (enum oom_dtype)n->dt);
	s[k++] = oom_scratch_hold(t, "delta", n->aux_mono, heads, OOM_F32);
	s[k++] = oom_scratch_hold(t, "dq workspace", blocks, heads * cols * (4 + tile), OOM_F32);
	if (half && wide > 128)
		s[k++] = dk_workspace(t, n, heads, oom_round_up(d, bi) + oom_round_up(dv, bi));
	for (int i = 0; i < k; i++)
		oom_drop(t, s[i]);
}

/* Attention that a compiled graph has written out: the softmax once more, its gradient and the scores'. */
void oom_derive_traced(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	struct oom_val s[4];

	for (int i = 0; i < 3; i++)
		g[i] = oom_grad_fresh(t, n->name, n->edge[i].mono, n->edge[i].width, n->dt, false);
	s[0] = oom_scratch_hold(t, "grad copy", n->mono, n->width, (enum oom_dtype)n->dt);
	for (int i = 1; i < 4; i++)
		s[i] = oom_scratch_hold(t, "probabilities", n->aux_mono, n->heads, (enum oom_dtype)n->dt);
	for (int i = 0; i < 4; i++)
		oom_drop(t, s[i]);
}

/* YosoCumulation.backward (modeling_yoso.py): the gradient as one piece, which it is but for a single sequence;
 * its product with the values, weighted by the expectation; half the scaled keys, and queries, for a while. */
void oom_derive_cumulation(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	struct grad whole = {.sto = -1}, product, weighted, half;

	if (n->gperm[0] && !oom_cond_above(t, t->m_b, 1))
		whole = oom_grad_fresh(t, "contiguous", n->mono, n->width, n->dt, false);
	product = oom_grad_fresh(t, "grad * value", n->aux_mono, n->aux_width, n->dt, false);
	weighted = oom_grad_fresh(t, "weighted_exp", n->aux_mono, n->aux_width, n->dt, false);
	oom_unref(t, product.sto);
	for (int i = 0; i < 2; i++) {
		half = oom_grad_fresh(t, "half", n->mono, n->width, n->dt, false);
		g[i] = oom_grad_for_edge(t, n, i, n->dt);
		oom_unref(t, half.sto);
	}
	g[2] = oom_grad_for_edge(t, n, 2, n->dt);
	oom_unref(t, weighted.sto);
	oom_unref(t, whole.sto);
}
