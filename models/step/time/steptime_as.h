/* The step time on a card of a given class: what fits and their tests try. */
#ifndef OOM_TIME_STEPTIME_AS_H
#define OOM_TIME_STEPTIME_AS_H

#include "cards.h"
#include "oomplan/steptime.h"

struct oom_step_time oom_step_time_as(const struct oom_card_class *c, const struct oom_plan *plan,
				      const struct oom_eval *eval, const struct oom_gpu *gpu);

/* Bytes that kernels beside the products move in a micro-step; cast_bytes: of an element that products read in 8 bits. */
double oom_moved_bytes(const struct oom_plan *plan, const struct oom_work *work, double cast_bytes);

/* interval.c: sets low_s and high_s of a step whose parts are known. */
void oom_time_interval(const struct oom_card_class *c, const struct oom_plan *plan, const struct oom_eval *eval,
		       const struct oom_gpu *gpu, struct oom_step_time *t);

#endif
