/* Elementwise operations, views, reductions, norms and lookups.  Matrix multiplies: ops_linear.c;
 * attention kernels: ops_attn.c; derivatives: derivatives*.c. */
#include "ops.h"

/* What each function keeps for its derivative, and how many full-size temporaries the derivative
 * makes besides its result (derivatives.yaml; composite formulas such as pow_backward run as
 * separate operators). */
static const struct {
	const char *name;
	enum { NOTHING, INPUT, RESULT } saves;
	struct oom_temps temps; /* of the derivative */
	bool fp32;              /* on autocast's fp32 list (aten/src/ATen/autocast_mode.h) */
} unary[OOM_UNARIES] = {
	[OOM_RELU] = {"relu", RESULT, {0}, false},
	[OOM_GELU] = {"gelu", INPUT, {0}, false},
	[OOM_SILU] = {"silu", INPUT, {0}, false},
	[OOM_TANH] = {"tanh", RESULT, {0}, false},
	[OOM_SIGMOID] = {"sigmoid", RESULT, {0}, false},
	[OOM_EXP] = {"exp", RESULT, {0}, true},
	[OOM_LOG] = {"log", INPUT, {0}, true},
	[OOM_SQUARE] = {"pow", INPUT, {.full = 2}, true},
	[OOM_POW] = {"pow", INPUT, {.full = 2}, true},
	[OOM_RSQRT] = {"rsqrt", RESULT, {.full = 2}, true},
	[OOM_SQRT] = {"sqrt", RESULT, {.full = 1}, false},
	[OOM_NEG] = {"neg", NOTHING, {0}, false},
	[OOM_SCALE] = {"mul", NOTHING, {0}, false},
	[OOM_SOFTPLUS] = {"softplus", INPUT, {0}, true},
	[OOM_COS] = {"cos", INPUT, {.full = 2}, false},
	[OOM_ABS] = {"abs", INPUT, {.full = 1}, false},
	[OOM_HARDSWISH] = {"hardswish", INPUT, {0}, false},
	[OOM_HARDSIGMOID] = {"hardsigmoid", INPUT, {0}, false},
	[OOM_LEAKY_RELU] = {"leaky_relu", INPUT, {0}, false},
	[OOM_ELU] = {"elu", INPUT, {0}, false},
	[OOM_MISH] = {"mish", INPUT, {0}, false},
	/* where((self >= min).logical_and_(self <= max), grad, scalar_tensor(0)) */
	[OOM_CLAMP] = {"clamp", INPUT, {.flags = 2, .scalar = 1}, false},
	[OOM_CLAMP_SIDE] = {"clamp", INPUT, {.flags = 1, .scalar = 1}, false},
	[OOM_ADD_SCALAR] = {"add", NOTHING, {0}, false},
	[OOM_LOGSIGMOID] = {"log_sigmoid", INPUT, {0}, false},
	[OOM_RELU6] = {"hardtanh", INPUT, {0}, false},
	[OOM_CUMSUM] = {"cumsum", NOTHING, {.full = 2}, true},
	/* 2 / sqrt(pi) * exp(-(self.pow(2))) * grad */
	[OOM_ERF] = {"erf", INPUT, {.full = 4}, false},
	/* where(self == other, grad / 2, grad).masked_fill(self < other, 0) */
	[OOM_MAXIMUM] = {"maximum", INPUT, {.full = 2, .flags = 2}, false},
	/* BLOOM's autograd.Function: input kept, backward in Python */
	[OOM_GELU_PYTHON] = {"GeLUFunction", INPUT, {.full = 4}, false},
};

static enum oom_dtype promote(struct oom_val a, struct oom_val b)
{
	if (a.dt == b.dt)
		return (enum oom_dtype)a.dt;
	if (!oom_dtype_is_float((enum oom_dtype)a.dt))
		return (enum oom_dtype)b.dt;
	if (!oom_dtype_is_float((enum oom_dtype)b.dt))
		return (enum oom_dtype)a.dt;
	return OOM_F32;                         /* bf16 with fp16, or either with fp32 */
}

/* The operand whose shape the result has: where the shapes do not say it for every batch, the sizes
 * do, and are remembered as a condition. */
static struct oom_val larger(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	if (a.width >= b.width && oom_mono_contains(t, a.mono, b.mono))
		return a;
	if (b.width >= a.width && oom_mono_contains(t, b.mono, a.mono))
		return b;
	return oom_cond_more(t, b.mono, b.width, a.mono, a.width) ? b : a;
}

