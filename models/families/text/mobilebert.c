/* MobileBERT: narrow layers between wide ones, stacked feed-forwards, "norms" that only scale and
 * shift. Reference: transformers 5.12, models/mobilebert/modeling_mobilebert.py. */
#include <string.h>

#include "blocks/encoder.h"

struct mobilebert {
	uint64_t inner;                 /* width inside the bottleneck; without one the model's */
	uint64_t n_ff;                  /* feed-forwards per layer */
	bool bottleneck;
	bool shared_qk;                 /* one input for queries and keys */
	bool inner_v;                   /* attention inside the bottleneck */
	bool trigram, real_norm, pooler;
};
OOM_OWN(mobilebert, struct mobilebert);

static const struct oom_key_row mobilebert_keys[] = {
	OOM_ENCODER_KEYS, MUST(d_embed, "embedding_size"), OR(type_vocab, "type_vocab_size", 2),
	ACT(act, "hidden_act", "relu"), REAL(dropout, "hidden_dropout_prob", 0),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0.1),
	FLAG(tie, "tie_word_embeddings", true),
	OR_OWN(struct mobilebert, inner, "intra_bottleneck_size", 128),
	OR_OWN(struct mobilebert, n_ff, "num_feedforward_networks", 4),
	FLAG_OWN(struct mobilebert, bottleneck, "use_bottleneck", true),
	FLAG_OWN(struct mobilebert, shared_qk, "key_query_shared_bottleneck", true),
	FLAG_OWN(struct mobilebert, inner_v, "use_bottleneck_attention", false),
	FLAG_OWN(struct mobilebert, trigram, "trigram_input", true),
	FLAG_OWN(struct mobilebert, pooler, "classifier_activation", true), OOM_KEYS_END};

static void mobilebert_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *norm = oom_read_string(r, "normalization_type", "no_norm");
	struct mobilebert *own = mobilebert_own(a);

	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	own->real_norm = norm && !strcmp(norm, "layer_norm");
	if (!own->bottleneck)
		own->inner = a->d_model;
	a->head_dim = own->inner / a->n_heads;
	if (!own->inner || own->inner % a->n_heads)
		oom_read_fail(r,
			      "intra_bottleneck_size (%llu) is not a multiple of "
			      "num_attention_heads (%llu)",
			      (unsigned long long)own->inner, (unsigned long long)a->n_heads);
	if (own->bottleneck && !own->shared_qk && !own->inner_v)
		oom_read_fail(r, "mobilebert: without key_query_shared_bottleneck queries are made from hidden_size "
				 "numbers by a layer for intra_bottleneck_size: no step runs so");
	if (oom_read_count_or(r, "true_hidden_size", own->inner) != own->inner)
		oom_read_fail(r, "mobilebert: true_hidden_size is not what use_bottleneck makes it (%llu): no step runs so",
			      (unsigned long long)own->inner);
	if (own->n_ff > 64)
		oom_read_fail(r, "num_feedforward_networks (%llu) is more than 64",
			      (unsigned long long)own->n_ff);
	if (a->d_embed > a->d_model)
		oom_read_fail(r, "embedding_size (%llu) is more than hidden_size (%llu)",
			      (unsigned long long)a->d_embed, (unsigned long long)a->d_model);
}

/* NoNorm: input * weight + bias. */
static struct oom_val mobilebert_norm(struct oom_tape *t, const struct oom_arch *a,
				      struct oom_val x)
{
	const char *scope = t->scope;
	struct oom_frame f = {.t = t};
	struct oom_val w, b;

	if (mobilebert_of(a)->real_norm)
		return oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	t->scope = "LayerNorm";
	x = oom_arg(&f, x);
	b = oom_norm_param(t, "bias", x.width);
	w = oom_norm_param(t, "weight", x.width);
	x = oom_op_add(t, oom_op_mul(t, x, w), b);
	t->scope = scope;
	return oom_leave(&f, x);
}

/* norm(dense(from) + input) */
static struct oom_val mobilebert_output(struct oom_tape *t, const struct oom_arch *a,
					struct oom_val from, struct oom_val input, double dropout)
{
	const struct oom_dim width = {input.width, input.text};
	struct oom_frame f = {.t = t};
	struct oom_val y;

