/* Vision towers: patches, positions, a pre-norm encoder.  One generic encoder, a row for each model
 * type. Reference: transformers 5.12,
 * models/{clip,siglip,siglip2,idefics2,idefics3,smolvlm,pixtral,qwen2_vl,qwen2_5_vl,qwen3_vl,
 * internvl,ovis2,glm4v,glm_ocr,exaone4_5,janus,llama4,...}/modeling_*.py, the Vision classes. */
#include "blocks/image.h"
#include "vision.h"
#include "weights.h"

#include <stdio.h>
#include <string.h>

#define BIASES (OOM_TOWER_QKV_BIAS | OOM_TOWER_O_BIAS | OOM_TOWER_MLP_BIAS)
#define CLIP (BIASES | OOM_TOWER_CLASS | OOM_TOWER_POSITIONS | OOM_TOWER_PRE_NORM | OOM_TOWER_POST_NORM)
#define SIGLIP (BIASES | OOM_TOWER_PATCH_BIAS | OOM_TOWER_POSITIONS | OOM_TOWER_POST_NORM)
#define BLIP (SIGLIP | OOM_TOWER_CLASS | OOM_TOWER_FUSED_QKV)
#define QWEN (OOM_TOWER_QWEN | OOM_TOWER_FUSED_QKV | OOM_TOWER_ROPE | OOM_TOWER_FRAMES | BIASES)
#define QWEN3 (QWEN | OOM_TOWER_PATCH_BIAS | OOM_TOWER_POSITIONS)
#define INTERN (OOM_TOWER_CLASS | OOM_TOWER_PATCH_BIAS | OOM_TOWER_SCALE | OOM_TOWER_O_BIAS | OOM_TOWER_MLP_BIAS)
#define GLM (OOM_TOWER_QWEN | OOM_TOWER_FUSED_QKV | OOM_TOWER_ROPE | OOM_TOWER_FRAMES | OOM_TOWER_GATED | \
	     OOM_TOWER_PATCH_BIAS | OOM_TOWER_POST_NORM)

