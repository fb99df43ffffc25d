/* The Q-Former of BLIP-2 and InstructBLIP: learned queries attend to each other and, in every so-many-th layer, to an
 * image; InstructBLIP's also to a text of their own.  It is written out whatever the plan asks for.  Masks hide nothing:
 * every image is whole, and the text is taken to be as long as the sample's.
 * Reference: transformers 5.12, models/{blip_2,instructblip,instructblipvideo}/modeling_*.py, the QFormerModel classes. */
#include "blocks/encoder.h"
#include "projector.h"
#include "resamplers.h"
#include "weights.h"

enum { FRAMES = 4 };    /* of a video ("video has frames=4 always", get_video_features) */

/* Tokens of all images, and of one. */
struct tokens {
	uint16_t all, one;
};
struct layer {
	uint64_t d, ff, heads, every, vocab, places;
	double dropout, attn_dropout;
	enum oom_act act;
	bool texts;
	bool spread;                    /* the queries are one row for all images until they meet them */
	struct oom_val image;
	struct tokens queries, text, both, patches;
};

static struct oom_val heads_of(struct oom_tape *t, const char *name, struct oom_val x, struct oom_dim d)
{
	return oom_op_heads(t, oom_op_linear(t, name, x, d, OOM_BIAS));
}

/* QFormerAttention: to the image, or of x's tokens among themselves. */
static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x, bool cross, bool alone)
{
	const struct oom_dim d = {l->d, "hidden_size"}, heads = {l->heads, "n_heads"};
	const struct tokens row = {l->queries.one, l->queries.one}, self = alone ? row : l->both, own = cross ? l->queries : self,
			    to = cross ? l->patches : self;
	const struct oom_val from = cross ? l->image : x;
	struct oom_frame outer = {.t = t}, f = {.t = t};
	struct oom_val q, k, v, w, p, y;

	x = oom_arg(&outer, x);
	k = oom_name(&f, heads_of(t, "key", from, d));
	v = oom_name(&f, heads_of(t, "value", from, d));
	q = oom_name(&f, heads_of(t, "query", x, d));
	if (cross && alone)                     /* spread over the images by the product */
		q = oom_op_expand_copy(t, q, own.all, d);
	w = oom_op_bmm(t, "scores", q, k, oom_mono_mul(t, own.all, to.one), heads, l->d / l->heads);
	w = oom_name(&f, oom_op_unary(t, OOM_SCALE, w));
	if (l->texts) {                         /* cast to the scores' type before dropout */
		w = oom_name(&f, oom_op_cast(t, oom_op_softmax(t, w, false), (enum oom_dtype)v.dt));
		p = oom_name(&f, oom_op_dropout(t, w, l->attn_dropout));
	} else {
		w = oom_name(&f, oom_op_softmax(t, w, false));
		p = oom_name(&f, oom_op_cast(t, oom_op_dropout(t, w, l->attn_dropout), (enum oom_dtype)v.dt));
	}
	y = oom_op_bmm(t, "attention", p, v, own.all, d, oom_mono_now(t, to.one));
	y = oom_name(&f, oom_op_merge_heads(t, y));
	oom_name(&outer, oom_give(&f, w));
	y = oom_name(&outer, oom_leave(&f, y));
	return oom_leave(&outer, oom_output(t, l->dropout, "LayerNorm", y, x));
}

/* A part of every image's rows, which of several images do not lie one behind the other. */
static struct oom_val part_of(struct oom_tape *t, struct oom_val x, uint16_t all, uint16_t images)
{
	x = oom_op_slice(t, x, all, (struct oom_dim){x.width, x.text});
	x.perm = oom_cond_above(t, images, 1);
	return x;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	struct oom_frame f = {.t = t};
	struct oom_val h;

	x = oom_arg(&f, x);
	h = oom_op_linear(t, "dense", x, (struct oom_dim){l->ff, "intermediate_size"}, OOM_BIAS);
	h = oom_name(&f, oom_activation(t, l->act, h));
	return oom_leave(&f, oom_output(t, l->dropout, "LayerNorm", h, x));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_dim d = {l->d, "hidden_size"};
	const bool alone = l->spread && i == 0;
	struct oom_frame f = {.t = t};
	struct oom_val all, y, text;

	all = y = oom_name(&f, attention(t, l, x, false, alone));
	if (l->texts)
		y = oom_name(&f, part_of(t, all, l->queries.all, l->queries.all));
	if (i % l->every == 0)
		y = oom_rename(&f, y, attention(t, l, y, true, alone));
	y = feed_forward(t, l, y);
	if (l->texts) {
		y = oom_name(&f, y);
		text = oom_name(&f, feed_forward(t, l, part_of(t, all, l->text.all, l->text.all)));
		y = oom_op_cat_into(t, y, text, l->both.all, d);
	}
	return oom_leave(&f, y);
}

