/* A calibration applied: what a predicted run is expected to show, its interval, its odds.
 *
 * The variance of one run is the delta method's, g' C g with g the derivative by each term, and the
 * scatter of single runs.  The regressions' degrees of freedom and the scatter's are joined by
 * Welch and Satterthwaite: nu = (sum v)^2 / sum (v^2 / nu_i) (Satterthwaite 1946, Biometrics
 * Bulletin 2). */
#include <math.h>

#include "parts.h"

static const struct {
	const char *name, *summary;
} terms[OOM_TERMS] = {
	[OOM_TERM_STATES] = {"states", "weights, gradients, optimizer states, inputs, communication"},
	[OOM_TERM_ACTIVATIONS] = {"activations", "saved and recomputed activations, autocast's copies"},
	[OOM_TERM_TRANSIENT] = {"transient", "logits, loss and temporaries"},
	[OOM_TERM_FRAGMENTATION] = {"fragmentation", "reserved bytes, given the allocated ones"},
	[OOM_TERM_CONTEXT] = {"context", "CUDA context and modules"},
	[OOM_TERM_NCCL] = {"nccl", "NCCL's buffers, with more than one GPU"},
};

const char *oom_term_name(enum oom_term t) { return terms[t].name; }
const char *oom_term_summary(enum oom_term t) { return terms[t].summary; }

bool oom_term_is_bytes(enum oom_term t)
{
	return t > OOM_TERM_FRAGMENTATION;
}

const char *oom_measure_str(enum oom_measure m)
{
	static const char *const words[] = {"allocated", "reserved", "nvidia-smi"};

	return words[m];
}

const char *oom_term_state_str(enum oom_term_state s)
{
	static const char *const words[] = {"fitted", "shared", "unmeasured", "absent",
					    "collinear"};

	return words[s];
}

struct oom_parts oom_parts_of(const struct oom_eval *e)
{
	static const enum oom_term of[OOM_BUCKETS] = {
		[OOM_BUCKET_SAVED] = OOM_TERM_ACTIVATIONS, [OOM_BUCKET_AMP] = OOM_TERM_ACTIVATIONS,
		[OOM_BUCKET_RECOMPUTE] = OOM_TERM_ACTIVATIONS,
		[OOM_BUCKET_LOGITS] = OOM_TERM_TRANSIENT, [OOM_BUCKET_TEMP] = OOM_TERM_TRANSIENT};
	struct oom_parts p = {.reserved = (double)e->reserved_bytes,
			      .context = (double)e->context_bytes,
			      .workspace = (double)e->workspace_bytes,
			      .nccl = (double)e->nccl_bytes,
			      .many = e->nccl_bytes > 0,
			      .split = true,
			      .overheads = true};
	double sum = 0;

	for (int b = 0; b < OOM_BUCKETS; b++) {
		p.part[of[b]] += (double)e->bucket[b];
		sum += (double)e->bucket[b];
	}
	/* buckets that were not asked for, or those of another phase */
	p.split = fabs(sum - (double)e->overall_peak) <= 0.001 * sum;
	if (!p.split) {
		p.part[OOM_TERM_STATES] = (double)e->overall_peak;
		p.part[OOM_TERM_ACTIVATIONS] = p.part[OOM_TERM_TRANSIENT] = 0;
	}
	return p;
}

/* Bytes scale with what is predicted, as several contexts on one card do; where a file had no such
 * prediction its value stands alone, where its predictions were taken for whole it is what comes on
 * top. */
static double bytes_of(const struct oom_overhead *t, double predicted, double *slope)
{
	*slope = isnan(t->def) || !(t->def > 0) ? 1 : predicted / t->def;
	return t->state > OOM_TERM_SHARED ? predicted :
	       isnan(t->def)		  ? t->value :
	       t->def > 0		  ? t->value * *slope :
					    fmax(predicted + t->value, 0);
}

