/* Length distributions (playbook M16).  Quantile functions are GSL's; a file's lengths are counted, so that ten million of them
 * take the memory of the distinct ones. */
#include "oomplan/lengths.h"

#include <errno.h>
#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 100000000, DENSE = 1 << 20, SAMPLES = 1000000 };

struct counter {
	uint64_t *dense;                /* lengths below DENSE */
	struct oom_length *rare;        /* the others, unsorted */
	size_t n_rare, cap_rare;
	uint64_t total, skipped;
	double sum;
};

static bool count_one(struct counter *c, uint64_t tokens, uint64_t times)
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
	if (c->n_rare == c->cap_rare) {
		void *q = realloc(c->rare, (c->cap_rare * 2 + 64) * sizeof(*c->rare));

		if (!q || c->cap_rare > 100000)
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

static enum oom_status finish(struct counter *c, const char *name, struct oom_lengths *out, struct oom_error *err)
{
	size_t n = c->n_rare;

	if (!c->total)
		return oom_error_set(err, OOM_ERR_INVALID, "%s: no length in it (%llu lines without one)", name,
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

/* ---- files ---- */

/* The number of a line: the whole line, the wanted column of a CSV, or the field "length" of a JSON object. */
struct shape {
	int column;                     /* of a CSV; -1: not one */
	bool decided;
};

static const char *nth_cell(const char *line, int column)
{
	for (; column > 0; column--) {
		line = strchr(line, ',');
		if (!line)
			return NULL;
		line++;
	}
	return line;
}

/* A first line of words names the columns. */
static bool is_header(struct shape *s, const char *line)
{
	int column = 0;

	s->decided = true;
	s->column = -1;
	if (*line == '{' || !strpbrk(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
		return false;
	s->column = 0;
	for (const char *p = line; p; column++) {
		const size_t n = strcspn(p, ",\r\n");

		if ((n == 6 && (!strncmp(p, "length", 6) || !strncmp(p, "tokens", 6))) || (n == 7 && !strncmp(p, "seq_len", 7)) ||
		    (n == 8 && !strncmp(p, "n_tokens", 8)))
			s->column = column;
		p = strchr(p, ',');
		p = p ? p + 1 : NULL;
	}
	return true;
}

static bool length_of(const struct shape *s, const char *line, uint64_t *tokens)
{
	const char *p = line;
	char *end;
	double v;

	if (*line == '{') {
		p = strstr(line, "\"length\"");
		p = p ? strchr(p + 8, ':') : NULL;
		p = p ? p + 1 : NULL;
	} else if (s->column > 0) {
		p = nth_cell(line, s->column);
	}
	if (!p)
		return false;
	v = strtod(p, &end);
	if (end == p || !(v >= 0) || v > MOST || v != floor(v))
		return false;
	*tokens = (uint64_t)v;
	return true;
}

/* Digits alone on a line, the common case, without strtod. */
static bool plain(const char *line, uint64_t *tokens)
{
	uint64_t v = 0;
	int n = 0;

	for (; line[n] >= '0' && line[n] <= '9' && n < 10; n++)
		v = v * 10 + (uint64_t)(line[n] - '0');
	*tokens = v;
	return n && n < 10 && v <= MOST && (line[n] == '\n' || !line[n] || line[n] == '\r');
}

static enum oom_status read_file(struct counter *c, const char *path, struct oom_error *err)
{
	FILE *f = strcmp(path, "-") ? fopen(path, "r") : stdin;
	struct shape s = {.column = -1};
	enum oom_status st = OOM_OK;
	char line[4096];
	bool whole = true;

	if (!f)
		return oom_error_set(err, OOM_ERR_IO, "%s: %s", path, strerror(errno));
	while (!st && fgets(line, sizeof(line), f)) {
		const bool begins = whole;
		uint64_t tokens;

		whole = strchr(line, '\n') != NULL;
		if (!begins)                    /* the rest of a long line: its length stood at the front */
			continue;
		if (s.column <= 0 && plain(line, &tokens)) {
			s.decided = true;
		} else {
			if (!s.decided && is_header(&s, line))
				continue;
			if (!length_of(&s, line, &tokens)) {
				c->skipped += line[0] != '\n';
				continue;
			}
		}
		if (!count_one(c, tokens, 1))
			st = oom_error_set(err, OOM_ERR_LIMIT, "%s: too many different lengths above 2^20", path);
	}
	if (!st && ferror(f))
		st = oom_error_set(err, OOM_ERR_IO, "%s: %s", path, strerror(errno));
	if (f != stdin)
		fclose(f);
	return st;
}

/* ---- named distributions ---- */

static enum oom_status named(struct counter *c, const char *word, bool *is, struct oom_error *err)
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
	if (sscanf(word + strlen(kinds[k].name), "%lf:%lf", &a, &b) != kinds[k].numbers || !(a > 0 && a <= MOST) ||
	    (kinds[k].numbers == 2 && !(b > 0 && b <= MOST)) || (k == 0 && b < a))
		return oom_error_set(err, OOM_ERR_INVALID, "lengths \"%s\": expected uniform:LO:HI, lognormal:MEDIAN:SIGMA, normal:MEAN:SD or "
				     "exponential:MEAN, positive", word);
	gsl_set_error_handler_off();
	for (int i = 0; i < SAMPLES; i++) {
		const double u = (i + 0.5) / SAMPLES;
		double x = k == 0 ? gsl_cdf_flat_Pinv(u, a, b) : k == 1 ? gsl_cdf_lognormal_Pinv(u, log(a), b) :
			   k == 2 ? a + gsl_cdf_gaussian_Pinv(u, b) : gsl_cdf_exponential_Pinv(u, a);

		x = !(x >= 1) ? 1 : x > MOST ? MOST : x;
		if (!count_one(c, (uint64_t)(x + 0.5), 1))
			return oom_error_set(err, OOM_ERR_LIMIT, "lengths \"%s\": spread too wide", word);
	}
	return OOM_OK;
}

enum oom_status oom_lengths_read(struct oom_lengths *out, const char *word, struct oom_error *err)
{
	struct counter c = {.dense = calloc(DENSE, sizeof(*c.dense))};
	enum oom_status st;
	bool is = false;

	memset(out, 0, sizeof(*out));
	st = c.dense ? named(&c, word, &is, err) : oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (!st && !is)
		st = read_file(&c, word, err);
	if (!st)
		st = finish(&c, word, out, err);
	free(c.dense);
	free(c.rare);
	return st;
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
	const double need = exp(log(q) / n) * (double)l->total;
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

struct oom_lengths_report oom_lengths_report(const struct oom_lengths *l, double b, double steps)
{
	const uint32_t longest = l->items[l->n - 1].tokens, worst = oom_lengths_longest(l, b * steps, 0.99);
	struct oom_lengths_report r = {.p50 = oom_lengths_quantile(l, 0.5), .p90 = oom_lengths_quantile(l, 0.9),
				       .p99 = oom_lengths_quantile(l, 0.99), .p999 = oom_lengths_quantile(l, 0.999), .longest = longest};
	double lost = 0, p;

	r.mean_batch_tokens = oom_lengths_longest_mean(l, b);
	r.batching[OOM_BATCH_LONGEST] = (struct oom_batching_need){"pad to longest", "each batch padded to its own longest", worst,
								   1 - l->mean / r.mean_batch_tokens};
	r.batching[OOM_BATCH_MAX_LENGTH] = (struct oom_batching_need){"max_length", "every sequence padded to the longest there is", longest,
								      1 - l->mean / (double)longest};
	r.batching[OOM_BATCH_PACKING] = (struct oom_batching_need){"packing", "sequences joined to the 99th percentile's length", r.p99, 0};
	/* sorted batches: a batch of the longest sequences comes together; next to no padding */
	r.batching[OOM_BATCH_BY_LENGTH] = (struct oom_batching_need){"group_by_length", "batches of equal lengths; the longest come together", worst,
								     0};
	/* a batch exceeds the mean one with probability 1 - F(mean)^b: geometric waiting time */
	p = 1 - pow(share_at_most(l, r.mean_batch_tokens), b);
	r.death_step = p > 0 ? 1 / p : 0;
	for (size_t i = 0; i < l->n; i++)
		if (l->items[i].tokens > r.p999)
			lost += (double)(l->items[i].tokens - r.p999) * (double)l->items[i].count;
	r.lost_share = lost / (l->mean * (double)l->total);
	return r;
}
