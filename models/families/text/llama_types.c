/* The types of Llama's family.  Reference: transformers 5.12, models/X/modeling_X.py of each. */
#include "llama.h"

#define KIND(...) &(const struct oom_llama_kind){__VA_ARGS__}
#define EXPERTS(...) &(const struct oom_llama_experts){__VA_ARGS__}
/* Qwen's and OLMo's mixtures */
#define CAST_EXPERTS .experts = EXPERTS(.scores_cast = true)

#define COHERE \
	.norm = OOM_NORM_LAYER_WRITTEN_OUT, .shape = OOM_SHAPE_PARALLEL, .tied = true, \
	.scale_logits = true, .rope_fp32 = true
#define COHERE2 COHERE, .slide = OOM_SLIDE_BUT_LAST, .period = 4, .rope_sliding_only = true
#define ERNIE \
	.bias = OOM_BIAS_ALL, .tied = true, .rope_fp32 = true, .tables_fp32 = true, \
	.rope_spread = true
#define GEMMA .norm = OOM_NORM_RMS_PLUS1, .scaled_embed = true, .tied = true
#define OLMO .rope_back = true, .tables_fp32 = true, .views_late = true
#define OLMO2 \
	.norm = OOM_NORM_RMS_FP32, .norms = OOM_NORMS_AFTER, .qk = OOM_QK_WHOLE, .rope_back = true, \
	.views_late = true
#define PHI3 .fused_qkv = true, .mlp = oom_llama_fused_mlp, .dropout = "resid_pdrop"
#define GLM \
	.mlp = oom_llama_fused_mlp, .bias = OOM_BIAS_PROJECTIONS, .rotary = 0.5, .rope_cat = true, .rope_spread = true

#define NAMES(...) .names = &(const struct oom_llama_norm_names){__VA_ARGS__}
#define HUNYUAN                                                                                              \
	.qk = OOM_QK_LATE,                                                                                   \
	NAMES("input_layernorm", "post_attention_layernorm", "post_attention_layernorm", NULL, "norm", "query_layernorm", \
	      "key_layernorm")

