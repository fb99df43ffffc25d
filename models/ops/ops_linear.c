/* Products with a weight: nn.Linear, tied heads.  Batched products: ops_bmm.c;
 * weights of few bits: ops_quantised.c; adapters: adapters.c. */
#include <string.h>

#include "ops.h"
#include "tape/round.h"

/* ---- products ---- */

/* In the runs measured for tests/accuracy/peft.csv a product with a copy that PEFT trains (modules_to_save)
 * keeps as much again as the copy from forward to backward, unless autocast makes one of its own.  Where
 * that comes from was not found: estimated, and if anything too high. */
static void hold_copy(struct oom_tape *t, int32_t node, struct oom_val w)
{
	struct oom_val z;

	if (w.node > -2 || !(t->params[-2 - w.node].flags & OOM_P_SAVED))
		return;
	z = oom_scratch_hold(t, "copy of the weight", OOM_MONO_ONE, w.width, (enum oom_dtype)w.dt);
	oom_node_save(t, node, z);
	oom_drop(t, z);
}

/* mm/addmm on operands already in their computing type. */
static struct oom_val product(struct oom_tape *t, const char *name, struct oom_val x,
			      struct oom_val w, struct oom_val bias, struct oom_dim out,
			      uint64_t in, bool trains)
{
	const bool rg = oom_wants_grad(t, x) || w.rg || bias.rg;
	const uint64_t rows = in ? x.width / in : 1;
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_LINEAR, oom_is_none(bias) ? "mm" : "addmm");
		if (n >= 0)
			t->nodes[n].added = !oom_is_none(bias);
		oom_node_edge(t, n, x);
		oom_node_edge(t, n, w);
		oom_node_edge(t, n, bias);
		if (w.rg)
			oom_node_save(t, n, x);
		/* a weight that all layers share is made in the first one, which has to be the one that gives its 16-bit
		 * copy up, as layers in between stand for many */
		if (oom_wants_grad(t, x) || (t->layers_alike && w.rg))
			oom_node_save(t, n, w);
		hold_copy(t, n, w);
	}
	if (!oom_has_kept(t, OOM_KEPT_PRODUCT))
		oom_tape_product(t, x, in, out.n, trains);
	y = oom_new_kept(t, OOM_KEPT_PRODUCT, name, x.mono,
			 (struct oom_dim){out.n * rows, out.text}, (enum oom_dtype)x.dt);
	oom_of_cublas(t, y.sto);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	oom_done(t, w);
	oom_done(t, bias);
	return y;
}

/* A transposed view is copied before it is folded into two dimensions; linear()'s argument, *turned,
 * lives until it returns.  With a weight that needs no gradient the heads of one sequence stay apart
 * (aten/src/ATen/native/LinearAlgebra.cpp, should_fold). */
static struct oom_val folded(struct oom_tape *t, struct oom_val x, struct oom_val w,
			     unsigned flags, struct oom_val *turned)
{
	const bool trained = w.node <= -2 ? t->params[-2 - w.node].trainable : w.rg;

	if (!x.perm || (!trained && (flags & OOM_BATCHED || !oom_cond_above(t, t->m_b, 1))))
		return x;
	*turned = x;
	return oom_op_copy(t, "clone", oom_keep(x));
}

struct oom_val oom_op_matmul_param(struct oom_tape *t, const char *name, struct oom_val x,
				   struct oom_val w, struct oom_val bias, struct oom_dim out)
{
	const uint64_t in = out.n ? w.width / out.n : 0;
	const struct oom_val arg[2] = {oom_argument(t, x), oom_argument(t, w)};
	const bool trains = oom_trains(t, w);
	struct oom_val y, turned = oom_none();

	oom_amp_cast_all(t, (struct oom_val *[]){&x, &w, &bias}, 3);
	x = folded(t, x, w, 0, &turned);
	y = product(t, name, x, w, bias, out, in, trains);
	oom_done(t, turned);
	oom_drop(t, arg[0]);
	oom_drop(t, arg[1]);
	return y;
}

struct oom_val oom_op_matmul_tied(struct oom_tape *t, const char *name, struct oom_val x,
				  struct oom_val w, struct oom_val bias, struct oom_dim out)
{
	struct oom_linear l = {.name = name, .w = w, .bias = bias, .in = x.width, .out = out, .flags = OOM_IS_HEAD};
	const char *scope = t->scope;
	struct oom_val y, given;

	l.w = w = oom_token_rows(t, oom_saved_copy(t, name, w));
	l.bias = bias = oom_saved_copy(t, name, bias);
	t->scope = name;
	oom_adapter_open(t, &l, 0);
	t->scope = scope;
	if (!l.adapter)
		return oom_op_matmul_param(t, name, x, w, bias, out);
	if (oom_adapter_replaces(&l)) {
		oom_done(t, w);
		y = oom_adapter_instead(t, x, &l);
		return y;
	}
	given = oom_share(t, x);
	t->scope = name;
	x = oom_adapter_before(t, x, &l);
	t->scope = scope;
	y = oom_op_matmul_param(t, name, x, w, bias, out);
	t->scope = name;
	y = oom_adapter_after(t, given, y, &l, false);
	t->scope = scope;
	return y;
}

bool oom_linear_open(struct oom_tape *t, struct oom_linear *l, const char *name, uint64_t in,
		     struct oom_dim out, unsigned flags)
{
	const char *scope = t->scope;

