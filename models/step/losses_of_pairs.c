/* Losses of answers that are compared, in pairs or one by one: bodies as in TRL 1.10 (trl/trainer). */
#include "step/losses.h"

#include "blocks/blocks.h"
#include "blocks/logprobs.h"
#include "step/model_calls.h"
#include "tape/round.h"

/* The rows of chosen and rejected answers in one pass; those of the reference while the graph of the
 * first waits; the entropy of the first's for the log (trl/trainer/dpo_trainer.py _compute_loss). */
struct oom_val oom_loss_dpo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const enum oom_reference ref = oom_reference_of(t->plan);
	const uint16_t row = oom_len_minus(t, OOM_MONO_ONE, 1);
	struct oom_val x = oom_shifted(t, logits), other = oom_none(), logps, theirs = oom_none(), counted, sums;

	t->scope = "loss";
	logps = oom_token_logps(t, x, row);
	counted = oom_new(t, "completion mask", x.mono, D(1), OOM_U8);
	/* those of both answers, what they are compared with (zeros each), their distance, its logsigmoid */
	sums = oom_scratch_hold(t, "sums of log-probabilities", OOM_MONO_ONE, (ref == OOM_REF_NONE ? 5 : 4) * oom_block(4),
				OOM_U8);
	loss = oom_reduce(t, oom_keep(logps));
	if (ref != OOM_REF_NONE) {
		const bool grad = t->grad;
		struct oom_val y;

		other = oom_other_logits(t, a, ref);
		t->scope = "loss";
		t->grad = false;
		y = oom_shifted(t, other);
		theirs = oom_token_logps(t, y, row);
		oom_drop(t, y);
		t->grad = grad;
	}
	if (t->plan->objective == OOM_METHOD_DPO)
		oom_token_entropy(t, x, 0);
	oom_drop(t, logps);
	oom_drop(t, theirs);
	oom_drop(t, counted);
	oom_drop(t, sums);
	oom_drop(t, other);
	oom_drop(t, x);
	oom_drop(t, logits);
	return loss;
}

/* The rows of single answers; those of the reference, whose outputs have a name to the end; the entropy, and
 * for the log the logits of good and bad answers apart, then those of each once more as their masks pick
 * them: taken as half of the rows each (trl/trainer/kto_trainer.py _compute_loss).  The passes over mismatched
 * answers, without gradients before the first and before the reference's, need less than what follows. */
struct oom_val oom_loss_kto(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const enum oom_reference ref = oom_reference_of(t->plan);
	const uint16_t row = oom_len_minus(t, OOM_MONO_ONE, 1);
	const uint16_t tokens = oom_len_sequences(t, row, 2);
	struct oom_val x = oom_shifted(t, logits), other = oom_none(), half[2], picked = oom_none();
	const int kinds = oom_cond_above(t, t->m_b, 1) ? 2 : 1;
	const bool grad = t->grad;

	t->scope = "loss";
	loss = oom_reduce(t, oom_token_logps(t, x, row));
	if (ref != OOM_REF_NONE) {
		struct oom_val y;

		other = oom_other_logits(t, a, ref);
		t->scope = "loss";
		t->grad = false;
		y = oom_shifted(t, other);
		oom_drop(t, oom_token_logps(t, y, row));
		oom_drop(t, y);
		t->grad = grad;
	}
	oom_token_entropy(t, x, 0);
	for (int i = 0; i < kinds; i++)
		half[i] = oom_new(t, "good and bad logits", tokens, (struct oom_dim){x.width, x.text},
				  (enum oom_dtype)x.dt);
	for (int i = 0; i < kinds; i++) {
		picked = oom_new(t, "answers' logits", tokens, (struct oom_dim){x.width, x.text}, (enum oom_dtype)x.dt);
		oom_drop(t, picked);
	}
	for (int i = 0; i < kinds; i++)
		oom_drop(t, half[i]);
	oom_drop(t, other);
	oom_drop(t, x);
	oom_drop(t, logits);
	return loss;
}

/* cross_entropy(logits[:n, :-1].reshape(-1, V), labels) of the chosen half, and the log-probabilities
 * of all rows (trl/experimental/orpo/orpo_trainer.py concatenated_forward). */
struct oom_val oom_loss_orpo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const uint16_t row = oom_len_minus(t, OOM_MONO_ONE, 1),
		       tokens = oom_len_sequences(t, row, 2);
	const struct oom_dim vocab = {logits.width, logits.text};
	struct oom_val chosen, labels = oom_input(t, "labels", tokens, 1, OOM_I64), x, odds;

	(void)a;
	chosen = oom_op_slice(t, oom_keep(logits), oom_len_sequences(t, t->m_s, 2), vocab);
	chosen = oom_op_slice(t, chosen, tokens, vocab);
	if (oom_cond_above(t, t->m_b, 2)) {     /* of one pair views */
		chosen = oom_op_copy(t, "chosen logits", chosen);
		labels = oom_new(t, "chosen labels", tokens, D(1), OOM_I64);
	}
	loss = oom_cross_entropy(t, chosen, labels);
	x = oom_shifted(t, logits);
	odds = oom_reduce(t, oom_token_logps(t, x, row));
	loss = oom_op_add(t, loss, odds);
	oom_drop(t, x);
	oom_drop(t, logits);
	return loss;
}

/* -logsigmoid(chosen - rejected) of one number per row (trl/trainer/reward_trainer.py). */
struct oom_val oom_loss_reward(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	(void)a;
	loss = oom_op_unary(t, OOM_LOGSIGMOID, oom_op_view(t, oom_keep(logits), logits.mono, D(1)));
	oom_drop(t, logits);
	return oom_reduce(t, loss);
}
