/* Host memory of a node, and disk: what a box needs besides its GPUs. */
#ifndef OOMPLAN_HOST_H
#define OOMPLAN_HOST_H

#include "oomplan/model.h"

/* Bytes on one node unless said otherwise.  What is only a habit of the libraries is called a guess in host.c. */
struct oom_host_need {
	uint64_t processes;     /* Python, libraries, CUDA's host side: one a GPU */
	uint64_t loading;       /* checkpoint bytes that are in memory at once while loading */
	uint64_t pinned, pageable;      /* offloaded state of the node's ranks */
	uint64_t loader;        /* data-loader workers and their prefetched batches */
	uint64_t saving;        /* a full state dict gathered on rank 0 */
	uint64_t ram_peak;      /* processes + pinned + pageable + loader + the larger of loading and saving */
	/* disk */
	uint64_t checkpoint;    /* one training checkpoint: weights, master copy, optimizer state */
	uint64_t final_model;   /* the exported weights */
	uint64_t hub_cache;     /* the base model's download */
	uint64_t nvme;          /* offloaded to disk */
	uint64_t disk_peak;     /* (kept + 1) checkpoints + final model + cache + nvme: a new one is written before the old goes */
};

OOM_API struct oom_host_need oom_host_need(const struct oom_plan *plan, const struct oom_eval *eval);

#endif
