/* Every row of every model type can be told: a formula, a name, a source.  Types are walked with the
 * defaults of their own; those that need more than a type are passed over, and counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/model.h"

struct seen {
	const char *type;
	size_t rows;
};

static void told(void *ctx, const struct oom_ledger_row *row)
{
	struct seen *s = ctx;

	s->rows++;
	if (!*row->formula || !row->name || !*row->name || !row->source || !*row->source)
		fail_msg("%s: a row without formula, name or source", s->type);
}

static size_t ledger(const char *type, int ckpt)
{
	struct oom_plan p = oom_plan_default();
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_error err = {{0}};
	struct seen s = {type, 0};
	char json[200];

	snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", type);
	p.micro_batch = 2;
	p.grad_ckpt = ckpt;
	p.seq_len = 96;
	if (!oom_keys_parse(&keys, json, strlen(json), type, &err) &&
	    !oom_model_new(&m, &keys, &err)) {
		if (oom_model_task(m) == OOM_TASK_IMAGE_CLS)
			p.seq_len = 0;
		(void)oom_ledger_each(ev, m, &p, told, &s, &err);
	}
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return s.rows;
}

static void every_row_is_told(void **state)
{
	size_t types = 0, with = 0;

	(void)state;
	for (size_t f = 0; oom_family_at(f); f++)
		for (const struct oom_family_type *t = oom_family_at(f)->types; t->name; t++) {
			types++;
			with += ledger(t->name, 0) > 0;
			ledger(t->name, 1);
		}
	assert_true(types > 250);
	/* most types' defaults are a whole model */
	if (with * 10 < types * 8)
		fail_msg("%zu of %zu types have a ledger", with, types);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_is_told)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
