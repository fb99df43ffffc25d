/* DeepSpeed's JSON, by itself and within the files of trainers. */
#include <stdio.h>
#include <string.h>

#include "emit/fills.h"

#define ZERO "zero_optimization."

void deepspeed_config(struct emission *e, const char *prefix)
{
	char path[200], buf[160];
	const bool offload = !emit_is(e, "offload-optimizer", "none"),
		   params = !emit_is(e, "offload-params", "none");

	emit_rows(e, prefix, "deepspeed",
		  "train_micro_batch_size_per_gpu gradient_accumulation_steps " ZERO "stage "
		  ZERO "reduce_bucket_size");
	if (emit_is(e, "zero", "3"))
		emit_rows(e, prefix, "deepspeed",
			  ZERO "stage3_prefetch_bucket_size " ZERO "stage3_param_persistence_threshold "
			  ZERO "stage3_max_live_parameters");
	if (!emit_is(e, "overlap-comm", "auto"))
		emit_rows(e, prefix, "deepspeed", ZERO "overlap_comm");
	snprintf(path, sizeof(path), "%s" ZERO "sub_group_size", prefix);
	if (emit_is(e, "zero", "3"))
		emit_set(e, path, emit_fact(e, "sub-group-size", buf));
	snprintf(path, sizeof(path), "%s" ZERO "offload_optimizer.device", prefix);
	if (offload)
		emit_set(e, path, emit_fact(e, "offload-optimizer", buf));
	snprintf(path, sizeof(path), "%s" ZERO "offload_param.device", prefix);
	if (params)
		emit_set(e, path, emit_fact(e, "offload-params", buf));
	snprintf(path, sizeof(path), "%stensor_parallel.autotp_size", prefix);
	if (e->plan->tp > 1)
		emit_set(e, path, emit_fact(e, "tp", buf));
	snprintf(path, sizeof(path), "%sdata_types.grad_accum_dtype", prefix);
	if (emit_is(e, "fp32-grad-accum", "true"))
		emit_set(e, path, "fp32");
	if (!strcmp(emit_fact(e, "@autocast", buf), "bf16")) {
		snprintf(path, sizeof(path), "%sbf16.enabled", prefix);
		emit_set(e, path, "true");
	} else if (emit_is(e, "@autocast", "fp16")) {
		snprintf(path, sizeof(path), "%sfp16.enabled", prefix);
		emit_set(e, path, "true");
	} else if (emit_is(e, "precision", "fp32")) {
		/* said, since a trainer fills in what is absent */
		snprintf(path, sizeof(path), "%sfp16.enabled", prefix);
		emit_set(e, path, "false");
		snprintf(path, sizeof(path), "%sbf16.enabled", prefix);
		emit_set(e, path, "false");
	}
}

void fill_deepspeed(struct emission *e)
{
	deepspeed_config(e, "");
}
