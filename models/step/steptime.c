/* The roofline (Williams, Waterman, Patterson, 2009) of a training step.
 *
 *   compute  flops_per_sample x samples / (tflops x MFU)
 *   memory   (2 x activations saved x micro-steps + 3 x weights x micro-steps + 4 x (weights +
 *   gradients + state)) / bandwidth
 *   comm     ring collectives: 2 x gradients x (D - 1) / D a step; ZeRO-3 and FSDP gather weights
 *   twice a micro-step
 *   offload  16 bytes a parameter there and back over PCIe
 */
#include "oomplan/steptime.h"
#include "oomplan/units.h"

#include <stdlib.h>
#include <string.h>

#define GBPS 1e9

/* Bytes a second one GPU sends to its neighbours: half of what the link's name states for both
 * directions ("NVLink4 900 GB/s"), PCIe where it states none, and between nodes the network that
 * the node's GPUs share; that 0.7 of it is reached is a guess. */
static double link_bytes(const struct oom_gpu *gpu, const struct oom_plan *p)
{
	const char *unit = gpu ? strstr(gpu->interconnect, " GB/s") : NULL, *from = unit;
	double link = OOM_STEP_PCIE;

	if (p->nodes > 1)
		return gpu && gpu->network_gbps > 0 ? gpu->network_gbps / 8 * GBPS * 0.7 :
						      OOM_STEP_NETWORK;
	while (unit && from > gpu->interconnect && strchr("0123456789.", from[-1]))
		from--;
	if (unit && from < unit)
		link = oom_strtod(from, NULL) / 2 * GBPS;
	else if (gpu && strstr(gpu->interconnect, "NVLink"))
		link = gpu->compute_capability >= 10 ? 900 * GBPS :
		       gpu->compute_capability >= 9  ? 450 * GBPS :
		       gpu->compute_capability >= 8  ? 300 * GBPS :
						       150 * GBPS;
	return (link > OOM_STEP_PCIE ? link : OOM_STEP_PCIE) * 0.7;
}

static double peak_flops(const struct oom_gpu *gpu, const struct oom_plan *p)
{
	double t = 312;                         /* A100, dense bf16 */

	if (gpu) {
		t = gpu->bf16_tflops > 0 ? gpu->bf16_tflops : gpu->fp16_tflops;
		if (t <= 0)
			t = 10;
	}
	/* fp32 products run on the TF32 units from Ampere on, at about half; elsewhere an eighth */
	if (p->precision == OOM_FP32)
		t /= gpu && gpu->compute_capability > 0 && gpu->compute_capability < 8 ? 8 : 2;
	return t * 1e12;
}

struct oom_step_time oom_step_time(const struct oom_plan *p, const struct oom_eval *e,
				   const struct oom_gpu *gpu)
{
	const double bandwidth = (gpu && gpu->bandwidth_gb_s > 0 ? gpu->bandwidth_gb_s : 1555) *
				 GBPS;
	const double D = (double)oom_plan_data_parallel(p),
		     per_gpu = (double)(p->micro_batch * p->grad_accum);
	const double model_ranks = (double)(p->tp * p->pp * p->cp),
		     weights = (double)e->param_bytes, grads = (double)e->grad_bytes;
	const bool sharded = p->zero_stage >= 3;
	struct oom_step_time t = {0};

	t.compute_s = e->flops_per_sample * per_gpu / model_ranks /
		      (peak_flops(gpu, p) * OOM_STEP_MFU);
	t.memory_s = (2 * (double)e->saved_bytes * (double)p->grad_accum +
		      3 * weights * (double)p->grad_accum +
		      4 * (weights + grads + (double)e->opt_bytes) / (p->zero_stage ? D : 1)) /
		     bandwidth;
	if (p->attn == OOM_ATTN_EAGER)
		t.memory_s *= 1.3;
	if (D > 1)
		t.comm_s = 2 * grads * (D - 1) / D / link_bytes(gpu, p);
	if (sharded && D > 1)
		t.comm_s += 2 * weights * (double)p->grad_accum * (D - 1) / D / link_bytes(gpu, p);
	/* four all-reduces of the hidden states a layer: about the saved bytes */
	if (p->tp > 1)
		t.comm_s += (double)e->saved_bytes * 0.1 * (double)p->grad_accum /
			    link_bytes(gpu, p);
	/* half of a collective hides behind computation */
	t.comm_s *= 0.5;
	if (p->pp > 1)                          /* the pipeline's bubble */
		t.compute_s *= 1 + (double)(p->pp - 1) / (double)p->grad_accum;
	if (p->offload_optimizer != OOM_OFFLOAD_NONE || p->offload_params != OOM_OFFLOAD_NONE)
		t.offload_s = 2 *
				      (double)(e->host_pinned_bytes - e->offloaded_bytes +
					       e->host_pageable_bytes) /
				      OOM_STEP_PCIE +
			      2 * (double)e->nvme_bytes / OOM_STEP_NVME;
	if (p->offload_params != OOM_OFFLOAD_NONE)
		t.offload_s += 2 * weights * (double)p->grad_accum / OOM_STEP_PCIE;
	/* there in forward, back in backward, beside the computation: a third shows */
	t.offload_s += 2.0 / 3 * (double)e->offloaded_bytes * (double)p->grad_accum / OOM_STEP_PCIE;
	t.total_s = (t.compute_s > t.memory_s ? t.compute_s : t.memory_s) + t.comm_s + t.offload_s;
	if (t.total_s > 0)
		t.samples_per_s = per_gpu * D / t.total_s;
	return t;
}
