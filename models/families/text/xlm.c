/* XLM and FlauBERT: post-norm encoders (or decoders) whose attention keeps a cache of keys and
 * values even in training. Reference: transformers 5.12, models/xlm/modeling_xlm.py,
 * models/flaubert/modeling_flaubert.py. */
#include <string.h>

#include "blocks/encoder.h"

struct xlm {
	uint64_t langs;                 /* tables of languages */
	bool causal;                    /* triangular masks */
	bool pre_norm;
	/* the classifier's summary: projected, to the classes, of the mean of all tokens */
	bool projected, to_labels, mean;
};
OOM_OWN(xlm, struct xlm);

static const struct oom_key_row xlm_keys[] = {
	MUST(d_model, "emb_dim"), LIKE(d_ff, NULL, 4, d_model), MUST(n_layers, "n_layers"),
	MUST(n_heads, "n_heads"), MUST(max_positions, "max_position_embeddings"),
	REAL(dropout, "dropout", 0.1), REAL(attn_dropout, "attention_dropout", 0.1),
	REAL(classifier_dropout, "summary_first_dropout", 0.1),
	FLAG(tie, "tie_word_embeddings", true), OR_OWN(struct xlm, langs, "n_langs", 1),
	FLAG_OWN(struct xlm, causal, "causal", false),
	FLAG_OWN(struct xlm, pre_norm, "pre_norm", false),
	FLAG_OWN(struct xlm, projected, "summary_use_proj", true),
	FLAG_OWN(struct xlm, to_labels, "summary_proj_to_labels", true), OOM_KEYS_END};

static void xlm_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *summary = oom_read_string(r, "summary_type", "first");

	a->vocab = oom_read_key(r, "vocab_size") ? oom_read_count(r, "vocab_size", 1) :
						   oom_read_count(r, "n_words", 1);
	a->act = oom_read_bool(r, "gelu_activation", true) ? OOM_ACT_GELU : OOM_ACT_RELU;
	if (!oom_read_bool(r, "use_lang_emb", true))
		xlm_own(a)->langs = 1;
	xlm_own(a)->mean = summary && !strcmp(summary, "mean");
	if (oom_read_bool(r, "asm", false))
		oom_read_fail(r, "%s with an adaptive softmax (asm) is not modelled",
			      a->model_type);
	oom_check_heads(a);
}

struct xlm_layer {
	const struct oom_arch *a;
	struct oom_kept *cache;
};

static struct oom_val xlm_masked(struct oom_tape *t, struct oom_val x)
{
	return oom_op_mul(t, x, oom_new(t, "mask", t->m_bs, D(1), (enum oom_dtype)x.dt));
}

/* MultiHeadAttention.forward; keys and values go through torch.cat into the cache, which lives
 * as long as the model runs. */
static struct oom_val xlm_attention(struct oom_tape *t, const struct xlm_layer *l, struct oom_val x)
{
	static const char *const names[3] = {"q_lin", "k_lin", "v_lin"};
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], s, w, y;

	for (int i = 0; i < 3; i++) {
		y = oom_op_heads(t, oom_op_linear(t, names[i], x, h, OOM_BIAS));
		if (i)
			y = oom_op_copy(t, "cat", y);
		p[i] = oom_name(&f, y);
		if (i)
			oom_kept_add(t, l->cache, p[i]);
	}
	p[0] = oom_rename(&f, p[0], oom_op_unary(t, OOM_SCALE, p[0]));
	s = oom_op_bmm(t, "scores", p[0], p[1], t->m_bss, heads, a->head_dim);
	s = oom_op_masked_inplace(
		t, s,
		oom_new(t, "mask == 0", xlm_of(a)->causal ? t->m_bss : t->m_bs, D(1), OOM_U8));
	s = oom_name(&f, s);
	w = oom_op_softmax(t, oom_op_cast(t, s, OOM_F32), true);
	w = oom_op_dropout(t, oom_op_cast(t, w, (enum oom_dtype)s.dt), a->attn_dropout);
	w = oom_name(&f, w);
	y = oom_op_bmm(t, "context", w, p[2], t->m_bs, h, oom_mono_now(t, t->m_s));
	return oom_leave(&f, oom_op_linear(t, "out_lin", oom_op_merge_heads(t, y), h, OOM_BIAS));
}

static struct oom_val xlm_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	struct oom_val y = oom_op_linear(t, "lin1", x, D(a->d_ff), OOM_BIAS);

	y = oom_op_linear(t, "lin2", oom_activation(t, a->act, y), D(a->d_model), OOM_BIAS);
	return oom_op_dropout(t, y, a->dropout);
}

