/* Adapters whose loss has a term of their own.
 *
 * AdaLoRA adds the distance of A A^T and B^T B from the identity to a model's loss (peft
 * tuners/adalora/model.py AdaLoraModel.forward).  It is the last that the forward makes and the first
 * that the backward takes: every A and B has one gradient from there on, which waits in the engine's
 * buffer for the layer's.  The sum takes its place, so that nothing is added at the end; that all of
 * them are taken to wait until then is too much by what has been added already. */
#include "ops/adapters.h"
#include "oomplan/rules.h"
#include "step/pass.h"
#include "tape/round.h"

static bool applies(const struct oom_plan *p)
{
	/* the term is added where the model's output has a loss */
	return oom_plan_adapted(p) && oom_adapter_of(p)->regularised && p->objective == OOM_METHOD_SFT;
}

struct own {
	int32_t row;
};

/* Of the two thin matrices; what scales them is a vector. */
static uint64_t waiting(const struct oom_tape *t)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < t->n_params; i++) {
		const struct oom_param *p = &t->params[i];

		if (p->flags & OOM_P_LORA && !(p->flags & OOM_P_SAVED) && p->trainable && p->rows > 1 &&
		    p->cols > 1)
			sum += p->count * oom_block(p->elems * oom_dtype_bytes((enum oom_dtype)p->dt));
	}
	return sum;
}

static void begin(struct oom_rewrite *w)
{
	struct own *o = w->own;

	if (w->stream != OOM_STREAM_BWD)
		return;
	o->row = oom_rewrite_row(w, "gradients of the orthogonal term", waiting(w->from), OOM_CAT_GRAD,
				 OOM_SHARE_WHOLE);
	oom_rewrite_event(w, o->row, OOM_EV_ALLOC);
}

static void end(struct oom_rewrite *w)
{
	const struct own *o = w->own;

	if (w->stream == OOM_STREAM_BWD)
		oom_rewrite_event(w, o->row, OOM_EV_FREE);
}

static const struct oom_hooks hooks = {.begin = begin, .end = end};

const struct oom_pass oom_pass_regularised = {
	.name = "regularised",
	.cls = OOM_EXACT,
	.summary = "gradients of an adapter's own term of the loss wait for the layers' own",
	.knobs = "peft-type",
	.source = "peft tuners/adalora/model.py AdaLoraModel.forward",
	.applies = applies,
	.hooks = &hooks,
	.own_size = sizeof(struct own),
};
