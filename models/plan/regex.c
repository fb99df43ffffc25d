/* Regular expressions are matched by backtracking, within bounds on steps and depth. */
#include "plan/regex.h"

#include <string.h>

#include "plan/pattern.h"

enum { MAX_STEPS = 200000, MAX_CALLS = 4000 };

struct later {
	short node;
	/* of a repetition: how often it was met, and where it began the last time */
	int count;
	const char *begun;
	const struct later *next;
};

struct match {
	const struct oom_regex *r;
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

static bool in_set(const struct oom_regex_node *n, char c)
{
	bool in = false;

	for (const char *p = n->from; p < n->to && !in; p++) {
		char lo = *p, hi;

		if (*p == '\\' && p + 1 < n->to) {
			lo = *++p;
			if (oom_regex_is_class(lo)) {
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
	const struct oom_regex_node *n = &m->r->node[i];
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
	if (m->r->node[then->node].kind == OOM_RE_REPEAT)
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
	const struct oom_regex_node *n = &m->r->node[i];
	const struct later back = {.node = i, .next = then};
	struct match ahead = *m;
	bool found;

	switch (n->kind) {
	case OOM_RE_SPLIT: return run(m, n->a, at, &back) || run(m, n->b, at, &back);
	case OOM_RE_GROUP: return run(m, n->a, at, &back);
	case OOM_RE_REPEAT: return again(m, i, at, 0, NULL, then);
	default:
		ahead.whole = false;
		found = run(&ahead, n->a, at, NULL);
		m->steps = ahead.steps;
		return found != n->negative && run(m, n->next, at, then);
	}
}

static bool takes(const struct oom_regex_node *n, char c)
{
	switch (n->kind) {
	case OOM_RE_CHAR: return c && c == n->c;
	case OOM_RE_ANY: return c && c != '\n';
	case OOM_RE_SET: return in_set(n, c);
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
		const struct oom_regex_node *n = &m->r->node[i];

		if (n->kind >= OOM_RE_SPLIT)
			break;
		if (n->kind == OOM_RE_EMPTY || (n->kind == OOM_RE_BEGIN && at == m->text) ||
		    (n->kind == OOM_RE_END && !*at) ||
		    (n->kind == OOM_RE_WORD_EDGE && word_edge(m, at) != n->negative))
			continue;
		if (n->kind == OOM_RE_BEGIN || n->kind == OOM_RE_END || n->kind == OOM_RE_WORD_EDGE || !takes(n, *at)) {
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
	struct oom_regex r;
	const short first = oom_regex_parse(&r, pattern);
	struct match m = {.r = &r, .text = text, .whole = true};

	return !r.why && run(&m, first, text, NULL);
}

bool oom_pattern_search(const char *pattern, const char *text)
{
	struct oom_regex r;
	const short first = oom_regex_parse(&r, pattern);
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
	struct oom_regex r;

	oom_regex_parse(&r, pattern);
	if (!r.why)
		return OOM_OK;
	return oom_error_set(err, OOM_ERR_INVALID,
			     "\"%.60s\" is no regular expression: %s, at character %d", pattern,
			     r.why, (int)(r.at - pattern) + 1);
}
