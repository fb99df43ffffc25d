/* What must be true of every evaluation. */
#ifndef OOM_SOUND_H
#define OOM_SOUND_H

#include <stdbool.h>

#include "oomplan/model.h"

/* OOM_ERR_INVALID where e is too large to be meant (1 EiB), OOM_ERR_INTERNAL with the question where
 * it contradicts itself: a phase that peaks below its end, a peak below what is alive.  buckets: whether
 * e->bucket is filled in. */
enum oom_status oom_sound(const struct oom_model *model, const struct oom_plan *plan,
			  const struct oom_eval *e, bool buckets, struct oom_error *err);
/* The same of what is said of the card, where the rest has been checked: reserved and used bytes. */
enum oom_status oom_sound_on_card(const struct oom_model *model, const struct oom_plan *plan,
				  const struct oom_eval *e, struct oom_error *err);

#endif
