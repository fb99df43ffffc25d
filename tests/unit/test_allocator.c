/* The allocator replay against hand-made traces whose answers follow from the rules in allocator.c,
 * and on random traces against a second allocator, written here from the same rules
 * (c10/cuda/CUDACachingAllocator.cpp) without lists or trees: every question is answered by looking
 * at all blocks. */
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
	{"empty segments go", {30 * MIB, 30 * MIB, -1, -2, 60 * MIB}, 5, {false, 0, 60 * MIB}, 1, false, 60},
	{"of which one would have done: all go", {30 * MIB, 10 * MIB, -1, -2, 40 * MIB, 20 * MIB}, 6,
	 {false, 0, 60 * MIB}, 1, false, 60},
	{"a segment in which something lives stays", {64 * MIB, -1, 30 * MIB, 60 * MIB}, 4,
	 {false, 0, 120 * MIB}, 1, true, 64},
	{"room enough: no retry", {64 * MIB, -1, 30 * MIB, 60 * MIB}, 4, {false, 0, 124 * MIB}, 0, false, 124},
	{"the small pool's go too", {MIB, -1, 20 * MIB}, 3, {false, 0, 20 * MIB}, 1, false, 20},
	{"more lives than there is", {30 * MIB, 40 * MIB}, 2, {false, 0, 60 * MIB}, 1, true, 30},
	/* 80 mapped; what lives is in the first two pages, of 20 each, and so 40 go.  60 are wanted: the
	 * 10 free behind the first 30, and three pages more */
	{"of an arena the free pages go", {80 * MIB, -1, 30 * MIB, MIB, -3, 60 * MIB}, 6,
	 {true, 0, 99 * MIB}, 1, true, 82},
	/* two pages go, of the 48 free behind the 2 and of the 20 at the end; 64 are found behind the 30 */
	{"and others are mapped in their place", {100 * MIB, -1, 50 * MIB, 30 * MIB, -2, 2 * MIB, 64 * MIB}, 7,
	 {true, 0, 140 * MIB}, 1, false, 140},
	/* 100 mapped, 20 to 80 freed: these pages go and the small pool's 2 come; 40 are two pages of the
	 * hole, 50 would be three, and nothing is left to release */
	{"in the hole that they left", {20 * MIB, 60 * MIB, 20 * MIB, -2, MIB, 40 * MIB}, 6,
	 {true, 0, 101 * MIB}, 1, false, 100},
	{"which is large enough, but the card is not", {20 * MIB, 60 * MIB, 20 * MIB, -2, MIB, 50 * MIB}, 6,
	 {true, 0, 101 * MIB}, 2, true, 100},
	{"oversized blocks serve no small request", {64 * MIB, -1, 30 * MIB}, 3, {false, 32 * MIB, 0}, 0,
	 false, 94},
	{"nor one that would waste 20 MiB", {64 * MIB, -1, 44 * MIB, 40 * MIB}, 4, {false, 32 * MIB, 0}, 0,
	 false, 148},
	{"nor are they split", {64 * MIB, -1, 50 * MIB, 12 * MIB}, 4, {false, 32 * MIB, 0}, 0, false, 76},
	{"on a full card one of them goes, and nothing else",
	 {64 * MIB, 30 * MIB, -1, -2, 40 * MIB, 30 * MIB}, 6, {false, 32 * MIB, 94 * MIB}, 0, false, 94},
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

/* ---- a second allocator ---- */

enum { MOST = 2000 };
struct piece {
	uint64_t start, size;
	int segment;            /* pieces of one segment, or of one arena, may merge */
	bool small, free;
	size_t held;            /* number of the allocation it serves */
};
static struct {
	struct piece p[MOST];
	size_t n;
	int segments;
	uint64_t top, reserved, mapped[2];
	bool expandable;
	uint64_t limit;         /* 0: endless */
	int retries;
	bool died;
} a;

static struct piece *add(uint64_t start, uint64_t size, int segment, bool small)
{
	assert_true(a.n < MOST);
	a.p[a.n] = (struct piece){start, size, segment, small, true, 0};
	return &a.p[a.n++];
}

/* The piece of an arena behind which new pages are mapped. */
static struct piece *last_of(bool small)
{
	struct piece *last = NULL;

