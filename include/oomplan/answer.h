/* The answer to one question: does this training run fit, and if not, what has to change so that it does?
 *
 * `oomplan plan`, `estimate` and `solve` print what these calls return; the commands only read options and
 * format the result.
 *
 *	struct oom_keys keys = {0};
 *	struct oom_model *model = NULL;
 *	struct oom_question q = oom_question_default();
 *	struct oom_answer *a = malloc(sizeof(*a));
 *	struct oom_error err = {""};
 *	enum oom_status st = oom_keys_read_model(&keys, "Llama-3.2-1B", &err);
 *
 *	if (!st)
 *		st = oom_model_new(&model, &keys, &err);
 *	q.model = model;
 *	q.capacity_bytes = (uint64_t)24 << 30;
 *	if (!st)
 *		st = oom_answer(NULL, &q, a, &err);
 *	if (!st)
 *		printf("%s, %llu bytes\n", a->best.fits ? "fits" : "does not fit",
 *		       (unsigned long long)a->best.eval.used_bytes);
 *	else
 *		fprintf(stderr, "%s\n", err.text);
 *
 * Units: sizes are in bytes unless a name says otherwise.  They are those of one GPU (the fullest rank);
 * host sizes are those of one node.
 *
 * Ownership: what a question points to stays the caller's and must live as long as the answer is read.  An
 * answer owns nothing and is copied by assignment.  It takes about 30 KiB and belongs on the heap.
 *
 * Errors: every call returns OOM_OK, or a negative code with a sentence in *err, which may be NULL.
 * OOM_ERR_INVALID: the plan cannot run, on this model or at all; OOM_ERR_LIMIT: there are more combinations
 * than are tried; OOM_ERR_MEMORY.  After an error *out must not be read.  That nothing fits is an answer,
 * not an error.
 *
 * Threads: see oomplan.h.  Only oom_question_settle writes to a question, so threads may share one and
 * everything it points to.  They must not share evaluators. */
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
	/* the card, for its size, speed and compute capability; NULL: unknown, and plans are ranked as on an
	 * A100 */
	const struct oom_gpu *gpu;
	uint64_t capacity_bytes;        /* replaces the card's; 0 without a card: there is no verdict */
	uint64_t host_ram_bytes;        /* of a node; 0: unknown, so it never runs short */
	unsigned allow;                 /* enum oom_allow: changes of the science that may be made */
	unsigned hold;                  /* axes of the search that stay as asked (oom_search_query) */
	enum oom_objective objective;   /* of the search, among changes of the same class */
	bool keep_launcher;             /* files of a framework pin it: no other is weighed */
	bool brief;                     /* search only if what was asked does not fit, and give no reasons */
	bool verdicts_only;             /* for oom_answer_search: see struct oom_search_query */
	/* Observed lengths: the plan's seq_len becomes that of the longest batch of an epoch.  NULL: seq_len
	 * is used as it is. */
	const struct oom_lengths *lengths;
	/* Measured runs, the user's own or the shipped ones.  With confidence 0 the expected bytes must
	 * leave the plan's margin free; otherwise the run must fit with that probability.  NULL: predictions
	 * are used as they are. */
	const struct oom_calibration *calibration;
	/* Instead of calibration: readings of real cards of the kind of run that the judged plan is
	 * (oom_calibration_of_kind); its margin where nobody has published any. */
	bool by_kind;
	double confidence;
	/* Of a caller that asks about many cards: zeroed at first, and then the rules as they were last compiled.
	 * NULL: the question compiles its own. */
	struct oom_compat *rules;
	char note[300];                 /* what settling did to the batch, or "" */
	char precision_note[200];       /* which precision auto became, and why, or "" */
};
/* A question with the default plan and nothing else. */
OOM_API struct oom_question oom_question_default(void);
/* Completes a question; every call below does so first, and doing it again changes nothing.  The missing
 * one of gpus, nodes and gpus_per_node is computed, the card gives the compute capability and the
 * capacity, lengths give seq_len (image models have none), adapters get the family's targets, and a global
 * batch is divided into accumulation steps. */
OOM_API void oom_question_settle(struct oom_question *q);

/* What a calibration expects of one plan. */
struct oom_expectation {
	double margin;                  /* the margin with which the plain verdict equals the calibrated one */
	double used_bytes;              /* expected */
	double low95_bytes, high95_bytes;       /* 2.5 % and 97.5 % of runs that are no outliers stay below these */
	double needed_bytes;            /* what a card must have, by confidence or margin */
	double probability;             /* the probability that it fits; NAN without a capacity */
};

