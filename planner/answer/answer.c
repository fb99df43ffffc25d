/* One plan of a question: priced, and judged by the card, the calibration, the host and the evaluation. */
#include "oomplan/answer.h"

#include <math.h>
#include <string.h>

#include "parts.h"

/* Plans without a card: headroom as on one of 24 GiB. */
#define USUAL_CARD (24.0 * 1073741824.0)

/* ---- one question at work ---- */

enum oom_status asker_price(const struct asker *a, const struct oom_plan *p, struct oom_eval *e)
{
	return oom_evaluate(a->ev, a->q.model, p, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, e, a->err);
}

static struct margins margins_of(const struct oom_question *q, const struct oom_calibration *c)
{
	return (struct margins){.calibration = c,
				.confidence = q->confidence,
				.asked = q->plan.margin,
				.capacity = q->capacity_bytes ? (double)q->capacity_bytes :
								USUAL_CARD};
}

enum oom_status asker_start(struct asker *a, struct oom_evaluator *ev, const struct oom_question *q,
			    struct oom_error *err)
{
	struct oom_compat *const rules = q->rules ? q->rules : &a->own_rules;

	*a = (struct asker){.q = *q, .ev = ev, .err = err};
	if (!q->model)
		return oom_error_set(err, OOM_ERR_INVALID, "a question about no model");
	oom_question_settle(&a->q);
	a->plan = a->q.plan;
	a->of_kind = &a->kind;
	a->margins = margins_of(&a->q, asker_calibration(a, &a->plan));
	if (!ev)
		a->ev = a->own = oom_evaluator_new();
	a->compat = rules;
	return a->ev ? oom_compat_renew(rules, a->q.model, &a->plan, a->q.gpu, err) :
		       oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
}

bool asker_calibrates(const struct asker *a)
{
	return a->q.calibration || a->q.by_kind;
}

const struct oom_calibration *asker_calibration(const struct asker *a, const struct oom_plan *p)
{
	struct asker_kind *k = a->of_kind;

	if (!a->q.by_kind)
		return a->q.calibration;
	if (k->name != oom_kind_of_run(p))
		k->there = oom_calibration_of_kind(&k->calibration, p, &k->name);
	return k->there ? &k->calibration : NULL;
}

void asker_take_margin(struct asker *a)
{
	struct oom_eval e;

	if (a->margins.calibration && !oom_evaluate(a->ev, a->q.model, &a->plan,
					      OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &e, NULL))
		a->plan.margin = margin_for(&a->margins, &e);
}

enum oom_status asker_finish(struct asker *a, enum oom_status st)
{
	if (a->ev && oom_evaluator_starved(a->ev) && !st)
		st = oom_error_set(a->err, OOM_ERR_MEMORY, "out of host memory");
	oom_evaluator_free(a->own);
	return st;
}

/* ---- judging ---- */

struct oom_expectation oom_question_expects(const struct oom_question *q, const struct oom_plan *plan,
					    const struct oom_eval *e)
{
	struct oom_calibration own;
	const char *kind;
	const struct oom_calibration *c = !q->by_kind					   ? q->calibration :
					  oom_calibration_of_kind(&own, plan, &kind) ? &own :
										       NULL;
	const struct margins m = margins_of(q, c);
	const struct oom_parts p = oom_parts_of(e);
	const double capacity = (double)q->capacity_bytes;

	if (!c)
		return (struct oom_expectation){.margin = q->plan.margin,
						.used_bytes = (double)e->used_bytes};
	return (struct oom_expectation){
		.margin = margin_for(&m, e),
		.used_bytes = oom_calibrated(c, &p, OOM_MEASURE_USED),
		.low95_bytes = oom_calibrated_interval(c, &p, OOM_MEASURE_USED, 0.025),
		.high95_bytes = oom_calibrated_interval(c, &p, OOM_MEASURE_USED, 0.975),
		.needed_bytes = margins_need(&m, e),
		.probability = q->capacity_bytes ?
				       oom_calibrated_fits(c, &p, OOM_MEASURE_USED, capacity) :
				       NAN};
}

bool asker_on_card(const struct asker *a, const struct oom_plan *p, const struct oom_eval *e, bool in_budget)
{
	const struct margins m = margins_of(&a->q, asker_calibration(a, p));

	return m.calibration && a->q.capacity_bytes ? margins_need(&m, e) <= (double)a->q.capacity_bytes :
						      in_budget;
}

