/* A crash compared with the plan that ran: which tensor the failing request was, what was resident, and
 * what would have fitted.
 *
 * Sizes are in bytes.  The structs own nothing.  Threads: see answer.h. */
#ifndef OOMPLAN_COMPARE_H
#define OOMPLAN_COMPARE_H

#include "oomplan/answer.h"
#include "oomplan/diagnose.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oom_comparison {
	struct oom_judged asked;        /* the plan for the knobs given */
	/* allocated bytes at the peak of the phase in which it crashed; phase is NULL if the plan has no
	 * such phase */
	uint64_t phase_peak;
	const char *phase;
	uint64_t capacity_bytes;        /* the question's, otherwise the message's; 0: unknown */
	/* the request is the allocator's own 2 or 20 MiB, so any small tensor may have caused it */
	bool step_only;
	/* otherwise: a row of the plan has its size */
	bool matched;
	/* the micro-batch with which it matches, if that is not the plan's; 0: it is the plan's */
	int64_t micro_batch;
	/* it is a row of the logits that the plan's loss does not make: the run's loss does */
	bool whole_logits;
	char scope[64], row[64], kind[40], formula[160], numbers[120];
	size_t also;                    /* the number of other rows of the same size */
	/* if no row matches and the request is larger than the widest row that grows with the tokens: the
	 * tokens per batch with which it would be that row; if it is smaller, and the code says that it was
	 * for logits or attention's scores, those with which it would be the widest row of them; otherwise 0 */
	uint64_t implied_tokens;
	/* with the next narrower row of that kind; 0: there is none that would be large enough */
	uint64_t implied_or;
	/* weights and buffers alone are larger than the card, so no batch fits */
	bool weights_alone;
	uint64_t weights_bytes;
	bool searched;                  /* the capacity is known and there is a training run to change */
	struct oom_search search;       /* the cheapest plan that would have fitted */
};
/* Prices the question's plan and compares it with the crash.  If the question's capacity is 0, the
 * message's is used. */
OOM_API enum oom_status oom_compare(struct oom_evaluator *ev, const struct oom_question *q,
				    const struct oom_crash *crash, struct oom_comparison *out,
				    struct oom_error *err);

#ifdef __cplusplus
}
#endif

#endif
