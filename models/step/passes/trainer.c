/* What transformers' Trainer keeps beside the model: scalars, a block of 512 bytes each.
 *
 * transformers 5.12 trainer.py: tr_loss adds up what was not logged yet; num_items_in_batch is moved to the card where
 * the model's own loss divides by it; grad_norm is a name of the loop and lives until the next one is made.  accelerate
 * accelerator.py backward: loss / gradient_accumulation_steps, beside the loss.  The norm is clipped before the update
 * (max_grad_norm, 1 by default; 0 leaves it out): torch/nn/utils/clip_grad.py _get_total_norm makes a norm per gradient, stacks them and takes
 * the norm of those, while the previous step's states are there. */
#include "step/engines.h"
#include "step/objectives.h"
#include "step/pass.h"
#include "tape/round.h"

static bool applies(const struct oom_plan *p)
{
	return oom_loop_of(p) != OOM_LOOP_PLAIN && oom_engine_of(p)->info.plain;
}

static void scalar(struct oom_schedule *s, const char *name, enum oom_moment_of_step from, enum oom_moment_of_step until)
{
	oom_add_holding(s, name, OOM_BUCKET_TEMP, oom_block(4), from, until)->training = true;
}

static void holdings(struct oom_schedule *s, const struct oom_plan *p)
{
	const bool clips = p->max_grad_norm > 0;
	const uint64_t n = s->in.tensors, norms = clips && n ? (n + 1) * oom_block(4) + oom_block(4 * n) : 0;

	scalar(s, "the Trainer's sum of losses", OOM_AT_START, OOM_AT_NEVER);
	if (oom_loop_of(p) == OOM_LOOP_COUNTING)
		scalar(s, "the Trainer's number of items", OOM_AT_START, OOM_AT_NEVER);
	scalar(s, "the loss divided", OOM_AT_BACKWARD, OOM_AT_STEP);
	if (clips)
		scalar(s, "the gradients' norm", OOM_AT_STEP, OOM_AT_NEVER);
	/* the first step's update makes the states, beside which the norms are nothing */
	if (norms > s->temps[1])
		s->temps[1] = norms;
}

const struct oom_pass oom_pass_trainer = {
	.name = "trainer",
	.cls = OOM_EXACT,
	.summary = "scalars of transformers' Trainer, and the norms it clips by",
	.knobs = "loop+objective+loss+label-smoothing+max-grad-norm",
	.source = "transformers trainer.py; torch/nn/utils/clip_grad.py",
	.applies = applies,
	.holdings = holdings,
};
