/* Gradients that go to the host as they come.
 *
 * torchao optim/cpu_offload.py: a hook on every offloaded parameter copies its gradient on a side
 * stream, and with offload_gradients sets .grad to None.  torch counts the block as free at once; the
 * caching allocator hands it out again when the copy is through (record_stream), which is taken as
 * immediate: where PCIe is slower than the backward pass, reserved bytes may be higher. */
#include "step/pass.h"

static bool applies(const struct oom_plan *p)
{
	return p->offload_gradients;
}

/* Small tensors are stepped on the card: they have no hook. */
static bool small(const struct oom_tape *t, int32_t row)
{
	for (size_t i = 0; i < t->n_params; i++)
		if (t->params[i].grad == row)
			return t->params[i].elems < OOM_SMALL_TENSOR;
	return false;
}

static void grad(struct oom_rewrite *w, int32_t row)
{
	if (!small(w->from, row))
		oom_rewrite_event(w, row, OOM_EV_FREE);
}

static const struct oom_hooks hooks = {.grad = grad};

const struct oom_pass oom_pass_stream_gradients = {
	.name = "stream-gradients",
	.cls = OOM_PLACEMENT,
	.summary = "gradients are copied to the host and given up on the card as they come",
	.knobs = "offload-gradients",
	.source = "torchao optim/cpu_offload.py backward_hook",
	.applies = applies,
	.hooks = &hooks,
};
