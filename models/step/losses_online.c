/* Losses of answers that the trained model gave: GRPO and its kin, PPO.  Bodies as in TRL 1.10 (trl/trainer). */
#include "step/losses.h"

#include "blocks/blocks.h"
#include "blocks/logprobs.h"
#include "step/model_calls.h"

/* Logits of the answer and of the token before it; divided by the temperature in place, a view by
 * then, whose gradient is copied whole, cloned and divided (CopySlices); entropy without gradient;
 * ratio and clipping of one number per token (trl/trainer/grpo_trainer.py
 * _get_per_token_logps_and_entropies, _compute_loss). */
static struct oom_val answer_logps(struct oom_tape *t, struct oom_val logits)
{
	const uint64_t n = (uint64_t)t->plan->completion_len;
	const uint16_t row = oom_len_min(t, OOM_MONO_ONE, n), tokens = oom_len_min(t, t->m_b, n);
	struct oom_val x, y;

	t->scope = "loss";
	logits = oom_op_temper(t, logits, tokens);
	x = oom_op_slice(t, logits, tokens, (struct oom_dim){logits.width, logits.text});
	x = oom_op_slice(t, x, tokens, (struct oom_dim){x.width, x.text});
	if (oom_logps_in_place(t->plan))
		return oom_flash_logps(t, x);
	y = oom_token_logps(t, x, row);
	if (t->grad || t->stream == OOM_STREAM_EVAL)
		oom_token_entropy(t, x, n);
	oom_drop(t, x);
	return y;
}

struct oom_val oom_loss_grpo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const enum oom_reference ref = oom_reference_of(t->plan);
	const bool grad = t->grad;

	loss = oom_reduce(t, answer_logps(t, logits));
	if (ref == OOM_REF_NONE)
		return loss;
	logits = oom_other_logits(t, a, ref);
	t->grad = false;
	oom_drop(t, answer_logps(t, logits));
	t->grad = grad;
	return loss;
}

/* What has a name outside of the loss: the policy's logits, and its hidden states (output_hidden_states=True) where
 * nothing else keeps them: norms keep fp32 copies of 16-bit ones, a checkpointed layer its input, the head under
 * autocast a cast of the last.  That those which autograd keeps too outlive their layer's backward is left out. */
static void linger(struct oom_tape *t, const struct oom_arch *a, struct oom_val logits)
{
	const uint64_t layers = t->plan->num_layers ? (uint64_t)t->plan->num_layers : a->n_layers;
	const bool half = logits.dt != OOM_F32, all = half && t->plan->grad_ckpt == OOM_CKPT_NONE;

	if (!t->grad) {
		oom_drop(t, logits);
		return;
	}
	oom_returns(t, logits);
	if (all || t->amp)
		oom_returns(t, oom_new(t, "hidden states", t->m_bs, (struct oom_dim){(all ? layers : 1) * a->d_model, NULL},
				       (enum oom_dtype)logits.dt));
}

/* One micro-batch of the update: critic and policy, the answers' logits divided in place, a view of all of the
 * sequence's (trl/experimental/ppo/ppo_trainer.py train, PolicyAndValueWrapper).  The passes over rollouts, which
 * come before without a graph, are rollouts.c. */
struct oom_val oom_loss_ppo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const uint64_t n = (uint64_t)t->plan->completion_len;
	const uint16_t row = oom_len_min(t, OOM_MONO_ONE, n), tokens = oom_len_min(t, t->m_b, n);
	const struct oom_val value = oom_critic(t, a);
	const size_t from = t->cursor;
	struct oom_val x;

	logits = oom_call(t, a, t->train, false, true).logits;
	if (t->status) {
		oom_drop(t, value);
		oom_drop(t, logits);
		return loss;
	}
	if (oom_reference_of(t->plan) == OOM_REF_MODEL)
		oom_copy_beside(t, from);
	t->scope = "loss";
	logits = oom_op_temper(t, logits, tokens);
	x = oom_op_slice(t, oom_keep(logits), tokens, (struct oom_dim){logits.width, logits.text});
	loss = oom_reduce(t, oom_token_logps(t, x, row));
	oom_drop(t, x);
	loss = oom_op_add(t, loss, oom_reduce(t, oom_op_unary(t, OOM_SQUARE, value)));
	linger(t, a, logits);
	return loss;
}

