/* GPT-NeoX Japanese: fused qkv, rotary positions, attention written out, one bias in the last layer
 * alone. Reference: transformers 5.12, models/gpt_neox_japanese/modeling_gpt_neox_japanese.py. */
#include "blocks/blocks.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = (uint64_t)((double)a->d_model *
			     oom_read_real(r, "intermediate_multiple_size", 4));
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 2048);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->dropout = oom_read_real(r, "hidden_dropout", 0);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0.1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
					oom_read_real(r, "rotary_pct", 1));
	if (a->d_model % a->n_heads || !a->d_ff)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
	uint32_t last;
};

/* Returns the output; *probs is what the layer's local still names. */
static struct oom_val attention(struct oom_tape *t, const struct layer *l, uint32_t i,
				struct oom_val x, struct oom_val *bias, struct oom_val *probs)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h}, heads = D(a->n_heads);
	const uint64_t rot = oom_rot_dim(a);
	struct oom_val p[3], zeros, w, y;
	enum oom_dtype dt;

	oom_op_split(t,
		     oom_op_heads(t, oom_op_linear(t, "query_key_value", x, D(3 * a->d_model), 0)),
		     3, parts, p);
	dt = (enum oom_dtype)p[2].dt;
	/* cat((rotated, passed), dim=-1), also when nothing passes */
	for (int k = 0; k < 2; k++) {
		p[k] = oom_rope_apply(t, p[k], &l->rope, a->n_heads, a->head_dim, rot);
		if (rot == a->head_dim)
			p[k] = oom_op_copy(t, "cat", p[k]);
	}
	zeros = oom_new(t, "attn_scores", t->m_bss, heads, (enum oom_dtype)p[0].dt);
	y = oom_amp_cast(t, oom_keep(zeros));   /* baddbmm(zeros, q, k) */
	w = oom_op_bmm(t, "scores", p[0], p[1], t->m_bss, heads, a->head_dim);
	if (y.sto != zeros.sto)
		oom_drop(t, y);
	if (!oom_is_none(l->mask))
		w = oom_op_add(t, w, oom_keep(l->mask));
	y = oom_op_softmax(t, oom_keep(w), false);
	y = oom_op_dropout(t, y, a->attn_dropout);
	y = oom_op_cast(t, y, dt);
	*probs = oom_share(t, y);
	y = oom_op_bmm(t, "attention", y, p[2], t->m_bs, h, oom_mono_now(t, t->m_s));
	oom_drop(t, w);
	oom_drop(t, zeros);
	y = oom_op_linear(t, "dense", oom_op_merge_heads(t, y), h, 0);
	*bias = i == l->last ? oom_param(t, "dense_bias", 0, a->d_model, 0) : oom_none();
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_val h, bias, probs,
		norm = oom_op_layer_norm(t, "input_layernorm", oom_keep(x), 0, true, true);

	h = attention(t, l, i, oom_keep(norm), &bias, &probs);
	if (!oom_is_none(bias))
		h = oom_op_add(t, h, bias);
	x = oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
	h = oom_op_layer_norm(t, "post_attention_layernorm", oom_keep(x), 0, true, true);
	h = oom_plain_mlp(t, h, "dense_h_to_4h", "dense_4h_to_h", a->act, D(a->d_ff), false);
	x = oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
	oom_drop(t, norm);
	oom_drop(t, probs);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint32_t n = (uint32_t)oom_depth(t, a->n_layers);
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a, .last = n - 1};
	uint8_t kind[OOM_MAX_LAYERS] = {0};

	if (n <= OOM_MAX_LAYERS)
		kind[n - 1] = 1;
	t->scope = "embed_in";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	first = oom_share(t, x);
	l.mask = oom_make_eager_mask(t, (enum oom_dtype)x.dt);
	l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, n, kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	x = oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_gpt_neox_japanese = {
	.name = "gpt_neox_japanese",
	.summary = "decoder with fused qkv and attention written out, one bias in its last layer",
	.source = "transformers 5.12 models/gpt_neox_japanese/modeling_gpt_neox_japanese.py",
	.types = OOM_TYPE("gpt_neox_japanese"),
	.lora_targets = "query_key_value",
	.parse = parse,
	.step = step,
};
