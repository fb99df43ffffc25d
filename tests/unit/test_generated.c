/* Evaluations that generate, objectives whose answers the model gives itself, heads for further tokens and cached pairs.
 * Measured: what transformers 5.12.1's generate adds to weights, over fake tensors on PyTorch 2.14 with CUDA's sizes; the
 * others by hand from the sources that models/step/losses_*.c name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/option.h"
#include "knobs.h"
#include "priced.h"

#define LLAMA \
	"{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 192, \"num_hidden_layers\": 3, " \
	"\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 500}"
#define BERT \
	"{\"model_type\": \"bert\", \"hidden_size\": 64, \"intermediate_size\": 192, \"num_hidden_layers\": 3, " \
	"\"num_attention_heads\": 4, \"vocab_size\": 500}"

static struct oom_plan with(const char *text)
{
	struct oom_plan p = oom_plan_default();

	set(&p, text);
	return p;
}

static uint64_t above(const struct oom_eval *e)
{
	return e->peak[OOM_PHASE_EVAL] - e->end[OOM_PHASE_EVAL];
}

/* The evaluation's own pass is over one token here, so that generation is the higher of the two.  In percent, the most that
 * a row may differ: autocast's copies of a decoder are told from its encoder's by a sum. */
static void generated_evaluations(void **state)
{
#define BART(type, v) \
	"{\"model_type\": \"" type "\", \"d_model\": 512, \"encoder_layers\": 4, \"decoder_layers\": 4, " \
	"\"encoder_attention_heads\": 8, \"decoder_attention_heads\": 8, \"encoder_ffn_dim\": 2048, " \
	"\"decoder_ffn_dim\": 2048, \"vocab_size\": " v "}"
#define T5 \
	"{\"model_type\": \"t5\", \"d_model\": 512, \"num_layers\": 4, \"num_decoder_layers\": 4, \"num_heads\": 8, " \
	"\"d_kv\": 64, \"d_ff\": 2048, \"vocab_size\": 32128}"
	static const struct {
		const char *config, *plan;
		uint64_t measured;
		double percent;
	} rows[] = {
		{BART("bart", "50265"), "micro-batch=8 seq-len=512 eval-new-tokens=64 precision=fp32", 100663808, 0.01},
		{BART("bart", "50265"), "micro-batch=8 seq-len=512 eval-new-tokens=64 precision=amp-bf16", 131059200, 2.5},
		{BART("bart", "50265"), "micro-batch=8 seq-len=1024 eval-new-tokens=32 precision=bf16", 100663808, 0.01},
		{BART("pegasus", "96103"), "micro-batch=8 seq-len=512 eval-new-tokens=64 precision=fp32", 101712384, 0.01},
		{BART("pegasus", "96103"), "micro-batch=8 seq-len=1024 eval-new-tokens=32 precision=bf16", 101712384, 0.01},
		{T5, "micro-batch=8 seq-len=512 eval-new-tokens=64 precision=fp32 attn=eager", 209715712, 0.01},
		{T5, "micro-batch=8 seq-len=1024 eval-new-tokens=32 precision=bf16 attn=eager", 738198016, 0.01},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char plan[300];
		struct oom_plan p;
		struct oom_eval e;
		double off;

		snprintf(plan, sizeof(plan), "task=seq2seq tgt-len=1 predict-with-generate=true %s", rows[i].plan);
		p = with(plan);
		e = must(rows[i].config, &p);
		off = 100 * ((double)above(&e) / (double)rows[i].measured - 1);
		if (off > rows[i].percent || off < -rows[i].percent)
			fail_msg("row %zu: %llu, measured %llu", i, (unsigned long long)above(&e),
				 (unsigned long long)rows[i].measured);
	}
}

