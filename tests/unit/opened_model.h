/* A bundled model, opened and priced.  Included after cmocka.h. */
#ifndef OOM_TESTS_OPENED_MODEL_H
#define OOM_TESTS_OPENED_MODEL_H

#include <string.h>

#include "oomplan/model.h"

struct fixture {
	struct oom_keys keys;
	struct oom_model *model;
	struct oom_evaluator *ev;
};

static void open_model(struct fixture *f, const char *name)
{
	struct oom_error err = {{0}};

	memset(f, 0, sizeof(*f));
	if (oom_keys_read_model(&f->keys, name, &err) || oom_model_new(&f->model, &f->keys, &err))
		fail_msg("%s: %s", name, err.text);
	f->ev = oom_evaluator_new();
	assert_non_null(f->ev);
}

static void close_model(struct fixture *f)
{
	oom_evaluator_free(f->ev);
	oom_model_free(f->model);
	oom_keys_release(&f->keys);
}

static struct oom_eval price(struct fixture *f, const struct oom_plan *p)
{
	struct oom_error err = {{0}};
	struct oom_eval e;

	memset(&e, 0, sizeof(e));
	if (oom_evaluate(f->ev, f->model, p, OOM_EVAL_BUCKETS, &e, &err))
		fail_msg("%s", err.text);
	return e;
}

#endif
