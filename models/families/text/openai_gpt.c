/* GPT (the first): post-norm decoder, learned positions, attention written out with a multiplied
 * triangle. Reference: transformers 5.12, models/openai/modeling_openai.py. */
#include <string.h>

#include "blocks/blocks.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "n_embd", 1);
	a->n_layers = oom_read_count(r, "n_layer", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "n_head", 1);
	a->max_positions = oom_read_count(r, "n_positions", 1);
	a->d_ff = 4 * a->d_model;
	a->head_dim = a->d_model / a->n_heads;
	/* ACT_FNS of the modelling file: "gelu" there is gelu_new */
	a->act = !strcmp(oom_read_string(r, "afn", "gelu"), "gelu") ?
			 OOM_ACT_GELU_NEW :
			 oom_read_act(r, "afn", "gelu");
	a->dropout = oom_read_real(r, "resid_pdrop", 0.1);
	a->embed_dropout = oom_read_real(r, "embd_pdrop", 0.1);
	a->attn_dropout = oom_read_real(r, "attn_pdrop", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (a->d_model % a->n_heads)
		oom_read_fail(r, "n_embd (%llu) is not a multiple of n_head (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
	enum oom_dtype dt;
};

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	const uint16_t plane = oom_mono_mul(t, t->m_s, t->m_s);
	struct oom_val q[3], w, p, lower, upper, b;

	oom_buffer(t, a->max_positions * a->max_positions, l->dt);
	oom_op_split(t, oom_op_linear(t, "c_attn", x, D(3 * a->d_model), OOM_BIAS), 3, parts, q);
	for (int i = 0; i < 3; i++)
		q[i] = oom_op_heads(t, q[i]);
	w = oom_op_bmm(t, "scores", oom_keep(q[0]), oom_keep(q[1]), t->m_bss, D(a->n_heads),
		       a->head_dim);
	w = oom_op_unary(t, OOM_SCALE, w);
	b = oom_input(t, "bias", plane, 1, l->dt);
	p = oom_op_mul(t, oom_keep(w), b);              /* w * b + -1e4 * (1 - b) */
	lower = oom_new(t, "1 - b", plane, D(1), l->dt);
	upper = oom_new(t, "-1e4 * (1 - b)", plane, D(1), l->dt);
	oom_drop(t, lower);
	p = oom_op_add(t, p, upper);
	oom_drop(t, w);
	w = p;
	if (!oom_is_none(l->mask))
		w = oom_op_add(t, w, oom_keep(l->mask));
	w = oom_op_dropout(t, oom_op_softmax(t, w, false), a->attn_dropout);
	w = oom_op_bmm(t, "attention", w, oom_keep(q[2]), t->m_bs, h, oom_mono_now(t, t->m_s));
	for (int i = 0; i < 3; i++)
		oom_drop(t, q[i]);
	return oom_op_dropout(t, oom_op_linear(t, "c_proj", oom_op_merge_heads(t, w), h, OOM_BIAS),
			      a->dropout);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val h, n;

	(void)i;
	h = attention(t, l, oom_keep(x));
	n = oom_op_layer_norm(t, "ln_1", oom_op_add(t, x, oom_keep(h)), 0, true, true);
	x = oom_plain_mlp(t, oom_keep(n), "c_fc", "c_proj", a->act, D(a->d_ff), true);
	x = oom_op_dropout(t, x, a->dropout);
	x = oom_op_layer_norm(t, "ln_2", oom_op_add(t, n, x), 0, true, true);
	oom_drop(t, h);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, pos, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a, .mask = oom_none()};

	t->scope = "tokens_embed";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	l.dt = (enum oom_dtype)embed.dt;
	oom_buffer(t, a->max_positions, OOM_I64);       /* position_ids */
	if (t->plan->padding_mask)
		l.mask = oom_new(t, "attention mask", t->m_bs, D(1), l.dt);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	pos = oom_op_embedding(t, "positions_embed",
			       oom_input(t, "position_ids", t->m_s, 1, OOM_I64), a->max_positions,
			       D(a->d_model), 0);
	/* + token_type_embeds, which is 0 */
	x = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_add(t, x, oom_keep(pos)));
	x = oom_op_dropout(t, x, a->embed_dropout);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop(t, pos);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_openai_gpt = {
	.name = "openai_gpt",
	.summary = "post-norm decoder, learned positions, eager attention",
	.source = "transformers 5.12 models/openai/modeling_openai.py",
	.types = OOM_TYPE("openai-gpt"),
	.lora_targets = "c_attn",
	.parse = parse,
	.step = step,
};
