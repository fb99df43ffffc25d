/* What FSDP and the stacks around it left on real cards, as others published it: bytes, by version of the libraries. */
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

/* Bytes that one more sample costs, in hidden states. */
static double per_sample(const char *config, struct oom_plan *p, uint64_t hidden)
{
	uint64_t peak[2];

	for (int i = 0; i < 2; i++) {
		p->micro_batch = 16 + 16 * i;
		peak[i] = must(config, p).overall_peak;
	}
	return (double)(peak[1] - peak[0]) / 16 / (double)hidden;
}

/* fms-acceleration's benchmarks (foundation-model-stack/fms-acceleration,
 * scripts/benchmarks/refs/a100_80gb.csv: torch 2.4, transformers 4.45, 4096 tokens): a sample of
 * Mistral-7B costs FSDP1 with LoRA 30.00 hidden states more than one GPU, on two GPUs as on four. */
static void frozen_units_keep_inputs_and_gradients(void **state)
{
	static const struct {
		const char *config;
		int layers;
	} cases[] = {{MISTRAL(32), 32}, {MISTRAL(12), 12}};
	const uint64_t hidden = 4096 * 4096 * 2;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		double one, two, unsaid, newest;

		p.precision = OOM_BF16;
		p.attn = OOM_ATTN_FLASH;
		p.grad_ckpt = OOM_CKPT_FULL;
		p.fused_ce = OOM_LOSS_FUSED;
		p.seq_len = 4096;
		p.lora_r = 16;
		strcpy(p.lora_targets, "q_proj+k_proj+v_proj+o_proj");
		p.transformers = OOM_VERSION(4, 45);
		one = per_sample(cases[i].config, &p, hidden);
		p.engine = OOM_ENGINE_FSDP1;
		p.zero_stage = 3;
		p.gpus = 2;
		two = per_sample(cases[i].config, &p, hidden);
		if (two - one < cases[i].layers - 2 - 0.01 || two - one > cases[i].layers - 2 + 0.01)
			fail_msg("%d layers: %.3f and %.3f hidden states", cases[i].layers, one, two);
		/* so do runs that name no version: the newest Trainer starts FSDP1 only where it is told to */
		p.transformers = 0;
		unsaid = per_sample(cases[i].config, &p, hidden);
		/* the other way of checkpointing, a checkpoint inside of the units, and another FSDP hold nothing */
		p.transformers = OOM_VERSION(5, 0);
		newest = per_sample(cases[i].config, &p, hidden);
		assert_true(newest < one + 0.01 && unsaid > newest + cases[i].layers - 4);
		p.use_reentrant = OOM_REENTRANT_WRAPPED;
		assert_true(per_sample(cases[i].config, &p, hidden) < one + 0.01);
		p.use_reentrant = OOM_REENTRANT_AUTO;
		p.transformers = OOM_VERSION(4, 45);
		p.engine = OOM_ENGINE_FSDP2;
		assert_true(per_sample(cases[i].config, &p, hidden) < one + 0.01);
		/* nor do blocks that are trained themselves */
		p.engine = OOM_ENGINE_FSDP1;
		p.lora_r = 0;
		assert_true(per_sample(cases[i].config, &p, hidden) < one + 0.01);
	}
}

/* The same benchmarks with Liger's loss and norms (a100_80gb_liger.csv: torch 2.4, transformers 4.45), max_memory_allocated in
 * GiB.  Mistral's flash_attn class copied keys and values to all heads (48 MiB per sample), Llama's did not; FSDP1 gathers
 * nothing ahead under reentrant checkpointing and gives a layer up when it has run (a layer, 416 MiB); what a fused loss
 * leaves is no input of a layer. */
