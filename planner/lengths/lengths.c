/* Length distributions (playbook M16).  Quantile functions are GSL's; a file's lengths are counted,
 * so that ten million of them take the memory of the distinct ones. */
#include "oomplan/lengths.h"

#include <errno.h>
#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input/open.h"
#include "parts.h"
#include "oomplan/units.h"

/* A length beyond DENSE is rare, and looked for one by one: so many kinds of them that a hostile
 * file is still read in seconds. */
enum { DENSE = 1 << 20, MAX_RARE = 4096, SAMPLES = 1000000 };

bool oom_length_count(struct oom_length_counter *c, uint64_t tokens, uint64_t times)
{
	c->total += times;
	c->sum += (double)tokens * (double)times;
	if (tokens < DENSE) {
		c->dense[tokens] += times;
		return true;
	}
	for (size_t i = 0; i < c->n_rare; i++)
		if (c->rare[i].tokens == tokens) {
			c->rare[i].count += times;
			return true;
		}
	if (c->n_rare == MAX_RARE)
		return false;
	if (c->n_rare == c->cap_rare) {
		void *q = realloc(c->rare, (c->cap_rare * 2 + 64) * sizeof(*c->rare));

		if (!q)
			return false;
		c->rare = q;
		c->cap_rare = c->cap_rare * 2 + 64;
	}
	c->rare[c->n_rare++] = (struct oom_length){(uint32_t)tokens, times};
	return true;
}

static int by_tokens(const void *a, const void *b)
{
	const struct oom_length *x = a, *y = b;

	return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static enum oom_status finish(struct oom_length_counter *c, const char *name,
			      struct oom_lengths *out, struct oom_error *err)
{
	size_t n = c->n_rare;

	if (!c->total)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s: no length in it (%llu lines without one)", name,
				     (unsigned long long)c->skipped);
	for (size_t i = 0; i < DENSE; i++)
		n += c->dense[i] != 0;
	out->items = malloc(n * sizeof(*out->items));
	if (!out->items)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	out->n = 0;
	for (size_t i = 0; i < DENSE; i++)
		if (c->dense[i])
			out->items[out->n++] = (struct oom_length){(uint32_t)i, c->dense[i]};
	if (c->n_rare)
		qsort(c->rare, c->n_rare, sizeof(*c->rare), by_tokens);
	for (size_t i = 0; i < c->n_rare; i++)
		out->items[out->n++] = c->rare[i];
	out->total = c->total;
	out->skipped = c->skipped;
	out->mean = c->sum / (double)c->total;
	return OOM_OK;
}

/* ---- named distributions ---- */

static enum oom_status named(struct oom_length_counter *c, const char *word, bool *is,
			     struct oom_error *err)
{
	static const struct {
		const char *name;
		int numbers;
	} kinds[] = {{"uniform:", 2}, {"lognormal:", 2}, {"normal:", 2}, {"exponential:", 1}};
	double a = 0, b = 0;
	size_t k = 0;

	*is = true;
	for (; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		if (!strncmp(word, kinds[k].name, strlen(kinds[k].name)))
			break;
	if (k == sizeof(kinds) / sizeof(kinds[0])) {
		*is = false;
		return OOM_OK;
	}
	if (sscanf(word + strlen(kinds[k].name), "%lf:%lf", &a, &b) != kinds[k].numbers ||
	    !(a > 0 && a <= OOM_LENGTH_MOST) ||
	    (kinds[k].numbers == 2 && !(b > 0 && b <= OOM_LENGTH_MOST)) || (k == 0 && b < a))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "lengths \"%s\": expected uniform:LO:HI, "
				     "lognormal:MEDIAN:SIGMA, normal:MEAN:SD or "
				     "exponential:MEAN, positive",
				     word);
	gsl_set_error_handler_off();
	for (int i = 0; i < SAMPLES; i++) {
		const double u = (i + 0.5) / SAMPLES;
		double x = k == 0 ? gsl_cdf_flat_Pinv(u, a, b) :
			   k == 1 ? gsl_cdf_lognormal_Pinv(u, log(a), b) :
			   k == 2 ? a + gsl_cdf_gaussian_Pinv(u, b) :
				    gsl_cdf_exponential_Pinv(u, a);

		x = !(x >= 1) ? 1 : x > OOM_LENGTH_MOST ? OOM_LENGTH_MOST : x;
		if (!oom_length_count(c, (uint64_t)(x + 0.5), 1))
			return oom_error_set(err, OOM_ERR_LIMIT, "lengths \"%s\": spread too wide",
					     word);
	}
	return OOM_OK;
}