	*l = (struct oom_linear){.name = name, .in = in, .out = out, .flags = flags, .bias = oom_none()};
	if (!in || !out.n) {
		oom_tape_impossible(t, OOM_ERR_INVALID,
			      "%s would be a layer of %llu x %llu: check sizes and heads "
			      "(num_attention_heads, decoder_attention_heads)", name,
			      (unsigned long long)out.n, (unsigned long long)in);
		return false;
	}
	t->scope = name;
	l->w = oom_param(t, "weight", out.n, in,
			 OOM_P_LINEAR | (flags & OOM_IS_HEAD ? OOM_P_HEAD : 0) |
				 (oom_quantised_open(t, out.n, in, flags) ? OOM_P_QUANTISED : 0));
	l->w = oom_saved_copy(t, name, l->w);
	if (flags & OOM_BIAS)
		l->bias = oom_saved_copy(t, name, oom_param(t, "bias", 0, out.n, 0));
	oom_adapter_open(t, l, 0);
	if (l->adapter && l->bias.node <= -2 && t->plan->lora_bias == OOM_LORA_BIAS_LORA) {
		t->params[-2 - l->bias.node].trainable = true;
		l->bias.rg = t->grad;
	}
	t->scope = scope;
	return true;
}

/* torchao's Float8Linear (torchao/float8/float8_linear.py matmul_with_hp_or_float8_args): input and weight are cast for
 * the product and saved as they were; sides are multiples of 16, and accelerate leaves the head out
 * (accelerate/utils/ao.py filter_linear_layers).  Estimated: compiled, so that nothing in fp32 is made on the way. */
static bool in_fp8(const struct oom_tape *t, const struct oom_linear *l)
{
	return t->plan->fp8 != OOM_FP8_NONE && !(l->flags & (OOM_IS_HEAD | OOM_CONV1D)) && l->in % 16 == 0 &&
	       l->out.n % 16 == 0;
}

static struct oom_val fp8_product(struct oom_tape *t, const struct oom_linear *l, struct oom_val x, struct oom_val w,
				  struct oom_val bias)
{
	const bool narrow = in_fp8(t, l);
	struct oom_val narrow_x = oom_none(), narrow_w = oom_none(), y;

	if (narrow) {
		narrow_x = oom_new(t, "input in fp8", x.mono, (struct oom_dim){x.width, x.text}, OOM_U8);
		narrow_w = oom_new(t, "weight in fp8", OOM_MONO_ONE, D(l->in * l->out.n), OOM_U8);
	}
	y = product(t, l->name, x, w, bias, l->out, l->in, oom_trains(t, l->w));
	if (narrow && y.node >= 0)              /* the backward pass casts weight and gradient anew */
		t->nodes[y.node].aux_width = l->in * l->out.n;
	oom_drop(t, narrow_w);
	oom_drop(t, narrow_x);
	return y;
}

/* Autocast's copies: F.linear's arguments are the input, the weight and the bias, addmm's the bias first. */
static void cast_arguments(struct oom_tape *t, const struct oom_linear *l, struct oom_val *x, struct oom_val *w,
			   struct oom_val *bias)
{
	struct oom_val *const linear[] = {x, w, bias}, *const addmm[] = {bias, x, w};
	const bool made = t->amp && l->flags & OOM_NOT_LEAF;

	if (made && !t->plan->casts_backwards)
		*x = oom_amp_cast(t, *x);
	if (made)                               /* cast anew at every use */
		*w = oom_op_cast(t, *w, (enum oom_dtype)t->amp_dt);
	oom_amp_cast_all(t, l->flags & OOM_CONV1D ? addmm : linear, 3);
}

struct oom_val oom_linear_run(struct oom_tape *t, const struct oom_linear *l, struct oom_val x)
{
	/* out of memory: no parameter was made */
	const bool quantised = l->w.node <= -2 && t->params[-2 - l->w.node].flags & OOM_P_QUANTISED;
	const struct oom_val arg = oom_argument(t, x);
	struct oom_val w = l->w, bias = l->bias, y, given = oom_none(), turned = oom_none();
	const char *scope = t->scope;

	t->scope = l->name;
	if (oom_adapter_replaces(l)) {
		y = oom_adapter_instead(t, x, l);
		oom_drop(t, arg);
		t->scope = scope;
		return y;
	}
	if (l->adapter) {
		given = oom_share(t, x);
		x = oom_adapter_before(t, x, l);
	}
	if (quantised) {
		y = oom_quantised_linear(t, l, x);
	} else {
		cast_arguments(t, l, &x, &w, &bias);
		x = folded(t, x, w, l->flags, &turned);
		y = fp8_product(t, l, x, w, bias);
		oom_done(t, turned);
	}
	oom_drop(t, arg);
	if (l->adapter)
		y = oom_adapter_after(t, given, y, l, quantised);
	t->scope = scope;
	return y;
}

struct oom_val oom_op_linear_in(struct oom_tape *t, const char *name, struct oom_val x, uint64_t in,
				struct oom_dim out, unsigned flags)
{
	struct oom_linear l;

	return oom_linear_open(t, &l, name, in, out, flags) ? oom_linear_run(t, &l, x) : x;
}

struct oom_val oom_linear_unused(struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
				 unsigned flags)
{
	struct oom_linear l = {.name = name, .in = in, .out = {out, NULL}, .flags = flags};
	const char *scope = t->scope;
	struct oom_val w;

	t->scope = name;
	w = oom_param(t, "weight", out, in,
		  OOM_P_LINEAR | OOM_P_UNUSED | (oom_quantised_open(t, out, in, flags) ? OOM_P_QUANTISED : 0));
	if (flags & OOM_BIAS)
		oom_param(t, "bias", 0, out, OOM_P_UNUSED);
	oom_adapter_open(t, &l, OOM_P_UNUSED);
	t->scope = scope;
	return w;
}

struct oom_val oom_op_linear(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_dim out, unsigned flags)
{
	return oom_op_linear_in(t, name, x, x.width, out, flags);
}
