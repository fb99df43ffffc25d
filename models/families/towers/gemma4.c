/* Gemma 4's audio tower, and what its unified type has in their place, as weights (weights.h).
 * Reference: transformers 5.12, models/gemma4/modeling_gemma4.py (Gemma4AudioModel, Gemma4MultimodalEmbedder),
 * models/gemma4_unified/modeling_gemma4_unified.py (Gemma4UnifiedVisionEmbedder). */
#include <stdio.h>

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

/* Unified: patches through one layer, no tower. */
static void vision_embedder(struct oom_emit *e, struct oom_reader *r)
{
	struct oom_tape *t = e->t;
	const uint64_t patch = oom_read_count(r, "patch_size", 1) * oom_read_count(r,
										   "pooling_kernel_size", 1),
		       side = oom_read_count_or(r, "model_patch_size", patch), d =
			       oom_read_count(r, "mm_embed_dim", 1);

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
			  e->a->d_model,
			  false);
}

enum { A_H = YES + 1, A_H2, A_FF, A_HEAD, A_KERNEL };
#define A_FEED \
	LINEAR("linear", A_H, A_FF, NO), LINEAR("linear", A_FF, A_H, NO), \
	NORM("pre_layer_norm", A_H, NO), NORM("post_layer_norm", A_H, NO)
#define A_LINEAR LINEAR("linear", A_H, A_H, NO)
#define A_NORM NORM("norm", A_H, NO)
/* q, k, v, post; pre_layer_norm, conv_norm; norm_pre_attn, norm_post_attn, norm_out */
static const struct oom_weight_row audio_layer[] = {
	A_FEED, A_FEED, A_LINEAR, A_LINEAR, A_LINEAR, A_LINEAR,
	LINEAR("relative_k_proj", A_H, A_H, NO),
	ALONE("per_dim_scale", NO, A_HEAD), LINEAR("linear", A_H, A_H2, NO), A_LINEAR,
	CONV("depthwise_conv1d", A_H, A_KERNEL, NO), A_NORM, A_NORM, A_NORM, A_NORM, A_NORM,
		OOM_WEIGHTS_END};

static void audio_tower(struct oom_emit *e, struct oom_reader *r)
{
	struct oom_tape *t = e->t;
	const uint64_t heads = oom_read_count(r, "num_attention_heads", 1), d =
		oom_read_count(r, "hidden_size", 1),
		       out = oom_read_count_or(r, "output_proj_dims", 1536);
	const uint64_t n[] = {[YES] = 1, [A_H] = d, [A_H2] = 2 * d, [A_FF] = 4 * d, [A_HEAD] =
			      heads ? d / heads : 0,
			      [A_KERNEL] = oom_read_count(r, "conv_kernel_size", 1)};
	uint64_t c[2] = {0, 0};

	if (oom_read_counts(r, "subsampling_conv_channels", c, 2) != 2 || r->status || heads > d) {
		oom_read_fail(r, "the audio tower's sizes (%s) make no model", r->prefix);
		return;
	}
	oom_weight_conv(t, "conv", c[0], 9, false);
	oom_weight_norm(t, "norm", c[0], false);
	oom_weight_conv(t, "conv", c[1], c[0] * 9, false);
	oom_weight_norm(t, "norm", c[1], false);
	oom_weight_linear(t, "input_proj_linear", c[0] / 4 * c[1], d, false);
	oom_weight_stack(t, oom_read_count(r, "num_hidden_layers", 0), audio_layer, n);
	oom_weight_linear(t, "output_proj", d, out, true);
	oom_weight_linear(t, "embedding_projection", out, e->a->d_model, false);
}

struct oom_val oom_emit_gemma4(struct oom_emit *e)
{
	struct oom_val x = present(e, "vision_config") ? oom_gemma4_vision(e) : oom_none();
	struct oom_weights idle;

	oom_weights_begin(e->t, &idle);
	if (present(e, "audio_config"))
		audio_tower(e, &e->part[2]);
	oom_weights_end(e->t, &idle);
	return x;
}

struct oom_val oom_emit_gemma4_unified(struct oom_emit *e)
{
	const uint64_t audio = oom_read_count_or(&e->part[2], "audio_embed_dim", 640);

	if (present(e, "vision_config"))
		vision_embedder(e, &e->part[1]);
	if (present(e, "audio_config"))
		oom_weight_linear(e->t, "embedding_projection",
				  oom_read_count_or(&e->part[2], "output_proj_dims", audio),
					  e->a->d_model, false);
	return oom_none();
}
