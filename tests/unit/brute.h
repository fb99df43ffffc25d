/* Brute force over the plans that frameworks run, written separately from the search.
 *
 * Plans are written down field by field and every one is priced; how many departures a plan is, and
 * of which classes, is read off the finished plan.  Nothing of the search's axes is used. */
#ifndef OOM_TESTS_BRUTE_H
#define OOM_TESTS_BRUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/compat.h"
#include "oomplan/rules.h"
#include "oomplan/search.h"

struct brute {
	struct oom_evaluator *ev;
	const struct oom_model *model;
	const struct oom_plan *asked;
	uint64_t capacity;
	enum oom_objective objective;
	int64_t loss;           /* without whole logits: Liger has Llama's kin, GPT-2 is TRL's to chunk */
	bool liger;             /* and Liger's other kernels */
	bool resorts;           /* what is only tried where nothing else fits */
	struct oom_compat compat;
	struct oom_compat_set excused;
	struct triple {
		unsigned changes;       /* what is not exact: precision, optimizer, offload, length, adapters */
		double cost, seconds;
		int departures;
		uint64_t used;          /* 0: not replayed yet */
		struct oom_plan plan;
	} *all;
	size_t n, cap;
};

/* Whether a launcher takes the plan where the other one was asked for (brute_plans.c). */
bool brute_reachable(const struct oom_plan *asked, const struct oom_plan *p);
/* Prices the plan with every micro-batch that makes the step, and with what goes beside it; those that fit join b->all. */
void brute_batches(struct brute *b, struct oom_plan p, bool qlora);
/* Everything from what was asked: kernels, adapters, engines and their parts (brute_ways.c). */
void brute_all(struct brute *b, unsigned allow);
/* The optimizer of this name. */
int64_t brute_named(const char *optimizer);
/* The gravest of the changes, as a number. */
int brute_gravest(unsigned changes);

static inline bool brute_is_fsdp(const struct oom_plan *p)
{
	return p->engine == OOM_ENGINE_FSDP1 || p->engine == OOM_ENGINE_FSDP2;
}

#endif
