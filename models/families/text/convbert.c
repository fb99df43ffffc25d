/* ConvBERT: half of the heads replaced by dynamic convolutions over spans of the sequence.
 * Reference: transformers 5.12, models/convbert/modeling_convbert.py. */
#include "blocks/encoder.h"

struct convbert {
	uint64_t kernel;                /* the spans' length */
	uint64_t groups;                /* of the feed-forward */
};
OOM_OWN(convbert, struct convbert);

static const struct oom_key_row convbert_keys[] = {
	OOM_BERT_KEYS, LIKE(d_embed, "embedding_size", 1, d_model),
	FLAG(tie, "tie_word_embeddings", true),
	OR_OWN(struct convbert, kernel, "conv_kernel_size", 9),
	OR_OWN(struct convbert, groups, "num_groups", 1), OOM_KEYS_END};

/* Half of the width and of the heads (or whatever head_ratio leaves of them) attends. */
static void convbert_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t heads = a->n_heads, ratio = oom_read_count_or(r, "head_ratio", 2);
	const struct convbert *c = convbert_of(a);

	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	a->n_heads = a->n_kv_heads = ratio && heads / ratio ? heads / ratio : 1;
	a->head_dim = a->d_model / a->n_heads / 2;
	if (!a->head_dim || !c->kernel || c->kernel > 1 << 16 || !c->groups ||
	    a->d_model % (2 * a->n_heads) || a->d_model % c->groups || a->d_ff % c->groups)
		oom_read_fail(r,
			      "convbert: hidden_size (%llu) does not divide by heads (%llu) and "
			      "num_groups (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)heads,
			      (unsigned long long)c->groups);
}

/* Width of the attention's half. */
static struct oom_dim convbert_all(const struct oom_arch *a)
{
	return (struct oom_dim){a->n_heads * a->head_dim, "all_head_size"};
}

/* SeparableConv1D on the transposed hidden states. */
static struct oom_val convbert_separable(struct oom_tape *t, const struct oom_arch *a,
					 struct oom_val x)
{
	const struct oom_dim all = convbert_all(a);

	x = oom_op_conv_depthwise(t, "depthwise", x, convbert_of(a)->kernel, false, t->m_bs,
				  D(a->d_model));
	x = oom_op_conv(t, "pointwise", x, all.n, a->d_model, false, t->m_bs, all);
	t->scope = "key_conv_attn_layer";
	return oom_op_add_inplace(t, x, oom_param(t, "bias", 0, all.n, 0));
}

/* The convolution's half: a kernel for every position from key and query, applied to unfolded
 * spans.  Its locals are the module's, whose frame is f. */
static struct oom_val convbert_convolve(struct oom_frame *f, const struct oom_arch *a,
					struct oom_val x, struct oom_val key, struct oom_val q)
{
	const uint64_t k = convbert_of(a)->kernel;
	const struct oom_dim all = convbert_all(a), spans = D(all.n * k),
			     kernels = D(a->n_heads * k);
	struct oom_tape *t = f->t;
	struct oom_val kernel, y;

	kernel = oom_name(f, oom_op_mul(t, key, q));
	kernel = oom_op_linear(t, "conv_kernel_layer", kernel, kernels, OOM_BIAS);
	kernel = oom_name(f, oom_op_softmax(t, kernel, false));
	y = oom_op_linear(t, "conv_out_layer", x, all, OOM_BIAS);
	y = oom_op_copy(t, "contiguous", y);
	/* im2col; its gradient is summed (col2im) */
	y = oom_op_expand_copy(t, y, t->m_bs, spans);
	y = oom_op_copy(t, "reshape", y);
	return oom_op_bmm(t, "conv_out", y, kernel, t->m_bs, all, k);
}

/* ConvBertSelfAttention.forward */
static struct oom_val convbert_self(struct oom_tape *t, const struct oom_decoder_layer *l,
				    struct oom_val x, struct oom_frame *caller)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim all = convbert_all(a);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, key, conv, y, scores;

	at.mask = l->mask;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = at.written_out = at.scores_local = true;
	at.caller = caller;
	at.scores = &scores;
	k = oom_name(&f, oom_op_linear(t, "key", x, all, OOM_BIAS));
	v = oom_name(&f, oom_op_linear(t, "value", x, all, OOM_BIAS));
	key = oom_name(&f, convbert_separable(t, a, x));
	q = oom_name(&f, oom_op_linear(t, "query", x, all, OOM_BIAS));
	conv = oom_name(&f, convbert_convolve(&f, a, x, key, q));
	y = oom_attention_core(t, &at, oom_op_heads(t, q), oom_op_heads(t, k), oom_op_heads(t, v));
	oom_name(&f, scores);
	return oom_leave(&f, oom_op_cat(t, y, conv, D(a->d_model)));
}

