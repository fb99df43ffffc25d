/* Host RAM and disk (playbook M3).
 *
 *   loading  every rank reads the checkpoint: all of it, or one safetensors shard at a time with
 *            low_cpu_mem_usage (transformers modeling_utils.py); sharded engines build on the meta
 *            device, and rank 0 alone holds it
 *   saving   a gathered state dict lies on rank 0: the weights, and with FSDP's full state dict the
 *            optimizer's states too; sharded saving holds nothing (DeepSpeed's and FSDP's sharded
 *            checkpoints)
 *   loader   workers x prefetch_factor batches, and a process per worker (torch.utils.data)
 */
#include "oomplan/host.h"

#include "engines.h"
#include "tape/round.h"

/* Guesses: a Python process with torch and CUDA's host side; a forked worker's own pages; a
 * checkpoint's shard. */
#define PROCESS ((uint64_t)3 << 30)
#define WORKER ((uint64_t)256 << 20)
#define SHARD 5000000000u

/* Optimizer state in a checkpoint: as it is kept; beside 16-bit weights DeepSpeed and Megatron write
 * an fp32 master copy and fp32 moments (formulas of their own documents: 2 + 12 bytes per
 * parameter).  FSDP's mixed precision keeps in 32 bit what the tape counts in 16. */
static uint64_t saved_state(const struct oom_plan *p, const struct oom_eval *e, bool half)
{
	const struct oom_engine *engine = oom_engine_of(p);
	const bool master = engine->info.degrees || (engine->fp32_master && p->zero_stage);

	if (!e->opt_bytes || (master && half))
		return e->opt_bytes ? 12 * e->trainable_params : 0;
	return oom_engine_casts_trained(p) && e->held_states ? e->held_states : e->opt_bytes;
}

struct oom_host_need oom_host_need(const struct oom_plan *p, const struct oom_eval *e)
{
	const int64_t ranks = oom_plan_one_process(p) ? 1 : p->gpus;
	const uint64_t here = (uint64_t)(ranks / (p->nodes > 0 ? p->nodes : 1)) ?
				      (uint64_t)(ranks / p->nodes) :
				      1;
	const bool half = oom_plan_stores(p) != OOM_FP32;
	const uint64_t stored = 2 * e->total_params, weights = (half ? 2 : 4) * e->total_params;
	const uint64_t sample = (uint64_t)(p->seq_len > 0 ? p->seq_len * 24 : 3 * 224 * 224 * 4);
	const uint64_t workers = (uint64_t)p->dataloader_workers;
	const bool sharded = p->zero_stage >= 3;
	struct oom_host_need n = {0};

	n.processes = here * PROCESS;
	n.loading = p->low_cpu_mem ? oom_least(stored, SHARD) * (sharded ? 1 : here) :
				     (half ? stored : weights) * here;
	n.pinned = e->host_pinned_bytes * here;
	n.pageable = e->host_pageable_bytes * here;
	n.loader = here * workers *
		   (WORKER + (uint64_t)p->prefetch_factor * (uint64_t)p->micro_batch * sample);
	n.checkpoint = e->trainable_params == e->total_params ? weights : 4 * e->trainable_params;
	n.checkpoint += saved_state(p, e, half);
	n.saving = p->save_sharded			  ? 0 :
		   e->trainable_params == e->total_params ? weights :
							    4 * e->trainable_params;
	if (!p->save_sharded && sharded && oom_engine_of(p)->full_state_dict)
		n.saving += 8 * e->trainable_params;
	n.ram_peak = n.processes + n.pinned + n.pageable + n.loader +
		     (n.loading > n.saving ? n.loading : n.saving);
	n.final_model = e->trainable_params == e->total_params ? stored : 2 * e->trainable_params;
	n.hub_cache = stored;
	n.page_cache = stored + n.checkpoint;
	n.nvme = e->nvme_bytes * here;
	n.disk_peak = ((uint64_t)p->save_total_limit + 1) * n.checkpoint + n.final_model +
		      n.hub_cache + n.nvme;
	return n;
}

enum oom_limit oom_first_limit(const struct oom_host_need *n, uint64_t host_ram, bool gpu_fits)
{
	const uint64_t lasting = n->processes + n->pinned + n->pageable + n->loader;

	if (host_ram && n->processes + n->loading > host_ram)
		return OOM_LIMIT_HOST_LOADING;
	if (!gpu_fits)
		return OOM_LIMIT_GPU;
	if (host_ram && lasting > host_ram)
		return OOM_LIMIT_HOST_TRAINING;
	return host_ram && lasting + n->saving > host_ram ? OOM_LIMIT_HOST_SAVING : OOM_LIMIT_NONE;
}

const char *oom_limit_str(enum oom_limit limit)
{
	static const char *const words[] = {
		[OOM_LIMIT_NONE] = "neither GPU memory nor host RAM breaks",
		[OOM_LIMIT_HOST_LOADING] = "host RAM breaks first, while the checkpoint is loaded: \"Killed\" (exit 137), no traceback",
		[OOM_LIMIT_GPU] = "GPU memory breaks first: a traceback with torch.OutOfMemoryError",
		[OOM_LIMIT_HOST_TRAINING] = "host RAM breaks once training runs (offloaded state, data loader): \"Killed\" (exit 137)",
		[OOM_LIMIT_HOST_SAVING] = "host RAM breaks at the first checkpoint, when the state dict is gathered: \"Killed\" (exit 137)",
	};

	return words[limit];
}
