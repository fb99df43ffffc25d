/* Host memory and disk of a node: what a machine needs besides its GPUs. */
#ifndef OOMPLAN_HOST_H
#define OOMPLAN_HOST_H

#include "oomplan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes are bytes on one node.  host.c gives the sources and says which figures are guesses. */
struct oom_host_need {
	uint64_t processes;     /* Python, libraries, CUDA's host side; one process per GPU */
	uint64_t loading;       /* the most checkpoint bytes in memory at once while loading */
	uint64_t pinned, pageable;      /* offloaded state of the node's ranks */
	uint64_t loader;        /* data-loader workers and their prefetched batches */
	uint64_t saving;        /* a full state dict gathered on rank 0 */
	/* processes + pinned + pageable + loader + the larger of loading and saving */
	uint64_t ram_peak;
	/* Files that were read or written and that the kernel caches while memory is free: the base weights,
	 * a checkpoint.  Not part of ram_peak, because the cache is released under pressure; but pages that
	 * are not yet on disk count against a container's limit (Linux cgroup-v2.rst, memory.high). */
	uint64_t page_cache;
	/* disk */
	uint64_t checkpoint;    /* one training checkpoint: weights, master copy, optimizer state */
	uint64_t final_model;   /* the exported weights */
	uint64_t hub_cache;     /* the base model's download */
	uint64_t nvme;          /* state that is offloaded to disk */
	/* (kept + 1) checkpoints + final model + hub cache + nvme: a new checkpoint is written before the
	 * oldest is deleted */
	uint64_t disk_peak;
};

/* The limit that a run meets first, in the order of its life: loading, training, saving. */
enum oom_limit {
	OOM_LIMIT_NONE,
	OOM_LIMIT_HOST_LOADING,
	OOM_LIMIT_GPU,
	OOM_LIMIT_HOST_TRAINING,
	OOM_LIMIT_HOST_SAVING
};

/* Compares need with a node's host_ram bytes (0: unknown, so it never runs short).  gpu_fits is the verdict
 * on the GPU. */
OOM_API enum oom_limit oom_first_limit(const struct oom_host_need *need, uint64_t host_ram,
				       bool gpu_fits);
/* The limit as a sentence that says how a run that meets it ends.  Static. */
OOM_API const char *oom_limit_str(enum oom_limit limit);

/* What a node of the plan's needs; eval is its evaluation. */
OOM_API struct oom_host_need oom_host_need(const struct oom_plan *plan,
					   const struct oom_eval *eval);

#ifdef __cplusplus
}
#endif

#endif
