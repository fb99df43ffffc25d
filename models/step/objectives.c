/* Objectives: bodies as in TRL 1.10 (trl/trainer) and in transformers' Trainer. */
#include "step/objectives.h"

#include <string.h>

#include "blocks/blocks.h"
#include "blocks/logprobs.h"
#include "plan/defaults.h"
#include "step/called.h"

/* ---- losses ---- */

/* The rows of chosen and rejected answers in one pass; those of the reference while the graph of the
 * first waits; the entropy of the first's for the log (trl/trainer/dpo_trainer.py _compute_loss). */
static struct oom_val dpo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			  struct oom_val logits)
{
	const enum oom_reference ref = oom_reference_of(t->plan);
	const uint16_t row = oom_len_minus(t, OOM_MONO_ONE, 1);
	struct oom_val x = oom_shifted(t, logits), other = oom_none();

	t->scope = "loss";
	loss = oom_reduce(t, oom_token_logps(t, x, row));
	if (ref != OOM_REF_NONE) {
		const bool grad = t->grad;
		struct oom_val y;

		other = oom_other_logits(t, a, ref);
		t->scope = "loss";
		t->grad = false;
		y = oom_shifted(t, other);
		oom_drop(t, oom_token_logps(t, y, row));
		oom_drop(t, y);
		t->grad = grad;
	}
	if (t->plan->objective == OOM_METHOD_DPO)
		oom_token_entropy(t, x);
	oom_drop(t, other);
	oom_drop(t, x);
	oom_drop(t, logits);
	return loss;
}

/* The rows of single answers; those of the reference, whose outputs have a name to the end; the entropy, and
 * for the log the logits of good and bad answers apart, then those of each once more as their masks pick
 * them: taken as half of the rows each (trl/trainer/kto_trainer.py _compute_loss).  The passes over mismatched
 * answers, without gradients before the first and before the reference's, need less than what follows. */
static struct oom_val kto(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			  struct oom_val logits)
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
	oom_token_entropy(t, x);
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
static struct oom_val orpo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			   struct oom_val logits)
{
	const uint16_t row = oom_len_minus(t, OOM_MONO_ONE, 1),
		       tokens = oom_len_sequences(t, row, 2);
	const struct oom_dim vocab = {logits.width, logits.text};
	struct oom_val chosen, x, odds;

	(void)a;
	chosen = oom_op_slice(t, oom_keep(logits), oom_len_sequences(t, t->m_s, 2), vocab);
	chosen = oom_op_slice(t, chosen, tokens, vocab);
	if (oom_cond_above(t, t->m_b, 2))       /* of one pair a view */
		chosen = oom_op_copy(t, "chosen logits", chosen);
	loss = oom_cross_entropy(t, chosen, oom_input(t, "labels", tokens, 1, OOM_I64));
	x = oom_shifted(t, logits);
	odds = oom_reduce(t, oom_token_logps(t, x, row));
	loss = oom_op_add(t, loss, odds);
	oom_drop(t, x);
	oom_drop(t, logits);
	return loss;
}

/* Logits of the answer and of the token before it; divided by the temperature in place, a view by
 * then, whose gradient is copied whole, cloned and divided (CopySlices); entropy without gradient;
 * ratio and clipping of one number a token (trl/trainer/grpo_trainer.py
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
	y = oom_token_logps(t, x, row);
	if (t->grad || t->stream == OOM_STREAM_EVAL)
		oom_token_entropy(t, x);
	oom_drop(t, x);
	return y;
}

static struct oom_val grpo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			   struct oom_val logits)
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

static bool same_vocabulary(struct oom_tape *t, const struct oom_arch *a)
{
	if (t->teacher && t->teacher->vocab == a->vocab)
		return true;
	oom_tape_fail(t, OOM_ERR_INVALID,
		      "this objective needs a teacher of the same vocabulary (%llu tokens): --teacher config.json",
		      (unsigned long long)a->vocab);
	return false;
}

/* What the teacher, called without use_cache=False, leaves beside its logits: copies of all keys and values,
 * in the keys' type (transformers cache_utils.py DynamicLayer.lazy_initialization, update).  Autocast has made
 * them 16 bit, and the rotation in the type of the embedded tokens undoes that. */
