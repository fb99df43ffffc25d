/* One's own measurements against predictions: overheads by term with intervals, and the
 * probability that a plan fits.
 *
 * A run shows up to three figures, each built on the one before:
 *
 *	allocated = states x P_states + activations x P_activations + transient x P_transient
 *	reserved  = fragmentation x allocated x (predicted reserved / predicted allocated)
 *	used      = reserved + workspaces + context + nccl (with more than one GPU)
 *
 * P are the predicted bytes alive at the peak of allocation; states, activations, transient and
 * fragmentation are factors around 1, context and nccl bytes.  Every one is a term. */
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
enum { OOM_SCALES = 3 };        /* the terms of the allocated bytes; they come first */
/* What torch.cuda.max_memory_allocated, max_memory_reserved and nvidia-smi say. */
enum oom_measure { OOM_MEASURE_ALLOCATED, OOM_MEASURE_RESERVED, OOM_MEASURE_USED, OOM_MEASURES };

/* What the runs say of a term.  From UNMEASURED on it stands at its default. */
enum oom_term_state {
	OOM_TERM_FITTED,
	OOM_TERM_SHARED,        /* not told apart from others: one value for all of them */
	OOM_TERM_UNMEASURED,    /* fewer than three runs measured what shows it */
	OOM_TERM_ABSENT,        /* no run has any of it */
	OOM_TERM_COLLINEAR      /* what it would explain, another term explains too */
};
struct oom_overhead {
	double value;           /* a factor, or bytes (context, nccl) */
	double se, dof;         /* standard error, and its degrees of freedom */
	double def;             /* its default; of bytes NAN where the file has no prediction */
	enum oom_term_state state;
	unsigned with;          /* SHARED, COLLINEAR: the other terms, a bit each */
	enum oom_measure from;  /* whose regression gave it */
};
/* How far one measurement lies from what is expected of it: standard deviation, as a share of the
 * prediction and in bytes (they add as variances). */
struct oom_spread {
	double share, bytes, dof;
	size_t n, n_outliers;   /* runs that measured it, and those set aside */
};
enum { OOM_BEYOND = 24 };
/* Measured over predicted of published readings from real cards (data/residuals.csv): quantiles, and of
 * how many readings; allocated bytes are predicted with the cuBLAS workspaces, which are of them. */
enum { OOM_RATIOS = 13 };
struct oom_ratios {
	double at[OOM_RATIOS];          /* ascending; of the levels of kinds.c */
	size_t n;                       /* readings behind them; 0: there are none */
	size_t own;                     /* of them of this very kind */
};
struct oom_calibration {
	/* of a kind of run, where no terms were fitted: these alone count */
	struct oom_ratios real[OOM_MEASURES];
	struct oom_overhead term[OOM_TERMS];
	double cov[OOM_TERMS][OOM_TERMS];       /* zero between terms of different regressions */
	struct oom_spread spread[OOM_MEASURES];
	/* runs beyond the noise, upwards: their share, where they begin (relative to the
	 * prediction), and the generalised Pareto distribution of how much further they lie */
	double tail_share, tail_from, tail_scale, tail_shape;
	/* the largest of those distances, from the largest down, and of how many */
	double beyond[OOM_BEYOND];
	size_t n_beyond, n_tail;
	size_t n;
};

/* A prediction in the parts that terms multiply or replace; bytes. */
struct oom_parts {
	double part[OOM_SCALES];        /* add up to the allocated peak */
	double reserved, context, workspace, nccl;
	bool many;              /* more than one GPU */
	bool split;             /* part[] is known; else part[0] is all */
	bool overheads;         /* context and nccl are known */
};
/* Of an evaluation with OOM_EVAL_BUCKETS; without them all counts as states. */
OOM_API struct oom_parts oom_parts_of(const struct oom_eval *e);

struct oom_calibration_row {
	char name[48];          /* the row's "id", "name", "run" or "model"; "" when it has none */
	size_t line;
	struct oom_parts predicted;
	double measured[OOM_MEASURES];  /* bytes; 0: not measured */
	double residual[OOM_MEASURES];  /* measured / calibrated - 1; 0 where not measured */
	unsigned outlier;       /* a bit for every measure of which it was set aside */
};

/* Robust regression (Tukey's bisquare, GSL multifit_robust), then least squares without what it
 * shows to be outliers.  Rows get residuals and outliers.  What the rows do not identify is taken
 * from def; NULL: factors of 1, overheads as predicted.  OOM_ERR_INVALID when fewer than three
 * rows measured the same figure, or for sizes that are not positive. */
OOM_API enum oom_status oom_calibrate(struct oom_calibration *out, struct oom_calibration_row *rows,
				      size_t n, const struct oom_calibration *def,
				      struct oom_error *err);

