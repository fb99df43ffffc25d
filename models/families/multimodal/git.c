/* GIT: a BERT-like decoder (norms after the residuals, attention written out) that reads image
 * tokens before the text. The vision tower is counted as weights: on text alone it never runs.
 * Reference: transformers 5.12, models/git/modeling_git.py. */
#include <stdio.h>

#include "blocks/blocks.h"

enum { V_DIM, V_FF, V_LAYERS, V_PATCH, V_SIDE, V_CHANNELS, FRAMES };    /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = a->d_model / a->n_heads;
	a->max_positions = oom_read_count(r, "max_position_embeddings", 1);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->dropout = oom_read_real(r, "hidden_dropout_prob", 0.1);
	a->attn_dropout = oom_read_real(r, "attention_probs_dropout_prob", 0.1);
	a->extra[V_DIM] = oom_read_count_or(r, "vision_config.hidden_size", 768);
	a->extra[V_FF] = oom_read_count_or(r, "vision_config.intermediate_size", 3072);
	a->extra[V_LAYERS] = oom_read_count_or(r, "vision_config.num_hidden_layers", 12);
	a->extra[V_PATCH] = oom_read_count_or(r, "vision_config.patch_size", 16);
	a->extra[V_SIDE] = oom_read_count_or(r, "vision_config.image_size", 224);
	a->extra[V_CHANNELS] = oom_read_count_or(r, "vision_config.num_channels", 3);
	a->extra[FRAMES] = oom_read_count_or(r, "num_image_with_embedding", 0);
	if (!a->extra[V_PATCH] || a->extra[V_SIDE] > 1 << 20 ||
	    a->extra[V_LAYERS] > OOM_MAX_LAYERS || a->extra[FRAMES] > 4096) {
		oom_read_fail(r,
			      "vision_config and num_image_with_embedding do not describe a model");
		return;
	}
	snprintf(a->warning, sizeof(a->warning),
		 "git: the vision tower and its tokens are counted as weights alone.");
	a->approximate = true;
}

static void tower_unused(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t v = a->extra[V_DIM], p = a->extra[V_PATCH], side = a->extra[V_SIDE] / p;

	t->scope = "image_encoder";
	oom_param(t, "class_embedding", 0, v, OOM_P_UNUSED);
	oom_param(t, "patch_embedding.weight", v, a->extra[V_CHANNELS] * p * p, OOM_P_UNUSED);
	oom_param(t, "position_embedding.weight", side * side + 1, v, OOM_P_UNUSED);
	for (int i = 0; i < 4; i++)             /* norms before and after */
		oom_param(t, "layer_norm", 0, v, OOM_P_UNUSED | OOM_P_NORM);
	for (uint64_t i = 0; i < a->extra[V_LAYERS]; i++) {
		oom_linear_unused(t, "k_proj", v, v, OOM_BIAS);
		oom_linear_unused(t, "v_proj", v, v, OOM_BIAS);
		oom_linear_unused(t, "q_proj", v, v, OOM_BIAS);
		oom_linear_unused(t, "out_proj", v, v, OOM_BIAS);
		oom_linear_unused(t, "fc1", v, a->extra[V_FF], OOM_BIAS);
		oom_linear_unused(t, "fc2", a->extra[V_FF], v, OOM_BIAS);
		t->scope = "image_encoder";
		for (int j = 0; j < 4; j++)
			oom_param(t, "layer_norm", 0, v, OOM_P_UNUSED | OOM_P_NORM);
	}
	oom_linear_unused(t, "visual_projection.0", v, a->d_model, OOM_BIAS);
	t->scope = "visual_projection.1";
	oom_param(t, "weight", 0, a->d_model, OOM_P_UNUSED | OOM_P_NORM);
	oom_param(t, "bias", 0, a->d_model, OOM_P_UNUSED | OOM_P_NORM);
	for (uint64_t i = 0; i < a->extra[FRAMES]; i++)
		oom_param(t, "img_temporal_embedding", 0, v, OOM_P_UNUSED);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

static struct oom_val output(struct oom_tape *t, const struct oom_arch *a, struct oom_val y,
			     struct oom_val residual)
{
	y = oom_op_linear(t, "dense", y, D(a->d_model), OOM_BIAS);
	y = oom_op_add(t, oom_op_dropout(t, y, a->dropout), residual);
	return oom_op_layer_norm(t, "LayerNorm", y, 0, true, true);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	const uint16_t scores = oom_mono_mul(t, t->m_bs, t->m_s);
	struct oom_val q, k, v, s;

	(void)i;
	q = oom_op_heads(t, oom_op_linear(t, "query", oom_keep(x), h, OOM_BIAS));
	k = oom_op_heads(t, oom_op_linear(t, "key", oom_keep(x), h, OOM_BIAS));
	v = oom_op_heads(t, oom_op_linear(t, "value", oom_keep(x), h, OOM_BIAS));
	s = oom_op_bmm(t, "scores", oom_keep(q), oom_keep(k), scores, heads, a->head_dim);
	s = oom_op_unary(t, OOM_SCALE, s);
	s = oom_op_add(t, s, oom_keep(l->mask));
	s = oom_op_dropout(t, oom_op_softmax(t, s, false), a->attn_dropout);
	s = oom_op_merge_heads(t, oom_op_bmm(t, "attention", s, oom_keep(v), t->m_bs, h,
					     oom_mono_now(t, t->m_s)));
	oom_drop(t, q);
	oom_drop(t, k);
	oom_drop(t, v);
	x = output(t, a, s, x);
	s = oom_activation(t, a->act, oom_op_linear(t, "dense", oom_keep(x), D(a->d_ff), OOM_BIAS));
	return output(t, a, s, x);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64), pos;
	struct layer l = {.a = a};

	t->scope = "word_embeddings";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	oom_buffer(t, a->max_positions, OOM_I64);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
			       D(a->d_model), 0);
	x = oom_op_add_inplace(t, x, pos);
	x = oom_op_dropout(t, oom_op_layer_norm(t, "LayerNorm", x, 0, true, true), a->dropout);
	tower_unused(t, a);
	l.mask = oom_make_eager_mask(t, (enum oom_dtype)x.dt);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	if (oom_fuses_head(t))
		return oom_fused_head(t, a, x, embed, "output", true);
	return oom_causal_lm_loss(t, a, oom_lm_head(t, a, x, embed, "output", true));
}

const struct oom_family oom_family_git = {
	.name = "git",
	.summary = "BERT-like decoder over image tokens and text",
	.source = "transformers 5.12 models/git/modeling_git.py",
	.types = OOM_TYPE("git"),
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
