/* The schedule of a training step: what is priced by its order, and what must hold of any step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/rules.h"
#include "priced.h"

/* Llama-3.2-1B: 1,235,814,400 parameters, of which the tied embedding 128256 x 2048; fp32 unless the
 * plan says otherwise (data/models/Llama-3.2-1B.json). */
#define N UINT64_C(1235814400)
#define LLAMA \
	"{\"model_type\": \"llama\", \"hidden_size\": 2048, \"intermediate_size\": 8192, " \
	"\"num_hidden_layers\": 16, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, " \
	"\"head_dim\": 64, \"vocab_size\": 128256, \"tie_word_embeddings\": true}"

static int64_t named(const char *knob, const char *word)
{
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};

	if (oom_plan_set(&p, oom_knob_find(knob), word, &err))
		fail_msg("%s", err.text);
	return *oom_plan_field(&p, oom_knob_find(knob));
}

static struct oom_plan small(const char *optimizer)
{
	struct oom_plan p = oom_plan_default();

	p.micro_batch = 1;
	p.seq_len = 128;
	p.optimizer = named("optimizer", optimizer);
	return p;
}

/* LOMO (arXiv:2306.09782, section 3.1) frees every gradient once it is used.  At the end of the
 * backward pass SGD holds all of them, 4 N bytes; LOMO at most the tied embedding's two halves, which
 * wait for each other: the peak is lower by all the others, 4 (N - 128256 x 2048). */
static void test_gradients_die_one_by_one(void **state)
{
	const struct oom_plan sgd = small("sgd"), lomo = small("lomo");
	const struct oom_eval all = must(LLAMA, &sgd), none = must(LLAMA, &lomo);
	const uint64_t others = 4 * (N - UINT64_C(128256) * 2048);

	(void)state;
	assert_int_equal(all.peak[OOM_PHASE_BWD1] - none.peak[OOM_PHASE_BWD1], others);
	assert_int_equal(all.end[OOM_PHASE_BWD1] - none.end[OOM_PHASE_BWD1], 4 * N);
	assert_int_equal(none.bucket[OOM_BUCKET_OPT], 0);
}

/* A mean of the weights (torch/optim/swa_utils.py AveragedModel) copies what gets no gradient, too: of
 * BLIP-2 on text alone the language model trains, and the mean of all is 4 bytes per parameter; its update,
 * a tensor at a time, needs two of the largest weight, the fp32 embedding of 50,304 x 2,560. */
static void test_a_mean_of_what_gets_no_gradient(void **state)
{
	struct oom_plan with = small("adamw"), without = with;
	struct oom_eval mean, plain;

	(void)state;
	with.ema = named("ema", "loop-fp32");
	mean = must("{\"model_type\": \"blip-2\"}", &with);
	plain = must("{\"model_type\": \"blip-2\"}", &without);
	assert_true(plain.grad_bytes < 2 * plain.trainable_params);
	assert_in_range(mean.end[OOM_PHASE_OPT2] - plain.end[OOM_PHASE_OPT2], 4 * plain.trainable_params,
			4 * plain.trainable_params + 1024);
	assert_true(mean.peak[OOM_PHASE_OPT2] - mean.end[OOM_PHASE_OPT2] <
		    plain.grad_bytes + 3 * UINT64_C(4) * 50304 * 2560);
}

/* ZeRO-1 on two GPUs in bf16: an fp32 master (4 bytes) and the optimizer's states over it, halved.
 * 8 bits: 2 x (1 + 4/256) bytes per parameter, 4 bits: 2 x (1/2 + 4/128) (bitsandbytes and torchao
 * blocks of 256 and 128 elements with an fp32 scale); fp32: 8.  Norms of 2048 elements stay in fp32,
 * a hundredth of a per cent. */
static void test_states_over_a_master(void **state)
{
	static const struct {
		const char *optimizer;
		double bytes;
	} rows[] = {{"adamw", 4 + 8}, {"adamw-bnb32", 4 + 8}, {"adamw-8bit", 4 + 2 + 2.0 / 64},
		    {"adamw-4bit", 4 + 1 + 1.0 / 16}, {"adamw-torchao-8bit", 4 + 2 + 2.0 / 64},
		    {"adamw-torchao-fp8", 4 + 2 + 2.0 / 64}, {"lion", 4 + 4}, {"sgd", 4}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan p = small(rows[i].optimizer);
		const double want = rows[i].bytes / 2 * (double)N;
		struct oom_eval e;

		p.precision = OOM_BF16;
		p.engine = OOM_ENGINE_DEEPSPEED;
		p.gpus = 2;
		p.zero_stage = 1;
		e = must(LLAMA, &p);
		if (e.bucket[OOM_BUCKET_OPT] < want || e.bucket[OOM_BUCKET_OPT] > want * 1.0005)
			fail_msg("%s: %llu bytes of state, not %.0f", rows[i].optimizer,
				 (unsigned long long)e.bucket[OOM_BUCKET_OPT], want);
	}
}

