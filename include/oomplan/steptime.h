/* How long a step takes, roughly: a roofline over arithmetic, memory traffic, collectives and
 * offload.
 *
 * A guess, and called one: it ranks plans against one another on one card within about a factor of
 * 1.5; it does not promise seconds. */
#ifndef OOMPLAN_STEPTIME_H
#define OOMPLAN_STEPTIME_H

#include "oomplan/gpu.h"
#include "oomplan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct oom_step_time {
	double compute_s;       /* matrix products at OOM_STEP_MFU of the card's peak */
	/* activations, weights and optimizer state through the card's memory */
	double memory_s;
	double comm_s;          /* collectives that are not hidden */
	double offload_s;       /* state over PCIe or from disk */
	double total_s;         /* one optimizer step: max(compute, memory) + comm + offload */
	double samples_per_s;   /* over all GPUs */
};
/* Share of the peak a training step reaches; bytes a second of PCIe and of a network without a
 * faster link. */
#define OOM_STEP_MFU 0.4
#define OOM_STEP_PCIE 20e9
#define OOM_STEP_NETWORK 12.5e9
#define OOM_STEP_NVME 3e9
/* The factor between this guess and a measured step that should surprise nobody. */
#define OOM_STEP_ERROR 1.5

/* gpu may be NULL: an A100's numbers are used, which still ranks plans for one card. */
OOM_API struct oom_step_time oom_step_time(const struct oom_plan *plan, const struct oom_eval *eval,
					   const struct oom_gpu *gpu);

#ifdef __cplusplus
}
#endif

#endif