double oom_term_half_width(const struct oom_calibration *c, enum oom_term t, double level)
{
	const struct oom_overhead *o = &c->term[t];

	return o->state > OOM_TERM_SHARED ?
		       0 :
		       oom_t_quantile(0.5 + level / 2, o->dof) * o->se;
}

/* Mean, and the variance by where it comes from: the regressions, the scatter. */
struct outlook {
	double mean, var[OOM_MEASURES + 1], dof[OOM_MEASURES + 1];
};

static struct outlook look(const struct oom_calibration *c, const struct oom_parts *p,
			   enum oom_measure m)
{
	const double f = c->term[OOM_TERM_FRAGMENTATION].value;
	double g[OOM_TERMS] = {0}, allocated = 0, raw = 0, base, up;
	struct outlook o = {0};

	for (int k = 0; k < OOM_SCALES; k++) {
		raw += p->part[k];
		allocated += c->term[k].value * p->part[k];
	}
	up = m == OOM_MEASURE_ALLOCATED ? 1 : f * p->reserved / raw;
	for (int k = 0; k < OOM_SCALES; k++)
		g[k] = p->part[k] * up;
	o.mean = allocated * up;
	base = m == OOM_MEASURE_ALLOCATED ? raw : p->reserved;
	if (m >= OOM_MEASURE_RESERVED)
		g[OOM_TERM_FRAGMENTATION] = o.mean / f;
	if (m == OOM_MEASURE_USED) {
		o.mean += p->workspace + bytes_of(&c->term[OOM_TERM_CONTEXT], p->context,
						  &g[OOM_TERM_CONTEXT]);
		if (p->many)
			o.mean += bytes_of(&c->term[OOM_TERM_NCCL], p->nccl, &g[OOM_TERM_NCCL]);
		base += p->workspace + p->context + (p->many ? p->nccl : 0);
	}
	for (int k = 0; k < OOM_TERMS; k++) {
		for (int l = 0; l < OOM_TERMS; l++)
			o.var[c->term[k].from] += g[k] * g[l] * c->cov[k][l];
		if (g[k] > 0)
			o.dof[c->term[k].from] = c->term[k].dof;
	}
	o.var[OOM_MEASURES] = pow(c->spread[m].share * base, 2) + pow(c->spread[m].bytes, 2);
	o.dof[OOM_MEASURES] = c->spread[m].dof;
	return o;
}

static double deviation(const struct outlook *o, double *dof)
{
	double sum = 0, parts = 0;

	for (int i = 0; i <= OOM_MEASURES; i++) {
		const double v = fmax(o->var[i], 0);

		sum += v;
		parts += v * v / fmax(o->dof[i], 1);
	}
	*dof = parts > 0 ? sum * sum / parts : 1;
	return sqrt(sum);
}

double oom_ratio_base(const struct oom_parts *p, enum oom_measure m)
{
	return oom_predicted(p, m) + (m != OOM_MEASURE_USED ? p->workspace : 0);
}

/* Readings of real cards, where there are no terms. */
static bool is_real(const struct oom_calibration *c)
{
	return c->real[OOM_MEASURE_USED].n > 0;
}

double oom_calibrated(const struct oom_calibration *c, const struct oom_parts *p,
		      enum oom_measure m)
{
	if (is_real(c))
		return oom_calibrated_interval(c, p, m, 0.5);
	return look(c, p, m).mean;
}

static double quantile(const struct outlook *o, double level)
{
	double dof;
	const double s = deviation(o, &dof);

	return o->mean + (s > 0 ? oom_t_quantile(level, dof) * s : 0);
}

double oom_calibrated_interval(const struct oom_calibration *c, const struct oom_parts *p,
			       enum oom_measure m, double level)
{
	struct outlook o;

	if (is_real(c))
		return oom_ratio_base(p, m) * oom_ratio_at(&c->real[m], level);
	o = look(c, p, m);
	return quantile(&o, level);
}