static struct oom_val teachers_cache(struct oom_tape *t)
{
	const struct oom_arch *a = t->teacher;
	const enum oom_dtype dt = (enum oom_dtype)(t->beside.n ? t->beside.params[0].dt : OOM_F32);

	return oom_new(t, "teacher's keys and values", t->m_bs,
		       (struct oom_dim){2 * a->n_layers * a->n_kv_heads * a->head_dim, NULL},
		       t->amp && a->rotary_share <= 0 ? (enum oom_dtype)t->amp_dt : dt);
}

/* Student and teacher on the whole vocabulary; the teacher's outputs keep their cache, as both keep their
 * logits, until the loss is there (trl/experimental/gkd/gkd_trainer.py compute_loss). */
static struct oom_val gkd(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			  struct oom_val logits)
{
	struct oom_val teacher, cache, x, y;

	if (!same_vocabulary(t, a)) {
		oom_drop(t, logits);
		return loss;
	}
	teacher = oom_other_logits(t, t->teacher, OOM_REF_MODEL);
	cache = teachers_cache(t);
	x = oom_shifted(t, logits);
	y = oom_shifted(t, teacher);
	loss = oom_divergence(t, x, y);
	oom_drop(t, y);
	oom_drop(t, x);
	oom_drop(t, cache);
	oom_drop(t, teacher);
	oom_drop(t, logits);
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
static struct oom_val ppo(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			  struct oom_val logits)
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

/* F.normalize: the vector and its length are kept. */
static struct oom_val unit_vector(struct oom_tape *t, struct oom_val x)
{
	struct oom_val n = oom_op_sum(t, oom_op_unary(t, OOM_SQUARE, oom_keep(x)), t->m_b, D(1));

	return oom_op_div(t, x, oom_op_expand(t, n, t->m_b, (struct oom_dim){x.width, x.text}));
}

/* One text, by the parameters from `from` on. */
static struct oom_val encoded(struct oom_tape *t, const struct oom_arch *a, size_t from)
{
	t->cursor = from;
	return oom_call(t, a, t->train, false, true).logits;
}

/* The texts of a sample, one pass after another over the same parameters; every first one against all others of the
 * batch (sentence_transformers/losses/MultipleNegativesRankingLoss.py forward, util cos_sim). */
static struct oom_val contrastive(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
				  struct oom_val logits)
{
	const uint64_t n = (uint64_t)t->plan->texts;
	const size_t from = t->cursor;
	struct oom_val text[OOM_MOST_TEXTS], others, x;
	uint64_t width;

	(void)loss;
	(void)logits;
	text[0] = encoded(t, a, from);
	for (uint64_t i = 1; i < n; i++) {
		const uint64_t buffers = t->buffer_bytes, rounded = t->buffer_rounded;

		oom_selection_pass(t);
		text[i] = encoded(t, a, from);
		t->buffer_bytes = buffers;      /* the same ones again */
		t->buffer_rounded = rounded;
	}
	t->scope = "loss";
	width = text[0].width;
	others = oom_op_copy(t, "candidates", oom_keep(text[1]));
	for (uint64_t i = 2; i < n; i++)
		others = oom_op_cat(t, others, oom_keep(text[i]), (struct oom_dim){i * width, NULL});
	x = oom_op_bmm(t, "scores", unit_vector(t, oom_keep(text[0])), unit_vector(t, others),
		       oom_mono_mul(t, t->m_b, t->m_b), (struct oom_dim){n - 1, "texts - 1"}, width);
	loss = oom_cross_entropy(t, oom_op_unary(t, OOM_SCALE, x), oom_input(t, "labels", t->m_b, 1, OOM_I64));
	for (uint64_t i = 0; i < n; i++)
		oom_drop(t, text[i]);
	return loss;
}

/* The model's own loss, and kl_div(log_softmax(logits / T), softmax(teacher / T)): the target times
 * its logarithm, the target times the student's, their difference (aten/src/ATen/native/Loss.cpp
 * kl_div); autograd keeps the target and the log-probabilities. */
static struct oom_val distill(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			      struct oom_val logits)
{
	const bool grad = t->grad;
	struct oom_val teacher, target, own, product, entropy;

