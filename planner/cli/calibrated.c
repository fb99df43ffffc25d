/* What a calibration says of a plan: the headroom it asks for, the verdict, the words.
 *
 * The ladder and the searches compare predictions with a budget and know no terms.  They are given
 * the margin under which a run composed like the plan is judged right; where what they find is
 * composed otherwise, they are asked again with its margin. */
#include <math.h>

#include "cli.h"
#include "json.h"

/* Plans without a card: headroom as on one of 24 GiB.  Boxes bring cards of their own (box.c). */
#define USUAL (24.0 * 1073741824.0)

static double capacity_of(const struct oom_target *t)
{
	return t->capacity ? (double)t->capacity : USUAL;
}

static double margin_of(const struct oom_job *job, const struct oom_target *t,
			const struct oom_eval *e)
{
	const struct oom_parts p = oom_parts_of(e);

	return oom_calibrated_margin(&job->calibrated, &p, capacity_of(t), job->confidence,
				     job->margin);
}

int oom_calibration_open(struct oom_job *job)
{
	struct oom_error err = {{0}};
	enum oom_status st;

	job->margin = job->plan.margin;
	if (!job->calibration && !(job->confidence > 0))
		return 0;
	st = job->calibration ? oom_calibration_read(&job->calibrated, job->calibration, &err) :
				oom_calibration_default(&job->calibrated, &err);
	if (st)
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	job->has_calibration = true;
	return 0;
}

void oom_calibration_start(struct oom_job *job, const struct oom_target *t)
{
	struct oom_evaluator *ev = job->has_calibration ? oom_evaluator_new() : NULL;
	struct oom_eval e;

	/* what cannot be evaluated is the command's to say */
	if (ev && !oom_evaluate(ev, t->model, &job->plan, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &e,
				NULL))
		job->plan.margin = margin_of(job, t, &e);
	oom_evaluator_free(ev);
}

double oom_calibrated_need(const struct oom_job *job, const struct oom_eval *e)
{
	const struct oom_parts p = oom_parts_of(e);

	return job->confidence > 0 ? oom_calibrated_bound(&job->calibrated, &p, OOM_MEASURE_USED,
							  job->confidence) :
				     oom_calibrated(&job->calibrated, &p, OOM_MEASURE_USED) /
					     (1 - job->margin);
}

bool oom_calibrated_verdict(const struct oom_job *job, const struct oom_target *t,
			    const struct oom_eval *e, bool fits)
{
	return job->has_calibration && t->capacity ?
		       oom_calibrated_need(job, e) <= (double)t->capacity :
		       fits;
}

bool oom_calibrated_again(struct oom_job *job, const struct oom_target *t,
			  const struct oom_eval *e, int round)
{
	enum { ROUNDS = 12, FREE = 4 };
	double margin;

	if (!job->has_calibration || !t->capacity || round >= ROUNDS)
		return false;
	margin = margin_of(job, t, e);
	/* two compositions may call for one another: after a few rounds headroom only grows */
	if (fabs(margin - job->plan.margin) < 1e-4 ||
	    (round >= FREE && margin < job->plan.margin))
		return false;
	job->plan.margin = margin;
	return true;
}

/* ---- words ---- */

static const char *gib(double b)
{
	static char buf[8][32];
	static int i;

	i = (i + 1) % 8;
	return oom_format_bytes((uint64_t)fmax(b, 0), buf[i], sizeof(buf[i]));
}

const char *oom_calibrated_percent(const struct oom_job *job, const struct oom_target *t,
				   const struct oom_eval *e, char buf[32])
{
	const struct oom_parts p = oom_parts_of(e);
	const double odds = oom_calibrated_fits(&job->calibrated, &p, OOM_MEASURE_USED,
						(double)t->capacity);

	if (odds > 0.9995)
		snprintf(buf, 32, "more than 99.9 %%");
	else if (odds < 0.0005)
		snprintf(buf, 32, "less than 0.1 %%");
	else
		snprintf(buf, 32, odds > 0.9 || odds < 0.1 ? "%.1f %%" : "%.0f %%", 100 * odds);
	return buf;
}

