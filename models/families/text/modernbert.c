/* ModernBERT and its decoder: pre-norm, rotary positions of two bases, windowed and full attention
 * in turn, gated feed-forwards from one projection.
 * Reference: transformers 5.12, models/modernbert/modeling_modernbert.py,
 * models/modernbert_decoder/. */
#include <stdio.h>
#include <string.h>

#include "blocks/blocks.h"
#include "blocks/tokens.h"
#include "config/keys.h"
#include "modernvbert.h"

struct modernbert_kind {
	bool decoder;                   /* causal, three projections for queries, keys, values */
	bool vision;                    /* an image tower beside the text model (ModernVBERT) */
};

struct modernbert {
	bool norm_bias, attn_bias, head_bias, decoder_bias;
	bool mean_pool;
	enum oom_act head_act;
	struct modernvbert_tower tower;
};
OOM_OWN(modernbert, struct modernbert);

enum { MODERNBERT_FIRST = 1, MODERNBERT_SLIDES = 2 };

static const struct oom_key_row modernbert_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"), ACT(act, "hidden_activation", "gelu"),
	ACT_OWN(struct modernbert, head_act, "classifier_activation", "gelu"),
	FLAG_OWN(struct modernbert, norm_bias, "norm_bias", false),
	FLAG_OWN(struct modernbert, attn_bias, "attention_bias", false),
	FLAG(mlp_bias, "mlp_bias", false),
	FLAG_OWN(struct modernbert, head_bias, "classifier_bias", false),
	FLAG_OWN(struct modernbert, decoder_bias, "decoder_bias", true),
	REAL(embed_dropout, "embedding_dropout", 0), REAL(attn_dropout, "attention_dropout", 0),
	REAL(act_dropout, "mlp_dropout", 0), REAL(classifier_dropout, "classifier_dropout", 0),
	FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};

static const struct modernbert_kind *modernbert_kind(const struct oom_arch *a)
{
	return a->type->kind;
}

/* A layer is windowed where layer_types says so, or unless it is every n-th. */
static void modernbert_read_layers(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t every = oom_read_count_or(r, "global_attn_every_n_layers", 3);
	const bool listed = oom_read_explicit(r, "layer_types");

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = listed ? oom_read_item(r, "layer_types", (uint32_t)i) : NULL;
		const bool slides = type ? !strcmp(type, "sliding_attention") : every && i % every;

		a->kind[i] = (uint8_t)((i ? 0 : MODERNBERT_FIRST) |
				       (slides ? MODERNBERT_SLIDES : 0));
	}
	a->kinds = true;
}

static void modernbert_check(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	if (a->n_layers > OOM_MAX_LAYERS)
		oom_read_fail(r, "num_hidden_layers (%llu) is more than %d",
			      (unsigned long long)a->n_layers, OOM_MAX_LAYERS);
	oom_check_heads(a);
	if (!r->status)
		modernbert_read_layers(a);
}

static void modernbert_parse(struct oom_arch *a)
{
	const struct modernbert_kind *kind = modernbert_kind(a);
	struct oom_reader *r = &a->rd;
	const char *pool;

	if (kind->vision) {
		r->prefix = "text_config.";
		r->over = r->defaults;
		r->over_prefix = "defaults.text_config.";
	}
	oom_read_rows(a, modernbert_keys);
	a->default_task = kind->decoder ? OOM_TASK_CAUSAL_LM : OOM_TASK_MASKED_LM;
	if (oom_read_bool(r, "sparse_prediction", false)) {
		a->approximate = true;
		oom_warn(a, "%s: sparse_prediction leaves out unmasked tokens' logits; all of them "
			 "are counted",
			 a->model_type);
	}
	pool = oom_read_string(r, "classifier_pooling", "cls");
	modernbert_own(a)->mean_pool = pool && !strcmp(pool, "mean");
	a->window = oom_read_count_or(r, "local_attention", 128) / 2;
	if (oom_read_explicit(r, "sliding_window"))
		a->window = oom_read_count_or(r, "sliding_window", a->window);
	modernbert_check(a);
	r->over = NULL;
	if (kind->vision)
		oom_modernvbert_read(a, &modernbert_own(a)->tower);
}

