/* PVT, PVT v2 and SegFormer: stages of patch embedding and attention whose keys and values come
 * from a map made smaller. Reference: transformers 5.12,
 * models/{pvt,pvt_v2,segformer}/modeling_*.py. */
#include "blocks/image.h"
#include "config/keys.h"

enum { MAX_STAGES = 8, LINEAR_POOL = 7 };

/* What sets the types apart: the modules' names, and how each is written. */
struct pvt_kind {
	const char *q, *k, *v, *o, *up, *down, *ratios;
	/* PVT: patches that do not overlap; positions, and a class token in the last stage; the
	 * projection of attention's result is a module of its own; no convolution between the
	 * feed-forward's two layers; no checkpointing */
	bool plain;
	/* PVT v2: stages are checkpointed, not layers; linear_attention */
	bool stages;
	/* SegFormer: attention through the interface; biases always, a last map if asked for */
	bool segformer;
};
static const struct pvt_kind pvt = {
	"query", "key", "value", "dense", "dense1", "dense2", "sequence_reduction_ratios",
	.plain = true};
static const struct pvt_kind pvt_v2 = {
	"query", "key", "value", "proj", "dense1", "dense2", "sr_ratios", .stages = true};
static const struct pvt_kind segformer = {
	"q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2", "sr_ratios", .segformer = true};
static const struct oom_family_type pvt_types[] = {
	{"pvt", &pvt}, {"pvt_v2", &pvt_v2}, {"segformer", &segformer}, {NULL, NULL},
};

struct pvt {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], heads[MAX_STAGES], patch[MAX_STAGES],
		stride[MAX_STAGES], sr[MAX_STAGES];
	double ratio[MAX_STAGES], drop;
	bool qkv_bias, linear, reshape_last;
};
OOM_OWN(pvt, struct pvt);

static const struct oom_key_row pvt_keys[] = {
	ACT(act, "hidden_act", "gelu"), REAL(dropout, "hidden_dropout_prob", 0),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0),
	REAL_OWN(struct pvt, drop, "drop_path_rate", 0), OOM_KEYS_END};

static void read_stages(struct oom_arch *a, const struct pvt_kind *kind)
{
	struct oom_reader *r = &a->rd;
	struct pvt *c = pvt_own(a);

	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	if (oom_read_count_or(r, "num_encoder_blocks", c->n) < c->n)
		c->n = oom_read_count_or(r, "num_encoder_blocks", c->n);
	oom_read_stages(r, "depths", c->depth, MAX_STAGES, c->n);
	oom_read_stages(r, "num_attention_heads", c->heads, MAX_STAGES, c->n);
	oom_read_stages(r, "patch_sizes", c->patch, MAX_STAGES, c->n);
	oom_read_stages(r, "strides", c->stride, MAX_STAGES, c->n);
	oom_read_stages(r, kind->ratios, c->sr, MAX_STAGES, c->n);
	oom_read_reals(r, "mlp_ratios", c->ratio, c->n, 4);
}

static void pvt_parse(struct oom_arch *a)
{
	const struct pvt_kind *kind = a->type->kind;
	struct oom_reader *r = &a->rd;
	struct pvt *c = pvt_own(a);

	oom_read_image(a, 224);
	read_stages(a, kind);
	c->qkv_bias = kind->segformer || oom_read_bool(r, "qkv_bias", true);
	c->linear = kind->stages && oom_read_bool(r, "linear_attention", false);
	c->reshape_last = !kind->segformer || oom_read_bool(r, "reshape_last_stage", true);
	for (uint64_t i = 0; i < c->n; i++) {
		a->n_layers += c->depth[i];
		if (c->c[i] > 65536 || c->heads[i] > c->c[i] || c->patch[i] > 4096 ||
		    !(c->ratio[i] > 0 && c->ratio[i] <= 1024))
			oom_read_fail(r, "hidden_sizes, num_attention_heads, patch_sizes or "
					 "mlp_ratios out of range");
	}
	a->d_model = c->n ? c->c[c->n - 1] : 1;
	if (!c->n || a->n_layers > OOM_MAX_LAYERS)
		oom_read_fail(r, "num_encoder_blocks or depths out of range");
}

