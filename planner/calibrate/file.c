/* The text form of a calibration: a version, then lines of words, then "end".
 *
 *	oomplan-calibration 2
 *	term NAME STATE MEASURE VALUE SE DOF DEFAULT WITH       WITH: - or names joined by +
 *	cov NAME NAME VALUE
 *	spread MEASURE SHARE BYTES DOF RUNS OUTLIERS
 *	tail SHARE FROM SCALE SHAPE RUNS
 *	beyond DISTANCE                 at most 24, the largest first
 *	runs N
 *	end
 *
 * write.c writes it. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input/open.h"
#include "oomplan/calibrate.h"
#include "oomplan/plan.h"
#include "oomplan/units.h"

/* No size, and no error of one, is larger. */
#define MOST 1e20
enum { WORDS = 9, MAX_FILE = 65536, STATES = OOM_TERM_COLLINEAR + 1 };

struct parser {
	const char *name;
	int line;
	struct oom_error *err;
	char *word[WORDS + 1];
	size_t n;
	struct oom_calibration c;
	unsigned terms, spreads;        /* seen, a bit each */
	bool tail, runs, end;
};

static enum oom_status wrong(const struct parser *p, const char *what, const char *expected)
{
	return oom_error_set(p->err, OOM_ERR_PARSE, "%s:%d: \"%.60s\": expected %s", p->name,
			     p->line, what, expected);
}

/* Which of n words; n: none of them. */
static int word_of(const char *s, const char *(*name)(int), int n)
{
	int k = 0;

	while (k < n && strcmp(s, name(k)))
		k++;
	return k;
}

static const char *term_name(int k) { return oom_term_name((enum oom_term)k); }
static const char *measure_name(int m) { return oom_measure_str((enum oom_measure)m); }
static const char *state_name(int s) { return oom_term_state_str((enum oom_term_state)s); }

static bool number(const struct parser *p, size_t at, double low, double high, double *to)
{
	char *end;
	const char *s = p->word[at];

	*to = oom_strtod(s, &end);
	if (end != s && !*end && *to >= low && *to <= high)
		return true;
	oom_error_set(p->err, OOM_ERR_INVALID, "%s:%d: \"%.60s\": expected a number from %g to %g",
		      p->name, p->line, s, low, high);
	return false;
}

static bool count(const struct parser *p, size_t at, size_t *to)
{
	double v;

	if (!number(p, at, 0, 1e9, &v))
		return false;
	*to = (size_t)v;
	return true;
}

static bool with(const struct parser *p, unsigned *to)
{
	char *s = p->word[8];

	*to = 0;
	if (!strcmp(s, "-"))
		return true;
	while (s) {
		char *plus = strchr(s, '+');
		int k;

		if (plus)
			*plus++ = 0;
		k = word_of(s, term_name, OOM_TERMS);
		if (k == OOM_TERMS) {
			wrong(p, s, "the name of a term");
			return false;
		}
		*to |= 1u << k;
		s = plus;
	}
	return true;
}

static enum oom_status read_term(struct parser *p)
{
	const int k = word_of(p->word[1], term_name, OOM_TERMS),
		  s = word_of(p->word[2], state_name, STATES),
		  m = word_of(p->word[3], measure_name, OOM_MEASURES);
	const bool bytes = k < OOM_TERMS && oom_term_is_bytes((enum oom_term)k);
	const double most = bytes ? MOST : 1000, least = bytes ? -MOST : 1e-3;
	struct oom_overhead *t;

	if (k == OOM_TERMS)
		return wrong(p, p->word[1],
			     "states, activations, transient, fragmentation, context or nccl");
	if (s == STATES)
		return wrong(p, p->word[2], "fitted, shared, unmeasured, absent or collinear");
	if (m == OOM_MEASURES)
		return wrong(p, p->word[3], "allocated, reserved or nvidia-smi");
	if (p->terms >> k & 1)
		return wrong(p, p->word[1], "every term once");
	p->terms |= 1u << k;
	t = &p->c.term[k];
	t->state = (enum oom_term_state)s;
	t->from = (enum oom_measure)m;
	if (bytes && !strcmp(p->word[7], "-"))
		t->def = NAN;
	else if (!number(p, 7, least, most, &t->def))
		return OOM_ERR_INVALID;
	return number(p, 4, least, most, &t->value) && number(p, 5, 0, MOST, &t->se) &&
			       number(p, 6, 0, 1e9, &t->dof) && with(p, &t->with) ?
		       OOM_OK :
		       OOM_ERR_INVALID;
}

