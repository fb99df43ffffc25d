/* HRA: the layer runs with its weight times a product of reflections I - 2 u u^T, made anew in every call (peft 0.20,
 * tuners/hra/layer.py).  Without Gram-Schmidt (apply_GS). */
#include "adapters.h"
#include "config/arch.h"

static size_t params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
		     struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	(void)name;
	(void)out;
	q[0] = (struct oom_adapter_param){"hra_u", in, (uint64_t)t->plan->lora_r, OOM_P_LINEAR};
	return 1;
}

/* get_delta_weight: W - (2 W u_i) u_i^T for every column of u / |u|, from the identity on.  Every turn keeps its 2 W. */
static struct oom_val reflections(struct oom_tape *t, const struct oom_linear *l)
{
	const uint64_t n = l->in, r = l->p[0].width / n;
	const struct oom_dim square = {n * n, "d_in * d_in"}, one = {1, NULL}, column = {n, "d_in"};
	struct oom_val norm, u, w;

	norm = oom_op_unary(t, OOM_SQRT, oom_op_sum(t, oom_op_unary(t, OOM_SQUARE, oom_keep(l->p[0])), OOM_MONO_ONE,
						    (struct oom_dim){r, "hra_r"}));
	u = oom_op_div(t, oom_keep(l->p[0]), norm);
	w = oom_scratch_hold(t, "identity", OOM_MONO_ONE, square.n, (enum oom_dtype)l->p[0].dt);
	for (uint64_t i = 0; i < r; i++) {
		struct oom_val ui = oom_op_slice(t, oom_keep(u), OOM_MONO_ONE, column), y;

		y = oom_op_matmul_param(t, "W u", oom_op_unary(t, OOM_SCALE, oom_keep(w)), oom_keep(ui), oom_none(), one);
		y = oom_op_matmul_param(t, "W u u^T", y, oom_keep(ui), oom_none(), column);
		oom_drop(t, ui);
		y = oom_op_sub(t, oom_keep(w), y);
		oom_drop(t, w);
		w = y;
	}
	oom_drop(t, u);
	return w;
}

/* HRALinear.forward: an identity in fp32 times the reflections, the base's weight in their type times that, and a product
 * with the input in that type, too; the result in the type of what came in. */
static struct oom_val run(struct oom_tape *t, struct oom_val x, const struct oom_linear *l)
{
	const enum oom_dtype given = (enum oom_dtype)x.dt;
	const struct oom_dim side = {l->in, "d_in"};
	struct oom_val w = reflections(t, l), eye, base, y;

	eye = oom_scratch_hold(t, "identity", OOM_MONO_ONE, l->in * l->in, (enum oom_dtype)l->p[0].dt);
	w = oom_op_matmul_param(t, "reflections", eye, w, oom_none(), side);
	base = oom_op_cast(t, oom_keep(l->w), (enum oom_dtype)w.dt);
	w = oom_op_matmul_param(t, "weight", base, w, oom_none(), side);
	y = oom_op_cast(t, oom_keep(x), (enum oom_dtype)w.dt);
	y = oom_op_matmul_param(t, l->name, y, w, l->bias, l->out);
	oom_done(t, x);
	return oom_op_cast(t, y, given);
}

const struct oom_adapter oom_adapter_hra = {.params = params, .instead = run};
