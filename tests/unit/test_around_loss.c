/* What people add to a step around its loss: NEFTune's noise, weights of classes, the loss of a mixture's routers, a
 * vocabulary that was resized.  By hand; their peaks are held against measured runs by tests/accuracy/techniques.csv. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/engine.h"
#include "oomplan/option.h"
#include "oomplan/rules.h"
#include "knobs.h"
#include "priced.h"

/* two sequences of 64 tokens, a width of 64, three layers */
enum { T = 2 * 64, D = 64, L = 3, V = 600, E = 8, K = 2 };
#define SIZES "\"hidden_size\": 64, \"intermediate_size\": 192, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, " \
	      "\"num_key_value_heads\": 2, \"vocab_size\": 600, \"tie_word_embeddings\": false"
static const char llama[] = "{\"model_type\": \"llama\", " SIZES "}",
		  mixtral[] = "{\"model_type\": \"mixtral\", " SIZES ", \"num_local_experts\": 8}",
		  balanced[] = "{\"model_type\": \"mixtral\", " SIZES ", \"num_local_experts\": 8, \"output_router_logits\": true}";

static struct oom_eval of(const char *model, const char *words)
{
	struct oom_plan p = oom_plan_default();

	set(&p, "micro-batch=2 seq-len=64 precision=bf16");
	set(&p, words);
	return must(model, &p);
}

/* Noise itself is gone before the first layer; a checkpointed model with adapters keeps the embeddings' output, which
 * is a leaf, beside the sum. */
static void noise_makes_a_sum(void **state)
{
	(void)state;
	assert_int_equal(of(llama, "neftune-noise-alpha=5").saved_bytes, of(llama, "").saved_bytes);
	assert_int_equal(of(llama, "neftune-noise-alpha=5 lora-r=2 lora-targets=q_proj grad-ckpt=full").saved_bytes -
				 of(llama, "lora-r=2 lora-targets=q_proj grad-ckpt=full").saved_bytes,
			 2 * T * D);
	/* nothing is added where nothing trains */
	assert_int_equal(of(llama, "neftune-noise-alpha=5").peak[OOM_PHASE_EVAL], of(llama, "").peak[OOM_PHASE_EVAL]);
}

/* 600 numbers in fp32 are five blocks. */
static void weights_of_classes_are_a_vector(void **state)
{
	(void)state;
	assert_int_equal(of(llama, "class-weights=true").saved_bytes - of(llama, "").saved_bytes, 5 * 512);
	assert_int_equal(of(llama, "task=seq-cls num-labels=3 class-weights=true").saved_bytes -
				 of(llama, "task=seq-cls num-labels=3").saved_bytes,
			 512);
}

/* One matrix of all layers' logits in bf16 waits for the first layer's router; in the forward pass whether an expert was
 * chosen stands there in int64 and in fp32. */
static void routers_have_a_loss(void **state)
{
	const struct oom_eval without = of(mixtral, ""), with = of(mixtral, "output-router-logits=true");

	(void)state;
	assert_int_equal(with.saved_bytes - without.saved_bytes, 2 * T * L * E);
	assert_true(with.peak[OOM_PHASE_FWD1] >= without.end[OOM_PHASE_FWD1] + (8 + 4) * T * L * E * K);
	/* as the config asks for it, whose key is no longer passed over */
	assert_int_equal(of(balanced, "").peak[OOM_PHASE_FWD1], with.peak[OOM_PHASE_FWD1]);
	assert_int_equal(of(llama, "output-router-logits=true").saved_bytes, of(llama, "").saved_bytes);
}

/* Embeddings and head of 640 words instead of 600. */
static void vocabularies_are_resized(void **state)
{
	(void)state;
	assert_int_equal(of(llama, "resize-vocab=640").total_params - of(llama, "").total_params, 2 * 40 * D);
	assert_int_equal(of(llama, "").total_params - of(llama, "resize-vocab=500").total_params, 2 * 100 * D);
	assert_int_equal(of(llama, "resize-vocab=600").saved_bytes, of(llama, "").saved_bytes);
}

/* torchao's products save nothing more.  Of a wide layer down_proj's is the peak of the forward pass then: its input of
 * 4096 and its weight, a byte each, above what the last norm takes otherwise; a head of three labels is left as it is. */
static void products_in_fp8(void **state)
{
	static const char wide[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 4096, "
				   "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"vocab_size\": 600}";
	const struct oom_eval with = of(wide, "task=seq-cls num-labels=3 fp8=tensorwise"),
			      without = of(wide, "task=seq-cls num-labels=3");
	const uint64_t copies = (T + D) * 4096, more = with.peak[OOM_PHASE_FWD1] - without.peak[OOM_PHASE_FWD1];

	(void)state;
	assert_int_equal(with.saved_bytes, without.saved_bytes);
	assert_true(more < copies && more > copies / 10 * 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(noise_makes_a_sum),
		cmocka_unit_test(weights_of_classes_are_a_vector),
		cmocka_unit_test(routers_have_a_loss),
		cmocka_unit_test(vocabularies_are_resized),
		cmocka_unit_test(products_in_fp8),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
