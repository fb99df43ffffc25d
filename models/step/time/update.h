/* Between the files of the step time: a step as its parts see it. */
#ifndef OOM_TIME_UPDATE_H
#define OOM_TIME_UPDATE_H

#include <math.h>

#include "cards.h"
#include "oomplan/steptime.h"

struct oom_time_step {
	const struct oom_plan *plan;
	const struct oom_eval *eval;
	const struct oom_work *work;
	struct oom_speed speed;
	double times;                   /* micro-steps */
	double in_node, on_board;       /* GPUs of an NVLink domain, a node where it is none; of a machine */
	double room;                    /* bytes of the card that the peak leaves */
	double *part;
};

/* Two things at once, of which all but the last bit of the shorter hides. */
static inline double oom_time_hidden(double a, double b)
{
	const double longer = a > b ? a : b, r = a > b ? b / a : a / b;

	return longer > 0 ? longer * sqrt(sqrt(1 + r * r * r * r)) : 0;
}

static inline bool oom_time_autocasts(const struct oom_plan *p)
{
	return p->precision == OOM_AMP_BF16 || p->precision == OOM_AMP_FP16;
}

/* The update, where states are, and what offloading moves. */
void oom_time_update(struct oom_time_step *s);
/* What the optimizer's Python takes, which the card computes beside. */
double oom_update_python_s(const struct oom_work *w);

#endif
