/* A row of a runs file as a plan. */
#ifndef OOM_RUN_PLAN_H
#define OOM_RUN_PLAN_H

#include "input/csv_rows.h"
#include "oomplan/plan.h"

/* Sets p, which holds the defaults, to what the row says; its length is taken from its lengths where it has such, of
 * files in dir. */
enum oom_status oom_run_plan(const char *dir, const struct oom_csv_row *row, struct oom_plan *p,
			     struct oom_error *err);

#endif
