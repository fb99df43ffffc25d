/* The twenty entries of the playbook in short: what each symptom means and which command answers it. */
#ifndef OOMPLAN_LORE_H
#define OOMPLAN_LORE_H

#include <stddef.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oom_lore {
	const char *id;         /* "M8" */
	const char *title;
	const char *text;       /* one paragraph without line breaks */
	const char *command;    /* an "oomplan ..." command that shows it in numbers */
	const char *source;
};
/* The i-th entry; NULL past the end. */
OOM_API const struct oom_lore *oom_lore_at(size_t i);
/* The entry with this id, in upper or lower case; NULL if there is none. */
OOM_API const struct oom_lore *oom_lore_find(const char *id);

#ifdef __cplusplus
}
#endif

#endif
