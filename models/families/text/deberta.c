/* DeBERTa-v2 and -v3: post-norm encoders with disentangled attention, always written out.
 * Reference: transformers 5.12, models/deberta_v2/modeling_deberta_v2.py. */
#include <string.h>

#include "deberta.h"

/* extra[]: rows of the relative embeddings; which terms the scores have; shared projections; normed
 * relative embeddings; learned positions in the input; the older language model head; a convolution
 * after the first layer: kernel, groups, activation */
enum { SPAN2, C2P, P2C, SHARE, NORM_REL, BIASED, LEGACY, CONV, GROUPS, CONV_ACT };

void oom_deberta_terms(struct oom_reader *r, uint64_t *c2p, uint64_t *p2c)
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

static void read_relative(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
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
	a->extra[SPAN2] = 2 * (uint64_t)rows;
	a->extra[SHARE] = oom_read_bool(r, "share_att_key", false);
	a->extra[NORM_REL] = norm && strstr(norm, "layer_norm");
	oom_deberta_terms(r, &a->extra[C2P], &a->extra[P2C]);
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_embed = oom_read_count_or(r, "embedding_size", a->d_model);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = oom_read_count_or(r, "attention_head_size", a->d_model / a->n_heads);
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->type_vocab = oom_read_count_or(r, "type_vocab_size", 0);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->classifier_dropout = oom_read_real(r, "cls_dropout", a->dropout);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[BIASED] = oom_read_bool(r, "position_biased_input", true);
	read_relative(a);
	if (a->d_model % a->n_heads)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
	a->extra[CONV] = oom_read_count_or(r, "conv_kernel_size", 0);
	a->extra[GROUPS] = oom_read_count_or(r, "conv_groups", 1);
	a->extra[CONV_ACT] = oom_read_act(r, "conv_act", "tanh");
	if (a->extra[CONV] > 1 << 16)
		oom_read_fail(r, "conv_kernel_size (%llu) is more than 65536",
			      (unsigned long long)a->extra[CONV]);
	else if (a->extra[CONV] && (!a->extra[GROUPS] || a->d_model % a->extra[GROUPS]))
		oom_read_fail(r, "hidden_size (%llu) is not a multiple of conv_groups (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->extra[GROUPS]);
	a->extra[LEGACY] = oom_read_bool(r, "legacy", true);
	/* the newer head multiplies by the embeddings themselves */
	if (!a->extra[LEGACY])
		a->tie = true;
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask, rel_pos, rel;
	uint16_t m_rel;                 /* rows of the relative embeddings */
	struct oom_kept *kept;
};

/* view, permute, contiguous: always a copy */
static struct oom_val heads(struct oom_tape *t, struct oom_val x)
{
	return oom_op_copy(t, "contiguous", oom_op_heads(t, x));
}

/* A projection of the relative embeddings, repeated over the batch.  at >= 0: the parameters
 * that begin there, again. */
static struct oom_val project_rel(struct oom_tape *t, const struct layer *l, const char *name,
				  struct oom_val rel, bool again, size_t at)
{
	const struct oom_dim inner = {l->a->n_heads * l->a->head_dim, "num_heads * head_size"};
	const size_t here = t->cursor;
	struct oom_val x;

	if (again)
		t->cursor = at;
	x = heads(t, oom_op_linear(t, name, oom_keep(rel), inner, OOM_BIAS));
	if (again)
		t->cursor = here;
	return oom_op_expand_copy(t, x, oom_mono_mul(t, t->m_b, l->m_rel), inner);
}

struct oom_val oom_deberta_look_up(struct oom_tape *t, uint64_t heads, struct oom_val x,
				   struct oom_val index)
{
	struct oom_val y = oom_op_gather(t, "gather", oom_keep(x), oom_keep(index), t->m_bss,
					 (struct oom_dim){heads, "num_heads"});

	if (y.node >= 0 && t->grad && x.rg)
		oom_node_save(t, y.node, x);
	oom_drop(t, x);
	return y;
}

/* disentangled_attention_bias; its locals live until it returns.  at: where the query's and
 * key's parameters begin. */
static struct oom_val relative_scores(struct oom_tape *t, const struct layer *l, struct oom_val q,
				      struct oom_val k, struct oom_val rel, const size_t at[2])
{
	const struct oom_arch *a = l->a;
	const struct oom_dim wide = {a->n_heads * a->extra[SPAN2], "num_heads * 2 * att_span"};
	const bool share = a->extra[SHARE];
	struct oom_val pk = oom_none(), pq = oom_none(), c = oom_none(), ci = oom_none(),
		       p = oom_none(), pi = oom_none();
	struct oom_val score = oom_none(), part;

	if (share)
		pq = project_rel(t, l, "query_proj", rel, true, at[0]);
	if (share || a->extra[C2P])
		pk = project_rel(t, l, share ? "key_proj" : "pos_key_proj", rel, share, at[1]);
	if (!share && a->extra[P2C])
		pq = project_rel(t, l, "pos_query_proj", rel, false, 0);
	if (a->extra[C2P]) {
		c = oom_op_bmm(t, "c2p", oom_keep(q), oom_keep(pk), t->m_bs, wide, a->head_dim);
		ci = oom_relative_positions(t, false);
		c = oom_deberta_look_up(t, a->n_heads, c, ci);
		part = oom_op_unary(t, OOM_SCALE, oom_keep(c));
		score = oom_op_unary(t, OOM_ADD_SCALAR, part);  /* 0 + a tensor: a new one */
	}
	if (a->extra[P2C]) {
		pi = oom_relative_positions(t, true);
		p = oom_op_bmm(t, "p2c", oom_keep(k), oom_keep(pq), t->m_bs, wide, a->head_dim);
		p = oom_deberta_look_up(t, a->n_heads, p, pi);
		part = oom_op_unary(t, OOM_SCALE, oom_keep(p));
		if (oom_is_none(score))
			score = oom_op_unary(t, OOM_ADD_SCALAR, part);
		else
			score = oom_op_add_inplace(t, score, part);
	}
	oom_drop(t, pk);
	oom_drop(t, pq);
	oom_drop(t, c);
	oom_drop(t, ci);
	oom_drop(t, p);
	oom_drop(t, pi);
	return score;
}

/* DisentangledSelfAttention.forward: every named tensor lives until the module returns. */
static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim inner = {a->n_heads * a->head_dim, "num_heads * head_size"},
			     h = {a->n_heads, "num_heads"};
	const uint16_t plane = oom_mono_mul(t, t->m_b, oom_mono_mul(t, t->m_s, t->m_s));
	struct oom_val q, k, v, w, p, rel = oom_none(), bias = oom_none(), keep, not;
	size_t at[2];

	at[0] = t->cursor;
	q = heads(t, oom_op_linear(t, "query_proj", oom_keep(x), inner, OOM_BIAS));
	at[1] = t->cursor;
	k = heads(t, oom_op_linear(t, "key_proj", oom_keep(x), inner, OOM_BIAS));
	v = heads(t, oom_op_linear(t, "value_proj", oom_keep(x), inner, OOM_BIAS));
	w = oom_op_bmm(t, "scores", oom_keep(q), oom_op_unary(t, OOM_SCALE, oom_keep(k)), t->m_bss,
		       h, a->head_dim);
	if (a->extra[SPAN2]) {
		rel = oom_op_dropout(t, oom_share(t, l->rel), a->dropout);
		bias = relative_scores(t, l, q, k, rel, at);
		if (!oom_is_none(bias))
			w = oom_op_add(t, w, oom_keep(bias));
	}
	keep = oom_new(t, "attention_mask.bool()", plane, D(1), OOM_U8);
	not = oom_new(t, "bitwise_not", plane, D(1), OOM_U8);
	w = oom_op_masked(t, "masked_fill", w, not);
	p = oom_op_dropout(t, oom_op_softmax(t, oom_keep(w), false), a->attn_dropout);
	x = oom_op_bmm(t, "context", oom_keep(p), oom_keep(v), t->m_bs, inner,
		       oom_mono_now(t, t->m_s));
	x = oom_op_merge_heads(t, x);
	oom_drop(t, p);
	oom_drop(t, w);
	oom_drop(t, keep);
	oom_drop(t, bias);
	oom_drop(t, rel);
	oom_drop(t, q);
	oom_drop(t, k);
	oom_drop(t, v);
	return x;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	struct oom_val y;

	(void)i;
	x = oom_output(t, l->a->dropout, "LayerNorm", attend(t, l, x), x);
	y = oom_activation(t, l->a->act,
			   oom_op_linear(t, "dense", oom_keep(x), D(l->a->d_ff), OOM_BIAS));
	x = oom_output(t, l->a->dropout, "LayerNorm", y, x);
	oom_kept_add(t, l->kept, x);            /* output_hidden_states=True, always */
	return x;
}

