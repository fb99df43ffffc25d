/* Text decoders that describe images: BERT's layer with a causal mask (BLIP), pre-norm layers with
 * norms of their own (KOSMOS-2 and 2.5), the decoders of Pix2Struct (T5's layer) and PP-FormulaNet
 * (mBART's).  BLIP's layers attend to an image where the step has one; what the others have for that is held, and not run.
 * Reference: transformers 5.12,
 * models/{blip,kosmos2,kosmos2_5,pix2struct,pp_formulanet}/modeling_*.py. */
#include "blocks/decoder.h"
#include "config/keys.h"
#include "families/towers/weights.h"

struct caption_kind {
	const char *q, *k, *v, *o, *up, *down;  /* modules */
	bool post;              /* norms after the sums */
	bool cross;             /* cross-attention to image features */
	bool gated;             /* two linear layers into the feed-forward, none with biases (T5) */
	bool unscaled;          /* scores are not scaled (T5) */
	bool inner_norm;        /* a norm before the attention's output projection */
	bool ff_norm;           /* a norm inside the feed-forward */
	bool sines;             /* words are scaled, positions a buffer; both dropped out twice (KOSMOS) */
	bool learned;           /* learned positions ... */
	uint64_t more;          /* ... so many more than the config says (mBART) */
	bool embed_norm, final_norm;
	bool transform;         /* dense, activation, norm before the head */
	bool head_bias;
	bool segments;          /* embeddings of text and image */
	bool untied;            /* whatever the config says */
};
#define KOSMOS \
	.q = "q_proj", .k = "k_proj", .v = "v_proj", .o = "out_proj", .up = "fc1", .down = "fc2", \
	.final_norm = true
static const struct caption_kind
	blip = {.q = "query", .k = "key", .v = "value", .o = "dense", .up = "dense", .down = "dense",
		.post = true, .cross = true, .learned = true, .embed_norm = true, .transform = true,
		.head_bias = true},
	kosmos_2 = {KOSMOS, .sines = true, .inner_norm = true, .ff_norm = true},
	kosmos_2_5 = {KOSMOS, .sines = true, .ff_norm = true, .segments = true},
	pix2struct = {.q = "query", .k = "key", .v = "value", .o = "output", .up = "wi_0",
		      .down = "wo", .cross = true, .gated = true, .unscaled = true,
		      .final_norm = true},
	formula = {KOSMOS, .cross = true, .learned = true, .more = 2, .embed_norm = true,
		   .untied = true};
static const struct oom_family_type caption_types[] = {
	{"blip_text_model", &blip}, {"kosmos_2_text_model", &kosmos_2},
	{"kosmos_2_5_text_model", &kosmos_2_5}, {"pix2struct_text_model", &pix2struct}, {NULL, NULL},
};
static const struct oom_family_type caption_inner[] = {{"pp_formulanet", &formula}, {NULL, NULL}};
static const struct caption_kind *kind_of(const struct oom_arch *a)
{
	return a->type->kind;
}

struct caption {
	uint64_t buckets;       /* of T5's relative positions, one table */
	uint64_t image;         /* width of what cross-attention reads */
};
OOM_OWN(caption, struct caption);

static const char *either(struct oom_reader *r, const char *one, const char *other)
{
	return oom_read_key(r, one) ? one : other;
}

static void caption_parse(struct oom_arch *a)
{
	const struct caption_kind *k = kind_of(a);
	struct oom_reader *r = &a->rd;

	a->norm = k->gated ? OOM_NORM_RMS : OOM_NORM_LAYER;
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
	a->tie = !k->untied && oom_read_bool(r, "tie_word_embeddings", false);
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
	a->qkv_bias = a->o_bias = a->mlp_bias = !k->gated;
	caption_own(a)->buckets = oom_read_count_or(r, "relative_attention_num_buckets", 32);
	caption_own(a)->image = oom_read_count_or(r, "encoder_hidden_size", a->d_model);
	if (!a->head_dim || (k->learned && !a->max_positions))
		oom_read_fail(r, "heads and positions make no model (model type %s)", r->family);
}

/* The context of a layer. */
struct caption_layer {
	struct oom_decoder_layer l;     /* mask */
	struct oom_crossed crossed;     /* the image's states, where there are any */
};

