/* What ranks after a node's first keep cached of FSDP1's loading: over a quantised base alone, and only where the card has
 * room for it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "generation_configs.h"
#include "oomplan/generations.h"
#include "oomplan/model.h"

#define LLAMA_3 "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 14336, " \
		"\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, " \
		"\"vocab_size\": 128258}"

#define GIB ((double)((uint64_t)1 << 30))

static struct oom_plan adapters(int64_t gpus, int64_t batch)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_BF16_AMP;
	p.attn = OOM_ATTN_FLASH;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.fused_ce = OOM_LOSS_FUSED;
	p.liger_kernels = OOM_LIGER_FAST_LORA;
	p.micro_batch = batch;
	p.seq_len = 4096;
	p.lora_r = 16;
	p.lora_dropout = 0.1;
	strcpy(p.lora_targets, "q_proj+k_proj+v_proj+o_proj");
	p.kbit_prepare = 0;
	p.engine = OOM_ENGINE_FSDP1;
	p.zero_stage = 3;
	p.gpus = gpus;
	p.compute_capability = 8;
	p.transformers = OOM_VERSION(4, 45);
	p.torch = OOM_VERSION(2, 4);
	return p;
}

static struct oom_plan four_bit(int64_t gpus, int64_t batch)
{
	struct oom_plan p = adapters(gpus, batch);

	p.qlora = p.double_quant = 1;
	return p;
}

static struct oom_eval replayed(const char *json, const struct oom_plan *p, uint64_t budget, bool *fits)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err;
	struct oom_eval e;
	bool any;

	assert_int_equal(oom_keys_parse(&keys, json, strlen(json), "config.json", &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	if (budget)
		assert_int_equal(oom_judge(ev, m, p, budget, OOM_EVAL_REPLAY, &e, fits ? fits : &any, &err), OOM_OK);
	else if (oom_evaluate(ev, m, p, OOM_EVAL_REPLAY, &e, &err))
		fail_msg("%s", err.text);
	assert_true(e.reserved_replayed);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return e;
}

/* An A100's, as the driver reports it. */
#define CARD ((uint64_t)81051 << 20)
/* NCCL alone, without what it keeps from being used again. */
#define CHANNELS ((uint64_t)1485 << 20)

/* foundation-model-stack/fms-acceleration, scripts/benchmarks/refs/a100_80gb_liger.csv: nvidia-smi's peak less its first
 * reading, the mean over the GPUs (benchmark.py, get_peak_mem_usage_by_device_id), in GiB. */
static void means_over_gpus(void **state)
{
	static const struct {
		const char *config;
		int64_t gpus, batch;
		bool gptq;
		double gib;
	} cases[] = {{LLAMA_3, 2, 8, false, 35.0312}, {LLAMA_3, 2, 16, false, 62.3809}, {LLAMA_3, 4, 4, false, 21.1689},
		     {LLAMA_3, 2, 8, true, 35.6943},  {LLAMA_3, 4, 4, true, 22.7832},   {LLAMA_3, 4, 16, true, 63.7793}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = cases[i].gptq ? adapters(cases[i].gpus, cases[i].batch) :
						    four_bit(cases[i].gpus, cases[i].batch);
		double gib;

		if (cases[i].gptq) {
			p.base_weights = OOM_BASE_GPTQ;
			p.packed_weights = OOM_PACKED_PARAMETERS;
			p.precision = OOM_FP16_AMP;
		}
		gib = (double)replayed(cases[i].config, &p, CARD, NULL).used_bytes / GIB;
		if (fabs(gib / cases[i].gib - 1) > 0.05)
			fail_msg("case %zu: %.2f, measured %.2f GiB", i, gib, cases[i].gib);
	}
}

/* Ranks that load into host memory wait for every copy as the first does (weights in 16 bit), and so do those whose parts
 * go to the host; of a node with one GPU there is no later rank.  The first rank's reserved bytes are as they were. */
static void who_does_not_get_ahead(void **state)
{
	struct oom_plan p = adapters(2, 4);

	(void)state;
	assert_int_equal(replayed(MISTRAL(4), &p, CARD, NULL).nccl_bytes, CHANNELS);
	p = four_bit(2, 4);
	assert_true(replayed(MISTRAL(4), &p, CARD, NULL).nccl_bytes > CHANNELS);
	p.nodes = 2;
	assert_int_equal(replayed(MISTRAL(4), &p, CARD, NULL).nccl_bytes, CHANNELS);
	p.nodes = 1;
	p.offload_params = p.offload_optimizer = OOM_OFFLOAD_CPU;
	assert_int_equal(replayed(MISTRAL(4), &p, CARD, NULL).nccl_bytes, CHANNELS);
	/* transformers 4.44 loads everywhere, as fms-acceleration made 4.45 do until its fc78b55 */
	p = four_bit(2, 4);
	p.transformers = OOM_VERSION(4, 44);
	assert_int_equal(replayed(MISTRAL(4), &p, CARD, NULL).nccl_bytes, CHANNELS);
	p.transformers = OOM_VERSION(4, 45);
	p.quantised_load = OOM_QLOAD_HOST;
	assert_int_equal(replayed(MISTRAL(4), &p, CARD, NULL).nccl_bytes, CHANNELS);
	/* and where all of it is on every card there is nothing to wait for; who names no version has one from before */
	p.quantised_load = OOM_QLOAD_AUTO;
	p.transformers = 0;
	assert_true(replayed(MISTRAL(4), &p, CARD, NULL).nccl_bytes > CHANNELS);
	p.transformers = OOM_VERSION(5, 0);
	assert_int_equal(replayed(MISTRAL(4), &p, CARD, NULL).nccl_bytes, CHANNELS);
	p = four_bit(2, 4);
	p.engine = OOM_ENGINE_FSDP2;
	assert_int_equal(replayed(MISTRAL(4), &p, CARD, NULL).nccl_bytes, CHANNELS);
}

