/* MobileBERT: narrow layers between wide ones, stacked feed-forwards, "norms" that only scale and
 * shift. Reference: transformers 5.12, models/mobilebert/modeling_mobilebert.py. */
#include <string.h>

#include "blocks/encoder.h"

/* extra[]: width inside, trigrams, bottlenecks, shared query and key inputs, attention inside the
 * bottleneck, feed-forwards, real norms, a pooler that activates */
enum { TRUE_H, TRIGRAM, BOTTLENECK, SHARED_QK, INNER_V, N_FF, REAL_NORM, ACTIVATE };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *norm = oom_read_string(r, "normalization_type", "no_norm");

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_embed = oom_read_count(r, "embedding_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->type_vocab = oom_read_count_or(r, "type_vocab_size", 2);
	a->act = oom_read_act(r, "hidden_act", "relu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[TRIGRAM] = oom_read_bool(r, "trigram_input", true);
	a->extra[BOTTLENECK] = oom_read_bool(r, "use_bottleneck", true);
	a->extra[TRUE_H] = a->extra[BOTTLENECK] ?
				   oom_read_count_or(r, "intra_bottleneck_size", 128) :
				   a->d_model;
	a->extra[INNER_V] = oom_read_bool(r, "use_bottleneck_attention", false);
	a->extra[SHARED_QK] = oom_read_bool(r, "key_query_shared_bottleneck", true);
	a->extra[N_FF] = oom_read_count_or(r, "num_feedforward_networks", 4);
	a->extra[REAL_NORM] = norm && !strcmp(norm, "layer_norm");
	a->extra[ACTIVATE] = oom_read_bool(r, "classifier_activation", true);
	a->head_dim = a->extra[TRUE_H] / a->n_heads;
	if (!a->extra[TRUE_H] || a->extra[TRUE_H] % a->n_heads)
		oom_read_fail(r,
			      "intra_bottleneck_size (%llu) is not a multiple of "
			      "num_attention_heads (%llu)",
			      (unsigned long long)a->extra[TRUE_H], (unsigned long long)a->n_heads);
	if (a->extra[N_FF] > 64)
		oom_read_fail(r, "num_feedforward_networks (%llu) is more than 64",
			      (unsigned long long)a->extra[N_FF]);
	if (a->d_embed > a->d_model)
		oom_read_fail(r, "embedding_size (%llu) is more than hidden_size (%llu)",
			      (unsigned long long)a->d_embed, (unsigned long long)a->d_model);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

/* NoNorm: input * weight + bias. */
static struct oom_val norm(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const char *scope = t->scope;
	struct oom_val w, b, y;

	if (a->extra[REAL_NORM])
		return oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	t->scope = "LayerNorm";
	b = oom_param(t, "bias", 0, x.width, OOM_P_NORM);
	w = oom_param(t, "weight", 0, x.width, OOM_P_NORM);
	y = oom_op_add(t, oom_op_mul(t, oom_keep(x), w), b);
	oom_done(t, x);
	t->scope = scope;
	return y;
}

/* norm(dense(from) + input); both arguments and the product are locals until the norm is done */
static struct oom_val output(struct oom_tape *t, const struct oom_arch *a, struct oom_val from,
			     struct oom_val input, double dropout)
{
	struct oom_val h = oom_op_linear(t, "dense", oom_keep(from),
					 (struct oom_dim){input.width, input.text}, OOM_BIAS),
		       y;

	h = oom_op_dropout(t, h, dropout);
	y = norm(t, a, oom_op_add(t, oom_keep(h), oom_keep(input)));
	oom_drop(t, h);
	oom_done(t, from);
	oom_done(t, input);
	return y;
}

static struct oom_val narrow(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	return norm(t, a, oom_op_linear(t, "dense", oom_keep(x), D(a->extra[TRUE_H]), OOM_BIAS));
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	return oom_activation(t, a->act,
			      oom_op_linear(t, "dense", oom_keep(x), D(a->d_ff), OOM_BIAS));
}

/* in[]: what queries and keys, values, and the residual are made from */
static struct oom_val attend(struct oom_tape *t, const struct layer *l, const struct oom_val in[3],
			     struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->extra[TRUE_H]);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v;

	at.mask = l->mask;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = true;
	at.weights = weights;
	q = oom_op_heads(t, oom_op_linear(t, "query", oom_keep(in[0]), h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "key", oom_keep(in[0]), h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "value", oom_keep(in[1]), h, OOM_BIAS));
	return oom_attention_core(t, &at, q, k, v);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const bool bottle = a->extra[BOTTLENECK];
	const double p = bottle ? 0 : a->dropout;
	struct oom_val in[3], attn, y, ff, held, weights = oom_none();

	(void)i;
	in[2] = bottle ? narrow(t, a, x) : oom_share(t, x);
	in[0] = !bottle || a->extra[INNER_V] ? oom_share(t, in[2]) :
		a->extra[SHARED_QK]	     ? narrow(t, a, x) :
					       oom_share(t, x);
	in[1] = bottle && !a->extra[INNER_V] ? oom_share(t, x) : oom_share(t, in[2]);
	attn = output(t, a, attend(t, l, in, &weights), oom_share(t, in[2]), p);
	y = oom_share(t, attn);
	for (uint64_t k = 1; k < a->extra[N_FF]; k++)
		y = output(t, a, feed_forward(t, a, y), y, 0);
	ff = feed_forward(t, a, y);
	held = oom_share(t, y);
	y = output(t, a, oom_share(t, ff), y, p);
	if (bottle)
		y = output(t, a, y, x, a->dropout);
	else
		oom_done(t, x);
	/* attention_output and its like, locals of the layer */
	oom_drop(t, held);
	oom_drop(t, ff);
	oom_drop(t, attn);
	oom_drop(t, weights);
	for (int k = 0; k < 3; k++)
		oom_drop(t, in[k]);
	return y;
}

/* Each word with its neighbours: three embeddings joined, the outer two padded copies. */
static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const struct oom_dim e = D(a->d_embed), h = D(a->d_model);
	struct oom_val x, next, before, pos, tt;

	oom_buffer(t, a->max_positions, OOM_I64);
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_embed, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, e);
	x = oom_input_grads(t, x);
	if (a->extra[TRIGRAM]) {
		next = oom_op_copy(t, "pad", oom_op_slice(t, oom_keep(x), x.mono, e));
		before = oom_op_copy(t, "pad", oom_op_slice(t, oom_keep(x), x.mono, e));
		x = oom_op_cat(t, oom_op_cat(t, next, x, D(2 * a->d_embed)), before,
			       D(3 * a->d_embed));
	}
	if (a->extra[TRIGRAM] || a->d_embed != a->d_model)
		x = oom_op_linear(t, "embedding_transformation", x, h, OOM_BIAS);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
			       h, 0);
	tt = oom_op_embedding(t, "token_type_embeddings",
			      oom_new(t, "zeros", t->m_bs, D(1), OOM_I64), a->type_vocab, h, 0);
	next = oom_op_add(t, oom_op_add(t, oom_keep(x), oom_keep(pos)), oom_keep(tt));
	next = oom_op_dropout(t, norm(t, a, next), a->dropout);
	oom_drop(t, x);
	oom_drop(t, pos);
	oom_drop(t, tt);
	return next;
}