	for (size_t i = 0; i < a.n; i++)
		if (a.p[i].small == small && (!last || a.p[i].start > last->start))
			last = &a.p[i];
	return last;
}

static struct piece *best(uint64_t size, bool small)
{
	const struct piece *last = a.expandable ? last_of(small) : NULL;
	struct piece *found = NULL;

	for (size_t i = 0; i < a.n; i++) {
		struct piece *p = &a.p[i];

		if (!p->free || p->small != small || p->size < size || p == last)
			continue;
		if (!found || p->size < found->size ||
		    (p->size == found->size && p->start < found->start))
			found = p;
	}
	return found;
}

static struct piece *grown(uint64_t size, bool small)
{
	const uint64_t page = (small ? 2 : 20) * (uint64_t)MIB;
	struct piece *last = last_of(small);
	uint64_t more;

	if (!last || !last->free)
		last = add(a.mapped[small], 0, small ? -2 : -1, small);
	if (last->size < size) {
		more = (size - last->size + page - 1) / page * page;
		last->size += more;
		a.mapped[small] += more;
		a.reserved += more;
	}
	return last;
}

/* Segments that are one free piece go. */
static void release(void)
{
	for (size_t i = 0; i < a.n;) {
		size_t pieces = 0;

		for (size_t j = 0; j < a.n; j++)
			pieces += a.p[j].segment == a.p[i].segment;
		if (!a.p[i].free || pieces > 1) {
			i++;
			continue;
		}
		a.reserved -= a.p[i].size;
		a.p[i] = a.p[--a.n];
	}
}

static struct piece *new_segment(uint64_t size, bool small)
{
	const uint64_t two = 2 * (uint64_t)MIB;
	const uint64_t n = small	       ? two :
			   size < 10 * (uint64_t)MIB ? 20 * (uint64_t)MIB :
						       (size + two - 1) / two * two;
	struct piece *p;

	if (a.limit && a.reserved + n > a.limit) {
		a.retries++;
		release();
	}
	if (a.limit && a.reserved + n > a.limit) {
		a.died = true;
		return NULL;
	}
	p = add(a.top, n, a.segments++, small);
	a.top += n;
	a.reserved += n;
	return p;
}

static void simple_alloc(uint64_t bytes, size_t held)
{
	const uint64_t size = bytes ? (bytes + 511) / 512 * 512 : 512;
	const bool small = size <= (uint64_t)MIB;
	struct piece *p = best(size, small);
	uint64_t rest;

	if (!p)
		p = a.expandable ? grown(size, small) : new_segment(size, small);
	if (!p)
		return;
	rest = p->size - size;
	if (small || a.expandable ? rest >= 512 : rest > (uint64_t)MIB) {
		const size_t at = (size_t)(p - a.p);

		add(p->start + size, rest, p->segment, small);
		p = &a.p[at];
		p->size = size;
	}
	p->free = false;
	p->held = held;
}

static bool merged(void)
{
	for (size_t i = 0; i < a.n; i++)
		for (size_t j = 0; j < a.n; j++) {
			struct piece *p = &a.p[i], *q = &a.p[j];

			if (p->free && q->free && p->segment == q->segment &&
			    p->start + p->size == q->start) {
				p->size += q->size;
				*q = a.p[--a.n];
				return true;
			}
		}
	return false;
}

static void simple_free(size_t held)
{
	for (size_t i = 0; i < a.n; i++)
		if (!a.p[i].free && a.p[i].held == held)
			a.p[i].free = true;
	while (merged())
		;
}

static uint64_t simple(const int64_t *trace, size_t n, bool expandable, uint64_t limit)
{
	size_t k = 0;
	uint64_t peak = 0;

	memset(&a, 0, sizeof(a));
	a.expandable = expandable;
	a.limit = limit;
	for (size_t i = 0; i < n && !a.died; i++) {
		if (trace[i] > 0)
			simple_alloc((uint64_t)trace[i], ++k);
		else
			simple_free((size_t)-trace[i]);
		peak = a.reserved > peak ? a.reserved : peak;
	}
	return peak;
}

/* ---- random traces ---- */

static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % n;
}

