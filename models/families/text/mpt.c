/* MPT: ALiBi added to written-out scores in fp32, norms without bias, fused Wqkv; no other
 * attention. Reference: transformers 5.12, models/mpt/modeling_mpt.py. */
#include "blocks/blocks.h"

enum { CLIP };                          /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "d_model", 1);
	a->d_ff = 4 * a->d_model;
	a->n_layers = oom_read_count(r, "n_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "n_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_seq_len", 1);
	a->attn_dropout = oom_read_real(r, "attn_config.attn_pdrop", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->extra[CLIP] = oom_read_real(r, "attn_config.clip_qkv", 0) > 0;
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask, alibi;
};

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x,
				struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads), parts[3] = {h, h, h};
	struct oom_val p[3], w, y;
	enum oom_dtype dt;

	y = oom_op_linear(t, "Wqkv", x, D(3 * a->d_model), 0);
	dt = (enum oom_dtype)y.dt;
	if (a->extra[CLIP])
		y = oom_op_unary(t, OOM_CLAMP, y);
	oom_op_split(t, y, 3, parts, p);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, p[i]);
	w = oom_op_bmm(t, "scores", oom_keep(p[0]), oom_keep(p[1]), t->m_bss, heads, a->head_dim);
	w = oom_op_unary(t, OOM_SCALE, w);
	w = oom_op_add(t, w, oom_keep(l->alibi));
	w = oom_op_masked(t, "masked_fill", w, oom_keep(l->mask));
	y = oom_op_cast(t, oom_op_softmax(t, oom_op_cast(t, oom_keep(w), OOM_F32), false), dt);
	y = *weights = oom_op_dropout(t, y, a->attn_dropout);
	y = oom_op_merge_heads(t, oom_op_bmm(t, "attention", oom_keep(y), oom_keep(p[2]), t->m_bs,
					     h, oom_mono_now(t, t->m_s)));
	y = oom_op_linear(t, "out_proj", y, h, 0);
	oom_drop(t, w);                         /* attention_scores, a local of the module */
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	return y;
}

/* The caller keeps a layer's (hidden, weights) until the next layer has returned its own. */
static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val h, y, g, norm, weights, before;

	before = oom_weights_before(t, i, a->n_heads, oom_linear_dtype(t, (enum oom_dtype)x.dt));
	h = oom_op_layer_norm(t, "norm_1", oom_keep(x), 0, true, false);
	y = attention(t, l, oom_keep(h), &weights);     /* attn_outputs, a local to the end */
	x = oom_op_add(t, oom_op_dropout(t, oom_keep(y), a->attn_dropout), x);
	norm = oom_op_layer_norm(t, "norm_2", oom_keep(x), 0, true, false);
	oom_drop(t, h);                         /* layernorm_output is reassigned only now */
	h = oom_op_unary(t, OOM_GELU,
			 oom_op_linear(t, "up_proj", oom_keep(norm), D(a->d_ff), 0));
	g = oom_op_linear(t, "down_proj", oom_keep(h), D(a->d_model), 0);
	x = oom_op_add(t, oom_op_dropout(t, oom_keep(g), a->attn_dropout), x);
	oom_drop(t, g);
	oom_drop(t, h);
	oom_drop(t, norm);
	oom_drop(t, y);
	oom_drop(t, weights);
	oom_drop(t, before);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, mask, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "wte";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	l.alibi = oom_new(t, "alibi", OOM_MONO_ONE, D(a->n_heads * a->max_positions), OOM_F32);
	mask = oom_make_eager_mask(t, (enum oom_dtype)x.dt);
	l.mask = oom_new_like(t, "causal mask", mask, OOM_U8);  /* .to(torch.bool) */
	oom_drop(t, mask);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.alibi);
	x = oom_op_layer_norm(t, "norm_f", x, 0, true, false);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_mpt = {
	.name = "mpt",
	.summary = "pre-norm decoder with ALiBi, norms without bias, eager attention",
	.source = "transformers 5.12 models/mpt/modeling_mpt.py",
	.types = OOM_TYPE("mpt"),
	.lora_targets = "Wqkv",
	.parse = parse,
	.step = step,
};
