/* The ladder: ten fixes in the order of their cost, climbed until the plan fits. */
#ifndef OOMPLAN_LADDER_H
#define OOMPLAN_LADDER_H

#include <stdbool.h>
#include <stdint.h>

#include "oomplan/model.h"
#include "oomplan/plan.h"

/* One rung.  apply changes the plan by one step of the rung and returns false when it has
 * nothing (more) to change. */
struct oom_rung {
	int number;                     /* 1..10, playbook M4 */
	const char *name;
	enum oom_class cls;
	const char *cost;               /* what it costs the run */
	const char *setting;            /* the exact thing to type */
	const char *source;
	const char *allow;              /* word that must be allowed, NULL: always taken */
	bool (*apply)(struct oom_plan *plan, const struct oom_model *model);
};
/* The table, in order; NULL past the end. */
OOM_API const struct oom_rung *oom_rung_at(size_t i);

enum oom_rung_outcome {
	OOM_RUNG_NOT_NEEDED,
	OOM_RUNG_TAKEN,
	OOM_RUNG_NO_HELP,
	OOM_RUNG_NOT_APPLICABLE,
	OOM_RUNG_OFFERED
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
	int64_t effective_batch;                /* sequences an optimizer step sees: kept exactly */
	char note[300];                         /* about the batch */
};

/* What may be taken beyond the always-allowed rungs. */
enum oom_allow { OOM_ALLOW_SEQ_LEN = 1, OOM_ALLOW_LORA = 2, OOM_ALLOW_SCIENCE = 3 };

/* Climbs.  Deterministic; the effective batch (micro x accumulation x GPUs) never changes. */
OOM_API enum oom_status oom_ladder_walk(struct oom_evaluator *ev, const struct oom_model *model,
					const struct oom_plan *start, uint64_t capacity_bytes,
					unsigned allow, struct oom_ladder *out,
					struct oom_error *err);
/* The same, with the plan it ends at replayed through the allocator and fully described (buckets):
 * what a report shows. A verdict that the replay overturns makes it climb again. */
OOM_API enum oom_status oom_ladder_plan(struct oom_evaluator *ev, const struct oom_model *model,
					const struct oom_plan *start, uint64_t capacity_bytes,
					unsigned allow, struct oom_ladder *out,
					struct oom_error *err);

#endif
