/* What optimizers keep for a tensor, and what their steps need, against sums made by hand from the libraries' code:
 * torch/optim/adam.py (exp_avg and exp_avg_sq like the parameter; _multi_tensor_adam's list of roots), bitsandbytes
 * optim/optimizer.py (uint8 states and an fp32 absmax per 256 elements, fp32 below min_8bit_size = 4096; two code books
 * of 256 values; pages from 1e5 elements on), transformers optimization.py (Adafactor's row and column means), arXiv:2403.03507
 * (GaLore's projection). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "step/optimizers.h"
#include "tape/sums.h"
#include "tape/round.h"

/* A linear layer's weight, an embedding and a bias. */
static const struct oom_param matrix = {.elems = 512 * 1024, .flags = OOM_P_LINEAR, .rows = 512, .cols = 1024, .count = 1, .dt = OOM_DT_BF16,
					.trainable = true, .unit = 1};
static const struct oom_param table = {.elems = 1000 * 1024, .flags = OOM_P_EMBEDDING, .rows = 1000, .cols = 1024, .count = 1,
				       .dt = OOM_DT_BF16, .trainable = true};
static const struct oom_param bias = {.elems = 1000, .count = 1, .dt = OOM_DT_BF16, .trainable = true, .unit = 1};

static const struct oom_optimizer *called(const char *name)
{
	for (size_t i = 0; oom_optimizer_at(i); i++)
		if (!strcmp(oom_optimizer_choice(i)->name, name))
			return oom_optimizer_at(i);
	fail_msg("no optimizer %s", name);
	return NULL;
}

static uint64_t states(const char *name, const struct oom_param *p, bool master, uint64_t *paged)
{
	const struct oom_optimizer *o = called(name);
	uint64_t sum = 0, away, all = 0;

	for (uint8_t k = 0; k < o->n_slots; k++) {
		sum += oom_slot_bytes(&o->slots[k], p, master, &away);
		all += away;
	}
	if (paged)
		*paged = all;
	return sum;
}

static void states_of_one_tensor(void **state)
{
	const uint64_t books = 2 * 256 * 4;
	uint64_t paged;

	(void)state;
	assert_int_equal(states("adamw", &matrix, false, NULL), 2 * 2 * 512 * 1024);
	assert_int_equal(states("adamw", &matrix, true, NULL), 2 * 4 * 512 * 1024);
	assert_int_equal(states("adamw-fused", &bias, false, NULL), 2 * 2 * 1000 + 4);
	assert_int_equal(states("sgd", &matrix, false, NULL), 0);
	assert_int_equal(states("adamw-8bit", &matrix, false, NULL), 2 * (512 * 1024 + 2048 * 4) + books);
	assert_int_equal(states("adamw-8bit", &bias, false, NULL), 2 * 4 * 1000);
	assert_int_equal(states("adamw-8bit-embfp32", &table, false, NULL), 2 * 4 * 1000 * 1024);
	assert_int_equal(states("paged-adamw", &matrix, false, &paged), 0);
	assert_int_equal(paged, 2 * 4 * 512 * 1024);
	assert_int_equal(states("paged-adamw", &bias, false, &paged), 2 * 4 * 1000);
	assert_int_equal(paged, 0);
	/* a mean per row, one per column, one number per tensor */
	assert_int_equal(states("adafactor", &matrix, false, NULL), 4 * (512 + 1024 + 1));
	assert_int_equal(states("adafactor", &bias, false, NULL), 4 * (1000 + 1));
	assert_int_equal(states("galore", &matrix, false, NULL), 4 * 128 * (1024 + 1024 + 512));
	assert_int_equal(states("galore", &table, false, NULL), 2 * 2 * 1000 * 1024);
	assert_int_equal(states("muon", &matrix, false, NULL), 2 * 512 * 1024);
	assert_int_equal(states("muon", &table, false, NULL), 2 * 2 * 1000 * 1024);
}

static void which_keep_what(void **state)
{
	struct oom_param head = matrix;

	(void)state;
	head.flags |= OOM_P_HEAD;
	assert_true(oom_hidden_matrix(&matrix));
	assert_false(oom_hidden_matrix(&head));
	assert_false(oom_hidden_matrix(&table));
	assert_false(oom_hidden_matrix(&bias));
	assert_true(oom_optimizer_in_blocks(called("adamw-8bit")));
	assert_false(oom_optimizer_in_blocks(called("adamw")));
	assert_true(oom_optimizer_of_whole_matrices(called("shampoo")));
	assert_true(oom_optimizer_of_whole_matrices(called("galore")));
	/* Newton-Schulz needs whole matrices, its momentum does not */
	assert_false(oom_optimizer_of_whole_matrices(called("muon")));
	assert_null(oom_optimizer_at(OOM_MAX_OPTIMIZERS));
}

