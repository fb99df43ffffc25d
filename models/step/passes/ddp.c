/* DistributedDataParallel: everything whole on every GPU, and buckets for the all-reduce.
 *
 * torch/csrc/distributed/c10d/reducer.cpp initialize_buckets: buckets as large as all gradients together, from the construction on
 * and for good.  Gradients lie beside them, unless gradient_as_bucket_view is set: then autograd's own is copied into the bucket
 * by its hook and given up (mark_variable_ready_dense), and .grad is a view, which zero_grad takes away and the bucket does not.
 * Not counted: where small micro-batches follow one another within a tenth of a second, one set of buckets more in the first step (seen
 * on an H100).  By the source the first buckets are rebuilt before that backward pass,
 * and NCCL's watchdog has not yet let go of the old ones (c10d/ProcessGroupNCCL.cpp shelvesToUnstash_).
 * In the micro-steps of no_sync the hook does not run: gradients that are added up lie beside the buckets all the same.
 *
 * nn.DataParallel has neither: its first GPU has weights, gradients and states, its copies of the weights are the weights themselves, and
 * each replica's gradients wait until all are there, when they are added up into tensors of their own
 * (torch/nn/parallel/_functions.py Broadcast.backward, torch/nn/parallel/comm.py reduce_add_coalesced).  Estimated: the
 * first replica's are taken as there through the optimizer's step, before which they go.  What replicas return is gathered by
 * model_calls.c. */
#include "step/engines.h"
#include "step/pass.h"

static bool applies(const struct oom_plan *p)
{
	return oom_engine_of(p)->buckets && p->gpus > 1 && !p->zero_stage;
}

/* 1: gradients go into the buckets as they come; 0: the streams are as recorded.  Gradients that others give up are theirs. */
static unsigned shape(const struct oom_plan *p)
{
	return p->bucket_view && !p->data_parallel && p->grad_accum == 1 && !p->step_in_backward && !p->offload_gradients &&
	       !oom_optimizer_at((size_t)p->optimizer)->in_backward;
}

static void grad(struct oom_rewrite *w, int32_t row)
{
	oom_rewrite_event(w, row, OOM_EV_FREE);
}

static const struct oom_hooks hooks = {.grad = grad};

static void holdings(struct oom_schedule *s, const struct oom_plan *p)
{
	if (p->data_parallel)
		oom_add_holding(s, "a replica's gradients beside their sums", OOM_BUCKET_COMM, s->in.grads, OOM_AT_STEP,
				OOM_AT_STEP_END);
	else
		oom_add_holding(s, "DDP buckets", OOM_BUCKET_COMM, s->in.grads, OOM_AT_START, OOM_AT_NEVER);
}

const struct oom_pass oom_pass_ddp = {
	.name = "ddp",
	.cls = OOM_PLACEMENT,
	.summary = "a copy on every GPU, gradients all-reduced in buckets, or added up on the first",
	.knobs = "gpus+gradient-as-bucket-view",
	.source = "torch/csrc/distributed/c10d/reducer.cpp",
	.applies = applies,
	.shape = shape,
	.holdings = holdings,
	.hooks = &hooks,
};
