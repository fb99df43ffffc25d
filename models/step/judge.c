/* Whether a plan fits: what the cheap bounds say, and where they do not decide, a replay. */
#include "oomplan/model.h"

#include "step/program.h"

uint64_t oom_budget(uint64_t capacity, const struct oom_plan *p)
{
	/* vLLM counts its share from the whole card (vllm/v1/worker/gpu_worker.py); awake it holds it */
	const double left = 1 - p->margin - (p->vllm_sleep ? 0 : p->vllm_share);

	return left > 0 ? (uint64_t)((double)capacity * left) : 0;
}

uint64_t oom_rollout_bytes(uint64_t capacity, const struct oom_plan *p)
{
	return (uint64_t)((double)capacity * p->vllm_share);
}

/* A sleeping engine wakes up when the step is through and the cache was emptied: what then lies on the
 * card are weights and states (trl/generation/vllm_generation.py). */
static bool wakes(const struct oom_eval *e, uint64_t capacity, const struct oom_plan *p)
{
	return !p->vllm_sleep || e->used_bytes - e->reserved_bytes + e->end[OOM_PHASE_OPT2] +
						 oom_rollout_bytes(capacity, p) <=
					 oom_budget(capacity, p);
}

enum oom_decision oom_decide_on(const struct oom_eval *e, uint64_t capacity, const struct oom_plan *p)
{
	return wakes(e, capacity, p) ? oom_decide(e, oom_budget(capacity, p)) : OOM_DOES_NOT_FIT;
}

/* What is allocated is reserved in any case.  The upper bound is a guess, twice that and some segments
 * that hardly anything fills: replays of all model types under a dozen plans stay below 1.75 times
 * from 200 MiB on, and of the smallest, at 10 MiB, below three times; what FSDP1's units were joined of
 * comes on top. */
#define FEW_SEGMENTS ((uint64_t)64 << 20)

enum oom_decision oom_decide(const struct oom_eval *e, uint64_t budget)
{
	const uint64_t outside = e->used_bytes - e->reserved_bytes;

	if (outside + e->overall_peak > budget)
		return OOM_DOES_NOT_FIT;
	if (e->reserved_replayed)
		return e->used_bytes <= budget ? OOM_FITS : OOM_UNDECIDED;
	return outside + 2 * e->overall_peak + e->wrap_bytes + FEW_SEGMENTS <= budget ? OOM_FITS : OOM_UNDECIDED;
}

enum oom_status oom_judge(struct oom_evaluator *ev, const struct oom_model *model,
			  const struct oom_plan *plan, uint64_t capacity, unsigned flags,
			  struct oom_eval *out, bool *fits, struct oom_error *err)
{
	const uint64_t budget = oom_budget(capacity, plan);
	enum oom_status st = oom_evaluate_on(ev, model, plan, budget, flags, out, err);

	if (!st && !(flags & OOM_EVAL_REPLAY) && oom_decide(out, budget) == OOM_UNDECIDED) {
		ev->verdict_only = flags & OOM_EVAL_VERDICT;
		st = oom_evaluate_on(ev, model, plan, budget, flags | OOM_EVAL_REPLAY, out, err);
		ev->verdict_only = false;
	}
	*fits = !st && out->used_bytes <= budget && wakes(out, capacity, plan);
	return st;
}

bool oom_evaluation_is_priced(const struct oom_plan *p)
{
	return p->eval_accumulation && !oom_rank_engine_of(p);
}

/* The forward pass of the evaluation's batch above weights and states.  What the allocator keeps of
 * training is given back when it is needed: the share of reserved over allocated bytes is the
 * estimate's. */
struct oom_evaluation oom_evaluation_of(struct oom_evaluator *ev, const struct oom_model *model,
					const struct oom_plan *p)
{
	struct oom_evaluation out = {0};
	struct oom_plan q = *p;
	struct oom_eval e;
	uint64_t states;

	/* where logits pile up the plan's own phase is that of its evaluation's batch (evaluate.c) */
	if (!oom_evaluation_is_priced(p)) {
		q.micro_batch = p->eval_batch;
		q.grad_accum = 1;
		q.global_batch = 0;
	}
	if (p->evaluates == OOM_EVALUATES_NO ||
	    oom_evaluate(ev, model, &q, p->eval_accumulation ? OOM_EVAL_REPLAY : OOM_EVAL_FAST, &e, NULL) ||
	    !e.overall_peak)
		return out;
	/* where logits pile up the phase has the states in it already (oom_pile_up) */
	states = !q.eval_accumulation && e.end[OOM_PHASE_OPT2] > e.end[OOM_PHASE_LOAD] ?
			 e.end[OOM_PHASE_OPT2] - e.end[OOM_PHASE_LOAD] :
			 0;
	out.allocated_bytes = e.peak[OOM_PHASE_EVAL] + states;
	out.left_bytes = e.end[OOM_PHASE_EVAL] + states;
	out.used_bytes = e.used_bytes - e.reserved_bytes +
			 (uint64_t)((double)out.allocated_bytes *
				    ((double)e.reserved_bytes / (double)e.overall_peak));
	return out;
}

uint64_t oom_evaluation_bytes(struct oom_evaluator *ev, const struct oom_model *model,
			      const struct oom_plan *p)
{
	return oom_evaluation_of(ev, model, p).used_bytes;
}

bool oom_evaluation_fits(struct oom_evaluator *ev, const struct oom_model *model,
			 const struct oom_plan *p, uint64_t capacity)
{
	struct oom_eval e;
	bool fits;

	if (p->evaluates != OOM_EVALUATES_YES)
		return true;
	if (oom_evaluation_is_priced(p))
		return !oom_judge(ev, model, p, capacity, OOM_EVAL_REPLAY, &e, &fits, NULL) && fits;
	return oom_evaluation_bytes(ev, model, p) <= oom_budget(capacity, p);
}
