/* LN tuning: a norm is replaced by a copy of itself that trains, and stays beside it frozen (peft
 * tuners/ln_tuning/layer.py, update_layer).  The copy keeps its type, whatever autocast_adapter_dtype
 * says (tuners/ln_tuning/model.py, _cast_adapter_dtype).  So it is of a norm that is saved whole beside
 * other adapters (utils/other.py, ModulesToSaveWrapper). */
#include <string.h>

#include "adapters.h"
#include "config/arch.h"
#include "plan/pattern.h"

/* The norms that a model type's config names nothing about: peft/utils/constants.py,
 * TRANSFORMERS_MODELS_TO_LNTUNING_TARGET_MODULES_MAPPING.  Of other types PEFT wants target_modules, and all their
 * norms are counted. */
static const struct {
	const char *type, *targets;
} usual[] = {
	{"llama", "input_layernorm+post_attention_layernorm+norm"},
	{"bloom", "input_layernorm+post_attention_layernorm+ln_f"},
	{"t5", "layer_norm+final_layer_norm"},
	{"mt5", "layer_norm+final_layer_norm"},
	{"bart", "self_attn_layer_norm+encoder_attn_layer_norm+final_layer_norm"},
	{"gpt2", "ln_1+ln_2+ln_f"},
	{"gptj", "ln_1+ln_f"},
	{"falcon", "input_layernorm+post_attention_layernorm+ln_f"},
	{"mistral", "input_layernorm+post_attention_layernorm+norm"},
	{"phi", "input_layernorm+final_layernorm"},
	{"gemma", "input_layernorm+post_attention_layernorm+norm"},
	{"gemma2", "input_layernorm+post_attention_layernorm+pre_feedforward_layernorm+post_feedforward_layernorm+norm"},
	{"gemma3_text", "input_layernorm+post_attention_layernorm+pre_feedforward_layernorm+post_feedforward_layernorm+norm"},
	{"qwen2", "post_attention_layernorm"},
	{"qwen3", "post_attention_layernorm"},
};

/* Whether a norm of this name is taken where nobody says which. */
static bool is_usual(const struct oom_tape *t, const char *word)
{
	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		if (!strcmp(t->arch->model_type, usual[i].type))
			return oom_targets_name(usual[i].targets, word);
	return true;
}

static bool is_copied(struct oom_tape *t, struct oom_val own)
{
	if (!t->scope || own.node > -2)
		return false;
	return oom_saves(t->plan, t->scope) || oom_saves_around(t, &t->params[-2 - own.node]) ||
	       (oom_adapter_of(t->plan)->norms && (!oom_lora_takes_all(t) || is_usual(t, t->scope)) &&
		oom_lora_takes(t, &t->params[-2 - own.node], t->scope, oom_lora_takes_all(t)));
}

struct oom_val oom_norm_param(struct oom_tape *t, const char *name, uint64_t width)
{
	const struct oom_val own = oom_param(t, name, 0, width, OOM_P_NORM);

	if (!is_copied(t, own))
		return own;
	return oom_param(t, name, 0, width, OOM_P_NORM | OOM_P_SAVED);
}

const struct oom_adapter oom_adapter_norms = {.norms = true};
