/* The playbook's twenty entries in short: what each symptom means and which command answers it. */
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
	const char *text;       /* a paragraph, unwrapped */
	const char *command;    /* "oomplan ..." that shows it in numbers */
	const char *source;
};
/* NULL past the end. */
OOM_API const struct oom_lore *oom_lore_at(size_t i);
/* By id, in any case; NULL when there is none. */
OOM_API const struct oom_lore *oom_lore_find(const char *id);

#ifdef __cplusplus
}
#endif

#endif
