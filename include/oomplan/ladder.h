/* The ladder: ten fixes in the order of what they cost, taken one by one until the plan fits. */
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

/* Which changes of the science may be made.  These are bits; the third is the first two together. */
#define OOM_ALLOWS(X) \
	X(OOM_ALLOW_SEQ_LEN = 1, "seq-len", "shorter sequences, smaller images") \
	X(OOM_ALLOW_LORA, "lora", "adapters in place of the whole model") \
	X(OOM_ALLOW_SCIENCE, "science", "both")
enum oom_allow { OOM_ALLOWS(OOM_WORD_ID) };
/* The word for --allow: "seq-len", "lora" or "science". */
OOM_API const char *oom_allow_str(enum oom_allow what);

/* One rung.  apply changes the plan by one step of the rung; it returns false if there is nothing left to
 * change. */
struct oom_rung {
	int number;                     /* 1..10, playbook M4 */
	const char *name;
	enum oom_class cls;
	const char *cost;               /* what it costs the run */
	const char *setting;            /* exactly what to type */
	const char *source;
	enum oom_allow allow;           /* what must be allowed; 0: the rung may always be taken */
	bool more_gpus;                 /* it changes nothing on one GPU, but could on several */
	bool (*apply)(struct oom_plan *plan, const struct oom_model *model);
	/* the integer knobs that this rung alone sets, so that the plan can be tried without it */
	const char *knobs[4];
};
/* The table, in order; NULL past the end. */
OOM_API const struct oom_rung *oom_rung_at(size_t i);
/* The rung with this number in the playbook, or NULL. */
OOM_API const struct oom_rung *oom_rung_numbered(int number);

enum oom_rung_outcome {
	OOM_RUNG_NOT_NEEDED,
	OOM_RUNG_TAKEN,
	OOM_RUNG_NO_HELP,
	OOM_RUNG_NOT_APPLICABLE,
	OOM_RUNG_OFFERED,
	OOM_RUNG_GIVEN_BACK,            /* taken, then found needless beside later rungs */
	OOM_RUNG_REFUSED                /* no framework runs the plan it leads to */
};

struct oom_rung_result {
	enum oom_rung_outcome outcome;
	uint64_t before_bytes, after_bytes;     /* bytes used on the fullest GPU */
	bool fits;                              /* after it */
	char note[200];
};

#define OOM_RUNGS 10
struct oom_ladder {
	struct oom_plan start, plan;            /* as asked, and after the climb */
	struct oom_eval start_eval, eval;
	bool start_fits, fits;
	struct oom_rung_result rung[OOM_RUNGS];
	/* what was asked is refused or becomes another run, so that the climb began from what runs instead */
	bool mended;
	struct oom_plan runs;                   /* the plan it began from; equal to start if not mended */
	int64_t effective_batch;                /* sequences per optimizer step, which are kept exactly */
	char note[300];                         /* what happened to the batch, or "" */
	size_t replayed;                        /* verdicts that needed a replay of the allocator */
};

/* If the plan names a global batch, makes micro-batch x accumulation x data-parallel ranks equal to it: the
 * micro-batch becomes the largest one, up to the one asked for, that divides a rank's share.  note says
 * what changed, or is "". */
OOM_API void oom_plan_settle_batch(struct oom_plan *plan, char note[300]);
/* What every command does to a plan for a model before pricing it: settles the batch as above, clears
 * seq_len for image models, and gives adapters without targets the family's targets. */
OOM_API void oom_plan_settle_for(struct oom_plan *plan, const struct oom_model *model,
				 char note[300]);

/* Climbs the ladder from start, whose global batch is settled first.  The effective batch (micro-batch x
 * accumulation x GPUs) never changes.  Every verdict is oom_judge's.  The first and the last plan, and the
 * plans before and after each rung, are priced with OOM_EVAL_REPLAY; start_eval and eval have their
 * buckets.  No rung leads to a plan that oom_compat_allows refuses (gpu may be NULL, see there), and a rung
 * that is not needed once the others are taken is given back.  Among the steps of one rung, those that do
 * not fit are compared by used_bytes_estimated.  The result is deterministic. */
OOM_API enum oom_status oom_ladder_climb(struct oom_evaluator *ev, const struct oom_model *model,
					 const struct oom_plan *start, const struct oom_gpu *gpu,
					 uint64_t capacity_bytes, unsigned allow,
					 struct oom_ladder *out,
					 struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
