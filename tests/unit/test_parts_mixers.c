/* Decoders whose layers differ, and those without attention, part by part (parts_case.h): state spaces, recurrences,
 * linear attention, memories, and what they are mixed with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parts_case.h"

static const struct model_parts mixers[] = {
	/* A's logarithms, the skip D, and a projection of the step's rank */
	{"mamba", "\"vocab_size\":1000,\"hidden_size\":96,\"num_hidden_layers\":3,\"state_size\":12,\"expand\":2,"
	 "\"time_step_rank\":10,\"tie_word_embeddings\":true", OOM_TASK_CAUSAL_LM,
	 {{"embeddings", V * H}, {"norm.", L * H}, {"A_log", L * 2 * H * 12}, {"D", L * 2 * H},
	  {"conv1d", L * (2 * H * 4 + 2 * H)}, {"in_proj", L * 4 * H * H}, {"x_proj", L * 34 * 2 * H},
	  {"dt_proj", L * LIN(10, 2 * H)}, {"out_proj", L * H * 2 * H}, {"norm_f", H}}},
	{"falcon_mamba",
	 "\"vocab_size\":1000,\"hidden_size\":96,\"num_hidden_layers\":3,\"state_size\":12,\"expand\":2,"
	 "\"time_step_rank\":10,\"tie_word_embeddings\":true", OOM_TASK_CAUSAL_LM,
	 {{"embeddings", V * H}, {"norm.", L * H}, {"A_log", L * 2 * H * 12}, {"D", L * 2 * H},
	  {"conv1d", L * (2 * H * 4 + 2 * H)}, {"in_proj", L * 4 * H * H}, {"x_proj", L * 34 * 2 * H},
	  {"dt_proj", L * LIN(10, 2 * H)}, {"out_proj", L * H * 2 * H}, {"norm_f", H}}},
	{"mamba2", "\"vocab_size\":1000,\"hidden_size\":96,\"num_hidden_layers\":3,\"state_size\":12,\"expand\":2,"
	 "\"head_dim\":16,\"num_heads\":12,\"n_groups\":1,\"tie_word_embeddings\":false", OOM_TASK_CAUSAL_LM,
	 {{"embeddings", V * H}, {"^backbone\\.layers\\.\\d+\\.norm\\.", L * H}, {"dt_bias", L * 12},
	  {"A_log", L * 12}, {"D", L * 12}, {"conv1d", L * (216 * 4 + 216)}, {"in_proj", L * 420 * H},
	  {"mixer.norm", L * 2 * H}, {"out_proj", L * H * 2 * H}, {"norm_f", H}, {"lm_head", V * H}}},
	/* one attention, two mixers; one layer of experts */
	{"jamba", GROUPED UNTIED
	 ",\"num_experts\":5,\"num_experts_per_tok\":2,\"attn_layer_period\":3,\"attn_layer_offset\":1,"
	 "\"expert_layer_period\":3,\"expert_layer_offset\":2,\"mamba_d_state\":12,\"mamba_dt_rank\":10,"
	 "\"use_mamba_kernels\":false", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"A_log", 2 * 2 * H * 12}, {"D", 2 * 2 * H}, {"conv1d", 2 * (2 * H * 4 + 2 * H)},
	  {"in_proj", 2 * 4 * H * H}, {"x_proj", 2 * 34 * 2 * H}, {"dt_proj", 2 * LIN(10, 2 * H)},
	  {"out_proj", 2 * H * 2 * H}, {"dt_layernorm", 2 * 10}, {"b_layernorm", 2 * 12}, {"c_layernorm", 2 * 12},
	  {"gate_proj", 2 * F * H}, {".up_proj", 2 * F * H}, {"down_proj.", 2 * H * F}, {"input_layernorm", L * H},
	  {"pre_ff_layernorm", L * H}, {"q_proj", H * H}, {"k_proj", KVH * H}, {"v_proj", KVH * H},
	  {"o_proj", H * H}, {"router", E * H}, {"gate_up_proj", E * 2 * F * H}, {"experts.down_proj", E * H * F},
	  {"final_layernorm", H}, {"lm_head", V * H}}},
	{"bamba", GROUPED UNTIED
	 ",\"attn_layer_indices\":[1],\"mamba_n_heads\":12,\"mamba_d_head\":16,\"mamba_n_groups\":1,"
	 "\"mamba_d_state\":12,\"mamba_expand\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"pre_ff_layernorm", L * H}, {"dt_bias", 2 * 12}, {"A_log", 2 * 12},
	  {"D", 2 * 12}, {"conv1d", 2 * (216 * 4 + 216)}, {"in_proj", 2 * 420 * H}, {".norm", 2 * 2 * H},
	  {"out_proj", 2 * H * 2 * H}, {"q_proj", H * H}, {"k_proj", KVH * H}, {"v_proj", KVH * H},
	  {"o_proj", H * H}, {"final_layernorm", H}, {"lm_head", V * H}}},
	{"falcon_h1", HEADED UNTIED
	 ",\"mamba_d_ssm\":192,\"mamba_n_heads\":12,\"mamba_d_head\":16,\"mamba_n_groups\":1,"
	 "\"mamba_d_state\":12", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"dt_bias", L * 12}, {"A_log", L * 12}, {"D", L * 12}, {"conv1d", L * (216 * 4 + 216)},
	  {"in_proj", L * 420 * H}, {"out_proj", L * H * 2 * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H},
	  {"v_proj", L * KVH * H}, {"o_proj", L * H * H}, {"input_layernorm", L * H}, {"pre_ff_layernorm", L * H},
	  {"final_layernorm", H}, {"lm_head", V * H}}},
	{"granitemoehybrid", GROUPED TIED
	 ",\"layer_types\":[\"mamba\",\"attention\",\"mamba\"],\"num_local_experts\":5,"
	 "\"num_experts_per_tok\":2,\"shared_intermediate_size\":40,\"mamba_n_heads\":12,"
	 "\"mamba_d_head\":16,\"mamba_n_groups\":1,\"mamba_d_state\":12,\"mamba_expand\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H},
	  {"block_sparse_moe.input_linear", L * E * 2 * F * H}, {"block_sparse_moe.output_linear", L * E * H * F},
	  {"layer.", L * E * H}, {"shared_mlp.input_linear", L * 2 * W * H},
	  {"shared_mlp.output_linear", L * H * W}, {"dt_bias", 2 * 12}, {"A_log", 2 * 12}, {"D", 2 * 12},
	  {"conv1d", 2 * (216 * 4 + 216)}, {"in_proj", 2 * 420 * H}, {"mamba.norm", 2 * 2 * H},
	  {"out_proj", 2 * H * 2 * H}, {"q_proj", H * H}, {"k_proj", KVH * H}, {"v_proj", KVH * H},
	  {"o_proj", H * H}, {"model.norm", H}}},
	{"nemotron_h", HEADED UNTIED
	 ",\"hybrid_override_pattern\":\"M*-\",\"layers_block_type\":[\"mamba\",\"attention\",\"moe\"],"
	 "\"mamba_num_heads\":12,\"mamba_head_dim\":16,\"n_groups\":1,\"ssm_state_size\":12,"
	 "\"n_routed_experts\":5,\"num_experts_per_tok\":2,\"moe_intermediate_size\":40,"
	 "\"moe_shared_expert_intermediate_size\":48", OOM_TASK_CAUSAL_LM,
	 {{"embeddings", V * H}, {"^model\\.layers\\.\\d+\\.norm\\.", L * H}, {"dt_bias", 12}, {"A_log", 12},
	  {"D", 12}, {"conv1d", 216 * 4 + 216}, {"in_proj", 420 * H}, {"mixer.norm", 2 * H},
	  {"out_proj", H * 2 * H}, {"q_proj", H * H}, {"k_proj", KVH * H}, {"v_proj", KVH * H}, {"o_proj", H * H},
	  {".experts.up_proj", E * W * H}, {".experts.down_proj", E * H * W}, {"gate", E * H}, {"up_proj.", 48 * H},
	  {"down_proj.", H * 48}, {"norm_f", H}, {"lm_head", V * H}}},
	{"recurrent_gemma", HEADED TIED ",\"lru_width\":96,\"conv1d_width\":4,"
	 "\"block_types\":[\"recurrent\",\"recurrent\",\"attention\"]", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"temporal_pre_norm", L * H}, {"linear_y", 2 * LIN(H, H)},
	  {"linear_x", 2 * LIN(H, H)}, {"linear_out", 2 * LIN(H, H)}, {"conv_1d", 2 * (H * 4 + H)},
	  {"recurrent_param", 2 * H}, {"input_gate_weight", 2 * A * HEAD * HEAD}, {"input_gate_bias", 2 * A * HEAD},
	  {"recurrent_gate_weight", 2 * A * HEAD * HEAD}, {"recurrent_gate_bias", 2 * A * HEAD},
	  {"channel_pre_norm", L * H}, {"gate_proj", L * LIN(H, 104)}, {"up_proj", L * LIN(H, 104)},
	  {"down_proj", L * LIN(104, H)}, {"q_proj", H * H}, {"k_proj", KVH * H}, {"v_proj", KVH * H},
	  {"o_proj", LIN(H, H)}, {"final_norm", H}}},
	{"rwkv", "\"vocab_size\":1000,\"hidden_size\":96,\"attention_hidden_size\":96,\"intermediate_size\":208,"
	 "\"num_hidden_layers\":3,\"context_length\":512,\"tie_word_embeddings\":false", OOM_TASK_CAUSAL_LM,
	 {{"embeddings", V * H}, {"pre_ln", 2 * H}, {"ln1", L * 2 * H}, {"ln2", L * 2 * H}, {"time_decay", L * H},
	  {"time_first", L * H}, {"attention.time_mix_key", L * H}, {"time_mix_value", L * H},
	  {"attention.time_mix_receptance", L * H}, {"attention.key", L * H * H}, {"attention.value", L * H * H},
	  {"attention.receptance", L * H * H}, {"output", L * H * H}, {"feed_forward.time_mix_key", L * H},
	  {"feed_forward.time_mix_receptance", L * H}, {"feed_forward.key", L * F * H},
	  {"feed_forward.receptance", L * H * H}, {"feed_forward.value", L * H * F}, {"ln_out", 2 * H},
	  {"head", V * H}}},
	{"xlstm", "\"vocab_size\":1000,\"hidden_size\":96,\"num_heads\":6,\"num_hidden_layers\":3,"
	 "\"qk_dim_factor\":0.5,\"v_dim_factor\":1.0,\"mlp_round_up_to_multiple_of\":64,"
	 "\"chunk_size\":16,\"tie_word_embeddings\":false", OOM_TASK_CAUSAL_LM,
	 {{"embeddings", V * H}, {"norm_mlstm", L * H}, {"q", L * 48 * H}, {".k", L * 48 * H}, {"v", L * H * H},
	  {"ogate_preact", L * H * H}, {"igate_preact", L * LIN(H, A)}, {"fgate_preact", L * LIN(H, A)},
	  {"multihead_norm", L * H}, {"out_proj", L * H * H}, {"norm_ffn", L * H}, {"proj_up_gate", L * 256 * H},
	  {"proj_up.", L * 256 * H}, {"proj_down", L * H * 256}, {"out_norm", H}, {"lm_head", V * H}}},
	/* gated delta rule in two layers, gated attention in one */
	{"qwen3_next", HEADED UNTIED ",\"moe_intermediate_size\":40,\"num_experts\":5,\"num_experts_per_tok\":2,"
	 "\"shared_expert_intermediate_size\":48,"
	 "\"layer_types\":[\"linear_attention\",\"full_attention\",\"linear_attention\"],"
	 "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":16,"
	 "\"linear_value_head_dim\":16", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"dt_bias", 2 * 4}, {"A_log", 2 * 4}, {"conv1d", 2 * 128 * 4},
	  {"in_proj_qkvz", 2 * 2 * H * H}, {"in_proj_ba", 2 * 8 * H}, {"linear_attn.norm", 2 * HEAD},
	  {"out_proj", 2 * H * 64}, {".gate.", L * E * H}, {"gate_up_proj", L * E * 2 * W * H},
	  {"experts.down_proj", L * E * H * W}, {"gate_proj", L * 48 * H}, {".up_proj", L * 48 * H},
	  {"down_proj.", L * H * 48}, {"shared_expert_gate", L * H}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {"q_proj", 2 * H * H}, {"k_proj", KVH * H}, {"v_proj", KVH * H},
	  {"o_proj", H * H}, {"q_norm", HEAD}, {"k_norm", HEAD}, {"model.norm", H}, {"lm_head", V * H}}},
	{"qwen3_5_text", HEADED UNTIED
	 ",\"layer_types\":[\"linear_attention\",\"full_attention\",\"linear_attention\"],"
	 "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":16,"
	 "\"linear_value_head_dim\":16", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"dt_bias", 2 * 4}, {"A_log", 2 * 4}, {"conv1d", 2 * 128 * 4},
	  {"linear_attn.norm", 2 * HEAD}, {"out_proj", 2 * H * 64}, {"in_proj_qkv", 2 * 128 * H},
	  {"in_proj_z", 2 * 64 * H}, {"in_proj_b", 2 * 4 * H}, {"in_proj_a", 2 * 4 * H}, {"gate_proj", L * F * H},
	  {"up_proj", L * F * H}, {"down_proj", L * H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {"q_proj", 2 * H * H}, {"k_proj", KVH * H}, {"v_proj", KVH * H},
	  {"o_proj", H * H}, {"q_norm", HEAD}, {"k_norm", HEAD}, {"model.norm", H}, {"lm_head", V * H}}},
	{"minimax", HEADED UNTIED ",\"num_local_experts\":5,\"num_experts_per_tok\":2,"
	 "\"layer_types\":[\"linear_attention\",\"full_attention\",\"linear_attention\"]", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"self_attn.norm", 2 * H}, {"qkv_proj", 2 * 3 * H * H}, {"out_proj", 2 * H * H},
	  {"output_gate", 2 * H * H}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H},
	  {".gate.", L * E * H}, {"gate_up_proj", L * E * 2 * F * H}, {"down_proj", L * E * H * F},
	  {"q_proj", H * H}, {"k_proj", KVH * H}, {".v_proj", KVH * H}, {"o_proj", H * H}, {"model.norm", H},
	  {"lm_head", V * H}}},
	{"cpmant", "\"vocab_size\":1000,\"hidden_size\":96,\"num_attention_heads\":6,\"dim_head\":16,"
	 "\"dim_ff\":208,\"num_hidden_layers\":3,\"prompt_types\":4,\"prompt_length\":7,"
	 "\"segment_types\":5,\"position_bias_num_buckets\":24", OOM_TASK_CAUSAL_LM,
	 {{"layernorm_before_attention", L * H}, {"project_q", L * H * H}, {"project_k", L * H * H},
	  {"project_v", L * H * H}, {"attention_out", L * H * H}, {"layernorm_before_ffn", L * H},
	  {"w_0", L * F * H}, {"w_1", L * F * H}, {"w_out", L * H * F}, {"output_layernorm", H},
	  {"segment_embedding", E * H}, {"input_embedding", 1028 * H}, {"relative_attention_bias", 49 * A}}},
	{"hrm_text", HEADED TIED, OOM_TASK_CAUSAL_LM,
	 {{STILL "z_L_init", H}, {"embed_tokens", V * H}, {"^model\\.L_module\\..*q_proj\\.", L * H * H},
	  {"^model\\.L_module\\..*k_proj\\.", L * H * H}, {"^model\\.L_module\\..*v_proj\\.", L * H * H},
	  {"^model\\.L_module\\..*o_proj\\.", L * H * H},
	  {"^model\\.L_module\\..*self_attn\\.gate_proj\\.", L * H * H},
	  {"^model\\.L_module\\..*mlp\\.gate_proj\\.", L * F * H}, {"^model\\.L_module\\..*up_proj\\.", L * F * H},
	  {"^model\\.L_module\\..*down_proj\\.", L * H * F}, {"^model\\.H_module\\..*q_proj\\.", L * H * H},
	  {"^model\\.H_module\\..*k_proj\\.", L * H * H}, {"^model\\.H_module\\..*v_proj\\.", L * H * H},
	  {"^model\\.H_module\\..*o_proj\\.", L * H * H},
	  {"^model\\.H_module\\..*self_attn\\.gate_proj\\.", L * H * H},
	  {"^model\\.H_module\\..*mlp\\.gate_proj\\.", L * F * H}, {"^model\\.H_module\\..*up_proj\\.", L * F * H},
	  {"^model\\.H_module\\..*down_proj\\.", L * H * F}}},
};

PARTS_TEST(mixers)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mixers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