/* The foreach step holds a root of every tensor at once, the loop two of one tensor and the quotient of the one before. */
static void sums_and_temporaries(void **state)
{
	struct oom_param p[] = {table, matrix, matrix};
	const uint64_t all = 2 * (1000 + 512 + 512) * 1024;
	struct oom_state_sums s;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		p[i].grad = 0;
	assert_int_equal(oom_optimizer_sums(called("adamw"), (struct oom_stepped){.p = p, .n = 3}, &s), OOM_OK);
	assert_int_equal(s.bytes, 2 * all);
	assert_int_equal(s.temps[0], all);
	assert_int_equal(s.temps[1], all);
	assert_int_equal(oom_optimizer_sums(called("adamw-two-lists"), (struct oom_stepped){.p = p, .n = 3}, &s), OOM_OK);
	assert_int_equal(s.bytes, 2 * all);
	assert_int_equal(s.temps[1], 2 * all);
	assert_int_equal(oom_optimizer_sums(called("adamw-fused"), (struct oom_stepped){.p = p, .n = 3}, &s), OOM_OK);
	assert_int_equal(s.temps[1], 0);
	assert_int_equal(s.rounded, 2 * all + 3 * OOM_BLOCK);
	assert_int_equal(oom_optimizer_sums(called("adamw-loop"), (struct oom_stepped){.p = p, .n = 3}, &s), OOM_OK);
	assert_int_equal(s.temps[1], 2 * 1024 * (1000 + 2 * 512));
	/* a parameter without a gradient is skipped, but not by what makes its sums when it is made (torch/optim/adagrad.py
	 * Adagrad.__init__): a pooler of BERT's kin in a masked language model has one; one that stands for ten layers counts ten times */
	p[0].grad = -1;
	p[1].count = 10;
	assert_int_equal(oom_optimizer_sums(called("adamw"), (struct oom_stepped){.p = p, .n = 3}, &s), OOM_OK);
	assert_int_equal(s.bytes, 2 * 2 * 11 * 512 * 1024);
	assert_int_equal(oom_optimizer_sums(called("adagrad"), (struct oom_stepped){.p = p, .n = 3}, &s), OOM_OK);
	assert_int_equal(s.bytes, 2 * 11 * 512 * 1024 + 2 * 1000 * 1024);
	/* the code books are one pair for all tensors */
	assert_int_equal(oom_optimizer_sums(called("adamw-8bit"), (struct oom_stepped){.p = p, .n = 3}, &s), OOM_OK);
	assert_int_equal(s.bytes, 11 * 2 * (512 * 1024 + 2048 * 4) + 2 * 256 * 4);
	assert_true(s.shared);
}

/* A layer's RMS norm is registered after its other modules (modeling_llama.py), and stepped after them. */
static void norms_are_stepped_last(void **state)
{
	struct oom_param p[4] = {matrix, bias, matrix, table};
	struct oom_stepped s = {.p = p, .n = 4, .first = true};

	(void)state;
	for (size_t i = 0; i < 4; i++)
		p[i].grad = 0;
	p[1].flags = OOM_P_NORM;
	assert_int_equal(oom_next_stepped(&s, SIZE_MAX), 0);
	assert_int_equal(oom_next_stepped(&s, 0), 2);
	assert_int_equal(oom_next_stepped(&s, 2), 1);
	assert_int_equal(oom_next_stepped(&s, 1), 3);
	assert_int_equal(oom_next_stepped(&s, 3), 4);
}

/* What a class registers before its body (XLM-R's head, and with it the table that both share) is stepped before it, whenever
 * it is recorded: table 2, head 1. */
static void what_is_first_is_stepped_first(void **state)
{
	struct oom_param p[5] = {table, matrix, bias, matrix, bias};
	struct oom_stepped s = {.p = p, .n = 5, .first = true};
	static const size_t order[] = {3, 4, 0, 1, 2, 5}, groups[] = {3, 0, 1, 4, 2, 5};
	size_t at = SIZE_MAX;

	(void)state;
	for (size_t i = 0; i < 5; i++)
		p[i].grad = 0;
	p[3].unit = p[4].unit = 0;
	p[2].flags = p[4].flags = OOM_P_NORM;
	p[0].first = 2;
	p[3].first = p[4].first = 1;
	for (size_t i = 0; i < 6; i++) {
		at = oom_next_stepped(&s, at);
		assert_int_equal(at, order[i]);
	}
	s.groups = true;
	at = SIZE_MAX;
	for (size_t i = 0; i < 6; i++) {
		at = oom_next_stepped(&s, at);
		assert_int_equal(at, groups[i]);
	}
}