static struct oom_val xlm_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct xlm_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const bool pre = xlm_of(a)->pre_norm;
	struct oom_frame f = {.t = t};
	struct oom_val in = x, attn;

	(void)i;
	if (pre)
		in = oom_name(&f, oom_op_layer_norm(t, "layer_norm1", x, 0, true, true));
	/* a local of the model until the next layer's */
	attn = oom_name(&f, oom_op_dropout(t, xlm_attention(t, l, in), a->dropout));
	x = oom_op_add(t, x, attn);
	if (!pre)
		x = oom_op_layer_norm(t, "layer_norm1", x, 0, true, true);
	x = oom_name(&f, x);
	oom_forget(&f, in);
	in = x;
	if (pre)
		in = oom_name(&f, oom_op_layer_norm(t, "layer_norm2", x, 0, true, true));
	in = xlm_mlp(t, a, in);
	x = oom_op_add(t, pre ? oom_take(&f, x) : x, in);
	if (!pre)
		x = oom_op_layer_norm(t, "layer_norm2", x, 0, true, true);
	return oom_leave(&f, xlm_masked(t, x));
}

static struct oom_val xlm_embeddings(struct oom_tape *t, const struct oom_arch *a,
				     struct oom_val *word)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val pos, x;

	oom_buffer(t, a->max_positions, OOM_I64);
	pos = oom_position_embeddings(t, a, h);
	if (xlm_of(a)->langs > 1)               /* no languages are given */
		oom_param(t, "lang_embeddings", xlm_of(a)->langs, a->d_model,
			  OOM_P_EMBEDDING | OOM_P_UNUSED);
	x = oom_op_add(t, oom_word_embeddings(t, a, "embeddings", h, word), pos);
	x = oom_op_layer_norm(t, "layer_norm_emb", x, 0, true, true);
	return xlm_masked(t, oom_op_dropout(t, x, a->dropout));
}

static struct oom_val xlm_model(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	struct oom_kept cache;
	struct xlm_layer l = {.a = a, .cache = &cache};
	struct oom_frame f = {.t = t};
	struct oom_val x = xlm_embeddings(t, a, word);

	cache.n = 0;
	cache.in_training = false;
	cache.without_grad = false;
	oom_name(&f, oom_new(t, "mask", t->m_bs, D(1), OOM_U8));
	if (xlm_of(a)->causal)
		oom_name(&f, oom_new(t, "attn_mask", t->m_bss, D(1), OOM_U8));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, xlm_block, &l, x);
	oom_kept_drop(t, &cache);
	return oom_leave(&f, x);
}

/* XLMSequenceSummary: the first token, dropout, a projection to the classes. */
static struct oom_val xlm_classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	const struct xlm *own = xlm_of(a);
	const struct oom_dim width = {own->to_labels && t->n_labels ? t->n_labels : a->d_model,
				      "num_labels"};
	struct oom_val x;

	x = own->mean ? oom_op_mean(t, h, t->m_b, D(a->d_model)) :
			oom_op_slice(t, h, t->m_b, D(a->d_model));
	x = oom_op_dropout(t, x, a->classifier_dropout);
	if (own->projected)
		x = oom_op_linear(t, "summary", x, width, OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_cls_loss(t, a, x);
}

static struct oom_val xlm_run(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_frame f = {.t = t};
	struct oom_val word, x = xlm_model(t, a, &word);

	if (t->task != OOM_TASK_SEQ_CLS && oom_fuses_head(t))
		return oom_fused_head(t, a, x, word, "proj", true);
	x = oom_name(&f, x);                    /* the model's output, until the loss is returned */
	if (t->task == OOM_TASK_SEQ_CLS)
		return oom_leave(&f, xlm_classify(t, a, x));
	x = oom_lm_head(t, a, x, word, "proj", true);
	return oom_leave(&f, oom_plain_lm_loss(t, x, false, t->m_bs));
}

static struct oom_val xlm_step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_without_checkpointing(t, a, xlm_run);
}

static const struct oom_family_type types[] = {
	{"xlm", NULL}, {"flaubert", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_xlm = {
	.name = "xlm",
	.summary = "post-norm encoder that caches keys and values",
	.source = "transformers 5.12 models/xlm/modeling_xlm.py",
	.types = types,
	.task = OOM_TASK_MASKED_LM,
	.lora_targets = "q_lin+v_lin",
	.keys = xlm_keys,
	.parse = xlm_parse,
	.step = xlm_step,
};
