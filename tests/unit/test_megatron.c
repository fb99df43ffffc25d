/* The Megatron engine against the paper it follows, and its refusals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the four above */
#include <cmocka.h>

#include "launch.h"
#include "megatron/parts.h"
#include "oomplan/plan.h"
#include "step/replay.h"

/* s = 2048, b = 1, h = 1024, a = 16: Korthikanti et al. arXiv:2205.05198 table 2, GPT layer with
 * dropout, 16 bit. */
static double layer_bytes(const char *tp, const char *sp, const char *rc)
{
	const char *words[] = {"layers",
			       "2",
			       "hidden",
			       "1024",
			       "heads",
			       "16",
			       "seq",
			       "2048",
			       "vocab",
			       "51200",
			       "tp",
			       tp,
			       "sequence_parallel",
			       sp,
			       "recompute_granularity",
			       rc,
			       "transformer_impl",
			       "local",
			       "attention_mask_in_dataloader",
			       "0",
			       NULL};
	struct oom_megatron m = launch(words);
	struct oom_mg_rank two, four;
	struct oom_error err = {{0}};

	assert_int_equal(oom_megatron_derive(&m, &err), OOM_OK);
	assert_int_equal(oom_megatron_rank(&m, 0, &two, &err), OOM_OK);
	m.layers = 4;
	assert_int_equal(oom_megatron_rank(&m, 0, &four, &err), OOM_OK);
	return (double)(four.activation_bytes - two.activation_bytes) / 2;
}

static void test_paper(void **state)
{
	const double sbh = 2048.0 * 1024, as_h = 16.0 * 2048 / 1024;

	(void)state;
	assert_true(layer_bytes("1", "0", "none") == sbh * (34 + 5 * as_h));
	assert_true(layer_bytes("4", "0", "none") == sbh * (10 + 24 / 4.0 + 5 * as_h / 4));
	assert_true(layer_bytes("4", "1", "none") == sbh / 4 * (34 + 5 * as_h));
	assert_true(layer_bytes("4", "0", "selective") == sbh * (10 + 24 / 4.0));
	assert_true(layer_bytes("4", "1", "selective") == sbh * 34 / 4);
	assert_true(layer_bytes("1", "0", "full") == 2 * sbh);
}

/* 18 bytes per parameter; 6 + 12/d with the distributed optimizer (Megatron-LM docs,
 * dist_optimizer); 20 for fp16. */
static void test_states(void **state)
{
	static const struct {
		const char *precision, *dist;
		double bytes;
	} want[] = {{"bf16", "0", 18},
		    {"bf16", "1", 6 + 12 / 8.0},
		    {"fp16", "1", 4 + 16 / 8.0},
		    {"fp32", "0", 16},
		    {"fp32", "1", 8 + 8 / 8.0}};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const char *words[] = {"layers",
				       "2",
				       "hidden",
				       "1024",
				       "heads",
				       "16",
				       "vocab",
				       "51200",
				       "n_gpus",
				       "8",
				       "precision",
				       want[i].precision,
				       "distributed_optimizer",
				       want[i].dist,
				       NULL};
		struct oom_megatron m = launch(words);
		struct oom_mg_rank r;
		struct oom_error err = {{0}};

		assert_int_equal(oom_megatron_derive(&m, &err), OOM_OK);
		assert_int_equal(oom_megatron_rank(&m, 0, &r, &err), OOM_OK);
		assert_true((double)r.static_bytes / (double)r.params - want[i].bytes < 1e-6);
		assert_true((double)r.static_bytes / (double)r.params - want[i].bytes > -1e-6);
	}
}

/* 1F1B: rank r of p holds p - r micro-batches; interleaved rank 0 of p = 4, v = 2: 2 (p - 1) +
 * (v - 1) p + 1 = 11 passes. */
static void test_schedules(void **state)
{
	const char *words[] = {"layers",
			       "16",
			       "hidden",
			       "512",
			       "heads",
			       "8",
			       "vocab",
			       "51200",
			       "n_gpus",
			       "4",
			       "pp",
			       "4",
			       "num_microbatches",
			       "16",
			       NULL};
	struct oom_megatron m = launch(words);
	struct oom_mg_rank r;
	struct oom_error err = {{0}};

	(void)state;
	assert_int_equal(oom_megatron_derive(&m, &err), OOM_OK);
	for (int64_t k = 0; k < 4; k++) {
		assert_int_equal(oom_megatron_rank(&m, k, &r, &err), OOM_OK);
		assert_int_equal((int)r.in_flight, 4 - k);
	}
	/* GPipe: every micro-batch of the step, on every stage */
	m.gpipe = 1;
	for (int64_t k = 0; k < 4; k++) {
		assert_int_equal(oom_megatron_rank(&m, k, &r, &err), OOM_OK);
		assert_int_equal((int)r.in_flight, 16);
	}
	m.gpipe = 0;
	m.vpp = 2;
	assert_int_equal(oom_megatron_rank(&m, 0, &r, &err), OOM_OK);
	assert_int_equal((int)r.in_flight, 11);
	m.vpp = 0;
	m.num_microbatches = 2;         /* fewer than the pipeline is deep */
	assert_int_equal(oom_megatron_rank(&m, 0, &r, &err), OOM_OK);
	assert_int_equal((int)r.in_flight, 2);
}