/* Sizes around the rules' limits, a few that come again and again, and any. */
static int64_t any_size(const int64_t *usual)
{
	static const int64_t edges[] = {1,	 512,	  513,		MIB - 512, MIB,
					MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB,  20 * MIB};

	switch (draw(5)) {
	case 0: return edges[draw(sizeof(edges) / sizeof(edges[0]))];
	case 1: return 1 + (int64_t)draw(4 * 1024);
	case 2: return 1 + (int64_t)draw((uint64_t)(40 * MIB));
	default: return usual[draw(6)];
	}
}

static size_t make_trace(int64_t *trace, size_t n)
{
	int64_t usual[6];
	size_t live[400], n_live = 0, made = 0;

	for (int i = 0; i < 6; i++)
		usual[i] = 1 + (int64_t)draw((uint64_t)(i < 3 ? MIB : 24 * MIB));
	for (size_t i = 0; i < n; i++) {
		if (n_live && draw(100) < 45) {
			/* the newest, or any */
			const size_t at = draw(2) ? n_live - 1 : draw(n_live);

			trace[i] = -(int64_t)live[at];
			live[at] = live[--n_live];
		} else {
			trace[i] = any_size(usual);
			live[n_live++] = ++made;
		}
	}
	return n;
}

static void random_traces(void **state)
{
	struct oom_replay r = {0};
	int64_t trace[400];

	(void)state;
	for (uint64_t s = 1; s <= 400; s++) {
		seed = s;
		const size_t n = make_trace(trace, 20 + draw(380));

		for (int expandable = 0; expandable < 2; expandable++) {
			const uint64_t want = simple(trace, n, expandable, 0);
			const uint64_t got = oom_replay_trace(&r, trace, n, expandable ? &arenas : &native);

			if (got != want)
				fail_msg("seed %llu, %s: %llu, expected %llu", (unsigned long long)s,
					 expandable ? "expandable" : "native",
					 (unsigned long long)got, (unsigned long long)want);
		}
	}
	oom_replay_release(&r);
}

/* Between what lives at most and what is reserved without a limit. */
static void random_full_cards(void **state)
{
	struct oom_replay r = {0};
	int64_t trace[400];
	size_t retried = 0, dead = 0;

	(void)state;
	for (uint64_t s = 1; s <= 400; s++) {
		struct oom_alloc_rules rules = {0};
		uint64_t wanted;

		seed = s;
		const size_t n = make_trace(trace, 20 + draw(380));

		wanted = simple(trace, n, false, 0);
		for (uint64_t share = 30; share <= 100; share += 5) {
			rules.limit = wanted * share / 100;
			const uint64_t want = simple(trace, n, false, rules.limit);
			const uint64_t got = oom_replay_trace(&r, trace, n, &rules);

			if (got != want || r.died != a.died || r.retries != (uint32_t)a.retries)
				fail_msg("seed %llu, %llu %%: %llu, %u, %d; expected %llu, %d, %d",
					 (unsigned long long)s, (unsigned long long)share,
					 (unsigned long long)got, r.retries, r.died,
					 (unsigned long long)want, a.retries, a.died);
			assert_true(got <= rules.limit);
			assert_true(share < 100 || (!r.died && !r.retries));
			retried += r.retries && !r.died;
			dead += r.died;
		}
		/* an arena's pages can all be had again: it is never worse off for being full, and dies
		 * only where it holds more than there is */
		rules = (struct oom_alloc_rules){.expandable = true};
		wanted = oom_replay_trace(&r, trace, n, &rules);
		for (uint64_t share = 50; share <= 100; share += 10) {
			rules.limit = wanted * share / 100;
			assert_true(oom_replay_trace(&r, trace, n, &rules) <= rules.limit);
			assert_false(r.given_up || (share == 100 && (r.died || r.retries)));
		}
	}
	assert_true(retried > 50 && dead > 50);
	oom_replay_release(&r);
}

/* What a micro-batch leaves as it found it, the next one repeats: the mark is the same where the free
 * blocks are, and another one where a block stays, came from new memory, or lies elsewhere. */
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
		/* all is free again, in a segment more */
		oom_free(&r, one);
		at[1] = oom_replay_mark(&r);
		oom_free(&r, oom_allocate(&r, 64 << 20));
		assert_true(oom_replay_mark(&r) != at[1]);
	}
	oom_replay_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(traces), cmocka_unit_test(full_cards),
					   cmocka_unit_test(random_traces),
					   cmocka_unit_test(random_full_cards), cmocka_unit_test(marks)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
