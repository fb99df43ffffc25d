/* More of what images (and sounds) alone meet, as weights: see shapes.c.
 * Reference: transformers 5.12, the classes named at each function. */
#include <string.h>

#include "blocks/image.h"
#include "vision.h"
#include "weights.h"

/* The tower of part i as vision.c describes it. */
static void run_tower(struct oom_emit *e, size_t i, const char *type, struct oom_tower *w)
{
	oom_tower_read(w, &e->part[i], type ? type : e->v->part[i].type);
	oom_discard(e->t, oom_tower_run(e, w));
}

/* Ovis2Model: the tower's features become probabilities over a visual vocabulary with an
 * embedding of its own. */
struct oom_val oom_emit_ovis(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	const uint64_t vocab = oom_read_count(r, "vocab_size", 1),
		       marks = oom_read_count_or(r, "num_visual_indicator_tokens", 5);
	const uint64_t stride = oom_read_count_or(r, "hidden_stride", 1);
	struct oom_tower w;

	run_tower(e, 1, "ovis2_vision", &w);
	if (r->status || stride > 64 || vocab <= marks) {
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
		return oom_none();
	}
	oom_weight_linear(e->t, "head_linear", w.d * stride * stride, vocab - marks, false);
	oom_weight_norm(e->t, "head_norm", vocab - marks, true);
	oom_weight(e->t, "visual_embeddings_table", vocab,
		   oom_read_count_or(&e->outer, "hidden_size", e->a->d_model));
	return oom_none();
}

/* Llama4VisionModel's adapter, Llama4MultiModalProjector */
struct oom_val oom_emit_llama4(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	const uint64_t in = oom_read_count_or(r, "projector_input_dim", 4096),
		       out = oom_read_count_or(r, "projector_output_dim", 4096);
	struct oom_tower w;

	run_tower(e, 1, NULL, &w);
	oom_weight_linear(e->t, "fc1", w.ff, in, false);
	oom_weight_linear(e->t, "fc2", out, out, false);
	oom_weight_linear(e->t, "linear_1", oom_read_count_or(r, "vision_output_dim", 7680),
			  e->a->d_model, false);
	return oom_none();
}

/* FuyuModel: patches go through one linear layer, there is no tower. */
struct oom_val oom_emit_fuyu(struct oom_emit *e)
{
	const uint64_t patch = oom_read_side(&e->outer, "patch_size", 30),
		       channels = oom_read_count_or(&e->outer, "num_channels", 3);

	if (!patch || patch > 65536 || !channels || channels > 65536) {
		oom_read_fail(&e->outer, "patch_size and num_channels make no layer");
		return oom_none();
	}
	oom_weight_linear(e->t, "vision_embed_tokens", patch * patch * channels, e->a->d_model,
			  true);
	return oom_none();
}

/* ---- DaViT: Florence2VisionBackbone ---- */

struct davit {
	uint64_t d, ff;
	bool bias;
};

static void davit_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct davit *s = ctx;

	(void)i;
	for (int k = 0; k < 2; k++) {           /* in windows, then over channels */
		oom_weight_conv(t, "conv1", s->d, 9, true);
		oom_weight_norm(t, "norm1", s->d, true);
		oom_weight_linear(t, "qkv", s->d, 3 * s->d, s->bias);
		oom_weight_linear(t, "proj", s->d, s->d, true);
		oom_weight_conv(t, "conv2", s->d, 9, true);
		oom_weight_norm(t, "norm2", s->d, true);
		oom_weight_linear(t, "fc1", s->d, s->ff, true);
		oom_weight_linear(t, "fc2", s->ff, s->d, true);
	}
}