/* hidden.matmul(torch.cat([decoder.weight.t(), dense.weight])), then a bias in place */
static struct oom_val masked_lm(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
				struct oom_val word)
{
	struct oom_val x = oom_op_linear(t, "dense", oom_keep(h), D(a->d_model),
					 OOM_BIAS),
		       w, more, bias, loss;

	x = oom_op_layer_norm(t, "LayerNorm", oom_activation(t, a->act, x), 0, true, true);
	t->scope = "predictions";
	more = oom_param(t, "dense.weight", a->d_model - a->d_embed, a->vocab,
			 OOM_P_LINEAR | OOM_P_HEAD);
	w = a->tie ?
		    word :
		    oom_param(t, "decoder.weight", a->vocab, a->d_embed, OOM_P_LINEAR | OOM_P_HEAD);
	bias = oom_param(t, "bias", 0, a->vocab, 0);
	if (!a->tie)                            /* predictions.bias beside decoder.bias */
		oom_drop(t, oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED));
	w.mono = more.mono = OOM_MONO_ONE;
	w.width = a->vocab * a->d_embed;
	more.width = a->vocab * (a->d_model - a->d_embed);
	w = oom_op_cat_into(t, w, more, OOM_MONO_ONE, D(a->vocab * a->d_model));
	t->vocab = a->vocab;
	x = oom_op_matmul_param(t, "decoder", x, w, oom_none(),
				(struct oom_dim){a->vocab, "vocab_size"});
	x = oom_op_add_inplace(t, x, bias);
	loss = oom_plain_lm_loss(t, x, false, t->m_bs);
	oom_drop(t, h);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct layer l = {.a = a};
	struct oom_val word, x = embeddings(t, a, &word), first, loss;

	l.mask = oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	first = oom_share(t, x);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop(t, first);
	if (t->task != OOM_TASK_SEQ_CLS)
		return masked_lm(t, a, x, word);
	if (a->extra[ACTIVATE])
		return oom_pooler_head(t, a, x);
	first = oom_op_dropout(t, oom_op_slice(t, oom_keep(x), t->m_b, D(a->d_model)),
			       a->classifier_dropout);
	first = oom_op_linear(t, "classifier", first, (struct oom_dim){t->n_labels, "num_labels"},
			      OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	loss = oom_cls_loss(t, a, first);
	oom_drop(t, x);
	return loss;
}

const struct oom_family oom_family_mobilebert = {
	.name = "mobilebert",
	.summary = "narrow layers between wide ones, stacked feed-forwards",
	.source = "transformers 5.12 models/mobilebert/modeling_mobilebert.py",
	.types = OOM_TYPE("mobilebert"),
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
