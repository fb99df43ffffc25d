/* Robust calibration: the door to GSL's regression.
 *
 * Errors grow with the size of the run, so the ratio measured / predicted = scale + offset / predicted is fitted: its spread is
 * one number.  Bisquare weights make single wild runs harmless.  Intervals are Student's, with the covariance of the fit. */
#include "oomplan/calibrate.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv_rows.h"
#include "embedded.h"

#define GIB 1073741824.0

/* offset / predicted must vary for an offset to be seen: a factor of one and a half between sizes. */
static bool sizes_vary(const struct oom_calibration_row *r, size_t n)
{
	double lo = r[0].predicted, hi = lo;

	for (size_t i = 1; i < n; i++) {
		lo = fmin(lo, r[i].predicted);
		hi = fmax(hi, r[i].predicted);
	}
	return hi > 1.5 * lo && n >= 4;
}

static enum oom_status fit(struct oom_calibration *c, struct oom_calibration_row *r, size_t n, size_t terms,
			   const gsl_multifit_robust_type *weights, struct oom_error *err)
{
	gsl_matrix *x = gsl_matrix_alloc(n, terms), *cov = gsl_matrix_alloc(terms, terms);
	gsl_vector *y = gsl_vector_alloc(n), *b = gsl_vector_alloc(terms);
	gsl_multifit_robust_workspace *w = gsl_multifit_robust_alloc(weights, n, terms);
	enum oom_status st = OOM_OK;

	if (!x || !cov || !y || !b || !w) {
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		goto out;
	}
	gsl_multifit_robust_maxiter(500, w);
	for (size_t i = 0; i < n; i++) {
		gsl_matrix_set(x, i, 0, 1);
		if (terms == 2)
			gsl_matrix_set(x, i, 1, GIB / r[i].predicted);
		gsl_vector_set(y, i, r[i].measured / r[i].predicted);
	}
	if (gsl_multifit_robust(x, y, b, cov, w) != GSL_SUCCESS) {
		st = oom_error_set(err, OOM_ERR_INVALID, "the measurements do not settle on one line");
		goto out;
	}
	{
		const gsl_multifit_robust_stats s = gsl_multifit_robust_statistics(w);

		*c = (struct oom_calibration){.scale = gsl_vector_get(b, 0), .scale_se = sqrt(gsl_matrix_get(cov, 0, 0)), .sigma = s.sigma,
					      .dof = (double)s.dof, .n = n, .offset_fitted = terms == 2};
		if (terms == 2) {
			c->offset_bytes = gsl_vector_get(b, 1) * GIB;
			c->offset_se = sqrt(gsl_matrix_get(cov, 1, 1)) * GIB;
			c->cov = gsl_matrix_get(cov, 0, 1) * GIB;
		}
		for (size_t i = 0; i < n; i++) {
			r[i].residual = gsl_vector_get(y, i) - c->scale - c->offset_bytes / r[i].predicted;
			r[i].outlier = gsl_vector_get(s.weights, i) < 0.05;
			c->n_outliers += r[i].outlier;
		}
	}
out:
	gsl_multifit_robust_free(w);
	gsl_matrix_free(x);
	gsl_matrix_free(cov);
	gsl_vector_free(y);
	gsl_vector_free(b);
	return st;
}

enum oom_status oom_calibrate(struct oom_calibration *out, struct oom_calibration_row *r, size_t n, struct oom_error *err)
{
	gsl_set_error_handler_off();
	if (n < 3)
		return oom_error_set(err, OOM_ERR_INVALID, "%zu measurements: three are needed", n);
	for (size_t i = 0; i < n; i++)
		if (!(r[i].predicted > 0) || !(r[i].measured > 0) || !isfinite(r[i].predicted) || !isfinite(r[i].measured))
			return oom_error_set(err, OOM_ERR_INVALID, "measurement %zu: sizes must be positive", i + 1);
	{
		const size_t terms = sizes_vary(r, n) ? 2 : 1;
		enum oom_status st = fit(out, r, n, terms, gsl_multifit_robust_bisquare, err);

		/* the bisquare's minimum may be two: its iteration then swings; Huber's weights are convex */
		if (st == OOM_ERR_INVALID)
			st = fit(out, r, n, terms, gsl_multifit_robust_huber, err);
		return st;
	}
}

