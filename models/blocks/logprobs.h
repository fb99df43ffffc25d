/* What training loops compute of logits outside of the model.  Reference: trl/trainer/utils.py,
 * transformers/trainer_pt_utils.py.
 *
 * Logits x are a view of `tokens` (a monomial) times the vocabulary; `row` is the tokens of one
 * sequence.  Borrowed. */
#ifndef OOM_LOGPROBS_H
#define OOM_LOGPROBS_H

#include "ops/ops.h"

/* selective_log_softmax: the log-probability of every token that is there, in x's type. */
struct oom_val oom_token_logps(struct oom_tape *t, struct oom_val x, uint16_t row);
/* take_along_dim(log_softmax(x)): all log-probabilities are kept, and one of every token is picked. */
struct oom_val oom_picked_logps(struct oom_tape *t, struct oom_val x);
/* entropy_from_logits, under no_grad: chunks of 128 tokens of a copy; of sequences without their last token, or of
 * `each` tokens of every sequence. */
void oom_token_entropy(struct oom_tape *t, struct oom_val x, uint64_t each);
/* LabelSmoother.__call__ on the whole logits. */
struct oom_val oom_smoothed_loss(struct oom_tape *t, struct oom_val logits, bool shift);
/* The generalised Jensen-Shannon divergence of two distributions given by their logits, borrowed; a number. */
struct oom_val oom_divergence(struct oom_tape *t, struct oom_val student, struct oom_val teacher);
/* One number out of one per token or per sequence. */
struct oom_val oom_reduce(struct oom_tape *t, struct oom_val x);
/* logits[..., :-1, :] of borrowed logits. */
struct oom_val oom_shifted(struct oom_tape *t, struct oom_val logits);

#endif
