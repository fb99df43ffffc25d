/* DeBERTa-v2 and -v3: post-norm encoders with disentangled attention, always written out.
 * Reference: transformers 5.12, models/deberta_v2/modeling_deberta_v2.py. */
#include <string.h>

#include "deberta.h"
#include "blocks/tokens.h"

struct deberta {
	uint64_t span2;                 /* rows of the relative embeddings; 0: none */
	bool c2p, p2c;                  /* the terms that the scores have */
	bool share;                     /* the projections of queries and keys, used again */
	bool norm_rel;                  /* normed relative embeddings */
	bool biased;                    /* learned positions in the input */
	bool legacy;                    /* the older language model head */
	uint64_t conv, groups;          /* kernel of the first layer's convolution; 0: none */
	enum oom_act conv_act;
	double pooler_dropout;
};
OOM_OWN(deberta, struct deberta);

static const struct oom_key_row deberta_keys[] = {
	OOM_DEBERTA_KEYS, QUOTIENT(head_dim, "attention_head_size", d_model, n_heads),
	FLAG_OWN(struct deberta, biased, "position_biased_input", true),
	FLAG_OWN(struct deberta, legacy, "legacy", true),
	OR_OWN(struct deberta, conv, "conv_kernel_size", 0),
	OR_OWN(struct deberta, groups, "conv_groups", 1),
	ACT_OWN(struct deberta, conv_act, "conv_act", "tanh"),
	REAL_OWN(struct deberta, pooler_dropout, "pooler_dropout", 0), OOM_KEYS_END};

void oom_deberta_terms(struct oom_reader *r, bool *c2p, bool *p2c)
{
	const struct oom_key *k = oom_read_key(r, "pos_att_type");
	const char *s = k && k->type != OOM_KEY_LIST ? oom_read_string(r, "pos_att_type", "") : "";

	*c2p = s && strstr(s, "c2p");
	*p2c = s && strstr(s, "p2c");
	for (uint32_t i = 0; i < 4 && (s = oom_read_item(r, "pos_att_type", i)); i++) {
		*c2p |= !strcmp(s, "c2p");
		*p2c |= !strcmp(s, "p2c");
	}
}

static void deberta_read_relative(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct deberta *own = deberta_own(a);
	const double span = oom_read_real(r, "max_relative_positions", -1),
		     buckets = oom_read_real(r, "position_buckets", -1);
	const char *norm = oom_read_string(r, "norm_rel_ebd", "none");
	double rows = span < 1 ? (double)a->max_positions : span;

	if (!oom_read_bool(r, "relative_attention", false))
		return;
	if (buckets > 0)
		rows = buckets;
	if (!(rows >= 1 && rows <= 1 << 24)) {
		oom_read_fail(r,
			      "position_buckets and max_relative_positions give %g relative "
			      "positions",
			      rows);
		return;
	}
	own->span2 = 2 * (uint64_t)rows;
	own->share = oom_read_bool(r, "share_att_key", false);
	own->norm_rel = norm && strstr(norm, "layer_norm");
	oom_deberta_terms(r, &own->c2p, &own->p2c);
}

