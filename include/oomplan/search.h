/* The cheapest plan that fits, exactly, and inverse questions. */
#ifndef OOMPLAN_SEARCH_H
#define OOMPLAN_SEARCH_H

#include "oomplan/ladder.h"
#include "oomplan/steptime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the search prefers after the class of the changes.  Under PRICE fewer of the asked GPUs may
 * be used; a price per hour and GPU would scale all plans alike and change no order. */
#define OOM_OBJECTIVES(X) \
	X(OOM_OBJECTIVE_TIME, "time", "the least time per sample (estimated)") \
	X(OOM_OBJECTIVE_FEWEST_CHANGES, "fewest-changes", "the fewest departures from the asked plan") \
	X(OOM_OBJECTIVE_HEADROOM, "headroom", "the most memory left free") \
	X(OOM_OBJECTIVE_PRICE, "price", "the fewest GPU-seconds per sample; fewer GPUs are allowed")
enum oom_objective { OOM_OBJECTIVES(OOM_WORD_ID) };

/* The knobs the search is free to change. */
#define OOM_SEARCH_AXES 14

/* One plan that fits. */
struct oom_candidate {
	struct oom_plan plan;
	uint64_t used_bytes;            /* an estimate only where the query asks for no more */
	/* the same where the card had room for the whole cache; bytes of plans are compared by it */
	uint64_t wanted_bytes;
	bool exact;                     /* it is no estimate */
	enum oom_class cls;             /* the gravest change against what was asked */
	unsigned classes;               /* every class of change in it: bit 1 << enum oom_class */
	double seconds_per_sample;      /* a guess, see steptime.h; over all GPUs */
	int departures;                 /* axes that differ from what was asked */
	uint16_t value[OOM_SEARCH_AXES];        /* of each axis; 0: as asked */
};

/* What is searched for.  The effective batch never changes; science knobs are tried only when allow
 * names them, a shorter sequence only when no plan of the longer fits.  Last resorts are tried only when
 * no plan without them and without changes of the science fits: 16-bit weights, activations in host
 * memory, torchao's optimizer on the host. */
struct oom_search_query {
	const struct oom_plan *asked;   /* the plan to depart from */
	uint64_t capacity_bytes;
	const struct oom_gpu *gpu;      /* its speed ranks plans; NULL: an A100's */
	unsigned allow;                 /* enum oom_allow */
	enum oom_objective objective;
	bool best_only;                 /* alternatives are not looked for: fewer replays */
	bool verdicts_only;             /* no replay to know used_bytes, only where verdicts need it */
	bool exact_only;                /* nothing but changes that leave the run as it is */
	unsigned hold;                  /* 1 << axis (oom_search_axis_at): stays as asked */
	bool keep_batch;                /* micro-batch and accumulation stay, however ranks are laid out */
};

/* Why a departure is in a plan: the same plan without it. */
struct oom_reason {
	int axis;
	const char *knob;               /* the one that the change is about; static */
	bool built;                     /* there is a plan without it: */
	struct oom_plan without;
	bool runs, fits;                /* without it */
	uint64_t used_bytes;            /* without it */
	double seconds_per_sample;      /* without it */
	char note[160];                 /* why it cannot run without it */
};

#define OOM_ALTERNATIVES 3
struct oom_search {
	bool found;
	struct oom_candidate best;
	/* undominated in (changes that are not exact, objective, departures) */
	struct oom_candidate alternative[OOM_ALTERNATIVES];
	size_t n_alternatives, n_undominated;
	struct oom_reason reason[OOM_SEARCH_AXES];      /* see oom_search_reasons */
	size_t n_reasons;
	size_t evaluated;               /* combinations priced */
	size_t possible;                /* of them: what they allocate has room, so that they may fit */
	size_t replayed;                /* verdicts that took a replay of the allocator */
};
/* What plans are compared by under TIME, FEWEST_CHANGES and PRICE: seconds (GPU-seconds) per sample
 * times the interval of the step time (steptime.h, of the plan as asked) for each departure.  A change
 * that no byte asks for has to gain more time than the estimate can tell. */
OOM_API double oom_search_cost(const struct oom_plan *asked, enum oom_objective objective,
			       const struct oom_plan *plan, double seconds_per_sample,
			       int departures);

