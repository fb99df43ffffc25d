/* Layers that mix tokens in other ways than attention alone in bf16 with PyTorch's own attention, which a
 * batch with padding hands a mask: what a layer leaves for its backward pass (saved_case.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "saved_case.h"

static const struct saved_layer layers[] = {
	{"falcon_h1", HEADED UNTIED ",\"mamba_d_ssm\":192,\"mamba_n_heads\":12,\"mamba_d_head\":16,\"mamba_n_groups\":1,"
	 "\"mamba_d_state\":12",
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"input_layernorm to_copy", N * H, 4}, {"input_layernorm rsqrt", N, 4},
	  {"input_layernorm to_copy", N * H, 2}, {"mamba mul", N * H, 2}, {"mamba mul", N * 420, 2},
	  {"conv1d convolution", B * 216 * 59, 2}, {"mamba exp", 12, 4}, {"mamba neg", 12, 4},
	  {"mamba add", N * 12, 2}, {"mamba softplus", N * 12, 2}, {"mamba clamp", N * 12, 2},
	  {"mamba to_copy", N * 12 * HEAD, 4}, {"mamba constant_pad_nd", B * 256 * 12 * HEAD, 4},
	  {"mamba constant_pad_nd", B * 256 * 12 * HEAD, 4}, {"mamba constant_pad_nd", B * 256 * 12 * 12, 4},
	  {"mamba constant_pad_nd", B * 256 * 12 * 12, 4}, {"mamba bitwise_not", 256 * 256, 1},
	  {"mamba bitwise_not", 256 * 256, 1}, {"mamba exp", B * 12 * 256 * 256, 4},
	  {"mamba sum", B * 256 * 256 * 12, 4}, {"mamba sum", B * 256 * 256 * 12, 4},
	  {"mamba exp", B * 12 * 256, 4}, {"mamba mul", B * 256 * 12 * 12, 4},
	  {"mamba cat", B * KV * 12 * HEAD * 12, 4}, {"mamba bitwise_not", B * KV, 1},
	  {"mamba bitwise_not", B * KV, 1}, {"mamba exp", B * 12 * KV * KV, 4},
	  {"mamba sum", B * KV * 12 * HEAD * 12, 4}, {"mamba exp", B * 12 * 256, 4},
	  {"mamba sum", B * 256 * 12 * HEAD, 4}, {"mamba add", B * 256 * 12 * HEAD, 4},
	  {"mamba silu", N * 192, 2}, {"mamba to_copy", N * 192, 2}, {"layer mul", N * H, 2},
	  {"self_attn add", B * A * S * HEAD, 2}, {"self_attn clone", B * KV * 3 * S * HEAD, 2},
	  {"self_attn clone", B * KV * 3 * S * HEAD, 2}, {"self_attn constant_pad_nd", N * 64, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * S * HEAD, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8}, {"pre_ff_layernorm to_copy", N * H, 4},
	  {"pre_ff_layernorm rsqrt", N, 4}, {"pre_ff_layernorm to_copy", N * H, 2},
	  {"pre_ff_layernorm mul", N * H, 2}, {"up_proj mm", N * F, 2}, {"feed_forward mul", N * F, 2},
	  {"act_fn silu", N * F, 2}, {"feed_forward mul", N * F, 2}}},
	{"qwen3_next", HEADED UNTIED ",\"moe_intermediate_size\":40,\"num_experts\":5,\"num_experts_per_tok\":2,"
	 "\"shared_expert_intermediate_size\":48,"
	 "\"layer_types\":[\"linear_attention\",\"full_attention\",\"linear_attention\"],"
	 "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":16,"
	 "\"linear_value_head_dim\":16",
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"input_layernorm to_copy", N * H, 4}, {"input_layernorm rsqrt", N, 4},
	  {"input_layernorm mul", N * H, 4}, {"input_layernorm add", H, 4},
	  {"input_layernorm to_copy", N * H, 2}, {"q_norm to_copy", N * A * HEAD, 4},
	  {"q_norm rsqrt", N * A, 4}, {"q_norm mul", N * A * HEAD, 4}, {"q_norm add", HEAD, 4},
	  {"k_norm to_copy", N * KV * HEAD, 4}, {"k_norm rsqrt", N * KV, 4}, {"k_norm mul", N * KV * HEAD, 4},
	  {"k_norm add", HEAD, 4}, {"self_attn cat", B * A * S * HEAD, 2},
	  {"self_attn clone", B * KV * 3 * S * HEAD, 2}, {"self_attn clone", B * KV * 3 * S * HEAD, 2},
	  {"self_attn constant_pad_nd", N * 64, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * S * HEAD, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8}, {"self_attn sigmoid", N * H, 2},
	  {"self_attn mul", N * H, 2}, {"post_attention_layernorm to_copy", N * H, 4},
	  {"post_attention_layernorm rsqrt", N, 4}, {"post_attention_layernorm mul", N * H, 4},
	  {"post_attention_layernorm add", H, 4}, {"post_attention_layernorm to_copy", N * H, 2},
	  {"gate_proj mm", N * 48, 2}, {"act_fn silu", N * 48, 2}, {"up_proj mm", N * 48, 2},
	  {"shared_expert mul", N * 48, 2}, {"down_proj mm", N * H, 2}, {"gate softmax", N * E, 4},
	  {"gate topk", N * KV, 8}, {"gate sum", N, 4}, {"gate clone", N * KV, 4}, {"experts sort", 224, 8},
	  {"experts floor_divide", 224, 8}, {"experts index", 224 * H, 2}, {"experts index", 224, 2},
	  {"experts cumsum", E, 4}, {"experts ge", 224, 1}, {"experts grouped_mm", 224 * 80, 2},
	  {"act_fn silu", 224 * W, 2}, {"experts mul", 224 * W, 2}, {"experts grouped_mm", 224 * H, 2},
	  {"experts empty_like", 224, 8}, {"mlp sigmoid", N, 2}}},
	{"qwen3_5_text", HEADED UNTIED ",\"layer_types\":[\"linear_attention\",\"full_attention\",\"linear_attention\"],"
	 "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":16,"
	 "\"linear_value_head_dim\":16",
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"input_layernorm to_copy", N * H, 4}, {"input_layernorm rsqrt", N, 4},
	  {"input_layernorm mul", N * H, 4}, {"input_layernorm add", H, 4},
	  {"input_layernorm to_copy", N * H, 2}, {"q_norm to_copy", N * A * HEAD, 4},
	  {"q_norm rsqrt", N * A, 4}, {"q_norm mul", N * A * HEAD, 4}, {"q_norm add", HEAD, 4},
	  {"k_norm to_copy", N * KV * HEAD, 4}, {"k_norm rsqrt", N * KV, 4}, {"k_norm mul", N * KV * HEAD, 4},
	  {"k_norm add", HEAD, 4}, {"self_attn cat", B * A * S * HEAD, 2},
	  {"self_attn clone", B * KV * 3 * S * HEAD, 2}, {"self_attn clone", B * KV * 3 * S * HEAD, 2},
	  {"self_attn constant_pad_nd", N * 64, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * S * HEAD, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8}, {"self_attn sigmoid", N * H, 2},
	  {"self_attn mul", N * H, 2}, {"post_attention_layernorm to_copy", N * H, 4},
	  {"post_attention_layernorm rsqrt", N, 4}, {"post_attention_layernorm mul", N * H, 4},
	  {"post_attention_layernorm add", H, 4}, {"post_attention_layernorm to_copy", N * H, 2},
	  {"gate_proj mm", N * F, 2}, {"act_fn silu", N * F, 2}, {"up_proj mm", N * F, 2}, {"mlp mul", N * F, 2}}},
	{"minimax", HEADED UNTIED ",\"num_local_experts\":5,\"num_experts_per_tok\":2,"
	 "\"layer_types\":[\"linear_attention\",\"full_attention\",\"linear_attention\"]",
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
	  {"gate softmax", N * E, 4}, {"gate topk", N * KV, 8}, {"gate sum", N, 4}, {"gate clone", N * KV, 4},
	  {"experts sort", 224, 8}, {"experts floor_divide", 224, 8}, {"experts index", 224 * H, 2},
	  {"experts index", 224, 4}, {"experts cumsum", E, 4}, {"experts ge", 224, 1},
	  {"experts grouped_mm", 224 * 416, 2}, {"act_fn silu", 224 * F, 2}, {"experts mul", 224 * F, 2},
	  {"experts grouped_mm", 224 * H, 2}, {"experts empty_like", 224, 8}}},
	{"moshi", HEADED UNTIED,
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"input_layernorm to_copy", N * H, 4}, {"input_layernorm rsqrt", N, 4},
	  {"input_layernorm mul", N * H, 4}, {"input_layernorm to_copy", H, 4},
	  {"input_layernorm to_copy", N * H, 2}, {"rotary_emb to_copy", S * HEAD, 2},
	  {"rotary_emb to_copy", S * HEAD, 2}, {"self_attn add", B * A * S * HEAD, 2},
	  {"self_attn clone", B * KV * 3 * S * HEAD, 2}, {"self_attn clone", B * KV * 3 * S * HEAD, 2},
	  {"self_attn constant_pad_nd", N * 64, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * S * HEAD, 2},
	  {"self_attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"self_attn scaled_dot_product_efficient_attention", 1, 8},
	  {"post_attention_layernorm to_copy", N * H, 4}, {"post_attention_layernorm rsqrt", N, 4},
	  {"post_attention_layernorm mul", N * H, 4}, {"post_attention_layernorm to_copy", H, 4},
	  {"post_attention_layernorm to_copy", N * H, 2}, {"fc1 mm", N * 22528, 2},
	  {"activation_fn silu", N * 11264, 2}, {"mlp mul", N * 11264, 2}}},
	{"deepseek_v3", SIZES UNTIED ",\"moe_intermediate_size\":40,\"num_key_value_heads\":6,\"q_lora_rank\":24,\"kv_lora_rank\":20,"
	 "\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":12,\"v_head_dim\":14,\"n_routed_experts\":5,"
	 "\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"n_group\":1,"
	 "\"topk_group\":1",
	 OOM_TASK_CAUSAL_LM, "precision=bf16;attn=sdpa;padding-mask=true",
	 {{"input_layernorm to_copy", N * H, 4}, {"input_layernorm rsqrt", N, 4},
	  {"input_layernorm to_copy", N * H, 2}, {"input_layernorm mul", N * H, 2},
	  {"q_a_layernorm to_copy", N * 24, 4}, {"q_a_layernorm rsqrt", N, 4},
	  {"q_a_layernorm to_copy", N * 24, 2}, {"q_a_layernorm mul", N * 24, 2},
	  {"kv_a_layernorm to_copy", N * 20, 4}, {"kv_a_layernorm rsqrt", N, 4},
	  {"kv_a_layernorm to_copy", N * 20, 2}, {"kv_a_layernorm mul", N * 20, 2},
	  {"self_attn mul", B * A * S * 20, 4}, {"self_attn mul", B * A * 20 * S, 4},
	  {"self_attn safe_softmax", B * A * S * S, 4}, {"self_attn clone", B * A * S * 14, 4},
	  {"self_attn clone", N * A * 14, 2}, {"post_attention_layernorm to_copy", N * H, 4},
	  {"post_attention_layernorm rsqrt", N, 4}, {"post_attention_layernorm to_copy", N * H, 2},
	  {"post_attention_layernorm mul", N * H, 2}, {"gate to_copy", N * H, 4}, {"gate to_copy", E * H, 4},
	  {"mlp sigmoid", N * E, 4}, {"mlp topk", N * KV, 8}, {"mlp add", N, 4}, {"mlp clone", N * KV, 4},
	  {"experts sort", 224, 8}, {"experts floor_divide", 224, 8}, {"experts index", 224 * H, 2},
	  {"experts index", 224, 4}, {"experts cumsum", E, 4}, {"experts ge", 224, 1},
	  {"experts grouped_mm", 224 * 80, 2}, {"act_fn silu", 224 * W, 2}, {"experts mul", 224 * W, 2},
	  {"experts grouped_mm", 224 * H, 2}, {"experts empty_like", 224, 8}, {"gate_proj mm", N * W, 2},
	  {"act_fn silu", N * W, 2}, {"up_proj mm", N * W, 2}, {"shared_experts mul", N * W, 2}}},
};

SAVED_TEST(layers)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
