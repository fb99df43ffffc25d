/* The types of Llama's family, and what their configs say. */
#include <stdio.h>

#include "llama.h"

/* type, what it has, norm, rotated share, a plain feed-forward's layers */
#define KINDS(X) \
	X("llama", 0, OOM_NORM_RMS, 0, NULL, NULL) \
	X("mistral", 0, OOM_NORM_RMS, 0, NULL, NULL) \
	X("ministral", 0, OOM_NORM_RMS, 0, NULL, NULL) \
	X("qwen2", QKV_BIAS, OOM_NORM_RMS, 0, NULL, NULL) \
	X("qwen3", QK_NORM, OOM_NORM_RMS, 0, NULL, NULL) \
	X("smollm3", 0, OOM_NORM_RMS, 0, NULL, NULL) \
	X("gemma", SCALED_EMBED | TIED, OOM_NORM_RMS_PLUS1, 0, NULL, NULL) \
	X("gemma2", SCALED_EMBED | SANDWICH | ALTERNATING \
	  | TIED, OOM_NORM_RMS_PLUS1, 0, NULL, NULL) \
	X("granite", MULTIPLIERS, OOM_NORM_RMS, 0, NULL, NULL) \
	X("phi3", FUSED, OOM_NORM_RMS, 0, NULL, NULL) \
	X("olmo2", POST_ONLY | QK_NORM | QK_NORM_FULL, OOM_NORM_RMS_FP32, 0, NULL, NULL) \
	X("mixtral", EXPERTS, OOM_NORM_RMS, 0, NULL, NULL) \
	X("olmoe", EXPERTS | QK_NORM | QK_NORM_FULL \
	  | SCORES_CAST, OOM_NORM_RMS, 0, NULL, NULL) \
	X("qwen3_moe", EXPERTS | QK_NORM | SCORES_CAST, OOM_NORM_RMS, 0, NULL, NULL) \
	X("qwen2_moe", EXPERTS | QKV_BIAS | SCORES_CAST \
	  | SHARED_GATE, OOM_NORM_RMS, 0, NULL, NULL) \
	X("flex_olmo", EXPERTS | POST_ONLY | QK_NORM | QK_NORM_FULL \
	  | SCORES_CAST, OOM_NORM_RMS_FP32, 0, NULL, NULL) \
	X("mellum", EXPERTS | QK_NORM | SCORES_CAST | ALTERNATING \
	  | LAYER_ROPES, OOM_NORM_RMS, 0, NULL, NULL) \
	X("hunyuan_v1_moe", EXPERTS | QK_NORM | QK_NORM_LATE, OOM_NORM_RMS, 0, NULL, NULL) \
	X("phimoe", EXPERTS, OOM_NORM_LAYER, 0, NULL, NULL) \
	X("granitemoe", EXPERTS | MULTIPLIERS, OOM_NORM_RMS, 0, NULL, NULL) \
	X("granitemoeshared", EXPERTS | MULTIPLIERS, OOM_NORM_RMS, 0, NULL, NULL) \
	X("ernie4_5", ALL_BIAS | TIED | FP32_ROPE | INTERLEAVED, OOM_NORM_RMS, 0, NULL, NULL) \
	X("ernie4_5_moe", EXPERTS | ALL_BIAS | TIED | FP32_ROPE | INTERLEAVED \
	  | ERNIE_ROUTER | SCORES_CAST, OOM_NORM_RMS, 0, NULL, NULL) \
	X("cohere2_moe", EXPERTS | PARALLEL | TIED | FP32_ROPE | LOCAL_ROPE \
	  | ALTERNATING | PATTERN_4 | SCORES_CAST | TOPK_FIRST, OOM_NORM_LAYER_WRITTEN_OUT, 0, NULL, NULL) \
	X("olmo", 0, OOM_NORM_LAYER_FP32, 0, NULL, NULL) \
	X("olmo3", POST_ONLY | QK_NORM | QK_NORM_FULL | ALTERNATING \
	  | PATTERN_4, OOM_NORM_RMS_FP32, 0, NULL, NULL) \
	X("exaone4", POST_ONLY | QK_NORM | ALTERNATING \
	  | PATTERN_4, OOM_NORM_RMS, 0, NULL, NULL) \
	X("glm4", SANDWICH | FUSED_MLP | NO_O_BIAS, OOM_NORM_RMS, 0.5, NULL, NULL) \
	X("hunyuan_v1_dense", QK_NORM | QK_NORM_LATE, OOM_NORM_RMS, 0, NULL, NULL) \
	X("starcoder2", ALL_BIAS | TIED, OOM_NORM_LAYER, 0, "c_fc", "c_proj") \
	X("stablelm", 0, OOM_NORM_LAYER, 0.25, NULL, NULL) \
	X("phi", ALL_BIAS | PARALLEL, OOM_NORM_LAYER, 0.5, "fc1", "fc2") \
	X("gemma3_text", SCALED_EMBED | SANDWICH | ALTERNATING | PATTERN_6 | QK_NORM \
	  | TIED, OOM_NORM_RMS_PLUS1, 0, NULL, NULL) \
	X("glm", FUSED_MLP | NO_O_BIAS, OOM_NORM_RMS, 0.5, NULL, NULL) \
	X("nemotron", 0, OOM_NORM_LAYER_1P, 0.5, "up_proj", "down_proj") \
	X("cohere", PARALLEL | TIED | FP32_ROPE, OOM_NORM_LAYER_WRITTEN_OUT, 0, NULL, NULL) \
	X("seed_oss", NO_O_BIAS, OOM_NORM_RMS, 0, NULL, NULL) \
	X("arcee", 0, OOM_NORM_RMS, 0, "up_proj", "down_proj") \
	X("cohere2", PARALLEL | TIED | FP32_ROPE | LOCAL_ROPE | ALTERNATING \
	  | PATTERN_4, OOM_NORM_LAYER_WRITTEN_OUT, 0, NULL, NULL) \
	X("helium", INTERLEAVED, OOM_NORM_RMS_FP32_W, 0, NULL, NULL) \
	X("jais2", 0, OOM_NORM_LAYER, 0, "up_proj", "down_proj") \
	X("apertus", QK_NORM | XIELU, OOM_NORM_RMS, 0, "up_proj", "down_proj") \
	X("hyperclovax", MULTIPLIERS, OOM_NORM_RMS, 0, NULL, NULL) \
	X("nanochat", QK_NORM | QK_NORM_LATE \
	  | EMBED_NORM, OOM_NORM_RMS_PLAIN, 0, "fc1", "fc2") \
	X("bitnet", SUB_NORM, OOM_NORM_RMS, 0, NULL, NULL) \
	X("moshi", 0, OOM_NORM_RMS_FP32_W, 0, NULL, NULL) \
	X("emu3_text_model", 0, OOM_NORM_RMS, 0, NULL, NULL) \
	X("mllama_text_model", 0, OOM_NORM_RMS, 0, NULL, NULL) \
	X("phi4_multimodal", FUSED, OOM_NORM_RMS, 0, NULL, NULL) \
	X("cwm", ALTERNATING, OOM_NORM_RMS, 0, NULL, NULL) \
	X("vaultgemma", SCALED_EMBED | ALTERNATING | TIED, OOM_NORM_RMS_PLUS1, 0, NULL, NULL) \
	X("ministral3", 0, OOM_NORM_RMS, 0, NULL, NULL)

