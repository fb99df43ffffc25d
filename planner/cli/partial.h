/* A table that may be cut short and continued: FILE.partial with FILE.partial.state beside it,
 * FILE once it is whole. */
#ifndef OOM_CLI_PARTIAL_H
#define OOM_CLI_PARTIAL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "oomplan/status.h"

struct oom_partial {
	char target[PATH_MAX], path[PATH_MAX], state[PATH_MAX];
	FILE *file;
	uint64_t fingerprint;
	uint64_t cells, rows;           /* in the file when it was opened */
};
/* Opens FILE.partial, at its end when resume is set and one is there.  OOM_ERR_INVALID when it
 * belongs to another table, is there without resume, or is being written by another process;
 * OOM_ERR_IO. */
enum oom_status oom_partial_open(struct oom_partial *p, const char *target, uint64_t fingerprint,
				 bool resume, struct oom_error *err);
/* Notes that these cells and rows are in the file.  Rows written after the last note are written
 * again by a resumed run: it survives the end of the process at any moment. */
enum oom_status oom_partial_note(struct oom_partial *p, uint64_t cells, uint64_t rows,
				 struct oom_error *err);
/* Whole: synced, renamed to FILE. */
enum oom_status oom_partial_finish(struct oom_partial *p, struct oom_error *err);
/* Closes and leaves it as last noted. */
void oom_partial_leave(struct oom_partial *p);

#endif
