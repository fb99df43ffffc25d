/* Inside of struct oom_model. */
#ifndef OOM_MODEL_H
#define OOM_MODEL_H

#include "arch.h"

struct oom_model {
	const struct oom_keys *keys;
	struct oom_keys defaults;       /* of the model type; owned */
	const char *prefix;             /* "" or "config." */
	struct oom_arch arch;
	char unknown[400];              /* keys the type does not have */
};
/* Fills m->unknown. */
void oom_model_find_unknown(struct oom_model *m);

#endif
