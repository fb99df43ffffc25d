/* oom_model: a config's keys turned into an architecture. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "families/towers/vision.h"

/* Classes over images or audio whose heads and losses no task has. */
static bool other_class(const char *class)
{
	static const char *const tails[] = {
		"ForSemanticSegmentation", "ForInstanceSegmentation", "ForUniversalSegmentation", "ForImageSegmentation",
		"ForObjectDetection", "ForZeroShot", "ForMaskedImageModeling", "ForDepthEstimation", "ForKeypoint", "ForVideo",
		"ForAudio", "ForXVector", "ForPose", "Backbone",
	};

	for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
		if (strstr(class, tails[i]))
			return true;
	return false;
}

static void choose_task(struct oom_model *m)
{
	const char *arch = NULL;
	const struct oom_key *k = oom_keys_find(m->keys, *m->prefix ? "config.architectures.0" :
								      "architectures.0");
	static const struct {
		const char *tail;
		enum oom_task task;
	} tails[] = {
		{"ForTokenClassification", OOM_TASK_TOKEN_CLS}, {"ForSequenceClassification", OOM_TASK_SEQ_CLS}, {"ForImageClassification", OOM_TASK_IMAGE_CLS},
		{"ForCTC", OOM_TASK_CTC}, {"ForMaskedLM", OOM_TASK_MASKED_LM}, {"ForPreTraining", OOM_TASK_MASKED_LM},
		{"ForConditionalGeneration", OOM_TASK_SEQ2SEQ}, {"ForCausalLM", OOM_TASK_CAUSAL_LM},
		{"LMHeadModel", OOM_TASK_CAUSAL_LM},
	};

	if (k && k->type == OOM_KEY_STRING)
		arch = k->string;
	for (size_t i = 0; arch && i < sizeof(tails) / sizeof(tails[0]); i++)
		if (strstr(arch, tails[i].tail)) {
			/* conditional generation is a decoder's word for multimodal models too */
			if (tails[i].task == OOM_TASK_SEQ2SEQ &&
			    (m->arch.default_task == OOM_TASK_CAUSAL_LM ||
			     m->arch.default_task == OOM_TASK_IMAGE_TEXT))
				return;
			m->arch.default_task = tails[i].task;
			return;
		}
	if (arch && other_class(arch))
		m->arch.class_warning = "the class that architectures names is not modelled: priced as what the type is usually trained "
					"for; its own head and loss are not counted (--task says which is meant)";
	else if (arch && m->arch.family->base_class && oom_keys_find(&m->defaults, "architectures.base") &&
		 !strcmp(arch, oom_keys_find(&m->defaults, "architectures.base")->string))
		m->arch.class_warning = m->arch.family->base_class;
}

static enum oom_status find_type(struct oom_model *m, struct oom_error *err)
{
	const struct oom_key *k = oom_keys_find(m->keys, "model_type");
	struct oom_arch *a = &m->arch;

	m->prefix = "";
	/* a recorded run: {"config": {...}, "spec": {...}} */
	if (!k) {
		k = oom_keys_find(m->keys, "config.model_type");
		m->prefix = k ? "config." : "";
	}

	if (!k || k->type != OOM_KEY_STRING || !*k->string ||
	    strlen(k->string) >= sizeof(a->model_type))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s: %s: expected a model's config.json%s%s", m->keys->file,
				     k && k->type != OOM_KEY_NULL ? "\"model_type\" is no model's name" :
								    "no \"model_type\"",
				     oom_keys_kind_hint(m->keys) ? "; " : "",
				     oom_keys_kind_hint(m->keys) ? oom_keys_kind_hint(m->keys) :
								   "");
	snprintf(a->model_type, sizeof(a->model_type), "%s", k->string);
	snprintf(m->type, sizeof(m->type), "%s", k->string);
	snprintf(a->config_type, sizeof(a->config_type), "%s", k->string);
	snprintf(m->like, sizeof(m->like), "%s", k->string);
	a->family = oom_family_find(a->model_type);
	return OOM_OK;
}

enum oom_status oom_model_load_defaults(struct oom_model *m, struct oom_error *err)
{
	enum oom_status st;

