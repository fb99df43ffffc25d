/* Mixture of experts as Granite writes it: rows sorted by expert, one product per expert over a
 * slice of the stacked weight, the results joined.  How many rows each expert gets does not matter:
 * they add up to top_k a token. Reference: transformers 5.12,
 * models/granitemoe/modeling_granitemoe.py (GraniteMoeMoE, GraniteMoeParallelExperts),
 * models/granitemoeshared/modeling_granitemoeshared.py.  Derived from the code alone: the emulated
 * device cannot run it, because the rows an expert gets are read back by the host. */
#include "blocks.h"

/* cat of F.linear(rows of expert i, weight[i]).  Backward of weight[i] is zeros of the whole stack,
 * added up one by one: two of the stack at once. */
struct oom_val oom_parallel_experts(struct oom_tape *t, const char *name, struct oom_val x,
				    uint64_t experts, uint64_t out, uint64_t in)
{
	struct oom_val w, y;

	t->scope = name;
	w = oom_param(t, "weight", experts * out, in, OOM_P_EXPERT);
	oom_param_stacked(t, w, out);
	if (t->amp) {                           /* slices are no leaves: cast anew at every use */
		w = oom_op_cast(t, w, (enum oom_dtype)t->amp_dt);
		x = oom_op_cast(t, x, (enum oom_dtype)t->amp_dt);
	}
	w = oom_op_slice(t, w, OOM_MONO_ONE,
			 (struct oom_dim){experts * out * in, "n_experts * d_out * d_in"});
	y = oom_op_grouped_mm(t, name, x, w, oom_none(), in, (struct oom_dim){out, "d_out"});
	return oom_op_copy(t, "cat", y);
}

static struct oom_val fused_shared(struct oom_tape *t, const struct oom_moe *m, struct oom_val x)
{
	const struct oom_dim f[2] = {{m->d_shared, "d_shared"}, {m->d_shared, "d_shared"}},
			     h = {x.width, x.text};
	struct oom_val p[2];

	t->selection.shared = true;
	oom_op_split(t,
		     oom_op_linear(t, "input_linear", x,
				   (struct oom_dim){2 * m->d_shared, "2 * d_shared"}, 0),
		     2, f, p);
	p[0] = oom_activation(t, m->act, p[0]);
	x = oom_op_linear(t, "output_linear", oom_op_mul(t, p[0], p[1]), h, 0);
	t->selection.shared = false;
	return x;
}

struct oom_routes oom_parallel_route(struct oom_tape *t, uint64_t experts, uint64_t top_k,
				     struct oom_val x)
{
	const struct oom_dim e = {experts, "n_experts"}, k = {top_k, "top_k"};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val index, zeros, sorted;
	struct oom_routes r;

	r.logits = oom_op_cast(t, oom_op_linear(t, "layer", oom_keep(x), e, 0), OOM_F32);
	index = oom_new(t, "top-k index", x.mono, k, OOM_I64);
	r.gates = oom_op_gather(t, "top-k value", oom_keep(r.logits), oom_keep(index), x.mono, k);
	r.gates = oom_op_cast(t, oom_op_softmax(t, r.gates, true), dt);
	zeros = oom_new(t, "zeros", x.mono, e, dt);
	oom_scratch(t, "rows of each expert", x.mono, 2 * experts, OOM_I64);
	sorted = oom_new(t, "sorted experts", x.mono, k, OOM_I64);
	r.order = oom_new(t, "order", x.mono, k, OOM_I64);
	r.rows = oom_new(t, "row of each choice", x.mono, k, OOM_I64);
	r.gates = oom_op_gather(t, "sorted gates", r.gates, oom_keep(r.order), x.mono, k);
	oom_drop(t, zeros);
	oom_drop(t, sorted);
	oom_drop(t, index);
	return r;
}

struct oom_val oom_moe_parallel_experts(struct oom_tape *t, const struct oom_moe *m,
					struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	const struct oom_dim half[2] = {{m->top_k * m->d_expert, "top_k * d_expert"},
					{m->top_k * m->d_expert, "top_k * d_expert"}};
	struct oom_val zeros, y, p[2];
	struct oom_routes r;

	if (!m->experts)                        /* Granite 4 without experts */
		return fused_shared(t, m, x);
	r = oom_parallel_route(t, m->experts, m->top_k, x);
	oom_drop(t, r.order);
	y = oom_op_gather(t, "dispatched", oom_keep(x), oom_keep(r.rows), x.mono,
			  (struct oom_dim){m->top_k * h.n, "top_k * d_model"});
	y = oom_parallel_experts(t, "input_linear", y, m->experts, 2 * m->d_expert, h.n);
	oom_op_split(t, y, 2, half, p);
	p[0] = oom_activation(t, m->act, p[0]);
	y = oom_parallel_experts(t, "output_linear", oom_op_mul(t, p[0], p[1]), m->experts, h.n,
				 m->d_expert);
	y = oom_op_mul(t, y, r.gates);
	zeros = oom_new(t, "zeros", x.mono, h, (enum oom_dtype)y.dt);
	y = oom_op_gather(t, "index_add", y, r.rows, x.mono, h);
	oom_drop(t, zeros);
	oom_drop(t, r.logits);
	if (m->d_shared)
		y = oom_op_add(t, y, fused_shared(t, m, oom_keep(x)));
	oom_done(t, x);
	return y;
}
