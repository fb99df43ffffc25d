/* GPUs: the shipped table and the user's own. */
#ifndef OOMPLAN_GPU_H
#define OOMPLAN_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How capacity_bytes is known: as PyTorch reported it, as nvidia-smi shows it, or from the marketed size. */
enum oom_capacity_kind { OOM_CAPACITY_MEASURED, OOM_CAPACITY_SMI, OOM_CAPACITY_MARKETING };

/* One card: a row of data/gpus.csv. */
struct oom_gpu {
	char name[64];
	char aliases[160];              /* ;-separated */
	char vendor[16], architecture[32], interconnect[64];
	char source[160], checked[16];
	double memory_gb;               /* as marketed, which may mean 10^9 or 2^30 bytes */
	/* the lowest total that PyTorch was seen to report; otherwise nvidia-smi's; otherwise as marketed */
	uint64_t capacity_bytes;
	uint64_t capacity_high_bytes;   /* the highest total that PyTorch was seen to report; the capacity where none was */
	enum oom_capacity_kind capacity_kind;
	double compute_capability;      /* such as 8.6; 0: not NVIDIA, or unknown */
	double bandwidth_gb_s;          /* of its memory, 10^9 bytes per second */
	double bf16_tflops, fp16_tflops;        /* dense, 10^12 operations per second; 0: unknown */
	/* of the units that compute in fp32 without rounding to TF32; 0: a share of the 16-bit rate, by class.  GeForce cards'
	 * 16-bit rates are halved where they accumulate in fp32, this one is not */
	double fp32_tflops;
	double tf32_tflops;             /* of its tensor cores, where they round fp32; 0: they do not */
	/* what large products alone were measured at, in 16 bit and summed in fp32; 0: nobody did, or power tells as well */
	double matmul_tflops;
	double fp32_matmul_tflops;      /* the same of fp32 */
	double tdp_w;                   /* board power in watts; 0: unknown */
	/* between machines with this card, gigabits per second; 0: unknown */
	double network_gbps;
	/* how many cards NVLink joins across machines (the trays of an NVL72); 0: only those of one machine */
	double nvlink_domain;
	/* who published complete step times of it (data/throughput.csv), which says how near a predicted one may be */
	int step_sources;
};

/* A table of GPUs.  Zero-initialise; free with oom_gpus_release. */
struct oom_gpus {
	struct oom_gpu *items;
	size_t n;
};

/* Appends the shipped table (data/gpus.csv), or a user's file with the same columns, of which name and
 * capacity_mib (or memory_gb) suffice.  A later row replaces earlier rows of the same name.  OOM_ERR_IO;
 * OOM_ERR_PARSE: it is no table, or has no row; OOM_ERR_INVALID, with file and line: a card without a size. */
OOM_API enum oom_status oom_gpus_load(struct oom_gpus *gpus, struct oom_error *err);
OOM_API enum oom_status oom_gpus_read(struct oom_gpus *gpus, const char *path,
				      struct oom_error *err);
OOM_API void oom_gpus_release(struct oom_gpus *gpus);

/* Finds a card by name or alias, in any case and spelling.  For a word that several cards of the same
 * memory size share, out is the one with the smallest reported capacity, and note says so.  A word that
 * cards of different sizes share is OOM_ERR_UNKNOWN, and the text lists them.  note may be NULL. */
OOM_API enum oom_status oom_gpu_find(const struct oom_gpus *gpus, const char *word,
				     struct oom_gpu *out, char note[256], struct oom_error *err);
/* Whether the card of this name is one of those that the word may name, of whatever memory size: "H100" is the PCIe
 * and the SXM card. */
OOM_API bool oom_gpu_may_be(const struct oom_gpus *gpus, const char *word, const char *name);

/* "8xA100-80G", "A100:8", "A100 x8"; "2x8xH100", "2xH100:8": a card's name and how many there are of it, over all
 * nodes.  False: the word has no number. */
struct oom_gpu_count {
	char name[100];
	int64_t gpus, nodes;
};
OOM_API bool oom_gpu_counted(const char *word, struct oom_gpu_count *out);
/* Words for a kind of capacity.  Static. */
OOM_API const char *oom_capacity_kind_str(enum oom_capacity_kind kind);

#ifdef __cplusplus
}
#endif

#endif