static void layers_of_older_stacks(void **state)
{
	static const char llama3[] =
		"{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 14336, "
		"\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
		"\"vocab_size\": 128256}";
	static const struct {
		const char *config;
		enum oom_loss loss;
		int64_t lora_r, gpus, batch;
		double gib;
	} cases[] = {{MISTRAL(32), OOM_LOSS_FUSED, 16, 1, 8, 30.1686}, {MISTRAL(32), OOM_LOSS_FUSED, 16, 1, 16, 46.6774},
		     {MISTRAL(32), OOM_LOSS_FUSED, 0, 1, 16, 71.8465}, {MISTRAL(32), OOM_LOSS_FUSED, 0, 4, 16, 52.5089},
		     {MISTRAL(32), OOM_LOSS_FUSED, 16, 2, 4, 19.7621}, {MISTRAL(32), OOM_LOSS_FUSED, 16, 2, 16, 55.7753},
		     {llama3, OOM_LOSS_FUSED, 16, 4, 4, 17.9890},      {llama3, OOM_LOSS_FUSED, 16, 4, 8, 29.8059},
		     {llama3, OOM_LOSS_FUSED, 16, 4, 16, 53.4396},
		     /* a kernel that writes the gradient over the copied logits (foak-fast-kernels) */
		     {llama3, OOM_LOSS_IN_PLACE, 0, 4, 4, 44.3168},    {llama3, OOM_LOSS_IN_PLACE, 0, 4, 8, 64.2224}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		double gib;

		p.attn = OOM_ATTN_FLASH;
		p.grad_ckpt = OOM_CKPT_FULL;
		p.fused_ce = cases[i].loss;
		p.liger_kernels = OOM_LIGER_NORM;
		p.seq_len = 4096;
		p.micro_batch = cases[i].batch;
		p.transformers = OOM_VERSION(4, 45);
		p.torch = OOM_VERSION(2, 4);
		p.gpus = cases[i].gpus;
		if (p.gpus > 1) {
			p.engine = OOM_ENGINE_FSDP1;
			p.zero_stage = 3;
		}
		p.precision = p.gpus > 1 && !cases[i].lora_r ? OOM_AMP_BF16 : OOM_BF16_AMP;
		p.lora_r = cases[i].lora_r;
		p.lora_dropout = p.lora_r ? 0.1 : 0;
		if (p.lora_r)
			strcpy(p.lora_targets, "q_proj+k_proj+v_proj+o_proj");
		gib = (double)must(cases[i].config, &p).overall_peak / (1 << 30) + 16.25 / 1024;
		if (fabs(gib / cases[i].gib - 1) > 0.0003)
			fail_msg("case %d: %.4f, measured %.4f GiB", (int)i, gib, cases[i].gib);
	}
}

/* accelerate's autocast around FSDP1's mixed precision (accelerator.py prepare_model) keeps what autocast over 16-bit weights
 * keeps on one GPU: layer norms' inputs and results in fp32.  RMS norms are no operation on its list. */
static void autocast_around_fsdp1(void **state)
{
	static const char gpt2[] = "{\"model_type\": \"gpt2\", \"n_embd\": 1024, \"n_layer\": 6, \"n_head\": 16, "
				   "\"vocab_size\": 50257}";
	struct oom_plan p = oom_plan_default();
	uint64_t one[2], many[2], silent;

	(void)state;
	p.micro_batch = 8;
	p.seq_len = 512;
	for (int i = 0; i < 2; i++) {
		struct oom_eval e;

		p.engine = OOM_ENGINE_HF;
		p.zero_stage = 0;
		p.gpus = 1;
		p.torch_autocast = OOM_AUTOCAST_AUTO;
		p.precision = i ? OOM_BF16_AMP : OOM_BF16;
		e = must(gpt2, &p);
		one[i] = e.end[OOM_PHASE_FWD2] - e.end[OOM_PHASE_OPT1];
		p.engine = OOM_ENGINE_FSDP1;
		p.zero_stage = 3;
		p.gpus = 4;
		p.precision = OOM_AMP_BF16;
		p.torch_autocast = i ? OOM_AUTOCAST_TRUE : OOM_AUTOCAST_FALSE;
		many[i] = must(gpt2, &p).overall_peak;
	}
	/* 6 layers with two norms, 8 MiB a hidden state in bf16: at least the fp32 copies of their inputs */
	assert_true(one[1] - one[0] >= (uint64_t)12 * 16 << 20);
	assert_true(many[1] - many[0] >= (uint64_t)12 * 16 << 20);
	/* nobody says: as accelerate has it under FSDP1, and without it under FSDP2 (_prepare_fsdp2) */
	p.torch_autocast = OOM_AUTOCAST_AUTO;
	silent = must(gpt2, &p).overall_peak;
	assert_int_equal(silent, many[1]);
	p.engine = OOM_ENGINE_FSDP2;
	assert_false(oom_plan_autocasts(&p));
	p.engine = OOM_ENGINE_DEEPSPEED;
	assert_false(oom_plan_autocasts(&p));
	/* llm-foundry's loss comes with its low-precision layer norms */
	p.engine = OOM_ENGINE_FSDP1;
	p.fused_ce = OOM_LOSS_FLASH;
	assert_false(oom_plan_autocasts(&p));
}

