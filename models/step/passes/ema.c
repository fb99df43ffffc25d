/* A running mean of the trained weights, moved after every optimizer step while the gradients are
 * still there.
 *
 * foreach: torch._foreach_lerp_ in place (torch/optim/swa_utils.py get_ema_multi_avg_fn).  fp32 over
 * 16-bit weights: all of them are cast at once for it.  loop: s.sub_(one_minus_decay * (s - p)), a
 * tensor at a time, with the difference and its multiple (diffusers training_utils.py
 * EMAModel.step). */
#include "step/pass.h"

static bool applies(const struct oom_plan *p)
{
	return p->ema != OOM_EMA_NONE;
}

static void holdings(struct oom_schedule *s, const struct oom_plan *p)
{
	const struct oom_model_sums *in = &s->in;
	const bool full = p->ema == OOM_EMA_FP32 || p->ema == OOM_EMA_LOOP_FP32,
		   loop = p->ema == OOM_EMA_LOOP || p->ema == OOM_EMA_LOOP_FP32;
	/* also of what trains and gets no gradient; a block for every tensor */
	const uint64_t bytes = full ? in->trained_wide : in->trained;
	/* how much wider than the weights the mean is */
	const uint64_t times = in->trained ? (bytes + in->trained / 2) / in->trained : 1;
	uint64_t temps = loop ? 2 * times * in->largest : bytes > in->trained ? bytes : 0;
	uint64_t held = bytes;

	if (p->zero_stage == 3) {
		held = oom_shared_bytes(bytes, OOM_SHARE_PART, s->ranks);
		temps = oom_shared_bytes(temps, OOM_SHARE_PART, s->ranks);
	}
	oom_add_holding(s, "mean of the weights", OOM_BUCKET_OPT, held, OOM_AT_START, OOM_AT_NEVER)
		->pieces = OOM_PER_TRAINED;
	s->mean = (struct oom_mean){.wider = times, .temps = loop ? 2 : times > 1, .at_once = !loop,
				    .part = p->zero_stage == 3};
	for (int i = 0; i < 2; i++)
		s->temps[i] = temps > s->temps[i] ? temps : s->temps[i];
}

const struct oom_pass oom_pass_mean_of_weights = {
	.name = "mean-of-weights",
	.cls = OOM_EXACT,
	.summary = "a running mean of the trained weights lies beside them",
	.knobs = "ema",
	.source = "torch/optim/swa_utils.py; diffusers training_utils.py EMAModel",
	.applies = applies,
	.holdings = holdings,
};
