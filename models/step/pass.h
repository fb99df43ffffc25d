/* Passes: what an engine, an optimizer or a technique makes of a step.
 *
 * A step is recorded once, as one GPU runs it by itself.  A pass rewrites it: its streams (rows and
 * events of every layer, rewrite.h) and its holdings (what lies on the card between operations,
 * schedule.h).  Each is one descriptor in a file of its own in passes/; the table in passes.c says
 * in which order they are applied. */
#ifndef OOM_PASS_H
#define OOM_PASS_H

#include "step/rewrite.h"
#include "step/schedule.h"

struct oom_pass {
	const char *name;
	enum oom_class cls;
	const char *summary;            /* ends without a full stop */
	const char *knobs;              /* that turn it on, joined by '+' */
	const char *source;
	/* whether the plan asks for it */
	bool (*applies)(const struct oom_plan *plan);
	/* What of the plan its streams depend on, as a number below 16; NULL: 1 */
	unsigned (*shape)(const struct oom_plan *plan);
	/* NULL: the streams stay as they are.  own_size: bytes per unit of the rewrite's own
	 * memory, and for the step as a whole one more. */
	const struct oom_hooks *hooks;
	size_t own_size;
	/* NULL: no holding changes */
	void (*holdings)(struct oom_schedule *s, const struct oom_plan *plan);
};

/* In the order in which they are applied; NULL past the end. */
const struct oom_pass *oom_pass_at(size_t i);
/* What the streams become under the plan: 4 bits of every pass that rewrites them; 0: as recorded. */
uint64_t oom_shape_of(const struct oom_plan *plan);
/* Lets every pass that the plan asks for change the holdings. */
void oom_apply_passes(struct oom_schedule *s, const struct oom_plan *plan);

#endif
