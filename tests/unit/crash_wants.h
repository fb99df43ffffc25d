/* What tests of answers to crashes ask of them, over and over. */
#ifndef CRASH_WANTS_H
#define CRASH_WANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "oomplan/diagnose.h"

/* A text, and what of its answer is known to be right. */
struct crash_want {
	const char *after, *text;               /* where a text of this form was seen; the text, in words of our own */
	size_t within;                          /* among so many of the first fixes */
	const char *first, *never, *evidence;   /* NULL: not asked */
	const char *reason;
};

/* Whether one of the first `most` fixes has the word. */
static inline bool among(const struct oom_crash_answer *a, size_t most, const char *word)
{
	for (size_t i = 0; i < a->n_fix && i < most; i++)
		if (strstr(a->fix[i], word))
			return true;
	return false;
}

static inline bool in_evidence(const struct oom_crash_answer *a, const char *words)
{
	for (size_t i = 0; i < a->n_evidence; i++)
		if (strstr(a->evidence[i], words))
			return true;
	return false;
}

/* How many of a text's wants its answer leaves unmet; each is printed. */
static inline int crash_unmet(const struct crash_want *w)
{
	struct oom_crash c;
	struct oom_crash_answer a;
	int bad = 0;

	if (!oom_crash_decode(w->text, strlen(w->text), &c)) {
		print_error("%s (%s): no crash\n", w->after, w->reason);
		return 1;
	}
	oom_crash_answer(&c, &a);
	if (!among(&a, w->within, w->first)) {
		print_error("%s (%s): \"%s\" is not among the first, which begin with \"%s\"\n", w->after, w->reason, w->first, a.fix[0]);
		bad++;
	}
	if (w->never && among(&a, OOM_ANSWER_FIXES, w->never)) {
		print_error("%s (%s): \"%s\" is offered\n", w->after, w->reason, w->never);
		bad++;
	}
	if (w->evidence && !in_evidence(&a, w->evidence)) {
		print_error("%s (%s): no \"%s\"\n", w->after, w->reason, w->evidence);
		bad++;
	}
	return bad;
}

static inline void crash_all_met(const struct crash_want *w, size_t n)
{
	int bad = 0;

	for (size_t i = 0; i < n; i++)
		bad += crash_unmet(&w[i]);
	assert_int_equal(bad, 0);
}

#endif