/* ---- use ---- */

double oom_calibrated(const struct oom_calibration *c, double predicted)
{
	return c->scale * predicted + c->offset_bytes;
}

/* Standard deviation of a new measurement, in bytes: the fit's uncertainty and the spread itself. */
static double spread(const struct oom_calibration *c, double x)
{
	const double line = x * x * c->scale_se * c->scale_se + c->offset_se * c->offset_se + 2 * x * c->cov;

	return sqrt(fmax(line, 0) + x * x * c->sigma * c->sigma);
}

double oom_calibrated_bound(const struct oom_calibration *c, double predicted, double level)
{
	return oom_calibrated(c, predicted) + gsl_cdf_tdist_Pinv(level, c->dof > 1 ? c->dof : 1) * spread(c, predicted);
}

double oom_calibrated_fits(const struct oom_calibration *c, double predicted, double capacity)
{
	const double s = spread(c, predicted);

	if (!(s > 0))
		return oom_calibrated(c, predicted) <= capacity;
	return gsl_cdf_tdist_P((capacity - oom_calibrated(c, predicted)) / s, c->dof > 1 ? c->dof : 1);
}

double oom_false_fit_rate(const struct oom_calibration_row *rows, size_t n, double level)
{
	enum { FOLDS = 10 };
	struct oom_calibration_row *train = malloc((n + 1) * sizeof(*train));
	size_t wrong = 0, judged = 0;

	for (int k = 0; train && k < FOLDS; k++) {
		struct oom_calibration c;
		size_t m = 0;

		for (size_t i = 0; i < n; i++)
			if (i % FOLDS != (size_t)k)
				train[m++] = rows[i];
		if (oom_calibrate(&c, train, m, NULL))
			continue;
		for (size_t i = (size_t)k; i < n; i += FOLDS) {
			judged++;
			wrong += rows[i].measured > oom_calibrated_bound(&c, rows[i].predicted, level);
		}
	}
	free(train);
	return judged ? (double)wrong / (double)judged : NAN;
}

/* ---- files ---- */

static const struct {
	const char *name;
	size_t offset;
} keys[] = {
	{"scale", offsetof(struct oom_calibration, scale)}, {"offset_bytes", offsetof(struct oom_calibration, offset_bytes)},
	{"scale_se", offsetof(struct oom_calibration, scale_se)}, {"offset_se", offsetof(struct oom_calibration, offset_se)},
	{"cov", offsetof(struct oom_calibration, cov)}, {"sigma", offsetof(struct oom_calibration, sigma)},
	{"dof", offsetof(struct oom_calibration, dof)}};
enum { KEYS = sizeof(keys) / sizeof(keys[0]) };

void oom_calibration_write(const struct oom_calibration *c, char text[600])
{
	size_t n = (size_t)snprintf(text, 600, "# oomplan calibration: measured = scale x predicted + offset_bytes; sigma is relative\n");

	for (int i = 0; i < KEYS; i++)
		n += (size_t)snprintf(text + n, 600 - n, "%s %.17g\n", keys[i].name,
				      *(const double *)(const void *)((const char *)c + keys[i].offset));
}

enum oom_status oom_calibration_read(struct oom_calibration *out, const char *path, struct oom_error *err)
{
	FILE *f = fopen(path, "r");
	struct oom_calibration c = {0};
	char line[200], name[40];
	int number = 0, seen = 0;
	enum oom_status st = OOM_OK;

