/* Data-parallel engines: DDP, DeepSpeed ZeRO, FSDP1 and FSDP2, and offload to host memory and disk.
 *
 * Model states are the ZeRO paper's (arXiv:1910.02054, section 5): weights, gradients and optimizer
 * state, each either whole or divided by the data-parallel degree D.  What does not divide -
 * buckets, gathered parameters, staging buffers - is added as each engine's code allocates it,
 * and is the floor that more GPUs do not lower. */
#include "engines.h"

static uint64_t share(uint64_t bytes, uint64_t ranks)
{
	return (bytes + ranks - 1) / ranks;
}

static uint64_t padded(uint64_t bytes, uint64_t ranks, double by)
{
	return by > 1 ? (uint64_t)((double)bytes / (double)ranks * by) + 1 : share(bytes, ranks);
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

bool oom_engine_casts(const struct oom_plan *p)
{
	return (p->engine == OOM_ENGINE_FSDP1 || p->engine == OOM_ENGINE_FSDP2) && p->zero_stage &&
	       (p->precision == OOM_AMP_BF16 || p->precision == OOM_AMP_FP16);
}

/* ---- DDP ---- */

/* torch/csrc/distributed/c10d/reducer.cpp initialize_buckets: buckets as large as all gradients
 * together, apart from them unless gradient_as_bucket_view is set. */
static void ddp(const struct oom_plan *p, const struct oom_engine_in *in, struct oom_states *s)
{
	/* FSDP's NO_SHARD reduces the flat gradients where they lie
	 * (torch/distributed/fsdp/_runtime_utils.py) */
	const bool flat = p->engine == OOM_ENGINE_FSDP1 || p->engine == OOM_ENGINE_FSDP2;

	if (p->gpus > 1 && !p->bucket_view && !flat && p->engine != OOM_ENGINE_DEVICE_MAP)
		s->comm = in->grads;
}

/* ---- DeepSpeed ---- */

/* stage_1_and_2.py and stage3.py keep an fp32 master copy (single_partition_of_fp32_groups,
 * fp32_partitioned_groups_flat) and fp32 optimizer state; initialize_optimizer_states makes both at
 * start-up, and the step casts the rank's gradients to fp32 (one sub-group at a time in stage
 * 3). */
static void deepspeed_states(const struct oom_plan *p, const struct oom_engine_in *in,
			     struct oom_states *s, uint64_t D)
{
	const uint64_t state = in->half && !in->quantised ? 2 * in->opt : in->opt,
		       part = share(in->trainable, D);
	const uint64_t group = p->zero_stage == 3 ? least(part, (uint64_t)p->sub_group_size) : part;

	s->opt = share(state, D) + 4 * part;
	s->temps[0] = s->temps[1] = 4 * group;
	s->opt_from_start = true;
}

/* Parameters gathered at once in stage 3: those whose next use lies within the reuse distance stay
 * (at the turn from forward to backward: half of it), with the unit in use and the prefetch bucket;
 * stage3_max_live_parameters caps the sum (runtime/zero/partitioned_param_coordinator.py
 * fetch_sub_module, release_sub_module). */
static uint64_t live_params(const struct oom_plan *p, const struct oom_engine_in *in)
{
	const uint64_t cap = (uint64_t)p->max_live_params,
		       prefetch = p->prefetch_bucket == OOM_COUNT_AUTO ?
					  in->hidden * in->hidden / 10 * 9 :
					  (uint64_t)p->prefetch_bucket;

	return least(least(in->total, cap), cap / 2 + in->layer + prefetch);
}

/* "auto" is filled in by transformers/integrations/deepspeed.py trainer_config_finalize.
 *
 * contiguous_gradients: buckets of reduce_bucket_size elements, whole whatever the model's size,
 * two with overlap_comm (on by default in stage 3 only) (stage_1_and_2.py backward: ipg_buffer;
 * stage3.py __ipg_bucket_flat_buffer, one). */
static void deepspeed(const struct oom_plan *p, const struct oom_engine_in *in,
		      struct oom_states *s, uint64_t D)
{
	const uint64_t w = in->half ? 2 : 4, bucket = w * (p->reduce_bucket == OOM_COUNT_AUTO ?
						   in->hidden * in->hidden :
						   (uint64_t)p->reduce_bucket);
	const uint64_t grads16 = w * in->trainable;

	deepspeed_states(p, in, s, D);
	if (p->zero_stage == 3) {
		const uint64_t bytes = in->params / (in->total ? in->total : 1) ?
					       in->params / in->total :
					       1;

		s->comm = bucket;
		/* small ones stay whole beside their shard (partition_parameters.py
		 * ds_persist) */
		s->params = share(in->params, D) + bytes * in->small;
		s->fwd = s->bwd = bytes * live_params(p, in);
	} else {
		s->bwd = bucket;
	}
	s->bwd_late = s->bwd;
	if (p->zero_stage >= 2) {
		s->grads = share(grads16, D);
		s->grads_reduced = true;
		/* stage 3 allocates all of the rank's partition at once (stage3.py,
		 * grad_partitions_flat_buffer) */
		s->grads_first = p->zero_stage == 3 ? s->grads : share(w * in->layer, D);
	}
}

/* ZeRO-Offload: gradients of the partition go to pinned host memory as they are made (4 B), master
 * weights and moments lie in pageable memory; parameters pinned (2 B).  ZeRO-Infinity: to disk
 * instead, through pinned staging buffers (stage3.py estimate_zero3_model_states_mem_needs: 16
 * and 18 B a parameter; offload_config.py buffer_count x buffer_size). */
static void deepspeed_offload(const struct oom_plan *p, const struct oom_engine_in *in,
			      struct oom_states *s, uint64_t D)
{
	const uint64_t part = share(in->trainable, D);

	if (p->offload_optimizer != OOM_OFFLOAD_NONE) {
		if (p->offload_optimizer == OOM_OFFLOAD_NVME) {
			s->nvme += s->opt;
			s->host_pinned += 4 * 4 * least(part, 100000000);
		} else {
			s->host_pageable += s->opt;
		}
		s->host_pinned += 4 * part;
		s->opt = 0;
		s->temps[0] = s->temps[1] = 0;
		s->grads = p->zero_stage >= 2 ? 0 : s->grads;
	}
	if (p->offload_params != OOM_OFFLOAD_NONE) {
		if (p->offload_params == OOM_OFFLOAD_NVME) {
			s->nvme += s->params;
			s->host_pinned += 5 * (uint64_t)100000000 * 2;
		} else {
			s->host_pinned += s->params;
		}
		s->params = 0;
	}
}

/* ---- FSDP ---- */

/* fully_shard, a unit a block and the root (embeddings, head), which stays gathered between forward
 * and backward (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, _fsdp_param_group.py):
 *   start     the root's all-gather output beside its parameters and the first unit's
 *   forward   the unit in use beside its own all-gather output, kept until the next copy-out, and
 *   the next one's
 *   backward  the unit in use, the prefetched one, the unit's gradients until all are there, and
 *   the previous unit's
 *             reduce-scatter input (in the reduce type); the head's gradient waits for the root to
 *             the end
 *   its end   the root's parameters and gradients (a tied one twice, until both are summed), then
 *   its reduce-scatter
 *             input, when no activation is left
 * FSDP1 (_flat_param.py, limit_all_gathers): the unit in use and the next one, gathered straight
 * into the flat parameter, whose gradient is reduced from where it lies unless the reduce type is
 * another. data/fsdp2_tracker.csv holds what PyTorch's own tracker counts. */
static void fsdp(const struct oom_plan *p, const struct oom_engine_in *in, struct oom_states *s,
		 uint64_t D)
{
	const bool casts = oom_engine_casts(p), two = p->engine == OOM_ENGINE_FSDP2;
	/* the tape is in 16 bit, the shards are not */
	const uint64_t wide = casts ? 2 : 1;
	const uint64_t c = in->half || casts ? 2 : 4, r = casts ? 4 : c;
	const uint64_t unit = c * in->layer, root = c * in->root, head = c * in->head;
	const uint64_t reduced = two || r != c ? r * in->layer : 0;

	const double pad = two ? in->uneven : 1;

	s->params = padded(wide * in->params, D, pad);
	s->grads = padded(wide * in->grads, D, pad);
	s->opt = padded(in->quantised ? in->opt : wide * in->opt, D, pad);
	s->temps[0] = padded(wide * in->temps[0], D, pad);
	s->temps[1] = padded(wide * in->temps[1], D, pad);
	s->grads_reduced = true;
	s->grads_first = padded(wide * c * in->layer, D, pad);
	s->fwd = root + (two ? 3 : 2) * unit;
	/* the root's all-gather output is kept until the first unit's copy-out */
	s->fwd_start = two ? 2 * root + 2 * unit : 0;
	s->bwd = root + 2 * unit + unit + reduced + head;
	s->bwd_late = s->bwd;
	s->bwd_end = most(root + (in->head ? root : 2 * root) + reduced,
			  2 * root + (two || r != c ? r * in->root : 0));
	/* SHARD_GRAD_OP: parameters stay gathered until their gradients are reduced */
	if (p->zero_stage < 3) {
				s->fwd = c * in->total + (two ? 2 : 1) * unit;
		/* from the second unit on, one is gone */
		s->bwd = c * in->total + head + most(unit, reduced);
	}
	if (p->offload_params != OOM_OFFLOAD_NONE) {
		/* CPUOffload / CPUOffloadPolicy: shards and gradients pinned, the step runs on
		 * the host */
		s->host_pinned = s->params + s->grads;
		s->host_pageable = s->opt;
		s->params = s->grads = s->opt = s->temps[0] = s->temps[1] = 0;
	}
}

/* ---- which ---- */

void oom_engine_states(const struct oom_plan *p, const struct oom_engine_in *in,
		       struct oom_states *s)
{
	/* HYBRID_SHARD: shards within a node, copies between nodes */
	const uint64_t D = (uint64_t)(p->hybrid_shard ? p->gpus / p->nodes : p->gpus);

	*s = (struct oom_states){.params = in->params, .grads = in->grads, .opt = in->opt,
				 .temps = {in->temps[0], in->temps[1]}, .warning = ""};
	if (p->engine == OOM_ENGINE_DEVICE_MAP)
		s->warning = "device_map: balanced by weights; layers are taken as equal, copies "
			     "of masks and rotary tables as kept by every layer";
	if (!p->zero_stage) {
		ddp(p, in, s);
		s->bwd_late = s->bwd;
		return;
	}
	if (p->engine == OOM_ENGINE_DEEPSPEED) {
		deepspeed(p, in, s, D);
		deepspeed_offload(p, in, s, D);
		s->warning = "DeepSpeed: states as its code divides them; live parameters of stage "
			     "3 are a bound";
	} else {
		fsdp(p, in, s, D);
		s->warning = "FSDP: transients as its collectives allocate them, one block a unit";
	}
}

/* ---- what each of them is ---- */

static const struct oom_engine_info engines[] = {
	[OOM_ENGINE_HF] = {"weights, gradients and optimizer state, whole on every GPU",
			   "DDP's buckets, together as large as the gradients, unless "
			   "gradient_as_bucket_view",
			   "torch/csrc/distributed/c10d/reducer.cpp"},
	[OOM_ENGINE_DEEPSPEED] =
		{"optimizer state and an fp32 master copy / GPUs from stage 1 on, gradients from 2, "
		 "weights from 3",
		 "one reduce bucket (whatever the model's size), the fp32 gradients of a sub-group in "
		 "the step; stage 3: live, prefetched and persistent parameters",
		 "deepspeed/runtime/zero/stage_1_and_2.py, stage3.py, "
		 "partitioned_param_coordinator.py"},
	[OOM_ENGINE_FSDP2] =
		{"weights (rows of each, padded), gradients and optimizer state / GPUs",
		 "two to three gathered blocks, a block's gradients, its reduce-scatter input; the "
		 "root's parameters throughout",
		 "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, _fsdp_param_group.py; "
		 "data/fsdp2_tracker.csv"},
	[OOM_ENGINE_FSDP1] = {"flat weights, gradients and optimizer state / GPUs",
			      "two gathered blocks (limit_all_gathers), a block's gradients",
			      "torch/distributed/fsdp/_flat_param.py, _runtime_utils.py"},
	[OOM_ENGINE_MEGATRON] =
		{"16-bit weights and the fp32 gradient buffer / (tp x pp), fp32 master and optimizer "
		 "state / data-parallel ranks with --zero 1",
		 "passes in flight, workspaces of cuBLAS and TransformerEngine, dummy weight "
		 "gradients, received activations",
		 "megatron/core/optimizer/distrib_optimizer.py, pipeline_parallel/schedules.py"},
	[OOM_ENGINE_TORCHTUNE] = {"as fsdp2, everything in bf16 (or fp32): no master copy",
				  "as fsdp2", "torchtune recipes/full_finetune_distributed.py"},
	[OOM_ENGINE_DEVICE_MAP] =
		{"the layers that fall to a GPU, with their gradients and optimizer state",
		 "the hidden states received; copies of masks and rotary tables; GPU 0: the logits "
		 "brought back",
		 "transformers integrations/accelerate.py, accelerate hooks.py"},
};

const struct oom_engine_info *oom_engine_at(size_t i)
{
	return i < sizeof(engines) / sizeof(engines[0]) ? &engines[i] : NULL;
}
