/* A vision tower as it runs: one encoder for all of tower_types.c, patches, positions and pre-norm
 * layers.  Reference: transformers 5.12, the Vision classes named there. */
#include "blocks/image.h"
#include "vision.h"
#include "weights.h"

#include <stdio.h>

struct layer {
	struct oom_tower tower;
	struct oom_rope rope;
	struct oom_val mask;
	uint16_t m_tokens, m_len;
};

/* The type's own name of a module, or the usual one. */
static const char *named(const char *own, const char *usual)
{
	return own ? own : usual;
}

static struct oom_val qk_norm(struct oom_tape *t, const struct oom_tower *w, const char *name,
			      struct oom_val x)
{
	const enum oom_norm kind = w->qk_layer_norm ? OOM_NORM_LAYER : OOM_NORM_RMS;

	if (!w->qk_norm && !w->qk_norm_full)
		return x;
	return oom_norm(t, kind, name, x, w->qk_norm_full ? 0 : w->head_dim);
}

static void project_qkv(struct oom_tape *t, const struct oom_tower *w, struct oom_val x,
			struct oom_val p[3])
{
	const struct oom_dim q = {w->heads * w->head_dim, "n_heads * head_dim"},
			     kv = {w->kv_heads * w->head_dim, "n_kv_heads * head_dim"};
	const struct oom_dim all = {q.n + 2 * kv.n, "(n_heads + 2 * n_kv_heads) * head_dim"},
			     parts[3] = {q, kv, kv};
	static const char *const names[2][3] = {{"q_proj", "k_proj", "v_proj"}, {"q", "k", "v"}};
	const unsigned bias = w->qkv_bias ? OOM_BIAS : 0;

	if (w->fused_qkv)
		oom_op_split(t, oom_op_linear(t, "qkv", x, all, bias), 3, parts, p);
	for (int i = 0; i < 3 && !w->fused_qkv; i++)
		p[i] = oom_op_linear(t, names[w->qwen][i], x, parts[i], bias);
}

static struct oom_val scaled(struct oom_tape *t, const struct oom_tower *w, const char *name,
			     struct oom_val x)
{
	return w->scale ? oom_op_mul(t, oom_param(t, name, 0, w->d, 0), x) : x;
}

/* x, which is in fp32, by the tables of all layers or by cosines and sines of its own. */
static struct oom_val rotated(struct oom_tape *t, const struct layer *l, struct oom_val x, uint64_t heads)
{
	const uint64_t d = l->tower.head_dim;
	const struct oom_dim head = {d, "head_dim"};
	struct oom_rope own = l->rope;
	struct oom_frame f = {.t = t};

	if (l->tower.repeats) {
		own.cos = oom_name(&f, oom_new(t, "repeat", l->m_tokens, head, OOM_F32));
		own.sin = oom_name(&f, oom_new(t, "repeat", l->m_tokens, head, OOM_F32));
	}
	return oom_leave(&f, oom_rope_apply(t, x, &own, heads, d, d));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_tower *w = &l->tower;
	const struct oom_dim d = {w->d, "hidden_size"}, ff = {w->ff, "intermediate_size"};
	struct oom_attn at = {.heads = w->heads, .kv_heads = w->kv_heads, .d = w->head_dim,
			      .dv = w->head_dim, .norm = w->norm, .scale_after = true,
			      .softmax_as_is = w->softmax_as_is, .no_cast_back = w->softmax_as_is,
			      .mq = l->m_tokens, .mk = l->m_tokens, .sk = l->m_len,
			      .mask = l->mask, .kv_from = oom_none()};
	struct oom_frame f = {.t = t};
	struct oom_val p[3], y;

