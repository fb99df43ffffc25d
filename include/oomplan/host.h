/* Host memory of a node, and disk: what a box needs besides its GPUs. */
#ifndef OOMPLAN_HOST_H
#define OOMPLAN_HOST_H

#include "oomplan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes on one node unless said otherwise.  What is only a habit of the libraries is called a
 * guess in host.c. */
struct oom_host_need {
	uint64_t processes;     /* Python, libraries, CUDA's host side: one a GPU */
	uint64_t loading;       /* checkpoint bytes that are in memory at once while loading */
	uint64_t pinned, pageable;      /* offloaded state of the node's ranks */
	uint64_t loader;        /* data-loader workers and their prefetched batches */
	uint64_t saving;        /* a full state dict gathered on rank 0 */
	/* processes + pinned + pageable + loader + the larger of loading and saving */
	uint64_t ram_peak;
	/* Files read and written that the kernel keeps while memory is free: the base weights, a
	 * checkpoint being written.  Not in ram_peak: given back under pressure, but what is not
	 * yet on disk counts against a container's limit (Linux cgroup-v2.rst, memory.high). */
	uint64_t page_cache;
	/* disk */
	uint64_t checkpoint;    /* one training checkpoint: weights, master copy, optimizer state */
	uint64_t final_model;   /* the exported weights */
	uint64_t hub_cache;     /* the base model's download */
	uint64_t nvme;          /* offloaded to disk */
	/* (kept + 1) checkpoints + final model + cache + nvme: a new one is written before the
	 * old goes */
	uint64_t disk_peak;
};

/* Which limit a run meets first, in the order of its life: load, train, save. */
enum oom_limit {
	OOM_LIMIT_NONE,
	OOM_LIMIT_HOST_LOADING,
	OOM_LIMIT_GPU,
	OOM_LIMIT_HOST_TRAINING,
	OOM_LIMIT_HOST_SAVING
};

/* need against a node's host_ram bytes (0: unknown, never short); gpu_fits: the GPU's own
 * verdict. */
OOM_API enum oom_limit oom_first_limit(const struct oom_host_need *need, uint64_t host_ram,
				       bool gpu_fits);
/* The limit as a sentence that names the sign by which it is known. */
OOM_API const char *oom_limit_str(enum oom_limit limit);

OOM_API struct oom_host_need oom_host_need(const struct oom_plan *plan,
					   const struct oom_eval *eval);

#ifdef __cplusplus
}
#endif

#endif
