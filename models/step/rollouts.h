/* Answers that the trained model gives within the step, before it learns from them. */
#ifndef OOM_ROLLOUTS_H
#define OOM_ROLLOUTS_H

#include "step/program.h"

/* Whether the plan's step generates with the model that is trained, and not with an engine of its own. */
bool oom_plan_generates(const struct oom_plan *p);
/* The peak of that phase of a step after the first, above weights and states: out->peak[OOM_PHASE_ROLLOUTS],
 * and the overall peak where it is higher.  0 where nothing is generated.  The phases have been read. */
enum oom_status oom_rollouts(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
			     struct oom_eval *out, struct oom_alive *alive, struct oom_error *err);

#endif
