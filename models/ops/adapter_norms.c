/* LN tuning: a norm is replaced by a copy of itself that trains, and stays beside it frozen (peft
 * tuners/ln_tuning/layer.py, update_layer).  The copy keeps its type, whatever autocast_adapter_dtype
 * says (tuners/ln_tuning/model.py, _cast_adapter_dtype).  So it is of a norm that is saved whole beside
 * other adapters (utils/other.py, ModulesToSaveWrapper). */
#include "adapters.h"
#include "config/arch.h"
#include "plan/pattern.h"

/* Whether a norm of this name is taken where nobody says which. */
static bool is_usual(const struct oom_tape *t, const char *word)
{
	const struct oom_type_targets *of = t->arch->targets;

	return !of || !of->norms || oom_targets_name(of->norms, word);
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
