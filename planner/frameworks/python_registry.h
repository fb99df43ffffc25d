/* What the parts of the reader of registries share (python_registry.c): the module's runs, the documents that values lie in.
 * Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_PYTHON_REGISTRY_H
#define OOM_FRAMEWORKS_PYTHON_REGISTRY_H

#include "python_parts.h"

/* MADE_MAX: functions that call each other all over make no more configs than that */
enum { RUNS_MAX = 64, CALLS_DEEP = 12, MADE_MAX = 1000, LEVELS = 24 };

struct run {
	const char *name;
	size_t n;
	const char *body, *end;
	uint32_t line;
};

struct registry {
	struct python *y;
	struct doc calls;               /* of what is called within literals: nobody's */
	struct run runs[RUNS_MAX];
	size_t n_runs;
	int depth;
	unsigned made;
};

/* Whether the cursor stands at the word, with something behind it. */
bool registry_begins(const struct python *y, const char *word);
/* To the end of the statement: of its line, but for what brackets and strings hold. */
void registry_skip(struct python *y);
/* The run of the name's first n characters, or NULL. */
const struct run *registry_run_named(const struct registry *g, const char *name, size_t n);
/* The map that the run's function returns, or NULL; the cursor and the names stay as they were. */
struct doc_node *registry_config(struct registry *g, const struct run *run);

#endif
