/* One's own measurements against predictions: overheads with intervals, and the probability that a plan fits. */
#ifndef OOMPLAN_CALIBRATE_H
#define OOMPLAN_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

/* measured = scale x predicted + offset, with a spread proportional to the prediction. */
struct oom_calibration {
	double scale, offset_bytes;
	double scale_se, offset_se;     /* standard errors */
	double cov;                     /* of scale and offset */
	double sigma;                   /* relative spread of one measurement */
	double dof;                     /* degrees of freedom of sigma */
	size_t n, n_outliers;
	bool offset_fitted;             /* false: the sizes were too alike to tell an offset from a scale; it is 0 */
};
struct oom_calibration_row {
	double predicted, measured;     /* bytes */
	double residual;                /* relative, after the fit */
	bool outlier;                   /* given next to no weight */
};

/* Robust regression (Tukey's bisquare, GSL multifit_robust).  rows get residuals and outliers.  OOM_ERR_INVALID below three rows
 * or for sizes that are not positive. */
OOM_API enum oom_status oom_calibrate(struct oom_calibration *out, struct oom_calibration_row *rows, size_t n, struct oom_error *err);
/* Prediction: mean, and the level-quantile (0.5 .. 0.9999) of a single measurement. */
OOM_API double oom_calibrated(const struct oom_calibration *c, double predicted);
OOM_API double oom_calibrated_bound(const struct oom_calibration *c, double predicted, double level);
/* Probability that a run predicted to use so many bytes stays within capacity. */
OOM_API double oom_calibrated_fits(const struct oom_calibration *c, double predicted, double capacity);

/* Text form: "key value" lines.  Read reports file and line. */
OOM_API enum oom_status oom_calibration_read(struct oom_calibration *out, const char *path, struct oom_error *err);
/* Room for 600 bytes. */
OOM_API void oom_calibration_write(const struct oom_calibration *c, char text[600]);
/* The one fitted from data/measured.csv. */
OOM_API enum oom_status oom_calibration_default(struct oom_calibration *out, struct oom_error *err);

/* Rows of a CSV: columns "predicted" (or pred_reserved_native, pred_overall_peak) and "measured" (or nvidia_smi, reserved_native,
 * overall_peak) in bytes.  *rows is malloc'ed for the caller to free. */
OOM_API enum oom_status oom_calibration_rows(const char *path, struct oom_calibration_row **rows, size_t *n, struct oom_error *err);
/* The shipped ones. */
OOM_API enum oom_status oom_calibration_shipped(struct oom_calibration_row **rows, size_t *n, struct oom_error *err);
/* Share of rows whose measurement passes the bound fitted on the other nine tenths. */
OOM_API double oom_false_fit_rate(const struct oom_calibration_row *rows, size_t n, double level);

#endif
