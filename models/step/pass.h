/* Passes: how an engine, an optimizer or a technique changes a step.
 *
 * A step is recorded once, as a single GPU runs it.  A pass rewrites its streams (the rows and events of each
 * layer, rewrite.h) and its holdings (what is on the card between operations, schedule.h).  Each pass is a
 * descriptor in a file of its own in passes/; pass_list.h has them in the order in which they are applied. */
#ifndef OOM_PASS_H
#define OOM_PASS_H

#include "step/rewrite.h"
#include "step/schedule.h"

/* Bits of a number that says which streams a pass makes (oom_shape_of). */
enum { OOM_SHAPE_BITS = 6 };

struct oom_pass {
	const char *name;
	enum oom_class cls;
	const char *summary;            /* without a full stop */
	const char *knobs;              /* the knobs that turn it on, joined by '+' */
	const char *source;
	/* true if the plan asks for it */
	bool (*applies)(const struct oom_plan *plan);
	/* a number below 1 << OOM_SHAPE_BITS for those settings of the plan that its streams depend on; NULL: always 1 */
	unsigned (*shape)(const struct oom_plan *plan);
	/* NULL: it does not change the streams.  own_size is the size of its memory for each unit, and once
	 * more for the whole step. */
	const struct oom_hooks *hooks;
	size_t own_size;
	/* NULL: it does not change the holdings */
	void (*holdings)(struct oom_schedule *s, const struct oom_plan *plan);
};

/* The i-th pass in the order in which they are applied; NULL past the end. */
const struct oom_pass *oom_pass_at(size_t i);
/* A number for what the streams become under the plan, with OOM_SHAPE_BITS for every pass that rewrites them; 0: as
 * recorded. */
uint64_t oom_shape_of(const struct oom_plan *plan);
/* Calls `holdings` of every pass that the plan asks for. */
void oom_apply_passes(struct oom_schedule *s, const struct oom_plan *plan);

#endif
