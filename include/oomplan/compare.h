/* A crash beside the plan that ran: which tensor the failing request was, what was resident, what
 * would have fitted.
 *
 * Bytes; owns nothing; threads as answer.h says. */
#ifndef OOMPLAN_COMPARE_H
#define OOMPLAN_COMPARE_H

#include "oomplan/answer.h"
#include "oomplan/diagnose.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oom_comparison {
	struct oom_judged asked;        /* the plan for the knobs given */
	/* allocated, in the phase of the crash; phase NULL: no phase of the plan */
	uint64_t phase_peak;
	const char *phase;
	uint64_t capacity_bytes;        /* the question's, or as the message says; 0: neither does */
	/* the request is the allocator's own 2 or 20 MiB: any small tensor */
	bool step_only;
	/* else: a row of the plan has its size */
	bool matched;
	/* with which it matches, where that is not the one asked for; 0: the same */
	int64_t micro_batch;
	char scope[64], row[64], kind[40], formula[160], numbers[120];
	size_t also;                    /* rows of the same size beside it */
	/* else, where the request is larger than the plan's widest row that grows with the tokens: the
	 * tokens of one batch with which it would be that row; 0: it is not */
	uint64_t implied_tokens;
	/* weights and buffers alone are larger than the card: no batch fits */
	bool weights_alone;
	uint64_t weights_bytes;
	bool searched;                  /* there is a capacity, and a training to change */
	struct oom_search search;       /* the cheapest that would have fitted */
};
/* Prices the question's plan beside the crash.  The question's capacity may be 0: the message's
 * counts. */
OOM_API enum oom_status oom_compare(struct oom_evaluator *ev, const struct oom_question *q,
				    const struct oom_crash *crash, struct oom_comparison *out,
				    struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
