/* PVT, PVT v2 and SegFormer: stages of patch embedding and attention whose keys and values come
 * from a map made smaller. Reference: transformers 5.12,
 * models/{pvt,pvt_v2,segformer}/modeling_*.py. */
#include <string.h>

#include "blocks/image.h"

enum { MAX_STAGES = 8, LINEAR_POOL = 7 };
enum kind { PVT, PVT_V2, SEGFORMER };

struct cfg {
	uint64_t n, depth[MAX_STAGES], c[MAX_STAGES], heads[MAX_STAGES], patch[MAX_STAGES],
		stride[MAX_STAGES], sr[MAX_STAGES];
	double ratio[MAX_STAGES], drop;
	uint64_t layers;
	enum kind kind;
	bool qkv_bias, linear, reshape_last;
};

static void read_cfg(struct oom_reader *r, const char *type, struct cfg *c)
{
	memset(c, 0, sizeof(*c));
	c->kind = !strcmp(type, "pvt") ? PVT : !strcmp(type, "pvt_v2") ? PVT_V2 : SEGFORMER;
	c->n = oom_read_counts(r, "hidden_sizes", c->c, MAX_STAGES);
	if (oom_read_count_or(r, "num_encoder_blocks", c->n) < c->n)
		c->n = oom_read_count_or(r, "num_encoder_blocks", c->n);
	oom_read_stages(r, "depths", c->depth, MAX_STAGES, c->n);
	oom_read_stages(r, "num_attention_heads", c->heads, MAX_STAGES, c->n);
	oom_read_stages(r, "patch_sizes", c->patch, MAX_STAGES, c->n);
	oom_read_stages(r, "strides", c->stride, MAX_STAGES, c->n);
	oom_read_stages(r, c->kind == PVT ? "sequence_reduction_ratios" : "sr_ratios", c->sr,
			MAX_STAGES, c->n);
	oom_read_reals(r, "mlp_ratios", c->ratio, c->n, 4);
	c->drop = oom_read_real(r, "drop_path_rate", 0);
	c->qkv_bias = c->kind == SEGFORMER || oom_read_bool(r, "qkv_bias", true);
	c->linear = c->kind == PVT_V2 && oom_read_bool(r, "linear_attention", false);
	c->reshape_last = c->kind != SEGFORMER || oom_read_bool(r, "reshape_last_stage", true);
	for (uint64_t i = 0; i < c->n; i++) {
		c->layers += c->depth[i];
		if (c->c[i] > 65536 || c->heads[i] > c->c[i] || c->patch[i] > 4096 ||
		    !(c->ratio[i] > 0 && c->ratio[i] <= 1024))
			oom_read_fail(r, "hidden_sizes, num_attention_heads, patch_sizes or "
					 "mlp_ratios out of range");
	}
	if (!c->n || c->layers > OOM_MAX_LAYERS)
		oom_read_fail(r, "num_encoder_blocks or depths out of range");
}

static void parse(struct oom_arch *a)
{
	struct cfg c;

	oom_read_image(a, 224);
	read_cfg(&a->rd, a->model_type, &c);
	a->act = oom_read_act(&a->rd, "hidden_act", "gelu");
	a->dropout = oom_read_real(&a->rd, "hidden_dropout_prob", 0);
	a->attn_dropout = oom_read_real(&a->rd, "attention_probs_dropout_prob", 0);
	a->n_layers = c.layers;
	a->d_model = c.n ? c.c[c.n - 1] : 1;
}

/* What one layer is made of. */
struct layer {
	const struct oom_arch *a;
	uint64_t c, heads, ff, sr, h, w, extra; /* extra: a class token before the map */
	enum kind kind;
	/* drop_path_rate > 0, but not in the model's first layer */
	bool bias, linear, drop, first_free;
};

