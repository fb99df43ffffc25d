/* Streams written by hand, and what a walk over them must say: net, peak, who is alive, where the layers are.
 *
 * A stream is a string, one letter per event: a capital letter is a storage's birth, the small one its death; "(" and
 * ")" are a region that is repeated, "[" and "]" a layer's marks, "!" before a letter frees all repetitions of it, "+" before
 * it hands it over as a parameter's gradient.  Storage A is 1 byte (of no unit; the walk does not round), B 2, C 4, ... */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tape/timeline.h"

enum { ROWS = 26, EVENTS = 64 };

static struct oom_row rows[ROWS];
static int32_t events[EVENTS];
static uint64_t size[ROWS];

/* A tape with this forward stream, whose regions are repeated `reps` times. */
static struct oom_tape *tape_of(const char *text, uint32_t reps)
{
	struct oom_tape *t = calloc(1, sizeof(*t));
	size_t n = 0;
	int32_t region = 0, unit = 0;

	assert_non_null(t);
	for (int i = 0; i < ROWS; i++) {
		rows[i] = (struct oom_row){.mult = 1, .cat = (uint8_t)(i % OOM_CATS)};
		size[i] = (uint64_t)1 << i;
	}
	for (; *text; text++) {
		int32_t ev;

		switch (*text) {
		case '(': t->reps[region] = reps; ev = -1 - 2 * region; break;
		case ')': ev = -2 - 2 * region++; break;
		case '[': ev = -OOM_UNIT_MARK - 2 * unit; break;
		case ']': ev = -OOM_UNIT_MARK - 2 * unit++ - 1; break;
		case '!': text++; rows[*text - 'a'].mult = (uint16_t)reps; ev = (*text - 'a') << 2 | OOM_EV_FREE_ALL; break;
		case '+': text++; ev = (*text - 'a') << 2 | OOM_EV_GRAD; break;
		default:
			ev = *text >= 'a' ? (*text - 'a') << 2 | OOM_EV_FREE : (*text - 'A') << 2 | OOM_EV_ALLOC;
			break;
		}
		assert_true(n < EVENTS);
		events[n++] = ev;
	}
	t->rows = rows;
	t->n_rows = ROWS;
	t->streams[OOM_STREAM_FWD] = (struct oom_stream){events, n, EVENTS};
	return t;
}

static const struct {
	const char *stream;
	uint32_t reps;
	int64_t net, peak;
} cases[] = {
	{"", 1, 0, 0},
	{"A", 1, 1, 1},
	{"Aa", 1, 0, 1},
	{"AaB", 1, 2, 2},
	{"ABa", 1, 2, 3},
	{"ABab", 1, 0, 3},
	{"a", 1, -1, 0},                        /* what came before the stream dies: no peak of its own */
	{"ab", 1, -3, 0},
	{"aA", 1, 0, 0},
	{"D(A)d", 1, 1, 9},
	/* each repetition leaves 1: the peak is in the last one */
	{"(ABb)", 1, 1, 3},
	{"(ABb)", 10, 10, 12},
	/* each gives up 2 and needs 4 for a moment: the peak is in the first */
	{"(Ccb)", 10, -20, 4},
	/* nothing is left: all are alike */
	{"(ABba)", 1000, 0, 3},
	/* the outer peak stands above the region's */
	{"Ee(A)", 5, 5, 16},
	{"C(A)", 5, 9, 9},
	{"C(A)Dd", 5, 9, 17},
	/* a region of no event */
	{"A()B", 7, 3, 3},
	/* two regions, one after the other */
	{"(A)(B)", 3, 9, 9},
	{"(A)(a)", 3, 0, 3},
	/* the marks of layers are nothing to a walk */
	{"[A][B]", 1, 3, 3},
	{"([A])", 4, 4, 4},
	/* what the repetitions left is freed at once */
	{"(A)!a", 4, 0, 4},
	{"(A)!aB", 4, 2, 4},
};

static void nets_and_peaks(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_tape *t = tape_of(cases[i].stream, cases[i].reps);
		const struct oom_span got = oom_walk(t, OOM_STREAM_FWD, size, false);

		if (got.net != cases[i].net || got.peak != cases[i].peak)
			fail_msg("%s x %u: net %lld, peak %lld", cases[i].stream, cases[i].reps, (long long)got.net,
				 (long long)got.peak);
		free(t);
	}
}

/* With categories the numbers are the same, and they add up: letter k is of category k modulo their number. */
static void categories_add_up(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_tape *t = tape_of(cases[i].stream, cases[i].reps);
		int64_t at[OOM_CATS], net[OOM_CATS], sum_at = 0, sum_net = 0;
		int32_t row;
		const struct oom_span got =
			oom_walk_cats(t, &t->streams[OOM_STREAM_FWD], size, false, at, net, &row);

		for (int c = 0; c < OOM_CATS; c++) {
			sum_at += at[c];
			sum_net += net[c];
		}
		assert_int_equal(got.net, cases[i].net);
		assert_int_equal(got.peak, cases[i].peak);
		assert_int_equal(sum_at, cases[i].peak);
		assert_int_equal(sum_net, cases[i].net);
		free(t);
	}
}

