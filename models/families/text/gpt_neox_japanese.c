/* GPT-NeoX Japanese: fused qkv, rotary positions, attention written out, one bias in the last layer
 * alone. Reference: transformers 5.12, models/gpt_neox_japanese/modeling_gpt_neox_japanese.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

struct gpt_neox_japanese {
	double ff;                      /* of hidden_size */
};
OOM_OWN(gpt_neox_japanese, struct gpt_neox_japanese);

static const struct oom_key_row gpt_neox_japanese_keys[] = {
	OOM_DECODER_KEYS, REAL_OWN(struct gpt_neox_japanese, ff, "intermediate_multiple_size", 4),
	OR(max_positions, "max_position_embeddings", 2048), ACT(act, "hidden_act", "gelu"),
	REAL(dropout, "hidden_dropout", 0), REAL(attn_dropout, "attention_dropout", 0.1),
	FLAG(tie, "tie_word_embeddings", true), REAL(rotary_share, "rotary_pct", 1), OOM_KEYS_END};

static void gpt_neox_japanese_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->d_ff = (uint64_t)((double)a->d_model * gpt_neox_japanese_of(a)->ff);
	a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
					a->rotary_share);
	oom_check_heads(a);
	if (!a->d_ff)
		oom_read_fail(r, "intermediate_multiple_size leaves feed-forwards of no width");
}

/* baddbmm(zeros, q, k) + mask; everything but the result is a local of _attn's, f. */
static struct oom_val scores(struct oom_frame *f, const struct oom_decoder_layer *l,
			     struct oom_val q, struct oom_val k)
{
	const struct oom_dim heads = {l->a->n_heads, "n_heads"};
	struct oom_tape *t = f->t;
	struct oom_frame call = {.t = t};
	struct oom_val zeros, w;

	zeros = oom_name(f, oom_new(t, "attn_scores", t->m_bss, heads, q.dt));
	oom_name(&call, oom_amp_cast(t, zeros));
	w = oom_op_bmm(t, "scores", q, k, t->m_bss, heads, l->a->head_dim);
	w = oom_leave(&call, w);
	if (!oom_is_none(l->mask))
		w = oom_op_add(t, w, l->mask);
	return oom_name(f, w);
}

/* *probs: what the layer's local still names. */
static struct oom_val attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				struct oom_val x, struct oom_val *probs)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	const uint64_t rot = oom_rot_dim(a);
	struct oom_frame call = {.t = t}, f = {.t = t};        /* of forward, and of _attn within it */
	struct oom_val p[3], w, y;
	enum oom_dtype dt;

	y = oom_op_heads(t, oom_op_linear(t, "query_key_value", x, D(3 * a->d_model), 0));
	oom_op_split(t, y, 3, parts, p);
	dt = p[2].dt;
	/* cat((rotated, passed), dim=-1), also when nothing passes */
	for (int k = 0; k < 2; k++) {
		p[k] = oom_rope_apply(t, p[k], &l->rope, a->n_heads, a->head_dim, rot);
		if (rot == a->head_dim)
			p[k] = oom_op_copy(t, "cat", p[k]);
	}
	oom_name_each(&call, p, 3);
	y = oom_op_softmax(t, scores(&f, l, p[0], p[1]), false);
	w = oom_name(&f, oom_op_cast(t, oom_op_dropout(t, y, a->attn_dropout), dt));
	y = oom_op_bmm(t, "attention", w, p[2], t->m_bs, h, oom_mono_now(t, t->m_s));
	*probs = oom_give(&f, w);
	y = oom_op_merge_heads(t, oom_leave(&f, y));
	return oom_leave(&call, oom_op_linear(t, "dense", y, h, 0));
}

/* The model's loop names what a layer returned, (hidden, weights), until the next one has returned.  Autograd
 * holds the weights as well, unless it holds a copy in autocast's type (layers of 4 bits give fp32). */
static struct oom_val weights_before(struct oom_tape *t, const struct oom_arch *a, uint32_t i,
				     struct oom_val x)
{
	const enum oom_dtype dt = oom_linear_dtype(t, x.dt);
	const struct oom_dim heads = {a->n_heads, "n_heads"};

	if (i && t->grad && !t->recompute && t->amp && dt == OOM_F32 && a->attn_dropout > 0)
		return oom_new(t, "attention weights of the layer before", t->m_bss, heads, dt);
	return oom_weights_before(t, i, a->n_heads, dt);
}

static struct oom_val gpt_neox_japanese_block(struct oom_tape *t, const void *ctx, uint32_t i,
					      struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val n, h, probs;

	oom_name(&f, weights_before(t, a, i, x));
	n = oom_name(&f, oom_norm(t, a->norm, "input_layernorm", x, 0));
	h = attention(t, l, n, &probs);
	oom_name(&f, probs);
	if (i + 1 == oom_depth(t, a->n_layers)) {
		t->scope = "attention";
		h = oom_op_add(t, h, oom_param(t, "dense_bias", 0, a->d_model, 0));
	}
	x = oom_name(&f, oom_op_add(t, x, oom_op_dropout(t, h, a->dropout)));
	h = oom_norm(t, a->norm, "post_attention_layernorm", x, 0);
	h = oom_plain_mlp(t, h, "dense_h_to_4h", "dense_4h_to_h", a->act, D(a->d_ff), false);
	return oom_leave(&f, oom_op_add(t, oom_take(&f, x), oom_op_dropout(t, h, a->dropout)));
}

static struct oom_val gpt_neox_japanese_prepare(struct oom_frame *f, const struct oom_arch *a,
						struct oom_decoder_layer *l, struct oom_val x)
{
	const enum oom_dtype dt = x.dt;

	l->mask = oom_name_shared(f, oom_make_eager_mask(f->t, dt));
	l->rope = oom_name_tables(f, oom_rope_tables(f->t, a->head_dim, dt, 2));
	return x;
}

const struct oom_family oom_family_gpt_neox_japanese = {
	.name = "gpt_neox_japanese",
	.summary = "decoder with fused qkv and attention written out, one bias in its last layer",
	.source = "transformers 5.12 models/gpt_neox_japanese/modeling_gpt_neox_japanese.py",
	.types = OOM_TYPE("gpt_neox_japanese"),
	.norm = OOM_NORM_LAYER,
	.lora_targets = "query_key_value",
	.keys = gpt_neox_japanese_keys,
	.parse = gpt_neox_japanese_parse,
	.decoder = OOM_DECODER(.embed = "embed_in", .norm = "final_layer_norm", .head = "embed_out",
			       .position_ids = true, .last_apart = true,
			       .block = gpt_neox_japanese_block,
			       .prepare = gpt_neox_japanese_prepare),
};
