/* Features of a tower's inner layers, added to the image tokens behind the text model's first layers.
 * Reference: transformers 5.12, models/qwen3_vl/modeling_qwen3_vl.py Qwen3VLTextModel._deepstack_process. */
#include "vision.h"

/* hidden_states[mask, :] = hidden_states[mask, :] + features, in a clone of the hidden states. */
static struct oom_val add_features(struct oom_tape *t, void *ctx, uint32_t layer, struct oom_val x)
{
	const struct oom_emit *e = ctx;
	const struct oom_val f = e->deep[layer];
	const struct oom_dim d = {x.width, x.text};
	struct oom_frame own = {.t = t};
	struct oom_val local;

	x = oom_name(&own, oom_op_copy(t, "clone", x));
	local = oom_op_add(t, oom_op_gather(t, "index", x, e->tokens, f.mono, d), f);
	x = oom_op_masked_inplace(t, oom_take(&own, x), e->tokens);
	return oom_leave(&own, oom_op_add_inplace(t, x, oom_op_expand(t, local, t->m_bs, d)));
}

/* The text model has returned to the model around it, and so does that. */
static void over(struct oom_tape *t, void *ctx)
{
	struct oom_emit *e = ctx;

	if (e->v->kind->flags & OOM_VLM_HEAD) {
		if (e->stacks++)
			oom_forget(e->output, e->words);
		else                            /* the encoder's: the decoder's comes */
			t->behind = (struct oom_behind){.over = over, .ctx = e};
		return;
	}
	if (e->v->kind->flags & OOM_VLM_FLATLY) /* there is none: they stay until the loss is there */
		return;
	for (uint32_t i = 0; i < e->n_deep; i++)
		oom_forget(e->output, e->deep[i]);
	if (e->v->kind->flags & OOM_VLM_HOLDS)
		oom_forget(e->output, e->words);
	oom_forget(e->output, e->tokens);
	if (e->v->kind->flags & OOM_VLM_DROPS)
		oom_forget(e->output, e->features);
}

void oom_deepstack(struct oom_emit *e)
{
	for (uint32_t i = 0; i < e->n_deep; i++)
		e->deep[i] = oom_name(e->output, e->deep[i]);
	e->t->behind = (struct oom_behind){.fn = add_features, .over = over, .ctx = e, .n = e->n_deep};
}
