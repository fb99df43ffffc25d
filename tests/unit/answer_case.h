/* A question drawn by chance, and what the library's calls say of its plan held against what estimate says. */
#ifndef OOM_TESTS_ANSWER_CASE_H
#define OOM_TESTS_ANSWER_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/answer.h"

struct fixture {
	const char *name;
	struct oom_keys keys;
	struct oom_model *model;
	struct oom_evaluator *ev;
	struct oom_gpus gpus;
	struct oom_gpu gpu;
	struct oom_question q;
	struct oom_judged truth;        /* what estimate says */
	char what[400];                 /* the plan, for messages */
};

void open_model(struct fixture *f, const char *name);
void close_model(struct fixture *f);
void set(struct oom_plan *p, const char *knob, const char *word);
/* A question whose plan runs, and what estimate says of it. */
bool ask(struct fixture *f, uint32_t *seed);
/* Fails where that is not the truth. */
void same(const struct fixture *f, const char *who, uint64_t used, bool fits, const struct oom_judged *truth);
/* What estimate says of another plan on the card. */
struct oom_judged estimate(const struct fixture *f, const struct oom_plan *p);
void check_search(const struct fixture *f, const struct oom_search *s);

#endif
