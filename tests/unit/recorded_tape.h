/* A tape of 2 sequences of 64 tokens, recorded call by call.  Included after cmocka.h. */
#ifndef OOM_TESTS_RECORDED_TAPE_H
#define OOM_TESTS_RECORDED_TAPE_H

#include <stdlib.h>
#include <string.h>

#include "oomplan/option.h"
#include "ops/ops.h"
#include "tape/tape.h"
#include "knobs.h"

static struct oom_plan plan;

static struct oom_tape *tape(const char *words)
{
	struct oom_tape *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	plan = oom_plan_default();
	plan.precision = OOM_FP32;
	set(&plan, words);
	oom_tape_reset(t, NULL, &plan);
	t->val_b = 2;
	t->val_s = t->val_t = 64;
	t->grad = true;
	t->scope = "module";
	return t;
}

static void drop(struct oom_tape *t)
{
	assert_int_equal(t->status, OOM_OK);
	oom_tape_release(t);
	free(t);
}

static struct oom_val tensor(struct oom_tape *t)
{
	return oom_new(t, "x", t->m_bs, D(64), OOM_F32);
}

#endif