/* ConvLayer: the first layer's output plus a convolution of its input. */
static struct oom_val convolve(struct oom_tape *t, const struct oom_arch *a, struct oom_val in,
			       struct oom_val x)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val out = oom_op_copy(t, "contiguous", in), mask;

	out = oom_op_conv(t, "conv", out, a->d_model,
			  a->d_model / a->extra[GROUPS] * a->extra[CONV], true, t->m_bs, h);
	out = oom_op_copy(t, "contiguous", out);
	out = oom_op_masked_inplace(t, out, oom_new(t, "rmask", t->m_bs, D(1), OOM_U8));
	out = oom_activation(t, (enum oom_act)a->extra[CONV_ACT],
			     oom_op_dropout(t, out, a->dropout));
	x = oom_op_add(t, x, oom_keep(out));
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	mask = oom_new(t, "input_mask", t->m_bs, D(1), (enum oom_dtype)x.dt);
	x = oom_op_mul(t, x, mask);
	oom_drop(t, out);
	return x;
}

/* The layers; with a convolution the first one by itself. */
static struct oom_val run_layers(struct oom_tape *t, const struct oom_arch *a,
				 const struct layer *l, struct oom_val x)
{
	const uint32_t n = (uint32_t)oom_depth(t, a->n_layers);
	struct oom_val in;

	if (!a->extra[CONV] || !n)
		return oom_layers(t, n, NULL, block, l, x);
	in = oom_share(t, x);
	x = oom_layer_alone(t, 0, block, oom_layer_ctx(t, l, sizeof(*l)), x);
	x = convolve(t, a, in, x);
	return oom_layers(t, n - 1, NULL, block, l, x);
}

