/* Image classifiers, part by part (parts_case.h): transformers over patches, windows and stages, and convolutions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parts_case.h"

/* Images of 32 by 32 in patches of 8: 16 of them. */
enum { PATCHES = 16, LABELS = 2 };
#define IMAGE                                                                                   \
	"\"hidden_size\":96,\"intermediate_size\":208,\"num_hidden_layers\":3,\"num_attention_heads\":6," \
	"\"image_size\":32,\"patch_size\":8,\"num_channels\":3"

static const struct model_parts patches[] = {
	/* one by its whole path: the model is named like a tower of a composition */
	{"vit", IMAGE, OOM_TASK_IMAGE_CLS,
	 {{"^vit\\.embeddings\\.", H + (1 + PATCHES) * H + H * 3 * 8 * 8 + H},
	  {"^vit\\.layers\\.0\\.", 4 * LIN(H, H) + 4 * H + LIN(H, F) + LIN(F, H)},
	  {"^vit\\.layers\\.[12]\\.", 2 * (4 * LIN(H, H) + 4 * H + LIN(H, F) + LIN(F, H))},
	  {"^vit\\.layernorm\\.", 2 * H}, {"classifier", LIN(H, LABELS)}}},
	/* a class token, patches of 8 by 8, norms first, and a classifier */
	{"vit", IMAGE, OOM_TASK_IMAGE_CLS,
	 {{"cls_token", H}, {"position_embeddings", (1 + PATCHES) * H}, {"projection", H * 3 * 8 * 8 + H},
	  {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, H)}, {"v_proj", L * LIN(H, H)},
	  {"o_proj", L * LIN(H, H)}, {"layernorm_before", L * 2 * H}, {"layernorm_after", L * 2 * H},
	  {"fc1", L * LIN(H, F)}, {"fc2", L * LIN(F, H)}, {"layernorm.", 2 * H}, {"classifier", LIN(H, LABELS)}}},
	/* a token more, which distils */
	{"deit", IMAGE, OOM_TASK_IMAGE_CLS,
	 {{"cls_token", H}, {"position_embeddings", (2 + PATCHES) * H}, {"distillation_token", H},
	  {"projection", H * 3 * 8 * 8 + H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, H)},
	  {"v_proj", L * LIN(H, H)}, {"o_proj", L * LIN(H, H)}, {"layernorm_before", L * 2 * H},
	  {"layernorm_after", L * 2 * H}, {"fc1", L * LIN(H, F)}, {"fc2", L * LIN(F, H)}, {"layernorm.", 2 * H},
	  {"classifier", LIN(H, LABELS)}}},
	/* no class token */
	{"ijepa", IMAGE, OOM_TASK_IMAGE_CLS,
	 {{"position_embeddings", 16 * H}, {"projection", H * 3 * 8 * 8 + H}, {"q_proj", L * LIN(H, H)},
	  {"k_proj", L * LIN(H, H)}, {"v_proj", L * LIN(H, H)}, {"o_proj", L * LIN(H, H)},
	  {"layernorm_before", L * 2 * H}, {"layernorm_after", L * 2 * H}, {"fc1", L * LIN(H, F)},
	  {"fc2", L * LIN(F, H)}, {"layernorm.", 2 * H}, {"classifier", LIN(H, LABELS)}}},
	{"vit_msn", IMAGE, OOM_TASK_IMAGE_CLS,
	 {{"cls_token", H}, {"position_embeddings", (1 + PATCHES) * H}, {"projection", H * 3 * 8 * 8 + H},
	  {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, H)}, {"v_proj", L * LIN(H, H)},
	  {"o_proj", L * LIN(H, H)}, {"layernorm_before", L * 2 * H}, {"layernorm_after", L * 2 * H},
	  {"fc1", L * LIN(H, F)}, {"fc2", L * LIN(F, H)}, {"layernorm.", 2 * H}, {"classifier", LIN(H, LABELS)}}},
	/* layer scale; a classifier of the class token and the mean */
	{"dinov2", IMAGE ",\"mlp_ratio\":2", OOM_TASK_IMAGE_CLS,
	 {{"cls_token", H}, {IDLE "mask_token", H}, {"position_embeddings", (1 + PATCHES) * H},
	  {"projection", H * 3 * 8 * 8 + H}, {"norm1", L * 2 * H}, {"query", L * LIN(H, H)}, {"key", L * LIN(H, H)},
	  {"value", L * LIN(H, H)}, {"dense", L * LIN(H, H)}, {"layer_scale1.lambda1", L * H}, {"norm2", L * 2 * H},
	  {"fc1", L * LIN(H, 2 * H)}, {"fc2", L * LIN(2 * H, H)}, {"layer_scale2.lambda1", L * H},
	  {"layernorm", 2 * H}, {"classifier", LIN(2 * H, LABELS)}}},
	{"dinov2_with_registers", IMAGE ",\"mlp_ratio\":2,\"num_register_tokens\":4", OOM_TASK_IMAGE_CLS,
	 {{"cls_token", H}, {IDLE "mask_token", H}, {"register_tokens", 4 * H},
	  {"position_embeddings", (1 + PATCHES) * H}, {"projection", H * 3 * 8 * 8 + H}, {"norm1", L * 2 * H},
	  {"query", L * LIN(H, H)}, {"key", L * LIN(H, H)}, {"value", L * LIN(H, H)}, {"dense", L * LIN(H, H)},
	  {"layer_scale1.lambda1", L * H}, {"norm2", L * 2 * H}, {"fc1", L * LIN(H, 2 * H)},
	  {"fc2", L * LIN(2 * H, H)}, {"layer_scale2.lambda1", L * H}, {"layernorm", 2 * H},
	  {"classifier", LIN(2 * H, LABELS)}}},
	/* a table of relative positions in every layer */
	{"beit", IMAGE ",\"use_relative_position_bias\":true", OOM_TASK_IMAGE_CLS,
	 {{"cls_token", H}, {"projection", H * 3 * 8 * 8 + H}, {"lambda_1", L * H}, {"lambda_2", L * H},
	  {"q_proj", L * LIN(H, H)}, {"k_proj", L * H * H}, {"v_proj", L * LIN(H, H)}, {"o_proj", L * LIN(H, H)},
	  {"layernorm_before", L * 2 * H}, {"layernorm_after", L * 2 * H}, {"fc1", L * LIN(H, F)},
	  {"fc2", L * LIN(F, H)}, {"relative_position_bias_table", L * 52 * A}, {"layernorm.", 2 * H},
	  {"classifier", LIN(H, LABELS)}}},
	{"data2vec-vision", IMAGE ",\"use_shared_relative_position_bias\":true", OOM_TASK_IMAGE_CLS,
	 {{"cls_token", H}, {"projection", H * 3 * 8 * 8 + H}, {"relative_position_bias_table", 52 * A},
	  {"lambda_1", L * H}, {"lambda_2", L * H}, {"query", L * LIN(H, H)}, {"key", L * H * H},
	  {"value", L * LIN(H, H)}, {"attention.output.dense", L * LIN(H, H)},
	  {"intermediate.dense", L * LIN(H, F)},
	  {"^data2vec_vision\\.encoder\\.layer\\.\\d+\\.output\\.dense\\.", L * LIN(F, H)},
	  {"layernorm_before", L * 2 * H}, {"layernorm_after", L * 2 * H}, {"layernorm.", 2 * H},
	  {"classifier", LIN(H, LABELS)}}},
	{"imagegpt", "\"vocab_size\":500,\"n_positions\":64,\"n_embd\":96,\"n_layer\":3,\"n_head\":6",
	 OOM_TASK_IMAGE_CLS,
	 {{"wte", 500 * H}, {"wpe", 64 * H}, {"ln_1", 3 * H}, {"c_attn", 3 * (H * 3 * H + 3 * H)},
	  {"c_proj", 3 * LIN(H, H) + 3 * (4 * H * H + H)}, {"ln_2", 3 * H}, {"c_fc", 3 * (H * 4 * H + 4 * H)},
	  {"ln_f", H}, {"score", LABELS * H}}},
	{"clip",
	 "\"vision_config\":{\"hidden_size\":96,\"intermediate_size\":208,\"num_hidden_layers\":3,\"num_attention_heads\":6,\"image_size\":32,\"patch_size\":8,\"num_channels\":3}",
	 OOM_TASK_IMAGE_CLS,
	 {{"class_embedding", H}, {"patch_embedding", H * 3 * 8 * 8}, {"position_embedding", (1 + PATCHES) * H},
	  {"pre_layrnorm", 2 * H}, {"k_proj", 3 * LIN(H, H)}, {"v_proj", 3 * LIN(H, H)}, {"q_proj", 3 * LIN(H, H)},
	  {"out_proj", 3 * LIN(H, H)}, {"layer_norm1", 3 * 2 * H}, {"fc1", 3 * LIN(H, F)}, {"fc2", 3 * LIN(F, H)},
	  {"layer_norm2", 3 * 2 * H}, {IDLE "post_layernorm", 2 * H}, {"classifier", LIN(H, LABELS)}}},
};