static const struct {
	const char *type;
	unsigned flags;
	enum oom_norm norm;
	const char *o, *up, *down;
} towers[] = {
	{"clip_vision_model", CLIP, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"git_vision_model", CLIP, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"kosmos_2_vision_model", CLIP, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"idefics_vision", CLIP, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"siglip_vision_model", SIGLIP | OOM_TOWER_POOL, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"siglip2_vision_model", SIGLIP | OOM_TOWER_POOL | OOM_TOWER_PATCH_LAST, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"idefics2_vision", SIGLIP, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"idefics3_vision", SIGLIP, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"smolvlm_vision", SIGLIP, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"minicpmv4_6_vision", SIGLIP, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"phi4_multimodal_vision", SIGLIP | OOM_TOWER_POOL, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"paddleocr_vl_vision", SIGLIP | OOM_TOWER_ROPE, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"video_llama_3_vision", (SIGLIP | OOM_TOWER_ROPE) & ~(unsigned)OOM_TOWER_POSITIONS, OOM_NORM_LAYER, "out_proj", "fc1", "fc2"},
	{"janus_vision_model", SIGLIP, OOM_NORM_LAYER, "projection_layer", "fc1", "fc2"},
	{"blip_vision_model", BLIP, OOM_NORM_LAYER, "projection", "fc1", "fc2"},
	{"blip_2_vision_model", BLIP, OOM_NORM_LAYER, "projection", "fc1", "fc2"},
	{"instructblip_vision_model", BLIP, OOM_NORM_LAYER, "projection", "fc1", "fc2"},
	{"instructblipvideo_vision_model", BLIP, OOM_NORM_LAYER, "projection", "fc1", "fc2"},
	{"pixtral", OOM_TOWER_PRE_NORM | OOM_TOWER_GATED | OOM_TOWER_ROPE, OOM_NORM_RMS, "o_proj", "up_proj", "down_proj"},
	{"qwen2_vl_vision", QWEN, OOM_NORM_LAYER, "proj", "fc1", "fc2"},
	{"qwen2_5_vl_vision", QWEN | OOM_TOWER_GATED, OOM_NORM_RMS, "proj", "up_proj", "down_proj"},
	{"qwen2_5_omni_vision_encoder", (QWEN | OOM_TOWER_GATED) & ~(unsigned)OOM_TOWER_FUSED_QKV, OOM_NORM_RMS, "proj", "up_proj",
	 "down_proj"},
	{"exaone4_5_vision", QWEN | OOM_TOWER_GATED, OOM_NORM_RMS, "proj", "up_proj", "down_proj"},
	{"qwen3_vl_vision", QWEN3, OOM_NORM_LAYER, "proj", "linear_fc1", "linear_fc2"},
	{"qwen3_vl_moe_vision", QWEN3, OOM_NORM_LAYER, "proj", "linear_fc1", "linear_fc2"},
	{"qwen3_5_vision", QWEN3, OOM_NORM_LAYER, "proj", "linear_fc1", "linear_fc2"},
	{"qwen3_5_moe_vision", QWEN3, OOM_NORM_LAYER, "proj", "linear_fc1", "linear_fc2"},
	{"qwen3_omni_moe_vision_encoder", QWEN3, OOM_NORM_LAYER, "proj", "linear_fc1", "linear_fc2"},
	{"internvl_vision", INTERN, OOM_NORM_LAYER, "projection_layer", "fc1", "fc2"},
	{"qianfan_ocr_vision", INTERN, OOM_NORM_LAYER, "projection_layer", "fc1", "fc2"},
	{"ovis2_vision", OOM_TOWER_PATCH_BIAS | OOM_TOWER_POSITIONS | OOM_TOWER_PRE_NORM | OOM_TOWER_POST_NORM | OOM_TOWER_GATED,
	 OOM_NORM_RMS, "out_proj", "up_proj", "down_proj"},
	{"glm4v_vision", GLM | OOM_TOWER_POSITIONS | OOM_TOWER_PRE_NORM, OOM_NORM_RMS, "proj", "up_proj", "down_proj"},
	{"glm4v_moe_vision", GLM | OOM_TOWER_POSITIONS | OOM_TOWER_PRE_NORM, OOM_NORM_RMS, "proj", "up_proj", "down_proj"},
	{"glm_ocr_vision", GLM | OOM_TOWER_QK_NORM, OOM_NORM_RMS, "proj", "up_proj", "down_proj"},
	{"ernie4_5_vl_moe_vision", (QWEN | OOM_TOWER_PATCH_LAST | OOM_TOWER_POST_NORM) & ~(unsigned)OOM_TOWER_FRAMES, OOM_NORM_LAYER,
	 "proj", "fc1", "fc2"},
	{"llama4_vision_model", (CLIP | OOM_TOWER_PATCH_LAST | OOM_TOWER_ROPE), OOM_NORM_LAYER, "o_proj", "fc1", "fc2"},
	{"minimax_m3_vl_vision", BIASES | OOM_TOWER_PRE_NORM | OOM_TOWER_ROPE | OOM_TOWER_FRAMES, OOM_NORM_LAYER, "out_proj", "fc1",
	 "fc2"},
};

uint64_t oom_read_side(struct oom_reader *r, const char *key, uint64_t def)
{
	const struct oom_key *k = oom_read_key(r, key);

	if (k && k->type == OOM_KEY_LIST) {
		const double x = oom_read_item_real(r, key, 0, (double)def);

		if (!(x >= 1 && x <= 65536)) {
			oom_read_fail(r, "\"%s%s\": expected sizes from 1 to 65536", r->prefix,
				      key);
			return 1;
		}
		return (uint64_t)x;
	}
	return oom_read_count_or(r, key, def);
}

uint64_t oom_read_items(struct oom_reader *r, const char *key, uint64_t def)
{
	const struct oom_key *k = oom_read_key(r, key);

	return k && k->type == OOM_KEY_LIST ? k->n_items : def;
}

