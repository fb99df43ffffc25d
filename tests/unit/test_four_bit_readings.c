/* What bases of four bits took on real cards in fp16, as others published it, by version of the libraries. */
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
#include "priced.h"

static const char mistral[] =
	"{\"model_type\": \"mistral\", \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32, "
	"\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 32000, "
	"\"max_position_embeddings\": 32768}";

/* Mistral-7B with QLoRA under fp16 autocast, 4096 tokens, everything checkpointed: max_memory_allocated, published in
 * foundation-model-stack/fms-acceleration, scripts/benchmarks/refs/a100_80gb.csv. */
static struct oom_plan run(int64_t gpus, int64_t batch, bool prepared)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_FP16_AMP;
	p.attn = OOM_ATTN_FLASH;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.qlora = p.double_quant = 1;
	p.kbit_prepare = prepared;
	p.lora_r = 16;
	p.lora_dropout = 0.1;
	strcpy(p.lora_targets, "q_proj+k_proj+v_proj+o_proj");
	p.seq_len = 4096;
	p.micro_batch = batch;
	p.gpus = gpus;
	if (gpus > 1) {
		p.engine = OOM_ENGINE_FSDP1;
		p.zero_stage = 3;
	}
	return p;
}

/* Commit b6c1455: transformers 4.43.3, torch 2.4.0, bitsandbytes 0.43.2. */
static void fp16_costs_what_bf16_costs(void **state)
{
	static const struct {
		bool prepared;
		int64_t gpus, batch;
		double gib;
	} cases[] = {{true, 1, 4, 19.7585}, {true, 1, 8, 35.0129}, {false, 1, 4, 14.2714}, {false, 1, 8, 24.5078},
		     {false, 2, 2, 8.8713}, {false, 2, 4, 15.0610}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = run(cases[i].gpus, cases[i].batch, cases[i].prepared);
		uint64_t half;
		double gib;

		p.transformers = OOM_VERSION(4, 43);
		p.torch = OOM_VERSION(2, 4);
		p.bitsandbytes = OOM_VERSION(0, 43);
		half = must(mistral, &p).overall_peak;
		gib = (double)half / (1 << 30) + 16.25 / 1024;
		if (fabs(gib / cases[i].gib - 1) > 0.0013)
			fail_msg("case %d: %.4f, measured %.4f GiB", (int)i, gib, cases[i].gib);
		p.precision = OOM_BF16_AMP;
		assert_int_equal(must(mistral, &p).overall_peak, half);
	}
}

/* Commit c3a069c: transformers 4.39.3, torch 2.2.2, bitsandbytes 0.43.1, whose products keep their inputs.  A reentrant
 * checkpoint runs its layers without a graph, so that only the layer that is run again does: 0.9 GiB per sample otherwise. */
static void reentrant_checkpoints_keep_no_inputs(void **state)
{
	static const struct {
		int64_t gpus, batch;
		double gib;
	} cases[] = {{1, 4, 14.7714}, {1, 8, 25.0078}, {2, 2, 9.7151}, {2, 4, 16.2486}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = run(cases[i].gpus, cases[i].batch, false);
		double gib, graph;

		p.transformers = OOM_VERSION(4, 39);
		p.torch = OOM_VERSION(2, 2);
		p.bitsandbytes = OOM_VERSION(0, 42);
		p.peft = OOM_VERSION(0, 11);
		gib = (double)must(mistral, &p).overall_peak / (1 << 30) + 16.25 / 1024;
		if (fabs(gib / cases[i].gib - 1) > 0.027)
			fail_msg("case %d: %.4f, measured %.4f GiB", (int)i, gib, cases[i].gib);
		/* the other way of checkpointing records a graph in its forward pass, which keeps them all */
		oom_plan_resolve(&p);
		p.use_reentrant = OOM_REENTRANT_FALSE;
		graph = (double)must(mistral, &p).overall_peak / (1 << 30);
		assert_true(graph > 2 * gib);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fp16_costs_what_bf16_costs),
		cmocka_unit_test(reentrant_checkpoints_keep_no_inputs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
