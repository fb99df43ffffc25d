/* Inverse questions: solutions against their neighbours, in steps of one and in those of people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/search.h"

static struct oom_model *load(const char *name, struct oom_keys *keys)
{
	struct oom_error err = {{0}};
	struct oom_model *m = NULL;

	assert_int_equal(oom_keys_read_model(keys, name, &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, keys, &err), OOM_OK);
	return m;
}

static enum oom_status ask_to_solve(struct oom_evaluator *ev, const struct oom_model *m,
				    const struct oom_plan *p, const char *knob, uint64_t capacity,
				    struct oom_solution *s, struct oom_error *err)
{
	const struct oom_solve_query q = {
		.plan = p, .knob = knob, .capacity_bytes = capacity, .step = 1};

	return oom_solve(ev, m, &q, s, err);
}

static void test_solve(void **state)
{
	static const char *const knobs[] = {"micro-batch", "seq-len", "num-layers", "lora-r"};
	struct oom_keys keys = {0};
	struct oom_model *m = load("Llama-3.2-1B", &keys);
	struct oom_evaluator *ev = oom_evaluator_new();
	const uint64_t capacity = (uint64_t)32 << 30;
	struct oom_error err = {{0}};
	struct oom_solution s;
	struct oom_plan p = oom_plan_default();

	(void)state;
	p.precision = OOM_BF16;
	p.micro_batch = 1;
	for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
		struct oom_plan q = p;
		struct oom_eval e;
		bool fits;

		if (!strcmp(knobs[i], "lora-r"))
			strcpy(q.lora_targets, "all-linear");
		assert_int_equal(ask_to_solve(ev, m, &q, knobs[i], capacity, &s, &err), OOM_OK);
		assert_true(s.exists);
		*oom_plan_field(&q, oom_knob_find(knobs[i])) = s.value;
		assert_memory_equal(&q, &s.plan, sizeof(q));
		assert_int_equal(oom_judge(ev, m, &q, capacity, OOM_EVAL_REPLAY, &e, &fits, &err),
				 OOM_OK);
		assert_true(fits);
		assert_int_equal(e.used_bytes, s.eval.used_bytes);
		if (s.at_limit)
			continue;
		*oom_plan_field(&q, oom_knob_find(knobs[i])) = s.neighbour;
		assert_int_equal(s.neighbour, s.value + 1);
		assert_int_equal(oom_judge(ev, m, &q, capacity, OOM_EVAL_REPLAY, &e, &fits, &err),
				 OOM_OK);
		assert_false(fits);
		assert_int_equal(e.used_bytes, s.neighbour_bytes);
	}
	assert_int_equal(ask_to_solve(ev, m, &p, "micro-bath", capacity, &s, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "micro-batch"));
	assert_int_equal(ask_to_solve(ev, m, &p, "micro-batch", (uint64_t)1 << 30, &s, &err), OOM_OK);
	assert_false(s.exists);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* Fewer GPUs than a node has are a smaller node: what is answered is the plan that was priced, and runs as printed. */
