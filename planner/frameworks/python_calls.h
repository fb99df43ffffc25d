/* What the readers of Python's calls share: arguments of a class or a function by name.  Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_PYTHON_CALLS_H
#define OOM_FRAMEWORKS_PYTHON_CALLS_H

#include "parts.h"

/* CLASS.function.key; "" where it is not said.  path: the key's, for fw_set. */
const char *python_argument(const struct fw_part *p, const char *class, const char *function, const char *key,
			    char path[160]);
/* The knob is what that argument says; one that is known only when the script runs is withheld. */
void python_take(struct fw_part *p, const char *knob, const char *class, const char *function, const char *key);
void python_withhold_unknown(struct fw_part *p, const char *knob, const char *path);
/* "torch.bfloat16": bf16; "" for what is none. */
const char *python_dtype(const char *text);
/* Trainers of pairs whose own argument once was the length; ends with NULL. */
extern const char *const python_pair_trainers[];
/* python_unsloth.c: a script that loads through this class of unsloth's. */
void python_unsloth(struct fw_part *p, const char *class);

#endif