struct modernbert_layer {
	const struct oom_arch *a;
	struct oom_rope rope[2];
	struct oom_val mask[2];
};

static struct oom_val modernbert_norm(struct oom_tape *t, const struct oom_arch *a,
				      const char *name, struct oom_val x)
{
	return oom_op_layer_norm(t, name, x, 0, true, modernbert_of(a)->norm_bias);
}

/* Wqkv's output seen as [b, s, 3, heads, d] and unbound; the decoder has three projections. */
static void modernbert_project(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
			       struct oom_val p[3])
{
	static const char *const names[3] = {"q_proj", "k_proj", "v_proj"};
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	const unsigned bias = modernbert_of(a)->attn_bias ? OOM_BIAS : 0;
	struct oom_tape *t = f->t;

	if (modernbert_kind(a)->decoder) {
		for (int i = 0; i < 3; i++)
			p[i] = oom_op_heads(t, oom_op_linear(t, names[i], x, h, bias));
		return;
	}
	x = oom_name(f, oom_op_linear(t, "Wqkv", x, D(3 * a->d_model), bias));
	oom_op_split(t, x, 3, parts, p);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, p[i]);
}

static struct oom_val modernbert_attention(struct oom_tape *t, const struct modernbert_layer *l,
					   bool slides, struct oom_val x, struct oom_frame *caller)
{
	const struct oom_arch *a = l->a;
	const unsigned bias = modernbert_of(a)->attn_bias ? OOM_BIAS : 0;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], y;

	at.mask = l->mask[slides];
	at.caller = caller;
	at.causal = modernbert_kind(a)->decoder;
	modernbert_project(&f, a, x, p);
	oom_rope_fp32(t, &p[0], &p[1], &l->rope[slides], a->n_heads, a->n_heads, a->head_dim);
	oom_name_each(&f, p, 3);
	y = oom_attention_core(t, &at, p[0], p[1], p[2]);
	y = oom_op_linear(t, "Wo", y, D(a->d_model), bias);
	return oom_leave(&f, oom_op_dropout(t, y, a->attn_dropout));
}

static struct oom_val modernbert_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim parts[2] = {D(a->d_ff), D(a->d_ff)};
	const unsigned bias = a->mlp_bias ? OOM_BIAS : 0;
	struct oom_frame f = {.t = t};
	struct oom_val p[2], y;

	x = oom_arg(&f, x);
	oom_op_split(t, oom_op_linear(t, "Wi", x, D(2 * a->d_ff), bias), 2, parts, p);
	oom_name_each(&f, p, 2);
	y = oom_op_mul(t, oom_activation(t, a->act, p[0]), p[1]);
	y = oom_op_dropout(t, y, a->act_dropout);
	return oom_leave(&f, oom_op_linear(t, "Wo", y, D(a->d_model), bias));
}

static struct oom_val modernbert_block(struct oom_tape *t, const void *ctx, uint32_t i,
				       struct oom_val x)
{
	const struct modernbert_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = a->kind[i < a->n_layers ? i : a->n_layers - 1];
	struct oom_frame f = {.t = t};
	struct oom_val in = x, y;

	if (!(kind & MODERNBERT_FIRST))
		in = oom_name(&f, modernbert_norm(t, a, "attn_norm", x));
	y = oom_name(&f, modernbert_attention(t, l, kind & MODERNBERT_SLIDES, in, &f));
	oom_forget(&f, in);
	x = oom_name(&f, oom_op_add(t, x, y));
	y = modernbert_mlp(t, a, modernbert_norm(t, a, "mlp_norm", x));
	return oom_leave(&f, oom_op_add(t, x, y));
}

/* dense, activation, norm */
static struct oom_val modernbert_head(struct oom_tape *t, const struct oom_arch *a,
				      struct oom_val x)
{
	const struct modernbert *own = modernbert_of(a);

