/* The work of a recorded step: what the step time is made of (steptime.c). */
#ifndef OOM_TIME_WORK_H
#define OOM_TIME_WORK_H

#include "oomplan/model.h"
#include "tape/tape.h"

/* While a step is recorded: the training forward is complete; its backward is. */
void oom_work_forward(struct oom_tape *t);
void oom_work_backward(struct oom_tape *t);
/* What was recorded since `before` has no backward: a reference's forward. */
void oom_work_alone(struct oom_tape *t, const struct oom_tally *before);
/* What one element of a monomial adds to the sums; fixed by the recording. */
struct oom_work_term {
	double flops;                   /* forward + backward + recomputation, matrix products only */
	double product, fp32, attention, wide, batched, wide_batched, model, written, bytes;
};
/* One for each monomial, and in *fixed what does not depend on the batch. */
void oom_work_terms(const struct oom_tape *t, struct oom_work_term *term, struct oom_work *fixed);
/* The sums at one batch, of which `mono` are the monomials; returns those of `flops`.  A few
 * multiplications for each monomial; nothing is allocated. */
double oom_work_of(const struct oom_tape *t, const struct oom_work_term *term, const struct oom_work *fixed,
		   const uint64_t *mono, struct oom_work *out);

#endif
