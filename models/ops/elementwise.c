/* Elementwise operations: casts, sums, products, functions of one tensor.  Derivatives:
 * derivatives*.c. */
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
	[OOM_MAXIMUM] = {"maximum", INPUT, {.full = 1, .flags = 2}, false},
	/* BLOOM's autograd.Function: input kept, backward in Python */
	[OOM_GELU_PYTHON] = {"GeLUFunction", INPUT, {.full = 4}, false},
};

enum oom_dtype oom_promote(struct oom_val a, struct oom_val b)
{
	if (a.dt == b.dt)
		return (enum oom_dtype)a.dt;
	if (!oom_dtype_is_float((enum oom_dtype)a.dt))
		return (enum oom_dtype)b.dt;
	if (!oom_dtype_is_float((enum oom_dtype)b.dt))
		return (enum oom_dtype)a.dt;
	return OOM_F32;                         /* bf16 with fp16, or either with fp32 */
}

struct oom_val oom_larger(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	if (a.width >= b.width && oom_mono_contains(t, a.mono, b.mono))
		return a;
	if (b.width >= a.width && oom_mono_contains(t, b.mono, a.mono))
		return b;
	return oom_cond_more(t, b.mono, b.width, a.mono, a.width) ? b : a;
}

/* In a block that is run again what has a node is known by it: its storage may have been made anew. */
static bool same_value(const struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	return a.node == b.node && a.slot == b.slot && (a.sto == b.sto || (t->recompute && a.node >= 0)) && a.dt == b.dt &&
	       a.mono == b.mono && a.width == b.width && a.perm == b.perm;
}

/* Parts of a tensor have a node each; without one they look alike, and the whole alone is known.  A block that is run
 * again runs dry first, without storage, and must take the same nodes both times: it remembers what has them. */
static bool is_known(const struct oom_tape *t, struct oom_val x)
{
	if (x.node <= -2)
		return x.width == t->params[-2 - x.node].elems;
	if (x.node >= 0 && oom_wants_grad(t, x))
		return true;
	return !t->recompute && x.sto >= 0 && t->rows[x.sto].mono == x.mono && t->rows[x.sto].width == x.width;
}

static bool is_dead(const struct oom_tape *t, struct oom_val x)
{
	return x.sto >= 0 && t->refs[x.sto] <= 0;
}

/* Of a block that is run again nothing is asked about storage, for its dry run has none. */
static bool still_there(const struct oom_tape *t, struct oom_val x)
{
	return t->recompute || (x.sto >= 0 && !is_dead(t, x));
}

void oom_forget_casts(struct oom_tape *t, struct oom_val x)
{
	for (size_t i = 0; i < OOM_TWINS; i++)
		if (same_value(t, t->twins[i].x, x) || same_value(t, t->twins[i].cast, x))
			t->twins[i] = (struct oom_twin){oom_none(), oom_none()};
}

/* What x is a cast of, where it is cast back: a compiled graph copies that (torch/_inductor/fx_passes/joint_graph.py
 * pointless_convert); else x. */
static struct oom_val origin(const struct oom_tape *t, struct oom_val x, enum oom_dtype dt)
{
	for (size_t i = 0; i < OOM_TWINS; i++)
		if (same_value(t, t->twins[i].cast, x) && t->twins[i].x.dt == dt && still_there(t, t->twins[i].x) &&
		    oom_wants_grad(t, t->twins[i].x) == oom_wants_grad(t, x))
			return t->twins[i].x;
	return x;
}

/* A compiled graph casts a tensor to a type once (torch/_functorch/compile_utils.py fx_graph_cse): the cast there is, or
 * none. */
static struct oom_val cast_before(struct oom_tape *t, struct oom_val x, enum oom_dtype dt)
{
	for (size_t i = 0; i < OOM_TWINS; i++) {
		struct oom_twin *w = &t->twins[i];

		if (!same_value(t, w->x, x) || w->cast.dt != dt || !still_there(t, w->cast) ||
		    (w->cast.node >= 0) != oom_wants_grad(t, x))
			continue;
		if (!is_dead(t, w->cast))
			return oom_share(t, w->cast);
		w->cast.sto = oom_new_like(t, "_to_copy", x, dt).sto;
		return w->cast;
	}
	return oom_none();
}

