/* Model types whose code lies in the repositories of their models: each is counted as that code builds it.
 * Expected: the number of parameters that the model's page or its safetensors index gives; where none is
 * published, the sum by hand that stands beside the row.  V h L f are vocabulary, hidden size, layers and
 * feed-forward width. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "priced.h"

#define SIZES(h, l, n, kv, f, v) \
	"\"hidden_size\":" #h ",\"num_hidden_layers\":" #l ",\"num_attention_heads\":" #n \
	",\"num_key_value_heads\":" #kv ",\"intermediate_size\":" #f ",\"vocab_size\":" #v
#define NAS_BLOCK(attention, ffn) "{\"attention\":{" attention "},\"ffn\":{" ffn "}}"

static const struct {
	const char *config;
	uint64_t params;
} models[] = {
	/* Qwen-7B, safetensors index: 15,442,649,088 bytes of bf16 */
	{"{\"model_type\":\"qwen\",\"hidden_size\":4096,\"num_hidden_layers\":32,\"num_attention_heads\":32,"
	 "\"intermediate_size\":22016,\"vocab_size\":151936,\"kv_channels\":128,\"no_bias\":true,"
	 "\"tie_word_embeddings\":false}", 7721324544},
	{"{\"model_type\":\"Yi\"," SIZES(4096, 32, 32, 4, 11008, 64000) "}", 6061035520},
	{"{\"model_type\":\"aquila\"," SIZES(4096, 32, 32, 32, 11008, 100008) "}", 7295537152},
	{"{\"model_type\":\"baichuan\"," SIZES(4096, 32, 32, 32, 11008, 125696) "}", 7505973248},
	/* Baichuan-13B-Base */
	{"{\"model_type\":\"baichuan\"," SIZES(5120, 40, 40, 40, 13696, 64000) "}", 13264901120},
	/* internlm-7b: 2 V h + L (4 (h h + h) + 3 h f + 2 h) + h */
	{"{\"model_type\":\"internlm\",\"bias\":true," SIZES(4096, 32, 32, 32, 11008, 103168) "}", 7321948160},
	{"{\"model_type\":\"internlm2\",\"bias\":false," SIZES(4096, 32, 32, 8, 14336, 92544) "}", 7737708544},
	{"{\"model_type\":\"chatglm\",\"add_bias_linear\":false,\"add_qkv_bias\":true,\"ffn_hidden_size\":13696,"
	 "\"hidden_size\":4096,\"kv_channels\":128,\"multi_query_group_num\":2,\"num_attention_heads\":32,"
	 "\"num_layers\":28,\"padded_vocab_size\":65024,\"seq_length\":8192}", 6243584000},
	/* glm-4-9b-chat */
	{"{\"model_type\":\"chatglm\",\"add_bias_linear\":false,\"add_qkv_bias\":true,\"ffn_hidden_size\":13696,"
	 "\"hidden_size\":4096,\"kv_channels\":128,\"multi_query_group_num\":2,\"num_attention_heads\":32,"
	 "\"num_layers\":40,\"padded_vocab_size\":151552,\"seq_length\":131072}", 9399951360},
	{"{\"model_type\":\"minicpm\",\"scale_emb\":12,\"dim_model_base\":256,\"scale_depth\":1.4,"
	 SIZES(2304, 40, 36, 36, 5760, 122753) "}", 2724880896},
	/* MiniCPM3-4B: V h + h + L (h 768 + 768 + 768 40 96 + h 288 + 256 + 256 40 128 + 40 64 h + 3 h f + 2 h) */
	{"{\"model_type\":\"minicpm3\",\"q_lora_rank\":768,\"kv_lora_rank\":256,\"qk_nope_head_dim\":64,"
	 "\"qk_rope_head_dim\":32," SIZES(2560, 62, 40, 40, 6400, 73448) "}", 4073875968},
	{"{\"model_type\":\"exaone\",\"activation_function\":\"silu\",\"hidden_size\":4096,\"num_layers\":32,"
	 "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,\"vocab_size\":102400,"
	 "\"tie_word_embeddings\":false}", 7818448896},
	/* Orion-14B: 2 V h + L (4 h h + 3 h f + 4 h) + 2 h */
	{"{\"model_type\":\"orion\"," SIZES(5120, 40, 40, 40, 15360, 84608) "}", 14498703360},
	{"{\"model_type\":\"stablelm_epoch\",\"rope_pct\":0.25,\"norm_eps\":1e-5," SIZES(2560, 32, 32, 32, 6912, 50304) "}",
	 2795443200},
	/* telechat-7B: V h + L (4 h h + h + 3 h f + h + 2 h) + h; the head is the embedding */
	{"{\"model_type\":\"telechat\",\"hidden_size\":4096,\"n_layer\":30,\"n_head\":32,\"ffn_hidden_size\":12288,"
	 "\"vocab_size\":160256}", 7200018432},
	{"{\"model_type\":\"RefinedWeb\",\"hidden_size\":8192,\"n_layer\":60,\"n_head\":128,\"n_head_kv\":8,"
	 "\"bias\":false,\"parallel_attn\":true,\"vocab_size\":65024}", 41303293952},
	{"{\"model_type\":\"RefinedWebModel\",\"hidden_size\":4544,\"n_layer\":32,\"n_head\":71,\"multi_query\":true,"
	 "\"bias\":false,\"parallel_attn\":true,\"vocab_size\":65024}", 6921720704},
	/* deepseek-moe-16b-base */
	{"{\"model_type\":\"deepseek\",\"n_routed_experts\":64,\"n_shared_experts\":2,\"num_experts_per_tok\":6,"
	 "\"moe_intermediate_size\":1408,\"first_k_dense_replace\":1," SIZES(2048, 28, 16, 16, 10944, 102400) "}",
	 16375728128},
	/* Ling-lite */
	{"{\"model_type\":\"bailing_moe\",\"head_dim\":128,\"num_experts\":64,\"num_shared_experts\":2,"
	 "\"num_experts_per_tok\":6,\"moe_intermediate_size\":1408," SIZES(2048, 28, 16, 4, 5632, 126464) "}",
	 16801974272},
	/* phi-1_5, first revision */
	{"{\"model_type\":\"phi-msft\",\"n_embd\":2048,\"n_layer\":24,\"n_head\":32,\"n_head_kv\":null,\"n_inner\":null,"
	 "\"n_positions\":2048,\"rotary_dim\":32,\"vocab_size\":51200}", 1418270720},
	{"{\"model_type\":\"openelm\",\"model_dim\":1280,\"head_dim\":64,\"num_transformer_layers\":16,"
	 "\"ffn_dim_divisor\":256,\"ffn_with_glu\":true,\"normalize_qk_projections\":true,\"vocab_size\":32000,"
	 "\"share_input_output_layers\":true,\"max_context_length\":2048,\"ffn_multipliers\":[0.5,0.73,0.97,1.2,1.43,"
	 "1.67,1.9,2.13,2.37,2.6,2.83,3.07,3.3,3.53,3.77,4.0],\"num_kv_heads\":[3,3,3,3,3,4,4,4,4,4,4,4,5,5,5,5],"
	 "\"num_query_heads\":[12,12,12,12,12,16,16,16,16,16,16,16,20,20,20,20]}", 271527168},
	/* Phi-3-vision-128k-instruct */
	{"{\"model_type\":\"phi3_v\"," SIZES(3072, 32, 32, 32, 8192, 32064) "}", 4146621440},
	/* InternVL2-8B */
	{"{\"model_type\":\"internvl_chat\",\"downsample_ratio\":0.5,\"llm_config\":{\"model_type\":\"internlm2\","
	 "\"bias\":false," SIZES(4096, 32, 32, 8, 14336, 92553) "},\"vision_config\":{\"model_type\":\"intern_vit_6b\","
	 "\"hidden_size\":1024,\"intermediate_size\":4096,\"num_hidden_layers\":24,\"num_attention_heads\":16,"
	 "\"image_size\":448,\"patch_size\":14,\"qkv_bias\":true,\"qk_normalization\":false,"
	 "\"norm_type\":\"layer_norm\"}}", 8075365376},
	/* Four blocks of h = 512, 8 heads of 64, V = 1000.  Heads in groups of 4 are 2 of keys and values; ffn_mult
	 * 1.5 is 2 * 1.5 * 512 / 3 = 512, and 1.3 is 443, rounded up to 512: 2 V h + h
	 *   whole:         h + 2 h h + 2 h 128 + h + 3 h 512   = 1,442,816 twice
	 *   no attention:  h + 3 h 512                         = 786,944
	 *   linear ones:   h + h h + h + h h                   = 525,312 */
	{"{\"model_type\":\"nemotron-nas\",\"hidden_size\":512,\"num_hidden_layers\":4,\"num_attention_heads\":8,"
	 "\"num_key_value_heads\":null,\"intermediate_size\":null,\"vocab_size\":1000,\"block_configs\":["
	 NAS_BLOCK("\"n_heads_in_group\":4,\"no_op\":false", "\"ffn_mult\":1.5,\"no_op\":false") ","
	 NAS_BLOCK("\"no_op\":true", "\"ffn_mult\":1.3") ","
	 NAS_BLOCK("\"replace_with_linear\":true", "\"replace_with_linear\":true") ","
	 NAS_BLOCK("\"n_heads_in_group\":4", "\"ffn_mult\":1.5") "]}",
	 1000 * 512 * 2 + 512 + 2 * 1442816 + 786944 + 525312},
};

