/* The cheapest plan that fits, exactly, and inverse questions. */
#ifndef OOMPLAN_SEARCH_H
#define OOMPLAN_SEARCH_H

#include "oomplan/ladder.h"
#include "oomplan/steptime.h"

enum oom_objective { OOM_OBJECTIVE_TIME, OOM_OBJECTIVE_FEWEST_CHANGES, OOM_OBJECTIVE_HEADROOM };

/* One plan that fits. */
struct oom_candidate {
	struct oom_plan plan;
	uint64_t used_bytes;
	enum oom_class cls;             /* the gravest change against what was asked */
	double seconds_per_sample;      /* a guess, see steptime.h */
	int departures;                 /* knobs that differ from what was asked */
};

#define OOM_ALTERNATIVES 3
struct oom_search {
	bool found;
	struct oom_candidate best;
	struct oom_candidate alternative[OOM_ALTERNATIVES];     /* undominated in (class, time, departures), best first */
	size_t n_alternatives;
	size_t evaluated, fitting;
};
/* Tries every combination of the free knobs' values (see oom_search_axis_at) around asked and keeps the best by
 * (class, time a sample, departures), or by the objective in place of time.  The effective batch never changes; science
 * knobs are tried only when allow names them.  Exact: no combination is left out. */
OOM_API enum oom_status oom_search(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *asked,
				   uint64_t capacity_bytes, const struct oom_gpu *gpu, unsigned allow, enum oom_objective objective,
				   struct oom_search *out, struct oom_error *err);

/* The knobs the search is free to change, and the values it tries. */
struct oom_search_axis {
	const char *knob;
	const char *words;              /* values beside the asked one, in words */
	enum oom_class cls;
};
OOM_API const struct oom_search_axis *oom_search_axis_at(size_t i);

struct oom_solution {
	bool exists;
	int64_t value;                  /* the largest (gpus: the smallest) that fits */
	bool at_limit;                  /* it is the end of the knob's range: no neighbour was refused */
	struct oom_eval eval;           /* at the value */
	uint64_t neighbour_bytes;       /* used at the next value: does not fit */
	uint64_t needed_bytes;          /* gpu-memory: capacity that would do */
};
/* The largest value of a count knob (the smallest for gpus) with which plan still fits; "gpu-memory" gives needed_bytes.
 * OOM_ERR_INVALID when the knob cannot be solved for. */
OOM_API enum oom_status oom_solve(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *plan,
				  const char *knob, uint64_t capacity_bytes, struct oom_solution *out, struct oom_error *err);

#endif
