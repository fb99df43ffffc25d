/* The two halves of TRL's descriptor.  Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_TRL_H
#define OOM_FRAMEWORKS_TRL_H

#include <stdbool.h>

struct fw_part;

/* The objective of the program that is launched, or of the command in the file's first comment; NULL: neither says. */
const char *trl_launched(const struct fw_part *p);
void trl_objective(struct fw_part *p);
/* Options of a command whose program is not known: any trainer's. */
bool trl_lacks_program(const struct fw_part *p);

#endif