static void test_refusals(void **state)
{
	static const char *const bad[][3] = {
		{"tp", "3", "heads"}, {"pp", "20", "divide"}, {"layers", "0", "layers"}, {"n_gpus", "7", "multiple"}};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *words[] = {"layers", "16",	  "hidden",  "512",	"heads",
				       "8",	 "vocab", "51200",   "n_gpus",	"40",
				       "tp",	 "2",	  bad[i][0], bad[i][1], NULL};
		struct oom_megatron m = launch(words);
		struct oom_error err = {{0}};

		assert_int_equal(oom_megatron_derive(&m, &err), OOM_ERR_INVALID);
		assert_non_null(strstr(err.text, bad[i][2]));
	}
}

/* DeepSpeed's pipeline engine, by hand from its source (pipe.c says which), P parameters on one data-parallel
 * rank.  fp16: gradients, 2 P, are not there between steps; the step has 2 P beside what is left of them under
 * ZeRO-1, flat, and 4 P in fp32 (8 P in all, of which 2 P were there), at stage 0 twice 4 P.  bf16: 2 P of
 * gradients beside 4 P in fp32, and 2 P of them again to be reduced.  A stage keeps what it received and what
 * it gave for each pass; logits lie in both buffers, in fp32 and as a gradient: 10 B. */
static void test_pipe_engine(void **state)
{
	const double t = 2048, h = 1024;
	const struct oom_mg_rank one = RANK(8, 4, "deepspeed", "1", "precision", "fp16",
					    "distributed_optimizer", "1"),
				 zero = RANK(8, 4, "deepspeed", "1", "precision", "fp16"),
				 bf16 = RANK(8, 4, "deepspeed", "1"),
				 core = RANK(8, 4, "deepspeed", "0", "transformer_impl", "local"),
				 logits = RANK(8, 1, "deepspeed", "1"),
				 plain = RANK(8, 1, "deepspeed", "0", "transformer_impl", "local");
	const double P = (double)one.params;

	(void)state;
	assert_true(rows_of(&one, OOM_MG_ROW_PASSING) == 2 * P);
	assert_true((double)one.static_bytes - 2 * P - 2 * P == 12 * P);
	assert_true((double)one.alloc_bytes <= (double)(one.static_bytes + one.fixed_bytes) - 2 * P +
						       2 * 2 * t * h);
	assert_true(rows_of(&one, OOM_MG_ROW_STEP) == 6 * P);
	assert_true(rows_of(&zero, OOM_MG_ROW_STEP) == 8 * P);
	assert_true((double)one.peak_bytes >= (double)one.static_bytes + 6 * P);
	assert_true(rows_of(&bf16, OOM_MG_ROW_LOW_GRADS) == 2 * P);
	assert_true(rows_of(&bf16, OOM_MG_ROW_STEP) == 2 * P);
	assert_int_equal(bf16.static_bytes - core.static_bytes, (uint64_t)(2 * P));
	/* the last rank gives nothing on; it and the first are one with a single stage */
	assert_true((double)bf16.activation_bytes -
			    (double)RANK(8, 4, "deepspeed", "0", "attention_resolved", "flash").activation_bytes >=
		    2 * t * h);
	assert_true(rows_of(&logits, OOM_MG_ROW_TRANSIENT) - rows_of(&plain, OOM_MG_ROW_TRANSIENT) ==
		    4 * t * 32768);
}

/* The table's own columns: found by name, defaults within range. */
static void test_table(void **state)
{
	(void)state;
	for (size_t i = 0; oom_mg_arg_at(i); i++) {
		const struct oom_mg_arg *a = oom_mg_arg_at(i);

		assert_ptr_equal(oom_mg_arg_find(a->column), a);
		if (a->kind == OOM_MG_COUNT || a->kind == OOM_MG_REAL)
			assert_true(a->def >= a->min - 1024 && a->def <= a->max);
	}
}

/* Eight ranks with one expert each, top-2: a rank gets T x 2 tokens of the mean, at most every
 * token of all eight once, four times as many (formulas H8); one rank holding all experts gets
 * the same whatever the router does. */
static void test_imbalance(void **state)
{
	static const struct {
		const char *ep, *imbalance;
		double times;
	} rows[] = {
		{"8", "1", 1}, {"8", "2", 2}, {"8", "3.5", 3.5}, {"8", "100", 4}, {"1", "100", 1}};
	double balanced = 0, router = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_megatron m = oom_megatron_default();
		double saved;

		m.experts = 8;
		m.moe_topk = 2;
		m.moe_ffn = 1024;
		m.hidden = 512;
		m.micro_batch = 1;
		m.etp = 1;
		m.ep = *rows[i].ep - '0';
		m.moe_imbalance = strtod(rows[i].imbalance, NULL);
		saved = oom_mg_moe_saved(&m, 2048);
		if (i == 0)
			balanced = saved;
		if (i == 1)
			/* what does not follow the tokens an expert rank gets */
			router = 2 * balanced - saved;
		else if (i > 1 && m.ep > 1)
			assert_true(fabs(saved - router - rows[i].times * (balanced - router)) < 1);
		else if (m.ep == 1)
			assert_true(fabs(saved - balanced) < 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paper),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_schedules),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_pipe_engine),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_imbalance),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
