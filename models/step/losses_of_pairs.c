/* Losses of answers that are compared, in pairs or one by one: bodies as in TRL 1.10 (trl/trainer). */
#include "step/losses.h"

#include "blocks/blocks.h"
#include "blocks/logprobs.h"
#include "step/model_calls.h"
#include "tape/round.h"

/* Log-probabilities of all words at once, kept for the backward, as TRL took them before 0.15 (trl/trainer/dpo_trainer.py
 * 0.14 get_batch_logps; row by row since huggingface/trl#2799), which logged no entropy, and as LLaMA-Factory does of an
 * fp32 copy (llamafactory/train/trainer_utils.py get_batch_logps, dpo/trainer.py concatenated_forward). */
static bool at_once(const struct oom_tape *t)
{
	const int kind = t->plan->fused_ce;

	return kind == OOM_LOSS_OUTSIDE || kind == OOM_LOSS_OWN_TYPE || kind == OOM_LOSS_SLICED;
}

/* LLaMA-Factory from 0.8 to 0.9.3 gave the model the labels as well, whose loss nobody took (hiyouga/LlamaFactory b0d9966,
 * 0894b4f): logits upcast, copied for the shift by one token, and their log_softmax, for as long as the call takes.
 * transformers from 4.49 on makes no copy, so that those of its day need a third less. */
static void spare_loss(struct oom_tape *t, struct oom_val logits)
{
	const uint16_t tokens = oom_len_minus(t, t->m_b, 1);
	const bool grad = t->grad;
	struct oom_val whole, x;

	t->grad = false;
	whole = oom_op_cast(t, oom_keep(logits), OOM_F32);
	x = oom_op_slice(t, oom_keep(whole), tokens, (struct oom_dim){whole.width, whole.text});
	x = oom_op_copy(t, "shifted logits", x);
	oom_drop(t, oom_cross_entropy(t, x, oom_new(t, "shifted labels", tokens, D(1), OOM_I64)));
	oom_drop(t, whole);
	t->grad = grad;
}

static struct oom_val as_taken(struct oom_tape *t, struct oom_val logits)
{
	if (t->plan->spare_loss)
		spare_loss(t, logits);
	return t->plan->fused_ce == OOM_LOSS_OUTSIDE ? oom_op_cast(t, logits, OOM_F32) : logits;
}

static struct oom_val logps_of(struct oom_tape *t, struct oom_val x, uint16_t row)
{
	return at_once(t) ? oom_picked_logps(t, x) : oom_token_logps(t, x, row);
}

/* The rows of chosen and rejected answers in one pass; those of the reference while the graph of the
 * first waits; the entropy of the first's for the log (trl/trainer/dpo_trainer.py _compute_loss). */
struct oom_val oom_loss_dpo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const enum oom_reference ref = oom_reference_of(t->plan);
	const uint16_t row = oom_len_minus(t, OOM_MONO_ONE, 1);
	struct oom_val x, other = oom_none(), logps, theirs = oom_none(), counted, sums;

	t->scope = "loss";
	logits = as_taken(t, logits);
	x = oom_shifted(t, logits);
	logps = logps_of(t, x, row);
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
		other = as_taken(t, other);
		y = oom_shifted(t, other);
		theirs = logps_of(t, y, row);
		oom_drop(t, y);
		t->grad = grad;
	}
	if (t->plan->objective == OOM_METHOD_DPO && !at_once(t))
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
 * answers, without gradients before the first and before the reference's, need less than what follows.  What takes
 * log-probabilities at once logs neither. */
struct oom_val oom_loss_kto(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const enum oom_reference ref = oom_reference_of(t->plan);
	const uint16_t row = oom_len_minus(t, OOM_MONO_ONE, 1);
	const uint16_t tokens = oom_len_sequences(t, row, 2);
	struct oom_val x, other = oom_none(), half[2], picked = oom_none();
	const int kinds = at_once(t) ? 0 : oom_cond_above(t, t->m_b, 1) ? 2 : 1;
	const bool grad = t->grad;

	t->scope = "loss";
	logits = as_taken(t, logits);
	x = oom_shifted(t, logits);
	loss = oom_reduce(t, logps_of(t, x, row));
	if (ref != OOM_REF_NONE) {
		struct oom_val y;

		other = oom_other_logits(t, a, ref);
		t->scope = "loss";
		t->grad = false;
		other = as_taken(t, other);
		y = oom_shifted(t, other);
		oom_drop(t, logps_of(t, y, row));
		oom_drop(t, y);
		t->grad = grad;
	}
	if (!at_once(t))
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

/* LLaMA-Factory's odds ratio is of the log-probabilities alone (llamafactory/train/dpo/trainer.py odds_ratio_loss). */
static struct oom_val odds_alone(struct oom_tape *t, struct oom_val logits, uint16_t row)
{
	struct oom_val x, loss;

	logits = as_taken(t, logits);
	x = oom_shifted(t, logits);
	loss = oom_reduce(t, logps_of(t, x, row));
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
	struct oom_val chosen, labels, x, odds;

	(void)a;
	if (t->plan->fused_ce == OOM_LOSS_OUTSIDE)
		return odds_alone(t, logits, row);
	labels = oom_input(t, "labels", tokens, 1, OOM_I64);
	chosen = oom_op_slice(t, oom_keep(logits), oom_len_sequences(t, t->m_s, 2), vocab);
	chosen = oom_op_slice(t, chosen, tokens, vocab);
	if (oom_cond_above(t, t->m_b, 2)) {     /* of one pair views */
		chosen = oom_op_copy(t, "chosen logits", chosen);
		labels = oom_new(t, "chosen labels", tokens, D(1), OOM_I64);
	}
	loss = oom_cross_entropy(t, chosen, labels);
	x = oom_shifted(t, logits);
	odds = oom_reduce(t, logps_of(t, x, row));
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
