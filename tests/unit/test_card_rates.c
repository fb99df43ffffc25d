/* What a card of the shipped table reaches of its data sheet. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "oomplan/gpu.h"
#include "oomplan/plan.h"
#include "step/time/cards.h"

static struct oom_gpus gpus;

static int load(void **state)
{
	struct oom_error err = {{0}};

	(void)state;
	return oom_gpus_load(&gpus, &err);
}

static int release(void **state)
{
	(void)state;
	oom_gpus_release(&gpus);
	return 0;
}

/* GeForce cards accumulate 16-bit products in fp32 at half of the rate, and compute in fp32 at the full one: 82.6 Tflop/s of an
 * RTX 4090, 14.2 of an RTX 2080 Ti (data sheets).  A TITAN RTX has no such brake: 130.5 and an eighth of them, 16.3, of which BERT
 * and GPT-2 without autocast reach 15 and 13 (huggingface/transformers, docs perf_hardware.md and text-classification/README.md). */
static void fp32(void **state)
{
	static const struct {
		const char *name;
		double tflops;
	} rows[] = {{"RTX-4090", 82.6}, {"RTX-3090", 35.6}, {"RTX-2080-Ti", 14.2}, {"TITAN-RTX", 16.3}, {"L40S", 90.5}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_error err = {{0}};
		struct oom_plan p = oom_plan_default();
		struct oom_gpu g;
		struct oom_speed s;

		assert_int_equal(oom_gpu_find(&gpus, rows[i].name, &g, NULL, &err), OOM_OK);
		p.precision = OOM_FP32;
		oom_speed_of(&g, &p, &s);
		assert_true(fabs(s.peak / (rows[i].tflops * 1e12) - 1) < 0.01);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(fp32)};

	return cmocka_run_group_tests(tests, load, release);
}
