/* Calibration: measured runs compared with predictions give overheads, term by term with intervals, and
 * from them the probability that a plan fits.
 *
 * A run shows up to three figures, each of which depends on the one before:
 *
 *	allocated = states x P_states + activations x P_activations + transient x P_transient
 *	reserved  = fragmentation x allocated x (predicted reserved / predicted allocated)
 *	used      = reserved + workspaces + context + nccl (with more than one GPU)
 *
 * P_x are the predicted bytes of x that are alive at the peak of allocation.  The terms states, activations,
 * transient and fragmentation are factors around 1; context and nccl are bytes. */
#ifndef OOMPLAN_CALIBRATE_H
#define OOMPLAN_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/model.h"
#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum oom_term {
	OOM_TERM_STATES,        /* weights, buffers, inputs, gradients, optimizer, communication */
	OOM_TERM_ACTIVATIONS,   /* saved, autocast's copies, recomputed */
	OOM_TERM_TRANSIENT,     /* logits, loss, temporaries */
	OOM_TERM_FRAGMENTATION, OOM_TERM_CONTEXT, OOM_TERM_NCCL, OOM_TERMS
};
enum { OOM_SCALES = 3 };        /* the number of terms of the allocated bytes, which come first */
/* The figures of torch.cuda.max_memory_allocated, max_memory_reserved and nvidia-smi. */
enum oom_measure { OOM_MEASURE_ALLOCATED, OOM_MEASURE_RESERVED, OOM_MEASURE_USED, OOM_MEASURES };

/* What the runs say about a term.  From UNMEASURED on, the term has its default value. */
enum oom_term_state {
	OOM_TERM_FITTED,
	OOM_TERM_SHARED,        /* cannot be told apart from other terms: one value for all of them */
	OOM_TERM_UNMEASURED,    /* fewer than three runs measured the figure that shows it */
	OOM_TERM_ABSENT,        /* no run has any of it */
	OOM_TERM_COLLINEAR      /* another term explains what it would explain */
};
struct oom_overhead {
	double value;           /* a factor, or bytes (context, nccl) */
	double se, dof;         /* standard error, and its degrees of freedom */
	double def;             /* its default; for bytes NAN if the file has no prediction */
	enum oom_term_state state;
	unsigned with;          /* SHARED, COLLINEAR: a bit for each of the other terms */
	enum oom_measure from;  /* the figure whose regression gave it */
};
/* How far single measurements lie from what is expected: a standard deviation as a share of the prediction
 * and one in bytes, whose variances add. */
struct oom_spread {
	double share, bytes, dof;
	size_t n, n_outliers;   /* the runs that measured it, and those that were set aside */
};
enum { OOM_BEYOND = 24 };
/* Quantiles of measured over predicted in published readings from real cards (data/residuals.csv).
 * Predicted allocated bytes include the cuBLAS workspaces, as those of a card do. */
enum { OOM_RATIOS = 13 };
struct oom_ratios {
	double at[OOM_RATIOS];          /* ascending; kinds.c has their levels */
	size_t n;                       /* the number of readings behind them; 0: none */
	size_t own;                     /* how many of these are of this very kind of run */
};
struct oom_calibration {
	/* for a kind of run no terms are fitted, and only these ratios apply */
	struct oom_ratios real[OOM_MEASURES];
	struct oom_overhead term[OOM_TERMS];
	double cov[OOM_TERMS][OOM_TERMS];       /* zero between terms of different regressions */
	struct oom_spread spread[OOM_MEASURES];
	/* Runs above the noise: their share, where they begin (relative to the prediction), and the
	 * generalised Pareto distribution of their distance from there. */
	double tail_share, tail_from, tail_scale, tail_shape;
	/* the largest of those distances, in descending order, and how many there are in all */
	double beyond[OOM_BEYOND];
	size_t n_beyond, n_tail;
	size_t n;
};

/* A prediction split into the parts that terms multiply or replace, in bytes. */
struct oom_parts {
	double part[OOM_SCALES];        /* their sum is the allocated peak */
	double reserved, context, workspace, nccl;
	bool many;              /* more than one GPU */
	bool split;             /* part[] is known; otherwise part[0] is the sum */
	bool overheads;         /* context and nccl are known */
};
/* The parts of an evaluation with OOM_EVAL_BUCKETS.  Without buckets everything counts as states. */
OOM_API struct oom_parts oom_parts_of(const struct oom_eval *e);

struct oom_calibration_row {
	char name[48];          /* the row's "id", "name", "run" or "model", or "" */
	size_t line;
	struct oom_parts predicted;
	double measured[OOM_MEASURES];  /* bytes; 0: not measured */
	double residual[OOM_MEASURES];  /* measured / calibrated - 1; 0 if not measured */
	unsigned outlier;       /* a bit for every figure for which it was set aside */
};

/* Fits the terms: a robust regression (Tukey's bisquare, GSL's multifit_robust), then least squares without
 * the outliers that it shows.  The rows get their residuals and outlier bits.  Terms that the rows do not
 * identify are taken from def; if def is NULL, factors are 1 and overheads as predicted.  OOM_ERR_INVALID
 * if fewer than three rows measured the same figure, or if a size is not positive. */
OOM_API enum oom_status oom_calibrate(struct oom_calibration *out, struct oom_calibration_row *rows,
				      size_t n, const struct oom_calibration *def,
				      struct oom_error *err);

