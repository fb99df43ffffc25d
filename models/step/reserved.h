/* Allocated -> reserved -> used. */
#ifndef OOM_RESERVED_H
#define OOM_RESERVED_H

#include "oomplan/model.h"

/* Reserved bytes without a replay: the median ratio of the measured rows; a guess. */
uint64_t oom_reserved_estimate(const struct oom_eval *e, const struct oom_plan *plan);
/* The same, and nothing of what a replay would say. */
void oom_reserve_estimated(struct oom_eval *out, const struct oom_plan *plan);
/* Context, workspaces, communication; used = reserved + those (overheads.c). */
void oom_overheads(struct oom_eval *e, const struct oom_plan *plan);
/* cuBLAS's workspace for a thread, beside what is replayed; 0: the ranks have them among their rows. */
uint64_t oom_workspace_bytes(const struct oom_plan *plan);
/* Both, by a replay where `replays` says so and there is one (reserved.c).  s: of the recorded step, at this batch;
 * NULL where the ranks have schedules of their own. */
struct oom_batch;
struct oom_evaluator;
struct oom_schedule;
enum oom_status oom_reserve(struct oom_evaluator *ev, const struct oom_model *model,
			    const struct oom_plan *plan, bool replays, const struct oom_schedule *s,
			    const struct oom_batch *at, struct oom_eval *out,
			    struct oom_error *err);

#endif
