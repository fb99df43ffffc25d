/* ALBERT: a BERT whose layers share one set of weights, behind a narrow embedding.
 * Reference: transformers 5.12, models/albert/modeling_albert.py. */
#include "blocks/encoder.h"

static const struct oom_key_row albert_keys[] = {
	OOM_ENCODER_KEYS, MUST(d_embed, "embedding_size"), OR(type_vocab, "type_vocab_size", 2),
	ACT(act, "hidden_act", "gelu_new"), REAL(dropout, "hidden_dropout_prob", 0),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0),
	REAL(classifier_dropout, "classifier_dropout_prob", 0.1),
	FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};

static void albert_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	if (oom_read_count_or(r, "num_hidden_groups", 1) != 1 ||
	    oom_read_count_or(r, "inner_group_num", 1) != 1)
		oom_read_fail(r, "albert with several layer groups is not modelled");
}

struct albert_layer {
	const struct oom_arch *a;
	struct oom_val mask;
	size_t first_param;             /* where the shared layer's parameters begin */
};

static struct oom_val albert_block(struct oom_tape *t, const void *ctx, uint32_t i,
				   struct oom_val x)
{
	const struct albert_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, y;

	(void)i;
	t->cursor = l->first_param;             /* every layer reads the same weights */
	at.mask = l->mask;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = true;
	at.caller = &f;                         /* "attention_output, _ = self.attention(...)" */
	q = oom_op_heads(t, oom_op_linear(t, "query", x, h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "key", x, h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "value", x, h, OOM_BIAS));
	y = oom_op_linear(t, "dense", oom_attention_core(t, &at, q, k, v), h, OOM_BIAS);
	y = oom_op_add(t, x, oom_op_dropout(t, y, a->dropout));
	x = oom_name(&f, oom_op_layer_norm(t, "LayerNorm", y, 0, true, true));
	y = oom_op_linear(t, "ffn", x, D(a->d_ff), OOM_BIAS);
	y = oom_op_linear(t, "ffn_output", oom_activation(t, a->act, y), h, OOM_BIAS);
	y = oom_op_add(t, y, oom_take(&f, x));
	return oom_leave(&f, oom_op_layer_norm(t, "full_layer_layer_norm", y, 0, true, true));
}

static struct oom_val albert_embeddings(struct oom_tape *t, const struct oom_arch *a,
					struct oom_val *word)
{
	const struct oom_dim e = D(a->d_embed);
	struct oom_val types, x;

	oom_buffer(t, a->max_positions, OOM_I64);
	oom_buffer(t, a->max_positions, OOM_I64);
	types = oom_buffered_types(t);
	x = oom_word_embeddings(t, a, "word_embeddings", e, word);
	x = oom_op_add(t, x, oom_type_embeddings(t, a, e, types));
	x = oom_op_add(t, x, oom_position_embeddings(t, a, e));
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	return oom_op_dropout(t, x, a->dropout);
}

/* AlbertModel.forward; with the pooler where a class is asked for. */
static struct oom_val albert_model(struct oom_tape *t, const struct oom_arch *a,
				   struct oom_val *word)
{
	struct albert_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_name(&f, albert_embeddings(t, a, word));

	l.mask = oom_name_shared(&f, oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b,
						   t->m_s, t->m_s));
	x = oom_op_linear(t, "embedding_hidden_mapping_in", x, D(a->d_model), OOM_BIAS);
	l.first_param = t->cursor;
	t->layers_alike = true;
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, albert_block, &l, x);
	t->layers_alike = false;
	oom_forget_shared(&f);
	if (t->task == OOM_TASK_SEQ_CLS) {
		x = oom_op_slice(t, x, t->m_b, D(a->d_model));
		x = oom_op_linear(t, "pooler", x, D(a->d_model), OOM_BIAS);
		x = oom_op_unary(t, OOM_TANH, x);
	}
	return oom_leave(&f, x);
}

static struct oom_val albert_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val word, x = albert_model(t, a, &word);

	if (t->task == OOM_TASK_SEQ_CLS) {
		x = oom_op_dropout(t, x, a->classifier_dropout);
		x = oom_op_linear(t, "classifier", x, (struct oom_dim){t->n_labels, "num_labels"},
				  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
		return oom_cls_loss(t, a, x);
	}
	if (oom_fuses_mlm_head(t, a->d_model, a->d_embed)) {
		oom_idle_transform(t, "LayerNorm", a->d_embed);
		if (!a->tie)
			oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED);
		return oom_fused_head(t, a, x, word, "decoder", true);
	}
	x = oom_op_linear(t, "dense", x, D(a->d_embed), OOM_BIAS);
	x = oom_op_layer_norm(t, "LayerNorm", oom_activation(t, a->act, x), 0, true, true);
	if (!a->tie)                            /* predictions.bias beside decoder.bias */
		oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED);
	t->scope = "predictions";
	return oom_plain_lm_loss(t, oom_lm_head(t, a, x, word, "decoder", true), false, t->m_bs);
}

const struct oom_family oom_family_albert = {
	.name = "albert",
	.summary = "encoder whose layers share one set of weights",
	.source = "transformers 5.12 models/albert/modeling_albert.py",
	.types = OOM_TYPE("albert"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "query+value",
	.keys = albert_keys,
	.parse = albert_parse,
	.step = albert_step,
};