/* ConvBertAttention.forward, which holds the weights ("self_outputs") */
static struct oom_val convbert_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
					 struct oom_val x)
{
	struct oom_frame f = {.t = t};
	struct oom_val y = convbert_self(t, l, x, &f);

	return oom_leave(&f, oom_output(t, l->a->dropout, "LayerNorm", y, x));
}

/* GroupedLinearLayer: one product per group, then a bias. */
static struct oom_val convbert_dense(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				     struct oom_dim out)
{
	const uint64_t groups = convbert_of(a)->groups, in = x.width / groups;
	struct oom_val w;

	if (groups == 1)
		return oom_op_linear(t, "dense", x, out, OOM_BIAS);
	w = oom_param(t, "weight", x.width, out.n / groups, 0);
	x = oom_op_bmm(t, "grouped", oom_op_copy(t, "reshape", x), w, t->m_bs, out, in);
	return oom_op_add(t, oom_op_copy(t, "reshape", x), oom_param(t, "bias", 0, out.n, 0));
}

static struct oom_val convbert_block(struct oom_tape *t, const void *ctx, uint32_t i,
				     struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val y, h;

	(void)i;
	x = oom_name(&f, convbert_attention(t, l, x));
	y = oom_activation(t, a->act, convbert_dense(t, a, x, D(a->d_ff)));
	if (convbert_of(a)->groups == 1)
		return oom_leave(&f, oom_output(t, a->dropout, "LayerNorm", y, x));
	y = oom_name(&f, y);
	h = oom_op_dropout(t, convbert_dense(t, a, y, D(a->d_model)), a->dropout);
	oom_forget(&f, y);
	h = oom_op_add(t, h, oom_take(&f, x));
	return oom_leave(&f, oom_op_layer_norm(t, "LayerNorm", h, 0, true, true));
}

static struct oom_val convbert_embeddings(struct oom_tape *t, const struct oom_arch *a,
					  struct oom_val *word)
{
	const struct oom_dim e = D(a->d_embed);
	struct oom_frame f = {.t = t};
	struct oom_val w, pos, tt, x;

	oom_buffer(t, a->max_positions, OOM_I64);
	oom_buffer(t, a->max_positions, OOM_I64);
	w = oom_name(&f, oom_word_embeddings(t, a, "word_embeddings", e, word));
	pos = oom_name(&f, oom_position_embeddings(t, a, e));
	tt = oom_type_embeddings(t, a, e, oom_input(t, "token type ids", t->m_bs, 1, OOM_I64));
	x = oom_op_add(t, oom_op_add(t, w, pos), oom_name(&f, tt));
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	return oom_leave(&f, oom_op_dropout(t, x, a->dropout));
}

static struct oom_val convbert_model(struct oom_tape *t, const struct oom_arch *a,
				     struct oom_val *word)
{
	struct oom_decoder_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x = convbert_embeddings(t, a, word);

	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "embeddings_project", x, D(a->d_model), OOM_BIAS);
	x = oom_name(&f, x);
	l.mask = oom_make_written_mask(t, false, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.mask = oom_name_shared(&f, l.mask);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, convbert_block, &l, x);
	return oom_leave(&f, x);
}

static struct oom_val convbert_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_embed, .act = OOM_ACT_GELU, .owner = "generator_lm_head"};
	struct oom_val word, x = convbert_model(t, a, &word);

	return t->task == OOM_TASK_SEQ_CLS ? oom_cls_head(t, a, a->act, x) :
					     oom_mlm_loss(t, a, &m, x, word);
}

const struct oom_family oom_family_convbert = {
	.name = "convbert",
	.summary = "BERT with half of its heads as dynamic convolutions",
	.source = "transformers 5.12 models/convbert/modeling_convbert.py",
	.types = OOM_TYPE("convbert"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "query+value",
	.keys = convbert_keys,
	.parse = convbert_parse,
	.step = convbert_step,
};
