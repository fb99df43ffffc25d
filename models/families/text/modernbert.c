/* ModernBERT and its decoder: pre-norm, rotary positions of two bases, windowed and full attention
 * in turn, gated feed-forwards from one projection.
 * Reference: transformers 5.12, models/modernbert/modeling_modernbert.py,
 * models/modernbert_decoder/. */
#include <stdio.h>
#include <string.h>

#include "blocks/blocks.h"

/* extra[]: the causal variant; biases of norms, attention, feed-forward, head, decoder; mean
 * pooling; only some tokens' logits */
enum {
	DECODER,
	NORM_BIAS,
	ATTN_BIAS,
	MLP_BIAS,
	HEAD_BIAS,
	DECODER_BIAS,
	MEAN_POOL,
	HEAD_ACT,
	VISION,
	V_H,
	V_FF,
	V_LAYERS,
	V_PATCHES,
	V_PATCH,
	V_SHUFFLE
}; /* from VISION on: ModernVBERT's image tower */

enum { FIRST = 1, SLIDING = 2 };

/* A layer is windowed where layer_types says so, or unless it is every n-th. */
static void read_layers(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t every = oom_read_count_or(r, "global_attn_every_n_layers", 3);
	const bool listed = oom_read_explicit(r, "layer_types");

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = listed ? oom_read_item(r, "layer_types", (uint32_t)i) : NULL;
		const bool slides = type ? !strcmp(type, "sliding_attention") : every && i % every;

		a->kind[i] = (uint8_t)((i ? 0 : FIRST) | (slides ? SLIDING : 0));
	}
	a->kinds = true;
}

/* The tower's sizes and what stands at the top of ModernVBERT's config. */
static void read_vision(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	uint64_t patch, side;

	r->prefix = "vision_config.";
	a->extra[V_H] = oom_read_count_or(r, "hidden_size", 768);
	a->extra[V_FF] = oom_read_count_or(r, "intermediate_size", 3072);
	a->extra[V_LAYERS] = oom_read_count_or(r, "num_hidden_layers", 12);
	patch = oom_read_count_or(r, "patch_size", 16);
	side = patch ? oom_read_count_or(r, "image_size", 224) / patch : 0;
	a->extra[V_PATCH] = oom_read_count_or(r, "num_channels", 3) * patch * patch;
	a->extra[V_PATCHES] = side * side;
	r->prefix = "";
	a->extra[V_SHUFFLE] = oom_read_count_or(r, "pixel_shuffle_factor", 4);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", 0);
	if (a->extra[V_LAYERS] > 256 || side > 65536 || patch > 65536 ||
	    a->extra[V_PATCH] > UINT64_C(1) << 40 || a->extra[V_H] > 1 << 20 ||
	    a->extra[V_FF] > 1 << 20 || a->extra[V_SHUFFLE] > 1024)
		oom_read_fail(r, "vision_config is too large: at most 256 layers");
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *pool = oom_read_string(r, "classifier_pooling", "cls");

	a->extra[VISION] = !strcmp(a->model_type, "modernvbert");
	if (a->extra[VISION])
		r->prefix = "text_config.";

	if (oom_read_bool(r, "sparse_prediction", false)) {
		a->approximate = true;
		snprintf(a->warning, sizeof(a->warning),
			 "%s: sparse_prediction leaves out unmasked tokens' logits; all of them "
			 "are counted",
			 a->model_type);
	}
	a->extra[DECODER] = !strcmp(a->model_type, "modernbert-decoder");
	a->default_task = a->extra[DECODER] ? OOM_TASK_CAUSAL_LM : OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->act = oom_read_act(r, "hidden_activation", "gelu");
	a->extra[HEAD_ACT] = oom_read_act(r, "classifier_activation", "gelu");
	a->extra[NORM_BIAS] = oom_read_bool(r, "norm_bias", false);
	a->extra[ATTN_BIAS] = oom_read_bool(r, "attention_bias", false);
	a->extra[MLP_BIAS] = oom_read_bool(r, "mlp_bias", false);
	a->extra[HEAD_BIAS] = oom_read_bool(r, "classifier_bias", false);
	a->extra[DECODER_BIAS] = oom_read_bool(r, "decoder_bias", true);
	a->extra[MEAN_POOL] = pool && !strcmp(pool, "mean");
	a->embed_dropout = oom_read_real(r, "embedding_dropout", 0);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->act_dropout = oom_read_real(r, "mlp_dropout", 0);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->window = oom_read_count_or(r, "local_attention", 128) / 2;
	if (oom_read_explicit(r, "sliding_window"))
		a->window = oom_read_count_or(r, "sliding_window", a->window);
	if (a->n_layers > OOM_MAX_LAYERS)
		oom_read_fail(r, "num_hidden_layers (%llu) is more than %d",
			      (unsigned long long)a->n_layers, OOM_MAX_LAYERS);
	else if (a->d_model % a->n_heads)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
	else
		read_layers(a);
	if (a->extra[VISION])
		read_vision(a);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope[2];
	struct oom_val mask[2];
};