	oom_keys_release(&m->defaults);
	st = oom_keys_defaults(&m->defaults, m->arch.model_type, err);
	if (st == OOM_ERR_MEMORY)
		return st;
	/* a type the table does not have: the config must say it all */
	if (st)
		memset(&m->defaults, 0, sizeof(m->defaults));
	return OOM_OK;
}

/* Whether the config says what the row of a remote type asks of it ("only"). */
static bool row_holds(const struct oom_model *m)
{
	char path[160];

	for (size_t i = 0; i < m->defaults.n; i++) {
		const struct oom_key *only = &m->defaults.items[i], *k;

		if (strncmp(only->path, "only.", 5))
			continue;
		snprintf(path, sizeof(path), "%s%s", m->prefix, only->path + 5);
		k = oom_keys_find(m->keys, path);
		if (k && (k->type != only->type || k->number != only->number))
			return false;
	}
	return true;
}

/* A type whose code lies in its models' repositories, and was read. */
static void find_remote(struct oom_model *m)
{
	struct oom_arch *a = &m->arch;

	if (!oom_keys_find(&m->defaults, "as"))
		return;
	if (row_holds(m))
		a->family = oom_family_remote(&m->defaults, a->model_type);
	if (!a->family) {
		oom_keys_release(&m->defaults);
		return;
	}
	a->approximate = true;
	snprintf(m->note, sizeof(m->note),
		 "model type \"%s\": its code lies in its models' own repositories. Parameters are "
		 "counted as that code makes them, activations as transformers' own %s runs "
		 "(estimated).",
		 m->type, oom_keys_find(&m->defaults, "as")->string);
}

/* Sizes that no model can have together.  Read from the architecture, whatever its keys are called. */
static enum oom_status check_sizes(struct oom_model *m)
{
	struct oom_arch *a = &m->arch;

	if (a->n_layers > OOM_MAX_LAYERS)
		return oom_error_set(&a->rd.err, OOM_ERR_INVALID, "%s: %llu layers (%s): more than %d",
				     m->keys->file, (unsigned long long)a->n_layers,
				     oom_read_where(&a->rd, a->n_layers), OOM_MAX_LAYERS);
	if (a->n_heads && !a->head_dim)
		return oom_error_set(&a->rd.err, OOM_ERR_INVALID,
				     "%s: hidden_size (%llu) is smaller than num_attention_heads (%llu)",
				     m->keys->file, (unsigned long long)a->d_model,
				     (unsigned long long)a->n_heads);
	if (a->n_heads && a->n_kv_heads && a->n_heads % a->n_kv_heads)
		return oom_error_set(&a->rd.err, OOM_ERR_INVALID,
				     "%s: num_attention_heads (%llu) is not a multiple of "
				     "num_key_value_heads (%llu)",
				     m->keys->file, (unsigned long long)a->n_heads,
				     (unsigned long long)a->n_kv_heads);
	return OOM_OK;
}

/* Layers beyond the config's, which --num-layers asks for: they go on in the pattern of those there are, else as the last
 * one does. */
static void continue_kinds(struct oom_arch *a)
{
	const uint64_t n = a->n_layers;
	uint64_t period = 1, i;

	for (i = n; i < OOM_MAX_LAYERS; i++)
		if (a->kind[i])                 /* another stack's */
			return;
	for (; period < n; period++) {
		for (i = period; i < n && a->kind[i] == a->kind[i - period];)
			i++;
		if (i == n)
			break;
	}
	for (i = n; n && i < OOM_MAX_LAYERS; i++)
		a->kind[i] = a->kind[period < n ? i - period : n - 1];
}

/* Of a composition its text model's. */
static const struct oom_family *text_family(const struct oom_arch *a)
{
	return a->vlm && a->vlm->text ? a->vlm->text : a->family;
}

static void find_targets(struct oom_arch *a)
{
	const struct oom_type_targets *t = text_family(a)->type_targets;

	while (t && t->type && strcmp(t->type, a->model_type))
		t++;
	a->targets = t && t->type ? t : NULL;
}

