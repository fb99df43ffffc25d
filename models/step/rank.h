/* One rank of an undivided model. */
#ifndef OOM_RANK_H
#define OOM_RANK_H

#include "step/program.h"
#include "step/schedule.h"

/* The ranks that divide the plan's states. */
struct oom_ranks oom_ranks_of(struct program *g, const struct oom_plan *plan);
/* The plan's schedule: the plain step, then every pass.  Fills the counts of *out (parameters,
 * inputs, gradients, optimizer state).  OOM_ERR_MEMORY, or OOM_OK. */
enum oom_status oom_rank_schedule(struct program *g, const struct oom_arch *arch,
				  const struct oom_plan *plan, const struct oom_batch *at,
				  struct oom_eval *out, struct oom_schedule *s);

#endif
