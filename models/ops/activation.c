/* Activations as transformers writes them (transformers/activations.py): some are one kernel, some
 * several operators in Python. */
#include "activation.h"

/* 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))), written out in Python: every step is
 * an operator. */
static struct oom_val gelu_new(struct oom_tape *t, struct oom_val x)
{
	struct oom_val half, p, s;

	half = oom_op_unary(t, OOM_SCALE, oom_keep(x));
	p = oom_op_unary(t, OOM_POW, oom_keep(x));
	p = oom_op_unary(t, OOM_SCALE, p);
	s = oom_op_add(t, x, p);
	s = oom_op_unary(t, OOM_SCALE, s);
	s = oom_op_unary(t, OOM_TANH, s);
	s = oom_op_unary(t, OOM_ADD_SCALAR, s);
	return oom_op_mul(t, half, s);
}

/* 0.5 * x * (1 + tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))) */
static struct oom_val gelu_fast(struct oom_tape *t, struct oom_val x)
{
	struct oom_val half, a, b;

	half = oom_op_unary(t, OOM_SCALE, oom_keep(x));
	a = oom_op_unary(t, OOM_SCALE, oom_keep(x));
	b = oom_op_unary(t, OOM_SCALE, oom_keep(x));
	b = oom_op_mul(t, b, oom_keep(x));
	b = oom_op_unary(t, OOM_ADD_SCALAR, b);
	a = oom_op_mul(t, a, b);
	a = oom_op_unary(t, OOM_TANH, a);
	a = oom_op_unary(t, OOM_ADD_SCALAR, a);
	oom_done(t, x);
	return oom_op_mul(t, half, a);
}

/* x * 0.5 * (1.0 + erf(x / sqrt(2))), written out */
static struct oom_val gelu_python(struct oom_tape *t, struct oom_val x)
{
	struct oom_val half = oom_op_unary(t, OOM_SCALE, oom_keep(x));
	struct oom_val e = oom_op_unary(t, OOM_ERF, oom_op_unary(t, OOM_SCALE, x));

	return oom_op_mul(t, half, oom_op_unary(t, OOM_ADD_SCALAR, e));
}

/* 0.5 * (1 + erf((x - mu) / (sigma * sqrt(2)))), whose argument has the name of the input */
static struct oom_val laplace(struct oom_tape *t, struct oom_val x)
{
	struct oom_val z = oom_op_unary(t, OOM_SCALE, oom_op_unary(t, OOM_ADD_SCALAR, x));
	struct oom_val e = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_unary(t, OOM_ERF, oom_keep(z)));

	e = oom_op_unary(t, OOM_SCALE, e);
	oom_done(t, z);
	return e;
}

/* Of several operators in Python. */
static bool written_out(enum oom_act act)
{
	return act == OOM_ACT_GELU_NEW || act == OOM_ACT_GELU_FAST || act == OOM_ACT_GELU_PYTHON ||
	       act == OOM_ACT_QUICK_GELU || act == OOM_ACT_RELU2 || act == OOM_ACT_GELU_CLIPPED ||
	       act == OOM_ACT_LAPLACE;
}

static struct oom_val activation(struct oom_tape *t, enum oom_act act, struct oom_val x)
{
	struct oom_val y;

	if (t->plan->compile && written_out(act))       /* one kernel, which keeps its argument */
		return oom_op_unary(t, OOM_GELU, x);
	switch (act) {
	case OOM_ACT_SILU: return oom_op_unary(t, OOM_SILU, x);
	case OOM_ACT_GELU: case OOM_ACT_GELU_TANH: return oom_op_unary(t, OOM_GELU, x);
	case OOM_ACT_GELU_NEW: return gelu_new(t, x);
	case OOM_ACT_GELU_FAST: return gelu_fast(t, x);
	case OOM_ACT_GELU_PYTHON: return gelu_python(t, x);
	case OOM_ACT_RELU: return oom_op_unary(t, OOM_RELU, x);
	case OOM_ACT_RELU6: return oom_op_unary(t, OOM_RELU6, x);
	case OOM_ACT_TANH: return oom_op_unary(t, OOM_TANH, x);
	case OOM_ACT_SIGMOID: return oom_op_unary(t, OOM_SIGMOID, x);
	case OOM_ACT_HARDSWISH: return oom_op_unary(t, OOM_HARDSWISH, x);
	case OOM_ACT_MISH: return oom_op_unary(t, OOM_MISH, x);
	case OOM_ACT_LEAKY_RELU: return oom_op_unary(t, OOM_LEAKY_RELU, x);
	case OOM_ACT_QUICK_GELU:                /* x * sigmoid(1.702 * x) */
		y = oom_op_unary(t, OOM_SIGMOID, oom_op_unary(t, OOM_SCALE, oom_keep(x)));
		return oom_op_mul(t, x, y);
	case OOM_ACT_RELU2:                     /* relu(x)^2 */
		return oom_op_unary(t, OOM_SQUARE, oom_op_unary(t, OOM_RELU, x));
	case OOM_ACT_GELU_CLIPPED:              /* clip(gelu(x), -10, 10) */
		return oom_op_unary(t, OOM_CLAMP, oom_op_unary(t, OOM_GELU, x));
	case OOM_ACT_LAPLACE: return laplace(t, x);
	case OOM_ACT_NONE: break;
	}
	return oom_share(t, x);
}

/* Activations are modules: the argument lives until the last of their operations. */
struct oom_val oom_activation(struct oom_tape *t, enum oom_act act, struct oom_val x)
{
	struct oom_val y = activation(t, act, oom_keep(x));

	oom_done(t, x);
	return y;
}
