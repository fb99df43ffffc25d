/* Between the files of the search: axes, their values, and how a vector of values becomes a
 * plan. */
#ifndef OOM_SEARCH_AXES_H
#define OOM_SEARCH_AXES_H

#include "oomplan/compat.h"
#include "oomplan/engine.h"
#include "oomplan/search.h"

#include "ladder/moves.h"

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
	STEP,
	SEQPAR,
	ALLOCATOR,
	AXES
};
_Static_assert(AXES == OOM_SEARCH_AXES, "as many axes as the header says");

/* Changes that are not exact, as bits in the order of their classes. */
#define SEARCH_INEXACT 8

/* One way to lay the model over the GPUs. */
struct layout {
	int64_t engine, zero, bucket_view, hybrid, tp, pp, cp, ep, narrow, data_parallel;
};
enum { MAX_DIVISORS = 4096, MAX_LAYOUTS = 2048 };

struct search_space {
	const struct oom_plan *asked;   /* start, or what the query has where that runs */
	struct oom_plan start;          /* as asked, mended */
	struct oom_compat compat;
	struct oom_compat_set excused;  /* rules that what was asked breaks itself */
	unsigned allow, hold;
	bool exact_only, keep_batch, degrees;   /* of the query */
	bool fewer_gpus;                /* GPUs are an axis (price) */
	/* values are among those tried that are only worth it where nothing else fits: the last of
	 * PRECISION, ATTN, LOSS, OFFLOAD and LAYOUT */
	bool resorts;
	int64_t leaner[2];              /* attention under which what was asked holds less than under SDPA */
	size_t n_leaner;
	bool liger;                     /* Liger's kernels beside the loss can be had */
	int64_t loss;                   /* without whole logits, as this model and engine have it */
	int64_t step_batch;             /* sequences a step sees: kept */
	const struct oom_model *model;
	int64_t divisor[MAX_DIVISORS];  /* micro-batches; the asked one first */
	size_t n_divisors;
	struct layout layout[MAX_LAYOUTS];      /* the asked one first */
	/* n_own: before those that are tried where nothing else fits, of which the last, from n_frameworks
	 * on, are of other frameworks */
	size_t n_layouts, n_own, n_frameworks;
	int64_t gpus[MAX_DIVISORS];     /* the asked one first */
	size_t n_gpus;
	struct oom_smaller_states optimizers;      /* of the asked one */
	bool megatron;
};
/* OOM_ERR_LIMIT when there are more values than are tried. */
enum oom_status search_space_init(struct search_space *s, const struct oom_model *model,
				  const struct oom_search_query *query, struct oom_error *err);
/* Fills the space's layouts (layouts.c); false when there are more than are tried. */
bool search_layouts(struct search_space *s);
/* How many knobs depart from what was asked: an axis is one, activations beside states are two, and so are Liger's
 * kernels beside another loss. */
enum { SEARCH_DEPARTURES = AXES + 2 };
int search_departures(const uint16_t value[OOM_SEARCH_AXES]);
/* Whether there are values that are tried where nothing else fits. */
bool search_has_resorts(const struct search_space *s);
/* The knob of an axis that tells two plans apart: its own, or where that is the same another.
 * without, which may be NULL: it cannot be built. */
const char *search_knob(enum search_axis axis, const struct oom_plan *with, const struct oom_plan *without);
/* Values of an axis: at least 1. */
size_t search_values(const struct search_space *s, enum search_axis axis);
/* Which of the SEARCH_INEXACT changes are in a plan, and which can be; the classes of change in such a
 * set, bits 1 << enum oom_class. */
unsigned search_inexact(const struct search_space *s, const uint16_t value[OOM_SEARCH_AXES]);
unsigned search_inexact_all(const struct search_space *s);
unsigned search_classes(unsigned set);
/* Values of OFFLOAD: PLACES, and the same with the activations beside. */
enum search_place { AS_ASKED, NOTHING, STATES, STATES_AND_PARAMS, STATES_BY_TORCHAO, PLACES };
/* Tensor, pipeline or context parallelism that was not asked for. */
bool search_is_mixture(const struct search_space *s, size_t layout);
/* Weights in 16 bit, which come after autocast where that is a change. */
bool search_narrow_weights(const struct search_space *s, uint16_t precision);
/* The attention of a value of ATTN; takes the value of LOSS, of which the last may be Liger's kernels beside it. */
int64_t search_attention(const struct search_space *s, size_t k);
void search_set_loss(const struct search_space *s, size_t k, struct oom_plan *p);
/* How many forms the asked optimizer has: itself, quantised, paged. */
size_t search_smaller_states(const struct search_space *s);
/* What is tried where nothing else fits: states of 4 bits, and what the asked one is a smaller form of,
 * whose states DeepSpeed keeps on the host. other, which may be NULL: which these are. */
size_t search_other_states(const struct search_space *s, int64_t other[2]);
/* The plan of a vector of values.  False for a combination that
 * says nothing of its own: it cannot be built, fewer departures give the same plan, or no framework
 * runs it as it would be priced (oomplan/compat.h). */
bool search_build(const struct search_space *s, const uint16_t value[OOM_SEARCH_AXES],
		  struct oom_plan *p);

#endif
