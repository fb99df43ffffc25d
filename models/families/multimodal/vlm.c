/* Vision-language models: a text family as it is, beside the towers of vision.c and the projectors
 * of towers/projectors.c.
 *
 * The architecture's fields are the text model's: its family reads the text config as if it stood
 * alone.  Without images (the default) a step is a step of the text model with all other weights
 * resident; with images = N their features replace that many tokens of each sequence.
 * Reference: transformers 5.12, models/auto/modeling_auto.py
 * MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/keys.h"
#include "families/towers/vision.h"
#include "families/towers/weights.h"

extern const struct oom_family oom_family_vlm_text, oom_family_caption, oom_family_t5;

/* Text configs whose model is another type's under a name of its own (their classes inherit it). */
static const struct {
	const char *type, *as;
	bool qkv_bias;          /* always, whatever the config says */
	enum oom_rope_axes axes;
} text_types[] = {
	{"qwen2_vl_text", "qwen2", true, OOM_ROPE_3D_LAYER}, {"qwen2_5_vl_text", "qwen2", true, OOM_ROPE_3D_LAYER},
	{"qwen2_5_omni_text", "qwen2", true, OOM_ROPE_3D_LAYER}, {"paddleocr_vl_text", "ernie4_5", false, OOM_ROPE_3D_LAYER},
	{"qwen3_vl_text", "qwen3", false, OOM_ROPE_3D}, {"qwen3_vl_moe_text", "qwen3_moe", false, OOM_ROPE_3D},
	{"qwen3_omni_moe_text", "qwen3_moe", false, OOM_ROPE_3D}, {"glm4v_text", "glm4", true, OOM_ROPE_3D_SPREAD},
	{"glm_ocr_text", "glm4", false, OOM_ROPE_3D_SPREAD}, {"glm4v_moe_text", "glm4_moe", false, OOM_ROPE_3D},
	{"voxtral_realtime_text", "mistral", false, OOM_ROPE_1D},
};

/* Text models without a type of their own: their keys stand at the top of the file, or under a
 * config without a type. */
static const struct {
	const char *type, *as;
	const struct oom_family *family;
} at_the_top[] = {
	{"chameleon", "chameleon", &oom_family_vlm_text}, {"idefics", "idefics", &oom_family_vlm_text},
	{"pp_formulanet", "pp_formulanet", &oom_family_caption}, {"udop", "t5", &oom_family_t5},
};

/* ---- reading ---- */

/* Images of a sample, and among them frames of a video: towers that take two frames a patch see pairs of them, each attended
 * to by itself (get_vision_cu_seqlens repeats a frame's patches grid_t times). */
static uint64_t pictures_of(struct oom_emit *e)
{
	const struct oom_plan *p = e->t->plan;
	const uint64_t images = p->images > 0 ? (uint64_t)p->images : 0, frames = p->video_frames > 0 ? (uint64_t)p->video_frames : 0;
	uint64_t fold;

	if (!frames || !(e->v->kind->flags & OOM_VLM_FILMS))
		return images;
	fold = oom_read_count_or(&e->part[1], "temporal_patch_size", 1);
	return images + (frames + fold - 1) / (fold ? fold : 1);
}

static struct oom_emit emission(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_vlm *v = a->vlm;
	const unsigned flags = v->kind->flags;
	struct oom_emit e = {.t = t, .a = a, .v = v, .outer = v->outer};

	for (size_t i = 0; i < v->n_parts; i++)
		e.part[i] = v->part[i].rd;
	e.pictures = pictures_of(&e);
	e.images = flags & OOM_VLM_AUDIO ? t->plan->audio_seconds > 0 :
					   e.pictures || (flags & OOM_VLM_HEARS && t->plan->audio_seconds > 0);
	e.m_images = oom_len_const(t, t->m_b, e.pictures ? e.pictures : 1);
	return e;
}

/* What a step that meets no image keeps of the rest of the model. */
static void emit_parameters(struct oom_tape *t, struct oom_emit *e)
{
	struct oom_weights rest;

	oom_weights_begin(t, &rest);
	t->selection.part = OOM_PART_TOWER;
	e->v->kind->emit(e);
	t->selection.part = OOM_PART_TEXT;
	oom_weights_end(t, &rest);
}

/* Runs the emission once on an empty tape, so that every key is read and checked before a step
 * depends on it. */
