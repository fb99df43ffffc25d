/* Allocated -> reserved -> used, without a replay. */
#ifndef OOM_RESERVED_H
#define OOM_RESERVED_H

#include "oomplan/model.h"

/* Reserved bytes without a replay: the median ratio of the measured rows; a guess. */
uint64_t oom_reserved_estimate(const struct oom_eval *e, const struct oom_plan *plan);
/* Context, workspaces, communication; used = reserved + those. */
void oom_overheads(struct oom_eval *e, const struct oom_plan *plan);

#endif
