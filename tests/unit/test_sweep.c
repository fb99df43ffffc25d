/* Sweeps: the same bytes for any number of threads and shards; axes as written; errors.  And the
 * evaluator under them: the order in which cells are asked for, and the compiled form, never
 * change an answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/sweep.h"
#include "written_sweep.h"

static const char *const axes[] = {"model=GPT-2,SmolLM2-135M,no-such-model",
				   "attn=eager,sdpa",
				   "seq-len=1,17,512..1024+256,2..400+2",
				   "micro-batch=1..16x2,3",
				   "gpu=T4,A100-40G",
				   NULL};
enum { CELLS = 3 * 2 * 205 * 6 * 2 };   /* many blocks of rows */

static void test_threads(void **state)
{
	struct oom_sweep *s = grid(axes);
	size_t n1, n4;
	char *one = written(s, (struct oom_sweep_options){.threads = 1}, &n1);
	char *four = written(s, (struct oom_sweep_options){.threads = 4}, &n4);

	(void)state;
	assert_int_equal(oom_sweep_cells(s), CELLS);
	assert_int_equal(n1, n4);
	assert_memory_equal(one, four, n1);
	free(one);
	free(four);
	oom_sweep_free(s);
}

static void test_shards(void **state)
{
	struct oom_sweep *s = grid(axes);
	size_t n, m, used = 0;
	char *whole = written(s, (struct oom_sweep_options){.threads = 1}, &n);

	(void)state;
	for (uint64_t i = 1; i <= 7; i++) {
		char *part = written(
			s, (struct oom_sweep_options){.threads = 2, .shard = i, .shards = 7}, &m);

		assert_memory_equal(whole + used, part, m);
		used += m;
		free(part);
	}
	assert_int_equal(used, n);
	free(whole);
	oom_sweep_free(s);
}

struct stopper {
	int stop;
	uint64_t after;
};

static void stop_after(void *ctx, uint64_t done, uint64_t all, uint64_t rows)
{
	struct stopper *w = ctx;

	assert_true(done <= all && rows <= done);
	if (done >= w->after)
		w->stop = 1;
}

/* A run that is told to stop ends at a whole row, says where, and is continued from there: for
 * any number of threads. */
static void test_stop(void **state)
{
	struct oom_sweep *s = grid(
		(const char *const[]){"model=GPT-2", "seq-len=1..300", "micro-batch=1..500", NULL});
	struct oom_error err = {{0}};
	size_t n, m, k;
	char *whole;

	(void)state;
	assert_int_equal(oom_sweep_columns(s, "seq_len,micro_batch,overall_peak_bytes", &err),
			 OOM_OK);
	assert_int_equal(oom_sweep_where(s, "micro-batch!=7", &err), OOM_OK);
	whole = written(s, (struct oom_sweep_options){.threads = 2}, &n);
	for (int threads = 1; threads <= 3; threads++) {
		struct stopper w = {.after = 40000};
		uint64_t cells = 0;
		char *one = written(s,
				    (struct oom_sweep_options){.threads = threads,
							       .progress = stop_after,
							       .ctx = &w,
							       .stop = &w.stop,
							       .cells = &cells},
				    &m);
		char *two = written(s,
				    (struct oom_sweep_options){.threads = threads, .skip = cells},
				    &k);

		assert_true(cells >= 40000 && cells < 150000);
		assert_int_equal(m + k, n);
		assert_memory_equal(whole, one, m);
		assert_memory_equal(whole + m, two, k);
		free(one);
		free(two);
	}
	free(whole);
	oom_sweep_free(s);
}

struct each {
	struct oom_evaluator *ev;
	const struct oom_model *model;
	struct oom_gpu gpu;
	int fits, not;
};

static void same_as_search(void *ctx, const struct oom_sweep_cell *c)
{
	struct each *e = ctx;
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	const struct oom_search_query q = {
		.asked = &p, .capacity_bytes = e->gpu.capacity_bytes, .gpu = &e->gpu};
	struct oom_search s;

	p.seq_len = 256 << c->at[1];
	p.micro_batch = 1 + (int64_t)c->at[2];
	p.compute_capability = e->gpu.compute_capability;
	oom_model_settle_precision(e->model, &p, NULL);
	assert_true(c->ok);
	assert_int_equal(oom_search(e->ev, e->model, &q, &s, &err), OOM_OK);
	assert_int_equal(s.found, c->fits);
	if (s.found) {
		assert_memory_equal(&s.best.plan, c->plan, sizeof(*c->plan));
		assert_int_equal(s.best.used_bytes, c->eval->used_bytes);
	}
	e->fits += s.found;
	e->not += !s.found;
}