	(void)i;
	y = oom_name(&f, oom_norm(t, w->norm, named(w->norms[0], "norm1"), x, 0));
	project_qkv(t, w, y, p);
	p[0] = qk_norm(t, w, "q_norm", p[0]);
	p[1] = qk_norm(t, w, "k_norm", p[1]);
	for (int j = 0; j < 3; j++) {
		p[j] = oom_op_heads(t, p[j]);
		/* of one image alone the heads are a batch, however they lie: products take them as they are */
		if (w->apart && t->plan->attn == OOM_ATTN_EAGER)
			p[j].perm = false;
	}
	if (w->rope) {                          /* in fp32, cast back */
		const enum oom_dtype dt = (enum oom_dtype)p[0].dt;

		for (int j = 0; j < 2; j++) {
			p[j] = oom_op_cast(t, p[j], OOM_F32);
			p[j] = w->complex ? oom_op_unary(t, OOM_SCALE, p[j]) :
					    rotated(t, l, p[j], j ? w->kv_heads : w->heads);
			p[j] = oom_op_cast(t, p[j], dt);
		}
	}
	p[0] = oom_attention_core(t, &at, p[0], p[1], p[2]);
	if (w->apart && t->plan->attn != OOM_ATTN_FLASH)
		p[0] = oom_op_copy(t, "cat", p[0]);
	p[0] = oom_op_linear(t, w->o, p[0], d, w->o_bias ? OOM_BIAS : 0);
	oom_forget(&f, y);
	x = oom_name(&f, oom_op_add(t, x, scaled(t, w, "lambda_1", p[0])));
	y = oom_norm(t, w->norm, named(w->norms[1], "norm2"), x, 0);
	y = w->gated ? oom_gated_mlp(t, y, w->act, ff, w->mlp_bias) :
		       oom_plain_mlp(t, y, w->up, w->down, w->act, ff, w->mlp_bias);
	return oom_leave(&f, oom_op_add(t, x, scaled(t, w, "lambda_2", y)));
}

struct oom_val oom_plain_layers(struct oom_tape *t, uint64_t n, const uint8_t *kind, oom_block_fn fn, const void *ctx,
				size_t ctx_size, struct oom_val x)
{
	const struct oom_plan *real = t->plan;
	struct oom_plan plain = *real;

	plain.grad_ckpt = OOM_CKPT_NONE;
	t->plan = &plain;
	x = oom_layers_sized(t, (uint32_t)(n < OOM_MAX_LAYERS ? n : OOM_MAX_LAYERS), kind, fn, ctx, ctx_size, x);
	t->plan = real;
	return x;
}

void oom_tower_tokens(struct oom_emit *e, uint64_t n)
{
	e->m_tokens = oom_len_const(e->t, e->m_images, n);
	e->m_len = oom_len_const(e->t, OOM_MONO_ONE, n);
}

struct oom_val oom_merge_tokens(struct oom_emit *e, struct oom_val x, uint64_t merge)
{
	uint64_t n;

	if (merge == 1)
		return x;
	if (!merge || merge > 1024) {
		oom_read_fail(&e->outer,
			      "%llu x %llu patches (scale_factor, spatial_merge_size) cannot be merged "
			      "to one token (model type %s)",
			      (unsigned long long)merge, (unsigned long long)merge, e->v->type);
		return x;
	}
	n = oom_mono_now(e->t, e->m_len) / (merge * merge);
	oom_tower_tokens(e, n ? n : 1);
	return oom_op_view(e->t, x, e->m_tokens,
			   (struct oom_dim){x.width * merge * merge, "hidden_size * merge^2"});
}

struct oom_val oom_reordered(struct oom_emit *e, const char *name, struct oom_val x, uint64_t group)
{
	const uint64_t n = oom_mono_now(e->t, e->m_len) / group;
	struct oom_val index = oom_new(e->t, name, oom_len_const(e->t, e->m_images, n ? n : 1), D(1), OOM_I64);

	return oom_op_gather(e->t, name, x, index, e->m_tokens, (struct oom_dim){x.width, x.text});
}

/* One weight of the pooling head, or the copy autocast makes of it. */
static void pooled_with(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols)
{
	oom_discard(t, oom_amp_cast(t, oom_param(t, name, rows, cols, OOM_P_UNUSED)));
}

