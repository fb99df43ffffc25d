/* Errors of a runs file against what was measured, by group and quantity. */
#ifndef OOM_RUN_ERRORS_H
#define OOM_RUN_ERRORS_H

#include "oomplan/runs.h"

struct oom_run_errors {
	struct error *items;
	size_t n, cap;
};
/* What was not measured or predicted (0 or less) is passed over.  False: out of memory. */
bool oom_run_errors_add(struct oom_run_errors *e, const char *group, enum oom_measure m, double predicted,
			double measured);
/* By group in the order of their names, then by quantity; returns how many of `room` were filled. */
size_t oom_run_errors_sum(struct oom_run_errors *e, struct oom_run_error *out, size_t room);
void oom_run_errors_release(struct oom_run_errors *e);

#endif
