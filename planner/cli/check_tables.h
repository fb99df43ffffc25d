/* Tables of the gate: of each format a name and what writes it. */
#ifndef OOM_CLI_CHECK_TABLES_H
#define OOM_CLI_CHECK_TABLES_H

#include <stdio.h>

#include "check.h"

struct check_format {
	const char *name;
	void (*write)(FILE *out, const struct oom_check *c, size_t fitting);
};
/* Of "junit:FILE"; *file: NULL where there is none.  NULL: no such format. */
const struct check_format *check_format(const char *spelt, const char **file);
void check_write_text(FILE *out, const struct oom_check *c, size_t fitting);
/* Into the file, or to standard output where that is NULL: an exit code, 0 = written. */
int check_write(const struct check_format *f, const char *file, const struct oom_check *c,
		size_t fitting);

#endif
