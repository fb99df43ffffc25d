/* Norms, operation by operation as modelling files write them.  Reference: transformers 5.12,
 * models/llama/modeling_llama.py LlamaRMSNorm and its likes. */
#include "blocks.h"

/* x.float() * rsqrt(mean(x^2) + eps), cast back: no weight. */
static struct oom_val rms_norm_plain(struct oom_tape *t, struct oom_val x, uint64_t width)
{
	const enum oom_dtype in = (enum oom_dtype)x.dt;
	const struct oom_dim one = {oom_rows_of(t, x.width, width ? width : x.width), NULL};
	struct oom_val f = oom_op_cast(t, x, OOM_F32), v;

	v = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, oom_keep(f)), f.mono, one);
	v = oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, v));
	return oom_op_cast(t, oom_op_mul(t, f, v), in);
}

/* hidden.to(fp32); * rsqrt(variance + eps); weight * x.to(input type).  `variance`, one number per row, is a
 * local to the end.  Gemma has no name for it, computes the product in fp32 and casts after it. */
static struct oom_val rms_norm(struct oom_tape *t, const char *name, struct oom_val x,
			       uint64_t width, bool plus1, bool wide, bool cast_weight)
{
	const uint64_t w = width ? width : x.width;
	const enum oom_dtype in = (enum oom_dtype)x.dt;
	const char *scope = t->scope;
	const struct oom_dim one = {oom_rows_of(t, x.width, w), NULL};
	struct oom_frame names = {.t = t};
	struct oom_val weight, f, v, r, y;

	t->scope = name;
	weight = oom_norm_param(t, "weight", w);
	f = oom_op_cast(t, x, OOM_F32);
	v = oom_op_unary(t, OOM_SQUARE, oom_keep(f));
	v = oom_op_mean(t, v, x.mono, one);
	if (!plus1)
		v = oom_name(&names, v);
	v = oom_op_unary(t, OOM_ADD_SCALAR, v);
	r = oom_op_unary(t, OOM_RSQRT, v);
	y = oom_op_mul(t, f, r);
	if (plus1) {
		struct oom_val p = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_cast(t, weight, OOM_F32));

		y = oom_op_mul(t, y, p);
		y = oom_op_cast(t, y, in);
	} else if (wide) {                      /* OLMo 2: the weight is applied before the cast */
		/* hidden_states, a local until the product has been converted */
		f = oom_share(t, y);
		if (cast_weight)                /* Helium casts the weight too */
			weight = oom_op_cast(t, weight, OOM_F32);
		y = oom_op_cast(t, oom_op_mul(t, weight, y), in);
		oom_drop(t, f);
	} else {
		f = oom_share(t, y);
		y = oom_op_cast(t, y, in);
		y = oom_op_mul(t, weight, y);
		oom_drop(t, f);
	}
	t->scope = scope;
	return oom_leave(&names, y);
}

/* Liger's RMSNorm (linkedin/Liger-Kernel ops/rms_norm.py LigerRMSNormFunction): its input, the weight and
 * one reciprocal root per row are kept; the result has the input's type.  Gemma's is not done in place
 * (transformers/monkey_patch.py). */
static struct oom_val liger_rms(struct oom_tape *t, const char *name, struct oom_val x, uint64_t width,
				bool in_place)
{
	const uint64_t w = width ? width : x.width;
	const char *scope = t->scope;
	struct oom_val weight, rstd, y;
	int32_t n = -1;
	bool rg;

	t->scope = name;
	weight = oom_norm_param(t, "weight", w);
	rg = t->grad && (x.rg || weight.rg);
	if (rg) {
		n = oom_node(t, OOM_NODE_LIGER_RMS, "LigerRMSNorm");
		oom_node_edge(t, n, x);
		oom_node_edge(t, n, weight);
	}
	y = oom_new(t, name, x.mono, (struct oom_dim){x.width, x.text}, (enum oom_dtype)x.dt);
	rstd = oom_new(t, "rstd", x.mono, (struct oom_dim){oom_rows_of(t, x.width, w), NULL}, OOM_F32);
	/* a checkpoint's first pass has no nodes, and counts what they would save */
	if (rg) {
		oom_node_save(t, n, x);
		oom_node_save(t, n, weight);
		oom_node_save(t, n, rstd);
		y = oom_node_out(t, n, 0, y);
	}
	if (n >= 0) {
		t->nodes[n].dt = x.dt;
		t->nodes[n].added = !in_place;
	}
	oom_drop(t, rstd);
	oom_done(t, x);
	t->scope = scope;
	return y;
}