	from = oom_arg(&f, from);
	input = oom_arg(&f, input);
	y = oom_op_dropout(t, oom_op_linear(t, "dense", from, width, OOM_BIAS), dropout);
	y = oom_name(&f, y);
	return oom_leave(&f, mobilebert_norm(t, a, oom_op_add(t, y, input)));
}

static struct oom_val mobilebert_narrow(struct oom_tape *t, const struct oom_arch *a,
					struct oom_val x)
{
	const struct oom_dim inner = D(mobilebert_of(a)->inner);

	return mobilebert_norm(t, a, oom_op_linear(t, "dense", x, inner, OOM_BIAS));
}

static struct oom_val mobilebert_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	return oom_activation(t, a->act, oom_op_linear(t, "dense", x, D(a->d_ff), OOM_BIAS));
}

/* What queries and keys (0), values (1) and the residual (2) of a layer are made from: in f. */
static void mobilebert_inputs(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
			      struct oom_val in[3])
{
	const struct mobilebert *own = mobilebert_of(a);

	in[0] = in[1] = in[2] = x;
	if (!own->bottleneck)
		return;
	in[2] = oom_name(f, mobilebert_narrow(f->t, a, x));
	if (own->inner_v)
		in[0] = in[1] = in[2];
	else
		in[0] = oom_name(f, mobilebert_narrow(f->t, a, x));
	if (own->inner_v && own->shared_qk) {   /* made, and not called */
		oom_linear_unused(f->t, "dense", a->d_model, own->inner, OOM_BIAS);
		f->t->scope = "LayerNorm";
		oom_param(f->t, "bias", 0, own->inner, OOM_P_NORM | OOM_P_UNUSED);
		oom_param(f->t, "weight", 0, own->inner, OOM_P_NORM | OOM_P_UNUSED);
	}
}

static struct oom_val mobilebert_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
					   const struct oom_val in[3], struct oom_frame *caller)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(mobilebert_of(a)->inner);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v;

	at.mask = l->mask;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = true;
	at.caller = caller;
	q = oom_op_heads(t, oom_op_linear(t, "query", in[0], h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "key", in[0], h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "value", in[1], h, OOM_BIAS));
	return oom_attention_core(t, &at, q, k, v);
}

static struct oom_val mobilebert_block(struct oom_tape *t, const void *ctx, uint32_t i,
				       struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct mobilebert *own = mobilebert_of(a);
	const double p = own->bottleneck ? 0 : a->dropout;
	struct oom_frame f = {.t = t};
	struct oom_val in[3], attn, y, ff;

	(void)i;
	mobilebert_inputs(&f, a, x, in);
	attn = mobilebert_attention(t, l, in, &f);
	attn = oom_name(&f, mobilebert_output(t, a, attn, in[2], p));
	y = oom_name(&f, attn);
	for (uint64_t k = 1; k < own->n_ff; k++)
		y = oom_rename(&f, y, mobilebert_output(t, a, mobilebert_mlp(t, a, y), y, 0));
	ff = oom_name(&f, mobilebert_mlp(t, a, y));
	y = mobilebert_output(t, a, ff, y, p);
	if (own->bottleneck)
		y = mobilebert_output(t, a, y, x, a->dropout);
	return oom_leave(&f, y);
}

/* Each word with its neighbours: three embeddings joined, the outer two padded copies. */
static struct oom_val mobilebert_trigram(struct oom_tape *t, const struct oom_arch *a,
					 struct oom_val x)
{
	const struct oom_dim e = D(a->d_embed);
	struct oom_frame f = {.t = t};
	struct oom_val next, before;

	x = oom_name(&f, x);
	next = oom_op_copy(t, "pad", oom_op_slice(t, x, x.mono, e));
	before = oom_op_copy(t, "pad", oom_op_slice(t, x, x.mono, e));
	x = oom_op_cat(t, next, oom_take(&f, x), D(2 * a->d_embed));
	return oom_leave(&f, oom_op_cat(t, x, before, D(3 * a->d_embed)));
}

