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
/* How many GPUs a node has: asked, as machines with this card are rented, or a guess; out is told, and
 * which.  OOM_ERR_MEMORY. */
enum oom_status solved_node(const struct oom_solve_query *q, struct oom_solution *out, struct oom_error *err);

/* One question at work. */
struct solver {
	struct oom_evaluator *ev;
	const struct oom_model *model;
	struct oom_plan plan;           /* as asked; without the global batch where that is solved for */
	const struct oom_option *knob;
	const struct oom_solve_query *q;
	int64_t step;                   /* values are numbers of steps */
	int64_t most;                   /* the end of the range */
	int64_t node;                   /* GPUs: beyond so many whole nodes count; 0: any number */
	bool nodes;                     /* whole nodes alone */
	bool plain_batch;               /* the micro-batch is what is solved for */
	struct oom_search *found;       /* owned; NULL: as asked */
	struct oom_error *err;
};

/* ---- value.c ---- */

/* The value of so many steps. */
int64_t solver_value(const struct solver *s, int64_t steps);
/* The RAM that a node lacks for the plan, in whole; 0: it has what it needs, or nobody said what it has. */
uint64_t solver_host_short(const struct solver *s, const struct oom_plan *p, const struct oom_eval *e);
/* Does the plan fit with this value?  A value that the model cannot run with does not, and uses UINT64_MAX bytes.  *plan,
 * which may be NULL: the one that was judged. */
enum oom_status solver_price(const struct solver *s, int64_t steps, unsigned flags, struct oom_eval *e, bool *yes,
			     struct oom_plan *plan);
enum oom_status solver_fits(const struct solver *s, int64_t steps, struct oom_eval *e, bool *yes);
/* Not every value runs (an image's side may have to be a multiple of the patch): *value moves up to the next that does,
 * within `most` and as far as such steps reach.  *ran is false when there is none. */
enum oom_status solver_next(const struct solver *s, int64_t *value, int64_t most, struct oom_eval *e, bool *yes, bool *ran);

#endif
