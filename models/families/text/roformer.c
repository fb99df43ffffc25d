/* RoFormer: a post-norm encoder (or decoder) with rotary positions from a frozen table, attention
 * written out. Reference: transformers 5.12, models/roformer/modeling_roformer.py. */
#include "blocks/encoder.h"

struct roformer {
	bool causal, rotary_value;
};
OOM_OWN(roformer, struct roformer);

static const struct oom_key_row roformer_keys[] = {
	OOM_BERT_KEYS, LIKE(d_embed, "embedding_size", 1, d_model),
	REAL(classifier_dropout, "hidden_dropout_prob", 0.1),
	FLAG(tie, "tie_word_embeddings", true),
	FLAG_OWN(struct roformer, causal, "is_decoder", false),
	FLAG_OWN(struct roformer, rotary_value, "rotary_value", false), OOM_KEYS_END};

static void roformer_parse(struct oom_arch *a)
{
	oom_check_heads(a);
}

struct roformer_layer {
	const struct oom_arch *a;
	struct oom_val mask, table;
};

/* apply_rotary_position_embeddings: sines and cosines repeated for every two, anew in each layer.
 * Of x, the caller's, the rotated ones take the place. */
static void roformer_rotate(struct oom_tape *t, const struct roformer_layer *l, struct oom_val *x,
			    int n)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), half = D(a->d_model / 2);
	struct oom_frame f = {.t = t};
	struct oom_val sin, cos, odd, even, rot, y;

	sin = oom_name(&f, oom_new_like(t, "stack", l->table, (enum oom_dtype)l->table.dt));
	cos = oom_name(&f, oom_new_like(t, "stack", l->table, (enum oom_dtype)l->table.dt));
	for (int i = 0; i < n; i++) {
		odd = oom_op_slice(t, x[i], x[i].mono, half);
		even = oom_op_slice(t, x[i], x[i].mono, half);
		rot = oom_name(&f, oom_op_cat(t, oom_op_unary(t, OOM_NEG, odd), even, h));
		y = oom_op_mul(t, x[i], cos);
		x[i] = oom_op_add(t, y, oom_op_mul(t, rot, sin));
	}
	oom_leave(&f, oom_none());
}

static struct oom_val roformer_attention(struct oom_tape *t, const struct roformer_layer *l,
					 struct oom_val x, struct oom_frame *caller)
{
	static const char *const names[3] = {"query", "key", "value"};
	const struct oom_arch *a = l->a;
	const int rotated = roformer_of(a)->rotary_value ? 3 : 2;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], given[3];

	at.mask = l->mask;
	at.causal = roformer_of(a)->causal;
	at.softmax_as_is = at.no_cast_back = at.written_out = at.scores_local = true;
	at.caller = caller;
	at.returned = true;
	for (int i = 0; i < 3; i++) {
		p[i] = oom_op_linear(t, names[i], x, D(a->d_model), OOM_BIAS);
		given[i] = p[i] = oom_name(&f, oom_op_heads(t, p[i]));
	}
	roformer_rotate(t, l, p, rotated);
	for (int i = 0; i < rotated; i++)       /* the name is the rotated one's now */
		oom_forget(&f, given[i]);
	if (rotated < 3)
		p[2] = oom_take(&f, p[2]);
	return oom_attention_core(t, &at, p[0], p[1], p[2]);
}

static struct oom_val roformer_block(struct oom_tape *t, const void *ctx, uint32_t i,
				     struct oom_val x)
{
	const struct roformer_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	oom_name(&f, oom_written_weights_before(t, a, i, (enum oom_dtype)x.dt));
	y = roformer_attention(t, l, x, &f);
	x = oom_name(&f, oom_output(t, a->dropout, "LayerNorm", y, x));
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", x, D(a->d_ff), OOM_BIAS));
	return oom_leave(&f, oom_output(t, a->dropout, "LayerNorm", y, x));
}

static struct oom_val roformer_embeddings(struct oom_tape *t, const struct oom_arch *a,
					  struct oom_val *word)
{
	const struct oom_dim e = D(a->d_embed);
	struct oom_frame f = {.t = t};
	struct oom_val w, x;

	w = oom_name(&f, oom_word_embeddings(t, a, "word_embeddings", e, word));
	x = oom_op_add(t, w, oom_name(&f, oom_zero_types(t, a, e)));
	x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	return oom_leave(&f, oom_op_dropout(t, x, a->dropout));
}

static struct oom_val roformer_model(struct oom_tape *t, const struct oom_arch *a,
				     struct oom_val *word)
{
	struct roformer_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x = roformer_embeddings(t, a, word);

	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "embeddings_project", x, D(a->d_model), OOM_BIAS);
	x = oom_name(&f, x);
	l.mask = oom_make_written_mask(t, roformer_of(a)->causal, (enum oom_dtype)x.dt, t->m_b,
				       t->m_s, t->m_s);
	l.mask = oom_name_shared(&f, l.mask);
	t->scope = "embed_positions";
	l.table = oom_param(t, "weight", a->max_positions, a->head_dim,
			    OOM_P_EMBEDDING | OOM_P_FROZEN);
	l.table = oom_op_embedding_param(t, l.table,
					 oom_new(t, "position ids", t->m_s, D(1), OOM_I64),
					 a->max_positions, D(a->head_dim));
	l.table = oom_name_shared(&f, l.table);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, roformer_block, &l, x);
	return oom_leave(&f, x);
}

static struct oom_val roformer_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_embed, .act = a->act, .spare_bias = true};
	struct oom_val word, x = roformer_model(t, a, &word);

	return t->task == OOM_TASK_SEQ_CLS ? oom_cls_head(t, a, a->act, x) :
					     oom_mlm_loss(t, a, &m, x, word);
}

const struct oom_family oom_family_roformer = {
	.name = "roformer",
	.summary = "post-norm encoder with rotary positions from a frozen table",
	.source = "transformers 5.12 models/roformer/modeling_roformer.py",
	.types = OOM_TYPE("roformer"),
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "query+value",
	.keys = roformer_keys,
	.parse = roformer_parse,
	.step = roformer_step,
};
