/* Robust regression: the door to GSL's.
 *
 * Bisquare weights make single wild runs harmless; what then lies beyond a multiple of the median
 * absolute residual is set aside and the line fitted once more to the others by least squares,
 * whose intervals are Student's (Rousseeuw and Leroy, Robust Regression and Outlier Detection,
 * 1987, section 5.1). */
#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_linalg.h>
#include <gsl/gsl_multifit.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

/* GSL's decompositions take scratch of their own and go on without it where it cannot be had: out of
 * memory, the call is left at once.  What it had taken until then is lost, a few vectors. */
static _Thread_local jmp_buf *way_out;

static void on_error(const char *reason, const char *file, int line, int code)
{
	(void)reason;
	(void)file;
	(void)line;
	if (code == GSL_ENOMEM && way_out)
		longjmp(*way_out, code);
}

static enum oom_status guarded(int (*call)(void *), void *ctx)
{
	jmp_buf here;
	int code;

	gsl_set_error_handler(on_error);
	way_out = &here;
	code = setjmp(here) ? GSL_ENOMEM : call(ctx);
	way_out = NULL;
	return code == GSL_SUCCESS ? OOM_OK : code == GSL_ENOMEM ? OOM_ERR_MEMORY : OOM_ERR_INVALID;
}

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
static bool equations(struct system *s, const double *x, const double *y, const bool *outlier,
		      size_t n, size_t used, size_t columns)
{
	size_t k = 0;

	*s = (struct system){gsl_matrix_alloc(used, columns), gsl_matrix_alloc(columns, columns),
			     gsl_vector_alloc(used), gsl_vector_alloc(columns)};
	if (!s->x || !s->cov || !s->y || !s->b)
		return false;
	for (size_t i = 0; i < n && k < used; i++) {
		if (outlier[i])
			continue;
		for (size_t j = 0; j < columns; j++)
			gsl_matrix_set(s->x, k, j, x[i * columns + j]);
		gsl_vector_set(s->y, k++, y[i]);
	}
	return true;
}