	if (!same_vocabulary(t, a)) {
		oom_drop(t, logits);
		return loss;
	}
	teacher = oom_other_logits(t, t->teacher, OOM_REF_MODEL);
	t->scope = "loss";
	own = oom_op_log_softmax(t, oom_op_unary(t, OOM_SCALE, oom_keep(logits)));
	t->grad = false;
	target = oom_op_softmax(t, oom_op_unary(t, OOM_SCALE, oom_keep(teacher)), false);
	entropy = oom_new_like(t, "xlogy", target, (enum oom_dtype)target.dt);
	t->grad = grad;
	product = oom_op_mul(t, oom_keep(target), oom_keep(own));
	loss = oom_op_add(t, loss, oom_reduce(t, oom_op_add(t, entropy, product)));
	oom_drop(t, target);
	oom_drop(t, own);
	oom_drop(t, teacher);
	oom_drop(t, logits);
	return loss;
}

/* -logsigmoid(chosen - rejected) of one number a row (trl/trainer/reward_trainer.py). */
static struct oom_val reward(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			     struct oom_val logits)
{
	(void)a;
	loss = oom_op_unary(t, OOM_LOGSIGMOID, oom_op_view(t, oom_keep(logits), logits.mono, D(1)));
	oom_drop(t, logits);
	return oom_reduce(t, loss);
}

static struct oom_val smoothed(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			       struct oom_val logits)
{
	const enum oom_task task = t->task;

	(void)a;
	loss = oom_smoothed_loss(t, logits, task == OOM_TASK_CAUSAL_LM || task == OOM_TASK_IMAGE_TEXT);
	oom_drop(t, logits);
	return loss;
}

/* The model's own loss; entropy and accuracy of its tokens for the log
 * (trl/trainer/sft_trainer.py compute_loss). */
static struct oom_val measured(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
			       struct oom_val logits)
{
	struct oom_val x = oom_shifted(t, logits);

	(void)a;
	t->scope = "loss";
	oom_token_entropy(t, x);
	oom_drop(t, x);
	oom_drop(t, logits);
	return loss;
}

/* A pass without a loss: what it is recorded for is its peak without a graph. */
static struct oom_val generated(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss,
				struct oom_val logits)
{
	(void)a;
	(void)loss;
	return oom_reduce(t, logits);
}

/* ---- the table ---- */

#define TRL "trl/trainer/"
#define TEXT (1u << OOM_TASK_CAUSAL_LM | 1u << OOM_TASK_IMAGE_TEXT)
static const struct oom_objective table[] = {
	[OOM_METHOD_SFT] = {.rows = 1, .source = "transformers trainer.py"},
	[OOM_METHOD_DPO] = {.rows = 2, .inputs = 3, .no_labels = true, .compares = true,
			    .tasks = TEXT,
			    .source = TRL "dpo_trainer.py", .loss = dpo},
	[OOM_METHOD_ORPO] = {.rows = 2, .inputs = 2, .no_labels = true,
			     .tasks = TEXT,
			    .source = "trl/experimental/orpo/orpo_trainer.py", .loss = orpo},
	[OOM_METHOD_CPO] = {.rows = 2, .inputs = 2, .no_labels = true,
			    .tasks = TEXT,
			    .source = "trl/experimental/cpo/cpo_trainer.py", .loss = orpo},
	[OOM_METHOD_SIMPO] = {.rows = 2, .inputs = 2, .no_labels = true,
			      .tasks = TEXT,
			    .source = "trl/experimental/cpo/cpo_trainer.py", .loss = dpo},
	[OOM_METHOD_KTO] = {.rows = 1, .inputs = 6, .no_labels = true, .compares = true,
			    .tasks = TEXT, .source = TRL "kto_trainer.py", .loss = kto},
	[OOM_METHOD_GRPO] = {.rows = 1, .inputs = 2, .no_labels = true, .completion = true, .online = true,
			     .tasks = TEXT,
			    .source = TRL "grpo_trainer.py", .loss = grpo},
	[OOM_METHOD_DISTILL] = {.rows = 1, .tasks = TEXT, .source = "torch/nn/functional.py kl_div",
				.loss = distill},
	[OOM_METHOD_GKD] = {.rows = 1, .inputs = 3, .no_labels = true, .tasks = TEXT,
			    .source = "trl/experimental/gkd/gkd_trainer.py", .loss = gkd},
	[OOM_METHOD_PPO] = {.rows = 1, .inputs = 1, .no_labels = true, .compares = true, .whole = true,
			    .lingers = true, .rollouts = true, .online = true, .tasks = TEXT,
			    .source = "trl/experimental/ppo/ppo_trainer.py", .loss = ppo},
	[OOM_METHOD_CONTRASTIVE] = {.rows = 1, .inputs = 2, .no_labels = true, .whole = true, .by_text = true,
				    .tasks = 1u << OOM_TASK_EMBEDDING,
				    .source = "sentence_transformers/losses/MultipleNegativesRankingLoss.py",
				    .loss = contrastive},
	[OOM_METHOD_REWARD] = {.rows = 2, .inputs = 1, .no_labels = true,
			       .tasks = 1u << OOM_TASK_SEQ_CLS,
			       .source = TRL "reward_trainer.py", .loss = reward},
};
static const struct oom_objective smoothing = {.rows = 1, .no_labels = true,
					       .source = "transformers trainer_pt_utils.py",
					       .loss = smoothed},
				  generating[] = {[OOM_GENERATING_LAST] = {.rows = 1, .inputs = 1, .no_labels = true, .last = true,
									   .source = "transformers generation/utils.py",
									   .loss = generated},
						  [OOM_GENERATING_ALL] = {.rows = 1, .inputs = 1, .no_labels = true,
									  .source = "transformers generation/utils.py",
									  .loss = generated}},
				  logging = {.rows = 1, .tasks = TEXT, .source = TRL "sft_trainer.py",
					     .loss = measured};

const struct oom_objective *oom_objective_of(const struct oom_plan *p)
{
	if (p->generating)
		return &generating[p->generating];
	if (p->objective == OOM_METHOD_SFT && p->label_smoothing > 0)
		return &smoothing;
	if (p->objective == OOM_METHOD_SFT && p->fused_ce == OOM_LOSS_SFT)
		return &logging;
	return &table[p->objective];
}

enum oom_task oom_task_of(const struct oom_plan *p, const struct oom_arch *a)
{
	const unsigned only = oom_objective_of(p)->tasks;

