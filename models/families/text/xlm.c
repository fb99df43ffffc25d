/* XLM and FlauBERT: post-norm encoders (or decoders) whose attention keeps a cache of keys and
 * values even in training. Reference: transformers 5.12, models/xlm/modeling_xlm.py,
 * models/flaubert/modeling_flaubert.py. */
#include <string.h>

#include "blocks/encoder.h"

/* extra[]: tables of languages; triangular masks; norms first; the classifier's summary:
 * projection, which token */
enum { LANGS, CAUSAL, PRE_NORM, PROJECTED, TO_LABELS, MEAN };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const char *summary = oom_read_string(r, "summary_type", "first");

	a->default_task = OOM_TASK_MASKED_LM;
	a->vocab = oom_read_key(r, "vocab_size") ? oom_read_count(r, "vocab_size", 1) :
						   oom_read_count(r, "n_words", 1);
	a->d_model = oom_read_count(r, "emb_dim", 1);
	a->d_ff = 4 * a->d_model;
	a->n_layers = oom_read_count(r, "n_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "n_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->act = oom_read_bool(r, "gelu_activation", true) ? OOM_ACT_GELU : OOM_ACT_RELU;
	a->dropout = oom_read_real(r, "dropout", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0.1);
	a->classifier_dropout = oom_read_real(r, "summary_first_dropout", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[LANGS] = oom_read_count_or(r, "n_langs", 1);
	if (!oom_read_bool(r, "use_lang_emb", true))
		a->extra[LANGS] = 1;
	a->extra[CAUSAL] = oom_read_bool(r, "causal", false);
	a->extra[PRE_NORM] = oom_read_bool(r, "pre_norm", false);
	a->extra[PROJECTED] = oom_read_bool(r, "summary_use_proj", true);
	a->extra[TO_LABELS] = oom_read_bool(r, "summary_proj_to_labels", true);
	a->extra[MEAN] = summary && !strcmp(summary, "mean");
	if (oom_read_bool(r, "asm", false))
		oom_read_fail(r, "%s with an adaptive softmax (asm) is not modelled",
			      a->model_type);
	else if (a->d_model % a->n_heads)
		oom_read_fail(r, "emb_dim (%llu) is not a multiple of n_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask, attn_mask;
	struct oom_kept *cache;
};

static struct oom_val masked(struct oom_tape *t, struct oom_val x)
{
	return oom_op_mul(t, x, oom_new(t, "mask", t->m_bs, D(1), (enum oom_dtype)x.dt));
}

/* MultiHeadAttention.forward; keys and values go through torch.cat into the cache, which lives
 * as long as the model runs. */
static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	static const char *const names[3] = {"q_lin", "k_lin", "v_lin"};
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	struct oom_val p[3], s, w, f;

	for (int i = 0; i < 3; i++) {
		p[i] = oom_op_heads(t, oom_op_linear(t, names[i], oom_keep(x), h, OOM_BIAS));
		if (i) {
			p[i] = oom_op_copy(t, "cat", p[i]);
			oom_kept_add(t, l->cache, p[i]);
		}
	}
	p[0] = oom_op_unary(t, OOM_SCALE, p[0]);
	s = oom_op_bmm(t, "scores", oom_keep(p[0]), oom_keep(p[1]), t->m_bss, heads, a->head_dim);
	s = oom_op_masked_inplace(t, s,
				  oom_new(t, "mask == 0", a->extra[CAUSAL] ? t->m_bss : t->m_bs,
					  D(1), OOM_U8));
	f = oom_op_cast(t, oom_keep(s), OOM_F32);
	w = oom_op_cast(t, oom_op_softmax(t, f, true), (enum oom_dtype)s.dt);
	w = oom_op_dropout(t, w, a->attn_dropout);
	x = oom_op_merge_heads(t, oom_op_bmm(t, "context", oom_keep(w), oom_keep(p[2]), t->m_bs, h,
					     oom_mono_now(t, t->m_s)));
	x = oom_op_linear(t, "out_lin", x, h, OOM_BIAS);
	oom_drop(t, w);
	oom_drop(t, s);
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	return x;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	struct oom_val y = oom_op_linear(t, "lin1", x, D(a->d_ff), OOM_BIAS);

	y = oom_op_linear(t, "lin2", oom_activation(t, a->act, y), D(a->d_model), OOM_BIAS);
	return oom_op_dropout(t, y, a->dropout);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const bool pre = a->extra[PRE_NORM];
	struct oom_val in = pre ? oom_op_layer_norm(t, "layer_norm1", oom_keep(x), 0, true, true) :
				  oom_share(t, x),
		       attn;

	(void)i;
	attn = oom_op_dropout(t, attend(t, l, in), a->dropout);
	x = oom_op_add(t, x, oom_keep(attn));
	if (!pre)
		x = oom_op_layer_norm(t, "layer_norm1", x, 0, true, true);
	oom_drop(t, in);
	in = pre ? oom_op_layer_norm(t, "layer_norm2", oom_keep(x), 0, true, true) :
		   oom_share(t, x);
	x = oom_op_add(t, x, feed_forward(t, a, oom_keep(in)));
	if (!pre)
		x = oom_op_layer_norm(t, "layer_norm2", x, 0, true, true);
	x = masked(t, x);
	oom_drop(t, in);
	oom_drop(t, attn);                      /* a local of the model until the next layer's */
	return x;
}

static struct oom_val embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	struct oom_val pos, x;

	oom_buffer(t, a->max_positions, OOM_I64);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
			       D(a->d_model), 0);
	if (a->extra[LANGS] > 1)                /* no languages are given */
		oom_drop(t, oom_param(t, "lang_embeddings", a->extra[LANGS], a->d_model,
				      OOM_P_EMBEDDING | OOM_P_UNUSED));
	t->scope = "embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, D(a->d_model));
	x = oom_op_add(t, oom_input_grads(t, x), pos);
	x = oom_op_dropout(t, oom_op_layer_norm(t, "layer_norm_emb", x, 0, true, true), a->dropout);
	return masked(t, x);
}