/* With gradients and parameters on the host, a second micro-batch finds what the first one found. */
static void test_offload_and_accumulation(void **state)
{
	struct oom_plan p = small("adamw");
	struct oom_eval once, twice;

	(void)state;
	p.precision = OOM_BF16;
	p.engine = OOM_ENGINE_DEEPSPEED;
	p.gpus = 4;
	p.zero_stage = 3;
	p.offload_optimizer = p.offload_params = OOM_OFFLOAD_CPU;
	once = must(LLAMA, &p);
	p.grad_accum = 2;
	twice = must(LLAMA, &p);
	assert_int_equal(once.overall_peak, twice.overall_peak);
	/* only the tied embedding's, which waits for its other half */
	assert_true(twice.bucket[OOM_BUCKET_GRADS] <= UINT64_C(128256) * 2048 * 2);
}

/* Megatron-core has no 8-bit AdamW: it is refused, not priced as another. */
static void test_megatron_has_no_8bit(void **state)
{
	struct oom_plan p = small("adamw-8bit");
	struct oom_error err = {{0}};
	struct oom_eval e;

	(void)state;
	p.engine = OOM_ENGINE_MEGATRON;
	p.precision = OOM_BF16;
	p.gpus = 2;
	p.zero_stage = 1;
	assert_int_equal(price(LLAMA, &p, &e, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "optimizers"));
}

/* ---- what holds of any step ---- */

#define MIXTRAL \
	"{\"model_type\": \"mixtral\", \"hidden_size\": 512, \"intermediate_size\": 1024, " \
	"\"num_hidden_layers\": 7, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, " \
	"\"vocab_size\": 4000, \"num_local_experts\": 4}"

static const char *const models[] = {
	LLAMA,
	"{\"model_type\": \"gpt2\", \"n_layer\": 5}",
	MIXTRAL,
	"{\"model_type\": \"t5\", \"d_model\": 256, \"d_kv\": 32, \"num_layers\": 4, \"num_decoder_layers\": 6, \"d_ff\": 512}",
	"{\"model_type\": \"bert\", \"num_hidden_layers\": 2}",
	"{\"model_type\": \"albert\"}",
	"{\"model_type\": \"vit\", \"num_hidden_layers\": 6}",
};

static uint64_t below(uint64_t *seed, uint64_t n)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*seed >> 33) % n;
}

/* A plan that breaks no rule, drawn over engines, stages, offloads, optimizers and techniques. */
static struct oom_plan draw(uint64_t *seed)
{
	for (;;) {
		struct oom_plan p = oom_plan_default();
		struct oom_error err = {{0}};

		p.micro_batch = 1 + (int64_t)below(seed, 3);
		p.seq_len = 64 + 16 * (int64_t)below(seed, 20);
		p.grad_accum = 1 + (int64_t)below(seed, 3);
		p.precision = (int64_t)below(seed, OOM_BF16_AMP + 1);
		p.grad_ckpt = (int64_t)below(seed, 2);
		p.optimizer = (int64_t)below(seed, 30);
		p.engine = (int64_t)below(seed, OOM_ENGINE_DEVICE_MAP + 1);
		p.gpus = 1 + (int64_t)below(seed, 4);
		p.zero_stage = (int64_t)below(seed, 4);
		p.offload_activations = !below(seed, 3);
		p.offload_optimizer = below(seed, 3) ? OOM_OFFLOAD_NONE : (int64_t)below(seed, 3);
		p.offload_params = below(seed, 3) ? OOM_OFFLOAD_NONE : (int64_t)below(seed, 3);
		p.allocator = (int64_t)below(seed, 2);
		if (!oom_plan_check(&p, &err))
			return p;
	}
}

/* Who is alive at a phase's peak is the peak, which is no less than what the phase leaves. */
static void adds_up(const char *model, const struct oom_plan *p, const struct oom_eval *e, const struct oom_anatomy *a,
		    enum oom_phase f)
{
	const struct oom_plan d = oom_plan_default();
	char options[600];
	uint64_t sum = 0;
	bool wrapped = false;

