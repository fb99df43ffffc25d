/* One value of an inverse question: the plan with it, and whether that fits. */
#include <stdio.h>
#include <string.h>

#include "ladder/moves.h"
#include "oomplan/host.h"
#include "oomplan/rules.h"
#include "parts.h"

int64_t solver_value(const struct solver *s, int64_t steps)
{
	if (s->nodes)
		return steps * s->node;
	return s->node && steps > s->node ? (steps - s->node + 1) * s->node : steps * s->step;
}

/* *whole: the value is one, which of micro-batches under a global batch only its divisors are. */
static struct oom_plan plan_with(const struct solver *s, int64_t value, bool *whole)
{
	struct oom_plan p = s->plan;
	char note[300];

	*oom_plan_field(&p, s->knob) = value;
	/* adapters that nobody had asked for get the family's targets, as for every command */
	if (oom_plan_adapted(&p) && !*p.lora_targets)
		snprintf(p.lora_targets, sizeof(p.lora_targets), "%s",
			 oom_plan_lora_targets(&p, s->model));
	if (value <= p.global_batch && oom_plan_field(&p, s->knob) == &p.micro_batch)
		oom_plan_settle_batch(&p, note);
	if (oom_plan_field(&p, s->knob) == &p.gpus && s->node) {
		p.nodes = value > s->node ? value / s->node : 1;
		/* fewer than a node has are a smaller one */
		if (p.gpus_per_node)
			p.gpus_per_node = value / p.nodes;
	}
	/* more GPUs see a global batch in fewer micro-steps, as whoever asks for them is told */
	if (p.global_batch && oom_plan_field(&p, s->knob) != &p.micro_batch)
		oom_plan_settle_batch(&p, note);
	*whole = *oom_plan_field(&p, s->knob) == value;
	if (oom_plan_field(&p, s->knob) == &p.gpus) {
		oom_plan_settle(&p);
		if (shard_for_many(&p))
			oom_plan_relax(&p);
	}
	return p;
}

uint64_t solver_host_short(const struct solver *s, const struct oom_plan *p, const struct oom_eval *e)
{
	const struct oom_host_need need = oom_host_need(p, e);

	return oom_first_limit(&need, s->q->host_ram_bytes, true) == OOM_LIMIT_NONE ? 0 : need.ram_peak;
}

/* The verdict on one plan, whoever gives it. */
static enum oom_status verdict(const struct solver *s, struct oom_plan *p, unsigned flags, struct oom_eval *e, bool *yes)
{
	return s->q->judge ? s->q->judge(s->q->ctx, p, e, yes) :
			     oom_judge(s->ev, s->model, p, s->q->capacity_bytes, flags, e, yes, s->err);
}

/* The same with exact changes: the search's word. */
static enum oom_status with_changes(const struct solver *s, struct oom_plan *p, unsigned flags,
				    struct oom_eval *e, bool *yes)
{
	const struct oom_search_query q = {.asked = p,
					   .capacity_bytes = s->q->capacity_bytes,
					   .gpu = s->q->gpu,
					   .best_only = true,
					   .verdicts_only = true,
					   .exact_only = true,
					   .keep_batch = s->plain_batch};
	enum oom_status st = oom_evaluate(s->ev, s->model, p, OOM_EVAL_FAST, e, s->err);

	/* the search knows nothing of hosts: what it finds may lack room there where no change at all does not */
	if (!st && s->q->host_ram_bytes) {
		st = verdict(s, p, flags, e, yes);
		if (st || (*yes && !solver_host_short(s, p, e)))
			return st;
	}
	if (!st)
		st = oom_search(s->ev, s->model, &q, s->found, s->err);
	*yes = !st && s->found->found;
	if (*yes)
		*p = s->found->best.plan;
	if (*yes && (flags != OOM_EVAL_FAST || s->q->host_ram_bytes || s->q->judge))
		st = verdict(s, p, flags, e, yes);
	return st;
}

enum oom_status solver_price(const struct solver *s, int64_t steps, unsigned flags,
			     struct oom_eval *e, bool *yes, struct oom_plan *plan)
{
	bool whole;
	struct oom_plan p = plan_with(s, solver_value(s, steps), &whole);
	enum oom_status st = OOM_ERR_INVALID;

	*yes = false;
	if (whole && s->found)
		st = with_changes(s, &p, flags, e, yes);
	else if (whole)
		st = verdict(s, &p, flags, e, yes);
	*yes = *yes && oom_evaluation_fits(s->ev, s->model, &p, s->q->capacity_bytes) && !solver_host_short(s, &p, e);
	if (st)
		e->used_bytes = UINT64_MAX;
	if (plan)
		*plan = p;
	return st == OOM_ERR_INVALID || st == OOM_ERR_LIMIT ? OOM_OK : st;
}

enum oom_status solver_fits(const struct solver *s, int64_t steps, struct oom_eval *e, bool *yes)
{
	return solver_price(s, steps, OOM_EVAL_FAST, e, yes, NULL);
}

enum oom_status solver_next(const struct solver *s, int64_t *value, int64_t most, struct oom_eval *e, bool *yes, bool *ran)
{
	enum { STEPS = 64 };
	enum oom_status st = OOM_OK;

	*ran = *yes = false;
	for (int64_t v = *value; !st && v <= most && v - *value < STEPS; v++) {
		st = solver_fits(s, v, e, yes);
		if (!st && e->used_bytes != UINT64_MAX) {
			*ran = true;
			*value = v;
			return OOM_OK;
		}
	}
	return st;
}
