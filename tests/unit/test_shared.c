/* One model, many threads: each prices other tasks, labels and batches of it with an evaluator of
 * its own, and finds what one thread alone finds.  Under the thread sanitizer this is the proof that
 * nothing writes the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include <pthread.h>

#include "oomplan/oomplan.h"

enum { THREADS = 4, PLANS = 12 };

struct job {
	const struct oom_model *model;
	const enum oom_task *tasks;
	int first;                      /* plan it begins with */
	uint64_t peak[PLANS];
	enum oom_status status;
	struct oom_error err;
};

static struct oom_plan plan_of(const struct job *j, int i)
{
	struct oom_plan p = oom_plan_default();

	p.precision = i % 3 ? OOM_BF16 : OOM_AMP_BF16;
	p.micro_batch = 1 + i % 2;
	p.seq_len = 128;
	p.grad_ckpt = i % 4 == 3 ? OOM_CKPT_FULL : OOM_CKPT_NONE;
	p.task = j->tasks[i % 2];
	p.num_labels = 2 + 1000 * (i % 5);
	return p;
}

static void *price(void *arg)
{
	struct job *j = arg;
	struct oom_evaluator *ev = oom_evaluator_new();

	for (int k = 0; ev && !j->status && k < PLANS; k++) {
		const int i = (j->first + k) % PLANS;
		const struct oom_plan p = plan_of(j, i);
		struct oom_eval e;

		j->status = oom_evaluate(ev, j->model, &p, OOM_EVAL_REPLAY, &e, &j->err);
		j->peak[i] = e.overall_peak + e.reserved_bytes + e.total_params;
	}
	oom_evaluator_free(ev);
	return NULL;
}

static void same_in_threads(const char *json, const enum oom_task *tasks)
{
	struct oom_keys keys;
	struct oom_model *model = NULL;
	struct oom_error err = {{0}};
	struct job alone = {.tasks = tasks}, job[THREADS];
	pthread_t id[THREADS];

	if (oom_keys_parse(&keys, json, strlen(json), "test", &err) ||
	    oom_model_new(&model, &keys, &err))
		fail_msg("%s", err.text);
	alone.model = model;
	price(&alone);
	if (alone.status)
		fail_msg("%s: %s", json, alone.err.text);
	for (int i = 0; i < THREADS; i++) {
		job[i] = (struct job){.model = model, .tasks = tasks, .first = 5 * i};
		assert_int_equal(pthread_create(&id[i], NULL, price, &job[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(id[i], NULL);
		assert_int_equal(job[i].status, OOM_OK);
		assert_memory_equal(job[i].peak, alone.peak, sizeof(alone.peak));
	}
	assert_int_not_equal(alone.peak[0], alone.peak[1]);
	oom_model_free(model);
	oom_keys_release(&keys);
}

static void text(void **state)
{
	static const enum oom_task tasks[] = {OOM_TASK_CAUSAL_LM, OOM_TASK_SEQ_CLS};

	(void)state;
	same_in_threads("{\"model_type\":\"llama\",\"num_hidden_layers\":6,\"hidden_size\":256,"
			"\"num_attention_heads\":4,\"intermediate_size\":512}", tasks);
	same_in_threads("{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":6}", tasks);
	same_in_threads("{\"model_type\":\"blt\"}", (const enum oom_task[]){OOM_TASK_CAUSAL_LM, 0});
}

static void encoders(void **state)
{
	static const enum oom_task tasks[] = {OOM_TASK_MASKED_LM, OOM_TASK_SEQ_CLS};

	(void)state;
	same_in_threads("{\"model_type\":\"nystromformer\"}", tasks);
	same_in_threads("{\"model_type\":\"deberta\"}", tasks);
}

static void images(void **state)
{
	static const enum oom_task tasks[] = {OOM_TASK_IMAGE_TEXT, OOM_TASK_CAUSAL_LM};

	(void)state;
	same_in_threads("{\"model_type\":\"llava\"}", tasks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(text), cmocka_unit_test(encoders),
					   cmocka_unit_test(images)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