/* A linear layer of it, with the adapter that PEFT puts there: no gradient reaches either. */
static void pooled_linear(struct oom_tape *t, const char *name, uint64_t in, uint64_t out, unsigned flags)
{
	struct oom_linear l = {.name = name, .in = in, .out = {out, NULL}, .flags = flags | OOM_BIAS};
	const bool quantised = oom_quantised_open(t, out, in, flags);
	const char *scope = t->scope;
	struct oom_val w;

	t->scope = name;
	w = oom_param(t, "weight", out, in, OOM_P_LINEAR | OOM_P_UNUSED | (quantised ? OOM_P_QUANTISED : 0));
	if (!quantised)
		oom_discard(t, oom_amp_cast(t, w));
	pooled_with(t, "bias", 0, out);
	oom_adapter_open(t, &l, OOM_P_UNUSED);
	t->scope = scope;
}

/* SigLIP's pooling head: it runs, but image features pass it by, and what it made is dropped. */
static void pooling_head(struct oom_tape *t, const struct oom_tower *w)
{
	t->scope = "head";
	oom_param(t, "probe", 0, w->d, OOM_P_UNUSED);
	t->scope = "attention";
	/* parts of it project probe and features: casts of a part are not cached */
	oom_param(t, "in_proj_weight", 3 * w->d, w->d, OOM_P_UNUSED);
	oom_param(t, "in_proj_bias", 0, 3 * w->d, OOM_P_UNUSED);
	pooled_linear(t, "out_proj", w->d, w->d, OOM_DERIVED);
	t->scope = "layernorm";
	oom_param(t, "weight", 0, w->d, OOM_P_UNUSED | OOM_P_NORM);
	oom_param(t, "bias", 0, w->d, OOM_P_UNUSED | OOM_P_NORM);
	t->scope = "mlp";
	pooled_linear(t, "fc1", w->d, w->ff, 0);
	pooled_linear(t, "fc2", w->ff, w->d, 0);
}

/* Layers behind the last one whose output is used: run (autocast copies their weights), but no
 * gradient reaches them, and what they saved goes with their output. */
static void rest_of_layers(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const bool grad = t->grad;

	t->grad = false;
	oom_discard(t, oom_layers(t, (uint32_t)(l->tower.layers - l->tower.run), NULL, block, l,
				  x));
	t->grad = grad;
}

/* The pixels as one row per patch, behind the class token where there is one. */
static struct oom_val patch_rows(struct oom_emit *e, const struct oom_tower *w, uint64_t n)
{
	struct oom_tape *t = e->t;
	const uint64_t cut = w->channels * w->frames * w->patch * w->patch;
	const struct oom_dim d = {w->d, "hidden_size"};
	struct oom_val x = oom_pixel_values(t, e->m_images, n * cut), token = oom_none();

	if (e->merged) {
		t->pixels += e->pictures * n * cut;
		t->pixel_mask += w->selects ? e->pictures * n * w->patch * w->patch : 0;
	}
	t->scope = "embeddings";
	if (w->selects || w->joins)             /* pixel_values[real_images_inds]; torch.cat(_pixel_values_list) */
		x = oom_op_copy(t, w->selects ? "index" : "cat", x);
	if (w->unfolds)                         /* and folded once more for the product */
		x = oom_op_copy(t, "reshape", oom_op_copy(t, "unfold", x));
	/* pixel_values.to(dtype=self.patch_embedding.weight.dtype); a linear layer's weight is quantised */
	if (!w->patch_last && oom_plan_kbit_fp32(t->plan))
		x = oom_op_cast(t, x, OOM_F32);
	if (w->class_token)
		token = oom_param(t, named(w->token, "class_embedding"), 0, w->d, 0);
	oom_tower_tokens(e, n);
	if (w->patch_last)
		x = oom_op_linear_in(t, named(w->patches, "patch_embedding"),
				     oom_op_view(t, x, e->m_tokens, (struct oom_dim){cut, "patch"}),
				     cut, d, w->patch_bias ? OOM_BIAS : 0);
	else
		x = oom_op_conv_square(t, named(w->patches, "patch_embedding"), x, w->channels * w->frames, w->patch, w->patch_bias,
				       e->m_tokens, d);
	if (w->hook == OOM_HOOK_PATCHES)
		x = oom_hooked(t, x);
	if (!w->class_token)
		return x;
	token = oom_op_expand(t, token, e->m_images, d);
	token.perm = false;
	oom_tower_tokens(e, n + 1);
	return oom_op_cat_into(t, token, x, e->m_tokens, d);
}