	x = oom_op_linear(t, "dense", x, D(a->d_model), own->head_bias ? OOM_BIAS : 0);
	return modernbert_norm(t, a, "norm", oom_activation(t, own->head_act, x));
}

/* Every token is classified, the last one picked. */
static struct oom_val modernbert_classify_last(struct oom_tape *t, const struct oom_arch *a,
					       struct oom_val x)
{
	const struct oom_dim labels = {t->n_labels, "num_labels"};
	const unsigned bias = modernbert_of(a)->head_bias ? OOM_BIAS : 0;
	struct oom_frame f = {.t = t};

	x = oom_op_dropout(t, modernbert_head(t, a, x), a->classifier_dropout);
	x = oom_op_linear(t, "classifier", x, labels, OOM_NO_QUANT | OOM_IS_HEAD | bias);
	x = oom_name(&f, x);
	x = oom_op_gather(t, "pooled logits", x, oom_new(t, "last token", t->m_b, D(1), OOM_I64),
			  t->m_b, labels);
	return oom_leave(&f, oom_cls_loss(t, a, x));
}

static struct oom_val modernbert_classify(struct oom_tape *t, const struct oom_arch *a,
					  struct oom_val x)
{
	const struct oom_dim h = D(a->d_model), labels = {t->n_labels, "num_labels"};
	struct oom_val mask;

	if (modernbert_of(a)->mean_pool) {
		mask = oom_new(t, "attention_mask", t->m_bs, D(1),
			       t->plan->padding_mask ? OOM_I64 : OOM_U8);
		x = oom_op_sum(t, oom_op_mul(t, x, mask), t->m_b, h);
		x = oom_op_unary(t, OOM_SCALE, x);
	} else {
		x = oom_op_slice(t, x, t->m_b, h);
	}
	x = oom_op_dropout(t, modernbert_head(t, a, x), a->classifier_dropout);
	x = oom_op_linear(t, "classifier", x, labels, OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_cls_loss(t, a, x);
}

/* logits[..., :-1, :].contiguous(), a copy unless the batch is one; no upcast */
static struct oom_val modernbert_shifted_loss(struct oom_tape *t, struct oom_val logits)
{
	const uint16_t m = oom_len_minus(t, t->m_b, 1);
	const struct oom_dim width = {logits.width, logits.text};
	struct oom_frame f = {.t = t};
	struct oom_val x, labels, loss;

	if (t->no_labels)
		return oom_logits_alone(t, logits);
	logits = oom_name(&f, logits);
	x = oom_op_slice(t, logits, m, width);
	if (oom_cond_above(t, t->m_b, 1))
		x = oom_op_copy(t, "shifted logits", x);
	labels = oom_new(t, "shifted labels", oom_len_plus_in_one(t, t->m_b, 1), D(1), OOM_I64);
	loss = oom_cross_entropy(t, oom_name(&f, x), labels);
	oom_returns_logits(t, oom_give(&f, logits));
	return oom_leave(&f, loss);
}

/* What the layers share: masks and rotary tables of both kinds of layers that there are. */
static void modernbert_shares(struct oom_frame *f, const struct oom_arch *a,
			      struct modernbert_layer *l, enum oom_dtype dt)
{
	const bool causal = modernbert_kind(a)->decoder;
	struct oom_tape *t = f->t;
	const uint16_t m_s = t->m_s;
	struct oom_val ids;

	if (causal) {                           /* the layers' argument, and a name of the model */
		ids = oom_name_shared(f, oom_position_ids(t));
		oom_name(f, ids);
	}
	for (int i = 0; i < 2; i++) {
		l->mask[i] = oom_make_mask(t, causal, i ? a->window : 0, dt, t->m_b, t->m_s,
					   t->m_s);
		l->mask[i] = oom_name_for(f, l->mask[i], oom_any_layer(t, a, MODERNBERT_SLIDES,
								       i ? MODERNBERT_SLIDES : 0));
	}
	/* position_ids are expanded over the batch, and with them the tables */
	if (causal)
		t->m_s = t->m_bs;
	for (int i = 0; i < 2; i++)
		if (oom_any_layer(t, a, MODERNBERT_SLIDES, i ? MODERNBERT_SLIDES : 0)) {
			l->rope[i] = oom_rope_tables(t, a->head_dim, dt, 2);
			l->rope[i].cos = oom_name_shared(f, l->rope[i].cos);
			l->rope[i].sin = oom_name_shared(f, l->rope[i].sin);
		}
	t->m_s = m_s;
}

static struct oom_val modernbert_model(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val *word)
{
	struct modernbert_layer l = {.a = a,
				     .rope = {{oom_none(), oom_none()}, {oom_none(), oom_none()}}};
	struct oom_frame f = {.t = t};
	struct oom_val x;

