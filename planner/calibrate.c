/* Robust calibration: the door to GSL's regression.
 *
 * Errors grow with the size of the run, so the ratio measured / predicted = scale + offset /
 * predicted is fitted: its spread is one number.  Bisquare weights make single wild runs harmless;
 * what then lies beyond a multiple of the median absolute residual is set aside and the line fitted
 * once more to the others by least squares, whose intervals are Student's (Rousseeuw and Leroy,
 * Robust Regression and Outlier Detection, 1987, section 5.1).  What was set aside upwards is not
 * forgotten: it is the tail, an exponential beyond a threshold (peaks over threshold: Pickands
 * 1975), in the probability that a run fits. */
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

/* offset / predicted must vary for an offset to be seen: a factor of one and a half between
 * sizes. */
static bool sizes_vary(const struct oom_calibration_row *r, size_t n)
{
	double lo = r[0].predicted, hi = lo;

	for (size_t i = 1; i < n; i++) {
		lo = fmin(lo, r[i].predicted);
		hi = fmax(hi, r[i].predicted);
	}
	return hi > 1.5 * lo && n >= 4;
}

/* Times the spread, from which on a residual is no noise any more. */
#define CUTOFF 3.5

struct system {
	gsl_matrix *x, *cov;
	gsl_vector *y, *b;
};

static void release(struct system *s)
{
	gsl_matrix_free(s->x);
	gsl_matrix_free(s->cov);
	gsl_vector_free(s->y);
	gsl_vector_free(s->b);
}

/* The rows that are no outliers, as equations. */
static bool equations(struct system *s, const struct oom_calibration_row *r, size_t n, size_t used,
		      size_t terms)
{
	size_t k = 0;

	*s = (struct system){gsl_matrix_alloc(used, terms), gsl_matrix_alloc(terms, terms), gsl_vector_alloc(used), gsl_vector_alloc(terms)};
	if (!s->x || !s->cov || !s->y || !s->b)
		return false;
	for (size_t i = 0; i < n && k < used; i++) {
		if (r[i].outlier)
			continue;
		gsl_matrix_set(s->x, k, 0, 1);
		if (terms == 2)
			gsl_matrix_set(s->x, k, 1, GIB / r[i].predicted);
		gsl_vector_set(s->y, k++, r[i].measured / r[i].predicted);
	}
	return true;
}

static void take_line(struct oom_calibration *c, const struct system *s,
		      struct oom_calibration_row *r, size_t n, size_t terms)
{
	c->scale = gsl_vector_get(s->b, 0);
	c->offset_bytes = terms == 2 ? gsl_vector_get(s->b, 1) * GIB : 0;
	c->offset_fitted = terms == 2;
	for (size_t i = 0; i < n; i++)
		r[i].residual = r[i].measured / r[i].predicted - c->scale -
				c->offset_bytes / r[i].predicted;
}

static enum oom_status robust(struct oom_calibration *c, struct oom_calibration_row *r, size_t n,
			      size_t terms, const gsl_multifit_robust_type *weights,
			      struct oom_error *err)
{
	gsl_multifit_robust_workspace *w = gsl_multifit_robust_alloc(weights, n, terms);
	struct system s = {0};
	enum oom_status st = OOM_OK;

