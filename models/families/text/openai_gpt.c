/* GPT (the first): post-norm decoder, learned positions, attention written out with a multiplied
 * triangle. Reference: transformers 5.12, models/openai/modeling_openai.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

struct openai_gpt_layer {
	struct oom_decoder_layer base;
	enum oom_dtype dt;              /* of the weights and the triangle */
};

static const struct oom_key_row openai_gpt_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "n_embd"), LIKE(d_ff, NULL, 4, d_model),
	MUST(n_layers, "n_layer"), MUST(n_heads, "n_head"), MUST(max_positions, "n_positions"),
	ACT(act, "afn", "gelu"), REAL(dropout, "resid_pdrop", 0.1),
	REAL(embed_dropout, "embd_pdrop", 0.1), REAL(attn_dropout, "attn_pdrop", 0.1),
	FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};

static void openai_gpt_parse(struct oom_arch *a)
{
	if (a->act == OOM_ACT_GELU)             /* ACT_FNS of the modelling file: the tanh form */
		a->act = OOM_ACT_GELU_NEW;
	oom_check_heads(a);
}

/* w * b + -1e4 * (1 - b), b the triangle */
static struct oom_val triangle(struct oom_tape *t, struct oom_val w, enum oom_dtype dt)
{
	const uint16_t plane = oom_mono_mul(t, t->m_s, t->m_s);
	struct oom_frame f = {.t = t};
	struct oom_val p, lower, upper;

	p = oom_op_mul(t, w, oom_input(t, "bias", plane, 1, dt));
	lower = oom_name(&f, oom_new(t, "1 - b", plane, D(1), dt));
	upper = oom_new(t, "-1e4 * (1 - b)", plane, D(1), dt);
	oom_forget(&f, lower);
	return oom_leave(&f, oom_op_add(t, p, upper));
}

static struct oom_val openai_gpt_attention(struct oom_tape *t, const struct openai_gpt_layer *l,
					   struct oom_val x)
{
	const struct oom_arch *a = l->base.a;
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	struct oom_frame f = {.t = t};
	struct oom_val q[3], w;

	oom_buffer(t, a->max_positions * a->max_positions, l->dt);
	oom_op_split(t, oom_op_linear(t, "c_attn", x, D(3 * a->d_model), OOM_BIAS), 3, parts, q);
	for (int i = 0; i < 3; i++)
		q[i] = oom_name(&f, oom_op_heads(t, q[i]));
	w = oom_op_bmm(t, "scores", q[0], q[1], t->m_bss, D(a->n_heads), a->head_dim);
	w = oom_name(&f, oom_op_unary(t, OOM_SCALE, w));
	w = oom_rename(&f, w, triangle(t, w, l->dt));
	if (!oom_is_none(l->base.mask))
		w = oom_rename(&f, w, oom_op_add(t, w, l->base.mask));
	w = oom_rename(&f, w, oom_op_softmax(t, w, false));
	w = oom_rename(&f, w, oom_op_dropout(t, w, a->attn_dropout));
	w = oom_op_bmm(t, "attention", w, q[2], t->m_bs, h, oom_mono_now(t, t->m_s));
	w = oom_op_merge_heads(t, oom_leave(&f, w));
	return oom_op_dropout(t, oom_op_linear(t, "c_proj", w, h, OOM_BIAS), a->dropout);
}

static struct oom_val openai_gpt_block(struct oom_tape *t, const void *ctx, uint32_t i,
				       struct oom_val x)
{
	const struct openai_gpt_layer *l = ctx;
	const struct oom_arch *a = l->base.a;
	struct oom_frame f = {.t = t};
	struct oom_val h, n, m;

	(void)i;
	h = oom_name(&f, openai_gpt_attention(t, l, x));
	n = oom_name(&f, oom_op_layer_norm(t, "ln_1", oom_op_add(t, x, h), 0, true, true));
	m = oom_plain_mlp(t, n, "c_fc", "c_proj", a->act, D(a->d_ff), true);
	m = oom_op_dropout(t, m, a->dropout);
	m = oom_op_add(t, oom_take(&f, n), m);
	return oom_leave(&f, oom_op_layer_norm(t, "ln_2", m, 0, true, true));
}

static struct oom_val openai_gpt_prepare(struct oom_frame *f, const struct oom_arch *a,
					 struct oom_decoder_layer *base, struct oom_val x)
{
	struct openai_gpt_layer *l = (struct openai_gpt_layer *)base;
	struct oom_tape *t = f->t;
	struct oom_val pos;

	l->dt = x.dt;
	oom_buffer(t, a->max_positions, OOM_I64);       /* position_ids */
	if (t->plan->padding_mask)
		base->mask = oom_name_shared(f, oom_new(t, "attention mask", t->m_bs, D(1), l->dt));
	pos = oom_input(t, "position_ids", t->m_s, 1, OOM_I64);
	pos = oom_op_embedding(t, "positions_embed", pos, a->max_positions, D(a->d_model), 0);
	x = oom_op_add(t, x, oom_name(f, pos));
	x = oom_op_unary(t, OOM_ADD_SCALAR, x);         /* + token_type_embeds, which is 0 */
	return oom_op_dropout(t, x, a->embed_dropout);
}

const struct oom_family oom_family_openai_gpt = {
	.name = "openai_gpt",
	.summary = "post-norm decoder, learned positions, eager attention",
	.source = "transformers 5.12 models/openai/modeling_openai.py",
	.types = OOM_TYPE("openai-gpt"),
	.lora_targets = "c_attn",
	.keys = openai_gpt_keys,
	.parse = openai_gpt_parse,
	.decoder = OOM_DECODER(.embed = "tokens_embed",
			       .layer_size = sizeof(struct openai_gpt_layer),
			       .block = openai_gpt_block, .prepare = openai_gpt_prepare),
};
