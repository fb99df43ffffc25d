/* Objectives, losses outside of the model, references, means of weights: what they must add, by hand,
 * beside the measured rows of tests/accuracy/techniques.csv. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tiny_llama.h"

static void what_asks_for_nothing_adds_nothing(void **state)
{
	const struct oom_eval plain = of("precision=bf16");
	static const char *const same[] = {
		"objective=sft", "reference=auto", "loop=auto", "ckpt-every=1", "vllm-sleep=false", "label-smoothing=0", "ema=none", "packing=false",
		"keep-outputs=false", "optimizer-in-backward=false", "completion-len=256",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		char words[100];
		struct oom_eval e;

		snprintf(words, sizeof(words), "precision=bf16 %s", same[i]);
		e = of(words);
		assert_memory_equal(e.peak, plain.peak, sizeof(plain.peak));
	}
}

static void references_are_weights_beside_the_model(void **state)
{
	const uint64_t alone = of("objective=dpo reference=none").peak[OOM_PHASE_LOAD];

	(void)state;
	about(of("objective=dpo reference=model").peak[OOM_PHASE_LOAD], alone, 4 * N, "fp32");
	about(of("objective=dpo").peak[OOM_PHASE_LOAD], alone, 4 * N, "the library's choice");
	assert_int_equal(of("objective=grpo").peak[OOM_PHASE_LOAD], alone);
	/* adapters, 16-bit weights: the reference is the model itself */
	about(of("objective=dpo lora-r=8 lora-targets=q_proj precision=bf16").peak[OOM_PHASE_LOAD],
	      of("objective=dpo lora-r=8 lora-targets=q_proj precision=bf16 reference=none").peak[OOM_PHASE_LOAD], 0,
	      "adapters");
	about(of("objective=dpo lora-r=8 lora-targets=q_proj precision=bf16 reference=model").peak[OOM_PHASE_LOAD],
	      of("objective=dpo lora-r=8 lora-targets=q_proj precision=bf16").peak[OOM_PHASE_LOAD], 2 * N, "both");
	/* ZeRO-3 divides it as it divides the model; stage 2 leaves both whole */
	about(of("objective=dpo engine=deepspeed gpus=8 zero=2").peak[OOM_PHASE_LOAD],
	      of("objective=simpo engine=deepspeed gpus=8 zero=2").peak[OOM_PHASE_LOAD], 4 * N,
	      "stage 2");
	about(of("objective=dpo engine=deepspeed gpus=8 zero=3").peak[OOM_PHASE_LOAD],
	      of("objective=simpo engine=deepspeed gpus=8 zero=3").peak[OOM_PHASE_LOAD], 4 * N / 8,
	      "stage 3");
}

/* Per logit 12 bytes in fp32 (the logits, the stacked gradients of the rows, what the pick is scattered into), as cross
 * entropy has; an emulated card scatters into a second tensor.  Of the completion alone with GRPO, whose division in place
 * has as many. */
static void bytes_per_logit(void **state)
{
	const uint64_t pairs = of("objective=dpo reference=none").peak[OOM_PHASE_BWD1],
		       plain = of("micro-batch=8").peak[OOM_PHASE_BWD1],
		       all = of("objective=grpo completion-len=500").peak[OOM_PHASE_BWD1],
		       half = of("objective=grpo completion-len=250").peak[OOM_PHASE_BWD1];

	(void)state;
	/* one token of each sequence has no successor */
	assert_true(plain > pairs && plain - pairs <= 12 * 2 * B * V);
	about(of("objective=dpo reference=none view-sums=false").peak[OOM_PHASE_BWD1], pairs, 4 * (S - 1) * 2 * B * V,
	      "emulated");
	assert_true(all - half <= 16 * B * 250 * V + 64 * B * S + 4 * B * 250 * H * 4);
	assert_true(all - half >= 16 * B * 250 * V - 64 * B * S - 4 * B * 250 * H * 4);
}

/* Of bf16 logits, at the end of the reference's pass: both models' logits and their log_softmax, each of 2 bytes or, of fp32
 * copies, 4; where the reference makes a loss besides, its logits in both types, the shifted copy and a log_softmax are
 * beside the policy's 8.  Odds of log-probabilities alone take no cross entropy. */