/* The way back is the same bytes: nothing is left over by either way of checkpointing. */
static void both_ways_leave_the_same(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval e[2];

	(void)state;
	p.precision = OOM_BF16;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.lora_r = 8;
	strcpy(p.lora_targets, "all-linear");
	for (int engine = 0; engine < 2; engine++) {
		p.engine = engine ? OOM_ENGINE_FSDP1 : OOM_ENGINE_HF;
		p.zero_stage = engine ? 3 : 0;
		p.gpus = engine ? 4 : 1;
		for (int i = 0; i < 2; i++) {
			p.use_reentrant = i ? OOM_REENTRANT_TRUE : OOM_REENTRANT_FALSE;
			e[i] = must(MISTRAL(6), &p);
		}
		assert_int_equal(e[0].end[OOM_PHASE_BWD1], e[1].end[OOM_PHASE_BWD1]);
		assert_int_equal(e[0].end[OOM_PHASE_BWD2], e[1].end[OOM_PHASE_BWD2]);
		assert_int_equal(e[0].end[OOM_PHASE_FWD2], e[1].end[OOM_PHASE_FWD2]);
	}
}

/* The same benchmarks' bytes still allocated when training ends, which hold 16.25 MiB of cuBLAS
 * workspaces besides (ATen CUDABlas.cpp): full fine-tuning in fp32 shards on two and four GPUs, 53.9718
 * and 26.9949 GiB, of which 4 of 16 bytes per parameter are gradients that zero_grad has not freed; 4-bit
 * bases on two and four, 2.0904 and 1.1559 GiB, whose scales no rank divides. */
static void ends_of_a_step(void **state)
{
	static const struct {
		int64_t gpus;
		bool adapters;
		double gib, within;
	} cases[] = {{2, false, 53.9718, 0.001}, {4, false, 26.9949, 0.001}, {2, true, 2.0904, 0.01},
		     /* 52 MiB of it are not explained */
		     {4, true, 1.1559, 0.05}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		double end;

		p.attn = OOM_ATTN_FLASH;
		p.grad_ckpt = OOM_CKPT_FULL;
		p.fused_ce = OOM_LOSS_FUSED;
		p.seq_len = 4096;
		p.micro_batch = 4;
		p.transformers = OOM_VERSION(4, 45);
		p.engine = OOM_ENGINE_FSDP1;
		p.zero_stage = 3;
		p.gpus = cases[i].gpus;
		p.precision = cases[i].adapters ? OOM_BF16_AMP : OOM_AMP_BF16;
		p.lora_r = cases[i].adapters ? 16 : 0;
		p.qlora = cases[i].adapters;
		if (p.lora_r)
			strcpy(p.lora_targets, "q_proj+k_proj+v_proj+o_proj");
		end = (double)must(MISTRAL(32), &p).end[OOM_PHASE_OPT2] / (1 << 30) + 16.25 / 1024;
		if (fabs(end / cases[i].gib - 1) > cases[i].within)
			fail_msg("%d GPUs: %.4f, measured %.4f GiB", (int)p.gpus, end, cases[i].gib);
	}
}

/* fms-acceleration's scripts/benchmarks/refs/a100_80gb.csv (requirements.txt beside it: transformers
 * 4.48.1, torch 2.4.1): max_memory_allocated with 4-bit bases on one GPU, 8 samples of 4096 tokens.
 * Logits take 14 bytes there, 2 of them the model's own while the loss is made, and experts are modules,
 * quantised one by one.  The third is baseline-peft-bnb: TRL 0.13 prepares the model in fp32 and casts embeddings
 * and head back; through fp32 norms every block's input is fp32 all the same. */