/* Names: "states", ...; a sentence about a term; "allocated", "reserved", "nvidia-smi"; "fitted", ... */
OOM_API const char *oom_term_name(enum oom_term term);
OOM_API const char *oom_term_summary(enum oom_term term);
OOM_API const char *oom_measure_str(enum oom_measure m);
OOM_API const char *oom_term_state_str(enum oom_term_state s);
/* True if the term is in bytes, false if it is a factor. */
OOM_API bool oom_term_is_bytes(enum oom_term term);
/* The half-width of the term's interval of this level, such as 0.95; 0 for a default. */
OOM_API double oom_term_half_width(const struct oom_calibration *c, enum oom_term term,
				   double level);

/* For a run with this prediction, in bytes: the expected figure; the level-quantile of a single run that is
 * no outlier; and the bound that a share `level` of all runs, outliers included, does not exceed (level is
 * between 0.5 and 0.9999). */
OOM_API double oom_calibrated(const struct oom_calibration *c, const struct oom_parts *p,
			      enum oom_measure m);
OOM_API double oom_calibrated_interval(const struct oom_calibration *c, const struct oom_parts *p,
				       enum oom_measure m, double level);
OOM_API double oom_calibrated_bound(const struct oom_calibration *c, const struct oom_parts *p,
				    enum oom_measure m, double level);
/* The probability that the figure does not exceed the capacity. */
OOM_API double oom_calibrated_fits(const struct oom_calibration *c, const struct oom_parts *p,
				   enum oom_measure m, double capacity);
/* The value of the knob `margin` with which an uncalibrated prediction gives the calibrated verdict, for
 * runs composed like p: the bound of this confidence equals the capacity (or, for confidence 0, the expected
 * figure leaves `margin` free).  It is negative if less is needed than predicted. */
OOM_API double oom_calibrated_margin(const struct oom_calibration *c, const struct oom_parts *p,
				     double capacity, double confidence, double margin);

/* Writes the calibration as text, the content of a file; text has room for OOM_CALIBRATION_TEXT bytes. */
enum { OOM_CALIBRATION_VERSION = 2, OOM_CALIBRATION_TEXT = 6000 };
OOM_API void oom_calibration_write(const struct oom_calibration *c,
				   char text[OOM_CALIBRATION_TEXT]);
/* Reads such a file or text.  Errors name the file and the line.  OOM_ERR_PARSE: it is not a calibration;
 * OOM_ERR_INVALID: another version, or impossible values; OOM_ERR_IO. */
OOM_API enum oom_status oom_calibration_read(struct oom_calibration *out, const char *path,
					     struct oom_error *err);
OOM_API enum oom_status oom_calibration_parse(struct oom_calibration *out, const char *text,
					      size_t size, const char *name, struct oom_error *err);
/* The shipped calibration, fitted to data/measured.csv.  OOM_ERR_MEMORY. */
OOM_API enum oom_status oom_calibration_default(struct oom_calibration *out, struct oom_error *err);

/* The kind of run that the plan is among readings: "one-gpu full", "fsdp adapters", ...  Static. */
OOM_API const char *oom_kind_of_run(const struct oom_plan *plan);
/* The calibration from real cards' readings of the plan's kind, which is its engine and whether adapters are
 * trained.  *kind becomes the kind's name (static).  False, with nothing written, if nobody has published
 * nvidia-smi's figures of such runs. */
OOM_API bool oom_calibration_of_kind(struct oom_calibration *out, const struct oom_plan *plan,
				     const char **kind);

/* Reads rows from a CSV with measured columns (allocated or overall_peak, reserved or reserved_native,
 * nvidia_smi; bytes, or with a unit).  The CSV is the output of `oomplan estimate --runs` (pred_ columns),
 * or a runs file without predictions, which is priced first (its models lie beside it or in models_dir), or
 * has just the columns predicted and measured, both of what nvidia-smi shows.  Rows without a price or
 * without a measurement are left out and counted in *skipped.  The caller frees *rows.  OOM_ERR_IO;
 * OOM_ERR_PARSE: it is no table; OOM_ERR_INVALID, with file and line: a measured cell is no size;
 * OOM_ERR_MEMORY. */
OOM_API enum oom_status oom_calibration_rows(const char *path, const char *models_dir,
					     struct oom_calibration_row **rows, size_t *n,
					     size_t *skipped, struct oom_error *err);
OOM_API enum oom_status oom_calibration_rows_parse(const char *text, size_t size, const char *name,
						   struct oom_calibration_row **rows, size_t *n,
						   size_t *skipped, struct oom_error *err);
/* The shipped rows, which the caller frees as well.  OOM_ERR_MEMORY. */
OOM_API enum oom_status oom_calibration_shipped(struct oom_calibration_row **rows, size_t *n,
						struct oom_error *err);
/* Sets *rate to the share of rows whose last measured figure exceeds the bound that is fitted to the other
 * nine tenths of the rows; NaN if there are too few to leave a tenth out.  OOM_ERR_MEMORY. */
OOM_API enum oom_status oom_false_fit_rate(double *rate, const struct oom_calibration_row *rows, size_t n,
				  const struct oom_calibration *def, double level);

#ifdef __cplusplus
}
#endif

#endif
