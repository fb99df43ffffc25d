/* DistilBERT: post-norm encoder without token types.
 * Reference: transformers 5.12, models/distilbert/modeling_distilbert.py. */
#include "blocks/encoder.h"
#include "blocks/tokens.h"
#include "config/keys.h"

static const struct oom_key_row distilbert_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "dim"), MUST(d_ff, "hidden_dim"),
	MUST(n_layers, "n_layers"), MUST(n_heads, "n_heads"),
	MUST(max_positions, "max_position_embeddings"), ACT(act, "activation", "gelu"),
	REAL(dropout, "dropout", 0.1), REAL(attn_dropout, "attention_dropout", 0.1),
	REAL(classifier_dropout, "seq_classif_dropout", 0.2),
	FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};

static struct oom_val distilbert_block(struct oom_tape *t, const void *ctx, uint32_t i,
				       struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, y;

	(void)i;
	at.mask = l->mask;
	at.causal = false;
	at.caller = &f;                         /* "attention_output, _ = self.attention(...)" */
	at.softmax_as_is = at.no_cast_back = true;
	q = oom_op_heads(t, oom_op_linear(t, "q_lin", x, h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "k_lin", x, h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "v_lin", x, h, OOM_BIAS));
	y = oom_name(&f, oom_op_linear(t, "out_lin", oom_attention_core(t, &at, q, k, v), h, OOM_BIAS));
	x = oom_op_layer_norm(t, "sa_layer_norm", oom_op_add(t, y, x), 0, true, true);
	x = oom_rename(&f, y, x);               /* attention_output */
	y = oom_plain_mlp(t, x, "lin1", "lin2", a->act, D(a->d_ff), true);
	y = oom_name(&f, oom_op_dropout(t, y, a->dropout));
	return oom_leave(&f, oom_op_layer_norm(t, "output_layer_norm", oom_op_add(t, y, x), 0, true, true));
}

/* DistilBertModel.forward */
static struct oom_val distilbert_model(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val *word)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_decoder_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x, pos, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	oom_buffer(t, a->max_positions, OOM_I64);
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *word, ids, a->vocab, h);
	x = oom_input_grads(t, x);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
			       h, 0);
	x = oom_op_layer_norm(t, "LayerNorm", oom_op_add(t, x, pos), 0, true, true);
	x = oom_name(&f, oom_op_dropout(t, x, a->dropout));
	l.mask = oom_name_shared(&f, oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s,
						   t->m_s));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, distilbert_block, &l, x);
	return oom_leave(&f, x);
}

static struct oom_val distilbert_classifier(struct oom_tape *t, const struct oom_arch *a,
					    struct oom_val x)
{
	const struct oom_dim h = D(a->d_model);

	x = oom_op_slice(t, x, t->m_b, h);
	x = oom_op_unary(t, OOM_RELU, oom_op_linear(t, "pre_classifier", x, h, OOM_BIAS));
	x = oom_op_dropout(t, x, a->classifier_dropout);
	x = oom_op_linear(t, "classifier", x, (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_cls_loss(t, a, x);
}

static struct oom_val distilbert_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_frame f = {.t = t};
	struct oom_val word, x = distilbert_model(t, a, &word);

	if (oom_tokens_asked(t))
		return oom_tokens_head(t, &(struct oom_tokens){.name = "classifier", .dropout = a->dropout}, x);
	if (t->task != OOM_TASK_SEQ_CLS && oom_fuses_head(t)) {
		oom_idle_transform(t, "vocab_layer_norm", a->d_model);
		return oom_fused_head(t, a, x, word, "vocab_projector", true);
	}
	x = oom_name(&f, x);                    /* the model's output, until the loss is returned */
	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_leave(&f, distilbert_classifier(t, a, x));
	x = oom_activation(t, a->act, oom_op_linear(t, "vocab_transform", x, h, OOM_BIAS));
	x = oom_op_layer_norm(t, "vocab_layer_norm", x, 0, true, true);
	x = oom_lm_head(t, a, x, word, "vocab_projector", true);
	return oom_leave(&f, oom_plain_lm_loss(t, x, false, t->m_bs));
}

const struct oom_family oom_family_distilbert = {
	.name = "distilbert",
	.summary = "post-norm encoder without token types",
	.source = "transformers 5.12 models/distilbert/modeling_distilbert.py",
	.types = OOM_TYPE("distilbert"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "q_lin+v_lin",
	.keys = distilbert_keys,
	.step = distilbert_step,
};
