/* Any bytes as a config that reaches the families: parsed, recorded and priced, or refused. */
#include <stddef.h>
#include <stdint.h>

#include "oomplan/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oom_plan plan = oom_plan_default();
	struct oom_keys keys = {0};
	struct oom_model *model = NULL;
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_eval e;

	if (ev && !oom_keys_parse(&keys, (const char *)data, size, "fuzz", NULL) && !oom_model_new(&model, &keys, NULL))
		oom_evaluate(ev, model, &plan, OOM_EVAL_BUCKETS, &e, NULL);
	oom_evaluator_free(ev);
	oom_model_free(model);
	oom_keys_release(&keys);
	return 0;
}