#define MAX_STAGES 8
struct oom_val oom_emit_florence(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	uint64_t dims[MAX_STAGES], depths[MAX_STAGES], kernels[MAX_STAGES],
		in = oom_read_count_or(r, "in_channels", 3), places, out;
	const uint64_t n = oom_read_counts(r, "embed_dim", dims, MAX_STAGES);
	const double ratio = oom_read_real(r, "mlp_ratio", 4);
	struct davit s = {.bias = oom_read_bool(r, "qkv_bias", true)};

	if (oom_read_counts(r, "depths", depths, MAX_STAGES) != n ||
	    oom_read_counts(r, "patch_size", kernels, MAX_STAGES) != n || !n ||
	    !(ratio > 0 && ratio < 1e4)) {
		oom_read_fail(r, "embed_dim, depths and patch_size (%s) must list as many stages",
			      r->prefix);
		return oom_none();
	}
	for (uint64_t i = 0; i < n; i++) {
		const bool first = oom_read_item_real(r, "patch_prenorm", (uint32_t)i, i > 0) != 0;

		oom_weight_conv(t, "conv", dims[i], in * kernels[i] * kernels[i], true);
		oom_weight_norm(t, "norm", first ? in : dims[i], true);
		s.d = in = dims[i];
		s.ff = (uint64_t)((double)s.d * ratio);
		oom_weight_layers(t, depths[i], davit_layer, &s);
	}
	places = oom_read_count_or(r, "max_position_embeddings", 50);
	out = oom_read_count_or(r, "projection_dim", 1024);
	oom_weight_linear(t, "image_projection", in, out, false);
	oom_weight_norm(t, "image_proj_norm", out, true);
	oom_weight(t, "row_embeddings", places, in / 2);
	oom_weight(t, "column_embeddings", places, in - in / 2);
	return oom_none();
}

/* ---- audio encoders: Qwen2_5OmniAudioEncoder, Qwen3OmniMoeAudioEncoder ---- */

struct audio {
	uint64_t d, ff;
	bool k_bias;
};

static void audio_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct audio *s = ctx;

	(void)i;
	oom_weight_linear(t, "k_proj", s->d, s->d, s->k_bias);
	oom_weight_linear(t, "v_proj", s->d, s->d, true);
	oom_weight_linear(t, "q_proj", s->d, s->d, true);
	oom_weight_linear(t, "out_proj", s->d, s->d, true);
	oom_weight_norm(t, "self_attn_layer_norm", s->d, true);
	oom_weight_linear(t, "fc1", s->d, s->ff, true);
	oom_weight_linear(t, "fc2", s->ff, s->d, true);
	oom_weight_norm(t, "final_layer_norm", s->d, true);
}

struct oom_val oom_emit_omni(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[2];
	const bool third = !strncmp(e->v->type, "qwen3", 5);
	const struct audio s = {oom_read_count(r, "d_model", 1),
				oom_read_count(r, "encoder_ffn_dim", 1), third};
	const uint64_t bins = oom_read_count_or(r, "num_mel_bins", 128),
		       out = oom_read_count(r, "output_dim", 1);
	const uint64_t layers = oom_read_count(r, "encoder_layers", 0);

	if (r->status)
		return oom_none();
	if (!third) {
		oom_weight_conv(t, "conv1", s.d, bins * 3, true);
		oom_weight_conv(t, "conv2", s.d, s.d * 3, true);
		oom_weight(t, "audio_bos_eos_token", 2, out);
	}
	oom_weight_layers(t, layers, audio_layer, &s);
	oom_weight_norm(t, "ln_post", s.d, true);
	if (third) {
		const uint64_t c = oom_read_count_or(r, "downsample_hidden_size", 480);

		oom_weight_conv(t, "conv2d1", c, 9, true);
		oom_weight_conv(t, "conv2d2", c, c * 9, true);
		oom_weight_conv(t, "conv2d3", c, c * 9, true);
		oom_weight_linear(t, "conv_out", c * ((((bins + 1) / 2 + 1) / 2 + 1) / 2), s.d,
				  false);
		oom_weight_linear(t, "proj1", s.d, s.d, true);
		oom_weight_linear(t, "proj2", s.d, out, true);
	} else {
		oom_weight_linear(t, "proj", s.d, out, true);
	}
	return oom_emit_qwen(e);
}
