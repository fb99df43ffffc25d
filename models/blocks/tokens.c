/* Heads over every token: a classifier of tokens, and embeddings of whole texts. */
#include "blocks/tokens.h"

/* outputs[0] has a name until the loss is returned; dropout, a linear layer, cross entropy over all tokens
 * (BertForTokenClassification and kin; modeling_layers.py GenericForTokenClassification, whose loss converts the
 * logits to fp32). */
static struct oom_val token_labels(struct oom_tape *t, const struct oom_tokens *head, struct oom_val h)
{
	struct oom_frame f = {.t = t};
	struct oom_val x;

	h = oom_arg(&f, h);
	x = oom_name(&f, oom_op_dropout(t, h, head->dropout));  /* sequence_output */
	x = oom_op_linear(t, head->name, x, (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_leave(&f, oom_plain_lm_loss(t, x, head->converts, t->m_bs));
}

/* The mean of a text's tokens: the mask spread to all of their elements, their product with it, two sums
 * (sentence_transformers/models/Pooling.py).  The features of the text keep its tokens beside their mean. */
static struct oom_val text_embedding(struct oom_tape *t, struct oom_val h)
{
	const struct oom_dim d = {h.width, h.text};
	struct oom_frame f = {.t = t};
	struct oom_val mask, x, n;

	h = oom_arg(&f, h);
	mask = oom_name(&f, oom_new(t, "input_mask_expanded", h.mono, d, (enum oom_dtype)h.dt));
	x = oom_op_mul(t, oom_keep(h), oom_keep(mask));
	if (t->amp)                             /* sum is on autocast's list */
		x = oom_op_cast(t, x, OOM_F32);
	x = oom_name(&f, oom_op_sum(t, x, t->m_b, d));
	n = oom_name(&f, oom_new(t, "sum_mask", t->m_b, d, (enum oom_dtype)x.dt));
	oom_returns(t, oom_share(t, h));
	oom_returns_logits(t, oom_op_div(t, oom_keep(x), oom_keep(n)));
	return oom_leave(&f, oom_none());
}

bool oom_tokens_asked(const struct oom_tape *t)
{
	return t->task == OOM_TASK_TOKEN_CLS || t->task == OOM_TASK_EMBEDDING;
}

struct oom_val oom_tokens_head(struct oom_tape *t, const struct oom_tokens *head, struct oom_val h)
{
	t->tokens_served = true;
	return t->task == OOM_TASK_TOKEN_CLS ? token_labels(t, head, h) : text_embedding(t, h);
}