/* pos_embed(bilinear_indices) * bilinear_weights[:, :, None], summed over the four and cast to x's type (Qwen3VLVisionModel):
 * four rows of the table for every patch, weighted in fp32. */
static struct oom_val interpolated(struct oom_emit *e, const struct oom_tower *w, struct oom_val x)
{
	const struct oom_dim d = {w->d, "hidden_size"};
	struct oom_tape *t = e->t;
	const uint16_t corners = oom_len_const(t, e->m_images, 4 * oom_mono_now(t, e->m_len));
	struct oom_val ids = oom_new(t, "bilinear indices", corners, D(1), OOM_I32),
		       weights = oom_new(t, "bilinear weights", corners, D(1), OOM_F32), p;

	p = oom_op_embedding(t, named(w->places, "position_embedding"), ids, w->positions, d, 0);
	p = oom_op_mean(t, oom_op_mul(t, p, weights), e->m_tokens, d);
	return oom_op_add(t, x, oom_op_cast(t, p, (enum oom_dtype)x.dt));
}

/* x and the learned embedding of each row's place. */
static struct oom_val with_places(struct oom_emit *e, const struct oom_tower *w, struct oom_val x)
{
	struct oom_tape *t = e->t;
	struct oom_val ids;

	if (!w->learned)
		return x;
	if (w->bilinear)
		return interpolated(e, w, x);
	if (w->bare_places) {
		ids = oom_param(t, named(w->places, "position_embedding"), w->positions, w->d, 0);
		return oom_op_add(t, x, oom_op_view(t, ids, e->m_len, (struct oom_dim){w->d, "hidden_size"}));
	}
	if (w->place_ids)
		oom_buffer(t, w->positions, OOM_I64);
	ids = w->place_ids ? oom_input(t, "position ids", e->m_len, 1, OOM_I64) :
			     oom_new(t, "position ids", w->selects ? e->m_tokens : e->m_len, D(1), OOM_I64);
	return oom_op_add(t, x, oom_op_embedding(t, named(w->places, "position_embedding"), ids,
						 w->positions, (struct oom_dim){w->d, "hidden_size"}, 0));
}

/* What all layers are told: lengths, rotary tables, and the mask of images that are one sequence; names of f's. */
static void tell_layers(struct oom_frame *f, struct oom_emit *e, const struct oom_tower *w, uint64_t n, uint8_t dt,
			struct layer *l)
{
	const struct oom_dim head = {w->head_dim, "head_dim"};
	struct oom_tape *t = e->t;