static void check_emission(struct oom_arch *a)
{
	struct oom_plan plan = oom_plan_default();
	struct oom_tape *t = calloc(1, sizeof(*t));
	struct oom_emit e;

	if (!t) {
		a->rd.status = OOM_ERR_MEMORY;
		return;
	}
	oom_tape_reset(t, a, &plan);
	e = emission(t, a);
	if (!t->status)                         /* no memory even for that */
		emit_parameters(t, &e);
	for (size_t i = 0; i <= a->vlm->n_parts; i++) {
		struct oom_reader *r = i ? &e.part[i - 1] : &e.outer;

		if (!r->status || a->rd.status)
			continue;
		oom_read_explain(r, OOM_SUSPECT_ANY, &r->err);
		oom_read_fail(&a->rd, "%s", r->err.text);
	}
	if (t->of_config)
		oom_read_explain(&e.outer, OOM_SUSPECT_ANY, &t->err);
	if (t->status && !a->rd.status)
		oom_read_fail(&a->rd, "%s", t->err.text);
	oom_tape_release(t);
	free(t);
}

/* The text family and what it calls the type; an unknown one is counted as Llama, with a
 * warning. */
static void find_text(struct oom_arch *a, struct oom_vlm *v)
{
	const char *type = v->part[0].type;

	snprintf(a->model_type, sizeof(a->model_type), "%s", type);
	for (size_t i = 0; i < sizeof(at_the_top) / sizeof(at_the_top[0]); i++)
		if (!strcmp(type, at_the_top[i].type) ||
		    (!*type && !strcmp(v->type, at_the_top[i].type))) {
			snprintf(a->model_type, sizeof(a->model_type), "%s", at_the_top[i].as);
			v->text = at_the_top[i].family;
			return;
		}
	v->text = oom_family_find(type);
	for (size_t i = 0; !v->text && i < sizeof(text_types) / sizeof(text_types[0]); i++)
		if (!strcmp(text_types[i].type, type)) {
			v->text = oom_family_find(text_types[i].as);
			snprintf(a->model_type, sizeof(a->model_type), "%s", text_types[i].as);
		}
	if (!v->text)
		v->text = oom_family_remote(&v->part[0].defaults, a->model_type);
	if (v->text && v->text != a->family)
		return;
	v->text = oom_family_find("llama");
	snprintf(a->model_type, sizeof(a->model_type), "llama");
	a->approximate = true;
	oom_warn(a, "%.60s: its text model \"%.60s\" is not modelled: counted as if it were llama. "
		 "Parameters and memory are a guess.",
		 v->type, type);
}

static const char *class_of(const struct oom_reader *r, const char *task)
{
	char path[64];
	const struct oom_key *k;

	snprintf(path, sizeof(path), "architectures.%s", task);
	k = oom_keys_find(r->defaults, path);
	return k && k->type == OOM_KEY_STRING ? k->string : NULL;
}

/* Whether the causal language model of the type is its text model without the rest. */
static bool text_alone(const struct oom_reader *r)
{
	const char *lm = class_of(r, "causal-lm"), *both = class_of(r, "image-text");

	return lm && !strstr(lm, "ConditionalGeneration") && !(both && !strcmp(lm, both));
}

static void parse(struct oom_arch *a)
{
	struct oom_vlm *v = calloc(1, sizeof(*v));
	bool tie;

	if (!v) {
		a->rd.status = OOM_ERR_MEMORY;
		return;
	}
	a->vlm = v;
	v->outer = a->rd;
	snprintf(v->type, sizeof(v->type), "%s", a->model_type);
	v->outer.family = v->type;
	v->kind = oom_composition_find(v->type);
	for (size_t i = 0; i < OOM_PARTS && v->kind->part[i]; i++)
		oom_vlm_open_part(v, v->kind->part[i]);
	find_text(a, v);
	tie = oom_read_bool(&v->outer, "tie_word_embeddings",
			    !(v->kind->flags & OOM_VLM_AUDIO) &&
				    oom_read_bool(&v->part[0].rd, "tie_word_embeddings", false));
	if (v->kind->flags & OOM_VLM_EITHER_TIES)
		tie |= oom_read_bool(&v->part[0].rd, "tie_word_embeddings", false);
	v->alone = text_alone(&v->outer);
	a->rd = v->part[0].rd;
	a->rd.family = v->type;
	oom_family_parse(v->text, a);
	v->text_tie = a->tie;
	for (size_t i = 0; i < sizeof(text_types) / sizeof(text_types[0]); i++)
		if (!strcmp(text_types[i].type, v->part[0].type)) {
			a->qkv_bias |= text_types[i].qkv_bias;
			a->rope_axes = (uint8_t)text_types[i].axes;
		}
	if (!(v->kind->flags & OOM_VLM_TEXT_TIE))
		a->tie = tie;
	v->text_task = a->default_task;
	if (v->text_task == OOM_TASK_SEQ2SEQ && (!a->tie || !v->text_tie))
		oom_warn(a, "%.60s: tie_word_embeddings is false for the head or for the tables of the "
			 "two stacks: parameters are counted as if it were so for all of them, a guess.",
			 v->type);
	a->default_task = v->kind->flags & OOM_VLM_AUDIO ? OOM_TASK_SEQ2SEQ : OOM_TASK_IMAGE_TEXT;
	v->text_arch = *a;
	v->text_arch.tie = v->text_tie;
	a->float_logits = false;                /* of the text model's own class (MllamaForCausalLM) */
	if (!a->rd.status && !v->outer.status && a->d_model)
		check_emission(a);
}

