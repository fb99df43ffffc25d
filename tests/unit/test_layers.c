/* Layers on a tape: equal ones are recorded three times, kinds in turn by kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/option.h"
#include "ops/ops.h"
#include "tape/tape.h"
#include "recorded_tape.h"

/* ---- layers ---- */

static struct oom_val silu(struct oom_tape *t, const void *ctx, uint32_t layer, struct oom_val x)
{
	(void)ctx;
	(void)layer;
	oom_param(t, "weight", 3, 5, 0);
	return oom_op_unary(t, OOM_SILU, oom_share(t, x));
}

/* Equal layers are recorded three times: first, middle, last; the middle one stands for the others.  Where each is wanted,
 * each is recorded. */
static void equal_layers_are_three(void **state)
{
	static const int nothing;
	static const struct {
		uint32_t layers;
		bool expand;
		size_t units;
		uint16_t middle;
	} cases[] = {
		{1, false, 1, 0}, {2, false, 2, 0}, {3, false, 3, 1}, {4, false, 3, 2}, {100, false, 3, 98}, {1, true, 1, 0},
		{10, true, 10, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_tape *t = tape("");
		struct oom_val x;
		uint64_t layers = 0;

		t->expand = cases[i].expand;
		x = oom_layers(t, cases[i].layers, NULL, silu, &nothing, tensor(t));
		assert_int_equal(t->n_units, cases[i].units);
		assert_int_equal(t->n_params, cases[i].units);
		for (size_t k = 0; k < t->n_units; k++)
			layers += t->units[k].mult;
		assert_int_equal(layers, cases[i].layers);
		if (cases[i].middle)
			assert_int_equal(t->units[1].mult, cases[i].middle);
		oom_drop(t, x);
		oom_tape_reset(t, NULL, &plan);
		drop(t);
	}
}

/* Layers of kinds in turn are recorded by kind, however many of each there are. */
static void kinds_in_turn(void **state)
{
	static const int nothing;
	uint8_t kind[40];
	struct oom_tape *t = tape("");
	uint64_t layers = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(kind); i++)
		kind[i] = i % 4 == 3;
	oom_drop(t, oom_layers(t, sizeof(kind), kind, silu, &nothing, tensor(t)));
	for (size_t k = 0; k < t->n_units; k++)
		layers += t->units[k].mult;
	assert_int_equal(layers, sizeof(kind));
	assert_true(t->n_units < 20);
	oom_tape_reset(t, NULL, &plan);
	drop(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_layers_are_three),
		cmocka_unit_test(kinds_in_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
