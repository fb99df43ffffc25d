/* The ladder: ten fixes in the order of their cost, climbed until the plan fits. */
#ifndef OOMPLAN_LADDER_H
#define OOMPLAN_LADDER_H

#include <stdbool.h>
#include <stdint.h>

#include "oomplan/compat.h"
#include "oomplan/model.h"
#include "oomplan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What may be taken beyond what leaves the science alone; bits. */
/* Bits: the third is the first two together. */
#define OOM_ALLOWS(X) \
	X(OOM_ALLOW_SEQ_LEN = 1, "seq-len", "shorter sequences, smaller images") \
	X(OOM_ALLOW_LORA, "lora", "adapters in place of the whole model") \
	X(OOM_ALLOW_SCIENCE, "science", "both")
enum oom_allow { OOM_ALLOWS(OOM_WORD_ID) };
/* The word behind --allow: "seq-len", "lora", "science". */
OOM_API const char *oom_allow_str(enum oom_allow what);

/* One rung.  apply changes the plan by one step of the rung and returns false when it has
 * nothing (more) to change. */
struct oom_rung {
	int number;                     /* 1..10, playbook M4 */
	const char *name;
	enum oom_class cls;
	const char *cost;               /* what it costs the run */
	const char *setting;            /* the exact thing to type */
	const char *source;
	enum oom_allow allow;           /* what must be allowed; 0: the rung is always taken */
	bool more_gpus;                 /* on one GPU there is nothing to change, more would help */
	bool (*apply)(struct oom_plan *plan, const struct oom_model *model);
	/* the whole-numbered knobs that it sets and no other rung does: to be tried without */
	const char *knobs[4];
};
/* The table, in order; NULL past the end. */
OOM_API const struct oom_rung *oom_rung_at(size_t i);
/* By the playbook's number; NULL if there is none. */
OOM_API const struct oom_rung *oom_rung_numbered(int number);

enum oom_rung_outcome {
	OOM_RUNG_NOT_NEEDED,
	OOM_RUNG_TAKEN,
	OOM_RUNG_NO_HELP,
	OOM_RUNG_NOT_APPLICABLE,
	OOM_RUNG_OFFERED,
	OOM_RUNG_GIVEN_BACK,            /* taken, and needless beside those taken after it */
	OOM_RUNG_REFUSED                /* no framework runs what it leads to */
};

struct oom_rung_result {
	enum oom_rung_outcome outcome;
	uint64_t before_bytes, after_bytes;     /* used bytes on the fullest GPU */
	bool fits;                              /* after it */
	char note[200];
};

#define OOM_RUNGS 10
struct oom_ladder {
	struct oom_plan start, plan;            /* asked for; after the climb */
	struct oom_eval start_eval, eval;
	bool start_fits, fits;
	struct oom_rung_result rung[OOM_RUNGS];
	/* what was asked is refused, or becomes another run: the climb began from what runs instead */
	bool mended;
	struct oom_plan runs;                   /* that; start where nothing was mended */
	int64_t effective_batch;                /* sequences an optimizer step sees: kept exactly */
	char note[300];                         /* about the batch */
	size_t replayed;                        /* verdicts that took a replay of the allocator */
};

/* Where the plan names a global batch: makes micro-batch x accumulation x data-parallel ranks equal
 * it, by the largest micro-batch up to the asked one that divides a rank's share.  What that changes
 * is said in note, else it is "". */
OOM_API void oom_plan_settle_batch(struct oom_plan *plan, char note[300]);
/* What every command does to a plan for a model before it is priced: that; images have no seq_len;
 * adapters without targets get the family's. */
OOM_API void oom_plan_settle_for(struct oom_plan *plan, const struct oom_model *model,
				 char note[300]);

/* Climbs from start, whose global batch is settled first; the effective batch (micro x accumulation
 * x GPUs) never changes.  Every verdict is oom_judge's.  The plans at both ends, and each rung's
 * before and after, are replayed and therefore priced as oom_evaluate prices them with
 * OOM_EVAL_REPLAY; start_eval and eval have their buckets.  No rung leads to a plan that
 * oom_compat_allows does not (gpu may be NULL, see there); one that turns out not to be needed once
 * the others are taken is given back.  Within a rung of several steps those
 * that do not fit are compared by used_bytes_estimated.  Deterministic. */
OOM_API enum oom_status oom_ladder_climb(struct oom_evaluator *ev, const struct oom_model *model,
					 const struct oom_plan *start, const struct oom_gpu *gpu,
					 uint64_t capacity_bytes, unsigned allow,
					 struct oom_ladder *out,
					 struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
