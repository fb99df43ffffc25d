/* DistilBERT: post-norm encoder without token types.
 * Reference: transformers 5.12, models/distilbert/modeling_distilbert.py. */
#include "blocks/encoder.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "dim", 1);
	a->d_ff = oom_read_count(r, "hidden_dim", 1);
	a->n_layers = oom_read_count(r, "n_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "n_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->act = oom_read_act(r, "activation", "gelu");
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0.1);
	a->classifier_dropout = oom_read_real(r, "seq_classif_dropout", 0.2);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v;

	(void)i;
	at.mask = l->mask;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = true;
	q = oom_op_heads(t, oom_op_linear(t, "q_lin", oom_keep(x), h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "k_lin", oom_keep(x), h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "v_lin", oom_keep(x), h, OOM_BIAS));
	q = oom_op_linear(t, "out_lin", oom_attention_core(t, &at, q, k, v), h, OOM_BIAS);
	x = oom_op_layer_norm(t, "sa_layer_norm", oom_op_add(t, q, x), 0, true, true);
	q = oom_plain_mlp(t, oom_keep(x), "lin1", "lin2", a->act, D(a->d_ff), true);
	q = oom_op_dropout(t, q, a->dropout);
	return oom_op_layer_norm(t, "output_layer_norm", oom_op_add(t, q, x), 0, true, true);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val word, x, first, pos, hidden, loss,
		ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	oom_buffer(t, a->max_positions, OOM_I64);
	t->scope = "word_embeddings";
	word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, word, ids, a->vocab, h);
	x = oom_input_grads(t, x);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
			       h, 0);
	x = oom_op_add(t, x, pos);
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	first = oom_share(t, x);
	l.mask = oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop(t, first);
	/* the model's output, a local until the loss is returned */
	hidden = oom_share(t, x);
	if (t->task == OOM_TASK_SEQ_CLS) {
		x = oom_op_slice(t, x, t->m_b, h);
		x = oom_op_unary(t, OOM_RELU,
				 oom_op_linear(t, "pre_classifier", x, h, OOM_BIAS));
		x = oom_op_dropout(t, x, a->classifier_dropout);
		x = oom_op_linear(t, "classifier", x, (struct oom_dim){t->n_labels, "num_labels"},
				  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
		loss = oom_cls_loss(t, a, x);
		oom_drop(t, hidden);
		return loss;
	}
	if (oom_fuses_head(t)) {
		oom_drop(t, hidden);
		oom_idle_transform(t, "vocab_layer_norm", a->d_model);
		return oom_fused_head(t, a, x, word, "vocab_projector", true);
	}
	x = oom_op_linear(t, "vocab_transform", x, h, OOM_BIAS);
	x = oom_op_layer_norm(t, "vocab_layer_norm", oom_activation(t, a->act, x), 0, true, true);
	x = oom_lm_head(t, a, x, word, "vocab_projector", true);
	loss = oom_plain_lm_loss(t, x, false, t->m_bs);
	oom_drop(t, hidden);
	return loss;
}

const struct oom_family oom_family_distilbert = {
	.name = "distilbert",
	.summary = "post-norm encoder without token types",
	.source = "transformers 5.12 models/distilbert/modeling_distilbert.py",
	.types = OOM_TYPE("distilbert"),
	.lora_targets = "q_lin+v_lin",
	.parse = parse,
	.step = step,
};