	for (int b = 0; b < OOM_BUCKETS; b++) {
		wrapped |= a->bucket[f][b] > e->peak[f];
		sum += a->bucket[f][b];
	}
	if (wrapped || sum != e->peak[f] || e->peak[f] < e->end[f])
		fail_msg("%.40s %s: phase %s peaks at %llu, adds up to %llu, ends at %llu", model,
			 oom_plan_options(&d, p, options, sizeof(options)), oom_phase_str(f), (unsigned long long)e->peak[f],
			 (unsigned long long)sum, (unsigned long long)e->end[f]);
}

/* No phase peaks below its own end; the buckets of every phase add up to its peak, each a count and
 * none of them wrapped; what is reserved holds what is allocated; the replay says the same twice. */
static void test_any_step(void **state)
{
	uint64_t seed = 20261122;
	size_t priced = 0, replayed = 0;

	(void)state;
	for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
		struct oom_evaluator *ev = oom_evaluator_new();
		struct oom_keys keys = {0};
		struct oom_model *model = NULL;
		struct oom_error err = {{0}};

		if (oom_keys_parse(&keys, models[m], strlen(models[m]), "config.json", &err) ||
		    oom_model_new(&model, &keys, &err))
			fail_msg("%s", err.text);
		for (int i = 0; i < 60; i++) {
			struct oom_plan p = draw(&seed);
			struct oom_anatomy a;
			struct oom_eval e, again;

			if (oom_model_task(model) == OOM_TASK_IMAGE_CLS)
				p.seq_len = 0;
			memset(&e, 0, sizeof(e));
			if (oom_evaluate(ev, model, &p, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY, &e,
					 &err))
				continue;
			again = e;
			assert_int_equal(oom_anatomy(ev, model, &p, &e, &a, &err), OOM_OK);
			for (int f = 0; f < OOM_PHASES; f++)
				adds_up(models[m], &p, &e, &a, (enum oom_phase)f);
			assert_true(e.reserved_bytes >= e.overall_peak);
			assert_int_equal(oom_evaluate(ev, model, &p, OOM_EVAL_REPLAY, &again, &err),
					 OOM_OK);
			assert_int_equal(again.used_bytes, e.used_bytes);
			assert_int_equal(again.overall_peak, e.overall_peak);
			priced++;
			replayed += e.reserved_replayed;
		}
		oom_evaluator_free(ev);
		oom_model_free(model);
		oom_keys_release(&keys);
	}
	assert_true(priced > 300 && replayed > 200);
}

/* A verdict without a replay rests on a bound (judge.c): what is reserved is at most twice what is allocated, and
 * some segments.  States that belong to whole matrices, Shampoo's factors among them, broke it where a rank has a part
 * of the rows: its replay made them as large as of all rows, the schedule an even share. */
static void test_states_of_a_share(void **state)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = oom_plan_default();
	struct oom_keys keys = {0};
	struct oom_model *model = NULL;
	struct oom_error err = {{0}};

	(void)state;
	if (oom_keys_read_model(&keys, "Llama-3.2-1B", &err) || oom_model_new(&model, &keys, &err))
		fail_msg("%s", err.text);
	p.precision = OOM_FP32;
	p.engine = OOM_ENGINE_FSDP2;
	p.zero_stage = 3;
	p.micro_batch = 1;
	for (p.gpus = 8; p.gpus <= 64; p.gpus *= 8)
		for (p.optimizer = 0; oom_knob_find("optimizer")->choice((size_t)p.optimizer); p.optimizer++) {
			struct oom_eval e;

			p.nodes = p.gpus / 8;
			if (oom_evaluate(ev, model, &p, OOM_EVAL_REPLAY, &e, &err))
				continue;
			if (e.reserved_bytes > 2 * e.overall_peak + ((uint64_t)64 << 20))
				fail_msg("%s on %lld GPUs: %llu reserved, %llu allocated",
					 oom_knob_find("optimizer")->choice((size_t)p.optimizer)->name, (long long)p.gpus,
					 (unsigned long long)e.reserved_bytes, (unsigned long long)e.overall_peak);
		}
	oom_evaluator_free(ev);
	oom_model_free(model);
	oom_keys_release(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states_of_a_share),
		cmocka_unit_test(test_gradients_die_one_by_one),
		cmocka_unit_test(test_a_mean_of_what_gets_no_gradient),
		cmocka_unit_test(test_states_over_a_master),
		cmocka_unit_test(test_offload_and_accumulation),
		cmocka_unit_test(test_megatron_has_no_8bit),
		cmocka_unit_test(test_any_step),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
