/* axolotl's keys, and where they are declared.  Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_AXOLOTL_H
#define OOM_FRAMEWORKS_AXOLOTL_H

#include "framework.h"

#define SCHEMA "axolotl/utils/schemas/config.py"
#define TRAINING "axolotl/utils/schemas/training.py"
#define LIGER "axolotl/integrations/liger/plugin.py"
#define PEFT "axolotl/utils/schemas/peft.py"
#define NORMALIZE "axolotl/utils/config/__init__.py normalize_config"
#define BUILDER "axolotl/core/builders/base.py"

/* axolotl_keys.c; idle ones from a to h, from h to r, from r to z */
extern const struct fw_row axolotl_rows[];
extern const char axolotl_idle[], axolotl_idle_on[], axolotl_idle_last[];

#endif
