/* What engines make of the types of weights, gradients and states: bytes of whole evaluations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* cmocka wants the four above */
#include <cmocka.h>

#include "oomplan/engine.h"
#include "oomplan/rules.h"
#include "step/engines.h"
#include "step/pass.h"

static struct oom_eval eval_as(const char *name, const struct oom_plan *p, unsigned flags)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err = {{0}};
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_eval e;

	assert_int_equal(oom_keys_read_model(&keys, name, &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	if (oom_evaluate(ev, m, p, flags, &e, &err))
		fail_msg("%s", err.text);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return e;
}

static struct oom_eval eval_of(const char *name, const struct oom_plan *p)
{
	return eval_as(name, p, OOM_EVAL_FAST);
}

static uint64_t peak_of(const char *name, const struct oom_plan *p)
{
	return eval_of(name, p).overall_peak;
}

/* bf16.enabled is module.bfloat16() and an fp32 master (deepspeed/runtime/engine.py), whatever the word
 * of the plan; autocast over fp32 weights is asked for apart. */
static void test_deepspeed_mixed_precision(void **state)
{
	struct oom_plan p = oom_plan_default(), half;

	(void)state;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.gpus = 4;
	for (p.zero_stage = 1; p.zero_stage <= 3; p.zero_stage++) {
		half = p;
		p.precision = OOM_AMP_BF16;
		half.precision = OOM_BF16;
		assert_int_equal(peak_of("GPT-2", &p), peak_of("GPT-2", &half));
		p.precision = OOM_AMP_FP16;
		half.precision = OOM_FP16;
		assert_int_equal(peak_of("GPT-2", &p), peak_of("GPT-2", &half));
		p.torch_autocast = OOM_AUTOCAST_TRUE;
		assert_true(peak_of("GPT-2", &p) > peak_of("GPT-2", &half));
		p.torch_autocast = OOM_AUTOCAST_AUTO;
	}
}

/* torchtune's adapters have the recipe's type, its AdamW two states of it (recipes/lora_finetune_single_device.py), and
 * fp32 stays fp32. */
static void test_torchtune_adapters(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval e;

	(void)state;
	p.engine = OOM_ENGINE_TORCHTUNE;
	p.precision = OOM_BF16;
	p.lora_r = 8;
	strcpy(p.lora_targets, "q_proj+v_proj");
	e = eval_of("Llama-3.2-1B", &p);
	assert_in_range(e.opt_bytes, 4 * e.trainable_params, 4 * e.trainable_params + 4096);
	/* on a 4-bit base as well, where PEFT's would be fp32 (modules/peft/lora.py: to_nf4 of the weight alone) */
	p.qlora = true;
	e = eval_of("Llama-3.2-1B", &p);
	assert_in_range(e.opt_bytes, 4 * e.trainable_params, 4 * e.trainable_params + 4096);
	p.qlora = false;
	p.precision = OOM_FP32;
	oom_engine_respell(&p);
	assert_int_equal(p.precision, OOM_FP32);
}

/* Compiled, a part's loss keeps its 16-bit logits, where else fp32 log-probabilities wait: 2 of 4 bytes each. */
static void test_compiled_chunks(void **state)
{
	struct oom_plan p = oom_plan_default();
	uint64_t eager, compiled;

	(void)state;
	p.engine = OOM_ENGINE_TORCHTUNE;
	p.precision = OOM_BF16;
	p.fused_ce = OOM_LOSS_CHUNKED;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.lora_r = 8;
	strcpy(p.lora_targets, "q_proj+v_proj");
	p.micro_batch = 2;
	p.seq_len = 4096;
	eager = eval_of("Llama-3.2-1B", &p).overall_peak;
	p.compile = 1;
	compiled = eval_of("Llama-3.2-1B", &p).overall_peak;
	assert_true(eager - compiled >= (uint64_t)2 * 8192 * 128256);
}

static void assert_close_to(uint64_t got, double want, double slack)
{
	if ((double)got < want - slack || (double)got > want + slack)
		fail_msg("%llu bytes, expected %.0f", (unsigned long long)got, want);
}

/* data_types.grad_accum_dtype fp32 over 16-bit weights, of GPT-2's 124,439,808 elements on four ranks, by
 * hand from deepspeed/runtime: in stage 1 bf16_optimizer.py's flat buffer of 4 bytes per element, whole and
 * for good, of which the step's gradient is a view (without it: a cast of a quarter), beside 16-bit gradients that
 * wait for zero_grad (without it they are reduced and gone when the step begins: 2 bytes); in fp16
 * param.grad_accum in 4 bytes for .grad's 2; in stage 2 nothing more; in stage 3 a part of 4 bytes for 2,
 * and in the backward what a bucket was reduced to, cast (5e8 elements: all of the rank's part). */
static void test_fp32_grad_accum(void **state)
{
	enum { N = 124439808, SLACK = 64 << 10 };       /* blocks of 512 bytes, of 148 tensors */
	struct oom_plan p = oom_plan_default(), wide;
	struct oom_eval a, b;

	(void)state;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.precision = OOM_BF16;
	p.gpus = 4;
	p.zero_stage = 1;
	wide = p;
	wide.fp32_grads = 1;
	a = eval_of("GPT-2", &p);
	b = eval_of("GPT-2", &wide);
	assert_close_to(b.end[OOM_PHASE_OPT2] - a.end[OOM_PHASE_OPT2], 4.0 * N, SLACK);
	assert_close_to(b.peak[OOM_PHASE_OPT2] - a.peak[OOM_PHASE_OPT2], 5.0 * N, SLACK);
	assert_close_to(b.peak[OOM_PHASE_BWD2] - a.peak[OOM_PHASE_BWD2], 4.0 * N, SLACK);

	p.precision = wide.precision = OOM_FP16;
	a = eval_of("GPT-2", &p);
	b = eval_of("GPT-2", &wide);
	assert_close_to(b.end[OOM_PHASE_BWD1] - a.end[OOM_PHASE_BWD1], 2.0 * N, SLACK);
	assert_int_equal(b.end[OOM_PHASE_OPT2], a.end[OOM_PHASE_OPT2]);

	p.zero_stage = wide.zero_stage = 2;
	assert_int_equal(peak_of("GPT-2", &p), peak_of("GPT-2", &wide));

	p.zero_stage = wide.zero_stage = 3;
	a = eval_of("GPT-2", &p);
	b = eval_of("GPT-2", &wide);
	assert_close_to(b.end[OOM_PHASE_OPT2] - a.end[OOM_PHASE_OPT2], 0.5 * N, SLACK);
	assert_close_to(b.peak[OOM_PHASE_BWD1] - a.peak[OOM_PHASE_BWD1], 1.5 * N, SLACK);

	p.precision = wide.precision = OOM_FP32;
	assert_int_equal(peak_of("GPT-2", &p), peak_of("GPT-2", &wide));
}

/* fp16 takes the bytes that bf16 does: frozen weights, fp32 adapters, autocast copies. */
static void test_fp16_under_adapters(void **state)
{
	struct oom_plan p = oom_plan_default();
	uint64_t bf16;

	(void)state;
	p.lora_r = 8;
	strcpy(p.lora_targets, "all-linear");
	p.precision = OOM_BF16_AMP;
	bf16 = peak_of("SmolLM2-135M", &p);
	p.precision = OOM_FP16_AMP;
	assert_int_equal(peak_of("SmolLM2-135M", &p), bf16);
}

/* Published: a full fine-tuning of Llama 3.1 8B takes 18.9 GiB on one card in torchtune's recipe: bf16,
 * paged 8-bit AdamW stepped in the backward pass, checkpointing (torchtune README, memory table).
 * Weights alone are 14.96 GiB; without the hook its gradients are as much again. */
static void test_step_in_backward(void **state)
{
	struct oom_plan p = oom_plan_default();
	const double gib = 1073741824.0;
	double with, without;

	(void)state;
	p.precision = OOM_BF16;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.micro_batch = 1;
	p.seq_len = 2048;
	assert_int_equal(oom_plan_set(&p, oom_knob_find("optimizer"), "paged-adamw-8bit", NULL), OOM_OK);
	without = (double)peak_of("Llama-3.1-8B", &p) / gib;
	p.step_in_backward = 1;
	with = (double)peak_of("Llama-3.1-8B", &p) / gib;
	assert_true(without > 14.96 * 2);
	assert_true(with > 17 && with < 20.5);
}

/* What all ranks hold together: shards that train are fp32 under FSDP's mixed precision, their gradients too (accelerate
 * accelerator.py prepare_model upcasts them), adapters under FSDP2 as well; ZeRO divides an fp32 master and fp32 moments beside
 * 16-bit gradients (4 + 8 bytes, ZeRO, arXiv:1910.02054, section 3.1).  What a rank has at its peak is a quarter of the states. */
static void test_what_ranks_hold_together(void **state)
{
	static const struct {
		int engine, precision, lora;
		uint64_t grads, states; /* bytes a parameter */
	} cases[] = {
		{OOM_ENGINE_HF, OOM_AMP_BF16, 0, 4, 8},
		{OOM_ENGINE_FSDP1, OOM_AMP_BF16, 0, 4, 8},
		{OOM_ENGINE_FSDP2, OOM_AMP_BF16, 0, 4, 8},
		{OOM_ENGINE_FSDP2, OOM_BF16_AMP, 8, 4, 8},
		{OOM_ENGINE_FSDP2, OOM_BF16, 0, 2, 4},
		{OOM_ENGINE_DEEPSPEED, OOM_AMP_BF16, 0, 2, 12},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_eval e;

		p.engine = cases[i].engine;
		p.precision = cases[i].precision;
		p.lora_r = cases[i].lora;
		strcpy(p.lora_targets, cases[i].lora ? "q_proj+v_proj" : "");
		p.gpus = 4;
		p.zero_stage = p.engine == OOM_ENGINE_HF ? 0 : 3;
		e = eval_of("Llama-3.2-1B", &p);
		assert_int_equal(e.held_grads, cases[i].grads * e.trainable_params);
		/* and a counter for each tensor */
		assert_in_range(e.held_states, cases[i].states * e.trainable_params, cases[i].states * e.trainable_params + 4096);
	}
}

/* Stage 2 keeps whole tensors where its part cuts them.  What rank 0 held between the backward pass and the step beyond what
 * it holds between steps was read on an H100 (rows zero2-1b-8 and zero2-1b-2 of data/h100_sharded.csv); of eight ranks the
 * second holds more, the embedding and all of the first layer, of two the second the last tensor of the first. */
static void test_cut_gradients(void **state)
{
	static const struct {
		int64_t ranks;
		double first, most;
	} cases[] = {{8, 4919529472.0 - 4394192896.0, 2 * (262668288.0 + 60821504)},
		     {2, 11212531712.0 - 9957345280.0, 2 * (1235814400 / 2 + 16777216.0)}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_eval e;

		p.engine = OOM_ENGINE_DEEPSPEED;
		p.zero_stage = 2;
		p.precision = OOM_BF16;
		p.gpus = cases[i].ranks;
		p.micro_batch = 2;
		p.seq_len = 2048;
		e = eval_of("Llama-3.2-1B", &p);
		assert_in_range(e.end[OOM_PHASE_BWD2] - e.end[OOM_PHASE_OPT2], (uint64_t)cases[i].first - (1 << 20),
				(uint64_t)cases[i].most + (1 << 20));
		if (cases[i].ranks == 8)
			assert_close_to(e.end[OOM_PHASE_BWD2] - e.end[OOM_PHASE_OPT2], cases[i].most, 1 << 20);
	}
}

/* stage_1_and_2.py setup_buckets: a second bucket of reduce_bucket_size elements with overlap_comm, whose buffers lie there
 * throughout the backward pass; stage 3 has one in any case, and overlaps unless it is told not to. */
static void test_overlapped_buckets(void **state)
{
	struct oom_plan p = oom_plan_default(), q;

	(void)state;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.precision = OOM_BF16;
	p.gpus = 8;
	p.micro_batch = 1;
	p.seq_len = 128;
	p.reduce_bucket = 1000000000;   /* what makes the backward pass the peak */
	for (p.zero_stage = 1; p.zero_stage <= 3; p.zero_stage++) {
		q = p;
		q.overlap_comm = OOM_OVERLAP_TRUE;
		assert_int_equal(peak_of("GPT-2", &q) - peak_of("GPT-2", &p), p.zero_stage < 3 ? 2000000000 / 512 * 512 : 0);
		q.overlap_comm = OOM_OVERLAP_FALSE;
		assert_int_equal(peak_of("GPT-2", &q), peak_of("GPT-2", &p));
	}
}

/* What the stream that reduces has in its pool: gradients of a bucket joined, of a larger bucket than any before in a
 * segment of its own.  DeepSpeed 0.19.6's own code on tensors without memory (the oracle's emulation): 1.934 GB of Mistral-7B
 * over 8 ranks with buckets of 500 million elements and nothing sent for ahead; of buckets that each weight fills, none. */
static void test_joined_gradients(void **state)
{
	struct oom_plan p = oom_plan_default(), q;
	uint64_t more;

	(void)state;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.zero_stage = 3;
	p.precision = OOM_BF16;
	p.gpus = 8;
	p.micro_batch = 1;
	p.seq_len = 1024;
	p.prefetch_bucket = 0;
	q = p;
	q.reduce_bucket = 1000000;
	more = eval_as("Mistral-7B-v0.3", &p, OOM_EVAL_REPLAY).reserved_bytes - eval_as("Mistral-7B-v0.3", &q, OOM_EVAL_REPLAY).reserved_bytes;
	assert_in_range(more, (499 * 2 + 1934 - 30) * 1000000ull, (499 * 2 + 1934 + 30) * 1000000ull);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_ranks_hold_together),
		cmocka_unit_test(test_torchtune_adapters),
		cmocka_unit_test(test_compiled_chunks),
		cmocka_unit_test(test_deepspeed_mixed_precision),
		cmocka_unit_test(test_fp32_grad_accum),
		cmocka_unit_test(test_cut_gradients),
		cmocka_unit_test(test_overlapped_buckets),
		cmocka_unit_test(test_joined_gradients),
		cmocka_unit_test(test_fp16_under_adapters),
		cmocka_unit_test(test_step_in_backward),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
