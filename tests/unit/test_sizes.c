/* Lengths and their products: the examples of sizes.h, what every length promises, and the bounds
 * of the tables they are kept in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "tape/tape.h"

/* The step of sizes.h's examples: two sequences of 100 tokens, 40 target tokens each. */
enum { B = 2, S = 100, T = 40 };

static struct oom_tape *tape(void)
{
	static const struct oom_plan plan;
	struct oom_tape *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	oom_tape_reset(t, NULL, &plan);
	t->val_b = B;
	t->val_s = S;
	t->val_t = T;
	return t;
}

static void drop(struct oom_tape *t)
{
	oom_tape_release(t);
	free(t);
}

/* One of every length, times the batch where it can be. */
enum { LENGTHS = 16 };
static void one_of_each(struct oom_tape *t, uint16_t m[LENGTHS])
{
	const uint16_t all[LENGTHS] = {oom_len_const(t, t->m_b, 197),
				       oom_len_plus(t, t->m_b, 3),
				       oom_len_minus(t, t->m_b, 1),
				       oom_len_min(t, t->m_b, 64),
				       oom_len_ceil(t, t->m_b, 64),
				       oom_len_round_up(t, t->m_b, 64),
				       oom_len_chunks(t, t->m_b, 64, 1),
				       oom_len_padded(t, t->m_b, 64, -1),
				       oom_len_plus_in_one(t, t->m_b, 1),
				       oom_len_plus_in_many(t, t->m_b, 1),
				       oom_len_pow2_part(t, OOM_MONO_ONE, 10),
				       oom_len_targets(t),
				       oom_len_targets_min(t, 30),
				       oom_len_sequences(t, OOM_MONO_ONE, 2),
				       oom_len_chunks_before(t, OOM_MONO_ONE, 64, 0),
				       oom_len_chunks_before(t, OOM_MONO_ONE, 64, 100)};

	memcpy(m, all, sizeof(all));
	assert_int_equal(t->status, OOM_OK);
}

static void examples(void **state)
{
	static const uint64_t two[LENGTHS] = {394, 206, 198, 128, 4, 256, 6, 192, 200, 202, 32, 40, 30, 1, 2, 2},
			      one[LENGTHS] = {197, 103, 99, 64, 2, 128, 3, 96, 101, 0, 16, 40, 30, 1, 0, 0};
	struct oom_tape *t = tape();
	uint16_t m[LENGTHS];

	(void)state;
	one_of_each(t, m);
	for (int i = 0; i < LENGTHS; i++) {
		assert_int_equal(oom_mono_now(t, m[i]), two[i]);
		assert_int_equal(oom_mono_eval(t, m[i], 1, S, T), one[i]);
	}
	assert_int_equal(oom_mono_now(t, oom_len_chunks(t, t->m_b, 64, -3)), 0);
	assert_int_equal(oom_mono_now(t, oom_len_padded(t, t->m_b, 64, 3)), 2 * (128 + 96));
	assert_int_equal(oom_mono_now(t, oom_len_padded(t, t->m_b, 64, -5)), 0);
	assert_int_equal(oom_mono_now(t, oom_len_minus(t, t->m_b, 101)), 0);
	assert_int_equal(oom_mono_eval(t, t->m_bss, UINT32_MAX, UINT32_MAX, 1), UINT64_MAX);
	drop(t);
}

/* Buffers that traces of an H100 show: 132 and 37.125 MiB for sums over 32 images' 6304 tokens of 3072 and 768, 32 MiB over
 * 4096 tokens of 1024 (ViT-base, a small Llama; 512 bytes a part and output).  From 1021 rows on there are parts, and no
 * more than 1024 rows to a part. */
static void parts_of_sums(void **state)
{
	struct oom_tape *t = tape();
	const uint16_t tokens = oom_len_const(t, t->m_b, 197);
	const uint16_t wide = oom_len_sum_parts(t, tokens, 2112 / 24), narrow = oom_len_sum_parts(t, tokens, 2112 / 6),
		       small = oom_len_sum_parts(t, t->m_bs, 2112 / 8), few = oom_len_sum_parts(t, t->m_bs, 8);

	(void)state;
	assert_int_equal(oom_mono_eval(t, wide, 32, S, T) * 3072 * 512, 132 << 20);
	assert_int_equal(oom_mono_eval(t, narrow, 32, S, T) * 768 * 512 * 8, 297 << 20);
	assert_int_equal(oom_mono_eval(t, small, 4, 1024, T) * 1024 * 512, 32 << 20);
	assert_int_equal(oom_mono_eval(t, small, 1, 1020, T), 0);
	assert_int_equal(oom_mono_eval(t, small, 1, 1021, T), 16);
	assert_int_equal(oom_mono_eval(t, few, 1024, 1024, T), 1024);
	assert_int_equal(oom_mono_eval(t, oom_len_sum_parts(t, t->m_bss, 8), 32, 1024, T), 0);
	assert_int_equal(t->status, OOM_OK);
	drop(t);
}