/* A card that has room for the first rank has room for the others, whose cache is given back. */
static void what_is_cached_is_given_back(void **state)
{
	struct oom_plan p = four_bit(4, 4);
	const struct oom_eval free = replayed(LLAMA_3, &p, 0, NULL);
	const uint64_t first = free.used_bytes;
	struct oom_eval e;
	bool fits = false;

	(void)state;
	/* of no card nothing is known */
	assert_int_equal(free.nccl_bytes, CHANNELS);
	p.margin = 0;
	e = replayed(LLAMA_3, &p, first, &fits);
	assert_true(fits);
	assert_int_equal(e.used_bytes, first);
	e = replayed(LLAMA_3, &p, first + 1000000, &fits);
	assert_int_equal(e.used_bytes, first + 1000000);
	assert_int_equal(e.reserved_bytes, free.reserved_bytes);
}

/* transformers 5 loads all of a 4-bit model on each rank's card (quantizers/quantizer_bnb_4bit.py update_device_map): four
 * cards take as much as one for that, and one that has no room for it has none for the run.  The 32 layers have 6.98
 * thousand million weights in half a byte, table and head 0.26 in two bytes. */
static void all_of_it_on_every_card(void **state)
{
	struct oom_plan p = four_bit(4, 1);
	const uint64_t whole = 6979321856 / 2 + (uint64_t)2 * 2 * 32000 * 4096;
	struct oom_eval card, host;
	bool fits = true;

	(void)state;
	p.seq_len = 256;
	p.quantised_load = OOM_QLOAD_CARD;
	card = replayed(MISTRAL(32), &p, 0, NULL);
	p.quantised_load = OOM_QLOAD_HOST;
	host = replayed(MISTRAL(32), &p, 0, NULL);
	assert_int_equal(card.overall_peak, host.overall_peak);
	assert_true(card.reserved_bytes > whole && card.reserved_bytes > host.reserved_bytes);
	assert_true(card.wrap_bytes > host.wrap_bytes + whole);
	p.margin = 0;
	replayed(MISTRAL(32), &p, host.used_bytes, &fits);
	assert_true(fits);
	p.quantised_load = OOM_QLOAD_CARD;
	replayed(MISTRAL(32), &p, host.used_bytes - host.reserved_bytes + whole, &fits);
	assert_false(fits);
}

/* So FSDP2 begins, which transformers 5 starts (accelerate's fsdp2_prepare_model leaves such a model where it is), and ZeRO-3
 * under any version: nothing of a quantised model is made in parts.  torchtune loads parts. */
static void all_of_it_before_parts(void **state)
{
	static const enum oom_engine_id engines[] = {OOM_ENGINE_FSDP2, OOM_ENGINE_DEEPSPEED, OOM_ENGINE_TORCHTUNE};
	const uint64_t whole = 6979321856 / 2 + (uint64_t)2 * 2 * 32000 * 4096;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct oom_plan p = four_bit(8, 1);
		struct oom_eval e, halves;
		bool fits = true;

		p.seq_len = 256;
		p.engine = engines[i];
		p.transformers = 0;
		if (engines[i] == OOM_ENGINE_TORCHTUNE) {
			p.precision = OOM_BF16;
			p.liger_kernels = OOM_LIGER_NONE;
		}
		p.margin = 0;
		e = replayed(MISTRAL(32), &p, 0, NULL);
		assert_true(e.overall_peak < whole);
		replayed(MISTRAL(32), &p, e.used_bytes - e.reserved_bytes + whole, &fits);
		if (engines[i] == OOM_ENGINE_TORCHTUNE) {
			assert_true(e.reserved_bytes < whole);
			continue;
		}
		assert_true(e.reserved_bytes > whole && e.wrap_bytes > whole);
		assert_false(fits);
		/* what is offloaded was on the card before, too */
		p.offload_params = p.offload_optimizer = OOM_OFFLOAD_CPU;
		assert_true(replayed(MISTRAL(32), &p, 0, NULL).reserved_bytes > whole);
		p.offload_params = p.offload_optimizer = OOM_OFFLOAD_NONE;
		/* scales stay whole beside the codes that are divided: about 1/63 of a byte an element */
		p.gpus = 16;
		halves = replayed(MISTRAL(32), &p, 0, NULL);
		assert_true(halves.param_bytes == e.param_bytes && halves.end[OOM_PHASE_LOAD] > 6979321856 / 64);
		p.transformers = OOM_VERSION(4, 50);
		e = replayed(MISTRAL(32), &p, 0, NULL);
		assert_int_equal(e.reserved_bytes < whole, engines[i] == OOM_ENGINE_FSDP2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(means_over_gpus),
		cmocka_unit_test(who_does_not_get_ahead),
		cmocka_unit_test(what_is_cached_is_given_back),
		cmocka_unit_test(all_of_it_on_every_card),
		cmocka_unit_test(all_of_it_before_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