/* The policy's update where critic and policy take turns (openrlhf/trainer/ppo_trainer.py training_step_actor, then
 * training_step_critic, each an engine of DeepSpeed's of its own): the critic's weights and states wait, and its logits of
 * one number per token need less than these.  Log-probabilities are of whole sequences (openrlhf/models/actor.py forward). */
struct oom_val oom_loss_ppo_apart(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const bool grad = t->grad;
	struct oom_val x;
	size_t from;

	t->grad = false;
	oom_drop(t, oom_critic(t, a));
	t->grad = grad;
	from = t->cursor;
	logits = oom_call(t, a, t->train, false, true).logits;
	if (t->status) {
		oom_drop(t, logits);
		return loss;
	}
	if (oom_reference_of(t->plan) == OOM_REF_MODEL)
		oom_copy_beside(t, from);
	t->scope = "loss";
	x = oom_shifted(t, logits);
	loss = oom_reduce(t, oom_token_logps(t, x, oom_len_min(t, OOM_MONO_ONE, (uint64_t)t->plan->seq_len)));
	oom_drop(t, x);
	oom_drop(t, logits);
	return loss;
}

/* ---- pairs that the model answers itself ---- */

/* Log-probabilities of the answers' tokens, out of the logits of whole sequences: a log_softmax of all of them
 * (OnlineDPOTrainer._forward), or selective_log_softmax (XPOTrainer and NashMDTrainer._compute_logprobs). */
static struct oom_val of_answers(struct oom_tape *t, struct oom_val logits, bool picks)
{
	const uint64_t n = (uint64_t)t->plan->completion_len;
	const uint16_t row = oom_len_min(t, OOM_MONO_ONE, n), tokens = oom_len_min(t, t->m_b, n);
	struct oom_val x, y;

	t->scope = "loss";
	x = oom_op_slice(t, logits, tokens, (struct oom_dim){logits.width, logits.text});
	y = picks ? oom_picked_logps(t, x) : oom_token_logps(t, x, row);
	oom_drop(t, x);
	return y;
}

/* Policy, then reference without a graph, whose call makes the cache that nobody reads, as none says use_cache=False;
 * a reward model of the trained one's kind lies beside, and its pass, under inference_mode, needs less. */
static struct oom_val answered_pairs(struct oom_tape *t, const struct oom_arch *a, struct oom_val logits, bool picks)
{
	const enum oom_reference ref = oom_reference_of(t->plan);
	const bool grad = t->grad;
	struct oom_val loss, cache = oom_none();

	oom_copy_beside(t, 0);
	loss = oom_reduce(t, of_answers(t, logits, picks));
	if (ref == OOM_REF_NONE)
		return loss;
	logits = oom_other_logits(t, a, ref);
	t->grad = false;
	cache = oom_new(t, "reference's keys and values", t->m_bs,
			(struct oom_dim){2 * a->n_layers * a->n_kv_heads * a->head_dim, NULL},
			oom_plan_stores(t->plan) == OOM_FP32 && !t->amp ? OOM_F32 : OOM_DT_BF16);
	oom_drop(t, of_answers(t, logits, picks));
	oom_drop(t, cache);
	t->grad = grad;
	return loss;
}

struct oom_val oom_loss_online_dpo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	(void)loss;
	return answered_pairs(t, a, logits, true);
}

struct oom_val oom_loss_xpo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	(void)loss;
	return answered_pairs(t, a, logits, false);
}
