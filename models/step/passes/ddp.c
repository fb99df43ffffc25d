/* DistributedDataParallel: everything whole on every GPU, and buckets for the all-reduce.
 *
 * torch/csrc/distributed/c10d/reducer.cpp initialize_buckets: buckets as large as all gradients
 * together, apart from them unless gradient_as_bucket_view is set. */
#include "step/engines.h"
#include "step/pass.h"

static bool applies(const struct oom_plan *p)
{
	return oom_engine_of(p)->buckets && p->gpus > 1 && !p->zero_stage && !p->bucket_view;
}

static void holdings(struct oom_schedule *s, const struct oom_plan *p)
{
	(void)p;
	oom_add_holding(s, "DDP buckets", OOM_BUCKET_COMM, s->in.grads, OOM_AT_START, OOM_AT_NEVER);
}

const struct oom_pass oom_pass_ddp = {
	.name = "ddp",
	.cls = OOM_PLACEMENT,
	.summary = "a copy on every GPU, gradients all-reduced in buckets",
	.knobs = "gpus+gradient-as-bucket-view",
	.source = "torch/csrc/distributed/c10d/reducer.cpp",
	.applies = applies,
	.holdings = holdings,
};
