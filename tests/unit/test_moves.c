/* One step of each change, and the ladder's rungs over them: which knobs it changes, and that it leaves all
 * others.  What is expected is said beside each row: arithmetic on the batch, a framework's code, or the
 * playbook's order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "knobs.h"
#include "ladder/moves.h"
#include "oomplan/ladder.h"

static struct oom_model *text, *image;

static struct oom_model *model_of(const char *json)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err = {{0}};

	if (oom_keys_parse(&keys, json, strlen(json), "config.json", &err) || oom_model_new(&m, &keys, &err))
		fail_msg("%s: %s", json, err.text);
	oom_keys_release(&keys);
	return m;
}

static int make_models(void **state)
{
	(void)state;
	text = model_of("{\"model_type\": \"llama\"}");
	image = model_of("{\"model_type\": \"vit\", \"image_size\": 224}");
	return 0;
}

static int free_models(void **state)
{
	(void)state;
	oom_model_free(text);
	oom_model_free(image);
	return 0;
}

/* Every knob of the two, by its word. */
static void assert_same_knobs(const struct oom_plan *got, const struct oom_plan *want, const char *what)
{
	char a[OOM_VALUE_SIZE], b[OOM_VALUE_SIZE];

	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);

		oom_plan_get(got, k, a, sizeof(a));
		oom_plan_get(want, k, b, sizeof(b));
		if (strcmp(a, b))
			fail_msg("%s: %s became %s, not %s", what, k->name, a, b);
	}
}

/* A plan in words, and what the step makes of it; NULL: there is no step. */
struct step {
	oom_move *move;
	const char *from, *changes;
};

static void take_each(const struct step *step, size_t n, const struct oom_model *m)
{
	for (size_t i = 0; i < n; i++) {
		struct oom_plan p = oom_plan_default(), want;

		set(&p, step[i].from);
		want = p;
		set(&want, step[i].changes ? step[i].changes : "");
		if (step[i].move(&p, m) != (step[i].changes != NULL))
			fail_msg("row %zu, %s: %s", i, step[i].from, step[i].changes ? "no step" : "a step");
		assert_same_knobs(&p, &want, step[i].from);
	}
}
#define TAKE_EACH(steps, model) take_each(steps, sizeof(steps) / sizeof((steps)[0]), model)

/* The next divisor below of what a GPU sees a step: 8 = 4 x 2, 6 x 2 = 4 x 3 (5 does not divide 12),
 * 7 is prime. */
static void a_smaller_batch(void **state)
{
	static const struct step steps[] = {
		{move_to_smaller_batch, "micro-batch=8 grad-accum=1", "micro-batch=4 grad-accum=2"},
		{move_to_smaller_batch, "micro-batch=6 grad-accum=2", "micro-batch=4 grad-accum=3"},
		{move_to_smaller_batch, "micro-batch=7 grad-accum=1", "micro-batch=1 grad-accum=7"},
		{move_to_smaller_batch, "micro-batch=3 grad-accum=4 gpus=2", "micro-batch=2 grad-accum=6"},
		{move_to_smaller_batch, "micro-batch=1 grad-accum=8", NULL},
	};

	(void)state;
	TAKE_EACH(steps, text);
}

/* The sequences of a step stay, and no divisor is passed over, whatever the batch. */
static void batches_keep_their_product(void **state)
{
	(void)state;
	for (int64_t micro = 1; micro <= 36; micro++)
		for (int64_t accum = 1; accum <= 6; accum++) {
			struct oom_plan p = oom_plan_default();
			int64_t divisors = 0, steps = 0;

			for (int64_t d = 1; d < micro; d++)
				divisors += micro * accum % d == 0;
			p.micro_batch = micro;
			p.grad_accum = accum;
			while (move_to_smaller_batch(&p, text)) {
				steps++;
				assert_int_equal(p.micro_batch * p.grad_accum, micro * accum);
			}
			assert_int_equal(steps, divisors);
			assert_int_equal(p.micro_batch, 1);
		}
}

