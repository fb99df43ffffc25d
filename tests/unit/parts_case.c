/* A model's parts against the model: priced whole, with one part trained, and with that part frozen. */
#include "parts_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/model.h"
#include "oomplan/option.h"

/* A model and what is asked of it. */
struct asked {
	const struct model_parts *row;
	struct oom_evaluator *ev;
	struct oom_model *model;
	int bad;
};

static void say(struct asked *a, const char *what, const char *part, uint64_t got, uint64_t want)
{
	if (!a->bad++)
		print_error("%s, %s:\n", a->row->type, a->row->keys);
	print_error("  %s %s: %llu, by its architecture %llu (%+lld)\n", what, part, (unsigned long long)got,
		    (unsigned long long)want, (long long)(got - want));
}

static bool evaluate(struct asked *a, const char *knob, const char *value, struct oom_eval *e)
{
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};

	p.task = a->row->task;
	p.micro_batch = 1;
	p.seq_len = p.task == OOM_TASK_IMAGE_CLS ? 0 : 16;
	p.num_labels = p.task == OOM_TASK_IMAGE_CLS || p.task == OOM_TASK_SEQ_CLS ? 2 : 0;
	p.precision = OOM_FP32;
	if ((!knob || !oom_plan_set(&p, oom_knob_find(knob), value, &err)) &&
	    !oom_evaluate(a->ev, a->model, &p, OOM_EVAL_FAST, e, &err))
		return true;
	if (!a->bad++)
		print_error("%s, %s:\n", a->row->type, a->row->keys);
	print_error("  %s %s: %s\n", knob ? knob : "whole", knob ? value : "", err.text);
	return false;
}

static bool is_still(const struct part *p)
{
	return *p->name == *STILL;
}

/* A part that no gradient reaches cannot be all that trains. */
static void check_part(struct asked *a, const struct part *p, const struct oom_eval *whole)
{
	const bool idle = *p->name == *IDLE;
	const char *name = p->name + idle;
	struct oom_eval e;

	if (!idle && evaluate(a, "train", name, &e)) {
		if (e.trainable_params != p->elems)
			say(a, "train", name, e.trainable_params, p->elems);
		else if (e.grad_bytes != 4 * p->elems)
			say(a, "gradients of", name, e.grad_bytes, 4 * p->elems);
	}
	/* with nothing left there is nothing to ask for */
	if (p->elems == whole->trainable_params || !evaluate(a, "freeze", name, &e))
		return;
	if (e.trainable_params + p->elems != whole->trainable_params)
		say(a, "freeze", name, e.trainable_params, whole->trainable_params - p->elems);
	else if (e.grad_bytes + (idle ? 0 : 4 * p->elems) != whole->grad_bytes)
		say(a, "gradients without", name, e.grad_bytes, whole->grad_bytes - (idle ? 0 : 4 * p->elems));
}

static void check_model(struct asked *a)
{
	uint64_t all = 0, trained = 0;
	struct oom_eval whole;

	if (!evaluate(a, NULL, NULL, &whole))
		return;
	for (const struct part *p = a->row->part; p->name; p++) {
		all += p->elems;
		trained += is_still(p) ? 0 : p->elems;
	}
	if (whole.total_params != all)
		say(a, "the sum of", "all parts", whole.total_params, all);
	if (whole.trainable_params != trained)
		say(a, "the sum of", "what trains", whole.trainable_params, trained);
	for (const struct part *p = a->row->part; p->name; p++)
		if (!is_still(p))
			check_part(a, p, &whole);
}

bool parts_guessed(const char *json, enum oom_task task, const char *freeze)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	struct oom_keys keys = {0};
	struct oom_model *model = NULL;
	struct oom_eval e;
	char said[OOM_WARNINGS_SIZE];
	bool guessed;

	p.task = task;
	p.seq_len = 16;
	if (oom_keys_parse(&keys, json, strlen(json), "config.json", &err) || oom_model_new(&model, &keys, &err) ||
	    oom_plan_set(&p, oom_knob_find("freeze"), freeze, &err) ||
	    oom_evaluate(ev, model, &p, OOM_EVAL_FAST, &e, &err))
		fail_msg("%s: %s", json, err.text);
	guessed = strstr(oom_warnings_of(NULL, &e, said), "are guesses") != NULL;
	oom_model_free(model);
	oom_keys_release(&keys);
	oom_evaluator_free(ev);
	return guessed;
}

void parts_check(const struct model_parts *rows, size_t n)
{
	int bad = 0;

	for (size_t i = 0; i < n; i++) {
		struct asked a = {.row = &rows[i], .ev = oom_evaluator_new()};
		struct oom_error err = {{0}};
		struct oom_keys keys = {0};
		char json[1600];

		assert_non_null(a.ev);
		snprintf(json, sizeof(json), "{\"model_type\":\"%s\"%s%s}", rows[i].type, *rows[i].keys ? "," : "",
			 rows[i].keys);
		if (oom_keys_parse(&keys, json, strlen(json), "config.json", &err) ||
		    oom_model_new(&a.model, &keys, &err))
			fail_msg("%s: %s", json, err.text);
		check_model(&a);
		bad += a.bad;
		oom_model_free(a.model);
		oom_keys_release(&keys);
		oom_evaluator_free(a.ev);
	}
	assert_int_equal(bad, 0);
}
