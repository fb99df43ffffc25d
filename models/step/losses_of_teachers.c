/* Losses that compare whole distributions with a teacher's: bodies as in TRL 1.10 (trl/experimental). */
#include "step/losses.h"

#include "blocks/blocks.h"
#include "blocks/logprobs.h"
#include "step/model_calls.h"

static bool same_vocabulary(struct oom_tape *t, const struct oom_arch *a)
{
	if (t->teacher && t->teacher->vocab == a->vocab)
		return true;
	oom_tape_fail(t, OOM_ERR_INVALID,
		      "this objective needs a teacher of the same vocabulary (%llu tokens): --teacher config.json",
		      (unsigned long long)a->vocab);
	return false;
}

/* What the teacher, called without use_cache=False, leaves beside its logits: copies of all keys and values,
 * in the keys' type (transformers cache_utils.py DynamicLayer.lazy_initialization, update).  Autocast has made
 * them 16 bit, and the rotation in the type of the embedded tokens undoes that. */
static struct oom_val teachers_cache(struct oom_tape *t)
{
	const struct oom_arch *a = t->teacher;
	const enum oom_dtype dt = (enum oom_dtype)(t->beside.n ? t->beside.params[0].dt : OOM_F32);

	return oom_new(t, "teacher's keys and values", t->m_bs,
		       (struct oom_dim){2 * a->n_layers * a->n_kv_heads * a->head_dim, NULL},
		       t->amp && a->rotary_share <= 0 ? (enum oom_dtype)t->amp_dt : dt);
}

/* Student and teacher on the whole vocabulary; the teacher's outputs keep their cache, as both keep their
 * logits, until the loss is there (trl/experimental/gkd/gkd_trainer.py compute_loss). */
struct oom_val oom_loss_gkd(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	struct oom_val teacher, cache, x, y;

	if (!same_vocabulary(t, a)) {
		oom_drop(t, logits);
		return loss;
	}
	teacher = oom_other_logits(t, t->teacher, OOM_REF_MODEL);
	cache = teachers_cache(t);
	x = oom_shifted(t, logits);
	y = oom_shifted(t, teacher);
	loss = oom_divergence(t, x, y);
	oom_drop(t, y);
	oom_drop(t, x);
	oom_drop(t, cache);
	oom_drop(t, teacher);
	oom_drop(t, logits);
	return loss;
}

/* The model's own loss, and kl_div(log_softmax(logits / T), softmax(teacher / T)): the target times
 * its logarithm, the target times the student's, their difference (aten/src/ATen/native/Loss.cpp
 * kl_div); autograd keeps the target and the log-probabilities. */
struct oom_val oom_loss_distill(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits)
{
	const bool grad = t->grad;
	struct oom_val teacher, target, own, product, entropy;

	if (!same_vocabulary(t, a)) {
		oom_drop(t, logits);
		return loss;
	}
	teacher = oom_other_logits(t, t->teacher, OOM_REF_MODEL);
	t->scope = "loss";
	own = oom_op_log_softmax(t, oom_op_unary(t, OOM_SCALE, oom_keep(logits)));
	t->grad = false;
	target = oom_op_softmax(t, oom_op_unary(t, OOM_SCALE, oom_keep(teacher)), false);
	entropy = oom_new_like(t, "xlogy", target, (enum oom_dtype)target.dt);
	t->grad = grad;
	product = oom_op_mul(t, oom_keep(target), oom_keep(own));
	entropy = oom_reduce(t, oom_op_add(t, entropy, product));
	loss = oom_op_unary(t, OOM_SCALE, loss);        /* each by its weight */
	loss = oom_op_add(t, loss, oom_op_unary(t, OOM_SCALE, entropy));
	oom_drop(t, target);
	oom_drop(t, own);
	oom_drop(t, teacher);
	oom_drop(t, logits);
	return loss;
}