	for (size_t i = 0; i < n; i++)
		r[i].outlier = false;
	if (!w || !equations(&s, r, n, n, terms)) {
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	} else {
		gsl_multifit_robust_maxiter(500, w);
		if (gsl_multifit_robust(s.x, s.y, s.b, s.cov, w) != GSL_SUCCESS)
			st = oom_error_set(err, OOM_ERR_INVALID,
					   "the measurements do not settle on one line");
		else
			take_line(c, &s, r, n, terms);
	}
	gsl_multifit_robust_free(w);
	release(&s);
	return st;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* 1.4826 times the median absolute residual is a normal spread's sigma; the factor for few rows
 * is Rousseeuw and Leroy's. */
static double median_spread(const struct oom_calibration_row *r, size_t n, size_t terms,
			    double *room)
{
	for (size_t i = 0; i < n; i++)
		room[i] = fabs(r[i].residual);
	qsort(room, n, sizeof(*room), by_value);
	return 1.4826 * (1 + 5.0 / (double)(n - terms)) * room[n / 2];
}

/* Outliers upwards, beyond the threshold: how many, and how far on average. */
static void tail(struct oom_calibration *c, const struct oom_calibration_row *r, size_t n)
{
	double beyond = 0;
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		if (r[i].outlier && r[i].residual > c->tail_from) {
			beyond += r[i].residual - c->tail_from;
			k++;
		}
	/* one more row might always be one of them */
	c->tail_share = k ? (double)(k + 1) / (double)(n + 1) : 0;
	c->tail_mean = k ? beyond / (double)k : 0;
}

static enum oom_status refit(struct oom_calibration *c, struct oom_calibration_row *r, size_t n,
			     size_t terms, struct oom_error *err)
{
	double *room = malloc(n * sizeof(*room)), chisq = 0, limit;
	gsl_multifit_linear_workspace *w = NULL;
	struct system s = {0};
	size_t used = 0;
	enum oom_status st = OOM_ERR_MEMORY;

	if (!room)
		goto out;
	limit = CUTOFF * median_spread(r, n, terms, room);
	for (size_t i = 0; i < n; i++) {
		/* rounding of an exact fit is no outlier */
		r[i].outlier = fabs(r[i].residual) > limit + 1e-9;
		used += !r[i].outlier;
	}
	w = gsl_multifit_linear_alloc(used, terms);
	if (!w || !equations(&s, r, n, used, terms))
		goto out;
	st = OOM_ERR_INVALID;
	if (used <= terms || gsl_multifit_linear(s.x, s.y, s.b, s.cov, &chisq, w) != GSL_SUCCESS)
		goto out;
	st = OOM_OK;
	take_line(c, &s, r, n, terms);
	c->n = n;
	c->n_outliers = n - used;
	c->dof = (double)(used - terms);
	c->sigma = sqrt(chisq / c->dof);
	c->scale_se = sqrt(gsl_matrix_get(s.cov, 0, 0));
	if (terms == 2) {
		c->offset_se = sqrt(gsl_matrix_get(s.cov, 1, 1)) * GIB;
		c->cov = gsl_matrix_get(s.cov, 0, 1) * GIB;
	}
	c->tail_from = limit;
	tail(c, r, n);
out:
	if (w)
		gsl_multifit_linear_free(w);
	release(&s);
	free(room);
	return st == OOM_ERR_MEMORY ? oom_error_set(err, st, "out of host memory") :
	       st ? oom_error_set(err, st, "the measurements do not settle on one line") : OOM_OK;
}

static enum oom_status fit(struct oom_calibration *c, struct oom_calibration_row *r, size_t n,
			   size_t terms, const gsl_multifit_robust_type *weights,
			   struct oom_error *err)
{
	struct oom_calibration found = {0};
	enum oom_status st = robust(&found, r, n, terms, weights, err);

