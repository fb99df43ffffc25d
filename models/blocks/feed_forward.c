/* Feed-forwards, gated and plain.  Reference: transformers 5.12, models/llama/modeling_llama.py
 * LlamaMLP, activations.py. */
#include "blocks.h"

/* Liger's SiLU or GELU times up: both operands are kept, and their gradients written over them
 * (linkedin/Liger-Kernel ops/swiglu.py, geglu.py). */
static struct oom_val liger_glu(struct oom_tape *t, struct oom_val gate, struct oom_val up)
{
	const bool rg = t->grad && (gate.rg || up.rg);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_GIVEN, "LigerGLUMul");
		oom_node_edge(t, n, gate);
		oom_node_edge(t, n, up);
		oom_node_save(t, n, gate);
		oom_node_save(t, n, up);
	}
	y = oom_new(t, "act * up", gate.mono, (struct oom_dim){gate.width, gate.text},
		    (enum oom_dtype)gate.dt);
	oom_drop(t, gate);
	oom_drop(t, up);
	return rg ? oom_node_out(t, n, 0, y) : y;
}

struct oom_val oom_gated_mlp(struct oom_tape *t, struct oom_val x, enum oom_act act,
			     struct oom_dim ff, bool bias)
{
	const struct oom_dim h = {x.width, x.text};
	const unsigned flags = bias ? OOM_BIAS : 0;
	struct oom_val gate, up;

	gate = oom_op_linear(t, "gate_proj", oom_keep(x), ff, flags);
	if (oom_kernel_runs(t, OOM_KERNEL_GLU)) {
		up = oom_op_linear(t, "up_proj", oom_keep(x), ff, flags);
		gate = liger_glu(t, gate, up);
	} else if (t->plan->compile) {          /* the activation is made again from the gate */
		up = oom_op_linear(t, "up_proj", oom_keep(x), ff, flags);
		gate = oom_op_mul(t, gate, up);
	} else {
		gate = oom_activation(t, act, gate);
		up = oom_op_linear(t, "up_proj", oom_keep(x), ff, flags);
		gate = oom_op_mul(t, gate, up);
	}
	gate = oom_op_linear(t, "down_proj", gate, h, flags);
	oom_done(t, x);
	return gate;
}

struct oom_val oom_named_glu(struct oom_tape *t, struct oom_val x, const char *const names[3],
			     enum oom_act act, struct oom_dim ff, bool bias, bool down_bias)
{
	const struct oom_dim h = {x.width, x.text};
	const unsigned flags = bias ? OOM_BIAS : 0;
	struct oom_frame f = {.t = t};
	struct oom_val g;

	x = oom_arg(&f, x);
	g = oom_activation(t, act, oom_op_linear(t, names[0], x, ff, flags));
	g = oom_op_mul(t, g, oom_op_linear(t, names[1], x, ff, flags));
	return oom_leave(&f, oom_op_linear(t, names[2], g, h, down_bias ? OOM_BIAS : 0));
}

struct oom_val oom_plain_mlp(struct oom_tape *t, struct oom_val x, const char *up, const char *down,
			     enum oom_act act, struct oom_dim ff, bool bias)
{
	const struct oom_dim h = {x.width, x.text};
	const unsigned flags = bias ? OOM_BIAS : 0;

	struct oom_val y = oom_op_linear(t, up, oom_keep(x), ff, flags);

	y = oom_activation(t, act, y);
	y = oom_op_linear(t, down, y, h, flags);
	oom_done(t, x);                         /* the caller's local until the module returns */
	return y;
}