/* Cross-attention to an image: projections and the norm beside them. */
static void idle_cross_attention(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t d = a->d_model, q = a->n_heads * a->head_dim, from = caption_of(a)->image;
	const struct caption_kind *k = kind_of(a);
	struct oom_weights idle;

	oom_weights_begin(t, &idle);
	t->scope = "cross-attention";
	oom_weight_linear(t, k->q, d, q, a->qkv_bias);
	oom_weight_linear(t, k->k, from, q, a->qkv_bias);
	oom_weight_linear(t, k->v, from, q, a->qkv_bias);
	oom_weight_linear(t, k->o, q, d, a->qkv_bias);
	oom_weight_norm(t, "LayerNorm", d, a->qkv_bias);
	oom_weights_end(t, &idle);
}

/* Among the text's tokens, or from them to an image's states. */
static struct oom_val caption_attention(struct oom_frame *layer, const struct oom_decoder_layer *l, const struct oom_crossed *to,
					struct oom_val x)
{
	const struct caption_kind *k = kind_of(l->a);
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_attn_of(t, l->a);

	at.written_out = k->post;
	at.caller = k->sines ? layer : NULL;    /* hidden_states, _ = self.self_attn(...) */
	at.mask = l->mask;
	at.causal = oom_is_none(l->mask);
	at.softmax_as_is = at.no_cast_back = true;
	at.scale_after = !k->unscaled;
	at.q = k->q;
	at.k = k->k;
	at.v = k->v;
	at.o = k->o;
	at.o_norm = k->inner_norm ? "inner_attn_ln" : NULL;
	if (to) {
		at.mask = oom_none();
		at.causal = false;
		at.kv_from = to->x;
		at.mk = to->tokens;
		at.sk = to->len;
	}
	return oom_attention(t, &at, x);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct caption_kind *k = kind_of(a);
	const struct oom_dim ff = D(a->d_ff), d = D(a->d_model);
	const unsigned bias = a->mlp_bias ? OOM_BIAS : 0;
	struct oom_frame f = {.t = t};
	struct oom_val y, up;

	x = oom_arg(&f, x);
	y = oom_activation(t, a->act, oom_op_linear(t, k->up, x, ff, bias));
	if (k->gated) {
		up = oom_op_linear(t, "wi_1", x, ff, 0);
		y = oom_op_dropout(t, oom_op_mul(t, y, up), a->dropout);
	}
	if (k->ff_norm)
		y = oom_norm(t, a->norm, "ffn_layernorm", y, 0);
	return oom_leave(&f, oom_op_linear(t, k->down, y, d, bias));
}

/* LayerNorm(h + x), while h has a name (BlipTextSelfOutput, BlipTextOutput). */
static struct oom_val summed(struct oom_tape *t, const struct oom_arch *a, struct oom_val h, struct oom_val x)
{
	struct oom_frame f = {.t = t};

	h = oom_name(&f, oom_op_dropout(t, h, a->dropout));
	return oom_leave(&f, oom_norm(t, a->norm, "LayerNorm", oom_op_add(t, h, x), 0));
}

/* BlipTextLayer */
static struct oom_val post_norm_block(struct oom_tape *t, const struct caption_layer *c, struct oom_val x)
{
	const struct oom_arch *a = c->l.a;
	struct oom_frame f = {.t = t};

	x = oom_name(&f, summed(t, a, caption_attention(&f, &c->l, NULL, x), x));
	if (c->crossed.there)
		x = oom_rename(&f, x, summed(t, a, caption_attention(&f, &c->l, &c->crossed, x), x));
	else
		idle_cross_attention(t, a);
	return oom_leave(&f, summed(t, a, feed_forward(t, a, x), x));
}

static struct oom_val caption_block(struct oom_tape *t, const void *ctx, uint32_t i,
				    struct oom_val x)
{
	const struct caption_layer *c = ctx;
	const struct oom_decoder_layer *l = &c->l;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val h;

	(void)i;
	if (kind_of(a)->post)
		return post_norm_block(t, c, x);
	h = oom_norm(t, a->norm, "self_attn_layer_norm", x, 0);
	h = oom_op_dropout(t, caption_attention(&f, l, NULL, h), a->dropout);
	x = oom_name(&f, oom_op_add(t, h, x));
	if (kind_of(a)->cross)
		idle_cross_attention(t, a);
	h = oom_norm(t, a->norm, "final_layer_norm", x, 0);
	h = oom_op_dropout(t, feed_forward(t, a, h), a->dropout);
	return oom_leave(&f, oom_op_add(t, h, oom_take(&f, x)));
}

