/* Library generations: which version of a library changed how much memory a run takes.
 *
 * A row says that a library before some version runs one setting of a plan in another way.  A plan may name
 * versions (of transformers, torch, bitsandbytes, peft, deepspeed, accelerate); without one, the newest that is modelled
 * is assumed. */
#ifndef OOMPLAN_GENERATIONS_H
#define OOMPLAN_GENERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum oom_generation_of {
	OOM_ABOUT_ALL,
	OOM_ABOUT_LABELS,          /* the loss that a model makes of labels, which most trainers of other objectives give it none of */
	OOM_ABOUT_ANSWERS          /* the log-probabilities that trainers of preferences take of its logits */
};

struct oom_generation {
	const char *library;    /* the knob for its version */
	int64_t before;         /* OOM_VERSION; the first version that no longer does so */
	const char *knob;       /* the setting that is run in another way */
	const char *from, *to;  /* its value as asked, and the value that it amounts to */
	const char *summary;    /* a sentence without capital letter and full stop */
	const char *source;
	bool of_torch;          /* it applies only to PyTorch's own optimizers */
	const char *since;      /* what `from` amounts to in a later version that is named; NULL: `from` itself */
	unsigned char of;       /* an oom_generation_of: which objectives it is about */
	const char *engine;     /* it applies under this engine alone; NULL: under all */
};
/* The i-th row; NULL past the end. */
OOM_API const struct oom_generation *oom_generation_at(size_t i);

/* Applies the plan's versions to its knobs.  Afterwards the plan names no version.  A plan without versions
 * does not change. */
OOM_API void oom_plan_resolve(struct oom_plan *plan);
/* True if oom_plan_resolve would change the plan. */
OOM_API bool oom_plan_dated(const struct oom_plan *plan);

/* The row that changes the plan's current value of this knob, or NULL. */
OOM_API const struct oom_generation *oom_plan_aged(struct oom_plan *plan, const char *knob);

#ifdef __cplusplus
}
#endif

#endif