/* The map, pooled or strided, as fewer tokens; *n says how many. */
static struct oom_val reduced(struct oom_tape *t, const struct layer *l, struct oom_val x,
			      uint64_t *n)
{
	struct oom_map m = oom_tokens_map(t, x, l->c, l->h, l->w);

	if (l->linear) {
		m.x = oom_op_mean(t, m.x, t->m_b,
				  (struct oom_dim){l->c * LINEAR_POOL * LINEAR_POOL,
						   "channels * 7 * 7"});
		m.h = m.w = LINEAR_POOL;
		m = oom_conv2d(t, "spatial_reduction", m,
			       &(struct oom_conv){.out = l->c, .kernel = 1, .bias = true});
	} else {
		m = oom_conv2d(t, "sequence_reduction", m,
			       &(struct oom_conv){.out = l->c,
						  .kernel = l->sr,
						  .stride = l->sr,
						  .bias = true,
						  .channels_last = true});
	}
	if (t->status)
		return m.x;
	*n = m.h * m.w;
	x = oom_op_layer_norm(t, "layer_norm", oom_map_tokens(t, m), 0, true, true);
	return l->linear ? oom_activation(t, OOM_ACT_GELU, x) : x;
}

/* x stays the caller's. */
static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x,
				struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const bool seg = l->kind == SEGFORMER;
	const uint64_t n = l->h * l->w + l->extra;
	uint64_t keys = n;
	struct oom_val q, k, v, kv, held[5];
	struct oom_attn at;

	q = oom_project_heads(t, seg ? "q_proj" : "query", oom_keep(x), l->c, l->bias,
			      seg ? 0 : l->heads);
	kv = l->linear || l->sr > 1 ? reduced(t, l, oom_keep(x), &keys) : oom_share(t, x);
	k = oom_project_heads(t, seg ? "k_proj" : "key", oom_keep(kv), l->c, l->bias,
			      seg ? 0 : l->heads);
	v = oom_project_heads(t, seg ? "v_proj" : "value", oom_keep(kv), l->c, l->bias,
			      seg ? 0 : l->heads);
	at = oom_attn_over(t, a, l->heads, l->c, n, keys);
	at.dropout = a->attn_dropout;
	if (seg) {
		at.weights = weights;
		held[0] = oom_share(t, q);
		held[1] = oom_share(t, k);
		held[2] = oom_share(t, v);
		q = oom_attention_core(t, &at, q, k, v);
		q = oom_op_linear(t, "o_proj", q, (struct oom_dim){l->c, "channels"}, OOM_BIAS);
		oom_drop_all(t, held, 3);
	} else {
		q = oom_written_attention(t, &at, q, k, v, NULL, held);
		if (l->kind == PVT) {           /* the projection is a module of its own */
			oom_drop_all(t, held, 5);
			oom_drop(t, kv);
			kv = oom_none();
		}
		q = oom_op_linear(t, l->kind == PVT ? "dense" : "proj", q,
				  (struct oom_dim){l->c, "channels"}, OOM_BIAS);
		if (l->kind != PVT)
			oom_drop_all(t, held, 5);
	}
	oom_drop(t, kv);
	return oom_op_dropout(t, q, a->dropout);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const bool seg = l->kind == SEGFORMER;
	struct oom_val y = oom_op_linear(t, seg ? "fc1" : "dense1", oom_keep(x),
					 (struct oom_dim){l->ff, "intermediate"}, OOM_BIAS);

	if (l->linear)
		y = oom_activation(t, OOM_ACT_RELU, y);
	if (l->kind != PVT) {
		struct oom_map m = oom_tokens_map(t, y, l->ff, l->h, l->w);

		m = oom_conv2d(t, "dwconv", m,
			       &(struct oom_conv){.out = l->ff,
						  .kernel = 3,
						  .pad = 1,
						  .groups = l->ff,
						  .bias = true});
		if (t->status)
			return x;
		y = oom_map_tokens(t, m);
	}
	y = oom_op_dropout(t, oom_activation(t, a->act, y), a->dropout);
	y = oom_op_linear(t, seg ? "fc2" : "dense2", y, (struct oom_dim){l->c, "channels"},
			  OOM_BIAS);
	oom_done(t, x);
	return oom_op_dropout(t, y, a->dropout);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const bool path = l->drop && (i || !l->first_free);
	struct oom_val y, weights = oom_none(), outputs = oom_none();

	if (t->status)
		return x;
	y = oom_op_layer_norm(t, "layernorm_before", oom_keep(x), 0, true, true);
	{
		struct oom_val normed = y;

		y = attention(t, l, normed, &weights);
		oom_drop(t, normed);
	}
	if (l->kind != SEGFORMER)               /* a tuple, the layer's local */
		outputs = oom_share(t, y);
	if (path)
		y = oom_drop_path(t, y);
	x = oom_op_add(t, y, x);
	y = feed_forward(t, l, oom_op_layer_norm(t, "layernorm_after", oom_keep(x), 0, true, true));
	if (path)
		y = oom_drop_path(t, y);
	x = oom_op_add(t, y, x);
	oom_drop(t, weights);
	oom_drop(t, outputs);
	return x;
}