	if (p->task)
		return (enum oom_task)p->task;
	return only == 1u << OOM_TASK_SEQ_CLS	? OOM_TASK_SEQ_CLS :
	       only == 1u << OOM_TASK_EMBEDDING ? OOM_TASK_EMBEDDING :
						  a->default_task;
}

uint64_t oom_labels_of(const struct oom_plan *p, const struct oom_arch *a)
{
	if (p->num_labels)
		return (uint64_t)p->num_labels;
	return p->objective == OOM_METHOD_REWARD ? 1 : a->config_labels;
}

enum oom_reference oom_reference_of(const struct oom_plan *p)
{
	if (p->reference != OOM_REF_AUTO)
		return (enum oom_reference)p->reference;
	if (!oom_objective_of(p)->compares)
		return OOM_REF_NONE;
	return oom_plan_adapted(p) ? OOM_REF_ADAPTER : OOM_REF_MODEL;
}

struct oom_val oom_objective_forward(struct oom_tape *t, const struct oom_arch *a, bool train)
{
	const struct oom_objective *o = oom_objective_of(t->plan);
	struct oom_called c;

	if (o->tasks && !(o->tasks >> t->task & 1)) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is trained for another task: %s",
			      a->model_type, o->tasks == 1u << OOM_TASK_EMBEDDING ? "texts are compared by their embeddings, --task embedding" :
			      o->tasks == TEXT ?
			      "objectives and losses of whole logits are about causal language models" :
			      "a reward model is a classifier, --task seq-cls");
		return oom_none();
	}
	if (o->whole) {
		t->fused = false;
		return o->loss(t, a, oom_none(), oom_none());
	}
	c = oom_call(t, a, train, !o->no_labels, o->loss != NULL);
	if (!o->loss || t->status) {
		oom_drop(t, c.logits);
		return c.loss;
	}
	t->fused = false;
	return o->loss(t, a, c.loss, c.logits);
}
