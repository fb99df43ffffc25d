/* MPNet: a post-norm encoder whose scores get a learned bias of relative positions, attention
 * written out. Reference: transformers 5.12, models/mpnet/modeling_mpnet.py. */
#include "blocks/encoder.h"
#include "blocks/tokens.h"

struct mpnet {
	uint64_t buckets;               /* of relative positions */
};
OOM_OWN(mpnet, struct mpnet);

static const struct oom_key_row mpnet_keys[] = {
	OOM_ENCODER_KEYS, ACT(act, "hidden_act", "gelu"), REAL(dropout, "hidden_dropout_prob", 0.1),
	REAL(classifier_dropout, "hidden_dropout_prob", 0.1),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0.1),
	FLAG(tie, "tie_word_embeddings", true),
	OR_OWN(struct mpnet, buckets, "relative_attention_num_buckets", 32), OOM_KEYS_END};

static void mpnet_parse(struct oom_arch *a)
{
	oom_check_heads(a);
}

struct mpnet_layer {
	const struct oom_arch *a;
	struct oom_val mask, bias;
};

/* MPNetSelfAttention.forward */
static struct oom_val mpnet_attention(struct oom_tape *t, const struct mpnet_layer *l,
				      struct oom_val x)
{
	static const char *const names[3] = {"q", "k", "v"};
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = {a->n_heads, "n_heads"};
	struct oom_frame f = {.t = t};
	struct oom_val p[3], s, w, y;

	for (int i = 0; i < 3; i++)
		p[i] = oom_name(&f, oom_op_heads(t, oom_op_linear(t, names[i], x, h, OOM_BIAS)));
	s = oom_op_bmm(t, "scores", p[0], p[1], t->m_bss, heads, a->head_dim);
	s = oom_op_add_inplace(t, oom_op_unary(t, OOM_SCALE, s), l->bias);
	if (!oom_is_none(l->mask))
		s = oom_op_add(t, s, l->mask);
	s = oom_name(&f, s);
	w = oom_name(&f, oom_op_dropout(t, oom_op_softmax(t, s, false), a->attn_dropout));
	y = oom_op_bmm(t, "attention", w, p[2], t->m_bs, h, oom_mono_now(t, t->m_s));
	y = oom_name(&f, oom_op_merge_heads(t, y));
	return oom_leave(&f, oom_op_linear(t, "o", y, h, OOM_BIAS));
}

static struct oom_val mpnet_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct mpnet_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val o = oom_name(&f, mpnet_attention(t, l, x)), y;

	(void)i;
	y = oom_op_add(t, oom_op_dropout(t, o, a->dropout), x);
	x = oom_rename(&f, o, oom_op_layer_norm(t, "LayerNorm", y, 0, true, true));
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", x, D(a->d_ff), OOM_BIAS));
	return oom_leave(&f, oom_output(t, a->dropout, "LayerNorm", y, x));
}

static struct oom_val mpnet_embeddings(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val *word)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_frame f = {.t = t};
	struct oom_val pos = oom_positions_from_ids(t), w, x;

	oom_buffer(t, a->max_positions, OOM_I64);
	w = oom_name(&f, oom_word_embeddings(t, a, "word_embeddings", h, word));
	pos = oom_op_embedding(t, "position_embeddings", pos, a->max_positions, h, 0);
	x = oom_op_add(t, w, oom_name(&f, pos));
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	return oom_leave(&f, oom_op_dropout(t, x, a->dropout));
}

/* One table of buckets read for every pair, permuted, repeated over the batch. */
static struct oom_val mpnet_bias(struct oom_tape *t, const struct oom_arch *a)
{
	const uint16_t plane = oom_mono_mul(t, t->m_s, t->m_s);
	struct oom_val x = oom_op_embedding(t, "relative_attention_bias",
					    oom_new(t, "rp_bucket", plane, D(1), OOM_I64),
					    mpnet_of(a)->buckets, D(a->n_heads), 0);

	return oom_op_expand_copy(t, x, t->m_bss, D(a->n_heads));
}

static struct oom_val mpnet_model(struct oom_tape *t, const struct oom_arch *a,
				  struct oom_val *word)
{
	struct mpnet_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_name(&f, mpnet_embeddings(t, a, word));

	l.mask = oom_make_written_mask(t, false, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.mask = oom_name(&f, l.mask);
	l.bias = oom_name(&f, mpnet_bias(t, a));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, mpnet_block, &l, x);
	return oom_leave(&f, x);
}

static struct oom_val mpnet_run(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_model, .act = OOM_ACT_GELU, .spare_bias = true,
				  .owner = "lm_head", .norm = "layer_norm"};
	struct oom_val word, x = mpnet_model(t, a, &word);

	if (t->task == OOM_TASK_EMBEDDING)
		oom_discard(t, oom_idle_pooler(t, a, x));
	if (oom_tokens_asked(t))
		return oom_tokens_head(t, &(struct oom_tokens){.name = "classifier", .dropout = a->dropout}, x);
	return t->task == OOM_TASK_SEQ_CLS ? oom_cls_head(t, a, OOM_ACT_TANH, x) :
					     oom_mlm_loss(t, a, &m, x, word);
}

static struct oom_val mpnet_step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_without_checkpointing(t, a, mpnet_run);
}

const struct oom_family oom_family_mpnet = {
	.name = "mpnet",
	.summary = "post-norm encoder with a learned bias of relative positions",
	.source = "transformers 5.12 models/mpnet/modeling_mpnet.py",
	.types = OOM_TYPE("mpnet"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "q+v",
	.keys = mpnet_keys,
	.parse = mpnet_parse,
	.step = mpnet_step,
};