/* The storage that made the peak is the last one born before it. */
static void who_made_the_peak(void **state)
{
	static const struct {
		const char *stream;
		uint32_t reps;
		int32_t row;
	} made[] = {
		{"", 1, -1}, {"a", 1, -1}, {"A", 1, 0}, {"ABb", 1, 1}, {"CcAB", 1, 2}, {"CcABD", 1, 3}, {"ABbA", 1, 1},
		{"(ABb)", 9, 1}, {"Ee(A)", 5, 4}, {"C(A)Dd", 5, 3},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
		struct oom_tape *t = tape_of(made[i].stream, made[i].reps);
		int64_t at[OOM_CATS], net[OOM_CATS];
		int32_t row;

		oom_walk_cats(t, &t->streams[OOM_STREAM_FWD], size, false, at, net, &row);
		if (row != made[i].row)
			fail_msg("%s: row %d", made[i].stream, (int)row);
		free(t);
	}
}

/* A gradient that finds one is added to it and freed; the first one stays. */
static void gradients_are_added(void **state)
{
	struct oom_tape *t = tape_of("A+aB+b", 1);
	struct oom_span first, later;

	(void)state;
	first = oom_walk(t, OOM_STREAM_FWD, size, false);
	later = oom_walk(t, OOM_STREAM_FWD, size, true);
	assert_int_equal(first.net, 3);
	assert_int_equal(first.peak, 3);
	assert_int_equal(later.net, 0);
	assert_int_equal(later.peak, 2);
	free(t);
}

/* Layers are where storages are born in a group: before them, they, and what follows the last of them. */
static void cut_at_the_layers(void **state)
{
	static const struct {
		const char *stream, *in_layers;
		size_t cut[4];
	} parts[] = {
		{"ABCD", "BC", {0, 1, 3, 4}},
		{"ABCD", "", {0, 4, 4, 4}},             /* no layer: all of it comes before them */
		{"ABCD", "ABCD", {0, 0, 4, 4}},
		{"ABCD", "D", {0, 3, 4, 4}},
		{"ABbCcD", "BC", {0, 1, 5, 6}},         /* deaths stay with the layer before */
		{"ABCDE", "BD", {0, 1, 4, 5}},          /* what lies between two layers is theirs */
		{"", "", {0, 0, 0, 0}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		struct oom_tape *t = tape_of(parts[i].stream, 1);
		size_t cut[4];

		for (const char *c = parts[i].in_layers; *c; c++)
			rows[*c - 'A'].group = 1;
		oom_cut_at_layers(t, OOM_STREAM_FWD, cut);
		for (int k = 0; k < 4; k++)
			if (cut[k] != parts[i].cut[k])
				fail_msg("%s: cut %d at %zu", parts[i].stream, k, cut[k]);
		free(t);
	}
}

/* n layers that leave 3 each and peak 5 above where each began: 3 (n - 1) + 5; and where they give up 3 each, the first
 * one peaks. */
static void one_of_equal_layers(void **state)
{
	(void)state;
	for (int64_t n = 1; n < 100; n++) {
		const struct oom_span up = oom_one_layer(3 * n, 3 * (n - 1) + 5, (uint64_t)n),
				      down = oom_one_layer(-3 * n, 5, (uint64_t)n);

		assert_int_equal(up.net, 3);
		assert_int_equal(up.peak, 5);
		assert_int_equal(down.net, -3);
		assert_int_equal(down.peak, 5);
	}
}

/* The thirds together are the whole: their nets add up, and with the layers as often as they are, so do the peaks. */
static void thirds_are_the_whole(void **state)
{
	enum { N = 6 };
	struct oom_tape *t = tape_of("D(ABb)EeC", N);
	struct oom_span third[3], whole = oom_walk(t, OOM_STREAM_FWD, size, false);
	int64_t now = 0, peak = 0;

	(void)state;
	rows[0].group = rows[1].group = 1;
	oom_walk_thirds(t, OOM_STREAM_FWD, size, false, N, third);
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < (k == 1 ? N : 1); i++) {
			peak = now + third[k].peak > peak ? now + third[k].peak : peak;
			now += third[k].net;
		}
	assert_int_equal(now, whole.net);
	assert_int_equal(peak, whole.peak);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nets_and_peaks),	 cmocka_unit_test(categories_add_up),
		cmocka_unit_test(who_made_the_peak),	 cmocka_unit_test(gradients_are_added),
		cmocka_unit_test(cut_at_the_layers),	 cmocka_unit_test(one_of_equal_layers),
		cmocka_unit_test(thirds_are_the_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