#define KIND_ROW(type, flags, norm, rotary, up, down) {type, flags, norm, rotary, up, down},
const struct oom_llama_kind oom_llama_kinds[] = {KINDS(KIND_ROW)};
#define KIND_NAME(type, flags, norm, rotary, up, down) {type, NULL},
const struct oom_family_type oom_llama_types[] = {KINDS(KIND_NAME){NULL, NULL}};

static void parse_experts(struct oom_arch *a, unsigned flags)
{
	struct oom_reader *r = &a->rd;

	if (!(flags & EXPERTS))
		return;
	a->n_experts = oom_read_count_or(r, "num_local_experts", 0);
	if (!a->n_experts)
		a->n_experts = oom_read_count(r, "num_experts", 1);
	if (!strcmp(a->model_type, "hunyuan_v1_moe")) { /* one number, or one for every layer */
		a->top_k = (uint64_t)oom_read_item_real(r, "moe_topk", 0, 0);
		a->top_k = a->top_k ? a->top_k : oom_read_count_or(r, "moe_topk", 1);
	} else {
		a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	}
	a->d_expert = oom_read_count_or(r, "moe_intermediate_size", a->d_ff);
	a->extra[NORM_TOPK] = oom_read_bool(r, "norm_topk_prob", !(flags & SCORES_CAST)) &&
			      !(flags & TOPK_FIRST);
	a->d_shared = flags & SHARED_GATE ?
			      oom_read_count_or(r, "shared_expert_intermediate_size", 0) :
			      0;
	if (!strcmp(a->model_type, "hunyuan_v1_moe"))
		a->d_shared = a->d_expert = a->d_ff;
	if (!strcmp(a->model_type, "granitemoeshared"))
		a->d_shared = oom_read_count_or(r, "shared_intermediate_size", 0);
	if (flags & ERNIE_ROUTER)
		a->d_shared = a->d_expert * oom_read_count_or(r, "moe_num_shared_experts", 0);
	if (flags & TOPK_FIRST) {
		a->d_shared = a->d_expert * oom_read_count_or(r, "num_shared_experts", 0);
		a->d_ff = oom_read_count_or(r, "prefix_dense_intermediate_size", a->d_ff);
	}
	if (a->top_k > a->n_experts)
		snprintf(a->warning, sizeof(a->warning),
			 "num_experts_per_tok (%llu) is more than the %llu experts: no step runs "
			 "so.",
			 (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
}

/* Which layers are dense although the model has experts: mlp_only_layers and decoder_sparse_step
 * (Qwen MoE). */
static void parse_kinds(struct oom_arch *a, unsigned flags)
{
	struct oom_reader *r = &a->rd;
	const uint64_t sparse = oom_read_count_or(r, "decoder_sparse_step", 1);
	const uint64_t set = oom_read_count_or(r, "sliding_window_pattern",
					       flags & PATTERN_4 ? 4 : 6),
		       pattern = set ? set : 6;
	const uint64_t start = flags & ERNIE_ROUTER ?
				       oom_read_count_or(r, "moe_layer_start_index", 1) :
				       0;
	const uint64_t every = flags & ERNIE_ROUTER ?
				       oom_read_count_or(r, "moe_layer_interval", 1) :
				       1;
	const double end = flags & ERNIE_ROUTER ? oom_read_real(r, "moe_layer_end_index", -1) : -1;
	const struct oom_key *only = oom_read_key(r, "mlp_only_layers");
	bool any = false;

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i),
			   *mlp = oom_read_item(r, "mlp_layer_types", (uint32_t)i);
		bool slides = flags & (PATTERN_6 | PATTERN_4) ? (i + 1) % pattern != 0 :
			      is_type(a, "cwm")		      ? i % 4 != 0 :
			      flags & LAYER_ROPES	      ? false :
			      flags & ALTERNATING	      ? !(i % 2) :
								a->window != 0;
		bool dense = flags & EXPERTS && sparse > 1 && (i + 1) % sparse;

		if (type)
			slides = !strcmp(type, "sliding_attention");
		if (flags & EXPERTS && mlp)
			dense = !strcmp(mlp, "dense");
		dense |= i < start || (every && (i + 1) % every) || (end >= 0 && (double)i > end);
		any |= slides;
		for (uint32_t j = 0; only && only->type == OOM_KEY_LIST && j < only->n_items; j++)
			dense |= oom_read_item_real(r, "mlp_only_layers", j, -1) == (double)i;
		a->kind[i] = (uint8_t)(slides | dense << 1);
	}
	if (flags & LAYER_ROPES && !any)
		a->window = 0;
}

