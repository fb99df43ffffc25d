/* Objectives: bodies as in TRL 1.10 (trl/trainer) and in transformers' Trainer. */
#include "time/work.h"
#include "step/objectives.h"

#include <string.h>

#include "blocks/blocks.h"
#include "blocks/logprobs.h"
#include "families/model.h"
#include "step/program.h"

/* ---- calling a model ---- */

struct called {
	struct oom_val loss, logits;    /* logits: only where they are worked on */
};

/* A converted output takes the place of what it was made of, for a loop that keeps them. */
static void give_or_keep(struct oom_tape *t, size_t i, struct oom_val full)
{
	if (t->plan->keep_outputs && t->grad) {
		const struct oom_val first = t->outputs[i];

		t->outputs[i] = full;
		full = first;
	}
	oom_drop(t, full);
}

/* The model returns: all but the loss is given up, converted to fp32 all together before by
 * accelerate's wrapper (accelerate/utils/operations.py, ConvertOutputsToFp32).  The logits stay if
 * they are wanted. */
static struct called returned(struct oom_tape *t, struct oom_val loss, bool convert, bool wanted)
{
	struct oom_val full[OOM_MAX_RETURNED];
	struct called c = {.loss = loss, .logits = oom_none()};
	const int at = t->logits_at;

	oom_prompts_leave(t);
	if (convert && !oom_fuses_head(t)) {
		const struct oom_val first = oom_share(t, loss);

		if (!oom_is_none(loss))
			c.loss = oom_op_cast(t, loss, OOM_F32);
		for (size_t i = 0; i < t->n_outputs; i++)
			full[i] = oom_op_cast(t, oom_keep(t->outputs[i]), OOM_F32);
		for (size_t i = 0; i < t->n_outputs; i++)
			if (wanted && (int)i == at)
				c.logits = full[i];
			else
				give_or_keep(t, i, full[i]);
		oom_drop(t, first);
	} else if (wanted && at >= 0) {
		c.logits = oom_share(t, t->outputs[at]);
	}
	if (t->plan->keep_outputs && t->grad)
		return c;               /* the loop gives them up after the backward */
	while (t->n_outputs)
		oom_drop(t, t->outputs[--t->n_outputs]);
	return c;
}

static struct called call(struct oom_tape *t, const struct oom_arch *a, bool train, bool labels,
			  bool wanted)
{
	/* TRL's and transformers' trainers call what accelerate has wrapped */
	const bool wrapped = wanted ? t->amp : t->plan->convert_outputs_fp32 && train;
	struct oom_val loss;
	struct called c;

	t->no_labels = !labels;
	t->m_logits = oom_objective_of(t->plan)->completion ?
			      oom_len_min(t, t->m_b, (uint64_t)t->plan->completion_len + 1) :
			      OOM_MONO_ONE;
	t->logits_at = -1;
	oom_amp_enter(t);
	loss = oom_family_step(a->family, t, a);
	c = returned(t, loss, wrapped || (wanted && t->plan->convert_outputs_fp32), wanted);
	oom_amp_leave(t);
	if (wanted && t->logits_at < 0)
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "this objective works on the logits of a language model; those of model "
			      "type %s do not leave it in this task", a->model_type);
	return c;
}

/* ---- models beside the trained one ---- */

static void count_beside(struct oom_tape *t, size_t from)
{
	for (size_t i = from; i < t->n_params; i++) {
		struct oom_param *q = &t->params[i];
		uint64_t rounded;

		q->flags |= OOM_P_BESIDE;
		t->beside.bytes += oom_param_bytes(q, t->plan, &rounded) * q->count;
		t->beside.rounded += rounded * q->count;
		t->beside.elems += q->elems * q->count;
	}
}

/* The logits of another model: a second one in evaluation, or the trained one without its adapters,
 * whose weights are there already. */
