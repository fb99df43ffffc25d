/* The one way in which files that users name are opened. */
#ifndef OOMPLAN_INPUT_OPEN_H
#define OOMPLAN_INPUT_OPEN_H

#include <stdio.h>

#include "oomplan/status.h"

/* "-" is standard input.  A pipe is read like a file, but one that nobody writes to is an error after two
 * seconds, where open() would wait for ever.  NULL with a sentence in *err: OOM_ERR_IO. */
FILE *oom_input_open(const char *path, struct oom_error *err);
/* Standard input stays open; NULL is nothing. */
void oom_input_close(FILE *f);

#endif
