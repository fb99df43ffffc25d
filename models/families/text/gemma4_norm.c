/* Gemma 4's RMS norm, which its towers have as well.
 * Reference: transformers 5.12, models/gemma4/modeling_gemma4.py Gemma4RMSNorm. */
#include "gemma4.h"

/* float(); * pow(mean(x^2) + eps, -0.5); * weight.float(); back to the input's type. */
struct oom_val oom_gemma4_norm(struct oom_tape *t, const char *name, struct oom_val x, uint64_t width, bool weighted)
{
	const uint64_t w = width ? width : x.width;
	const enum oom_dtype in = x.dt;
	const char *scope = t->scope;
	struct oom_val weight = oom_none(), wide, v, y;
	struct oom_frame f = {.t = t};

	x = oom_arg(&f, x);
	t->scope = name;
	if (weighted)
		weight = oom_norm_param(t, "weight", w);
	wide = oom_name(&f, oom_op_cast(t, x, OOM_F32));
	v = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, wide), x.mono,
			(struct oom_dim){x.width / w, NULL});
	v = oom_op_unary(t, OOM_POW, oom_op_unary(t, OOM_ADD_SCALAR, v));
	y = oom_op_mul(t, oom_take(&f, wide), v);
	if (weighted)
		y = oom_op_mul(t, y, oom_op_cast(t, weight, OOM_F32));
	y = oom_leave(&f, oom_op_cast(t, y, in));
	t->scope = scope;
	return y;
}
