/* The search for the cheapest plan that fits, which is exact, and inverse questions. */
#ifndef OOMPLAN_SEARCH_H
#define OOMPLAN_SEARCH_H

#include "oomplan/ladder.h"
#include "oomplan/steptime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the search prefers among plans whose changes are of the same class.  With PRICE, fewer GPUs than
 * asked may be used; GPU-seconds stand for dollars, because a price per GPU and hour would scale all plans
 * alike. */
#define OOM_OBJECTIVES(X) \
	X(OOM_OBJECTIVE_TIME, "time", "the least time per sample (estimated)") \
	X(OOM_OBJECTIVE_FEWEST_CHANGES, "fewest-changes", "the fewest departures from the asked plan") \
	X(OOM_OBJECTIVE_HEADROOM, "headroom", "the most memory left free") \
	X(OOM_OBJECTIVE_PRICE, "price", "the fewest GPU-seconds per sample; fewer GPUs are allowed")
enum oom_objective { OOM_OBJECTIVES(OOM_WORD_ID) };

/* The number of axes, that is, of knobs that the search may change. */
#define OOM_SEARCH_AXES 14

/* One plan that fits. */
struct oom_candidate {
	struct oom_plan plan;
	uint64_t used_bytes;            /* replayed, or an estimate if the query asks for no more */
	/* the same on a card with room for the whole cache; plans are compared by these bytes */
	uint64_t wanted_bytes;
	bool exact;                     /* used_bytes is not an estimate */
	enum oom_class cls;             /* the gravest class among its changes */
	unsigned classes;               /* all classes of its changes: bit 1 << enum oom_class */
	double seconds_per_sample;      /* estimated (steptime.h); over all GPUs */
	int departures;                 /* the number of changes from what was asked */
	uint16_t value[OOM_SEARCH_AXES];        /* the index of each axis's value; 0: as asked */
};

struct oom_compat;

/* What is searched for.  The effective batch never changes.  Knobs that change the science are tried only
 * if allow names them, and a shorter sequence only if no plan with the longer one fits.  Last resorts
 * (16-bit weights, activations in host memory, torchao's optimizer on the host) are tried only if no plan
 * fits without them and without changing the science. */
struct oom_search_query {
	const struct oom_plan *asked;   /* the plan to depart from */
	uint64_t capacity_bytes;
	const struct oom_gpu *gpu;      /* plans are ranked by its speed; NULL: an A100's */
	unsigned allow;                 /* enum oom_allow */
	enum oom_objective objective;
	bool best_only;                 /* no alternatives are looked for, which saves replays */
	bool verdicts_only;             /* replays only where a verdict needs one; used_bytes may be estimated */
	/* Tensor, pipeline, context and expert parallelism are layouts like any other, where the engine has
	 * them; otherwise FSDP2's are a last resort. */
	bool degrees;
	bool exact_only;                /* only changes that leave the result of the run as it is */
	unsigned hold;                  /* bits 1 << axis (oom_search_axis_at): these stay as asked */
	bool keep_batch;                /* micro-batch and accumulation stay, whatever the parallel layout */
	/* The rules compiled for this model, card and plan (oomplan/compat.h), where the caller has them; NULL: they are
	 * compiled here. */
	const struct oom_compat *compat;
};

/* Why a change is part of a plan: what the same plan would be without it. */
struct oom_reason {
	int axis;
	const char *knob;               /* the knob that changes; static */
	bool built;                     /* a plan without the change exists; it is the next field */
	struct oom_plan without;
	bool runs, fits;                /* without it */
	uint64_t used_bytes;            /* without it */
	double seconds_per_sample;      /* without it */
	char note[160];                 /* why the plan cannot run without the change */
};

#define OOM_ALTERNATIVES 3
struct oom_search {
	bool found;
	struct oom_candidate best;
	/* plans that no other plan beats in all of: changes that are not exact, objective, departures */
	struct oom_candidate alternative[OOM_ALTERNATIVES];
	size_t n_alternatives, n_undominated;
	struct oom_reason reason[OOM_SEARCH_AXES];      /* see oom_search_reasons */
	size_t n_reasons;
	size_t evaluated;               /* combinations priced */
	size_t possible;                /* those of them whose allocated bytes have room, so that they may fit */
	size_t replayed;                /* verdicts that took a replay of the allocator */
};
/* The cost by which TIME, FEWEST_CHANGES and PRICE compare plans: seconds (GPU-seconds) per sample, times
 * the interval of the step time (steptime.h; for the plan as asked) once per departure.  So a change that
 * is not needed for its bytes must gain more time than the estimate's uncertainty. */
OOM_API double oom_search_cost(const struct oom_plan *asked, enum oom_objective objective,
			       const struct oom_plan *plan, double seconds_per_sample,
			       int departures);

