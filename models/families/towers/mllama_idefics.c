/* Vision towers and resamplers of Mllama, IDEFICS, ERNIE 4.5 VL and Emu 3, as weights: see
 * shapes.c. Reference: transformers 5.12, the classes named at each function. */
#include <string.h>

#include "blocks/image.h"
#include "vision.h"
#include "weights.h"

/* ---- Mllama: MllamaVisionModel ---- */

struct mllama {
	uint64_t d, ff;
	bool gated;
};

static void mllama_layer(struct oom_tape *t, const void *ctx, uint64_t i)
{
	static const char *const names[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
	const struct mllama *s = ctx;

	(void)i;
	for (int k = 0; k < 4; k++)
		oom_weight_linear(t, names[k], s->d, s->d, false);
	oom_weight_linear(t, "fc1", s->d, s->ff, true);
	oom_weight_linear(t, "fc2", s->ff, s->d, true);
	oom_weight_norm(t, "input_layernorm", s->d, true);
	oom_weight_norm(t, "post_attention_layernorm", s->d, true);
	if (s->gated) {
		oom_weight(t, "gate_attn", 0, 1);
		oom_weight(t, "gate_ffn", 0, 1);
	}
}

struct oom_val oom_emit_mllama(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	struct mllama s = {.d = oom_read_count(r, "hidden_size", 1),
			   .ff = oom_read_count(r, "intermediate_size", 1)};
	const uint64_t patch = oom_read_side(r, "patch_size", 14),
		       grid = oom_read_side(r, "image_size", 448) / (patch ? patch : 1);
	const uint64_t channels = oom_read_count_or(r, "num_channels", 3),
		       tiles = oom_read_count_or(r, "max_num_tiles", 4);
	const uint64_t places = grid * grid + 1,
		       kinds = oom_read_items(r, "supported_aspect_ratios", 8) + 1;

	if (r->status || !patch || patch > 65536 || !channels || channels > 65536 || !tiles ||
	    tiles > 65536 || s.d > 1 << 24) {
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
		return oom_none();
	}
	oom_weight(t, "class_embedding", 0, s.d);
	oom_weight_conv(t, "patch_embedding", s.d, channels * patch * patch, false);
	oom_weight(t, "gate", 0, 1);
	oom_weight(t, "embedding", places, s.d);
	oom_weight(t, "tile_embedding", kinds, tiles * places * s.d);
	for (int i = 0; i < 2; i++) {           /* before and after the local layers */
		oom_weight(t, "gate", 0, 1);
		oom_weight(t, "embedding", kinds, tiles * s.d);
	}
	oom_weight_norm(t, "layernorm_pre", s.d, true);
	oom_weight_norm(t, "layernorm_post", s.d, true);
	oom_weight_layers(t, oom_read_count(r, "num_hidden_layers", 0), mllama_layer, &s);
	s.gated = true;
	oom_weight_layers(t, oom_read_count_or(r, "num_global_layers", 8), mllama_layer, &s);
	oom_weight_linear(
		t, "multi_modal_projector",
		oom_read_count_or(r, "vision_output_dim",
				  s.d * (1 + oom_read_items(r, "intermediate_layers_indices", 5))),
		e->a->d_model, true);
	return oom_none();
}

/* ---- IDEFICS: a frozen CLIP tower, gated cross-attention layers, perhaps a perceiver ---- */

struct idefics {
	uint64_t d, ff, from, head, heads, gate;
	bool norms;
};

static void idefics_cross(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct idefics *s = ctx;

	(void)i;
	oom_weight(t, "alpha_cross_attn", 0, s->gate);
	oom_weight(t, "alpha_dense", 0, s->gate);
	oom_weight_linear(t, "q_proj", s->d, s->d, false);
	oom_weight_linear(t, "k_proj", s->from, s->d, false);
	oom_weight_linear(t, "v_proj", s->from, s->d, false);
	oom_weight_linear(t, "o_proj", s->d, s->d, false);
	if (s->norms) {
		oom_weight_norm(t, "q_layer_norm", s->head, false);
		oom_weight_norm(t, "k_layer_norm", s->head, false);
	}
	oom_weight_linear(t, "gate_proj", s->d, s->ff, false);
	oom_weight_linear(t, "down_proj", s->ff, s->d, false);
	oom_weight_linear(t, "up_proj", s->d, s->ff, false);
	oom_weight_norm(t, "input_layernorm", s->d, false);
	oom_weight_norm(t, "post_attention_layernorm", s->d, false);
}

/* IdeficsPerceiverResampler's blocks */
static void idefics_resampler(struct oom_tape *t, const void *ctx, uint64_t i)
{
	static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
	const struct idefics *s = ctx;

	(void)i;
	oom_weight_norm(t, "context_layer_norm", s->d, true);
	oom_weight_norm(t, "latents_layer_norm", s->d, true);
	if (s->norms) {
		oom_weight_norm(t, "q_layer_norm", s->head, true);
		oom_weight_norm(t, "k_layer_norm", s->head, true);
	}
	for (int k = 0; k < 3; k++)
		oom_weight_linear(t, names[k], s->d, s->heads * s->head, false);
	oom_weight_linear(t, "output_proj", s->heads * s->head, s->d, false);
	oom_weight_norm(t, "ln", s->d, true);
	oom_weight_linear(t, "fc", s->d, 4 * s->d, false);
	oom_weight_linear(t, "c_proj", 4 * s->d, s->d, false);
}

struct oom_val oom_emit_idefics(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *o = &e->outer, *r = &e->part[2];
	const struct oom_arch *a = e->a;
	const uint64_t more = oom_read_count_or(o, "additional_vocab_size", 0),
		       every = oom_read_count_or(o, "cross_layer_interval", 1);
	const bool frozen = t->frozen;
	struct idefics s = {.d = a->d_model,
			    .ff = a->d_ff,
			    .head = a->head_dim,
			    .norms = oom_read_bool(o, "qk_layer_norms", false)};
	struct oom_tower w;

	t->frozen |= oom_read_bool(o, "freeze_vision_layers", true);
	oom_tower_read(&w, &e->part[1], e->v->part[1].type);
	oom_discard(t, oom_tower_run(e, &w));
	t->frozen = frozen;
	s.from = w.d;
	s.gate = strcmp(oom_read_string(o, "alpha_type", "float"), "vector") ? 1 : s.d;
	oom_weight_layers(t, every ? a->n_layers / every : 0, idefics_cross, &s);
	if (more) {
		oom_weight(t, "additional_embedding", more, s.d);
		if (!a->tie)
			oom_weight_linear(t, "additional_fc", s.d, more, false);
	}
	if (oom_read_bool(o, "use_resampler", false)) {
		s = (struct idefics){.d = w.d, .head = oom_read_count(r, "resampler_head_dim", 1),
				     .heads = oom_read_count(r, "resampler_n_heads", 1),
				     .norms = oom_read_bool(r, "qk_layer_norms_perceiver", false)};
		oom_weight(t, "latents", oom_read_count(r, "resampler_n_latents", 1), w.d);
		oom_weight_layers(t, oom_read_count(r, "resampler_depth", 0), idefics_resampler,
				  &s);
		oom_weight_norm(t, "layer_norm", w.d, true);
	}
	return oom_none();
}

/* ---- ERNIE 4.5 VL: Ernie4_5_VLMoeVariableResolutionResamplerModel ---- */

static void resampler_mlp(struct oom_tape *t, uint64_t in, uint64_t out)
{
	oom_weight_linear(t, "fc1", in, out, true);
	oom_weight_linear(t, "fc2", out, out, true);
	oom_weight_norm(t, "ln", out, true);
}

struct oom_val oom_emit_ernie(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const uint64_t frames = oom_read_count_or(&e->part[1], "temporal_merge_size", 2);
	struct oom_tower w;
	uint64_t d;

	oom_tower_read(&w, &e->part[1], e->v->part[1].type);
	oom_discard(t, oom_tower_run(e, &w));
	d = w.d * w.merge * w.merge;
	resampler_mlp(t, d, d);
	resampler_mlp(t, d * frames, d);
	oom_weight_linear(t, "mlp", d, e->a->d_model, true);
	oom_weight_norm(t, "after_norm", e->a->d_model, false);
	return oom_none();
}

/* ---- Emu 3: Emu3VQVAE, with time as a third dimension ---- */

#define MAX_LEVELS 16
struct emu {
	uint64_t base, multiplier[MAX_LEVELS], n, blocks, in, out, latent, embed, d, times;
	bool twice;
};

/* A group norm, or one steered by the quantised features (Emu3VQVAESpatialNorm). */
static void emu_norm(struct oom_tape *t, uint64_t d, uint64_t quant)
{
	oom_weight_norm(t, "norm", d, true);
	if (quant) {
		oom_weight_conv(t, "conv_y", d, quant, true);
		oom_weight_conv(t, "conv_b", d, quant, true);
	}
}

static void emu_resnet(struct oom_tape *t, uint64_t in, uint64_t out, uint64_t quant)
{
	emu_norm(t, in, quant);
	emu_norm(t, out, quant);
	oom_weight_conv(t, "conv1", out, in * 9, true);
	oom_weight_conv(t, "conv2", out, out * 9, true);
	if (in != out)
		oom_weight_conv(t, "nin_shortcut", out, in, true);
}

static void emu_attention(struct oom_tape *t, uint64_t d, uint64_t channels, uint64_t quant)
{
	static const char *const names[] = {"k_proj", "v_proj", "q_proj", "out_proj"};

	for (int i = 0; i < 4; i++)
		oom_weight_linear(t, names[i], d, d, true);
	emu_norm(t, channels, quant);
}

static void emu_middle(struct oom_tape *t, const struct emu *s, uint64_t channels, uint64_t quant)
{
	emu_resnet(t, channels, channels, quant);
	emu_attention(t, s->d, channels, quant);
	emu_resnet(t, channels, channels, quant);
}

/* Emu3VQVAETemporalResnetBlock: batch norms and 3 x 3 x 3 convolutions; the temporal resampler's
 * kernel. */
static void emu_times(struct oom_tape *t, const struct emu *s, uint64_t d, uint64_t kernel)
{
	for (uint64_t i = 0; i < s->times; i++)
		oom_weight_conv(t, "time_conv", d, d * kernel, true);
	for (uint64_t i = 0; i < s->blocks; i++) {
		oom_weight_norm(t, "norm1", d, true);
		oom_weight_conv(t, "conv1", d, d * 27, true);
		oom_weight_norm(t, "norm2", d, true);
		oom_weight_conv(t, "conv2", d, d * 27, true);
	}
}

static bool emu_attends(struct oom_reader *r, uint64_t level)
{
	const uint64_t n = oom_read_items(r, "attn_resolutions", 0);

	for (uint32_t i = 0; i < n && i < 64; i++)
		if (oom_read_item_real(r, "attn_resolutions", i, -1) == (double)level)
			return true;
	return false;
}

static void emu_encoder(struct oom_tape *t, struct oom_reader *r, const struct emu *s)
{
	const uint64_t out = s->latent * (s->twice ? 2 : 1);
	uint64_t in = s->base;

	oom_weight_conv(t, "conv_in", in, s->in * 9, true);
	for (uint64_t l = 0; l < s->n; l++) {
		for (uint64_t i = 0; i < s->blocks; i++) {
			emu_resnet(t, in, s->base * s->multiplier[l], 0);
			in = s->base * s->multiplier[l];
			if (emu_attends(r, l))
				emu_attention(t, s->d, in, 0);
		}
		if (l + 1 < s->n)
			oom_weight_conv(t, "downsample", in, in * 9, true);
	}
	emu_middle(t, s, in, 0);
	oom_weight_norm(t, "norm_out", in, true);
	oom_weight_conv(t, "conv_out", out, in * 9, true);
	emu_times(t, s, out, 36);               /* 4 x 3 x 3 */
}

static void emu_decoder(struct oom_tape *t, struct oom_reader *r, const struct emu *s)
{
	uint64_t in = s->base * s->multiplier[s->n - 1];

	emu_times(t, s, s->latent, 27);
	oom_weight_conv(t, "conv_in", in, s->latent * 9, true);
	emu_middle(t, s, in, s->embed);
	for (uint64_t l = s->n; l-- > 0;) {
		for (uint64_t i = 0; i <= s->blocks; i++) {
			emu_resnet(t, in, s->base * s->multiplier[l], s->embed);
			in = s->base * s->multiplier[l];
			if (emu_attends(r, l))
				emu_attention(t, s->d, in, s->embed);
		}
		if (l)
			oom_weight_conv(t, "upsample", in, in * 9, true);
	}
	emu_norm(t, in, s->embed);
	oom_weight_conv(t, "conv_out", s->out, in * 9, true);
}

struct oom_val oom_emit_emu3(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	struct oom_reader *r = &e->part[1];
	struct emu s = {.base = oom_read_count(r, "base_channels", 1),
			.blocks = oom_read_count(r, "num_res_blocks", 0),
			.in = oom_read_count_or(r, "in_channels", 3),
			.out = oom_read_count_or(r, "out_channels", 3),
			.latent = oom_read_count(r, "latent_channels", 1),
			.embed = oom_read_count(r, "embed_dim", 1),
			.d = oom_read_count(r, "hidden_size", 1),
			.twice = oom_read_bool(r, "double_latent", false)};

	s.n = oom_read_counts(r, "channel_multiplier", s.multiplier, MAX_LEVELS);
	for (uint64_t f = oom_read_count_or(r, "temporal_downsample_factor", 4); f > 1; f /= 2)
		s.times++;
	if (r->status || s.base > 65536 || s.blocks > 64) {
		oom_read_fail(r, "the image tokenizer's sizes (%s) make no model", r->prefix);
		return oom_none();
	}
	emu_encoder(t, r, &s);
	emu_decoder(t, r, &s);
	oom_weight(t, "quantize.embedding", oom_read_count(r, "codebook_size", 1), s.embed);
	oom_weight_conv(t, "quant_conv", s.embed, s.latent * 3, true);
	oom_weight_conv(t, "post_quant_conv", s.latent, s.embed * 3, true);
	return oom_none();
}
