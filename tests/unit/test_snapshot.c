/* Snapshots: the made-up runs of tests/tools/make_snapshot.py, whose sums are reckoned there and
 * here by hand, and files made to hurt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/snapshot.h"

#define MIB 1048576u
#define SAMPLES OOM_SOURCE_ROOT "/data/snapshots/"

/* In the second step's backward pass, when the last gradient is made: 8 MiB from before, 2 x 4 of
 * weights, the states of the first step 2 x (8 + 4 + 4), saved 2 x 6, gradients 8 + 4 + 4, the
 * logits' gradient 10, the batch 64 KiB; the logits are freed. */
static void test_two_steps(void **state)
{
	static const struct {
		enum oom_held held;
		uint64_t kib;
	} want[] = {{OOM_HELD_BEFORE, 8192},	{OOM_HELD_PARAMS, 8192}, {OOM_HELD_INPUTS, 64},
		    {OOM_HELD_GRADS, 16384},	{OOM_HELD_OPT, 32768},	 {OOM_HELD_FORWARD, 12288},
		    {OOM_HELD_NO_FRAMES, 10240}};
	struct oom_snapshot s;
	struct oom_error err = {{0}};
	uint64_t sum = 0;

	(void)state;
	assert_int_equal(oom_snapshot_read(&s, SAMPLES "two-steps.pickle", &err), OOM_OK);
	assert_int_equal(s.peak_bytes, 86 * MIB + 65536);
	assert_int_equal(s.peak_blocks, 16);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		assert_int_equal(s.held[want[i].held], want[i].kib * 1024);
	for (int h = 0; h < OOM_HELD_KINDS; h++)
		sum += s.held[h];
	assert_int_equal(sum, s.peak_bytes);
	/* at the end the weights and the states are left: 16 + 32 */
	assert_int_equal(s.allocated_bytes, 48 * MIB);
	assert_false(s.oom);
	assert_int_equal(s.frame[0].bytes, 32 * MIB);
	assert_string_equal(s.frame[0].where, "user/train.py:24 in step");
}

/* The timeline: every point's kinds add up, events come in order, its highest point is the peak, and it
 * begins with what is older than the recording. */
static void check_timeline(const struct oom_snapshot *s)
{
	uint64_t most = 0;

	assert_int_equal(s->n_points, s->n_events < OOM_SNAPSHOT_POINTS ? s->n_events : OOM_SNAPSHOT_POINTS);
	for (size_t i = 0; i < s->n_points; i++) {
		uint64_t sum = 0;

		for (int h = 0; h < OOM_HELD_KINDS; h++)
			sum += s->point[i].held[h];
		assert_int_equal(sum, s->point[i].bytes);
		assert_true(!i || s->point[i].event > s->point[i - 1].event);
		if (s->point[i].bytes > most)
			most = s->point[i].bytes;
	}
	assert_int_equal(most, s->peak_bytes);
}

static void test_timeline(void **state)
{
	static const char *const files[] = {SAMPLES "two-steps.pickle", SAMPLES "fragmented.pickle"};
	struct oom_snapshot *s = malloc(sizeof(*s));
	struct oom_error err;

	(void)state;
	assert_non_null(s);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		assert_int_equal(oom_snapshot_read(s, files[i], &err), OOM_OK);
		check_timeline(s);
	}
	/* of the two steps: 8 MiB from before at the first point, the optimizer's states at the last: 2 x (8
	 * + 4 + 4) */
	assert_int_equal(oom_snapshot_read(s, files[0], &err), OOM_OK);
	assert_int_equal(s->point[0].held[OOM_HELD_BEFORE], 8 * MIB);
	assert_int_equal(s->point[0].held[OOM_HELD_OPT], 0);
	assert_int_equal(s->point[s->n_points - 1].held[OOM_HELD_OPT], 32 * MIB);
	free(s);
}

/* 40 pieces of 6 MiB; every second one freed: 20 x 6 = 120 MiB are left, and the peak was at the
 * first free. */
static void test_fragmented(void **state)
{
	struct oom_snapshot s;
	struct oom_error err = {{0}};

	(void)state;
	assert_int_equal(oom_snapshot_read(&s, SAMPLES "fragmented.pickle", &err), OOM_OK);
	assert_int_equal(s.peak_bytes, 240 * MIB);
	assert_int_equal(s.allocated_bytes, 120 * MIB);
	/* three to a segment of 20: fourteen of them */
	assert_int_equal(s.reserved_bytes, 14 * 20 * MIB);
	assert_true(s.oom);
	assert_int_equal(s.oom_tried_bytes, 16 * MIB);
	assert_int_equal(s.oom_free_bytes, 3 * MIB);
	assert_int_equal(s.idle_bytes, 160 * MIB);
	assert_true(s.largest_idle_bytes < s.oom_tried_bytes);
}

static uint8_t *load(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	uint8_t *b = malloc(1 << 16);

	assert_non_null(f);
	*size = fread(b, 1, 1 << 16, f);
	fclose(f);
	return b;
}

/* Cut anywhere, or with any one byte changed: an answer or an error, never more; the sanitizers
 * watch. */