static const struct model_parts stages[] = {
	/* convolutions of one name in every layer; the first of a stage changes the width beside them */
	{"resnet", "\"embedding_size\":16,\"hidden_sizes\":[32,64],\"depths\":[2,1]", OOM_TASK_IMAGE_CLS,
	 {{"^resnet\\.embedder\\.", 3 * 16 * 49 + 2 * 16},
	  {"stages.0.layers.0.shortcut", 16 * 32 + 2 * 32},
	  {"stages.0.layers.0.layer.0", 16 * 8 + 2 * 8}, {"stages.0.layers.0.layer.1", 8 * 8 * 9 + 2 * 8},
	  {"stages.0.layers.0.layer.2", 8 * 32 + 2 * 32}, {"stages.0.layers.1.layer.0", 32 * 8 + 2 * 8},
	  {"stages.0.layers.1.layer.1.conv", 8 * 8 * 9}, {"stages.0.layers.1.layer.1.norm", 2 * 8},
	  {"stages.0.layers.1.layer.2", 8 * 32 + 2 * 32}, {"stages.1.layers.0.shortcut", 32 * 64 + 2 * 64},
	  {"stages.1.layers.0.layer.0", 32 * 16 + 2 * 16}, {"stages.1.layers.0.layer.1", 16 * 16 * 9 + 2 * 16},
	  {"stages.1.layers.0.layer.2", 16 * 64 + 2 * 64}, {"classifier.1", LIN(64, LABELS)}}},
	{"hiera", "\"embed_dim\":24,\"image_size\":[32,32],\"patch_size\":[3,3],\"patch_stride\":[2,2],"
	 "\"patch_padding\":[1,1],\"depths\":[1,1],\"num_heads\":[1,2],\"mlp_ratio\":2.0,"
	 "\"masked_unit_size\":[4,4],\"query_stride\":[2,2],\"num_query_pool\":1,\"drop_path_rate\":0.0",
	 OOM_TASK_IMAGE_CLS,
	 {{"position_embeddings", 256 * 24}, {"projection", 24 * 3 * 3 * 3 + 24}, {"layernorm_before", 2 * 2 * 24},
	  {"qkv", LIN(24, 72) + LIN(24, 144)}, {"proj.", LIN(24, 24) + LIN(48, 48) + LIN(24, 48)},
	  {"layernorm_after", 2 * 24 + 2 * 48}, {"fc1", LIN(24, 48) + LIN(48, H)},
	  {"fc2", LIN(48, 24) + LIN(H, 48)}, {"layernorm.", 2 * 48}, {"classifier", LIN(48, LABELS)}}},
	/* windows' relative positions; patches merge between stages */
	{"swin", "\"image_size\":32,\"patch_size\":2,\"embed_dim\":24,\"depths\":[1,2],\"num_heads\":[2,4],"
	 "\"window_size\":4,\"mlp_ratio\":2.0", OOM_TASK_IMAGE_CLS,
	 {{"projection", 24 * 3 * LABELS * LABELS + 24}, {".norm", 2 * 24 + 2 * H},
	  {"q_proj", LIN(24, 24) + 2 * LIN(48, 48)}, {"k_proj", LIN(24, 24) + 2 * LIN(48, 48)},
	  {"v_proj", LIN(24, 24) + 2 * LIN(48, 48)}, {"o_proj", LIN(24, 24) + 2 * LIN(48, 48)},
	  {"relative_position_bias_table", 49 * LABELS + 2 * 49 * 4}, {"layernorm_before", 2 * 24 + 2 * 2 * 48},
	  {"layernorm_after", 2 * 24 + 2 * 2 * 48}, {"fc1", LIN(24, 48) + 2 * LIN(48, H)},
	  {"fc2", LIN(48, 24) + 2 * LIN(H, 48)}, {"reduction", 48 * H}, {"layernorm.", 2 * 48},
	  {"classifier", LIN(48, LABELS)}}},
	/* depthwise convolutions of 7 by 7 */
	{"convnext",
	 "\"hidden_sizes\":[24,48],\"depths\":[1,2],\"num_stages\":2,\"patch_size\":4,\"image_size\":32",
	 OOM_TASK_IMAGE_CLS,
	 {{"patch_embeddings", 24 * 3 * 4 * 4 + 24}, {"layernorm", 2 * 2 * 24 + 3 * 2 * 48},
	  {"layer_scale_parameter", 24 + 2 * 48}, {"dwconv", 24 * 7 * 7 + 24 + 2 * (48 * 7 * 7 + 48)},
	  {"pwconv1", LIN(24, H) + 2 * LIN(48, 2 * H)}, {"pwconv2", LIN(H, 24) + 2 * LIN(2 * H, 48)},
	  {"(^|\\.)0(\\.weight|\\.bias|)$", 2 * 24},
	  {"(^|\\.)1(\\.weight|\\.bias|)$", 48 * 24 * LABELS * LABELS + 48}, {"classifier", LIN(48, LABELS)}}},
	{"convnextv2",
	 "\"hidden_sizes\":[24,48],\"depths\":[1,2],\"num_stages\":2,\"patch_size\":4,\"image_size\":32",
	 OOM_TASK_IMAGE_CLS,
	 {{"patch_embeddings", 24 * 3 * 4 * 4 + 24}, {"layernorm", 2 * 2 * 24 + 3 * 2 * 48},
	  {"dwconv", 24 * 7 * 7 + 24 + 2 * (48 * 7 * 7 + 48)}, {"pwconv1", LIN(24, H) + 2 * LIN(48, 2 * H)},
	  {"grn", H + H + 2 * (2 * H + 2 * H)}, {"pwconv2", LIN(H, 24) + 2 * LIN(2 * H, 48)},
	  {"(^|\\.)0(\\.weight|\\.bias|)$", 2 * 24},
	  {"(^|\\.)1(\\.weight|\\.bias|)$", 48 * 24 * LABELS * LABELS + 48}, {"classifier", LIN(48, LABELS)}}},
	{"pvt", "\"image_size\":32,\"num_encoder_blocks\":2,\"depths\":[1,1],"
	 "\"sequence_reduction_ratios\":[2,1],\"hidden_sizes\":[24,48],\"patch_sizes\":[4,2],"
	 "\"strides\":[4,2],\"num_attention_heads\":[1,2],\"mlp_ratios\":[2,2]", OOM_TASK_IMAGE_CLS,
	 {{"position_embeddings", 64 * 24 + (1 + PATCHES) * 48},
	  {"projection", 24 * 3 * 4 * 4 + 24 + 48 * 24 * LABELS * LABELS + 48},
	  {"layer_norm.", 2 * 2 * 24 + 2 * 2 * 48}, {"cls_token", 48}, {"layer_norm_1", 2 * 24 + 2 * 48},
	  {"query", LIN(24, 24) + LIN(48, 48)}, {"key", LIN(24, 24) + LIN(48, 48)},
	  {"value", LIN(24, 24) + LIN(48, 48)}, {"sequence_reduction", 24 * 24 * LABELS * LABELS + 24},
	  {"dense.", LIN(24, 24) + LIN(48, 48)}, {"layer_norm_2", 2 * 24 + 2 * 48},
	  {"dense1", LIN(24, 48) + LIN(48, H)}, {"dense2", LIN(48, 24) + LIN(H, 48)},
	  {"classifier", LIN(48, LABELS)}}},
	/* pooling in attention's place */
	{"poolformer", "\"num_encoder_blocks\":2,\"depths\":[1,1],\"hidden_sizes\":[24,48],\"patch_sizes\":[7,3],"
	 "\"strides\":[4,2],\"padding\":[2,1],\"mlp_ratio\":2.0", OOM_TASK_IMAGE_CLS,
	 {{"projection", 24 * 3 * 7 * 7 + 24 + 48 * 24 * 3 * 3 + 48}, {"layer_scale_1", 24 + 48},
	  {"layer_scale_2", 24 + 48}, {"conv1", 48 * 24 + 48 + H * 48 + H}, {"conv2", 24 * 48 + 24 + 48 * H + 48},
	  {"before_norm", 2 * 24 + 2 * 48}, {"after_norm", 2 * 24 + 2 * 48},
	  {"(^|\\.)norm(\\.weight|\\.bias|)$", 2 * 48}, {"classifier", LIN(48, LABELS)}}},
	{"mobilenet_v1", "\"depth_multiplier\":0.25,\"image_size\":32,\"min_depth\":8", OOM_TASK_IMAGE_CLS,
	 {
	  {"convolution", 8 * 3 * 3 * 3 + 8 * 3 * 3 + 16 * 8 + 16 * 3 * 3 + 32 * 16 + 2 * 32 * 3 * 3 + 32 * 32 + 64 * 32 + 2 * 64 * 3 * 3 + 64 * 64 + 128 * 64 + 6 * 128 * 3 * 3 + 5 * 128 * 128 + 256 * 128 + 256 * 3 * 3 + 256 * 256},
	  {"normalization", 2 * 2 * 8 + 2 * 2 * 16 + 4 * 2 * 32 + 4 * 2 * 64 + 12 * 2 * 128 + 3 * 2 * 256},
	  {"classifier", LIN(256, LABELS)}}},
	{"mobilevit", "\"hidden_sizes\":[24,32,40],\"neck_hidden_sizes\":[8,16,24,32,40,48,56],"
	 "\"num_attention_heads\":2,\"mlp_ratio\":2.0,\"image_size\":64,\"patch_size\":2", OOM_TASK_IMAGE_CLS,
	 {
	  {"convolution", 8 * 3 * 3 * 3 + 32 * 8 + 64 * 16 + 3 * H * 24 + 32 * 3 * 3 + 64 * 3 * 3 + 3 * H * 3 * 3 + 16 * 32 + 24 * 64 + 2 * 24 * H + 128 * 32 + 160 * 40 + 128 * 3 * 3 + 160 * 3 * 3 + 32 * H + 40 * 128 + 48 * 160 + 32 * 32 * 3 * 3 + 40 * 40 * 3 * 3 + 48 * 48 * 3 * 3 + 24 * 32 + 32 * 40 + 40 * 48 + 32 * 24 + 40 * 32 + 48 * 40 + 32 * 64 * 3 * 3 + 40 * 80 * 3 * 3 + 48 * H * 3 * 3 + 56 * 48},
	  {"normalization", 2 * 8 + 6 * 2 * 32 + 2 * 2 * 64 + 6 * 2 * H + 2 * 16 + 3 * 2 * 24 + 2 * 2 * 128 + 2 * 2 * 160 + 4 * 2 * 40 + 4 * 2 * 48 + 2 * 56},
	  {"query", 2 * LIN(24, 24) + 4 * LIN(32, 32) + 3 * LIN(40, 40)},
	  {"key", 2 * LIN(24, 24) + 4 * LIN(32, 32) + 3 * LIN(40, 40)},
	  {"value", 2 * LIN(24, 24) + 4 * LIN(32, 32) + 3 * LIN(40, 40)},
	  {"dense", 2 * LIN(24, 24) + 4 * LIN(32, 32) + 3 * LIN(40, 40) + 2 * LIN(24, 48) + 4 * LIN(32, 64) + 3 * LIN(40, 80) + 2 * LIN(48, 24) + 4 * LIN(64, 32) + 3 * LIN(80, 40)},
	  {"layernorm_before", 2 * 2 * 24 + 4 * 2 * 32 + 3 * 2 * 40},
	  {"layernorm_after", 2 * 2 * 24 + 4 * 2 * 32 + 3 * 2 * 40}, {"layernorm.", 2 * 24 + 2 * 32 + 2 * 40},
	  {"classifier", LIN(56, LABELS)}}},
};

PARTS_TEST(patches)
PARTS_TEST(stages)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_patches), cmocka_unit_test(test_stages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