/* One stage of a map: what it is embedded with, and what its layers are made of. */
struct pvt_stage {
	const struct oom_arch *a;
	const struct pvt_kind *kind;
	struct oom_map in;              /* its sizes alone */
	struct oom_conv conv;
	uint64_t c, heads, ff, sr, h, w, depth;
	bool linear, first, last;
};

/* The map, pooled or strided, as fewer tokens; *n says how many.  x is the caller's. */
static struct oom_val reduced(struct oom_tape *t, const struct pvt_stage *s, struct oom_val x,
			      uint64_t *n)
{
	const struct oom_dim pooled = {s->c * LINEAR_POOL * LINEAR_POOL, "channels * 7 * 7"};
	const struct oom_conv point = {.out = s->c, .kernel = 1, .bias = true},
			      strided = {.out = s->c, .kernel = s->sr, .stride = s->sr,
					 .bias = true, .channels_last = true};
	struct oom_map m = oom_tokens_map(t, x, s->c, s->h, s->w);

	if (s->linear) {
		m.x = oom_op_mean(t, m.x, t->m_b, pooled);
		m.h = m.w = LINEAR_POOL;
		m = oom_conv2d(t, "spatial_reduction", m, &point);
	} else {
		m = oom_conv2d(t, "sequence_reduction", m, &strided);
	}
	*n = m.h * m.w;
	x = oom_op_layer_norm(t, "layer_norm", oom_map_tokens(t, m), 0, true, true);
	return s->linear ? oom_activation(t, OOM_ACT_GELU, x) : x;
}

/* layer: the block's frame, where SegFormer's weights have a name. */
static struct oom_val pvt_attention(struct oom_frame *layer, const struct pvt_stage *s,
				    struct oom_val x)
{
	const struct oom_arch *a = s->a;
	const struct pvt_kind *kind = s->kind;
	const struct oom_dim c = {s->c, "channels"};
	const uint64_t n = s->h * s->w + (kind->plain && s->last),
		       heads = kind->segformer ? 0 : s->heads;
	const bool bias = pvt_of(a)->qkv_bias;
	struct oom_tape *t = layer->t;
	struct oom_frame outer = {.t = t}, f = {.t = t};
	uint64_t keys = n;
	struct oom_val kv, part[3];
	struct oom_attn at;

	kv = x = oom_arg(&outer, x);
	part[0] = oom_project_heads(t, kind->q, x, s->c, bias, heads);
	if (s->linear || s->sr > 1)
		kv = oom_name(&f, reduced(t, s, x, &keys));
	part[1] = oom_project_heads(t, kind->k, kv, s->c, bias, heads);
	part[2] = oom_project_heads(t, kind->v, kv, s->c, bias, heads);
	at = oom_attn_over(t, a, s->heads, s->c, n, keys);
	if (kind->segformer) {
		at.caller = layer;
		oom_name_each(&f, part, 3);
		x = oom_attention_core(t, &at, part[0], part[1], part[2]);
	} else {
		x = oom_attention_in(&f, &at, part[0], part[1], part[2], NULL);
	}
	if (kind->plain)
		x = oom_leave(&f, x);
	x = oom_leave(&f, oom_op_linear(t, kind->o, x, c, OOM_BIAS));
	return oom_leave(&outer, oom_op_dropout(t, x, a->dropout));
}

static struct oom_val pvt_feed_forward(struct oom_tape *t, const struct pvt_stage *s,
				       struct oom_val x)
{
	const struct oom_arch *a = s->a;
	const struct oom_dim c = {s->c, "channels"}, ff = {s->ff, "intermediate"};
	const struct oom_conv depthwise = {
		.out = s->ff, .kernel = 3, .pad = 1, .groups = s->ff, .bias = true};
	struct oom_frame f = {.t = t};
	struct oom_val y;

