/* Layer norms, as one kernel. */
#include "ops.h"

/* native_layer_norm over w elements on operands already in their computing type; pw, pb may be
 * absent. */
static struct oom_val normed(struct oom_tape *t, struct oom_val x, struct oom_val pw,
			     struct oom_val pb, uint64_t w)
{
	const struct oom_dim stats = {oom_rows_of(t, x.width, w), NULL};
	const bool rg = oom_wants_grad(t, x) || pw.rg || pb.rg;
	struct oom_val y, mean, rstd;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_LAYER_NORM, "native_layer_norm");
		oom_node_edge(t, n, x);
		oom_node_edge(t, n, pw);
		oom_node_edge(t, n, pb);
		oom_node_save(t, n, x);
		if (!oom_is_none(pw))
			oom_node_save(t, n, pw);
		if (!oom_is_none(pb))
			oom_node_save(t, n, pb);
	}
	y = oom_new_like(t, "native_layer_norm", x, (enum oom_dtype)x.dt);
	mean = oom_new(t, "layer_norm mean", x.mono, stats, OOM_F32);
	rstd = oom_new(t, "layer_norm rstd", x.mono, stats, OOM_F32);
	if (rg) {
		y = oom_node_out(t, n, 0, y);
		oom_node_save(t, n, mean);
		oom_node_save(t, n, rstd);
	}
	oom_drop(t, mean);
	oom_drop(t, rstd);
	return y;
}

struct oom_val oom_op_layer_norm(struct oom_tape *t, const char *name, struct oom_val x,
				 uint64_t width, bool affine, bool bias)
{
	const uint64_t w = width ? width : x.width;
	struct oom_val pw = oom_none(), pb = oom_none(), y;
	const char *scope = t->scope;
	const struct oom_val arg = x;           /* the caller's until the module returns */

	t->scope = name;
	if (affine)
		pw = oom_norm_param(t, "weight", w);
	if (affine && bias)
		pb = oom_norm_param(t, "bias", w);
	x.kept = true;
	/* layer_norm is on autocast's fp32 list: every argument is cast */
	if (t->amp)
		x = oom_op_cast(t, x, OOM_F32);
	else
		x = oom_share(t, x);
	if (t->amp && affine) {
		pw = oom_op_cast(t, pw, OOM_F32);
		if (bias)
			pb = oom_op_cast(t, pb, OOM_F32);
	}
	y = normed(t, x, pw, pb, w);
	oom_drop(t, x);
	oom_done(t, arg);
	oom_drop(t, pw);
	oom_drop(t, pb);
	t->scope = scope;
	return y;
}

struct oom_val oom_op_layer_norm_1p(struct oom_tape *t, const char *name, struct oom_val x)
{
	const char *scope = t->scope;
	const struct oom_val arg = x;
	struct oom_val w, b, y;

	t->scope = name;
	w = oom_norm_param(t, "weight", x.width);
	b = oom_norm_param(t, "bias", x.width);
	w = oom_op_unary(t, OOM_ADD_SCALAR, w);
	if (t->amp) {                           /* by hand, to the 16-bit type */
		x = oom_op_cast(t, oom_keep(x), (enum oom_dtype)t->amp_dt);
		w = oom_op_cast(t, w, (enum oom_dtype)t->amp_dt);
		b = oom_op_cast(t, b, (enum oom_dtype)t->amp_dt);
	} else {
		x = oom_share(t, x);
	}
	y = normed(t, x, w, b, x.width);
	oom_drop(t, x);
	oom_done(t, arg);
	oom_drop(t, w);
	oom_drop(t, b);
	t->scope = scope;
	return y;
}
