/* torchtitan's jobs: TOML until 2025, since then functions of Python.  Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_TORCHTITAN_H
#define OOM_FRAMEWORKS_TORCHTITAN_H

#include "framework.h"

/* torchtitan_registry.c: rows of today's sections, and what they mean besides; false: the job is of another generation. */
extern const struct fw_row torchtitan_today_rows[];
extern const char torchtitan_today_idle[];
bool torchtitan_today(struct fw_part *p);

#endif
