/* LLaVA and its likes, Mistral 3 and LightOn: the features of one of the tower's layers or several, through
 * two linear layers.  Reference: transformers 5.12, the MultiModalProjector classes of
 * models/{llava,llava_next,vipllava,video_llava,mistral3,lighton_ocr,...}/modeling_*.py. */
#include <string.h>

#include "blocks/image.h"
#include "projector.h"
#include "weights.h"

struct oom_val oom_project(struct oom_emit *e, const char *name, struct oom_val x, uint64_t out,
			   bool bias)
{
	e->t->selection.part = OOM_PART_PROJECTOR;
	x = oom_op_linear(e->t, name, x, (struct oom_dim){out, NULL}, bias ? OOM_BIAS : 0);
	e->t->selection.part = OOM_PART_TOWER;
	return x;
}

struct oom_val oom_project_norm(struct oom_emit *e, enum oom_norm norm, const char *name, struct oom_val x)
{
	e->t->selection.part = OOM_PART_PROJECTOR;
	x = oom_norm(e->t, norm, name, x, 0);
	e->t->selection.part = OOM_PART_TOWER;
	return x;
}

struct oom_val oom_project_twice(struct oom_emit *e, const char *first, const char *second,
				 enum oom_act act, struct oom_val x, uint64_t out, bool bias)
{
	x = oom_activation(e->t, act, oom_project(e, first, x, out, bias));
	return oom_project(e, second, x, out, bias);
}

enum oom_act oom_projector_act(struct oom_emit *e)
{
	return oom_read_act(&e->outer, "projector_hidden_act", "gelu");
}

uint64_t oom_feature_layers(struct oom_emit *e, const char *key)
{
	const uint64_t n = oom_read_items(&e->outer, key, 1);

	return n ? n : 1;
}

void oom_used_layers(struct oom_emit *e, struct oom_tower *w, const char *key, double def)
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

struct oom_val oom_side_by_side(struct oom_tape *t, struct oom_val x, uint64_t layers)
{
	const struct oom_dim width = {x.width * layers, "hidden_size * layers"};

	return layers > 1 ? oom_op_expand_copy(t, x, x.mono, width) : x;
}

struct oom_val oom_without_class(struct oom_emit *e, struct oom_val x)
{
	const uint64_t n = oom_mono_now(e->t, e->m_len);

	oom_tower_tokens(e, n > 1 ? n - 1 : 1);
	x = oom_op_slice(e->t, x, e->m_tokens, (struct oom_dim){x.width, x.text});
	x.perm = oom_cond_above(e->t, e->m_images, 1);
	return x;
}

struct llava {
	bool newline;                   /* a token between tiles */
	bool video;                     /* a second tower of the image tower's config, for videos (Video-LLaVA) */
	bool vip;                       /* a norm, always biases, and a key of its own */
	/* a video's features are pooled: before the projector (LLaVA-NeXT-Video), or behind it (OneVision) */
	bool pools_first, pools_last;
};

/* Whether the step's pictures are a video's.  Beside images the two are run apart; what is counted is one run of both, each
 * picture an image, which is more. */
static bool films(const struct oom_emit *e)
{
	return e->merged && e->t->plan->video_frames > 0 && e->t->plan->images <= 0;
}

/* LlavaNextVideoPooler: stride x stride patches to one.  The rows of the pool's output lie as they are wanted. */
static struct oom_val pooled_first(struct oom_emit *e, struct oom_val x)
{
	const uint64_t n = oom_mono_now(e->t, e->m_len), stride = oom_read_count_or(&e->outer, "spatial_pool_stride", 2);
	struct oom_map m = {.c = x.width};
	struct oom_tape *t = e->t;

	for (m.h = 1; (m.h + 1) * (m.h + 1) <= n; m.h++)
		;
	m.w = m.h;
	if (!stride || stride > m.h)
		return x;
	m.x = oom_op_view(t, x, e->m_images, (struct oom_dim){x.width * m.h * m.w, "hidden_size * patches"});
	m = oom_avg_pool(t, m, stride, stride, 0);
	oom_tower_tokens(e, m.h * m.w);
	return oom_op_view(t, m.x, e->m_tokens, (struct oom_dim){m.c, "hidden_size"});
}

/* apply_pooling: a bilinear interpolation to half of each side, whose rows are copied to those of a video; and a newline
 * behind them (LlavaOnevisionModel.forward). */
static struct oom_val pooled_last(struct oom_emit *e, struct oom_val x, struct oom_val line)
{
	const uint64_t n = oom_mono_now(e->t, e->m_len), frames = (uint64_t)e->t->plan->video_frames;
	const struct oom_dim d = {x.width, x.text};
	struct oom_tape *t = e->t;
	uint64_t side = 1, half;