static bool read_layer(struct layer *l, struct oom_reader *r, uint64_t *layers)
{
	*l = (struct layer){.d = oom_read_count(r, "hidden_size", 1), .ff = oom_read_count(r, "intermediate_size", 1),
			    .heads = oom_read_count(r, "num_attention_heads", 1),
			    .every = oom_read_count_or(r, "cross_attention_frequency", 2),
			    .vocab = oom_read_count_or(r, "vocab_size", 30522),
			    .places = oom_read_count_or(r, "max_position_embeddings", 512),
			    .dropout = oom_read_real(r, "hidden_dropout_prob", 0.1),
			    .attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1),
			    .act = oom_read_act(r, "hidden_act", "gelu")};
	*layers = oom_read_count(r, "num_hidden_layers", 0);
	if (!r->status && (l->heads > l->d || *layers > OOM_MAX_LAYERS || l->places > 1 << 24))
		oom_read_fail(r, "the Q-Former's sizes (%s) make no model", r->prefix);
	return !r->status && l->every;
}

/* The queries, and behind them words at their places.  A video brings one text for all of its frames; repeated, it is
 * a name of the caller's. */
static struct oom_val embedded(struct oom_frame *caller, struct oom_emit *e, struct layer *l, struct oom_val queries,
			       bool video)
{
	const struct oom_dim d = {l->d, "hidden_size"};
	struct oom_tape *t = e->t;
	struct oom_frame f = {.t = t};
	const uint64_t n = oom_mono_now(t, l->queries.one);
	const uint64_t given = e->merged ? e->pictures : 0, texts = video ? (given + FRAMES - 1) / FRAMES : given;
	const bool cut = oom_cond_above(t, t->m_s, l->places);
	struct oom_val ids, place, x;

	if (!l->texts)
		return queries;
	l->text.all = cut ? oom_len_const(t, e->m_images, l->places) : oom_mono_mul(t, e->m_images, t->m_s);
	l->text.one = cut ? oom_len_const(t, OOM_MONO_ONE, l->places) : t->m_s;
	l->both.all = cut ? oom_len_const(t, e->m_images, l->places + n) : oom_len_plus(t, e->m_images, n);
	l->both.one = cut ? oom_len_const(t, OOM_MONO_ONE, l->places + n) : oom_len_plus(t, OOM_MONO_ONE, n);
	oom_buffer(t, l->places, OOM_I64);
	if (cut)
		t->pixel_mask += l->places * texts;
	else
		t->token_mask += texts;
	if (video) {
		oom_input(t, "qformer_input_ids", cut ? oom_len_const(t, t->m_b, l->places) : t->m_bs, 1, OOM_I64);
		ids = oom_name(caller, oom_new(t, "repeat_interleave", l->text.all, D(1), OOM_I64));
	} else {
		ids = oom_input(t, "qformer_input_ids", l->text.all, 1, OOM_I64);
	}
	queries = oom_arg(&f, queries);
	ids = oom_name(&f, ids);
	place = oom_name(&f, oom_new(t, "clone", l->text.one, D(1), OOM_I64));
	x = oom_name(&f, oom_op_embedding(t, "word_embeddings", ids, l->vocab, d, 0));
	place = oom_name(&f, oom_op_embedding(t, "position_embeddings", place, l->places, d, 0));
	x = oom_rename(&f, x, oom_op_add(t, x, place));
	return oom_leave(&f, oom_op_cat_into(t, queries, x, l->both.all, d));
}

struct kind {
	bool texts, video;
};

static struct oom_val qformer(struct oom_emit *e, struct kind kind)
{
	struct oom_tape *t = e->t;
	const uint64_t n = oom_read_count_or(&e->outer, "num_query_tokens", 32);
	uint8_t layer_kind[OOM_MAX_LAYERS] = {0};
	struct oom_frame f = {.t = t};
	struct oom_dim d;
	struct layer l;
	uint64_t layers;
	struct oom_tower w;
	struct oom_val x, image;