static struct oom_val norm(struct oom_tape *t, const struct oom_arch *a, const char *name,
			   struct oom_val x)
{
	return oom_op_layer_norm(t, name, x, 0, true, a->extra[NORM_BIAS]);
}

/* Wqkv's output seen as [b, s, 3, heads, d] and unbound; the decoder has three projections. */
static void project(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
		    struct oom_val p[3])
{
	static const char *const names[3] = {"q_proj", "k_proj", "v_proj"};
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	const unsigned bias = a->extra[ATTN_BIAS] ? OOM_BIAS : 0;

	if (a->extra[DECODER]) {
		for (int i = 0; i < 3; i++)
			p[i] = oom_op_heads(t, oom_op_linear(t, names[i], oom_keep(x), h, bias));
		return;
	}
	oom_op_split(t, oom_op_linear(t, "Wqkv", oom_keep(x), D(3 * a->d_model), bias), 3, parts,
		     p);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, p[i]);
}

static struct oom_val attend(struct oom_tape *t, const struct layer *l, bool slides,
			     struct oom_val x, struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val p[3], qkv = oom_none();

	at.mask = l->mask[slides];
	at.weights = weights;
	at.causal = a->extra[DECODER];
	project(t, a, x, p);
	if (!a->extra[DECODER])
		qkv = oom_share(t, p[0]);       /* a local of the module, as the parts are */
	oom_rope_fp32(t, &p[0], &p[1], &l->rope[slides], a->n_heads, a->n_heads, a->head_dim);
	x = oom_attention_core(t, &at, oom_keep(p[0]), oom_keep(p[1]), oom_keep(p[2]));
	x = oom_op_linear(t, "Wo", x, D(a->d_model), a->extra[ATTN_BIAS] ? OOM_BIAS : 0);
	x = oom_op_dropout(t, x, a->attn_dropout);
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	oom_drop(t, qkv);
	return x;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim parts[2] = {D(a->d_ff), D(a->d_ff)};
	const unsigned bias = a->extra[MLP_BIAS] ? OOM_BIAS : 0;
	struct oom_val p[2], y;

	oom_op_split(t, oom_op_linear(t, "Wi", oom_keep(x), D(2 * a->d_ff), bias), 2, parts, p);
	y = oom_op_mul(t, oom_activation(t, a->act, oom_keep(p[0])), oom_keep(p[1]));
	y = oom_op_linear(t, "Wo", oom_op_dropout(t, y, a->act_dropout), D(a->d_model), bias);
	oom_drop(t, p[0]);
	oom_drop(t, p[1]);
	oom_done(t, x);
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = a->kind[i < a->n_layers ? i : a->n_layers - 1];
	struct oom_val in = kind & FIRST ? oom_share(t, x) : norm(t, a, "attn_norm", oom_keep(x)),
		       y;
	struct oom_val weights = oom_none();

	y = attend(t, l, kind & SLIDING, in, &weights);
	oom_drop(t, in);
	x = oom_op_add(t, x, oom_keep(y));
	in = y;                                 /* attn_output, a local of the layer */
	y = feed_forward(t, a, norm(t, a, "mlp_norm", oom_keep(x)));
	y = oom_op_add(t, x, y);
	oom_drop(t, in);
	oom_drop(t, weights);
	return y;
}

