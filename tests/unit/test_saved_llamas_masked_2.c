/* Decoders like Llama's in bf16 with PyTorch's own attention, which a batch with padding hands a mask (the
 * rest): what a layer leaves for its backward pass (saved_case.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "saved_case.h"

static const struct saved_layer layers[] = {
	{"seed_oss", HEADED UNTIED ",\"attention_bias\":true",
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"input_layernorm to_copy", N * H, 4}, {"input_layernorm rsqrt", N, 4},
	  {"input_layernorm to_copy", N * H, 2}, {"input_layernorm mul", N * H, 2},
	  {"self_attn add", B * A * S * HEAD, 2}, {"self_attn clone", B * KV * 3 * S * HEAD, 2},
	  {"self_attn clone", B * KV * 3 * S * HEAD, 2}, {"self_attn constant_pad_nd", N * 64, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * S * HEAD, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8}, {"self_attn native_dropout", N * H, 1},
	  {"post_attention_layernorm to_copy", N * H, 4}, {"post_attention_layernorm rsqrt", N, 4},
	  {"post_attention_layernorm to_copy", N * H, 2}, {"post_attention_layernorm mul", N * H, 2},
	  {"gate_proj mm", N * F, 2}, {"act_fn silu", N * F, 2}, {"up_proj mm", N * F, 2},
	  {"mlp mul", N * F, 2}, {"mlp native_dropout", N * H, 1}}},
	{"apertus", GROUPED UNTIED,
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"attention_layernorm to_copy", N * H, 4}, {"attention_layernorm rsqrt", N, 4},
	  {"attention_layernorm to_copy", N * H, 2}, {"attention_layernorm mul", N * H, 2},
	  {"q_norm to_copy", B * A * S * HEAD, 4}, {"q_norm rsqrt", B * A * S, 4},
	  {"q_norm to_copy", B * A * S * HEAD, 2}, {"k_norm to_copy", B * KV * S * HEAD, 4},
	  {"k_norm rsqrt", B * KV * S, 4}, {"k_norm to_copy", B * KV * S * HEAD, 2},
	  {"self_attn add", B * A * S * HEAD, 2}, {"self_attn clone", B * KV * 3 * S * HEAD, 2},
	  {"self_attn clone", B * KV * 3 * S * HEAD, 2}, {"self_attn constant_pad_nd", N * 64, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * S * HEAD, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"feedforward_layernorm to_copy", N * H, 4}, {"feedforward_layernorm rsqrt", N, 4},
	  {"feedforward_layernorm to_copy", N * H, 2}, {"feedforward_layernorm mul", N * H, 2},
	  {"up_proj mm", N * F, 2}, {"act_fn softplus", 1, 2}, {"act_fn add", 1, 2}, {"act_fn gt", N * F, 1},
	  {"act_fn mul", N * F, 2}, {"act_fn expm1", N * F, 2}, {"act_fn sub", N * F, 2},
	  {"act_fn where", N * F, 2}}},
	{"bitnet", GROUPED UNTIED,
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"input_layernorm to_copy", N * H, 4}, {"input_layernorm rsqrt", N, 4},
	  {"input_layernorm to_copy", N * H, 2}, {"input_layernorm mul", N * H, 2},
	  {"self_attn add", B * A * S * HEAD, 2}, {"self_attn clone", B * KV * 3 * S * HEAD, 2},
	  {"self_attn clone", B * KV * 3 * S * HEAD, 2}, {"self_attn constant_pad_nd", N * 64, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * S * HEAD, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8}, {"attn_sub_norm to_copy", N * H, 4},
	  {"attn_sub_norm rsqrt", N, 4}, {"attn_sub_norm to_copy", N * H, 2}, {"attn_sub_norm mul", N * H, 2},
	  {"post_attention_layernorm to_copy", N * H, 4}, {"post_attention_layernorm rsqrt", N, 4},
	  {"post_attention_layernorm to_copy", N * H, 2}, {"post_attention_layernorm mul", N * H, 2},
	  {"act_fn relu", N * F, 2}, {"act_fn pow", N * F, 2}, {"up_proj mm", N * F, 2},
	  {"ffn_sub_norm to_copy", N * F, 4}, {"ffn_sub_norm rsqrt", N, 4}, {"ffn_sub_norm to_copy", N * F, 2},
	  {"ffn_sub_norm mul", N * F, 2}}},
	{"diffllama", HEADED UNTIED,
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"input_layernorm to_copy", N * H, 4}, {"input_layernorm rsqrt", N, 4},
	  {"input_layernorm to_copy", N * H, 2}, {"input_layernorm mul", N * H, 2},
	  {"self_attn add", B * A * S * HEAD, 2}, {"self_attn clone", B * KV * 3 * S * HEAD, 2},
	  {"self_attn repeat", B * A * S * KVH, 2}, {"self_attn constant_pad_nd", N * 64, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * S * KVH, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8}, {"self_attn exp", 1, 4},
	  {"self_attn exp", 1, 4}, {"self_attn add", 1, 2}, {"groupnorm to_copy", B * 3 * S * KVH, 4},
	  {"groupnorm rsqrt", B * 3 * S, 4}, {"self_attn clone", N * 3 * KVH, 2},
	  {"post_attention_layernorm to_copy", N * H, 4}, {"post_attention_layernorm rsqrt", N, 4},
	  {"post_attention_layernorm to_copy", N * H, 2}, {"post_attention_layernorm mul", N * H, 2},
	  {"gate_proj mm", N * F, 2}, {"act_fn silu", N * F, 2}, {"up_proj mm", N * F, 2}, {"mlp mul", N * F, 2}}},
	{"hyperclovax", HEADED UNTIED,
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"input_layernorm to_copy", N * H, 4}, {"input_layernorm rsqrt", N, 4},
	  {"input_layernorm to_copy", N * H, 2}, {"input_layernorm mul", N * H, 2},
	  {"self_attn add", B * A * S * HEAD, 2}, {"self_attn clone", B * KV * 3 * S * HEAD, 2},
	  {"self_attn clone", B * KV * 3 * S * HEAD, 2}, {"self_attn constant_pad_nd", N * 64, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * S * HEAD, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8}, {"post_norm1 to_copy", N * H, 4},
	  {"post_norm1 rsqrt", N, 4}, {"post_norm1 to_copy", N * H, 2},
	  {"post_attention_layernorm to_copy", N * H, 4}, {"post_attention_layernorm rsqrt", N, 4},
	  {"post_attention_layernorm to_copy", N * H, 2}, {"post_attention_layernorm mul", N * H, 2},
	  {"gate_proj mm", N * F, 2}, {"act_fn silu", N * F, 2}, {"up_proj mm", N * F, 2},
	  {"mlp mul", N * F, 2}, {"post_norm2 to_copy", N * H, 4}, {"post_norm2 rsqrt", N, 4},
	  {"post_norm2 to_copy", N * H, 2}}},
	{"cwm", HEADED UNTIED,
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"input_layernorm to_copy", N * H, 4}, {"input_layernorm rsqrt", N, 4},
	  {"input_layernorm to_copy", N * H, 2}, {"input_layernorm mul", N * H, 2},
	  {"self_attn add", B * A * S * HEAD, 2}, {"self_attn clone", B * KV * 3 * S * HEAD, 2},
	  {"self_attn clone", B * KV * 3 * S * HEAD, 2}, {"self_attn constant_pad_nd", N * 64, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * S * HEAD, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"post_attention_layernorm to_copy", N * H, 4}, {"post_attention_layernorm rsqrt", N, 4},
	  {"post_attention_layernorm to_copy", N * H, 2}, {"post_attention_layernorm mul", N * H, 2},
	  {"gate_proj mm", N * F, 2}, {"act_fn silu", N * F, 2}, {"up_proj mm", N * F, 2}, {"mlp mul", N * F, 2}}},
};

SAVED_TEST(layers)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
