/* Tests, patterns and arithmetic of shell scripts, of values that are known. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shell_parts.h"

/* '*' and '?'; the last star is enough to come back to. */
bool shell_matches(const char *pattern, const char *text)
{
	const char *star = NULL, *from = NULL;

	while (*text) {
		if (*pattern == '*') {
			star = pattern++;
			from = text;
		} else if (*pattern == '?' || *pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++from;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

/* A parameter nobody set is empty. */
static const char *text_of(const struct oom_shell_word *w)
{
	return w->known == OOM_SHELL_UNSET ? "" : w->text;
}

bool shell_is_rank(const char *name, size_t n)
{
	static const char *const ends[] = {"RANK", "_PROCID", "_NODEID"};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		const size_t end = strlen(ends[i]);

		if (n >= end && !strncmp(name + n - end, ends[i], end))
			return true;
	}
	return false;
}

/* Of what is compared: which process or node of the job this is, which the cluster says ("$NODE_RANK", "$SLURM_PROCID"), is
 * the first. */
static const char *compared(const struct oom_shell_word *w)
{
	const char *name = w->text + strspn(w->text, "${");
	const size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");

	if (w->known == OOM_SHELL_UNSET && shell_is_rank(name, n) && (!name[n] || !strcmp(name + n, "}")))
		return "0";
	return text_of(w);
}

static bool whole(const char *text, long *n)
{
	char *end;

	errno = 0;
	*n = strtol(text, &end, 10);
	return end != text && !*end && !errno;
}

static int compare(const struct oom_shell_word *a, const char *op, const struct oom_shell_word *b)
{
	static const char *const words[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
	long x, y;

	if (a->known == OOM_SHELL_UNKNOWN || b->known == OOM_SHELL_UNKNOWN)
		return -1;
	if (!strcmp(op, "=") || !strcmp(op, "=="))
		return shell_matches(compared(b), compared(a));
	if (!strcmp(op, "!="))
		return !shell_matches(compared(b), compared(a));
	if (!whole(compared(a), &x) || !whole(compared(b), &y))
		return -1;
	for (int i = 0; i < 6; i++)
		if (!strcmp(op, words[i]))
			return (const int[]){x == y, x != y, x < y, x <= y, x > y, x >= y}[i];
	return -1;
}

static int both(int a, int b)
{
	return !a || !b ? 0 : a < 0 || b < 0 ? -1 : 1;
}

/* The first operator of that name outside of everything else; n: none. */
static size_t find_operator(const struct oom_shell_word *w, size_t n, const char *a, const char *b)
{
	for (size_t i = 1; i < n; i++)
		if (!strcmp(w[i].text, a) || !strcmp(w[i].text, b))
			return i;
	return n;
}

int shell_test(const struct oom_shell_word *w, size_t n, int depth)
{
	const size_t either = find_operator(w, n, "||", "-o"), and = find_operator(w, n, "&&", "-a");
	int r;

	if (!n || depth > SHELL_DEPTH_MAX)
		return n ? -1 : 0;
	if (either < n) {       /* not(not a and not b) */
		int a = shell_test(w, either, depth + 1),
		    b = shell_test(w + either + 1, n - either - 1, depth + 1);

		r = both(a < 0 ? a : !a, b < 0 ? b : !b);
		return r < 0 ? r : !r;
	}
	if (and < n)
		return both(shell_test(w, and, depth + 1),
			    shell_test(w + and + 1, n - and - 1, depth + 1));
	if (!strcmp(w[0].text, "!")) {
		r = shell_test(w + 1, n - 1, depth + 1);
		return r < 0 ? r : !r;
	}
	if (n == 1)
		return w[0].known == OOM_SHELL_UNKNOWN ? -1 : *text_of(&w[0]) != 0;
	if (n == 2 && !strcmp(w[0].text, "-z"))
		return w[1].known == OOM_SHELL_UNKNOWN ? -1 : !*text_of(&w[1]);
	if (n == 2 && !strcmp(w[0].text, "-n"))
		return w[1].known == OOM_SHELL_UNKNOWN ? -1 : *text_of(&w[1]) != 0;
	return n == 3 ? compare(&w[0], w[1].text, &w[2]) : -1;
}

struct sum {
	const char *p;
	int depth;
	bool wrong;
};

static void blanks(struct sum *s)
{
	while (isspace((unsigned char)*s->p))
		s->p++;
}

static int64_t add(struct sum *s);

static int64_t factor(struct sum *s)
{
	int64_t v = 0;

	blanks(s);
	if (++s->depth > SHELL_DEPTH_MAX) {
		s->wrong = true;
	} else if (*s->p == '(') {
		s->p++;
		v = add(s);
		blanks(s);
		s->wrong |= *s->p != ')';
		s->p += *s->p == ')';
	} else if (*s->p == '-') {
		s->p++;
		v = -factor(s);         /* of -INT64_MAX at least */
	} else if (isdigit((unsigned char)*s->p)) {
		for (; isdigit((unsigned char)*s->p); s->p++)
			s->wrong |= __builtin_mul_overflow(v, 10, &v) ||
				    __builtin_add_overflow(v, *s->p - '0', &v);
	} else {
		s->wrong = true;
	}
	s->depth--;
	return s->wrong ? 0 : v;
}

static int64_t multiply(struct sum *s)
{
	int64_t v = factor(s);

	for (blanks(s); !s->wrong && *s->p && strchr("*/%", *s->p); blanks(s)) {
		const char op = *s->p++;
		const int64_t w = factor(s);

		if (op == '*')
			s->wrong |= __builtin_mul_overflow(v, w, &v);
		else if (w <= 0)        /* division by 0, and of INT64_MIN by -1 */
			s->wrong = true;
		else
			v = op == '/' ? v / w : v % w;
	}
	return s->wrong ? 0 : v;
}

static int64_t add(struct sum *s)
{
	int64_t v = multiply(s);

	for (blanks(s); !s->wrong && (*s->p == '+' || *s->p == '-'); blanks(s)) {
		const char op = *s->p++;
		const int64_t w = multiply(s);

		s->wrong |= op == '+' ? __builtin_add_overflow(v, w, &v)
				      : __builtin_sub_overflow(v, w, &v);
	}
	return s->wrong ? 0 : v;
}

bool shell_arithmetic(const char *text, int64_t *result)
{
	struct sum s = {.p = text};
	const int64_t v = add(&s);

	blanks(&s);
	if (s.wrong || *s.p)
		return false;
	*result = v;
	return true;
}
