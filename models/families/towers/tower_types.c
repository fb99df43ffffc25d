/* Vision towers: what each model type's is built of, and the keys that tell its sizes.
 * Reference: transformers 5.12,
 * models/{clip,siglip,siglip2,idefics2,idefics3,smolvlm,pixtral,qwen2_vl,qwen2_5_vl,qwen3_vl,
 * internvl,ovis2,glm4v,glm_ocr,exaone4_5,janus,llama4,...}/modeling_*.py, the Vision classes. */
#include <stdio.h>
#include <string.h>

#include "blocks/image.h"
#include "vision.h"

#define BIASES .qkv_bias = true, .o_bias = true, .mlp_bias = true
#define FC .norm = OOM_NORM_LAYER, .up = "fc1", .down = "fc2"
#define GATED .norm = OOM_NORM_RMS, .gated = true, .up = "up_proj", .down = "down_proj"
#define CLIP BIASES, FC, .class_token = true, .learned = true, .pre_norm = true, .post_norm = true
#define NUMBERED .norms = {"layer_norm1", "layer_norm2"}
#define SIGLIP BIASES, FC, NUMBERED, .patch_bias = true, .post_norm = true
#define QWEN BIASES, .qwen = true, .apart = true, .rope = true, .frequencies = true, .o = "proj", .patches = "proj"
#define QWEN3 \
	QWEN, .hook = OOM_HOOK_NONE, .times = true, .fused_qkv = true, .norm = OOM_NORM_LAYER, .patch_bias = true, \
		.learned = true, .bilinear = true, .up = "linear_fc1", .down = "linear_fc2", .places = "pos_embed", \
		.merger = {"norm", "linear_fc1", "linear_fc2"}
#define GLM \
	GATED, .hook = OOM_HOOK_NONE, .qwen = true, .apart = true, .fused_qkv = true, .rope = true, .frequencies = true, .times = true, .patch_bias = true, \
		.post_norm = true, .o = "proj", .patches = "proj"

static const struct oom_tower
	clip = {CLIP, NUMBERED, .pre = "pre_layrnorm", .place_ids = true, .o = "out_proj"},
	kosmos = {CLIP, NUMBERED, .pre = "pre_layrnorm", .place_ids = true, .o = "out_proj", .softmax_as_is = true,
		  .returned = true, .held = true},
	llama4 = {CLIP, .norms = {"input_layernorm", "post_attention_layernorm"}, .pre = "layernorm_pre",
		  .post = "layernorm_post", .patch_last = true, .unfolds = true, .rope = true, .complex = true, .o = "o_proj"},
	siglip = {SIGLIP, .learned = true, .o = "out_proj"},
	idefics = {SIGLIP, .hook = OOM_HOOK_EMBEDDINGS, .learned = true, .selects = true, .padded = true, .o = "out_proj"},
	siglip_pooled = {SIGLIP, .learned = true, .place_ids = true, .pool = true, .o = "out_proj"},
	siglip2 = {SIGLIP, .learned = true, .pool = true, .patch_last = true, .padded = true, .o = "out_proj"},
	paddle = {SIGLIP, .hook = OOM_HOOK_NONE, .learned = true, .place_ids = true, .apart = true, .rope = true, .frequencies = true, .o = "out_proj"},
	video_llama = {SIGLIP, .apart = true, .rope = true, .frequencies = true, .o = "out_proj"},
	janus = {SIGLIP, .hook = OOM_HOOK_EMBEDDINGS, .learned = true, .place_ids = true, .o = "projection_layer"},
	blip = {SIGLIP, .hook = OOM_HOOK_EMBEDDINGS, .learned = true, .class_token = true, .fused_qkv = true, .bare_places = true, .o = "projection",
		.softmax_as_is = true, .returned = true},
	blip_2 = {SIGLIP, .hook = OOM_HOOK_EMBEDDINGS, .learned = true, .class_token = true, .fused_qkv = true, .bare_places = true, .o = "projection",
		  .softmax_as_is = true, .returned = true},
	pixtral = {GATED, .pre_norm = true, .rope = true, .table = true, .joined = true, .o = "o_proj",
		   .norms = {"attention_norm", "ffn_norm"}, .pre = "ln_pre", .patches = "patch_conv"},
	qwen2 = {QWEN, FC, .times = true, .fused_qkv = true, .width = "embed_dim", .out =
		 "hidden_size"},
	qwen2_5 = {QWEN, GATED, .times = true, .fused_qkv = true, .windowed = true},
	qwen_omni = {QWEN, GATED, .times = true, .repeats = true, .windowed = true},
	qwen3 = {QWEN3},
	qwen3_5 = {QWEN3, .no_deepstack = true},
	ernie = {QWEN, FC, .fused_qkv = true, .patch_last = true, .post_norm = true},
	intern = {FC, .class_token = true, .patch_bias = true, .scale = true, .o_bias = true,
		  .mlp_bias = true, .o = "projection_layer", .norms = {"layernorm_before", "layernorm_after"},
		  .token = "cls_token", .patches = "projection"},
	ovis2 = {GATED, .hook = OOM_HOOK_NONE, .patch_bias = true, .learned = true, .pre_norm = true, .post_norm = true,
		 .o = "out_proj", .norms = {"rms_norm1", "rms_norm2"}, .pre = "rms_norm", .post = "rms_norm",
		 .turned = true, .place_ids = true, .norm_first = true},
	glm4v = {GLM, .learned = true, .pre_norm = true, .pre = "post_conv_layernorm"},
	glm_ocr = {GLM, .qk_norm = true},
	minimax = {BIASES, FC, NUMBERED, .pre_norm = true, .pre = "pre_layrnorm", .rope = true, .times = true,
		   .o = "out_proj", .patches = "proj"};

