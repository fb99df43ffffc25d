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

/* One run of such a file; valid during the call. */
struct oom_run {
	size_t line;                    /* on which the row ends */
	const char *name, *id;          /* of the model, as written; id: NULL without the column */
	const char *gpu, *gpu_memory;   /* cells of these columns; NULL or "": none */
	struct oom_model *model;        /* NULL: it cannot be read */
	const struct oom_plan *plan;    /* of the row, its batch not settled for the model */
	const char *error;              /* why the row is none; "" else */
};
/* Anything but OOM_OK ends the reading with that. */
typedef enum oom_status (*oom_runs_fn)(void *ctx, const struct oom_run *run, struct oom_error *err);
/* Reads path as oom_runs_price does and calls fn for every row in order.  OOM_ERR_INVALID for Megatron-LM
 * launches. */
OOM_API enum oom_status oom_runs_each(const char *path, const char *models_dir, oom_runs_fn fn,
				      void *ctx, struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