static struct oom_val other_logits(struct oom_tape *t, const struct oom_arch *a,
				   enum oom_reference ref)
{
	const struct oom_arch *const arch = t->arch;
	const uint64_t vocab = t->vocab, pixels = t->pixels;
	const uint8_t shift = t->shift;
	const struct oom_selection selection = t->selection;
	const char *warning = t->warning;
	const struct oom_plan *const plan = t->plan;
	const bool grad = t->grad, train = t->train;
	const uint64_t buffers = t->buffer_bytes, rounded = t->buffer_rounded;
	const struct oom_tally work = t->tally;
	struct oom_plan own = *plan;
	struct called c;
	size_t from;

	oom_plan_unadapt(&own);
	own.grad_ckpt = OOM_CKPT_NONE;
	own.num_layers = a == arch ? own.num_layers : 0;
	t->arch = a;
	t->plan = &own;
	t->selection.by_name = false;   /* nothing of it trains */
	t->grad = false;
	t->train = train && ref == OOM_REF_ADAPTER;
	oom_tape_beside(t, true);
	from = t->n_params;
	t->frozen = true;
	c = call(t, a, false, false, true);
	t->frozen = false;
	oom_work_alone(t, &work);
	if (ref == OOM_REF_MODEL) {
		count_beside(t, from);
		t->beside.rounded += t->buffer_rounded - rounded;
	}
	oom_tape_beside(t, false);
	t->buffer_bytes = buffers;
	t->buffer_rounded = rounded;
	t->arch = arch;
	t->vocab = vocab;
	t->pixels = pixels;
	t->shift = shift;
	t->selection = selection;
	t->warning = warning;
	t->plan = plan;
	t->grad = grad;
	t->train = train;
	return c.logits;
}

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

		other = other_logits(t, a, ref);
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

		other = other_logits(t, a, ref);
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
	logits = other_logits(t, a, ref);
	t->grad = false;
	oom_drop(t, answer_logps(t, logits));
	t->grad = grad;
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

	if (!t->teacher || t->teacher->vocab != a->vocab) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "objective distill needs a teacher of the same vocabulary (%llu tokens): "
			      "--teacher config.json",
			      (unsigned long long)a->vocab);
		oom_drop(t, logits);
		return loss;
	}
	teacher = other_logits(t, t->teacher, OOM_REF_MODEL);
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
	[OOM_METHOD_GRPO] = {.rows = 1, .inputs = 2, .no_labels = true, .completion = true,
			     .tasks = TEXT,
			    .source = TRL "grpo_trainer.py", .loss = grpo},
	[OOM_METHOD_DISTILL] = {.rows = 1, .tasks = TEXT, .source = "torch/nn/functional.py kl_div",
				.loss = distill},
	[OOM_METHOD_REWARD] = {.rows = 2, .inputs = 1, .no_labels = true,
			       .tasks = 1u << OOM_TASK_SEQ_CLS,
			       .source = TRL "reward_trainer.py", .loss = reward},
};
static const struct oom_objective smoothing = {.rows = 1, .no_labels = true,
					       .source = "transformers trainer_pt_utils.py",
					       .loss = smoothed},
				  logging = {.rows = 1, .tasks = TEXT, .source = TRL "sft_trainer.py",
					     .loss = measured};

const struct oom_objective *oom_objective_of(const struct oom_plan *p)
{
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
	return only == 1u << OOM_TASK_SEQ_CLS ? OOM_TASK_SEQ_CLS : a->default_task;
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
	struct called c;

	if (o->tasks && !(o->tasks >> t->task & 1)) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s is trained for another task: %s",
			      a->model_type, o->tasks == TEXT ?
			      "objectives and losses of whole logits are about causal language models" :
			      "a reward model is a classifier, --task seq-cls");
		return oom_none();
	}
	c = call(t, a, train, !o->no_labels, o->loss != NULL);
	if (!o->loss || t->status) {
		oom_drop(t, c.logits);
		return c.loss;
	}
	t->fused = false;
	return o->loss(t, a, c.loss, c.logits);
}
