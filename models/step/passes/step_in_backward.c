/* The update within the backward pass: a gradient is used and freed as soon as it is whole.
 *
 * LOMO (Lv et al., arXiv:2306.09782, section 3.1; lomo_optim/lomo.py fuse_update): a hook on every
 * parameter updates it and sets .grad to None.  Nothing can be accumulated over micro-batches.
 * torchtune's hooks do the same with an optimizer for every parameter
 * (torchtune/training/memory.py register_optim_in_bwd_hooks). */
#include "step/pass.h"

static bool applies(const struct oom_plan *p)
{
	return p->step_in_backward || oom_optimizer_at((size_t)p->optimizer)->in_backward;
}

static const struct oom_optimizer *optimizer(const struct oom_plan *p)
{
	return oom_optimizer_at((size_t)p->optimizer);
}

/* Streams differ by what an update needs: 1 + how many other updates stand before it in the table. */
static unsigned shape(const struct oom_plan *p)
{
	unsigned n = 1;

	for (size_t i = 0; optimizer(p)->update && oom_optimizer_at(i); i++) {
		bool seen = !oom_optimizer_at(i)->update;

		for (size_t k = 0; k < i && !seen; k++)
			seen = oom_optimizer_at(k)->update == oom_optimizer_at(i)->update;
		n += !seen;
		if (oom_optimizer_at(i)->update == optimizer(p)->update)
			return n;
	}
	return 1;
}

/* What the update of one tensor needs: that of a list of one. */
static uint64_t temporaries(struct oom_rewrite *w, int32_t row)
{
	struct oom_sink sink = {0};

	for (size_t i = 0; optimizer(w->plan)->update && i < w->from->n_params; i++) {
		struct oom_param one = w->from->params[i];
		const struct oom_stepped s = {.p = &one, .n = 1, .sum_buffers = w->plan->sum_buffers};

		if (one.grad != row)
			continue;
		one.count = 1;
		optimizer(w->plan)->update(optimizer(w->plan), &s, &sink);
		break;
	}
	if (sink.failed)
		w->status = OOM_ERR_MEMORY;
	oom_sink_release(&sink);
	return sink.peak;
}

static void grad(struct oom_rewrite *w, int32_t row)
{
	const uint64_t bytes = temporaries(w, row);

	if (bytes) {
		const int32_t temp = oom_rewrite_row(w, "optimizer step", bytes, OOM_CAT_TEMP,
						     OOM_SHARE_WHOLE);

		oom_rewrite_event(w, temp, OOM_EV_ALLOC);
		oom_rewrite_event(w, temp, OOM_EV_FREE);
	}
	oom_rewrite_event(w, row, OOM_EV_FREE);
}

static const struct oom_hooks hooks = {.grad = grad};

/* States come with the first gradients; all of them are counted from there on.  Every parameter has an optimizer of its
 * own, and with it what one makes for all: the tables of 8-bit codes. */
static void holdings(struct oom_schedule *s, const struct oom_plan *p)
{
	if (optimizer(p)->in_backward)
		return;
	s->hold[OOM_HOLD_STATE].bytes += s->in.state->again;
	if (!optimizer(p)->early)
		s->hold[OOM_HOLD_STATE].from = OOM_AT_BACKWARD;
	s->temps[0] = s->temps[1] = 0;
}

const struct oom_pass oom_pass_step_in_backward = {
	.name = "step-in-backward",
	.cls = OOM_EXACT,
	.summary = "parameters are updated as their gradients come, which die one by one",
	.knobs = "optimizer+optimizer-in-backward",
	.source = "arXiv:2306.09782, section 3.1; lomo_optim/lomo.py",
	.applies = applies,
	.shape = shape,
	.holdings = holdings,
	.hooks = &hooks,
};
