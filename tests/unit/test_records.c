/* What a tape is made of: rounding, element types, rooms that grow, shares of ranks, marks among events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tape/records.h"
#include "tape/room.h"
#include "tape/round.h"

/* The allocator's unit is 512 bytes (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize). */
static void sizes_are_rounded_as_the_allocator_does(void **state)
{
	static const struct {
		uint64_t bytes, block;
	} cases[] = {
		{0, 0}, {1, 512}, {511, 512}, {512, 512}, {513, 1024}, {700, 1024}, {1024, 1024},
		{(1ull << 40) - 1, 1ull << 40}, {1ull << 40, 1ull << 40}, {(1ull << 40) + 1, (1ull << 40) + 512},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(oom_block(cases[i].bytes), cases[i].block);
		/* a block of a block is itself */
		assert_int_equal(oom_block(cases[i].block), cases[i].block);
	}
}

static void pieces(void **state)
{
	static const struct {
		uint64_t x, k, pieces, up;
	} cases[] = {
		{0, 64, 0, 0},	  {1, 64, 1, 64},   {64, 64, 1, 64}, {65, 64, 2, 128},
		{100, 64, 2, 128}, {7, 1, 7, 7}, {8191, 8, 1024, 8192}, {32001, 64, 501, 32064},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(oom_ceil_div(cases[i].x, cases[i].k), cases[i].pieces);
		assert_int_equal(oom_round_up(cases[i].x, cases[i].k), cases[i].up);
	}
	assert_int_equal(oom_most(3, 5), 5);
	assert_int_equal(oom_least(3, 5), 3);
	assert_int_equal(oom_most(UINT64_MAX, 0), UINT64_MAX);
}