/* Buffers of an H100's sums over rows, as traces show them in the steps of Adafactor: a table of 32,000 rows, matrices of
 * attention and of MLPs (hidden sizes 4096 and 1024). */
static void sums_of_columns_have_buffers(void **state)
{
	struct oom_param p[1] = {matrix};
	struct oom_stepped s = {.p = p, .n = 1};
	struct oom_state_sums without, with;

	(void)state;
	assert_int_equal(oom_sum_bytes(32000, 4096), 132 << 20);
	assert_int_equal(oom_sum_bytes(4096, 4096), 128 << 20);
	assert_int_equal(oom_sum_bytes(4096, 11008), (uint64_t)1024 * 1024 * 1075 / 8);
	assert_int_equal(oom_sum_bytes(1024, 4096), 32 << 20);
	/* one block has few rows, and sums of columns that no four fit in have another kernel */
	assert_int_equal(oom_sum_bytes(64, 4096), 0);
	assert_int_equal(oom_sum_bytes(4096, 4098), 0);
	p[0].grad = 0;
	p[0].rows = 4096;
	p[0].cols = 1024;
	p[0].elems = 4096 * 1024;
	assert_int_equal(oom_optimizer_sums(called("adafactor"), s, &without), OOM_OK);
	s.sum_buffers = true;
	assert_int_equal(oom_optimizer_sums(called("adafactor"), s, &with), OOM_OK);
	assert_true(with.temps[1] > without.temps[1]);
}

/* A Trainer's: what decays, then norms and biases, so that the table follows a matrix, whose update is still there. */
static void groups_are_stepped_in_turn(void **state)
{
	struct oom_param p[4] = {matrix, bias, matrix, table};
	struct oom_stepped s = {.p = p, .n = 4, .first = true, .groups = true};
	struct oom_state_sums sums, plain;

	(void)state;
	for (size_t i = 0; i < 4; i++)
		p[i].grad = 0;
	p[1].flags = p[2].flags = OOM_P_NORM;
	p[2].rows = 0;
	assert_int_equal(oom_next_stepped(&s, SIZE_MAX), 0);
	assert_int_equal(oom_next_stepped(&s, 0), 3);
	assert_int_equal(oom_next_stepped(&s, 3), 1);
	assert_int_equal(oom_next_stepped(&s, 1), 2);
	assert_int_equal(oom_next_stepped(&s, 2), 4);
	p[2].elems = 32;
	assert_int_equal(oom_optimizer_sums(called("adamw-loop"), (struct oom_stepped){.p = p, .n = 4}, &plain), OOM_OK);
	assert_int_equal(oom_optimizer_sums(called("adamw-loop"), (struct oom_stepped){.p = p, .n = 4, .groups = true}, &sums), OOM_OK);
	assert_int_equal(sums.temps[1] - plain.temps[1], 2 * 512 * 1024 - OOM_BLOCK);
}

static int32_t put(void *ctx, uint64_t bytes)
{
	*(uint64_t *)ctx += bytes;
	return 7;
}

static void drop(void *ctx, int32_t block)
{
	assert_int_equal(block, 7);
	*(uint64_t *)ctx -= 1;
}

static void a_sink_counts_blocks(void **state)
{
	uint64_t asked = 0;
	struct oom_sink s = {.put = put, .drop = drop, .ctx = &asked};
	const int32_t a = oom_sink_take(&s, 700), b = oom_sink_take(&s, 1);

	(void)state;
	assert_int_equal(asked, 701);
	assert_int_equal(s.now, 1024 + 512);
	oom_sink_give(&s, a);
	oom_sink_give(&s, -1);
	assert_int_equal(asked, 700);
	assert_int_equal(s.now, 512);
	assert_int_equal(s.peak, 1024 + 512);
	assert_int_equal(oom_slots_make(called("adamw"), &bias, false, &s), 4000);
	assert_int_equal(s.now, 512 + 2 * 2048);
	oom_sink_give(&s, b);
	oom_sink_release(&s);
	assert_null(s.taken);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(states_of_one_tensor),
		cmocka_unit_test(which_keep_what),
		cmocka_unit_test(sums_and_temporaries),
		cmocka_unit_test(norms_are_stepped_last), cmocka_unit_test(what_is_first_is_stepped_first),
		cmocka_unit_test(groups_are_stepped_in_turn),
		cmocka_unit_test(sums_of_columns_have_buffers),
		cmocka_unit_test(a_sink_counts_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
