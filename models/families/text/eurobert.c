/* EuroBERT: Llama's layers without causality, for masked words and classes.
 * Reference: transformers 5.12, models/eurobert/modeling_eurobert.py. */
#include <string.h>

#include "blocks/encoder.h"

struct eurobert {
	enum { EUROBERT_LATE, EUROBERT_FIRST, EUROBERT_MEAN } pooling;
};
OOM_OWN(eurobert, struct eurobert);

static const struct oom_key_row eurobert_keys[] = {
	OOM_DECODER_KEYS, OOM_GROUPED_KEYS, MUST(d_ff, "intermediate_size"),
	ACT(act, "hidden_act", "silu"), REAL(attn_dropout, "attention_dropout", 0),
	OOM_BIAS_KEYS(false), FLAG(mlp_bias, "mlp_bias", false),
	FLAG(tie, "tie_word_embeddings", false), OOM_KEYS_END};

static void eurobert_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *pool = oom_read_string(r, "classifier_pooling", "late");

	eurobert_own(a)->pooling = pool && !strcmp(pool, "bos")  ? EUROBERT_FIRST :
				   pool && !strcmp(pool, "mean") ? EUROBERT_MEAN :
								   EUROBERT_LATE;
	if (!a->n_kv_heads || a->n_heads % a->n_kv_heads)
		oom_read_fail(r,
			      "num_attention_heads (%llu) is not a multiple of num_key_value_heads "
			      "(%llu)",
			      (unsigned long long)a->n_heads, (unsigned long long)a->n_kv_heads);
}

static struct oom_val eurobert_block(struct oom_tape *t, const void *ctx, uint32_t i,
				     struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_rope rope = l->rope;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	at.mask = l->mask;
	at.rope = &rope;
	at.causal = false;
	at.caller = &f;                         /* "hidden_states, _ = self.self_attn(...)" */
	y = oom_attention(t, &at, oom_norm(t, a->norm, "input_layernorm", x, 0));
	x = oom_name(&f, oom_op_add(t, x, y));
	y = oom_gated_mlp(t, oom_norm(t, a->norm, "post_attention_layernorm", x, 0), a->act,
			  D(a->d_ff), a->mlp_bias);
	return oom_leave(&f, oom_op_add(t, x, y));
}

/* Pooled before the head, or after it ("late"); the mean is over what the mask leaves. */
static struct oom_val eurobert_pool(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim w = {x.width, x.text};

	if (eurobert_of(a)->pooling == EUROBERT_FIRST)
		return oom_op_slice(t, x, t->m_b, w);
	if (!t->plan->padding_mask)
		return oom_op_mean(t, x, t->m_b, w);
	x = oom_op_mul(t, x, oom_input(t, "attention_mask", t->m_bs, 1, OOM_I64));
	return oom_op_unary(t, OOM_SCALE, oom_op_sum(t, x, t->m_b, w));
}

static struct oom_val eurobert_classify(struct oom_tape *t, const struct oom_arch *a,
					struct oom_val x)
{
	const bool late = eurobert_of(a)->pooling == EUROBERT_LATE;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	x = oom_arg(&f, x);
	y = late ? x : eurobert_pool(t, a, x);
	y = oom_op_linear(t, "dense", y, D(a->d_model), OOM_BIAS);
	y = oom_name(&f, oom_op_unary(t, OOM_GELU, y));
	y = oom_op_linear(t, "classifier", y, (struct oom_dim){t->n_labels, "num_labels"},
			  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	if (late)
		y = eurobert_pool(t, a, y);
	return oom_leave(&f, oom_cls_loss(t, a, y));
}

static struct oom_val eurobert_model(struct oom_tape *t, const struct oom_arch *a,
				     struct oom_val *word)
{
	struct oom_decoder_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x, ids;

	x = oom_name(&f, oom_word_embeddings(t, a, "embed_tokens", D(a->d_model), word));
	ids = oom_name(&f, oom_position_ids(t));
	l.mask = oom_name_shared(&f, oom_make_mask(t, false, 0, (enum oom_dtype)x.dt, t->m_b,
						   t->m_s, t->m_s));
	l.rope = oom_name_tables(&f, oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2));
	oom_name_shared(&f, ids);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, eurobert_block, &l, x);
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_forget_shared(&f);
	return oom_leave(&f, x);
}

static struct oom_val eurobert_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_val word, x = eurobert_model(t, a, &word);

	if (t->task == OOM_TASK_SEQ_CLS)
		return eurobert_classify(t, a, x);
	if (oom_fuses_head(t))
		return oom_fused_head(t, a, x, word, "lm_head", a->mlp_bias);
	x = oom_name(&f, x);                    /* outputs[0] */
	x = oom_lm_head(t, a, x, word, "lm_head", a->mlp_bias);
	return oom_leave(&f, oom_plain_lm_loss(t, x, true, t->m_bs));
}

const struct oom_family oom_family_eurobert = {
	.name = "eurobert",
	.summary = "pre-norm encoder with rotary positions, gated feed-forward, RMS norms",
	.source = "transformers 5.12 models/eurobert/modeling_eurobert.py",
	.types = OOM_TYPE("eurobert"),
	.task = OOM_TASK_MASKED_LM,
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_proj+v_proj",
	.keys = eurobert_keys,
	.parse = eurobert_parse,
	.step = eurobert_step,
};