/* One plan, priced and judged. */
struct oom_judged {
	struct oom_plan plan;
	struct oom_eval eval;           /* replayed, with buckets; the evaluation's phase at eval_batch, between steps */
	bool fits_gpu;                  /* the verdict of oom_judge, or of the calibration, on the step and, if
				 * the run has one, on the evaluation; true without a card */
	bool fits;                      /* fits_gpu, and the host's memory suffices */
	struct oom_host_need host;
	enum oom_limit first_limit;     /* the limit that a run meets first */
	struct oom_expectation expected;        /* set if there is a calibration */
	/* the rules of oomplan/compat.h that it breaks */
	struct oom_compat_set broken;
	bool launches;                  /* none of these refuses the plan or makes another run of it */
	/* What an evaluation between steps uses, an estimate (the plan's eval_batch without gradients
	 * over weights and states; 0: the plan never evaluates, or that cannot be priced), and whether
	 * that fits.  Where the plan says that the run evaluates, fits_gpu asks for it. */
	uint64_t eval_used_bytes;
	bool eval_fits;
};
/* Who is alive at the peak of every phase of a plan that was judged: of the evaluation as eval.peak has it, at its
 * own batch between steps. */
OOM_API enum oom_status oom_answer_anatomy(struct oom_evaluator *ev, const struct oom_model *model,
					   const struct oom_judged *j, struct oom_anatomy *out,
					   struct oom_error *err);
/* Prices and judges exactly the configuration that was asked for.  Here and below, ev may be NULL: the call
 * then makes an evaluator of its own. */
OOM_API enum oom_status oom_answer_as_asked(struct oom_evaluator *ev, const struct oom_question *q,
					    struct oom_judged *out, struct oom_error *err);

/* Where the answer's best plan comes from. */
enum oom_answer_from { OOM_FROM_ASKED, OOM_FROM_LADDER, OOM_FROM_SEARCH };

#define OOM_ELSEWHERE 2

struct oom_answer {
	struct oom_question asked;      /* settled */
	struct oom_judged as_asked;
	/* The plan as asked if it fits and launches; otherwise the search's, which is the cheapest of all;
	 * otherwise the last one of the ladder. */
	struct oom_judged best;
	enum oom_answer_from from;
	int changes;                    /* how many changes best has: departures, or rungs */
	struct oom_ladder ladder;       /* every rung with its saving and verdict */
	struct oom_compat_set ladder_broken;    /* rules that the ladder's plan breaks */
	bool searched;
	struct oom_search search;       /* the cheapest plan of all, its reasons, and alternatives */
	size_t replayed;                /* verdicts that needed a replay of the allocator */
	/* Where nothing fits, or only what is slower by more than the step time's interval or no faster and not
	 * exact: the best plan of other launchers (oom_engine_info.launcher of its engine), with tensor, pipeline,
	 * context or expert parallelism.  Offered, never taken. */
	struct oom_candidate elsewhere[OOM_ELSEWHERE];
	size_t n_elsewhere;
};
/* Answers the question, which must have a capacity; otherwise OOM_ERR_INVALID. */
OOM_API enum oom_status oom_answer(struct oom_evaluator *ev, const struct oom_question *q,
				   struct oom_answer *out, struct oom_error *err);

/* Runs the search alone.  The plan it departs from need not be able to run. */
OOM_API enum oom_status oom_answer_search(struct oom_evaluator *ev, const struct oom_question *q,
					  struct oom_search *out, struct oom_error *err);

/* oom_solve, judged by the question's calibration; step and exact_changes are explained there.  The
 * solution's plan has the margin as asked (for "gpu-memory" the one that the calibration amounts to).
 * OOM_ERR_INVALID for a knob that cannot be solved for. */
OOM_API enum oom_status oom_answer_solve(struct oom_evaluator *ev, const struct oom_question *q,
					 const char *knob, int64_t step, bool exact_changes,
					 struct oom_solution *out, struct oom_error *err);

/* Reports what the question's lengths mean for its batches.  q must have lengths. */
OOM_API struct oom_lengths_report oom_question_lengths(const struct oom_question *q);
/* Sets the length in tokens of the longest sequences with which batches of the plan as asked fit (0: none
 * fits, or there is no card), and the expected first step of an epoch whose batch has a longer one (0:
 * there is none). */
OOM_API enum oom_status oom_answer_lengths(struct oom_evaluator *ev, const struct oom_question *q,
					   int64_t *longest_tokens, double *death_step,
					   struct oom_error *err);

/* What the question's calibration and confidence say about a plan and its evaluation, which must have its
 * buckets. */
OOM_API struct oom_expectation oom_question_expects(const struct oom_question *q, const struct oom_plan *plan,
						    const struct oom_eval *eval);

#ifdef __cplusplus
}
#endif

#endif
