/* A recorded structure and what is fixed by it: inside of struct oom_evaluator. */
#ifndef OOM_PROGRAM_H
#define OOM_PROGRAM_H

#include "allocator.h"
#include "tape/compiled.h"
#include "engines.h"
#include "optimizers.h"
#include "tape/tape.h"
#include "tape/timeline.h"

#define SLOTS 64

/* What one optimizer makes of the parameters. */
struct oom_state_sums {
	uint64_t bytes, rounded, temps[2];
	uint64_t paged;                         /* in managed memory */
	bool ready, quantised;
};

struct program {
	struct oom_tape tape;
	const struct oom_model *model;
	struct oom_plan key;
	bool touched;                           /* ever recorded in */
	uint64_t used;                          /* for least-recently-used replacement */
	uint32_t evaluations;                   /* since it was recorded */
	/* batch, sequence and target length the spans below were walked at */
	uint64_t span_of[3];
	struct oom_span span[OOM_PASSES];
	bool spanned;
	/* the same, cut at the layers, for engines whose GPUs hold different ones */
	uint64_t third_of[3], layers;
	struct oom_third third[OOM_PASSES][3];
	bool cut;
	uint32_t cuts;                          /* made since it was recorded */
	struct oom_compiled cut_fast;
	struct oom_compiled fast;               /* made once it has proved to be worth it */
	/* sums over parameters, fixed by the structure */
	uint64_t total, trainable, active, param_bytes, param_rounded, grad_bytes, layer, root,
		head;
	/* for the sharded engines, by ranks and threshold last asked for */
	struct {
		int64_t ranks, threshold;
		uint64_t small;
		double uneven;
	} shards;
	/* by optimizer, filled when first asked for */
	struct oom_state_sums state[OOM_MAX_OPTIMIZERS];
};

struct oom_evaluator {
	struct program slot[SLOTS];
	uint64_t clock;
	int last;                               /* slot answered from last */
	uint64_t *size;
	size_t cap_size;
	/* the graph's memory, lent to the tape being recorded */
	struct oom_node *nodes;
	size_t cap_nodes;
	struct oom_tape full;                   /* every layer recorded, for replays */
	struct oom_replay replay;
};

enum oom_status oom_program_for(struct oom_evaluator *ev, const struct oom_model *m,
				const struct oom_plan *p, struct program **out,
				struct oom_error *err);
/* The sizes a plan gives the variables of the tape: batch, tokens, target tokens. */
void oom_batch_sizes(const struct oom_plan *p, uint64_t *b, uint64_t *s, uint64_t *tgt);
/* Records plan's step; expand: every layer by itself, for replays. */
enum oom_status oom_record(struct oom_tape *t, const struct oom_model *m, const struct oom_plan *p,
			   bool expand, struct oom_error *err);
/* Bytes of one parameter as the plan stores it, and what the allocator makes of them. */
uint64_t oom_param_bytes(const struct oom_param *q, const struct oom_plan *p, uint64_t *rounded);
/* What the optimizer at this index keeps.  A structure does not depend on its optimizer, only these
 * sums do.  A parameter no gradient reaches has no state. */
const struct oom_state_sums *oom_state_sums(struct program *g, int64_t optimizer);
/* Rounded bytes of every row at this batch, into ev->size. */
enum oom_status oom_row_sizes(struct oom_evaluator *ev, const struct oom_tape *t, uint64_t b,
			      uint64_t s, uint64_t tgt, struct oom_error *err);

/* Fills out->bucket, peak_op and peak_module for out->peak_phase and overall_peak. */
void oom_compose(const struct program *g, const struct oom_plan *p, const uint64_t *size,
		 struct oom_eval *out, uint64_t inputs, const struct oom_states *states);

/* Where the bytes of a row of this name and kind were read: PyTorch's or the library's own file;
 * fallback when the operation is the family's own. */
const char *oom_row_source(const char *name, enum oom_cat cat, const char *fallback);

#endif