/* dense, activation, norm */
static struct oom_val head(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	x = oom_op_linear(t, "dense", x, D(a->d_model),
			  a->extra[HEAD_BIAS] ? OOM_BIAS : 0);
	return norm(t, a, "norm", oom_activation(t, (enum oom_act)a->extra[HEAD_ACT], x));
}

static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = D(a->d_model), labels = {t->n_labels, "num_labels"};
	struct oom_val all, loss;

	if (a->extra[DECODER]) {                /* every token is classified, the last one picked */
		x = oom_op_dropout(t, head(t, a, x), a->classifier_dropout);
		all = oom_op_linear(t, "classifier", x, labels,
				    OOM_NO_QUANT | OOM_IS_HEAD |
					    (a->extra[HEAD_BIAS] ? OOM_BIAS : 0));
		x = oom_op_gather(t, "pooled logits", oom_keep(all),
				  oom_new(t, "last token", t->m_b, D(1), OOM_I64), t->m_b, labels);
		loss = oom_cls_loss(t, a, x);
		oom_drop(t, all);
		return loss;
	}
	if (a->extra[MEAN_POOL]) {
		struct oom_val mask = oom_new(t, "attention_mask", t->m_bs, D(1),
					      t->plan->padding_mask ? OOM_I64 : OOM_U8);

		x = oom_op_sum(t, oom_op_mul(t, x, mask), t->m_b, h);
		x = oom_op_unary(t, OOM_SCALE, x);
	} else {
		x = oom_op_slice(t, x, t->m_b, h);
	}
	x = oom_op_dropout(t, head(t, a, x), a->classifier_dropout);
	return oom_cls_loss(t, a,
			    oom_op_linear(t, "classifier", x, labels,
					  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD));
}

/* logits[..., :-1, :].contiguous(), a copy unless the batch is one; no upcast */
static struct oom_val shifted_loss(struct oom_tape *t, struct oom_val logits)
{
	const uint16_t m = oom_len_minus(t, t->m_b, 1);
	struct oom_val f = oom_op_slice(t, oom_keep(logits), m,
					(struct oom_dim){logits.width, logits.text}),
		       labels, loss;

	if (oom_cond_above(t, t->m_b, 1))
		f = oom_op_copy(t, "shifted logits", f);
	labels = oom_new(t, "shifted labels", oom_len_plus_in_one(t, t->m_b, 1), D(1),
			 OOM_I64);
	loss = oom_cross_entropy(t, oom_keep(f), labels);
	oom_drop(t, f);
	oom_returns(t, logits);
	return loss;
}

static void idle(struct oom_tape *t, const char *name, uint64_t in, uint64_t out)
{
	oom_linear_unused(t, name, in, out, OOM_BIAS | OOM_NO_LORA | OOM_NO_QUANT);
}

static void idle_norm(struct oom_tape *t, uint64_t width)
{
	for (int i = 0; i < 2; i++)
		oom_drop(t, oom_param(t, "layer_norm", 0, width, OOM_P_NORM | OOM_P_UNUSED));
}

