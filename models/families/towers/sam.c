/* SAM's encoder, as weights alone (weights.h), and what stands on it.
 * Reference: transformers 5.12, models/{got_ocr2,deepseek_vl_hybrid,pp_formulanet}/modeling_*.py. */
#include "blocks/image.h"
#include "vision.h"
#include "weights.h"

/* GotOcr2VisionEncoder, SamVisionEncoder.  PLACES: 2 * side - 1 of a window, or of the whole image. */
enum { H = YES + 1, FF, QKV, HEAD, PLACES, BIAS, RELATIVE, OUT, OUT9, NUMBERS };
static const struct oom_weight_row sam_layer[] = {
	NORM("layer_norm1", H, YES),
	ONLY(RELATIVE, 2), ALONE("rel_pos_h", PLACES, HEAD), ALONE("rel_pos_w", PLACES, HEAD),
	LINEAR("qkv", H, QKV, BIAS), LINEAR("proj", H, H, YES), NORM("layer_norm2", H, YES),
	LINEAR("lin1", H, FF, YES), LINEAR("lin2", FF, H, YES), OOM_WEIGHTS_END};
static const struct oom_weight_row sam_neck[] = {
	CONV("conv1", OUT, H, NO), NORM("layer_norm1", OUT, YES), CONV("conv2", OUT, OUT9, NO),
	NORM("layer_norm2", OUT, YES), OOM_WEIGHTS_END};

struct sam {
	uint64_t n[NUMBERS], layers, whole;     /* layers that attend to all of the image */
	uint64_t window, grid, patch, channels;
};

/* mlp_dim absent or null: mlp_ratio * hidden_size */
static struct sam sam_read(struct oom_reader *r)
{
	const uint64_t d = oom_read_count(r, "hidden_size", 1), out =
		oom_read_count_or(r, "output_channels", 256),
		       heads = oom_read_count(r, "num_attention_heads", 1);
	struct sam s = {.n = {[YES] = 1, [H] = d, [QKV] = 3 * d, [OUT] = out, [OUT9] = 9 * out,
			      [BIAS] = oom_read_bool(r, "qkv_bias", true),
			      [RELATIVE] = oom_read_bool(r, "use_rel_pos", true)},
			.layers = oom_read_count(r, "num_hidden_layers", 0),
			.patch = oom_read_side(r, "patch_size", 16),
			.window = oom_read_count_or(r, "window_size", 14),
			.channels = oom_read_count_or(r, "num_channels", 3)};
	const uint64_t global = oom_read_items(r, "global_attn_indexes", 0);

	s.grid = oom_read_side(r, "image_size", 1024) / (s.patch ? s.patch : 1);
	s.n[FF] = oom_read_count_or(r, "mlp_dim", (uint64_t)((double)d * oom_read_real(r,
										       "mlp_ratio", 4)));
	s.n[HEAD] = heads ? d / heads : 0;
	for (uint32_t i = 0; i < global && i < OOM_MAX_LAYERS; i++) {
		const double at = oom_read_item_real(r, "global_attn_indexes", i, -1);

		s.whole += at >= 0 && at < (double)s.layers && s.whole < s.layers;
	}
	return s;
}

/* Reads the keys of both configs that describe it and emits it; the channels it gives. */
static struct sam sam_encoder(struct oom_emit *e, struct oom_reader *r)
{
	struct oom_tape *t = e->t;
	struct sam s = sam_read(r);

	if (r->status || !s.n[HEAD] || !s.patch || !s.grid || !s.window ||
	    s.layers > OOM_MAX_LAYERS ||
	    s.channels > 65536 || s.window > 65536 || !s.n[FF]) {
		oom_read_fail(r, "the vision tower's sizes (%s) make no model", r->prefix);
		return (struct sam){.n = {[OUT] = 1}};
	}
	if (oom_read_bool(r, "use_abs_pos", true))
		oom_weight(t, "pos_embed", s.grid * s.grid, s.n[H]);
	oom_weight_conv(t, "projection", s.n[H], s.channels * s.patch * s.patch, true);
	s.n[PLACES] = 2 * s.window - 1;
	oom_weight_stack(t, s.layers - s.whole, sam_layer, s.n);
	s.n[PLACES] = 2 * s.grid - 1;
	oom_weight_stack(t, s.whole, sam_layer, s.n);
	oom_weight_rows(t, sam_neck, s.n);
	return s;
}

/* GotOcr2MultiModalProjector */
struct oom_val oom_emit_sam(struct oom_emit *e)
{
	const uint64_t out = sam_encoder(e, &e->part[1]).n[OUT], d = e->a->d_model;

	oom_weight_conv(e->t, "conv_upsampler1", 2 * out, out * 9, false);
	oom_weight_conv(e->t, "conv_upsampler2", d, 2 * out * 9, false);
	oom_weight_linear(e->t, "multimodal_projector", d, d, true);
	return oom_none();
}

/* DeepseekVLHybridModel: a SAM encoder beside SigLIP, each projected to half the width. */
struct oom_val oom_emit_hybrid(struct oom_emit *e)
{
	struct oom_tape *t = e->t;
	const uint64_t d = e->a->d_model;
	struct oom_tower w;
	struct sam s;
	uint64_t out;

	oom_weight(t, "high_res_vision_alpha", 0, 1);
	s = sam_encoder(e, &e->part[2]);
	out = s.n[OUT];
	oom_weight_rows(t, sam_neck, s.n);
	oom_weight_conv(t, "conv1", 2 * out, out * 9, false);
	oom_weight_conv(t, "conv2", 4 * out, 2 * out * 9, false);
	oom_tower_weights(e, 1, &w);
	oom_weight_linear(t, "vision_proj", w.d, d / 2, true);
	oom_weight_linear(t, "high_res_vision_proj", 4 * out, d / 2, true);
	oom_weight_linear(t, "proj", d, d, true);
	return oom_none();
}

/* PPFormulaNetVisionModel: SAM's encoder, two convolutions, two linear layers. */
struct oom_val oom_emit_formula(struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	const uint64_t in = sam_encoder(e, r).n[OUT], mid =
		oom_read_count_or(r, "post_conv_mid_channels", 512),
		       out = oom_read_count_or(r, "post_conv_out_channels", 1024);

	oom_weight_conv(e->t, "conv1", mid, in * 9, false);
	oom_weight_conv(e->t, "conv2", out, mid * 9, false);
	oom_weight_linear(e->t, "linear_1", out, out, true);
	oom_weight_linear(e->t, "linear_2", out,
			  oom_read_count_or(r, "decoder_hidden_size", e->a->d_model), true);
	return oom_none();
}
