/* SqueezeBERT: BERT with grouped convolutions of one position in place of linear layers, on [b,
 * channels, s]. Reference: transformers 5.12, models/squeezebert/modeling_squeezebert.py. */
#include "blocks/encoder.h"

enum { Q, K, V, POST, FF, OUT };        /* extra[]: groups of the convolutions */

static void parse(struct oom_arch *a)
{
	static const char *const keys[] = {"q_groups",
					   "k_groups",
					   "v_groups",
					   "post_attention_groups",
					   "intermediate_groups",
					   "output_groups"};
	struct oom_reader *r = &a->rd;

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
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
	for (int i = 0; i < 6; i++) {
		a->extra[i] = oom_read_count_or(r, keys[i], i == POST ? 1 : 4);
		if (!a->extra[i] || a->d_model % a->extra[i] || a->d_ff % a->extra[i])
			oom_read_fail(r,
				      "%s (%llu) does not divide hidden_size and intermediate_size",
				      keys[i], (unsigned long long)a->extra[i]);
	}
	if (a->d_model % a->n_heads)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

static struct oom_val conv(struct oom_tape *t, const char *name, struct oom_val x, uint64_t groups,
			   struct oom_dim out)
{
	x.perm = false;                         /* what autograd keeps is the view */
	return oom_op_conv_adapted(t, name, x, groups, true, out);
}

/* ConvDropoutLayerNorm: the norm runs over permuted views. */
static struct oom_val output(struct oom_tape *t, const struct oom_arch *a, uint64_t groups,
			     struct oom_val from, struct oom_val input)
{
	struct oom_val x = oom_op_dropout(t,
					  conv(t, "conv1d", oom_keep(from), groups, D(a->d_model)),
					  a->dropout),
		       sum;

	sum = oom_op_add(t, x, oom_keep(input));
	sum.perm = false;
	x = oom_op_copy(t, "contiguous", oom_op_heads(t, sum));
	x = oom_op_layer_norm(t, "layernorm", x, 0, true, true);
	x.perm = true;
	oom_done(t, from);
	oom_done(t, input);
	return x;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	static const char *const names[3] = {"query", "key", "value"};
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val p[3], context, y;

	(void)i;
	at.mask = l->mask;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = at.written_out = at.scores_local = true;
	for (int k = 0; k < 3; k++)
		p[k] = oom_op_heads(t, conv(t, names[k], oom_keep(x), a->extra[k], D(a->d_model)));
	p[K].perm = false;                      /* [b, heads, d, s]: as it lies */
	context = oom_attention_core(t, &at, p[0], p[1], p[2]);
	x = output(t, a, a->extra[POST], oom_keep(context), x);
	y = oom_activation(t, a->act, conv(t, "conv1d", oom_keep(x), a->extra[FF], D(a->d_ff)));
	y = output(t, a, a->extra[OUT], y, x);
	oom_drop(t, context);                   /* a name of the layer until it returns */
	return y;
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val w, pos, tt, x;

	oom_buffer(t, a->max_positions, OOM_I64);
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	w = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, h);
	w = oom_input_grads(t, w);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
			       h, 0);
	tt = oom_op_embedding(t, "token_type_embeddings",
			      oom_new(t, "zeros", t->m_bs, D(1), OOM_I64), a->type_vocab, h, 0);
	x = oom_op_add(t, oom_op_add(t, oom_keep(w), oom_keep(pos)), oom_keep(tt));
	x = oom_op_dropout(t, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true), a->dropout);
	oom_drop(t, w);
	oom_drop(t, pos);
	oom_drop(t, tt);
	return x;
}

static struct oom_val run(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_model, .act = a->act, .spare_bias = true};
	struct layer l = {.a = a};
	struct oom_val word, x = embeddings(t, a, &word), first;

	l.mask = oom_make_written_mask(t, false, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	first = oom_share(t, x);
	x.perm = true;
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	x.perm = false;
	oom_drop(t, l.mask);
	oom_drop(t, first);
	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_pooler_head(t, a, x);
	oom_idle_pooler(t, a, x);
	return oom_mlm_loss(t, a, &m, x, word);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_without_checkpointing(t, a, run);
}

const struct oom_family oom_family_squeezebert = {
	.name = "squeezebert",
	.summary = "BERT with grouped convolutions in place of linear layers",
	.source = "transformers 5.12 models/squeezebert/modeling_squeezebert.py",
	.types = OOM_TYPE("squeezebert"),
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
