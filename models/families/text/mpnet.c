/* MPNet: a post-norm encoder whose scores get a learned bias of relative positions, attention
 * written out. Reference: transformers 5.12, models/mpnet/modeling_mpnet.py. */
#include "blocks/encoder.h"

enum { BUCKETS };       /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = a->classifier_dropout = oom_read_real(r, "hidden_dropout_prob", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[BUCKETS] = oom_read_count_or(r, "relative_attention_num_buckets", 32);
	if (a->d_model % a->n_heads)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask, bias;
};

/* MPNetSelfAttention: q, k, v, the scores and the context are locals until the output projection
 * is done. */
static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = {a->n_heads, "n_heads"};
	struct oom_val p[3], s, w, y;
	static const char *const names[3] = {"q", "k", "v"};

	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, oom_op_linear(t, names[i], oom_keep(x), h, OOM_BIAS));
	s = oom_op_unary(t, OOM_SCALE,
			 oom_op_bmm(t, "scores", oom_keep(p[0]), oom_keep(p[1]), t->m_bss, heads,
				    a->head_dim));
	s = oom_op_add_inplace(t, s, oom_keep(l->bias));
	if (!oom_is_none(l->mask))
		s = oom_op_add(t, s, oom_keep(l->mask));
	w = oom_op_dropout(t, oom_op_softmax(t, oom_keep(s), false), a->attn_dropout);
	y = oom_op_merge_heads(t, oom_op_bmm(t, "attention", oom_keep(w), oom_keep(p[2]), t->m_bs,
					     h, oom_mono_now(t, t->m_s)));
	x = oom_op_linear(t, "o", oom_keep(y), h, OOM_BIAS);
	oom_drop(t, y);
	oom_drop(t, w);
	oom_drop(t, s);
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	return x;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val o = attend(t, l, x), y;

	(void)i;
	y = oom_op_add(t, oom_op_dropout(t, oom_keep(o), a->dropout), x);
	x = oom_op_layer_norm(t, "LayerNorm", y, 0, true, true);
	oom_drop(t, o);
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", oom_keep(x), D(a->d_ff), OOM_BIAS));
	return oom_output(t, a->dropout, "LayerNorm", y, x);
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	struct oom_val pos = oom_positions_from_ids(t), w, e, x;

	oom_buffer(t, a->max_positions, OOM_I64);
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	w = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, D(a->d_model));
	w = oom_input_grads(t, w);
	e = oom_op_embedding(t, "position_embeddings", pos, a->max_positions, D(a->d_model), 0);
	x = oom_op_layer_norm(t, "LayerNorm", oom_op_add(t, oom_keep(w), oom_keep(e)), 0, true,
			      true);
	x = oom_op_dropout(t, x, a->dropout);
	oom_drop(t, w);
	oom_drop(t, e);
	return x;
}

/* One table of buckets read for every pair, permuted, repeated over the batch. */
static struct oom_val relative_bias(struct oom_tape *t, const struct oom_arch *a)
{
	const uint16_t plane = oom_mono_mul(t, t->m_s, t->m_s);
	struct oom_val x = oom_op_embedding(t, "relative_attention_bias",
					    oom_new(t, "rp_bucket", plane, D(1), OOM_I64),
					    a->extra[BUCKETS], D(a->n_heads), 0);

	return oom_op_expand_copy(t, x, t->m_bss, D(a->n_heads));
}

static struct oom_val run(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_model, .act = OOM_ACT_GELU, .spare_bias = true};
	struct layer l = {.a = a};
	struct oom_val word, x = embeddings(t, a, &word), first;

	l.mask = oom_make_written_mask(t, false, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.bias = relative_bias(t, a);
	first = oom_share(t, x);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop(t, l.bias);
	oom_drop(t, l.mask);
	oom_drop(t, first);
	return t->task == OOM_TASK_SEQ_CLS ? oom_cls_head(t, a, OOM_ACT_TANH, x) :
					     oom_mlm_loss(t, a, &m, x, word);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_without_checkpointing(t, a, run);
}

const struct oom_family oom_family_mpnet = {
	.name = "mpnet",
	.summary = "post-norm encoder with a learned bias of relative positions",
	.source = "transformers 5.12 models/mpnet/modeling_mpnet.py",
	.types = OOM_TYPE("mpnet"),
	.lora_targets = "q+v",
	.parse = parse,
	.step = step,
};
