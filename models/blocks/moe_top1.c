/* Experts that run one after another, each token meeting one of them, behind a router in fp32.
 * Reference: transformers 5.12, models/switch_transformers/modeling_switch_transformers.py
 * (SwitchTransformersTop1Router, SwitchTransformersExperts), models/nllb_moe/modeling_nllb_moe.py
 * (NllbMoeTop2Router, NllbMoeExperts). */
#include "blocks.h"

/* The router's probabilities, and with *at which expert a token goes to. */
static struct oom_val route(struct oom_tape *t, const struct oom_top1 *m, struct oom_val x,
			    struct oom_val *at)
{
	const struct oom_dim n = {m->experts, "num_experts"};
	struct oom_val y, w, bias = oom_none();

	t->scope = "router";
	y = oom_op_cast(t, x, OOM_F32);
	if (m->jitter && t->train)              /* multiplied in place */
		y = oom_op_mul(t, y, oom_new_like(t, "jitter", y, OOM_F32));
	w = oom_op_cast(t, oom_param(t, "weight", m->experts, x.width, OOM_P_LINEAR), OOM_F32);
	if (m->router_bias)
		bias = oom_param(t, "bias", 0, m->experts, 0);
	y = oom_op_softmax(t, oom_op_matmul_param(t, "classifier", y, w, bias, n), true);
	y = oom_op_cast(t, y, (enum oom_dtype)x.dt);
	*at = oom_new(t, m->masked ? "top-1 mask" : "expert index", x.mono, n, OOM_I64);
	return y;
}

static struct oom_val run(struct oom_tape *t, const struct oom_top1 *m, const char *const name[3],
			  struct oom_val x, struct oom_dim out)
{
	const uint64_t e = m->experts, in = x.width;
	struct oom_val w, bias = oom_none();

	t->scope = "experts";
	w = oom_param(t, name[1], e * out.n, in, OOM_P_EXPERT | OOM_P_LINEAR);
	if (m->bias)
		bias = oom_param(t, name[2], 0, e * out.n, OOM_P_EXPERT);
	x = oom_op_grouped_mm(t, name[0], x, w, oom_none(), in, out);
	return m->bias ? oom_op_add_into(t, x, bias, x.mono, out) : x;
}

struct oom_val oom_moe_top1(struct oom_tape *t, const struct oom_top1 *m, struct oom_val x)
{
	const struct oom_dim d = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val probs, at, y;

	x = oom_arg(&f, x);
	probs = route(t, m, x, &at);
	at = oom_name(&f, at);
	probs = m->masked ? oom_op_mul(t, probs, at) :
			    oom_op_gather(t, "max", probs, at, x.mono, D(1));
	y = run(t, m, m->up, oom_op_copy(t, "current_state", x), m->ff);
	y = run(t, m, m->down, oom_op_dropout(t, oom_activation(t, m->act, y), m->dropout), d);
	if (m->masked)
		probs = oom_op_sum(t, probs, y.mono, D(1));
	return oom_leave(&f, oom_op_mul(t, y, probs));
}