/* f NULL: a name, which may be a distribution's. */
static enum oom_status read_any(struct oom_lengths *out, FILE *f, const char *word,
				const char *field, struct oom_error *err)
{
	struct oom_length_counter c = {.dense = calloc(DENSE, sizeof(*c.dense))};
	const struct oom_locale locale = oom_locale_enter();
	FILE *opened = NULL;
	enum oom_status st;
	bool is = false;

	memset(out, 0, sizeof(*out));
	st = !c.dense ? oom_error_set(err, OOM_ERR_MEMORY, "out of host memory") :
	     f	      ? OOM_OK :
			named(&c, word, &is, err);
	if (!st && !is && !f) {
		f = opened = oom_input_open(word, err);
		st = f ? OOM_OK : OOM_ERR_IO;
	}
	if (!st && !is)
		st = oom_lengths_stream(&c, f, word, field, err);
	if (!st)
		st = finish(&c, word, out, err);
	oom_input_close(opened);
	free(c.dense);
	free(c.rare);
	oom_locale_leave(locale);
	return st;
}

enum oom_status oom_lengths_read(struct oom_lengths *out, const char *word, const char *field,
				 struct oom_error *err)
{
	return read_any(out, NULL, word, field, err);
}

enum oom_status oom_lengths_from(struct oom_lengths *out, FILE *f, const char *name,
				 const char *field, struct oom_error *err)
{
	return read_any(out, f, name, field, err);
}

void oom_lengths_release(struct oom_lengths *l)
{
	if (!l)
		return;
	free(l->items);
	memset(l, 0, sizeof(*l));
}

/* ---- order statistics ---- */

uint32_t oom_lengths_longest(const struct oom_lengths *l, double n, double q)
{
	/* F(x)^n >= q  <=>  F(x) >= q^(1/n) */
	const double need = q > 0 ? exp(log(q) / n) * (double)l->total : 0;
	double below = 0;

	for (size_t i = 0; i < l->n; i++) {
		below += (double)l->items[i].count;
		if (below >= need * (1 - 1e-12))
			return l->items[i].tokens;
	}
	return l->n ? l->items[l->n - 1].tokens : 0;
}

uint32_t oom_lengths_quantile(const struct oom_lengths *l, double q)
{
	return oom_lengths_longest(l, 1, q);
}

double oom_lengths_longest_mean(const struct oom_lengths *l, double n)
{
	double below = 0, last = 0, mean = 0;

	for (size_t i = 0; i < l->n; i++) {
		double p;

		below += (double)l->items[i].count;
		p = pow(below / (double)l->total, n);
		mean += (double)l->items[i].tokens * (p - last);
		last = p;
	}
	return mean;
}

static double share_at_most(const struct oom_lengths *l, double tokens)
{
	double below = 0;

	for (size_t i = 0; i < l->n && (double)l->items[i].tokens <= tokens; i++)
		below += (double)l->items[i].count;
	return below / (double)l->total;
}

/* Q(p), the quantile function at a middle of order statistics. */
static double at_share(const struct oom_lengths *l, double p)
{
	return oom_lengths_longest(l, 1, p > 0 ? p : 0);
}

/* transformers' LengthGroupedSampler: groups of 50 batches drawn at random, each sorted: batch k of
 * a group holds the order statistics k*b+1 .. (k+1)*b of 50*b draws, whose expectations stand
 * near Q((j - 0.5) / (50 * b)). */
static double grouped_tokens(const struct oom_lengths *l, double b)
{
	enum { GROUPS = 50 };
	double sum = 0;

	for (int k = 0; k < GROUPS; k++)
		sum += at_share(l, ((k + 1) * b - 0.5) / (GROUPS * b));
	return sum / GROUPS;
}

