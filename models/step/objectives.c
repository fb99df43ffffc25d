/* The table of objectives, and the losses that transformers' Trainer and TRL's SFTTrainer make of logits. */
#include "step/objectives.h"

#include <string.h>

#include "blocks/blocks.h"
#include "blocks/logprobs.h"
#include "step/model_calls.h"
#include "step/losses.h"

/* ---- losses ---- */

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
	oom_token_entropy(t, x, 0);
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
	[OOM_METHOD_SFT] = {.in_trainer = OOM_LOOP_COUNTING, .rows = 1, .source = "transformers trainer.py"},
	[OOM_METHOD_DPO] = {.loop = OOM_LOOP_TRAINER, .rows = 2, .inputs = 3, .no_labels = true, .compares = true,
			    .tasks = TEXT,
			    .source = TRL "dpo_trainer.py", .loss = oom_loss_dpo},
	[OOM_METHOD_ORPO] = {.loop = OOM_LOOP_TRAINER, .rows = 2, .inputs = 2, .no_labels = true,
			     .tasks = TEXT,
			    .source = "trl/experimental/orpo/orpo_trainer.py", .loss = oom_loss_orpo},
	[OOM_METHOD_CPO] = {.loop = OOM_LOOP_TRAINER, .rows = 2, .inputs = 2, .no_labels = true,
			    .tasks = TEXT,
			    .source = "trl/experimental/cpo/cpo_trainer.py", .loss = oom_loss_orpo},
	[OOM_METHOD_SIMPO] = {.loop = OOM_LOOP_TRAINER, .rows = 2, .inputs = 2, .no_labels = true,
			      .tasks = TEXT,
			    .source = "trl/experimental/cpo/cpo_trainer.py", .loss = oom_loss_dpo},
	[OOM_METHOD_KTO] = {.loop = OOM_LOOP_TRAINER, .rows = 1, .inputs = 6, .no_labels = true, .compares = true,
			    .tasks = TEXT, .source = TRL "kto_trainer.py", .loss = oom_loss_kto},
	[OOM_METHOD_GRPO] = {.loop = OOM_LOOP_TRAINER, .rows = 1, .inputs = 2, .no_labels = true, .completion = true, .online = true,
			     .tasks = TEXT,
			    .source = TRL "grpo_trainer.py", .loss = oom_loss_grpo},
	[OOM_METHOD_DISTILL] = {.loop = OOM_LOOP_TRAINER, .rows = 1, .tasks = TEXT, .source = "torch/nn/functional.py kl_div",
				.loss = oom_loss_distill},
	[OOM_METHOD_GKD] = {.loop = OOM_LOOP_TRAINER, .rows = 1, .inputs = 3, .no_labels = true, .tasks = TEXT,
			    .source = "trl/experimental/gkd/gkd_trainer.py", .loss = oom_loss_gkd},
	[OOM_METHOD_PPO] = {.rows = 1, .inputs = 1, .no_labels = true, .compares = true, .whole = true,
			    .lingers = true, .rollouts = true, .online = true, .tasks = TEXT,
			    .source = "trl/experimental/ppo/ppo_trainer.py", .loss = oom_loss_ppo},
	[OOM_METHOD_ONLINE_DPO] = {.loop = OOM_LOOP_TRAINER, .rows = 2, .inputs = 2, .no_labels = true, .compares = true, .online = true, .by_batch = true,
				   .tasks = TEXT, .source = "trl/experimental/online_dpo/online_dpo_trainer.py",
				   .loss = oom_loss_online_dpo},
	[OOM_METHOD_XPO] = {.loop = OOM_LOOP_TRAINER, .rows = 2, .inputs = 2, .no_labels = true, .compares = true, .online = true, .by_batch = true,
			    .tasks = TEXT, .source = "trl/experimental/xpo/xpo_trainer.py", .loss = oom_loss_xpo},
	[OOM_METHOD_NASH_MD] = {.loop = OOM_LOOP_TRAINER, .rows = 1, .inputs = 2, .no_labels = true, .compares = true, .online = true, .by_batch = true,
				.tasks = TEXT, .source = "trl/experimental/nash_md/nash_md_trainer.py",
				.loss = oom_loss_xpo},
	[OOM_METHOD_MEDUSA] = {.in_trainer = OOM_LOOP_TRAINER, .rows = 1, .tasks = TEXT, .whole = true,
			       .source = "FasterDecoding/Medusa medusa/train/train_legacy.py", .loss = oom_loss_medusa},
	[OOM_METHOD_PPO_APART] = {.rows = 1, .inputs = 2, .no_labels = true, .compares = true, .whole = true, .tasks = TEXT,
				  .source = "openrlhf/trainer/ppo_trainer.py training_step", .loss = oom_loss_ppo_apart},
	[OOM_METHOD_CONTRASTIVE] = {.in_trainer = OOM_LOOP_TRAINER, .rows = 1, .inputs = 2, .no_labels = true, .whole = true, .by_text = true,
				    .tasks = 1u << OOM_TASK_EMBEDDING,
				    .source = "sentence_transformers/losses/MultipleNegativesRankingLoss.py",
				    .loss = oom_loss_contrastive},
	[OOM_METHOD_REWARD] = {.loop = OOM_LOOP_TRAINER, .rows = 2, .inputs = 1, .no_labels = true,
			       .tasks = 1u << OOM_TASK_SEQ_CLS,
			       .source = TRL "reward_trainer.py", .loss = oom_loss_reward},
};
static const struct oom_objective smoothing = {.loop = OOM_LOOP_COUNTING, .rows = 1, .no_labels = true,
					       .source = "transformers trainer_pt_utils.py",
					       .loss = smoothed},
				  generating[] = {[OOM_GENERATING_LAST] = {.rows = 1, .inputs = 1, .no_labels = true, .last = true,
									   .source = "transformers generation/utils.py",
									   .loss = generated},
						  [OOM_GENERATING_ALL] = {.rows = 1, .inputs = 1, .no_labels = true,
									  .source = "transformers generation/utils.py",
									  .loss = generated}},
				  logging = {.loop = OOM_LOOP_COUNTING, .rows = 1, .tasks = TEXT, .source = TRL "sft_trainer.py",
					     .loss = measured},
				  chunking = {.loop = OOM_LOOP_COUNTING, .rows = 1, .source = TRL "sft_trainer.py"};

const struct oom_objective *oom_objective_of(const struct oom_plan *p)
{
	if (p->generating)
		return &generating[p->generating];
	if (p->objective == OOM_METHOD_SFT && p->label_smoothing > 0)
		return &smoothing;
	if (p->objective == OOM_METHOD_SFT && p->fused_ce == OOM_LOSS_SFT)
		return &logging;
	if (p->objective == OOM_METHOD_SFT && p->fused_ce == OOM_LOSS_CHUNKED_NLL)
		return &chunking;
	return &table[p->objective];
}

enum oom_loop oom_loop_of(const struct oom_plan *p)
{
	const struct oom_objective *o = oom_objective_of(p);

	if (p->loop == OOM_LOOPS_OWN)
		return OOM_LOOP_PLAIN;
	return (enum oom_loop)(p->loop == OOM_LOOPS_TRAINER && o->in_trainer ? o->in_trainer : o->loop);
}

bool oom_two_groups(const struct oom_plan *p)
{
	return oom_loop_of(p) != OOM_LOOP_PLAIN;
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

uint64_t oom_vocab_of(const struct oom_plan *p, const struct oom_arch *a)
{
	return p->resize_vocab ? (uint64_t)p->resize_vocab : a->vocab;
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