static void readings_of_448(void **state)
{
	static const struct {
		const char *config;
		int64_t bytes;
		bool prepared;
	} cases[] = {{MISTRAL(32), 28412178944, false}, {MIXTRAL, 48770183680, false}, {MISTRAL(32), 37002646016, true}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		double peak;

		p.precision = OOM_BF16_AMP;
		p.attn = OOM_ATTN_FLASH;
		p.grad_ckpt = OOM_CKPT_FULL;
		p.optimizer = 0;
		p.fused_ce = OOM_LOSS_PLAIN;
		p.seq_len = 4096;
		p.micro_batch = 8;
		p.qlora = p.double_quant = 1;
		p.kbit_prepare = p.kbit_recast = cases[i].prepared;
		p.lora_r = 16;
		p.lora_dropout = 0.1;
		strcpy(p.lora_targets, "q_proj+k_proj+v_proj+o_proj");
		p.transformers = OOM_VERSION(4, 48);
		p.torch = OOM_VERSION(2, 4);
		peak = (double)must(cases[i].config, &p).overall_peak + 16.25 * (1 << 20);
		if (fabs(peak / (double)cases[i].bytes - 1) > 0.002)
			fail_msg("case %zu: %.0f, measured %lld", i, peak, (long long)cases[i].bytes);
	}
}

/* Adapters that are not cast take their base's type, which bytes are not and 16-bit storage of 4-bit weights is
 * (peft/tuners/tuners_utils.py, _move_adapter_to_device_of_base_layer). */
static void adapters_take_the_type_of_storage(void **state)
{
	static const char llama[] = "{\"model_type\": \"llama\", \"hidden_size\": 512, \"intermediate_size\": 1024, "
				    "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"vocab_size\": 1000}";
	struct oom_plan p = lora_of_two(128);
	uint64_t bytes, own;

	(void)state;
	p.gpus = 1;
	p.engine = OOM_ENGINE_HF;
	p.zero_stage = 0;
	p.qlora = 1;
	p.quant_storage = OOM_QUANT_STORAGE_UINT8;
	bytes = must(llama, &p).grad_bytes;
	p.quant_storage = OOM_QUANT_STORAGE_OWN;
	own = must(llama, &p).grad_bytes;
	assert_int_equal(bytes, 2 * own);
	p.adapter_fp32 = 1;
	assert_int_equal(must(llama, &p).grad_bytes, bytes);
	/* who says nothing has bytes, and the model's own type where weights are divided (peft docs accelerate/fsdp.md,
	 * deepspeed.md) */
	p.adapter_fp32 = 0;
	p.quant_storage = OOM_QUANT_STORAGE_AUTO;
	assert_int_equal(must(llama, &p).grad_bytes, bytes);
	p.gpus = 2;
	for (size_t i = 0; i < 3; i++) {
		static const enum oom_engine_id engines[] = {OOM_ENGINE_FSDP1, OOM_ENGINE_FSDP2, OOM_ENGINE_DEEPSPEED};

		p.engine = engines[i];
		p.zero_stage = 3;
		p.quant_storage = OOM_QUANT_STORAGE_OWN;
		own = must(llama, &p).overall_peak;
		p.quant_storage = OOM_QUANT_STORAGE_AUTO;
		assert_int_equal(must(llama, &p).overall_peak, own);
	}
	p.zero_stage = 2;               /* DeepSpeed's: weights are whole */
	assert_int_equal(must(llama, &p).grad_bytes, bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frozen_units_keep_inputs_and_gradients),
		cmocka_unit_test(layers_of_older_stacks),
		cmocka_unit_test(autocast_around_fsdp1),
		cmocka_unit_test(both_ways_leave_the_same),
		cmocka_unit_test(ends_of_a_step),
		cmocka_unit_test(readings_of_448),
		cmocka_unit_test(adapters_take_the_type_of_storage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
