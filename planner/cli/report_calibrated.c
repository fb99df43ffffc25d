/* What a calibration says of a plan, in words and as JSON. */
#include <math.h>

#include "cli.h"
#include "json.h"

const char *oom_calibrated_percent(const struct oom_expectation *x, char buf[32])
{
	const double odds = x->probability;

	if (odds > 0.9995)
		snprintf(buf, 32, "more than 99.9 %%");
	else if (odds < 0.0005)
		snprintf(buf, 32, "less than 0.1 %%");
	else
		snprintf(buf, 32, odds > 0.9 || odds < 0.1 ? "%.1f %%" : "%.0f %%", 100 * odds);
	return buf;
}

void oom_report_calibrated(const struct oom_target *t, const struct oom_eval *e)
{
	const struct oom_expectation x = oom_question_expects(&t->q, e);
	const struct oom_ratios *r = &t->calibration.real[OOM_MEASURE_USED];

	if (t->kind && !t->q.calibration)
		printf("  not calibrated: no reading of this kind (%s) is published that we know of; the margin "
		       "decides (oomplan calibrate, from runs of your own)\n", t->kind);
	if (!t->q.calibration)
		return;
	printf("  calibrated: %s predicted, %s expected (95 %% of runs%s: %s to %s)",
	       oom_gib(e->used_bytes), oom_gib_real(x.used_bytes),
	       t->kind ? "" : " that are no outlier", oom_gib_real(x.low95_bytes),
	       oom_gib_real(x.high95_bytes));
	if (t->q.confidence > 0)
		printf(", %s with %g %%", oom_gib_real(x.needed_bytes), 100 * t->q.confidence);
	putchar('\n');
	if (t->kind)
		printf("  by %zu published readings of real cards, %zu of them of this kind (%s)\n",
		       r->n, r->own, t->kind);
}

/* By quantity: what readings of this kind say. */
static void by_quantity(struct oom_json *j, const struct oom_calibration *c, const struct oom_parts *p)
{
	oom_json_array(j, "readings");
	for (int m = 0; m < OOM_MEASURES; m++) {
		const struct oom_ratios *r = &c->real[m];

		if (!r->n)
			continue;
		oom_json_object(j, NULL);
		oom_json_text(j, "quantity", oom_measure_str((enum oom_measure)m));
		oom_json_real(j, "expected_bytes", oom_calibrated(c, p, (enum oom_measure)m));
		oom_json_real(j, "p025_bytes", oom_calibrated_interval(c, p, (enum oom_measure)m, 0.025));
		oom_json_real(j, "p975_bytes", oom_calibrated_interval(c, p, (enum oom_measure)m, 0.975));
		oom_json_real(j, "readings", (double)r->n);
		oom_json_real(j, "of_this_kind", (double)r->own);
		oom_json_end(j);
	}
	oom_json_end(j);
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

void oom_json_calibrated(struct oom_json *j, const struct oom_target *t, const struct oom_eval *e)
{
	const struct oom_expectation x = oom_question_expects(&t->q, e);
	const struct oom_calibration *c = t->q.calibration;
	const struct oom_parts p = oom_parts_of(e);

	if (!c && !t->kind)
		return;
	oom_json_object(j, "calibrated");
	oom_json_text(j, "basis", !c	  ? "not calibrated: no reading of this kind" :
				  t->kind ? "published readings of real cards" :
					    "runs of your own");
	if (t->kind)
		oom_json_text(j, "kind", t->kind);
	if (!c) {
		oom_json_end(j);
		return;
	}
	if (t->kind)
		by_quantity(j, c, &p);
	oom_json_real(j, "expected_bytes", x.used_bytes);
	oom_json_real(j, "expected_allocated_bytes", oom_calibrated(c, &p, OOM_MEASURE_ALLOCATED));
	oom_json_real(j, "expected_reserved_bytes", oom_calibrated(c, &p, OOM_MEASURE_RESERVED));
	oom_json_real(j, "p025_bytes", x.low95_bytes);
	oom_json_real(j, "p975_bytes", x.high95_bytes);
	if (t->q.capacity_bytes)
		oom_json_real(j, "fits_probability", x.probability);
	else
		oom_json_null(j, "fits_probability");
	if (t->q.confidence > 0)
		oom_json_real(j, "confidence", t->q.confidence);
	oom_json_real(j, "needed_bytes", x.needed_bytes);
	if (!t->kind)
		oom_json_terms(j, c);
	oom_json_end(j);
}