/* The keys as the family reads them. */
static enum oom_status parse(struct oom_model *m)
{
	enum oom_status st;

	m->arch.rd.keys = m->keys;
	m->arch.rd.defaults = &m->defaults;
	m->arch.rd.prefix = m->prefix;
	m->arch.rd.family = m->like;
	m->arch.default_task = OOM_TASK_CAUSAL_LM;
	m->arch.config_labels = oom_read_labels(&m->arch.rd);
	m->arch.router_logits = oom_read_bool(&m->arch.rd, "output_router_logits", false);
	oom_family_parse(m->arch.family, &m->arch);
	if (*m->note) {                         /* louder than what the family has to say */
		char family[sizeof(m->arch.warning)];

		memcpy(family, m->arch.warning, sizeof(family));
		snprintf(m->arch.warning, sizeof(m->arch.warning), "%s%s%.390s", m->note, *family ? " " : "", family);
	}
	st = m->arch.rd.status;
	if (!st)
		st = check_sizes(m);
	if (!st)
		continue_kinds(&m->arch);
	if (st)
		oom_read_explain(&m->arch.rd, OOM_SUSPECT_ANY, &m->arch.rd.err);
	return st;
}

enum oom_status oom_model_new(struct oom_model **out, const struct oom_keys *keys,
			      struct oom_error *err)
{
	struct oom_model *m = calloc(1, sizeof(*m));
	enum oom_status st;

	*out = NULL;
	if (!m)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	m->keys = keys;
	st = find_type(m, err);
	if (!st)
		st = oom_model_load_defaults(m, err);
	if (!st && !m->arch.family)
		find_remote(m);
	if (!st && !m->arch.family)
		st = oom_model_choose_structure(m, err);
	if (!st && (st = parse(m)))
		oom_error_set(err, st, "%s", m->arch.rd.err.text);
	if (st) {
		oom_model_free(m);
		return st;
	}
	choose_task(m);
	find_targets(&m->arch);
	oom_model_read_quantised(m);
	oom_model_read_stored(m);
	oom_model_find_unknown(m);
	st = oom_model_prepare(m);
	if (st) {
		oom_model_free(m);
		return oom_error_set(err, st, "out of host memory");
	}
	oom_model_identify(m);
	*out = m;
	return OOM_OK;
}

void oom_model_free(struct oom_model *m)
{
	if (!m)
		return;
	oom_keys_release(&m->defaults);
	oom_vlm_free(m->arch.vlm);
	free(m->launch);
	free(m);
}

const char *oom_model_type(const struct oom_model *m) { return m->type; }
const char *oom_model_family(const struct oom_model *m) { return m->arch.family->name; }
const char *oom_model_warning(const struct oom_model *m) { return m->arch.warning; }
bool oom_model_known(const struct oom_model *m) { return !*m->note; }
const char *oom_model_unknown_keys(const struct oom_model *m) { return m->unknown; }
enum oom_task oom_model_task(const struct oom_model *m) { return m->arch.default_task; }
const char *oom_model_unasked(const struct oom_model *m, const struct oom_plan *p)
{
	const struct oom_arch *a = &m->arch;

	if (!a->family->unasked || p->images > 0 || p->video_frames > 0 || p->audio_seconds > 0)
		return "";
	return a->family->unasked(a, p->task == OOM_TASK_AUTO ? a->default_task : p->task);
}

/* peft/utils/constants.py; of a composition its text model's. */
const char *oom_model_lora_targets(const struct oom_model *m)
{
	const struct oom_arch *a = &m->arch;
	const struct oom_family *f = text_family(a);

	if (a->targets && a->targets->targets)
		return a->targets->targets;
	return f->lora_targets ? f->lora_targets : "all-linear";
}

struct oom_model_shape oom_model_shape(const struct oom_model *m)
{
	const struct oom_arch *a = &m->arch;

	return (struct oom_model_shape){a->vocab,     a->d_model,    a->d_ff,	  a->n_layers,
					a->n_heads,   a->n_kv_heads, a->head_dim, a->max_positions,
					a->n_experts, a->image_size,
					a->image_step ? a->image_step :
					a->patch      ? a->patch :
							32};
}
