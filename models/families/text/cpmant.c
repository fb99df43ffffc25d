/* CPM-Ant: learned prompt tokens before every sequence, a relative bias by position and segment,
 * attention written out. Reference: transformers 5.12, models/cpmant/modeling_cpmant.py. */
#include "blocks/blocks.h"

enum { PROMPT, BUCKETS, SEGMENTS };     /* extra[]; BUCKETS: rows of the bias table */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t types = oom_read_count_or(r, "prompt_types", 32),
		       segments = oom_read_count_or(r, "segment_types", 32);

	a->extra[PROMPT] = oom_read_count_or(r, "prompt_length", 32);
	a->extra[SEGMENTS] = segments;
	a->extra[BUCKETS] = segments * segments +
			    oom_read_count_or(r, "position_bias_num_buckets", 512);
	a->vocab = oom_read_count(r, "vocab_size", 1) + types * a->extra[PROMPT];
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "dim_ff", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = oom_read_count(r, "dim_head", 1);
	a->act = OOM_ACT_GELU;
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->dropout = oom_read_real(r, "dropout_p", 0);
	if (a->extra[PROMPT] > 1 << 20 || segments > 1 << 16)
		oom_read_fail(r, "prompt_length and segment_types must be at most 2^20 and 2^16");
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask, bias;
	uint16_t m_len, m_tokens;       /* with the prompt */
};

/* (x * rsqrt(mean(x.float()^2) + eps)).to(type) * weight: only the mean is taken in fp32. */
static struct oom_val norm(struct oom_tape *t, const char *name, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const char *scope = t->scope;
	struct oom_val w, v;

	t->scope = name;
	w = oom_param(t, "weight", 0, x.width, OOM_P_NORM);
	v = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, oom_op_cast(t, oom_keep(x), OOM_F32)),
			x.mono, D(1));
	v = oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, oom_keep(v)));
	v = oom_op_mul(t, oom_op_cast(t, oom_op_mul(t, x, v), dt), w);
	t->scope = scope;
	return v;
}

/* scores == False and masked_fill, twice: before the softmax and after it */
static struct oom_val filled(struct oom_tape *t, const struct layer *l, struct oom_val s)
{
	return oom_op_masked(t, "masked_fill", s,
			     oom_new(t, "not attended", l->mask.mono, D(1), OOM_U8));
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {x.width, x.text},
			     q = {a->n_heads * a->head_dim, "n_heads * dim_head"},
			     H = {a->n_heads, "n_heads"};
	const uint16_t scores = oom_mono_mul(t, l->m_tokens, l->m_len);
	struct oom_val p[3], s;

	p[0] = oom_op_heads(t, oom_op_linear(t, "project_q", oom_keep(x), q, 0));
	p[1] = oom_op_heads(t, oom_op_linear(t, "project_k", oom_keep(x), q, 0));
	p[2] = oom_op_heads(t, oom_op_linear(t, "project_v", oom_keep(x), q, 0));
	s = oom_op_bmm(t, "scores", oom_keep(p[0]), oom_keep(p[1]), scores, H, a->head_dim);
	s = oom_op_unary(t, OOM_SCALE, s);
	s = oom_op_add(t, s, oom_keep(l->bias));
	s = filled(t, l, s);
	s = filled(t, l, oom_op_softmax(t, s, false));
	s = oom_op_dropout(t, s, a->dropout);
	s = oom_op_bmm(t, "attention", s, oom_keep(p[2]), l->m_tokens, q,
		       oom_mono_now(t, l->m_len));
	s = oom_op_linear(t, "attention_out", oom_op_merge_heads(t, s), h, 0);
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	oom_done(t, x);
	return oom_op_dropout(t, s, a->dropout);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, f = D(a->d_ff);
	struct oom_val g = oom_activation(t, a->act, oom_op_linear(t, "w_0", oom_keep(x), f, 0));

	g = oom_op_mul(t, g, oom_op_linear(t, "w_1", oom_keep(x), f, 0));
	g = oom_op_linear(t, "w_out", oom_op_dropout(t, g, a->dropout), h, 0);
	oom_done(t, x);
	return oom_op_dropout(t, g, a->dropout);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;

	(void)i;
	x = oom_op_add(t, x, attention(t, l, norm(t, "layernorm_before_attention", oom_keep(x))));
	return oom_op_add(t, x,
			  feed_forward(t, l->a, norm(t, "layernorm_before_ffn", oom_keep(x))));
}

static struct oom_val relative_bias(struct oom_tape *t, const struct layer *l)
{
	const uint16_t plane = oom_mono_mul(t, l->m_tokens, l->m_len);
	const struct oom_arch *a = l->a;
	struct oom_val b;

	t->scope = "position_bias";
	b = oom_param(t, "relative_attention_bias", a->extra[BUCKETS], a->n_heads, 0);
	b = oom_op_embedding_param(t, b, oom_new(t, "buckets", plane, D(1), OOM_I32),
				   a->extra[BUCKETS], D(a->n_heads));
	return oom_op_copy(t, "contiguous", b);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, ids, logits, out, loss;
	struct layer l = {.a = a};

	l.m_len = oom_len_plus(t, OOM_MONO_ONE, a->extra[PROMPT]);
	l.m_tokens = oom_mono_mul(t, t->m_b, l.m_len);
	ids = oom_new(t, "prompt and ids", l.m_tokens, D(1), OOM_I32);
	t->scope = "input_embedding";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	x = oom_op_add(t, x,
		       oom_op_embedding(t, "segment_embedding",
					oom_new(t, "segments", l.m_tokens, D(1), OOM_I32),
					a->extra[SEGMENTS], D(a->d_model), 0));
	l.mask = oom_new(t, "attention mask", oom_mono_mul(t, l.m_tokens, l.m_len), D(1), OOM_U8);
	l.bias = relative_bias(t, &l);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.bias);
	x = norm(t, "output_layernorm", x);
	x = oom_op_slice(t, x, t->m_bs, D(a->d_model));
	x.perm = true;                          /* rows of another length: the head copies it */
	if (oom_fuses_head(t))                  /* hidden.view(-1, d) of the slice */
		return oom_fused_ce(t, a, x, embed, "lm_head");
	logits = oom_lm_head(t, a, x, embed, "lm_head", false);
	out = oom_share(t, logits);
	loss = oom_plain_lm_loss(t, logits, false, t->m_bs);
	oom_drop(t, out);
	return loss;
}

const struct oom_family oom_family_cpmant = {
	.name = "cpmant",
	.summary = "prompt tokens before the text, a relative bias by position and segment",
	.source = "transformers 5.12 models/cpmant/modeling_cpmant.py",
	.types = OOM_TYPE("cpmant"),
	.lora_targets = "project_q+project_v",
	.parse = parse,
	.step = step,
};
