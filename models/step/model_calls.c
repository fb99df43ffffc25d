/* Calling models: what they return, in which type, and what lies beside the trained one for it. */
#include "step/model_calls.h"

#include <string.h>

#include "blocks/blocks.h"
#include "blocks/tokens.h"
#include "families/model.h"
#include "step/program.h"
#include "step/time/work.h"

/* A converted output takes the place of what it was made of, for a loop that keeps them. */
static void give_or_keep(struct oom_tape *t, size_t i, struct oom_val full)
{
	if (t->plan->keep_outputs && t->grad) {
		const struct oom_val first = t->outputs[i];

		t->outputs[i] = full;
		full = first;
	}
	oom_drop(t, full);
}

/* What an evaluation's loop could keep for metrics: whatever the trained model returns beside the loss. */
static void note_evaluated(struct oom_tape *t)
{
	if (t->stream != OOM_STREAM_EVAL || t->beside.running || t->no_labels)
		return;
	t->evaluated_logits = t->logits_at >= 0;
	t->n_evaluated = t->n_outputs;
	memcpy(t->evaluated, t->outputs, t->n_outputs * sizeof(t->outputs[0]));
}

/* nn.DataParallel's first GPU gathers what all replicas return, each output in one tensor, beside its own replica's: keys and
 * values too, which a causal model returns unless it checkpoints (use_cache; torch/nn/parallel/scatter_gather.py gather,
 * transformers cache_utils.py DynamicCache).  The trainer gives all but the loss up before the backward pass
 * (transformers/trainer.py compute_loss). */
static void gather_replicas(struct oom_tape *t)
{
	const struct oom_plan *p = t->plan;
	const struct oom_arch *a = t->arch;
	const uint64_t n = (uint64_t)oom_plan_gathered_replicas(p);
	const bool wide = oom_plan_stores(p) == OOM_FP32 && !t->amp;
	struct oom_val all[OOM_MAX_RETURNED + 1];
	size_t held = 0;

	if (n < 2 || t->beside.running)
		return;
	for (size_t i = 0; i < t->n_outputs; i++)
		all[held++] = oom_new(t, "gathered outputs", t->outputs[i].mono, (struct oom_dim){n * t->outputs[i].width, NULL},
				      (enum oom_dtype)t->outputs[i].dt);
	if ((t->task == OOM_TASK_CAUSAL_LM || t->task == OOM_TASK_IMAGE_TEXT) && p->grad_ckpt == OOM_CKPT_NONE && a->n_kv_heads)
		all[held++] = oom_new(t, "gathered keys and values", t->m_bs,
				      (struct oom_dim){n * 2 * a->n_layers * a->n_kv_heads * a->head_dim, NULL},
				      wide ? OOM_F32 : OOM_DT_BF16);
	while (held)
		oom_drop(t, all[--held]);
}

/* The model returns: all but the loss is given up, converted to fp32 all together before by
 * accelerate's wrapper (accelerate/utils/operations.py, ConvertOutputsToFp32).  The logits stay if
 * they are wanted. */
static struct oom_called returned(struct oom_tape *t, struct oom_val loss, bool convert, bool wanted)
{
	struct oom_val full[OOM_MAX_RETURNED];
	struct oom_called c = {.loss = loss, .logits = oom_none()};
	const int at = t->logits_at;

	oom_prompts_leave(t);
	if (oom_plan_attended(t->plan) && !t->joined && !t->beside.running)
		oom_tape_fail(t, OOM_ERR_INVALID, "peft-type: trained keys and values are not modelled for %s", t->arch->model_type);
	if (t->plan->trainable_tokens && oom_plan_adapted(t->plan) && !t->beside.running && oom_is_none(t->token_rows))
		oom_tape_fail(t, OOM_ERR_INVALID, "trainable-tokens: %s looks no table of vocab_size rows up: rows of its "
			      "embedding are not modelled", t->arch->model_type);
	oom_prefix_leave(t);
	note_evaluated(t);
	/* accelerate wraps the converter around autocast (accelerator.py prepare_model): the copies of weights are gone by then */
	if (oom_loop_of(t->plan) != OOM_LOOP_PLAIN)
		oom_amp_leave(t);
	gather_replicas(t);
	if (convert && !oom_fuses_head(t)) {
		const struct oom_val first = oom_share(t, loss);

		if (!oom_is_none(loss))
			c.loss = oom_op_cast(t, loss, OOM_F32);
		for (size_t i = 0; i < t->n_outputs; i++)
			full[i] = oom_op_cast(t, oom_keep(t->outputs[i]), OOM_F32);
		for (size_t i = 0; i < t->n_outputs; i++)
			if (wanted && (int)i == at)
				c.logits = full[i];
			else
				give_or_keep(t, i, full[i]);
		oom_drop(t, first);
	} else if (wanted && at >= 0) {
		c.logits = oom_share(t, t->outputs[at]);
	}
	if (t->plan->keep_outputs && t->grad)
		return c;               /* the loop gives them up after the backward */
	while (t->n_outputs)
		oom_drop(t, t->outputs[--t->n_outputs]);
	return c;
}

