/* Any bytes as a config that reaches the families: parsed, recorded and priced, or refused. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "oomplan/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oom_plan plan = oom_plan_default();
	struct oom_keys keys = {0};
	struct oom_model *model = NULL;
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_eval e;

	/* the text's length and first byte choose the plan, so that every path of the families
	 * is met */
	plan.precision = (int64_t)(size % 6);
	plan.attn = (int64_t)(size / 6 % 3);
	plan.grad_ckpt = (int64_t)(size / 18 % 2);
	plan.padding_mask = (int64_t)(size / 36 % 2);
	plan.fused_ce = (int64_t)(size / 72 % 3);
	plan.micro_batch = 2;
	plan.seq_len = 64;
	if (size % 5 == 0) {
		plan.lora_r = 8;
		plan.qlora = plan.kbit_prepare = (int64_t)(size % 10 == 0);
		strcpy(plan.lora_targets, "all-linear");
	}
	if (ev && !oom_keys_parse(&keys, (const char *)data, size, "fuzz", NULL) &&
	    !oom_model_new(&model, &keys, NULL))
		oom_evaluate(ev, model, &plan, OOM_EVAL_BUCKETS, &e, NULL);
	oom_evaluator_free(ev);
	oom_model_free(model);
	oom_keys_release(&keys);
	return 0;
}