/* x as another type; of: what it is made of, x or what x was cast from. */
static struct oom_val cast_of(struct oom_tape *t, struct oom_val of, enum oom_dtype dt)
{
	const bool wants = oom_wants_grad(t, of);
	struct oom_val y;
	int32_t n = -1;

	if (wants) {
		n = oom_node(t, OOM_NODE_CAST, "_to_copy");
		oom_node_edge(t, n, of);
	}
	y = oom_new_like(t, "_to_copy", of, dt);
	return wants ? oom_node_out(t, n, 0, y) : y;
}

struct oom_val oom_op_cast(struct oom_tape *t, struct oom_val x, enum oom_dtype dt)
{
	const bool once = t->plan->compile && is_known(t, x);
	struct oom_val of = x, y = oom_none();

	if (x.dt == dt) {
		if (x.kept)
			x = oom_share(t, x);
		return x;
	}
	if (once) {
		of = origin(t, x, dt);
		y = cast_before(t, of, dt);
	}
	if (oom_is_none(y)) {
		y = cast_of(t, of, dt);
		if (once) {
			t->twins[t->next_twin] = (struct oom_twin){of, y};
			t->next_twin = (uint8_t)((t->next_twin + 1) % OOM_TWINS);
		}
	}
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
	y = oom_new(t, "add", mono, width, oom_promote(a, b));
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
	struct oom_val big = oom_larger(t, a, b), y;
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
	return binary(t, OOM_NODE_ADD, "add", a, b, false, false, oom_promote(a, b));
}

struct oom_val oom_op_add_inplace(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	oom_forget_casts(t, a);
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
	return binary(t, OOM_NODE_SUB, "sub", a, b, false, false, oom_promote(a, b));
}

/* The maxima, and the differences from them, whose exponentials are made in place, are temporaries of logsumexp;
 * the sum of these is the result (aten/src/ATen/native/ReduceOps.cpp logsumexp_out_impl). */
struct oom_val oom_op_log_add(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	const bool rg = oom_wants_grad(t, a) || oom_wants_grad(t, b);
	const struct oom_dim both = {2 * a.width, NULL};
	const enum oom_dtype dt = oom_promote(a, b);
	struct oom_val stack, maxima, above, y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_LOGSUMEXP, "logsumexp_backward");
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
	}
	stack = oom_new(t, "stack", a.mono, both, dt);
	oom_done(t, b);                         /* the list of both is stack's alone */
	oom_done(t, a);
	if (rg)
		oom_node_save(t, n, stack);
	maxima = oom_new(t, "amax", a.mono, (struct oom_dim){a.width, a.text}, dt);
	above = oom_new(t, "sub", a.mono, both, dt);
	y = oom_new(t, "logsumexp", a.mono, (struct oom_dim){a.width, a.text}, dt);
	oom_drop(t, above);
	oom_drop(t, maxima);
	oom_drop(t, stack);
	if (rg) {
		oom_node_save(t, n, y);
		y = oom_node_out(t, n, 0, y);
	}
	return y;
}

struct oom_val oom_op_mul(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	/* grad_a = grad * b, grad_b = grad * a: each factor is kept for the other's sake */
	return binary(t, OOM_NODE_MUL, "mul", a, b, oom_wants_grad(t, b), oom_wants_grad(t, a),
		      oom_promote(a, b));
}

struct oom_val oom_op_div(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	/* div_tensor_self_grad needs b; div_tensor_other_grad needs a and b */
	return binary(t, OOM_NODE_DIV, "div", a, b, oom_wants_grad(t, b), true, oom_promote(a, b));
}

struct oom_val oom_op_div_inplace(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	if (!oom_wants_grad(t, a) && !oom_wants_grad(t, b)) {
		oom_forget_casts(t, a);
		oom_done(t, b);
		return a;
	}
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
