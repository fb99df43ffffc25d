/* Whether a plan fits: what the cheap bounds say, and where they do not decide, a replay. */
#include "oomplan/model.h"

#include "step/program.h"

uint64_t oom_budget(uint64_t capacity, const struct oom_plan *p)
{
	return (uint64_t)((double)capacity * (1 - p->margin));
}

/* What is allocated is reserved in any case.  The upper bound is a guess, twice that and some segments
 * that hardly anything fills: replays of all model types under a dozen plans stay below 1.75 times
 * from 200 MiB on, and of the smallest, at 10 MiB, below three times. */
#define FEW_SEGMENTS ((uint64_t)64 << 20)

enum oom_decision oom_decide(const struct oom_eval *e, uint64_t budget)
{
	const uint64_t outside = e->used_bytes - e->reserved_bytes;

	if (outside + e->overall_peak > budget)
		return OOM_DOES_NOT_FIT;
	if (e->reserved_replayed)
		return e->used_bytes <= budget ? OOM_FITS : OOM_UNDECIDED;
	return outside + 2 * e->overall_peak + FEW_SEGMENTS <= budget ? OOM_FITS : OOM_UNDECIDED;
}

enum oom_status oom_judge(struct oom_evaluator *ev, const struct oom_model *model,
			  const struct oom_plan *plan, uint64_t capacity, unsigned flags,
			  struct oom_eval *out, bool *fits, struct oom_error *err)
{
	const uint64_t budget = oom_budget(capacity, plan);
	enum oom_status st = oom_evaluate_on(ev, model, plan, budget, flags, out, err);

	if (!st && !(flags & OOM_EVAL_REPLAY) && oom_decide(out, budget) == OOM_UNDECIDED)
		st = oom_evaluate_on(ev, model, plan, budget, flags | OOM_EVAL_REPLAY, out, err);
	*fits = !st && out->used_bytes <= budget;
	return st;
}
