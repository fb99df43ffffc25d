/* What a vision-language model has beside its text model: towers, projectors, lone parameters.
 * Reference: transformers 5.12, the MultiModalProjector / PatchMerger / Aligner classes of
 * models/NAME/modeling_NAME.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/image.h"
#include "vision.h"

static struct oom_val linear(struct oom_emit *e, const char *name, struct oom_val x, uint64_t out,
			     bool bias)
{
	e->t->selection.part = OOM_PART_PROJECTOR;
	x = oom_op_linear(e->t, name, x, (struct oom_dim){out, NULL}, bias ? OOM_BIAS : 0);
	e->t->selection.part = OOM_PART_TOWER;
	return x;
}

/* The tower of part i, of its own type or the one given. */
static struct oom_val tower(struct oom_emit *e, size_t i, struct oom_tower *w)
{
	oom_tower_read(w, &e->part[i], e->v->part[i].type);
	return oom_tower_run(e, w);
}

/* How many layers' features the projector sees at once: vision_feature_layer is a number or a
 * list. */
static uint64_t feature_layers(struct oom_emit *e, const char *key)
{
	const struct oom_key *k = oom_read_key(&e->outer, key);

	return k && k->type == OOM_KEY_LIST && k->n_items ? k->n_items : 1;
}

/* hidden_states[vision_feature_layer]: the last layer counted from, and no norm behind it. */
static void used_layers(struct oom_emit *e, struct oom_tower *w, const char *key, double def)
{
	const struct oom_key *k = oom_read_key(&e->outer, key);
	const bool list = k && k->type == OOM_KEY_LIST;
	double most = 0;

	for (uint32_t i = 0; i < (list ? k->n_items : 1) && i < 1024; i++) {
		const double at = list ? oom_read_item_real(&e->outer, key, i, def) :
					 oom_read_real(&e->outer, key, def);
		const double used = at < 0 ? (double)w->layers + 1 + at : at;

		most = used > most ? used : most;
	}
	w->raw = true;
	w->run = most < (double)w->layers ? (uint64_t)most : w->layers;
}

/* features[:, 1:], copied where a batch of several makes it a view with gaps. */
static struct oom_val without_class(struct oom_emit *e, struct oom_val x)
{
	const uint64_t n = oom_mono_now(e->t, e->m_len);

	oom_tower_tokens(e, n > 1 ? n - 1 : 1);
	x = oom_op_slice(e->t, x, e->m_tokens, (struct oom_dim){x.width, x.text});
	x.perm = oom_cond_above(e->t, e->m_images, 1);
	return x;
}

/* LLaVA and its likes: two linear layers over the features of one layer or several, a newline
 * token between tiles. */
struct oom_val oom_emit_llava(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const char *type = e->v->type;
	const bool vip = !strcmp(type, "vipllava");
	const uint64_t k = feature_layers(e,
					  vip ? "vision_feature_layers" : "vision_feature_layer");
	const bool bias = vip || oom_read_bool(&e->outer, "multimodal_projector_bias", true);
	const enum oom_act act = oom_read_act(&e->outer, "projector_hidden_act", "gelu");
	struct oom_tower w;
	struct oom_val x;

	if (!strcmp(type, "video_llava"))
		oom_discard(t, tower(e, 1, &w));   /* the video tower, of the image tower's config */
	oom_tower_read(&w, &e->part[1], e->v->part[1].type);
	used_layers(e, &w, vip ? "vision_feature_layers" : "vision_feature_layer", -2);
	x = oom_tower_run(e, &w);
	if (w.flags & OOM_TOWER_CLASS &&
	    strcmp(oom_read_string(&e->outer, "vision_feature_select_strategy", "default"), "full"))
		x = without_class(e, x);
	t->scope = "model";
	if (!strncmp(type, "llava_next", 10) || !strcmp(type, "llava_onevision"))
		oom_param(t, "image_newline", 0, e->a->d_model, 0);
	if (k > 1)
		x = oom_op_expand_copy(t, x, x.mono,
				       (struct oom_dim){x.width * k, "hidden_size * layers"});
	if (vip)
		x = oom_norm(t, OOM_NORM_LAYER, "projector_layernorm", x, 0);
	x = linear(e, "linear_1", x, e->a->d_model, bias);
	return linear(e, "linear_2", oom_activation(t, act, x), e->a->d_model, bias);
}

static uint64_t whole_root(uint64_t n)
{
	uint64_t r = 0;

	while ((r + 1) * (r + 1) <= n && r < 65536)
		r++;
	return r;
}

/* SigLIP towers: Gemma 3 (a pooled, normed product), PaliGemma (one layer), Aya and Cohere
 * (pixel shuffle, SwiGLU), DeepSeek. */
