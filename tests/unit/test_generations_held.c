/* Library generations: in which type, and how many, parameters are held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/generations.h"
#include "oomplan/option.h"
#include "generation_configs.h"
#include "priced.h"

/* PEFT made adapters in fp32 until 0.6 (tuners/lora.py 0.5: new weights were moved to their base's device alone), in the
 * type of a 16-bit base until 0.11, and since then makes them fp32 again: of r = 8 on q_proj 8 (4096 + 4096) elements per layer. */
static void types_of_adapters(void **state)
{
	static const struct {
		int64_t minor, bytes;
	} cases[] = {{5, 4}, {6, 2}, {10, 2}, {11, 4}, {17, 4}};
	struct oom_plan p = oom_plan_default();
	uint64_t none;

	(void)state;
	p.precision = OOM_BF16;
	none = must(MISTRAL(2), &p).param_bytes;
	p.lora_r = 8;
	strcpy(p.lora_targets, "q_proj");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		p.peft = OOM_VERSION(0, cases[i].minor);
		assert_int_equal(must(MISTRAL(2), &p).param_bytes - none, 2 * 8 * (4096 + 4096) * cases[i].bytes);
	}
}

#define T5_LIKE(type) \
	"{\"model_type\": \"" type "\", \"vocab_size\": 1000, \"d_model\": 64, \"d_ff\": 128, \"d_kv\": 16, " \
	"\"num_layers\": 2, \"num_heads\": 4, \"tie_word_embeddings\": false}"

/* Parameters of transformers 5.12.1's classes on the meta device, for configs that ask for a head of their own:
 * T5's and three of its relatives get none.  Until 4.57 it was one more matrix of 1000 x 64. */
static void heads_of_t5(void **state)
{
	static const struct {
		const char *config;
		uint64_t params, more;
	} cases[] = {{T5_LIKE("t5"), 228864, 64000}, {T5_LIKE("mt5"), 261632, 64000},
		     {T5_LIKE("umt5"), 261888, 64000}, {T5_LIKE("udop"), 458880, 64000},
		     {T5_LIKE("longt5"), 420864, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();

		p.seq_len = 64;
		assert_int_equal(must(cases[i].config, &p).total_params, cases[i].params);
		p.transformers = OOM_VERSION(4, 57);
		assert_int_equal(must(cases[i].config, &p).total_params, cases[i].params + cases[i].more);
	}
}

static void adapters_before_011(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval now, then;

	(void)state;
	p.precision = OOM_BF16;
	p.lora_r = 8;
	strcpy(p.lora_targets, "q_proj");
	now = must(MISTRAL(2), &p);
	p.peft = OOM_VERSION(0, 10);
	then = must(MISTRAL(2), &p);
	assert_int_equal(now.param_bytes - then.param_bytes, 2 * now.trainable_params);
	assert_int_equal(now.trainable_params, 2 * 8 * (4096 + 4096));
}

/* accelerate 1.6 to 1.12 made fp32 of the whole 16-bit model that FSDP2 had divided (utils/fsdp_utils.py fsdp2_prepare_model,
 * model.to(torch.float32)), 1.13 of what trains alone (huggingface/accelerate#3848).  Adapters are in fp32 both times. */
static void frozen_weights_under_fsdp2(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval now, then;

	(void)state;
	p.precision = OOM_BF16_AMP;
	p.engine = OOM_ENGINE_FSDP2;
	p.gpus = 4;
	p.zero_stage = 3;
	p.lora_r = 8;
	strcpy(p.lora_targets, "q_proj");
	p.accelerate = OOM_VERSION(1, 13);
	now = must(MISTRAL(2), &p);
	p.accelerate = OOM_VERSION(1, 12);
	then = must(MISTRAL(2), &p);
	assert_int_equal(then.peak[OOM_PHASE_LOAD] - now.peak[OOM_PHASE_LOAD],
			 2 * (now.total_params - now.trainable_params) / 4);
	assert_int_equal(then.trainable_params, now.trainable_params);
	/* FSDP1 casts what trains, in all versions */
	p.engine = OOM_ENGINE_FSDP1;
	then = must(MISTRAL(2), &p);
	p.accelerate = 0;
	now = must(MISTRAL(2), &p);
	assert_int_equal(then.peak[OOM_PHASE_LOAD], now.peak[OOM_PHASE_LOAD]);
}

/* Until 0.14.1 every stage of ZeRO stepped the optimizer once while its engine was made (deepspeedai/DeepSpeed#5104): two fp32
 * states of the rank's part are there in the first forward pass. */
static void states_before_the_first_step(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval now, then;

	(void)state;
	p.precision = OOM_BF16;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.gpus = 4;
	p.zero_stage = 3;
	p.micro_batch = 1;
	p.seq_len = 256;
	p.deepspeed = OOM_VERSION(0, 14);
	now = must(MISTRAL(2), &p);
	p.deepspeed = OOM_VERSION(0, 13);
	then = must(MISTRAL(2), &p);
	/* the partition is of whole blocks */
	assert_in_range(then.peak[OOM_PHASE_FWD1] - now.peak[OOM_PHASE_FWD1], 2 * 4 * now.total_params / 4,
			2 * 4 * now.total_params / 4 + 4096);
	assert_int_equal(then.peak[OOM_PHASE_FWD2], now.peak[OOM_PHASE_FWD2]);
}

/* From 0.14.1 to 0.16 the step's result came back from the host in fp32 (deepspeedai/DeepSpeed#5301, #7309): four bytes of the
 * rank's part beside all weights in two, whatever the pass before it took. */
static void steps_of_the_host(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval now, then, before;

	(void)state;
	p.precision = OOM_BF16;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.gpus = 2;
	p.zero_stage = 2;
	p.offload_optimizer = OOM_OFFLOAD_CPU;
	p.micro_batch = 1;
	p.seq_len = 256;
	now = must(MISTRAL(2), &p);
	p.deepspeed = OOM_VERSION(0, 16);
	then = must(MISTRAL(2), &p);
	p.deepspeed = OOM_VERSION(0, 13);
	before = must(MISTRAL(2), &p);
	/* the partition is of whole blocks */
	assert_in_range(then.peak[OOM_PHASE_OPT2] - now.peak[OOM_PHASE_OPT2], 4 * now.total_params / 2,
			4 * now.total_params / 2 + 4096);
	assert_int_equal(then.peak[OOM_PHASE_BWD2], now.peak[OOM_PHASE_BWD2]);
	assert_int_equal(before.peak[OOM_PHASE_OPT2], now.peak[OOM_PHASE_OPT2]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types_of_adapters),
		cmocka_unit_test(heads_of_t5),
		cmocka_unit_test(adapters_before_011),
		cmocka_unit_test(frozen_weights_under_fsdp2),
		cmocka_unit_test(states_before_the_first_step),
		cmocka_unit_test(steps_of_the_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
