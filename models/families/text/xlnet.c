/* XLNet: relative attention in einsums over [s, b, n, d], weights as bare parameters, no
 * checkpointing. Reference: transformers 5.12, models/xlnet/modeling_xlnet.py; einsum casts its
 * operands under autocast and is a batched product of permuted views
 * (aten/src/ATen/autocast_mode.h; native/Linear.cpp, sumproduct_pair). */
#include <string.h>

#include "blocks/encoder.h"

struct xlnet {
	bool causal;
	bool memories;                  /* in evaluation */
	bool projected;                 /* of the classifier */
};
OOM_OWN(xlnet, struct xlnet);

static const struct oom_key_row xlnet_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "d_model"), MUST(d_ff, "d_inner"),
	MUST(n_layers, "n_layer"), MUST(n_heads, "n_head"), ACT(act, "ff_activation", "gelu"),
	REAL(dropout, "dropout", 0.1), REAL(classifier_dropout, "summary_last_dropout", 0.1),
	FLAG(tie, "tie_word_embeddings", true),
	FLAG_OWN(struct xlnet, memories, "use_mems_eval", true),
	FLAG_OWN(struct xlnet, projected, "summary_use_proj", true), OOM_KEYS_END};

static void xlnet_parse(struct oom_arch *a)
{
	const char *type = oom_read_string(&a->rd, "attn_type", "bi");

	xlnet_own(a)->causal = type && !strcmp(type, "uni");
	oom_check_heads(a);
}

struct xlnet_layer {
	const struct oom_arch *a;
	struct oom_val mask, pos;
	struct oom_kept *mems;
};

/* Relative positions for every position. */
static uint64_t xlnet_positions(const struct oom_arch *a)
{
	return xlnet_of(a)->causal ? 1 : 2;
}

static struct oom_val xlnet_biased(struct oom_tape *t, const struct oom_arch *a, const char *name,
				   struct oom_val q)
{
	return oom_op_add(t, q, oom_param(t, name, 0, a->d_model, 0));
}

/* bd[:, :, 1:, :] is a view that can be reshaped; index_select picks the first s columns of 2 s
 * - 1. */
static struct oom_val xlnet_shift(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	struct oom_val index = oom_new(t, "arange", t->m_s, D(1), OOM_I64);

	x = oom_op_slice(t, x, x.mono, (struct oom_dim){x.width, x.text});
	return oom_op_gather(t, "index_select", x, index, t->m_bss, D(a->n_heads));
}

/* rel_attn_core; p: queries, keys and values, r: positions */
static struct oom_val xlnet_core(struct oom_tape *t, const struct xlnet_layer *l,
				 const struct oom_val p[3], struct oom_val r)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim heads = D(a->n_heads), wide = D(xlnet_positions(a) * a->n_heads);
	struct oom_frame f = {.t = t};
	struct oom_val ac, bd, s, y;

	t->scope = "rel_attn";
	ac = oom_op_bmm(t, "ac", xlnet_biased(t, a, "r_w_bias", p[0]), p[1], t->m_bss, heads,
			a->head_dim);
	ac = oom_name(&f, ac);
	bd = oom_op_bmm(t, "bd", xlnet_biased(t, a, "r_r_bias", p[0]), r, t->m_bss, wide,
			a->head_dim);
	bd = oom_name(&f, xlnet_shift(t, a, bd));
	oom_param(t, "r_s_bias", 0, a->d_model, OOM_P_UNUSED);
	oom_param(t, "seg_embed", 0, 2 * a->d_model, OOM_P_UNUSED);
	s = oom_op_unary(t, OOM_SCALE, oom_op_unary(t, OOM_ADD_SCALAR, oom_op_add(t, ac, bd)));
	if (!oom_is_none(l->mask))
		s = oom_op_add(t, s, oom_op_unary(t, OOM_SCALE, l->mask));
	s = oom_name(&f, s);
	y = oom_name(&f, oom_op_dropout(t, oom_op_softmax(t, s, false), a->dropout));
	y = oom_op_bmm(t, "attn_vec", y, p[2], t->m_bs, D(a->d_model), oom_mono_now(t, t->m_s));
	y.perm = true;                          /* [b, n, s, d] behind [s, b, n, d] */
	return oom_leave(&f, y);
}

static struct oom_val xlnet_attention(struct oom_tape *t, const struct xlnet_layer *l,
				      struct oom_val x)
{
	static const char *const names[3] = {"q", "k", "v"};
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	const unsigned bare = OOM_NO_LORA | OOM_NO_QUANT;
	struct oom_frame f = {.t = t};
	struct oom_val p[3], r, y, w;

	for (int i = 0; i < 3; i++)
		p[i] = oom_name(&f, oom_op_linear(t, names[i], x, h, bare));
	/* in evaluation the positions are expanded over the batch, and copied to be folded */
	r = oom_amp_cast(t, l->pos);
	if (l->pos.perm && !t->amp)
		r = oom_op_copy(t, "clone", r);
	r.perm = false;
	r = oom_name(&f, oom_op_linear_in(t, "r", r, a->d_model, h, bare));
	y = oom_name(&f, xlnet_core(t, l, p, r));
	y = oom_op_copy(t, "clone", y);
	t->scope = "o";                         /* permuted to be multiplied, so copied too */
	w = oom_amp_cast(t, oom_param(t, "weight", a->d_model, a->d_model, OOM_P_LINEAR));
	y = oom_op_matmul_param(t, "o", y, oom_op_copy(t, "clone", w), oom_none(), h);
	y = oom_op_add(t, oom_op_dropout(t, y, a->dropout), x);
	return oom_leave(&f, oom_op_layer_norm(t, "layer_norm", y, 0, true, true));
}

