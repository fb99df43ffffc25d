/* Calibration: terms by regression, then how far runs lie from what those terms expect.
 *
 * What was set aside upwards is not forgotten: it is the tail, a generalised Pareto beyond a
 * threshold (Pickands 1975, Annals of Statistics 3), in the probability that a run fits. */
#include "oomplan/calibrate.h"

#include <math.h>
#include <stdlib.h>

#include "parts.h"

#define GIB 1073741824.0
/* Other units, not overheads (a guess). */
#define FAR 20.0

static void all_default(struct oom_calibration *c, const struct oom_calibration *def)
{
	*c = (struct oom_calibration){.n = 0};
	if (def)
		*c = *def;
	c->tail_share = c->tail_from = c->tail_scale = c->tail_shape = 0;
	c->n_beyond = c->n_tail = 0;
	for (int k = 0; k < OOM_TERMS; k++) {
		struct oom_overhead *t = &c->term[k];

		if (!def)
			*t = (struct oom_overhead){.value = k <= OOM_TERM_FRAGMENTATION};
		if (k <= OOM_TERM_FRAGMENTATION)
			t->def = t->value;
		t->state = OOM_TERM_UNMEASURED;
		t->with = 0;
	}
	for (int m = 0; m < OOM_MEASURES; m++)
		c->spread[m].n = c->spread[m].n_outliers = 0;
}

static enum oom_measure last(const struct oom_calibration_row *r)
{
	return r->measured[OOM_MEASURE_USED] > 0     ? OOM_MEASURE_USED :
	       r->measured[OOM_MEASURE_RESERVED] > 0 ? OOM_MEASURE_RESERVED :
						       OOM_MEASURE_ALLOCATED;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Outliers upwards: how many, and how far.  The generalised Pareto by probability-weighted moments
 * (Hosking and Wallis 1987, Technometrics 29, equation 4, k = -shape); from fewer than ten an
 * exponential. */
static void tail(struct oom_calibration *c, double *excess, size_t k, size_t n)
{
	double a0 = 0, a1 = 0, shape = 0;

	if (!k)
		return;
	qsort(excess, k, sizeof(*excess), by_value);
	for (size_t j = 0; j < k; j++) {
		a0 += excess[j] / (double)k;
		a1 += excess[j] * (1 - ((double)j + 1 - 0.35) / (double)k) / (double)k;
	}
	if (k >= 10 && a0 > 2 * a1)
		shape = 2 - a0 / (a0 - 2 * a1);
	/* one more row might always be one of them */
	c->tail_share = (double)(k + 1) / (double)(n + 1);
	c->tail_shape = fmin(fmax(shape, 0), 0.5);
	c->tail_scale = a0 * (1 - c->tail_shape);
	c->n_tail = k;
	c->n_beyond = k < OOM_BEYOND ? k : OOM_BEYOND;
	for (size_t j = 0; j < c->n_beyond; j++)
		c->beyond[j] = excess[k - 1 - j];
}

/* How far single runs lie from what the whole chain expects, from the runs themselves: so it does
 * not matter which of the steps scatter together.  A share of the run or a size, whichever is the
 * likelier.  Where fewer than three runs measured the figure, the default's scatter comes on top of
 * the figure below it. */
static void scatter(struct oom_calibration *c, struct oom_calibration_row *rows, size_t n,
		    enum oom_measure m, const size_t spent_on[OOM_MEASURES], double *a, double *b)
{
	const struct oom_spread below = m ? c->spread[m - 1] : (struct oom_spread){0};
	struct oom_spread *to = &c->spread[m];
	double limit, share = 0, bytes = 0, sizes = 0, spent = 0;
	size_t k = 0, used = 0;

