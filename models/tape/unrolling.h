/* Between the parts of unrolling a tape: what is repeated and whose rows are whose (unroll_runs.c), the room that the
 * copies take (unroll_room.c), and the copies written out (unroll.c). */
#ifndef OOM_TAPE_UNROLLING_H
#define OOM_TAPE_UNROLLING_H

#include "tape.h"

/* A run: units [unit0, unit1) stand for reps copies; those before them are the first, those behind the last. */
struct oom_run {
	uint32_t unit0, unit1, reps;
	uint32_t param0, param1;        /* of the second layer, in the short tape */
	int32_t rows;                   /* of the second layer */
};

enum { NOBODY = -1 };

struct oom_unrolling {
	const struct oom_tape *from;
	struct oom_tape *to;
	struct oom_run run[OOM_MAX_RUNS];
	size_t n_runs;
	/* for each row of `from`: its unit, whose copies are of which run, where its copies' numbers begin in `copy` */
	int32_t *unit_of, *run_of, *base;
	int32_t *pair;                  /* of a neighbour's row: the second layer's own that stands for it */
	int32_t *copy;                  /* rows of `to` */
	size_t n_copies;
	enum oom_status status;
};

/* The runs, the rows' owners, and whose row stands for a neighbour's, all in *w.  False: they cannot be told apart, or
 * status says that memory is short. */
bool oom_find_runs(struct oom_unrolling *w);
/* Makes room in w->to for the copies of everything, and says how many units and parameters that will be.  What w->to
 * holds is the caller's to release, whatever the answer. */
enum oom_status oom_unrolling_room(struct oom_unrolling *w, size_t *units, size_t *params);
/* The run that a unit is a copy of, or NOBODY. */
int32_t oom_run_at(const struct oom_unrolling *w, size_t unit);

#endif
