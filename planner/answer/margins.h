/* Headroom that a calibration asks for.
 *
 * Ladder, search and solver compare predictions with a budget and know no terms.  They are given the
 * margin under which a run composed like the plan is judged right; where what they find is composed
 * otherwise, they are asked again with its margin. */
#ifndef OOM_MARGINS_H
#define OOM_MARGINS_H

#include "oomplan/calibrate.h"
#include "oomplan/plan.h"

struct margins {
	const struct oom_calibration *calibration;      /* NULL: the plan's margin stands */
	double confidence, asked;       /* the plan's margin, where confidence is 0 */
	double capacity;                /* of the card, bytes */
	int round;
};

/* The margin for runs composed like e, which has buckets. */
double margin_for(const struct margins *m, const struct oom_eval *e);
/* Bytes a card must have for it. */
double margins_need(const struct margins *m, const struct oom_eval *e);
/* True: what was found, e, needs another margin, now the plan's; ask once more. */
bool margins_again(struct margins *m, struct oom_plan *plan, const struct oom_eval *e);

#endif
