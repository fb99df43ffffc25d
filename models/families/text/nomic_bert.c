/* Nomic BERT and Jina Embeddings v3: post-norm encoders with rotary positions.
 * Reference: transformers 5.12, models/nomic_bert/modeling_nomic_bert.py,
 * models/jina_embeddings_v3/. */
#include <string.h>

#include "blocks/encoder.h"

enum { JINA };          /* extra[]: biases, a plain feed-forward, RoBERTa's heads */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[JINA] = !strcmp(a->model_type, "jina_embeddings_v3");
	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->type_vocab = oom_read_count_or(r, "type_vocab_size", 2);
	a->act = oom_read_act(r, "hidden_act", a->extra[JINA] ? "gelu" : "silu");
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	a->qkv_bias = a->o_bias = a->extra[JINA];
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
	struct oom_rope rope;
};

/* norm(residual + dropout(y)) */
static struct oom_val join(struct oom_tape *t, const struct oom_arch *a, const char *norm,
			   struct oom_val y, struct oom_val x)
{
	struct oom_val d = oom_op_dropout(t, y, a->dropout);

	return oom_op_layer_norm(t, norm, oom_op_add(t, x, d), 0, true, true);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_rope rope = l->rope;
	struct oom_val attn, y, weights = oom_none();

	(void)i;
	at.mask = l->mask;
	at.weights = &weights;
	at.rope = &rope;
	at.causal = false;
	at.softmax_as_is = at.no_cast_back = true;
	attn = oom_attention(t, &at, oom_keep(x));
	x = join(t, a, "post_attention_layernorm", oom_keep(attn), x);
	y = a->extra[JINA] ? oom_plain_mlp(t, oom_keep(x), "fc1", "fc2", a->act, D(a->d_ff), true) :
			     oom_gated_mlp(t, oom_keep(x), a->act, D(a->d_ff), false);
	y = join(t, a, "post_mlp_layernorm", y, oom_keep(x));
	/* residual, attention_output, _: locals of the layer */
	oom_drop(t, x);
	oom_drop(t, attn);
	oom_drop(t, weights);
	return y;
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	struct oom_val types, x, tt;

	oom_buffer(t, a->max_positions, OOM_I64);
	oom_buffer(t, a->max_positions, OOM_I64);
	types = oom_new(t, "token type ids", t->m_s, D(1), OOM_I64);
	types.mono = t->m_bs;
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	tt = oom_op_embedding(t, "token_type_embeddings", types, a->type_vocab, D(a->d_model), 0);
	x = oom_op_add(t, x, oom_keep(tt));
	x = oom_op_dropout(t, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true), a->dropout);
	oom_drop(t, tt);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_mlm m = {.d = a->d_model,
				  .act = a->extra[JINA] ? OOM_ACT_GELU : a->act,
				  .spare_bias = true};
	struct layer l = {.a = a};
	struct oom_val ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64), word,
		       x = embeddings(t, a, &word), first;

	l.mask = oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	first = oom_share(t, x);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop(t, ids);
	oom_drop(t, first);
	if (t->task == OOM_TASK_SEQ_CLS)
		return a->extra[JINA] ? oom_cls_head(t, a, OOM_ACT_TANH, x) :
					oom_pooler_head(t, a, x);
	return oom_mlm_loss(t, a, &m, x, word);
}

static const struct oom_family_type types[] = {
	{"nomic_bert", NULL}, {"jina_embeddings_v3", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_nomic_bert = {
	.name = "nomic_bert",
	.summary = "post-norm encoder with rotary positions",
	.source = "transformers 5.12 models/nomic_bert/modeling_nomic_bert.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