	x = oom_arg(&f, x);
	y = oom_op_linear(t, s->kind->up, x, ff, OOM_BIAS);
	if (s->linear)
		y = oom_activation(t, OOM_ACT_RELU, y);
	if (!s->kind->plain)
		y = oom_map_tokens(t, oom_conv2d(t, "dwconv",
						 oom_tokens_map(t, y, s->ff, s->h, s->w),
						 &depthwise));
	y = oom_op_dropout(t, oom_activation(t, a->act, y), a->dropout);
	y = oom_leave(&f, oom_op_linear(t, s->kind->down, y, c, OOM_BIAS));
	return oom_op_dropout(t, y, a->dropout);
}

static struct oom_val pvt_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct pvt_stage *s = ctx;
	/* stochastic depth, but not in the model's first layer */
	const bool path = pvt_of(s->a)->drop > 0 && (i || !s->first);
	struct oom_frame f = {.t = t};
	struct oom_val y;

	if (t->status)
		return x;
	y = oom_op_layer_norm(t, "layer_norm_1", x, 0, true, true);
	y = pvt_attention(&f, s, y);
	if (!s->kind->segformer)                /* a tuple, the layer's local */
		y = oom_name(&f, y);
	x = oom_name(&f, oom_op_add(t, path ? oom_drop_path(t, y) : y, x));
	y = oom_op_layer_norm(t, "layer_norm_2", x, 0, true, true);
	y = pvt_feed_forward(t, s, y);
	return oom_leave(&f, oom_op_add(t, path ? oom_drop_path(t, y) : y, x));
}

/* PVT: positions interpolated to the map they already fit, the class token's apart. */
static struct oom_val pvt_positions(struct oom_tape *t, uint64_t n, uint64_t c, bool cls)
{
	const struct oom_dim width = {c, "channels"};
	const uint64_t whole = n + cls;
	struct oom_val p = oom_param_tokens(t, "position_embeddings", whole, c), rest = p;

	if (cls)
		rest = oom_op_slice(t, rest, oom_length_of(t, n), width);
	rest = oom_op_expand_copy(t, rest, oom_length_of(t, n), width);
	if (!cls)
		return rest;
	return oom_op_cat_into(t, oom_op_slice(t, p, OOM_MONO_ONE, width), rest,
			       oom_length_of(t, whole), width);
}

static struct oom_val pvt_embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				     uint64_t n, uint64_t c, bool cls)
{
	const struct oom_dim width = {c, "channels"};
	struct oom_val pos, token;

	if (cls) {
		token = oom_op_expand(t, oom_param(t, "cls_token", 1, c, 0), t->m_b, width);
		token.perm = false;
		x = oom_op_cat_into(t, token, x, oom_tokens_of(t, n + 1), width);
	}
	pos = pvt_positions(t, n, c, cls);
	return oom_op_dropout(t, oom_op_add(t, x, pos), a->dropout);
}

/* A stage's layers; `before`, in frame f, is what the stage before left behind, until the first
 * layer is done. */
static struct oom_val pvt_layers(struct oom_frame *f, const struct pvt_stage *s,
				 struct oom_val before, struct oom_val y)
{
	const bool paths = pvt_of(s->a)->drop > 0;
	uint8_t kind[OOM_MAX_LAYERS] = {1};
	struct oom_tape *t = f->t;

	if (s->kind->segformer)
		return oom_layers(t, (uint32_t)s->depth, paths && s->first ? kind : NULL, pvt_block,
				  s, y);
	y = oom_name(f, y);
	for (uint64_t i = 0; i < s->depth && !t->status; i++) {
		y = oom_rename(f, y, pvt_block(t, s, (uint32_t)i, y));
		if (!i)
			oom_forget(f, before);
	}
	return y;
}

static struct oom_val pvt_stage(struct oom_tape *t, const void *ctx, uint32_t j, struct oom_val x)
{
	const struct pvt_stage *s = ctx;
	const bool copied = s->kind->plain ? !s->last : !s->last || pvt_of(s->a)->reshape_last;
	struct oom_map m = s->in;
	struct oom_frame f = {.t = t};
	struct oom_val y, before = oom_name(&f, oom_take_beside(t));