/* Prices every combination of the free knobs' values (see oom_search_axis_at) around what is asked
 * and keeps the best by (gravest class, number of changes that are not exact, oom_search_cost,
 * departures); under HEADROOM bytes take the cost's place.  Ties go to the larger micro-batch, to fewer
 * bytes, to less time.  Plans that no framework runs as they are priced (oomplan/compat.h) are none, unless
 * what was asked is one that cannot be mended.
 *
 * Whether a plan fits is oom_judge's verdict, asked lazily: in the order of preference, of plans that
 * could still be in the answer.  The answer is exact: the one that judging every combination would
 * give.  used_bytes are replayed, as estimate prints them, unless only verdicts are wanted.
 * OOM_ERR_LIMIT for a batch of more divisors than are tried. */
OOM_API enum oom_status oom_search(struct oom_evaluator *ev, const struct oom_model *model,
				   const struct oom_search_query *query, struct oom_search *out,
				   struct oom_error *err);

struct oom_search_axis {
	const char *knob;
	const char *words;              /* values beside the asked one, in words */
};
OOM_API const struct oom_search_axis *oom_search_axis_at(size_t i);

/* Adds to what a search with the same query found a reason for each departure of the best plan. */
OOM_API enum oom_status oom_search_reasons(struct oom_evaluator *ev, const struct oom_model *model,
					   const struct oom_search_query *query,
					   struct oom_search *found, struct oom_error *err);

/* An inverse question. */
struct oom_solve_query {
	const struct oom_plan *plan;    /* as asked */
	const char *knob;               /* "seq-len"; "gpu-memory" for the capacity that would do */
	uint64_t capacity_bytes;
	/* values tried: multiples of it.  0: what a person would try, which is 64 tokens, a patch or a
	 * window of an image's side, ranks of 8, and of GPUs any number within a node, then whole nodes */
	int64_t step;
	/* the largest value for which changes that leave the run as it is (search.h) make a plan that
	 * fits; the value itself and, where that is the batch, micro-batch and accumulation stay */
	bool exact_changes;
	const struct oom_gpu *gpu;      /* for exact_changes; may be NULL */
};
struct oom_solution {
	bool tried;                     /* false: exact changes are not searched for this (Megatron) */
	bool exists;
	int64_t value;                  /* the answer; where none fits, the value eval describes */
	int64_t step;                   /* in which values were tried in the end; GPUs: 1 */
	/* it is the end of the knob's range: no neighbour was refused */
	bool at_limit;
	/* it is the fewest that fit, not the most; of GPUs: of how many a node was taken to be (0: it did not
	 * matter), and where that is from */
	bool fewest;
	int64_t node;
	enum oom_node_from { OOM_NODE_ASKED, OOM_NODE_RENTED, OOM_NODE_GUESSED } node_from;
	/* with the value; for gpus, sharded where nothing was (--engine fsdp2 --zero 3) */
	struct oom_plan plan;
	struct oom_eval eval;           /* of plan, replayed, with buckets */
	/* the next value that runs, which does not fit, and what it uses, replayed; UINT64_MAX: none
	 * of the next 64 runs, or no exact change makes it fit */
	int64_t neighbour;
	uint64_t neighbour_bytes;
	/* its step has room and the run's evaluation has not: the bytes are the evaluation's, an estimate */
	bool neighbour_evaluates;
	uint64_t needed_bytes;          /* gpu-memory: capacity that would do */
};
/* The largest value of a count knob (the smallest for gpus) with which plan still fits;
 * "gpu-memory" gives needed_bytes.  Promised are two verdicts of oom_judge: the value fits, and the
 * next one above it (gpus: below it) that runs does not.  As what the allocator reserves does not
 * rise with every knob's every step, some value beyond that neighbour may fit again.  Where the plan
 * says that the run evaluates, the evaluation has to fit, too.
 * OOM_ERR_INVALID when the knob cannot be solved for. */
OOM_API enum oom_status oom_solve(struct oom_evaluator *ev, const struct oom_model *model,
				  const struct oom_solve_query *query, struct oom_solution *out,
				  struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
