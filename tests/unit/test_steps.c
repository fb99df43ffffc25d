/* Steps beyond the plain one: what kernels, compilers and lengths add to what a layer keeps. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

#include "oomplan/option.h"
#include "priced.h"

/* Four layers of width 1024, 16 heads of 64, 4 of keys and values. */
#define LLAMA \
	"{\"model_type\":\"llama\",\"hidden_size\":1024,\"intermediate_size\":2816," \
	"\"num_hidden_layers\":4,\"num_attention_heads\":16,\"num_key_value_heads\":4," \
	"\"vocab_size\":2000,\"tie_word_embeddings\":false}"

static struct oom_plan step(void)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_BF16;
	p.attn = OOM_ATTN_FLASH;
	p.micro_batch = 2;
	p.seq_len = 1024;
	return p;
}

/* Every layer keeps the padded result beside the unpadded one (b s h x 2 B) and the numbers of the
 * rows (b s x 8 B); unpadded q, k and v take the place of padded ones (transformers
 * modeling_flash_attention_utils.py _upad_input, _pad_input). */
static void padding_under_flash(void **state)
{
	struct oom_plan p = step();
	const uint64_t tokens = 2 * 1024, more = 4 * tokens * (1024 * 2 + 8);
	uint64_t without;

	(void)state;
	without = must(LLAMA, &p).saved_bytes;
	p.padding_mask = 1;
	assert_int_equal(must(LLAMA, &p).saved_bytes, without + more);
	/* under checkpointing it is there for one layer at a time */
	p.grad_ckpt = OOM_CKPT_FULL;
	without = must(LLAMA, &p).saved_bytes;
	p.padding_mask = 0;
	assert_int_equal(must(LLAMA, &p).saved_bytes, without);
}

/* FlashAttention 3 and flex attention are words for what keeps the same tensors. */
static void words_for_flash(void **state)
{
	static const char *const words[] = {"fa3", "flash_attention_3", "flex_attention"};

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct oom_plan p = oom_plan_default();

		assert_int_equal(oom_plan_set(&p, oom_knob_find("attn"), words[i], NULL), OOM_OK);
		assert_int_equal(p.attn, OOM_ATTN_FLASH);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(padding_under_flash),
					   cmocka_unit_test(words_for_flash)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
