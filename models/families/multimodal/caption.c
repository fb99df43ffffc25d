/* Text decoders that describe images: BERT's layer with a causal mask (BLIP), pre-norm layers with
 * norms of their own (KOSMOS-2 and 2.5), the decoders of Pix2Struct (T5's layer) and PP-FormulaNet
 * (mBART's).  What they have to attend to an image is held, and not run without one.
 * Reference: transformers 5.12,
 * models/{blip,kosmos2,kosmos2_5,pix2struct,pp_formulanet}/modeling_*.py. */
#include <stdio.h>
#include <string.h>

#include "families/towers/vision.h"
#include "families/towers/weights.h"

enum {
	POST = 1,               /* norms after the sums */
	CROSS = 2,              /* cross-attention to image features */
	GATED = 4,              /* two linear layers into the feed-forward, none with biases (T5) */
	INNER_NORM = 8,         /* a norm before the attention's output projection */
	FF_NORM = 16,           /* a norm inside the feed-forward */
	LEARNED = 32,           /* learned positions */
	EMBED_NORM = 64, FINAL_NORM = 128,
	TRANSFORM = 256,        /* dense, activation, norm before the head */
	HEAD_BIAS = 512,
	SEGMENTS = 1024,        /* embeddings of text and image */
	RELATIVE = 2048,        /* one table of relative positions */
};
enum { KIND, BUCKETS, HEAD };   /* extra[] */

static const struct {
	const char *type;
	unsigned flags;
	const char *q, *k, *v, *o, *up, *down;
} kinds[] = {
	{"blip_text_model", POST | CROSS | LEARNED | EMBED_NORM | TRANSFORM | HEAD_BIAS, "query", "key", "value", "dense", "dense", "dense"},
	{"kosmos_2_text_model", INNER_NORM | FF_NORM | FINAL_NORM, "q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"},
	{"kosmos_2_5_text_model", FF_NORM | FINAL_NORM | SEGMENTS, "q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"},
	{"pix2struct_text_model", CROSS | GATED | FINAL_NORM | RELATIVE, "query", "key", "value", "output", "wi_0", "wo"},
	{"pp_formulanet", CROSS | LEARNED | EMBED_NORM | FINAL_NORM, "q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"},
};

static unsigned flags_of(const struct oom_arch *a)
{
	return kinds[a->extra[KIND]].flags;
}

static const char *either(struct oom_reader *r, const char *one, const char *other)
{
	return oom_read_key(r, one) ? one : other;
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	unsigned flags;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].type, a->model_type))
			a->extra[KIND] = i;
	flags = flags_of(a);
	a->norm = flags & GATED ? OOM_NORM_RMS : OOM_NORM_LAYER;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, either(r, "hidden_size", "d_model"), 1);
	a->d_ff = oom_read_count(r,
				 oom_read_key(r, "intermediate_size") ? "intermediate_size" :
				 oom_read_key(r, "d_ff")	      ? "d_ff" :
							   either(r, "ffn_dim", "decoder_ffn_dim"),
				 1);
	a->n_layers = oom_read_count(r, either(r, "num_hidden_layers", "decoder_layers"), 1);
	a->n_heads = a->n_kv_heads = oom_read_count(
		r, either(r, "num_attention_heads", "decoder_attention_heads"), 1);
	a->head_dim = a->n_heads ? a->d_model / a->n_heads : 0;
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r,
			      oom_read_key(r, "hidden_act") ?
				      "hidden_act" :
				      either(r, "dense_act_fn", "activation_function"),
			      "gelu");
	a->tie = strcmp(a->model_type, "pp_formulanet") &&
		 oom_read_bool(r, "tie_word_embeddings", false);
	a->dropout = oom_read_real(r,
				   oom_read_key(r, "hidden_dropout_prob") ?
					   "hidden_dropout_prob" :
					   either(r, "dropout_rate", "dropout"),
				   0);
	a->attn_dropout = oom_read_real(r,
					oom_read_key(r, "attention_probs_dropout_prob") ?
						"attention_probs_dropout_prob" :
						either(r, "attention_dropout", "dropout_rate"),
					0);
	a->qkv_bias = a->o_bias = a->mlp_bias = !(flags & GATED);
	a->extra[BUCKETS] = oom_read_count_or(r, "relative_attention_num_buckets", 32);
	a->extra[HEAD] = oom_read_count_or(r, "encoder_hidden_size", a->d_model);
	if (!a->head_dim || (flags & LEARNED && !a->max_positions))
		oom_read_fail(r, "heads and positions make no model (model type %s)", r->family);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