/* PVT: positions interpolated to the map they already fit, the class token's apart. */
static struct oom_val pvt_positions(struct oom_tape *t, uint64_t n, uint64_t c, bool cls)
{
	const struct oom_dim width = {c, "channels"};
	const uint64_t whole = n + cls;
	struct oom_val p = oom_param_tokens(t, "position_embeddings", whole, c), rest = oom_keep(p);

	if (cls)
		rest = oom_op_slice(t, rest, oom_length_of(t, n), width);
	rest = oom_op_expand_copy(t, rest, oom_length_of(t, n), width);
	if (!cls)
		return rest;
	return oom_op_cat_into(t, oom_op_slice(t, p, OOM_MONO_ONE, width), rest,
			       oom_length_of(t, whole), width);
}

static struct oom_val pvt_embedding(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
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

/* One stage of a map: what it is embedded with and its layers.  The map's value is the caller's. */
struct stage {
	struct layer l;
	struct oom_conv conv;
	uint64_t in_c, in_h, in_w, depth;
	bool last, copied;              /* the result becomes a map again, in a copy */
};

static struct oom_val run_stage(struct oom_tape *t, const void *ctx, uint32_t j, struct oom_val x)
{
	const struct stage *s = ctx;
	const struct oom_map m = {oom_keep(x), s->in_c, s->in_h, s->in_w};
	const bool pvt = s->l.kind == PVT;
	struct oom_val input = x, y, before = t->side;
	uint8_t kind[OOM_MAX_LAYERS] = {1};

	(void)j;
	t->side = oom_none();
	y = oom_map_tokens(t, oom_conv2d(t, "projection", m, &s->conv));
	if (t->status)
		return x;
	y = oom_op_layer_norm(t, "layer_norm", y, 0, true, true);
	if (pvt)
		y = pvt_embedding(t, s->l.a, y, s->l.h * s->l.w, s->l.c, s->last);
	/* the loop's variable is the map no longer; the last layer's output is */
	if (pvt) {
		oom_done(t, input);
		input = oom_none();
	}
	if (s->l.kind == SEGFORMER) {
		y = oom_layers(t, (uint32_t)s->depth, s->l.drop && s->l.first_free ? kind : NULL,
			       block, &s->l, y);
	} else {
		for (uint64_t i = 0; i < s->depth && !t->status; i++) {
			const struct oom_val arg = oom_share(t, y);

			y = block(t, &s->l, (uint32_t)i, y);
			oom_drop(t, arg);
			if (!i) {               /* layer_outputs of the stage before, until now */
				oom_drop(t, before);
				before = oom_none();
			}
		}
	}
	oom_drop(t, before);
	if (!pvt)
		y = oom_op_layer_norm(t, "layer_norm", y, 0, true, true);
	if (s->copied && pvt)
		t->side = oom_share(t, y);
	if (s->copied && s->l.kind != PVT_V2)   /* reshape, permute, contiguous */
		y = oom_op_copy(t, "contiguous", y);
	oom_done(t, input);
	return y;
}

static struct oom_val stages(struct oom_tape *t, const struct oom_arch *a, const struct cfg *c,
			     struct oom_map m)
{
	const bool ckpt = t->plan->grad_ckpt != OOM_CKPT_NONE && t->train && t->grad &&
			  c->kind == PVT_V2;
	uint64_t done = 0;

	for (uint64_t i = 0; i < c->n && !t->status; i++) {
		const uint64_t kernel = c->kind == PVT ? c->stride[i] : c->patch[i];
		const uint64_t stride = c->kind == PVT ? c->patch[i] : c->stride[i],
			       pad = c->kind == PVT ? 0 : kernel / 2;
		struct stage s = {.in_c = m.c,
				  .in_h = m.h,
				  .in_w = m.w,
				  .depth = c->depth[i],
				  .last = i + 1 == c->n,
				  .conv = {.out = c->c[i],
					   .kernel = kernel,
					   .stride = stride,
					   .pad = pad,
					   .bias = true}};
		const void *ctx;

		m.h = m.h + 2 * pad < kernel ? 0 : (m.h + 2 * pad - kernel) / stride + 1;
		m.w = m.w + 2 * pad < kernel ? 0 : (m.w + 2 * pad - kernel) / stride + 1;
		m.c = c->c[i];
		s.l = (struct layer){.a = a,
				     .c = c->c[i],
				     .heads = c->heads[i],
				     .ff = (uint64_t)(c->ratio[i] * (double)c->c[i]),
				     .sr = c->sr[i],
				     .h = m.h,
				     .w = m.w,
				     .extra = c->kind == PVT && s.last,
				     .kind = c->kind,
				     .bias = c->qkv_bias,
				     .linear = c->linear,
				     .drop = c->drop > 0,
				     .first_free = !done};
		s.copied = c->kind == PVT ? !s.last : !s.last || c->reshape_last;
		ctx = oom_layer_ctx(t, &s, sizeof(s));
		if (!ctx)
			break;
		if (c->kind == PVT_V2) {
			struct oom_val before = m.x;

			m.x = ckpt ? oom_layer_alone(t, (uint32_t)i, run_stage, ctx, m.x) :
				     run_stage(t, ctx, (uint32_t)i, m.x);
			(void)before;
			oom_drop(t, t->side);
			t->side = oom_share(t, m.x);    /* `outputs` of the loop */
			m.x = oom_op_copy(t, "contiguous", m.x);
		} else {
			m.x = run_stage(t, ctx, (uint32_t)i, m.x);
		}
		done += c->depth[i];
	}
	oom_drop(t, t->side);
	t->side = oom_none();
	return m.x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader rd = a->rd;
	struct oom_map m = oom_pixels(t, a);
	struct oom_val x;
	struct cfg c;

	read_cfg(&rd, a->model_type, &c);
	if (c.kind == PVT)
		oom_no_checkpointing(t);
	if (t->plan->num_layers)
		t->warning = "the depth of this architecture is a list: the number of layers asked "
			     "for is not applied";
	x = stages(t, a, &c, m);
	if (t->status)
		return x;
	if (c.kind == PVT) {
		x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
		return oom_image_head(t, a, oom_op_slice(t, oom_keep(x), t->m_b, D(a->d_model)), x);
	}
	return oom_image_head(t, a, oom_op_mean(t, oom_keep(x), t->m_b, D(a->d_model)), x);
}

static const struct oom_family_type types[] = {
	{"pvt", NULL}, {"pvt_v2", NULL}, {"segformer", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_pvt = {
	.name = "pvt",
	.summary = "pyramid vision transformer: keys and values from a smaller map",
	.source = "transformers 5.12 models/segformer/modeling_segformer.py",
	.types = types,
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