/* The tail's distribution beyond its threshold. */
static double pareto(const struct oom_calibration *c, double excess)
{
	const double r = excess / c->tail_scale;

	return !(r > 0) ? 1 : c->tail_shape > 1e-6 ? pow(1 + c->tail_shape * r, -1 / c->tail_shape) :
						     exp(-r);
}

/* Share of the tail that passes capacity: below its threshold all of it, beyond what the Pareto
 * says, but never less than what was seen.  Of k distances of which j are larger, a new one is
 * larger with probability (j + 1) / (k + 1) at most, whatever they are distributed like (Vovk,
 * Gammerman and Shafer, Algorithmic Learning in a Random World, 2005, chapter 2); beyond the largest
 * it falls as the Pareto does. */
static double tail_passes(const struct oom_calibration *c, const struct outlook *o, double capacity)
{
	const double r = capacity / o->mean - 1 - c->tail_from, smooth = pareto(c, r);
	size_t larger = 0;
	double seen;

	while (larger < c->n_beyond && c->beyond[larger] > r)
		larger++;
	if (!c->n_beyond || (larger == c->n_beyond && larger < c->n_tail))
		return smooth;          /* too many for all of them to be kept */
	seen = (double)(larger + 1) / (double)(c->n_tail + 1);
	if (!larger)
		seen *= smooth / pareto(c, c->beyond[0]);
	return fmin(fmax(smooth, seen), 1);
}

static double odds(const struct oom_calibration *c, const struct outlook *o, double capacity)
{
	double dof;
	const double s = deviation(o, &dof), d = capacity - o->mean;
	const double noise = s > 0 ? oom_t_below(d / s, dof) : d >= 0;

	return (1 - c->tail_share) * noise +
	       (c->tail_share > 0 ? c->tail_share * (1 - tail_passes(c, o, capacity)) : 0);
}

double oom_calibrated_fits(const struct oom_calibration *c, const struct oom_parts *p,
			   enum oom_measure m, double capacity)
{
	struct outlook o;

	if (is_real(c))
		return oom_ratio_below(&c->real[m], capacity / oom_ratio_base(p, m));
	o = look(c, p, m);
	return odds(c, &o, capacity);
}

double oom_calibrated_bound(const struct oom_calibration *c, const struct oom_parts *p,
			    enum oom_measure m, double level)
{
	struct outlook o;
	double low, high;

	if (is_real(c))
		return oom_calibrated_interval(c, p, m, level);
	o = look(c, p, m);
	low = quantile(&o, fmin(level, 0.5));
	high = low + o.mean;
	if (level < 0.5)
		return low;
	if (odds(c, &o, low) >= level)          /* without any spread */
		return low;
	for (int i = 0; i < 60 && odds(c, &o, high) < level; i++)
		high += high - low;
	for (int i = 0; i < 60 && high - low > 0.5; i++) {
		const double mid = (low + high) / 2;

		*(odds(c, &o, mid) < level ? &low : &high) = mid;
	}
	return high;
}

double oom_calibrated_margin(const struct oom_calibration *c, const struct oom_parts *p,
			     double capacity, double confidence, double margin)
{
	const double fixed = p->workspace + p->context + (p->many ? p->nccl : 0);
	double low = 0, high = 2 * capacity / p->reserved;

	for (int i = 0; i < 60; i++) {
		const double mid = (low + high) / 2;
		struct oom_parts q = *p;
		double need;

		for (int k = 0; k < OOM_SCALES; k++)
			q.part[k] *= mid;
		q.reserved *= mid;
		need = confidence > 0 ?
			       oom_calibrated_bound(c, &q, OOM_MEASURE_USED, confidence) :
			       oom_calibrated(c, &q, OOM_MEASURE_USED) / (1 - margin);
		*(need <= capacity ? &low : &high) = mid;
	}
	return 1 - (low * p->reserved + fixed) / capacity;
}
