/* Losses of texts that are compared by their embeddings, as sentence-transformers computes them. */
#include "step/losses.h"

#include "blocks/blocks.h"
#include "blocks/logprobs.h"
#include "plan/defaults.h"
#include "step/model_calls.h"

/* F.normalize: the vector and its length are kept. */
static struct oom_val unit_vector(struct oom_tape *t, struct oom_val x)
{
	struct oom_val n = oom_op_sum(t, oom_op_unary(t, OOM_SQUARE, oom_keep(x)), t->m_b, D(1));

	return oom_op_div(t, x, oom_op_expand(t, n, t->m_b, (struct oom_dim){x.width, x.text}));
}

/* One text, by the parameters from `from` on. */
static struct oom_val encoded(struct oom_tape *t, const struct oom_arch *a, size_t from)
{
	t->cursor = from;
	return oom_call(t, a, t->train, false, true).logits;
}

/* The texts of a sample, one pass after another over the same parameters; every first one against all others of the
 * batch (sentence_transformers/losses/MultipleNegativesRankingLoss.py forward, util cos_sim). */
struct oom_val oom_loss_contrastive(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const uint64_t n = (uint64_t)t->plan->texts;
	const size_t from = t->cursor;
	struct oom_val text[OOM_MOST_TEXTS], others, x;
	uint64_t width;

	(void)loss;
	(void)logits;
	text[0] = encoded(t, a, from);
	if (n < 2)      /* of a cached loss: the product with the gradient that its first round found */
		return oom_reduce(t, text[0]);
	for (uint64_t i = 1; i < n; i++) {
		const uint64_t buffers = t->buffer_bytes, rounded = t->buffer_rounded;

		oom_selection_pass(t);
		text[i] = encoded(t, a, from);
		t->buffer_bytes = buffers;      /* the same ones again */
		t->buffer_rounded = rounded;
	}
	t->scope = "loss";
	width = text[0].width;
	others = oom_op_copy(t, "candidates", oom_keep(text[1]));
	for (uint64_t i = 2; i < n; i++)
		others = oom_op_cat(t, others, oom_keep(text[i]), (struct oom_dim){i * width, NULL});
	x = oom_op_bmm(t, "scores", unit_vector(t, oom_keep(text[0])), unit_vector(t, others),
		       oom_mono_mul(t, t->m_b, t->m_b), (struct oom_dim){n - 1, "texts - 1"}, width);
	loss = oom_cross_entropy(t, oom_op_unary(t, OOM_SCALE, x), oom_input(t, "labels", t->m_b, 1, OOM_I64));
	for (uint64_t i = 0; i < n; i++)
		oom_drop(t, text[i]);
	return loss;
}
