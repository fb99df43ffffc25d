/* ms-swift's keys, and where they are declared.  Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_MS_SWIFT_H
#define OOM_FRAMEWORKS_MS_SWIFT_H

#include "framework.h"

#define ARGS "swift/trainers/arguments.py"
#define BASE "swift/arguments/base_args"
#define TUNER "swift/arguments/tuner_args.py"
#define MEGATRON "swift/megatron/arguments/megatron_args.py"
#define GALORE "swift/optimizers/galore, rank 128"
#define LISA "swift/callbacks/lisa.py"

extern const struct fw_row ms_swift_rows[];
extern const char ms_swift_idle[];
/* ms_swift_loss.c, behind hf_liger() */
void ms_swift_own_loss(struct fw_part *part);

#endif