/* What one type reads under a name of its own, or leaves to a switch. */
static void exceptions(struct oom_tower *w, struct oom_reader *r, const char *type)
{
	if (!strcmp(type, "siglip_vision_model") || !strcmp(type, "siglip2_vision_model"))
		if (!oom_read_bool(r, "vision_use_head", true))
			w->flags &= ~(unsigned)OOM_TOWER_POOL;
	if (!strcmp(type, "siglip2_vision_model"))
		w->positions = oom_read_count_or(r, "num_patches", 256);
	if (!strncmp(type, "internvl", 8) || !strncmp(type, "qianfan", 7)) {
		w->norm = strcmp(oom_read_string(r, "norm_type", "layer_norm"), "rms_norm") ?
				  OOM_NORM_LAYER :
				  OOM_NORM_RMS;
		w->flags |= oom_read_bool(r, "attention_bias", false) ? OOM_TOWER_QKV_BIAS : 0;
		w->flags |= oom_read_bool(r, "use_qk_norm", false) ? OOM_TOWER_QK_NORM_FULL : 0;
		w->flags |= oom_read_bool(r, "use_mean_pooling", true) ? 0 : OOM_TOWER_POST_NORM;
		if (oom_read_bool(r, "use_absolute_position_embeddings", true))
			w->flags |= OOM_TOWER_POSITIONS;
	}
	if (!strcmp(type, "janus_vision_model")) {
		w->ff = (uint64_t)((double)w->d * oom_read_real(r, "mlp_ratio", 4));
		if (!oom_read_bool(r, "attention_bias", true))
			w->flags &= ~(unsigned)OOM_TOWER_QKV_BIAS;
		w->flags |= oom_read_bool(r, "use_qk_norm", false) ?
				    OOM_TOWER_QK_NORM_FULL | OOM_TOWER_QK_LAYER_NORM :
				    0;
	}
	if (!strcmp(type, "ovis2_vision")) {
		w->flags |= oom_read_bool(r, "qkv_bias", false) ?
				    OOM_TOWER_QKV_BIAS | OOM_TOWER_O_BIAS :
				    0;
		w->flags |= oom_read_bool(r, "mlp_bias", false) ? OOM_TOWER_MLP_BIAS : 0;
	}
	if (!strncmp(type, "glm", 3)) {
		if (strcmp(type, "glm_ocr_vision"))
			w->ff = oom_read_count(r, "out_hidden_size", 1);
		else if (oom_read_bool(r, "attention_bias", true))
			w->flags |= BIASES;
		if (strcmp(type, "glm_ocr_vision") && oom_read_bool(r, "attention_bias", false))
			w->flags |= OOM_TOWER_QKV_BIAS;
	}
	if (!strcmp(type, "qwen2_vl_vision"))
		w->ff = (uint64_t)((double)w->d * oom_read_real(r, "mlp_ratio", 4));
	if ((w->flags & OOM_TOWER_FUSED_QKV) && !(w->flags & OOM_TOWER_QWEN) &&
	    !oom_read_bool(r, "qkv_bias", true))
		w->flags &= ~(unsigned)OOM_TOWER_QKV_BIAS;
	w->positions = oom_read_count_or(r, "num_position_embeddings", w->positions);
}

