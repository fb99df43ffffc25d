/* The free blocks of a pool against a sorted list that does without classes.
 *
 * The order is that of c10's BlockComparatorSize (c10/cuda/CUDACachingAllocator.cpp): by size, and of one size
 * by address.  get_free_block takes lower_bound of what is asked for, the first block that is not smaller.  The
 * classes are those of TLSF (Masmano and others, 2004): exact below sixteen blocks of 512 bytes, sixteen an
 * octave above, so that 16 ... 31 are exact, too, and from 32 on two sizes and more share one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "step/free_set.h"

enum { BLOCKS = 300, STEPS = 6000, UNIT = 512 };

/* A set, and the same blocks in a list that is kept sorted by insertion. */
struct both {
	struct oom_free_set set;
	struct oom_ablock block[BLOCKS];
	int32_t sorted[BLOCKS];
	size_t n;
};

static void begin(struct both *b)
{
	memset(b, 0, sizeof(*b));
	oom_free_clear(&b->set);
}

static bool before(const struct oom_ablock *x, const struct oom_ablock *y)
{
	return x->size != y->size ? x->size < y->size : x->addr < y->addr;
}

static void put(struct both *b, int32_t k, uint64_t size, uint64_t addr)
{
	size_t at = b->n++;

	b->block[k].size = size;
	b->block[k].addr = addr;
	for (; at && before(&b->block[k], &b->block[b->sorted[at - 1]]); at--)
		b->sorted[at] = b->sorted[at - 1];
	b->sorted[at] = k;
	oom_free_insert(&b->set, b->block, k);
}

static void take(struct both *b, size_t at)
{
	oom_free_remove(&b->set, b->block, b->sorted[at]);
	b->n--;
	memmove(b->sorted + at, b->sorted + at + 1, (b->n - at) * sizeof(b->sorted[0]));
}

static int32_t find_in(const struct both *b, unsigned pool, uint64_t size)
{
	return oom_free_find(&b->set, b->block, oom_bin_of(size, pool), size);
}

static int32_t find(const struct both *b, uint64_t size)
{
	return find_in(b, 0, size);
}

static int32_t lower_bound(const struct both *b, uint64_t size)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->block[b->sorted[i]].size >= size)
			return b->sorted[i];
	return -1;
}

static void assert_same_order(const struct both *b)
{
	int32_t k = -1;

	for (size_t i = 0; i < b->n; i++) {
		k = oom_free_next(&b->set, b->block, 0, k);
		assert_int_equal(k, b->sorted[i]);
	}
	/* the block after the last, or the first of none */
	assert_int_equal(oom_free_next(&b->set, b->block, 0, k), -1);
	assert_int_equal(oom_free_last(&b->set, b->block, 0), b->n ? b->sorted[b->n - 1] : -1);
}

static void nothing_is_found_in_an_empty_set(void **state)
{
	struct both b;

	(void)state;
	begin(&b);
	assert_same_order(&b);
	assert_int_equal(find(&b, 0), -1);
	assert_int_equal(find(&b, UNIT), -1);
	put(&b, 7, 20 * UNIT, 0);
	take(&b, 0);
	assert_same_order(&b);
	assert_int_equal(find(&b, UNIT), -1);
}

/* Both sides of where classes and octaves begin: one block of each size, put in from the largest down, and
 * what is asked for is each size, half a block less and a block more. */
static void sizes_beside_the_edges_of_classes(void **state)
{
	static const uint64_t edge[] = {1, 2, 14, 15, 16, 17, 30, 31, 32, 33, 34, 47, 48, 49, 62, 63, 64, 65, 67, 68,
					126, 127, 128, 255, 256, 257, 1023, 1024, 1025, 65535,
					UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1, UINT64_C(1) << 50};
	enum { N = sizeof(edge) / sizeof(edge[0]) };
	struct both b;

	(void)state;
	begin(&b);
	for (int32_t i = N - 1; i >= 0; i--)
		put(&b, i, edge[i] * UNIT, (uint64_t)(N - i) * UNIT);
	assert_same_order(&b);
	for (int32_t i = 0; i < N; i++) {
		assert_int_equal(find(&b, edge[i] * UNIT), i);
		assert_int_equal(find(&b, edge[i] * UNIT - UNIT / 2), i);
		assert_int_equal(find(&b, (edge[i] + 1) * UNIT),
				 lower_bound(&b, (edge[i] + 1) * UNIT));
	}
	/* without the one asked for, the next larger serves: of 16 blocks that of 17, in the same octave, and of
	 * 31 that of 32, in the next */
	take(&b, 4);
	assert_int_equal(edge[5], 17);
	assert_int_equal(find(&b, 16 * UNIT), 5);
	take(&b, 6);
	assert_int_equal(edge[8], 32);
	assert_int_equal(find(&b, 31 * UNIT), 8);
	assert_same_order(&b);
}

/* 32 and 33 blocks are of one class: what asks for 33 passes over all of 32, and where there are only these it
 * goes on to the next class that has any. */