struct oom_val oom_emit_siglip(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const char *type = e->v->type;
	const uint64_t d = e->a->d_model;
	struct oom_tower w;
	struct oom_val x;

	oom_tower_read(&w, &e->part[1], e->v->part[1].type);
	if (!strcmp(type, "aya_vision"))
		used_layers(e, &w, "vision_feature_layer", -1);
	x = oom_tower_run(e, &w);
	t->scope = "multi_modal_projector";
	if (!strcmp(type, "paligemma"))
		return linear(e, "linear", x, oom_read_count_or(&e->outer, "projection_dim", d),
			      true);
	if (!strcmp(type, "deepseek_vl")) {
		x = oom_activation(t, OOM_ACT_GELU, linear(e, "linear1", x, d, true));
		return linear(e, "linear2", x, d, true);
	}
	if (!strcmp(type, "aya_vision") || !strcmp(type, "cohere2_vision")) {
		const bool aya = type[0] == 'a';
		const uint64_t ff = oom_read_count_or(&e->outer, "alignment_intermediate_size",
						      aya ? d : 36864);
		const struct oom_dim half[2] = {{ff / 2, "alignment / 2"},
						{ff / 2, "alignment / 2"}};
		struct oom_val p[2];

		x = oom_merge_tokens(e, x, oom_read_count_or(&e->outer, "downsample_factor", 2));
		if (aya)
			x = oom_norm(t, OOM_NORM_LAYER, "layernorm", x, 0);
		oom_op_split(t, linear(e, "linear_1", x, ff / 2 * 2, true), 2, half, p);
		x = oom_op_mul(t, oom_op_unary(t, OOM_SILU, p[1]), p[0]);
		return linear(e, "linear_2", x, d, true);
	}
	/* Gemma 3: average pooling to mm_tokens_per_image, norm, product */
	{
		const uint64_t n = oom_read_count_or(&e->outer, "mm_tokens_per_image", 256),
			       grid = whole_root(oom_mono_now(t, e->m_len));
		const uint64_t side = whole_root(n), kernel = side ? grid / side : 0;
		struct oom_map m = {.c = w.d, .h = grid, .w = grid};
		struct oom_val p;

		x = oom_op_copy(t, "contiguous", x);
		if (kernel && kernel * side <= grid) {
			m.x = oom_op_view(t, x, e->m_images,
					  (struct oom_dim){w.d * grid * grid,
							   "hidden_size * patches"});
			m = oom_avg_pool(t, m, kernel, kernel, 0);
			oom_tower_tokens(e, m.h * m.w);
			x = oom_op_view(t, m.x, e->m_tokens, (struct oom_dim){w.d, "hidden_size"});
		} else {
			oom_tower_tokens(e, n ? n : 1);
			x = oom_op_mean(t, x, e->m_tokens, (struct oom_dim){w.d, "hidden_size"});
		}
		x = oom_norm(t, OOM_NORM_RMS_PLUS1, "mm_soft_emb_norm", x, 0);
		p = oom_param(t, "mm_input_projection_weight", w.d, d, 0);
		return oom_op_matmul_param(t, "projected", x, p, oom_none(),
					   (struct oom_dim){d, "d_model"});
	}
}

/* Qwen's mergers: norm, merge x merge patches to one, two layers. */
static struct oom_val merger(struct oom_emit *e, const struct oom_tower *w, struct oom_val x,
			     uint64_t out, bool norm_late)
{
	struct oom_tape *t = e->t;

	t->scope = "merger";
	if (!norm_late)
		x = oom_norm(t, w->norm, "ln_q", x, 0);
	x = oom_merge_tokens(e, x, w->merge);
	if (norm_late)
		x = oom_norm(t, OOM_NORM_LAYER, "norm", x, 0);
	x = linear(e, "0", x, x.width, true);
	return linear(e, "2", oom_activation(t, OOM_ACT_GELU, x), out, true);
}

struct oom_val oom_emit_qwen(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const struct oom_key *deep = NULL;
	struct oom_tower w;
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_name(&f, tower(e, 1, &w));
	const uint16_t tokens = e->m_tokens, len = e->m_len;
	uint64_t out;

	out = !strcmp(e->v->part[1].type, "qwen2_vl_vision") ?
		      oom_read_count(r, "hidden_size", 1) :
		      oom_read_count(r, "out_hidden_size", 1);
	if (strncmp(e->v->part[1].type, "qwen3_5", 7))
		deep = oom_read_key(r, "deepstack_visual_indexes");
	for (uint32_t i = 0; deep && deep->type == OOM_KEY_LIST && i < deep->n_items && i < 64;
	     i++) {
		oom_discard(t, merger(e, &w, x, out, true));
		e->m_tokens = tokens;
		e->m_len = len;
	}
	return merger(e, &w, oom_take(&f, x), out, false);
}

/* A pixel shuffle (merge^2 patches to one), perhaps a norm, two layers: InternVL, Idefics 3 (one
 * layer), LFM 2, ... */
