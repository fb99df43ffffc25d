/* Between the files that answer questions: one question at work. */
#ifndef OOM_ANSWER_PARTS_H
#define OOM_ANSWER_PARTS_H

#include "oomplan/answer.h"

#include "margins.h"

#define ASKER_NO_CARD "no card to fit on: neither gpu nor capacity"

/* The calibration of the kind of run that was asked about last. */
struct asker_kind {
	const char *name;
	bool there;
	struct oom_calibration calibration;
};
struct asker {
	struct oom_question q;          /* settled */
	struct oom_evaluator *ev, *own;
	struct margins margins;
	struct oom_compat own_rules;    /* where the question brings none */
	const struct oom_compat *compat;
	struct oom_plan plan;           /* as asked, with the margin that is worked with */
	struct asker_kind kind;
	struct asker_kind *of_kind;     /* the same, which questions about another kind change */
	struct oom_error *err;
};

/* Settles the question. ev: kept by the caller, or NULL for one of its own. asker_finish frees what it took, after an
 * error too. OOM_ERR_MEMORY; what the table of frameworks refuses. */
enum oom_status asker_start(struct asker *a, struct oom_evaluator *ev, const struct oom_question *q,
			    struct oom_error *err);
/* The margin for runs composed like the plan as asked, where that can be priced. */
void asker_take_margin(struct asker *a);
/* Of a call with this status, which is OOM_ERR_MEMORY where an evaluation had none. */
enum oom_status asker_finish(struct asker *a, enum oom_status st);
/* With buckets, and the allocator replayed. */
enum oom_status asker_price(const struct asker *a, const struct oom_plan *p, struct oom_eval *e);
bool asker_calibrates(const struct asker *a);
/* What plans of this kind are judged by; NULL: their margin. */
const struct oom_calibration *asker_calibration(const struct asker *a, const struct oom_plan *p);
/* The verdict on the card: the calibration's word, where there is one, instead of the budget's. */
bool asker_on_card(const struct asker *a, const struct oom_plan *p, const struct oom_eval *e, bool in_budget);
/* What estimate says of the plan, which gets the margin that was asked with. */
enum oom_status asker_judge(const struct asker *a, struct oom_plan *p, struct oom_eval *e, bool *fits);
/* All that is reported of a plan priced as e; in_budget: by the margin that was asked with. */
void asker_judged(const struct asker *a, const struct oom_plan *p, const struct oom_eval *e,
		  bool in_budget, struct oom_judged *out);

/* search.c */
struct oom_search_query answer_query(const struct asker *a, const struct oom_plan *asked);
/* Halves the evaluation's batch until the card has room. False: not for one sample. */
bool answer_room_for_evaluation(const struct asker *a, struct oom_plan *p);
/* The asked plan's evaluation, where its logits pile up, as large as the card has room for. */
void answer_lower_pile(struct asker *a);
/* Where calibrated: takes out alternatives that estimate refuses; and a best one, whose place the first of them takes. */
enum oom_status answer_drop_refused(const struct asker *a, struct oom_search *s);
enum oom_status answer_accepted(const struct asker *a, struct oom_search *s);
void answer_restore_margin(const struct asker *a, struct oom_search *s);

/* elsewhere.c: plans of other launchers that fit where nothing else does, or are faster by more than the
 * estimate's interval. */
enum oom_status answer_elsewhere(const struct asker *a, struct oom_answer *out);

#endif
