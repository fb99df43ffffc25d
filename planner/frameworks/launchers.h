/* Programs that start others, and those that train.  Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_LAUNCHERS_H
#define OOM_FRAMEWORKS_LAUNCHERS_H

#include "arguments.h"

enum launcher_kind {
	WRAPPER,                /* runs what follows; its own options mean nothing here */
	LAUNCHER,               /* its options count */
	INTERPRETER,            /* python: "-m module" or a script follows */
	PROGRAM                 /* trains; its command follows */
};
struct launcher {
	const char *word, *second;      /* the second word, where it needs one */
	enum launcher_kind kind;
};

/* What the words begin with; NULL: nothing of the kind. */
const struct launcher *launcher_at(const struct args_word *w, size_t n);

#endif