static void read_sizes(struct oom_tower *w, struct oom_reader *r, const char *type)
{
	size_t k = sizeof(towers) / sizeof(towers[0]);
	bool q;

	while (k > 0 && strcmp(towers[k - 1].type, type))
		k--;
	if (!k) {
		oom_read_fail(r, "\"%smodel_type\": the vision tower \"%s\" is not modelled",
			      r->prefix, type);
		return;
	}
	k--;
	*w = (struct oom_tower){.flags = towers[k].flags, .norm = towers[k].norm, .o = towers[k].o, .up = towers[k].up,
				.down = towers[k].down};
	q = w->flags & OOM_TOWER_QWEN;
	w->d = oom_read_count(r, !strcmp(type, "qwen2_vl_vision") ? "embed_dim" : "hidden_size", 1);
	w->layers = oom_read_count(r, q ? "depth" : "num_hidden_layers", 0);
	w->heads = oom_read_count(r, q ? "num_heads" : "num_attention_heads", 1);
	w->kv_heads = q ? oom_read_count_or(r, "num_key_value_heads", w->heads) : w->heads;
	w->ff = oom_read_count_or(r, "intermediate_size", 4 * w->d);
	w->side = oom_read_side(r, "image_size", 0);
	w->patch = oom_read_side(r, "patch_size", 14);
	w->channels = q ? oom_read_count_or(r, "in_channels", oom_read_count_or(r, "in_chans", 3)) :
			  oom_read_count_or(r, "num_channels", 3);
	w->frames = w->flags & OOM_TOWER_FRAMES ? oom_read_count_or(r, "temporal_patch_size", 2) :
						  1;
	w->merge = oom_read_count_or(r, "spatial_merge_size", 2);
	w->act = oom_read_act(r, oom_read_key(r, "hidden_act") ? "hidden_act" : "hidden_activation",
			      "gelu");
	if (!w->patch || !w->kv_heads || w->layers > OOM_MAX_LAYERS || w->side > 65536 ||
	    w->heads % w->kv_heads || !w->channels || !w->frames || !w->merge || w->merge > 64) {
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
		return;
	}
	w->head_dim = oom_read_count_or(r, "head_dim", w->d / w->heads);
	w->positions = w->side / w->patch * (w->side / w->patch) +
		       (w->flags & OOM_TOWER_CLASS ? 1 : 0);
	exceptions(w, r, type);
	if (!w->head_dim || !w->ff || (w->flags & OOM_TOWER_POSITIONS && !w->positions))
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
}

void oom_tower_read(struct oom_tower *w, struct oom_reader *r, const char *type)
{
	*w = (struct oom_tower){.d = 0};
	read_sizes(w, r, type);
	w->run = w->layers;
	/* the smallest there is, so that the emission comes to its end */
	if (r->status)
		*w = (struct oom_tower){.d = 1,
					.ff = 1,
					.heads = 1,
					.kv_heads = 1,
					.head_dim = 1,
					.side = 1,
					.patch = 1,
					.channels = 1,
					.frames = 1,
					.merge = 1,
					.positions = 1,
					.o = "proj",
					.up = "fc1",
					.down = "fc2"};
}

/* ---- emission ---- */

struct layer {
	const struct oom_tower *w;
	struct oom_tower tower;         /* w points here once the context is copied */
	struct oom_rope rope;
	uint16_t m_tokens, m_len;
};

static struct oom_val qk_norm(struct oom_tape *t, const struct oom_tower *w, const char *name,
			      struct oom_val x)
{
	const enum oom_norm kind = w->flags & OOM_TOWER_QK_LAYER_NORM ? OOM_NORM_LAYER :
									OOM_NORM_RMS;

	if (!(w->flags & (OOM_TOWER_QK_NORM | OOM_TOWER_QK_NORM_FULL)))
		return x;
	return oom_norm(t, kind, name, x, w->flags & OOM_TOWER_QK_NORM_FULL ? 0 : w->head_dim);
}

static void project_qkv(struct oom_tape *t, const struct oom_tower *w, struct oom_val x,
			struct oom_val p[3])
{
	const struct oom_dim q = {w->heads * w->head_dim, "n_heads * head_dim"},
			     kv = {w->kv_heads * w->head_dim, "n_kv_heads * head_dim"};
	const struct oom_dim parts[3] = {q, kv, kv};
	static const char *const names[] = {"q_proj", "k_proj", "v_proj"}, *const short_names[] = {
										   "q", "k", "v"};
	const unsigned bias = w->flags & OOM_TOWER_QKV_BIAS ? OOM_BIAS : 0;

	if (w->flags & OOM_TOWER_FUSED_QKV) {
		oom_op_split(t,
			     oom_op_linear(t, "qkv", x,
					   (struct oom_dim){q.n + 2 * kv.n,
							    "(n_heads + 2 * n_kv_heads) * "
							    "head_dim"},
					   bias),
			     3, parts, p);
		return;
	}
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_linear(t, w->flags & OOM_TOWER_QWEN ? short_names[i] : names[i],
				     x, parts[i], bias);
}