struct oom_val oom_deberta_embeddings(struct oom_tape *t, const struct oom_arch *a, bool biased,
				      struct oom_val (*norm)(struct oom_tape *t, struct oom_val x),
				      struct oom_val *word)
{
	const struct oom_dim e = D(a->d_embed);
	struct oom_val ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), types, w, pos,
		       tt = oom_none(), x, mask;

	oom_buffer(t, a->max_positions, OOM_I64);
	types = oom_new(t, "token type ids", t->m_bs, D(1), OOM_I64);
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_embed, OOM_P_EMBEDDING);
	w = oom_input_grads(t, oom_op_embedding_param(t, *word, ids, a->vocab, e));
	x = oom_share(t, w);
	if (biased) {
		struct oom_val at = oom_input(t, "position ids", t->m_s, 1, OOM_I64);

		pos = oom_op_embedding(t, "position_embeddings", at, a->max_positions, e, 0);
		x = oom_op_add(t, x, oom_keep(pos));
	} else {
		pos = oom_new_like(t, "zeros_like", w, (enum oom_dtype)w.dt);
	}
	if (a->type_vocab) {
		tt = oom_op_embedding(t, "token_type_embeddings", oom_keep(types), a->type_vocab, e,
				      0);
		x = oom_op_add(t, x, oom_keep(tt));
	}
	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "embed_proj", x, D(a->d_model), 0);
	x = norm(t, x);
	mask = oom_new(t, "mask", t->m_bs, D(1), (enum oom_dtype)x.dt);
	x = oom_op_dropout(t, oom_op_mul(t, x, mask), a->dropout);
	oom_drop(t, w);
	oom_drop(t, pos);
	oom_drop(t, tt);
	oom_drop(t, types);
	return x;
}

