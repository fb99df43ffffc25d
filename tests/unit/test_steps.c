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

/* Bytes that one layer more keeps under torch.compile, b = 2, s = 64, width 256: four layers minus
 * three, storages that saved_tensors_hooks saw while PyTorch 2.14.1 ran transformers 5.12.1 through
 * aot_autograd with min_cut_rematerialization_partition and inductor's decompositions on the CPU.
 * Rows of 512 B are the allocator's; statistics of GPT-2's norms are fp32 on the GPU. */
static void compiled_layers(void **state)
{
#define SIZES \
	"\"hidden_size\":256,\"intermediate_size\":704,\"num_attention_heads\":4," \
	"\"num_key_value_heads\":2,\"vocab_size\":1000,\"head_dim\":64,\"num_hidden_layers\":"
	static const struct {
		const char *three, *four;
		double bf16, amp;
	} cases[] = {
		{"{\"model_type\":\"llama\"," SIZES "3}", "{\"model_type\":\"llama\"," SIZES "4}",
		 1068032, 2673664},
		{"{\"model_type\":\"qwen3\"," SIZES "3}", "{\"model_type\":\"qwen3\"," SIZES "4}",
		 1169408, 2775040},
		{"{\"model_type\":\"gemma2\"," SIZES "3}", "{\"model_type\":\"gemma2\"," SIZES "4}",
		 1200128, 2805760},
		{"{\"model_type\":\"gpt2\",\"n_embd\":256,\"n_head\":4,\"vocab_size\":1000,\"resid_pdrop\":0,"
		 "\"embd_pdrop\":0,\"attn_pdrop\":0,\"n_layer\":3}",
		 "{\"model_type\":\"gpt2\",\"n_embd\":256,\"n_head\":4,\"vocab_size\":1000,\"resid_pdrop\":0,"
		 "\"embd_pdrop\":0,\"attn_pdrop\":0,\"n_layer\":4}",
		 1051648, 2755584},
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		const double want = i & 1 ? cases[i / 2].amp : cases[i / 2].bf16;
		struct oom_plan p = step();
		uint64_t eager, layer;

		p.attn = OOM_ATTN_SDPA;
		p.seq_len = 64;
		p.precision = i & 1 ? OOM_AMP_BF16 : OOM_BF16;
		eager = must(cases[i / 2].four, &p).saved_bytes - must(cases[i / 2].three, &p).saved_bytes;
		p.compile = 1;
		layer = must(cases[i / 2].four, &p).saved_bytes - must(cases[i / 2].three, &p).saved_bytes;
		assert_true(layer < eager);
		if ((double)layer < want || (double)layer > 1.003 * want)
			fail_msg("%s: %llu bytes kept, not %.0f", cases[i / 2].four,
				 (unsigned long long)layer, want);
	}
}

/* The gradients of a second micro-batch stand beside the first one's, and hooks free nothing before
 * the pass is through. */
static void compiled_gradients(void **state)
{
	struct oom_plan p = step();
	struct oom_eval one, more, eager;

	(void)state;
	p.micro_batch = 1;
	p.seq_len = 16;
	p.compile = 1;
	one = must(LLAMA, &p);
	p.grad_accum = 2;
	more = must(LLAMA, &p);
	assert_true(more.peak[OOM_PHASE_BWD2] >= one.end[OOM_PHASE_BWD2] + one.grad_bytes);
	assert_int_equal(more.end[OOM_PHASE_BWD2], one.end[OOM_PHASE_BWD2]);
	p.grad_accum = 1;
	p.step_in_backward = 1;
	more = must(LLAMA, &p);
	p.compile = 0;
	eager = must(LLAMA, &p);
	assert_int_equal(more.end[OOM_PHASE_BWD2], eager.end[OOM_PHASE_BWD2]);
	assert_true(more.peak[OOM_PHASE_BWD2] > eager.peak[OOM_PHASE_BWD2] + one.grad_bytes / 2);
}

/* Layers compiled one by one: no mask of all tokens by all (2 bytes each, for every sample), which transformers makes
 * while it is traced, and a step beside the backward pass takes each layer's gradients as they come. */
static void layers_one_by_one(void **state)
{
	struct oom_plan p = step();
	uint64_t whole;

	(void)state;
	p.attn = OOM_ATTN_SDPA;
	p.precision = OOM_BF16;
	p.kv_repeat = OOM_KV_SDPA;      /* a mask rules grouped heads out: so that both copy them */
	p.micro_batch = 2;
	p.seq_len = 512;
	p.compile = 1;
	whole = must(LLAMA, &p).saved_bytes;
	p.compile_layers = 1;
	assert_int_equal(whole - must(LLAMA, &p).saved_bytes, 2 * 512 * 512 * 2);
	p.step_in_backward = 1;
	whole = must(LLAMA, &p).peak[OOM_PHASE_BWD2];
	p.compile_layers = 0;
	assert_true(must(LLAMA, &p).peak[OOM_PHASE_BWD2] > whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(padding_under_flash),
					   cmocka_unit_test(words_for_flash),
					   cmocka_unit_test(compiled_layers),
					   cmocka_unit_test(compiled_gradients),
					   cmocka_unit_test(layers_one_by_one)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