/* bf16 begins with compute capability 8.0 (CUDA C++ Programming Guide, arithmetic instructions); a card that
 * nobody named counts as one.  fp16 weights are for frozen ones: a GradScaler refuses fp16 gradients
 * (torch/amp/grad_scaler.py, "Attempting to unscale FP16 gradients"), those of adapters are fp32. */
static void narrower_numbers(void **state)
{
	static const struct step steps[] = {
		{move_to_16_bit, "precision=fp32", "precision=amp-bf16"},
		{move_to_16_bit, "precision=fp32 compute-capability=8", "precision=amp-bf16"},
		{move_to_16_bit, "precision=fp32 compute-capability=7.5", "precision=amp-fp16"},
		{move_to_16_bit, "precision=amp-bf16", NULL},
		{move_to_16_bit, "precision=bf16", NULL},
		{move_to_16_bit_weights, "precision=fp32", "precision=bf16"},
		{move_to_16_bit_weights, "precision=amp-bf16", "precision=bf16"},
		{move_to_16_bit_weights, "precision=amp-bf16 lora-r=8", "precision=bf16-amp"},
		{move_to_16_bit_weights, "precision=amp-fp16 lora-r=8", "precision=fp16-amp"},
		{move_to_16_bit_weights, "precision=fp32 lora-r=8 compute-capability=7", "precision=fp16-amp"},
		{move_to_16_bit_weights, "precision=amp-fp16", NULL},
		{move_to_16_bit_weights, "precision=fp32 compute-capability=7", NULL},
		{move_to_16_bit_weights, "precision=bf16", NULL},
		/* of a 4-bit base what PEFT's prepare_model_for_kbit_training made fp32 */
		{move_to_16_bit_weights, "precision=bf16-amp lora-r=8 qlora=1 kbit-prepare=1", "kbit-prepare=0"},
		{move_to_16_bit_weights, "precision=bf16-amp lora-r=8 qlora=1 kbit-prepare=1 kbit-recast=1",
		 "kbit-prepare=0 kbit-recast=0"},
		{move_to_16_bit_weights, "precision=bf16-amp lora-r=8 qlora=1 kbit-prepare=0", NULL},
	};

	(void)state;
	TAKE_EACH(steps, text);
}

static void switches(void **state)
{
	static const struct step steps[] = {
		{move_to_checkpoints, "grad-ckpt=none", "grad-ckpt=full"},
		{move_to_checkpoints, "grad-ckpt=selective", "grad-ckpt=full"},
		{move_to_checkpoints, "grad-ckpt=full", NULL},
		{move_to_expandable, "allocator=native", "allocator=expandable_segments"},
		{move_to_expandable, "allocator=expandable_segments", NULL},
		{move_to_sdpa, "attn=eager", "attn=sdpa"},
		{move_to_sdpa, "attn=sdpa", NULL},
		{move_to_sdpa, "attn=flash", NULL},
	};

	(void)state;
	TAKE_EACH(steps, text);
}

/* Halves, down to 128 tokens; 0 is what stands for the config's own side, 224. */
static void shorter_inputs(void **state)
{
	static const struct step tokens[] = {
		{move_to_shorter, "seq-len=2048", "seq-len=1024"},
		{move_to_shorter, "seq-len=1000 tgt-len=256", "seq-len=500 tgt-len=128"},
		{move_to_shorter, "seq-len=256", "seq-len=128"},
		{move_to_shorter, "seq-len=255", NULL},
	}, pixels[] = {
		{move_to_shorter, "seq-len=0 image-size=0", "image-size=112"},
		{move_to_shorter, "seq-len=0 image-size=384", "image-size=192"},
		{move_to_shorter, "seq-len=0 image-size=32", "image-size=16"},
		{move_to_shorter, "seq-len=0 image-size=31", NULL},
	};

	(void)state;
	TAKE_EACH(tokens, text);
	TAKE_EACH(pixels, image);
}

/* bitsandbytes' 8-bit AdamW, then the same on pages, then nothing; of Adafactor it has no 8-bit form. */
static void smaller_states(void **state)
{
	static const struct step steps[] = {
		{move_to_small_states, "optimizer=adamw", "optimizer=adamw-8bit-embfp32"},
		{move_to_small_states, "optimizer=adamw-fused", "optimizer=adamw-8bit-embfp32"},
		{move_to_small_states, "optimizer=adamw-8bit", "optimizer=paged-adamw-8bit"},
		{move_to_small_states, "optimizer=paged-adamw-8bit", NULL},
		{move_to_small_states, "optimizer=adafactor", NULL},
	};

	(void)state;
	TAKE_EACH(steps, text);
}

