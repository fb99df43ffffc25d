/* Decoders of one kind of layer, part by part (parts_case.h): attention and a feed-forward, with what each type makes of
 * norms, biases, grouped heads, positions and tied tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parts_case.h"

static const struct model_parts dense[] = {
	/* every projection with a bias, grouped heads */
	{"llama", GROUPED UNTIED ",\"attention_bias\":true,\"mlp_bias\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * LIN(H, H)}, {"gate_proj", L * LIN(H, F)},
	  {"up_proj", L * LIN(H, F)}, {"down_proj", L * LIN(F, H)}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	/* one table for words and head */
	{"llama", GROUPED TIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}}},
	{"mistral", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"ministral", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	/* biases of q, k and v */
	{"qwen2", GROUPED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H},
	  {"down_proj", L * H * F}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H},
	  {"lm_head", V * H}}},
	/* a norm of queries' heads and one of keys' */
	{"qwen3", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"gate_proj", L * F * H},
	  {"up_proj", L * F * H}, {"down_proj", L * H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"gemma", HEADED TIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}}},
	/* norms before and after both branches */
	{"gemma2", HEADED TIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {"pre_feedforward_layernorm", L * H},
	  {"post_feedforward_layernorm", L * H}, {".norm", H}}},
	{"gemma3_text", HEADED TIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"gate_proj", L * F * H},
	  {"up_proj", L * F * H}, {"down_proj", L * H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {"pre_feedforward_layernorm", L * H},
	  {"post_feedforward_layernorm", L * H}, {".norm", H}}},
	{"vaultgemma", HEADED TIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"pre_feedforward_layernorm", L * H}, {".norm", H}}},
	/* fused projections */
	{"phi3", GROUPED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"o_proj", L * H * H}, {"qkv_proj", L * (H + 2 * KVH) * H},
	  {"gate_up_proj", L * 2 * F * H}, {"down_proj", L * H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	/* biases everywhere, the head's too */
	{"phi", SIZES UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, H)}, {"v_proj", L * LIN(H, H)},
	  {"dense", L * LIN(H, H)}, {"fc1", L * LIN(H, F)}, {"fc2", L * LIN(F, H)}, {"input_layernorm", L * 2 * H},
	  {"final_layernorm", 2 * H}, {"lm_head", LIN(H, V)}}},
	{"granite", GROUPED UNTIED ",\"attention_bias\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * LIN(H, H)}, {"gate_proj", L * F * H}, {"up_proj", L * F * H},
	  {"down_proj", L * H * F}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H},
	  {"lm_head", V * H}}},
	{"cohere", GROUPED TIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {".norm", H}}},
	{"cohere2", HEADED TIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {".norm", H}}},
	{"glm", HEADED UNTIED ",\"attention_bias\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * H * H}, {"gate_up_proj", L * 2 * F * H},
	  {"down_proj", L * H * F}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H},
	  {"lm_head", V * H}}},
	{"glm4", HEADED UNTIED ",\"attention_bias\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * H * H}, {"gate_up_proj", L * 2 * F * H},
	  {"down_proj", L * H * F}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H},
	  {"post_self_attn_layernorm", L * H}, {"post_mlp_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	/* norms without weights */
	{"olmo", GROUPED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"lm_head", V * H}}},
	{"olmo2", GROUPED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * H}, {"k_norm", L * KVH}, {"gate_proj", L * F * H},
	  {"up_proj", L * F * H}, {"down_proj", L * H * F}, {"post_attention_layernorm", L * H},
	  {"post_feedforward_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"olmo3", GROUPED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * H}, {"k_norm", L * KVH}, {"gate_proj", L * F * H},
	  {"up_proj", L * F * H}, {"down_proj", L * H * F}, {"post_attention_layernorm", L * H},
	  {"post_feedforward_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"starcoder2", GROUPED TIED ",\"use_bias\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * LIN(H, H)}, {"c_fc", L * LIN(H, F)},
	  {"c_proj", L * LIN(F, H)}, {"input_layernorm", L * 2 * H}, {"post_attention_layernorm", L * 2 * H},
	  {".norm", 2 * H}}},
	{"stablelm", GROUPED UNTIED ",\"use_qkv_bias\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H},
	  {"down_proj", L * H * F}, {"input_layernorm", L * 2 * H}, {"post_attention_layernorm", L * 2 * H},
	  {".norm", 2 * H}, {"lm_head", V * H}}},
	{"nemotron", HEADED UNTIED ",\"attention_bias\":true,\"mlp_bias\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * LIN(H, H)}, {"up_proj", L * LIN(H, F)},
	  {"down_proj", L * LIN(F, H)}, {"input_layernorm", L * 2 * H}, {"post_attention_layernorm", L * 2 * H},
	  {".norm", 2 * H}, {"lm_head", V * H}}},
	{"smollm3", GROUPED TIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}}},
	{"helium", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"exaone4", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"gate_proj", L * F * H},
	  {"up_proj", L * F * H}, {"down_proj", L * H * F}, {"post_attention_layernorm", L * H},
	  {"post_feedforward_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"ernie4_5", HEADED TIED ",\"use_bias\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * LIN(H, H)}, {"gate_proj", L * LIN(H, F)},
	  {"up_proj", L * LIN(H, F)}, {"down_proj", L * LIN(F, H)}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}}},
	{"hunyuan_v1_dense", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"query_layernorm", L * HEAD}, {"key_layernorm", L * HEAD},
	  {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"seed_oss", HEADED UNTIED ",\"attention_bias\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H},
	  {"down_proj", L * H * F}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H},
	  {"lm_head", V * H}}},
	{"arcee", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	/* xIELU's two learned numbers for each layer */
	{"apertus", GROUPED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"q_norm", L * HEAD}, {"k_norm", L * HEAD}, {"up_proj", L * F * H},
	  {"down_proj", L * H * F}, {"alpha_p", L * 1}, {"alpha_n", L * 1}, {"attention_layernorm", L * H},
	  {"feedforward_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	/* norms within both branches */
	{"bitnet", GROUPED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"attn_sub_norm", L * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H},
	  {"down_proj", L * H * F}, {"ffn_sub_norm", L * F}, {"input_layernorm", L * H},
	  {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"diffllama", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"lambda_q1", L * HEAD}, {"lambda_k1", L * HEAD}, {"lambda_q2", L * HEAD},
	  {"lambda_k2", L * HEAD}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"persimmon", SIZES UNTIED ",\"qk_layernorm\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"query_key_value", L * LIN(H, 3 * H)}, {"dense.", L * LIN(H, H)},
	  {"q_layernorm", L * 2 * HEAD}, {"k_layernorm", L * 2 * HEAD}, {"dense_h_to_4h", L * LIN(H, F)},
	  {"dense_4h_to_h", L * LIN(F, H)}, {"input_layernorm", L * 2 * H}, {"post_attention_layernorm", L * 2 * H},
	  {"final_layernorm", 2 * H}, {"lm_head", V * H}}},
	{"gpt_neox", SIZES UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_in", V * H}, {"input_layernorm", L * 2 * H}, {"post_attention_layernorm", L * 2 * H},
	  {"query_key_value", L * LIN(H, 3 * H)}, {"dense.", L * LIN(H, H)}, {"dense_h_to_4h", L * LIN(H, F)},
	  {"dense_4h_to_h", L * LIN(F, H)}, {"final_layer_norm", 2 * H}, {"embed_out", V * H}}},
	{"gpt_neox_japanese", SIZES UNTIED ",\"intermediate_multiple_size\":2", OOM_TASK_CAUSAL_LM,
	 {{"embed_in", V * H}, {"input_layernorm", L * 2 * H}, {"post_attention_layernorm", L * 2 * H},
	  {"query_key_value", L * 3 * H * H}, {"dense.", L * H * H}, {"dense_h_to_4h", L * 2 * H * H},
	  {"dense_4h_to_h", L * H * 2 * H}, {"dense_bias", H}, {"final_layer_norm", 2 * H}, {"embed_out", V * H}}},
	{"gptj", GPT2 UNTIED ",\"rotary_dim\":8", OOM_TASK_CAUSAL_LM,
	 {{"wte", V * H}, {"ln_1", L * 2 * H}, {"k_proj", L * H * H}, {"v_proj", L * H * H}, {"q_proj", L * H * H},
	  {"out_proj", L * H * H}, {"fc_in", L * LIN(H, 4 * H)}, {"fc_out", L * LIN(4 * H, H)}, {"ln_f", 2 * H},
	  {"lm_head", LIN(H, V)}}},
	{"codegen", GPT2 UNTIED ",\"n_ctx\":512,\"rotary_dim\":8", OOM_TASK_CAUSAL_LM,
	 {{"wte", V * H}, {"ln_1", L * 2 * H}, {"qkv_proj", L * 3 * H * H}, {"out_proj", L * H * H},
	  {"fc_in", L * LIN(H, 4 * H)}, {"fc_out", L * LIN(4 * H, H)}, {"ln_f", 2 * H}, {"lm_head", LIN(H, V)}}},
	{"bloom", "\"vocab_size\":1000,\"hidden_size\":96,\"n_layer\":3,\"n_head\":6,\"tie_word_embeddings\":true",
	 OOM_TASK_CAUSAL_LM,
	 {{"word_embeddings.", V * H}, {"word_embeddings_layernorm", 2 * H}, {"input_layernorm", L * 2 * H},
	  {"query_key_value", L * LIN(H, 3 * H)}, {"dense.", L * LIN(H, H)},
	  {"post_attention_layernorm", L * 2 * H}, {"dense_h_to_4h", L * LIN(H, 4 * H)},
	  {"dense_4h_to_h", L * LIN(4 * H, H)}, {"ln_f", 2 * H}}},
	{"gpt2", GPT2 TIED, OOM_TASK_CAUSAL_LM,
	 {{"wte", V * H}, {"wpe", P * H}, {"ln_1", L * 2 * H}, {"c_attn", L * (H * 3 * H + 3 * H)},
	  {"attn.c_proj", L * LIN(H, H)}, {"ln_2", L * 2 * H}, {"c_fc", L * (H * 4 * H + 4 * H)},
	  {"mlp.c_proj", L * (4 * H * H + H)}, {"ln_f", 2 * H}}},
	{"gpt2", GPT2 TIED ",\"n_inner\":208", OOM_TASK_CAUSAL_LM,
	 {{"wte", V * H}, {"wpe", P * H}, {"ln_1", L * 2 * H}, {"c_attn", L * (H * 3 * H + 3 * H)},
	  {"attn.c_proj", L * LIN(H, H)}, {"ln_2", L * 2 * H}, {"c_fc", L * (H * F + F)},
	  {"mlp.c_proj", L * (F * H + H)}, {"ln_f", 2 * H}}},
	{"gpt_neo", "\"vocab_size\":1000,\"hidden_size\":96,\"num_layers\":3,\"num_heads\":6,"
	 "\"max_position_embeddings\":512,\"attention_types\":[[[\"global\"],3]],"
	 "\"intermediate_size\":208,\"tie_word_embeddings\":true", OOM_TASK_CAUSAL_LM,
	 {{"wte", V * H}, {"wpe", P * H}, {"ln_1", L * 2 * H}, {"k_proj", L * H * H}, {"v_proj", L * H * H},
	  {"q_proj", L * H * H}, {"out_proj", L * LIN(H, H)}, {"ln_2", L * 2 * H}, {"c_fc", L * LIN(H, F)},
	  {"c_proj", L * LIN(F, H)}, {"ln_f", 2 * H}}},
	/* one head of keys and values */
	{"gpt_bigcode", GPT2 TIED ",\"n_inner\":208,\"multi_query\":true", OOM_TASK_CAUSAL_LM,
	 {{"wte", V * H}, {"wpe", P * H}, {"ln_1", L * 2 * H}, {"c_attn", L * LIN(H, 128)},
	  {"attn.c_proj", L * LIN(H, H)}, {"ln_2", L * 2 * H}, {"c_fc", L * LIN(H, F)},
	  {"mlp.c_proj", L * LIN(F, H)}, {"ln_f", 2 * H}}},
	{"gpt_bigcode", GPT2 TIED ",\"n_inner\":208,\"multi_query\":false", OOM_TASK_CAUSAL_LM,
	 {{"wte", V * H}, {"wpe", P * H}, {"ln_1", L * 2 * H}, {"c_attn", L * LIN(H, 3 * H)},
	  {"attn.c_proj", L * LIN(H, H)}, {"ln_2", L * 2 * H}, {"c_fc", L * LIN(H, F)},
	  {"mlp.c_proj", L * LIN(F, H)}, {"ln_f", 2 * H}}},
	/* words narrower than the model */
	{"opt", "\"vocab_size\":1000,\"hidden_size\":96,\"ffn_dim\":208,\"num_hidden_layers\":3,"
	 "\"word_embed_proj_dim\":32,\"num_attention_heads\":6,\"max_position_embeddings\":512,"
	 "\"tie_word_embeddings\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * KVH}, {"embed_positions", 514 * H}, {"project_out", KVH * H},
	  {"project_in", H * KVH}, {"decoder.final_layer_norm", 2 * H}, {"k_proj", L * LIN(H, H)},
	  {"v_proj", L * LIN(H, H)}, {"q_proj", L * LIN(H, H)}, {"out_proj", L * LIN(H, H)},
	  {"self_attn_layer_norm", L * 2 * H}, {"fc1", L * LIN(H, F)}, {"fc2", L * LIN(F, H)},
	  {"^model\\.decoder\\.layers\\..*final_layer_norm\\.", L * 2 * H}}},
	{"falcon", "\"vocab_size\":1000,\"hidden_size\":96,\"num_hidden_layers\":3,\"num_attention_heads\":6,"
	 "\"multi_query\":true,\"new_decoder_architecture\":false,\"parallel_attn\":true,\"bias\":false,"
	 "\"tie_word_embeddings\":true", OOM_TASK_CAUSAL_LM,
	 {{"word_embeddings", V * H}, {"query_key_value", L * 128 * H}, {"dense.", L * H * H},
	  {"dense_h_to_4h", L * 4 * H * H}, {"dense_4h_to_h", L * H * 4 * H}, {"input_layernorm", L * 2 * H},
	  {"ln_f", 2 * H}}},
	/* Falcon 40B: two norms, grouped heads */
	{"falcon", "\"vocab_size\":1000,\"hidden_size\":96,\"num_hidden_layers\":3,\"num_attention_heads\":6,"
	 "\"num_kv_heads\":2,\"new_decoder_architecture\":true,\"bias\":true," "\"tie_word_embeddings\":true",
	 OOM_TASK_CAUSAL_LM,
	 {{"word_embeddings", V * H}, {"query_key_value", L * LIN(H, H + 2 * KVH)}, {"dense.", L * LIN(H, H)},
	  {"dense_h_to_4h", L * LIN(H, 4 * H)}, {"dense_4h_to_h", L * LIN(4 * H, H)}, {"ln_attn", L * 2 * H},
	  {"ln_mlp", L * 2 * H}, {"ln_f", 2 * H}}},
	{"mpt", "\"vocab_size\":1000,\"d_model\":96,\"n_layers\":3,\"n_heads\":6,\"tie_word_embeddings\":true",
	 OOM_TASK_CAUSAL_LM,
	 {{"wte", V * H}, {"norm_1", L * H}, {"Wqkv", L * 3 * H * H}, {"out_proj", L * H * H}, {"norm_2", L * H},
	  {"up_proj", L * 4 * H * H}, {"down_proj", L * H * 4 * H}, {"norm_f", H}}},
	{"xglm", "\"vocab_size\":1000,\"d_model\":96,\"ffn_dim\":208,\"num_layers\":3,\"attention_heads\":6,"
	 "\"max_position_embeddings\":512,\"tie_word_embeddings\":true", OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"k_proj", L * LIN(H, H)}, {"v_proj", L * LIN(H, H)}, {"q_proj", L * LIN(H, H)},
	  {"out_proj", L * LIN(H, H)}, {"self_attn_layer_norm", L * 2 * H}, {"fc1", L * LIN(H, F)},
	  {"fc2", L * LIN(F, H)}, {"final_layer_norm", L * 2 * H}, {".layer_norm", 2 * H}}},
	{"biogpt", SIZES TIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"embed_positions", 514 * H}, {"k_proj", L * LIN(H, H)},
	  {"v_proj", L * LIN(H, H)}, {"q_proj", L * LIN(H, H)}, {"out_proj", L * LIN(H, H)},
	  {"self_attn_layer_norm", L * 2 * H}, {"fc1", L * LIN(H, F)}, {"fc2", L * LIN(F, H)},
	  {"final_layer_norm", L * 2 * H}, {".layer_norm", 2 * H}}},
	{"ctrl", "\"vocab_size\":1000,\"n_embd\":96,\"dff\":208,\"n_layer\":3,\"n_head\":6,\"n_positions\":512,"
	 "\"tie_word_embeddings\":true", OOM_TASK_CAUSAL_LM,
	 {{"w.", V * H}, {"Wq", L * LIN(H, H)}, {"Wk", L * LIN(H, H)}, {"Wv", L * LIN(H, H)},
	  {"dense", L * LIN(H, H)}, {"0.ffn.0", LIN(H, F)}, {"0.ffn.2", LIN(F, H)}, {"1.ffn.0", LIN(H, F)},
	  {"1.ffn.2", LIN(F, H)}, {"2.ffn.0", LIN(H, F)}, {"2.ffn.2", LIN(F, H)}, {"layernorm1", L * 2 * H},
	  {"layernorm2", L * 2 * H}, {"layernorm.", 2 * H}, {"lm_head", V}}},
	{"openai-gpt", GPT2 TIED, OOM_TASK_CAUSAL_LM,
	 {{"tokens_embed", V * H}, {"positions_embed", P * H}, {"c_attn", L * (H * 3 * H + 3 * H)},
	  {"attn.c_proj", L * LIN(H, H)}, {"ln_1", L * 2 * H}, {"c_fc", L * (H * 4 * H + 4 * H)},
	  {"mlp.c_proj", L * (4 * H * H + H)}, {"ln_2", L * 2 * H}}},
	{"youtu", SIZES UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_a_proj", L * 1536 * H}, {"q_a_layernorm", L * 1536},
	  {"q_b_proj", L * 1152 * 1536}, {"kv_a_proj_with_mqa", L * 576 * H}, {"kv_a_layernorm", L * P},
	  {"kv_b_proj", L * 1536 * P}, {"o_proj", L * H * 768}, {"gate_proj", L * F * H}, {"up_proj", L * F * H},
	  {"down_proj", L * H * F}, {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H},
	  {"lm_head", V * H}}},
	{"hyperclovax", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {"post_norm1", L * H},
	  {"post_norm2", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"cwm", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}, {"lm_head", V * H}}},
	{"jais2", HEADED UNTIED, OOM_TASK_CAUSAL_LM,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, KVH)},
	  {"v_proj", L * LIN(H, KVH)}, {"o_proj", L * LIN(H, H)}, {"up_proj", L * LIN(H, F)},
	  {"down_proj", L * LIN(F, H)}, {"input_layernorm", L * 2 * H}, {"post_attention_layernorm", L * 2 * H},
	  {".norm", 2 * H}, {"lm_head", V * H}}},
	/* score: labels without a bias */
	{"llama", GROUPED UNTIED, OOM_TASK_SEQ_CLS,
	 {{"embed_tokens", V * H}, {"q_proj", L * H * H}, {"k_proj", L * KVH * H}, {"v_proj", L * KVH * H},
	  {"o_proj", L * H * H}, {"gate_proj", L * F * H}, {"up_proj", L * F * H}, {"down_proj", L * H * F},
	  {"input_layernorm", L * H}, {"post_attention_layernorm", L * H}, {".norm", H}, {"score", 2 * H}}},
	{"gpt2", GPT2, OOM_TASK_SEQ_CLS,
	 {{"wte", V * H}, {"wpe", P * H}, {"ln_1", L * 2 * H}, {"c_attn", L * (H * 3 * H + 3 * H)},
	  {"attn.c_proj", L * LIN(H, H)}, {"ln_2", L * 2 * H}, {"c_fc", L * (H * 4 * H + 4 * H)},
	  {"mlp.c_proj", L * (4 * H * H + H)}, {"ln_f", 2 * H}, {"score", 2 * H}}},
	{"phi", SIZES, OOM_TASK_SEQ_CLS,
	 {{"embed_tokens", V * H}, {"q_proj", L * LIN(H, H)}, {"k_proj", L * LIN(H, H)}, {"v_proj", L * LIN(H, H)},
	  {"dense", L * LIN(H, H)}, {"fc1", L * LIN(H, F)}, {"fc2", L * LIN(F, H)}, {"input_layernorm", L * 2 * H},
	  {"final_layernorm", 2 * H}, {"score", 2 * H}}},
};

