/* Regular expressions over module paths: a small backtracking matcher.  Syntax: the re module of
 * Python's library. */
#include "plan/pattern.h"

#include <string.h>

/* ---- what is parsed ---- */

/* A pattern is at most OOM_NAMES_SIZE characters, each of which makes two nodes at most. */
enum { MAX_NODES = 600, MAX_DEPTH = 40, MAX_REPEAT = 1000, MAX_STEPS = 200000, MAX_CALLS = 4000 };

enum kind { EMPTY, CHAR, ANY, SET, CLASS, BEGIN, END, WORD_EDGE, SPLIT, REPEAT, GROUP, LOOK };

struct node {
	enum kind kind;
	short next;             /* what follows; -1: nothing */
	short a, b;             /* SPLIT: alternatives; REPEAT, GROUP, LOOK: the body is a */
	short min, max;         /* REPEAT; max -1: without end */
	bool lazy, negative;
	char c;                 /* CHAR, CLASS (d w s D W S) */
	const char *from, *to;  /* SET: between the brackets */
};

struct regex {
	struct node node[MAX_NODES];
	short n;
	const char *at, *why;
	int depth;
};

static short add(struct regex *r, enum kind kind)
{
	if (r->n == MAX_NODES) {
		r->why = "too long";
		return 0;
	}
	r->node[r->n] = (struct node){.kind = kind, .next = -1, .a = -1, .b = -1};
	return r->n++;
}

static short alternatives(struct regex *r);

static bool is_class(char c)
{
	return c && strchr("dwsDWS", c);
}

static short escape(struct regex *r)
{
	const char c = *++r->at;
	short i;

	if (!c) {
		r->why = "ends in a backslash";
		return 0;
	}
	r->at++;
	if (is_class(c)) {
		i = add(r, CLASS);
		r->node[i].c = c;
	} else if (c == 'b' || c == 'B') {
		i = add(r, WORD_EDGE);
		r->node[i].negative = c == 'B';
	} else if (c == 'A') {
		i = add(r, BEGIN);
	} else if (c == 'Z') {
		i = add(r, END);
	} else if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
		r->why = "an escape that is not known here";
		return 0;
	} else {
		i = add(r, CHAR);
		r->node[i].c = c;
	}
	return i;
}

static short set(struct regex *r)
{
	const short i = add(r, SET);
	const char *p = r->at + 1;

	r->node[i].negative = *p == '^';
	p += *p == '^';
	r->node[i].from = p;
	/* a bracket that comes first is one of the characters */
	for (p += *p == ']'; *p && *p != ']'; p++)
		p += *p == '\\' && p[1];
	if (!*p) {
		r->why = "a [ without its ]";
		return 0;
	}
	r->node[i].to = p;
	r->at = p + 1;
	return i;
}

/* (...), (?:...), (?P<name>...), (?=...), (?!...) */
static short group(struct regex *r)
{
	enum kind kind = GROUP;
	bool negative = false;
	short i, body;

	r->at++;
	if (r->at[0] == '?' && (r->at[1] == '=' || r->at[1] == '!')) {
		kind = LOOK;
		negative = r->at[1] == '!';
		r->at += 2;
	} else if (r->at[0] == '?' && r->at[1] == ':') {
		r->at += 2;
	} else if (r->at[0] == '?' && r->at[1] == 'P' && r->at[2] == '<' && strchr(r->at, '>')) {
		r->at = strchr(r->at, '>') + 1;
	} else if (r->at[0] == '?') {
		r->why = "a (? that is not known here";
		return 0;
	}
	i = add(r, kind);
	r->node[i].negative = negative;
	if (++r->depth > MAX_DEPTH) {
		r->why = "too many groups in one another";
		return 0;
	}
	body = alternatives(r);
	r->depth--;
	if (r->why)
		return 0;
	if (*r->at != ')') {
		r->why = "a ( without its )";
		return 0;
	}
	r->at++;
	r->node[i].a = body;
	return i;
}

static short atom(struct regex *r)
{
	short i;

	switch (*r->at) {
	case '(': return group(r);
	case '[': return set(r);
	case '\\': return escape(r);
	case '*': case '+': case '?':
		r->why = "nothing to repeat";
		return 0;
	case '.': i = add(r, ANY); break;
	case '^': i = add(r, BEGIN); break;
	case '$': i = add(r, END); break;
	default:
		i = add(r, CHAR);
		r->node[i].c = *r->at;
	}
	r->at++;
	return i;
}

static int number(const char **p)
{
	int n = 0;

	for (; **p >= '0' && **p <= '9'; ++*p)
		n = n > MAX_REPEAT ? n : n * 10 + (**p - '0');
	return n;
}