struct oom_val oom_op_cast(struct oom_tape *t, struct oom_val x, enum oom_dtype dt)
{
	struct oom_val y;
	int32_t n = -1;

	if (x.dt == dt) {
		if (x.kept)
			x = oom_share(t, x);
		return x;
	}
	if (oom_wants_grad(t, x)) {
		n = oom_node(t, OOM_NODE_CAST, "_to_copy");
		oom_node_edge(t, n, x);
	}
	y = oom_new_like(t, "_to_copy", x, dt);
	if (oom_wants_grad(t, x))
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	return y;
}

struct oom_val oom_op_add_into(struct oom_tape *t, struct oom_val a, struct oom_val b,
			       uint16_t mono, struct oom_dim width)
{
	const bool rg = oom_wants_grad(t, a) || oom_wants_grad(t, b);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_ADD, "add");
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
	}
	y = oom_new(t, "add", mono, width, promote(a, b));
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, a);
	oom_done(t, b);
	return y;
}

static struct oom_val binary(struct oom_tape *t, uint8_t kind, const char *name, struct oom_val a,
			     struct oom_val b, bool save_a, bool save_b, enum oom_dtype dt)
{
	const bool rg = oom_wants_grad(t, a) || oom_wants_grad(t, b);
	struct oom_val big = larger(t, a, b), y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, kind, name);
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
		if (save_a)
			oom_node_save(t, n, a);
		if (save_b)
			oom_node_save(t, n, b);
	}
	y = oom_new(t, name, big.mono, (struct oom_dim){big.width, big.text}, dt);
	y.perm = a.mono == big.mono && a.width == big.width ? a.perm : b.perm;
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, a);
	oom_done(t, b);
	return y;
}

struct oom_val oom_op_add(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	return binary(t, OOM_NODE_ADD, "add", a, b, false, false, promote(a, b));
}

struct oom_val oom_op_add_inplace(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	if (oom_wants_grad(t, a) || oom_wants_grad(t, b)) {
		int32_t n = oom_node(t, OOM_NODE_ADD, "add_");

		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
		a = oom_node_out(t, n, 0, a);
	}
	oom_done(t, b);
	return a;
}

struct oom_val oom_op_sub(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	return binary(t, OOM_NODE_SUB, "sub", a, b, false, false, promote(a, b));
}

/* The maxima, and the differences from them, whose exponentials are made in place, are temporaries of logsumexp
 * (aten/src/ATen/native/ReduceOps.cpp logsumexp_out_impl). */
struct oom_val oom_op_log_add(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	const bool rg = oom_wants_grad(t, a) || oom_wants_grad(t, b);
	const struct oom_dim both = {2 * a.width, NULL};
	const enum oom_dtype dt = promote(a, b);
	struct oom_val stack, maxima, y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_LOGSUMEXP, "logsumexp_backward");
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
	}
	stack = oom_new(t, "stack", a.mono, both, dt);
	if (rg)
		oom_node_save(t, n, stack);
	maxima = oom_new(t, "amax", a.mono, (struct oom_dim){a.width, a.text}, dt);
	oom_scratch(t, "sub", a.mono, both.n, dt);
	y = oom_new(t, "logsumexp", a.mono, (struct oom_dim){a.width, a.text}, dt);
	oom_drop(t, maxima);
	oom_drop(t, stack);
	if (rg) {
		oom_node_save(t, n, y);
		y = oom_node_out(t, n, 0, y);
	}
	oom_done(t, a);
	oom_done(t, b);
	return y;
}

struct oom_val oom_op_mul(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	/* grad_a = grad * b, grad_b = grad * a: each factor is kept for the other's sake */
	return binary(t, OOM_NODE_MUL, "mul", a, b, oom_wants_grad(t, b), oom_wants_grad(t, a),
		      promote(a, b));
}

struct oom_val oom_op_div(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	/* div_tensor_self_grad needs b; div_tensor_other_grad needs a and b */
	return binary(t, OOM_NODE_DIV, "div", a, b, oom_wants_grad(t, b), true, promote(a, b));
}

struct oom_val oom_op_div_inplace(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	/* the dividend is needed as it was: it is cloned, and the quotient has its type */
	return binary(t, OOM_NODE_DIV, "div_", a, b, oom_wants_grad(t, b), true,
		      (enum oom_dtype)a.dt);
}

struct oom_val oom_argument(struct oom_tape *t, struct oom_val x)
{
	return x.kept || !t->amp || x.sto < 0 ? oom_none() : oom_share(t, x);
}

