/* The composition of every phase's peak, as the schedule is read. */
#include <string.h>

#include "step/phases.h"
#include "step/program.h"

enum oom_status oom_anatomy(struct oom_evaluator *ev, const struct oom_model *model,
			    const struct oom_plan *plan, const struct oom_eval *e,
			    struct oom_anatomy *out, struct oom_error *err)
{
	struct oom_alive alive[OOM_PHASES];
	struct oom_eval again = *e;
	const enum oom_status st = oom_evaluate_phases(ev, model, plan, OOM_EVAL_BUCKETS, &again,
						       alive, err);

	for (int p = 0; !st && p < OOM_PHASES; p++)
		memcpy(out->bucket[p], alive[p].bucket, sizeof(out->bucket[p]));
	return st;
}