	if (modernbert_kind(a)->vision)
		oom_modernvbert_emit(t, a, &modernbert_of(a)->tower);
	t->scope = "tok_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, D(a->d_model));
	x = modernbert_norm(t, a, "norm", oom_input_grads(t, x));
	/* mask_kwargs["inputs_embeds"], a local of the model */
	x = oom_name(&f, oom_op_dropout(t, x, a->embed_dropout));
	modernbert_shares(&f, a, &l, (enum oom_dtype)x.dt);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, modernbert_block, &l, x);
	x = modernbert_norm(t, a, "final_norm", x);
	oom_forget_shared(&f);
	return oom_leave(&f, x);
}

static struct oom_val modernbert_fused(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val x, struct oom_val word)
{
	const struct modernbert *own = modernbert_of(a);

	oom_linear_unused(t, "dense", a->d_model, a->d_model,
			  OOM_NO_QUANT | (own->head_bias ? OOM_BIAS : 0));
	oom_param(t, "norm", 0, a->d_model, OOM_P_NORM | OOM_P_UNUSED);
	if (own->norm_bias)
		oom_param(t, "norm", 0, a->d_model, OOM_P_NORM | OOM_P_UNUSED);
	return oom_fused_head(t, a, x, word, "decoder", own->decoder_bias);
}

static struct oom_val modernbert_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct modernbert_kind *kind = modernbert_kind(a);
	struct oom_frame f = {.t = t};
	struct oom_val word, x = modernbert_model(t, a, &word);

	if (oom_tokens_asked(t) && !kind->decoder && !kind->vision) {
		x = oom_name(&f, x);
		if (t->task == OOM_TASK_TOKEN_CLS)
			x = modernbert_head(t, a, x);
		return oom_leave(&f, oom_tokens_head(t, &(struct oom_tokens){.name = "classifier", .dropout = a->classifier_dropout}, x));
	}
	if (t->task != OOM_TASK_SEQ_CLS && oom_fuses_head(t))
		return modernbert_fused(t, a, x, word);
	x = oom_name(&f, x);                    /* outputs[0] lives until the loss is done */
	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_leave(&f, kind->decoder ? modernbert_classify_last(t, a, x) :
						     modernbert_classify(t, a, x));
	x = modernbert_head(t, a, x);
	t->scope = "decoder";
	x = oom_lm_head(t, a, x, word, "decoder", modernbert_of(a)->decoder_bias);
	return oom_leave(&f, kind->decoder ? modernbert_shifted_loss(t, x) :
					     oom_plain_lm_loss(t, x, !kind->vision, t->m_bs));
}

static const struct modernbert_kind encoder = {0};
static const struct modernbert_kind decoder = {.decoder = true};
static const struct modernbert_kind vision = {.vision = true};

static const struct oom_family_type types[] = {
	{"modernbert", &encoder},
	{"modernbert-decoder", &decoder},
	{"modernvbert", &vision},
	{NULL, NULL},
};

const struct oom_family oom_family_modernbert = {
	.name = "modernbert",
	.summary = "pre-norm encoder or decoder, windowed and full attention in turn, gated "
		   "feed-forward",
	.source = "transformers 5.12 models/modernbert/modeling_modernbert.py",
	.types = types,
	.lora_targets = "Wqkv+Wo",
	.parse = modernbert_parse,
	.step = modernbert_step,
};
