/* Data-parallel engines: DDP, DeepSpeed ZeRO, FSDP, and offload of optimizer state.
 *
 * Ideal shards of the ZeRO paper (arXiv:1910.02054, section 5), plus what DeepSpeed and FSDP keep besides: an fp32 master
 * copy for 16-bit weights, one reduce bucket of 5e8 elements (stage 2 and 3; deepspeed runtime/zero/config.py
 * reduce_bucket_size), two gathered layers (stage 3: the one in use and the one prefetched).  Left out: persistence
 * thresholds, padding, prefetch limits, host memory.  Totals are therefore approximate, and say so. */
#include "engines.h"

static uint64_t share(uint64_t bytes, uint64_t ranks)
{
	return (bytes + ranks - 1) / ranks;
}

static enum oom_status check(const struct oom_plan *p, struct oom_error *err)
{
	if (p->tp > 1 || p->pp > 1 || p->cp > 1 || p->ep > 1)
		return oom_error_set(err, OOM_ERR_INVALID, "tensor, pipeline, context and expert parallelism are not modelled yet");
	if (p->engine == OOM_ENGINE_MEGATRON || p->engine == OOM_ENGINE_TORCHTUNE)
		return oom_error_set(err, OOM_ERR_INVALID, "this engine is not modelled yet: use hf, deepspeed, fsdp1 or fsdp2");
	if (p->offload_params != OOM_OFFLOAD_NONE)
		return oom_error_set(err, OOM_ERR_INVALID, "parameter offload is not modelled yet");
	if (p->gpus % p->nodes)
		return oom_error_set(err, OOM_ERR_INVALID, "%lld GPUs do not divide over %lld nodes", (long long)p->gpus,
				     (long long)p->nodes);
	if (p->zero_stage && p->gpus < 2)
		return oom_error_set(err, OOM_ERR_INVALID, "ZeRO stage %lld needs at least two GPUs", (long long)p->zero_stage);
	return OOM_OK;
}

enum oom_status oom_engine_states(const struct oom_plan *p, uint64_t trainable, uint64_t largest, bool params16,
				  struct oom_states *s, struct oom_error *err)
{
	const uint64_t d = (uint64_t)p->gpus;
	enum oom_status st = check(p, err);

	s->comm = 0;
	s->warning = "";
	if (st)
		return st;
	if (p->gpus > 1 && !p->zero_stage)
		s->comm = s->grads;             /* DDP's buckets, gradient_as_bucket_view=False (torch DDP docs) */
	if (p->zero_stage || p->offload_optimizer != OOM_OFFLOAD_NONE) {
		s->warning = "sharding and offload: ideal shards plus the documented buckets, no host memory; a guess";
		if (params16)
			s->opt += 4 * trainable;        /* fp32 master copy */
	}
	if (p->zero_stage >= 1)
		s->opt = share(s->opt, d);
	if (p->zero_stage >= 2) {
		const uint64_t bucket = (uint64_t)500000000 * (params16 ? 2 : 4);

		s->comm += bucket < s->grads ? bucket : s->grads;
		s->grads = share(s->grads, d);
	}
	if (p->zero_stage >= 3) {
		const uint64_t gathered = 2 * largest < s->params ? 2 * largest : s->params;

		s->params = share(s->params, d);
		s->comm += gathered;
	}
	if (p->offload_optimizer != OOM_OFFLOAD_NONE)
		s->opt = 0;
	return OOM_OK;
}