/* What single types have and no other. */
static void parse_own(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *cross = is_type(a, "mllama_text_model") ?
					      oom_read_key(r, "cross_attention_layers") :
					      NULL;

	a->extra[MOSHI] = is_type(a, "moshi");
	a->extra[EMBED_MORE] = a->extra[MOSHI] ? 1 : is_type(a, "mllama_text_model") ? 8 : 0;
	a->float_logits = a->extra[EMBED_MORE] != 0;
	a->tie = a->tie && !a->extra[EMBED_MORE];      /* head and embedding differ in length */
	if (is_type(a, "phi")) {
		a->dropout = oom_read_real(r, "resid_pdrop", 0);
		a->embed_dropout = oom_read_real(r, "embd_pdrop", 0);
	}
	if (is_type(a, "stablelm")) {
		if (oom_read_bool(r, "use_parallel_residual", false))
			a->extra[FLAGS] |= PARALLEL;
		a->dropout = oom_read_real(r, "hidden_dropout", 0);
		a->extra[HEAD_NORMS] = oom_read_bool(r, "qk_layernorm", false);
	}
	if (is_type(a, "helium")) {
		a->o_bias = false;
		if (a->n_heads * a->head_dim != a->d_model)
			snprintf(a->warning, sizeof(a->warning),
				 "helium's output projection takes hidden_size, not "
				 "num_attention_heads * head_dim: "
				 "no step runs so.");
	}
	if (is_type(a, "emu3_text_model"))
		a->dropout = a->attn_dropout;
	for (uint32_t i = 0; cross && cross->type == OOM_KEY_LIST && i < cross->n_items; i++) {
		const double at = oom_read_item_real(r, "cross_attention_layers", i, -1);

		a->extra[N_CROSS] += at >= 0 && at < (double)a->n_layers;
	}
	for (uint64_t i = 3; is_type(a, "mllama_text_model") &&
			     (!cross || cross->type != OOM_KEY_LIST) && i < a->n_layers && i < 40;
	     i += 5)
		a->extra[N_CROSS]++;            /* the default: 3, 8, ... 38 */
	if (a->extra[N_CROSS] >= a->n_layers)
		oom_read_fail(r, "cross_attention_layers leaves no layer for text");
}

