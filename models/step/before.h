/* What one evaluation may keep of the one before.
 *
 * A sweep's row, a search's step, a solution's next try differ from the one before in the batch, the
 * accumulation, the optimizer or the card more often than not.  Rules that such a difference cannot
 * break, and the structure that it leaves as it was, are not asked for again. */
#ifndef OOM_BEFORE_H
#define OOM_BEFORE_H

#include <stddef.h>

#include "oomplan/model.h"
#include "plan/open_rules.h"
#include "step/optimizers.h"
#include "tape/timeline.h"

/* Bytes of an evaluation without who is alive. */
#define OOM_EVAL_KEPT offsetof(struct oom_eval, bucket)

struct oom_evaluator;
struct program;
struct oom_variant;

/* By optimizer and whether anything is accumulated. */
typedef char oom_found[OOM_MAX_OPTIMIZERS][2][OOM_EVAL_KEPT];

struct oom_before {
	const struct oom_model *model;          /* NULL: there is nothing; and its print (families/model.h) */
	uint64_t print;
	struct oom_plan plan;                   /* it breaks no rule */
	struct oom_open_rules open;             /* once a question has come near */
	bool opened;
	struct program *g;
	struct oom_variant *v;                  /* of this optimizer, with or without accumulation */
	int64_t optimizer;
	bool accumulates;
	struct oom_ranks ranks;
	double kernels;
	uint64_t asked;                         /* the question it was the plan of */
	bool as_asked;                          /* no version and no engine made another plan of it */
	/* when the evaluator's `found` was found, up to what is said of the card: at this batch where the stamp
	 * is `now` */
	uint64_t now, stamp[OOM_MAX_OPTIMIZERS][2];
	/* what lies outside the allocator on the cards asked about last, which no size changes; 0: none */
	struct oom_before_card {
		double capability, kernels;
		uint64_t context_bytes, workspace_bytes, nccl_bytes;
		bool context_measured, known;
	} card[4];
	size_t n_cards;
};

/* True where the plan differs from the last one in its sizes alone (open_rules.h; near: that is known) and
 * is right, too:
 * *g serves it at this batch, with at->ranks set, and *v is its variant, or NULL where that has to be
 * asked for. */
bool oom_before_serves(struct oom_evaluator *ev, const struct oom_model *model,
		       const struct oom_plan *plan, bool near, struct oom_batch *at, struct program **g,
		       struct oom_variant **v);
void oom_before_keep(struct oom_evaluator *ev, const struct oom_model *model,
		     const struct oom_plan *plan, const struct oom_batch *at, struct program *g,
		     struct oom_variant *v);
/* The same of a question that is near the one before and at its batch, with what lies outside of the allocator on
 * its card, and the reserved bytes estimated.  False: it has to be asked in full. */
bool oom_before_again(struct oom_evaluator *ev, const struct oom_model *model,
		      const struct oom_plan *plan, struct oom_eval *out);
/* The variant that had to be asked for. */
void oom_before_keep_variant(struct oom_evaluator *ev, const struct oom_plan *plan,
			     struct oom_variant *v);
/* Phases, work and host bytes of this plan, which was served, as they were found at this batch before;
 * false: they were not. */
bool oom_before_found(const struct oom_evaluator *ev, const struct oom_plan *plan,
		      struct oom_eval *out);
void oom_before_find(struct oom_evaluator *ev, const struct oom_plan *plan, const struct oom_eval *e);
/* A program or a variant becomes another one; NULL: none of that kind. */
void oom_before_forget(struct oom_evaluator *ev, const struct program *g, const struct oom_variant *v);

#endif