static void log_probabilities_at_once(void **state)
{
	const uint64_t own = of("objective=dpo reference=model precision=bf16 loss=own-type").peak[OOM_PHASE_FWD1],
		       copied = of("objective=dpo reference=model precision=bf16 loss=outside").peak[OOM_PHASE_FWD1],
		       spare = of("objective=dpo reference=model precision=bf16 loss=outside spare-loss=true").peak[OOM_PHASE_FWD1],
		       odds = of("objective=orpo precision=bf16 loss=outside").peak[OOM_PHASE_BWD1];

	(void)state;
	about(copied, own, (4 * S + 4 * (S - 1)) * 2 * B * V, "fp32 copies");
	about(spare, copied, (2 * S + 4 * (S - 1)) * 2 * B * V, "a loss that nobody takes");
	assert_int_equal(odds, of("objective=simpo precision=bf16 loss=outside").peak[OOM_PHASE_BWD1]);
}

/* nn.DataParallel: the first of four GPUs gathers four micro-batches' logits, 4 bytes each, and without checkpoints their keys
 * and values, of one head of 64 in two layers; DDP's buckets are not there, and at the step a replica's gradients are. */
static void the_first_gpu_gathers(void **state)
{
	static const char *const kept[] = {"grad-ckpt=none", "grad-ckpt=full"};
	uint64_t more[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		char words[80];
		uint64_t one;

		snprintf(words, sizeof(words), "%s", kept[i]);
		one = of(words).peak[OOM_PHASE_FWD1];
		snprintf(words, sizeof(words), "%s gpus=4 data-parallel=true", kept[i]);
		more[i] = of(words).peak[OOM_PHASE_FWD1] - one;
	}
	about(more[1], 0, 4 * 4 * B * S * V, "logits");
	about(more[0], more[1], 4 * 2 * 2 * 64 * 4 * B * S, "keys and values");
	assert_int_equal(of("gpus=4 data-parallel=true").peak[OOM_PHASE_BWD1], of("").peak[OOM_PHASE_BWD1]);
	about(of("gpus=4 data-parallel=true").peak[OOM_PHASE_OPT1], of("").peak[OOM_PHASE_OPT1], 4 * N, "gradients");
	assert_int_equal(of("data-parallel=true").overall_peak, of("").overall_peak);
}

/* Single answers: 16 bytes per logit in the backward as with pairs, of half as many rows; in the forward the
 * reference's logits, those of good and bad answers and half of them once more: 4 + 4 + 2 beside the 4. */
static void single_answers(void **state)
{
	const struct oom_eval kto = of("objective=kto reference=none"), dpo = of("objective=dpo reference=none"),
			      beside = of("objective=kto reference=model precision=bf16"),
			      alone = of("objective=kto reference=none precision=bf16");

	(void)state;
	about(kto.peak[OOM_PHASE_BWD1] - kto.end[OOM_PHASE_LOAD],
	      (dpo.peak[OOM_PHASE_BWD1] - dpo.end[OOM_PHASE_LOAD]) / 2, 0, "backward");
	about(beside.end[OOM_PHASE_LOAD], alone.end[OOM_PHASE_LOAD], 2 * N, "reference");
	about(beside.peak[OOM_PHASE_FWD1] - beside.end[OOM_PHASE_LOAD],
	      alone.peak[OOM_PHASE_FWD1] - alone.end[OOM_PHASE_LOAD], 2 * B * S * V, "its logits");
}

/* Of two layers the second is recomputed: half as much is kept as without, but for one more input. */
/* Policy and critic, each with states of its own; beside them a reward model of the critic's kind and a copy of
 * the policy.  A critic is the model with a head of one number instead of the tied one.  A scored token of a
 * rollout has an fp32 number per word, of all samples of a step. */
static void four_models(void **state)
{
	const struct oom_eval alone = of("objective=sft"), none = of("objective=ppo reference=none"),
			      both = of("objective=ppo"), more = of("objective=ppo completion-len=356 grad-accum=3"),
			      less = of("objective=ppo completion-len=256 grad-accum=3");

	(void)state;
	about(none.peak[OOM_PHASE_LOAD], alone.peak[OOM_PHASE_LOAD], 2 * 4 * (N + H), "critic, reward model");
	about(both.peak[OOM_PHASE_LOAD], none.peak[OOM_PHASE_LOAD], 4 * N, "reference");
	assert_int_equal(none.trainable_params, 2 * N + H);
	about(more.peak[OOM_PHASE_OPT2], less.peak[OOM_PHASE_OPT2], 3 * B * 100 * V * 4, "scores");
	/* the adapters' model is its own reference */
	about(of("objective=ppo lora-r=8 lora-targets=q_proj precision=bf16").peak[OOM_PHASE_LOAD],
	      of("objective=ppo lora-r=8 lora-targets=q_proj precision=bf16 reference=none").peak[OOM_PHASE_LOAD], 0,
	      "adapters");
}