/* XLMSequenceSummary: the first token, dropout, a projection to the classes. */
static struct oom_val classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val h)
{
	const struct oom_dim width = {a->extra[TO_LABELS] && t->n_labels ? t->n_labels : a->d_model,
				      "num_labels"};
	struct oom_val x, loss;

	x = a->extra[MEAN] ? oom_op_mean(t, oom_keep(h), t->m_b, D(a->d_model)) :
			     oom_op_slice(t, oom_keep(h), t->m_b, D(a->d_model));
	x = oom_op_dropout(t, x, a->classifier_dropout);
	if (a->extra[PROJECTED])
		x = oom_op_linear(t, "summary", x, width, OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	loss = oom_cls_loss(t, a, x);
	oom_drop(t, h);
	return loss;
}

static struct oom_val run(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_kept cache;
	struct layer l = {.a = a, .mask = oom_none(), .attn_mask = oom_none(), .cache = &cache};
	struct oom_val word, x = embeddings(t, a, &word), hidden, loss;

	cache.n = 0;
	l.mask = oom_new(t, "mask", t->m_bs, D(1), OOM_U8);
	if (a->extra[CAUSAL])
		l.attn_mask = oom_new(t, "attn_mask", t->m_bss, D(1), OOM_U8);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop(t, l.mask);
	oom_drop(t, l.attn_mask);
	oom_kept_drop(t, &cache);
	if (t->task == OOM_TASK_SEQ_CLS)
		return classify(t, a, x);
	if (oom_fuses_head(t))
		return oom_fused_head(t, a, x, word, "proj", true);
	hidden = oom_share(t, x);
	loss = oom_plain_lm_loss(t, oom_lm_head(t, a, x, word, "proj", true), false, t->m_bs);
	oom_drop(t, hidden);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_without_checkpointing(t, a, run);
}

static const struct oom_family_type types[] = {
	{"xlm", NULL}, {"flaubert", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_xlm = {
	.name = "xlm",
	.summary = "post-norm encoder that caches keys and values",
	.source = "transformers 5.12 models/xlm/modeling_xlm.py",
	.types = types,
	.lora_targets = "q_lin+v_lin",
	.parse = parse,
	.step = step,
};