void oom_llama_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *window;
	unsigned flags = 0;
	size_t k = sizeof(oom_llama_kinds) / sizeof(oom_llama_kinds[0]);

	a->norm = OOM_NORM_RMS;
	a->rotary_share = 1;
	while (k-- > 0)
		if (!strcmp(oom_llama_kinds[k].type, a->model_type)) {
			flags = oom_llama_kinds[k].flags;
			a->norm = oom_llama_kinds[k].norm;
			a->extra[KIND] = k;
			a->rotary_share = oom_llama_kinds[k].rotary > 0 ? oom_llama_kinds[k].rotary : 1;
		}
	if (oom_read_bool(r, "use_post_norm", false))   /* HyperCLOVA X */
		flags |= SANDWICH;
	a->extra[FLAGS] = flags;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = is_type(a, "moshi") ? oom_read_count(r, "ffn_dim", 2) / 2 :
					oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	if (!a->n_kv_heads || !a->head_dim) {
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
		return;
	}
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	if (!(flags & XIELU))
		a->act = oom_read_act(r,
				      oom_read_key(r, "hidden_activation") ? "hidden_activation" :
									     "hidden_act",
				      "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", (flags & TIED) != 0);
	a->qkv_bias = (flags & QKV_BIAS && oom_read_bool(r, "qkv_bias", true)) ||
		      (!(flags & QKV_BIAS) && oom_read_bool(r, "attention_bias", false));
	a->o_bias = !(flags & QKV_BIAS) && oom_read_bool(r, "attention_bias", false);
	a->mlp_bias = oom_read_bool(r, "mlp_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->dropout = flags & FUSED ? oom_read_real(r, "resid_pdrop", 0) : 0;
	a->softcap_attn = oom_read_real(r, "attn_logit_softcapping", 0);
	a->softcap_logits = oom_read_real(r, "final_logit_softcapping", 0);
	if (flags & ALL_BIAS) {
		a->qkv_bias = a->o_bias = a->mlp_bias = oom_read_bool(r, "use_bias", true);
		a->head_bias = flags & PARALLEL || (flags & ERNIE_ROUTER && a->qkv_bias);
	}
	a->head_bias |= oom_read_bool(r, "lm_head_bias", false);
	a->qkv_bias |= oom_read_bool(r, "use_qkv_bias", false);
	a->o_bias = a->o_bias && !(flags & NO_O_BIAS);
	a->o_bias |= oom_read_bool(r, "attention_out_bias", false);
	a->dropout = oom_read_real(r, "residual_dropout", a->dropout);
	a->embed_dropout = oom_read_real(r, "embedding_dropout", 0);    /* StarCoder 2 */
	a->rotary_share = oom_read_real(r, "partial_rotary_factor", a->rotary_share);
	a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
					a->rotary_share);
	window = oom_read_key(r, "sliding_window");
	if (window && window->type == OOM_KEY_NUMBER && window->number >= 1 &&
	    window->number < 1e9 &&
	    oom_read_bool(r, "use_sliding_window", strncmp(a->model_type, "qwen", 4) != 0))
		a->window = (uint64_t)window->number;
	a->scale_logits = flags & MULTIPLIERS || !strncmp(a->model_type, "cohere", 6);
	if (oom_read_bool(r, "use_qk_norm", false) ||
	    (!is_type(a, "stablelm") && oom_read_bool(r, "qk_layernorm", false)))
		oom_read_fail(r, "%s with query and key norms is not modelled", a->model_type);
	parse_own(a);
	parse_experts(a, flags);
	parse_kinds(a, flags);
	if (flags & TOPK_FIRST &&
	    (a->d_shared || oom_read_real(r, "rms_norm_eps", 0) > 0 ||
	     strcmp(oom_read_string(r, "expert_selection_fn", "softmax"), "softmax"))) {
		a->approximate = true;
		snprintf(a->warning, sizeof(a->warning),
			 "%s: shared experts, sigmoid scores and RMS norms are approximated.",
			 a->model_type);
	}
}