static void parameters_are_those_of_the_repository(void **state)
{
	struct oom_plan p = oom_plan_default();

	(void)state;
	p.micro_batch = 1;
	p.seq_len = 16;
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		const struct oom_eval e = must(models[i].config, &p);

		if (e.total_params != models[i].params)
			fail_msg("%.60s: %llu, expected %llu", models[i].config,
				 (unsigned long long)e.total_params,
				 (unsigned long long)models[i].params);
	}
}

/* The activations are another implementation's: the answer says so. */
static void activations_are_called_estimated(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		struct oom_keys keys = {0};
		struct oom_error err = {{0}};
		struct oom_model *m = NULL;

		assert_int_equal(oom_keys_parse(&keys, models[i].config, strlen(models[i].config), "c", &err),
				 OOM_OK);
		assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
		assert_non_null(strstr(oom_model_warning(m), "estimated"));
		assert_false(oom_model_known(m));
		oom_model_free(m);
		oom_keys_release(&keys);
	}
}

/* LoRA goes by the repository's names: W_pack of Baichuan is one layer from h to 3 h, r (h + 3 h). */
static void adapters_go_by_the_repositorys_names(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_error err = {{0}};
	struct oom_eval e;

	(void)state;
	p.micro_batch = 1;
	p.seq_len = 16;
	p.lora_r = 8;
	assert_int_equal(oom_plan_set(&p, oom_knob_find("lora-targets"), "W_pack", &err), OOM_OK);
	e = must("{\"model_type\":\"baichuan\"," SIZES(256, 3, 4, 4, 512, 100) "}", &p);
	assert_int_equal(e.trainable_params, 3 * 8 * (256 + 3 * 256));
}