/* {m}, {m,}, {,n}, {m,n}; anything else is a brace like any character. */
static bool braces(const char **at, int *min, int *max)
{
	const char *p = *at + 1;
	const bool first = *p >= '0' && *p <= '9';

	*min = number(&p);
	*max = *min;
	if (*p == ',') {
		p++;
		*max = *p >= '0' && *p <= '9' ? number(&p) : -1;
		if (!first && *max < 0)
			return false;
	} else if (!first) {
		return false;
	}
	if (*p != '}')
		return false;
	*at = p + 1;
	return true;
}

static short repeated(struct regex *r)
{
	short i = atom(r), k;
	int min, max;

	while (!r->why && *r->at && strchr("*+?{", *r->at)) {
		if (*r->at == '{') {
			if (!braces(&r->at, &min, &max))
				break;
		} else {
			min = *r->at == '+';
			max = *r->at == '?' ? 1 : -1;
			r->at++;
		}
		if (min > MAX_REPEAT || max > MAX_REPEAT || (max >= 0 && max < min)) {
			r->why = "a repetition out of range";
			return 0;
		}
		k = add(r, REPEAT);
		r->node[k].a = i;
		r->node[k].min = (short)min;
		r->node[k].max = (short)max;
		r->node[k].lazy = *r->at == '?';
		r->at += *r->at == '?';
		i = k;
		if (*r->at && strchr("*+", *r->at)) {
			r->why = "a repetition of a repetition";
			return 0;
		}
	}
	return i;
}

static short sequence(struct regex *r)
{
	const short first = add(r, EMPTY);
	short last = first;

	while (!r->why && *r->at && *r->at != '|' && *r->at != ')') {
		const short i = repeated(r);

		if (r->why)
			return 0;
		r->node[last].next = i;
		last = i;
	}
	return first;
}

static short alternatives(struct regex *r)
{
	short i = sequence(r);

	while (!r->why && *r->at == '|') {
		const short k = add(r, SPLIT);

		r->at++;
		r->node[k].a = i;
		r->node[k].b = sequence(r);
		i = k;
	}
	return i;
}

static short parse(struct regex *r, const char *pattern)
{
	short first;

	r->n = 0;
	r->depth = 0;
	r->why = NULL;
	r->at = pattern;
	first = alternatives(r);
	if (!r->why && *r->at == ')')
		r->why = "a ) without its (";
	return first;
}

/* ---- how it matches ---- */

struct later {
	short node;
	/* of a repetition: how often it was met, and where it began the last time */
	int count;
	const char *begun;
	const struct later *next;
};

struct match {
	const struct regex *r;
	const char *text, *end;         /* end: where it stopped */
	bool whole;
	int steps, calls;
};

static bool in_class(char c, char text)
{
	const char k = (char)(c | 32);
	const bool digit = text >= '0' && text <= '9', letter = ((text | 32) >= 'a' && (text | 32) <= 'z'),
		   in = k == 'd' ? digit :
			k == 's' ? text == ' ' || (text >= '\t' && text <= '\r') :
				   digit || letter || text == '_';

	return text && in == (c == k);
}

static bool in_set(const struct node *n, char c)
{
	bool in = false;

	for (const char *p = n->from; p < n->to && !in; p++) {
		char lo = *p, hi;

		if (*p == '\\' && p + 1 < n->to) {
			lo = *++p;
			if (is_class(lo)) {
				in = in_class(lo, c);
				continue;
			}
		}
		hi = lo;
		if (p + 2 < n->to && p[1] == '-') {
			hi = p[2];
			p += 2;
		}
		in = c >= lo && c <= hi;
	}
	return c && in != n->negative;
}

static bool run(struct match *m, short i, const char *at, const struct later *then);

/* Another round of a repetition, or what follows it. */
static bool again(struct match *m, short i, const char *at, int count, const char *begun,
		  const struct later *then)
{
	const struct node *n = &m->r->node[i];
	const struct later back = {.node = i, .count = count + 1, .begun = at, .next = then};
	/* a round that took nothing is the last */
	const bool more = (n->max < 0 || count < n->max) && !(count > n->min && begun == at);

	if (count < n->min)
		return more && run(m, n->a, at, &back);
	if (n->lazy)
		return run(m, n->next, at, then) || (more && run(m, n->a, at, &back));
	return (more && run(m, n->a, at, &back)) || run(m, n->next, at, then);
}

static bool resume(struct match *m, const char *at, const struct later *then)
{
	if (!then) {
		m->end = at;
		return !m->whole || !*at;
	}
	if (m->r->node[then->node].kind == REPEAT)
		return again(m, then->node, at, then->count, then->begun, then->next);
	return run(m, m->r->node[then->node].next, at, then->next);
}

static bool word_edge(const struct match *m, const char *at)
{
	const bool before = at > m->text && in_class('w', at[-1]), after = in_class('w', *at);

	return before != after;
}

