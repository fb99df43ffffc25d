/* Who is alive at each phase's peak: the parts are the whole, for every kind of plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/model.h"

static void check(struct oom_evaluator *ev, const struct oom_model *m, const struct oom_plan *p,
		  const char *name)
{
	struct oom_error err = {{0}};
	struct oom_anatomy a;
	struct oom_eval e;

	if (oom_evaluate(ev, m, p, OOM_EVAL_BUCKETS, &e, &err))
		return;                         /* this model does not run that way */
	assert_int_equal(oom_anatomy(ev, m, p, &e, &a, &err), OOM_OK);
	for (int i = 0; i < OOM_PHASES; i++) {
		uint64_t sum = 0;

		for (int b = 0; b < OOM_BUCKETS; b++) {
			sum += a.bucket[i][b];
			if (a.bucket[i][b] > (uint64_t)1 << 60)
				fail_msg("%s, %s: %s below zero", name,
					 oom_phase_str((enum oom_phase)i),
					 oom_bucket_str((enum oom_bucket)b));
		}
		if (sum != e.peak[i])
			fail_msg("%s, engine %d, zero %d, %s: parts %llu, whole %llu", name,
				 (int)p->engine, (int)p->zero_stage,
				 oom_phase_str((enum oom_phase)i), (unsigned long long)sum,
				 (unsigned long long)e.peak[i]);
	}
	/* the overall peak's own composition is the one the report shows */
	assert_memory_equal(a.bucket[e.peak_phase], e.bucket,
			    e.peak_phase == OOM_PHASE_EVAL || p->engine == OOM_ENGINE_MEGATRON ?
				    0 :
				    sizeof(e.bucket));
}

static void test_parts(void **state)
{
	static const char *const models[] = {"Llama-3.2-1B", "GPT-2",	 "BERT-base",
					     "T5-base",	     "ViT-B-16", "Mixtral-8x7B"};

	(void)state;
	for (size_t k = 0; k < sizeof(models) / sizeof(models[0]); k++) {
		struct oom_evaluator *ev = oom_evaluator_new();
		struct oom_error err = {{0}};
		struct oom_keys keys = {0};
		struct oom_model *m = NULL;

		assert_int_equal(oom_keys_read_model(&keys, models[k], &err), OOM_OK);
		assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
		for (int i = 0; i < 6 * 4 * 4 * 2 * 2; i++) {
			struct oom_plan p = oom_plan_default();

			p.num_layers = 4;
			p.micro_batch = 2;
			p.seq_len = 256;
			p.precision = i % 6;
			p.engine = i / 6 % 4 == 3 ? OOM_ENGINE_MEGATRON : i / 6 % 4;
			p.zero_stage = i / 24 % 4;
			p.gpus = p.zero_stage || p.engine == OOM_ENGINE_MEGATRON ? 4 : 1;
			p.grad_accum = 1 + i / 96 % 2;
			p.grad_ckpt = i / 192 % 2;
			p.eval_accumulation = i % 5 ? 0 : 3;
			check(ev, m, &p, models[k]);
		}
		oom_evaluator_free(ev);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
