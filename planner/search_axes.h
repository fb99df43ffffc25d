/* Between the files of the search: axes, their values, and how a vector of values becomes a
 * plan. */
#ifndef OOM_SEARCH_AXES_H
#define OOM_SEARCH_AXES_H

#include "oomplan/engine.h"
#include "oomplan/search.h"

#include "moves.h"

/* In the order in which they are walked: what changes the tape, then its sizes, then neither (the
 * evaluator remembers the last walk of a tape). */
enum search_axis {
	SEQ,
	GPUS,
	PRECISION,
	ATTN,
	LOSS,
	CKPT,
	LORA,
	BATCH,
	LAYOUT,
	OFFLOAD,
	OPTIMIZER,
	SEQPAR,
	ALLOCATOR,
	AXES
};
_Static_assert(AXES == OOM_SEARCH_AXES, "as many axes as the header says");

/* One way to lay the model over the GPUs. */
struct layout {
	int64_t engine, zero, bucket_view, hybrid, tp, pp, cp, ep;
};
enum { MAX_DIVISORS = 4096, MAX_LAYOUTS = 2048 };

struct search_space {
	const struct oom_plan *asked;
	unsigned allow;
	bool fewer_gpus;                /* GPUs are an axis (price) */
	int64_t step_batch;             /* sequences a step sees: kept */
	const struct oom_model *model;
	int64_t divisor[MAX_DIVISORS];  /* micro-batches; the asked one first */
	size_t n_divisors;
	struct layout layout[MAX_LAYOUTS];      /* the asked one first */
	size_t n_layouts;
	int64_t gpus[MAX_DIVISORS];     /* the asked one first */
	size_t n_gpus;
	struct oom_smaller_states optimizers;      /* of the asked one */
	bool megatron;
};
/* OOM_ERR_LIMIT when there are more values than are tried. */
enum oom_status search_space_init(struct search_space *s, const struct oom_model *model,
				  const struct oom_search_query *query, struct oom_error *err);
/* Values of an axis: at least 1. */
size_t search_values(const struct search_space *s, enum search_axis axis);
/* The plan of a vector of values, and the classes of change in it.  False for a combination that
 * says nothing of its own: it cannot be built, or fewer departures give the same plan. */
bool search_build(const struct search_space *s, const uint16_t value[OOM_SEARCH_AXES],
		  struct oom_plan *p, unsigned *classes);

#endif
