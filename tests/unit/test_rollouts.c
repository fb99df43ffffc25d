/* Answers generated within the step: what generation adds to weights and states, against measured runs; by hand what a cache,
 * scores and gathered weights must add.  Measured: transformers 5.12.1's own generate over fake tensors on PyTorch 2.14
 * with CUDA's sizes, after one step of AdamW, as TRL's GRPO calls it, and PPO's batch_generation with the reference's pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tiny_llama.h"

static const char *const configs[][2] = {
	{"llama", "{\"model_type\": \"llama\", \"hidden_size\": 2048, \"intermediate_size\": 8192, \"num_hidden_layers\": 16, "
		  "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 64, \"vocab_size\": 128256, "
		  "\"tie_word_embeddings\": true}"},
	{"qwen2.5", "{\"model_type\": \"qwen2\", \"hidden_size\": 896, \"intermediate_size\": 4864, \"num_hidden_layers\": 24, "
		    "\"num_attention_heads\": 14, \"num_key_value_heads\": 2, \"vocab_size\": 151936, \"tie_word_embeddings\": true}"},
	{"gpt", "{\"model_type\": \"gpt2\"}"},
	{"mistral", "{\"model_type\": \"mistral\", \"vocab_size\": 32768, \"tie_word_embeddings\": false, \"sliding_window\": null}"},
	{"pythia", "{\"model_type\": \"gpt_neox\", \"hidden_size\": 768, \"intermediate_size\": 3072, \"num_hidden_layers\": 12, "
		   "\"num_attention_heads\": 12, \"vocab_size\": 50304, \"tie_word_embeddings\": false, \"hidden_dropout\": 0}"},
};

struct row {
	const char *model;
	int layers;
	const char *objective, *precision;
	int rows, prompt, answer, lora;
	uint64_t above;         /* what was there between steps */
};

static const struct row rows[] = {
	{"llama",   4, "grpo", "bf16", 8, 64, 192, 0, 37893120},
	{"llama",   4, "grpo", "bf16", 4, 768, 24, 0, 227353600},
	{"llama",   4, "grpo", "amp-bf16", 8, 64, 192, 0, 1055717888},
	{"llama",   4, "grpo", "amp-bf16", 4, 768, 24, 0, 1088490496},
	{"llama",   4, "grpo", "fp32", 8, 64, 192, 0, 92419584},
	{"llama",   4, "grpo", "fp32", 4, 768, 24, 0, 834479104},
	{"llama",   4, "grpo", "bf16-amp", 8, 256, 64, 16, 269009920},
	{"qwen2.5", 4, "grpo", "bf16", 8, 64, 192, 0, 21271040},
	{"qwen2.5", 4, "grpo", "bf16", 4, 768, 24, 0, 118825984},
	{"qwen2.5", 4, "grpo", "amp-bf16", 8, 64, 192, 0, 412170752},
	{"qwen2.5", 4, "grpo", "amp-bf16", 4, 768, 24, 0, 416447488},
	{"qwen2.5", 4, "grpo", "fp32", 8, 64, 192, 0, 40335872},
	{"qwen2.5", 4, "grpo", "fp32", 4, 768, 24, 0, 357901312},
	{"llama",   4, "ppo", "fp32", 8, 128, 64, 0, 850968064},
	{"qwen2.5", 4, "ppo", "fp32", 8, 128, 64, 0, 961068544},
	{"qwen2.5", 4, "grpo", "bf16-amp", 8, 256, 64, 16, 146326528},
	{"gpt",     6, "grpo", "bf16", 8, 64, 192, 0, 44085760},
	{"gpt",     6, "grpo", "bf16", 4, 768, 24, 0, 160506880},
	{"gpt",     6, "grpo", "amp-bf16", 8, 64, 192, 0, 203932160},
	{"gpt",     6, "grpo", "amp-bf16", 4, 768, 24, 0, 302146048},
	{"gpt",     6, "grpo", "fp32", 8, 64, 192, 0, 84894208},
	{"gpt",     6, "grpo", "fp32", 4, 768, 24, 0, 320939008},
	{"gpt",     6, "ppo", "fp32", 8, 128, 64, 0, 341857792},
	{"gpt",     6, "grpo", "bf16-amp", 8, 256, 64, 16, 125879296},
	{"mistral", 2, "grpo", "bf16", 8, 64, 192, 0, 65287168},
	{"mistral", 2, "grpo", "bf16", 4, 768, 24, 0, 391717888},
	{"mistral", 2, "grpo", "amp-bf16", 8, 64, 192, 0, 1177152000},
	{"mistral", 2, "grpo", "amp-bf16", 4, 768, 24, 0, 1274094592},
	{"mistral", 2, "grpo", "fp32", 8, 64, 192, 0, 136775168},
	{"mistral", 2, "grpo", "fp32", 4, 768, 24, 0, 1012212736},
	{"mistral", 2, "ppo", "fp32", 8, 128, 64, 0, 366525952},
	{"llama",   4, "ppo", "bf16", 16, 192, 32, 0, 1009222656},
	{"qwen2.5", 4, "ppo", "bf16", 16, 192, 32, 0, 1140704256},
	{"gpt",     6, "ppo", "bf16", 16, 192, 32, 0, 405277696},
	{"mistral", 2, "ppo", "bf16", 16, 192, 32, 0, 427673088},
	{"mistral", 2, "grpo", "bf16-amp", 8, 256, 64, 16, 470860800},
	{"pythia",  4, "grpo", "bf16", 8, 64, 192, 0, 31567360},
	{"pythia",  4, "grpo", "bf16", 4, 768, 24, 0, 94643200},
	{"pythia",  4, "grpo", "amp-bf16", 8, 64, 192, 0, 188201472},
	{"pythia",  4, "grpo", "amp-bf16", 4, 768, 24, 0, 219363328},
	{"pythia",  4, "grpo", "fp32", 8, 64, 192, 0, 59854336},
	{"pythia",  4, "grpo", "fp32", 4, 768, 24, 0, 189211648},
	{"pythia",  4, "ppo", "fp32", 8, 128, 64, 0, 332709376},
	{"pythia",  4, "ppo", "bf16", 16, 192, 32, 0, 394609664},
	{"pythia",  4, "grpo", "bf16-amp", 8, 256, 64, 16, 107136000},
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static struct oom_eval priced(const struct row *r)
{
	char words[240];
	struct oom_plan p;

	snprintf(words, sizeof(words), "micro-batch=%d seq-len=%d completion-len=%d num-layers=%d objective=%s precision=%s "
		 "optimizer=adamw-fused lora-r=%d lora-targets=%s", r->rows, r->prompt + r->answer, r->answer, r->layers, r->objective,
		 r->precision, r->lora, r->lora ? "all-linear" : "");
	p = plan_of(words);
	for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++)
		if (!strcmp(configs[i][0], r->model))
			return must(configs[i][1], &p);
	fail_msg("%s: no config", r->model);
	return (struct oom_eval){0};
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x > y ? 1 : x < y ? -1 : 0;
}

