/* DeBERTa, the first version: disentangled attention from one projection, layer norms written out.
 * Reference: transformers 5.12, models/deberta/modeling_deberta.py. */
#include "deberta.h"

/* extra[]: rows of relative positions to either side (0: none), the terms of the scores, positions
 * in the input, the older language model head */
enum { SPAN, C2P, P2C, BIASED, LEGACY };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	double span;

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_embed = oom_read_count_or(r, "embedding_size", a->d_model);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->type_vocab = oom_read_count_or(r, "type_vocab_size", 0);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->classifier_dropout = oom_read_real(r, "cls_dropout", a->dropout);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[BIASED] = oom_read_bool(r, "position_biased_input", true);
	a->extra[LEGACY] = oom_read_bool(r, "legacy", true);
	/* the newer head multiplies by the embeddings themselves */
	if (!a->extra[LEGACY])
		a->tie = true;
	span = oom_read_real(r, "max_relative_positions", -1);
	span = span < 1 ? (double)a->max_positions : span;
	if (oom_read_bool(r, "relative_attention", false)) {
		if (!(span >= 1 && span <= 1 << 24))
			oom_read_fail(r, "max_relative_positions is %g", span);
		else
			a->extra[SPAN] = (uint64_t)span;
	}
	oom_deberta_terms(r, &a->extra[C2P], &a->extra[P2C]);
	if (a->d_model % a->n_heads)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
	if (oom_read_bool(r, "talking_head", false))
		oom_read_fail(r, "deberta with talking heads (talking_head) is not modelled");
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask, rel_pos, rel;
	struct oom_kept *kept;
};

/* DebertaLayerNorm: mean and variance in fp32, the difference made twice; the argument is the
 * caller's meanwhile. */
static struct oom_val norm(struct oom_tape *t, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const char *scope = t->scope;
	struct oom_val w, b, f, mean, v, y;

	t->scope = "LayerNorm";
	w = oom_param(t, "weight", 0, x.width, OOM_P_NORM);
	b = oom_param(t, "bias", 0, x.width, OOM_P_NORM);
	f = oom_op_cast(t, oom_keep(x), OOM_F32);
	mean = oom_op_mean(t, oom_keep(f), f.mono, D(1));
	v = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, oom_op_add(t, oom_keep(f), oom_keep(mean))),
			f.mono, D(1));
	y = oom_op_add(t, oom_keep(f), oom_keep(mean));
	y = oom_op_div(t, y,
		       oom_op_unary(t, OOM_SQRT, oom_op_unary(t, OOM_ADD_SCALAR, oom_keep(v))));
	oom_drop(t, f);
	y = oom_op_cast(t, y, dt);
	f = oom_op_add(t, oom_op_mul(t, w, oom_keep(y)), b);
	oom_drop(t, y);
	oom_drop(t, mean);
	oom_drop(t, v);
	oom_done(t, x);
	t->scope = scope;
	return f;
}

/* disentangled_att_bias: two terms over 2 x min(s, span) relative positions; matmul copies what
 * it broadcasts. */
static struct oom_val relative_scores(struct oom_tape *t, const struct layer *l, struct oom_val q,
				      struct oom_val k)
{
	const struct oom_arch *a = l->a;
	const uint16_t rows = oom_len_min(t, OOM_MONO_ONE, a->extra[SPAN]);
	const uint16_t wide = oom_mono_mul(t, t->m_bs, rows), each = oom_mono_mul(t, t->m_b, rows);
	const struct oom_dim h2 = D(2 * a->d_model), heads2 = D(2 * a->n_heads);
	struct oom_val rel = oom_op_dropout(t, oom_share(t, l->rel), a->dropout),
		       score = oom_none(), x;
	struct oom_val held[6];
	int n = 0;

	rel = oom_op_slice(t, rel, rows, h2);
	for (int term = 0; term < 2; term++) {
		if (!a->extra[term ? P2C : C2P])
			continue;
		x = oom_op_linear_in(t, term ? "pos_q_proj" : "pos_proj", oom_keep(rel), a->d_model,
				     D(a->d_model), term ? OOM_BIAS : 0);
		x.width = h2.n;                 /* both sides */
		held[n++] = oom_share(t, x);
		x = oom_op_expand_copy(t, x, each, h2);
		held[n++] = oom_relative_positions(t, term);
		x = oom_op_bmm(t, term ? "p2c" : "c2p", oom_keep(term ? k : q), x, wide, heads2,
			       a->head_dim);
		x = oom_deberta_look_up(t, a->n_heads, x, held[n - 1]);
		held[n++] = oom_share(t, x);
		score = oom_is_none(score) ? oom_op_unary(t, OOM_ADD_SCALAR, x) :
					     oom_op_add_inplace(t, score, x);
	}
	while (n)
		oom_drop(t, held[--n]);
	oom_drop(t, rel);
	return score;
}