static void test_damaged(void **state)
{
	struct oom_snapshot s, before;
	struct oom_error err = {{0}};
	size_t size;
	uint8_t *b = load(SAMPLES "two-steps.pickle", &size);

	(void)state;
	memset(&before, 1, sizeof(before));
	s = before;
	for (size_t n = 0; n < size; n++)
		assert_int_not_equal(oom_snapshot_parse(&s, b, n, "cut", &err), OOM_OK);
	assert_memory_equal(&s, &before, sizeof(s));
	for (size_t i = 0; i < size; i++) {
		const uint8_t was = b[i];

		b[i] = (uint8_t)(was * 7 + 13);
		oom_snapshot_parse(&s, b, size, "changed", &err);
		b[i] = was;
	}
	free(b);
}

#define PARSE(text) oom_snapshot_parse(&s, text, sizeof(text) - 1, "made", &err)

static void test_hostile(void **state)
{
	struct oom_snapshot s;
	struct oom_error err = {{0}};

	(void)state;
	/* asks for os.system */
	assert_int_equal(PARSE("\x80\x04\x8c\x02os\x8c\x06system\x93."), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "0x93"));
	assert_int_equal(PARSE("\x80\x04}."), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "segments"));
	assert_int_equal(PARSE("\x80\x04K\x07."), OOM_ERR_INVALID);
	/* {"segments": []} holds nothing */
	assert_int_equal(PARSE("\x80\x04}\x8c\x08segments]s."), OOM_ERR_INVALID);
	/* a device beyond any */
	assert_int_equal(PARSE("\x80\x04}\x8c\x08segments]}\x8c\x06"
			       "deviceJ\xff\xff\xff\x7f"
			       "sas."),
			 OOM_ERR_INVALID);
	/* a list that holds itself as its only segment: it is no dict, so it holds nothing */
	assert_int_equal(PARSE("\x80\x04}\x8c\x08segments]\x94h\x00" "as."), OOM_OK);
	assert_int_equal(s.peak_bytes, 0);
	assert_int_equal(oom_snapshot_read(&s, "/no/such/file", &err), OOM_ERR_IO);
	assert_true(oom_snapshot_is("\x80\x04}", 3));
	assert_false(oom_snapshot_is("Traceback", 9));
}

/* Other releases' layouts, made by tests/tools/make_snapshot.py; sums by hand. */
static void test_layouts(void **state)
{
	struct oom_snapshot s;
	struct oom_error err = {{0}};

	(void)state;
	/* the device that held most; mapped segments, a compiled graph's frame, a refusal */
	assert_int_equal(oom_snapshot_read(&s, SAMPLES "two-devices.pickle", &err), OOM_OK);
	assert_int_equal(s.n_devices, 2);
	assert_int_equal(s.device, 1);
	assert_true(s.expandable);
	assert_int_equal(s.peak_bytes, 80 * MIB);
	assert_int_equal(s.peak_event, 3);
	assert_int_equal(s.held[OOM_HELD_OPT], 40 * MIB);
	assert_int_equal(s.held[OOM_HELD_FORWARD], 40 * MIB);
	assert_int_equal(s.allocated_bytes, 40 * MIB);
	assert_true(s.oom);
	assert_int_equal(s.oom_tried_bytes, 90 * MIB);
	assert_int_equal(s.oom_free_bytes, 5 * MIB);
	for (size_t i = 0; i < s.n_frames; i++)
		assert_null(strstr(s.frame[i].where, "cab.py"));
	check_timeline(&s);
	assert_int_equal(s.n_each, 2);
	assert_int_equal(s.each[0].peak_bytes, 8 * MIB);
	assert_false(s.each[0].oom);
	assert_true(s.each[1].oom);
	/* the device that was refused, though another one holds more; the idle one between them is left out */
	assert_int_equal(oom_snapshot_read(&s, SAMPLES "smaller-refused.pickle", &err), OOM_OK);
	assert_int_equal(s.n_devices, 3);
	assert_int_equal(s.device, 2);
	assert_int_equal(s.peak_bytes, 12 * MIB);
	assert_int_equal(s.oom_tried_bytes, 30 * MIB);
	assert_int_equal(s.n_each, 2);
	assert_int_equal(s.each[0].peak_bytes, 64 * MIB);
	assert_int_equal(s.each[1].device, 2);
	/* segments alone: what is held, without a history */
	assert_int_equal(oom_snapshot_read(&s, SAMPLES "segments.pickle", &err), OOM_OK);
	assert_int_equal(s.n_events, 0);
	assert_int_equal(s.peak_bytes, 40 * MIB);
	assert_int_equal(s.device, 1);
	/* torch 2.0 */
	assert_int_equal(oom_snapshot_read(&s, SAMPLES "first-release.pickle", &err), OOM_OK);
	assert_int_equal(s.peak_bytes, 8 * MIB);
	assert_int_equal(s.held[OOM_HELD_OPT], 8 * MIB);
	assert_int_equal(s.idle_bytes, 12 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_steps), cmocka_unit_test(test_layouts),
					   cmocka_unit_test(test_timeline), cmocka_unit_test(test_fragmented),
					   cmocka_unit_test(test_damaged),
					   cmocka_unit_test(test_hostile)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
