/* Parameters of a small model of each family, summed by hand.
 *
 * A row is a config and the sum of its modules' weights, one term per module, written from the __init__ of
 * transformers 5.12's models/TYPE/modeling_TYPE.py.  All sums but DeiT's were compared with
 * the count of model.parameters() of the same config there (PyTorch 2.14, meta device).  The words are those of the
 * class that AutoModelForX picks for the row's task. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "priced.h"
#include "small_models.h"

/* nn.Linear with a bias, without one, and nn.LayerNorm */
#define LIN(in, out) ((in) * (out) + (out))
#define MAT(in, out) ((in) * (out))
#define LN(d) (2 * (d))
/* q, k, v, o with grouped heads; the same with biases of the first three; with all four */
#define GQA (MAT(H, H) + 2 * MAT(H, KV * HEAD) + MAT(H, H))
#define GQA_QKV (LIN(H, H) + 2 * LIN(H, KV * HEAD) + MAT(H, H))
#define MHA (4 * MAT(H, H))
#define MHA_BIAS (4 * LIN(H, H))
/* gate, up, down; up and down with biases */
#define GATED (3 * MAT(H, F))
#define PLAIN (LIN(H, F) + LIN(F, H))

struct row {
	const char *type, *keys;
	enum oom_task task;
	uint64_t params;
};

