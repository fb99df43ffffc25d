/* The margin that a calibration asks for, and how often a question is asked again with it. */
#include "margins.h"

#include <math.h>

double margin_for(const struct margins *m, const struct oom_eval *e)
{
	const struct oom_parts p = oom_parts_of(e);

	return oom_calibrated_margin(m->calibration, &p, m->capacity, m->confidence, m->asked);
}

double margins_need(const struct margins *m, const struct oom_eval *e)
{
	const struct oom_parts p = oom_parts_of(e);

	return m->confidence > 0 ?
		       oom_calibrated_bound(m->calibration, &p, OOM_MEASURE_USED, m->confidence) :
		       oom_calibrated(m->calibration, &p, OOM_MEASURE_USED) / (1 - m->asked);
}

bool margins_again(struct margins *m, struct oom_plan *plan, const struct oom_eval *e)
{
	enum { ROUNDS = 12, FREE = 4 };
	double margin;

	if (!m->calibration || m->round >= ROUNDS)
		return false;
	margin = margin_for(m, e);
	/* two compositions may call for one another: after a few rounds headroom only grows */
	if (fabs(margin - plan->margin) < 1e-4 || (m->round >= FREE && margin < plan->margin))
		return false;
	m->round++;
	plan->margin = margin;
	return true;
}
