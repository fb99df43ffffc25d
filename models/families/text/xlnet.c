/* XLNet: relative attention in einsums over [s, b, n, d], weights as bare parameters, no
 * checkpointing. Reference: transformers 5.12, models/xlnet/modeling_xlnet.py; einsum casts its
 * operands under autocast and is a batched product of permuted views
 * (aten/src/ATen/autocast_mode.h; native/Linear.cpp, sumproduct_pair). */
#include <string.h>

#include "blocks/encoder.h"

/* extra[]: causal; memories in evaluation; the classifier's projection */
enum { UNI, MEMS, PROJECTED };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *type = oom_read_string(r, "attn_type", "bi");

	a->default_task = OOM_TASK_CAUSAL_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "d_model", 1);
	a->d_ff = oom_read_count(r, "d_inner", 1);
	a->n_layers = oom_read_count(r, "n_layer", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "n_head", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->act = oom_read_act(r, "ff_activation", "gelu");
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->classifier_dropout = oom_read_real(r, "summary_last_dropout", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[UNI] = type && !strcmp(type, "uni");
	a->extra[MEMS] = oom_read_bool(r, "use_mems_eval", true);
	a->extra[PROJECTED] = oom_read_bool(r, "summary_use_proj", true);
	if (a->d_model % a->n_heads)
		oom_read_fail(r, "d_model (%llu) is not a multiple of n_head (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask, pos;
	/* relative positions for every position: 2, or 1 of a causal model */
	uint64_t n_pos;
	struct oom_kept *mems;
};

static struct oom_val bare(struct oom_tape *t, const struct layer *l, const char *name,
			   struct oom_val x)
{
	return oom_op_linear(t, name, x, D(l->a->d_model), OOM_NO_LORA | OOM_NO_QUANT);
}

static struct oom_val biased(struct oom_tape *t, const struct layer *l, const char *name,
			     struct oom_val q)
{
	return oom_op_add(t, oom_keep(q), oom_param(t, name, 0, l->a->d_model, 0));
}

/* bd[:, :, 1:, :] is a view that can be reshaped; index_select picks the first s columns of 2 s
 * - 1. */
static struct oom_val rel_shift(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	struct oom_val index = oom_new(t, "arange", t->m_s, D(1), OOM_I64);

	x = oom_op_slice(t, x, x.mono, (struct oom_dim){x.width, x.text});
	return oom_op_gather(t, "index_select", x, index, t->m_bss, D(l->a->n_heads));
}

/* rel_attn_core: ac, bd and the scores are locals until the products with the values are done. */
static struct oom_val core(struct oom_tape *t, const struct layer *l, struct oom_val q,
			   struct oom_val k, struct oom_val v, struct oom_val r)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim heads = D(a->n_heads), h = D(a->d_model);
	struct oom_val ac, bd, s, p, y;

	ac = oom_op_bmm(t, "ac", biased(t, l, "r_w_bias", q), oom_keep(k), t->m_bss, heads,
			a->head_dim);
	bd = oom_op_bmm(t, "bd", biased(t, l, "r_r_bias", q), oom_keep(r), t->m_bss,
			D(l->n_pos * a->n_heads), a->head_dim);
	bd = rel_shift(t, l, bd);
	oom_drop(t, oom_param(t, "r_s_bias", 0, a->d_model, OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "seg_embed", 0, 2 * a->d_model, OOM_P_UNUSED));
	s = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_add(t, oom_keep(ac), oom_keep(bd)));
	s = oom_op_unary(t, OOM_SCALE, s);
	if (!oom_is_none(l->mask))
		s = oom_op_add(t, s, oom_op_unary(t, OOM_SCALE, oom_keep(l->mask)));
	p = oom_op_dropout(t, oom_op_softmax(t, oom_keep(s), false), a->dropout);
	y = oom_op_bmm(t, "attn_vec", oom_keep(p), oom_keep(v), t->m_bs, h,
		       oom_mono_now(t, t->m_s));
	y.perm = true;                          /* [b, n, s, d] behind [s, b, n, d] */
	oom_drop(t, p);
	oom_drop(t, s);
	oom_drop(t, bd);
	oom_drop(t, ac);
	return y;
}

