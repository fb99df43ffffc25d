/* Vision transformers in bf16 with attention written out: what a layer leaves for its backward pass
 * (saved_case.h). */
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
	 OOM_TASK_IMAGE_CLS, "precision=bf16;attn=eager",
	 {{"layernorm_before native_layer_norm", B * (1 + PATCHES) * H, 2},
	  {"layernorm_before native_layer_norm", B * (1 + PATCHES), 2},
	  {"layernorm_before native_layer_norm", B * (1 + PATCHES), 2},
	  {"attention clone", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention clone", B * A * PATCHES * (1 + PATCHES), 2},
	  {"attention softmax", B * A * (1 + PATCHES) * (1 + PATCHES), 4},
	  {"attention to_copy", B * A * (1 + PATCHES) * (1 + PATCHES), 2},
	  {"attention clone", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention clone", B * (1 + PATCHES) * A * HEAD, 2}, {"layer add", B * (1 + PATCHES) * H, 2},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES) * H, 2},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES), 2},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES), 2}, {"fc1 addmm", 34 * F, 2},
	  {"activation_fn gelu", B * (1 + PATCHES) * F, 2}, {"layer add", B * (1 + PATCHES) * H, 2}}},
	{"ijepa", IMAGE,
	 OOM_TASK_IMAGE_CLS, "precision=bf16;attn=eager",
	 {{"layernorm_before native_layer_norm", B * PATCHES * H, 2},
	  {"layernorm_before native_layer_norm", B * PATCHES, 2},
	  {"layernorm_before native_layer_norm", B * PATCHES, 2},
	  {"attention clone", B * A * PATCHES * HEAD, 2}, {"attention clone", B * A * PATCHES * HEAD, 2},
	  {"attention softmax", B * A * PATCHES * HEAD, 4}, {"attention to_copy", B * A * PATCHES * HEAD, 2},
	  {"attention clone", B * A * PATCHES * HEAD, 2}, {"attention clone", B * PATCHES * A * HEAD, 2},
	  {"layer add", B * PATCHES * H, 2}, {"layernorm_after native_layer_norm", B * PATCHES * H, 2},
	  {"layernorm_after native_layer_norm", B * PATCHES, 2},
	  {"layernorm_after native_layer_norm", B * PATCHES, 2}, {"fc1 addmm", 32 * F, 2},
	  {"activation_fn gelu", B * PATCHES * F, 2}, {"layer add", B * PATCHES * H, 2}}},
	{"vit_msn", IMAGE,
	 OOM_TASK_IMAGE_CLS, "precision=bf16;attn=eager",
	 {{"layernorm_before native_layer_norm", B * (1 + PATCHES) * H, 2},
	  {"layernorm_before native_layer_norm", B * (1 + PATCHES), 2},
	  {"layernorm_before native_layer_norm", B * (1 + PATCHES), 2},
	  {"attention clone", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention clone", B * A * PATCHES * (1 + PATCHES), 2},
	  {"attention softmax", B * A * (1 + PATCHES) * (1 + PATCHES), 4},
	  {"attention to_copy", B * A * (1 + PATCHES) * (1 + PATCHES), 2},
	  {"attention clone", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention clone", B * (1 + PATCHES) * A * HEAD, 2}, {"layer add", B * (1 + PATCHES) * H, 2},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES) * H, 2},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES), 2},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES), 2}, {"fc1 addmm", 34 * F, 2},
	  {"activation_fn gelu", B * (1 + PATCHES) * F, 2}, {"layer add", B * (1 + PATCHES) * H, 2}}},
	{"dinov2", IMAGE ",\"mlp_ratio\":2",
	 OOM_TASK_IMAGE_CLS, "precision=bf16;attn=eager",
	 {{"norm1 native_layer_norm", B * (1 + PATCHES) * H, 2},
	  {"norm1 native_layer_norm", B * (1 + PATCHES), 2}, {"norm1 native_layer_norm", B * (1 + PATCHES), 2},
	  {"attention clone", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention clone", B * A * PATCHES * (1 + PATCHES), 2},
	  {"attention softmax", B * A * (1 + PATCHES) * (1 + PATCHES), 2},
	  {"attention clone", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention clone", B * (1 + PATCHES) * A * HEAD, 2}, {"dense addmm", 34 * H, 2},
	  {"layer add", B * (1 + PATCHES) * H, 2}, {"norm2 native_layer_norm", B * (1 + PATCHES) * H, 2},
	  {"norm2 native_layer_norm", B * (1 + PATCHES), 2}, {"norm2 native_layer_norm", B * (1 + PATCHES), 2},
	  {"fc1 addmm", 34 * 192, 2}, {"activation gelu", B * (1 + PATCHES) * 192, 2}, {"fc2 addmm", 34 * H, 2},
	  {"layer add", B * (1 + PATCHES) * H, 2}}},
	{"dinov2_with_registers", IMAGE ",\"mlp_ratio\":2,\"num_register_tokens\":4",
	 OOM_TASK_IMAGE_CLS, "precision=bf16;attn=eager",
	 {{"norm1 native_layer_norm", B * 21 * H, 2}, {"norm1 native_layer_norm", B * 21, 2},
	  {"norm1 native_layer_norm", B * 21, 2}, {"attention clone", B * A * 21 * HEAD, 2},
	  {"attention clone", B * A * PATCHES * 21, 2}, {"attention softmax", B * A * 21 * 21, 2},
	  {"attention clone", B * A * 21 * HEAD, 2}, {"attention clone", B * 21 * A * HEAD, 2},
	  {"dense addmm", 42 * H, 2}, {"layer add", B * 21 * H, 2}, {"norm2 native_layer_norm", B * 21 * H, 2},
	  {"norm2 native_layer_norm", B * 21, 2}, {"norm2 native_layer_norm", B * 21, 2},
	  {"fc1 addmm", 42 * 192, 2}, {"activation gelu", B * 21 * 192, 2}, {"fc2 addmm", 42 * H, 2},
	  {"layer add", B * 21 * H, 2}}},
	{"beit", IMAGE ",\"use_relative_position_bias\":true",
	 OOM_TASK_IMAGE_CLS, "precision=bf16;attn=eager",
	 {{"layernorm_before native_layer_norm", B * (1 + PATCHES) * H, 2},
	  {"layernorm_before native_layer_norm", B * (1 + PATCHES), 2},
	  {"layernorm_before native_layer_norm", B * (1 + PATCHES), 2},
	  {"attention clone", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention clone", B * A * PATCHES * (1 + PATCHES), 2},
	  {"attention softmax", B * A * (1 + PATCHES) * (1 + PATCHES), 4},
	  {"attention to_copy", B * A * (1 + PATCHES) * (1 + PATCHES), 2},
	  {"attention clone", B * A * (1 + PATCHES) * HEAD, 2},
	  {"attention clone", B * (1 + PATCHES) * A * HEAD, 2}, {"o_proj addmm", 34 * H, 2},
	  {"drop_path floor", B, 2}, {"layer add", B * (1 + PATCHES) * H, 2},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES) * H, 2},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES), 2},
	  {"layernorm_after native_layer_norm", B * (1 + PATCHES), 2}, {"fc1 addmm", 34 * F, 2},
	  {"activation_fn gelu", B * (1 + PATCHES) * F, 2}, {"fc2 addmm", 34 * H, 2}, {"drop_path floor", B, 2},
	  {"layer add", B * (1 + PATCHES) * H, 2}}},
};

SAVED_TEST(layers)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