/* Cross-attention to an image: projections and the norm beside them. */
static void cross_attention(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t k = a->extra[KIND], d = a->d_model, q = a->n_heads * a->head_dim,
		       from = a->extra[HEAD];
	const bool bias = a->qkv_bias;

	t->scope = "cross-attention";
	oom_weight_linear(t, kinds[k].q, d, q, bias);
	oom_weight_linear(t, kinds[k].k, from, q, bias);
	oom_weight_linear(t, kinds[k].v, from, q, bias);
	oom_weight_linear(t, kinds[k].o, q, d, bias);
	oom_weight_norm(t, "LayerNorm", d, bias);
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint64_t k = a->extra[KIND];
	struct oom_attn at = oom_attn_of(t, a);

	at.mask = l->mask;
	at.causal = oom_is_none(l->mask);
	at.softmax_as_is = at.no_cast_back = true;
	at.scale_after = !(flags_of(a) & RELATIVE);
	at.q = kinds[k].q;
	at.k = kinds[k].k;
	at.v = kinds[k].v;
	at.o = kinds[k].o;
	at.o_norm = flags_of(a) & INNER_NORM ? "inner_attn_ln" : NULL;
	return oom_attention(t, &at, x);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim ff = D(a->d_ff), d = D(a->d_model);
	const uint64_t k = a->extra[KIND];
	const unsigned bias = a->mlp_bias ? OOM_BIAS : 0;
	struct oom_val y = oom_op_linear(t, kinds[k].up, oom_keep(x), ff, bias);

	y = oom_activation(t, a->act, y);
	if (flags_of(a) & GATED)
		y = oom_op_dropout(t,
				   oom_op_mul(t, y, oom_op_linear(t, "wi_1", oom_keep(x), ff, 0)),
				   a->dropout);
	if (flags_of(a) & FF_NORM)
		y = oom_norm(t, a->norm, "ffn_layernorm", y, 0);
	y = oom_op_linear(t, kinds[k].down, y, d, bias);
	oom_done(t, x);
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const bool post = flags_of(a) & POST;
	struct oom_weights idle;
	struct oom_val h;

	(void)i;
	h = post ? oom_share(t, x) : oom_norm(t, a->norm, "self_attn_layer_norm", oom_keep(x), 0);
	h = oom_op_dropout(t, attention(t, l, h), a->dropout);
	x = oom_op_add(t, h, x);
	if (post)
		x = oom_norm(t, a->norm, "LayerNorm", x, 0);
	if (flags_of(a) & CROSS) {
		oom_weights_begin(t, &idle);
		cross_attention(t, a);
		oom_weights_end(t, &idle);
	}
	h = post ? oom_share(t, x) : oom_norm(t, a->norm, "final_layer_norm", oom_keep(x), 0);
	h = oom_op_dropout(t, feed_forward(t, a, h), a->dropout);
	x = oom_op_add(t, h, x);
	return post ? oom_norm(t, a->norm, "LayerNorm", x, 0) : x;
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const unsigned flags = flags_of(a);
	struct oom_val ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), x;

	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, *word, ids, a->vocab, D(a->d_model)));
	if (flags & LEARNED) {                  /* mBART's have two rows more */
		struct oom_val places = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);

		x = oom_op_add(
			t, x,
			oom_op_embedding(t, "position_embeddings", places,
					 a->max_positions +
						 (strcmp(a->model_type, "pp_formulanet") ? 0 : 2),
					 D(a->d_model), 0));
	}
	if (flags & SEGMENTS)
		oom_drop(t, oom_param(t, "segment_emb", 2, a->d_model, OOM_P_UNUSED));
	if (flags & RELATIVE)
		oom_drop(t, oom_param(t, "relative_attention_bias", a->extra[BUCKETS], a->n_heads,
				      OOM_P_UNUSED));
	if (flags & EMBED_NORM)
		x = oom_norm(t, a->norm, "LayerNorm", x, 0);
	return oom_op_dropout(t, x, a->dropout);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const unsigned flags = flags_of(a);
	struct layer l = {.a = a};
	struct oom_val word, x = embeddings(t, a, &word), hidden, loss;

	l.mask = oom_make_eager_mask(t, (enum oom_dtype)x.dt);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	if (flags & FINAL_NORM)
		x = oom_norm(t, a->norm, "layer_norm", x, 0);
	if (flags & TRANSFORM) {
		x = oom_activation(t, a->act,
				   oom_op_linear(t, "dense", x, D(a->d_model), OOM_BIAS));
		x = oom_norm(t, a->norm, "LayerNorm", x, 0);
	}
	hidden = oom_share(t, x);
	x = oom_lm_head(t, a, x, word, "output", flags & HEAD_BIAS);
	if (flags & TRANSFORM && !a->tie)       /* predictions.bias beside the decoder's */
		oom_drop(t, oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED));
	loss = oom_causal_lm_loss(t, a, x);
	oom_drop(t, hidden);
	t->warning = "this class trains on images alone: what their features need in a step is not "
		     "counted";
	return loss;
}

static const struct oom_family_type types[] = {
	{"blip_text_model", NULL}, {"kosmos_2_text_model", NULL}, {"kosmos_2_5_text_model", NULL},
	{"pix2struct_text_model", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_caption = {
	.name = "caption",
	.summary = "text decoders that describe images (BLIP, KOSMOS, Pix2Struct)",
	.source = "transformers 5.12 models/blip/modeling_blip_text.py and its like",
	.types = types,
	.lora_targets = "all-linear",
	.parse = parse,
	.step = step,
};
