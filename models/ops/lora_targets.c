/* Which modules the plan's LoRA adapts: PEFT matches their names against target_modules, of which
 * transformers 5 has renamed some. */
#include <string.h>

#include "config/arch.h"
#include "ops.h"

bool oom_lora_names(const struct oom_tape *t, const char *word)
{
	const size_t n = strlen(word);

	for (const char *p = t->plan->lora_targets; p;
	     p = strchr(p, '+') ? strchr(p, '+') + 1 : NULL)
		if (!strncmp(p, word, n) && (p[n] == '+' || !p[n]))
			return true;
	return false;
}

/* ---- names translated into parameters (lora_param.c says of which) ---- */

static const char *const mixtral_like[] = {"mixtral", "minimax", "minimax_m2", NULL};
static const char *const qwen2_moe_like[] = {
	"afmoe",	"deepseek_v2", "deepseek_v3",	"deepseek_v32", "dots1",
	"ernie4_5_moe", "glm4_moe",    "glm4_moe_lite", "glm_moe_dsa",	"longcat_flash",
	"solar_open",	"mellum",      "qwen3_moe",	"qwen3_next",	"hunyuan_v1_moe",
	"flex_olmo",	"olmoe",       "exaone_moe",	"cohere2_moe",	NULL};

static bool one_of(const char *const *list, const char *word)
{
	for (; *list; list++)
		if (!strcmp(*list, word))
			return true;
	return false;
}

enum oom_lora_words oom_lora_words(const struct oom_tape *t)
{
	return one_of(mixtral_like, t->arch->model_type)   ? OOM_LORA_MIXTRAL :
	       one_of(qwen2_moe_like, t->arch->model_type) ? OOM_LORA_QWEN2_MOE :
							     OOM_LORA_PLAIN;
}

bool oom_lora_translated(const struct oom_tape *t, const char *word)
{
	static const char *const words[][5] = {
		[OOM_LORA_PLAIN] = {NULL},
		[OOM_LORA_MIXTRAL] = {"gate", "w1", "w2", "w3", NULL},
		[OOM_LORA_QWEN2_MOE] = {"gate", "gate_proj", "up_proj", "down_proj", NULL}};

	return one_of(words[oom_lora_words(t)], word);
}

/* ---- linear layers ---- */

/* PEFT matches the last word of the module's name; all-linear takes every linear layer but the one
 * that get_output_embeddings() names, which classifiers do not have: without a task type their head
 * is adapted too (peft/tuners/tuners_utils.py _maybe_include_all_linear_layers). */
bool oom_lora_adapts(const struct oom_tape *t, const char *name, unsigned flags)
{
	const bool classifier = t->task == OOM_TASK_SEQ_CLS || t->task == OOM_TASK_IMAGE_CLS;
	const bool all = !strcmp(t->plan->lora_targets, "all-linear");

	if (!t->plan->lora_r || flags & OOM_NO_LORA ||
	    (flags & OOM_IS_HEAD && !(all && classifier)))
		return false;
	if (oom_lora_translated(t, name))
		return false;
	if (all)
		return !(flags & OOM_LORA_NOT_ALL);
	return oom_lora_names(t, name);
}