/* A prompt has one placeholder per feature, so that it is at least as long as its images.  Features whose
 * number follows from the text are none of images. */
static void check_length(struct oom_emit *e, struct oom_val f, uint64_t width)
{
	struct oom_tape *t = e->t;
	const uint64_t images = e->pictures ? e->pictures : 1,
		       rows = oom_mono_eval(t, f.mono, 1, t->val_s, t->val_t),
		       tokens = width && rows <= UINT32_MAX && f.width <= UINT32_MAX ? rows * f.width / width : 0;

	if (rows % images ||
	    rows != oom_mono_eval(t, f.mono, 1, t->val_s + 1, t->val_t))
		return;
	if (tokens && !oom_cond_above(t, t->m_s, tokens - 1))
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "the images (or audio) of a sequence are %llu tokens (%llu x %llu): seq-len must be at "
			      "least that",
			      (unsigned long long)tokens, (unsigned long long)images,
			      (unsigned long long)(tokens / images));
}

/* What the rest of the model makes of images (or audio). */
static struct oom_val features(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_val f;

	e->merged = true;
	t->pixels = t->pixel_mask = t->token_mask = 0;
	t->selection.part = OOM_PART_TOWER;
	f = e->v->kind->emit(e);
	t->selection.part = OOM_PART_TEXT;
	if (oom_is_none(f))             /* a tower of which only the weights are known */
		oom_tape_fail(t, OOM_ERR_INVALID, "images: what \"%s\" makes of them is not modelled",
			      e->v->type);
	return f;
}

/* inputs_embeds.masked_scatter(input_ids == image token, features). */
static struct oom_val scattered(struct oom_emit *e, struct oom_val x, struct oom_val f)
{
	const struct oom_dim d = {x.width, x.text};
	struct oom_tape *t = e->t;

	t->scope = "model";
	e->tokens = oom_name(e->output, oom_new(t, "image tokens", t->m_bs, D(1), OOM_U8));
	x = oom_op_masked(t, "masked_scatter", x, e->tokens);
	return oom_op_add_inplace(t, x, oom_op_expand(t, f, t->m_bs, d));
}

void oom_merge_before(struct oom_emit *e, struct oom_val f)
{
	f = oom_name(e->output, oom_op_cast(e->t, f, (enum oom_dtype)e->words.dt));
	e->words = scattered(e, e->words, f);
}

static struct oom_val merge(struct oom_tape *t, void *ctx, struct oom_val x)
{
	struct oom_emit *e = ctx;
	const struct oom_dim d = {x.width, x.text};
	const unsigned flags = e->v->kind->flags;
	struct oom_val f;

	e->words = x;
	f = flags & OOM_VLM_FIRST ? e->features : features(e);
	if (oom_is_none(f))
		return x;
	x = e->words;
	f = oom_op_cast(t, f, (enum oom_dtype)x.dt);
	if (flags & OOM_VLM_LIST)
		f = oom_op_copy(t, "cat", f);
	check_length(e, f, d.n);
	f = e->features = oom_name(e->output, f);
	x = scattered(e, x, f);
	if (flags & OOM_VLM_FLATLY)
		x = oom_name(e->output, x);     /* inputs_embeds */
	else if (flags & (OOM_VLM_HEAD | OOM_VLM_HOLDS))        /* the same, until the text model is through */
		x = e->words = oom_name(e->output, x);
	if (e->n_deep || !(flags & OOM_VLM_FLATLY))
		oom_deepstack(e);
	return x;
}