	(void)j;
	m.x = x = oom_arg(&f, x);
	y = oom_map_tokens(t, oom_conv2d(t, "projection", m, &s->conv));
	if (t->status)
		return oom_leave(&f, x);
	y = oom_op_layer_norm(t, "layer_norm", y, 0, true, true);
	if (s->kind->plain) {
		y = pvt_embeddings(t, s->a, y, s->h * s->w, s->c, s->last);
		oom_forget(&f, x);              /* the loop's variable */
	}
	y = pvt_layers(&f, s, before, y);
	if (!s->kind->plain)
		y = oom_op_layer_norm(t, "layer_norm", y, 0, true, true);
	else if (copied)
		oom_give_beside(&f, y);         /* layer_outputs */
	if (copied && !s->kind->stages)         /* reshape, permute, contiguous */
		y = oom_op_copy(t, "contiguous", y);
	return oom_leave(&f, y);
}

/* Stage i of the map m, which becomes what it leaves. */
static struct pvt_stage stage_of(const struct oom_arch *a, uint64_t i, struct oom_map *m)
{
	const struct pvt_kind *kind = a->type->kind;
	const struct pvt *c = pvt_of(a);
	const uint64_t kernel = kind->plain ? c->stride[i] : c->patch[i],
		       stride = kind->plain ? c->patch[i] : c->stride[i],
		       pad = kind->plain ? 0 : kernel / 2;
	struct pvt_stage s = {.a = a,
			      .kind = kind,
			      .in = *m,
			      .conv = {.out = c->c[i], .kernel = kernel, .stride = stride,
				       .pad = pad, .bias = true},
			      .c = c->c[i],
			      .heads = c->heads[i],
			      .ff = (uint64_t)(c->ratio[i] * (double)c->c[i]),
			      .sr = c->sr[i],
			      .depth = c->depth[i],
			      .linear = c->linear,
			      .first = !i,
			      .last = i + 1 == c->n};

	m->c = s.c;
	m->h = s.h = m->h + 2 * pad < kernel ? 0 : (m->h + 2 * pad - kernel) / stride + 1;
	m->w = s.w = m->w + 2 * pad < kernel ? 0 : (m->w + 2 * pad - kernel) / stride + 1;
	return s;
}

static struct oom_val pvt_encoder(struct oom_tape *t, const struct oom_arch *a)
{
	const struct pvt_kind *kind = a->type->kind;
	struct oom_map m = oom_pixels(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val outputs;

	for (uint64_t i = 0; i < pvt_of(a)->n && !t->status; i++) {
		const struct pvt_stage s = stage_of(a, i, &m);

		if (!kind->stages) {
			m.x = pvt_stage(t, &s, (uint32_t)i, m.x);
			continue;
		}
		outputs = oom_name(&f, oom_run_stage(t, i, pvt_stage, &s, sizeof(s), m.x));
		m.x = oom_op_copy(t, "contiguous", outputs);
		oom_give_beside(&f, oom_take(&f, outputs));     /* of the loop */
	}
	oom_name(&f, oom_take_beside(t));
	return oom_leave(&f, m.x);
}

static struct oom_val pvt_step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool plain = ((const struct pvt_kind *)a->type->kind)->plain;
	const struct oom_dim d = D(a->d_model);
	struct oom_frame f = {.t = t};
	struct oom_val x;

	if (plain)
		oom_no_checkpointing(t);
	if (t->plan->num_layers)
		oom_tape_warn(t, "the depth of this architecture is a list: the number of layers asked "
			     "for is not applied");
	x = pvt_encoder(t, a);
	if (plain)
		x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	x = oom_name(&f, x);
	x = plain ? oom_op_slice(t, x, t->m_b, d) : oom_op_mean(t, x, t->m_b, d);
	return oom_leave(&f, oom_image_loss(t, a, x));
}

const struct oom_family oom_family_pvt = {
	.name = "pvt",
	.summary = "pyramid vision transformer: keys and values from a smaller map",
	.source = "transformers 5.12 models/segformer/modeling_segformer.py",
	.types = pvt_types,
	.lora_targets = "all-linear",
	.keys = pvt_keys,
	.parse = pvt_parse,
	.step = pvt_step,
};