/* ---- keys of a type's own, after the sizes ---- */

static void read_siglip(struct oom_tower *w, struct oom_reader *r)
{
	w->pool = oom_read_bool(r, "vision_use_head", true);
}

/* PixtralVisionConfig overwrites head_dim. */
static void read_pixtral(struct oom_tower *w, struct oom_reader *r)
{
	(void)r;
	w->head_dim = w->d / w->heads;
}

static void read_siglip2(struct oom_tower *w, struct oom_reader *r)
{
	read_siglip(w, r);
	w->positions = oom_read_count_or(r, "num_patches", 256);
}

static void read_intern(struct oom_tower *w, struct oom_reader *r)
{
	if (!strcmp(oom_read_string(r, "norm_type", "layer_norm"), "rms_norm"))
		w->norm = OOM_NORM_RMS;
	w->qkv_bias = oom_read_bool(r, "attention_bias", false);
	w->qk_norm_full = oom_read_bool(r, "use_qk_norm", false);
	w->post_norm = !oom_read_bool(r, "use_mean_pooling", true);
	w->learned = oom_read_bool(r, "use_absolute_position_embeddings", true);
}

static void read_ratio(struct oom_tower *w, struct oom_reader *r)
{
	w->ff = (uint64_t)((double)w->d * oom_read_real(r, "mlp_ratio", 4));
}

static void read_janus(struct oom_tower *w, struct oom_reader *r)
{
	read_ratio(w, r);
	w->qkv_bias = oom_read_bool(r, "attention_bias", true);
	w->qk_norm_full = w->qk_layer_norm = oom_read_bool(r, "use_qk_norm", false);
}

static void read_ovis2(struct oom_tower *w, struct oom_reader *r)
{
	w->qkv_bias = w->o_bias = oom_read_bool(r, "qkv_bias", false);
	w->mlp_bias = oom_read_bool(r, "mlp_bias", false);
}

static void read_glm(struct oom_tower *w, struct oom_reader *r)
{
	w->ff = oom_read_count(r, "out_hidden_size", 1);
	w->qkv_bias = oom_read_bool(r, "attention_bias", false);
}

static void read_glm_ocr(struct oom_tower *w, struct oom_reader *r)
{
	w->qkv_bias = w->o_bias = w->mlp_bias = oom_read_bool(r, "attention_bias", true);
}

