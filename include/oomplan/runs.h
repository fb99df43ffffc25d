/* Runs files: one run a row in, the same row with predictions out. */
#ifndef OOMPLAN_RUNS_H
#define OOMPLAN_RUNS_H

#include <stdio.h>

#include "oomplan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oom_runs_report {
	size_t rows, failed, warned;
	char unknown_columns[200];      /* carried through; "" if none */
};

/* Reads path (CSV; columns named as the knobs, and `model`: a path relative to models_dir, or to
 * the CSV's folder when that is NULL, or a bundled name), prices every row and writes it with
 * pred_* columns to out.  A row that cannot be priced keeps its place with pred_error; an
 * approximated structure fills pred_warning. */
OOM_API enum oom_status oom_runs_price(const char *path, const char *models_dir, FILE *out,
				       struct oom_runs_report *report, struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