static void every_second_layer(void **state)
{
	const uint64_t none = of("precision=bf16").saved_bytes, all = of("precision=bf16 grad-ckpt=full").saved_bytes,
		       half = of("precision=bf16 grad-ckpt=full ckpt-every=2").saved_bytes;

	(void)state;
	about(half - all, none - half, 0, "half");
	/* of two layers no third one; positions, which a recomputation would need, are held all the same */
	about(of("precision=bf16 grad-ckpt=full ckpt-every=3").saved_bytes, none, 0, "none");
}

/* An engine that stays awake takes its share of the card from the training; one that sleeps only has to find it
 * beside weights and states. */
static void rollouts_share_the_card(void **state)
{
	static const struct {
		const char *words;
		uint64_t times;         /* the card: that many tenths of what training uses */
		bool fits;
	} cases[] = {
		{"objective=grpo", 11, true},
		{"objective=grpo vllm-gpu-memory-utilization=0.3", 11, false},
		{"objective=grpo vllm-gpu-memory-utilization=0.3", 16, true},
		{"objective=grpo vllm-gpu-memory-utilization=0.3 vllm-sleep=true", 11, true},
		{"objective=grpo vllm-gpu-memory-utilization=0.9 vllm-sleep=true", 11, false},
	};
	struct oom_error err = {{0}};
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_evaluator *ev = oom_evaluator_new();

	(void)state;
	assert_int_equal(oom_keys_parse(&keys, LLAMA, strlen(LLAMA), "config.json", &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = plan_of(cases[i].words);
		struct oom_eval e;
		bool fits;

		assert_int_equal(oom_evaluate(ev, m, &p, OOM_EVAL_REPLAY, &e, &err), OOM_OK);
		assert_int_equal(oom_judge(ev, m, &p, e.used_bytes / 10 * cases[i].times, OOM_EVAL_FAST, &e,
					   &fits, &err), OOM_OK);
		if (fits != cases[i].fits)
			fail_msg("%s on %llu tenths", cases[i].words, (unsigned long long)cases[i].times);
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

static void outputs_and_means_lie_beside_the_step(void **state)
{
	const struct oom_eval plain = of("precision=bf16"), kept = of("precision=bf16 keep-outputs=true"),
			      mean = of("precision=bf16 ema=foreach"), wide = of("precision=bf16 ema=fp32"),
			      loop = of("precision=bf16 ema=loop"), both = of("precision=bf16 ema=loop-fp32");

	(void)state;
	assert_int_equal(kept.peak[OOM_PHASE_BWD2] - plain.peak[OOM_PHASE_BWD2], 2 * B * S * V);
	about(mean.peak[OOM_PHASE_FWD1], plain.peak[OOM_PHASE_FWD1], 2 * N, "copy");
	about(wide.peak[OOM_PHASE_FWD1], plain.peak[OOM_PHASE_FWD1], 4 * N, "copy in fp32");
	about(mean.peak[OOM_PHASE_OPT2], plain.peak[OOM_PHASE_OPT2], 2 * N, "in place");
	about(wide.peak[OOM_PHASE_OPT2], plain.peak[OOM_PHASE_OPT2], 8 * N, "all cast at once");
	about(loop.peak[OOM_PHASE_OPT2], plain.peak[OOM_PHASE_OPT2], 2 * N + 2 * 2 * V * H, "loop");
	about(both.peak[OOM_PHASE_OPT2], plain.peak[OOM_PHASE_OPT2], 4 * N + 2 * 4 * V * H, "fp32 loop");
}

/* transformers trainer.py, accelerate accelerator.py: outputs of autocast are converted to fp32, where they stand beside the
 * logits of 16 bit and their copy in fp32; the sum of losses, the number of items, the norm from the first step on, a block
 * each; nothing more without autocast. */
static void a_trainer_runs_the_models_own_loss(void **state)
{
	const struct oom_eval own = of("precision=bf16 optimizer=adamw-fused"), trainer = of("precision=bf16 optimizer=adamw-fused loop=trainer"),
			      loose = of("precision=bf16 optimizer=adamw-fused loop=trainer max-grad-norm=0"),
			      amp = of("precision=amp-bf16 optimizer=adamw-fused loop=trainer"),
			      converted = of("precision=amp-bf16 optimizer=adamw-fused convert-outputs-fp32=true");

	(void)state;
	assert_int_equal(trainer.peak[OOM_PHASE_FWD1] - own.peak[OOM_PHASE_FWD1], 2 * 512);
	assert_int_equal(trainer.peak[OOM_PHASE_FWD2] - own.peak[OOM_PHASE_FWD2], 3 * 512);
	assert_int_equal(amp.peak[OOM_PHASE_FWD1] - converted.peak[OOM_PHASE_FWD1], 2 * 512);
	/* max_grad_norm=0: none of 20 gradients (9 for each layer, a table, a norm) has a norm of its own, they are not stacked to a
	 * norm of all, and that has no name afterwards */
	assert_int_equal(trainer.peak[OOM_PHASE_FWD2] - loose.peak[OOM_PHASE_FWD2], 512);
	assert_int_equal(trainer.peak[OOM_PHASE_OPT2] - loose.peak[OOM_PHASE_OPT2], (20 + 1 + 1) * 512 + 512);
	/* what TRL's objectives are run by is not said twice, and may be another's */
	assert_int_equal(of("objective=orpo loop=trainer").peak[OOM_PHASE_FWD2], of("objective=orpo").peak[OOM_PHASE_FWD2]);
	assert_int_equal(of("objective=orpo").peak[OOM_PHASE_FWD2] - of("objective=orpo loop=own").peak[OOM_PHASE_FWD2], 2 * 512);
}

/* The update of the last tensor is a name until the next one's stands (transformers/optimization.py Adafactor.step): before
 * the norms' vectors come two matrices of V x H follow each other where no norm stands between them, in two groups. */
static void a_trainer_steps_matrices_before_vectors(void **state)
{
	const uint64_t own = of("precision=fp32 optimizer=adafactor").peak[OOM_PHASE_OPT2],
		       trainer = of("precision=fp32 optimizer=adafactor loop=trainer").peak[OOM_PHASE_OPT2];

	(void)state;
	assert_true(trainer > own && trainer - own <= 4 * V * H + 4 * 512);
}

/* Gradients are gone when the step comes; the states are there from the first backward on. */
static void stepping_in_backward_spares_the_gradients(void **state)
{
	const struct oom_eval plain = of("precision=bf16 optimizer=adamw-fused"),
			      early = of("precision=bf16 optimizer=adamw-fused optimizer-in-backward=true");

	(void)state;
	about(plain.peak[OOM_PHASE_OPT2], early.peak[OOM_PHASE_OPT2], 2 * N, "gradients");
	assert_int_equal(plain.end[OOM_PHASE_OPT2], early.end[OOM_PHASE_OPT2]);
	/* a list of one tensor */
	assert_true(of("optimizer=adamw optimizer-in-backward=true").peak[OOM_PHASE_OPT2] <
		    of("optimizer=adamw").peak[OOM_PHASE_OPT2] - 4 * N);
}

/* Chunks of 256 tokens: four tensors of logits, whatever the batch. */
static void chunks_do_not_grow_with_the_batch(void **state)
{
	const uint64_t four = of("loss=chunked-nll precision=bf16").peak[OOM_PHASE_FWD1],
		       eight = of("loss=chunked-nll precision=bf16 micro-batch=8").peak[OOM_PHASE_FWD1],
		       plain = of("precision=bf16").peak[OOM_PHASE_FWD1],
		       twice = of("precision=bf16 micro-batch=8").peak[OOM_PHASE_FWD1];

	(void)state;
	assert_true(four < plain && eight - four < (twice - plain) / 4);
	assert_true(of("loss=chunked-nll precision=bf16").peak[OOM_PHASE_BWD1] > 4 * 256 * V * 4);
}

/* Kept of a layer: what its seven products make, and of attention the result, a logsumexp a head and
 * token, two random states. */
static void selective_checkpointing_keeps_what_is_listed(void **state)
{
	const uint64_t tokens = B * S, attention = tokens * (H * 2 + 4 * 4) + 2 * 512,
		       products = tokens * 2 * (H + 64 + 64 + H + 512 + 512 + H),
		       full = of("precision=bf16 grad-ckpt=full").saved_bytes;

	(void)state;
	assert_int_equal(of("precision=bf16 grad-ckpt=selective-attention").saved_bytes - full,
			 2 * attention);
	assert_int_equal(of("precision=bf16 grad-ckpt=selective").saved_bytes - full,
			 2 * (attention + products));
	/* of seven products the first, third, fifth and seventh: q, v, gate, down */
	assert_int_equal(of("precision=bf16 grad-ckpt=selective-op").saved_bytes - full,
			 2 * (attention + tokens * 2 * (H + 64 + 512 + H)));
	assert_int_equal(of("precision=bf16 grad-ckpt=selective").peak[OOM_PHASE_OPT2],
			 of("precision=bf16 grad-ckpt=full").peak[OOM_PHASE_OPT2]);
}

static void a_teacher_is_needed(void **state)
{
	static const char *const taught[] = {"objective=distill", "objective=gkd"};

	(void)state;
	for (size_t i = 0; i < sizeof(taught) / sizeof(taught[0]); i++) {
		const struct oom_plan p = plan_of(taught[i]);
		struct oom_error err = {{0}};
		struct oom_eval e;

		assert_int_equal(price(LLAMA, &p, &e, &err), OOM_ERR_INVALID);
		assert_non_null(strstr(err.text, "--teacher"));
	}
}

static void what_does_not_go_together_says_so(void **state)
{
	static const char *const refused[][2] = {
		{"{\"model_type\": \"bert\"}", "objective=dpo"},
		{"{\"model_type\": \"t5\"}", "objective=orpo"},
		{"{\"model_type\": \"vit\"}", "loss=sft seq-len=0"},
		{LLAMA, "objective=reward task=causal-lm"},
		{LLAMA, "objective=dpo task=seq-cls"},
		{"{\"model_type\": \"bert\"}", "objective=ppo"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const struct oom_plan p = plan_of(refused[i][1]);
		struct oom_error err = {{0}};
		struct oom_eval e;

		if (price(refused[i][0], &p, &e, &err) != OOM_ERR_INVALID ||
		    !strstr(err.text, "another task"))
			fail_msg("%s with %s: \"%s\"", refused[i][0], refused[i][1], err.text);
	}
}

/* Two texts are two passes: what layers keep of one is kept of both, the weights are there once. */
static void texts_are_passes_over_the_same_weights(void **state)
{
	const struct oom_eval two = of("objective=contrastive precision=bf16"),
			      three = of("objective=contrastive precision=bf16 texts=3"),
			      wide = of("objective=contrastive precision=bf16 micro-batch=8");

	(void)state;
	assert_int_equal(two.total_params, three.total_params);
	assert_int_equal(two.buffer_bytes, three.buffer_bytes);
	assert_int_equal(3 * two.input_bytes, 2 * three.input_bytes);
	about(3 * two.saved_bytes, 2 * three.saved_bytes, 0, "three of them keep half as much again");
	/* as do twice as many, but for what is one a text (tables of positions) */
	assert_in_range(wide.saved_bytes, 2 * two.saved_bytes - two.saved_bytes / 50, 2 * two.saved_bytes);
	/* no head over the vocabulary, no bytes per logit */
	assert_true(two.overall_peak < of("precision=bf16").overall_peak);
}

/* A family whose models have no such head says so, whatever it would have run instead. */
static void heads_that_a_type_has_not(void **state)
{
	static const char *const tasks[] = {"task=token-cls", "objective=contrastive"};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const struct oom_plan p = plan_of(tasks[i]);
		struct oom_error err = {{0}};
		struct oom_eval e;

		assert_int_equal(price("{\"model_type\": \"xlnet\"}", &p, &e, &err), OOM_ERR_INVALID);
		assert_non_null(strstr(err.text, "not modelled for xlnet"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_asks_for_nothing_adds_nothing),
		cmocka_unit_test(references_are_weights_beside_the_model),
		cmocka_unit_test(bytes_per_logit),
		cmocka_unit_test(log_probabilities_at_once),
		cmocka_unit_test(the_first_gpu_gathers),
		cmocka_unit_test(single_answers),
		cmocka_unit_test(four_models),
		cmocka_unit_test(every_second_layer),
		cmocka_unit_test(rollouts_share_the_card),
		cmocka_unit_test(outputs_and_means_lie_beside_the_step),
		cmocka_unit_test(a_trainer_runs_the_models_own_loss),
		cmocka_unit_test(a_trainer_steps_matrices_before_vectors),
		cmocka_unit_test(stepping_in_backward_spares_the_gradients),
		cmocka_unit_test(chunks_do_not_grow_with_the_batch),
		cmocka_unit_test(selective_checkpointing_keeps_what_is_listed),
		cmocka_unit_test(a_teacher_is_needed),
		cmocka_unit_test(what_does_not_go_together_says_so),
		cmocka_unit_test(texts_are_passes_over_the_same_weights),
		cmocka_unit_test(heads_that_a_type_has_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