static void deberta_parse(struct oom_arch *a)
{
	if (oom_read_count_or(&a->rd, "pooler_hidden_size", a->d_model) != a->d_model)
		oom_read_fail(&a->rd, "%s: pooler_hidden_size is not hidden_size (%llu): no classifier runs so",
			      a->model_type, (unsigned long long)a->d_model);
	struct oom_reader *r = &a->rd;
	const struct deberta *own = deberta_of(a);

	a->classifier_dropout = oom_read_real(r, "cls_dropout", a->dropout);
	deberta_read_relative(a);
	oom_check_heads(a);
	if (own->conv > 1 << 16)
		oom_read_fail(r, "conv_kernel_size (%llu) is more than 65536",
			      (unsigned long long)own->conv);
	else if (own->conv && (!own->groups || a->d_model % own->groups))
		oom_read_fail(r, "hidden_size (%llu) is not a multiple of conv_groups (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)own->groups);
	/* the newer head multiplies by the embeddings themselves */
	if (!own->legacy)
		a->tie = true;
}

struct deberta_layer {
	const struct oom_arch *a;
	struct oom_val rel;             /* the relative embeddings */
	uint16_t m_rel;                 /* rows of them */
	struct oom_kept *kept;
};

static struct oom_dim deberta_inner(const struct oom_arch *a)
{
	return (struct oom_dim){a->n_heads * a->head_dim, "num_heads * head_size"};
}

/* nn.Linear, then view, permute, contiguous: always a copy */
static struct oom_val deberta_project(struct oom_tape *t, const struct oom_arch *a,
				      const char *name, struct oom_val x)
{
	x = oom_op_linear(t, name, x, deberta_inner(a), OOM_BIAS);
	return oom_op_copy(t, "contiguous", oom_op_heads(t, x));
}

/* A projection of the relative embeddings, repeated over the batch. */
static struct oom_val deberta_project_rel(struct oom_tape *t, const struct deberta_layer *l,
					  const char *name, struct oom_val rel)
{
	struct oom_val x = deberta_project(t, l->a, name, rel);

	return oom_op_expand_copy(t, x, oom_mono_mul(t, t->m_b, l->m_rel), deberta_inner(l->a));
}

/* The same with the parameters that begin at `at`, again. */
static struct oom_val deberta_project_again(struct oom_tape *t, const struct deberta_layer *l,
					    const char *name, struct oom_val rel, size_t at)
{
	const size_t here = t->cursor;
	struct oom_val x;

	t->cursor = at;
	x = deberta_project_rel(t, l, name, rel);
	t->cursor = here;
	return x;
}

struct oom_val oom_deberta_look_up(struct oom_tape *t, uint64_t heads, struct oom_val x,
				   struct oom_val index)
{
	struct oom_frame f = {.t = t};
	struct oom_val y;

	x = oom_arg(&f, x);
	y = oom_op_gather(t, "gather", x, index, t->m_bss, (struct oom_dim){heads, "num_heads"});
	if (y.node >= 0 && t->grad && x.rg)
		oom_node_save(t, y.node, x);
	return oom_leave(&f, y);
}

/* disentangled_attention_bias.  at: where the query's and key's parameters begin. */
static struct oom_val deberta_bias(struct oom_tape *t, const struct deberta_layer *l,
				   struct oom_val q, struct oom_val k, struct oom_val rel,
				   const size_t at[2])
{
	const struct oom_arch *a = l->a;
	const struct deberta *own = deberta_of(a);
	const struct oom_dim wide = {a->n_heads * own->span2, "num_heads * 2 * att_span"};
	struct oom_frame f = {.t = t};
	struct oom_val pk = oom_none(), pq = oom_none(), score = oom_none(), x, index;

	if (own->share)
		pq = oom_name(&f, deberta_project_again(t, l, "query_proj", rel, at[0]));
	if (own->share)
		pk = oom_name(&f, deberta_project_again(t, l, "key_proj", rel, at[1]));
	else if (own->c2p)
		pk = oom_name(&f, deberta_project_rel(t, l, "pos_key_proj", rel));
	if (!own->share && own->p2c)
		pq = oom_name(&f, deberta_project_rel(t, l, "pos_query_proj", rel));
	if (own->c2p) {
		x = oom_op_bmm(t, "c2p", q, pk, t->m_bs, wide, a->head_dim);
		index = oom_name(&f, oom_relative_positions(t, false));
		x = oom_name(&f, oom_deberta_look_up(t, a->n_heads, x, index));
		x = oom_op_unary(t, OOM_SCALE, x);
		score = oom_op_unary(t, OOM_ADD_SCALAR, x);     /* 0 + a tensor: a new one */
	}
	if (own->p2c) {
		index = oom_name(&f, oom_relative_positions(t, true));
		x = oom_op_bmm(t, "p2c", k, pq, t->m_bs, wide, a->head_dim);
		x = oom_name(&f, oom_deberta_look_up(t, a->n_heads, x, index));
		x = oom_op_unary(t, OOM_SCALE, x);
		score = own->c2p ? oom_op_add_inplace(t, score, x) :
				   oom_op_unary(t, OOM_ADD_SCALAR, x);
	}
	return oom_leave(&f, score);
}

/* DisentangledSelfAttention.forward */
static struct oom_val deberta_attention(struct oom_tape *t, const struct deberta_layer *l,
					struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint16_t plane = oom_mono_mul(t, t->m_b, oom_mono_mul(t, t->m_s, t->m_s));
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, w, rel, bias;
	size_t at[2];

	at[0] = t->cursor;
	q = oom_name(&f, deberta_project(t, a, "query_proj", x));
	at[1] = t->cursor;
	k = oom_name(&f, deberta_project(t, a, "key_proj", x));
	v = oom_name(&f, deberta_project(t, a, "value_proj", x));
	w = oom_op_bmm(t, "scores", q, oom_op_unary(t, OOM_SCALE, k), t->m_bss,
		       (struct oom_dim){a->n_heads, "num_heads"}, a->head_dim);
	if (deberta_of(a)->span2) {
		rel = oom_name(&f, oom_op_dropout(t, l->rel, a->dropout));
		bias = oom_name(&f, deberta_bias(t, l, q, k, rel, at));
		if (!oom_is_none(bias))
			w = oom_op_add(t, w, bias);
	}
	oom_name(&f, oom_new(t, "attention_mask.bool()", plane, D(1), OOM_U8));
	w = oom_op_masked(t, "masked_fill", w, oom_new(t, "bitwise_not", plane, D(1), OOM_U8));
	w = oom_name(&f, w);
	w = oom_name(&f, oom_op_dropout(t, oom_op_softmax(t, w, false), a->attn_dropout));
	x = oom_op_bmm(t, "context", w, v, t->m_bs, deberta_inner(a), oom_mono_now(t, t->m_s));
	return oom_leave(&f, oom_op_merge_heads(t, x));
}

static struct oom_val deberta_block(struct oom_tape *t, const void *ctx, uint32_t i,
				    struct oom_val x)
{
	const struct deberta_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	x = oom_name(&f, oom_output(t, a->dropout, "LayerNorm", deberta_attention(t, l, x), x));
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", x, D(a->d_ff), OOM_BIAS));
	y = oom_output(t, a->dropout, "LayerNorm", y, x);
	oom_kept_add(t, l->kept, y);            /* output_hidden_states=True, always */
	return oom_leave(&f, y);
}

/* ConvLayer: the first layer's output x plus a convolution of its input. */
static struct oom_val deberta_convolve(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val in, struct oom_val x)
{
	const struct deberta *own = deberta_of(a);
	struct oom_frame f = {.t = t};
	struct oom_val y, mask;

	y = oom_op_conv(t, "conv", oom_op_copy(t, "contiguous", in), a->d_model,
			a->d_model / own->groups * own->conv, true, t->m_bs, D(a->d_model));
	y = oom_op_copy(t, "contiguous", y);
	y = oom_op_masked_inplace(t, y, oom_new(t, "rmask", t->m_bs, D(1), OOM_U8));
	y = oom_name(&f, oom_activation(t, own->conv_act, oom_op_dropout(t, y, a->dropout)));
	x = oom_op_layer_norm(t, "LayerNorm", oom_op_add(t, x, y), 0, true, true);
	mask = oom_new(t, "input_mask", t->m_bs, D(1), (enum oom_dtype)x.dt);
	return oom_leave(&f, oom_op_mul(t, x, mask));
}

/* The layers; with a convolution the first one by itself. */
static struct oom_val deberta_layers(struct oom_tape *t, const struct deberta_layer *l,
				     struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint32_t n = (uint32_t)oom_depth(t, a->n_layers);
	struct oom_val y;

	if (!deberta_of(a)->conv || !n)
		return oom_layers(t, n, NULL, deberta_block, l, x);
	y = oom_layer_alone(t, 0, deberta_block, oom_layer_ctx(t, l, sizeof(*l)), x);
	return oom_layers(t, n - 1, NULL, deberta_block, l, deberta_convolve(t, a, x, y));
}

struct oom_val oom_deberta_embeddings(struct oom_tape *t, const struct oom_arch *a, bool biased,
				      struct oom_val (*norm)(struct oom_tape *t, struct oom_val x),
				      struct oom_val *word)
{
	const struct oom_dim e = D(a->d_embed);
	struct oom_frame f = {.t = t};
	struct oom_val types, x, w, mask;

	oom_buffer(t, a->max_positions, OOM_I64);
	types = oom_name(&f, oom_new(t, "token type ids", t->m_bs, D(1), OOM_I64));
	x = w = oom_name(&f, oom_word_embeddings(t, a, "word_embeddings", e, word));
	if (biased)
		x = oom_op_add(t, x, oom_name(&f, oom_position_embeddings(t, a, e)));
	else
		oom_name(&f, oom_new_like(t, "zeros_like", w, (enum oom_dtype)w.dt));
	if (a->type_vocab)
		x = oom_op_add(t, x, oom_name(&f, oom_type_embeddings(t, a, e, types)));
	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "embed_proj", x, D(a->d_model), 0);
	x = norm(t, x);
	mask = oom_new(t, "mask", t->m_bs, D(1), (enum oom_dtype)x.dt);
	return oom_leave(&f, oom_op_dropout(t, oom_op_mul(t, x, mask), a->dropout));
}

