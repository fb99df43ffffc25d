/* Under torch.compile a tensor is cast once (torch/_functorch/compile_utils.py fx_graph_cse), in a checkpointed block, too,
 * which runs again in the backward pass.  Whatever is kept or computed again, the same gradients are left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "priced.h"

#define SIZES "\"vocab_size\": 32000, \"num_hidden_layers\": 4, \"hidden_size\": 1024, \"num_attention_heads\": 16, " \
	      "\"intermediate_size\": 2816}"

static const struct {
	const char *model;
	int64_t precision, lora_r;
	bool qlora;
} cases[] = {
	{"{\"model_type\": \"llama\", " SIZES, OOM_BF16, 0, false},
	{"{\"model_type\": \"llama\", " SIZES, OOM_AMP_BF16, 0, false},
	{"{\"model_type\": \"llama\", " SIZES, OOM_AMP_BF16, 8, false},
	{"{\"model_type\": \"llama\", " SIZES, OOM_BF16, 8, true},
	{"{\"model_type\": \"nemotron\", " SIZES, OOM_BF16, 0, false},
	{"{\"model_type\": \"clip_vision_model\"}", OOM_BF16, 0, false},
	{"{\"model_type\": \"roberta\", " SIZES, OOM_AMP_BF16, 8, false},
	{"{\"model_type\": \"roberta\", " SIZES, OOM_BF16, 8, true},
	{"{\"model_type\": \"idefics2_vision\"}", OOM_AMP_BF16, 8, false},
};

static uint64_t updated(size_t i, int64_t checkpoints, int64_t reentrant)
{
	struct oom_plan p = oom_plan_default();

	p.precision = cases[i].precision;
	p.lora_r = cases[i].lora_r;
	strcpy(p.lora_targets, "all-linear");
	p.qlora = cases[i].qlora;
	p.compile = 1;
	p.grad_ckpt = checkpoints;
	p.use_reentrant = reentrant;
	p.micro_batch = 1;
	p.seq_len = 64;
	return must(cases[i].model, &p).peak[OOM_PHASE_OPT1];
}

static void checkpoints_leave_all_gradients(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint64_t kept = updated(i, OOM_CKPT_NONE, OOM_REENTRANT_FALSE);

		assert_int_equal(updated(i, OOM_CKPT_FULL, OOM_REENTRANT_FALSE), kept);
		assert_int_equal(updated(i, OOM_CKPT_FULL, OOM_REENTRANT_TRUE), kept);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(checkpoints_leave_all_gradients),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
