/* Where the cells of a sweep go: into a table, or through the gate. */
#ifndef OOM_CLI_SWEEP_OUT_H
#define OOM_CLI_SWEEP_OUT_H

#include "cli.h"
#include "oomplan/sweep.h"

struct oom_sweep_table {
	const char *output;             /* NULL: standard output */
	bool keep;                      /* what is written when the sweep is ended; needs a file */
	bool resume;                    /* continue what was kept */
	bool show;                      /* the progress, on standard error */
};
/* Writes the table; *rows: how many there are.  A sweep that is ended by a signal ends the program. */
enum oom_status oom_sweep_write(const struct oom_sweep_table *t, struct oom_sweep *s,
				const struct oom_sweep_options *options, uint64_t *rows,
				struct oom_error *err);
/* The gate (check.h) over every cell: an exit code. */
int oom_sweep_gate(const struct oom_job *job, struct oom_sweep *s, const struct oom_sweep_options *o);
/* The exit code of a sweep that could not be made. */
int oom_sweep_code(enum oom_status st);

#endif