/* c10/core/ScalarType.h: sizes of the C types behind the names. */
static void element_types(void **state)
{
	static const struct {
		enum oom_dtype dt;
		uint32_t bytes;
		bool is_float;
	} cases[] = {
		{OOM_F32, sizeof(float), true}, {OOM_F64, sizeof(double), true},     {OOM_DT_BF16, 2, true},
		{OOM_DT_F16, 2, true},		{OOM_I64, sizeof(int64_t), false},   {OOM_I32, sizeof(int32_t), false},
		{OOM_U8, 1, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(oom_dtype_bytes(cases[i].dt), cases[i].bytes);
		assert_int_equal(!!oom_dtype_is_float(cases[i].dt), cases[i].is_float);
	}
}

static void arrays_grow_by_doubling(void **state)
{
	int *a = NULL;
	size_t cap = 0;

	(void)state;
	assert_true(oom_room((void **)&a, &cap, 4, 1, sizeof(*a)));
	assert_int_equal(cap, 4);
	for (int i = 0; i < 4; i++)
		a[i] = i;
	assert_true(oom_room((void **)&a, &cap, 4, 4, sizeof(*a)));     /* there is room */
	assert_int_equal(cap, 4);
	assert_true(oom_room((void **)&a, &cap, 4, 5, sizeof(*a)));
	assert_int_equal(cap, 8);
	assert_true(oom_room((void **)&a, &cap, 4, 100, sizeof(*a)));   /* more than twice at once */
	assert_int_equal(cap, 128);
	for (int i = 0; i < 4; i++)
		assert_int_equal(a[i], i);
	free(a);
}

/* Sanitizers end the program where it asks for more than there is. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* More than there is: nothing has changed, and what was there can still be freed. */
static void no_room_changes_nothing(void **state)
{
	char *a = NULL, *was;
	size_t cap = 0;

	(void)state;
	if (SANITIZED)
		return;
	assert_true(oom_room((void **)&a, &cap, 16, 16, 1));
	was = a;
	assert_false(oom_room((void **)&a, &cap, 16, SIZE_MAX / 4, 2));
	assert_ptr_equal(a, was);
	assert_int_equal(cap, 16);
	free(a);
}

/* A part is rounded up; with padding it is the padded whole over the ranks, and a byte more against the
 * rounding of the division; what is whole stays whole. */
static void shares_of_ranks(void **state)
{
	static const struct {
		uint64_t bytes;
		enum oom_share how;
		struct oom_ranks ranks;
		uint64_t got;
	} cases[] = {
		{1000, OOM_SHARE_WHOLE, {.n = 8, .pad = 1}, 1000},	 {1000, OOM_SHARE_WHOLE, {.n = 8, .pad = 1.5}, 1000},
		{1000, OOM_SHARE_PART, {.n = 1, .pad = 1}, 1000},	 {1000, OOM_SHARE_PART, {.n = 8, .pad = 1}, 125},
		{1001, OOM_SHARE_PART, {.n = 8, .pad = 1}, 126},	 {1, OOM_SHARE_PART, {.n = 8, .pad = 1}, 1},
		{0, OOM_SHARE_PART, {.n = 8, .pad = 1}, 0},		 {1000, OOM_SHARE_PART, {.n = 8, .pad = 1.6}, 201},
		{1000, OOM_SHARE_PADDED, {.n = 8, .pad = 1}, 1000},	 {1000, OOM_SHARE_PADDED, {.n = 8, .pad = 1.25}, 1250},
		/* whatever the row's own size */
		{1000, OOM_SHARE_BUCKET, {.n = 8, .pad = 1, .bucket = 7}, 7},
		{1000, OOM_SHARE_EDGES, {.n = 8, .pad = 1, .edges = 5}, 5},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(oom_shared_bytes(cases[i].bytes, cases[i].how, cases[i].ranks), cases[i].got);
}

/* However many ranks there are, their parts together hold everything. */
static void parts_cover_the_whole(void **state)
{
	(void)state;
	for (uint64_t bytes = 0; bytes < 5000; bytes += 37)
		for (uint64_t n = 1; n <= 64; n++) {
			const uint64_t part = oom_shared_bytes(bytes, OOM_SHARE_PART, (struct oom_ranks){.n = n, .pad = 1});

			assert_true(part * n >= bytes);
			assert_true(part * n < bytes + n);
		}
}

/* An event is a row and what happens to it; marks of units are told from rows and from marks of regions. */
static void marks_of_units(void **state)
{
	(void)state;
	for (size_t k = 0; k < 300; k++) {
		const int32_t begin = -OOM_UNIT_MARK - 2 * (int32_t)k, end = begin - 1;

		assert_true(oom_ev_is_unit(begin) && oom_ev_is_unit(end));
		assert_int_equal(oom_ev_unit(begin), k);
		assert_int_equal(oom_ev_unit(end), k);
		assert_false(oom_ev_unit_ends(begin));
		assert_true(oom_ev_unit_ends(end));
	}
	for (int32_t region = 0; region < OOM_MAX_RUNS; region++)
		assert_false(oom_ev_is_unit(-1 - 2 * region) || oom_ev_is_unit(-2 - 2 * region));
	for (int32_t row = 0; row < 1000; row++)
		for (int kind = OOM_EV_ALLOC; kind <= OOM_EV_GRAD; kind++)
			assert_false(oom_ev_is_unit(row << 2 | kind));
}

/* D() keeps the expression as it was written: what `oomplan explain` shows. */
static void a_width_keeps_its_words(void **state)
{
	const uint64_t heads = 4, head_dim = 16;
	const struct oom_dim d = D(heads * head_dim);

	(void)state;
	assert_int_equal(d.n, 64);
	assert_string_equal(d.text, "heads * head_dim");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_rounded_as_the_allocator_does),
		cmocka_unit_test(pieces),
		cmocka_unit_test(element_types),
		cmocka_unit_test(arrays_grow_by_doubling),
		cmocka_unit_test(no_room_changes_nothing),
		cmocka_unit_test(shares_of_ranks),
		cmocka_unit_test(parts_cover_the_whole),
		cmocka_unit_test(marks_of_units),
		cmocka_unit_test(a_width_keeps_its_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
