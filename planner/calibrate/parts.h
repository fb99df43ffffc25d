/* The regression behind calibrations; fit.c is the door to GSL's. */
#ifndef OOM_CALIBRATE_PARTS_H
#define OOM_CALIBRATE_PARTS_H

#include "oomplan/calibrate.h"

/* A least-squares line through rows of `columns` numbers. */
struct oom_fit {
	double b[OOM_TERMS], cov[OOM_TERMS][OOM_TERMS];
	double sigma, dof;      /* of those that are no outliers */
	double spread;          /* of all: 1.4826 x the median absolute residual */
	size_t n_outliers;
};
/* y against x (n rows of columns, columns < n), without outliers.  uneven: the spread may differ
 * from row to row.  residual and outlier have room for n.  OOM_ERR_INVALID when it does not
 * settle. */
enum oom_status oom_fit_robust(struct oom_fit *out, const double *x, const double *y, size_t n,
			       size_t columns, bool uneven, double *residual, bool *outlier,
			       struct oom_error *err);
/* The condition index of x, its columns scaled to length one, and how much of each column's
 * variance its weakest direction makes. */
enum oom_status oom_fit_condition(const double *x, size_t n, size_t columns, double *index,
				  double share[OOM_TERMS], struct oom_error *err);
/* Times the spread, from which on a residual is no noise any more: a choice; of normal noise one in
 * two thousand lies beyond. */
#define OOM_FIT_CUTOFF 3.5
/* A hundredth of a percent is no outlier, however well the others agree (a guess). */
#define OOM_FIT_NOTHING 1e-4
/* 1.4826 x the median of |residual|; room is for n numbers. */
double oom_fit_spread(const double *residual, size_t n, double *room);

/* Fits every term that the rows identify into c, which holds the defaults; says how many columns it
 * spent on each measure. */
enum oom_status oom_calibration_stages(struct oom_calibration *c, struct oom_calibration_row *rows,
				       size_t n, size_t spent[OOM_MEASURES], struct oom_error *err);
/* Runs of the same figure without which nothing is fitted. */
enum { OOM_FEWEST = 3 };
/* The figure as predicted, uncalibrated. */
double oom_predicted(const struct oom_parts *p, enum oom_measure m);

/* Of readings from real cards: the ratio that a share of level stays below, and back. */
double oom_ratio_at(const struct oom_ratios *r, double level);
double oom_ratio_below(const struct oom_ratios *r, double ratio);
/* What the ratios are over: allocated bytes with the workspaces in them. */
double oom_ratio_base(const struct oom_parts *p, enum oom_measure m);

/* The measured columns of a row, bytes; 0: not measured. */
struct oom_csv_row;
enum oom_status oom_measured_of(const struct oom_csv_row *row, double to[OOM_MEASURES],
				struct oom_error *err);

/* Student's distribution. */
double oom_t_quantile(double level, double dof);
double oom_t_below(double t, double dof);

#endif