struct oom_val oom_emit_shuffle(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const char *type = e->v->type;
	const uint64_t d = e->a->d_model;
	struct oom_tower w;
	struct oom_val x = tower(e, 1, &w);

	t->scope = "multi_modal_projector";
	if (!strcmp(type, "idefics3") || !strcmp(type, "smolvlm")) {
		x = oom_merge_tokens(e, x, oom_read_count_or(&e->outer, "scale_factor", 2));
		return linear(e, "proj", x, d, false);
	}
	if (!strcmp(type, "lfm2_vl")) {
		const bool bias = oom_read_bool(&e->outer, "projector_bias", true);

		x = oom_merge_tokens(e, x, oom_read_count_or(&e->outer, "downsample_factor", 2));
		if (oom_read_bool(&e->outer, "projector_use_layernorm", true))
			x = oom_norm(t, OOM_NORM_LAYER, "layer_norm", x, 0);
		x = linear(e, "linear_1", x,
			   oom_read_count_or(&e->outer, "projector_hidden_size", 2560), bias);
		return linear(
			e, "linear_2",
			oom_activation(t, oom_read_act(&e->outer, "projector_hidden_act", "gelu"),
				       x),
			d, bias);
	}
	if (!strcmp(type, "video_llama_3")) {
		x = oom_activation(t, OOM_ACT_GELU, linear(e, "0", x, d, true));
		return linear(e, "2", x, d, true);
	}
	if (!strcmp(type, "paddleocr_vl")) {
		x = oom_merge_tokens(e, oom_norm(t, OOM_NORM_LAYER, "pre_norm", x, 0), w.merge);
		x = oom_op_linear(t, "linear_1", x, (struct oom_dim){x.width, NULL}, OOM_BIAS);
		return linear(e, "linear_2", oom_activation(t, OOM_ACT_GELU, x), d, true);
	}
	/* InternVL, Qianfan */
	{
		const double ratio = oom_read_real(&e->outer, "downsample_ratio", 0.5);

		x = oom_merge_tokens(e, x, ratio > 0.02 && ratio <= 1 ? (uint64_t)(1 / ratio) : 2);
		x = oom_norm(t, OOM_NORM_LAYER, "layer_norm", x, 0);
		x = linear(e, "linear_1", x, d, true);
		return linear(
			e, "linear_2",
			oom_activation(t, oom_read_act(&e->outer, "projector_hidden_act", "gelu"),
				       x),
			d, true);
	}
}

/* Mistral 3, LightOn: norm, patch merger, two layers. */
struct oom_val oom_emit_pixtral(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const bool light = !strcmp(e->v->type, "lighton_ocr");
	const uint64_t merge = oom_read_count_or(&e->outer, "spatial_merge_size", 2),
		       d = e->a->d_model;
	const uint64_t k = light ? 1 : feature_layers(e, "vision_feature_layer");
	const bool bias = !light && oom_read_bool(&e->outer, "multimodal_projector_bias", false);
	struct oom_tower w;
	struct oom_val x = tower(e, 1, &w);

	t->scope = "multi_modal_projector";
	if (k > 1)
		x = oom_op_expand_copy(t, x, x.mono,
				       (struct oom_dim){x.width * k, "hidden_size * layers"});
	x = oom_norm(t, OOM_NORM_RMS, "norm", x, w.d);
	x = oom_merge_tokens(e, oom_op_copy(t, "unfold", x), merge && merge < 64 ? merge : 1);
	x = linear(e, "merging_layer", x, w.d, false);
	x = linear(e, "linear_1", x, d, bias);
	return linear(e, "linear_2",
		      oom_activation(t, oom_read_act(&e->outer, "projector_hidden_act", "gelu"), x),
		      d, bias);
}

/* GLM: a strided convolution merges, then a gated merger with a norm of its own. */
struct oom_val oom_emit_glm(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	const uint64_t out = oom_read_count(r, "out_hidden_size", 1);
	struct oom_tower w;
	struct oom_val x = tower(e, 1, &w);
	const uint64_t ff = !strcmp(e->v->type, "glm_ocr") ?
				    out * w.channels :
				    oom_read_count(r, "intermediate_size", 1);
	const uint64_t n = oom_mono_now(t, e->m_len) / (w.merge * w.merge);

	oom_tower_tokens(e, n ? n : 1);
	x = oom_op_conv(t, "downsample", x, out, w.d * w.merge * w.merge, true, e->m_tokens,
			(struct oom_dim){out, "out_hidden_size"});
	t->scope = "merger";
	x = linear(e, "proj", x, out, false);
	x = oom_activation(t, OOM_ACT_GELU,
			   oom_norm(t, OOM_NORM_LAYER, "post_projection_norm", x, 0));
	return oom_gated_mlp(t, x, w.act, (struct oom_dim){ff, NULL}, false);
}
