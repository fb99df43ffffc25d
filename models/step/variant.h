/* The streams of a recorded structure as one set of passes leaves them, and their spans. */
#ifndef OOM_VARIANT_H
#define OOM_VARIANT_H

#include "oomplan/plan.h"
#include "tape/compiled.h"

struct oom_variant {
	/* what it was made for: 4 bits of every pass that rewrites streams; 0: as recorded */
	uint64_t shape;
	uint64_t used;                  /* for least-recently-used replacement */
	const struct oom_tape *tape;    /* the recording's, or `own` */
	struct oom_tape *own;           /* as passes have rewritten it; NULL: nothing was */
	/* rows that passes added, as the forward leaves them: row and how many */
	struct {
		int32_t row;
		int64_t n;
	} *left;
	size_t n_left;
	/* the most that added communication rows hold, and the ranks it was counted for */
	uint64_t floor;
	struct oom_ranks floor_of;
	/* spans of every pass, and the batch they were walked at */
	bool spanned;
	struct oom_batch at;
	struct oom_span span[OOM_PASSES];
	uint32_t evaluations;           /* since it was made */
	struct oom_compiled fast;       /* made once it has proved to be worth it */
	/* the same, cut at the layers, one of which stands for all */
	bool cut;
	struct oom_batch cut_at;
	uint64_t layers;
	struct oom_span third[OOM_PASSES][3];
	uint32_t cuts;
	struct oom_compiled cut_fast;
};

struct program;
struct oom_evaluator;

/* The variant of g that the plan's passes make of it; made when first asked for. */
enum oom_status oom_variant_for(struct oom_evaluator *ev, struct program *g,
				const struct oom_plan *plan, struct oom_variant **out,
				struct oom_error *err);
void oom_variant_release(struct oom_variant *v);
/* Brings v's spans to this batch.  Engines' numbers, optimizers and allocators do not change them:
 * the last ones are kept.  A variant evaluated often is compiled; that gives the same bytes. */
enum oom_status oom_variant_spans(struct oom_evaluator *ev, struct oom_variant *v,
				  const struct oom_batch *at, struct oom_error *err);
/* The same of the thirds. */
enum oom_status oom_variant_thirds(struct oom_evaluator *ev, struct oom_variant *v,
				   const struct oom_batch *at, struct oom_error *err);
/* Bytes of added rows (gathered parameters and the like) that the forward leaves. */
int64_t oom_variant_left(const struct oom_variant *v, struct oom_ranks ranks);
/* The most that added communication rows hold at once: more GPUs do not lower it. */
uint64_t oom_variant_floor(struct oom_variant *v, struct oom_ranks ranks);

#endif
