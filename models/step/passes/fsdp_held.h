/* What FSDP1 holds of frozen layers through the backward pass. */
#ifndef OOM_FSDP_HELD_H
#define OOM_FSDP_HELD_H

#include "step/rewrite.h"

/* Hook `freed` of the pass. */
bool oom_fsdp_freed(struct oom_rewrite *w, int32_t row);
/* Frozen layers stay whole until the backward pass is through. */
bool oom_fsdp_keeps_frozen(const struct oom_plan *p);
/* At the end of the backward pass: all that was held goes. */
void oom_fsdp_let_go(struct oom_rewrite *w);

#endif
