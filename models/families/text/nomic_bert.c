/* Nomic BERT and Jina Embeddings v3: post-norm encoders with rotary positions.
 * Reference: transformers 5.12, models/nomic_bert/modeling_nomic_bert.py,
 * models/jina_embeddings_v3/. */
#include "blocks/encoder.h"

/* Jina's: biases, a plain feed-forward, RoBERTa's heads. */
struct nomic_bert_kind {
	bool jina;
	const char *act;                /* what a silent config means */
};

static const struct oom_key_row nomic_bert_keys[] = {
	OOM_ENCODER_KEYS, QUOTIENT(head_dim, "head_dim", d_model, n_heads),
	OR(type_vocab, "type_vocab_size", 2), REAL(dropout, "hidden_dropout_prob", 0),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0),
	FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};

static const struct nomic_bert_kind *nomic_bert_kind(const struct oom_arch *a)
{
	return a->type->kind;
}

static void nomic_bert_parse(struct oom_arch *a)
{
	const struct nomic_bert_kind *kind = nomic_bert_kind(a);

	a->act = oom_read_act(&a->rd, "hidden_act", kind->act);
	a->classifier_dropout = oom_read_real(&a->rd, "classifier_dropout", a->dropout);
	a->qkv_bias = a->o_bias = kind->jina;
}

/* norm(residual + dropout(y)) */
static struct oom_val nomic_bert_join(struct oom_tape *t, const struct oom_arch *a,
				      const char *norm, struct oom_val y, struct oom_val x)
{
	y = oom_op_dropout(t, y, a->dropout);
	return oom_op_layer_norm(t, norm, oom_op_add(t, x, y), 0, true, true);
}

static struct oom_val nomic_bert_block(struct oom_tape *t, const void *ctx, uint32_t i,
				       struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim ff = D(a->d_ff);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_rope rope = l->rope;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	at.mask = l->mask;
	at.caller = &f;
	at.rope = &rope;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = true;
	y = oom_name(&f, oom_attention(t, &at, x));             /* attention_output */
	x = oom_name(&f, nomic_bert_join(t, a, "post_attention_layernorm", y, x));
	y = nomic_bert_kind(a)->jina ? oom_plain_mlp(t, x, "fc1", "fc2", a->act, ff, true) :
				       oom_gated_mlp(t, x, a->act, ff, false);
	return oom_leave(&f, nomic_bert_join(t, a, "post_mlp_layernorm", y, x));
}

static struct oom_val nomic_bert_embeddings(struct oom_tape *t, const struct oom_arch *a,
					    struct oom_val *word)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_frame f = {.t = t};
	struct oom_val types, x;

	oom_buffer(t, a->max_positions, OOM_I64);
	oom_buffer(t, a->max_positions, OOM_I64);
	types = oom_buffered_types(t);
	x = oom_word_embeddings(t, a, "word_embeddings", h, word);
	x = oom_op_add(t, x, oom_name(&f, oom_type_embeddings(t, a, h, types)));
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	return oom_leave(&f, oom_op_dropout(t, x, a->dropout));
}

static struct oom_val nomic_bert_model(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val *word)
{
	struct oom_decoder_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x;

	/* every layer's argument, but not in Jina's model */
	oom_name_for(&f, oom_new(t, "position ids", t->m_s, D(1), OOM_I64),
		     !nomic_bert_kind(a)->jina);
	x = oom_name(&f, nomic_bert_embeddings(t, a, word));
	l.mask = oom_name_shared(&f, oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b,
						   t->m_s, t->m_s));
	l.rope = oom_name_tables(&f, oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, nomic_bert_block, &l, x);
	return oom_leave(&f, x);
}

static struct oom_val nomic_bert_step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool jina = nomic_bert_kind(a)->jina;
	const struct oom_mlm m = {
		.d = a->d_model, .act = jina ? OOM_ACT_GELU : a->act, .spare_bias = true,
		.owner = jina ? "lm_head" : NULL, .norm = "layer_norm"};
	struct oom_val word, x = nomic_bert_model(t, a, &word);

	if (t->task == OOM_TASK_SEQ_CLS)
		return jina ? oom_cls_head(t, a, OOM_ACT_TANH, x) : oom_pooler_head(t, a, x);
	return oom_mlm_loss(t, a, &m, x, word);
}

static const struct nomic_bert_kind nomic = {.act = "silu"};
static const struct nomic_bert_kind jina = {.act = "gelu", .jina = true};

static const struct oom_family_type types[] = {
	{"nomic_bert", &nomic}, {"jina_embeddings_v3", &jina}, {NULL, NULL},
};

const struct oom_family oom_family_nomic_bert = {
	.name = "nomic_bert",
	.summary = "post-norm encoder with rotary positions",
	.source = "transformers 5.12 models/nomic_bert/modeling_nomic_bert.py",
	.types = types,
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "q_proj+v_proj",
	.keys = nomic_bert_keys,
	.parse = nomic_bert_parse,
	.step = nomic_bert_step,
};
