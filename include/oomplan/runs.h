/* Runs files: a row per run goes in, and the same row with predictions comes out. */
#ifndef OOMPLAN_RUNS_H
#define OOMPLAN_RUNS_H

#include <stdio.h>

#include "oomplan/calibrate.h"
#include "oomplan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OOM_RUN_GROUP = 48, OOM_RUN_ERRORS = 24 };
/* The errors of a group of predictions. */
struct oom_run_error {
	char group[OOM_RUN_GROUP];      /* the column "group", otherwise the kind of run (oom_kind_of_run) */
	enum oom_measure measure;
	size_t n;
	double median, p95;             /* quantiles of |predicted / measured - 1| */
	double under;                   /* the share of runs predicted more than 5 % too low */
};
struct oom_runs_report {
	size_t rows, failed, warned;
	struct oom_error first;         /* why the first of those that failed has no price */
	/* copied to the output, with the knob that was probably meant; "" if there are none */
	char unknown_columns[200];
	/* if rows have measured columns, named as for oom_calibration_rows: the first OOM_RUN_ERRORS
	 * groups */
	struct oom_run_error error[OOM_RUN_ERRORS];
	size_t n_errors;
};

/* Reads the CSV at path, prices every row, and writes it to out with pred_* columns, in place of those that it
 * had.  OOM_ERR_PARSE without a row.  Columns have the names of knobs; `model` is a bundled name, or a path relative to models_dir or, if that is NULL, to the CSV's
 * folder.  A row that cannot be priced keeps its place and gets pred_error; a structure that is only
 * approximated fills pred_warning. */
OOM_API enum oom_status oom_runs_price(const char *path, const char *models_dir, FILE *out,
				       struct oom_runs_report *report, struct oom_error *err);

/* One run of such a file, valid during the call. */
struct oom_run {
	size_t line;                    /* the line on which the row ends */
	const char *name, *id;          /* the model and the row's id, as written; id is NULL without that column */
	const char *gpu, *gpu_memory;   /* the cells of these columns; NULL or "" if there are none */
	struct oom_model *model;        /* NULL: it cannot be read */
	const struct oom_plan *plan;    /* the row's plan, whose batch is not settled for the model yet */
	const char *error;              /* why the row is not a run, or "" */
};
/* Any status but OOM_OK ends the reading, which returns it. */
typedef enum oom_status (*oom_runs_fn)(void *ctx, const struct oom_run *run, struct oom_error *err);
/* Reads path as oom_runs_price does and calls fn for every row in order.  OOM_ERR_INVALID for Megatron-LM
 * launches. */
OOM_API enum oom_status oom_runs_each(const char *path, const char *models_dir, oom_runs_fn fn,
				      void *ctx, struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
