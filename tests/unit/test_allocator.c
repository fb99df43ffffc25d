/* The allocator replay against hand-made traces whose answers follow from the rules in allocator.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "step/allocator.h"

#define MIB ((int64_t)1 << 20)

static const struct oom_alloc_rules native = {.expandable = false}, arenas = {.expandable = true};

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
	{"a block merges with both its neighbours",
	 {4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, -1, -3, -2, 12 * MIB}, 9, 20, 20},
	{"the free end of an arena grows", {30 * MIB, 15 * MIB}, 2, 46, 60},
	{"pools do not lend to one another", {300, 3 * MIB}, 2, 22, 22},
};

static void traces(void **state)
{
	struct oom_replay r = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (oom_replay_trace(&r, cases[i].trace, cases[i].n, &native) !=
		    cases[i].native * (uint64_t)MIB)
			fail_msg("native: %s: %llu", cases[i].name, (unsigned long long)r.peak);
		if (oom_replay_trace(&r, cases[i].trace, cases[i].n, &arenas) !=
		    cases[i].expandable * (uint64_t)MIB)
			fail_msg("expandable: %s: %llu", cases[i].name, (unsigned long long)r.peak);
	}
	oom_replay_release(&r);
}

/* Full cards: what is wanted stands in c10/cuda/CUDACachingAllocator.cpp, the numbers were worked out
 * by hand.  Limit and peak in MiB. */
static const struct {
	const char *name;
	int64_t trace[12];
	size_t n;
	struct oom_alloc_rules rules;
	uint32_t retries;
	bool dies;
	uint64_t peak;
} full[] = {
	{"empty segments go", {30 * MIB, 30 * MIB, -1, -2, 60 * MIB}, 5, {false, 0, 60 * MIB, false}, 1, false, 60},
	{"of which one would have done: all go", {30 * MIB, 10 * MIB, -1, -2, 40 * MIB, 20 * MIB}, 6,
	 {false, 0, 60 * MIB, false}, 1, false, 60},
	{"a segment in which something lives stays", {64 * MIB, -1, 30 * MIB, 60 * MIB}, 4,
	 {false, 0, 120 * MIB, false}, 1, true, 64},
	{"room enough: no retry", {64 * MIB, -1, 30 * MIB, 60 * MIB}, 4, {false, 0, 124 * MIB, false}, 0, false, 124},
	{"the small pool's go too", {MIB, -1, 20 * MIB}, 3, {false, 0, 20 * MIB, false}, 1, false, 20},
	{"more lives than there is", {30 * MIB, 40 * MIB}, 2, {false, 0, 60 * MIB, false}, 1, true, 30},
	/* 80 mapped; what lives is in the first two pages, of 20 each, and so 40 go.  60 are wanted: the
	 * 10 free behind the first 30, and three pages more */
	{"of an arena the free pages go", {80 * MIB, -1, 30 * MIB, MIB, -3, 60 * MIB}, 6,
	 {true, 0, 99 * MIB, false}, 1, true, 82},
	/* two pages go, of the 48 free behind the 2 and of the 20 at the end; 64 are found behind the 30 */
	{"and others are mapped in their place", {100 * MIB, -1, 50 * MIB, 30 * MIB, -2, 2 * MIB, 64 * MIB}, 7,
	 {true, 0, 140 * MIB, false}, 1, false, 140},
	/* 100 mapped, 20 to 80 freed: these pages go and the small pool's 2 come; 40 are two pages of the
	 * hole, 50 would be three, and nothing is left to release */
	{"in the hole that they left", {20 * MIB, 60 * MIB, 20 * MIB, -2, MIB, 40 * MIB}, 6,
	 {true, 0, 101 * MIB, false}, 1, false, 100},
	{"which is large enough, but the card is not", {20 * MIB, 60 * MIB, 20 * MIB, -2, MIB, 50 * MIB}, 6,
	 {true, 0, 101 * MIB, false}, 2, true, 100},
	{"oversized blocks serve no small request", {64 * MIB, -1, 30 * MIB}, 3, {false, 32 * MIB, 0, false}, 0,
	 false, 94},
	{"nor one that would waste 20 MiB", {64 * MIB, -1, 44 * MIB, 40 * MIB}, 4, {false, 32 * MIB, 0, false}, 0,
	 false, 148},
	{"nor are they split", {64 * MIB, -1, 50 * MIB, 12 * MIB}, 4, {false, 32 * MIB, 0, false}, 0, false, 76},
	{"on a full card one of them goes, and nothing else",
	 {64 * MIB, 30 * MIB, -1, -2, 40 * MIB, 30 * MIB}, 6, {false, 32 * MIB, 94 * MIB, false}, 0, false, 94},
};

