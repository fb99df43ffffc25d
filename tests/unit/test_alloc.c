/* Every allocation of the main job fails once: the answer is OOM_ERR_MEMORY, never a crash, and
 * nothing is half done.
 *
 * malloc, calloc and realloc are wrapped by the linker (-Wl,--wrap); leaks are the sanitizer
 * build's to find. */
#include <stdio.h>
#include <stdlib.h>

#include "oomplan/ladder.h"
#include "oomplan/snapshot.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static long count, fail_at = -1;
static int ever_after;                  /* and every one behind it */

static int fails(void)
{
	const long n = count++;

	return ever_after && fail_at >= 0 ? n >= fail_at : n == fail_at;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

static enum oom_status job(const char *model)
{
	struct oom_error err = {{0}};
	struct oom_plan plan = oom_plan_default();
	struct oom_evaluator *ev = NULL;
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	struct oom_ladder l;
	enum oom_status st = oom_keys_read_model(&keys, model, &err);

	plan.seq_len = 128;
	plan.num_layers = 4;
	if (!st)
		st = oom_model_new(&m, &keys, &err);
	if (!st) {
		ev = oom_evaluator_new();
		st = ev ? oom_ladder_climb(ev, m, &plan, NULL, (uint64_t)8 << 30, OOM_ALLOW_SCIENCE, &l,
					  &err) :
			  OOM_ERR_MEMORY;
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return st;
}

/* One price on GPUs that work in turn, of a model whose head is a matrix of its own. */
static enum oom_status price(const char *model)
{
	struct oom_plan plan = oom_plan_default();
	struct oom_evaluator *ev = NULL;
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	struct oom_eval e;
	enum oom_status st = oom_keys_read_model(&keys, model, NULL);

	plan.engine = OOM_ENGINE_DEVICE_MAP;
	plan.gpus = 3;
	plan.precision = OOM_BF16;
	if (!st)
		st = oom_model_new(&m, &keys, NULL);
	if (!st && !(ev = oom_evaluator_new()))
		st = OOM_ERR_MEMORY;
	if (!st)
		st = oom_evaluate(ev, m, &plan, OOM_EVAL_BUCKETS, &e, NULL);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return st;
}

static int prices(const char *model)
{
	long total;

	count = 0;
	fail_at = -1;
	if (price(model))
		return 1;
	total = count;
	ever_after = 1;
	for (fail_at = 0; fail_at < total; fail_at++) {
		enum oom_status st;

		count = 0;
		st = price(model);
		if (st != OOM_ERR_MEMORY && st != OOM_OK)
			return 1;
	}
	ever_after = 0;
	fail_at = -1;
	printf("%s: %ld allocations, all from each on failed\n", model, total);
	return 0;
}

/* Every allocation of a snapshot's reader fails once, too. */
static int snapshots(const char *path)
{
	struct oom_snapshot s;
	long total;

	count = 0;
	fail_at = -1;
	if (oom_snapshot_read(&s, path, NULL))
		return 1;
	total = count;
	for (long i = 0; i < total; i++) {
		enum oom_status st;

		count = 0;
		fail_at = i;
		st = oom_snapshot_read(&s, path, NULL);
		if (st != OOM_ERR_MEMORY && st != OOM_OK && st != OOM_ERR_IO)
			return 1;
	}
	fail_at = -1;
	printf("%s: %ld allocations, each failed in turn\n", path, total);
	return 0;
}

int main(void)
{
	static const char *const models[] = {"Llama-3.2-1B", "GPT-2"};
	int bad = snapshots(OOM_SOURCE_ROOT "/data/snapshots/two-steps.pickle") + prices("Llama-3.1-8B");

	for (size_t k = 0; k < sizeof(models) / sizeof(models[0]); k++) {
		long total;

		count = 0;
		fail_at = -1;
		if (job(models[k])) {
			printf("%s: does not run at all\n", models[k]);
			return 1;
		}
		total = count;
		for (long i = 0; i < total; i += 1 + i / 200) {
			enum oom_status st;

			count = 0;
			fail_at = i;
			st = job(models[k]);
			if (st != OOM_ERR_MEMORY && st != OOM_OK) {
				printf("%s: allocation %ld of %ld: status %d (%s)\n", models[k], i,
				       total, (int)st, oom_status_str(st));
				bad++;
			}
		}
		printf("%s: %ld allocations, each failed in turn\n", models[k], total);
	}
	printf(bad ? "FAILED\n" : "all answered\n");
	return bad != 0;
}