static void a_class_of_two_sizes(void **state)
{
	struct both b;

	(void)state;
	begin(&b);
	put(&b, 0, 33 * UNIT, 100);
	put(&b, 1, 32 * UNIT, 300);
	put(&b, 2, 32 * UNIT, 200);
	put(&b, 3, 100 * UNIT, 0);
	assert_same_order(&b);
	assert_int_equal(find(&b, 32 * UNIT), 2);
	assert_int_equal(find(&b, 33 * UNIT), 0);
	take(&b, 2);
	assert_same_order(&b);
	assert_int_equal(find(&b, 33 * UNIT), 3);
	assert_int_equal(find(&b, 101 * UNIT), -1);
}

/* Of one size the lowest address is taken, in whichever order they came. */
static void of_one_size_the_lowest(void **state)
{
	static const uint64_t addr[][4] = {{1, 2, 3, 4}, {4, 3, 2, 1}, {3, 1, 4, 2}, {2, 4, 1, 3}};

	(void)state;
	for (size_t i = 0; i < sizeof(addr) / sizeof(addr[0]); i++) {
		struct both b;

		begin(&b);
		for (int32_t k = 0; k < 4; k++)
			put(&b, k, 40 * UNIT, addr[i][k] * UNIT);
		assert_same_order(&b);
		for (uint64_t want = 1; want <= 4; want++) {
			assert_int_equal(b.block[find(&b, 40 * UNIT)].addr, want * UNIT);
			take(&b, 0);
		}
	}
}

/* xorshift64 (Marsaglia, "Xorshift RNGs", 2003). */
static uint64_t draw(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	return *x ^= *x << 17;
}

/* Few sizes, so that many blocks share one; sizes around the first classes; or any octave. */
static uint64_t some_size(uint64_t *x, int kind)
{
	const uint64_t r = draw(x);

	return UNIT * (kind == 0 ? 1 + r % 3 * 16 :
		       kind == 1 ? 1 + r % 70 :
				   1 + (r >> (15 + draw(x) % 48)));
}

static void random_insertions_and_removals(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		uint64_t x = 88172645463325252u;
		bool in[BLOCKS] = {false};
		struct both b;

		begin(&b);
		for (int step = 0; step < STEPS; step++) {
			const int32_t k = (int32_t)(draw(&x) % BLOCKS);
			size_t at = 0;

			if (in[k]) {
				while (b.sorted[at] != k)
					at++;
				take(&b, at);
			} else {
				/* no two blocks have one address */
				put(&b, k, some_size(&x, kind), (draw(&x) >> 20) * BLOCKS + (uint64_t)k);
			}
			in[k] = !in[k];
			assert_same_order(&b);
			for (int i = 0; i < 4; i++) {
				const uint64_t size = some_size(&x, kind) - draw(&x) % 2 * 200;

				assert_int_equal(find(&b, size), lower_bound(&b, size));
			}
		}
		while (b.n)
			take(&b, draw(&x) % b.n);
		assert_same_order(&b);
	}
}

/* Pools share a table, and nothing else: what is free in one serves no other, and is not the end of another's order. */
static void pools_beside_each_other(void **state)
{
	struct both b;

	(void)state;
	begin(&b);
	for (int32_t k = 0; k < OOM_POOLS; k++) {
		b.block[k] = (struct oom_ablock){.size = (uint64_t)(OOM_POOLS - k) * 40 * UNIT, .addr = 0, .pool = (uint8_t)k};
		oom_free_insert(&b.set, b.block, k);
	}
	for (int32_t k = 0; k < OOM_POOLS; k++) {
		assert_int_equal(find_in(&b, (unsigned)k, b.block[k].size), k);
		assert_int_equal(find_in(&b, (unsigned)k, b.block[k].size + UNIT), -1);
		assert_int_equal(oom_free_next(&b.set, b.block, (unsigned)k, k), -1);
		assert_int_equal(oom_free_last(&b.set, b.block, (unsigned)k), k);
	}
	oom_free_remove(&b.set, b.block, 3);
	for (int32_t k = 0; k < OOM_POOLS; k++)
		assert_int_equal(find_in(&b, (unsigned)k, 0), k == 3 ? -1 : k);
}

/* What was cleared is as new, without its blocks having been taken out. */
static void a_cleared_set_forgets(void **state)
{
	struct both b;

	(void)state;
	begin(&b);
	for (int32_t k = 0; k < 50; k++)
		put(&b, k, (uint64_t)(k + 1) * 3 * UNIT, (uint64_t)k);
	oom_free_clear(&b.set);
	b.n = 0;
	assert_same_order(&b);
	for (int32_t k = 0; k < 50; k++)
		put(&b, k, (uint64_t)(50 - k) * 3 * UNIT, (uint64_t)k);
	assert_same_order(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_found_in_an_empty_set),
		cmocka_unit_test(sizes_beside_the_edges_of_classes),
		cmocka_unit_test(a_class_of_two_sizes),
		cmocka_unit_test(of_one_size_the_lowest),
		cmocka_unit_test(random_insertions_and_removals),
		cmocka_unit_test(a_cleared_set_forgets),
		cmocka_unit_test(pools_beside_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
