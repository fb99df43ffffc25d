/* What BERT-like encoders share.  Reference: transformers 5.12, models/bert/modeling_bert.py,
 * models/roberta/. */
#include "encoder.h"
#include "image.h"

struct oom_val oom_word_embeddings(struct oom_tape *t, const struct oom_arch *a, const char *module,
				   struct oom_dim d, struct oom_val *word)
{
	struct oom_val x;

	t->scope = module;
	*word = oom_param(t, "weight", a->vocab, d.n, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, d);
	return oom_input_grads(t, x);
}

struct oom_val oom_position_embeddings(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_dim d)
{
	return oom_op_embedding(t, "position_embeddings",
				oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
				d, 0);
}

struct oom_val oom_type_embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_dim d,
				   struct oom_val types)
{
	return oom_op_embedding(t, "token_type_embeddings", types, a->type_vocab, d, 0);
}

struct oom_val oom_zero_types(struct oom_tape *t, const struct oom_arch *a, struct oom_dim d)
{
	return oom_type_embeddings(t, a, d, oom_new(t, "zeros", t->m_bs, D(1), OOM_I64));
}

struct oom_val oom_buffered_types(struct oom_tape *t)
{
	struct oom_val types = oom_new(t, "token type ids", t->m_s, D(1), OOM_I64);

	types.mono = t->m_bs;
	return types;
}

struct oom_val oom_output(struct oom_tape *t, double dropout, const char *norm, struct oom_val from,
			  struct oom_val input)
{
	const struct oom_dim width = {input.width, input.text};
	struct oom_frame f = {.t = t};
	struct oom_val h, y;

	from = oom_arg(&f, from);
	input = oom_arg(&f, input);
	h = oom_op_dropout(t, oom_op_linear(t, "dense", from, width, OOM_BIAS), dropout);
	h = oom_name(&f, h);
	y = oom_op_add(t, h, input);
	return oom_leave(&f, norm ? oom_op_layer_norm(t, norm, y, 0, true, true) : y);
}

bool oom_fuses_mlm_head(struct oom_tape *t, uint64_t in, uint64_t d)
{
	return oom_fuses_head(t) && in == d;    /* the head's transform leaves the width as it is */
}

void oom_idle_transform(struct oom_tape *t, const char *norm, uint64_t d)
{
	oom_linear_unused(t, "dense", d, d, OOM_BIAS);
	t->scope = norm;
	oom_param(t, "weight", 0, d, OOM_P_NORM | OOM_P_UNUSED);
	oom_param(t, "bias", 0, d, OOM_P_NORM | OOM_P_UNUSED);
}

struct oom_val oom_mlm_loss(struct oom_tape *t, const struct oom_arch *a, const struct oom_mlm *m,
			    struct oom_val h, struct oom_val word)
{
	const char *owner = m->owner ? m->owner : "predictions", *norm = m->norm ? m->norm : "LayerNorm";
	struct oom_frame f = {.t = t};
	struct oom_val x;

	if (oom_fuses_mlm_head(t, h.width, m->no_transform ? h.width : m->d)) {
		if (!m->no_transform)
			oom_idle_transform(t, norm, m->d);
		t->scope = owner;
		if (m->spare_bias && !a->tie)
			oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED);
		return oom_fused_head(t, a, h, word, "decoder", true);
	}
	h = oom_arg(&f, h);                     /* the model's output object holds it */
	x = h;
	t->selection.within = m->within;
	if (!m->no_transform) {
		x = oom_op_linear(t, "dense", x, (struct oom_dim){m->d, "d_embed"}, OOM_BIAS);
		x = oom_op_layer_norm(t, norm, oom_activation(t, m->act, x), 0, true, true);
	}
	t->scope = owner;
	if (m->spare_bias && !a->tie)
		oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED);
	t->selection.within = NULL;
	x = oom_lm_head(t, a, x, word, "decoder", !m->add_bias);
	t->scope = owner;
	if (m->add_bias)
		x = oom_op_add(t, x, oom_param(t, "bias", 0, a->vocab, 0));
	x = t->task == OOM_TASK_CAUSAL_LM ? oom_causal_lm_loss(t, a, x) :
					    oom_plain_lm_loss(t, x, m->upcast, t->m_bs);
	return oom_leave(&f, x);
}