/* forward_embedding: a row of a table of sines for every token, which needs no gradient. */
static struct oom_val with_sines(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	struct oom_frame f = {.t = t};
	struct oom_val places;

	oom_buffer(t, (a->max_positions + 2) * a->d_model, oom_loaded_dtype(t->plan));
	x = oom_name(&f, oom_op_unary(t, OOM_SCALE, x));
	places = oom_name(&f, oom_new(t, "index_select", t->m_bs, D(a->d_model), oom_loaded_dtype(t->plan)));
	x = oom_name(&f, oom_op_add(t, x, places));
	return oom_leave(&f, oom_op_dropout(t, x, a->dropout));
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const struct caption_kind *k = kind_of(a);
	struct oom_val ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), x;

	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, *word, ids, a->vocab, D(a->d_model)));
	if (k->sines)
		x = with_sines(t, a, x);
	if (k->learned) {
		if (k->post)                    /* a buffer, of which a part is taken */
			oom_buffer(t, a->max_positions, OOM_I64);
		ids = k->post ? oom_input(t, "position ids", t->m_s, 1, OOM_I64) : oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
		ids = oom_op_embedding(t, "position_embeddings", ids, a->max_positions + k->more,
				       D(a->d_model), 0);
		x = oom_op_add(t, x, ids);
	}
	if (k->segments)
		oom_param(t, "segment_emb", 2, a->d_model, OOM_P_UNUSED);
	if (k->gated)
		oom_param(t, "relative_attention_bias", caption_of(a)->buckets, a->n_heads,
			  OOM_P_UNUSED);
	if (k->embed_norm)
		x = oom_norm(t, a->norm, "LayerNorm", x, 0);
	return oom_op_dropout(t, x, a->dropout);
}

static struct oom_val caption_model(struct oom_tape *t, const struct oom_arch *a,
				    struct oom_val *word)
{
	struct caption_layer l = {.l = {.a = a}, .crossed = t->crossed};
	struct oom_frame f = {.t = t};
	struct oom_val x = embeddings(t, a, word);

	/* one mask for all sequences, spread, where none of them is padded (_prepare_decoder_attention_mask) */
	if (kind_of(a)->sines && !t->plan->padding_mask && t->plan->attn != OOM_ATTN_FLASH)
		l.l.mask = oom_new(t, "causal mask", oom_mono_mul(t, t->m_s, t->m_s), D(1), (enum oom_dtype)x.dt);
	else
		l.l.mask = oom_make_eager_mask(t, (enum oom_dtype)x.dt);
	l.l.mask = oom_name_shared(&f, l.l.mask);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, caption_block, &l, x);
	x = oom_leave(&f, x);
	return kind_of(a)->final_norm ? oom_norm(t, a->norm, "layer_norm", x, 0) : x;
}

static struct oom_val caption_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct caption_kind *k = kind_of(a);
	const bool fed = t->merge || t->crossed.there;      /* with features, which the model has taken when it returns */
	struct oom_frame f = {.t = t};
	struct oom_val word, x = caption_model(t, a, &word);

	if (k->transform) {
		x = oom_op_linear(t, "dense", x, D(a->d_model), OOM_BIAS);
		x = oom_norm(t, a->norm, "LayerNorm", oom_activation(t, a->act, x), 0);
	}
	x = oom_name(&f, x);
	x = oom_lm_head(t, a, x, word, "output", k->head_bias);
	if (k->transform && !a->tie)            /* predictions.bias beside the decoder's */
		oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED);
	x = oom_causal_lm_loss(t, a, x);
	if (t->crossed.there)                   /* the model's outputs have the states until then */
		t->crossed.over(t, t->crossed.ctx);
	if (!fed)
		oom_tape_warn(t, "this class trains on images alone: what their features need in a step is not counted");
	return oom_leave(&f, x);
}

const struct oom_family oom_family_caption = {
	.name = "caption",
	.summary = "text decoders that describe images (BLIP, KOSMOS, Pix2Struct)",
	.source = "transformers 5.12 models/blip/modeling_blip_text.py and its like",
	.types = caption_types,
	.inner_types = caption_inner,
	.lora_targets = "all-linear",
	.parse = caption_parse,
	.step = caption_step,
};
