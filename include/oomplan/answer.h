/* The answer to one question: does this training run fit, and if not, what to change until it does.
 *
 * What `oomplan plan`, `estimate` and `solve` print is what these calls return; the commands only
 * read options and format.
 *
 *	struct oom_keys keys = {0};
 *	struct oom_model *model;
 *	struct oom_question q = oom_question_default();
 *	struct oom_answer *a = malloc(sizeof(*a));
 *	struct oom_error err;
 *
 *	oom_keys_read_model(&keys, "Llama-3.2-1B", &err);
 *	oom_model_new(&model, &keys, &err);
 *	q.model = model;
 *	q.capacity_bytes = (uint64_t)24 << 30;
 *	if (!oom_answer(NULL, &q, a, &err))
 *		printf("%s, %llu bytes\n", a->best.fits ? "fits" : "does not fit",
 *		       (unsigned long long)a->best.eval.used_bytes);
 *
 * Units: bytes, unless a name ends otherwise.  Sizes are of one GPU (the fullest rank), host sizes of
 * one node.
 *
 * Ownership: what a question points to stays the caller's and must live as long as the answer is
 * read.  An answer owns nothing and is copied by assignment; it is some 30 KiB, rather for the heap.
 *
 * Errors: every call returns OOM_OK or a negative code with a sentence in *err, which may be NULL.
 * OOM_ERR_INVALID: the plan cannot run, on this model or at all; OOM_ERR_LIMIT: more combinations
 * than are tried; OOM_ERR_MEMORY.  That nothing fits is an answer, no error.  *out is then not to be
 * read.
 *
 * Threads: as oomplan.h says.  Questions are only read, but for oom_question_settle: threads may share
 * one, and all that it points to.  Evaluators they may not. */
#ifndef OOMPLAN_ANSWER_H
#define OOMPLAN_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/calibrate.h"
#include "oomplan/compat.h"
#include "oomplan/gpu.h"
#include "oomplan/host.h"
#include "oomplan/ladder.h"
#include "oomplan/lengths.h"
#include "oomplan/model.h"
#include "oomplan/plan.h"
#include "oomplan/search.h"
#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oom_question {
	const struct oom_model *model;
	struct oom_plan plan;           /* as asked */
	/* the card: its size, speed and compute capability; NULL: not known, ranked as an A100 */
	const struct oom_gpu *gpu;
	uint64_t capacity_bytes;        /* instead of the card's; 0 without a card: no verdict */
	uint64_t host_ram_bytes;        /* of a node; 0: not known, never short */
	unsigned allow;                 /* enum oom_allow: changes of the science that may be taken */
	unsigned hold;                  /* axes of the search that stay as asked, as in oom_search_query */
	enum oom_objective objective;   /* of the search, after the class of the changes */
	bool brief;                     /* the search only where what was asked is no answer, no reasons */
	bool verdicts_only;             /* of oom_answer_search: see struct oom_search_query */
	/* Observed lengths: the plan's seq_len becomes the longest batch of an epoch.  NULL: as it is. */
	const struct oom_lengths *lengths;
	/* One's own runs, or the shipped ones, instead of the plan's margin alone.  With confidence 0
	 * the expected bytes have to leave the margin; else the run has to fit with that probability.
	 * NULL: predictions as they are. */
	const struct oom_calibration *calibration;
	double confidence;
	char note[300];                 /* "" or what settling did to the batch */
	char precision_note[200];       /* "" or which precision an auto became, and why */
};
/* The default plan, nothing else. */
OOM_API struct oom_question oom_question_default(void);
/* What every call below does to the question first, and once more changes nothing: of gpus, nodes and
 * gpus_per_node the missing one follows, the card gives the compute capability and the capacity,
 * lengths give seq_len, images have none, adapters get the family's targets, a global batch is laid
 * over accumulation steps. */
OOM_API void oom_question_settle(struct oom_question *q);

