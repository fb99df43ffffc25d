/* Rules that a plan may come to break by its sizes alone: micro-batch, accumulation, length, optimizer,
 * and the card's compute capability. */
#ifndef OOM_OPEN_RULES_H
#define OOM_OPEN_RULES_H

#include "oomplan/rules.h"

/* Whether the knob whose field stands there in struct oom_plan is one of these. */
bool oom_is_size(size_t offset);

struct oom_open_rules {
	uint8_t rule[64];
	size_t n;
};
/* Of a plan that breaks none: those that its other knobs do not settle.  False: they are too many. */
bool oom_rules_left_open(const struct oom_plan *plan, struct oom_open_rules *open);
/* Whether a plan that differs in its sizes breaks none, either. */
bool oom_open_rules_hold(const struct oom_open_rules *open, const struct oom_plan *plan);

#endif