static const struct row decoders[] = {
	/* two tables; in each layer attention, feed-forward, two norms; a last norm */
	{"llama", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, 2 * V * H + L * (GQA + GATED + 2 * H) + H},
	{"llama", GROUPED TIED, OOM_TASK_CAUSAL_LM, V * H + L * (GQA + GATED + 2 * H) + H},
	/* heads wider than the width allows: 4 of 32 */
	{"llama", GROUPED UNTIED ",\"head_dim\":32", OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (2 * MAT(H, A * 32) + 2 * MAT(H, KV * 32) + GATED + 2 * H) + H},
	{"llama", GROUPED UNTIED ",\"attention_bias\":true,\"mlp_bias\":true", OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (GQA_QKV + H + GATED + 2 * F + H + 2 * H) + H},
	/* score: labels without a bias; no head */
	{"llama", GROUPED UNTIED, OOM_TASK_SEQ_CLS, V * H + L * (GQA + GATED + 2 * H) + H + 2 * H},
	{"mistral", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, 2 * V * H + L * (GQA + GATED + 2 * H) + H},
	{"qwen2", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, 2 * V * H + L * (GQA_QKV + GATED + 2 * H) +
	 H},
	/* a norm for a head of queries, one for a head of keys */
	{"qwen3", GROUPED UNTIED ",\"head_dim\":16", OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (GQA + 2 * HEAD + GATED + 2 * H) + H},
	/* OLMo 2: norms of all heads together */
	{"olmo2", GROUPED UNTIED, OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (GQA + H + KV * HEAD + GATED + 2 * H) + H},
	/* OLMo: its norms have no weights */
	{"olmo", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, 2 * V * H + L * (GQA + GATED)},
	{"gemma", GROUPED TIED ",\"head_dim\":16", OOM_TASK_CAUSAL_LM,
	 V * H + L * (GQA + GATED + 2 * H) + H},
	/* Gemma 2: norms before and after both */
	{"gemma2", GROUPED TIED ",\"head_dim\":16", OOM_TASK_CAUSAL_LM,
	 V * H + L * (GQA + GATED + 4 * H) + H},
	{"gemma3_text", GROUPED TIED ",\"head_dim\":16", OOM_TASK_CAUSAL_LM,
	 V * H + L * (GQA + 2 * HEAD + GATED + 4 * H) + H},
	/* one projection for q, k and v, one for gate and up */
	{"phi3", GROUPED UNTIED, OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (MAT(H, H + 2 * KV * HEAD) + MAT(H, H) + MAT(H, 2 * F) + MAT(F, H) +
			  2 * H) + H},
	/* biases everywhere, the head's too; one norm per layer */
	{"phi", SIZES UNTIED, OOM_TASK_CAUSAL_LM,
	 V * H + LIN(H, V) + L * (MHA_BIAS + PLAIN + LN(H)) + LN(H)},
	{"granite", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, 2 * V * H + L * (GQA + GATED + 2 * H) + H},
	/* Cohere: one norm, without a bias, for both branches */
	{"cohere", GROUPED TIED, OOM_TASK_CAUSAL_LM, V * H + L * (GQA + GATED + H) + H},
	{"glm4", GROUPED UNTIED ",\"head_dim\":16,\"attention_bias\":true", OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (GQA_QKV + GATED + 4 * H) + H},
	{"starcoder2", GROUPED TIED ",\"use_bias\":true", OOM_TASK_CAUSAL_LM,
	 V * H + L * (GQA_QKV + H + PLAIN + 2 * LN(H)) + LN(H)},
	{"stablelm", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, 2 * V * H + L * (GQA + GATED + 2 * LN(H)) +
	 LN(H)},
	/* Nemotron: up and down only, norms with biases */
	{"nemotron", GROUPED UNTIED ",\"head_dim\":16", OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (GQA + 2 * MAT(H, F) + 2 * LN(H)) + LN(H)},
	{"smollm3", GROUPED TIED, OOM_TASK_CAUSAL_LM, V * H + L * (GQA + GATED + 2 * H) + H},
	{"helium", GROUPED UNTIED ",\"head_dim\":16", OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (GQA + GATED + 2 * H) + H},
	/* a fused projection, biases everywhere but in the head */
	{"gpt_neox", SIZES UNTIED, OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (LIN(H, 3 * H) + LIN(H, H) + PLAIN + 2 * LN(H)) + LN(H)},
	{"bloom", "\"vocab_size\":1000,\"hidden_size\":64,\"n_layer\":3,\"n_head\":4" TIED,
	 OOM_TASK_CAUSAL_LM,
	 V * H + LN(H) + L * (LIN(H, 3 * H) + LIN(H, H) + LIN(H, 4 * H) + LIN(4 * H, H) +
			      2 * LN(H)) + LN(H)},
	/* tables of words and positions */
	{"gpt2", "\"vocab_size\":1000,\"n_embd\":64,\"n_layer\":3,\"n_head\":4,\"n_positions\":512" TIED,
	 OOM_TASK_CAUSAL_LM,
	 V * H + P * H + L * (LIN(H, 3 * H) + LIN(H, H) + LIN(H, 4 * H) + LIN(4 * H, H) +
			      2 * LN(H)) + LN(H)},
	{"gptj", "\"vocab_size\":1000,\"n_embd\":64,\"n_layer\":3,\"n_head\":4,\"n_positions\":512,\"rotary_dim\":8" UNTIED,
	 OOM_TASK_CAUSAL_LM,
	 V * H + LIN(H, V) + L * (MHA + LIN(H, 4 * H) + LIN(4 * H, H) + LN(H)) + LN(H)},
	{"gpt_neo",
	 "\"vocab_size\":1000,\"hidden_size\":64,\"num_layers\":3,\"num_heads\":4,\"max_position_embeddings\":512,"
	 "\"attention_types\":[[[\"global\"],3]],\"intermediate_size\":128" TIED,
	 OOM_TASK_CAUSAL_LM, V * H + P * H + L * (3 * MAT(H, H) + LIN(H, H) + PLAIN + 2 * LN(H)) +
		 LN(H)},
	/* OPT's table of positions begins two rows before the first */
	{"opt", "\"vocab_size\":1000,\"hidden_size\":64,\"ffn_dim\":128,\"num_hidden_layers\":3,\"word_embed_proj_dim\":64,"
	 "\"num_attention_heads\":4,\"max_position_embeddings\":512" TIED,
	 OOM_TASK_CAUSAL_LM, V * H + (P + 2) * H + L * (MHA_BIAS + PLAIN + 2 * LN(H)) + LN(H)},
	/* one key-value head for all; parallel branches behind one norm; no biases */
	{"falcon", "\"vocab_size\":1000,\"hidden_size\":64,\"num_hidden_layers\":3,\"num_attention_heads\":4,\"multi_query\":true,"
	 "\"new_decoder_architecture\":false,\"parallel_attn\":true,\"bias\":false" TIED,
	 OOM_TASK_CAUSAL_LM,
	 V * H + L * (MAT(H, H + 2 * HEAD) + MAT(H, H) + 2 * MAT(H, 4 * H) + LN(H)) + LN(H)},
	/* MptMLP is four times as wide whatever expansion_ratio says */
	{"mpt", "\"vocab_size\":1000,\"d_model\":64,\"n_layers\":3,\"n_heads\":4,\"expansion_ratio\":2" TIED, OOM_TASK_CAUSAL_LM,
	 V * H + L * (MAT(H, 3 * H) + MAT(H, H) + 2 * MAT(H, 4 * H) + 2 * H) + H},
	{"gpt_bigcode", "\"vocab_size\":1000,\"n_embd\":64,\"n_layer\":3,\"n_head\":4,\"n_positions\":512,\"n_inner\":128,"
	 "\"multi_query\":true" TIED,
	 OOM_TASK_CAUSAL_LM,
	 V * H + P * H + L * (LIN(H, H + 2 * HEAD) + LIN(H, H) + PLAIN + 2 * LN(H)) + LN(H)},
};

