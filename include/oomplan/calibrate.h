/* One's own measurements against predictions: overheads with intervals, and the probability that
 * a plan fits. */
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
	double tail_share;              /* of the runs that lie beyond the noise, upwards */
	/* relative: where that begins, and how much further they lie on average */
	double tail_from, tail_mean;
	size_t n, n_outliers;
	/* false: the sizes were too alike to tell an offset from a scale; it is 0 */
	bool offset_fitted;
};
struct oom_calibration_row {
	double predicted, measured;     /* bytes */
	char name[48];                  /* the row's "id", "name" or "model"; "" when it has none */
	double residual;                /* relative, after the fit */
	bool outlier;                   /* beyond the noise: set aside */
};

/* Robust regression (Tukey's bisquare, GSL multifit_robust), then least squares without what it
 * shows to be outliers.  rows get residuals and outliers.  OOM_ERR_INVALID below three rows or
 * for sizes that are not positive. */
OOM_API enum oom_status oom_calibrate(struct oom_calibration *out, struct oom_calibration_row *rows,
				      size_t n, struct oom_error *err);
/* Prediction: mean, the level-quantile of a single measurement that is no outlier, and the bound
 * that a share of level of all measurements stays within, the outliers' share included (level
 * from 0.5 to 0.9999). */
OOM_API double oom_calibrated(const struct oom_calibration *c, double predicted);
OOM_API double oom_calibrated_interval(const struct oom_calibration *c, double predicted,
				       double level);
OOM_API double oom_calibrated_bound(const struct oom_calibration *c, double predicted,
				    double level);
/* Probability that a run predicted to use so many bytes stays within capacity. */
OOM_API double oom_calibrated_fits(const struct oom_calibration *c, double predicted,
				   double capacity);

/* Text form: "key value" lines.  Read reports file and line. */
OOM_API enum oom_status oom_calibration_read(struct oom_calibration *out, const char *path,
					     struct oom_error *err);
/* Room for 800 bytes. */
OOM_API void oom_calibration_write(const struct oom_calibration *c, char text[800]);
/* The one fitted from data/measured.csv. */
OOM_API enum oom_status oom_calibration_default(struct oom_calibration *out, struct oom_error *err);

/* Rows of a CSV: columns "predicted" (or pred_reserved_native, pred_overall_peak) and "measured"
 * (or nvidia_smi, reserved_native, overall_peak) in bytes.  *rows is malloc'ed for the caller to
 * free. */
OOM_API enum oom_status oom_calibration_rows(const char *path, struct oom_calibration_row **rows,
					     size_t *n, struct oom_error *err);
/* The shipped ones. */
OOM_API enum oom_status oom_calibration_shipped(struct oom_calibration_row **rows, size_t *n,
						struct oom_error *err);
/* Share of rows whose measurement passes the bound fitted on the other nine tenths. */
OOM_API double oom_false_fit_rate(const struct oom_calibration_row *rows, size_t n, double level);

#endif
