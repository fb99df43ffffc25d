/* BERT and RoBERTa: post-norm encoders with learned positions.
 * Reference: transformers 5.12, models/bert/modeling_bert.py, models/roberta/modeling_roberta.py. */
#include <string.h>

#include "../blocks.h"

/* extra[]: positions from ids and RoBERTa's heads; a narrow embedding and its generator; norms before, not after */
enum { ROBERTA, ELECTRA, PRE_NORM };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	static const char *const like_roberta[] = {"roberta", "xlm-roberta", "camembert", "data2vec-text",
						   "roberta-prelayernorm", NULL};

	for (int i = 0; like_roberta[i]; i++)
		a->extra[ROBERTA] |= !strcmp(a->model_type, like_roberta[i]);
	a->extra[ELECTRA] = !strcmp(a->model_type, "electra");
	a->extra[PRE_NORM] = !strcmp(a->model_type, "roberta-prelayernorm");
	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_embed = a->extra[ELECTRA] ? oom_read_count(r, "embedding_size", 1) : a->d_model;
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->type_vocab = oom_read_count_or(r, "type_vocab_size", 2);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (a->d_model % a->n_heads)
		oom_read_fail(r, "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)", (unsigned long long)a->d_model,
			      (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

/* dense, dropout, LayerNorm(h + input) (the sum alone where norms come first); both arguments and the dropped-out tensor are locals until the norm is done */
static struct oom_val output(struct oom_tape *t, const struct oom_arch *a, struct oom_val from, struct oom_val input)
{
	struct oom_val h = oom_op_linear(t, "dense", oom_keep(from), D(a->d_model), OOM_BIAS), y;

	h = oom_op_dropout(t, h, a->dropout);
	y = oom_op_add(t, oom_keep(h), oom_keep(input));
	if (!a->extra[PRE_NORM])
		y = oom_op_layer_norm(t, "LayerNorm", y, 0, true, true);
	oom_drop(t, h);
	oom_drop(t, from);
	oom_drop(t, input);
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v, in;

	(void)i;
	at.mask = l->mask;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = true;
	in = a->extra[PRE_NORM] ? oom_op_layer_norm(t, "LayerNorm", oom_keep(x), 0, true, true) : oom_share(t, x);
	q = oom_op_heads(t, oom_op_linear(t, "query", oom_keep(in), h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "key", oom_keep(in), h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "value", oom_keep(in), h, OOM_BIAS));
	q = oom_attention_core(t, &at, q, k, v);
	x = output(t, a, q, x);
	oom_drop(t, in);
	in = a->extra[PRE_NORM] ? oom_op_layer_norm(t, "LayerNorm", oom_keep(x), 0, true, true) : oom_share(t, x);
	q = oom_op_linear(t, "dense", in, D(a->d_ff), OOM_BIAS);
	q = oom_activation(t, a->act, q);
	return output(t, a, q, x);
}

/* Word + token type + position embeddings; RoBERTa computes positions from the ids (one row a token). */
static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const struct oom_dim h = D(a->d_embed);
	struct oom_val ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), types, pos, x, e, w, tt;

	oom_buffer(t, a->max_positions, OOM_I64);
	oom_buffer(t, a->max_positions, OOM_I64);
	pos = oom_input(t, "position ids", t->m_s, 1, OOM_I64);
	if (a->extra[ROBERTA])
		pos = oom_new(t, "position ids", t->m_bs, D(1), OOM_I64);
	/* token types are gathered from a buffer and expanded over the batch */
	types = oom_new(t, "token type ids", a->extra[ROBERTA] ? t->m_bs : t->m_s, D(1), OOM_I64);
	types.mono = t->m_bs;
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_embed, OOM_P_EMBEDDING);
	w = oom_op_embedding_param(t, *word, ids, a->vocab, h);
	w = oom_input_grads(t, w);
	tt = oom_op_embedding(t, "token_type_embeddings", types, a->type_vocab, h, 0);
	x = oom_op_add(t, oom_keep(w), oom_keep(tt));
	e = oom_op_embedding(t, "position_embeddings", pos, a->max_positions, h, 0);
	x = oom_op_add(t, x, oom_keep(e));
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	oom_drop(t, w);                         /* locals of the embedding module */
	oom_drop(t, tt);
	oom_drop(t, e);
	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "embeddings_project", x, D(a->d_model), OOM_BIAS);
	return x;
}

static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = D(a->d_model);

	x = oom_op_slice(t, x, t->m_b, h);      /* hidden[:, 0] */
	if (a->extra[ROBERTA] || a->extra[ELECTRA])
		x = oom_op_dropout(t, x, a->classifier_dropout);
	x = oom_op_linear(t, "dense", x, h, OOM_BIAS | OOM_NO_QUANT);
	x = oom_op_unary(t, a->extra[ELECTRA] ? OOM_GELU : OOM_TANH, x);
	x = oom_op_dropout(t, x, a->classifier_dropout);
	x = oom_op_linear(t, "classifier", x, (struct oom_dim){a->n_labels, "num_labels"}, OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_cls_loss(t, a, x);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val word, x = embeddings(t, a, &word), hidden, loss, first;
	struct layer l = {.a = a};

	l.mask = oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	first = oom_share(t, x);                /* embedding_output, a local of the model */
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	if (a->extra[PRE_NORM]) {
		hidden = oom_share(t, x);       /* encoder_outputs, a local of the model */
		x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
		oom_drop(t, hidden);
	}
	oom_drop(t, first);
	if (a->task == OOM_TASK_SEQ_CLS)
		return classify(t, a, x);
	hidden = oom_share(t, x);               /* outputs[0] lives until the loss is done */
	x = oom_op_linear(t, "dense", x, D(a->d_embed), OOM_BIAS | OOM_NO_QUANT);
	x = oom_activation(t, a->extra[ROBERTA] || a->extra[ELECTRA] ? OOM_ACT_GELU : a->act, x);
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	if (!a->tie && !a->extra[ELECTRA])      /* predictions.bias, tied to decoder.bias only when the weights are */
		oom_drop(t, oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED));
	x = oom_lm_head(t, a, x, word, "decoder", true);
	loss = a->task == OOM_TASK_CAUSAL_LM ? oom_causal_lm_loss(t, a, x) : oom_plain_lm_loss(t, x, false, t->m_bs);
	oom_drop(t, hidden);
	return loss;
}

static const char *const types[] = {"bert", "roberta", "xlm-roberta", "camembert", "data2vec-text", "electra",
				    "roberta-prelayernorm", NULL};

const struct oom_family oom_family_bert = {
	.name = "bert",
	.summary = "post-norm encoder, learned positions, plain feed-forward, dropout",
	.source = "transformers 5.12 models/bert/modeling_bert.py",
	.types = types,
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
