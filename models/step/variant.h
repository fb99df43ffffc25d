/* Variants: the streams of a recorded structure after one set of passes, and their spans. */
#ifndef OOM_VARIANT_H
#define OOM_VARIANT_H

#include "oomplan/plan.h"
#include "tape/compiled.h"

/* Batches whose spans are kept, and ranks whose floors are: a table of offers asks for a few of each, card after card. */
enum { OOM_BATCHES_KEPT = 8, OOM_FLOORS_KEPT = 8 };

struct oom_variant {
	/* what it was made for (oom_shape_of); 0: as recorded */
	uint64_t shape;
	uint64_t used;                  /* for least-recently-used replacement */
	const struct oom_tape *tape;    /* the recording's tape, or own */
	struct oom_tape *own;           /* the tape as passes have rewritten it; NULL: they did not */
	/* the rows that passes added and that the forward pass leaves alive, with their numbers */
	struct {
		int32_t row;
		int64_t n;
	} *left;
	size_t n_left;
	/* the peaks of added communication rows, and the ranks that the last were computed for */
	struct oom_floor {
		struct oom_ranks of;
		uint64_t bytes;
	} floor[OOM_FLOORS_KEPT];
	size_t n_floors;                /* ever */
	/* the spans of all streams, and the batch they were computed for */
	bool spanned;
	struct oom_batch at;
	struct oom_span span[OOM_PASSES];
	uint32_t evaluations;           /* since it was made */
	/* of the last batches: a search asks for a few of each variant, card after card */
	struct oom_spanned {
		struct oom_batch at;
		struct oom_span span[OOM_PASSES];
	} kept[OOM_BATCHES_KEPT];
	size_t n_kept;                  /* ever */
	struct oom_compiled fast;       /* compiled when it has been evaluated often enough */
	/* the same for the three thirds, in which one layer stands for all */
	bool cut;
	struct oom_batch cut_at;
	uint64_t layers;
	struct oom_span third[OOM_PASSES][3];
	uint32_t cuts;
	struct oom_compiled cut_fast;
};

struct program;
struct oom_evaluator;

/* The variant that the plan's passes make of g.  It is made when it is first asked for. */
enum oom_status oom_variant_for(struct oom_evaluator *ev, struct program *g,
				const struct oom_plan *plan, struct oom_variant **out,
				struct oom_error *err);
void oom_variant_release(struct oom_variant *v);
/* Computes v's spans for this batch, unless they are those of the last call: degrees of engines, optimizers and
 * allocators do not change them.  A variant that is evaluated often is compiled, which gives the same bytes. */
enum oom_status oom_variant_spans(struct oom_evaluator *ev, struct oom_variant *v,
				  const struct oom_batch *at, struct oom_error *err);
/* The same for the thirds. */
enum oom_status oom_variant_thirds(struct oom_evaluator *ev, struct oom_variant *v,
				   const struct oom_batch *at, struct oom_error *err);
/* The bytes of added rows (gathered parameters and the like) that the forward pass leaves alive. */
int64_t oom_variant_left(const struct oom_variant *v, struct oom_ranks ranks);
/* The peak of added communication rows; more GPUs do not lower it. */
enum oom_status oom_variant_floor(struct oom_evaluator *ev, struct oom_variant *v, struct oom_ranks ranks,
				  uint64_t *floor, struct oom_error *err);

#endif
