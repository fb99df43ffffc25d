/* What nvidia-smi showed of runs whose norms, rotary positions and losses were Triton kernels: what they do not allocate
 * leaves other gaps in the allocator's cache.  foundation-model-stack/fms-acceleration, scripts/benchmarks/refs: granite's table
 * of commit ff14d4f (transformers 4.44, no autocast), a100_80gb_liger.csv (4.45, autocast), torch 2.4, an A100, 4096 tokens;
 * peak minus initial, mean over the GPUs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/generations.h"
#include "oomplan/model.h"
#include "generation_configs.h"
#include "priced.h"

static const char power_lm[] =
	"{\"model_type\": \"granite\", \"hidden_size\": 2304, \"intermediate_size\": 9216, \"num_hidden_layers\": 40, "
	"\"num_attention_heads\": 36, \"num_key_value_heads\": 36, \"vocab_size\": 49152, \"attention_dropout\": 0.1, "
	"\"tie_word_embeddings\": true, \"logits_scaling\": 9.0, \"residual_multiplier\": 0.22, \"embedding_multiplier\": 12.0}";

/* fms-hf-tuning resizes embeddings to the tokenizer with the tokens that it adds (tuning/sft_trainer.py): <pad> to Mistral's,
 * <PAD> and <unk> to Llama 3's. */
#define WITH_TOKENS(vocab)                                                                                              \
	"\"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, " \
	"\"num_key_value_heads\": 8, \"vocab_size\": " #vocab "}"
static const char mistral_and_pad[] = "{\"model_type\": \"mistral\", " WITH_TOKENS(32001);
static const char llama3_and_two[] = "{\"model_type\": \"llama\", " WITH_TOKENS(128258);

static const struct reading {
	const char *config;
	enum oom_precision precision;
	enum oom_loss loss;
	int64_t lora_r, gpus, batch, transformers;
	double gib;
} readings[] = {
	{power_lm, OOM_BF16, OOM_LOSS_IN_PLACE, 0, 1, 4, OOM_VERSION(4, 44), 42.3174},
	{power_lm, OOM_BF16, OOM_LOSS_IN_PLACE, 0, 1, 8, OOM_VERSION(4, 44), 48.9033},
	{power_lm, OOM_BF16, OOM_LOSS_IN_PLACE, 16, 1, 4, OOM_VERSION(4, 44), 20.8115},
	{power_lm, OOM_BF16, OOM_LOSS_IN_PLACE, 16, 1, 8, OOM_VERSION(4, 44), 33.8486},
	/* Mistral's class named its copies of keys as what it copied */
	{MISTRAL(32), OOM_BF16_AMP, OOM_LOSS_FUSED, 16, 1, 8, OOM_VERSION(4, 45), 32.1494},
	{MISTRAL(32), OOM_BF16_AMP, OOM_LOSS_FUSED, 16, 1, 16, OOM_VERSION(4, 45), 49.9014},
	{MISTRAL(32), OOM_BF16_AMP, OOM_LOSS_FUSED, 16, 2, 4, OOM_VERSION(4, 45), 23.8193},
	{MISTRAL(32), OOM_BF16_AMP, OOM_LOSS_IN_PLACE, 16, 2, 16, OOM_VERSION(4, 45), 64.6455},
	{MISTRAL(32), OOM_BF16_AMP, OOM_LOSS_IN_PLACE, 16, 4, 16, OOM_VERSION(4, 45), 61.3418},
};

static struct oom_plan of(const struct reading *r)
{
	struct oom_plan p = oom_plan_default();

	p.precision = r->precision;
	p.optimizer = 0;
	p.attn = OOM_ATTN_FLASH;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.fused_ce = r->loss;
	p.liger_kernels = OOM_LIGER_FAST;
	p.seq_len = 4096;
	p.micro_batch = r->batch;
	p.transformers = r->transformers;
	p.torch = OOM_VERSION(2, 4);
	p.compute_capability = 8;
	p.gpus = r->gpus;
	if (p.gpus > 1) {
		p.engine = OOM_ENGINE_FSDP1;
		p.zero_stage = 3;
	}
	p.lora_r = r->lora_r;
	p.lora_dropout = p.lora_r ? 0.1 : 0;
	if (p.lora_r)
		strcpy(p.lora_targets, "q_proj+k_proj+v_proj+o_proj");
	return p;
}