/* Experts: E of width W, S shared; a router without a bias. */
enum { E = 4, W = 32 };
#define EXPERTS (MAT(H, E) + E * 3 * MAT(H, W))
static const struct row experts[] = {
	{"mixtral", GROUPED UNTIED ",\"num_local_experts\":4,\"num_experts_per_tok\":2",
	 OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (GQA + MAT(H, E) + E * GATED + 2 * H) + H},
	{"qwen3_moe", GROUPED UNTIED ",\"head_dim\":16,\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
	 "\"decoder_sparse_step\":1,\"mlp_only_layers\":[]",
	 OOM_TASK_CAUSAL_LM, 2 * V * H + L * (GQA + 2 * HEAD + EXPERTS + 2 * H) + H},
	/* a shared feed-forward of 48 behind a gate of one number; the first layer dense */
	{"qwen2_moe", GROUPED UNTIED ",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
	 "\"shared_expert_intermediate_size\":48,\"decoder_sparse_step\":1,\"mlp_only_layers\":[0]",
	 OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (GQA_QKV + 2 * H) + GATED + (L - 1) * (EXPERTS + 3 * MAT(H, 48) + H) + H},
	{"olmoe", GROUPED UNTIED ",\"num_experts\":4,\"num_experts_per_tok\":2", OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (GQA + H + KV * HEAD + MAT(H, E) + E * GATED + 2 * H) + H},
	/* latent attention: queries through 24, keys and values through 16 and a rotated part of 8; heads of
	 * 16 + 8 and values of 16; one dense layer; the correction bias is a buffer */
	{"deepseek_v3", SIZES UNTIED ",\"num_key_value_heads\":4,\"q_lora_rank\":24,\"kv_lora_rank\":16,\"qk_rope_head_dim\":8,"
	 "\"qk_nope_head_dim\":16,\"v_head_dim\":16,\"n_routed_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
	 "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1",
	 OOM_TASK_CAUSAL_LM,
	 2 * V * H +
		 L * (MAT(H, 24) + 24 + MAT(24, A * 24) + MAT(H, 16 + 8) + 16 +
		      MAT(16, A * (16 + 16)) +
		      MAT(A * 16, H) + 2 * H) +
		 GATED + (L - 1) * (EXPERTS + 3 * MAT(H, W)) + H},
	/* GPT-OSS: biases in attention, router and experts; a sink for every head */
	{"gpt_oss", GROUPED UNTIED ",\"head_dim\":16,\"num_local_experts\":4,\"num_experts_per_tok\":2", OOM_TASK_CAUSAL_LM,
	 2 * V * H + L * (GQA_QKV + H + A + LIN(H, E) + E * (LIN(H, 2 * F) + LIN(F, H)) + 2 * H) +
		 H},
};

