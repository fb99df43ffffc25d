/* --check: a gate for CI.  Set-ups are judged as asked, one row each; the exit status says whether all
 * of them fit. */
#ifndef OOM_CLI_CHECK_H
#define OOM_CLI_CHECK_H

#include "cli.h"

struct oom_check_row {
	char *name;                     /* owned, as is the text */
	char *text;                     /* why it does not fit, or has no verdict; "" else */
	bool fits, failed;              /* failed: it could not be judged */
	uint64_t used_bytes, capacity_bytes;
};

struct oom_check {
	const struct oom_job *job;
	struct oom_check_row *row;      /* owned */
	size_t n, cap;
};

/* More rows than anybody reads. */
#define OOM_CHECK_MOST 100000

/* Usage that makes no sense, --report without --check among it: an exit code, 0 = fine. */
int oom_check_usage(const struct oom_job *job);
/* Judges q as asked and adds it as `name`; OOM_ERR_MEMORY, OOM_ERR_INTERNAL, and OOM_ERR_LIMIT above
 * OOM_CHECK_MOST rows.  What cannot run is a row without a verdict. */
enum oom_status oom_check_add(struct oom_check *c, struct oom_evaluator *ev, const char *name,
			      const struct oom_question *q, struct oom_error *err);
/* Adds a row that could not be judged. */
enum oom_status oom_check_add_failed(struct oom_check *c, const char *name, const char *why,
				     struct oom_error *err);
/* Prints the rows, writes the tables of --report, releases, and returns the exit code: 1 when a row does
 * not fit, 3 when one could not be judged or there is none. */
int oom_check_end(struct oom_check *c);
void oom_check_release(struct oom_check *c);

/* One set-up, or what a runs file holds: returns an exit code. */
int oom_check_one(struct oom_job *job);
int oom_check_runs(struct oom_job *job);

#endif