/* Half of three sequences are two; apart up to the number asked for, and recorded anew for another. */
static void sequences(void **state)
{
	struct oom_tape *t = tape();
	const uint16_t half = oom_len_sequences(t, t->m_s, 2);

	(void)state;
	assert_int_equal(oom_mono_eval(t, half, 3, S, T), 2 * S);
	assert_int_equal(oom_cond_sequences(t, 1), 0);
	assert_true(oom_conds_hold(t, 5, S, T));
	assert_false(oom_conds_hold(t, 1, S, T));
	assert_int_equal(oom_cond_sequences(t, 16), B);
	assert_true(oom_conds_hold(t, B, 7, T));
	assert_false(oom_conds_hold(t, B + 1, S, T));
	assert_int_equal(t->status, OOM_OK);
	drop(t);
}

static void texts(void **state)
{
	static const char *const want[LENGTHS] = {
		"197", "(s+3)", "max(s-1,0)", "min(s,64)", "ceil(s/64)", "roundup(s,64)",
		"(ceil(s/64)+1)", "(roundup(s,64)-64/2)", "(s+1 if b=1)", "(s+1 if b>1)",
		"pow2(b*s/10)", "t", "min(t,30)", "ceil(b/2)", "max(b*(s-1)/64-1,0)", "max(b*+100/64-1,0)"};
	struct oom_tape *t = tape();
	uint16_t m[LENGTHS];
	char text[40];

	(void)state;
	one_of_each(t, m);
	for (int i = 0; i < LENGTHS; i++) {
		const struct oom_mono *x = &t->monos[m[i]];

		oom_var_text(&t->vars[x->var[x->n - 1]], text, sizeof(text));
		assert_string_equal(text, want[i]);
		oom_var_text(&t->vars[x->var[x->n - 1]], text, 5);
		assert_int_equal(strncmp(text, want[i], 4), 0);
		assert_true(strlen(text) <= 4);
	}
	drop(t);
}

/* A longer sequence is never smaller, nor is a larger batch where sizes.h does not say so. */
static void growing(void **state)
{
	struct oom_tape *t = tape();
	uint16_t m[LENGTHS];

	(void)state;
	one_of_each(t, m);
	for (int i = 0; i < LENGTHS; i++)
		for (uint64_t b = 1; b < 6; b++)
			for (uint64_t s = 1; s < 300; s++) {
				const uint64_t x = oom_mono_eval(t, m[i], b, s, s);

				assert_true(oom_mono_eval(t, m[i], b, s + 1, s + 1) >= x);
				assert_true(oom_mono_eval(t, m[i], b + 1, s, s) >= x);
			}
	drop(t);
}

/* What the table calls unable to vanish is never 0: the compiled tape drops moments by it. */
static void vanishing(void **state)
{
	struct oom_tape *t = tape();
	uint16_t m[LENGTHS];
	int safe = 0;

	(void)state;
	one_of_each(t, m);
	for (int i = 0; i < LENGTHS; i++) {
		uint64_t least = UINT64_MAX;

		for (uint64_t b = 1; b < 4; b++)
			for (uint64_t s = 1; s < 300; s++) {
				const uint64_t x = oom_mono_eval(t, m[i], b, s, s);

				least = x < least ? x : least;
			}
		assert_int_equal(oom_mono_contains(t, m[i], OOM_MONO_ONE), least > 0);
		safe += least > 0;
	}
	assert_int_equal(safe, 12);
	assert_true(oom_mono_contains(t, t->m_bss, t->m_bs));
	assert_false(oom_mono_contains(t, t->m_bs, t->m_bss));
	assert_false(oom_mono_contains(t, oom_len_const(t, t->m_b, 0), t->m_b));
	assert_false(oom_mono_contains(t, oom_len_min(t, t->m_b, 0), t->m_b));
	assert_false(oom_mono_contains(t, oom_len_chunks(t, t->m_b, 64, -1), t->m_b));
	drop(t);
}

static void pieces(void **state)
{
	struct oom_tape *t = tape();
	const uint16_t one = OOM_MONO_ONE, images = oom_len_const(t, t->m_b, 2),
		       patches = oom_len_const(t, one, 577), all = oom_mono_mul(t, images, patches);

	(void)state;
	assert_int_equal(oom_mono_rounded(t, t->m_bs, t->m_s, 64), oom_len_round_up(t, t->m_b, 64));
	assert_int_equal(oom_mono_rounded(t, t->m_bs, one, 64), oom_len_round_up(t, t->m_b, 64));
	/* keys with a prefix of 30: 130 tokens are 192 in whole tiles of 64, or 3 of them */
	assert_int_equal(oom_mono_now(t, oom_mono_rounded(t, oom_len_plus(t, t->m_b, 30),
							  oom_len_plus(t, OOM_MONO_ONE, 30), 64)), B * 192);
	assert_int_equal(oom_mono_now(t, oom_mono_tiles(t, oom_len_plus(t, t->m_b, 30),
							oom_len_plus(t, OOM_MONO_ONE, 30), 64)), B * 3);
	assert_int_equal(oom_mono_rounded(t, t->m_b, one, 64), t->m_b);
	assert_int_equal(oom_mono_now(t, oom_mono_rounded(t, t->m_bss, t->m_s, 64)), 2 * 128 * 100);
	assert_int_equal(oom_mono_tiles(t, t->m_bs, t->m_s, 64), oom_len_ceil(t, t->m_b, 64));
	assert_int_equal(oom_mono_now(t, oom_mono_tiles(t, t->m_bss, t->m_s, 64)), 2 * 2 * 100);
	/* each of two images by itself; a number of windows is made after their area */
	assert_int_equal(oom_mono_now(t, oom_mono_rounded(t, all, patches, 128)), 2 * 2 * 640);
	assert_int_equal(oom_mono_now(t, oom_mono_rounded(t, all, one, 128)), 2 * 2 * 640);
	assert_int_equal(oom_mono_now(t, oom_mono_tiles(t, all, patches, 64)), 2 * 2 * 10);
	assert_int_equal(oom_mono_now(t, oom_mono_tiles(t, oom_mono_mul(t, all, oom_len_const(t, one, 3)),
							patches, 64)),
			 2 * 2 * 10 * 3);
	/* streams beside a text's tokens */
	assert_int_equal(oom_mono_now(t, oom_mono_rounded(t, oom_len_const(t, t->m_bs, 3), one, 64)),
			 2 * 128 * 3);
	drop(t);
}