static struct oom_val scaled(struct oom_tape *t, const struct oom_tower *w, const char *name,
			     struct oom_val x)
{
	return w->flags & OOM_TOWER_SCALE ? oom_op_mul(t, oom_param(t, name, 0, w->d, 0), x) : x;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_tower *w = &l->tower;
	const struct oom_dim d = {w->d, "hidden_size"}, ff = {w->ff, "intermediate_size"};
	struct oom_attn at = {.heads = w->heads,
			      .kv_heads = w->kv_heads,
			      .d = w->head_dim,
			      .dv = w->head_dim,
			      .norm = w->norm,
			      .scale_after = true,
			      .mq = l->m_tokens,
			      .mk = l->m_tokens,
			      .sk = l->m_len,
			      .mask = oom_none(),
			      .kv_from = oom_none()};
	struct oom_frame f = {.t = t};
	struct oom_val p[3], y;

	(void)i;
	y = oom_name(&f, oom_norm(t, w->norm, "norm1", x, 0));
	project_qkv(t, w, y, p);
	p[0] = qk_norm(t, w, "q_norm", p[0]);
	p[1] = qk_norm(t, w, "k_norm", p[1]);
	for (int j = 0; j < 3; j++)
		p[j] = oom_op_heads(t, p[j]);
	if (w->flags & OOM_TOWER_ROPE) {        /* in fp32, cast back */
		const enum oom_dtype dt = (enum oom_dtype)p[0].dt;

		for (int j = 0; j < 2; j++) {
			p[j] = oom_op_cast(t, p[j], OOM_F32);
			p[j] = oom_rope_apply(t, p[j], &l->rope, j ? w->kv_heads : w->heads,
					      w->head_dim, w->head_dim);
			p[j] = oom_op_cast(t, p[j], dt);
		}
	}
	p[0] = oom_attention_core(t, &at, p[0], p[1], p[2]);
	if (w->flags & OOM_TOWER_QWEN && t->plan->attn != OOM_ATTN_FLASH)
		/* each image is attended by itself, the results joined */
		p[0] = oom_op_copy(t, "cat", p[0]);
	p[0] = oom_op_linear(t, w->o, p[0], d, w->flags & OOM_TOWER_O_BIAS ? OOM_BIAS : 0);
	oom_forget(&f, y);
	x = oom_name(&f, oom_op_add(t, x, scaled(t, w, "lambda_1", p[0])));
	y = oom_norm(t, w->norm, "norm2", x, 0);
	y = w->flags & OOM_TOWER_GATED ?
		    oom_gated_mlp(t, y, w->act, ff, w->flags & OOM_TOWER_MLP_BIAS) :
		    oom_plain_mlp(t, y, w->up, w->down, w->act, ff, w->flags & OOM_TOWER_MLP_BIAS);
	return oom_leave(&f, oom_op_add(t, x, scaled(t, w, "lambda_2", y)));
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

/* One weight of the pooling head, or the copy autocast makes of it. */
static void pooled_with(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols)
{
	oom_discard(t, oom_amp_cast(t, oom_param(t, name, rows, cols, OOM_P_UNUSED)));
}

/* SigLIP's pooling head: it runs, but image features pass it by, and what it made is dropped. */
static void pooling_head(struct oom_tape *t, const struct oom_tower *w)
{
	oom_param(t, "probe", 0, w->d, OOM_P_UNUSED);
	t->scope = "attention";
	/* parts of it project probe and features: casts of a part are not cached */
	oom_param(t, "in_proj_weight", 3 * w->d, w->d, OOM_P_UNUSED);
	oom_param(t, "in_proj_bias", 0, 3 * w->d, OOM_P_UNUSED);
	pooled_with(t, "out_proj.weight", w->d, w->d);
	pooled_with(t, "out_proj.bias", 0, w->d);
	t->scope = "layernorm";
	oom_param(t, "weight", 0, w->d, OOM_P_UNUSED | OOM_P_NORM);
	oom_param(t, "bias", 0, w->d, OOM_P_UNUSED | OOM_P_NORM);
	t->scope = "mlp";
	pooled_with(t, "fc1.weight", w->ff, w->d);
	pooled_with(t, "fc1.bias", 0, w->ff);
	pooled_with(t, "fc2.weight", w->d, w->ff);
	pooled_with(t, "fc2.bias", 0, w->d);
}

/* Layers behind the last one whose output is used: run (autocast copies their weights), but no
 * gradient reaches them, and what they saved goes with their output. */
static void rest_of_layers(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const bool grad = t->grad;

	t->grad = false;
	oom_discard(t, oom_layers(t, (uint32_t)(l->tower.layers - l->tower.run), NULL, block, l, x));
	t->grad = grad;
}

struct oom_val oom_tower_run(struct oom_emit *e, const struct oom_tower *w)
{
	struct oom_tape *t = e->t;
	const bool one = w->flags & OOM_TOWER_CLASS;
	const uint64_t side = t->plan->image_size ? (uint64_t)t->plan->image_size :
			      w->side		  ? w->side :
						    448;
	const uint64_t patches = side / w->patch * (side / w->patch), n = patches ? patches : 1;
	const uint64_t cut = w->channels * w->frames * w->patch * w->patch;
	const struct oom_dim d = {w->d, "hidden_size"}, head = {w->head_dim, "head_dim"};
	struct layer l = {.tower = *w};
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_pixel_values(t, e->m_images, n * cut), token = oom_none();

