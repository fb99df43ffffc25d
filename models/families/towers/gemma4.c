/* Gemma 4's vision and audio towers, as weights: see shapes.c.
 * Reference: transformers 5.12, models/gemma4/modeling_gemma4.py (Gemma4VisionModel,
 * Gemma4AudioModel, Gemma4MultimodalEmbedder), models/gemma4_unified/modeling_gemma4_unified.py
 * (Gemma4UnifiedVisionEmbedder). */
#include <stdio.h>
#include <string.h>

#include "blocks/image.h"
#include "vision.h"
#include "weights.h"

/* The class has a tower only where the config has one. */
static bool present(const struct oom_emit *e, const char *key)
{
	char path[128];
	const struct oom_key *k;

	snprintf(path, sizeof(path), "%s%s", e->outer.prefix, key);
	k = oom_keys_find(e->outer.keys, path);
	return k && k->type == OOM_KEY_OBJECT;
}

struct vision {
	uint64_t d, ff, q, kv, head;
};

static void vision_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	static const char *const norms[] = {"input_layernorm", "post_attention_layernorm",
					    "pre_feedforward_layernorm",
					    "post_feedforward_layernorm"};
	const struct vision *s = ctx;

	(void)i;
	oom_weight_linear(t, "linear", s->d, s->q, false);
	oom_weight_linear(t, "linear", s->d, s->kv, false);
	oom_weight_linear(t, "linear", s->d, s->kv, false);
	oom_weight_linear(t, "linear", s->q, s->d, false);
	oom_weight_norm(t, "q_norm", s->head, false);
	oom_weight_norm(t, "k_norm", s->head, false);
	oom_weight_linear(t, "linear", s->d, s->ff, false);
	oom_weight_linear(t, "linear", s->d, s->ff, false);
	oom_weight_linear(t, "linear", s->ff, s->d, false);
	for (int k = 0; k < 4; k++)
		oom_weight_norm(t, norms[k], s->d, false);
}

static void vision_tower(struct oom_emit *e, struct oom_reader *r)
{
	struct oom_tape *t = e->t;
	const uint64_t patch = oom_read_count(r, "patch_size", 1);
	struct vision s = {.d = oom_read_count(r, "hidden_size", 1),
			   .ff = oom_read_count(r, "intermediate_size", 1),
			   .head = oom_read_count(r, "head_dim", 1)};

	s.q = s.head * oom_read_count(r, "num_attention_heads", 1);
	s.kv = s.head * oom_read_count(r, "num_key_value_heads", 1);
	if (r->status || patch > 65536) {
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
		return;
	}
	oom_weight_linear(t, "input_proj", 3 * patch * patch, s.d, false);
	oom_weight(t, "position_embedding_table",
		   2 * oom_read_count(r, "position_embedding_size", 1), s.d);
	oom_weight_layers(t, oom_read_count(r, "num_hidden_layers", 0), vision_layer, &s);
	oom_weight_linear(t, "embedding_projection", s.d, e->a->d_model, false);
}

/* Unified: patches through one layer, no tower. */
static void vision_embedder(struct oom_emit *e, struct oom_reader *r)
{
	struct oom_tape *t = e->t;
	const uint64_t side = oom_read_count_or(r, "model_patch_size",
						oom_read_count(r, "patch_size", 1) *
							oom_read_count(r, "pooling_kernel_size",
								       1));
	const uint64_t d = oom_read_count(r, "mm_embed_dim", 1);

	if (r->status || side > 65536) {
		oom_read_fail(r, "the vision embedder's sizes (%s) make no model", r->prefix);
		return;
	}
	oom_weight_norm(t, "patch_ln1", 3 * side * side, true);
	oom_weight_linear(t, "patch_dense", 3 * side * side, d, true);
	oom_weight_norm(t, "patch_ln2", d, true);
	oom_weight(t, "pos_embedding", 2 * oom_read_count(r, "mm_posemb_size", 1), d);
	oom_weight_norm(t, "pos_norm", d, true);
	oom_weight_linear(t, "embedding_projection", oom_read_count_or(r, "output_proj_dims", d),
			  e->a->d_model, false);
}

struct audio {
	uint64_t d, head, kernel;
};

static void audio_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct audio *s = ctx;

	(void)i;
	for (int k = 0; k < 2; k++) {
		oom_weight_linear(t, "linear", s->d, 4 * s->d, false);
		oom_weight_linear(t, "linear", 4 * s->d, s->d, false);
		oom_weight_norm(t, "pre_layer_norm", s->d, false);
		oom_weight_norm(t, "post_layer_norm", s->d, false);
	}
	for (int k = 0; k < 4; k++)             /* q, k, v, post */
		oom_weight_linear(t, "linear", s->d, s->d, false);
	oom_weight_linear(t, "relative_k_proj", s->d, s->d, false);
	oom_weight(t, "per_dim_scale", 0, s->head);
	oom_weight_linear(t, "linear", s->d, 2 * s->d, false);
	oom_weight_linear(t, "linear", s->d, s->d, false);
	oom_weight_conv(t, "depthwise_conv1d", s->d, s->kernel, false);
	/* pre_layer_norm, conv_norm; norm_pre_attn, norm_post_attn, norm_out */
	for (int k = 0; k < 5; k++)
		oom_weight_norm(t, "norm", s->d, false);
}

static void audio_tower(struct oom_emit *e, struct oom_reader *r)
{
	struct oom_tape *t = e->t;
	const uint64_t heads = oom_read_count(r, "num_attention_heads", 1),
		       out = oom_read_count_or(r, "output_proj_dims", 1536);
	struct audio s = {.d = oom_read_count(r, "hidden_size", 1),
			  .kernel = oom_read_count(r, "conv_kernel_size", 1)};
	uint64_t c[2] = {0, 0};

	if (oom_read_counts(r, "subsampling_conv_channels", c, 2) != 2 || r->status ||
	    heads > s.d) {
		oom_read_fail(r, "the audio tower's sizes (%s) make no model", r->prefix);
		return;
	}
	s.head = s.d / heads;
	oom_weight_conv(t, "conv", c[0], 9, false);
	oom_weight_norm(t, "norm", c[0], false);
	oom_weight_conv(t, "conv", c[1], c[0] * 9, false);
	oom_weight_norm(t, "norm", c[1], false);
	oom_weight_linear(t, "input_proj_linear", c[0] / 4 * c[1], s.d, false);
	oom_weight_layers(t, oom_read_count(r, "num_hidden_layers", 0), audio_layer, &s);
	oom_weight_linear(t, "output_proj", s.d, out, true);
	oom_weight_linear(t, "embedding_projection", out, e->a->d_model, false);
}

struct oom_val oom_emit_gemma4(struct oom_emit *e)
{
	const bool unified = strstr(e->v->type, "unified") != NULL;

	if (present(e, "vision_config"))
		(unified ? vision_embedder : vision_tower)(e, &e->part[1]);
	if (present(e, "audio_config")) {
		if (unified)
			oom_weight_linear(e->t, "embedding_projection",
					  oom_read_count_or(&e->part[2], "output_proj_dims",
							    oom_read_count_or(&e->part[2],
									      "audio_embed_dim",
									      640)),
					  e->a->d_model, false);
		else
			audio_tower(e, &e->part[2]);
	}
	return oom_none();
}