/* x * 0.5 * (1 + tanh(0.79788456 * x * (1 + 0.044715 * x * x))) in Python: x / 2, the first factor of
 * tanh's argument and two of the second are alive together (models/bloom/modeling_bloom.py,
 * bloom_gelu_forward). */
static void written_out(struct oom_tape *t, struct oom_val x)
{
	struct oom_val temp[4];

	for (int i = 0; i < 4; i++)
		temp[i] = oom_new_like(t, "mul", x, (enum oom_dtype)x.dt);
	for (int i = 0; i < 4; i++)
		oom_drop(t, temp[i]);
}

/* other: an operand of one element that the derivative needs; none for what has none */
static struct oom_val unary_with(struct oom_tape *t, enum oom_unary f, struct oom_val x,
				 struct oom_val other)
{
	const struct oom_val arg = oom_argument(t, x);
	struct oom_val y;
	int32_t n = -1;
	const bool rg = oom_wants_grad(t, x);

	if (t->amp && unary[f].fp32)
		x = oom_op_cast(t, x, OOM_F32);
	if (rg) {
		/* a sum hands its gradient on as it is */
		n = oom_node(t, f == OOM_ADD_SCALAR ? OOM_NODE_PASS : OOM_NODE_UNARY, unary[f].name);
		oom_node_edge(t, n, x);
		if (n >= 0)
			t->nodes[n].temps = unary[f].temps;
		if (unary[f].saves == INPUT)
			oom_node_save(t, n, x);
	}
	if (rg && !oom_is_none(other))
		oom_node_save(t, n, other);
	if (f == OOM_GELU_PYTHON)
		written_out(t, x);
	y = oom_new_like(t, unary[f].name, x, (enum oom_dtype)x.dt);
	if (rg) {
		y = oom_node_out(t, n, 0, y);
		if (unary[f].saves == RESULT)
			oom_node_save(t, n, y);
	}
	oom_drop(t, other);
	oom_done(t, x);
	oom_drop(t, arg);
	return y;
}

struct oom_val oom_op_unary(struct oom_tape *t, enum oom_unary f, struct oom_val x)
{
	return unary_with(t, f, x, oom_none());
}

struct oom_val oom_op_at_least(struct oom_tape *t, struct oom_val x)
{
	const struct oom_val least =
		oom_new(t, "least", OOM_MONO_ONE, D(1), (enum oom_dtype)x.dt);

	return unary_with(t, OOM_MAXIMUM, x, least);
}

/* ---- views ---- */

struct oom_val oom_op_view(struct oom_tape *t, struct oom_val x, uint16_t mono,
			   struct oom_dim width)
{
	if (x.kept)
		x = oom_share(t, x);
	x.mono = mono;
	x.width = width.n;
	x.text = width.text;
	return x;
}

static struct oom_val pass(struct oom_tape *t, uint8_t kind, const char *name, struct oom_val x)
{
	if (x.kept)
		x = oom_share(t, x);
	if (oom_wants_grad(t, x)) {
		int32_t n = oom_node(t, kind, name);

		oom_node_edge(t, n, x);
		x = oom_node_out(t, n, 0, x);
	}
	return x;
}

struct oom_val oom_op_heads(struct oom_tape *t, struct oom_val x)
{
	x = pass(t, OOM_NODE_HEADS, "transpose", x);
	x.perm = true;
	return x;
}

struct oom_val oom_op_copy(struct oom_tape *t, const char *name, struct oom_val x)
{
	struct oom_val y;
	int32_t n = -1;
	const bool rg = oom_wants_grad(t, x);

	if (rg) {
		n = oom_node(t, OOM_NODE_PASS, name);
		oom_node_edge(t, n, x);
	}
	y = oom_new_like(t, name, x, (enum oom_dtype)x.dt);
	y.perm = false;
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	return y;
}

struct oom_val oom_op_merge_heads(struct oom_tape *t, struct oom_val x)
{
	const bool view = x.perm;

	x = pass(t, OOM_NODE_MERGE, "transpose", x);
	if (!view)
		x = oom_op_copy(t, "clone", x);
	x.perm = false;
	return x;
}

struct oom_val oom_op_temper(struct oom_tape *t, struct oom_val x, uint16_t view)
{
	x = pass(t, OOM_NODE_IN_VIEW, "div_", x);
	if (x.node >= 0) {
		t->nodes[x.node].aux_mono = view;
		t->nodes[x.node].aux_width = x.width;
	}
	return x;
}

struct oom_val oom_op_slice(struct oom_tape *t, struct oom_val x, uint16_t mono,
			    struct oom_dim width)
{
	int32_t n = -1;
	const bool rg = oom_wants_grad(t, x);

