/* Gradients of a backward pass that is one compiled function.
 *
 * torch.compile of a whole model makes one autograd node of it (torch/_functorch/_aot_autograd/
 * runtime_wrappers.py CompiledFunction.backward): every parameter's gradient is a result of that
 * node, and AccumulateGrad and its hooks run when it has returned.  What adds a gradient to another
 * or gives it up as it comes therefore meets all of them.  FSDP, and torchtune and torchtitan (--compile-layers),
 * compile layer by layer and are left as they are. */
#include "step/engines.h"
#include "step/pass.h"

static bool applies(const struct oom_plan *p)
{
	return p->compile && !p->compile_layers && !oom_engine_of(p)->wraps_units &&
	       (p->grad_accum > 1 || p->step_in_backward || p->offload_gradients ||
		p->zero_stage == 2 || oom_optimizer_at((size_t)p->optimizer)->in_backward);
}

struct own {
	int32_t first;          /* row of the rewriting's that is a copy of a gradient; 0: none yet */
};

static void begin(struct oom_rewrite *w)
{
	struct own *o = w->own;

	o->first = 0;
}

static void grad(struct oom_rewrite *w, int32_t row)
{
	struct own *o = w->own;
	const int32_t copy = oom_rewrite_copy(w, row);

	if (copy < 0)
		return;
	/* of every layer that the recorded one stands for */
	w->to->rows[copy].mult = w->from->rows[row].mult;
	o->first = o->first ? o->first : copy;
	oom_rewrite_event(w, copy, OOM_EV_ALLOC);
	oom_rewrite_event(w, row, OOM_EV_GRAD);
}

static void end(struct oom_rewrite *w)
{
	const struct own *o = w->own;
	const int32_t n = (int32_t)w->to->n_rows;

	for (int32_t row = o->first; o->first && row < n; row++)
		oom_rewrite_event(w, row, OOM_EV_FREE_ALL);
}

static const struct oom_hooks hooks = {.begin = begin, .grad = grad, .end = end};

const struct oom_pass oom_pass_whole_graph = {
	.name = "whole-graph",
	.cls = OOM_EXACT,
	.summary = "a compiled model's gradients come all at once, beside those that were there",
	.knobs = "compile",
	.source = "torch/_functorch/_aot_autograd/runtime_wrappers.py; torchao/optim/README.md on "
		  "CPUOffloadOptimizer and torch.compile",
	.applies = applies,
	.hooks = &hooks,
	.own_size = sizeof(struct own),
};
