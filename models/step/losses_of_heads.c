/* Medusa: heads for the tokens after the next, trained over a frozen model (FasterDecoding/Medusa,
 * medusa/model/medusa_model.py, medusa/train/train_legacy.py).  Estimated: the sources were read, nothing was measured. */
#include "step/losses.h"

#include "blocks/blocks.h"
#include "step/model_calls.h"

/* Residual layers, which are one module called several times, and a head of the vocabulary. */
static struct oom_val head(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim d = {a->d_model, "d_model"}, v = {a->vocab, "vocab_size"};
	struct oom_linear res;

	x = oom_share(t, x);
	if (t->plan->medusa_layers > 0) {
		if (!oom_linear_open(t, &res, "medusa_linear", a->d_model, d, OOM_BIAS))
			return x;
		for (int64_t i = 0; i < t->plan->medusa_layers; i++) {
			struct oom_val y = oom_op_unary(t, OOM_SILU, oom_linear_run(t, &res, oom_keep(x)));

			y = oom_op_add(t, oom_keep(x), y);
			oom_drop(t, x);
			x = y;
		}
	}
	return oom_op_linear(t, "medusa_head", x, v, 0);
}

/* The base runs under inference_mode without its own head; here that head runs too, and its logits are given up before
 * the first of the new ones.  The heads' logits are stacked, and each head's part is copied for its cross entropy. */
struct oom_val oom_loss_medusa(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const uint64_t n = (uint64_t)t->plan->medusa_heads;
	const bool grad = t->grad;
	struct oom_val x, all = oom_none(), y;

	t->grad = false;
	t->frozen = true;
	logits = oom_call(t, a, t->train, false, true).logits;
	t->frozen = false;
	t->grad = grad;
	if (t->status) {
		oom_drop(t, logits);
		return loss;
	}
	x = oom_new(t, "hidden states", t->m_bs, (struct oom_dim){a->d_model, "d_model"}, (enum oom_dtype)logits.dt);
	oom_drop(t, logits);
	for (uint64_t i = 0; i < n; i++) {
		y = head(t, a, x);
		all = i ? oom_op_cat(t, all, y, (struct oom_dim){(i + 1) * a->vocab, NULL}) : y;
	}
	oom_drop(t, x);
	t->scope = "loss";
	for (uint64_t i = 0; i < n; i++) {
		x = oom_op_slice(t, oom_keep(all), t->m_bs, (struct oom_dim){a->vocab, "vocab_size"});
		x = oom_op_copy(t, "contiguous", x);
		y = oom_cross_entropy(t, x, oom_input(t, "labels", t->m_bs, 1, OOM_I64));
		loss = i ? oom_op_add(t, loss, y) : y;
	}
	oom_drop(t, all);
	return loss;
}