static struct oom_val xlnet_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct xlnet_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	if (xlnet_of(a)->memories)
		oom_kept_add(t, l->mems, x);
	x = oom_name(&f, xlnet_attention(t, l, x));
	y = oom_activation(t, a->act, oom_op_linear(t, "layer_1", x, D(a->d_ff), OOM_BIAS));
	y = oom_op_linear(t, "layer_2", oom_op_dropout(t, y, a->dropout), D(a->d_model), OOM_BIAS);
	y = oom_name(&f, oom_op_dropout(t, y, a->dropout));
	x = oom_op_add(t, y, oom_take(&f, x));
	return oom_leave(&f, oom_op_layer_norm(t, "layer_norm", x, 0, true, true));
}

/* Sines and cosines of the relative positions, in fp32; dropout makes a copy for every sequence
 * of the batch. */
static struct oom_val xlnet_table(struct oom_tape *t, const struct oom_arch *a)
{
	const bool grad = t->grad, copied = t->train && a->dropout > 0;
	const struct oom_dim d = D(xlnet_positions(a) * a->d_model);
	struct oom_frame f = {.t = t};
	struct oom_val x;

	t->grad = false;
	x = oom_name(&f, oom_new(t, "pos_emb", t->m_s, d, OOM_F32));
	if (copied)
		x = oom_rename(&f, x, oom_new(t, "pos_emb", t->m_bs, d, OOM_F32));
	t->grad = grad;
	x = oom_leave(&f, x);
	x.mono = t->m_bs;
	x.perm = !copied;
	return x;
}

static struct oom_val xlnet_classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	struct oom_frame f = {.t = t};

	x = oom_arg(&f, x);
	x = oom_op_slice(t, x, t->m_b, D(a->d_model));
	if (xlnet_of(a)->projected)
		x = oom_op_linear(t, "summary", x, D(a->d_model), OOM_BIAS);
	x = oom_op_dropout(t, oom_op_unary(t, OOM_TANH, x), a->classifier_dropout);
	x = oom_op_linear(t, "logits_proj", x, (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_leave(&f, oom_cls_loss(t, a, x));
}

static struct oom_val xlnet_model(struct oom_tape *t, const struct oom_arch *a,
				  struct oom_kept *mems, struct oom_val *word)
{
	const bool padded = t->plan->padding_mask;
	struct xlnet_layer l = {.a = a, .mask = oom_none(), .mems = mems};
	struct oom_frame f = {.t = t};
	struct oom_val x;

	t->scope = "transformer";
	oom_param(t, "mask_emb", 0, a->d_model, OOM_P_UNUSED);
	t->scope = "word_embedding";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *word, oom_new(t, "input_ids", t->m_bs, D(1), OOM_I64),
				   a->vocab, D(a->d_model));
	x = oom_op_dropout(t, oom_name(&f, oom_input_grads(t, x)), a->dropout);
	if (xlnet_of(a)->causal || padded)
		l.mask = oom_name(&f, oom_new(t, "non_tgt_mask",
					      padded ? t->m_bss : oom_mono_mul(t, t->m_s, t->m_s),
					      D(1), x.dt));
	l.pos = oom_name(&f, xlnet_table(t, a));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, xlnet_block, &l, x);
	return oom_leave(&f, oom_op_copy(t, "contiguous", oom_op_dropout(t, x, a->dropout)));
}

static struct oom_val xlnet_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				 struct oom_val word)
{
	struct oom_frame f = {.t = t};

	if (t->task == OOM_TASK_SEQ_CLS)
		return xlnet_classify(t, a, x);
	if (oom_fuses_head(t))
		return oom_fused_head(t, a, x, word, "lm_loss", true);
	x = oom_arg(&f, x);
	x = oom_lm_head(t, a, x, word, "lm_loss", true);
	return oom_leave(&f, oom_plain_lm_loss(t, x, false, t->m_bs));
}

static struct oom_val xlnet_run(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_kept mems;
	struct oom_val word, x;

	mems.n = 0;
	mems.in_training = false;
	mems.without_grad = false;
	x = xlnet_model(t, a, &mems, &word);
	x = xlnet_head(t, a, x, word);
	oom_kept_drop(t, &mems);                /* returned with the output */
	return x;
}

static struct oom_val xlnet_step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_without_checkpointing(t, a, xlnet_run);
}

const struct oom_family oom_family_xlnet = {
	.name = "xlnet",
	.summary = "relative attention written in einsums",
	.source = "transformers 5.12 models/xlnet/modeling_xlnet.py",
	.types = OOM_TYPE("xlnet"),
	.task = OOM_TASK_CAUSAL_LM,
	.lora_targets = "layer_1+layer_2",
	.keys = xlnet_keys,
	.parse = xlnet_parse,
	.step = xlnet_step,
};
