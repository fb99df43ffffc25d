/* The allocator replay against hand-made traces whose answers follow from the rules in
 * allocator.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "step/allocator.h"

#define MIB ((int64_t)1 << 20)

static const struct {
	const char *name;
	int64_t trace[12];
	size_t n;
	uint64_t native, expandable;    /* MiB */
} cases[] = {
	{"100 bytes take a 2 MiB segment", {100}, 1, 2, 2},
	{"two of 1 MiB fill a small segment, the third opens another", {MIB, MIB, 1}, 3, 4, 4},
	{"just above 1 MiB: a 20 MiB segment", {MIB + 1}, 1, 20, 20},
	{"four of 5 MiB share one", {5 * MIB, 5 * MIB, 5 * MIB, 5 * MIB}, 4, 20, 20},
	{"from 10 MiB on: rounded to 2 MiB", {11 * MIB + 3}, 1, 12, 20},
	{"a rest of exactly 1 MiB is not split", {12 * MIB, -1, 11 * MIB, MIB}, 4, 14, 22},
	{"best fit, not first fit", {64 * MIB, 32 * MIB, -1, -2, 30 * MIB, 64 * MIB}, 6, 96, 100},
	{"two free neighbours in different segments do not merge; in an arena they do",
	 {30 * MIB, 30 * MIB, -1, -2, 60 * MIB}, 5, 120, 60},
	{"a hole that is too small", {30 * MIB, 30 * MIB, -1, 31 * MIB}, 4, 92, 100},
};

static void traces(void **state)
{
	struct oom_replay r = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (oom_replay_trace(&r, cases[i].trace, cases[i].n, false) !=
		    cases[i].native * (uint64_t)MIB)
			fail_msg("native: %s: %llu", cases[i].name, (unsigned long long)r.peak);
		if (oom_replay_trace(&r, cases[i].trace, cases[i].n, true) !=
		    cases[i].expandable * (uint64_t)MIB)
			fail_msg("expandable: %s: %llu", cases[i].name, (unsigned long long)r.peak);
	}
	oom_replay_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(traces)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
