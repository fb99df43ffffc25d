/* The exact search with nothing recorded before it. */
#include <stdio.h>

#include "figures.h"
#include "oomplan/search.h"

enum { RUNS = 21 };

static void search(const char *what, const char *name, const struct oom_plan *p, double aim_ms)
{
	const struct oom_search_query query = {.asked = p, .capacity_bytes = (uint64_t)40 << 30};
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	struct oom_error err = {""};
	struct oom_search s;
	double cpu[RUNS];
	char title[80];

	if (oom_keys_read_model(&keys, name, &err) || oom_model_new(&m, &keys, &err))
		give_up(name, err.text);
	for (int i = 0; i < RUNS; i++) {
		const double start = cpu_now();
		struct oom_evaluator *ev = oom_evaluator_new();

		if (!ev || oom_search(ev, m, &query, &s, &err))
			give_up(name, err.text);
		oom_evaluator_free(ev);
		cpu[i] = cpu_now() - start;
	}
	snprintf(title, sizeof(title), "search, %s, %s", what, name);
	figure(title, 1e3 * median(cpu, RUNS), "ms", aim_ms);
	oom_model_free(m);
	oom_keys_release(&keys);
}

void bench_search(void)
{
	static const char *const models[] = {"GPT-2",	     "BERT-base",    "Llama-3.2-1B",
					     "Llama-3.1-8B", "Mixtral-8x7B", "T5-base"};
	enum { MODELS = sizeof(models) / sizeof(models[0]) };
	struct oom_plan one = oom_plan_default(), many = one, megatron;

	many.gpus = 64;
	many.nodes = 8;
	many.grad_accum = 8;
	megatron = many;
	megatron.engine = OOM_ENGINE_MEGATRON;
	megatron.precision = OOM_BF16;
	for (size_t i = 0; i < MODELS; i++)
		search("1 GPU", models[i], &one, 1);
	for (size_t i = 0; i < MODELS; i++)
		search("64 GPUs", models[i], &many, 10);
	for (size_t i = 0; i < MODELS - 1; i++)         /* T5 is no model of Megatron's GPT */
		search("64 GPUs, Megatron", models[i], &megatron, 10);
}