static struct oom_val mobilebert_embeddings(struct oom_tape *t, const struct oom_arch *a,
					    struct oom_val *word)
{
	const bool trigram = mobilebert_of(a)->trigram;
	const struct oom_dim h = D(a->d_model);
	struct oom_frame f = {.t = t};
	struct oom_val x, pos, tt;

	oom_buffer(t, a->max_positions, OOM_I64);
	x = oom_word_embeddings(t, a, "word_embeddings", D(a->d_embed), word);
	if (trigram)
		x = mobilebert_trigram(t, a, x);
	if (trigram || a->d_embed != a->d_model)
		x = oom_op_linear(t, "embedding_transformation", x, h, OOM_BIAS);
	x = oom_name(&f, x);
	pos = oom_name(&f, oom_position_embeddings(t, a, h));
	tt = oom_name(&f, oom_zero_types(t, a, h));
	x = mobilebert_norm(t, a, oom_op_add(t, oom_op_add(t, x, pos), tt));
	return oom_leave(&f, oom_op_dropout(t, x, a->dropout));
}

/* hidden.matmul(torch.cat([decoder.weight.t(), dense.weight])), then a bias in place */
static struct oom_val mobilebert_masked_lm(struct oom_tape *t, const struct oom_arch *a,
					   struct oom_val h, struct oom_val w)
{
	struct oom_linear rest = {.name = "dense", .in = a->vocab,
				  .out = {a->d_model - a->d_embed, NULL}};
	struct oom_frame f = {.t = t};
	struct oom_val x, more, bias;

	h = oom_arg(&f, h);
	x = oom_op_linear(t, "dense", h, D(a->d_model), OOM_BIAS);
	x = oom_op_layer_norm(t, "LayerNorm", oom_activation(t, a->act, x), 0, true, true);
	t->scope = "predictions";
	more = oom_param(t, "dense.weight", a->d_model - a->d_embed, a->vocab,
			 OOM_P_LINEAR | OOM_P_HEAD);
	oom_adapter_open(t, &rest, OOM_P_UNUSED);       /* a layer whose weight alone is read */
	if (!a->tie)
		w = oom_param(t, "decoder.weight", a->vocab, a->d_embed, OOM_P_LINEAR | OOM_P_HEAD);
	bias = oom_param(t, "bias", 0, a->vocab, 0);
	if (!a->tie)                            /* predictions.bias beside decoder.bias */
		oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED);
	w.mono = more.mono = OOM_MONO_ONE;
	w.width = a->vocab * a->d_embed;
	more.width = a->vocab * (a->d_model - a->d_embed);
	w = oom_op_cat_into(t, w, more, OOM_MONO_ONE, D(a->vocab * a->d_model));
	t->vocab = a->vocab;
	x = oom_op_matmul_param(t, "decoder", x, w, oom_none(),
				(struct oom_dim){a->vocab, "vocab_size"});
	x = oom_op_add_inplace(t, x, bias);
	return oom_leave(&f, oom_plain_lm_loss(t, x, false, t->m_bs));
}

static struct oom_val mobilebert_model(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val *word)
{
	struct oom_decoder_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_name(&f, mobilebert_embeddings(t, a, word));

	l.mask = oom_name_shared(&f, oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b,
						   t->m_s, t->m_s));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, mobilebert_block, &l, x);
	return oom_leave(&f, x);
}

static struct oom_val mobilebert_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_val word, x = mobilebert_model(t, a, &word);

	if (t->task != OOM_TASK_SEQ_CLS)
		return mobilebert_masked_lm(t, a, x, word);
	if (mobilebert_of(a)->pooler)
		return oom_pooler_head(t, a, x);
	x = oom_op_slice(t, oom_name(&f, x), t->m_b, D(a->d_model));
	x = oom_op_linear(t, "classifier", oom_op_dropout(t, x, a->classifier_dropout),
			  (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_leave(&f, oom_cls_loss(t, a, x));
}

const struct oom_family oom_family_mobilebert = {
	.name = "mobilebert",
	.summary = "narrow layers between wide ones, stacked feed-forwards",
	.source = "transformers 5.12 models/mobilebert/modeling_mobilebert.py",
	.types = OOM_TYPE("mobilebert"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "query+value",
	.keys = mobilebert_keys,
	.parse = mobilebert_parse,
	.step = mobilebert_step,
};
