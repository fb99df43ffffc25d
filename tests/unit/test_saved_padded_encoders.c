/* Layers of encoders, and of encoders with decoders, under fp16 autocast whose batch is padded (saved_case.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "saved_case.h"

/* Configs of BART's kind: three layers in each stack. */
#define STACKS                                                                                  \
	"\"vocab_size\":1000,\"d_model\":96,\"encoder_layers\":3,\"decoder_layers\":3,\"encoder_attention_heads\":6," \
	"\"decoder_attention_heads\":6,\"encoder_ffn_dim\":208,\"decoder_ffn_dim\":208,\"max_position_embeddings\":512," \
	"\"pad_token_id\":0,\"bos_token_id\":1,\"eos_token_id\":2,\"decoder_start_token_id\":2"

static const struct saved_layer padded[] = {
	{"bert", SIZES, OOM_TASK_MASKED_LM, "precision=amp-fp16;attn=sdpa;padding-mask=true",
	 {{"query to_copy", N * H, 2}, {"query to_copy", H * H, 2}, {"query addmm", N * H, 2},
	  {"key to_copy", N * H, 2}, {"key to_copy", H * H, 2}, {"key addmm", N * H, 2},
	  {"value to_copy", N * H, 2}, {"value to_copy", H * H, 2}, {"value addmm", N * H, 2},
	  {"self constant_pad_nd", N * 64, 2}, {"self scaled_dot_product_efficient_attention", N * A * HEAD, 2},
	  {"self scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self scaled_dot_product_efficient_attention", 1, 8},
	  {"self scaled_dot_product_efficient_attention", 1, 8}, {"dense to_copy", H * H, 2},
	  {"dropout native_dropout", N * H, 1}, {"output add", N * H, 4}, {"LayerNorm native_layer_norm", N, 4},
	  {"LayerNorm native_layer_norm", N, 4}, {"dense to_copy", N * H, 2}, {"dense to_copy", F * H, 2},
	  {"dense addmm", N * F, 2}, {"intermediate_act_fn gelu", N * F, 2}, {"dense to_copy", H * F, 2},
	  {"dropout native_dropout", N * H, 1}, {"output add", N * H, 4}, {"LayerNorm native_layer_norm", N, 4},
	  {"LayerNorm native_layer_norm", N, 4}}},
	{"roberta", SIZES ",\"type_vocab_size\":1",
	 OOM_TASK_MASKED_LM, "precision=amp-fp16;attn=sdpa;padding-mask=true",
	 {{"query to_copy", N * H, 2}, {"query to_copy", H * H, 2}, {"query addmm", N * H, 2},
	  {"key to_copy", N * H, 2}, {"key to_copy", H * H, 2}, {"key addmm", N * H, 2},
	  {"value to_copy", N * H, 2}, {"value to_copy", H * H, 2}, {"value addmm", N * H, 2},
	  {"self constant_pad_nd", N * 64, 2}, {"self scaled_dot_product_efficient_attention", N * A * HEAD, 2},
	  {"self scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self scaled_dot_product_efficient_attention", 1, 8},
	  {"self scaled_dot_product_efficient_attention", 1, 8}, {"dense to_copy", H * H, 2},
	  {"dropout native_dropout", N * H, 1}, {"output add", N * H, 4}, {"LayerNorm native_layer_norm", N, 4},
	  {"LayerNorm native_layer_norm", N, 4}, {"dense to_copy", N * H, 2}, {"dense to_copy", F * H, 2},
	  {"dense addmm", N * F, 2}, {"intermediate_act_fn gelu", N * F, 2}, {"dense to_copy", H * F, 2},
	  {"dropout native_dropout", N * H, 1}, {"output add", N * H, 4}, {"LayerNorm native_layer_norm", N, 4},
	  {"LayerNorm native_layer_norm", N, 4}}},
	{"camembert", SIZES ",\"type_vocab_size\":1",
	 OOM_TASK_MASKED_LM, "precision=amp-fp16;attn=sdpa;padding-mask=true",
	 {{"query to_copy", N * H, 2}, {"query to_copy", H * H, 2}, {"query addmm", N * H, 2},
	  {"key to_copy", N * H, 2}, {"key to_copy", H * H, 2}, {"key addmm", N * H, 2},
	  {"value to_copy", N * H, 2}, {"value to_copy", H * H, 2}, {"value addmm", N * H, 2},
	  {"self constant_pad_nd", N * 64, 2}, {"self scaled_dot_product_efficient_attention", N * A * HEAD, 2},
	  {"self scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self scaled_dot_product_efficient_attention", 1, 8},
	  {"self scaled_dot_product_efficient_attention", 1, 8}, {"dense to_copy", H * H, 2},
	  {"dropout native_dropout", N * H, 1}, {"output add", N * H, 4}, {"LayerNorm native_layer_norm", N, 4},
	  {"LayerNorm native_layer_norm", N, 4}, {"dense to_copy", N * H, 2}, {"dense to_copy", F * H, 2},
	  {"dense addmm", N * F, 2}, {"intermediate_act_fn gelu", N * F, 2}, {"dense to_copy", H * F, 2},
	  {"dropout native_dropout", N * H, 1}, {"output add", N * H, 4}, {"LayerNorm native_layer_norm", N, 4},
	  {"LayerNorm native_layer_norm", N, 4}}},
	{"xlm-roberta", SIZES ",\"type_vocab_size\":1",
	 OOM_TASK_MASKED_LM, "precision=amp-fp16;attn=sdpa;padding-mask=true",
	 {{"query to_copy", N * H, 2}, {"query to_copy", H * H, 2}, {"query addmm", N * H, 2},
	  {"key to_copy", N * H, 2}, {"key to_copy", H * H, 2}, {"key addmm", N * H, 2},
	  {"value to_copy", N * H, 2}, {"value to_copy", H * H, 2}, {"value addmm", N * H, 2},
	  {"self constant_pad_nd", N * 64, 2}, {"self scaled_dot_product_efficient_attention", N * A * HEAD, 2},
	  {"self scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self scaled_dot_product_efficient_attention", 1, 8},
	  {"self scaled_dot_product_efficient_attention", 1, 8}, {"dense to_copy", H * H, 2},
	  {"dropout native_dropout", N * H, 1}, {"output add", N * H, 4}, {"LayerNorm native_layer_norm", N, 4},
	  {"LayerNorm native_layer_norm", N, 4}, {"dense to_copy", N * H, 2}, {"dense to_copy", F * H, 2},
	  {"dense addmm", N * F, 2}, {"intermediate_act_fn gelu", N * F, 2}, {"dense to_copy", H * F, 2},
	  {"dropout native_dropout", N * H, 1}, {"output add", N * H, 4}, {"LayerNorm native_layer_norm", N, 4},
	  {"LayerNorm native_layer_norm", N, 4}}},
	{"electra", SIZES ",\"embedding_size\":40",
	 OOM_TASK_MASKED_LM, "precision=amp-fp16;attn=sdpa;padding-mask=true",
	 {{"query to_copy", N * H, 2}, {"query to_copy", H * H, 2}, {"query addmm", N * H, 2},
	  {"key to_copy", N * H, 2}, {"key to_copy", H * H, 2}, {"key addmm", N * H, 2},
	  {"value to_copy", N * H, 2}, {"value to_copy", H * H, 2}, {"value addmm", N * H, 2},
	  {"self constant_pad_nd", N * 64, 2}, {"self scaled_dot_product_efficient_attention", N * A * HEAD, 2},
	  {"self scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"self scaled_dot_product_efficient_attention", 1, 8},
	  {"self scaled_dot_product_efficient_attention", 1, 8}, {"dense to_copy", H * H, 2},
	  {"dropout native_dropout", N * H, 1}, {"output add", N * H, 4}, {"LayerNorm native_layer_norm", N, 4},
	  {"LayerNorm native_layer_norm", N, 4}, {"dense to_copy", N * H, 2}, {"dense to_copy", F * H, 2},
	  {"dense addmm", N * F, 2}, {"intermediate_act_fn gelu", N * F, 2}, {"dense to_copy", H * F, 2},
	  {"dropout native_dropout", N * H, 1}, {"output add", N * H, 4}, {"LayerNorm native_layer_norm", N, 4},
	  {"LayerNorm native_layer_norm", N, 4}}},
	{"modernbert", SIZES ",\"global_attn_every_n_layers\":3",
	 OOM_TASK_MASKED_LM, "precision=amp-fp16;attn=sdpa;padding-mask=true",
	 {{"attn_norm native_layer_norm", N, 4}, {"attn_norm native_layer_norm", N, 4}, {"Wqkv to_copy", N * H, 2},
	  {"Wqkv to_copy", 3 * H * H, 2}, {"Wqkv mm", N * 3 * H, 2}, {"attn to_copy", N * A * HEAD, 2},
	  {"attn to_copy", N * A * HEAD, 2}, {"attn constant_pad_nd", N * 64, 2},
	  {"attn scaled_dot_product_efficient_attention", N * A * HEAD, 2},
	  {"attn scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"attn scaled_dot_product_efficient_attention", 1, 8},
	  {"attn scaled_dot_product_efficient_attention", 1, 8}, {"Wo to_copy", H * H, 2}, {"layer add", N * H, 4},
	  {"mlp_norm native_layer_norm", N, 4}, {"mlp_norm native_layer_norm", N, 4}, {"Wi to_copy", N * H, 2},
	  {"Wi to_copy", 2 * F * H, 2}, {"Wi mm", N * 2 * F, 2}, {"act gelu", N * F, 2}, {"mlp mul", N * F, 2},
	  {"Wo to_copy", H * F, 2}, {"layer add", N * H, 4}}},
	{"distilbert", "\"vocab_size\":1000,\"dim\":96,\"hidden_dim\":208,\"n_layers\":3,\"n_heads\":6,"
	 "\"max_position_embeddings\":512", OOM_TASK_MASKED_LM, "precision=amp-fp16;attn=sdpa;padding-mask=true",
	 {{"q_lin to_copy", N * H, 2}, {"q_lin to_copy", H * H, 2}, {"q_lin addmm", N * H, 2},
	  {"k_lin to_copy", N * H, 2}, {"k_lin to_copy", H * H, 2}, {"k_lin addmm", N * H, 2},
	  {"v_lin to_copy", N * H, 2}, {"v_lin to_copy", H * H, 2}, {"v_lin addmm", N * H, 2},
	  {"attention constant_pad_nd", N * 64, 2},
	  {"attention scaled_dot_product_efficient_attention", N * A * HEAD, 2},
	  {"attention scaled_dot_product_efficient_attention", B * A * 64, 4},
	  {"attention scaled_dot_product_efficient_attention", 1, 8},
	  {"attention scaled_dot_product_efficient_attention", 1, 8}, {"out_lin to_copy", H * H, 2},
	  {"layer add", N * H, 4}, {"sa_layer_norm native_layer_norm", N, 4},
	  {"sa_layer_norm native_layer_norm", N, 4}, {"lin1 to_copy", N * H, 2}, {"lin1 to_copy", F * H, 2},
	  {"lin1 addmm", N * F, 2}, {"activation gelu", N * F, 2}, {"lin2 to_copy", H * F, 2},
	  {"dropout native_dropout", N * H, 1}, {"layer add", N * H, 4},
	  {"output_layer_norm native_layer_norm", N, 4}, {"output_layer_norm native_layer_norm", N, 4}}},
};

SAVED_TEST(padded)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_padded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