/* Prices every combination of the free knobs' values (see oom_search_axis_at) around the plan as asked, and
 * keeps the best by gravest class, then number of changes that are not exact, then oom_search_cost, then
 * departures; with HEADROOM, bytes take the place of the cost.  Ties go to the larger micro-batch, then to
 * fewer bytes, then to less time.  Plans that no framework runs as they are priced (oomplan/compat.h) are
 * left out, unless what was asked is itself such a plan and cannot be mended.
 *
 * Whether a plan fits is oom_judge's verdict.  It is asked for lazily, in the order of preference and only
 * of plans that can still be part of the answer, which is nevertheless the one that judging every
 * combination would give.  used_bytes are replayed, as estimate prints them, unless only verdicts are
 * wanted.  OOM_ERR_LIMIT if the batch has more divisors than are tried. */
OOM_API enum oom_status oom_search(struct oom_evaluator *ev, const struct oom_model *model,
				   const struct oom_search_query *query, struct oom_search *out,
				   struct oom_error *err);

/* What the search tries beside the plan that was asked for. */
struct oom_search_axis {
	const char *knob;
	const char *words;              /* the values that are tried beside the asked one, in words */
};
/* The i-th axis; NULL past the end. */
OOM_API const struct oom_search_axis *oom_search_axis_at(size_t i);

/* Completes the result of a search with the same query: adds a reason for each departure of the best
 * plan.  OOM_ERR_MEMORY. */
OOM_API enum oom_status oom_search_reasons(struct oom_evaluator *ev, const struct oom_model *model,
					   const struct oom_search_query *query,
					   struct oom_search *found, struct oom_error *err);

/* An inverse question. */
struct oom_solve_query {
	const struct oom_plan *plan;    /* as asked */
	const char *knob;               /* such as "seq-len"; "gpu-memory" asks for the capacity that would do */
	uint64_t capacity_bytes;
	uint64_t host_ram_bytes;        /* of a node; 0: not known */
	/* Only multiples of step are tried.  0: the steps that a person would take, which are 64 tokens, a
	 * patch or window of an image's side, ranks in steps of 8, and any number of GPUs within a node,
	 * then whole nodes. */
	int64_t step;
	/* Look for the largest value for which a plan fits after changes that leave the result of the run
	 * as it is.  The value itself is not changed by them; if it is the batch, neither are micro-batch
	 * and accumulation. */
	bool exact_changes;
	/* Values end with the knob's range alone, not where a person would end them: at the model's
	 * positions, at the full rank of its layers. */
	bool whole_range;
	const struct oom_gpu *gpu;      /* for exact_changes; may be NULL */
	/* Who says whether a plan fits, and makes it the plan that is reported; NULL: oom_judge. */
	enum oom_status (*judge)(void *ctx, struct oom_plan *plan, struct oom_eval *eval, bool *fits);
	void *ctx;
};
struct oom_solution {
	bool tried;                     /* false: exact changes are not searched for this engine (Megatron) */
	bool exists;
	int64_t value;                  /* the answer; if no value fits, the one that eval describes */
	int64_t step;                   /* the step of the values tried in the end; for GPUs 1 */
	/* value is the end of the knob's range, so that there is no neighbour; limit says what ends it where
	 * that is not the knob ("": the knob) */
	bool at_limit;
	const char *limit;
	/* value is the smallest that fits, not the largest; for GPUs, node is the number per node that was
	 * assumed (0: it did not matter), and node_from says where it comes from */
	bool fewest;
	int64_t node;
	enum oom_node_from { OOM_NODE_ASKED, OOM_NODE_RENTED, OOM_NODE_GUESSED } node_from;
	/* the plan with the value; for gpus, sharded if it was not (--engine fsdp2 --zero 3) */
	struct oom_plan plan;
	struct oom_eval eval;           /* of plan, replayed, with buckets */
	uint64_t evaluation_bytes;      /* what an evaluation of plan uses, an estimate; 0: nobody says that it has one */
	/* The next value that can run, which does not fit, and the bytes it uses, replayed; UINT64_MAX if
	 * none of the next 64 can run, or if no exact change makes it fit. */
	int64_t neighbour;
	uint64_t neighbour_bytes;
	/* the neighbour's step fits but the run's evaluation does not; neighbour_bytes is then the
	 * evaluation's estimate */
	bool neighbour_evaluates;
	/* RAM that a node needs and has not, where that is why the neighbour does not fit (or, if no value
	 * fits, the one that eval describes); else 0 */
	uint64_t host_bytes;
	uint64_t needed_bytes;          /* for gpu-memory: the capacity that would do */
};
/* Finds the largest value of a count knob (for gpus the smallest) with which the plan still fits;
 * "gpu-memory" sets needed_bytes.  Two verdicts of oom_judge are promised: the value fits, and the next
 * one above it (for gpus below it) that can run does not.  Because reserved bytes do not grow with every
 * step of a knob, some value beyond that neighbour may fit again.  If the plan says that the run
 * evaluates, the evaluation must fit as well.  OOM_ERR_INVALID if the knob cannot be solved for. */
OOM_API enum oom_status oom_solve(struct oom_evaluator *ev, const struct oom_model *model,
				  const struct oom_solve_query *query, struct oom_solution *out,
				  struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
