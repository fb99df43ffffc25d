/* What fsdp_qlora left on real cards, as its authors published it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/generations.h"
#include "oomplan/option.h"
#include "oomplan/units.h"
#include "generation_configs.h"
#include "lora_of_two.h"
#include "priced.h"

/* AnswerDotAI/fsdp_qlora, benchmarks_03_2024.md, Llama-2 7B with LoRA of rank 64 on two GPUs: 8.28 and 9.16 GiB
 * allocated with 512 and 2048 tokens.  train.py puts torch's checkpoint_wrapper inside of FSDP's units, so that the
 * hook of frozen blocks hangs on what the block before has made, as with use_reentrant=False, and prefetches. */
static void checkpoints_inside_units_free_inputs(void **state)
{
	static const char llama[] =
		"{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 11008, "
		"\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"vocab_size\": 32000}";
	static const double measured[] = {8.28, 9.16};

	(void)state;
	for (int k = 0; k < 2; k++) {
		const struct oom_plan p = lora_of_two(k ? 2048 : 512);
		const double peak = (double)must(llama, &p).overall_peak / (1 << 30);

		if (fabs(peak / measured[k] - 1) > 0.015)
			fail_msg("%d tokens: %.3f, measured %.2f GiB", (int)p.seq_len, peak, measured[k]);
	}
}

/* The same runs reserved 10.24 and 10.22 GiB, as good as independent of the tokens: what joining the units took
 * (parameters, broadcast buckets, flat parameter and part of embeddings and head) stays cached on the stream that
 * computes, and layers are gathered on another. */
static void joined_units_stay_cached(void **state)
{
	static const char llama[] =
		"{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 11008, "
		"\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"vocab_size\": 32000}";
	static const double measured[] = {10.24, 10.22};
	static const char yi_34b[] =
		"{\"model_type\": \"llama\", \"hidden_size\": 7168, \"intermediate_size\": 20480, "
		"\"num_hidden_layers\": 60, \"num_attention_heads\": 56, \"num_key_value_heads\": 8, "
		"\"vocab_size\": 64000}";
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_keys keys = {0}, large = {0};
	struct oom_model *model, *yi;
	struct oom_error err;

	(void)state;
	assert_int_equal(oom_keys_parse(&keys, llama, strlen(llama), "llama", &err), OOM_OK);
	assert_int_equal(oom_model_new(&model, &keys, &err), OOM_OK);
	assert_int_equal(oom_keys_parse(&large, yi_34b, strlen(yi_34b), "Yi-34B", &err), OOM_OK);
	assert_int_equal(oom_model_new(&yi, &large, &err), OOM_OK);
	{
		/* Yi-34B, 4 bit, parameters and states on the host: 22.98 GiB; the part that is gathered lies on the
		 * card meanwhile, on a stream of its own */
		struct oom_plan p = lora_of_two(2048);
		struct oom_eval e;

		p.micro_batch = 4;
		p.qlora = 1;
		p.offload_params = OOM_OFFLOAD_CPU;
		p.offload_optimizer = OOM_OFFLOAD_CPU;
		assert_int_equal(oom_evaluate(ev, yi, &p, OOM_EVAL_REPLAY, &e, &err), OOM_OK);
		assert_true(fabs((double)e.reserved_bytes / (1 << 30) / 22.98 - 1) < 0.13);
	}
	for (int k = 0; k < 2; k++) {
		const struct oom_plan p = lora_of_two(k ? 2048 : 512);
		struct oom_eval e;

		assert_int_equal(oom_evaluate(ev, model, &p, OOM_EVAL_REPLAY, &e, &err), OOM_OK);
		assert_true(e.reserved_replayed);
		if (fabs((double)e.reserved_bytes / (1 << 30) / measured[k] - 1) > 0.015)
			fail_msg("%d tokens: %.3f, measured %.2f GiB", (int)p.seq_len,
				 (double)e.reserved_bytes / (1 << 30), measured[k]);
		/* which the bounds of a verdict know of */
		assert_true(e.wrap_bytes > (uint64_t)3 * 2 * 2 * 32000 * 4096);
	}
	oom_model_free(model);
	oom_model_free(yi);
	oom_keys_release(&keys);
	oom_keys_release(&large);
	oom_evaluator_free(ev);
}

/* 22.98 GiB were reserved on cards that have 23.6 (the same benchmarks): context and NCCL take less than 0.7 there,
 * 1.45 GiB for NCCL alone on an A100. */
static void graphics_cards_have_few_channels(void **state)
{
	struct oom_plan p = oom_plan_default();

	(void)state;
	p.gpus = 2;
	p.engine = OOM_ENGINE_FSDP1;
	p.zero_stage = 3;
	p.compute_capability = 8.6;
	{
		const struct oom_eval e = must(MISTRAL(2), &p);

		assert_true(e.nccl_bytes + e.context_bytes < (uint64_t)717 << 20);
		assert_true(e.nccl_bytes > 0);
	}
	p.compute_capability = 8;
	assert_int_equal(must(MISTRAL(2), &p).nccl_bytes, (uint64_t)1485 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(checkpoints_inside_units_free_inputs),
		cmocka_unit_test(joined_units_stay_cached),
		cmocka_unit_test(graphics_cards_have_few_channels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
