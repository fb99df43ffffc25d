/* What two training steps reserved on an H100 80GB (PyTorch 2.11 with CUDA 13.0, transformers 5.17: max_memory_reserved):
 * cuBLAS's workspaces, 32 MiB each, come from the caching allocator, and the one of the backward's thread lies in what
 * the first step has cached. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "knobs.h"
#include "oomplan/model.h"

#define LLAMA(kv)                                                                                                      \
	"{\"model_type\": \"llama\", \"hidden_size\": 1024, \"intermediate_size\": 2816, \"num_hidden_layers\": 8, " \
	"\"num_attention_heads\": 16, \"num_key_value_heads\": " #kv ", \"vocab_size\": 32000, "                      \
	"\"tie_word_embeddings\": false}"
static const char qwen2[] =
	"{\"model_type\": \"qwen2\", \"hidden_size\": 896, \"intermediate_size\": 4864, \"num_hidden_layers\": 8, "
	"\"num_attention_heads\": 14, \"num_key_value_heads\": 2, \"vocab_size\": 151936, \"tie_word_embeddings\": true}";

#define STEP "precision=bf16 attn=sdpa micro-batch=4 seq-len=1024 transformers=5.17 torch=2.11 "

static const struct reading {
	const char *config, *knobs;
	double bytes;
} readings[] = {
	{LLAMA(4), STEP "optimizer=sgd", 4273995776},
	{LLAMA(4), STEP "optimizer=adafactor", 4280287232},
	{LLAMA(16), STEP "optimizer=adamw padding-mask=true", 5056233472},
	{LLAMA(4), STEP "optimizer=adamw qlora=true kbit-prepare=false lora-r=16 lora-targets=all-linear lora-dropout=0",
	 5024776192},
	{qwen2, STEP "optimizer=adamw", 13801357312},
};

static struct oom_eval replayed(const char *json, const struct oom_plan *p)
{
	struct oom_keys keys = {0};
	struct oom_model *m = NULL;
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	struct oom_eval e = {0};

	assert_non_null(ev);
	if (oom_keys_parse(&keys, json, strlen(json), "config.json", &err) || oom_model_new(&m, &keys, &err) ||
	    oom_evaluate(ev, m, p, OOM_EVAL_REPLAY, &e, &err))
		fail_msg("%s", err.text);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return e;
}

static void workspaces_on_an_h100(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(readings) / sizeof(readings[0]); i++) {
		const struct reading *r = &readings[i];
		struct oom_plan p = oom_plan_default();
		struct oom_eval e;
		double with, without;

		set(&p, r->knobs);
		p.compute_capability = 9.0;
		e = replayed(r->config, &p);
		assert_int_equal(e.workspace_bytes, (uint64_t)64 << 20);
		with = (double)(e.reserved_bytes + e.workspace_bytes) / r->bytes;
		set(&p, "cublas-workspaces=false");
		e = replayed(r->config, &p);
		assert_int_equal(e.workspace_bytes, 0);
		/* where they are apart */
		without = (double)(e.reserved_bytes + ((uint64_t)64 << 20)) / r->bytes;
		if (fabs(with - 1) > 0.025 || without > 0.92)
			fail_msg("row %zu: %.4f of what was read, %.4f with workspaces apart", i, with, without);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(workspaces_on_an_h100),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
