/* Runs files: one run a row in, the same row with predictions out. */
#ifndef OOMPLAN_RUNS_H
#define OOMPLAN_RUNS_H

#include <stdio.h>

#include "oomplan/calibrate.h"
#include "oomplan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OOM_RUN_GROUP = 48, OOM_RUN_ERRORS = 24 };
/* Predictions against what was measured. */
struct oom_run_error {
	char group[OOM_RUN_GROUP];      /* the column "group", else the kind of run (oom_kind_of_run) */
	enum oom_measure measure;
	size_t n;
	double median, p95;             /* of |predicted / measured - 1| */
	double under;                   /* share of runs predicted more than 5 % too low */
};
struct oom_runs_report {
	size_t rows, failed, warned;
	char unknown_columns[200];      /* carried through; "" if none */
	/* where rows have measured columns, named as oom_calibration_rows has them; the first
	 * OOM_RUN_ERRORS */
	struct oom_run_error error[OOM_RUN_ERRORS];
	size_t n_errors;
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