static double used(struct oom_evaluator *ev, const char *config, const struct oom_plan *p)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err = {{0}};
	struct oom_eval e;

	if (oom_keys_parse(&keys, config, strlen(config), "config.json", &err) || oom_model_new(&m, &keys, &err) ||
	    oom_evaluate(ev, m, p, OOM_EVAL_REPLAY, &e, &err))
		fail_msg("%s", err.text);
	assert_true(e.reserved_replayed);
	oom_model_free(m);
	oom_keys_release(&keys);
	return (double)e.used_bytes / (1 << 30);
}

static void what_nvidia_smi_showed(void **state)
{
	struct oom_evaluator *ev = oom_evaluator_new();

	(void)state;
	for (size_t i = 0; i < sizeof(readings) / sizeof(readings[0]); i++) {
		const struct oom_plan p = of(&readings[i]);
		const double gib = used(ev, readings[i].config, &p);

		/* Where the backward pass leaves gaps, how they are filled hangs on the addresses of the segments, which are known
		 * of an H100 alone: full training is 3.4 % too high (3.7 % too low with addresses from the bottom), FSDP 2.4 to
		 * 3.3 % (0.5 % too low to 1.5 % too high). */
		if (fabs(gib / readings[i].gib - 1) > (readings[i].gpus > 1 || !i ? 0.035 : 0.006))
			fail_msg("reading %d: %.3f, measured %.4f GiB", (int)i, gib, readings[i].gib);
	}
	oom_evaluator_free(ev);
}

/* Logits sliced for the shift are a little smaller than the whole ones, and the backward pass makes zeros of both sizes, one
 * after the other: where a whole block does not fit into the segment of a sliced one, three segments of fp32 logits are
 * reserved though two are ever alive. */
static void whole_logits_do_not_fit_where_sliced_ones_were(void **state)
{
	static const struct {
		struct reading r;
		enum { NOT, NF4, GPTQ } bits;
	} cases[] = {
		{{mistral_and_pad, OOM_BF16_AMP, OOM_LOSS_IN_PLACE, 16, 1, 16, OOM_VERSION(4, 45), 64.251}, NOT},
		{{mistral_and_pad, OOM_BF16_AMP, OOM_LOSS_IN_PLACE, 16, 1, 8, OOM_VERSION(4, 45), 31.2041}, NF4},
		{{mistral_and_pad, OOM_BF16_AMP, OOM_LOSS_IN_PLACE, 16, 1, 16, OOM_VERSION(4, 45), 57.751}, NF4},
		{{llama3_and_two, OOM_FP16_AMP, OOM_LOSS_IN_PLACE, 16, 1, 4, OOM_VERSION(4, 45), 39.8662}, GPTQ},
		{{llama3_and_two, OOM_BF16_AMP, OOM_LOSS_IN_PLACE, 16, 1, 8, OOM_VERSION(4, 45), 74.2139}, NF4},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		/* of one evaluator all models would have to live */
		struct oom_evaluator *ev = oom_evaluator_new();
		struct oom_plan p = of(&cases[i].r);
		double gib;

		p.kbit_prepare = 0;
		if (cases[i].bits != NOT)
			p.liger_kernels = OOM_LIGER_FAST_LORA;
		p.qlora = cases[i].bits == NF4;
		if (p.qlora)
			p.double_quant = 1;
		if (cases[i].bits == GPTQ)
			p.base_weights = OOM_BASE_GPTQ;
		gib = used(ev, cases[i].r.config, &p);
		if (fabs(gib / cases[i].r.gib - 1) > 0.012)
			fail_msg("reading %d: %.3f, measured %.4f GiB", (int)i, gib, cases[i].r.gib);
		oom_evaluator_free(ev);
	}
}

/* The same tables over 4-bit bases, max_memory_allocated: Unsloth's LoRA keeps what dropout left of a layer's input and no mask
 * (fused_ops/unsloth_lora/bnb/fast_lora.py; AutoGPTQ's in fp16 likewise). */