static struct oom_val deberta_norm(struct oom_tape *t, struct oom_val x)
{
	return oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
}

/* rel_embeddings.weight, or its LayerNorm: read by every layer */
static void deberta_relative(struct oom_frame *f, const struct oom_arch *a,
			     struct deberta_layer *l)
{
	const struct deberta *own = deberta_of(a);
	struct oom_tape *t = f->t;

	if (!own->span2)
		return;
	l->m_rel = oom_len_const(t, OOM_MONO_ONE, own->span2);
	oom_name_shared(f, oom_new(t, "relative_pos", oom_mono_mul(t, t->m_s, t->m_s), D(1),
				   OOM_I64));
	t->scope = "rel_embeddings";
	l->rel = oom_param(t, "weight", own->span2, a->d_model, OOM_P_EMBEDDING);
	l->rel = oom_op_view(t, l->rel, l->m_rel, D(a->d_model));
	if (own->norm_rel)
		l->rel = deberta_norm(t, l->rel);
	l->rel = oom_name_shared(f, l->rel);
}

/* The product of the mask with itself: ones in fp32 unless the batch brings its own, in int64. */
struct oom_val oom_deberta_mask(struct oom_tape *t)
{
	return oom_new(t, "attention_mask",
		       oom_mono_mul(t, t->m_b, oom_mono_mul(t, t->m_s, t->m_s)), D(1),
		       t->plan->padding_mask ? OOM_I64 : OOM_F32);
}