	if (rg) {
		n = oom_node(t, OOM_NODE_SLICE, "slice");
		oom_node_edge(t, n, x);
	}
	x = oom_op_view(t, x, mono, width);
	return rg ? oom_node_out(t, n, 0, x) : x;
}

void oom_op_split(struct oom_tape *t, struct oom_val x, int n_parts, const struct oom_dim *widths,
		  struct oom_val *out)
{
	int32_t n = -1;
	const bool rg = oom_wants_grad(t, x);

	if (rg) {
		n = oom_node(t, OOM_NODE_SPLIT, "split");
		oom_node_edge(t, n, x);
	}
	for (int i = 0; i < n_parts; i++) {
		out[i] = oom_op_view(t, oom_keep(x), x.mono, widths[i]);
		if (rg)
			out[i] = oom_node_out(t, n, (uint8_t)i, out[i]);
	}
	oom_done(t, x);
}

struct oom_val oom_op_cat(struct oom_tape *t, struct oom_val a, struct oom_val b,
			  struct oom_dim width)
{
	return oom_op_cat_into(t, a, b, larger(t, a, b).mono, width);
}

struct oom_val oom_op_cat_into(struct oom_tape *t, struct oom_val a, struct oom_val b,
			       uint16_t mono, struct oom_dim width)
{
	const bool rg = oom_wants_grad(t, a) || oom_wants_grad(t, b);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_CAT, "cat");
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
	}
	y = oom_new(t, "cat", mono, width, promote(a, b));
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, a);
	oom_done(t, b);
	return y;
}

/* ---- reductions and expansions ---- */

static struct oom_val resized(struct oom_tape *t, uint8_t kind, const char *name, struct oom_val x,
			      uint16_t mono, struct oom_dim width)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, kind, name);
		oom_node_edge(t, n, x);
	}
	y = oom_new(t, name, mono, width, (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	return y;
}

struct oom_val oom_op_mean(struct oom_tape *t, struct oom_val x, uint16_t mono,
			   struct oom_dim width)
{
	return resized(t, OOM_NODE_MEAN, "mean", x, mono, width);
}

struct oom_val oom_op_sum(struct oom_tape *t, struct oom_val x, uint16_t mono, struct oom_dim width)
{
	return resized(t, OOM_NODE_SUM, "sum", x, mono, width);
}

struct oom_val oom_op_expand_copy(struct oom_tape *t, struct oom_val x, uint16_t mono,
				  struct oom_dim width)
{
	return resized(t, OOM_NODE_EXPAND, "clone", x, mono, width);
}

struct oom_val oom_op_expand(struct oom_tape *t, struct oom_val x, uint16_t mono,
			     struct oom_dim width)
{
	int32_t n = -1;
	const bool rg = oom_wants_grad(t, x);

	if (rg) {
		n = oom_node(t, OOM_NODE_EXPAND, "expand");
		oom_node_edge(t, n, x);
	}
	x = oom_op_view(t, x, mono, width);
	x.perm = true;                          /* not contiguous: whoever folds it copies it */
	return rg ? oom_node_out(t, n, 0, x) : x;
}

static struct oom_val softmax(struct oom_tape *t, const char *name, struct oom_val x, bool to_fp32)
{
	const bool rg = oom_wants_grad(t, x);
	const struct oom_val arg = oom_argument(t, x);
	struct oom_val y;
	int32_t n = -1;
	enum oom_dtype dt = to_fp32 ? OOM_F32 : (enum oom_dtype)x.dt;

	/* fp16 -> fp32 is fused into the kernel; bf16 is converted first
	 * (aten/src/ATen/native/SoftMax.cpp) */
	if (x.dt == OOM_DT_BF16 && dt == OOM_F32)
		x = oom_op_cast(t, x, OOM_F32);
	if (rg) {
		n = oom_node(t, OOM_NODE_SOFTMAX, name);
		oom_node_edge(t, n, x);
	}
	y = oom_new_like(t, name, x, dt);
	y.perm = false;
	if (rg) {
		y = oom_node_out(t, n, 0, y);
		oom_node_save(t, n, y);
	}
	oom_done(t, x);
	oom_drop(t, arg);
	return y;
}

struct oom_val oom_op_softmax(struct oom_tape *t, struct oom_val x, bool to_fp32)
{
	return softmax(t, "softmax", x, to_fp32 || t->amp);
}

/* cross_entropy_loss calls log_softmax with the input's type spelt out, so autocast leaves it
 * alone. */
struct oom_val oom_op_log_softmax(struct oom_tape *t, struct oom_val x)
{
	return softmax(t, "log_softmax", x, false);
}

struct oom_val oom_op_dropout(struct oom_tape *t, struct oom_val x, double p)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y, mask;
	int32_t n = -1;

	if (!t->train || p <= 0)
		return x.kept ? oom_share(t, x) : x;
	if (rg) {
		n = oom_node(t, OOM_NODE_UNARY, "native_dropout");
		oom_node_edge(t, n, x);
	}
	y = oom_new_like(t, "dropout", x, (enum oom_dtype)x.dt);
	mask = oom_new_like(t, "dropout mask", x, OOM_U8);
	if (rg) {
		y = oom_node_out(t, n, 0, y);
		oom_node_save(t, n, mask);
	}
	oom_done(t, x);
	oom_drop(t, mask);
	return y;
}