/* What makes no model is an error that names the key, not a guess. */
static void impossible_layers_are_refused(void **state)
{
	static const struct {
		const char *config, *word;
	} cases[] = {
		{"{\"model_type\":\"openelm\",\"model_dim\":64,\"head_dim\":16,\"num_transformer_layers\":2,\"vocab_size\":9,"
		 "\"ffn_multipliers\":[1.0],\"num_kv_heads\":[1,1],\"num_query_heads\":[4,4]}", "ffn_multipliers"},
		{"{\"model_type\":\"openelm\",\"model_dim\":64,\"head_dim\":16,\"num_transformer_layers\":2,\"vocab_size\":9,"
		 "\"ffn_multipliers\":[1.0,1.0],\"num_kv_heads\":[1],\"num_query_heads\":[4,4]}", "num_kv_heads"},
		{"{\"model_type\":\"nemotron-nas\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
		 "\"vocab_size\":9,\"block_configs\":[{\"attention\":{\"n_heads_in_group\":9},\"ffn\":{\"ffn_mult\":1}}]}",
		 "block_configs.0"},
		{"{\"model_type\":\"nemotron-nas\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
		 "\"vocab_size\":9,\"block_configs\":[{\"attention\":{\"no_op\":true},\"ffn\":{\"no_op\":true}}]}",
		 "no layer has attention"},
	};
	struct oom_plan p = oom_plan_default();

	(void)state;
	p.micro_batch = 1;
	p.seq_len = 16;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_error err = {{0}};
		struct oom_eval e;

		assert_int_not_equal(price(cases[i].config, &p, &e, &err), OOM_OK);
		if (!strstr(err.text, cases[i].word))
			fail_msg("no %s in: %s", cases[i].word, err.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters_are_those_of_the_repository),
		cmocka_unit_test(activations_are_called_estimated),
		cmocka_unit_test(adapters_go_by_the_repositorys_names),
		cmocka_unit_test(impossible_layers_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
