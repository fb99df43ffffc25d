/* What steps of LoRA took on a Tesla T4 whose attention is written out, as Anassbzdd/fitcheck published it
 * (data/measurements/t4-sweep-2026-09-15.json, t4-phase3-2026-09-16.json: max_memory_allocated of one step after one;
 * PyTorch 2.14 and 2.10, transformers 5, fp16, rank 32 on q, k, v and o, checkpointing).  The gradient of its softmax takes
 * one tensor of scores more than its operands and results are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "knobs.h"
#include "priced.h"

#define LLAMA "{\"model_type\": \"llama\", \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 8192, "
static const char smollm2_135m[] =
	LLAMA "\"hidden_size\": 576, \"num_hidden_layers\": 30, \"num_attention_heads\": 9, \"num_key_value_heads\": 3, "
	      "\"intermediate_size\": 1536, \"vocab_size\": 49152, \"tie_word_embeddings\": true}";
static const char smollm2_1_7b[] =
	LLAMA "\"hidden_size\": 2048, \"num_hidden_layers\": 24, \"num_attention_heads\": 32, \"num_key_value_heads\": 32, "
	      "\"intermediate_size\": 8192, \"vocab_size\": 49152, \"tie_word_embeddings\": true}";
static const char smollm2_360m[] =
	LLAMA "\"hidden_size\": 960, \"num_hidden_layers\": 32, \"num_attention_heads\": 15, \"num_key_value_heads\": 5, "
	      "\"intermediate_size\": 2560, \"vocab_size\": 49152, \"tie_word_embeddings\": true}";
static const char tinyllama[] =
	LLAMA "\"hidden_size\": 2048, \"num_hidden_layers\": 22, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, "
	      "\"intermediate_size\": 5632, \"vocab_size\": 32000, \"tie_word_embeddings\": false}";

#define LORA                                                                                                     \
	"precision=fp16 attn=eager grad-ckpt=full use-reentrant=false optimizer=adamw lora-r=32 lora-dropout=0 " \
	"lora-targets=q_proj+k_proj+v_proj+o_proj keep-outputs=true "
#define NF4 LORA "qlora=true kbit-prepare=true double-quant=false "

static const struct reading {
	const char *config, *knobs;
	double mib, more;               /* more: MiB of a tensor of scores in fp32 where they are the peak; of blocks' rests */
} readings[] = {
	{smollm2_1_7b, LORA "micro-batch=1 seq-len=2048", 5706.23, 512},
	{smollm2_1_7b, NF4 "micro-batch=1 seq-len=2048", 4323.01, 512},
	{smollm2_360m, LORA "micro-batch=1 seq-len=4096", 4908.51, 960},
	{smollm2_360m, NF4 "micro-batch=1 seq-len=4096", 5687.15, 960},
	{tinyllama, LORA "micro-batch=2 seq-len=2048", 6616.12, 1024},
	{tinyllama, NF4 "micro-batch=8 seq-len=1024", 8017.91, 1024},
	/* the loss is the peak */
	{smollm2_1_7b, LORA "micro-batch=4 seq-len=1024", 6536.75, 0},
	{smollm2_135m, LORA "micro-batch=1 seq-len=4096", 3180.11, 0},
};

static void attention_on_a_t4(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(readings) / sizeof(readings[0]); i++) {
		const struct reading *r = &readings[i];
		struct oom_plan p = oom_plan_default();
		double mib, bare;

		set(&p, r->knobs);
		p.compute_capability = 7.5;
		mib = (double)must(r->config, &p).allocated_bytes / (1 << 20);
		/* blocks of the allocator are a little larger than what lies in them */
		if (mib > r->mib + 0.5 || mib < r->mib * 0.996)
			fail_msg("row %zu: %.2f, measured %.2f MiB", i, mib, r->mib);
		/* as the kernels for the CPU have it */
		set(&p, "softmax-product=false");
		bare = (double)must(r->config, &p).allocated_bytes / (1 << 20);
		if (r->more > 0 ? mib - bare < r->more * 0.99 || mib - bare > r->more * 1.01 : mib != bare)
			fail_msg("row %zu: %.2f without the product, %.2f with it", i, bare, mib);
	}
}

static uint64_t replayed(const char *json, const struct oom_plan *p)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	struct oom_eval e;

	assert_non_null(ev);
	if (oom_keys_parse(&keys, json, strlen(json), "config.json", &err) || oom_model_new(&m, &keys, &err) ||
	    oom_evaluate(ev, m, p, OOM_EVAL_REPLAY, &e, &err))
		fail_msg("%s", err.text);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	assert_true(e.allocated_bytes >= e.overall_peak + e.workspace_bytes);
	return e.allocated_bytes;
}

/* max_memory_allocated is of whole blocks: to the MiB of the same T4's where nothing was quantised while it was loaded. */
static void blocks_on_a_t4(void **state)
{
	static const struct reading rows[] = {
		{tinyllama, LORA "micro-batch=2 seq-len=512", 2757.19, 5},
		{tinyllama, LORA "micro-batch=2 seq-len=1024", 3518.08, 2},
		{tinyllama, LORA "micro-batch=2 seq-len=512 attn=sdpa kv-repeat=sdpa", 2756.19, 5},
		{tinyllama, LORA "micro-batch=2 seq-len=1024 attn=sdpa kv-repeat=sdpa", 3287.83, 3},
		{smollm2_360m, LORA "micro-batch=1 seq-len=4096", 4908.51, 18},
		{smollm2_360m, LORA "micro-batch=1 seq-len=4096 attn=sdpa kv-repeat=sdpa", 3754.78, 29},
		{smollm2_1_7b, LORA "micro-batch=4 seq-len=1024", 6536.75, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_plan p = oom_plan_default();
		double mib, bare;

		set(&p, rows[i].knobs);
		p.compute_capability = 7.5;
		mib = (double)replayed(rows[i].config, &p) / (1 << 20);
		bare = (double)must(rows[i].config, &p).allocated_bytes / (1 << 20);
		if (fabs(mib - rows[i].mib) > 1 || fabs(mib - bare - rows[i].more) > 1.5)
			fail_msg("row %zu: %.2f, measured %.2f MiB, %.2f of tensors", i, mib, rows[i].mib, bare);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attention_on_a_t4),
		cmocka_unit_test(blocks_on_a_t4),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