/* What a calibration says of one plan. */
struct oom_expectation {
	double margin;                  /* under which the plain verdict is the calibrated one */
	double used_bytes;              /* expected; of a run that is no outlier: */
	double low95_bytes, high95_bytes;       /* 2.5 and 97.5 % of runs stay below */
	double needed_bytes;            /* a card needs so much, by confidence or margin */
	double probability;             /* that it fits; NAN without a capacity */
};

/* One plan, priced and judged. */
struct oom_judged {
	struct oom_plan plan;
	struct oom_eval eval;           /* replayed, with buckets */
	bool fits_gpu;                  /* oom_judge's verdict on the step, or the calibration's, and on the
				 * evaluation where the run has one; true without a card */
	bool fits;                      /* and the host's memory does */
	struct oom_host_need host;
	enum oom_limit first_limit;     /* what a run meets first */
	struct oom_expectation expected;        /* with a calibration */
	/* rules of oomplan/compat.h that it breaks: what to say of it, and what to set besides */
	struct oom_compat_set broken;
	bool launches;                  /* none of them is a refusal, or makes another run of it */
	/* What an evaluation between steps uses, an estimate (the plan's eval_batch without gradients
	 * over weights and states; 0: the plan never evaluates, or that cannot be priced), and whether
	 * that fits.  Where the plan says that the run evaluates, fits_gpu asks for it. */
	uint64_t eval_used_bytes;
	bool eval_fits;
};
/* Exactly the configuration asked for.  ev may be NULL, here and below: the call has one of its own. */
OOM_API enum oom_status oom_answer_as_asked(struct oom_evaluator *ev, const struct oom_question *q,
					    struct oom_judged *out, struct oom_error *err);

/* Where the answer's best plan comes from. */
enum oom_answer_from { OOM_FROM_ASKED, OOM_FROM_LADDER, OOM_FROM_SEARCH };

struct oom_answer {
	struct oom_question asked;      /* settled */
	struct oom_judged as_asked;
	/* As asked where that fits and launches; else the search's plan, the cheapest of all; else as
	 * far as the ladder came. */
	struct oom_judged best;
	enum oom_answer_from from;
	int changes;                    /* of best against what was asked: departures, or rungs */
	struct oom_ladder ladder;       /* the rungs, each with its saving and verdict */
	struct oom_compat_set ladder_broken;    /* rules that the ladder's plan breaks */
	bool searched;
	struct oom_search search;       /* the cheapest plan of all, why, and alternatives */
	size_t replayed;                /* verdicts that took a replay of the allocator */
};
/* The question needs a capacity: OOM_ERR_INVALID without. */
OOM_API enum oom_status oom_answer(struct oom_evaluator *ev, const struct oom_question *q,
				   struct oom_answer *out, struct oom_error *err);

/* The search alone: from a plan that need not run itself. */
OOM_API enum oom_status oom_answer_search(struct oom_evaluator *ev, const struct oom_question *q,
					  struct oom_search *out, struct oom_error *err);

/* oom_solve (step and exact_changes: see there), judged by the question's calibration; its plan has the margin as asked ("gpu-memory":
 * the one that the calibration comes to).  OOM_ERR_INVALID for a knob that cannot be solved for. */
OOM_API enum oom_status oom_answer_solve(struct oom_evaluator *ev, const struct oom_question *q,
					 const char *knob, int64_t step, bool exact_changes,
					 struct oom_solution *out, struct oom_error *err);

/* What the question's lengths make of its batches, which q must have. */
OOM_API struct oom_lengths_report oom_question_lengths(const struct oom_question *q);
/* The longest sequences that batches of the plan as asked may have, in tokens (0: none fits, or there
 * is no card), and the expected first step of an epoch with a longer one (0: none is). */
OOM_API enum oom_status oom_answer_lengths(struct oom_evaluator *ev, const struct oom_question *q,
					   int64_t *longest_tokens, double *death_step,
					   struct oom_error *err);

/* What calibration and confidence of the question say of an evaluation with buckets. */
OOM_API struct oom_expectation oom_question_expects(const struct oom_question *q,
						    const struct oom_eval *eval);

#ifdef __cplusplus
}
#endif

#endif
