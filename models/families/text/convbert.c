/* ConvBERT: half of the heads replaced by dynamic convolutions over spans of the sequence.
 * Reference: transformers 5.12, models/convbert/modeling_convbert.py. */
#include "blocks/encoder.h"

/* extra[]: the spans' length; groups of the feed-forward; width of the attention's half */
enum { KERNEL, GROUPS, ALL };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	uint64_t heads, ratio;

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_embed = oom_read_count_or(r, "embedding_size", a->d_model);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	heads = oom_read_count(r, "num_attention_heads", 1);
	ratio = oom_read_count_or(r, "head_ratio", 2);
	a->n_heads = a->n_kv_heads = ratio && heads / ratio ? heads / ratio : 1;
	a->head_dim = a->d_model / a->n_heads / 2;
	a->extra[ALL] = a->n_heads * a->head_dim;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->type_vocab = oom_read_count_or(r, "type_vocab_size", 2);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[KERNEL] = oom_read_count_or(r, "conv_kernel_size", 9);
	a->extra[GROUPS] = oom_read_count_or(r, "num_groups", 1);
	if (!a->head_dim || !a->extra[KERNEL] || a->extra[KERNEL] > 1 << 16 || !a->extra[GROUPS] ||
	    a->d_model % (2 * a->n_heads) || a->d_model % a->extra[GROUPS] ||
	    a->d_ff % a->extra[GROUPS])
		oom_read_fail(r,
			      "convbert: hidden_size (%llu) does not divide by heads (%llu) and "
			      "num_groups (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)heads,
			      (unsigned long long)a->extra[GROUPS]);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

/* SeparableConv1D on the transposed hidden states. */
static struct oom_val separable(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim all = D(a->extra[ALL]);
	struct oom_val y = oom_op_conv_depthwise(t, "depthwise", oom_keep(x), a->extra[KERNEL],
						 false, t->m_bs, D(a->d_model));

	y = oom_op_conv(t, "pointwise", y, a->extra[ALL], a->d_model, false, t->m_bs, all);
	return oom_op_add_inplace(t, y, oom_param(t, "bias", 0, a->extra[ALL], 0));
}

/* The convolution's half: a kernel for every position from key and query, applied to unfolded
 * spans. */
static struct oom_val convolve(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			       struct oom_val key, struct oom_val q, struct oom_val locals[2])
{
	const uint64_t k = a->extra[KERNEL];
	const struct oom_dim all = D(a->extra[ALL]), spans = D(a->extra[ALL] * k),
			     kernels = D(a->n_heads * k);
	struct oom_val c, kernel, out, y;

	c = oom_op_mul(t, key, q);
	kernel = oom_op_linear(t, "conv_kernel_layer", oom_keep(c), kernels, OOM_BIAS);
	kernel = oom_op_softmax(t, kernel, false);
	out = oom_op_linear(t, "conv_out_layer", oom_keep(x), all, OOM_BIAS);
	out = oom_op_copy(t, "contiguous", out);
	/* im2col; its gradient is summed (col2im) */
	out = oom_op_expand_copy(t, out, t->m_bs, spans);
	out = oom_op_copy(t, "reshape", out);
	y = oom_op_bmm(t, "conv_out", out, oom_keep(kernel), t->m_bs, all, k);
	locals[0] = kernel;
	locals[1] = c;
	return y;
}

static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val x,
			     struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim all = D(a->extra[ALL]), h = D(a->d_model);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v, key, conv, y, scores, locals[2];

	at.mask = l->mask;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = at.written_out = at.scores_local = true;
	at.weights = weights;
	at.scores = &scores;
	k = oom_op_linear(t, "key", oom_keep(x), all, OOM_BIAS);
	v = oom_op_linear(t, "value", oom_keep(x), all, OOM_BIAS);
	key = separable(t, a, x);
	q = oom_op_linear(t, "query", oom_keep(x), all, OOM_BIAS);
	conv = convolve(t, a, x, oom_keep(key), oom_keep(q), locals);
	y = oom_attention_core(t, &at, oom_op_heads(t, oom_keep(q)), oom_op_heads(t, oom_keep(k)),
			       oom_op_heads(t, oom_keep(v)));
	x = oom_op_cat(t, y, oom_keep(conv), h);
	oom_drop(t, scores);
	oom_drop(t, locals[0]);
	oom_drop(t, locals[1]);
	oom_drop(t, conv);
	oom_drop(t, key);
	oom_drop(t, q);
	oom_drop(t, k);
	oom_drop(t, v);
	return x;
}

/* GroupedLinearLayer: one product a group, then a bias. */
static struct oom_val dense(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			    struct oom_dim out)
{
	const uint64_t groups = a->extra[GROUPS];
	struct oom_val y, w;

	if (groups == 1)
		return oom_op_linear(t, "dense", x, out, OOM_BIAS);
	w = oom_param(t, "weight", x.width, out.n / groups, 0);
	y = oom_op_bmm(t, "grouped", oom_op_copy(t, "reshape", x), w, t->m_bs, out,
		       x.width / groups);
	return oom_op_add(t, oom_op_copy(t, "reshape", y), oom_param(t, "bias", 0, out.n, 0));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val y, h, weights = oom_none();

	(void)i;
	x = oom_output(t, a->dropout, "LayerNorm", attend(t, l, x, &weights), x);
	oom_drop(t, weights);                   /* self_outputs, of ConvBertAttention */
	y = oom_activation(t, a->act, dense(t, a, oom_keep(x), D(a->d_ff)));
	if (a->extra[GROUPS] == 1)
		return oom_output(t, a->dropout, "LayerNorm", y, x);
	h = oom_op_dropout(t, dense(t, a, oom_keep(y), D(a->d_model)), a->dropout);
	oom_drop(t, y);
	return oom_op_layer_norm(t, "LayerNorm", oom_op_add(t, h, x), 0, true, true);
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const struct oom_dim e = D(a->d_embed);
	struct oom_val w, pos, tt, x, types = oom_input(t, "token type ids", t->m_bs, 1, OOM_I64);

	oom_buffer(t, a->max_positions, OOM_I64);
	oom_buffer(t, a->max_positions, OOM_I64);
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_embed, OOM_P_EMBEDDING);
	w = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, e);
	w = oom_input_grads(t, w);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
			       e, 0);
	tt = oom_op_embedding(t, "token_type_embeddings", types, a->type_vocab, e, 0);
	x = oom_op_add(t, oom_op_add(t, oom_keep(w), oom_keep(pos)), oom_keep(tt));
	x = oom_op_dropout(t, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true), a->dropout);
	oom_drop(t, w);
	oom_drop(t, pos);
	oom_drop(t, tt);
	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "embeddings_project", x, D(a->d_model), OOM_BIAS);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_embed, .act = OOM_ACT_GELU};
	struct layer l = {.a = a};
	struct oom_val word, x = embeddings(t, a, &word), first;

	l.mask = oom_make_written_mask(t, false, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	first = oom_share(t, x);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop(t, first);
	return t->task == OOM_TASK_SEQ_CLS ? oom_cls_head(t, a, a->act, x) :
					     oom_mlm_loss(t, a, &m, x, word);
}

const struct oom_family oom_family_convbert = {
	.name = "convbert",
	.summary = "BERT with half of its heads as dynamic convolutions",
	.source = "transformers 5.12 models/convbert/modeling_convbert.py",
	.types = OOM_TYPE("convbert"),
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
