/* Model types nobody modelled: which structure their keys lead to, what the warning says, what
 * is refused and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/model.h"

#define SIZES "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128"
#define TEXT SIZES ",\"vocab_size\":100"

/* The structure each config must be counted with, and the words its warning must have. */
static void keys_lead_to_the_structure(void **state)
{
	static const struct {
		const char *config, *family, *words[3];
	} cases[] = {
		{"{\"model_type\":\"zzq\"," TEXT ",\"rms_norm_eps\":1e-6}", "llama", {"\"zzq\"", "like Llama", "rms_norm_eps"}},
		{"{\"model_type\":\"zzq\",\"hidden_size\":64,\"num_layers\":2,\"num_attention_heads\":4,\"ffn_hidden_size\":128,"
		 "\"padded_vocab_size\":100,\"multi_query_group_num\":2}", "llama", {"\"zzq\"", "multi_query_group_num", ""}},
		{"{\"model_type\":\"zzq\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":100}", "gpt2", {"\"zzq\"", "GPT-2", "n_embd"}},
		{"{\"model_type\":\"zzq\"," TEXT ",\"type_vocab_size\":2}", "bert", {"\"zzq\"", "BERT", "type_vocab_size"}},
		{"{\"model_type\":\"zzq\"," TEXT ",\"num_experts\":4,\"num_experts_per_tok\":2}", "llama", {"\"zzq\"", "Mixtral", "num_experts"}},
		{"{\"model_type\":\"zzq\"," SIZES ",\"image_size\":32,\"patch_size\":16}", "vit", {"\"zzq\"", "ViT", "patch_size"}},
		{"{\"model_type\":\"zzq\",\"is_encoder_decoder\":true,\"d_model\":64,\"d_kv\":16,\"d_ff\":128,\"num_layers\":2,"
		 "\"num_heads\":4,\"vocab_size\":100}", "t5", {"\"zzq\"", "T5", "d_kv"}},
		{"{\"model_type\":\"zzq\",\"is_encoder_decoder\":true,\"d_model\":64,\"encoder_layers\":2,\"decoder_layers\":2,"
		 "\"encoder_attention_heads\":4,\"decoder_attention_heads\":4,\"encoder_ffn_dim\":128,\"decoder_ffn_dim\":128,"
		 "\"vocab_size\":100}", "bart", {"\"zzq\"", "BART", "is_encoder_decoder"}},
		{"{\"model_type\":\"zzq\",\"text_config\":{\"model_type\":\"qwen2\",\"num_key_value_heads\":4," TEXT "}}", "llama",
		 {"\"zzq\"", "qwen2", "text_config"}},
		{"{\"model_type\":\"zzq\",\"text_config\":{" TEXT "}}", "llama", {"\"zzq\"", "like Llama", "text_config"}},
		{"{\"model_type\":\"lama\"," TEXT "}", "llama", {"\"lama\"", "did you mean", "llama"}},
		{"{\"model_type\":\"zzq\",\"hidden_size\":64,\"num_hidden_layers\":2,\"vocab_size\":100,\"state_size\":4,\"conv_kernel\":4}",
		 "mamba", {"\"zzq\"", "Mamba", "state_size"}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_keys keys = {0};
		struct oom_error err = {{0}};
		struct oom_model *m = NULL;

		if (oom_keys_parse(&keys, cases[i].config, strlen(cases[i].config), "x.json",
				   &err) ||
		    oom_model_new(&m, &keys, &err))
			fail_msg("%s: %s", cases[i].config, err.text);
		assert_string_equal(oom_model_family(m), cases[i].family);
		if (strncmp(cases[i].config, "{\"model_type\":\"l", 16))
			assert_string_equal(oom_model_type(m), "zzq");
		for (int j = 0; j < 3; j++)
			if (!strstr(oom_model_warning(m), cases[i].words[j]))
				fail_msg("%s: no %s in: %s", cases[i].config, cases[i].words[j],
					 oom_model_warning(m));
		oom_model_free(m);
		oom_keys_release(&keys);
	}
}

/* The message names the type, and the key of the structure it was read as; never a key of
 * another structure. */
static void what_is_missing_is_named(void **state)
{
	static const struct {
		const char *config, *words[3];
	} cases[] = {
		{"{\"model_type\":\"zzq\"}", {"\"zzq\"", "no key says", "hidden_size"}},
		{"{\"model_type\":\"zzq\",\"vocab_size\":9}", {"\"zzq\"", "no key says", "hidden_size"}},
		{"{\"model_type\":\"zzq\",\"hidden_size\":64,\"vocab_size\":100,\"num_experts\":4}", {"zzq", "Mixtral", "\"intermediate_size\""}},
		{"{\"model_type\":\"zzq\"," SIZES "}", {"zzq", "Llama", "\"vocab_size\""}},
		{"{\"model_type\":\"zzq\"," SIZES ",\"patch_size\":16}", {"zzq", "ViT", "\"image_size\""}},
		{"{\"model_type\":\"zzq\",\"is_encoder_decoder\":true,\"d_model\":64}", {"zzq", "BART", "\"vocab_size\""}},
		{"{\"model_type\":\"zzq\",\"text_config\":{\"hidden_size\":64}}", {"zzq", "Llama", "\"text_config.vocab_size\""}},
		{"{\"model_type\":\"zzq\",\"text_config\":3,\"language_config\":[]}", {"\"zzq\"", "no key says", "hidden_size"}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_keys keys = {0};
		struct oom_error err = {{0}};
		struct oom_model *m = NULL;

		assert_int_equal(oom_keys_parse(&keys, cases[i].config, strlen(cases[i].config),
						"x.json", &err),
				 OOM_OK);
		assert_int_equal(oom_model_new(&m, &keys, &err), OOM_ERR_INVALID);
		assert_null(m);
		for (int j = 0; j < 3; j++)
			if (!strstr(err.text, cases[i].words[j]))
				fail_msg("%s: no %s in: %s", cases[i].config, cases[i].words[j],
					 err.text);
		oom_keys_release(&keys);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_lead_to_the_structure),
		cmocka_unit_test(what_is_missing_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
