/* Which of the plans that may fit are the answer: judged in the order of preference, as few as
 * decide it. */
#ifndef OOM_SEARCH_PICK_H
#define OOM_SEARCH_PICK_H

#include "axes.h"

/* Sets of the axes whose changes are not exact, and cells: one for each set and number of departures. */
enum { CHANGE_SETS = 1 << SEARCH_INEXACT, CELLS = CHANGE_SETS * (SEARCH_DEPARTURES + 1) };

/* A plan whose allocated bytes have room, without its knobs: they follow from value. */
struct pick {
	double seconds;                 /* a sample */
	double cost;                    /* of the objective, at least; exact unless that is headroom */
	uint64_t least_bytes;           /* used, if nothing were reserved beyond what is allocated */
	uint64_t used_bytes;            /* an estimate, until exact */
	uint64_t wanted_bytes;          /* what plans are compared by: a full card flatters */
	int64_t micro_batch;
	uint16_t value[AXES];
	uint8_t set, departures;        /* set: of search_inexact */
	bool fits;                      /* decided already */
	bool exact;                     /* used_bytes is the replayed price */
};

struct picks {
	const struct search_space *space;
	struct oom_evaluator *ev;
	const struct oom_search_query *q;
	struct pick *v;
	size_t n, cap;
	/* Least cost known to fit: of the cell itself, and of cells that dominate it (nothing else that is
	 * not exact, no more departures). */
	double own[CHANGE_SETS][SEARCH_DEPARTURES + 1], beyond[CHANGE_SETS][SEARCH_DEPARTURES + 1];
	unsigned changes;               /* all that plans can be changed by: of search_inexact_all */
	struct pick *front[CELLS];
	bool used[CELLS];
	struct oom_search *out;
	struct oom_error *err;
};

void picks_init(struct picks *p);
void picks_release(struct picks *p);
/* Notes a plan priced as e, unless it does not fit by the bounds or another that fits is better in
 * everything; false when it does not fit.  OOM_ERR_MEMORY. */
enum oom_status picks_add(struct picks *p, const uint16_t value[AXES],
			  const struct oom_plan *plan, const struct oom_eval *e, bool *may_fit);
/* Writes the best plan and its alternatives into *out; found is false when none fits. */
enum oom_status picks_choose(struct picks *p);

#endif
