/* Which modules the plan's LoRA adapts: PEFT matches their names against target_modules, of which
 * transformers 5 has renamed some. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters.h"
#include "config/arch.h"
#include "plan/pattern.h"

bool oom_lora_names(const struct oom_tape *t, const char *word)
{
	const char *targets = t->plan->lora_targets;

	return oom_is_pattern(targets) ? oom_pattern_matches(targets, word) :
					 oom_targets_name(targets, word);
}

/* Whether a plan's targets take more than the last word of a path to read. */
static bool wants_path(const struct oom_plan *p)
{
	return oom_is_pattern(p->lora_targets) || strchr(p->lora_targets, '.') ||
	       *p->exclude_modules;
}

/* The module made last that has this word; NULL: a view of another one's weight. */
static struct oom_param *made_last(const struct oom_tape *t, const char *word)
{
	for (size_t i = t->cursor; i > 0 && i + 4 > t->cursor; i--)
		if (t->params[i - 1].scope && !strcmp(t->params[i - 1].scope, word))
			return &t->params[i - 1];
	return NULL;
}

/* PEFT's check_target_module_exists: exclude_modules first, then the targets, over the whole path. */
static bool by_path(const struct oom_tape *t, const struct oom_param *p, const char *word, bool all)
{
	const struct oom_plan *plan = t->plan;
	char path[OOM_PATH_SIZE];

	if (p)
		oom_param_path(t, p, path);
	else
		snprintf(path, sizeof(path), "%s", word);
	if (*plan->exclude_modules && oom_targets_name(plan->exclude_modules, path))
		return false;
	return all || oom_targets_name(plan->lora_targets, path);
}

/* LoraConfig(rank_pattern=): of the first key that is the module's path or its end, as
 * re.match(rf"(.*\.)?({key})$") takes it (peft/utils/other.py get_pattern_key). */
uint64_t oom_lora_rank(const struct oom_tape *t, const char *word)
{
	const struct oom_param *p = *t->plan->rank_pattern ? made_last(t, word) : NULL;
	char path[OOM_PATH_SIZE], key[OOM_NAMES_SIZE];
	const char *s = t->plan->rank_pattern;

	if (p)
		oom_param_path(t, p, path);
	else
		snprintf(path, sizeof(path), "%s", word);
	while (*s) {
		const size_t n = strcspn(s, "+"), name = strcspn(s, ":");

		snprintf(key, sizeof(key), "%.*s", (int)(name < n ? name : n), s);
		if (name < n && oom_targets_name(key, path))
			return strtoull(s + name + 1, NULL, 10);
		s += n + (s[n] == '+');
	}
	return (uint64_t)t->plan->lora_r;
}

/* One of layers-to-transform; what is in no layer is none of them (tuners_utils.py,
 * check_target_module_exists). */
bool oom_adapter_here(const struct oom_tape *t)
{
	const char *s = t->plan->layers_to_transform;
	char *end;

	while (*s) {
		const long n = strtol(s, &end, 10);

		if (end == s)
			return false;
		if (n == t->selection.layer)
			return true;
		s = end + (*end == '+' || *end == ',');
	}
	return !*t->plan->layers_to_transform;
}

bool oom_lora_takes(const struct oom_tape *t, struct oom_param *p, const char *word, bool all)
{
	bool yes;

	/* what runs again has been decided on */
	if (p && p->adapted)
		return p->adapted == 2;
	/* a module that is saved whole has no adapter (tuners_utils.py check_target_module_exists) */
	if (oom_selection_frozen_part(t) || !oom_adapter_here(t) || (p && p->flags & OOM_P_SAVED))
		yes = false;
	else if (wants_path(t->plan))
		yes = by_path(t, p, word, all);
	else
		yes = all || oom_lora_names(t, word);
	if (p)
		p->adapted = yes ? 2 : 1;
	return yes;
}

/* ---- names translated into parameters (lora_param.c says of which) ---- */

static const char *const mixtral_like[] = {"mixtral", "minimax", "minimax_m2", NULL};
static const char *const qwen2_moe_like[] = {
	"afmoe",	"deepseek_v2", "deepseek_v3",	"deepseek_v32", "dots1",
	"ernie4_5_moe", "glm4_moe",    "glm4_moe_lite", "glm_moe_dsa",	"longcat_flash",
	"solar_open",	"mellum",      "qwen3_moe",	"qwen3_next",	"hunyuan_v1_moe",
	"flex_olmo",	"olmoe",       "exaone_moe",	"cohere2_moe",
	"glm4v_moe",	"qwen3_omni_moe", "qwen3_omni_moe_thinker", NULL};

static bool one_of(const char *const *list, const char *word)
{
	for (; *list; list++)
		if (!strcmp(*list, word))
			return true;
	return false;
}

bool oom_lora_takes_all(const struct oom_tape *t)
{
	return oom_plan_adapted(t->plan) && !strcmp(t->plan->lora_targets, "all-linear");
}

uint64_t oom_lora_stacked_rank(const struct oom_tape *t)
{
	return oom_plan_adapted(t->plan) && oom_adapter_of(t->plan)->parameters ?
		       (uint64_t)t->plan->lora_r : 0;
}

enum oom_lora_words oom_lora_words(const struct oom_tape *t)
{
	/* PEFT asks for model.config.model_type: a composition's own, whatever its text model is */
	const char *type = t->arch->vlm ? t->arch->config_type : t->arch->model_type;

	return one_of(mixtral_like, type)   ? OOM_LORA_MIXTRAL :
	       one_of(qwen2_moe_like, type) ? OOM_LORA_QWEN2_MOE :
					      OOM_LORA_PLAIN;
}

bool oom_lora_translated(const struct oom_tape *t, const char *word)
{
	static const char *const words[][5] = {
		[OOM_LORA_PLAIN] = {NULL},
		[OOM_LORA_MIXTRAL] = {"gate", "w1", "w2", "w3", NULL},
		[OOM_LORA_QWEN2_MOE] = {"gate", "gate_proj", "up_proj", "down_proj", NULL}};

	return t->plan->moe_experts == OOM_EXPERTS_FUSED && oom_lora_stacked_rank(t) &&
	       one_of(words[oom_lora_words(t)], word);
}

/* ---- linear layers ---- */

/* PEFT matches the last word of the module's name; all-linear takes every linear layer but the one
 * that get_output_embeddings() names, which classifiers do not have: without a task type their head
 * is adapted too (peft/tuners/tuners_utils.py _maybe_include_all_linear_layers). */
bool oom_lora_adapts(const struct oom_tape *t, const char *name, unsigned flags)
{
	const bool classifier = t->task == OOM_TASK_SEQ_CLS || t->task == OOM_TASK_TOKEN_CLS ||
				t->task == OOM_TASK_IMAGE_CLS;
	const bool all = oom_lora_takes_all(t);

	if (!oom_plan_adapted(t->plan) || flags & OOM_NO_LORA || oom_lora_translated(t, name))
		return false;
	if (all && (flags & OOM_LORA_NOT_ALL || (flags & OOM_IS_HEAD && !classifier)))
		return false;
	return oom_lora_takes(t, made_last(t, name), name, all);
}