/* Not fused: noise of x's type, kept for the derivative (aten/src/ATen/native/Dropout.cpp,
 * _dropout<inplace>). */
struct oom_val oom_op_dropout_inplace(struct oom_tape *t, struct oom_val x, double p)
{
	struct oom_val noise;
	int32_t n = -1;

	if (!t->train || p <= 0)
		return x;
	noise = oom_new_like(t, "dropout noise", x, (enum oom_dtype)x.dt);
	if (oom_wants_grad(t, x)) {
		n = oom_node(t, OOM_NODE_MUL, "mul_");
		oom_node_edge(t, n, x);
		oom_node_save(t, n, noise);
		x = oom_node_out(t, n, 0, x);
	}
	oom_drop(t, noise);
	return x;
}

struct oom_val oom_op_masked(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_val mask)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_WHERE, name);
		oom_node_edge(t, n, x);
		oom_node_save(t, n, mask);
	}
	y = oom_new_like(t, name, x, (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	oom_done(t, mask);
	return y;
}

struct oom_val oom_op_masked_inplace(struct oom_tape *t, struct oom_val x, struct oom_val mask)
{
	if (oom_wants_grad(t, x)) {
		int32_t n = oom_node(t, OOM_NODE_WHERE, "masked_fill_");

		oom_node_edge(t, n, x);
		oom_node_save(t, n, mask);
		x = oom_node_out(t, n, 0, x);
	}
	oom_done(t, mask);
	return x;
}

/* ---- norms and lookups ---- */

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

struct oom_val oom_embedding_lookup(struct oom_tape *t, struct oom_val w, struct oom_val ids,
				    struct oom_dim dim)
{
	const bool rg = oom_wants_grad(t, w);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_EMBEDDING, "embedding");
		oom_node_edge(t, n, w);
		oom_node_save(t, n, ids);
		if (n >= 0) {
			t->nodes[n].aux_mono = ids.mono;
			t->nodes[n].aux_width = ids.width;
		}
	}
	y = oom_new(t, "embedding", ids.mono, (struct oom_dim){dim.n * ids.width, dim.text},
		    (enum oom_dtype)w.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, ids);
	return y;
}

struct oom_val oom_op_embedding_param(struct oom_tape *t, struct oom_val w, struct oom_val ids,
				      uint64_t vocab, struct oom_dim dim)
{
	struct oom_val y, rows;

	if (w.node <= -2)
		w = oom_saved_copy(t, oom_table_module(&t->params[-2 - w.node]), w);
	rows = oom_token_rows(t, w);
	y = oom_embedding_lookup(t, rows, oom_keep(ids), dim);
	if (rows.node != w.node)
		oom_drop(t, rows);
	(void)vocab;                            /* the table knows its rows */
	y = oom_lora_embedding(t, y, w, ids, dim);
	oom_done(t, ids);
	return y;
}

struct oom_val oom_op_embedding(struct oom_tape *t, const char *name, struct oom_val ids,
				uint64_t vocab, struct oom_dim dim, uint32_t flags)
{
	const char *scope = t->scope;
	struct oom_val w, y;

	t->scope = name;
	w = oom_param(t, "weight", vocab, dim.n, OOM_P_EMBEDDING | flags);
	y = oom_op_embedding_param(t, w, ids, vocab, dim);
	t->scope = scope;
	return y;
}

struct oom_val oom_op_gather(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_val index, uint16_t mono, struct oom_dim width)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_GATHER, name);
		oom_node_edge(t, n, x);
		oom_node_save(t, n, index);
	}
	y = oom_new(t, name, mono, width, (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	oom_done(t, index);
	return y;
}
