/* A config given as text, priced: what tests of families begin with.  Included after cmocka.h. */
#ifndef OOM_TESTS_PRICED_H
#define OOM_TESTS_PRICED_H

#include <string.h>

#include "oomplan/model.h"

/* Evaluates a config given as text; returns the status, the message in err. */
static enum oom_status price(const char *json, const struct oom_plan *p, struct oom_eval *e,
			     struct oom_error *err)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_evaluator *ev = oom_evaluator_new();
	enum oom_status st;

	assert_non_null(ev);
	memset(e, 0, sizeof(*e));
	st = oom_keys_parse(&keys, json, strlen(json), "config.json", err);
	if (!st)
		st = oom_model_new(&m, &keys, err);
	if (!st)
		st = oom_evaluate(ev, m, p, OOM_EVAL_BUCKETS, e, err);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return st;
}

static inline struct oom_eval must(const char *json, const struct oom_plan *p)
{
	struct oom_error err = {{0}};
	struct oom_eval e;

	if (price(json, p, &e, &err))
		fail_msg("%s: %s", json, err.text);
	return e;
}

#endif
