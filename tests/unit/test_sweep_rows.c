/* Rows of a sweep are written by mending the row before (planner/sweep/row.c): whatever came before, a row is the one
 * that is written first, which is made anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/sweep.h"

static struct oom_sweep *grid(const char *const *axes, const char *columns, const char *where)
{
	const struct oom_plan base = oom_plan_default();
	struct oom_sweep *s = oom_sweep_new(&base);
	struct oom_error err = {{0}};

	for (size_t i = 0; axes[i]; i++)
		if (oom_sweep_axis(s, axes[i], &err))
			fail_msg("%s", err.text);
	if (oom_sweep_columns(s, columns, &err) || (where && oom_sweep_where(s, where, &err)))
		fail_msg("%s", err.text);
	return s;
}

static char *written(struct oom_sweep *s, uint64_t skip, bool jsonl)
{
	const struct oom_sweep_options o = {.threads = 1, .skip = skip, .jsonl = jsonl};
	struct oom_error err = {{0}};
	uint64_t rows;
	size_t size;
	char *text = NULL;
	FILE *f = open_memstream(&text, &size);

	assert_int_equal(oom_sweep_run(s, &o, f, &rows, &err), OOM_OK);
	fclose(f);
	return text;
}

/* A run that begins at cell n is the rest of the whole one; where rows are left out, its first row stands at the end
 * of the same rest. */
static void each_alone(const char *const *axes, const char *columns, const char *where, bool jsonl)
{
	struct oom_sweep *s = grid(axes, columns, where);
	char *whole = written(s, 0, jsonl);
	const size_t n = strlen(whole);
	const uint64_t cells = oom_sweep_cells(s);
	size_t before = n;

	for (uint64_t i = 1; i < cells; i++) {
		char *rest = written(s, i, jsonl);
		const size_t m = strlen(rest);

		assert_true(m <= before);
		assert_string_equal(rest, whole + n - m);
		before = m;
		free(rest);
	}
	assert_true(before < n);
	assert_null(strstr(whole, "no model"));
	free(whole);
	oom_sweep_free(s);
}

/* Texts grow and shrink in the middle of the row; more values than texts of an axis are kept, and they come again. */
static const char *const widths[] = {"model=GPT-2", "seq-len=8,64,1024,9", "micro-batch=1,9,10,99,100,1000,2",
				     "optimizer=sgd,adamw,adamw-8bit,lion,adafactor,muon", "gpu=T4,A100-40G,H100-80G", NULL};

static void test_lengths(void **state)
{
	(void)state;
	each_alone(widths, "gpu,micro-batch,overall_peak_bytes,optimizer,capacity_bytes,seq-len,peak_phase,error", NULL,
		   false);
	each_alone(widths, "optimizer,gpu,used_bytes_estimated,seq-len,floor_bytes,micro-batch", NULL, true);
}

/* Rows without a price among others: what is kept is not theirs. */
static void test_errors_between(void **state)
{
	static const char *const axes[] = {"model=GPT-2,no-such-model,SmolLM2-135M", "seq-len=512,100000000,64",
					   "micro-batch=1..4", "gpu=T4,A100-40G", NULL};

	(void)state;
	each_alone(axes, "model,error,used_bytes_estimated,seq-len,gpu,peak_phase,capacity_bytes,tokens_per_s", NULL, false);
	each_alone(axes, "error,model,used_bytes_estimated,gpu,capacity_bytes", NULL, true);
}

/* The row before may be some cells away. */
static void test_rows_left_out(void **state)
{
	static const char *const axes[] = {"model=GPT-2", "micro-batch=1..24", "optimizer=adamw,sgd", "gpu=T4,A100-40G,H100-80G", NULL};

	(void)state;
	each_alone(axes, "gpu,optimizer,micro-batch,used_bytes_estimated,capacity_bytes", "used_bytes_estimated<6GiB", false);
	each_alone(axes, "gpu,optimizer,micro-batch,fits,used_bytes_estimated", "micro-batch!=7", false);
}

/* Precision and ZeRO stage follow from engine and card where nobody says them. */
static void test_what_follows(void **state)
{
	static const char *const axes[] = {"model=GPT-2", "engine=hf,fsdp2,deepspeed", "gpus=1,2,8", "gpu=T4,A100-40G", NULL};

	(void)state;
	each_alone(axes, "gpus,zero-stage,precision,engine,gpu,compute-capability,overall_peak_bytes,error", NULL, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths), cmocka_unit_test(test_errors_between),
					   cmocka_unit_test(test_rows_left_out), cmocka_unit_test(test_what_follows)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
