/* The regressions of a calibration: which shows which term, and what can be told apart.
 *
 * Up to three regressions, one a measured figure:
 *
 *	scales    A / A^ = sum_k s_k P_k / A^                    (allocated; k: parts of the peak)
 *	fragmentation   R / (A r) = f,  r = R^ / A^              (reserved, given allocated)
 *	context, NCCL   (U - R) / W = (c C^ / mean C^ + n N^ / mean N^) / W
 *
 * with ^ for predictions and W either one size for all runs or the run's own.  Errors of the first
 * two grow with the run, so ratios are fitted.  Where allocated bytes were not measured, reserved
 * ones (or, failing those, the used) take their place in the first: fragmentation then cannot be
 * told from the scales.
 *
 * Terms are told apart by the condition index of the design and its variance proportions (Belsley,
 * Kuh and Welsch, Regression Diagnostics, 1980): beyond CONDITION, scales that move together become
 * one, bytes that move with another term stay at their default. */
#include <math.h>
#include <string.h>

#include "stage.h"

#define GIB 1073741824.0
/* Belsley, Kuh and Welsch's limit of moderate to strong dependence. */
#define CONDITION 30.0
/* Less than this share of every run is none. */
#define SOME 1e-3

static double allocated(const struct oom_parts *p)
{
	double sum = 0;

	for (int k = 0; k < OOM_SCALES; k++)
		sum += p->part[k];
	return sum;
}

static double overheads(const struct oom_parts *p)
{
	return p->context + (p->many ? p->nccl : 0);
}

double oom_predicted(const struct oom_parts *p, enum oom_measure m)
{
	return m == OOM_MEASURE_ALLOCATED ? allocated(p) :
	       m == OOM_MEASURE_RESERVED  ? p->reserved :
					    p->reserved + p->workspace + overheads(p);
}

/* Reserved as measured, else as allocated bytes make it; 0: neither was measured. */
static double held(const struct stage *s, const struct oom_calibration_row *r)
{
	if (r->measured[OOM_MEASURE_RESERVED] > 0)
		return r->measured[OOM_MEASURE_RESERVED];
	return r->measured[OOM_MEASURE_ALLOCATED] * r->predicted.reserved /
	       allocated(&r->predicted) * s->c->term[OOM_TERM_FRAGMENTATION].value;
}

/* What the row's equation is divided by. */
static double divisor(const struct stage *s, const struct oom_calibration_row *r)
{
	return s->base			       ? oom_predicted(&r->predicted, s->at) :
	       s->at == OOM_MEASURE_RESERVED   ? 1 :
	       s->even			       ? GIB :
						 r->measured[OOM_MEASURE_USED];
}

static double predicted_bytes(const struct oom_parts *p, int term)
{
	return term == OOM_TERM_CONTEXT ? p->context : p->many ? p->nccl : 0;
}

/* The term's part of the row for a value of 1 (bytes: GiB where as much is predicted as on
 * average), divided. */
static double entry(const struct stage *s, const struct oom_calibration_row *r, int term)
{
	const struct oom_parts *p = &r->predicted;
	const double up = s->at == OOM_MEASURE_ALLOCATED ? 1 : p->reserved / allocated(p);

	if (term < OOM_SCALES)
		return p->part[term] * up / divisor(s, r);
	if (term == OOM_TERM_FRAGMENTATION)
		return 1;
	if (s->usual[term] > 0)
		return GIB * predicted_bytes(p, term) / s->usual[term] / divisor(s, r);
	return (term == OOM_TERM_CONTEXT || p->many ? GIB : 0) / divisor(s, r);
}

/* The left side, before what stands at its default is taken off. */
static double left(const struct stage *s, const struct oom_calibration_row *r)
{
	const struct oom_parts *p = &r->predicted;
	const double m = r->measured[s->at];

	if (s->base)
		return (m - (s->at == OOM_MEASURE_USED ? p->workspace : 0)) / divisor(s, r);
	if (s->at == OOM_MEASURE_RESERVED)
		return m * allocated(p) / (r->measured[OOM_MEASURE_ALLOCATED] * p->reserved);
	return (m - held(s, r)) / divisor(s, r);
}

