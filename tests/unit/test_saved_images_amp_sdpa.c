/* Vision transformers under bf16 autocast with PyTorch's own attention: what a layer leaves for its backward
 * pass (saved_case.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "saved_case.h"

/* Images of 32 by 32 in patches of 8: 16 of them. */
enum { PATCHES = 16 };
#define IMAGE                                                                                   \
	"\"hidden_size\":96,\"intermediate_size\":208,\"num_hidden_layers\":3,\"num_attention_heads\":6," \
	"\"image_size\":32,\"patch_size\":8,\"num_channels\":3"

static const struct saved_layer layers[] = {
	{"vit", IMAGE,
	 OOM_TASK_IMAGE_CLS, "precision=amp-bf16;attn=sdpa",
	 {{"layernorm_before native_layer_norm", B * (1 + PATCHES), 4},
	  {"layernorm_before native_layer_norm", B * (1 + PATCHES), 4},
	  {"q_proj to_copy", B * (1 + PATCHES) * H, 2}, {"q_proj to_copy", H * H, 2},
	  {"q_proj addmm", 34 * H, 2}, {"k_proj to_copy", B * (1 + PATCHES) * H, 2},
	  {"k_proj to_copy", H * H, 2}, {"k_proj addmm", 34 * H, 2},
	  {"v_proj to_copy", B * (1 + PATCHES) * H, 2}, {"v_proj to_copy", H * H, 2},
	  {"v_proj addmm", 34 * H, 2},
	  {"attention scaled_dot_product_flash_attention", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention scaled_dot_product_flash_attention", B * A * (1 + PATCHES), 4},
	  {"attention scaled_dot_product_flash_attention", B, 8},
	  {"attention scaled_dot_product_flash_attention", 1, 8}, {"o_proj to_copy", H * H, 2},
	  {"layer add", B * (1 + PATCHES) * H, 4}, {"layernorm_after native_layer_norm", B * (1 + PATCHES), 4},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES), 4},
	  {"fc1 to_copy", B * (1 + PATCHES) * H, 2}, {"fc1 to_copy", F * H, 2}, {"fc1 addmm", 34 * F, 2},
	  {"activation_fn gelu", B * (1 + PATCHES) * F, 2}, {"fc2 to_copy", H * F, 2},
	  {"layer add", B * (1 + PATCHES) * H, 4}}},
	{"ijepa", IMAGE,
	 OOM_TASK_IMAGE_CLS, "precision=amp-bf16;attn=sdpa",
	 {{"layernorm_before native_layer_norm", B * PATCHES, 4},
	  {"layernorm_before native_layer_norm", B * PATCHES, 4}, {"q_proj to_copy", B * PATCHES * H, 2},
	  {"q_proj to_copy", H * H, 2}, {"q_proj addmm", 32 * H, 2}, {"k_proj to_copy", B * PATCHES * H, 2},
	  {"k_proj to_copy", H * H, 2}, {"k_proj addmm", 32 * H, 2}, {"v_proj to_copy", B * PATCHES * H, 2},
	  {"v_proj to_copy", H * H, 2}, {"v_proj addmm", 32 * H, 2},
	  {"attention scaled_dot_product_flash_attention", B * A * PATCHES * HEAD, 2},
	  {"attention scaled_dot_product_flash_attention", B * A * HEAD, 4},
	  {"attention scaled_dot_product_flash_attention", B, 8},
	  {"attention scaled_dot_product_flash_attention", 1, 8}, {"o_proj to_copy", H * H, 2},
	  {"layer add", B * PATCHES * H, 4}, {"layernorm_after native_layer_norm", B * PATCHES, 4},
	  {"layernorm_after native_layer_norm", B * PATCHES, 4}, {"fc1 to_copy", B * PATCHES * H, 2},
	  {"fc1 to_copy", F * H, 2}, {"fc1 addmm", 32 * F, 2}, {"activation_fn gelu", B * PATCHES * F, 2},
	  {"fc2 to_copy", H * F, 2}, {"layer add", B * PATCHES * H, 4}}},
	{"vit_msn", IMAGE,
	 OOM_TASK_IMAGE_CLS, "precision=amp-bf16;attn=sdpa",
	 {{"layernorm_before native_layer_norm", B * (1 + PATCHES), 4},
	  {"layernorm_before native_layer_norm", B * (1 + PATCHES), 4},
	  {"q_proj to_copy", B * (1 + PATCHES) * H, 2}, {"q_proj to_copy", H * H, 2},
	  {"q_proj addmm", 34 * H, 2}, {"k_proj to_copy", B * (1 + PATCHES) * H, 2},
	  {"k_proj to_copy", H * H, 2}, {"k_proj addmm", 34 * H, 2},
	  {"v_proj to_copy", B * (1 + PATCHES) * H, 2}, {"v_proj to_copy", H * H, 2},
	  {"v_proj addmm", 34 * H, 2},
	  {"attention scaled_dot_product_flash_attention", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention scaled_dot_product_flash_attention", B * A * (1 + PATCHES), 4},
	  {"attention scaled_dot_product_flash_attention", B, 8},
	  {"attention scaled_dot_product_flash_attention", 1, 8}, {"o_proj to_copy", H * H, 2},
	  {"layer add", B * (1 + PATCHES) * H, 4}, {"layernorm_after native_layer_norm", B * (1 + PATCHES), 4},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES), 4},
	  {"fc1 to_copy", B * (1 + PATCHES) * H, 2}, {"fc1 to_copy", F * H, 2}, {"fc1 addmm", 34 * F, 2},
	  {"activation_fn gelu", B * (1 + PATCHES) * F, 2}, {"fc2 to_copy", H * F, 2},
	  {"layer add", B * (1 + PATCHES) * H, 4}}},
	{"dinov2", IMAGE ",\"mlp_ratio\":2",
	 OOM_TASK_IMAGE_CLS, "precision=amp-bf16;attn=sdpa",
	 {{"norm1 native_layer_norm", B * (1 + PATCHES), 4}, {"norm1 native_layer_norm", B * (1 + PATCHES), 4},
	  {"key to_copy", B * (1 + PATCHES) * H, 2}, {"key to_copy", H * H, 2}, {"key addmm", 34 * H, 2},
	  {"value to_copy", B * (1 + PATCHES) * H, 2}, {"value to_copy", H * H, 2}, {"value addmm", 34 * H, 2},
	  {"query to_copy", B * (1 + PATCHES) * H, 2}, {"query to_copy", H * H, 2}, {"query addmm", 34 * H, 2},
	  {"attention scaled_dot_product_flash_attention", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention scaled_dot_product_flash_attention", B * A * (1 + PATCHES), 4},
	  {"attention scaled_dot_product_flash_attention", B, 8},
	  {"attention scaled_dot_product_flash_attention", 1, 8}, {"dense to_copy", H * H, 2},
	  {"dense addmm", 34 * H, 2}, {"layer add", B * (1 + PATCHES) * H, 4},
	  {"norm2 native_layer_norm", B * (1 + PATCHES), 4}, {"norm2 native_layer_norm", B * (1 + PATCHES), 4},
	  {"fc1 to_copy", B * (1 + PATCHES) * H, 2}, {"fc1 to_copy", 192 * H, 2}, {"fc1 addmm", 34 * 192, 2},
	  {"activation gelu", B * (1 + PATCHES) * 192, 2}, {"fc2 to_copy", H * 192, 2},
	  {"fc2 addmm", 34 * H, 2}, {"layer add", B * (1 + PATCHES) * H, 4}}},
	{"dinov2_with_registers", IMAGE ",\"mlp_ratio\":2,\"num_register_tokens\":4",
	 OOM_TASK_IMAGE_CLS, "precision=amp-bf16;attn=sdpa",
	 {{"norm1 native_layer_norm", B * 21, 4}, {"norm1 native_layer_norm", B * 21, 4},
	  {"key to_copy", B * 21 * H, 2}, {"key to_copy", H * H, 2}, {"key addmm", 42 * H, 2},
	  {"value to_copy", B * 21 * H, 2}, {"value to_copy", H * H, 2}, {"value addmm", 42 * H, 2},
	  {"query to_copy", B * 21 * H, 2}, {"query to_copy", H * H, 2}, {"query addmm", 42 * H, 2},
	  {"attention scaled_dot_product_flash_attention", B * A * 21 * HEAD, 2},
	  {"attention scaled_dot_product_flash_attention", B * A * 21, 4},
	  {"attention scaled_dot_product_flash_attention", B, 8},
	  {"attention scaled_dot_product_flash_attention", 1, 8}, {"dense to_copy", H * H, 2},
	  {"dense addmm", 42 * H, 2}, {"layer add", B * 21 * H, 4}, {"norm2 native_layer_norm", B * 21, 4},
	  {"norm2 native_layer_norm", B * 21, 4}, {"fc1 to_copy", B * 21 * H, 2}, {"fc1 to_copy", 192 * H, 2},
	  {"fc1 addmm", 42 * 192, 2}, {"activation gelu", B * 21 * 192, 2}, {"fc2 to_copy", H * 192, 2},
	  {"fc2 addmm", 42 * H, 2}, {"layer add", B * 21 * H, 4}}},
	{"beit", IMAGE ",\"use_relative_position_bias\":true",
	 OOM_TASK_IMAGE_CLS, "precision=amp-bf16;attn=sdpa",
	 {{"layernorm_before native_layer_norm", B * (1 + PATCHES), 4},
	  {"layernorm_before native_layer_norm", B * (1 + PATCHES), 4},
	  {"q_proj to_copy", B * (1 + PATCHES) * H, 2}, {"q_proj to_copy", H * H, 2},
	  {"q_proj addmm", 34 * H, 2}, {"k_proj to_copy", B * (1 + PATCHES) * H, 2},
	  {"k_proj to_copy", H * H, 2}, {"k_proj mm", 34 * H, 2}, {"v_proj to_copy", B * (1 + PATCHES) * H, 2},
	  {"v_proj to_copy", H * H, 2}, {"v_proj addmm", 34 * H, 2},
	  {"attention constant_pad_nd", A * (1 + PATCHES) * 32, 2},
	  {"attention scaled_dot_product_efficient_attention", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention scaled_dot_product_efficient_attention", B * A * 32, 4},
	  {"attention scaled_dot_product_efficient_attention", 1, 8},
	  {"attention scaled_dot_product_efficient_attention", 1, 8}, {"o_proj to_copy", H * H, 2},
	  {"o_proj addmm", 34 * H, 2}, {"drop_path floor", B, 4}, {"layer add", B * (1 + PATCHES) * H, 4},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES), 4},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES), 4},
	  {"fc1 to_copy", B * (1 + PATCHES) * H, 2}, {"fc1 to_copy", F * H, 2}, {"fc1 addmm", 34 * F, 2},
	  {"activation_fn gelu", B * (1 + PATCHES) * F, 2}, {"fc2 to_copy", H * F, 2}, {"fc2 addmm", 34 * H, 2},
	  {"drop_path floor", B, 4}, {"layer add", B * (1 + PATCHES) * H, 4}}},
};

SAVED_TEST(layers)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
