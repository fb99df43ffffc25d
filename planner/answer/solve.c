/* Inverse questions: the largest value of a knob, the longest sequence. */
#include <string.h>

#include "parts.h"

/* Settling takes the knob back to nothing whatever it is, as the sequence of a model of images. */
static bool taken_back(const struct asker *a, const struct oom_option *knob)
{
	struct oom_plan p = a->plan;
	char note[300];

	if (!knob || knob->kind != OOM_OPTION_COUNT)
		return false;
	*oom_plan_field(&p, knob) = 2;
	oom_plan_settle_for(&p, a->q.model, note);
	return *oom_plan_field(&p, knob) == 0;
}

/* A calibration's word on a plan is estimate's: of what the plan takes under the margin it was asked with. */
static enum oom_status judge(void *ctx, struct oom_plan *p, struct oom_eval *e, bool *fits)
{
	return asker_judge(ctx, p, e, fits);
}

/* The card that a calibration asks for, and whoever evaluates: both have to fit. */
static void need(const struct asker *a, struct oom_solution *out)
{
	const uint64_t step = (uint64_t)margins_need(&a->margins, &out->eval) + 1;
	const double evaluation = a->q.plan.evaluates == OOM_EVALUATES_YES ?
					  (double)oom_evaluation_bytes(a->ev, a->q.model, &a->q.plan) :
					  0;
	const uint64_t with = (uint64_t)(evaluation / (1 - a->q.plan.margin)) + 1;

	out->needed_bytes = step > with ? step : with;
	out->plan.margin = 1 - (double)out->eval.used_bytes / (double)out->needed_bytes;
}

/* The query's knob, step, changes and range are the caller's, the rest is the question's. */
static enum oom_status solve(struct oom_evaluator *ev, const struct oom_question *q, struct oom_solve_query s,
			     struct oom_solution *out, struct oom_error *err)
{
	const char *knob = s.knob;
	struct asker a;
	enum oom_status st = asker_start(&a, ev, q, err);

	if (!st && !a.q.capacity_bytes && strcmp(knob, "gpu-memory"))
		st = oom_error_set(err, OOM_ERR_INVALID, "%s", ASKER_NO_CARD);
	if (!st && taken_back(&a, oom_knob_find(knob)))
		st = oom_error_set(err, OOM_ERR_INVALID, "%s has no effect on a model of type %s", knob,
				   oom_model_type(a.q.model));
	/* what a search compares with; one plan is judged by itself */
	if (!st && s.exact_changes)
		asker_take_margin(&a);
	s.plan = &a.plan;
	s.capacity_bytes = a.q.capacity_bytes;
	s.host_ram_bytes = a.q.host_ram_bytes;
	s.gpu = a.q.gpu;
	s.judge = asker_calibrates(&a) ? judge : NULL;
	s.ctx = &a;
	do {
		if (!st)
			st = oom_solve(a.ev, a.q.model, &s, out, err);
		a.margins.calibration = st ? NULL : asker_calibration(&a, &out->plan);
	} while (!st && out->tried && s.exact_changes && !out->needed_bytes &&
		 margins_again(&a.margins, &a.plan, &out->eval));
	if (!st && out->tried) {
		out->plan.margin = a.q.plan.margin;
		if (out->needed_bytes && a.margins.calibration)
			need(&a, out);
	}
	return asker_finish(&a, st);
}

enum oom_status oom_answer_solve(struct oom_evaluator *ev, const struct oom_question *q,
				 const char *knob, int64_t step, bool exact_changes,
				 struct oom_solution *out, struct oom_error *err)
{
	return solve(ev, q,
		     (struct oom_solve_query){.knob = knob, .step = step, .exact_changes = exact_changes}, out,
		     err);
}

enum oom_status oom_answer_lengths(struct oom_evaluator *ev, const struct oom_question *q,
				   int64_t *longest, double *death_step, struct oom_error *err)
{
	struct oom_solution s;
	enum oom_status st;

	*longest = 0;
	*death_step = 0;
	if (!q->lengths)
		return oom_error_set(err, OOM_ERR_INVALID, "no lengths were given");
	if (!q->capacity_bytes && !q->gpu)
		return OOM_OK;
	/* what memory allows, whether or not the model has positions for it */
	st = solve(ev, q, (struct oom_solve_query){.knob = "seq-len", .step = 1, .whole_range = true}, &s, err);
	if (st)
		return st;
	*longest = s.exists ? s.value : 0;
	*death_step = oom_lengths_first_beyond(q->lengths, (double)q->plan.micro_batch,
					       (double)*longest);
	return OOM_OK;
}
