/* Inside torchtune's reader.  Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_TORCHTUNE_H
#define OOM_FRAMEWORKS_TORCHTUNE_H

#include "framework.h"

#define RECIPES "torchtune recipes"

/* torchtune_batches.c: ac_mode and ac_option; batches of validation and of PPO. */
void torchtune_checkpoints(struct fw_part *p);
void torchtune_batches(struct fw_part *p);

#endif
