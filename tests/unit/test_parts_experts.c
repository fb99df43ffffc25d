/* Decoders with experts, part by part (parts_case.h): routers, stacked experts, shared ones, dense layers before
 * them, and the latent attention that some of them have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parts_case.h"

static const struct model_parts experts[] = {
	/* a router and stacked experts */
	{"mixtral", GROUPED UNTIED ",\"num_local_experts\":5,\"num_experts_per_tok\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate.", L * E * H}, {"gate_up_proj", L * E * 2 * F * H},
	  {"down_proj", L * E * H * F}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H},
	  {".norm", H}, {"lm_head", V * H}}},
	/* the first layer dense; a shared expert of 48 behind a gate of one number */
	{"qwen2_moe", GROUPED UNTIED ",\"moe_intermediate_size\":40,\"num_experts\":5,\"num_experts_per_tok\":2,"
	 "\"shared_expert_intermediate_size\":48,\"decoder_sparse_step\":1,\"mlp_only_layers\":[0]",
	 OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * H * H}, {"mlp.gate_proj", F * H}, {"mlp.up_proj", F * H},
	  {"mlp.down_proj", H * F}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H},
	  {".gate.", 2 * E * H}, {"gate_up_proj", 2 * E * 2 * W * H}, {"experts.down_proj", 2 * E * H * W},
	  {"shared_expert.gate_proj", 2 * 48 * H}, {"shared_expert.up_proj", 2 * 48 * H},
	  {"shared_expert.down_proj", 2 * H * 48}, {"shared_expert_gate", 2 * H}, {".norm", H},
	  {"lm_head", V * H}}},
	{"qwen3_moe", HEADED UNTIED ",\"moe_intermediate_size\":40,\"num_experts\":5,\"num_experts_per_tok\":2,"
	 "\"decoder_sparse_step\":1,\"mlp_only_layers\":[]", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"gate_up_proj", L * E * 2 * W * H},
	  {"down_proj", L * E * H * W}, {"gate.", L * E * H}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"olmoe", GROUPED UNTIED ",\"num_experts\":5,\"num_experts_per_tok\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * H}, {"k_norm", L * KVH}, {"gate.", L * E * H},
	  {"gate_up_proj", L * E * 2 * F * H}, {"down_proj", L * E * H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"phimoe", GROUPED UNTIED ",\"num_local_experts\":5,\"num_experts_per_tok\":2,\"attention_bias\":true,"
	 "\"lm_head_bias\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * LIN(H, H)}, {"router", L * E * H},
	  {"gate_up_proj", L * E * 2 * F * H}, {"down_proj", L * E * H * F}, {"input_layernorm", L * 2 * H},
	  {"post_attention_layernorm", L * 2 * H}, {".norm", 2 * H}, {"lm_head", LIN(H, V)}}},
	{"granitemoe", GROUPED TIED ",\"num_local_experts\":5,\"num_experts_per_tok\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H},
	  {"input_linear", L * E * 2 * F * H}, {"output_linear", L * E * H * F}, {"layer.", L * E * H},
	  {".norm", H}}},
	{"granitemoeshared", GROUPED TIED
	 ",\"num_local_experts\":5,\"num_experts_per_tok\":2,\"shared_intermediate_size\":40", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H},
	  {"block_sparse_moe.input_linear", L * E * 2 * F * H}, {"block_sparse_moe.output_linear", L * E * H * F},
	  {"layer.", L * E * H}, {"shared_mlp.input_linear", L * 2 * W * H},
	  {"shared_mlp.output_linear", L * H * W}, {".norm", H}}},
	/* latent attention; one dense layer; two shared experts in one */
	{"deepseek_v2", SIZES UNTIED
	 ",\"moe_intermediate_size\":40,\"num_key_value_heads\":6,\"q_lora_rank\":24,\"kv_lora_rank\":20,"
	 "\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":12,\"v_head_dim\":14,\"n_routed_experts\":5,"
	 "\"num_experts_per_tok\":2,\"n_shared_experts\":2,\"first_k_dense_replace\":1,\"n_group\":1,"
	 "\"topk_group\":1", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_a_proj", L * 24 * H}, {"q_a_layernorm", L * 24}, {"q_b_proj", L * 120 * 24},
	  {"kv_a_proj_with_mqa", L * 28 * H}, {"kv_a_layernorm", L * 20}, {"kv_b_proj", L * 156 * 20},
	  {"o_proj", L * H * 84}, {"mlp.gate_proj", F * H}, {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {"gate_up_proj", 2 * E * 2 * W * H},
	  {".experts.down_proj", 2 * E * H * W}, {"gate.", 2 * E * H}, {"shared_experts.gate_proj", 2 * 2 * W * H},
	  {"shared_experts.up_proj", 2 * 2 * W * H}, {"shared_experts.down_proj", 2 * H * 2 * W}, {".norm", H},
	  {"lm_head", V * H}}},
	{"deepseek_v3", SIZES UNTIED
	 ",\"moe_intermediate_size\":40,\"num_key_value_heads\":6,\"q_lora_rank\":24,\"kv_lora_rank\":20,"
	 "\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":12,\"v_head_dim\":14,\"n_routed_experts\":5,"
	 "\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"n_group\":1,"
	 "\"topk_group\":1", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_a_proj", L * 24 * H}, {"q_a_layernorm", L * 24}, {"q_b_proj", L * 120 * 24},
	  {"kv_a_proj_with_mqa", L * 28 * H}, {"kv_a_layernorm", L * 20}, {"kv_b_proj", L * 156 * 20},
	  {"o_proj", L * H * 84}, {"mlp.gate_proj", F * H}, {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {"gate_up_proj", 2 * E * 2 * W * H},
	  {".experts.down_proj", 2 * E * H * W}, {"gate.", 2 * E * H}, {"shared_experts.gate_proj", 2 * W * H},
	  {"shared_experts.up_proj", 2 * W * H}, {"shared_experts.down_proj", 2 * H * W}, {".norm", H},
	  {"lm_head", V * H}}},
	/* queries without a latent (V2-Lite) */
	{"deepseek_v2", SIZES UNTIED
	 ",\"moe_intermediate_size\":40,\"num_key_value_heads\":6,\"q_lora_rank\":null,"
	 "\"kv_lora_rank\":20,\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":12,\"v_head_dim\":14,"
	 "\"n_routed_experts\":5,\"num_experts_per_tok\":2,\"n_shared_experts\":2,"
	 "\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * 120 * H}, {"kv_a_proj_with_mqa", L * 28 * H},
	  {"kv_a_layernorm", L * 20}, {"kv_b_proj", L * 156 * 20}, {"o_proj", L * H * 84}, {"mlp.gate_proj", F * H},
	  {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {"gate_up_proj", 2 * E * 2 * W * H},
	  {".experts.down_proj", 2 * E * H * W}, {"gate.", 2 * E * H}, {"shared_experts.gate_proj", 2 * 2 * W * H},
	  {"shared_experts.up_proj", 2 * 2 * W * H}, {"shared_experts.down_proj", 2 * H * 2 * W}, {".norm", H},
	  {"lm_head", V * H}}},
	/* biases everywhere, a sink for every head */
	{"gpt_oss", HEADED UNTIED ",\"num_local_experts\":5,\"num_experts_per_tok\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"sinks", L * A}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * LIN(H, H)}, {"router", L * LIN(H, E)},
	  {"^model\\.layers\\.\\d+\\.mlp\\.experts\\.gate_up_proj$", L * E * H * 2 * F},
	  {"gate_up_proj_bias", L * E * 2 * F},
	  {"^model\\.layers\\.\\d+\\.mlp\\.experts\\.down_proj$", L * E * F * H}, {"down_proj_bias", L * E * H},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"ernie4_5_moe", HEADED UNTIED
	 ",\"moe_intermediate_size\":40,\"moe_num_experts\":5,\"moe_k\":2,\"moe_num_shared_experts\":2,"
	 "\"moe_layer_start_index\":1,\"use_bias\":false", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"mlp.gate_proj", F * H}, {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H},
	  {"^model\\.layers\\.\\d+\\.mlp\\.gate\\.weight$", 2 * E * H}, {STILL "e_score_correction_bias", 2 * E},
	  {"gate_up_proj", 2 * E * 2 * W * H}, {".experts.down_proj", 2 * E * H * W},
	  {"shared_experts.gate_proj", 2 * 2 * W * H}, {"shared_experts.up_proj", 2 * 2 * W * H},
	  {"shared_experts.down_proj", 2 * H * 2 * W}, {".norm", H}, {"lm_head", V * H}}},
	{"glm4_moe", HEADED UNTIED
	 ",\"moe_intermediate_size\":40,\"n_routed_experts\":5,\"num_experts_per_tok\":2,"
	 "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1,"
	 "\"use_qk_norm\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"mlp.gate_proj", F * H},
	  {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {"gate_up_proj", 2 * E * 2 * W * H},
	  {".experts.down_proj", 2 * E * H * W}, {"gate.", 2 * E * H}, {"shared_experts.gate_proj", 2 * W * H},
	  {"shared_experts.up_proj", 2 * W * H}, {"shared_experts.down_proj", 2 * H * W}, {".norm", H},
	  {"lm_head", V * H}}},
	{"dots1", HEADED UNTIED ",\"moe_intermediate_size\":40,\"n_routed_experts\":5,\"num_experts_per_tok\":2,"
	 "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"mlp.gate_proj", F * H},
	  {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {"gate_up_proj", 2 * E * 2 * W * H},
	  {".experts.down_proj", 2 * E * H * W}, {"gate.", 2 * E * H}, {"shared_experts.gate_proj", 2 * W * H},
	  {"shared_experts.up_proj", 2 * W * H}, {"shared_experts.down_proj", 2 * H * W}, {".norm", H},
	  {"lm_head", V * H}}},
	{"hunyuan_v1_moe", HEADED UNTIED ",\"num_experts\":5,\"moe_topk\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"query_layernorm", L * HEAD}, {"key_layernorm", L * HEAD}, {"wg", L * E * H},
	  {"gate_up_proj", L * E * 2 * F * H}, {"experts.down_proj", L * E * H * F}, {"gate_proj", L * F * H},
	  {".up_proj", L * F * H}, {"down_proj.", L * H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"minimax_m2", HEADED UNTIED ",\"num_local_experts\":5,\"num_experts_per_tok\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * H}, {"k_norm", L * KVH}, {"gate.", L * E * H},
	  {"gate_up_proj", L * E * 2 * F * H}, {"down_proj", L * E * H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"flex_olmo", GROUPED UNTIED ",\"num_experts\":5,\"num_experts_per_tok\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * H}, {"k_norm", L * KVH}, {"gate.", L * E * H},
	  {"gate_up_proj", L * E * 2 * F * H}, {"down_proj", L * E * H * F}, {"post_attention_layernorm", L * H},
	  {"post_feedforward_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"llama4_text", HEADED UNTIED
	 ",\"intermediate_size_mlp\":160,\"num_local_experts\":5,\"num_experts_per_tok\":1,"
	 "\"interleave_moe_layer_step\":3", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"feed_forward.gate_proj", 2 * (H + 2 * KVH) * H},
	  {"feed_forward.up_proj", 2 * (H + 2 * KVH) * H}, {"feed_forward.down_proj", 2 * H * (H + 2 * KVH)},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {"gate_up_proj", E * H * 2 * F},
	  {"experts.down_proj", E * F * H}, {"router", E * H}, {"shared_expert.gate_proj", F * H},
	  {"shared_expert.up_proj", F * H}, {"shared_expert.down_proj", H * F}, {".norm", H}, {"lm_head", V * H}}},
	{"exaone_moe", HEADED UNTIED ",\"moe_intermediate_size\":40,\"num_experts\":5,\"num_experts_per_tok\":2,"
	 "\"num_shared_experts\":1,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"mlp.gate_proj", F * H},
	  {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {"gate_up_proj", 2 * E * 2 * W * H},
	  {".experts.down_proj", 2 * E * H * W}, {"gate.", 2 * E * H}, {"shared_experts.gate_proj", 2 * W * H},
	  {"shared_experts.up_proj", 2 * W * H}, {"shared_experts.down_proj", 2 * H * W}, {".norm", H},
	  {"lm_head", V * H}}},
	{"solar_open", HEADED UNTIED
	 ",\"moe_intermediate_size\":40,\"n_routed_experts\":5,\"num_experts_per_tok\":2,"
	 "\"n_shared_experts\":1,\"n_group\":1,\"topk_group\":1", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_up_proj", L * E * 2 * W * H}, {".experts.down_proj", L * E * H * W},
	  {"gate.", L * E * H}, {"gate_proj", L * W * H}, {".up_proj", L * W * H}, {"down_proj.", L * H * W},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"afmoe", HEADED UNTIED ",\"moe_intermediate_size\":40,\"num_experts\":5,\"num_experts_per_tok\":2,"
	 "\"num_shared_experts\":1,\"num_dense_layers\":1", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"self_attn.gate_proj", L * H * H},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {"pre_mlp_layernorm", L * H},
	  {"post_mlp_layernorm", L * H}, {"mlp.gate_proj", F * H}, {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F},
	  {STILL "expert_bias", 2 * E}, {"gate.", 2 * E * H}, {"shared_experts.gate_proj", 2 * W * H},
	  {"shared_experts.up_proj", 2 * W * H}, {"shared_experts.down_proj", 2 * H * W},
	  {"gate_up_proj", 2 * E * 2 * W * H}, {".experts.down_proj", 2 * E * H * W}, {".norm", H},
	  {"lm_head", V * H}}},
	{"laguna", HEADED UNTIED ",\"moe_intermediate_size\":40,\"num_experts\":5,\"num_experts_per_tok\":2",
	 OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"g_proj", L * A * H},
	  {"mlp.gate_proj", F * H}, {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {"gate_up_proj", 2 * E * 2 * W * H},
	  {".experts.down_proj", 2 * E * H * W}, {"^model\\.layers\\.\\d+\\.mlp\\.gate\\.weight$", 2 * E * H},
	  {STILL "e_score_correction_bias", 2 * E}, {"shared_experts.gate_proj", 2 * P * H},
	  {"shared_experts.up_proj", 2 * P * H}, {"shared_experts.down_proj", 2 * H * P}, {".norm", H},
	  {"lm_head", V * H}}},
	{"hy_v3", HEADED UNTIED ",\"moe_intermediate_size\":40,\"num_experts\":5,\"num_experts_per_tok\":2",
	 OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"mlp.gate_proj", F * H},
	  {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {"gate.", 2 * E * H}, {"gate_up_proj", 2 * E * 2 * W * H},
	  {".experts.down_proj", 2 * E * H * W}, {"shared_experts.gate_proj", 2 * W * H},
	  {"shared_experts.up_proj", 2 * W * H}, {"shared_experts.down_proj", 2 * H * W}, {".norm", H},
	  {"lm_head", V * H}}},
	{"glm4_moe_lite", SIZES UNTIED
	 ",\"moe_intermediate_size\":40,\"num_key_value_heads\":6,\"q_lora_rank\":24,\"kv_lora_rank\":20,"
	 "\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":12,\"v_head_dim\":14,\"n_routed_experts\":5,"
	 "\"num_experts_per_tok\":2,\"n_group\":1,\"topk_group\":1", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_a_proj", L * 24 * H}, {"q_a_layernorm", L * 24}, {"q_b_proj", L * 120 * 24},
	  {"kv_a_proj_with_mqa", L * 28 * H}, {"kv_a_layernorm", L * 20}, {"kv_b_proj", L * 156 * 20},
	  {"o_proj", L * H * 84}, {"mlp.gate_proj", F * H}, {"mlp.up_proj", F * H}, {"mlp.down_proj", H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {"gate_up_proj", 2 * E * 2 * W * H},
	  {".experts.down_proj", 2 * E * H * W}, {"gate.", 2 * E * H}, {"shared_experts.gate_proj", 2 * W * H},
	  {"shared_experts.up_proj", 2 * W * H}, {"shared_experts.down_proj", 2 * H * W}, {".norm", H},
	  {"lm_head", V * H}}},
	{"cohere2_moe", HEADED TIED ",\"num_experts\":5,\"num_experts_per_tok\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate.", L * E * H}, {"gate_up_proj", L * E * 2 * F * H},
	  {"down_proj", L * E * H * F}, {"input_layernorm", L * H}, {".norm", H}}},
	{"aria_text", HEADED UNTIED ",\"moe_num_experts\":5,\"moe_topk\":2,\"moe_num_shared_experts\":2",
	 OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"router", L * E * H}, {"fc1", L * E * H * 2 * F}, {"fc2", L * E * F * H},
	  {"gate_proj", L * 2 * F * H}, {"up_proj", L * 2 * F * H}, {"down_proj", L * H * 2 * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
};

PARTS_TEST(experts)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_experts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