static enum oom_status read_cov(struct parser *p)
{
	const int k = word_of(p->word[1], term_name, OOM_TERMS),
		  l = word_of(p->word[2], term_name, OOM_TERMS);
	double v;

	if (k == OOM_TERMS || l == OOM_TERMS)
		return wrong(p, p->word[k == OOM_TERMS ? 1 : 2], "the name of a term");
	if (!number(p, 3, -MOST * MOST, MOST * MOST, &v))
		return OOM_ERR_INVALID;
	p->c.cov[k][l] = p->c.cov[l][k] = v;
	return OOM_OK;
}

static enum oom_status read_spread(struct parser *p)
{
	const int m = word_of(p->word[1], measure_name, OOM_MEASURES);
	struct oom_spread *s;

	if (m == OOM_MEASURES)
		return wrong(p, p->word[1], "allocated, reserved or nvidia-smi");
	p->spreads |= 1u << m;
	s = &p->c.spread[m];
	return number(p, 2, 0, MOST, &s->share) && number(p, 3, 0, MOST, &s->bytes) &&
			       number(p, 4, 0, 1e9, &s->dof) && count(p, 5, &s->n) &&
			       count(p, 6, &s->n_outliers) ?
		       OOM_OK :
		       OOM_ERR_INVALID;
}

static enum oom_status read_tail(struct parser *p)
{
	struct oom_calibration *c = &p->c;

	p->tail = true;
	return number(p, 1, 0, 1, &c->tail_share) && number(p, 2, 0, MOST, &c->tail_from) &&
			       number(p, 3, 0, MOST, &c->tail_scale) &&
			       number(p, 4, 0, 0.5, &c->tail_shape) && count(p, 5, &c->n_tail) ?
		       OOM_OK :
		       OOM_ERR_INVALID;
}

static enum oom_status read_beyond(struct parser *p)
{
	struct oom_calibration *c = &p->c;
	const double most = c->n_beyond ? c->beyond[c->n_beyond - 1] : MOST;

	if (c->n_beyond == OOM_BEYOND || c->n_beyond >= c->n_tail)
		return wrong(p, p->word[1], "no more of them than the tail has runs, or 24");
	if (!number(p, 1, 0, most, &c->beyond[c->n_beyond]))
		return OOM_ERR_INVALID;
	c->n_beyond++;
	return OOM_OK;
}

static enum oom_status read_runs(struct parser *p)
{
	p->runs = true;
	return count(p, 1, &p->c.n) ? OOM_OK : OOM_ERR_INVALID;
}

static enum oom_status read_end(struct parser *p)
{
	p->end = true;
	return OOM_OK;
}

