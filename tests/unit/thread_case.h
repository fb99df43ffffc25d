/* A message as somebody posted it, and what was read off it by hand.  Numbers are compared as printed, absent ones must be
 * absent; the bytes behind them are test_diagnose's and test_traces's.  A phase of UNKNOWN: the text does not tell, and a
 * guess must call itself one.  Included after cmocka.h. */
#ifndef OOM_TESTS_THREAD_CASE_H
#define OOM_TESTS_THREAD_CASE_H

#include <stdio.h>
#include <string.h>

#include "oomplan/diagnose.h"

struct thread {
	const char *source, *text, *framework, *tried, *total, *free_, *allocated, *reserved;
	int gpu, rank;
	enum oom_crash_phase phase;
	enum oom_cause cause;
};
#define NO NULL

static int wrong(const struct thread *t, const char *what, const char *want, const char *got)
{
	if (!strcmp(want ? want : "", got))
		return 0;
	printf("%s: %s: wanted \"%s\", got \"%s\"\n", t->source, what, want ? want : "", got);
	return 1;
}

static void check_threads(const struct thread *threads, size_t n)
{
	int bad = 0, phases = 0, right = 0;

	for (size_t i = 0; i < n; i++) {
		const struct thread *t = &threads[i];
		const char *reserved;
		struct oom_crash c;

		if (!oom_crash_decode(t->text, strlen(t->text), &c)) {
			printf("%s: not seen\n", t->source);
			bad++;
			continue;
		}
		reserved = *c.text[OOM_CRASH_RESERVED_TOTAL] ?
				   c.text[OOM_CRASH_RESERVED_TOTAL] :
				   c.text[OOM_CRASH_RESERVED_UNALLOCATED];
		bad += wrong(t, "framework", t->framework, c.framework) +
		       wrong(t, "tried", t->tried, c.text[OOM_CRASH_TRIED]) +
		       wrong(t, "total", t->total, c.text[OOM_CRASH_TOTAL]) +
		       wrong(t, "free", t->free_, c.text[OOM_CRASH_FREE]) +
		       wrong(t, "allocated", t->allocated, c.text[OOM_CRASH_ALLOCATED]) +
		       wrong(t, "reserved", t->reserved, reserved);
		if (c.gpu_index != t->gpu || c.rank != t->rank) {
			printf("%s: card %d, rank %d\n", t->source, (int)c.gpu_index, (int)c.rank);
			bad++;
		}
		if (t->phase == OOM_CRASH_UNKNOWN && c.phase_confidence >= 0.5) {
			printf("%s: phase %s is no guess\n", t->source,
			       oom_crash_phase_str(c.phase));
			bad++;
		} else if (t->phase != OOM_CRASH_UNKNOWN) {
			phases++;
			right += !wrong(t, "phase", oom_crash_phase_str(t->phase),
					oom_crash_phase_str(c.phase));
		}
		bad += wrong(t, "cause", oom_cause_info(t->cause)->name,
			     oom_cause_info(c.cause[0].cause)->name);
	}
	printf("%zu threads, %d of %d phases\n", n, right,
	       phases);
	assert_int_equal(bad, 0);
	assert_int_equal(right, phases);
}

#endif
