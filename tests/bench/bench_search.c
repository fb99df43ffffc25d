/* How fast the exact search is, with nothing recorded before it.  Prints, asserts nothing: wall and
 * CPU time of the median of 21 searches, each with a fresh evaluator; a shared machine makes the
 * first the larger. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "oomplan/search.h"

enum { RUNS = 21 };

static double clock_now(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void bench(const char *what, const char *name, const struct oom_plan *p, double aim_ms)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err = {{0}};
	struct oom_search s;
	double wall[RUNS], cpu[RUNS];

	if (oom_keys_read_model(&keys, name, &err) || oom_model_new(&m, &keys, &err)) {
		printf("%s\n", err.text);
		return;
	}
	for (int i = 0; i < RUNS; i++) {
		struct oom_evaluator *ev;

		wall[i] = clock_now(CLOCK_MONOTONIC);
		cpu[i] = clock_now(CLOCK_PROCESS_CPUTIME_ID);
		ev = oom_evaluator_new();
		if (!ev || oom_search(ev, m,
				      &(struct oom_search_query){.asked = p,
								 .capacity_bytes = (uint64_t)40 << 30},
				      &s, &err)) {
			printf("%s\n", err.text);
			return;
		}
		oom_evaluator_free(ev);
		cpu[i] = clock_now(CLOCK_PROCESS_CPUTIME_ID) - cpu[i];
		wall[i] = clock_now(CLOCK_MONOTONIC) - wall[i];
	}
	qsort(wall, RUNS, sizeof(wall[0]), by_value);
	qsort(cpu, RUNS, sizeof(cpu[0]), by_value);
	printf("%-22s %-14s %7.2f ms wall %7.2f ms CPU (aim: %g ms), %zu priced, %zu may fit, %zu replayed\n", what,
	       name, 1e3 * wall[RUNS / 2], 1e3 * cpu[RUNS / 2], aim_ms, s.evaluated, s.possible, s.replayed);
	oom_model_free(m);
	oom_keys_release(&keys);
}

int main(void)
{
	static const char *const models[] = {"GPT-2",	     "BERT-base",    "Llama-3.2-1B",
					     "Llama-3.1-8B", "Mixtral-8x7B", "T5-base"};
	struct oom_plan one = oom_plan_default(), many = one, megatron;

	many.gpus = 64;
	many.nodes = 8;
	many.grad_accum = 8;
	megatron = many;
	megatron.engine = OOM_ENGINE_MEGATRON;
	megatron.precision = OOM_BF16;
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
		bench("search, 1 GPU", models[i], &one, 2);
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
		bench("64 GPUs", models[i], &many, 50);
	for (size_t i = 0; i < 5; i++)
		bench("64 GPUs, tp x pp x ...", models[i], &megatron, 50);
	return 0;
}