PARTS_TEST(dense)

/* Where modules go by names that are not theirs (Moshi's q_proj.linear), or by none of the table's (Zamba's shared
 * layers), a choice by name says so, whatever the task; elsewhere it does not. */
static void guesses_are_announced(void **state)
{
	(void)state;
	assert_true(parts_guessed("{\"model_type\":\"moshi\"}", OOM_TASK_CAUSAL_LM, "embed_tokens"));
	assert_true(parts_guessed("{\"model_type\":\"zamba\"}", OOM_TASK_SEQ_CLS, "embed_tokens"));
	assert_true(parts_guessed("{\"model_type\":\"funnel\"}", OOM_TASK_MASKED_LM, "embeddings"));
	assert_false(parts_guessed("{\"model_type\":\"llama\"}", OOM_TASK_CAUSAL_LM, "embed_tokens"));
	assert_false(parts_guessed("{\"model_type\":\"qwen3\"}", OOM_TASK_SEQ_CLS, "embed_tokens"));
	assert_false(parts_guessed("{\"model_type\":\"bert\"}", OOM_TASK_SEQ_CLS, "embeddings"));
	/* with their towers and projectors: CLIP's, SigLIP's, Qwen's */
	assert_false(parts_guessed("{\"model_type\":\"llava\"}", OOM_TASK_CAUSAL_LM, "vision_tower.pre_layrnorm"));
	assert_false(parts_guessed("{\"model_type\":\"gemma3\"}", OOM_TASK_CAUSAL_LM, "multi_modal_projector.mm_soft_emb_norm"));
	assert_false(parts_guessed("{\"model_type\":\"paligemma\"}", OOM_TASK_CAUSAL_LM, "layer_norm1"));
	/* modules that the default config has not (VARIANTS of tests/tools/module_paths.py), and norms, biases and
	 * projectors that go by the names of their type: named_parameters() of transformers 5.12.1 has each of these */
	assert_false(parts_guessed("{\"model_type\":\"t5\",\"feed_forward_proj\":\"gated-gelu\"}", OOM_TASK_SEQ2SEQ, "wi_0"));
	assert_false(parts_guessed("{\"model_type\":\"opt\",\"word_embed_proj_dim\":512}", OOM_TASK_CAUSAL_LM, "decoder.project_in"));
	assert_false(parts_guessed("{\"model_type\":\"falcon\",\"parallel_attn\":false}", OOM_TASK_CAUSAL_LM,
				   "post_attention_layernorm"));
	assert_false(parts_guessed("{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":null}", OOM_TASK_CAUSAL_LM, "self_attn.q_proj"));
	assert_false(parts_guessed("{\"model_type\":\"cohere\",\"use_qk_norm\":true}", OOM_TASK_CAUSAL_LM, "self_attn.q_norm"));
	assert_false(parts_guessed("{\"model_type\":\"pegasus\",\"tie_word_embeddings\":false}", OOM_TASK_SEQ2SEQ,
				   "decoder.embed_tokens"));
	assert_false(parts_guessed("{\"model_type\":\"bert\",\"is_decoder\":true,\"add_cross_attention\":true}", OOM_TASK_CAUSAL_LM,
				   "crossattention.self.query"));
	assert_false(parts_guessed("{\"model_type\":\"whisper\"}", OOM_TASK_SEQ2SEQ, "model.encoder.conv1"));
	assert_false(parts_guessed("{\"model_type\":\"megatron-bert\"}", OOM_TASK_MASKED_LM, "encoder.ln"));
	assert_false(parts_guessed("{\"model_type\":\"bamba\"}", OOM_TASK_CAUSAL_LM, "mamba.A_log"));
	assert_false(parts_guessed("{\"model_type\":\"ernie4_5_moe\"}", OOM_TASK_CAUSAL_LM, "gate.moe_statics"));
	assert_false(parts_guessed("{\"model_type\":\"voxtral\"}", OOM_TASK_SEQ2SEQ, "multi_modal_projector.linear_1"));
	assert_false(parts_guessed("{\"model_type\":\"glm4v\"}", OOM_TASK_CAUSAL_LM, "visual.merger.gate_proj"));
	assert_false(parts_guessed("{\"model_type\":\"mistral3\"}", OOM_TASK_CAUSAL_LM, "multi_modal_projector.norm"));
	assert_false(parts_guessed("{\"model_type\":\"llava_next\"}", OOM_TASK_CAUSAL_LM, "image_newline"));
	assert_false(parts_guessed("{\"model_type\":\"qwen2_5_vl\"}", OOM_TASK_CAUSAL_LM, "visual.patch_embed.proj"));
	/* whose mergers have a norm of the language model's name */
	assert_false(parts_guessed("{\"model_type\":\"qwen3_vl\"}", OOM_TASK_CAUSAL_LM,
				   "visual.deepstack_merger_list.1.linear_fc1"));
	assert_false(parts_guessed("{\"model_type\":\"t5\"}", OOM_TASK_SEQ2SEQ, "encoder"));
	/* what only some configs of the type have: two matrices before the activation, projections, two norms */
	assert_false(parts_guessed("{\"model_type\":\"t5\",\"feed_forward_proj\":\"gated-gelu\"}", OOM_TASK_SEQ2SEQ, "wi_0"));
	assert_false(parts_guessed("{\"model_type\":\"opt\",\"word_embed_proj_dim\":512}", OOM_TASK_CAUSAL_LM, "project_in"));
	assert_false(parts_guessed("{\"model_type\":\"falcon\",\"new_decoder_architecture\":true}", OOM_TASK_CAUSAL_LM, "ln_attn"));
	assert_false(parts_guessed("{\"model_type\":\"falcon\",\"parallel_attn\":false}", OOM_TASK_CAUSAL_LM,
				   "post_attention_layernorm"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(guesses_are_announced),
		cmocka_unit_test(test_dense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