/* "states", ...; what it stands for; "allocated", "reserved", "nvidia-smi"; "fitted", ... */
OOM_API const char *oom_term_name(enum oom_term term);
OOM_API const char *oom_term_summary(enum oom_term term);
OOM_API const char *oom_measure_str(enum oom_measure m);
OOM_API const char *oom_term_state_str(enum oom_term_state s);
/* Bytes rather than a factor. */
OOM_API bool oom_term_is_bytes(enum oom_term term);
/* The half-width of the term's interval of this level (0.95), 0 for a default. */
OOM_API double oom_term_half_width(const struct oom_calibration *c, enum oom_term term,
				   double level);

/* What a run predicted so is expected to show; the level-quantile of a single one that is no
 * outlier; and the bound that a share of level of all runs stays within, the outliers' share
 * included (level from 0.5 to 0.9999).  Bytes. */
OOM_API double oom_calibrated(const struct oom_calibration *c, const struct oom_parts *p,
			      enum oom_measure m);
OOM_API double oom_calibrated_interval(const struct oom_calibration *c, const struct oom_parts *p,
				       enum oom_measure m, double level);
OOM_API double oom_calibrated_bound(const struct oom_calibration *c, const struct oom_parts *p,
				    enum oom_measure m, double level);
/* Probability that it stays within capacity. */
OOM_API double oom_calibrated_fits(const struct oom_calibration *c, const struct oom_parts *p,
				   enum oom_measure m, double capacity);
/* What has to be free of capacity in the eyes of a prediction that knows no calibration, as the
 * share that the knob margin is, for runs composed like p: so that the bound of confidence (or, for
 * 0, what is expected and a share of margin beside it) is the capacity.  Below 0 where less is
 * needed than predicted. */
OOM_API double oom_calibrated_margin(const struct oom_calibration *c, const struct oom_parts *p,
				     double capacity, double confidence, double margin);

/* Text form, a file's content; room for OOM_CALIBRATION_TEXT bytes. */
enum { OOM_CALIBRATION_VERSION = 2, OOM_CALIBRATION_TEXT = 6000 };
OOM_API void oom_calibration_write(const struct oom_calibration *c,
				   char text[OOM_CALIBRATION_TEXT]);
/* Back again; errors name file and line.  OOM_ERR_PARSE for what is no calibration,
 * OOM_ERR_INVALID for one of another version or impossible values, OOM_ERR_IO. */
OOM_API enum oom_status oom_calibration_read(struct oom_calibration *out, const char *path,
					     struct oom_error *err);
OOM_API enum oom_status oom_calibration_parse(struct oom_calibration *out, const char *text,
					      size_t size, const char *name, struct oom_error *err);
/* The one fitted from data/measured.csv. */
OOM_API enum oom_status oom_calibration_default(struct oom_calibration *out, struct oom_error *err);

/* What a run of the plan counts as among readings: "one-gpu full", "fsdp adapters", ...  Static. */
OOM_API const char *oom_kind_of_run(const struct oom_plan *plan);
/* Readings of real cards of the plan's kind: engine, and whether adapters are trained.  *kind is its name
 * (static).  False: nobody has published what nvidia-smi shows of such runs, and nothing is written. */
OOM_API bool oom_calibration_of_kind(struct oom_calibration *out, const struct oom_plan *plan,
				     const char **kind);

/* Rows of a CSV: what `oomplan estimate --runs` wrote (pred_ columns) with measured columns
 * (allocated or overall_peak, reserved or reserved_native, nvidia_smi), sizes in bytes or with a
 * unit; or a runs file without predictions, which is priced first (its models beside it or in
 * models_dir); or the columns predicted and measured alone, both of what nvidia-smi shows.  Rows
 * that are not priced or not measured are left out and counted in *skipped.  *rows is malloc'ed
 * for the caller to free. */
OOM_API enum oom_status oom_calibration_rows(const char *path, const char *models_dir,
					     struct oom_calibration_row **rows, size_t *n,
					     size_t *skipped, struct oom_error *err);
OOM_API enum oom_status oom_calibration_rows_parse(const char *text, size_t size, const char *name,
						   struct oom_calibration_row **rows, size_t *n,
						   size_t *skipped, struct oom_error *err);
/* The shipped ones. */
OOM_API enum oom_status oom_calibration_shipped(struct oom_calibration_row **rows, size_t *n,
						struct oom_error *err);
/* Share of rows whose last measured figure passes the bound fitted on the other nine tenths: into *rate,
 * NaN where there are too few to leave a tenth out.  OOM_ERR_MEMORY. */
OOM_API enum oom_status oom_false_fit_rate(double *rate, const struct oom_calibration_row *rows, size_t n,
				  const struct oom_calibration *def, double level);

#ifdef __cplusplus
}
#endif

#endif
