/* What an evaluation leaves out or only approximates, as sentences. */
#ifndef OOM_STEP_WARNINGS_H
#define OOM_STEP_WARNINGS_H

#include "tape/tape.h"

/* Puts a sentence, if there is one, into the n-th place; returns the next that is free. */
size_t oom_warnings_add(struct oom_eval *out, size_t n, const char *sentence);
/* Sets out's sentences: of the engine that shards the step, of the model as it was recorded, of stored weights. */
void oom_warnings_collect(const struct oom_tape *t, const struct oom_model *model, const struct oom_plan *plan,
			  struct oom_eval *out);

#endif