/* words, positions, types, their norm; layers with biases, norms after */
#define BERT_LAYER (MHA_BIAS + LN(H) + PLAIN + LN(H))
#define BERT (V * H + P * H + 2 * H + LN(H) + L * BERT_LAYER)
/* the masked-LM head: dense, norm, the decoder's bias */
#define MLM (LIN(H, H) + LN(H) + V)
static const struct row encoders[] = {
	{"bert", SIZES, OOM_TASK_MASKED_LM, BERT + MLM},
	/* pooler and classifier */
	{"bert", SIZES, OOM_TASK_SEQ_CLS, BERT + LIN(H, H) + LIN(H, 2)},
	{"roberta", SIZES ",\"type_vocab_size\":1", OOM_TASK_MASKED_LM, BERT - H + MLM},
	{"roberta", SIZES ",\"type_vocab_size\":1", OOM_TASK_SEQ_CLS, BERT - H + LIN(H, H) +
	 LIN(H, 2)},
	{"camembert", SIZES ",\"type_vocab_size\":1", OOM_TASK_MASKED_LM, BERT - H + MLM},
	{"xlm-roberta", SIZES ",\"type_vocab_size\":1", OOM_TASK_MASKED_LM, BERT - H + MLM},
	/* embeddings of 32, projected; the head's transform is 32 wide */
	{"electra", SIZES ",\"embedding_size\":32", OOM_TASK_MASKED_LM,
	 V * 32 + P * 32 + 2 * 32 + LN(32) + LIN(32, H) + L * BERT_LAYER + LIN(H, 32) + LN(32) + V},
	/* one layer for all three, behind embeddings of 32, and a pooler only with classes */
	{"albert", SIZES ",\"embedding_size\":32", OOM_TASK_MASKED_LM,
	 V * 32 + P * 32 + 2 * 32 + LN(32) + LIN(32, H) + BERT_LAYER + LIN(H, 32) + LN(32) + V},
	{"distilbert", "\"vocab_size\":1000,\"dim\":64,\"hidden_dim\":128,\"n_layers\":3,\"n_heads\":4,\"max_position_embeddings\":512",
	 OOM_TASK_MASKED_LM, V * H + P * H + LN(H) + L * BERT_LAYER + MLM},
	{"distilbert", "\"vocab_size\":1000,\"dim\":64,\"hidden_dim\":128,\"n_layers\":3,\"n_heads\":4,\"max_position_embeddings\":512",
	 OOM_TASK_SEQ_CLS, V * H + P * H + LN(H) + L * BERT_LAYER + LIN(H, H) + LIN(H, 2)},
	/* 32 buckets of relative positions, one number per head */
	{"mpnet", SIZES, OOM_TASK_MASKED_LM, V * H + P * H + LN(H) + L * BERT_LAYER + 32 * A + MLM},
	/* a frozen table of sines for a head */
	{"roformer", SIZES ",\"embedding_size\":64", OOM_TASK_MASKED_LM,
	 V * H + 2 * H + LN(H) + P * HEAD + L * BERT_LAYER + MLM},
	{"megatron-bert", SIZES, OOM_TASK_MASKED_LM,
	 V * H + P * H + 2 * H + L * (MHA_BIAS + LN(H) + PLAIN + LN(H)) + LN(H) + MLM},
	/* no biases, norms without bias, the first layer without its first; a head of dense, norm, decoder */
	{"modernbert", SIZES, OOM_TASK_MASKED_LM,
	 V * H + H + L * (MAT(H, 3 * H) + MAT(H, H) + MAT(H, 2 * F) + MAT(F, H) + 2 * H) - H + H +
		 MAT(H, H) + H + V},
	/* Fourier transforms have no weights; the pooler idles */
	{"fnet", SIZES ",\"type_vocab_size\":2", OOM_TASK_MASKED_LM,
	 V * H + P * H + 2 * H + LN(H) + LIN(H, H) + L * (LN(H) + PLAIN + LN(H)) + LIN(H, H) + MLM},
};

/* T5: relative positions of 32 buckets in the first layer of each stack */
#define T5_ATTENTION (4 * MAT(H, H) + H)
static const struct row both[] = {
	{"t5", "\"vocab_size\":1000,\"d_model\":64,\"d_kv\":16,\"d_ff\":128,\"num_layers\":3,\"num_decoder_layers\":3,\"num_heads\":4,"
	 "\"feed_forward_proj\":\"relu\"" TIED,
	 OOM_TASK_SEQ2SEQ,
	 V * H + 2 * 32 * A + L * (T5_ATTENTION + 2 * MAT(H, F) + H) +
		 L * (2 * T5_ATTENTION + 2 * MAT(H, F) + H) + 2 * H},
	/* positions with two rows more, norms of both embeddings */
	{"bart", "\"vocab_size\":1000,\"d_model\":64,\"encoder_layers\":3,\"decoder_layers\":3,\"encoder_attention_heads\":4,"
	 "\"decoder_attention_heads\":4,\"encoder_ffn_dim\":128,\"decoder_ffn_dim\":128,\"max_position_embeddings\":512",
	 OOM_TASK_SEQ2SEQ,
	 V * H + 2 * ((P + 2) * H + LN(H)) + L * (MHA_BIAS + PLAIN + 2 * LN(H)) +
		 L * (2 * MHA_BIAS + PLAIN + 3 * LN(H))},
	/* norms first, and a last one for each stack */
	{"mbart", "\"vocab_size\":1000,\"d_model\":64,\"encoder_layers\":3,\"decoder_layers\":3,\"encoder_attention_heads\":4,"
	 "\"decoder_attention_heads\":4,\"encoder_ffn_dim\":128,\"decoder_ffn_dim\":128,\"max_position_embeddings\":512",
	 OOM_TASK_SEQ2SEQ,
	 V * H + 2 * ((P + 2) * H + 2 * LN(H)) + L * (MHA_BIAS + PLAIN + 2 * LN(H)) +
		 L * (2 * MHA_BIAS + PLAIN + 3 * LN(H))},
	/* sines are parameters that are not trained */
	{"pegasus", "\"vocab_size\":1000,\"d_model\":64,\"encoder_layers\":3,\"decoder_layers\":3,\"encoder_attention_heads\":4,"
	 "\"decoder_attention_heads\":4,\"encoder_ffn_dim\":128,\"decoder_ffn_dim\":128,\"max_position_embeddings\":512",
	 OOM_TASK_SEQ2SEQ,
	 V * H + 2 * (P * H + LN(H)) + L * (MHA_BIAS + PLAIN + 2 * LN(H)) +
		 L * (2 * MHA_BIAS + PLAIN + 3 * LN(H))},
};

