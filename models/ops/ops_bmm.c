/* Products of two activations (batched, of attention's scores among them) and of tokens with their experts' weights. */
#include "ops.h"

/* Lengths among the factors of a monomial: all but the batch. */
static int degree(const struct oom_tape *t, uint16_t mono)
{
	int n = 0;

	for (int i = 0; i < t->monos[mono].n; i++)
		n += t->vars[t->monos[mono].var[i]].base != OOM_VAR_B;
	return n;
}

static void count_batched(struct oom_tape *t, uint16_t mono, double flops, bool wide)
{
	t->sums->tally.attn[mono] += flops;
	t->sums->tally.batched[mono] += flops;
	if (wide)
		t->sums->tally.wide_batched[mono] += flops;
}

struct oom_val oom_op_bmm(struct oom_tape *t, const char *name, struct oom_val a, struct oom_val b,
			  uint16_t mono, struct oom_dim width, uint64_t inner)
{
	const uint16_t ma = a.mono, mb = b.mono;
	const struct oom_val arg[2] = {oom_argument(t, a), oom_argument(t, b)};
	struct oom_val cast[2];
	bool rg;
	struct oom_val y;
	int32_t n = -1;

	/* what autocast made of them lives until the product is there, folded copies and all */
	oom_amp_cast_all(t, (struct oom_val *[]){&a, &b}, 2);
	cast[0] = a;
	cast[1] = b;
	/* matmul folds batch and heads into one dimension; a transposed view cannot be folded
	 * and is copied, unless the batch is one sequence */
	if (a.perm && oom_cond_above(t, t->m_b, 1))
		a = oom_op_copy(t, "clone", oom_keep(a));
	else
		cast[0] = oom_none();
	if (b.perm && oom_cond_above(t, t->m_b, 1))
		b = oom_op_copy(t, "clone", oom_keep(b));
	else
		cast[1] = oom_none();
	rg = oom_wants_grad(t, a) || oom_wants_grad(t, b);
	if (rg) {
		n = oom_node(t, OOM_NODE_BMM, "bmm");
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
		if (oom_wants_grad(t, b))
			oom_node_save(t, n, a);
		if (oom_wants_grad(t, a))
			oom_node_save(t, n, b);
	}
	y = oom_new_kept(t, OOM_KEPT_PRODUCT, name, mono, width, (enum oom_dtype)a.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	/* (n x m x k) (n x k x l): the operands' lengths over the result's are n k^2.  A sum over a
	 * length grows with it: `inner` is that of the recording only */
	if (degree(t, ma) + degree(t, mb) >= degree(t, mono) + 2)
		count_batched(t, degree(t, ma) > degree(t, mono) ? ma : oom_mono_mul(t, mono, t->m_s),
			      2.0 * (double)width.n * t->mult, a.dt == OOM_F32);
	else
		count_batched(t, mono, 2.0 * (double)width.n * (double)inner * t->mult, a.dt == OOM_F32);
	oom_done(t, b);
	oom_done(t, a);
	oom_done(t, cast[1]);
	oom_done(t, cast[0]);
	oom_drop(t, arg[0]);
	oom_drop(t, arg[1]);
	return y;
}

struct oom_val oom_op_grouped_mm(struct oom_tape *t, const char *name, struct oom_val x,
				 struct oom_val w, struct oom_val offs, uint64_t in,
				 struct oom_dim out)
{
	bool rg;
	struct oom_val y;
	int32_t n = -1;

	x = oom_op_cast(t, x, (enum oom_dtype)w.dt);
	rg = oom_wants_grad(t, x) || w.rg;
	if (rg) {
		n = oom_node(t, OOM_NODE_GROUPED_MM, "grouped_mm");
		oom_node_edge(t, n, x);
		oom_node_edge(t, n, w);
		if (w.rg)
			oom_node_save(t, n, x);
		if (oom_wants_grad(t, x))
			oom_node_save(t, n, w);
		if (!oom_is_none(offs))
			oom_node_save(t, n, offs);
	}
	y = oom_new(t, name, x.mono, (struct oom_dim){oom_rows_of(t, x.width, in) * out.n, out.text},
		    (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_tape_product(t, x, in, out.n, oom_trains(t, w));
	oom_done(t, x);
	oom_done(t, w);
	oom_done(t, offs);
	return y;
}