/* A beam more is another cache, and a token more another of its columns. */
static void beams_and_tokens_take_more(void **state)
{
	static const char base[] = "micro-batch=4 seq-len=8 tgt-len=1 precision=fp32 predict-with-generate=true ";
	uint64_t before = 0;
	static const char *const more[] = {"eval-new-tokens=512", "eval-new-tokens=1024", "eval-new-tokens=1024 eval-beams=2",
					   "eval-new-tokens=1024 eval-beams=4"};

	(void)state;
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
		char text[200];
		struct oom_plan p;
		struct oom_eval e;

		snprintf(text, sizeof(text), "%s%s", base, more[i]);
		p = with(text);
		e = must(LLAMA, &p);
		/* keys and values of 2 heads of 16 in three layers, for 512 tokens of four rows at least */
		assert_true(above(&e) >= before + 4ull * 512 * 2 * 2 * 16 * 4 * 3);
		before = above(&e);
	}
}

/* Two rows a prompt against a reference and beside a reward model; with adapters the reference is the model itself. */
static void answered_pairs(void **state)
{
	const struct oom_plan sft = with("micro-batch=2 seq-len=64 precision=bf16"),
			      full = with("micro-batch=2 seq-len=64 precision=bf16 objective=online-dpo completion-len=16"),
			      xpo = with("micro-batch=2 seq-len=64 precision=bf16 objective=xpo completion-len=16"),
			      nash = with("micro-batch=2 seq-len=64 precision=bf16 objective=nash-md completion-len=16");
	const struct oom_eval e = must(LLAMA, &full), one = must(LLAMA, &sft), x = must(LLAMA, &xpo), n = must(LLAMA, &nash);
	const uint64_t model = one.end[OOM_PHASE_LOAD];

	(void)state;
	assert_in_range(e.end[OOM_PHASE_LOAD], 3 * model - 8192, 3 * model);
	assert_int_equal(x.end[OOM_PHASE_LOAD], e.end[OOM_PHASE_LOAD]);
	assert_true(e.peak[OOM_PHASE_ROLLOUTS] > e.end[OOM_PHASE_OPT2]);
	assert_true(n.peak[OOM_PHASE_FWD2] < x.peak[OOM_PHASE_FWD2]);   /* one row a prompt */
	assert_int_equal(e.trainable_params, one.trainable_params);
}

/* Each head: a residual layer with a bias, however often it is called, and a matrix of the vocabulary. */
static void medusa_trains_its_heads(void **state)
{
	static const struct {
		const char *plan;
		uint64_t trained;
	} cases[] = {
		{"objective=medusa medusa-heads=3", 3 * (64 * 64 + 64 + 500 * 64)},
		{"objective=medusa medusa-heads=1 medusa-layers=2", 64 * 64 + 64 + 500 * 64},
		{"objective=medusa medusa-heads=2 medusa-layers=0", 2 * 500 * 64},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan p = with(cases[i].plan);

		assert_int_equal(must(LLAMA, &p).trainable_params, cases[i].trained);
	}
}

/* What runs at once is a chunk of one text: a larger batch takes no more, less ids. */
static void cached_pairs(void **state)
{
#define TEXTS "task=embedding objective=contrastive seq-len=64 precision=fp32 "
	const struct oom_plan whole = with(TEXTS "micro-batch=64"), cached = with(TEXTS "micro-batch=64 texts-chunk=8"),
			      larger = with(TEXTS "micro-batch=128 texts-chunk=8 texts=3"),
			      part = with(TEXTS "micro-batch=8 grad-accum=2");
	const uint64_t all = must(BERT, &whole).overall_peak, few = must(BERT, &cached).overall_peak;

	(void)state;
	assert_int_equal(must(BERT, &larger).overall_peak, few);
	assert_true(few < all / 2);
	assert_true(few < must(BERT, &part).overall_peak);      /* two texts at once */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(generated_evaluations),   cmocka_unit_test(beams_and_tokens_take_more),
		cmocka_unit_test(answered_pairs),          cmocka_unit_test(medusa_trains_its_heads),
		cmocka_unit_test(cached_pairs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