/* --plan-each answers as the search does, cell by cell; and in any number of threads. */
static void test_plan_each(void **state)
{
	struct oom_sweep *s = grid((const char *const[]){"model=Llama-3.2-1B",
							 "seq-len=256..65536x2", "micro-batch=1..3",
							 "gpu=T4", NULL});
	const struct oom_sweep_options o = {.plan_each = true, .threads = 1},
				       o3 = {.plan_each = true, .threads = 3};
	struct oom_error err = {{0}};
	struct oom_keys keys = {0};
	struct oom_gpus gpus = {0};
	struct oom_model *m = NULL;
	struct each e = {.ev = oom_evaluator_new()};
	size_t n, k;
	char *one, *three;

	(void)state;
	assert_int_equal(oom_keys_read_model(&keys, "Llama-3.2-1B", &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	assert_int_equal(oom_gpus_load(&gpus, &err), OOM_OK);
	assert_int_equal(oom_gpu_find(&gpus, "T4", &e.gpu, NULL, &err), OOM_OK);
	e.model = m;
	assert_int_equal(oom_sweep_each(s, &o, same_as_search, &e, &err), OOM_OK);
	assert_true(e.fits > 0 && e.not > 0);
	assert_int_equal(oom_sweep_columns(s,
					   "seq-len,micro-batch,fits,class,departures,changes,"
					   "optimizer,used_bytes,error",
					   &err),
			 OOM_OK);
	one = written(s, o, &n);
	three = written(s, o3, &k);
	assert_string_equal(one, three);
	assert_non_null(strstr(one, "--"));
	free(one);
	free(three);
	oom_sweep_free(s);
	s = grid((const char *const[]){"model=GPT-2", NULL});
	/* without a card */
	assert_int_equal(oom_sweep_each(s, &o, same_as_search, &e, &err), OOM_ERR_INVALID);
	oom_sweep_free(s);
	oom_evaluator_free(e.ev);
	oom_model_free(m);
	oom_gpus_release(&gpus);
	oom_keys_release(&keys);
}

static void test_rows(void **state)
{
	static const char *const few[] = {"model=GPT-2", "micro-batch=1..8x2", NULL};
	struct oom_sweep *s = grid(few);
	struct oom_error err = {{0}};
	size_t n;
	char *text;

	(void)state;
	assert_int_equal(oom_sweep_columns(s, "micro_batch,seq_len,total_params", &err), OOM_OK);
	assert_int_equal(oom_sweep_where(s, "micro-batch>=4", &err), OOM_OK);
	text = written(s, (struct oom_sweep_options){0}, &n);
	/* 124439808: GPT-2's published count with tied embeddings */
	assert_string_equal(text, "micro_batch,seq_len,total_params\n4,1024,124439808\n8,1024,"
				  "124439808\n");
	free(text);
	oom_sweep_free(s);
}

static void test_errors(void **state)
{
	static const struct {
		const char *axis, *word;
	} bad[] = {{"micro-bacth=1", "micro-batch"},
		   {"micro-batch=", "no values"},
		   {"micro-batch=8..1", "backwards"},
		   {"micro-batch=1..4x1", "step"},
		   {"attn=sdpaa", "sdpa"},
		   {"seq-len", "NAME=VALUES"},
		   {"gpu=A1000-40G", "A100"},
		   {"seq-len=1..100000001", "100000000"},
		   {"attn=1..2", "no count"},
		   {"gpu=@none", "@none"},
		   {"seq-len=@all", "@all is for"}};
	const struct oom_plan base = oom_plan_default();
	struct oom_sweep *s = oom_sweep_new(&base);
	struct oom_error err = {{0}};
	struct oom_sweep_options o = {0};
	uint64_t rows;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err.text[0] = 0;
		assert_int_not_equal(oom_sweep_axis(s, bad[i].axis, &err), OOM_OK);
		if (!strstr(err.text, bad[i].word))
			fail_msg("%s: %s", bad[i].axis, err.text);
	}
	assert_int_equal(oom_sweep_run(s, &o, stdout, &rows, &err), OOM_ERR_INVALID);
	assert_int_equal(oom_sweep_axis(s, "micro-batch=1..1000000", &err), OOM_OK);
	assert_int_not_equal(oom_sweep_axis(s, "micro_batch=1", &err), OOM_OK);
	assert_non_null(strstr(err.text, "twice"));
	assert_int_equal(oom_sweep_axis(s, "seq-len=1..1000000", &err), OOM_OK);
	assert_int_equal(oom_sweep_axis(s, "grad-accum=1..1000000", &err), OOM_OK);
	/* 10^18 cells */
	assert_int_equal(oom_sweep_run(s, &o, stdout, &rows, &err), OOM_ERR_LIMIT);
	assert_non_null(strstr(err.text, "1000000000000000000"));
	assert_int_not_equal(oom_sweep_columns(s, "used_byte", &err), OOM_OK);
	assert_non_null(strstr(err.text, "used_bytes"));
	assert_int_not_equal(oom_sweep_columns(s, ",,", &err), OOM_OK);
	assert_int_not_equal(oom_sweep_where(s, "used_bytes<many", &err), OOM_OK);
	assert_int_not_equal(oom_sweep_where(s, "attn=sdpaa", &err), OOM_OK);
	assert_non_null(strstr(err.text, "sdpa"));
	assert_int_not_equal(oom_sweep_where(s, "used_bites<3", &err), OOM_OK);
	assert_non_null(strstr(err.text, "used_bytes"));
	oom_sweep_free(s);
}

/* A fresh evaluator, and one that has seen other sizes (recorded, cached, compiled), give the
 * same bytes. */
static void test_order(void **state)
{
	static const char *const models[] = {"Llama-3.2-1B", "GPT-2",	     "BERT-base",
					     "T5-base",	     "Mixtral-8x7B", "Gemma-2-2B"};
	static const int64_t seq[] = {1, 2, 7, 16, 33, 128, 511, 512, 513},
			     batch[] = {1, 2, 3, 8, 31};

	(void)state;
	for (size_t k = 0; k < sizeof(models) / sizeof(models[0]); k++) {
		struct oom_evaluator *old = oom_evaluator_new();
		struct oom_error err = {{0}};
		struct oom_model *m = NULL;
		struct oom_keys keys = {0};

		assert_int_equal(oom_keys_read_model(&keys, models[k], &err), OOM_OK);
		assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
		for (int i = 0; i < 4 * 9 * 5; i++) {
			struct oom_plan p = oom_plan_default();
			struct oom_evaluator *new = oom_evaluator_new();
			struct oom_eval a, b;

			p.num_layers = 4;
			p.seq_len = seq[i % 9];
			p.micro_batch = batch[i / 9 % 5];
			p.attn = i / 45 % 2 ? OOM_ATTN_EAGER : OOM_ATTN_SDPA;
			p.precision = i / 90 % 2 ? OOM_AMP_BF16 : OOM_BF16;
			p.grad_accum = 1 + i % 2;
			p.padding_mask = i / 45 % 2;
			p.fused_ce = i % 3 ? OOM_LOSS_PLAIN : OOM_LOSS_FUSED;
			assert_int_equal(oom_evaluate(old, m, &p, OOM_EVAL_FAST, &a, &err), OOM_OK);
			assert_int_equal(oom_evaluate(new, m, &p, OOM_EVAL_FAST, &b, &err), OOM_OK);
			if (memcmp(a.peak, b.peak, sizeof(a.peak)) ||
			    memcmp(a.end, b.end, sizeof(a.end)) ||
			    a.flops_per_sample < b.flops_per_sample ||
			    a.flops_per_sample > b.flops_per_sample)
				fail_msg("%s: batch %d, sequence %d differ", models[k],
					 (int)p.micro_batch, (int)p.seq_len);
			oom_evaluator_free(new);
		}
		oom_evaluator_free(old);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_shards),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_plan_each),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
