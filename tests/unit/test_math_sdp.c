/* Attention without a fused kernel, in both types that torch computes it in: by hand from attention.cpp
 * _scaled_dot_product_attention_math, of PyTorch 2.14 and of @008887d (2.3), which casts nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/generations.h"
#include "tiny_llama.h"

/* bf16 has no fused kernel before Ampere; every head has its own keys. */
#define ALONE \
	"{\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 512, " \
	"\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, " \
	"\"head_dim\": 64, \"vocab_size\": 50000, \"tie_word_embeddings\": true}"
#define VOLTA "precision=bf16 compute-capability=7.0 "

static uint64_t kept(const char *words)
{
	const struct oom_plan p = plan_of(words);

	return must(ALONE, &p).saved_bytes;
}

/* What the products and the softmax keep in two layers: scaled queries and keys, values, probabilities, in four bytes or two. */
static void scores_are_in_the_type_of_the_inputs(void **state)
{
	const uint64_t elements = 2 * (3 * B * S * H + B * 4 * S * S);

	(void)state;
	about(kept(VOLTA), kept(VOLTA "math-sdp-fp32=false"), 2 * elements, "fp32");
	assert_int_equal(kept("precision=bf16 compute-capability=8.0"),
			 kept("precision=bf16 compute-capability=8.0 math-sdp-fp32=false"));
}

/* The words of list generations and of --torch. */
static void torch_before_2_5_says_so(void **state)
{
	bool found = false;

	(void)state;
	for (size_t i = 0; oom_generation_at(i); i++) {
		const struct oom_generation *g = oom_generation_at(i);

		found |= !strcmp(g->library, "torch") && !strcmp(g->knob, "math-sdp-fp32");
	}
	assert_true(found);
	assert_int_equal(kept(VOLTA "torch=2.4"), kept(VOLTA "torch=2.4 math-sdp-fp32=false"));
	assert_true(kept(VOLTA "torch=2.4") < kept(VOLTA "torch=2.5"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scores_are_in_the_type_of_the_inputs),
		cmocka_unit_test(torch_before_2_5_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