	for (int i = 0; i < 2 && w->table; i++)
		oom_buffer(t, w->side / w->patch * (w->side / w->patch) * w->head_dim, OOM_F32);
	if (w->frequencies)                     /* of half a head, for height and width alike */
		oom_buffer(t, w->head_dim / 4, OOM_F32);
	if (w->complex)
		oom_buffer(t, oom_mono_now(t, e->m_len) * w->head_dim, OOM_F32);
	if (w->repeats) {                       /* the angles */
		l->rope.cos = oom_new(t, "angles", e->m_tokens, (struct oom_dim){w->head_dim / 2, "head_dim / 2"}, OOM_F32);
		l->rope.cos = oom_name_shared(f, l->rope.cos);
	} else if (w->rope && !w->complex) {
		l->rope.cos = oom_new(t, "cos", e->m_tokens, head, OOM_F32);
		l->rope.sin = oom_new(t, "sin", e->m_tokens, head, OOM_F32);
		l->rope = oom_name_tables(f, l->rope);
	}
	l->m_tokens = e->m_tokens;
	l->m_len = e->m_len;
	if (w->padded && t->plan->padding_mask && t->plan->attn != OOM_ATTN_FLASH)
		l->mask = oom_name_shared(f, oom_new(t, "patches that are there", oom_mono_mul(t, e->m_tokens, l->m_len), D(1),
						     t->plan->attn == OOM_ATTN_SDPA ? OOM_U8 : (enum oom_dtype)dt));
	if (!w->joined)
		return;
	l->m_len = oom_len_const(t, t->m_b, (e->pictures ? e->pictures : 1) * n);
	if (t->plan->attn != OOM_ATTN_FLASH)
		l->mask = oom_new(t, "block attention mask", oom_mono_mul(t, l->m_len, l->m_len), D(1),
				  (enum oom_dtype)dt);
	l->mask = oom_name_shared(f, l->mask);
}

/* post_layernorm(last_hidden_state[:, 0, :]), of which nothing is used. */
static void return_pooled(struct oom_emit *e, uint8_t dt, uint64_t width)
{
	struct oom_tape *t = e->t;

	if (!e->output)
		return;
	oom_name(e->output, oom_new(t, "pooled", e->m_images, (struct oom_dim){width, "hidden_size"}, (enum oom_dtype)dt));
	for (int i = 0; i < 2 && t->grad; i++)  /* mean, rstd */
		oom_name(e->output, oom_new(t, "pooled", e->m_images, D(1), OOM_F32));
}

struct oom_val oom_tower_run(struct oom_emit *e, const struct oom_tower *w)
{
	struct oom_tape *t = e->t;
	const uint64_t side = t->plan->image_size ? (uint64_t)t->plan->image_size :
			      w->side		  ? w->side :
						    448;
	const uint64_t patches = side / w->patch * (side / w->patch), n = patches ? patches : 1;
	struct layer l = {.tower = *w, .mask = oom_none(), .rope = {oom_none(), oom_none()}};
	struct oom_frame f = {.t = t};
	struct oom_val x = patch_rows(e, w, n);

	/* of one image alone such rows are a matrix as they lie */
	x.perm |= w->turned && oom_cond_above(t, e->m_images, 1);
	x = w->norm_first ? x : with_places(e, w, x);
	if (w->hook == OOM_HOOK_EMBEDDINGS)
		x = oom_hooked(t, x);
	if (w->windowed)
		x = oom_reordered(e, "window_index", x, w->merge * w->merge);
	if (w->pre_norm)
		x = oom_norm(t, w->norm, named(w->pre, "pre_layernorm"), x, 0);
	x = w->norm_first ? with_places(e, w, x) : x;
	tell_layers(&f, e, w, n, x.dt, &l);
	x = oom_layers(t, (uint32_t)w->run, NULL, block, &l, x);
	if (w->run < w->layers) {
		x = oom_name(&f, x);
		rest_of_layers(t, &l, x);
		x = oom_take(&f, x);
	}
	oom_forget_shared(&f);
	t->scope = "vision tower";
	if (w->held && e->output)
		x = oom_name(e->output, x);
	if (w->post_norm && w->raw)
		oom_weight_norm(t, named(w->post, "post_layernorm"), w->d, w->norm == OOM_NORM_LAYER);
	else if (w->post_norm)
		x = oom_norm(t, w->norm, named(w->post, "post_layernorm"), x, 0);
	if (w->pool)
		pooling_head(t, w);
	if (w->returned)
		return_pooled(e, x.dt, w->d);
	return x;
}

struct oom_val oom_tower_part(struct oom_emit *e, size_t i, struct oom_tower *w)
{
	oom_tower_read(w, &e->part[i], e->v->part[i].type);
	return oom_tower_run(e, w);
}

void oom_tower_weights(struct oom_emit *e, size_t i, struct oom_tower *w)
{
	oom_discard(e->t, oom_tower_part(e, i, w));
}
