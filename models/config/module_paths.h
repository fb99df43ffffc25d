/* What transformers calls the modules of a model type (data/module_paths.tsv): full paths for patterns
 * over them, from what a recording knows of a module. */
#ifndef OOM_MODULE_PATHS_H
#define OOM_MODULE_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which part of a composition of text and another modality; any: of a model that is no such composition. */
enum oom_model_part { OOM_PART_TEXT, OOM_PART_TOWER, OOM_PART_PROJECTOR, OOM_PART_ANY };

/* A module as a recording sees it. */
struct oom_module_at {
	const char *word;       /* the last part of its path */
	enum oom_model_part part;
	uint32_t stack;         /* stacks of layers of this part run before its own */
	int64_t layer;          /* number in its stack; -1: outside of any */
	uint32_t nth;           /* modules of the same word and the next line's kind met before in the layer, or in the part */
	bool shared;            /* of experts that every token goes through */
	bool plain;             /* of a weight or a bias, as the leaves have */
	const char *within;     /* NULL, or a module on the path before the word */
};

enum { OOM_PATH_SIZE = 240 };

/* The type's modules as the table has them, or NULL.  Lives as long as the library.  `task` (may be NULL): those of the
 * class that is built for it, where the table has a line for that: BART's decoder alone, BERT's classifier. */
const char *oom_module_paths(const char *model_type, const char *task);
/* The full path: of the nth module of that word where the table (may be NULL) has it, else made of
 * what there is.  False: it is a guess, as the table does not have so many. */
bool oom_module_path(const char *paths, const struct oom_module_at *at, char path[OOM_PATH_SIZE]);

#endif
