/* Seamless M4T's speech encoder, as weights alone (weights.h): a conformer and an adapter
 * that shortens it.  Reference: transformers 5.12, models/{seamless_m4t,seamless_m4t_v2}/modeling_*.py. */
#include "weights.h"

/* H2: twice the width; LONG: H by the adapter's kernel; TABLE: distances in a table, RELATIVE:
 * biases of relative positions */
enum { H = YES + 1, FF, HEADS, HEAD, KERNEL, DISTANCES, TABLE, RELATIVE, H2, LONG };
#define FEED \
	NORM("layer_norm", H, YES), LINEAR("intermediate_dense", H, FF, YES), \
	LINEAR("output_dense", FF, H, YES)
#define ATTENTION \
	NORM("self_attn_layer_norm", H, YES), LINEAR("linear_q", H, H, YES), \
		LINEAR("linear_k", H, H, YES), LINEAR("linear_v", H, H, YES), \
	LINEAR("linear_out", H, H, YES)
static const struct oom_weight_row encoder_layer[] = {
	FEED, ATTENTION,
	ONLY(RELATIVE, 3), ALONE("pos_bias_u", HEADS, HEAD), ALONE("pos_bias_v", HEADS, HEAD),
	LINEAR("linear_pos", H, H, NO),
	ONLY(TABLE, 1), ALONE("distance_embedding", DISTANCES, HEAD),
	NORM("conv_module.layer_norm", H, YES), CONV("pointwise_conv1", H2, H, NO),
	CONV("depthwise_conv", H, KERNEL, NO), NORM("batch_norm", H, YES),
	CONV("pointwise_conv2", H, H, NO), FEED, NORM("final_layer_norm", H, YES), OOM_WEIGHTS_END};
static const struct oom_weight_row adapter_layer[] = {
	NORM("residual_layer_norm", H, YES), CONV("residual_conv", H2, LONG, YES),
	CONV("self_attn_conv", H2, LONG, YES), ATTENTION, FEED, OOM_WEIGHTS_END};

void oom_seamless_speech(struct oom_tape *t, const struct oom_arch *a, bool relative)
{
	struct oom_reader reader = a->rd, *r = &reader;
	const uint64_t in = oom_read_count_or(r, "feature_projection_input_dim", 160), d =
		a->d_model,
		       ff = oom_read_count(r, "speech_encoder_intermediate_size", 1),
		       heads = oom_read_count(r, "speech_encoder_attention_heads", 1),
		       layers = oom_read_count(r, "speech_encoder_layers", 0),
		       adapters = oom_read_count_or(r, "num_adapter_layers", 1);
	const uint64_t n[] = {[YES] = 1, [H] = d, [FF] = ff, [HEADS] = heads, [HEAD] = heads ?
			      d / heads : 0,
			      [KERNEL] = oom_read_count_or(r, "conv_depthwise_kernel_size", 31),
			      [DISTANCES] = oom_read_count_or(r, "left_max_position_embeddings",
							      64) +
					    oom_read_count_or(r, "right_max_position_embeddings",
							      8) + 1,
			      [TABLE] = !relative, [RELATIVE] = relative, [H2] = 2 * d,
			      [LONG] = d * oom_read_count_or(r, "adaptor_kernel_size", 8)};

	if (r->status || layers > OOM_MAX_LAYERS || adapters > OOM_MAX_LAYERS || heads > d) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s",
			      r->status ? r->err.text : "the speech encoder's sizes make no model");
		return;
	}
	oom_weight_norm(t, "feature_projection.layer_norm", in, true);
	oom_weight_linear(t, "projection", in, d, true);
	oom_weight_stack(t, layers, encoder_layer, n);
	oom_weight_norm(t, "layer_norm", d, true);
	oom_weight_linear(t, "intermediate_dense", d, ff, true);
	oom_weight_linear(t, "output_dense", ff, d, true);
	if (oom_read_bool(r, "add_adapter", true))
		oom_weight_stack(t, adapters, adapter_layer, n);
	oom_weight_norm(t, "inner_layer_norm", d, true);
}
