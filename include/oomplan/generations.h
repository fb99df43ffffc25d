/* Library generations: what changed in memory when.
 *
 * A row says that a library before some version runs one setting of the plan another way.  A plan
 * names versions (transformers, torch, bitsandbytes, peft, deepspeed); with none, the newest that is modelled runs. */
#ifndef OOMPLAN_GENERATIONS_H
#define OOMPLAN_GENERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oom_generation {
	const char *library;    /* the knob that takes its version */
	int64_t before;         /* OOM_VERSION: the first that no longer does so */
	const char *knob;       /* what is run another way */
	const char *from, *to;  /* its word as asked, and the word it comes to */
	const char *summary;    /* a sentence without capital and full stop */
	const char *source;
	bool of_torch;          /* only where PyTorch's own optimizers step */
};
/* The rows, NULL past the end. */
OOM_API const struct oom_generation *oom_generation_at(size_t i);

/* What the plan's versions make of its knobs.  Afterwards it names no version; a plan that names none
 * stays as it is. */
OOM_API void oom_plan_resolve(struct oom_plan *plan);
/* Whether oom_plan_resolve would change it. */
OOM_API bool oom_plan_dated(const struct oom_plan *plan);

/* The row that changes what the plan says of this knob now, or NULL. */
OOM_API const struct oom_generation *oom_plan_aged(struct oom_plan *plan, const char *knob);

#ifdef __cplusplus
}
#endif

#endif
