/* Regular expressions are parsed into nodes.  Syntax: the re module of Python's library. */
#include "plan/regex.h"

#include <string.h>

enum { MAX_DEPTH = 40, MAX_REPEAT = 1000 };

static short add(struct oom_regex *r, enum oom_regex_kind kind)
{
	if (r->n == OOM_REGEX_NODES) {
		r->why = "too long";
		return 0;
	}
	r->node[r->n] = (struct oom_regex_node){.kind = kind, .next = -1, .a = -1, .b = -1};
	return r->n++;
}

static short alternatives(struct oom_regex *r);

bool oom_regex_is_class(char c)
{
	return c && strchr("dwsDWS", c);
}

static short escape(struct oom_regex *r)
{
	const char c = *++r->at;
	short i;

	if (!c) {
		r->why = "ends in a backslash";
		return 0;
	}
	r->at++;
	if (oom_regex_is_class(c)) {
		i = add(r, OOM_RE_CLASS);
		r->node[i].c = c;
	} else if (c == 'b' || c == 'B') {
		i = add(r, OOM_RE_WORD_EDGE);
		r->node[i].negative = c == 'B';
	} else if (c == 'A') {
		i = add(r, OOM_RE_BEGIN);
	} else if (c == 'Z') {
		i = add(r, OOM_RE_END);
	} else if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
		r->why = "an escape that is not known here";
		return 0;
	} else {
		i = add(r, OOM_RE_CHAR);
		r->node[i].c = c;
	}
	return i;
}

static short set(struct oom_regex *r)
{
	const short i = add(r, OOM_RE_SET);
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
static short group(struct oom_regex *r)
{
	enum oom_regex_kind kind = OOM_RE_GROUP;
	bool negative = false;
	short i, body;

	r->at++;
	if (r->at[0] == '?' && (r->at[1] == '=' || r->at[1] == '!')) {
		kind = OOM_RE_LOOK;
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

static short atom(struct oom_regex *r)
{
	short i;

	switch (*r->at) {
	case '(': return group(r);
	case '[': return set(r);
	case '\\': return escape(r);
	case '.': i = add(r, OOM_RE_ANY); break;
	case '^': i = add(r, OOM_RE_BEGIN); break;
	case '$': i = add(r, OOM_RE_END); break;
	default:
		i = add(r, OOM_RE_CHAR);
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

/* {m}, {m,}, {,n}, {m,n}, {,}; anything else is a brace like any character. */
static bool braces(const char **at, int *min, int *max)
{
	const char *p = *at + 1;
	const bool first = *p >= '0' && *p <= '9';

	*min = number(&p);
	*max = *min;
	if (*p == ',') {
		p++;
		*max = *p >= '0' && *p <= '9' ? number(&p) : -1;
	} else if (!first) {
		return false;
	}
	if (*p != '}')
		return false;
	*at = p + 1;
	return true;
}

/* How often, if that is said next. */
static bool repetition(const char **at, int *min, int *max)
{
	if (**at == '{')
		return braces(at, min, max);
	if (!**at || !strchr("*+?", **at))
		return false;
	*min = **at == '+';
	*max = **at == '?' ? 1 : -1;
	++*at;
	return true;
}

/* Whether it stands for a place, which re refuses to repeat (Lib/re/_parser.py, "nothing to repeat"). */
static bool is_place(enum oom_regex_kind kind)
{
	return kind == OOM_RE_BEGIN || kind == OOM_RE_END || kind == OOM_RE_WORD_EDGE;
}

static short repeated(struct oom_regex *r)
{
	const char *end = r->at;
	short i = 0, k;
	int min, max;
	const bool begins = repetition(&end, &min, &max);

	if (!begins)
		i = atom(r);
	end = r->at;
	if (r->why || !repetition(&end, &min, &max))
		return i;
	if (begins || is_place(r->node[i].kind)) {
		r->why = "nothing to repeat";
		return 0;
	}
	r->at = end;
	if (min > MAX_REPEAT || max > MAX_REPEAT || (max >= 0 && max < min)) {
		r->why = "a repetition out of range";
		return 0;
	}
	k = add(r, OOM_RE_REPEAT);
	r->node[k].a = i;
	r->node[k].min = (short)min;
	r->node[k].max = (short)max;
	r->node[k].lazy = *r->at == '?';
	r->at += *r->at == '?';
	end = r->at;
	if (repetition(&end, &min, &max)) {
		r->why = "a repetition of a repetition";
		return 0;
	}
	return k;
}

static short sequence(struct oom_regex *r)
{
	const short first = add(r, OOM_RE_EMPTY);
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

static short alternatives(struct oom_regex *r)
{
	short i = sequence(r);

	while (!r->why && *r->at == '|') {
		const short k = add(r, OOM_RE_SPLIT);

		r->at++;
		r->node[k].a = i;
		r->node[k].b = sequence(r);
		i = k;
	}
	return i;
}

short oom_regex_parse(struct oom_regex *r, const char *pattern)
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
