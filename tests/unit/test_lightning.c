/* 4-bit weights as Lightning's plugin and litgpt have them, by hand from lightning/fabric/plugins/precision/bitsandbytes.py,
 * litgpt/lora.py and litgpt/finetune/lora.py main(). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tiny_llama.h"

/* Its head is a layer of its own, as litgpt's is whatever the checkpoint says. */
#define UNTIED \
	"{\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 512, " \
	"\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 1, " \
	"\"head_dim\": 64, \"vocab_size\": 50000, \"tie_word_embeddings\": false}"
#define RUN "precision=bf16 optimizer=paged-adamw loss=parts lora-r=4 lora-targets="
#define OF(base) " double-quant=false base-weights=" base

static struct oom_eval with(const char *words)
{
	const struct oom_plan p = plan_of(words);

	return must(UNTIED, &p);
}

static uint64_t loaded(const char *words)
{
	return with(words).end[OOM_PHASE_LOAD];
}

/* Every nn.Linear is replaced, the head's too: half a byte for an element and four for 64 of them instead of two for each.
 * PEFT's adapters of q_proj are in fp32 over bytes, these in bf16. */
static void the_head_is_quantised(void **state)
{
	const uint64_t adapters = 2 * 4 * (H + H);

	(void)state;
	about(loaded(RUN "q_proj" OF("nf4")), loaded(RUN "q_proj" OF("lightning")),
	      2 * V * H - V * H / 2 - V * H / 64 * 4 + 2 * adapters, "head");
	assert_int_equal(with(RUN "q_proj" OF("lightning")).grad_bytes, 2 * adapters);
	assert_int_equal(with(RUN "q_proj" OF("nf4")).grad_bytes, 4 * adapters);
}

/* The table that StableEmbedding replaces stays, and the new one has a gradient that no step empties. */
static void litgpt_holds_the_table_thrice(void **state)
{
	(void)state;
	assert_int_equal(loaded(RUN "q_proj" OF("litgpt")), loaded(RUN "q_proj" OF("lightning")) + 2 * 2 * V * H);
	assert_int_equal(with(RUN "q_proj" OF("litgpt")).grad_bytes, with(RUN "q_proj" OF("lightning")).grad_bytes);
}

/* What is dequantised is fp16, as what was quantised, and then cast: two weights of two bytes for the head's product, where the
 * other base has the weight itself.  Of 8 tokens all logits, in fp32 twice, are a small part of that. */
static void halves_come_before_bf16(void **state)
{
	const struct oom_eval head = with("micro-batch=1 seq-len=8 " RUN "q_proj" OF("nf4")),
			      codes = with("micro-batch=1 seq-len=8 " RUN "q_proj" OF("lightning"));

	(void)state;
	assert_in_range(codes.peak[OOM_PHASE_BWD2] - codes.end[OOM_PHASE_FWD2], 4 * V * H - 8 * 8 * V, 4 * V * H + 8 * 8 * V);
	assert_true(head.peak[OOM_PHASE_BWD2] - head.end[OOM_PHASE_FWD2] < 8 * 8 * V + 4 * H * 512);
}

/* The head in parts takes its adapters along: a matrix of 4 x H and one of V x 4. */
static void parts_have_the_heads_adapters(void **state)
{
	(void)state;
	assert_int_equal(with(RUN "lm_head").trainable_params, 4 * (H + V));
	assert_int_equal(with(RUN "lm_head" OF("litgpt")).trainable_params, 4 * (H + V));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_head_is_quantised),
		cmocka_unit_test(litgpt_holds_the_table_thrice),
		cmocka_unit_test(halves_come_before_bf16),
		cmocka_unit_test(parts_have_the_heads_adapters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
