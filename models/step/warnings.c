/* What an evaluation leaves out or only approximates.  Every sentence is told: a second one is no less true than
 * the first. */
#include "step/warnings.h"

#include <stdio.h>
#include <string.h>

#include "families/model.h"
#include "step/engines.h"

size_t oom_warnings_add(struct oom_eval *out, size_t n, const char *sentence)
{
	if (n < OOM_WARNINGS && sentence && *sentence)
		out->warning[n++] = sentence;
	return n;
}

/* Families that run experts in a way of their own leave them whole. */
static bool quantises_experts(const struct oom_tape *t)
{
	const unsigned both = OOM_P_EXPERT | OOM_P_QUANTISED;

	for (size_t i = 0; i < t->n_params; i++)
		if ((t->params[i].flags & both) == both)
			return true;
	return false;
}

void oom_warnings_collect(const struct oom_tape *t, const struct oom_model *model, const struct oom_plan *plan,
			  struct oom_eval *out)
{
	const struct oom_engine *engine = oom_engine_of(plan);
	size_t n = oom_engine_divides(plan) ? oom_warnings_add(out, 0, engine->approximates) : 0;

	for (size_t i = 0; i < OOM_WARNINGS; i++)
		n = oom_warnings_add(out, n, t->warning[i]);
	n = oom_warnings_add(out, n, oom_model_stored_warning(model, plan));
	if (plan->moe_experts == OOM_EXPERTS_QUANTISED && model->arch.n_experts && !quantises_experts(t))
		n = oom_warnings_add(out, n, "experts of this type are counted in 16 bit: --moe-experts quantised is not modelled for them");
	if (t->approximate)
		n = oom_warnings_add(out, n, "PEFT 0.20 stops with an error on this model with these adapters: the figures are "
					     "what it would hold");
	while (n < OOM_WARNINGS)
		out->warning[n++] = NULL;
}

const char *oom_warnings_of(const struct oom_model *model, const struct oom_eval *e, char buf[OOM_WARNINGS_SIZE])
{
	size_t n = (size_t)snprintf(buf, OOM_WARNINGS_SIZE, "%s", model ? oom_model_warning(model) : "");

	for (size_t i = 0; i < OOM_WARNINGS && e->warning[i] && n < OOM_WARNINGS_SIZE; i++)
		n += (size_t)snprintf(buf + n, OOM_WARNINGS_SIZE - n, "%s%s", n ? "; " : "", e->warning[i]);
	return buf;
}
