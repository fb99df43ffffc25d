/* Output that arrives whole or is an error.
 *
 * Files are written beside their place, synced and renamed.  Standard output is checked once, at
 * the end: a full disk is reported (exit 3); a reader that left (`| head`) ends the program at once
 * with exit 3 and no word. */
#ifndef OOM_CLI_OUT_H
#define OOM_CLI_OUT_H

#include <limits.h>
#include <stdio.h>

#include "oomplan/status.h"

struct oom_out {
	FILE *file;             /* where to write */
	const char *name;       /* for messages; the caller's */
};

/* First thing in main: closed descriptors 0 to 2 are blocked, signals that end the program remove
 * the temporary file, other handlers interrupt no read or write. */
void oom_out_start(void);
/* The file that an output of that name replaces: through a symbolic link the one that it names, not the link.  OOM_ERR_IO where
 * that leads to none; OOM_ERR_INVALID: the name is too long, or this command has written that file already. */
enum oom_status oom_out_resolve(const char *path, char file[PATH_MAX], struct oom_error *err);
/* Opens path for writing through a temporary file; NULL and "-" are standard output.  What is no
 * regular file (a pipe, /dev/null) is written in place.  One at a time.  OOM_ERR_IO,
 * OOM_ERR_INVALID (name too long). */
enum oom_status oom_out_open(struct oom_out *out, const char *path, struct oom_error *err);
/* Flushes, syncs and renames.  On OOM_ERR_IO the file at path is as it was. */
enum oom_status oom_out_close(struct oom_out *out, struct oom_error *err);
/* Gives up: the file at path is as it was. */
void oom_out_discard(struct oom_out *out);
/* Part of what is being written could not be made (no memory): oom_out_flush will say so. */
void oom_out_incomplete(void);
/* Flushes standard output; OOM_ERR_IO with the reason when anything of it was lost, or with "" if that was given
 * before. */
enum oom_status oom_out_flush(struct oom_error *err);

#endif
