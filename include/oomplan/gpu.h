/* GPUs: the shipped table and the user's own. */
#ifndef OOMPLAN_GPU_H
#define OOMPLAN_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum oom_capacity_kind { OOM_CAPACITY_MEASURED, OOM_CAPACITY_SMI, OOM_CAPACITY_MARKETING };

struct oom_gpu {
	char name[64];
	char aliases[160];              /* ;-separated */
	char vendor[16], architecture[32], interconnect[64];
	char source[160], checked[16];
	double memory_gb;               /* as marketed */
	/* what PyTorch reports as total, the lowest seen; else nvidia-smi; else marketed */
	uint64_t capacity_bytes;
	enum oom_capacity_kind capacity_kind;
	double compute_capability;      /* 0 = not NVIDIA or unknown */
	double bandwidth_gb_s, bf16_tflops, fp16_tflops;
	double tdp_w;                   /* board power; 0 = unknown */
	/* of the machine it stands in, to other machines, gigabits a second; 0 = unknown */
	double network_gbps;
	/* cards that NVLink joins over several machines (an NVL72's trays); 0: those of one */
	double nvlink_domain;
};

/* A table of GPUs.  Zero-initialise; free with oom_gpus_release. */
struct oom_gpus {
	struct oom_gpu *items;
	size_t n;
};

/* Appends the shipped table (data/gpus.csv), or a user's file with the same columns; name and
 * capacity_mib (or memory_gb) are enough.  Later rows of the same name replace earlier ones. */
OOM_API enum oom_status oom_gpus_load(struct oom_gpus *gpus, struct oom_error *err);
OOM_API enum oom_status oom_gpus_read(struct oom_gpus *gpus, const char *path,
				      struct oom_error *err);
OOM_API void oom_gpus_release(struct oom_gpus *gpus);

/* Finds a card by name or alias, in any case and spelling.  A word that several cards of one memory
 * size share gives the one with the smaller reported capacity and a note; one shared by different
 * sizes is OOM_ERR_UNKNOWN with the candidates.  note may be NULL. */
OOM_API enum oom_status oom_gpu_find(const struct oom_gpus *gpus, const char *word,
				     struct oom_gpu *out, char note[256], struct oom_error *err);
OOM_API const char *oom_capacity_kind_str(enum oom_capacity_kind kind);

#ifdef __cplusplus
}
#endif

#endif