	for (size_t i = 0; i < n; i++)
		if (rows[i].measured[m] > 0)
			a[k++] = rows[i].residual[m];
	if (k < OOM_FEWEST) {
		to->share = hypot(to->share, below.share);
		to->bytes = hypot(to->bytes, below.bytes);
		to->dof = below.dof > 0 ? below.dof : to->dof;
		return;
	}
	for (int j = 0; j <= (int)m; j++)
		spent += (double)spent_on[j];
	limit = OOM_FIT_CUTOFF * (1 + 5.0 / (double)k) * oom_fit_spread(a, k, b) +
		OOM_FIT_NOTHING;
	for (size_t i = 0; i < n; i++) {
		const double is = rows[i].measured[m], size = oom_predicted(&rows[i].predicted, m),
			     d = is - oom_calibrated(c, &rows[i].predicted, m);

		if (!(is > 0))
			continue;
		if (fabs(rows[i].residual[m]) > limit) {
			rows[i].outlier |= 1u << m;
			continue;
		}
		share += d / size * (d / size);
		bytes += d / GIB * (d / GIB);
		sizes += log(size / GIB);
		used++;
	}
	*to = (struct oom_spread){.dof = fmax((double)used - spent, 1), .n = k,
				  .n_outliers = k - used};
	if (share < 1e-14 ||                    /* rounding */
	    log(share) * (double)used / 2 + sizes <= log(bytes) * (double)used / 2)
		to->share = sqrt(share / to->dof);
	else
		to->bytes = sqrt(bytes / to->dof) * GIB;
}

static void leftovers(struct oom_calibration *c, struct oom_calibration_row *rows, size_t n,
		      const size_t spent[OOM_MEASURES], double *a, double *b)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		for (int m = 0; m < OOM_MEASURES; m++) {
			const double is = rows[i].measured[m],
				     due = oom_calibrated(c, &rows[i].predicted,
							  (enum oom_measure)m);

			rows[i].residual[m] = is > 0 ? is / due - 1 : 0;
		}
	for (int m = 0; m < OOM_MEASURES; m++)
		scatter(c, rows, n, (enum oom_measure)m, spent, a, b);
	for (size_t i = 0; i < n; i++)
		a[i] = rows[i].residual[last(&rows[i])];
	c->tail_from = OOM_FIT_CUTOFF * oom_fit_spread(a, n, b) + OOM_FIT_NOTHING;
	for (size_t i = 0; i < n; i++)
		if (a[i] > c->tail_from)
			b[k++] = a[i] - c->tail_from;
	tail(c, b, k, n);
}

static enum oom_status check(const struct oom_calibration_row *rows, size_t n,
			     struct oom_error *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct oom_parts *p = &rows[i].predicted;
		bool good = oom_predicted(p, OOM_MEASURE_ALLOCATED) > 0 && p->reserved > 0 && p->workspace >= 0 &&
			    p->context >= 0 && p->nccl >= 0 && oom_predicted(p, OOM_MEASURE_USED) < 1e18;

		for (int k = 0; k < OOM_SCALES; k++)
			good = good && p->part[k] >= 0;
		for (int m = 0; m < OOM_MEASURES; m++)
			good = good && rows[i].measured[m] >= 0 && rows[i].measured[m] < 1e18;
		if (!good)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "measurement %zu: sizes must be positive", i + 1);
	}
	return OOM_OK;
}

enum oom_status oom_calibrate(struct oom_calibration *out, struct oom_calibration_row *rows,
			      size_t n, const struct oom_calibration *def, struct oom_error *err)
{
	struct oom_calibration c;
	size_t spent[OOM_MEASURES] = {0};
	enum oom_status st = check(rows, n, err);
	double *room;

	if (st)
		return st;
	room = calloc(n + 1, 2 * sizeof(*room));
	if (!room)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	for (size_t i = 0; i < n; i++)
		rows[i].outlier = 0;
	all_default(&c, def);
	st = oom_calibration_stages(&c, rows, n, spent, err);
	for (int k = 0; !st && k <= OOM_TERM_FRAGMENTATION; k++)
		if (!(c.term[k].value > 1 / FAR && c.term[k].value < FAR))
			st = oom_error_set(err, OOM_ERR_INVALID,
					   "the runs took %.3g times what is predicted (%s): are both "
					   "in bytes, and of the same runs?",
					   c.term[k].value, oom_term_name((enum oom_term)k));
	if (!st) {
		c.n = n;
		leftovers(&c, rows, n, spent, room, room + n);
		*out = c;
	}
	free(room);
	return st;
}

enum oom_status oom_false_fit_rate(double *rate, const struct oom_calibration_row *rows, size_t n,
			  const struct oom_calibration *def, double level)
{
	enum { FOLDS = 10 };
	struct oom_calibration_row *train = malloc((n + 1) * sizeof(*train));
	size_t wrong = 0, judged = 0;
	enum oom_status st = train ? OOM_OK : OOM_ERR_MEMORY;

	for (int k = 0; st != OOM_ERR_MEMORY && k < FOLDS; k++) {
		struct oom_calibration c;
		size_t m = 0;

		for (size_t i = 0; i < n; i++)
			if (i % FOLDS != (size_t)k)
				train[m++] = rows[i];
		st = oom_calibrate(&c, train, m, def, NULL);
		if (st)
			continue;
		for (size_t i = (size_t)k; i < n; i += FOLDS) {
			const enum oom_measure at = last(&rows[i]);

			judged++;
			wrong += rows[i].measured[at] >
				 oom_calibrated_bound(&c, &rows[i].predicted, at, level);
		}
	}
	free(train);
	*rate = judged ? (double)wrong / (double)judged : NAN;
	return st == OOM_ERR_MEMORY ? st : OOM_OK;
}
