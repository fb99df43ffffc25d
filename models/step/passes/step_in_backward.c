/* The update within the backward pass: a gradient is used and freed as soon as it is whole.
 *
 * LOMO (Lv et al., arXiv:2306.09782, section 3.1; lomo_optim/lomo.py fuse_update): a hook on every
 * parameter updates it and sets .grad to None.  Nothing can be accumulated over micro-batches. */
#include "step/pass.h"

static bool applies(const struct oom_plan *p)
{
	return oom_optimizer_at((size_t)p->optimizer)->in_backward;
}

static void grad(struct oom_rewrite *w, int32_t row)
{
	oom_rewrite_event(w, row, OOM_EV_FREE);
}

static const struct oom_hooks hooks = {.grad = grad};

const struct oom_pass oom_pass_step_in_backward = {
	.name = "step-in-backward",
	.cls = OOM_EXACT,
	.summary = "parameters are updated as their gradients come, which die one by one",
	.knobs = "optimizer",
	.source = "arXiv:2306.09782, section 3.1; lomo_optim/lomo.py",
	.applies = applies,
	.hooks = &hooks,
};