/* Layers of the text model attend to the features, which are there before its embeddings. */
static void cross(struct oom_tape *t, struct oom_emit *e)
{
	t->pixels = t->pixel_mask = t->token_mask = 0;
	t->selection.part = OOM_PART_TOWER;
	e->merged = true;
	e->v->kind->emit(e);
	t->selection.part = OOM_PART_TEXT;
	if (!t->crossed.there && !t->status)
		oom_tape_fail(t, OOM_ERR_INVALID, "images: what \"%s\" makes of them is not modelled", e->v->type);
	if (!(e->v->kind->flags & OOM_VLM_EXACT))
		oom_tape_warn(t, "the images' part of the step is approximated for this model type");
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_vlm *v = a->vlm;
	const unsigned flags = v->kind->flags;
	struct oom_emit e = emission(t, a);
	struct oom_frame output = {.t = t};
	const enum oom_task task = t->task;
	struct oom_val loss;

	/* cppcheck-suppress autoVariables ; e goes with this call */
	e.output = &output;
	if (task == OOM_TASK_CAUSAL_LM && v->alone)
		return oom_family_step(v->text, t, &v->text_arch);
	t->shift = flags & OOM_VLM_SHIFT_FP32 ? OOM_SHIFT_LOGITS_FP32 :
		   flags & OOM_VLM_SHIFT      ? OOM_SHIFT_LOGITS :
						OOM_SHIFT_LABELS;
	t->outer_head = flags & OOM_VLM_HEAD;
	t->loss_outside = flags & OOM_VLM_OUTSIDE;
	if (e.images && flags & OOM_VLM_CROSSED) {
		cross(t, &e);
	} else if (e.images && flags & OOM_VLM_RUNS) {
		if (flags & OOM_VLM_FIRST)
			e.features = oom_name(&output, features(&e));
		t->merge = merge;
		/* cppcheck-suppress autoVariables ; given up below, before this returns */
		t->merge_ctx = &e;
		t->token_types = flags & (OOM_VLM_TYPES | OOM_VLM_KINDS) && (e.pictures || !(flags & OOM_VLM_HEARS));
		t->typed_mask = flags & OOM_VLM_TYPES;
		if (!(flags & OOM_VLM_EXACT))
			oom_tape_warn(t, flags & OOM_VLM_AUDIO ?
					     "the audio's part of the step is approximated for this model type" :
					     "the images' part of the step is approximated for this model type");
	} else {
		emit_parameters(t, &e);
		if (e.images)
			oom_tape_warn(t, "the part of the step that images or audio have is not counted for this model type: the run "
				     "also takes the tower's activations and, where the tower trains, its "
				     "gradients and optimizer state");
	}
	if (flags & OOM_VLM_AUDIO ? t->plan->images > 0 : t->plan->audio_seconds > 0 && !(flags & OOM_VLM_HEARS))
		oom_tape_warn(t, flags & OOM_VLM_AUDIO ? "images are not counted for this model type: the run takes more" :
						     "audio is not counted for this model type: the run takes more");
	if (t->plan->video_frames > 0 && !(flags & OOM_VLM_FILMS))
		oom_tape_warn(t, "video is not counted for this model type: the run takes more");
	t->scope = "";
	t->task = task == OOM_TASK_IMAGE_TEXT || task == OOM_TASK_SEQ2SEQ ? v->text_task : task;
	loss = oom_family_step(v->text, t, a);
	/* the evaluation pass must find what the first one found */
	t->task = task;
	if (!e.merged && t->merge &&
	    !t->status) /* a text family that does not say when its embeddings are there */
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "images are not modelled with the text model \"%s\"", v->text->name);
	t->merge = NULL;
	t->merge_ctx = NULL;
	t->behind = (struct oom_behind){.n = 0};
	return oom_leave(&output, loss);
}

static const struct oom_family_type types[] = {
#define COMPOSITION(type, parts, emit, flags) {type, NULL},
#define REMOTE(type, parts, emit, flags)
#include "vlm_list.h"
#undef COMPOSITION
#undef REMOTE
	{NULL, NULL}};
static const struct oom_family_type remote_types[] = {
#define COMPOSITION(type, parts, emit, flags)
#define REMOTE(type, parts, emit, flags) {type, NULL},
#include "vlm_list.h"
#undef COMPOSITION
#undef REMOTE
	{NULL, NULL}};

const struct oom_family oom_family_vlm = {
	.name = "vlm",
	.summary = "vision-language models: a text family beside a vision tower and its projector",
	.source = "transformers 5.12 models/auto/modeling_auto.py "
		  "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
	.types = types,
	.inner_types = remote_types,
	.lora_targets = "q_proj+v_proj",
	.unasked = oom_vlm_unasked,
	.parse = parse,
	.step = step,
};