	while ((side + 1) * (side + 1) <= n)
		side++;
	half = (side + 1) / 2;
	x = oom_op_copy(t, "contiguous", x);
	oom_tower_tokens(e, half * half);
	x = oom_op_expand_copy(t, x, e->m_tokens, d);   /* interpolate */
	x = oom_op_copy(t, "reshape", x);
	line = oom_op_expand_copy(t, line, t->m_b, d);  /* repeat */
	e->m_tokens = oom_len_const(t, t->m_b, half * half * frames + 1);
	return oom_op_cat_into(t, x, line, e->m_tokens, d);
}

static struct oom_val llava(struct oom_emit *e, struct llava kind)
{
	const char *key = kind.vip ? "vision_feature_layers" : "vision_feature_layer", *selected;
	const uint64_t d = e->a->d_model, layers = oom_feature_layers(e, key);
	const bool bias = kind.vip || oom_read_bool(&e->outer, "multimodal_projector_bias", true), film = films(e);
	const enum oom_act act = oom_projector_act(e);
	const bool merged = e->merged;
	struct oom_weights idle;
	struct oom_tower w;
	struct oom_val x, line = oom_none();

	if (kind.video) {               /* which a step on images does not run; one on videos, not the other */
		e->merged = false;
		oom_weights_begin(e->t, &idle);
		oom_tower_weights(e, 1, &w);
		oom_weights_end(e->t, &idle);
		e->merged = merged;
	}
	oom_tower_read(&w, &e->part[1], e->v->part[1].type);
	oom_used_layers(e, &w, key, -2);
	w.joins = kind.newline && !film;
	x = oom_tower_run(e, &w);
	selected = oom_read_string(&e->outer, "vision_feature_select_strategy", "default");
	if (w.class_token && strcmp(selected, "full") && !(kind.video && film))
		x = oom_without_class(e, x);
	e->t->scope = "model";
	e->t->selection.part = OOM_PART_TEXT;   /* in neither of the two */
	if (kind.newline)
		line = oom_param(e->t, "image_newline", 0, d, 0);
	e->t->selection.part = OOM_PART_TOWER;
	x = oom_side_by_side(e->t, x, layers);
	if (film && kind.pools_first)
		x = pooled_first(e, x);
	if (kind.vip)
		x = oom_project_norm(e, OOM_NORM_LAYER, "projector_layernorm", x);
	x = oom_project_twice(e, "linear_1", "linear_2", act, x, d, bias);
	return film && kind.pools_last ? pooled_last(e, x, line) : x;
}

struct oom_val oom_emit_llava(struct oom_emit *e)
{
	return llava(e, (struct llava){0});
}

struct oom_val oom_emit_llava_newline(struct oom_emit *e)
{
	return llava(e, (struct llava){.newline = true});
}

struct oom_val oom_emit_next_video(struct oom_emit *e)
{
	return llava(e, (struct llava){.newline = true, .pools_first = true});
}

struct oom_val oom_emit_onevision(struct oom_emit *e)
{
	return llava(e, (struct llava){.newline = true, .pools_last = true});
}

struct oom_val oom_emit_video_llava(struct oom_emit *e)
{
	return llava(e, (struct llava){.video = true});
}

struct oom_val oom_emit_vipllava(struct oom_emit *e)
{
	return llava(e, (struct llava){.vip = true});
}

/* Mistral 3, LightOn: norm, patch merger, two layers. */
static struct oom_val pixtral(struct oom_emit *e, uint64_t layers, bool bias)
{
	struct oom_tape *t = e->t;
	const uint64_t merge = oom_read_count_or(&e->outer, "spatial_merge_size", 2);
	struct oom_tower w;
	struct oom_val x = oom_tower_part(e, 1, &w);

	t->scope = "multi_modal_projector";
	x = oom_project_norm(e, OOM_NORM_RMS, "norm", oom_side_by_side(t, x, layers));
	x = oom_merge_tokens(e, oom_op_copy(t, "unfold", x), merge && merge < 64 ? merge : 1);
	x = oom_project(e, "merging_layer", x, w.d, false);
	return oom_project_twice(e, "linear_1", "linear_2", oom_projector_act(e), x, e->a->d_model,
				 bias);
}

struct oom_val oom_emit_mistral3(struct oom_emit *e)
{
	return pixtral(e, oom_feature_layers(e, "vision_feature_layer"),
		       oom_read_bool(&e->outer, "multimodal_projector_bias", false));
}

struct oom_val oom_emit_lighton(struct oom_emit *e)
{
	return pixtral(e, 1, false);
}
