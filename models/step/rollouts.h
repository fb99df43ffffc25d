/* Answers that the trained model gives within the step, before it learns from them. */
#ifndef OOM_ROLLOUTS_H
#define OOM_ROLLOUTS_H

#include "step/objectives.h"
#include "step/program.h"

/* Whether the plan's step generates with the model that is trained, and not with an engine of its own. */
bool oom_plan_generates(const struct oom_plan *p);
/* The peak of that phase of a step after the first, above weights and states: out->peak[OOM_PHASE_ROLLOUTS],
 * and the overall peak where it is higher.  0 where nothing is generated.  The phases have been read. */
enum oom_status oom_rollouts(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
			     struct oom_eval *out, struct oom_alive *alive, struct oom_error *err);

/* The precision that it generates in. */
int64_t oom_generates_in(const struct oom_plan *p);
/* A forward pass of a step that generates, without a graph, above what lies there; an encoder's tokens, and one of its
 * decoder, where there are two. */
enum oom_status oom_generating_pass(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
				    enum oom_generating what, uint64_t rows, uint64_t tokens, uint64_t *bytes,
				    struct oom_error *err);
/* Answers to an evaluation batch (predict_with_generate): what they raise the evaluation's peak to (eval_answers.c). */
enum oom_status oom_eval_answers(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *p,
				 struct oom_eval *out, struct oom_alive *alive, struct oom_error *err);

#endif