static void fill(struct stage *s)
{
	unsigned in = 0;

	for (size_t j = 0; j < s->columns; j++)
		in |= s->column[j];
	for (size_t i = 0; i < s->n; i++) {
		s->y[i] = left(s, s->row[i]);
		for (int k = 0; s->base && k < OOM_SCALES; k++)
			if (!(in >> k & 1))
				s->y[i] -= entry(s, s->row[i], k) * s->c->term[k].value;
		/* bytes that the fit does not name, or that are known but for a little more */
		for (int k = OOM_TERM_CONTEXT; s->at == OOM_MEASURE_USED && k < OOM_TERMS; k++)
			if (!(in >> k & 1))
				s->y[i] -= predicted_bytes(&s->row[i]->predicted, k) /
					   divisor(s, s->row[i]);
		for (size_t j = 0; j < s->columns; j++) {
			double sum = 0;

			for (int k = 0; k < OOM_TERMS; k++)
				sum += s->column[j] >> k & 1 ? entry(s, s->row[i], k) : 0;
			s->x[i * s->columns + j] = sum;
		}
	}
}

static bool is_scale(unsigned column)
{
	return (column & SCALES) != 0;
}

static void drop(struct stage *s, size_t j, enum oom_term_state why, unsigned with)
{
	for (int k = 0; k < OOM_TERMS; k++)
		if (s->column[j] >> k & 1) {
			s->c->term[k].state = why;
			s->c->term[k].with = with & ~(1u << k);
		}
	s->columns--;
	memmove(s->column + j, s->column + j + 1, (s->columns - j) * sizeof(*s->column));
}

/* The column, not `but`, that has most of the weakest direction. */
static size_t most(const struct stage *s, const double *share, size_t but, bool scales)
{
	size_t best = SIZE_MAX;

	for (size_t j = 0; j < s->columns; j++)
		if (j != but && (!scales || is_scale(s->column[j])) &&
		    (best == SIZE_MAX || share[j] > share[best]))
			best = j;
	return best;
}

/* One column fewer: bytes that take part in the weakest direction are left at their default, else
 * the two scales in it become one. */
static void weaken(struct stage *s, const double *share)
{
	size_t a, b, n_scales = 0;

	for (size_t j = 0; j < s->columns; j++)
		n_scales += is_scale(s->column[j]);
	for (size_t j = s->columns; j-- > 0;)
		if (!is_scale(s->column[j]) && (share[j] > 0.5 || n_scales < 2)) {
			const size_t other = most(s, share, j, false);

			drop(s, j, OOM_TERM_COLLINEAR, other == SIZE_MAX ? 0 : s->column[other]);
			return;
		}
	a = most(s, share, SIZE_MAX, true);
	b = a == SIZE_MAX ? a : most(s, share, a, true);
	if (b == SIZE_MAX) {
		drop(s, 0, OOM_TERM_UNMEASURED, 0);
		return;
	}
	s->column[a < b ? a : b] |= s->column[a < b ? b : a];
	a = a < b ? b : a;
	s->columns--;
	memmove(s->column + a, s->column + a + 1, (s->columns - a) * sizeof(*s->column));
}

/* What is predicted on average of the runs that have it, NAN where the file does not say. */
static double usual_bytes(const struct stage *s, int term)
{
	double sum = 0;
	size_t k = 0;

	for (size_t i = 0; i < s->n; i++) {
		const struct oom_parts *p = &s->row[i]->predicted;

		if (!p->overheads)
			return NAN;
		if (term == OOM_TERM_NCCL && !p->many)
			continue;
		sum += predicted_bytes(p, term);
		k++;
	}
	return k ? sum / (double)k : 0;
}

/* Terms of which no run has any, and parts that the file does not give. */
static void choose(struct stage *s, unsigned terms)
{
	unsigned all = 0;
	bool split = true;

	s->columns = 0;
	for (size_t i = 0; i < s->n; i++)
		split = split && s->row[i]->predicted.split;
	for (int k = 0; k < OOM_TERMS; k++) {
		double top = 0;

		if (!(terms >> k & 1))
			continue;
		s->usual[k] = k >= OOM_TERM_CONTEXT ? usual_bytes(s, k) : 0;
		for (size_t i = 0; i < s->n; i++)
			top = fmax(top, entry(s, s->row[i], k));
		if (k < OOM_SCALES && !split)
			all |= 1u << k;
		else if (top < SOME)
			s->c->term[k].state = OOM_TERM_ABSENT;
		else
			s->column[s->columns++] = 1u << k;
	}
	if (all) {
		memmove(s->column + 1, s->column, s->columns * sizeof(*s->column));
		s->column[0] = all;
		s->columns++;
	}
}