static void bases_and_adapters_in_one_function(void **state)
{
	static const char llama3[] = "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 14336, "
				     "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
				     "\"vocab_size\": 128256}";
	static const struct {
		struct reading r;
		bool gptq;
	} cases[] = {
		{{llama3, OOM_BF16_AMP, OOM_LOSS_FUSED, 16, 1, 8, OOM_VERSION(4, 45), 21.3615}, false},
		{{llama3, OOM_FP16_AMP, OOM_LOSS_FUSED, 16, 1, 8, OOM_VERSION(4, 45), 21.3892}, true},
		{{llama3, OOM_FP16_AMP, OOM_LOSS_FUSED, 16, 1, 32, OOM_VERSION(4, 45), 69.0289}, true},
		{{llama3, OOM_BF16_AMP, OOM_LOSS_IN_PLACE, 16, 1, 4, OOM_VERSION(4, 45), 25.3872}, false},
		{{llama3, OOM_BF16_AMP, OOM_LOSS_IN_PLACE, 16, 1, 8, OOM_VERSION(4, 45), 45.2927}, false},
		{{MISTRAL(32), OOM_BF16_AMP, OOM_LOSS_FUSED, 16, 1, 8, OOM_VERSION(4, 45), 20.2673}, false},
		{{MISTRAL(32), OOM_BF16_AMP, OOM_LOSS_IN_PLACE, 16, 1, 16, OOM_VERSION(4, 45), 36.6373}, false},
		{{MISTRAL(32), OOM_FP16_AMP, OOM_LOSS_IN_PLACE, 16, 1, 32, OOM_VERSION(4, 45), 69.2924}, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = of(&cases[i].r);
		double gib;

		p.liger_kernels = OOM_LIGER_FAST_LORA;
		p.kbit_prepare = 0;
		p.bitsandbytes = OOM_VERSION(0, 44);
		p.qlora = !cases[i].gptq;
		if (cases[i].gptq)
			p.base_weights = OOM_BASE_GPTQ;
		gib = (double)must(cases[i].r.config, &p).allocated_bytes / (1 << 30);
		if (fabs(gib / cases[i].r.gib - 1) > 0.0002)
			fail_msg("reading %d: %.4f, measured %.4f GiB", (int)i, gib, cases[i].r.gib);
	}
}

/* With PyTorch's own rotation the second row was taken to need a fifth less. */
static void rotation_fills_gaps(void **state)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = of(&readings[1]);

	(void)state;
	p.liger_kernels = OOM_LIGER_NORM;
	assert_true(used(ev, power_lm, &p) < 0.85 * readings[1].gib);
	oom_evaluator_free(ev);
}

/* A layer that runs again saves what its first run counted.  Counted too few, the second run ended early: half of a full
 * fine-tuning's weights had no gradients and no states. */
static void every_weight_has_states_behind_kernels(void **state)
{
	static const char *const config = MISTRAL(4);
	const double params = 4 * (4096.0 * 4096 * 2 + 2 * 4096.0 * 1024 + 3 * 4096.0 * 14336 + 2 * 4096) + 2 * 32000.0 * 4096 + 4096;

	(void)state;
	for (int kernels = OOM_LIGER_NONE; kernels <= OOM_LIGER_ALL; kernels++)
		for (int compile = 0; compile < 2; compile++) {
			struct oom_plan p = oom_plan_default();
			struct oom_eval e;

			p.precision = OOM_BF16;
			p.optimizer = 0;
			p.attn = OOM_ATTN_SDPA;
			p.grad_ckpt = OOM_CKPT_FULL;
			p.use_reentrant = OOM_REENTRANT_FALSE;
			p.fused_ce = OOM_LOSS_FUSED;
			p.liger_kernels = kernels;
			p.compile = (uint8_t)compile;
			p.micro_batch = 1;
			p.seq_len = 512;
			e = must(config, &p);
			/* weights, gradients and two states of two bytes each are there in the optimizer's step */
			assert_true((double)e.peak[OOM_PHASE_OPT1] >= 8 * params);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_nvidia_smi_showed),
		cmocka_unit_test(whole_logits_do_not_fit_where_sliced_ones_were),
		cmocka_unit_test(bases_and_adapters_in_one_function),
		cmocka_unit_test(rotation_fills_gaps),
		cmocka_unit_test(every_weight_has_states_behind_kernels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