static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	static const char *const names[3] = {"q", "k", "v"};
	const struct oom_dim h = D(a->d_model);
	struct oom_val p[3], r, y, out, f, w;

	for (int i = 0; i < 3; i++)
		p[i] = bare(t, l, names[i], oom_keep(x));
	/* in evaluation the positions are expanded over the batch, and copied to be folded */
	f = oom_amp_cast(t, oom_share(t, l->pos));
	if (l->pos.perm && !t->amp)
		f = oom_op_copy(t, "clone", f);
	f.perm = f.kept = false;
	r = oom_op_linear_in(t, "r", f, a->d_model, h, OOM_NO_LORA | OOM_NO_QUANT);
	y = core(t, l, p[0], p[1], p[2], r);
	out = oom_op_copy(t, "clone", oom_keep(y));
	t->scope = "o";                         /* permuted to be multiplied, so copied too */
	w = oom_op_copy(t, "clone",
			oom_amp_cast(t,
				     oom_param(t, "weight", a->d_model, a->d_model, OOM_P_LINEAR)));
	out = oom_op_matmul_param(t, "o", out, w, oom_none(), h);
	out = oom_op_dropout(t, out, a->dropout);
	out = oom_op_layer_norm(t, "layer_norm", oom_op_add(t, out, x), 0, true, true);
	oom_drop(t, y);
	oom_drop(t, r);
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	return out;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val y;

	(void)i;
	if (a->extra[MEMS])
		oom_kept_add(t, l->mems, x);
	x = attend(t, l, x);
	y = oom_activation(t, a->act,
			   oom_op_linear(t, "layer_1", oom_keep(x), D(a->d_ff), OOM_BIAS));
	y = oom_op_linear(t, "layer_2", oom_op_dropout(t, y, a->dropout), D(a->d_model), OOM_BIAS);
	y = oom_op_dropout(t, y, a->dropout);
	x = oom_op_add(t, oom_keep(y), x);
	x = oom_op_layer_norm(t, "layer_norm", x, 0, true, true);
	oom_drop(t, y);
	return x;
}

/* Sines and cosines of the relative positions, in fp32; dropout makes a copy for every sequence
 * of the batch. */
static struct oom_val positions(struct oom_tape *t, const struct oom_arch *a, struct layer *l)
{
	const bool grad = t->grad, copied = t->train && a->dropout > 0;
	const struct oom_dim d = D(l->n_pos * a->d_model);
	struct oom_val x, y;

	t->grad = false;
	x = oom_new(t, "pos_emb", t->m_s, d, OOM_F32);
	if (copied) {
		y = oom_new(t, "pos_emb", t->m_bs, d, OOM_F32);
		oom_drop(t, x);
		x = y;
	}
	x.mono = t->m_bs;
	x.perm = !copied;
	t->grad = grad;
	return x;
}

static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	struct oom_val x = oom_op_slice(t, oom_keep(h), t->m_b, D(a->d_model)), loss;

	if (a->extra[PROJECTED])
		x = oom_op_linear(t, "summary", x, D(a->d_model), OOM_BIAS);
	x = oom_op_dropout(t, oom_op_unary(t, OOM_TANH, x), a->classifier_dropout);
	x = oom_op_linear(t, "logits_proj", x, (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	loss = oom_cls_loss(t, a, x);
	oom_drop(t, h);
	return loss;
}

static struct oom_val run(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_kept mems;
	struct layer l = {.a = a, .mask = oom_none(), .mems = &mems};
	struct oom_val word, w, x, hidden, loss;

	mems.n = 0;
	l.n_pos = a->extra[UNI] ? 1 : 2;
	oom_drop(t, oom_param(t, "mask_emb", 0, a->d_model, OOM_P_UNUSED));
	t->scope = "word_embedding";
	word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	w = oom_op_embedding_param(t, word, oom_new(t, "input_ids", t->m_bs, D(1), OOM_I64),
				   a->vocab, D(a->d_model));
	w = oom_input_grads(t, w);
	x = oom_op_dropout(t, oom_keep(w), a->dropout);
	if (a->extra[UNI] || t->plan->padding_mask)
		l.mask = oom_new(t, "non_tgt_mask",
				 t->plan->padding_mask ? t->m_bss : oom_mono_mul(t, t->m_s, t->m_s),
				 D(1), (enum oom_dtype)x.dt);
	l.pos = positions(t, a, &l);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	x = oom_op_copy(t, "contiguous", oom_op_dropout(t, x, a->dropout));
	oom_drop(t, w);
	oom_drop(t, l.mask);
	oom_drop(t, l.pos);
	if (t->task == OOM_TASK_SEQ_CLS) {
		loss = classify(t, a, x);
	} else if (oom_fuses_head(t)) {
		loss = oom_fused_head(t, a, x, word, "lm_loss", true);
	} else {
		hidden = oom_share(t, x);
		loss = oom_plain_lm_loss(t, oom_lm_head(t, a, x, word, "lm_loss", true), false,
					 t->m_bs);
		oom_drop(t, hidden);
	}
	oom_kept_drop(t, &mems);                /* returned with the output */
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_without_checkpointing(t, a, run);
}

const struct oom_family oom_family_xlnet = {
	.name = "xlnet",
	.summary = "relative attention written in einsums",
	.source = "transformers 5.12 models/xlnet/modeling_xlnet.py",
	.types = OOM_TYPE("xlnet"),
	.lora_targets = "layer_1+layer_2",
	.parse = parse,
	.step = step,
};