const struct oom_family_type oom_llama_types[] = {
	{"llama", KIND(.norm = OOM_NORM_RMS, .tables_kept = OOM_ROPE_LLAMA)},
	{"mistral", KIND(.norm = OOM_NORM_RMS, .repeat_kv_flash = true, .tables_kept = OOM_ROPE_MISTRAL)},
	{"ministral", KIND(.both_masks = true)},
	{"ministral3", KIND(.q_scaled = true)},
	{"qwen2", KIND(.bias = OOM_BIAS_QKV, .both_masks = true, .window_off = true,
		       .repeat_kv_flash = true, .tables_kept = OOM_ROPE_QWEN)},
	{"qwen3", KIND(.qk = OOM_QK_HEAD, .both_masks = true, .window_off = true)},
	{"qwen2_moe", KIND(.bias = OOM_BIAS_QKV, .both_masks = true, .sliding_mask = true, .window_off = true,
			   .repeat_kv_flash = true, .tables_kept = OOM_ROPE_QWEN,
			   .experts = EXPERTS(.scores_cast = true, .shared_gate = true,
					      .shared_width = "shared_expert_intermediate_size"))},
	{"qwen3_moe", KIND(.qk = OOM_QK_HEAD, .window_off = true, CAST_EXPERTS)},
	{"smollm3", KIND(.both_masks = true)},
	{"gemma", KIND(GEMMA)},
	{"gemma2", KIND(GEMMA, .norms = OOM_NORMS_AROUND, .slide = OOM_SLIDE_EVEN)},
	{"gemma3_text", KIND(GEMMA, .norms = OOM_NORMS_AROUND, .qk = OOM_QK_HEAD,
			     .slide = OOM_SLIDE_BUT_LAST, .period = 6, .local_tables = true)},
	{"vaultgemma", KIND(GEMMA, .slide = OOM_SLIDE_EVEN,
			    NAMES("input_layernorm", NULL, "pre_feedforward_layernorm", NULL, "norm", NULL, NULL))},
	{"granite", KIND(.multipliers = true, .scale_logits = true)},
	{"granitemoe", KIND(.multipliers = true, .scale_logits = true,
			    .experts = EXPERTS(.one_by_one = true))},
	{"granitemoeshared", KIND(.multipliers = true, .scale_logits = true,
				  .experts = EXPERTS(.one_by_one = true,
						     .shared_width = "shared_intermediate_size"))},
	{"hyperclovax", KIND(.multipliers = true, .scale_logits = true,
			     NAMES("input_layernorm", "post_norm1", "post_attention_layernorm", "post_norm2", "norm", NULL, NULL))},
	{"phi", KIND(.norm = OOM_NORM_LAYER, .shape = OOM_SHAPE_PARALLEL, .bias = OOM_BIAS_ALL,
		     .head_bias = true, .rotary = 0.5, .rope_inline = true, .o = "dense",
		     .up = "fc1", .down = "fc2", .dropout = "resid_pdrop",
		     .embed_dropout = "embd_pdrop", .branch_dropout = true,
		     .embed_dropout_renames = true,
		     NAMES("input_layernorm", NULL, NULL, NULL, "final_layernorm", "q_layernorm", "k_layernorm"))},
	{"phi3", KIND(PHI3, .repeat_kv_flash = true)},
	{"phi4_multimodal", KIND(PHI3, .towers = true, .unused = oom_llama_phi4_unused)},
	{"phimoe", KIND(.norm = OOM_NORM_LAYER, .repeat_kv_flash = true,
			/* its sparsemixer always picks two */
			.experts = EXPERTS(.always_top = 2, .three_results = true))},
	{"olmo", KIND(OLMO, .norm = OOM_NORM_LAYER_FP32)},
	{"olmo2", KIND(OLMO2, .tables_fp32 = true)},
	{"olmo3", KIND(OLMO2, .slide = OOM_SLIDE_BUT_LAST, .period = 4)},
	{"olmoe", KIND(.qk = OOM_QK_WHOLE, .views_late = true, CAST_EXPERTS)},
	{"flex_olmo", KIND(OLMO2, .tables_fp32 = true, CAST_EXPERTS)},
	{"mixtral", KIND(.repeat_kv_flash = true, .tables_kept = OOM_ROPE_MIXTRAL, .experts = EXPERTS(.scores_cast = false))},
	{"mellum", KIND(.qk = OOM_QK_HEAD, .slide = OOM_SLIDE_LISTED, .local_tables = true,
			CAST_EXPERTS)},
	{"hunyuan_v1_dense", KIND(HUNYUAN)},
	{"hunyuan_v1_moe", KIND(HUNYUAN,
				.experts = EXPERTS(.gate_fp32 = true, .weights_cast = true, .as_wide = true,
						   .top_k = "moe_topk"))},
	{"ernie4_5", KIND(ERNIE)},
	{"ernie4_5_moe", KIND(ERNIE, .head_bias_as_layers = true,
			      .experts = EXPERTS(.scores_cast = true, .frozen_bias = true,
						 .layer_indices = true,
						 .shared_count = "moe_num_shared_experts"))},
	{"cohere", KIND(COHERE, .qk_by_key = true)},
	{"cohere2", KIND(COHERE2)},
	{"cohere2_moe", KIND(COHERE2, .experts = EXPERTS(.scores_cast = true, .topk_first = true,
							 .shared_count = "num_shared_experts",
							 .dense_width =
								 "prefix_dense_intermediate_size"))},
	{"exaone4", KIND(.norms = OOM_NORMS_AFTER, .qk = OOM_QK_HEAD, .slide = OOM_SLIDE_BUT_LAST,
			 .period = 4)},
	{"glm", KIND(GLM)},
	{"glm4", KIND(GLM, .norms = OOM_NORMS_AROUND,
		      NAMES("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm",
			    "norm", NULL, NULL))},
	{"starcoder2", KIND(.norm = OOM_NORM_LAYER, .bias = OOM_BIAS_ALL, .tied = true, .dropout_within = true,
			    .repeat_kv_flash = true, .tables_kept = OOM_ROPE_QWEN,
			    .up = "c_fc", .down = "c_proj")},
	{"stablelm", KIND(.norm = OOM_NORM_LAYER, .shape = OOM_SHAPE_NAMED, .parallel_by_key = true,
			  .rotary = 0.25, .rope_inline = true, .views_late = true,
			  .tables_kept = OOM_ROPE_QWEN, .head_norms = true, .dropout = "hidden_dropout")},
	{"nemotron", KIND(.norm = OOM_NORM_LAYER_1P, .rotary = 0.5, .rope_cat = true,
			  .views_late = true, .repeat_kv = true, .layer_frequencies = 2,
			  .up = "up_proj", .down = "down_proj")},
	{"seed_oss", KIND(.bias = OOM_BIAS_PROJECTIONS, .dropout_within = true)},
	{"arcee", KIND(.up = "up_proj", .down = "down_proj")},
	{"jais2", KIND(.norm = OOM_NORM_LAYER, .up = "up_proj", .down = "down_proj")},
	{"helium", KIND(.norm = OOM_NORM_RMS_FP32_W, .rope_spread = true, .o_square = true,
			.no_o_bias = true)},
	{"apertus", KIND(.qk = OOM_QK_HEAD, .mlp = oom_llama_xielu_mlp, .own_act = true,
			 NAMES("attention_layernorm", NULL, "feedforward_layernorm", NULL, "norm", NULL, NULL))},
	{"nanochat", KIND(.norm = OOM_NORM_RMS_PLAIN, .qk = OOM_QK_LATE, .embed_norm = true,
			  .up = "fc1", .down = "fc2")},
	{"bitnet", KIND(.mlp = oom_llama_sub_norm_mlp, .o_norm = "attn_sub_norm")},
	{"moshi", KIND(.norm = OOM_NORM_RMS_FP32_W, .mlp = oom_llama_moshi_mlp,
		       .ffn_dim = true, .embed_more = 1, .shift_logits = true,
		       .layer_tables = true, .views_late = true, .repeat_kv = true,
		       .mask_if_padded = true)},
	{"emu3_text_model", KIND(.dropout = "attention_dropout")},
	{"mllama_text_model", KIND(.cross_layers = true, .embed_more = 8,
				   .unused = oom_llama_cross_unused)},
	{"cwm", KIND(.slide = OOM_SLIDE_BUT_FIRST, .period = 4)},
	{NULL, NULL},
};
