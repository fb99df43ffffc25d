/* 4-bit bases: what their experts and the rest of their weights are stored in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/oomplan.h"
#include "priced.h"

/* openai/gpt-oss-20b config.json */
#define GPT_OSS \
	"{\"model_type\":\"gpt_oss\",\"vocab_size\":201088,\"hidden_size\":2880,\"intermediate_size\":2880," \
	"\"num_hidden_layers\":24,\"num_attention_heads\":64,\"num_key_value_heads\":8,\"head_dim\":64," \
	"\"num_local_experts\":32,\"num_experts_per_tok\":4,\"sliding_window\":128,\"torch_dtype\":\"bfloat16\"}"

static struct oom_plan nf4(enum oom_precision precision)
{
	struct oom_plan p = oom_plan_default();

	p.precision = precision;
	p.base_weights = OOM_BASE_NF4;
	p.double_quant = 1;
	p.lora_r = 8;
	p.micro_batch = 1;
	p.seq_len = 256;
	p.grad_ckpt = OOM_CKPT_FULL;
	snprintf(p.lora_targets, sizeof(p.lora_targets), "q_proj+k_proj+v_proj+o_proj");
	return p;
}

/* unsloth's form of gpt-oss, whose experts bitsandbytes finds (GptOssExpertsBnb4bit).  By hand: an NF4 weight takes a
 * half, 1/64 for its scale in 8 bit and 4/(64 * 256) for the scales' scale; experts 24 * 32 * 3 * 2880^2, attention
 * 24 * 2 * 2880 * (4096 + 512); 16 bit for embedding and head 2 * 201088 * 2880, biases of experts
 * 24 * 32 * (5760 + 2880), routers 24 * 32 * 2881; fp32 for adapters 24 * 8 * (2 * 2880 + 2 * 4096 + 2 * (2880 + 512)). */
static void test_experts(void **state)
{
	const double quantised = 24.0 * 32 * 3 * 2880 * 2880 + 24.0 * 2 * 2880 * (4096 + 512),
		     half = 2.0 * 201088 * 2880 + 24.0 * 32 * (5760 + 2880) + 24.0 * 32 * 2881,
		     adapters = 24.0 * 8 * (2 * 2880 + 2 * 4096 + 2 * (2880 + 512)),
		     sum = quantised * (0.5 + 1.0 / 64 + 4.0 / 64 / 256) + 2 * half + 4 * adapters;
	struct oom_plan p = nf4(OOM_FP16_AMP);
	struct oom_eval e;

	(void)state;
	p.moe_experts = OOM_EXPERTS_SEPARATE;
	e = must(GPT_OSS, &p);
	/* norms, sinks and attention's biases are left out above */
	assert_true((double)e.param_bytes > sum && (double)e.param_bytes < 1.0005 * sum);
	p.moe_experts = OOM_EXPERTS_FUSED;      /* transformers' own stay in 16 bit */
	e = must(GPT_OSS, &p);
	assert_true((double)e.param_bytes > 2 * 24.0 * 32 * 3 * 2880 * 2880);
}

/* axolotl's quantize_moe_experts.  By hand: two layers of 8 experts, three matrices of 256 x 128 each; codes as above and, per
 * stack, code books of 16 and 256 numbers in fp32 and an offset, in blocks of 512 bytes.  Made whole they are tensors that the
 * products of both layers keep, in 16 bit, where nothing is checkpointed; the parameters themselves would be kept without one. */
static void test_stacks(void **state)
{
	static const char mixture[] = "{\"model_type\":\"qwen3_moe\",\"vocab_size\":1000,\"hidden_size\":256,\"intermediate_size\":512,"
				      "\"moe_intermediate_size\":128,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
				      "\"num_key_value_heads\":4,\"head_dim\":64,\"num_experts\":8,\"num_experts_per_tok\":2}";
	const double experts = 2.0 * 8 * 3 * 256 * 128, less = experts * (2 - 0.5 - 1.0 / 64 - 4.0 / 64 / 256);
	struct oom_plan p = nf4(OOM_BF16_AMP);
	struct oom_eval whole, codes;

	(void)state;
	p.grad_ckpt = OOM_CKPT_NONE;
	whole = must(mixture, &p);
	p.moe_experts = OOM_EXPERTS_QUANTISED;
	codes = must(mixture, &p);
	assert_in_range(whole.param_bytes - codes.param_bytes, (uint64_t)less - 4 * 2048, (uint64_t)less);
	assert_int_equal(codes.saved_bytes - whole.saved_bytes, (uint64_t)(2 * experts));
	assert_int_equal(codes.trainable_params, whole.trainable_params);
	assert_null(codes.warning[0]);
	/* gpt-oss runs its experts in a way of its own, and says that it leaves them whole */
	codes = must(GPT_OSS, &p);
	assert_non_null(codes.warning[0]);
	assert_non_null(strstr(codes.warning[0], "moe-experts quantised"));
}

/* Falcon's linear layers are of a class of its own, which transformers 5 leaves alone and transformers 4 quantised.  By
 * hand: layers of 128 x (256 + 128 + 512) and 512 x 128, two of each; 1000 embeddings, which are the head, and three
 * norms of 128 with a bias; adapters 2 * 8 * (128 + 256) in fp32. */
static void test_derived_classes(void **state)
{
	static const char falcon[] = "{\"model_type\":\"falcon\",\"hidden_size\":128,\"num_attention_heads\":2,"
				     "\"num_hidden_layers\":2,\"vocab_size\":1000}";
	const double layers = 2.0 * 128 * (256 + 128 + 512 + 512), rest = 1000.0 * 128 + 3 * 2 * 128,
		     adapters = 2.0 * 8 * (128 + 256),
		     sum = layers * (0.5 + 1.0 / 64 + 4.0 / 64 / 256) + 2 * rest + 4 * adapters;
	struct oom_plan p = nf4(OOM_BF16_AMP);

	(void)state;
	snprintf(p.lora_targets, sizeof(p.lora_targets), "query_key_value");
	assert_int_equal(must(falcon, &p).param_bytes, (uint64_t)(2 * (layers + rest) + 4 * adapters));
	p.quantise_derived = 1;
	/* code books of the layers besides */
	assert_in_range(must(falcon, &p).param_bytes, (uint64_t)sum, (uint64_t)sum + 2 * 4 * 2048);
}

/* What is not 4-bit is stored in the type that "fp16 weights under autocast" names, so that autocast copies no head. */
static void test_rest(void **state)
{
	static const enum oom_precision precisions[] = {OOM_FP16_AMP, OOM_BF16_AMP, OOM_FP16};

	(void)state;
	for (size_t i = 0; i < sizeof(precisions) / sizeof(precisions[0]); i++) {
		struct oom_plan p = nf4(precisions[i]);
		struct oom_eval e;

		p.moe_experts = OOM_EXPERTS_SEPARATE;
		e = must(GPT_OSS, &p);
		/* the head's copy would be 2 * 201088 * 2880 */
		assert_true(e.bucket[OOM_BUCKET_AMP] < 100000000);
		assert_true(e.overall_peak < e.param_bytes + 1500000000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_experts), cmocka_unit_test(test_stacks),
					   cmocka_unit_test(test_derived_classes), cmocka_unit_test(test_rest)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