static void take_line(struct oom_fit *f, const struct system *s, const double *x, const double *y,
		      size_t n, size_t columns, double *residual)
{
	for (size_t j = 0; j < columns; j++)
		f->b[j] = gsl_vector_get(s->b, j);
	for (size_t i = 0; i < n; i++) {
		residual[i] = y[i];
		for (size_t j = 0; j < columns; j++)
			residual[i] -= f->b[j] * x[i * columns + j];
	}
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* 1.4826 times the median absolute residual is a normal spread's sigma. */
double oom_fit_spread(const double *residual, size_t n, double *room)
{
	for (size_t i = 0; i < n; i++)
		room[i] = fabs(residual[i]);
	qsort(room, n, sizeof(*room), by_value);
	return n ? 1.4826 * room[n / 2] : 0;
}

struct robust {
	struct system *s;
	gsl_multifit_robust_workspace *w;
};

static int robust(void *ctx)
{
	const struct robust *r = ctx;

	return gsl_multifit_robust(r->s->x, r->s->y, r->s->b, r->s->cov, r->w);
}

static enum oom_status first_line(struct oom_fit *f, const double *x, const double *y, size_t n,
				  size_t columns, const gsl_multifit_robust_type *weights,
				  double *residual, bool *outlier)
{
	gsl_multifit_robust_workspace *w = gsl_multifit_robust_alloc(weights, n, columns);
	struct system s = {0};
	enum oom_status st = OOM_OK;

	for (size_t i = 0; i < n; i++)
		outlier[i] = false;
	if (!w || !equations(&s, x, y, outlier, n, n, columns)) {
		st = OOM_ERR_MEMORY;
	} else {
		gsl_multifit_robust_maxiter(500, w);
		st = guarded(robust, &(struct robust){&s, w});
		if (!st)
			take_line(f, &s, x, y, n, columns, residual);
	}
	if (w)
		gsl_multifit_robust_free(w);
	release(&s);
	return st;
}

/* Covariance where the spread differs from row to row (HC3: MacKinnon and White 1985, J. of
 * Econometrics 29), A = (X'X)^-1, h_i = x_i' A x_i:
 *   A [sum x_i x_i' e_i^2 / (1 - h_i)^2] A. */
static void sandwich(struct oom_fit *f, const double *x, size_t n, size_t columns,
		     const double *residual, const bool *outlier)
{
	const double s2 = f->sigma * f->sigma;
	double out[OOM_TERMS][OOM_TERMS] = {{0}};

	for (size_t i = 0; i < n && s2 > 0; i++) {
		const double *row = x + i * columns;
		double ax[OOM_TERMS] = {0}, h = 0, e;

		if (outlier[i])
			continue;
		for (size_t j = 0; j < columns; j++) {
			for (size_t k = 0; k < columns; k++)
				ax[j] += f->cov[j][k] / s2 * row[k];
			h += row[j] * ax[j];
		}
		e = residual[i] / fmax(1 - h, 1e-3);
		for (size_t j = 0; j < columns; j++)
			for (size_t k = 0; k < columns; k++)
				out[j][k] += ax[j] * ax[k] * e * e;
	}
	for (size_t j = 0; j < columns; j++)
		for (size_t k = 0; k < columns; k++)
			f->cov[j][k] = out[j][k];
}

struct linear {
	struct system *s;
	gsl_multifit_linear_workspace *w;
	double chisq;
};

static int linear(void *ctx)
{
	struct linear *l = ctx;

	return gsl_multifit_linear(l->s->x, l->s->y, l->s->b, l->s->cov, &l->chisq, l->w);
}

static enum oom_status second_line(struct oom_fit *f, const double *x, const double *y, size_t n,
				   size_t columns, bool uneven, double *residual, bool *outlier)
{
	gsl_multifit_linear_workspace *w = NULL;
	double *room = malloc(n * sizeof(*room)), limit;
	struct system s = {0};
	struct linear l = {&s, NULL, 0};
	size_t used = 0;
	enum oom_status st = OOM_ERR_MEMORY;

	if (!room)
		goto out;
	f->spread = oom_fit_spread(residual, n, room);
	/* the factor for few rows is Rousseeuw and Leroy's */
	limit = OOM_FIT_CUTOFF * (1 + 5.0 / (double)(n - columns)) * f->spread + OOM_FIT_NOTHING;
	for (size_t i = 0; i < n; i++) {
		outlier[i] = fabs(residual[i]) > limit;
		used += !outlier[i];
	}
	st = OOM_ERR_INVALID;
	if (used <= columns)
		goto out;
	st = OOM_ERR_MEMORY;
	w = gsl_multifit_linear_alloc(used, columns);
	if (!w || !equations(&s, x, y, outlier, n, used, columns))
		goto out;
	l.w = w;
	st = guarded(linear, &l);
	if (st)
		goto out;
	take_line(f, &s, x, y, n, columns, residual);
	f->n_outliers = n - used;
	f->dof = (double)(used - columns);
	f->sigma = sqrt(fmax(l.chisq, 0) / f->dof);
	for (size_t i = 0; i < columns; i++)
		for (size_t j = 0; j < columns; j++)
			f->cov[i][j] = gsl_matrix_get(s.cov, i, j);
	if (uneven)
		sandwich(f, x, n, columns, residual, outlier);
out:
	if (w)
		gsl_multifit_linear_free(w);
	release(&s);
	free(room);
	return st;
}

/* The bisquare starts from least squares and may stay where far outliers pulled that, or swing
 * between two minima; Huber's and Cauchy's weights go elsewhere.  The one of the least median
 * residual is it (Rousseeuw and Leroy, chapter 3). */
static enum oom_status first_of(struct oom_fit *f, const double *x, const double *y, size_t n,
				size_t columns, double *residual, bool *outlier)
{
	const gsl_multifit_robust_type *const weights[] = {
		gsl_multifit_robust_bisquare, gsl_multifit_robust_huber, gsl_multifit_robust_cauchy};
	double *room = malloc(2 * n * sizeof(*room)), least = HUGE_VAL;
	enum oom_status st = room ? OOM_ERR_INVALID : OOM_ERR_MEMORY;

	for (size_t i = 0; room && i < sizeof(weights) / sizeof(weights[0]); i++) {
		struct oom_fit g = {0};
		const enum oom_status one =
			first_line(&g, x, y, n, columns, weights[i], room, outlier);

		if (one == OOM_ERR_MEMORY) {
			st = one;
			break;
		}
		g.spread = one ? HUGE_VAL : oom_fit_spread(room, n, room + n);
		if (!(g.spread < least))
			continue;
		st = OOM_OK;
		least = g.spread;
		*f = g;
		memcpy(residual, room, n * sizeof(*room));
	}
	free(room);
	return st;
}

enum oom_status oom_fit_robust(struct oom_fit *out, const double *x, const double *y, size_t n,
			       size_t columns, bool uneven, double *residual, bool *outlier,
			       struct oom_error *err)
{
	struct oom_fit f = {0};
	enum oom_status st;

	gsl_set_error_handler_off();
	st = first_of(&f, x, y, n, columns, residual, outlier);
	if (!st)
		st = second_line(&f, x, y, n, columns, uneven, residual, outlier);
	for (size_t j = 0; !st && j < columns; j++)
		if (!isfinite(f.b[j]) || !isfinite(f.cov[j][j]))
			st = OOM_ERR_INVALID;
	if (!st)
		*out = f;
	return st == OOM_ERR_MEMORY ? oom_error_set(err, st, "out of host memory") :
	       st ? oom_error_set(err, st, "the measurements do not settle on one line") : OOM_OK;
}

struct values {
	gsl_matrix *u, *v;
	gsl_vector *d, *work;
};

static int singular_values(void *ctx)
{
	const struct values *s = ctx;

	return gsl_linalg_SV_decomp(s->u, s->v, s->d, s->work);
}

/* Condition index and variance proportions (Belsley, Kuh and Welsch, Regression Diagnostics, 1980,
 * sections 3.2 and 3.3): x = U D V' with columns of length one;
 *   eta = d_max / d_min,  pi_j = (v_j,min / d_min)^2 / sum_k (v_j,k / d_k)^2. */
enum oom_status oom_fit_condition(const double *x, size_t n, size_t columns, double *index,
				  double share[OOM_TERMS], struct oom_error *err)
{
	gsl_matrix *u, *v;
	gsl_vector *d, *work;
	enum oom_status st = OOM_ERR_MEMORY;
	double most, least;

	gsl_set_error_handler_off();
	u = gsl_matrix_alloc(n < columns ? columns : n, columns);
	v = gsl_matrix_alloc(columns, columns);
	d = gsl_vector_alloc(columns);
	work = gsl_vector_alloc(columns);
	if (!u || !v || !d || !work)
		goto out;
	gsl_matrix_set_zero(u);
	for (size_t j = 0; j < columns; j++) {
		double sum = 0;

		for (size_t i = 0; i < n; i++)
			sum += x[i * columns + j] * x[i * columns + j];
		for (size_t i = 0; i < n && sum > 0; i++)
			gsl_matrix_set(u, i, j, x[i * columns + j] / sqrt(sum));
	}
	st = guarded(singular_values, &(struct values){u, v, d, work});
	if (st)
		goto out;
	most = gsl_vector_get(d, 0);
	least = fmax(gsl_vector_get(d, columns - 1), 1e-12 * most);
	*index = least > 0 ? most / least : HUGE_VAL;
	for (size_t j = 0; j < columns; j++) {
		double sum = 0;

		for (size_t k = 0; k < columns; k++) {
			const double dk = fmax(gsl_vector_get(d, k), 1e-12 * most),
				     r = gsl_matrix_get(v, j, k) / (dk > 0 ? dk : 1);

			sum += r * r;
			share[j] = r * r;
		}
		share[j] = sum > 0 ? share[j] / sum : 0;
	}
out:
	gsl_vector_free(work);
	gsl_vector_free(d);
	gsl_matrix_free(v);
	gsl_matrix_free(u);
	return st ? oom_error_set(err, st, st == OOM_ERR_MEMORY ? "out of host memory" :
								  "the measurements cannot be told "
								  "apart") :
		    OOM_OK;
}

double oom_t_quantile(double level, double dof)
{
	return gsl_cdf_tdist_Pinv(level, dof > 1 ? dof : 1);
}

double oom_t_below(double t, double dof)
{
	return gsl_cdf_tdist_P(t, dof > 1 ? dof : 1);
}