/* The image tower, its pooling head and the connector: weights alone when the batch is text. */
static void vision(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t h = a->extra[V_H], ff = a->extra[V_FF], shuffle = a->extra[V_SHUFFLE];

	if (!a->extra[VISION])
		return;
	idle(t, "patch_embedding", a->extra[V_PATCH], h);
	oom_drop(t, oom_param(t, "position_embedding", a->extra[V_PATCHES], h,
			      OOM_P_EMBEDDING | OOM_P_UNUSED));
	oom_buffer(t, a->extra[V_PATCHES], OOM_I64);
	/* the last one is the pooling head */
	for (uint64_t i = 0; i <= a->extra[V_LAYERS]; i++) {
		if (i < a->extra[V_LAYERS])
			idle_norm(t, h);
		else
			oom_drop(t, oom_param(t, "probe", 0, h, OOM_P_UNUSED));
		idle(t, "in_proj", h, 3 * h);
		idle(t, "out_proj", h, h);
		idle_norm(t, h);
		idle(t, "fc1", h, ff);
		idle(t, "fc2", ff, h);
	}
	idle_norm(t, h);
	oom_linear_unused(t, "modality_projection", h * shuffle * shuffle, a->d_model,
			  OOM_NO_LORA | OOM_NO_QUANT);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const bool causal = a->extra[DECODER];
	const uint16_t m_s = t->m_s;
	struct layer l = {.a = a, .rope = {{oom_none(), oom_none()}, {oom_none(), oom_none()}}};
	struct oom_val word, x, first, hidden, loss;

	vision(t, a);
	t->scope = "tok_embeddings";
	word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, D(a->d_model));
	x = oom_op_dropout(t, norm(t, a, "norm", oom_input_grads(t, x)), a->embed_dropout);
	/* mask_kwargs["inputs_embeds"], a local of the model */
	first = oom_share(t, x);
	for (int i = 0; i < 2; i++)
		l.mask[i] = oom_make_mask(t, causal, i ? a->window : 0, (enum oom_dtype)x.dt,
					  t->m_b, t->m_s, t->m_s);
	/* position_ids are expanded over the batch, and with them the tables */
	if (causal)
		t->m_s = t->m_bs;
	for (int i = 0; i < 2; i++)
		if (oom_any_layer(t, a, SLIDING, i ? SLIDING : 0))
			l.rope[i] = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	t->m_s = m_s;
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	for (int i = 0; i < 2; i++) {
		oom_drop_shared(t, l.mask[i]);
		oom_drop_shared(t, l.rope[i].cos);
		oom_drop_shared(t, l.rope[i].sin);
	}
	x = norm(t, a, "final_norm", x);
	oom_drop(t, first);
	if (t->task != OOM_TASK_SEQ_CLS && oom_fuses_head(t)) {
		oom_linear_unused(t, "dense", a->d_model, a->d_model,
				  a->extra[HEAD_BIAS] ? OOM_BIAS : 0);
		for (int i = 0; i < 1 + (a->extra[NORM_BIAS] != 0); i++)
			oom_drop(t, oom_param(t, "norm", 0, a->d_model,
					      OOM_P_NORM | OOM_P_UNUSED));
		return oom_fused_head(t, a, x, word, "decoder", a->extra[DECODER_BIAS]);
	}
	hidden = oom_share(t, x);               /* outputs[0] lives until the loss is done */
	if (t->task == OOM_TASK_SEQ_CLS) {
		loss = classify(t, a, x);
	} else {
		x = oom_lm_head(t, a, head(t, a, x), word, "decoder", a->extra[DECODER_BIAS]);
		loss = causal ? shifted_loss(t, x) :
				oom_plain_lm_loss(t, x, !a->extra[VISION], t->m_bs);
	}
	oom_drop(t, hidden);
	return loss;
}

static const struct oom_family_type types[] = {
	{"modernbert", NULL}, {"modernbert-decoder", NULL}, {"modernvbert", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_modernbert = {
	.name = "modernbert",
	.summary = "pre-norm encoder or decoder, windowed and full attention in turn, gated "
		   "feed-forward",
	.source = "transformers 5.12 models/modernbert/modeling_modernbert.py",
	.types = types,
	.lora_targets = "Wqkv+Wo",
	.parse = parse,
	.step = step,
};