#define VIT_LAYER (MHA_BIAS + PLAIN + 2 * LN(H))
static const struct row images[] = {
	{"vit", IMAGE, OOM_TASK_IMAGE_CLS,
	 H + (PATCHES + 1) * H + LIN(PIXELS, H) + L * VIT_LAYER + LN(H) + LIN(H, 2)},
	{"deit", IMAGE, OOM_TASK_IMAGE_CLS,
	 2 * H + (PATCHES + 2) * H + LIN(PIXELS, H) + L * VIT_LAYER + LN(H) + LIN(H, 2)},
	/* a mask token, factors of both branches, a classifier of class token and mean */
	{"dinov2", IMAGE ",\"mlp_ratio\":2", OOM_TASK_IMAGE_CLS,
	 2 * H + (PATCHES + 1) * H + LIN(PIXELS, H) + L * (VIT_LAYER + 2 * H) + LN(H) +
		 LIN(2 * H, 2)},
	/* keys without a bias; layer scale; the norm of the pooled mean */
	{"beit", IMAGE ",\"use_mask_token\":false,\"use_absolute_position_embeddings\":false,"
	 "\"use_relative_position_bias\":false,\"layer_scale_init_value\":0.1",
	 OOM_TASK_IMAGE_CLS, H + LIN(PIXELS, H) + L * (VIT_LAYER - H + 2 * H) + LN(H) + LIN(H, 2)},
	/* 7 x 7 depthwise, norm, two layers, layer scale; norm and 2 x 2 convolution between stages */
	{"convnext", "\"hidden_sizes\":[16,32],\"depths\":[1,2],\"num_stages\":2,\"patch_size\":4,\"num_channels\":3,\"image_size\":32",
	 OOM_TASK_IMAGE_CLS,
	 LIN(3 * 16, 16) + LN(16) + (16 * 49 + 16 + LN(16) + LIN(16, 64) + LIN(64, 16) + 16) +
		 LN(16) +
		 LIN(16 * 4, 32) + 2 * (32 * 49 + 32 + LN(32) + LIN(32, 128) + LIN(128, 32) + 32) +
			 LN(32) +
		 LIN(32, 2)},
	/* 7 x 7 stem; a basic layer is two 3 x 3 convolutions with norms; a projection where the map shrinks */
	{"resnet", "\"embedding_size\":16,\"hidden_sizes\":[16,32],\"depths\":[1,1],\"layer_type\":\"basic\",\"num_channels\":3",
	 OOM_TASK_IMAGE_CLS,
	 3 * 49 * 16 + LN(16) + (2 * (16 * 16 * 9 + LN(16))) +
		 (16 * 32 * 9 + LN(32) + 32 * 32 * 9 + LN(32) + 16 * 32 + LN(32)) + LIN(32, 2)},
};

static void check(const struct row *rows, size_t n)
{
	int bad = 0;

	for (size_t i = 0; i < n; i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_error err = {{0}};
		struct oom_eval e;
		char json[1200];

		p.task = rows[i].task;
		p.num_labels = 2;
		p.micro_batch = 1;
		p.seq_len = 16;
		snprintf(json, sizeof(json), "{\"model_type\":\"%s\",%s}", rows[i].type,
			 rows[i].keys);
		if (price(json, &p, &e, &err)) {
			print_error("%s: %s\n", rows[i].type, err.text);
			bad++;
		} else if (e.total_params != rows[i].params) {
			print_error("%s, task %d: %llu parameters, by hand %llu (%+lld)\n",
				    rows[i].type,
				    (int)rows[i].task, (unsigned long long)e.total_params,
				    (unsigned long long)rows[i].params,
				    (long long)(e.total_params - rows[i].params));
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

#define TABLE(name)                                                                             \
	static void name##_by_hand(void **state)                                                \
	{                                                                                       \
		(void)state;                                                                    \
		check(name, sizeof(name) / sizeof(name[0]));                                    \
	}
TABLE(decoders)
TABLE(experts)
TABLE(encoders)
TABLE(both)
TABLE(images)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decoders_by_hand), cmocka_unit_test(experts_by_hand),
		cmocka_unit_test(encoders_by_hand), cmocka_unit_test(both_by_hand),
		cmocka_unit_test(images_by_hand),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
