/* EuroBERT: Llama's layers without causality, for masked words and classes.
 * Reference: transformers 5.12, models/eurobert/modeling_eurobert.py. */
#include <string.h>

#include "blocks/encoder.h"

enum { POOLING };               /* extra[] */
enum { LATE, FIRST, MEAN };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *pool = oom_read_string(r, "classifier_pooling", "late");

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->norm = OOM_NORM_RMS;
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", false);
	a->mlp_bias = oom_read_bool(r, "mlp_bias", false);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->extra[POOLING] = pool && !strcmp(pool, "bos")  ? FIRST :
			    pool && !strcmp(pool, "mean") ? MEAN :
							    LATE;
	if (!a->n_kv_heads || a->n_heads % a->n_kv_heads)
		oom_read_fail(r,
			      "num_attention_heads (%llu) is not a multiple of num_key_value_heads "
			      "(%llu)",
			      (unsigned long long)a->n_heads, (unsigned long long)a->n_kv_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
	struct oom_rope rope;
};

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_rope rope = l->rope;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val y, weights = oom_none();

	(void)i;
	at.mask = l->mask;
	at.rope = &rope;
	at.causal = false;
	at.weights = &weights;
	y = oom_attention(t, &at, oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0));
	x = oom_op_add(t, x, y);
	y = oom_gated_mlp(t, oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0),
			  a->act, D(a->d_ff), a->mlp_bias);
	x = oom_op_add(t, x, y);
	oom_drop(t, weights);                   /* "hidden_states, _ = self.self_attn(...)" */
	return x;
}

/* Pooled before the head, or after it ("late"); the mean is over what the mask leaves. */
static struct oom_val pool(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim w = {x.width, x.text};

	if (a->extra[POOLING] == FIRST)
		return oom_op_slice(t, x, t->m_b, w);
	if (!t->plan->padding_mask)
		return oom_op_mean(t, x, t->m_b, w);
	x = oom_op_mul(t, x, oom_input(t, "attention_mask", t->m_bs, 1, OOM_I64));
	return oom_op_unary(t, OOM_SCALE, oom_op_sum(t, x, t->m_b, w));
}

static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	const bool late = a->extra[POOLING] == LATE;
	struct oom_val x = late ? oom_share(t, h) : pool(t, a, oom_share(t, h)), y, loss;

	x = oom_op_linear(t, "dense", x, D(a->d_model), OOM_BIAS);
	x = oom_op_unary(t, OOM_GELU, x);
	y = oom_op_linear(t, "classifier", oom_keep(x), (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	if (late)
		y = pool(t, a, y);
	loss = oom_cls_loss(t, a, y);
	oom_drop(t, x);
	oom_drop(t, h);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct layer l = {.a = a};
	struct oom_val word, x, first, ids, hidden, loss;

	t->scope = "embed_tokens";
	word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	/* inputs_embeds and position_ids, locals of the model */
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask = oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	if (t->task == OOM_TASK_SEQ_CLS)
		return classify(t, a, x);
	if (oom_fuses_head(t))
		return oom_fused_head(t, a, x, word, "lm_head", a->mlp_bias);
	hidden = oom_share(t, x);
	loss = oom_plain_lm_loss(t, oom_lm_head(t, a, x, word, "lm_head", a->mlp_bias), true,
				 t->m_bs);
	oom_drop(t, hidden);
	return loss;
}

const struct oom_family oom_family_eurobert = {
	.name = "eurobert",
	.summary = "pre-norm encoder with rotary positions, gated feed-forward, RMS norms",
	.source = "transformers 5.12 models/eurobert/modeling_eurobert.py",
	.types = OOM_TYPE("eurobert"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