	if (!read_layer(&l, &e->part[2], &layers) || (!kind.texts && oom_read_bool(&e->part[2], "use_qformer_text_input", false)))
		return kind.texts ? oom_emit_qformer_weights(e) : oom_emit_blip2_weights(e);
	d = (struct oom_dim){l.d, "hidden_size"};
	l.texts = kind.texts;
	t->selection.part = OOM_PART_PROJECTOR;
	x = oom_op_view(t, oom_param(t, "query_tokens", n, l.d, 0), oom_len_const(t, OOM_MONO_ONE, n), d);
	t->selection.part = OOM_PART_TOWER;
	image = oom_tower_part(e, 1, &w);
	/* last_hidden_state, which the model returns as well */
	l.image = oom_name_shared(e->output ? e->output : &f, image);
	l.patches = (struct tokens){e->m_tokens, e->m_len};
	oom_tower_tokens(e, n);
	l.queries = l.both = (struct tokens){e->m_tokens, e->m_len};
	for (uint64_t i = 0; i < layers; i++)
		layer_kind[i] = i % l.every == 0;
	t->scope = "qformer";
	x = oom_op_expand(t, x, l.queries.all, d);
	x.perm = false;
	x = embedded(&f, e, &l, x, kind.video);
	x = oom_op_dropout(t, oom_op_layer_norm(t, "layernorm", x, 0, true, true), l.dropout);
	oom_name(&f, oom_new(t, "image_attention_mask", l.patches.all, D(1), OOM_I64));
	if (l.texts) {
		oom_name(&f, oom_new(t, "query_attention_mask", l.queries.all, D(1), OOM_I64));
		oom_name(&f, oom_new(t, "qformer_attention_mask", l.both.all, D(1), OOM_I64));
	}
	x = oom_name(&f, x);                    /* embedding_output */
	x = oom_layers(t, (uint32_t)layers, layer_kind, block, &l, x);
	x = oom_name(e->output ? e->output : &f, x);
	if (l.texts)
		x = part_of(t, x, l.queries.all, l.queries.all);
	if (e->output && !t->plan->padding_mask)        /* attention_mask, torch.ones_like(input_ids) */
		oom_name(e->output, oom_new(t, "ones_like", t->m_bs, D(1), OOM_I64));
	return oom_leave(&f, oom_project(e, "language_projection", x, e->a->d_model, true));
}

/* The layers' feed-forwards for a text, which there is none of. */
static void idle_text(struct oom_tape *t, const struct layer *l, uint64_t layers)
{
	struct oom_weights idle;

	oom_weights_begin(t, &idle);
	for (uint64_t i = 0; i < layers; i++) {
		oom_weight_linear(t, "dense", l->d, l->ff, true);
		oom_weight_linear(t, "dense", l->ff, l->d, true);
		oom_weight_norm(t, "LayerNorm", l->d, true);
	}
	oom_weights_end(t, &idle);
}

struct oom_val oom_qformer_of(struct oom_emit *e, struct oom_reader *r, const char *query, uint64_t n, struct oom_val image)
{
	struct oom_tape *t = e->t;
	uint8_t kind[OOM_MAX_LAYERS] = {0};
	struct oom_frame f = {.t = t};
	struct oom_dim d;
	struct layer l;
	uint64_t layers;
	struct oom_val x;

	if (!read_layer(&l, r, &layers))
		return image;
	d = (struct oom_dim){l.d, "hidden_size"};
	l.spread = true;
	l.image = oom_name_shared(&f, image);
	l.patches = (struct tokens){e->m_tokens, e->m_len};
	oom_tower_tokens(e, n);
	l.queries = l.both = (struct tokens){e->m_tokens, e->m_len};
	t->selection.part = OOM_PART_PROJECTOR;
	x = oom_op_view(t, oom_param(t, query, n, l.d, 0), oom_len_const(t, OOM_MONO_ONE, n), d);
	t->scope = "qformer";
	x = oom_name(&f, oom_op_dropout(t, oom_op_layer_norm(t, "layernorm", x, 0, true, true), l.dropout));
	for (uint64_t i = 0; i < layers; i++)
		kind[i] = (uint8_t)((i == 0) + 2 * (i % l.every == 0));
	x = oom_plain_layers(t, layers, kind, block, &l, sizeof(l), x);
	if (oom_read_bool(r, "use_qformer_text_input", false))
		idle_text(t, &l, layers);
	t->selection.part = OOM_PART_TOWER;
	return oom_leave(&f, x);
}

struct oom_val oom_emit_blip2(struct oom_emit *e)
{
	return qformer(e, (struct kind){0});
}

struct oom_val oom_emit_instructblip(struct oom_emit *e)
{
	return qformer(e, (struct kind){.texts = true});
}

/* Every frame of a video is an image. */
struct oom_val oom_emit_instructblip_video(struct oom_emit *e)
{
	return qformer(e, (struct kind){.texts = true, .video = true});
}