static const struct {
	const char *word, *shape;
	size_t n;
	enum oom_status (*read)(struct parser *p);
} kinds[] = {
	{"term", "term NAME STATE MEASURE VALUE SE DOF DEFAULT WITH", 9, read_term},
	{"cov", "cov NAME NAME VALUE", 4, read_cov},
	{"spread", "spread MEASURE SHARE BYTES DOF RUNS OUTLIERS", 7, read_spread},
	{"tail", "tail SHARE FROM SCALE SHAPE RUNS", 6, read_tail},
	{"beyond", "beyond DISTANCE", 2, read_beyond},
	{"runs", "runs N", 2, read_runs},
	{"end", "end", 1, read_end},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static enum oom_status version(const struct parser *p)
{
	static const char again[] = "run oomplan calibrate on the measurements again";

	if (p->n == 2 && !strcmp(p->word[0], "oomplan-calibration"))
		return strcmp(p->word[1], "2") ?
			       oom_error_set(p->err, OOM_ERR_INVALID,
					     "%s:%d: a calibration of version %.20s; this oomplan "
					     "reads version %d: %s",
					     p->name, p->line, p->word[1], OOM_CALIBRATION_VERSION,
					     again) :
			       OOM_OK;
	/* what came before versions: "scale 1.02" */
	if (p->n == 2 && (!strcmp(p->word[0], "scale") || !strcmp(p->word[0], "offset_bytes")))
		return oom_error_set(p->err, OOM_ERR_INVALID,
				     "%s:%d: a calibration of version 1 (one scale, one offset); "
				     "this oomplan reads version %d: %s",
				     p->name, p->line, OOM_CALIBRATION_VERSION, again);
	return oom_error_set(p->err, OOM_ERR_PARSE,
			     "%s:%d: no calibration: expected \"oomplan-calibration %d\", as "
			     "oomplan calibrate -o writes it",
			     p->name, p->line, OOM_CALIBRATION_VERSION);
}

static enum oom_status read_line(struct parser *p, bool first)
{
	static const char *const words[] = {"term", "cov", "spread", "tail", "beyond",
					   "runs", "end", NULL};
	const char *near;

	if (first)
		return version(p);
	if (p->end)
		return wrong(p, p->word[0], "nothing after \"end\"");
	for (int k = 0; k < KINDS; k++)
		if (!strcmp(p->word[0], kinds[k].word))
			return p->n == kinds[k].n ? kinds[k].read(p) :
						    wrong(p, p->word[0], kinds[k].shape);
	near = oom_nearest(p->word[0], words);
	return wrong(p, p->word[0], near ? near : "term, cov, spread, tail, beyond, runs or end");
}

static enum oom_status whole(const struct parser *p)
{
	if (!p->line)
		return version(p);
	if (!p->end)
		return oom_error_set(p->err, OOM_ERR_PARSE, "%s:%d: no \"end\": the file is cut off",
				     p->name, p->line);
	if (p->terms != (1u << OOM_TERMS) - 1 || p->spreads != (1u << OOM_MEASURES) - 1 ||
	    !p->tail || !p->runs)
		return oom_error_set(p->err, OOM_ERR_INVALID,
				     "%s: every term, every spread, the tail and the runs are "
				     "needed once",
				     p->name);
	for (int k = 0; k < OOM_TERMS; k++)
		for (int l = 0; l < OOM_TERMS; l++) {
			const double a = p->c.term[k].se, b = p->c.term[l].se;

			if (fabs(p->c.cov[k][l]) > a * b * (1 + 1e-9) ||
			    (fabs(p->c.cov[k][l]) > 0 && p->c.term[k].from != p->c.term[l].from))
				return oom_error_set(p->err, OOM_ERR_INVALID,
						     "%s: the covariance of %s and %s is larger than "
						     "their standard errors allow",
						     p->name, term_name(k), term_name(l));
		}
	return OOM_OK;
}

enum oom_status oom_calibration_parse(struct oom_calibration *out, const char *text, size_t size,
				      const char *name, struct oom_error *err)
{
	struct parser p = {.name = name, .err = err, .word = {""}};
	bool first = true;
	enum oom_status st = OOM_OK;

	for (size_t at = 0; !st && at < size;) {
		const char *nl = memchr(text + at, '\n', size - at);
		const size_t n = nl ? (size_t)(nl - text) - at : size - at;
		char line[512], *rest = line, *word;

		p.line++;
		p.n = 0;
		if (n >= sizeof(line) || memchr(text + at, 0, n))
			return oom_error_set(err, OOM_ERR_PARSE, "%s:%d: no line of a calibration",
					     name, p.line);
		memcpy(line, text + at, n);
		line[n] = 0;
		at += n + (nl != NULL);
		if (*line == '#')
			continue;
		while (p.n <= WORDS && (word = strtok_r(rest, " \t\r", &rest)) != NULL)
			p.word[p.n++] = word;
		if (!p.n)
			continue;
		st = read_line(&p, first);
		first = false;
	}
	if (first && !st)
		p.line = 0;
	if (!st)
		st = whole(&p);
	if (!st)
		*out = p.c;
	return st;
}

enum oom_status oom_calibration_read(struct oom_calibration *out, const char *path,
				     struct oom_error *err)
{
	FILE *f = oom_input_open(path, err);
	char *text;
	size_t n;
	enum oom_status st = OOM_OK;

	if (!f)
		return OOM_ERR_IO;
	text = malloc(MAX_FILE + 1);
	n = text ? fread(text, 1, MAX_FILE + 1, f) : 0;
	if (!text)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	else if (ferror(f))
		st = oom_error_set(err, OOM_ERR_IO, "%s: %s", path, strerror(errno));
	else if (n > MAX_FILE)
		st = oom_error_set(err, OOM_ERR_PARSE,
				   "%s: larger than 64 KiB: no calibration (measurements go to "
				   "oomplan calibrate)",
				   path);
	else
		st = oom_calibration_parse(out, text, n, path, err);
	free(text);
	oom_input_close(f);
	return st;
}
