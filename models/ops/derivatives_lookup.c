/* The derivative of a lookup: the gradient of a table, eager and compiled. */
#include "derivatives.h"

static struct grad table_gradient(struct oom_tape *t, const struct oom_node *n)
{
	struct grad g = oom_grad_for_edge(t, n, 0, n->dt);

	/* an adapter's A is looked up transposed */
	g.perm = n->edge[0].to <= -2 && t->params[-2 - n->edge[0].to].flags & OOM_P_LORA;
	return g;
}

/* A whole compiled graph adds the rows up in fp32, in zeros of the table's size, and casts them (torch/_decomp/decompositions.py
 * embedding_dense_backward; inductor's index_put_ needs no sort).  Where the head is tied to the table its gradient is added in
 * the same kernel: under autocast the 16-bit one lies beside, whose cast here has come before.  Traced on an H100. */
static void compiled_lookup(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	const bool tied = n->edge[0].to <= -2 && t->params[-2 - n->edge[0].to].edges > 1;
	struct grad beside = {.sto = -1};

	if (n->dt != OOM_F32)
		beside = oom_grad_for_edge(t, n, 0, OOM_F32);
	else if (tied && t->amp)
		beside = oom_grad_for_edge(t, n, 0, (enum oom_dtype)t->amp_dt);
	g[0] = table_gradient(t, n);
	oom_unref(t, beside.sto);
}

void oom_derive_embedding(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	struct oom_val s[12];
	int k = 0;
	const uint16_t m = n->aux_mono;
	const uint64_t w = n->aux_width;

	/* biases of scores (heads) are looked up in tables of some hundred numbers, and left as eager mode's */
	if (t->plan->compile && !t->plan->compile_layers && !n->heads) {
		compiled_lookup(t, n, g);
		return;
	}
	/* what the layer that looked it up has not used yet (a bias of scores: t5.c), and its gradient laid out as rows */
	if (n->heads)
		s[k++] = oom_scratch_hold(t, "gradient of the scores", n->length, n->heads, (enum oom_dtype)n->d);
	if (n->perm & OOM_LOOKUP_AGAIN)
		s[k++] = oom_scratch_hold(t, "ids again", m, w, OOM_I64);
	if (n->perm & OOM_LOOKUP_TURNED)
		s[k++] = oom_scratch_hold(t, "contiguous gradient", n->mono, n->width, (enum oom_dtype)n->dt);
	g[0] = table_gradient(t, n);
	if (oom_cond_above(t, m, 3072 / (w ? w : 1))) {
		s[k++] = oom_scratch_hold(t, "sorted ids", m, w, OOM_I64);
		s[k++] = oom_scratch_hold(t, "permutation", m, w, OOM_I64);
		s[k++] = oom_scratch_hold(t, "sort scratch", m, 2 * w, OOM_I64);
		s[k++] = oom_scratch_hold(t, "sort scratch", OOM_MONO_ONE, 512, OOM_I64);
		for (int i = 0; i < 4; i++)
			s[k++] = oom_scratch_hold(t, "segments", m, w, OOM_I64);
		s[k++] = oom_scratch_hold(t, "partial sums", n->mono, n->width + (t->plan->sum_buffers ? n->width / 10 : 0), OOM_F32);
	}
	for (int i = 0; i < k; i++)
		oom_drop(t, s[i]);
}
