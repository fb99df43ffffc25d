/* What one evaluation may keep of the one before.
 *
 * A sweep's row, a search's step, a solution's next try differ from the one before in the batch, the
 * accumulation, the optimizer or the card more often than not.  Rules that such a difference cannot
 * break, and the structure that it leaves as it was, are not asked for again. */
#ifndef OOM_BEFORE_H
#define OOM_BEFORE_H

#include "oomplan/plan.h"
#include "plan/open_rules.h"
#include "tape/timeline.h"

struct oom_model;
struct oom_evaluator;
struct program;
struct oom_variant;

struct oom_before {
	const struct oom_model *model;          /* NULL: there is nothing */
	struct oom_plan plan;                   /* it breaks no rule */
	struct oom_open_rules open;
	struct program *g;
	struct oom_variant *v;
	struct oom_ranks ranks;
	double kernels;
};

/* True where the plan differs from the last one in its sizes alone (open_rules.h) and is right, too:
 * *g serves it at this batch, with at->ranks set, and *v is its variant, or NULL where that has to be
 * asked for. */
bool oom_before_serves(struct oom_evaluator *ev, const struct oom_model *model,
		       const struct oom_plan *plan, struct oom_batch *at, struct program **g,
		       struct oom_variant **v);
void oom_before_keep(struct oom_evaluator *ev, const struct oom_model *model,
		     const struct oom_plan *plan, const struct oom_batch *at, struct program *g,
		     struct oom_variant *v);
/* A program or a variant becomes another one; NULL: none of that kind. */
void oom_before_forget(struct oom_evaluator *ev, const struct program *g, const struct oom_variant *v);

#endif