struct oom_val oom_token_head(struct oom_tape *t, const struct oom_arch *a,
			      const struct oom_token_head *head, struct oom_val h)
{
	struct oom_frame f = {.t = t};
	struct oom_val x;

	h = oom_arg(&f, h);                     /* outputs[0] */
	x = oom_op_slice(t, h, t->m_b, (struct oom_dim){h.width, h.text});
	x = oom_op_dropout(t, x, head->dropout);
	x = oom_op_linear(t, head->dense, x, D(a->d_model), OOM_BIAS);
	x = oom_op_dropout(t, oom_activation(t, head->act, x), a->classifier_dropout);
	x = oom_op_linear(t, head->out, x, (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_leave(&f, oom_cls_loss(t, a, x));
}

struct oom_val oom_cls_head(struct oom_tape *t, const struct oom_arch *a, enum oom_act act,
			    struct oom_val h)
{
	const struct oom_token_head head = {.dense = "dense", .out = "out_proj", .act = act,
					    .dropout = a->classifier_dropout};

	return oom_token_head(t, a, &head, h);
}

struct oom_val oom_pooler_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	const struct oom_token_head head = {
		.dense = "dense", .out = "classifier", .act = OOM_ACT_TANH};

	return oom_token_head(t, a, &head, h);
}

/* Its graph goes with its output, before the backward pass; autocast's copy of the weight stays
 * in the cache. */
struct oom_val oom_idle_pooler(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	const bool grad = t->grad;
	const size_t first = t->cursor;
	struct oom_frame f = {.t = t};
	const enum oom_dtype dt = oom_linear_dtype(t, (enum oom_dtype)h.dt);
	struct oom_val w, y;

	oom_linear_unused(t, "dense", a->d_model, a->d_model, OOM_BIAS);
	if (t->status)
		return oom_none();
	w = (struct oom_val){.width = a->d_model * a->d_model, .sto = -1,
			     .node = -2 - (int32_t)first, .dt = t->params[first].dt};
	t->grad = false;
	if (!oom_plan_quantised(t->plan))       /* 4-bit: nothing of it is cached */
		oom_name(&f, oom_amp_cast(t, w));
	y = oom_new(t, "pooled output", t->m_b, D(a->d_model), dt);
	t->grad = grad;
	return oom_leave(&f, y);
}

struct oom_val oom_written_weights_before(struct oom_tape *t, const struct oom_arch *a, uint32_t i,
					  enum oom_dtype x)
{
	/* under autocast the product saves a copy of the dropped weights */
	if (!i || t->recompute || (t->grad && !t->packing && !(t->amp && a->attn_dropout > 0)))
		return oom_none();
	return oom_new(t, "attention weights of the layer before", t->m_bss, D(a->n_heads),
		       t->amp ? OOM_F32 : x);
}

struct oom_val oom_positions_from_ids(struct oom_tape *t)
{
	struct oom_frame f = {.t = t};

	oom_name(&f, oom_new(t, "ne", t->m_bs, D(1), OOM_U8));
	oom_name(&f, oom_new(t, "int", t->m_bs, D(1), OOM_F32));
	return oom_leave(&f, oom_new(t, "position ids", t->m_bs, D(1), OOM_I64));
}

void oom_box_embeddings(struct oom_frame *f, uint64_t rows, const struct oom_dim width[4],
			const char *difference, struct oom_val e[6])
{
	static const char *const names[] = {"x_position_embeddings", "y_position_embeddings",
					    "h_position_embeddings", "w_position_embeddings"};
	static const uint8_t order[] = {0, 1, 0, 1, 2, 3};
	struct oom_tape *t = f->t;
	struct oom_val table[4], ids, box = oom_name(f, oom_new(t, "bbox", t->m_bs, D(4), OOM_I64));

	for (int i = 0; i < 4; i++) {
		t->scope = names[i];
		table[i] = oom_param(t, "weight", rows, width[i].n, OOM_P_EMBEDDING);
	}
	for (int i = 0; i < 6; i++) {
		ids = i < 4 ? box : oom_new(t, difference, t->m_bs, D(1), OOM_I64);
		ids.width = 1;
		e[i] = oom_op_embedding_param(t, table[order[i]], ids, rows, width[order[i]]);
	}
}

void oom_kept_add(struct oom_tape *t, struct oom_kept *k, struct oom_val x)
{
	/* of a training step autograd keeps them too, but for norms' fp32 results under autocast */
	if (t->stream != OOM_STREAM_EVAL && !(k->without_grad && !x.rg) && !(k->in_training && t->stream == OOM_STREAM_FWD && t->amp))
		return;
	if (k->n == sizeof(k->x) / sizeof(k->x[0]))
		oom_tape_fail(t, OOM_ERR_LIMIT, "more than %zu states kept by the layers", k->n);
	else
		k->x[k->n++] = oom_share(t, x);
}

void oom_kept_drop(struct oom_tape *t, struct oom_kept *k)
{
	while (k->n)
		oom_drop(t, k->x[--k->n]);
}

struct oom_val oom_without_checkpointing(struct oom_tape *t, const struct oom_arch *a,
					 struct oom_val (*step)(struct oom_tape *t,
								const struct oom_arch *a))
{
	const struct oom_plan *real = t->plan;
	struct oom_plan plain = *real;
	struct oom_val loss;

	oom_no_checkpointing(t);
	plain.grad_ckpt = OOM_CKPT_NONE;
	t->plan = &plain;
	loss = step(t, a);
	t->plan = real;
	return loss;
}

struct oom_val oom_relative_positions(struct oom_tape *t, bool negate)
{
	const uint16_t plane = oom_mono_mul(t, t->m_s, t->m_s);
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_none();

	if (negate)
		x = oom_name(&f, oom_new(t, "neg", plane, D(1), OOM_I64));
	x = oom_rename(&f, x, oom_new(t, "relative_pos", plane, D(1), OOM_I64));
	return oom_leave(&f, oom_new(t, "clamp", plane, D(1), OOM_I64));
}