static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	struct oom_reader r = a->rd;
	const double p = oom_read_real(&r, "pooler_dropout", 0);

	x = oom_op_dropout(t, oom_op_slice(t, x, t->m_b, D(a->d_model)), p);
	x = oom_op_linear(t, "dense", x, D(a->d_model), OOM_BIAS);
	x = oom_op_dropout(t, oom_op_unary(t, OOM_GELU, x), a->classifier_dropout);
	x = oom_op_linear(t, "classifier", x, (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_cls_loss(t, a, x);
}

/* rel_embeddings.weight, or its LayerNorm: read by every layer */
static void relative(struct oom_tape *t, const struct oom_arch *a, struct layer *l)
{
	if (!a->extra[SPAN2])
		return;
	l->m_rel = oom_len_const(t, OOM_MONO_ONE, a->extra[SPAN2]);
	l->rel_pos = oom_new(t, "relative_pos", oom_mono_mul(t, t->m_s, t->m_s), D(1), OOM_I64);
	t->scope = "rel_embeddings";
	l->rel = oom_param(t, "weight", a->extra[SPAN2], a->d_model, OOM_P_EMBEDDING);
	l->rel = oom_op_view(t, l->rel, l->m_rel, D(a->d_model));
	if (a->extra[NORM_REL])
		l->rel = oom_op_layer_norm(t, "LayerNorm", l->rel, 0, true, true);
}

static struct oom_val layer_norm(struct oom_tape *t, struct oom_val x)
{
	return oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->extra[LEGACY] ? a->d_embed : a->d_model,
				  .act = a->act,
				  .spare_bias = true,
				  .add_bias = !a->extra[LEGACY]};
	struct oom_kept kept;
	struct layer l = {.a = a,
			  .mask = oom_none(),
			  .rel_pos = oom_none(),
			  .rel = oom_none(),
			  .kept = &kept};
	struct oom_val word, x = oom_deberta_embeddings(t, a, a->extra[BIASED], layer_norm, &word),
		       hidden, loss, first;

	kept.n = 0;
	/* the product of the mask with itself: ones in fp32 unless the batch brings its own, in
	 * int64 */
	l.mask = oom_new(t, "attention_mask",
			 oom_mono_mul(t, t->m_b, oom_mono_mul(t, t->m_s, t->m_s)), D(1),
			 t->plan->padding_mask ? OOM_I64 : OOM_F32);
	relative(t, a, &l);
	first = oom_share(t, x);
	x = run_layers(t, a, &l, x);
	oom_drop_shared(t, l.mask);
	if (a->extra[SPAN2]) {
		oom_drop_shared(t, l.rel_pos);
		oom_drop_shared(t, l.rel);
	}
	oom_kept_drop(t, &kept);
	oom_drop(t, first);
	if (t->task != OOM_TASK_SEQ_CLS)
		return oom_mlm_loss(t, a, &m, x, word);
	hidden = oom_share(t, x);
	loss = classify(t, a, x);
	oom_drop(t, hidden);
	return loss;
}

const struct oom_family oom_family_deberta = {
	.name = "deberta",
	.summary = "post-norm encoder with disentangled attention",
	.source = "transformers 5.12 models/deberta_v2/modeling_deberta_v2.py",
	.types = OOM_TYPE("deberta-v2"),
	.lora_targets = "query_proj+value_proj",
	.parse = parse,
	.step = step,
};