static void full_cards(void **state)
{
	struct oom_replay r = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(full) / sizeof(full[0]); i++) {
		const uint64_t peak = oom_replay_trace(&r, full[i].trace, full[i].n, &full[i].rules);

		if (r.retries != full[i].retries || r.died != full[i].dies || peak != full[i].peak << 20)
			fail_msg("%s: %u retries, %s, %.2f MiB", full[i].name, r.retries,
				 r.died ? "died" : "ran", (double)peak / (double)MIB);
	}
	oom_replay_release(&r);
}

/* Of two free blocks of 30 MiB the one at the lower address serves the next 30: the rest of the first segment, or the whole
 * of the second where that lies below it.  Only the latter leaves 60 MiB in one piece. */
static void the_lower_of_equal_blocks(void **state)
{
	static const int64_t trace[] = {60 * MIB, -1, 30 * MIB, 30 * MIB, 30 * MIB, -3, -4, 30 * MIB, -2, 60 * MIB};
	const struct oom_alloc_rules down = {.down = true};
	struct oom_replay r = {0};

	(void)state;
	assert_int_equal(oom_replay_trace(&r, trace, 10, &native), (uint64_t)150 * MIB);
	assert_int_equal(oom_replay_trace(&r, trace, 10, &down), (uint64_t)90 * MIB);
	oom_replay_release(&r);
}

/* What a micro-batch leaves as it found it, the next one repeats: the mark is the same where the free
 * blocks are, and another one where a block stays, came from a new segment, or lies elsewhere.  An arena that has
 * grown at its end serves what it served before. */
static void marks(void **state)
{
	struct oom_replay r = {0};
	uint64_t at[3];
	int32_t one, two, c;

	(void)state;
	for (int expandable = 0; expandable < 2; expandable++) {
		oom_replay_clear(&r, expandable ? &arenas : &native);
		one = oom_allocate(&r, 3 << 20);
		two = oom_allocate(&r, 3 << 20);
		at[0] = oom_replay_mark(&r);
		c = oom_allocate(&r, 2 << 20);
		assert_true(oom_replay_mark(&r) != at[0]);
		oom_free(&r, c);
		assert_true(oom_replay_mark(&r) == at[0]);
		/* the first of two equal ones is gone, then the second */
		oom_free(&r, one);
		at[1] = oom_replay_mark(&r);
		one = oom_allocate(&r, 3 << 20);
		oom_free(&r, two);
		at[2] = oom_replay_mark(&r);
		assert_true(at[1] != at[0] && at[2] != at[0] && at[1] != at[2]);
		/* all is free again, in a segment more or a longer arena */
		oom_free(&r, one);
		at[1] = oom_replay_mark(&r);
		oom_free(&r, oom_allocate(&r, 64 << 20));
		assert_true((oom_replay_mark(&r) == at[1]) == expandable);
	}
	oom_replay_release(&r);
}

/* What another stream may still read, and how often it was waited for. */
struct others {
	struct oom_replay *r;
	int32_t held;
	int waits;
};

static void give_back_held(void *of)
{
	struct others *o = of;

	o->waits++;
	oom_free(o->r, o->held);
	o->held = -1;
}

/* release_cached_blocks begins with synchronize_and_free_events (CUDACachingAllocator.cpp): of a card of 60 MiB all are
 * there for a request that comes when another stream has a half, and nobody waits while a free block or the card
 * has room. */
static void others_are_waited_for(void **state)
{
	struct oom_replay r = {0};

	(void)state;
	for (int waits = 0; waits < 2; waits++)
		for (int expandable = 0; expandable < 2; expandable++) {
			const struct oom_alloc_rules rules = {.expandable = expandable, .limit = 60 * MIB};
			struct others o = {.r = &r};

			oom_replay_clear(&r, &rules);
			r.others_end = waits ? give_back_held : NULL;
			r.of = &o;
			o.held = oom_allocate(&r, 20 * MIB);
			oom_free(&r, oom_allocate(&r, 20 * MIB));
			oom_free(&r, oom_allocate(&r, 20 * MIB));
			assert_true(!o.waits && !r.retries);
			assert_true((oom_allocate(&r, 60 * MIB) >= 0) == waits);
			assert_int_equal(o.waits, waits);
			assert_int_equal(r.retries, 1);
			assert_true(r.died == !waits && (!waits || r.reserved == (uint64_t)60 * MIB));
		}
	oom_replay_clear(&r, &native);
	assert_null(r.others_end);              /* a later run has nobody to wait for */
	oom_replay_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(traces),
		cmocka_unit_test(full_cards),
		cmocka_unit_test(the_lower_of_equal_blocks),
		cmocka_unit_test(marks),
		cmocka_unit_test(others_are_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