static struct oom_val deberta_model(struct oom_tape *t, const struct oom_arch *a,
				    struct oom_val *word)
{
	struct oom_kept kept;
	struct deberta_layer l = {.a = a, .rel = oom_none(), .kept = &kept};
	struct oom_frame f = {.t = t};
	struct oom_val x;

	x = oom_deberta_embeddings(t, a, deberta_of(a)->biased, deberta_norm, word);
	x = oom_name(&f, x);
	kept.n = 0;
	kept.in_training = true;
	kept.without_grad = false;
	oom_name_shared(&f, oom_deberta_mask(t));
	deberta_relative(&f, a, &l);
	x = deberta_layers(t, &l, x);
	oom_kept_drop(t, &kept);
	return oom_leave(&f, x);
}

struct oom_val oom_deberta_heads(struct oom_tape *t, const struct oom_arch *a, bool legacy,
				 double pooler_dropout, struct oom_val x, struct oom_val word)
{
	const struct oom_mlm m = {.d = legacy ? a->d_embed : a->d_model, .act = a->act,
				  .spare_bias = true, .add_bias = !legacy,
				  .owner = legacy ? NULL : "lm_head", .within = legacy ? "predictions" : "lm_head"};
	const struct oom_token_head head = {.dense = "dense", .out = "classifier",
					    .act = OOM_ACT_GELU, .dropout = pooler_dropout};

	if (oom_tokens_asked(t))
		return oom_tokens_head(t, &(struct oom_tokens){.name = "classifier", .dropout = a->dropout}, x);
	return t->task == OOM_TASK_SEQ_CLS ? oom_token_head(t, a, &head, x) :
					     oom_mlm_loss(t, a, &m, x, word);
}

static struct oom_val deberta_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct deberta *own = deberta_of(a);
	struct oom_val word, x = deberta_model(t, a, &word);

	return oom_deberta_heads(t, a, own->legacy, own->pooler_dropout, x, word);
}

const struct oom_family oom_family_deberta = {
	.name = "deberta",
	.summary = "post-norm encoder with disentangled attention",
	.source = "transformers 5.12 models/deberta_v2/modeling_deberta_v2.py",
	.types = OOM_TYPE("deberta-v2"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "query_proj+value_proj",
	.keys = deberta_keys,
	.parse = deberta_parse,
	.step = deberta_step,
};