	if (!f)
		return oom_error_set(err, OOM_ERR_IO, "%s: cannot be read", path);
	while (!st && fgets(line, sizeof(line), f)) {
		double v;
		int k = 0;

		number++;
		if (*line == '#' || *line == '\n')
			continue;
		if (sscanf(line, "%39s %lf", name, &v) != 2 || !isfinite(v)) {
			st = oom_error_set(err, OOM_ERR_PARSE, "%s:%d: expected a name and a number", path, number);
			break;
		}
		while (k < KEYS && strcmp(keys[k].name, name))
			k++;
		if (k == KEYS)
			st = oom_error_set(err, OOM_ERR_PARSE, "%s:%d: \"%s\" is no key of a calibration (scale, offset_bytes, sigma, ...)", path,
					   number, name);
		else
			*(double *)(void *)((char *)&c + keys[k].offset) = v;
		seen |= 1 << k;
	}
	fclose(f);
	if (!st && (!(seen & 1) || !(c.scale > 0) || c.sigma < 0 || c.dof < 0))
		st = oom_error_set(err, OOM_ERR_INVALID, "%s: no positive scale in it", path);
	if (!st)
		*out = c;
	return st;
}

struct collector {
	struct oom_calibration_row *rows;
	size_t n, cap;
};

static double first_of(const struct oom_csv_row *row, const char *const *names)
{
	for (size_t i = 0; names[i]; i++) {
		const char *s = oom_csv_cell(row, names[i]);

		if (s && *s)
			return strtod(s, NULL);
	}
	return NAN;
}

static enum oom_status collect(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	static const char *const predicted[] = {"predicted", "pred_used_bytes", "pred_reserved_native", "pred_overall_peak", NULL};
	static const char *const measured[] = {"measured", "nvidia_smi", "reserved_native", "overall_peak", NULL};
	struct collector *c = ctx;
	const double p = first_of(row, predicted), m = first_of(row, measured);

	if (isnan(p) || isnan(m))
		return OOM_OK;                  /* a row that was not priced, or not measured */
	if (c->n == c->cap) {
		void *q = c->cap > 10000000 ? NULL : realloc(c->rows, (c->cap * 2 + 256) * sizeof(*c->rows));

		if (!q)
			return oom_error_set(err, OOM_ERR_MEMORY, "%s: too many rows", row->file);
		c->rows = q;
		c->cap = c->cap * 2 + 256;
	}
	c->rows[c->n++] = (struct oom_calibration_row){.predicted = p, .measured = m};
	return OOM_OK;
}

static enum oom_status take(enum oom_status st, struct collector *c, const char *name, struct oom_calibration_row **rows, size_t *n,
			    struct oom_error *err)
{
	if (!st && !c->n)
		st = oom_error_set(err, OOM_ERR_INVALID, "%s: no rows with a predicted and a measured column", name);
	if (st) {
		free(c->rows);
		return st;
	}
	*rows = c->rows;
	*n = c->n;
	return OOM_OK;
}

enum oom_status oom_calibration_rows(const char *path, struct oom_calibration_row **rows, size_t *n, struct oom_error *err)
{
	struct collector c = {0};

	return take(oom_csv_read(path, collect, &c, err), &c, path, rows, n, err);
}

enum oom_status oom_calibration_shipped(struct oom_calibration_row **rows, size_t *n, struct oom_error *err)
{
	const struct oom_embedded *f = oom_embedded_find("measured.csv");
	struct collector c = {0};

	return take(oom_csv_parse((const char *)f->bytes, f->size, "measured.csv", collect, &c, err), &c, "measured.csv", rows, n, err);
}

enum oom_status oom_calibration_default(struct oom_calibration *out, struct oom_error *err)
{
	struct oom_calibration_row *rows;
	size_t n;
	enum oom_status st = oom_calibration_shipped(&rows, &n, err);

	if (st)
		return st;
	st = oom_calibrate(out, rows, n, err);
	free(rows);
	return st;
}
