/* The update: states once through memory, or several times where PyTorch works tensor list by tensor list; offloaded ones
 * over PCIe, on the CPU. */
#include "update.h"

#include "step/engines.h"
#include "step/optimizers.h"

/* A list of operations over all tensors reads and writes them so much more often than one fused kernel: 20 times an
 * element for 8 as they are counted below (torch/optim/adam.py _multi_tensor_adam: mul, lerp, mul, addcmul, sqrt, div, add,
 * addcdiv).  1.2 billion in bf16 take 20.6 ms on an H100 and 7.9 fused (data/h100_steps.csv), 8 billion 47 on a B200
 * (stas00/ml-engineering, training/performance/README.md). */
#define LISTS 2.5
/* States kept in blocks with a scale each are looked up, and the nearest of 256 values is searched: a unit of the card walks
 * through one block after another, and waits for its sums and look-ups more than it computes.  An update of 1 billion
 * parameters takes 47 ms on a V100 of 80 units, where its bytes take 22 (Dettmers et al. 2021, arXiv:2110.02861, table 5:
 * Adam), and 31 to 34 ms on an H100 of 132, where they take 4 (bitsandbytes 0.50, 1.2 and 8 billion in bf16); by rates of
 * fp32, of which the H100 has four times as much, one of the two would be off by 2.6. */
#define BLOCKWISE 3.8e-9                /* seconds of a unit per parameter */
/* torch's fused CPU Adam is bound by host memory: weights and states there and back and the gradient, 28 bytes per
 * parameter where two states and they are fp32 and half of that where an engine keeps no fp32 copy of 16-bit weights, at
 * about 100 GB/s of a node (torchtune, README.md: Llama-3.1-70B).  An engine's own may reach less (../engines.c). */
#define HOST_MEMORY 100e9
#define DISK 3e9

/* Python that looks at each tensor before an update (torch/optim/optimizer.py zero_grad, adam.py _init_group, _fused_adam:
 * lists of tensors, of states and of steps, grouped by device and type): updates of 148 to 448 tensors, which take a card 0.1 to 0.9 ms, take
 * 5 to 12 us a tensor where it waits for them, and 0.3 ms where it is behind (data/h100_steps.csv: gpt2-b1, smol-b1-s512, lora-1b-b1-s512,
 * qwen05-lora, 8b-lora-s512; 1b-lora).  Loops over tensors of old optimizers take more, which is not counted. */
#define TENSOR_PYTHON 9e-6

double oom_update_python_s(const struct oom_work *w) { return TENSOR_PYTHON * w->trained; }

/* Seconds on the card of a rank that updates one part of `share`. */
static double on_card(const struct oom_time_step *s, double share)
{
	const struct oom_plan *p = s->plan;
	const struct oom_eval *e = s->eval;
	const struct oom_optimizer *o = oom_optimizer_at((size_t)p->optimizer);
	const struct oom_engine *engine = oom_engine_of(p);
	const double trained = (double)e->trainable_params / (double)(p->tp * p->pp),
		     /* what is updated is an fp32 copy, or the weights as they are kept */
		     width = engine->fp32_master || oom_engine_core_layers(p) || !e->total_params ?
				     4 :
				     (double)e->param_bytes / (double)e->total_params,
		     /* read and written: states, weights; gradients are read, and cleared */
		     states = 2 * ((double)e->opt_bytes + trained * width + (double)e->grad_bytes) *
			      (o->lists && !engine->fused_update ? LISTS : 1),
		     bytes = o->moves > 0 ? 4 * o->moves * trained : states,
		     searched = oom_optimizer_in_blocks(o) && s->speed.of->units > 0 ?
					BLOCKWISE * trained / s->speed.of->units :
					0,
		     /* norms of the gradients, before */
		     clip = (double)e->grad_bytes;

	return (oom_time_hidden(bytes / s->speed.stream, searched) + clip / s->speed.stream) / share;
}

void oom_time_update(struct oom_time_step *s)
{
	const struct oom_plan *p = s->plan;
	const struct oom_eval *e = s->eval;
	const struct oom_engine *engine = oom_engine_of(p);
	const double D = (double)(oom_plan_data_parallel(p) * p->cp), share = p->zero_stage ? D : 1,
		     ranks = s->on_board < D ? s->on_board : D,
		     /* gradients and states have the weights' type, an fp32 copy's are fp32 */
		     wide = engine->fp32_master && (double)e->grad_bytes < 4 * (double)e->trainable_params ? 2 : 1;
	double host = 0;

	if (p->offload_optimizer != OOM_OFFLOAD_NONE || p->offload_params != OOM_OFFLOAD_NONE) {
		/* every rank of a node updates its part in the node's memory */
		host += wide * (3 * (double)e->grad_bytes + 2 * (double)e->opt_bytes) / share * ranks /
			(engine->host_bytes_s > 0 ? engine->host_bytes_s : HOST_MEMORY);
		host += ((double)e->grad_bytes + (double)e->param_bytes) / share / s->speed.pcie;
		host += 2 * (double)e->nvme_bytes / DISK;
	} else {
		s->part[OOM_TIME_OPTIMIZER] = on_card(s, share);
		/* paged states are prefetched to the card (bitsandbytes/optim/optimizer.py prefetch_state) and stay where it
		 * has room: 1.2 billion in 8 bits take 5 ms more than unpaged ones on an H100 that they do not fill.  Where it
		 * is full they come and go; half of the time, estimated */
		if ((double)e->host_pageable_bytes > s->room)
			host += (double)e->host_pageable_bytes / s->speed.pcie;
	}
	if (p->offload_params != OOM_OFFLOAD_NONE)
		host += 2 * (double)e->param_bytes * (oom_time_autocasts(p) ? 0.5 : 1) / share * s->times /
			s->speed.pcie;
	/* there in forward, back in backward, beside the computation: a third shows */
	host += 2.0 / 3 * (double)e->offloaded_bytes * s->times / s->speed.pcie;
	s->part[OOM_TIME_HOST] = host;
}