static void test_solve_part_of_a_node(void **state)
{
	struct oom_keys keys = {0};
	struct oom_model *m = load("Llama-3.2-1B", &keys);
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	struct oom_plan p = oom_plan_default();
	const uint64_t states = (uint64_t)1235814400 * 16;

	(void)state;
	p.precision = OOM_FP32;
	p.micro_batch = 1;
	p.seq_len = 128;
	p.gpus_per_node = 3;
	/* cards of twice and of nineteen twentieths of what fp32 AdamW keeps, 16 bytes a parameter: whole on one, and halves on two */
	for (int i = 0; i < 2; i++) {
		const struct oom_solve_query q = {.plan = &p, .knob = "gpus", .capacity_bytes = i ? states * 19 / 20 : states * 2};
		struct oom_solution s;
		struct oom_eval e;
		bool fits;

		assert_int_equal(oom_solve(ev, m, &q, &s, &err), OOM_OK);
		assert_true(s.exists);
		assert_int_equal(s.value, i + 1);
		assert_int_equal(s.plan.gpus, s.value);
		assert_int_equal(s.plan.gpus_per_node, s.value);
		assert_int_equal(oom_judge(ev, m, &s.plan, q.capacity_bytes, OOM_EVAL_REPLAY, &e, &fits, &err), OOM_OK);
		assert_true(fits);
		assert_int_equal(e.used_bytes, s.eval.used_bytes);
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* A ViT of 16-pixel patches does not run on sides below 16: the answer is looked for above them. */
static void test_solve_images(void **state)
{
	struct oom_keys keys = {0};
	struct oom_model *m = load("ViT-B-16", &keys);
	struct oom_evaluator *ev = oom_evaluator_new();
	const uint64_t capacity = (uint64_t)15 << 30;
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	struct oom_solution s;
	struct oom_eval e;
	bool fits;

	(void)state;
	p.seq_len = 0;
	p.micro_batch = 64;
	assert_int_equal(ask_to_solve(ev, m, &p, "image-size", capacity, &s, &err), OOM_OK);
	assert_true(s.exists && s.value > 224 && !s.at_limit);
	p.image_size = s.value;
	assert_int_equal(oom_judge(ev, m, &p, capacity, 0, &e, &fits, &err), OOM_OK);
	assert_true(fits);
	p.image_size++;
	assert_int_equal(oom_judge(ev, m, &p, capacity, OOM_EVAL_REPLAY, &e, &fits, &err), OOM_OK);
	assert_false(fits);
	assert_int_equal(e.used_bytes, s.neighbour_bytes);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

struct steps {
	const char *model, *knob;
	int64_t step;
	uint64_t gib;
};

/* Nothing but what leaves the run as it is: the batch of a step is kept, too. */
static void is_as_asked(const struct oom_plan *asked, const struct oom_plan *p, const char *knob)
{
	assert_true(p->precision == asked->precision && p->optimizer == asked->optimizer &&
		    p->offload_optimizer == asked->offload_optimizer);
	if (strcmp(knob, "micro-batch"))
		assert_int_equal(p->micro_batch * p->grad_accum, 4);
}

/* The next value, with exact changes or as it is, does not fit. */
static void does_not_fit(struct oom_evaluator *ev, const struct oom_model *m, const struct oom_plan *next,
			 const struct oom_solve_query *q, const struct oom_solution *s)
{
	struct oom_eval e;
	bool fits;

	if (q->exact_changes) {
		const struct oom_search_query none = {.asked = next,
						      .capacity_bytes = q->capacity_bytes,
						      .exact_only = true,
						      .keep_batch = !strcmp(q->knob, "micro-batch")};
		struct oom_search *found = malloc(sizeof(*found));

		assert_non_null(found);
		assert_int_equal(oom_search(ev, m, &none, found, NULL), OOM_OK);
		assert_false(found->found);
		free(found);
		return;
	}
	assert_int_equal(oom_judge(ev, m, next, q->capacity_bytes, OOM_EVAL_REPLAY, &e, &fits, NULL), OOM_OK);
	assert_false(fits);
	assert_int_equal(e.used_bytes, s->neighbour_bytes);
}

static void solve_steps(const struct steps *c, bool exact)
{
	struct oom_keys keys = {0};
	struct oom_model *m = load(c->model, &keys);
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = oom_plan_default();
	const struct oom_solve_query q = {.plan = &p, .knob = c->knob, .capacity_bytes = c->gib << 30, .exact_changes = exact};
	struct oom_solution s;
	struct oom_eval e;
	bool fits;

	p.precision = OOM_AMP_BF16;
	p.seq_len = strcmp(c->model, "ViT-B-16") ? p.seq_len : 0;
	p.micro_batch = 4;
	assert_int_equal(oom_solve(ev, m, &q, &s, NULL), OOM_OK);
	assert_true(s.tried && s.exists && (!s.at_limit || *s.limit));
	assert_int_equal(s.value % c->step, 0);
	assert_int_equal(s.step, c->step);
	/* Llama 3.2 1B's layers are 2,048 wide (hidden_size): no rank is higher */
	if (s.at_limit)
		assert_int_equal(s.value, 2048);
	assert_int_equal(s.neighbour, s.at_limit ? 0 : s.value + s.step);
	assert_int_equal(*oom_plan_field(&s.plan, oom_knob_find(q.knob)), s.value);
	assert_int_equal(oom_judge(ev, m, &s.plan, q.capacity_bytes, 0, &e, &fits, NULL), OOM_OK);
	assert_true(fits);
	is_as_asked(&p, &s.plan, q.knob);
	*oom_plan_field(&p, oom_knob_find(q.knob)) = s.neighbour;
	if (!strcmp(q.knob, "lora-r"))
		memcpy(p.lora_targets, s.plan.lora_targets, sizeof(p.lora_targets));
	if (!s.at_limit)
		does_not_fit(ev, m, &p, &q, &s);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* Steps that a person would take, as asked and with exact changes: each answer fits, and for the next
 * step there is no such plan. */
static void test_solve_steps(void **state)
{
	static const struct steps cases[] = {{"Llama-3.2-1B", "seq-len", 64, 40},    {"Llama-3.2-1B", "lora-r", 8, 21},
					     {"Llama-3.2-1B", "micro-batch", 1, 40}, {"Llama-3.2-1B", "num-layers", 1, 20},
					     {"ViT-B-16", "image-size", 16, 15}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		solve_steps(&cases[i], false);
		solve_steps(&cases[i], true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_solve),
					   cmocka_unit_test(test_solve_part_of_a_node),
					   cmocka_unit_test(test_solve_images),
					   cmocka_unit_test(test_solve_steps)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