/* ZeRO's stages (arXiv:1910.02054, section 5); FSDP's are SHARD_GRAD_OP, 2, and FULL_SHARD, 3; Megatron's
 * distributed optimizer is stage 1 alone.  GPUs of a device map work in turn on one batch: sharded, each takes
 * its part, 8 = 4 x 2 x 1, and 8 x 2 = 4 x 4 x 1; 4 x 3 on four GPUs are 3 each; 6 does not divide by 4. */
static void more_shards(void **state)
{
	static const struct step steps[] = {
		{move_to_shards, "engine=hf gpus=1", NULL},
		{move_to_shards, "engine=hf gpus=2", "engine=deepspeed zero=1"},
		{move_to_shards, "engine=deepspeed gpus=2 zero=1", "zero=2"},
		{move_to_shards, "engine=deepspeed gpus=2 zero=2", "zero=3"},
		{move_to_shards, "engine=deepspeed gpus=2 zero=3", NULL},
		{move_to_shards, "engine=fsdp2 gpus=4 zero=0", "zero=2"},
		{move_to_shards, "engine=fsdp1 gpus=4 zero=2", "zero=3"},
		{move_to_shards, "engine=megatron gpus=4 zero=0", "zero=1"},
		{move_to_shards, "engine=megatron gpus=4 zero=1", NULL},
		{move_to_shards, "engine=device-map gpus=4 micro-batch=8", "engine=deepspeed zero=3 micro-batch=2"},
		{move_to_shards, "engine=device-map gpus=4 micro-batch=8 grad-accum=2",
		 "engine=deepspeed zero=3 micro-batch=4 grad-accum=1"},
		{move_to_shards, "engine=device-map gpus=4 micro-batch=4 grad-accum=3",
		 "engine=deepspeed zero=3 micro-batch=3 grad-accum=1"},
		{move_to_shards, "engine=device-map gpus=4 micro-batch=6", NULL},
	};
	static const struct {
		const char *from, *changes;
	} many[] = {{"engine=hf gpus=8", "engine=fsdp2 zero=3"}, {"engine=hf gpus=1", NULL},
		    {"engine=deepspeed gpus=8 zero=0", NULL}, {"engine=fsdp2 gpus=8 zero=2", NULL}};

	(void)state;
	TAKE_EACH(steps, text);
	for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++) {
		struct oom_plan p = oom_plan_default(), want;

		set(&p, many[i].from);
		want = p;
		set(&want, many[i].changes ? many[i].changes : "");
		assert_int_equal(shard_for_many(&p), many[i].changes != NULL);
		assert_same_knobs(&p, &want, many[i].from);
	}
	assert_int_equal(plain_engine(), OOM_ENGINE_HF);
}

/* ZeRO-Offload takes gradients and states of stage 2 and above, parameters those of stage 3 (DeepSpeed
 * docs/_pages/config-json.md, offload_optimizer and offload_param); FSDP's CPUOffloadPolicy takes all at
 * once. */
static void to_the_host(void **state)
{
	static const struct step steps[] = {
		{move_to_host, "engine=hf gpus=1", "engine=deepspeed zero=2 offload-optimizer=cpu"},
		{move_to_host, "engine=deepspeed gpus=2 zero=1", "zero=2 offload-optimizer=cpu"},
		{move_to_host, "engine=deepspeed gpus=2 zero=3", "offload-optimizer=cpu"},
		{move_to_host, "engine=deepspeed gpus=2 zero=2 offload-optimizer=cpu", "zero=3 offload-params=cpu"},
		{move_to_host, "engine=deepspeed gpus=2 zero=3 offload-optimizer=nvme", "offload-params=cpu"},
		{move_to_host, "engine=deepspeed gpus=2 zero=3 offload-optimizer=cpu offload-params=cpu", NULL},
		{move_to_host, "engine=fsdp2 gpus=2 zero=2", "zero=3 offload-params=cpu"},
		{move_to_host, "engine=megatron gpus=2", NULL},
	};

	(void)state;
	TAKE_EACH(steps, text);
}

