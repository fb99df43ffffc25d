/* Inverse questions: the largest value of a knob, the longest sequence. */
#include <string.h>

#include "answer_parts.h"

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

enum oom_status oom_answer_solve(struct oom_evaluator *ev, const struct oom_question *q,
				 const char *knob, int64_t step, bool exact_changes,
				 struct oom_solution *out, struct oom_error *err)
{
	struct asker a;
	struct oom_solve_query s;
	enum oom_status st = asker_start(&a, ev, q, err);

	if (!st && !a.q.capacity_bytes && strcmp(knob, "gpu-memory"))
		st = oom_error_set(err, OOM_ERR_INVALID, "%s", ASKER_NO_CARD);
	if (!st && taken_back(&a, oom_knob_find(knob)))
		st = oom_error_set(err, OOM_ERR_INVALID, "%s has no effect on a model of type %s", knob,
				   oom_model_type(a.q.model));
	if (!st)
		asker_take_margin(&a);
	s = (struct oom_solve_query){.plan = &a.plan,
				     .knob = knob,
				     .capacity_bytes = a.q.capacity_bytes,
				     .host_ram_bytes = a.q.host_ram_bytes,
				     .step = step,
				     .exact_changes = exact_changes,
				     .gpu = a.q.gpu};
	do {
		if (!st)
			st = oom_solve(a.ev, a.q.model, &s, out, err);
	} while (!st && out->tried && !out->needed_bytes &&
		 margins_again(&a.margins, &a.plan, &out->eval));
	if (!st && out->tried) {
		out->plan.margin = a.q.plan.margin;
		if (out->needed_bytes && a.q.calibration) {
			out->needed_bytes = (uint64_t)margins_need(&a.margins, &out->eval) + 1;
			out->plan.margin = 1 - (double)out->eval.used_bytes /
						       (double)out->needed_bytes;
		}
	}
	asker_finish(&a);
	return st;
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
	st = oom_answer_solve(ev, q, "seq-len", 1, false, &s, err);
	if (st)
		return st;
	*longest = s.exists ? s.value : 0;
	*death_step = oom_lengths_first_beyond(q->lengths, (double)q->plan.micro_batch,
					       (double)*longest);
	return OOM_OK;
}