	if (!st)
		st = refit(&found, r, n, terms, err);
	if (!st)
		*c = found;
	return st;
}

enum oom_status oom_calibrate(struct oom_calibration *out, struct oom_calibration_row *r, size_t n,
			      struct oom_error *err)
{
	gsl_set_error_handler_off();
	if (n < 3)
		return oom_error_set(err, OOM_ERR_INVALID, "%zu measurements: three are needed", n);
	for (size_t i = 0; i < n; i++)
		if (!(r[i].predicted > 0) || !(r[i].measured > 0) || !isfinite(r[i].predicted) ||
		    !isfinite(r[i].measured))
			return oom_error_set(err, OOM_ERR_INVALID,
					     "measurement %zu: sizes must be positive", i + 1);
	{
		const size_t terms = sizes_vary(r, n) ? 2 : 1;
		enum oom_status st = fit(out, r, n, terms, gsl_multifit_robust_bisquare, err);

		/* the bisquare's minimum may be two: its iteration then swings; Huber's weights
		 * are convex */
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

/* Standard deviation of a new measurement, in bytes: the fit's uncertainty and the spread
 * itself. */
static double spread(const struct oom_calibration *c, double x)
{
	const double line = x * x * c->scale_se * c->scale_se + c->offset_se * c->offset_se +
			    2 * x * c->cov;

	return sqrt(fmax(line, 0) + x * x * c->sigma * c->sigma);
}

double oom_calibrated_interval(const struct oom_calibration *c, double predicted, double level)
{
	return oom_calibrated(c, predicted) +
	       gsl_cdf_tdist_Pinv(level, c->dof > 1 ? c->dof : 1) * spread(c, predicted);
}

/* Of the tail: beyond its threshold exponential, below it certain to be passed. */
static double tail_passes(const struct oom_calibration *c, double predicted, double capacity)
{
	const double r = (capacity - oom_calibrated(c, predicted)) / predicted - c->tail_from;

	return r <= 0 ? 1 : c->tail_mean > 0 ? exp(-r / c->tail_mean) : 0;
}

double oom_calibrated_fits(const struct oom_calibration *c, double predicted, double capacity)
{
	const double s = spread(c, predicted), d = capacity - oom_calibrated(c, predicted);
	const double noise = s > 0 ? gsl_cdf_tdist_P(d / s, c->dof > 1 ? c->dof : 1) : d >= 0;

	return (1 - c->tail_share) * noise +
	       c->tail_share * (1 - tail_passes(c, predicted, capacity));
}

double oom_calibrated_bound(const struct oom_calibration *c, double predicted, double level)
{
	double low = oom_calibrated_interval(c, predicted, level < 0.5 ? level : 0.5),
	       high = low + predicted;

	if (level < 0.5)
		return low;
	for (int i = 0; i < 60 && oom_calibrated_fits(c, predicted, high) < level; i++)
		high += high - low;
	for (int i = 0; i < 80; i++) {
		const double mid = (low + high) / 2;

		*(oom_calibrated_fits(c, predicted, mid) < level ? &low : &high) = mid;
	}
	return high;
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
			wrong += rows[i].measured >
				 oom_calibrated_bound(&c, rows[i].predicted, level);
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
	{"dof", offsetof(struct oom_calibration, dof)},
	{"tail_share", offsetof(struct oom_calibration, tail_share)}, {"tail_from", offsetof(struct oom_calibration, tail_from)},
	{"tail_mean", offsetof(struct oom_calibration, tail_mean)}};
enum { KEYS = sizeof(keys) / sizeof(keys[0]) };

void oom_calibration_write(const struct oom_calibration *c, char text[800])
{
	size_t n = (size_t)snprintf(text, 800,
				    "# oomplan calibration: measured = scale x predicted + "
				    "offset_bytes; sigma is relative\n");

	for (int i = 0; i < KEYS; i++)
		n += (size_t)snprintf(text + n, 800 - n, "%s %.17g\n", keys[i].name,
				      *(const double *)(const void *)((const char *)c + keys[i].offset));
}

enum oom_status oom_calibration_read(struct oom_calibration *out, const char *path,
				     struct oom_error *err)
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
			st = oom_error_set(err, OOM_ERR_PARSE,
					   "%s:%d: expected a name and a number", path, number);
			break;
		}
		while (k < KEYS && strcmp(keys[k].name, name))
			k++;
		if (k == KEYS)
			st = oom_error_set(err, OOM_ERR_PARSE,
					   "%s:%d: \"%s\" is no key of a calibration (scale, "
					   "offset_bytes, sigma, ...)",
					   path, number, name);
		else
			*(double *)(void *)((char *)&c + keys[k].offset) = v;
		seen |= 1 << k;
	}
	fclose(f);
	if (!st && (!(seen & 1) || !(c.scale > 0) || c.sigma < 0 || c.dof < 0 || c.tail_share < 0 ||
		    c.tail_share > 1 || c.tail_mean < 0))
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
	static const char *const predicted[] = {"predicted", "pred_used_bytes",
						"pred_reserved_native", "pred_overall_peak", NULL};
	static const char *const measured[] = {"measured", "nvidia_smi", "reserved_native",
					       "overall_peak", NULL};
	static const char *const names[] = {"id", "name", "run", "model", NULL};
	struct collector *c = ctx;
	const double p = first_of(row, predicted), m = first_of(row, measured);

	if (isnan(p) || isnan(m))
		return OOM_OK;                  /* a row that was not priced, or not measured */
	if (c->n == c->cap) {
		void *q = c->cap > 10000000 ?
				  NULL :
				  realloc(c->rows, (c->cap * 2 + 256) * sizeof(*c->rows));

		if (!q)
			return oom_error_set(err, OOM_ERR_MEMORY, "%s: too many rows", row->file);
		c->rows = q;
		c->cap = c->cap * 2 + 256;
	}
	c->rows[c->n] = (struct oom_calibration_row){.predicted = p, .measured = m};
	for (size_t i = 0; names[i] && !*c->rows[c->n].name; i++) {
		const char *s = oom_csv_cell(row, names[i]);

		snprintf(c->rows[c->n].name, sizeof(c->rows[c->n].name), "%s", s ? s : "");
	}
	c->n++;
	return OOM_OK;
}

static enum oom_status take(enum oom_status st, struct collector *c, const char *name,
			    struct oom_calibration_row **rows, size_t *n, struct oom_error *err)
{
	if (!st && !c->n)
		st = oom_error_set(err, OOM_ERR_INVALID,
				   "%s: no rows with a predicted and a measured column", name);
	if (st) {
		free(c->rows);
		return st;
	}
	*rows = c->rows;
	*n = c->n;
	return OOM_OK;
}

enum oom_status oom_calibration_rows(const char *path, struct oom_calibration_row **rows, size_t *n,
				     struct oom_error *err)
{
	struct collector c = {0};

	return take(oom_csv_read(path, collect, &c, err), &c, path, rows, n, err);
}

enum oom_status oom_calibration_shipped(struct oom_calibration_row **rows, size_t *n,
					struct oom_error *err)
{
	const struct oom_embedded *f = oom_embedded_find("measured.csv");
	struct collector c = {0};

	return take(oom_csv_parse((const char *)f->bytes, f->size, "measured.csv", collect, &c,
				  err),
		    &c, "measured.csv", rows, n, err);
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