/* PEFT's targets of Llama (peft/utils/constants.py); QLoRA computes in 16 bit (arXiv:2305.14314). */
static void adapters(void **state)
{
	static const struct step steps[] = {
		{move_to_adapters, "precision=amp-bf16", "lora-r=16 lora-targets=q_proj+v_proj"},
		{move_to_adapters, "lora-targets=all-linear", "lora-r=16"},
		{move_to_adapters, "lora-r=8 precision=fp32", "qlora=1 kbit-prepare=1 precision=bf16-amp"},
		{move_to_adapters, "lora-r=8 precision=amp-bf16", "qlora=1 kbit-prepare=1 precision=bf16-amp"},
		{move_to_adapters, "lora-r=8 precision=fp32 compute-capability=7.5",
		 "qlora=1 kbit-prepare=1 precision=fp16-amp"},
		{move_to_adapters, "lora-r=8 precision=bf16", "qlora=1 kbit-prepare=1"},
		{move_to_adapters, "lora-r=8 qlora=1", NULL},
	};

	(void)state;
	TAKE_EACH(steps, text);
}

/* The playbook's ten, sharding over GPUs that are there before quantised states; each is the step of its name,
 * and what it says it alone sets is among what it sets. */
static void rungs_are_these_moves(void **state)
{
	static const struct {
		int number;
		oom_move *move;
		enum oom_allow allow;
	} want[OOM_RUNGS] = {{1, move_to_smaller_batch, 0},	{2, move_to_16_bit, 0},
			     {3, move_to_checkpoints, 0},	{4, move_to_expandable, 0},
			     {5, move_to_sdpa, 0},		{6, move_to_shorter, OOM_ALLOW_SEQ_LEN},
			     {8, move_to_shards, 0},		{7, move_to_small_states, 0},
			     {9, move_to_host, 0},		{10, move_to_adapters, OOM_ALLOW_LORA}};

	(void)state;
	for (size_t i = 0; i < OOM_RUNGS; i++) {
		const struct oom_rung *r = oom_rung_at(i);
		struct oom_plan from = oom_plan_default(), to;

		set(&from, "precision=fp32 grad-ckpt=none allocator=native attn=eager optimizer=adamw engine=hf gpus=2 "
			   "micro-batch=4 seq-len=1024");
		assert_int_equal(r->number, want[i].number);
		assert_ptr_equal(r->apply, want[i].move);
		assert_int_equal(r->allow, want[i].allow);
		/* the science is changed only where that is allowed, and where it is, it is */
		assert_int_equal(r->cls == OOM_SCIENCE, r->allow != 0);
		assert_ptr_equal(oom_rung_numbered(r->number), r);
		to = from;
		while (r->apply(&to, text))
			assert_int_equal(to.micro_batch * to.grad_accum, 4 * from.grad_accum);
		for (size_t k = 0; k < sizeof(r->knobs) / sizeof(r->knobs[0]) && r->knobs[k]; k++) {
			const struct oom_option *o = oom_knob_find(r->knobs[k]);

			assert_non_null(o);
			if (*oom_plan_field(&to, o) == *oom_plan_field(&from, o))
				fail_msg("rung %d leaves %s", r->number, o->name);
		}
	}
	assert_null(oom_rung_at(OOM_RUNGS));
	assert_null(oom_rung_numbered(0));
	assert_null(oom_rung_numbered(11));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_smaller_batch),
		cmocka_unit_test(batches_keep_their_product),
		cmocka_unit_test(narrower_numbers),
		cmocka_unit_test(switches),
		cmocka_unit_test(shorter_inputs),
		cmocka_unit_test(smaller_states),
		cmocka_unit_test(more_shards),
		cmocka_unit_test(to_the_host),
		cmocka_unit_test(adapters),
		cmocka_unit_test(rungs_are_these_moves),
	};

	return cmocka_run_group_tests(tests, make_models, free_models);
}