static void measured_runs(void **state)
{
	double off[N_ROWS];

	(void)state;
	for (size_t i = 0; i < N_ROWS; i++) {
		const struct oom_eval e = priced(&rows[i]);
		const uint64_t above = e.peak[OOM_PHASE_ROLLOUTS] - e.end[OOM_PHASE_ROLLOUTS];
		const double by = ((double)above - (double)rows[i].above) / (double)rows[i].above,
			     of_peak = ((double)above - (double)rows[i].above) / (double)e.peak[OOM_PHASE_ROLLOUTS];

		off[i] = by < 0 ? -by : by;
		if (by < -0.1 || by > 0.15 || of_peak > 0.01 || of_peak < -0.01)
			fail_msg("%s %s %s (row %zu): %llu above the states, measured %llu", rows[i].model,
				 rows[i].objective, rows[i].precision, i, (unsigned long long)above,
				 (unsigned long long)rows[i].above);
	}
	qsort(off, N_ROWS, sizeof(off[0]), by_size);
	assert_true(off[N_ROWS / 2] < 0.015);
}

static uint64_t above(const char *words)
{
	const struct oom_eval e = of(words);

	return e.peak[OOM_PHASE_ROLLOUTS] - e.end[OOM_PHASE_ROLLOUTS];
}

/* A token of the tiny model's cache: keys and values of one head of 64 in two layers, 16 bit. */
#define TOKEN (2 * 2 * 64 * 2)

static void caches_grow_with_the_answers(void **state)
{
	const uint64_t one = above("objective=grpo precision=bf16 completion-len=500"),
		       eight = above("objective=grpo precision=bf16 completion-len=500 grad-accum=8");

	(void)state;
	/* GRPO generates for a whole optimizer step at once: seven more times 4 x 512 tokens, a quarter more of them as one
	 * layer's new keys, beside sampling's logits */
	assert_true(eight - one > 7 * B * S * TOKEN);
	assert_true(eight - one < 7 * B * (S * TOKEN * 5 / 4 + 12 * V + 64 * H));
}

static void nobody_generates(void **state)
{
	static const char *const none[] = {
		"objective=sft", "objective=dpo", "objective=grpo rollouts=engine", "objective=grpo vllm-gpu-memory-utilization=0.3"};

	(void)state;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(of(none[i]).peak[OOM_PHASE_ROLLOUTS], 0);
}

static void scores_of_ppo(void **state)
{
	const uint64_t scores = 4 * B * 256 * V;

	(void)state;
	/* as they came and stacked, those of the update before under their name yet */
	assert_true(above("objective=ppo precision=bf16") >= 2 * scores);
	/* 64 sequences are a part: what is stacked at once no longer grows */
	assert_true(above("objective=ppo precision=bf16 grad-accum=32") - above("objective=ppo precision=bf16 grad-accum=16") <
		    2 * 16 * scores + 16 * B * S * TOKEN);
}

static void weights_are_gathered_whole(void **state)
{
	const uint64_t three = above("objective=grpo precision=bf16 engine=deepspeed gpus=8 zero=3"),
		       two = above("objective=grpo precision=bf16 engine=deepspeed gpus=8 zero=2");

	(void)state;
	assert_true(three >= two + 2 * N);
}

static void the_highest_phase_binds(void **state)
{
	const struct oom_eval e = of("objective=grpo precision=bf16 micro-batch=1 grad-accum=4096 completion-len=500 grad-ckpt=full");
	uint64_t sum = 0;

	(void)state;
	assert_int_equal(e.peak_phase, OOM_PHASE_ROLLOUTS);
	assert_int_equal(e.overall_peak, e.peak[OOM_PHASE_ROLLOUTS]);
	assert_true(e.reserved_bytes >= e.overall_peak);
	for (int b = 0; b < OOM_BUCKETS; b++)
		sum += e.bucket[b];
	assert_int_equal(sum, e.overall_peak);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(measured_runs),
		cmocka_unit_test(caches_grow_with_the_answers),
		cmocka_unit_test(nobody_generates),
		cmocka_unit_test(scores_of_ppo),
		cmocka_unit_test(weights_are_gathered_whole),
		cmocka_unit_test(the_highest_phase_binds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
