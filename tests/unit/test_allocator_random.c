/* The allocator replay on random traces against a second allocator, written here from the same rules
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_traces),
		cmocka_unit_test(random_full_cards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