static void fails(struct oom_tape *t, enum oom_status status, const char *text)
{
	assert_int_equal(t->status, status);
	assert_non_null(strstr(t->err.text, text));
	t->status = OOM_OK;
	t->err.text[0] = 0;
}

static void refusals(void **state)
{
	struct oom_tape *t = tape();

	(void)state;
	assert_int_equal(oom_len_ceil(t, t->m_b, 0), t->m_b);
	fails(t, OOM_ERR_INVALID, "expected 1 to 2^32 - 1");
	assert_int_equal(oom_len_plus(t, t->m_b, (uint64_t)1 << 32), t->m_b);
	fails(t, OOM_ERR_INVALID, "expected 0 to 2^32 - 1");
	assert_int_equal(oom_mono_now(t, oom_len_min(t, t->m_b, UINT32_MAX)), B * S);
	assert_int_equal(t->status, OOM_OK);
	drop(t);
}

static void bounds(void **state)
{
	struct oom_tape *t = tape();
	uint16_t m = OOM_MONO_ONE;

	(void)state;
	for (int i = 0; i < OOM_MAX_FACTORS; i++)
		m = oom_mono_mul(t, m, t->m_s);
	assert_int_equal(t->status, OOM_OK);
	assert_int_equal(oom_mono_mul(t, m, t->m_b), m);
	fails(t, OOM_ERR_LIMIT, "5 factors");
	for (uint64_t k = 1; t->n_vars < OOM_MAX_VARS; k++)
		oom_len_plus(t, t->m_b, k);
	assert_int_equal(t->status, OOM_OK);
	assert_int_equal(oom_len_plus(t, t->m_b, 1000), t->m_b);
	fails(t, OOM_ERR_LIMIT, "32 kinds of lengths");
	drop(t);

	t = tape();
	for (uint64_t k = 1; k <= 13; k++)
		for (uint64_t j = 1; j <= k; j++)
			oom_len_plus(t, oom_len_plus(t, OOM_MONO_ONE, j), k);
	assert_int_equal(t->n_monos, OOM_MAX_MONOS);
	assert_int_equal(t->status, OOM_ERR_LIMIT);
	assert_non_null(strstr(t->err.text, "96 kinds of sizes"));
	drop(t);
}

/* A recording serves every batch on the same sides of its conditions; one with more conditions
 * than are remembered, its own sizes alone. */
static void conditions(void **state)
{
	struct oom_tape *t = tape();

	(void)state;
	assert_true(oom_cond_above(t, t->m_bs, 199));
	assert_false(oom_cond_above(t, t->m_bs, 200));
	assert_true(oom_cond_more(t, t->m_s, 3, t->m_b, 140));
	assert_true(oom_cond_above(t, t->m_bs, 199));
	assert_int_equal(t->n_conds, 3);
	assert_true(oom_conds_hold(t, 4, 50, T) == (50 * 3 > 4 * 140));
	assert_true(oom_conds_hold(t, 1, 200, T));
	assert_false(oom_conds_hold(t, 1, 201, T));
	assert_false(oom_conds_hold(t, 1, 199, T));

	for (uint64_t k = 0; k < OOM_MAX_CONDS; k++)
		assert_true(oom_cond_above(t, t->m_bs, 100 + k));
	assert_int_equal(t->status, OOM_OK);
	assert_int_equal(t->n_conds, OOM_MAX_CONDS + 1);
	assert_true(oom_conds_hold(t, B, S, T));
	assert_false(oom_conds_hold(t, 1, 200, T));
	assert_false(oom_conds_hold(t, B, S, T + 1));
	drop(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(examples), cmocka_unit_test(parts_of_sums), cmocka_unit_test(sequences), cmocka_unit_test(texts), cmocka_unit_test(growing),
		cmocka_unit_test(vanishing), cmocka_unit_test(pieces), cmocka_unit_test(refusals),
		cmocka_unit_test(bounds), cmocka_unit_test(conditions)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