/* Batches of sorted sequences, as many as keep count x longest within the budget (fairseq's
 * --max-tokens): padded tokens over real ones. */
static double budget_tokens(const struct oom_lengths *l, double budget)
{
	double padded = 0, open = 0;            /* sequences in the batch that is being filled */
	uint32_t longest = 0;

	for (size_t i = 0; i < l->n; i++) {
		const uint32_t x = l->items[i].tokens ? l->items[i].tokens : 1;
		double left = (double)l->items[i].count;
		const double room = floor(budget / x) > 1 ? floor(budget / x) : 1;

		/* those waiting become as long as this one, as many as then fit */
		if (open > 0) {
			const double take = room - open < left ? room - open : left;

			if (take > 0) {
				open += take;
				left -= take;
				longest = x;
			}
			if (left > 0 || open >= room) {
				padded += open * longest;
				open = 0;
			}
		}
		if (left > 0) {
			const double full = floor(left / room);

			padded += full * room * x;
			open = left - full * room;
			longest = x;
		}
	}
	return padded + open * longest;
}

static double lost(const struct oom_lengths *l, uint32_t cap, double *cut)
{
	double tokens = 0;

	*cut = 0;
	for (size_t i = 0; i < l->n; i++)
		if (l->items[i].tokens > cap) {
			tokens += (double)(l->items[i].tokens - cap) * (double)l->items[i].count;
			*cut += (double)l->items[i].count;
		}
	*cut /= (double)l->total;
	return l->mean > 0 ? tokens / (l->mean * (double)l->total) : 0;
}

double oom_lengths_first_beyond(const struct oom_lengths *l, double b, double tokens)
{
	/* a batch passes with probability F(tokens)^b: geometric waiting time */
	const double p = 1 - pow(share_at_most(l, tokens), b);

	return p > 1e-15 ? 1 / p : 0;
}

struct oom_lengths_report oom_lengths_report(const struct oom_lengths *l, double b, double steps)
{
	const uint32_t longest = l->items[l->n - 1].tokens,
		       worst = oom_lengths_longest(l, b * steps, 0.99);
	struct oom_lengths_report r = {.total = l->total,
				       .skipped = l->skipped,
				       .mean = l->mean,
				       .batch = b,
				       .p50 = oom_lengths_quantile(l, 0.5),
				       .p90 = oom_lengths_quantile(l, 0.9),
				       .p99 = oom_lengths_quantile(l, 0.99),
				       .p999 = oom_lengths_quantile(l, 0.999),
				       .longest = longest};
	const double real = l->mean > 0 ? l->mean : 1;
	double budget;

	r.mean_batch_tokens = oom_lengths_longest_mean(l, b);
	budget = b * r.mean_batch_tokens;
	r.batching[OOM_BATCH_LONGEST] = (struct oom_batching_need){
		"pad to longest", "each batch padded to its own longest", worst, b * worst,
		1 - real / fmax(r.mean_batch_tokens, real)};
	r.batching[OOM_BATCH_MAX_LENGTH] = (struct oom_batching_need){
		"max_length", "every sequence padded to the longest there is", longest, b * longest,
		1 - real / fmax(longest, real)};
	r.batching[OOM_BATCH_PACKING] = (struct oom_batching_need){
		"packing", "sequences joined to the 99th percentile's length", r.p99, b * r.p99, 0};
	r.batching[OOM_BATCH_BY_LENGTH] = (struct oom_batching_need){
		"group_by_length", "50 batches at a time sorted; the longest come together", worst,
		b * worst, 1 - real / fmax(grouped_tokens(l, b), real)};
	r.batching[OOM_BATCH_BUDGET] = (struct oom_batching_need){
		"token budget", "sorted, as many as keep a batch below the mean one's tokens",
		(uint32_t)fmax(ceil(budget / b), ceil(longest / b)), fmax(budget, longest),
		1 - real * (double)l->total /
				fmax(budget_tokens(l, budget), real * (double)l->total)};
	r.death_step = oom_lengths_first_beyond(l, b, r.mean_batch_tokens);
	r.lost_share = lost(l, r.p999, &r.cut_share);
	return r;
}