/* The fit's numbers become the terms'. */
static void take(struct stage *s, const struct oom_fit *f)
{
	size_t at[OOM_TERMS];
	double unit[OOM_TERMS];
	unsigned in = 0;

	for (size_t j = 0; j < s->columns; j++)
		for (int k = 0; k < OOM_TERMS; k++) {
			struct oom_overhead *t = &s->c->term[k];

			if (!(s->column[j] >> k & 1))
				continue;
			in |= 1u << k;
			at[k] = j;
			unit[k] = oom_term_is_bytes((enum oom_term)k) ? GIB : 1;
			t->with = s->column[j] & ~(1u << k);
			t->state = t->with ? OOM_TERM_SHARED : OOM_TERM_FITTED;
			t->from = s->at;
			t->dof = f->dof;
			t->se = sqrt(fmax(f->cov[j][j], 0)) * unit[k];
			t->value = f->b[j] * unit[k];
			if (oom_term_is_bytes((enum oom_term)k))
				t->def = s->usual[k];
		}
	for (int k = 0; k < OOM_TERMS; k++)
		for (int l = 0; l < OOM_TERMS; l++) {
			if (in >> k & 1 && in >> l & 1)
				s->c->cov[k][l] = f->cov[at[k]][at[l]] * unit[k] * unit[l];
			else if ((in >> k & 1) != (in >> l & 1))
				s->c->cov[k][l] = 0;
		}
}

static void finish(struct stage *s, const struct oom_fit *f)
{
	take(s, f);
	s->spent[s->at] = s->columns;
	for (size_t i = 0; i < s->n; i++)
		if (s->outlier[i])
			s->row[i]->outlier |= 1u << s->at;
}

/* Minus the log-likelihood, for comparing weights: normal noise, or an outlier that may lie
 * anywhere within the largest run, whichever is the likelier for a row. */
static double unlikely(const struct stage *s, const struct oom_fit *f)
{
	const double sigma = fmax(f->spread, 1e-12);
	double sum = 0, largest = 0;

	for (size_t i = 0; i < s->n; i++)
		largest = fmax(largest, s->row[i]->measured[s->at]);
	for (size_t i = 0; i < s->n; i++) {
		const double t = s->residual[i] / sigma;

		sum += fmin(log(sigma * divisor(s, s->row[i])) + t * t / 2, log(largest) + 1);
	}
	return sum;
}

/* Fits what can be told apart.  *quality: minus the log-likelihood. */
static enum oom_status settle(struct stage *s, struct oom_fit *f, double *quality,
			      struct oom_error *err)
{
	*quality = HUGE_VAL;
	while (s->columns) {
		double share[OOM_TERMS], index;
		enum oom_status st;
		size_t j = 0;

		fill(s);
		st = oom_fit_condition(s->x, s->n, s->columns, &index, share, err);
		if (!st && (index > CONDITION || s->columns + 2 > s->n)) {
			weaken(s, share);
			continue;
		}
		if (!st)
			st = oom_fit_robust(f, s->x, s->y, s->n, s->columns,
					    !s->base && s->at == OOM_MEASURE_USED, s->residual,
					    s->outlier, err);
		if (st)
			return st;
		/* no memory is negative: such a scale is no more told apart than a collinear one */
		while (j < s->columns && (!is_scale(s->column[j]) || f->b[j] > 0))
			j++;
		if (j == s->columns)
			break;
		for (size_t k = 0; k < s->columns; k++)
			share[k] = is_scale(s->column[k]) ? share[k] : 0;
		share[j] = 1;
		weaken(s, share);
	}
	if (s->columns)
		*quality = unlikely(s, f);
	return OOM_OK;
}

/* The context's spread is taken for a size, and its intervals allow for its growing with the run;
 * where the runs say clearly that it does, they are weighted so (Carroll and Ruppert,
 * Transformation and Weighting in Regression, 1988, chapter 3).  Six units of log-likelihood are clear: a
 * guess. */
enum oom_status oom_stage_fit(struct stage *s, unsigned terms, struct oom_error *err)
{
	const struct oom_calibration before = *s->c;
	double even, share;
	struct oom_fit f;
	enum oom_status st;

	s->even = !s->base && s->at == OOM_MEASURE_USED;
	choose(s, terms);
	st = settle(s, &f, &even, err);
	if (!st && s->even && s->columns) {
		*s->c = before;
		s->even = false;
		choose(s, terms);
		st = settle(s, &f, &share, err);
		if (!st && !(share + 6 < even)) {
			*s->c = before;
			s->even = true;
			choose(s, terms);
			st = settle(s, &f, &even, err);
		}
	}
	if (!st && s->columns)
		finish(s, &f);
	return st;
}