static const struct tower_type {
	const char *type;
	const struct oom_tower *kind;
	void (*read)(struct oom_tower *w, struct oom_reader *r);
} towers[] = {
	{"clip_vision_model", &clip, NULL}, {"git_vision_model", &clip, NULL},
	{"kosmos_2_vision_model", &kosmos, NULL}, {"idefics_vision", &clip, NULL},
	{"siglip_vision_model", &siglip_pooled, read_siglip},
	{"siglip2_vision_model", &siglip2, read_siglip2}, {"idefics2_vision", &idefics, NULL},
	{"idefics3_vision", &idefics, NULL}, {"smolvlm_vision", &idefics, NULL},
	{"minicpmv4_6_vision", &siglip, NULL}, {"phi4_multimodal_vision", &siglip_pooled, NULL},
	{"paddleocr_vl_vision", &paddle, NULL}, {"video_llama_3_vision", &video_llama, NULL},
	{"janus_vision_model", &janus, read_janus}, {"blip_vision_model", &blip, NULL},
	{"blip_2_vision_model", &blip_2, NULL}, {"instructblip_vision_model", &blip_2, NULL},
	{"instructblipvideo_vision_model", &blip_2, NULL}, {"pixtral", &pixtral, read_pixtral},
	{"qwen2_vl_vision", &qwen2, read_ratio}, {"qwen2_5_vl_vision", &qwen2_5, NULL},
	{"qwen2_5_omni_vision_encoder", &qwen_omni, NULL}, {"exaone4_5_vision", &qwen2_5, NULL},
	{"qwen3_vl_vision", &qwen3, NULL}, {"qwen3_vl_moe_vision", &qwen3, NULL},
	{"qwen3_5_vision", &qwen3_5, NULL}, {"qwen3_5_moe_vision", &qwen3_5, NULL},
	{"qwen3_omni_moe_vision_encoder", &qwen3, NULL}, {"internvl_vision", &intern, read_intern},
	{"intern_vit_6b", &intern, read_intern}, {"qianfan_ocr_vision", &intern, read_intern}, {"ovis2_vision", &ovis2, read_ovis2},
	{"glm4v_vision", &glm4v, read_glm}, {"glm4v_moe_vision", &glm4v, read_glm},
	{"glm_ocr_vision", &glm_ocr, read_glm_ocr}, {"ernie4_5_vl_moe_vision", &ernie, NULL},
	{"llama4_vision_model", &llama4, NULL}, {"minimax_m3_vl_vision", &minimax, NULL},
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

static void read_sizes(struct oom_tower *w, struct oom_reader *r)
{
	const bool q = w->qwen;

	w->d = oom_read_count(r, w->width ? w->width : "hidden_size", 1);
	w->layers = oom_read_count(r, q ? "depth" : "num_hidden_layers", 0);
	w->heads = oom_read_count(r, q ? "num_heads" : "num_attention_heads", 1);
	w->kv_heads = q ? oom_read_count_or(r, "num_key_value_heads", w->heads) : w->heads;
	w->ff = oom_read_count_or(r, "intermediate_size", 4 * w->d);
	w->side = oom_read_side(r, "image_size", 0);
	w->patch = oom_read_side(r, "patch_size", 14);
	w->channels = q ? oom_read_count_or(r, "in_channels", oom_read_count_or(r, "in_chans", 3)) :
			  oom_read_count_or(r, "num_channels", 3);
	w->frames = w->times ? oom_read_count_or(r, "temporal_patch_size", 2) : 1;
	w->merge = oom_read_count_or(r, "spatial_merge_size", 2);
	w->act = oom_read_act(r, oom_read_key(r, "hidden_act") ? "hidden_act" : "hidden_activation",
			      "gelu");
}

static bool impossible(const struct oom_tower *w)
{
	return !w->patch || !w->kv_heads || w->layers > OOM_MAX_LAYERS || w->side > 65536 ||
	       w->heads % w->kv_heads || !w->channels || !w->frames || !w->merge || w->merge > 64;
}

static void read_type(struct oom_tower *w, struct oom_reader *r, const struct tower_type *type)
{
	*w = *type->kind;
	read_sizes(w, r);
	if (impossible(w)) {
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
		return;
	}
	w->head_dim = oom_read_count_or(r, "head_dim", w->d / w->heads);
	w->positions = w->side / w->patch * (w->side / w->patch) + w->class_token;
	if (type->read)
		type->read(w, r);
	if (w->fused_qkv && !w->qwen)
		w->qkv_bias &= oom_read_bool(r, "qkv_bias", true);
	w->positions = oom_read_count_or(r, "num_position_embeddings", w->positions);
	if (!w->head_dim || !w->ff || (w->learned && !w->positions))
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
}

void oom_tower_read(struct oom_tower *w, struct oom_reader *r, const char *type)
{
	/* the smallest there is, so that the emission comes to its end */
	static const struct oom_tower smallest = {
		.d = 1, .ff = 1, .heads = 1, .kv_heads = 1, .head_dim = 1, .side = 1, .patch = 1,
		.channels = 1, .frames = 1, .merge = 1, .positions = 1, FC, .o = "proj"};
	size_t k = sizeof(towers) / sizeof(towers[0]);

	while (k > 0 && strcmp(towers[k - 1].type, type))
		k--;
	if (k)
		read_type(w, r, &towers[k - 1]);
	else
		oom_read_fail(r, "\"%smodel_type\": the vision tower \"%s\" is not modelled",
			      r->prefix, type);
	if (r->status)
		*w = smallest;
	w->run = w->layers;
}