void oom_report_calibrated(const struct oom_job *job, const struct oom_eval *e)
{
	const struct oom_parts p = oom_parts_of(e);
	const struct oom_calibration *c = &job->calibrated;

	if (!job->has_calibration)
		return;
	printf("  calibrated: %s predicted, %s expected (95 %% of runs that are no outlier: %s to "
	       "%s)",
	       gib((double)e->used_bytes), gib(oom_calibrated(c, &p, OOM_MEASURE_USED)),
	       gib(oom_calibrated_interval(c, &p, OOM_MEASURE_USED, 0.025)),
	       gib(oom_calibrated_interval(c, &p, OOM_MEASURE_USED, 0.975)));
	if (job->confidence > 0)
		printf(", %s with %g %%", gib(oom_calibrated_need(job, e)), 100 * job->confidence);
	putchar('\n');
}

void oom_report_calibration_options(FILE *out, const struct oom_job *job)
{
	char buf[40];

	if (!job->has_calibration)
		return;
	if (job->confidence > 0)
		fprintf(out, " --confidence=%g", job->confidence);
	else if (fabs(job->margin - oom_plan_default().margin) > 1e-12) {
		struct oom_plan p = job->plan;

		p.margin = job->margin;
		fprintf(out, " --margin=%s",
			oom_plan_get(&p, oom_knob_find("margin"), buf, sizeof(buf)));
	}
}

void oom_json_terms(struct oom_json *j, const struct oom_calibration *c)
{
	oom_json_array(j, "terms");
	for (int k = 0; k < OOM_TERMS; k++) {
		const enum oom_term t = (enum oom_term)k;
		const struct oom_overhead *o = &c->term[k];
		const double half = oom_term_half_width(c, t, 0.95);

		oom_json_object(j, NULL);
		oom_json_text(j, "name", oom_term_name(t));
		oom_json_text(j, "unit", oom_term_is_bytes(t) ? "bytes" : "factor");
		oom_json_real(j, "value", o->value);
		oom_json_real(j, "default", o->def);
		oom_json_bool(j, "identified", o->state == OOM_TERM_FITTED);
		oom_json_text(j, "state", oom_term_state_str(o->state));
		oom_json_real(j, "standard_error", o->state > OOM_TERM_SHARED ? NAN : o->se);
		oom_json_real(j, "low95", o->state > OOM_TERM_SHARED ? NAN : o->value - half);
		oom_json_real(j, "high95", o->state > OOM_TERM_SHARED ? NAN : o->value + half);
		oom_json_array(j, "with");
		for (int l = 0; l < OOM_TERMS; l++)
			if (o->with >> l & 1)
				oom_json_text(j, NULL, oom_term_name((enum oom_term)l));
		oom_json_end(j);
		oom_json_end(j);
	}
	oom_json_end(j);
}

void oom_json_calibrated(struct oom_json *j, const struct oom_job *job, const struct oom_target *t,
			 const struct oom_eval *e)
{
	const struct oom_calibration *c = &job->calibrated;
	const struct oom_parts p = oom_parts_of(e);

	if (!job->has_calibration)
		return;
	oom_json_object(j, "calibrated");
	oom_json_real(j, "expected_bytes", oom_calibrated(c, &p, OOM_MEASURE_USED));
	oom_json_real(j, "expected_allocated_bytes", oom_calibrated(c, &p, OOM_MEASURE_ALLOCATED));
	oom_json_real(j, "expected_reserved_bytes", oom_calibrated(c, &p, OOM_MEASURE_RESERVED));
	oom_json_real(j, "p025_bytes", oom_calibrated_interval(c, &p, OOM_MEASURE_USED, 0.025));
	oom_json_real(j, "p975_bytes", oom_calibrated_interval(c, &p, OOM_MEASURE_USED, 0.975));
	if (t->capacity)
		oom_json_real(j, "fits_probability",
			      oom_calibrated_fits(c, &p, OOM_MEASURE_USED, (double)t->capacity));
	else
		oom_json_null(j, "fits_probability");
	if (job->confidence > 0)
		oom_json_real(j, "confidence", job->confidence);
	oom_json_real(j, "needed_bytes", oom_calibrated_need(job, e));
	oom_json_terms(j, c);
	oom_json_end(j);
}
