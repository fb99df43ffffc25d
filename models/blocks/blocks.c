/* Norms, rotary positions, feed-forwards, masks: the idioms of transformers' modelling code,
 * operation by operation. Reference: huggingface/transformers 5.12,
 * models/llama/modeling_llama.py, activations.py, masking_utils.py. */
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

/* hidden.to(fp32); * rsqrt(mean(x^2) + eps); weight * x.to(input type).  Gemma computes the product
 * in fp32 and casts after it. */
static struct oom_val rms_norm(struct oom_tape *t, const char *name, struct oom_val x,
			       uint64_t width, bool plus1, bool wide, bool cast_weight)
{
	const uint64_t w = width ? width : x.width;
	const enum oom_dtype in = (enum oom_dtype)x.dt;
	const char *scope = t->scope;
	const struct oom_dim one = {oom_rows_of(t, x.width, w), NULL};
	struct oom_val weight, f, v, r, y;

	t->scope = name;
	weight = oom_norm_param(t, "weight", w);
	f = oom_op_cast(t, x, OOM_F32);
	v = oom_op_unary(t, OOM_SQUARE, oom_keep(f));
	v = oom_op_mean(t, v, x.mono, one);
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
	return y;
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

	t->scope = name;
	weight = oom_norm_param(t, "weight", w);
	if (t->grad && (x.rg || weight.rg)) {
		n = oom_node(t, OOM_NODE_LIGER_RMS, "LigerRMSNorm");
		oom_node_edge(t, n, x);
		oom_node_edge(t, n, weight);
	}
	y = oom_new(t, name, x.mono, (struct oom_dim){x.width, x.text}, (enum oom_dtype)x.dt);
	rstd = oom_new(t, "rstd", x.mono, (struct oom_dim){oom_rows_of(t, x.width, w), NULL}, OOM_F32);
	if (n >= 0) {
		oom_node_save(t, n, x);
		oom_node_save(t, n, weight);
		oom_node_save(t, n, rstd);
		t->nodes[n].dt = x.dt;
		t->nodes[n].added = !in_place;
		y = oom_node_out(t, n, 0, y);
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

static bool liger_has(const struct oom_tape *t, enum oom_liger what)
{
	return t->plan->liger_kernels == OOM_LIGER_ALL || t->plan->liger_kernels == (int64_t)what;
}

/* CohereLayerNorm: mean, variance, weight in fp32, written out in Python. */
static struct oom_val layer_norm_written_out(struct oom_tape *t, const char *name, struct oom_val x)
{
	const enum oom_dtype in = (enum oom_dtype)x.dt;
	const char *scope = t->scope;
	struct oom_val w, f, mean, v, d;

	t->scope = name;
	w = oom_norm_param(t, "weight", x.width);
	f = oom_op_cast(t, x, OOM_F32);
	mean = oom_op_mean(t, oom_keep(f), f.mono, D(1));
	v = oom_op_unary(t, OOM_SQUARE, oom_op_add(t, oom_keep(f), oom_keep(mean)));
	v = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_mean(t, v, f.mono, D(1)));
	d = oom_op_add(t, f, mean);
	d = oom_op_mul(t, d, oom_op_unary(t, OOM_RSQRT, v));
	d = oom_op_mul(t, oom_op_cast(t, w, OOM_F32), d);
	t->scope = scope;
	return oom_op_cast(t, d, in);
}

static struct oom_val norm_of(struct oom_tape *t, enum oom_norm kind, const char *name,
			      struct oom_val x, uint64_t width)
{
	if (t->plan->compile && (kind == OOM_NORM_RMS || kind == OOM_NORM_RMS_PLUS1 ||
				 kind == OOM_NORM_RMS_FP32 || kind == OOM_NORM_RMS_FP32_W))
		return compiled_rms(t, name, x, width);
	if ((kind == OOM_NORM_RMS || kind == OOM_NORM_RMS_PLUS1) && liger_has(t, OOM_LIGER_NORM))
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
	case OOM_NORM_LAYER_WRITTEN_OUT: return layer_norm_written_out(t, name, x);
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

/* ---- rotary positions ---- */

/* inv_freq @ positions in fp32, cat(freqs, freqs), cos and sin, cast to the model's type; under
 * no_grad.  `times` tables come out of `axes` rows of frequencies. */
static struct oom_rope tables(struct oom_tape *t, uint16_t mono, uint64_t axes, uint64_t times,
			      uint64_t dim, enum oom_dtype dt, unsigned buffers)
{
	const bool grad = t->grad;
	struct oom_rope r;
	struct oom_val freqs, emb, pos;
	const struct oom_dim half = {axes * dim / 2, "head_dim / 2"},
			     full = {times * dim, "head_dim"};

	for (unsigned i = 0; i < buffers; i++)
		oom_buffer(t, dim / 2, OOM_F32);
	t->grad = false;
	pos = oom_new(t, "position ids", mono, (struct oom_dim){axes, NULL}, OOM_F32);
	freqs = oom_new(t, "rotary freqs", mono, half, OOM_F32);
	emb = oom_new(t, "rotary emb", mono, full, OOM_F32);
	r.cos = oom_new(t, "cos", mono, full, OOM_F32);
	r.cos = oom_op_unary(t, OOM_SCALE, r.cos);
	r.sin = oom_new(t, "sin", mono, full, OOM_F32);
	r.sin = oom_op_unary(t, OOM_SCALE, r.sin);
	r.cos = oom_op_cast(t, r.cos, dt);
	r.sin = oom_op_cast(t, r.sin, dt);
	oom_drop(t, freqs);
	oom_drop(t, emb);
	oom_drop(t, pos);
	t->grad = grad;
	return r;
}

bool oom_any_layer(struct oom_tape *t, const struct oom_arch *a, uint8_t bits, uint8_t value)
{
	const uint64_t n = oom_depth(t, a->n_layers);

	for (uint64_t i = 0; i < n && i < OOM_MAX_LAYERS; i++)
		if ((a->kind[i] & bits) == value)
			return true;
	return false;
}

struct oom_rope oom_rope_tables(struct oom_tape *t, uint64_t dim, enum oom_dtype dt,
				unsigned buffers)
{
	return tables(t, t->m_s, 1, 1, dim, dt, buffers);
}

struct oom_rope oom_name_tables(struct oom_frame *f, struct oom_rope r)
{
	r.cos = oom_name_shared(f, r.cos);
	r.sin = oom_name_shared(f, r.sin);
	return r;
}

struct oom_rope oom_rope_tables_3d(struct oom_tape *t, uint64_t dim, enum oom_dtype dt,
				   unsigned buffers, bool merged)
{
	return tables(t, t->m_bs, 3, merged ? 1 : 3, dim, dt, buffers);
}

struct oom_val oom_rope_apply(struct oom_tape *t, struct oom_val q, const struct oom_rope *r,
			      uint64_t heads, uint64_t head_dim, uint64_t rot_dim)
{
	const struct oom_dim half = {heads * rot_dim / 2, "heads * rotary_dim / 2"};
	const struct oom_dim whole = {heads * rot_dim, "heads * rotary_dim"};
	struct oom_val rot = q, rest = oom_none(), qc, x1, x2, rs;

	/* liger_rotary_pos_emb writes over its operands (ops/rope.py) */
	if (liger_has(t, OOM_LIGER_ALL) && rot_dim == head_dim)
		return q;
	if (rot_dim < head_dim) {               /* q[..., :rot], q[..., rot:] */
		rot = oom_op_slice(t, oom_keep(q), q.mono, whole);
		rest = oom_op_slice(t, q, q.mono,
				    (struct oom_dim){heads * (head_dim - rot_dim), NULL});
	}
	qc = oom_op_mul(t, oom_keep(rot), oom_keep(r->cos));
	x1 = oom_op_slice(t, oom_keep(rot), q.mono, half);
	x2 = oom_op_slice(t, rot, q.mono, half);
	x2 = oom_op_unary(t, OOM_NEG, x2);
	rs = oom_op_cat(t, x2, x1, whole);
	rs = oom_op_mul(t, rs, oom_keep(r->sin));
	qc = oom_op_add(t, qc, rs);
	if (rot_dim < head_dim)
		qc = oom_op_cat(t, qc, rest,
				(struct oom_dim){heads * head_dim, "heads * head_dim"});
	return qc;
}

void oom_rope_pair(struct oom_tape *t, struct oom_val *q, struct oom_val *k,
		   const struct oom_rope *r, uint64_t heads, uint64_t kv_heads, uint64_t head_dim,
		   uint64_t rot_dim)
{
	const struct oom_val old[2] = {*q, *k};

	*q = oom_rope_apply(t, oom_share(t, old[0]), r, heads, head_dim, rot_dim);
	*k = oom_rope_apply(t, oom_share(t, old[1]), r, kv_heads, head_dim, rot_dim);
	oom_done(t, old[0]);
	oom_done(t, old[1]);
}

static struct oom_val rope_fp32_one(struct oom_tape *t, struct oom_val x, const struct oom_rope *r,
				    uint64_t heads, uint64_t head_dim)
{
	const struct oom_dim half = {heads * head_dim / 2, "heads * head_dim / 2"},
			     whole = {heads * head_dim, "heads * head_dim"};
	struct oom_val y = oom_op_mul(t, oom_op_cast(t, oom_keep(x), OOM_F32), oom_keep(r->cos)), f,
		       x1, x2;

	f = oom_op_cast(t, oom_keep(x), OOM_F32);
	x1 = oom_op_slice(t, oom_keep(f), f.mono, half);
	x2 = oom_op_slice(t, oom_keep(f), f.mono, half);
	x2 = oom_op_cat(t, oom_op_unary(t, OOM_NEG, x2), x1, whole);
	oom_drop(t, f);
	return oom_op_add(t, y, oom_op_mul(t, x2, oom_keep(r->sin)));
}

void oom_rope_fp32(struct oom_tape *t, struct oom_val *q, struct oom_val *k,
		   const struct oom_rope *r, uint64_t heads, uint64_t kv_heads, uint64_t head_dim)
{
	const enum oom_dtype dt = (enum oom_dtype)q->dt;
	/* arguments and the caller's names until both are rotated */
	const struct oom_val old_q = *q, old_k = *k;
	struct oom_val q32 = rope_fp32_one(t, old_q, r, heads, head_dim);
	struct oom_val k32 = rope_fp32_one(t, old_k, r, kv_heads, head_dim);

	*q = oom_op_cast(t, oom_keep(q32), dt);
	*k = oom_op_cast(t, oom_keep(k32), dt);
	oom_drop(t, q32);
	oom_drop(t, k32);
	oom_done(t, old_q);
	oom_done(t, old_k);
}

/* ---- feed-forwards ---- */

/* Liger's SiLU or GELU times up: both operands are kept, and their gradients written over them
 * (linkedin/Liger-Kernel ops/swiglu.py, geglu.py). */
static struct oom_val liger_glu(struct oom_tape *t, struct oom_val gate, struct oom_val up)
{
	struct oom_val y;
	int32_t n = -1;

	if (t->grad && (gate.rg || up.rg)) {
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
	return n >= 0 ? oom_node_out(t, n, 0, y) : y;
}

struct oom_val oom_gated_mlp(struct oom_tape *t, struct oom_val x, enum oom_act act,
			     struct oom_dim ff, bool bias)
{
	const struct oom_dim h = {x.width, x.text};
	const unsigned flags = bias ? OOM_BIAS : 0;
	struct oom_val gate, up;

	gate = oom_op_linear(t, "gate_proj", oom_keep(x), ff, flags);
	if (liger_has(t, OOM_LIGER_GLU)) {
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

/* ---- masks ---- */

/* transformers.masking_utils: sdpa skips the mask when the kernel's own causality (or nothing) says
 * the same; eager always has a float one for causal models; flash passes the 2D mask on. */
struct oom_val oom_make_mask(struct oom_tape *t, bool causal, uint64_t window, enum oom_dtype dt,
			     uint16_t mb, uint16_t mq, uint16_t mk)
{
	/* samples that share a sequence are kept apart by a mask, or by flash's own lengths
	 * (masking_utils.py, find_packed_sequence_indices) */
	const bool padded = t->plan->padding_mask ||
			    (t->plan->packing && t->plan->attn != OOM_ATTN_FLASH),
		   grad = t->grad;
	const bool local = window && oom_cond_above(t, mk, window - 1);
	const uint16_t plane = oom_mono_mul(t, mq, mk);
	const uint16_t full = oom_mono_mul(t, mb, plane);
	struct oom_val b, m;

	if (t->plan->attn == OOM_ATTN_FLASH)
		return oom_none();
	/* while a model is traced, a mask is made even where the kernel's causality would do
	 * (masking_utils.py _ignore_causal_mask_sdpa) */
	if (t->plan->attn == OOM_ATTN_SDPA && !padded && !local && !t->plan->compile)
		return oom_none();
	if (t->plan->attn == OOM_ATTN_EAGER && !causal && !padded && !local)
		return oom_none();
	t->grad = false;
	/* kv <= q [and window] [and padding], as broadcast boolean operations */
	b = oom_new(t, "mask", plane, D(1), OOM_U8);
	if (window && causal) {
		struct oom_val w = oom_new(t, "mask", plane, D(1), OOM_U8);
		struct oom_val both = oom_new(t, "mask", plane, D(1), OOM_U8);

		oom_drop(t, w);
		oom_drop(t, b);
		b = both;
	}
	if (padded) {
		struct oom_val both = oom_new(t, "mask", full, D(1), OOM_U8);

		oom_drop(t, b);
		b = both;
	}
	if (t->plan->attn == OOM_ATTN_SDPA && !t->plan->compile) {
		t->grad = grad;
		b.mono = full;                  /* expanded over the batch: a view */
		return b;
	}
	/* eager; compiled: one additive mask of the queries' type serves all layers */
	if (t->plan->compile && t->amp)
		dt = (enum oom_dtype)t->amp_dt;
	m = oom_new(t, "attention mask", full, D(1), dt);       /* torch.where(mask, 0, min) */
	oom_drop(t, b);
	t->grad = grad;
	return m;
}

struct oom_val oom_make_written_mask(struct oom_tape *t, bool causal, enum oom_dtype dt,
				     uint16_t mb, uint16_t mq, uint16_t mk)
{
	const struct oom_plan *real = t->plan;
	struct oom_plan eager = *real;
	struct oom_val m;

	eager.attn = OOM_ATTN_EAGER;
	t->plan = &eager;
	m = oom_make_mask(t, causal, 0, dt, mb, mq, mk);
	t->plan = real;
	return m;
}

struct oom_val oom_make_eager_mask(struct oom_tape *t, enum oom_dtype dt)
{
	return oom_make_written_mask(t, true, dt, t->m_b, t->m_s, t->m_s);
}

struct oom_val oom_input(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width,
			 enum oom_dtype dt)
{
	(void)name;
	(void)t;
	return (struct oom_val){
		.sto = -1, .node = -1, .mono = mono, .width = width, .dt = (uint8_t)dt};
}

/* Checkpointing calls enable_input_require_grads: the output of a frozen embedding, or of any where
 * no graph is made, becomes a leaf that needs a gradient (transformers/modeling_utils.py). */
struct oom_val oom_input_grads(struct oom_tape *t, struct oom_val x)
{
	const bool ckpt = t->plan->grad_ckpt != OOM_CKPT_NONE,
		   leaf = ckpt && (!t->grad || !x.rg ||
				   (oom_plan_adapted(t->plan) && !*t->plan->modules_to_save &&
				    !t->plan->trainable_tokens));

	if (t->grad && leaf) {
		const int32_t n = oom_node(t, OOM_NODE_LEAF, "embedding output");

		x = oom_node_out(t, n, 0, x);
		oom_node_save(t, n, x);         /* AccumulateGrad holds its leaf */
	}
	if (leaf)
		t->leaf = (struct oom_leaf){.x = x, .copy = oom_none()};
	x = oom_lora_embedded(t, x);
	/* PEFT hooks what it wrapped once more, unless the model is quantised; with a graph the sum
	 * is no leaf (peft_model.py, _prepare_model_for_gradient_checkpointing) */
	if (ckpt && !t->grad && !oom_plan_quantised(t->plan))
		t->leaf.x = x;
	x = oom_prompted(t, x);
	if (t->merge) {                         /* once: the first embeddings are the prompt's */
		struct oom_val (*merge)(struct oom_tape *, void *, struct oom_val) = t->merge;

		t->merge = NULL;
		x = merge(t, t->merge_ctx, x);
	}
	return x;
}
