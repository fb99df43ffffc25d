/* Between the files of inverse questions: what can be solved for. */
#ifndef OOM_SOLVE_PARTS_H
#define OOM_SOLVE_PARTS_H

#include "oomplan/search.h"

/* One knob that can be solved for; a step of one where no other is usual. */
struct solved {
	const char *knob;
	int64_t (*step)(const struct oom_model *model, const struct oom_plan *plan);
	/* beyond which no person would go (0: the knob's own range), and why */
	int64_t (*most)(const struct oom_model *model, const struct oom_plan *plan, const char **why);
	const char *by;                 /* the knob that it is solved by, where that is another */
	bool fewest;                    /* the least value that fits, in whole nodes */
	bool batch;                     /* it is the batch of a rank: changes beside it leave it alone */
	bool no_changes;                /* nothing exact makes room for it */
	bool evaluates;                 /* it is about evaluations: the run has some */
	bool nodes;                     /* whole nodes are counted, not their GPUs */
	bool may_idle;                  /* there are models and plans that it changes nothing about */
};
/* By knob or alias; OOM_ERR_INVALID: it is none of them. */
enum oom_status solved_find(const char *knob, const struct solved **out, struct oom_error *err);
/* How many GPUs a node has: asked, as machines with this card are rented, or a guess; out is told which. */
int64_t solved_node(const struct oom_solve_query *q, struct oom_solution *out);

#endif