/* One alternative or group, and then what follows it. */
static bool inner(struct match *m, short i, const char *at, const struct later *then)
{
	const struct node *n = &m->r->node[i];
	const struct later back = {.node = i, .next = then};
	struct match ahead = *m;
	bool found;

	switch (n->kind) {
	case SPLIT: return run(m, n->a, at, &back) || run(m, n->b, at, &back);
	case GROUP: return run(m, n->a, at, &back);
	case REPEAT: return again(m, i, at, 0, NULL, then);
	default:
		ahead.whole = false;
		found = run(&ahead, n->a, at, NULL);
		m->steps = ahead.steps;
		return found != n->negative && run(m, n->next, at, then);
	}
}

static bool takes(const struct node *n, char c)
{
	switch (n->kind) {
	case CHAR: return c && c == n->c;
	case ANY: return c && c != '\n';
	case SET: return in_set(n, c);
	default: return in_class(n->c, c);
	}
}

static bool run(struct match *m, short i, const char *at, const struct later *then)
{
	bool found;

	if (++m->calls > MAX_CALLS) {
		m->calls--;
		return false;
	}
	for (; i >= 0 && ++m->steps < MAX_STEPS; i = m->r->node[i].next) {
		const struct node *n = &m->r->node[i];

		if (n->kind >= SPLIT)
			break;
		if (n->kind == EMPTY || (n->kind == BEGIN && at == m->text) ||
		    (n->kind == END && !*at) ||
		    (n->kind == WORD_EDGE && word_edge(m, at) != n->negative))
			continue;
		if (n->kind == BEGIN || n->kind == END || n->kind == WORD_EDGE || !takes(n, *at)) {
			m->calls--;
			return false;
		}
		at++;
	}
	found = m->steps < MAX_STEPS &&
		(i >= 0 ? inner(m, i, at, then) : resume(m, at, then));
	m->calls--;
	return found;
}

bool oom_pattern_matches(const char *pattern, const char *text)
{
	struct regex r;
	const short first = parse(&r, pattern);
	struct match m = {.r = &r, .text = text, .whole = true};

	return !r.why && run(&m, first, text, NULL);
}

bool oom_pattern_search(const char *pattern, const char *text)
{
	struct regex r;
	const short first = parse(&r, pattern);
	struct match m = {.r = &r, .text = text};

	for (const char *at = text; !r.why; at++) {
		if (run(&m, first, at, NULL))
			return true;
		if (!*at)
			break;
	}
	return false;
}

enum oom_status oom_pattern_check(const char *pattern, struct oom_error *err)
{
	struct regex r;

	parse(&r, pattern);
	if (!r.why)
		return OOM_OK;
	return oom_error_set(err, OOM_ERR_INVALID,
			     "\"%.60s\" is no regular expression: %s, at character %d", pattern,
			     r.why, (int)(r.at - pattern) + 1);
}

/* ---- names ---- */

bool oom_is_pattern(const char *text)
{
	return strpbrk(text, "\\*?|()[]{}^$") != NULL;
}

static bool ends_with(const char *path, const char *name, size_t n)
{
	const size_t all = strlen(path);

	return all >= n && !strncmp(path + all - n, name, n) && (all == n || path[all - n - 1] == '.');
}

/* Anywhere, but "layers.1" is not "layers.10". */
static bool touches(const char *path, const char *name, size_t n)
{
	const bool digit = n && name[n - 1] >= '0' && name[n - 1] <= '9';

	for (const char *at = path; *at; at++)
		if (!strncmp(at, name, n) && !(digit && at[n] >= '0' && at[n] <= '9'))
			return n > 0;
	return false;
}

static bool any_name(const char *names, const char *path,
		     bool (*is)(const char *path, const char *name, size_t n))
{
	for (const char *p = names; *p; p += p[strcspn(p, "+")] ? strcspn(p, "+") + 1 : strcspn(p, "+"))
		if (is(path, p, strcspn(p, "+")))
			return true;
	return false;
}

bool oom_targets_name(const char *targets, const char *path)
{
	return oom_is_pattern(targets) ? oom_pattern_matches(targets, path) :
					 any_name(targets, path, ends_with);
}

bool oom_names_touch(const char *names, const char *path)
{
	return oom_is_pattern(names) ? oom_pattern_search(names, path) :
				       any_name(names, path, touches);
}

bool oom_names_count(const char *names)
{
	const char *digit = strpbrk(names, "0123456789");

	if (oom_is_pattern(names))
		return digit != NULL;
	/* a part of a name that is all digits */
	for (; digit; digit = strpbrk(digit + strspn(digit, "0123456789"), "0123456789")) {
		const char *end = digit + strspn(digit, "0123456789");

		if ((digit == names || digit[-1] == '.') && (!*end || *end == '.' || *end == '+'))
			return true;
	}
	return false;
}
