/* GIT: a BERT-like decoder (norms after the residuals, attention written out) that reads image
 * tokens before the text. The vision tower is counted as weights: on text alone it never runs.
 * Reference: transformers 5.12, models/git/modeling_git.py. */
#include <stdio.h>

#include "blocks/decoder.h"
#include "blocks/encoder.h"

struct git {
	uint64_t d, ff, layers, patch, side, channels, frames;  /* of the tower */
};
OOM_OWN(git, struct git);

#define TOWER(field, word, number) OR_OWN(struct git, field, "vision_config." word, number)
static const struct oom_key_row git_keys[] = {
	OOM_ENCODER_KEYS, ACT(act, "hidden_act", "gelu"), FLAG(tie, "tie_word_embeddings", false),
	REAL(dropout, "hidden_dropout_prob", 0.1),
	REAL(attn_dropout, "attention_probs_dropout_prob", 0.1), TOWER(d, "hidden_size", 768),
	TOWER(ff, "intermediate_size", 3072), TOWER(layers, "num_hidden_layers", 12),
	TOWER(patch, "patch_size", 16), TOWER(side, "image_size", 224),
	TOWER(channels, "num_channels", 3),
	OR_OWN(struct git, frames, "num_image_with_embedding", 0), OOM_KEYS_END};

static void git_parse(struct oom_arch *a)
{
	const struct git *own = git_of(a);

	if (!own->patch || own->side > 1 << 20 || own->layers > OOM_MAX_LAYERS ||
	    own->frames > 4096) {
		oom_read_fail(&a->rd,
			      "vision_config and num_image_with_embedding do not describe a model");
		return;
	}
	oom_warn(a, "git: the vision tower and its tokens are counted as weights alone.");
	a->approximate = true;
}

static void idle_norms(struct oom_tape *t, uint64_t d)
{
	t->scope = "image_encoder";
	for (int i = 0; i < 4; i++)             /* before and after: weight and bias */
		oom_param(t, "layer_norm", 0, d, OOM_P_UNUSED | OOM_P_NORM);
}

static void idle_tower(struct oom_tape *t, const struct git *own, uint64_t d_model)
{
	static const char *const projections[] = {"k_proj", "v_proj", "q_proj", "out_proj"};
	const uint64_t v = own->d, p = own->patch, side = own->side / p;

	t->scope = "image_encoder";
	oom_param(t, "class_embedding", 0, v, OOM_P_UNUSED);
	oom_param(t, "patch_embedding.weight", v, own->channels * p * p, OOM_P_UNUSED);
	oom_param(t, "position_embedding.weight", side * side + 1, v, OOM_P_UNUSED);
	idle_norms(t, v);
	for (uint64_t i = 0; i < own->layers; i++) {
		for (int j = 0; j < 4; j++)
			oom_linear_unused(t, projections[j], v, v, OOM_BIAS);
		oom_linear_unused(t, "fc1", v, own->ff, OOM_BIAS);
		oom_linear_unused(t, "fc2", own->ff, v, OOM_BIAS);
		idle_norms(t, v);
	}
	oom_linear_unused(t, "visual_projection.0", v, d_model, OOM_BIAS);
	t->scope = "visual_projection.1";
	oom_param(t, "weight", 0, d_model, OOM_P_UNUSED | OOM_P_NORM);
	oom_param(t, "bias", 0, d_model, OOM_P_UNUSED | OOM_P_NORM);
	for (uint64_t i = 0; i < own->frames; i++)
		oom_param(t, "img_temporal_embedding", 0, v, OOM_P_UNUSED);
}

static struct oom_val git_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				    struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model), heads = D(a->n_heads);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, s;

	q = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "query", x, h, OOM_BIAS)));
	k = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "key", x, h, OOM_BIAS)));
	v = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "value", x, h, OOM_BIAS)));
	s = oom_op_bmm(t, "scores", q, k, t->m_bss, heads, a->head_dim);
	s = oom_op_add(t, oom_op_unary(t, OOM_SCALE, s), l->mask);
	s = oom_op_dropout(t, oom_op_softmax(t, s, false), a->attn_dropout);
	s = oom_op_bmm(t, "attention", s, v, t->m_bs, h, oom_mono_now(t, t->m_s));
	return oom_leave(&f, oom_op_merge_heads(t, s));
}

static struct oom_val output(struct oom_tape *t, const struct oom_arch *a, struct oom_val y,
			     struct oom_val residual)
{
	y = oom_op_linear(t, "dense", y, D(a->d_model), OOM_BIAS);
	y = oom_op_add(t, oom_op_dropout(t, y, a->dropout), residual);
	return oom_op_layer_norm(t, "LayerNorm", y, 0, true, true);
}

static struct oom_val git_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val y;

	(void)i;
	x = oom_name(&f, output(t, a, git_attention(t, l, x), x));
	y = oom_activation(t, a->act, oom_op_linear(t, "dense", x, D(a->d_ff), OOM_BIAS));
	return oom_leave(&f, output(t, a, y, oom_take(&f, x)));
}

static struct oom_val git_model(struct oom_tape *t, const struct oom_arch *a, struct oom_val *embed)
{
	struct oom_decoder_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val x, pos, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	t->scope = "word_embeddings";
	*embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, *embed, ids, a->vocab, D(a->d_model)));
	oom_buffer(t, a->max_positions, OOM_I64);
	pos = oom_op_embedding(t, "position_embeddings",
			       oom_input(t, "position ids", t->m_s, 1, OOM_I64), a->max_positions,
			       D(a->d_model), 0);
	x = oom_op_layer_norm(t, "LayerNorm", oom_op_add_inplace(t, x, pos), 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	idle_tower(t, git_of(a), a->d_model);
	l.mask = oom_name_shared(&f, oom_make_eager_mask(t, (enum oom_dtype)x.dt));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, git_block, &l, x);
	return oom_leave(&f, x);
}

static struct oom_val git_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x = git_model(t, a, &embed);

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
	.keys = git_keys,
	.parse = git_parse,
	.step = git_step,
};
