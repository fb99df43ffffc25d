/* Operations that few models have, against PyTorch (measured/rare.csv; the same cases in Python:
 * tests/tools/measured/rare.py).  Places of a convolution are as many as the cases have tokens. */
#include "ops/scan.h"
#include "tape_case.h"

CASE(softmax_own, 64) { return oom_op_softmax_own(t, x); }
CASE(stack, 64)
{
	const struct oom_val both[2] = {x, tape_in(t, 64)};

	return oom_op_stack(t, both, 2, t->m_bs, D(2 * 64));
}
CASE(stack_three, 64)
{
	const struct oom_val all[3] = {oom_keep(x), tape_in(t, 64), oom_op_unary(t, OOM_SILU, oom_keep(x))};
	const struct oom_val y = oom_op_stack(t, all, 3, t->m_bs, D(3 * 64));

	oom_drop(t, x);
	return y;
}
CASE_OF_NOTHING(maximum_of_two)
{
	const struct oom_val a = tape_input(t, t->m_bs, 64, OOM_F32), b = tape_input(t, t->m_bs, 64, OOM_F32),
			     y = oom_op_maximum(t, a, oom_keep(b));

	oom_drop(t, b);
	oom_drop(t, a);
	return y;
}

/* ---- convolutions ---- */

static struct oom_val along(struct oom_tape *t, struct oom_val x, uint64_t kernel, uint64_t groups, bool bias)
{
	const struct oom_conv1d c = {.in = 64, .out = 48, .kernel = kernel, .groups = groups, .bias = bias};

	return oom_op_conv1d(t, "conv", x, &c, t->m_bs);
}
CASE(conv1d, 64) { return along(t, x, 3, 0, true); }
CASE(conv1d_no_bias, 64) { return along(t, x, 3, 1, false); }
CASE(conv1d_groups, 64) { return along(t, x, 3, 4, true); }
CASE(conv1d_depthwise, 64) { return oom_op_conv_depthwise(t, "conv", x, 5, true, t->m_bs, D(64)); }
CASE(conv1d_depthwise_no_bias, 64) { return oom_op_conv_depthwise(t, "conv", x, 5, false, t->m_bs, D(64)); }
CASE(conv1d_pointwise, 64) { return oom_op_conv(t, "conv", x, 96, 64, true, t->m_bs, D(96)); }
CASE(conv1d_with_weight, 64)
{
	const struct oom_val w = oom_param(t, "weight", 96, 64, 0);

	return oom_op_conv_param(t, x, w, oom_param(t, "bias", 0, 96, 0), t->m_bs, D(96));
}
CASE_MAP(conv_square, 3, 16, 16)
{
	return oom_op_conv_square(t, "conv", m.x, 3, 4, true, oom_tokens_of(t, 16), D(32));
}
CASE_MAP(conv_square_no_bias, 3, 16, 16)
{
	return oom_op_conv_square(t, "conv", m.x, 3, 4, false, oom_tokens_of(t, 16), D(32));
}
CASE(matmul_tied, 64)
{
	return oom_op_matmul_tied(t, "head", x, oom_param(t, "weight", 100, 64, 0), oom_none(), D(100));
}

/* ---- views ---- */

CASE(add_in_view, 64) { return oom_op_add_in_view(t, oom_op_unary(t, OOM_SCALE, x), tape_in(t, 64)); }
CASE(over, 64) { return oom_op_over(t, "div_", oom_op_unary(t, OOM_SCALE, x)); }

static struct oom_val read_twice(struct oom_tape *t, struct oom_val y)
{
	const struct oom_val a = oom_op_unary(t, OOM_SILU, oom_keep(y)), b = oom_op_unary(t, OOM_GELU, oom_keep(y)),
			     z = oom_op_add(t, a, b);

	oom_drop(t, y);
	return z;
}
CASE(viewed, 64) { return read_twice(t, oom_op_viewed(t, oom_op_unary(t, OOM_SCALE, x))); }
CASE(not_viewed, 64) { return read_twice(t, oom_op_unary(t, OOM_SCALE, x)); }
/* three windows of 16 places make five that overlap by half */
CASE(as_strided, 64) { return oom_op_as_strided(t, x, oom_tokens_of(t, 5 * 16), D(64), false); }
CASE(temper, 64)
{
	const uint16_t last = oom_tokens_of(t, 40);

	x = oom_op_temper(t, oom_op_unary(t, OOM_SCALE, x), last);
	return oom_op_slice(t, oom_op_slice(t, x, oom_tokens_of(t, 47), D(64)), last, D(64));
}

int main(void)
{
	return tape_cases_check("rare") != 0;
}
