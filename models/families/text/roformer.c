/* RoFormer: a post-norm encoder (or decoder) with rotary positions from a frozen table, attention
 * written out. Reference: transformers 5.12, models/roformer/modeling_roformer.py. */
#include "blocks/encoder.h"

enum { CAUSAL, ROTARY_VALUE };  /* extra[] */

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
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->type_vocab = oom_read_count_or(r, "type_vocab_size", 2);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = a->classifier_dropout = oom_read_real(r, "hidden_dropout_prob", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[CAUSAL] = oom_read_bool(r, "is_decoder", false);
	a->extra[ROTARY_VALUE] = oom_read_bool(r, "rotary_value", false);
	if (a->d_model % a->n_heads)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask, table;
};

/* Sines and cosines repeated for every two, anew in each layer; what is rotated stays a local
 * until all of them are. */
static void rotate(struct oom_tape *t, const struct layer *l, struct oom_val *x, int n)
{
	const struct oom_arch *a = l->a;
	struct oom_rope r;
	struct oom_val old[3], rot[3];

	r.sin = oom_new_like(t, "stack", l->table, (enum oom_dtype)l->table.dt);
	r.cos = oom_new_like(t, "stack", l->table, (enum oom_dtype)l->table.dt);
	for (int i = 0; i < n; i++) {
		struct oom_val odd = oom_op_slice(t, oom_keep(x[i]), x[i].mono, D(a->d_model / 2));
		struct oom_val even = oom_op_slice(t, oom_keep(x[i]), x[i].mono, D(a->d_model / 2)),
			       y;

		rot[i] = oom_op_cat(t, oom_op_unary(t, OOM_NEG, odd), even, D(a->d_model));
		y = oom_op_mul(t, oom_keep(x[i]), oom_keep(r.cos));
		old[i] = x[i];
		x[i] = oom_op_add(t, y, oom_op_mul(t, oom_keep(rot[i]), oom_keep(r.sin)));
		/* the name query_layer is the rotated one's now; the caller has its own */
		oom_drop(t, old[i]);
	}
	for (int i = 0; i < n; i++)
		oom_drop(t, rot[i]);
	oom_drop(t, r.sin);
	oom_drop(t, r.cos);
}

static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val x,
			     struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	static const char *const names[3] = {"query", "key", "value"};
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val p[3], caller[3];

	at.mask = l->mask;
	at.causal = a->extra[CAUSAL];
	at.softmax_as_is = at.no_cast_back = at.written_out = at.scores_local = true;
	at.weights = weights;
	for (int i = 0; i < 3; i++) {
		p[i] = oom_op_heads(t, oom_op_linear(t, names[i], oom_keep(x), D(a->d_model),
						     OOM_BIAS));
		caller[i] = oom_share(t, p[i]);
	}
	rotate(t, l, p, a->extra[ROTARY_VALUE] ? 3 : 2);
	for (int i = 0; i < 3; i++)
		oom_drop(t, caller[i]);
	return oom_attention_core(t, &at, p[0], p[1], p[2]);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val y, weights = oom_none(), before = oom_none();

	/* the caller keeps a layer's (hidden, weights) until the next layer has returned its own */
	if (i && !t->recompute && (!t->grad || t->packing || (t->amp && a->attn_dropout > 0)))
		before = oom_new(t, "attention weights of the layer before", t->m_bss,
				 D(a->n_heads), t->amp ? OOM_F32 : (enum oom_dtype)x.dt);
	y = attend(t, l, x, &weights);
	x = oom_output(t, a->dropout, "LayerNorm", y, x);
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", oom_keep(x), D(a->d_ff), OOM_BIAS));
	x = oom_output(t, a->dropout, "LayerNorm", y, x);
	oom_drop(t, weights);
	oom_drop(t, before);
	return x;
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const struct oom_dim e = D(a->d_embed);
	struct oom_val w, tt, x;

	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_embed, OOM_P_EMBEDDING);
	w = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, e);
	w = oom_input_grads(t, w);
	tt = oom_op_embedding(t, "token_type_embeddings",
			      oom_new(t, "zeros", t->m_bs, D(1), OOM_I64), a->type_vocab, e, 0);
	x = oom_op_layer_norm(t, "LayerNorm", oom_op_add(t, oom_keep(w), oom_keep(tt)), 0, true,
			      true);
	x = oom_op_dropout(t, x, a->dropout);
	oom_drop(t, w);
	oom_drop(t, tt);
	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "embeddings_project", x, D(a->d_model), OOM_BIAS);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_embed, .act = a->act, .spare_bias = true};
	struct layer l = {.a = a};
	struct oom_val word, x = embeddings(t, a, &word), first;

	l.mask = oom_make_written_mask(t, a->extra[CAUSAL], (enum oom_dtype)x.dt, t->m_b, t->m_s,
				       t->m_s);
	t->scope = "embed_positions";
	l.table = oom_param(t, "weight", a->max_positions, a->head_dim,
			    OOM_P_EMBEDDING | OOM_P_FROZEN);
	l.table = oom_op_embedding_param(t, l.table,
					 oom_new(t, "position ids", t->m_s, D(1), OOM_I64),
					 a->max_positions, D(a->head_dim));
	first = oom_share(t, x);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.table);
	oom_drop(t, first);
	return t->task == OOM_TASK_SEQ_CLS ? oom_cls_head(t, a, a->act, x) :
					     oom_mlm_loss(t, a, &m, x, word);
}

const struct oom_family oom_family_roformer = {
	.name = "roformer",
	.summary = "post-norm encoder with rotary positions from a frozen table",
	.source = "transformers 5.12 models/roformer/modeling_roformer.py",
	.types = OOM_TYPE("roformer"),
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