	if (e->merged)
		t->pixels += (uint64_t)t->plan->images * n * cut;
	t->scope = "embeddings";
	if (one)
		token = oom_param(t, "class_embedding", 0, w->d, 0);
	oom_tower_tokens(e, n);
	if (w->flags & OOM_TOWER_PATCH_LAST)
		x = oom_op_linear_in(t, "patch_embedding",
				     oom_op_view(t, x, e->m_tokens, (struct oom_dim){cut, "patch"}),
				     cut, d, w->flags & OOM_TOWER_PATCH_BIAS ? OOM_BIAS : 0);
	else
		x = oom_op_conv(t, "patch_embedding", x, w->d, cut, w->flags & OOM_TOWER_PATCH_BIAS,
				e->m_tokens, d);
	if (one) {
		token = oom_op_expand(t, token, e->m_images, d);
		token.perm = false;
		oom_tower_tokens(e, n + 1);
		x = oom_op_cat_into(t, token, x, e->m_tokens, d);
	}
	if (w->flags & OOM_TOWER_POSITIONS) {
		struct oom_val ids = oom_new(t, "position ids", e->m_len, D(1), OOM_I64);

		x = oom_op_add(t, x,
			       oom_op_embedding(t, "position_embedding", ids, w->positions, d, 0));
	}
	if (w->flags & OOM_TOWER_PRE_NORM)
		x = oom_norm(t, w->norm, "pre_layernorm", x, 0);
	if (w->flags & OOM_TOWER_ROPE) {
		l.rope.cos = oom_new(t, "cos", e->m_tokens, head, OOM_F32);
		l.rope.sin = oom_new(t, "sin", e->m_tokens, head, OOM_F32);
		l.rope = oom_name_tables(&f, l.rope);
	}
	l.m_tokens = e->m_tokens;
	l.m_len = e->m_len;
	x = oom_layers(t, (uint32_t)w->run, NULL, block, &l, x);
	if (w->run < w->layers) {
		x = oom_name(&f, x);
		rest_of_layers(t, &l, x);
		x = oom_take(&f, x);
	}
	oom_forget_shared(&f);
	t->scope = "vision tower";
	if (w->flags & OOM_TOWER_POST_NORM && w->raw)
		oom_weight_norm(t, "post_layernorm", w->d, w->norm == OOM_NORM_LAYER);
	else if (w->flags & OOM_TOWER_POST_NORM)
		x = oom_norm(t, w->norm, "post_layernorm", x, 0);
	if (w->flags & OOM_TOWER_POOL)
		pooling_head(t, w);
	return x;
}