enum oom_status asker_judge(const struct asker *a, struct oom_plan *p, struct oom_eval *e, bool *fits)
{
	enum oom_status st;

	p->margin = a->q.plan.margin;
	st = oom_judge(a->ev, a->q.model, p, a->q.capacity_bytes, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, e, fits, a->err);
	*fits = !st && asker_on_card(a, p, e, *fits);
	return st;
}

/* What is reported as the evaluation's phase is that of its own batch, as a run meets it: between steps.  Where
 * logits pile up it already is. */
static void evaluation(const struct asker *a, const struct oom_plan *p, struct oom_judged *out)
{
	const struct oom_evaluation between = oom_evaluation_of(a->ev, a->q.model, p);

	out->eval_used_bytes = oom_evaluation_is_priced(p) ? out->eval.used_bytes : between.used_bytes;
	out->eval_fits = !a->q.capacity_bytes ||
			 out->eval_used_bytes <= oom_budget(a->q.capacity_bytes, &out->plan);
	if (p->eval_accumulation)
		return;
	out->eval.peak[OOM_PHASE_EVAL] = between.allocated_bytes;
	out->eval.end[OOM_PHASE_EVAL] = between.left_bytes;
}

void asker_judged(const struct asker *a, const struct oom_plan *p, const struct oom_eval *e,
		   bool in_budget, struct oom_judged *out)
{
	*out = (struct oom_judged){.plan = *p, .eval = *e, .host = oom_host_need(p, e)};
	out->plan.margin = a->q.plan.margin;    /* the calibration's is no part of the plan */
	out->fits_gpu = asker_on_card(a, p, e, in_budget);
	evaluation(a, p, out);
	if (p->evaluates == OOM_EVALUATES_YES)
		out->fits_gpu = out->fits_gpu && out->eval_fits;
	out->first_limit = oom_first_limit(&out->host, a->q.host_ram_bytes, out->fits_gpu);
	out->fits = out->fits_gpu &&
		    oom_first_limit(&out->host, a->q.host_ram_bytes, true) == OOM_LIMIT_NONE;
	out->expected = oom_question_expects(&a->q, p, e);
	out->broken = oom_compat_broken(a->compat, p, &a->plan);
	out->launches = oom_compat_launches(a->compat, p);
}

enum oom_status oom_answer_as_asked(struct oom_evaluator *ev, const struct oom_question *q,
				    struct oom_judged *out, struct oom_error *err)
{
	struct oom_eval e;
	struct asker a;
	enum oom_status st = asker_start(&a, ev, q, err);
	bool in_budget = true;

	if (!st && a.q.capacity_bytes)
		st = oom_judge(a.ev, a.q.model, &a.plan, a.q.capacity_bytes,
			       OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &e, &in_budget, err);
	else if (!st)
		st = asker_price(&a, &a.plan, &e);
	if (!st)
		asker_judged(&a, &a.plan, &e, in_budget, out);
	return asker_finish(&a, st);
}

enum oom_status oom_answer_anatomy(struct oom_evaluator *ev, const struct oom_model *model,
				   const struct oom_judged *j, struct oom_anatomy *out, struct oom_error *err)
{
	uint64_t *between, sum = 0;
	struct oom_plan q = j->plan;
	struct oom_anatomy other;
	struct oom_eval e;
	enum oom_status st = oom_anatomy(ev, model, &j->plan, &j->eval, out, err);

	if (st || !j->eval.peak[OOM_PHASE_EVAL] || q.eval_accumulation)
		return st;
	q.micro_batch = q.eval_batch;
	q.grad_accum = 1;
	q.global_batch = 0;
	st = oom_evaluate(ev, model, &q, OOM_EVAL_BUCKETS, &e, err);
	if (!st)
		st = oom_anatomy(ev, model, &q, &e, &other, err);
	if (st)
		return st;
	between = out->bucket[OOM_PHASE_EVAL];
	memcpy(between, other.bucket[OOM_PHASE_EVAL], sizeof(out->bucket[0]));
	for (int b = 0; b < OOM_BUCKETS; b++)
		sum += between[b];
	/* what it has above an evaluation before the first step is the optimizer's */
	between[OOM_BUCKET_OPT] += j->eval.peak[OOM_PHASE_EVAL] - sum;
	return OOM_OK;
}