/* torch.compile (models/README.md says how it is taken): a norm keeps what Liger's does, and its
 * result leaves in the type in which matrix products read it; one cast serves all of them. */
static struct oom_val compiled_rms(struct oom_tape *t, const char *name, struct oom_val x, uint64_t width)
{
	return oom_amp_cast(t, liger_rms(t, name, x, width, false));
}

/* CohereLayerNorm: mean and variance, both locals, and the weight in fp32, written out in Python.  Of heads, each
 * has weights of its own. */
static struct oom_val layer_norm_written_out(struct oom_tape *t, const char *name, struct oom_val x,
					     uint64_t width)
{
	const struct oom_dim one = {oom_rows_of(t, x.width, width ? width : x.width), NULL};
	const enum oom_dtype in = (enum oom_dtype)x.dt;
	const char *scope = t->scope;
	struct oom_frame names = {.t = t};
	struct oom_val w, h, mean, v, d;

	t->scope = name;
	w = oom_norm_param(t, "weight", x.width);
	h = oom_name(&names, oom_op_cast(t, x, OOM_F32));       /* hidden_states, three times over */
	mean = oom_name(&names, oom_op_mean(t, h, h.mono, one));
	v = oom_op_unary(t, OOM_SQUARE, oom_op_add(t, h, mean));
	v = oom_name(&names, oom_op_mean(t, v, h.mono, one));
	v = oom_op_unary(t, OOM_ADD_SCALAR, v);
	d = oom_op_add(t, h, mean);
	h = oom_rename(&names, h, oom_op_mul(t, d, oom_op_unary(t, OOM_RSQRT, v)));
	h = oom_rename(&names, h, oom_op_mul(t, oom_op_cast(t, w, OOM_F32), h));
	t->scope = scope;
	return oom_leave(&names, oom_op_cast(t, h, in));
}

static struct oom_val norm_of(struct oom_tape *t, enum oom_norm kind, const char *name,
			      struct oom_val x, uint64_t width)
{
	if (t->plan->compile && (kind == OOM_NORM_RMS || kind == OOM_NORM_RMS_PLUS1 ||
				 kind == OOM_NORM_RMS_FP32 || kind == OOM_NORM_RMS_FP32_W))
		return compiled_rms(t, name, x, width);
	if ((kind == OOM_NORM_RMS || kind == OOM_NORM_RMS_PLUS1) && oom_kernel_runs(t, OOM_KERNEL_NORM))
		return liger_rms(t, name, x, width, kind == OOM_NORM_RMS);
	switch (kind) {
	case OOM_NORM_RMS: return rms_norm(t, name, x, width, false, false, false);
	case OOM_NORM_RMS_PLUS1: return rms_norm(t, name, x, width, true, false, false);
	case OOM_NORM_LAYER_1P: return oom_op_layer_norm_1p(t, name, x);
	case OOM_NORM_LAYER: return oom_op_layer_norm(t, name, x, width, true, true);
	case OOM_NORM_LAYER_NO_BIAS: return oom_op_layer_norm(t, name, x, width, true, false);
	case OOM_NORM_LAYER_PLAIN: return oom_op_layer_norm(t, name, x, width, false, false);
	case OOM_NORM_RMS_FP32: return rms_norm(t, name, x, width, false, true, false);
	case OOM_NORM_RMS_FP32_W: return rms_norm(t, name, x, width, false, true, true);
	case OOM_NORM_RMS_PLAIN: return rms_norm_plain(t, x, width);
	case OOM_NORM_LAYER_WRITTEN_OUT: return layer_norm_written_out(t, name, x, width);
	/* F.layer_norm in fp32 without weights, cast back (OLMo) */
	case OOM_NORM_LAYER_FP32: {
		const enum oom_dtype in = (enum oom_dtype)x.dt;

		return oom_op_cast(t,
				   oom_op_layer_norm(t, name, oom_op_cast(t, x, OOM_F32), width,
						     false, false),
				   in);
	}
	case OOM_NORM_RMS_FUSED: return oom_op_layer_norm(t, name, x, width, true, false);
	}
	return x;
}

/* The argument of a module's call lives until it returns, whatever the module does with its own
 * name. */
struct oom_val oom_norm(struct oom_tape *t, enum oom_norm kind, const char *name, struct oom_val x,
			uint64_t width)
{
	struct oom_val y = norm_of(t, kind, name, oom_keep(x), width);

	oom_done(t, x);
	return y;
}