/* DisentangledSelfAttention.forward: what has a name lives until the module returns. */
static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h}, heads = D(a->n_heads);
	struct oom_val qp, p[3], s, w, bias = oom_none(), keep, not;

	qp = oom_op_linear(t, "in_proj", oom_keep(x), D(3 * a->d_model), 0);
	oom_op_split(t, oom_op_heads(t, oom_keep(qp)), 3, parts, p);
	p[0] = oom_op_add(t, p[0], oom_param(t, "q_bias", 0, a->d_model, OOM_P_FP32));
	p[2] = oom_op_add(t, p[2], oom_param(t, "v_bias", 0, a->d_model, OOM_P_FP32));
	p[0] = oom_op_unary(t, OOM_SCALE, p[0]);
	s = oom_op_bmm(t, "scores", oom_keep(p[0]), oom_keep(p[1]), t->m_bss, heads, a->head_dim);
	if (a->extra[SPAN])
		bias = relative_scores(t, l, p[0], p[1]);
	s = oom_is_none(bias) ? oom_op_unary(t, OOM_ADD_SCALAR, s) :
				oom_op_add(t, s, oom_keep(bias));
	keep = oom_new(t, "attention_mask.bool()", t->m_bss, D(1), OOM_U8);
	not = oom_new(t, "bitwise_not", t->m_bss, D(1), OOM_U8);
	s = oom_op_masked(t, "masked_fill", s, not);
	w = oom_op_dropout(t, oom_op_softmax(t, oom_keep(s), false), a->attn_dropout);
	x = oom_op_merge_heads(t, oom_op_bmm(t, "context", oom_keep(w), oom_keep(p[2]), t->m_bs, h,
					     oom_mono_now(t, t->m_s)));
	oom_drop(t, w);
	oom_drop(t, s);
	oom_drop(t, keep);
	oom_drop(t, bias);
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	oom_drop(t, qp);
	return x;
}

static struct oom_val output(struct oom_tape *t, const struct oom_arch *a, struct oom_val from,
			     struct oom_val input)
{
	struct oom_val h = oom_op_dropout(t,
					  oom_op_linear(t, "dense", oom_keep(from), D(a->d_model),
							OOM_BIAS),
					  a->dropout),
		       y;

	y = norm(t, oom_op_add(t, oom_keep(h), oom_keep(input)));
	oom_drop(t, h);
	oom_done(t, from);
	oom_done(t, input);
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	struct oom_val y;

	(void)i;
	x = output(t, l->a, attend(t, l, x), x);
	y = oom_activation(t, l->a->act,
			   oom_op_linear(t, "dense", oom_keep(x), D(l->a->d_ff), OOM_BIAS));
	x = output(t, l->a, y, x);
	oom_kept_add(t, l->kept, x);            /* output_hidden_states=True, always */
	return x;
}

static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	struct oom_reader r = a->rd;
	const double p = oom_read_real(&r, "pooler_dropout", 0);
	struct oom_val x = oom_op_dropout(t, oom_op_slice(t, oom_keep(h), t->m_b, D(a->d_model)),
					  p),
		       loss;

	x = oom_op_linear(t, "dense", x, D(a->d_model), OOM_BIAS);
	x = oom_op_dropout(t, oom_op_unary(t, OOM_GELU, x), a->classifier_dropout);
	x = oom_op_linear(t, "classifier", x, (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	loss = oom_cls_loss(t, a, x);
	oom_drop(t, h);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->extra[LEGACY] ? a->d_embed : a->d_model,
				  .act = a->act,
				  .spare_bias = true,
				  .add_bias = !a->extra[LEGACY]};
	struct oom_kept kept;
	struct layer l = {.a = a, .rel_pos = oom_none(), .rel = oom_none(), .kept = &kept};
	struct oom_val word, x = oom_deberta_embeddings(t, a, a->extra[BIASED], norm, &word), first;

	kept.n = 0;
	l.mask = oom_new(t, "attention_mask", t->m_bss, D(1),
			 t->plan->padding_mask ? OOM_I64 : OOM_F32);
	if (a->extra[SPAN]) {
		l.rel_pos = oom_new(t, "relative_pos", oom_mono_mul(t, t->m_s, t->m_s), D(1),
				    OOM_I64);
		t->scope = "rel_embeddings";
		l.rel = oom_param(t, "weight", 2 * a->extra[SPAN], a->d_model, OOM_P_EMBEDDING);
	}
	first = oom_share(t, x);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.rel_pos);
	oom_kept_drop(t, &kept);
	oom_drop(t, first);
	return t->task == OOM_TASK_SEQ_CLS ? classify(t, a, x) : oom_mlm_loss(t, a, &m, x, word);
}

const struct oom_family oom_family_deberta_v1 = {
	.name = "deberta_v1",
	.summary = "post-norm encoder with disentangled attention, the first version",
	.source = "transformers 5.12 models/deberta/modeling_deberta.py",
	.types = OOM_TYPE("deberta"),
	.lora_targets = "in_proj",
	.parse = parse,
	.step = step,
};
