/* Copies of models in fewer bits, by how their names end.  Private to planner/. */
#ifndef OOM_INPUT_COPIES_H
#define OOM_INPUT_COPIES_H

#include "oomplan/config.h"

/* Where the ending of a quantised copy's name begins ("-GPTQ-Int4"); NULL: the name has none. */
const char *oom_copy_ending(const char *name);

/* The keys of a copy: those of the config that it was made of, and the quantization_config that its ending stands for. */
enum oom_status oom_copy_keys(struct oom_keys *out, const char *ending, const char *config, size_t n, const char *name,
			      struct oom_error *err);

#endif
