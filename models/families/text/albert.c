/* ALBERT: a BERT whose layers share one set of weights, behind a narrow embedding.
 * Reference: transformers 5.12, models/albert/modeling_albert.py. */
#include "blocks/encoder.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_embed = oom_read_count(r, "embedding_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->type_vocab = oom_read_count_or(r, "type_vocab_size", 2);
	a->act = oom_read_act(r, "hidden_act", "gelu_new");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout_prob", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (oom_read_count_or(r, "num_hidden_groups", 1) != 1 ||
	    oom_read_count_or(r, "inner_group_num", 1) != 1)
		oom_read_fail(r, "albert with several layer groups is not modelled");
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
	size_t first_param;             /* where the shared layer's parameters begin */
};

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v;

	(void)i;
	t->cursor = l->first_param;             /* every layer reads the same weights */
	at.mask = l->mask;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = true;
	at.layer_names_weights = true;          /* "attention_output, _ = self.attention(...)" */
	q = oom_op_heads(t, oom_op_linear(t, "query", oom_keep(x), h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "key", oom_keep(x), h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "value", oom_keep(x), h, OOM_BIAS));
	q = oom_op_linear(t, "dense", oom_attention_core(t, &at, q, k, v), h, OOM_BIAS);
	q = oom_op_add(t, x, oom_op_dropout(t, q, a->dropout));
	x = oom_op_layer_norm(t, "LayerNorm", q, 0, true, true);
	q = oom_op_linear(t, "ffn", oom_keep(x), D(a->d_ff), OOM_BIAS);
	q = oom_op_linear(t, "ffn_output", oom_activation(t, a->act, q), h, OOM_BIAS);
	return oom_op_layer_norm(t, "full_layer_layer_norm", oom_op_add(t, q, x), 0, true, true);
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const struct oom_dim e = D(a->d_embed);
	struct oom_val types, x, tt, pos;

	oom_buffer(t, a->max_positions, OOM_I64);
	oom_buffer(t, a->max_positions, OOM_I64);
	types = oom_new(t, "token type ids", t->m_s, D(1), OOM_I64);
	types.mono = t->m_bs;
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_embed, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, e);
	x = oom_input_grads(t, x);
	tt = oom_op_embedding(t, "token_type_embeddings", types, a->type_vocab, e, 0);
	x = oom_op_add(t, x, tt);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
			       e, 0);
	x = oom_op_layer_norm(t, "LayerNorm", oom_op_add(t, x, pos), 0, true, true);
	return oom_op_dropout(t, x, a->dropout);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val word, x = embeddings(t, a, &word), first = oom_share(t, x);
	struct layer l = {.a = a};

	l.mask = oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	x = oom_op_linear(t, "embedding_hidden_mapping_in", x, D(a->d_model), OOM_BIAS);
	l.first_param = t->cursor;
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	if (t->task == OOM_TASK_SEQ_CLS) {
		x = oom_op_slice(t, x, t->m_b, D(a->d_model));
		x = oom_op_unary(t, OOM_TANH,
				 oom_op_linear(t, "pooler", x, D(a->d_model), OOM_BIAS));
		oom_drop(t, first);             /* embedding_output, a local of the model */
		x = oom_op_dropout(t, x, a->classifier_dropout);
		x = oom_op_linear(t, "classifier", x, (struct oom_dim){t->n_labels, "num_labels"},
				  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
		return oom_cls_loss(t, a, x);
	}
	oom_drop(t, first);
	if (oom_fuses_mlm_head(t, a->d_model, a->d_embed)) {
		oom_idle_transform(t, "LayerNorm", a->d_embed);
		if (!a->tie)
			oom_drop(t, oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED));
		return oom_fused_head(t, a, x, word, "decoder", true);
	}
	x = oom_op_linear(t, "dense", x, D(a->d_embed), OOM_BIAS);
	x = oom_op_layer_norm(t, "LayerNorm", oom_activation(t, a->act, x), 0, true, true);
	if (!a->tie)                            /* predictions.bias beside decoder.bias */
		oom_drop(t, oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED));
	x = oom_lm_head(t, a, x, word, "decoder", true);
	return oom_plain_lm_loss(t, x, false, t->m_bs);
}

const struct oom_family oom_family_albert = {
	.name = "albert",
	.summary = "encoder whose layers share one set of weights",
	.source = "transformers 5.12 models/albert/modeling_albert.py",
	.types = OOM_TYPE("albert"),
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