struct oom_called oom_call(struct oom_tape *t, const struct oom_arch *a, bool train, bool labels,
			   bool wanted)
{
	/* TRL's and transformers' trainers call what accelerate has wrapped */
	const struct oom_objective *objective = oom_objective_of(t->plan);
	const bool trainer = t->amp && oom_loop_of(t->plan) != OOM_LOOP_PLAIN;
	/* verl's own loop, whose log-probabilities are flash_attn's, hands logits on as they are */
	const bool wrapped = wanted ? t->amp && !oom_logps_in_place(t->plan) : train && (t->plan->convert_outputs_fp32 || trainer);
	struct oom_val loss;
	struct oom_called c;

	t->no_labels = !labels;
	t->m_logits = objective->last ? oom_len_min(t, t->m_b, 1) :
		      objective->completion ?
				      oom_len_min(t, t->m_b, (uint64_t)t->plan->completion_len + 1) :
				      OOM_MONO_ONE;
	t->logits_at = -1;
	oom_amp_enter(t);
	t->tokens_served = false;
	loss = oom_family_step(a->family, t, a);
	if (oom_tokens_asked(t) && !t->tokens_served)
		oom_tape_fail(t, OOM_ERR_INVALID, "task: heads over every token, and embeddings, are not modelled for %s",
			      a->model_type);
	c = returned(t, loss, wrapped || (wanted && t->plan->convert_outputs_fp32), wanted);
	oom_amp_leave(t);
	if (wanted && t->logits_at < 0)
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "this objective works on the logits of a language model; those of model "
			      "type %s do not leave it in this task", a->model_type);
	return c;
}

/* ---- models beside the trained one ---- */

static void count_beside(struct oom_tape *t, size_t from)
{
	for (size_t i = from; i < t->n_params; i++) {
		struct oom_param *q = &t->params[i];
		uint64_t rounded;

		q->flags |= OOM_P_BESIDE;
		t->beside.bytes += oom_param_bytes(q, t->plan, &rounded) * q->count;
		t->beside.rounded += rounded * q->count;
		t->beside.elems += q->elems * q->count;
	}
}

struct oom_val oom_other_logits(struct oom_tape *t, const struct oom_arch *a, enum oom_reference ref)
{
	const struct oom_arch *const arch = t->arch;
	const uint64_t vocab = t->vocab, pixels = t->pixels, pixel_mask = t->pixel_mask,
		       token_mask = t->token_mask;
	const uint8_t shift = t->shift;
	const struct oom_selection selection = t->selection;
	const char *warning[OOM_WARNINGS];
	const struct oom_plan *const plan = t->plan;
	const bool grad = t->grad, train = t->train;
	const uint64_t buffers = t->buffer_bytes, rounded = t->buffer_rounded;
	const struct oom_tally work = t->sums->tally;
	struct oom_plan own = *plan;
	struct oom_called c;
	size_t from;

	memcpy(warning, t->warning, sizeof(warning));
	oom_plan_unadapt(&own);
	own.grad_ckpt = OOM_CKPT_NONE;
	own.num_layers = a == arch ? own.num_layers : 0;
	/* a reference is loaded as the trained model is; a teacher has arguments of its own, and TRL's script gives them no
	 * quantization_config (trl/experimental/gkd/gkd.py, whose teacher_model_kwargs are without) */
	if (a != arch)
		oom_plan_unquantise(&own);
	t->arch = a;
	t->plan = &own;
	t->selection.by_name = false;   /* nothing of it trains */
	t->grad = false;
	t->train = train && ref == OOM_REF_ADAPTER;
	oom_tape_beside(t, true);
	from = t->n_params;
	t->frozen = true;
	c = oom_call(t, a, false, false, true);
	t->frozen = false;
	oom_work_alone(t, &work);
	if (ref == OOM_REF_MODEL) {
		count_beside(t, from);
		t->beside.rounded += t->buffer_rounded - rounded;
	}
	oom_tape_beside(t, false);
	t->buffer_bytes = buffers;
	t->buffer_rounded = rounded;
	t->arch = arch;
	t->vocab = vocab;
	t->pixels = pixels;
	t->pixel_mask = pixel_mask;
	t->token_mask = token_mask;
	t->shift = shift;
	t->selection = selection;
	memcpy(t->warning, warning, sizeof(warning));
	t->plan = plan;
	t->grad = grad;
	t->train = train;
	return c.logits;
}

void oom_copy_beside(struct oom_tape *t, size_t from)
{
	if (t->stream != OOM_STREAM_FWD)        /* each pass meets the same */
		return;
	for (size_t i = from; i < t->n_params; i++) {
		const struct oom_param *q = &t->params[i];
		uint64_t rounded;

		if (q->flags & OOM_P_LORA)
			continue;
		t->beside.bytes += oom_param_bytes(q, t->plan, &rounded) * q->count;
		t->beside.rounded += rounded * q->count;
		t->beside.elems += q->elems * q->count;
	}
}

struct oom_val oom_critic(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_plan *const plan = t->plan;
	const struct oom_selection selection = t->selection;
	const enum oom_task task = t->task;
	const uint64_t labels = t->n_labels;
	const size_t from = t->cursor;
	struct oom_plan own = *plan;
	struct oom_called c;

	oom_plan_unadapt(&own);
	own.grad_ckpt = OOM_CKPT_NONE;
	t->plan = &own;
	t->selection.by_name = false;
	t->task = OOM_TASK_SEQ_CLS;
	t->n_labels = 1;
	c = oom_call(t, a, t->train, false, true);
	oom_copy_beside(t, from);
	t->n_labels = labels;
	t->task = task;
	t->selection = selection;
	t->plan = plan;
	return c.logits;
}
