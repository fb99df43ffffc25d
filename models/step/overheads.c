/* Reserved bytes without a replay, and what lies outside of them: context, workspaces, NCCL. */
#include "step/engines.h"
#include "step/reserved.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

uint64_t oom_reserved_estimate(const struct oom_eval *e, const struct oom_plan *plan)
{
	/* median reserved / allocated of 356 emulated runs: 1.08 native, 1.05 with expandable
	 * segments */
	return (uint64_t)((double)e->overall_peak *
			  (plan->allocator == OOM_ALLOC_EXPANDABLE ? 1.05 : 1.08));
}

void oom_reserve_estimated(struct oom_eval *out, const struct oom_plan *plan)
{
	out->reserved_replayed = false;
	out->reserved_bytes = oom_reserved_estimate(out, plan);
	out->retries = 0;
	out->later_bytes = 0;
}

/* 8.125 MiB before Hopper, 32 MiB from it on (aten/src/ATen/cuda/CublasHandlePool.cpp,
 * parseChosenWorkspaceSize; Blackwell as Hopper in the newest).  cuBLASLt's, 1 MiB for a call or these
 * shared, is not above them.  Megatron's ranks have them among their rows, with TransformerEngine's. */
uint64_t oom_workspace_bytes(const struct oom_plan *plan)
{
	const struct oom_rank_engine *ranks = oom_rank_engine_of(plan);

	if (!plan->cublas_workspaces || (ranks && ranks->workspaces_inside))
		return 0;
	return oom_capability(plan) >= 9 ? 32 * MIB : 8 * MIB + 128 * KIB;
}

void oom_overheads(struct oom_eval *e, const struct oom_plan *plan)
{
	const double sm = oom_capability(plan);
	const bool alone = oom_engine_of(plan)->info.in_turn;
	const bool desktop = (sm >= 7.5 && sm < 8) || (sm > 8.5 && sm < 9) || sm >= 12;
	const bool volta = sm >= 7 && sm < 7.5, turing = sm >= 7.5 && sm < 8, a100 = sm >= 8 && sm < 8.1,
		   hopper = sm >= 9 && sm < 10;

	/* CUDA context and modules, loaded lazily: 0.47 GiB measured on an A100
	 * (stas00/ml-engineering), 141 MiB on a T4 with torch 2.10 and 2.14 (Anassbzdd/fitcheck,
	 * data/measurements; 135 with 2.11, torch-preflight), 767 MiB on an H100 after two training
	 * steps (torch 2.11, CUDA 13.0, driver 580; 619 of them after the first tensor); a guess
	 * elsewhere, Blackwell's is Hopper's */
	e->context_bytes = turing ? 141 * MIB : a100 ? 482 * MIB : sm >= 9 && !desktop ? 767 * MIB : 512 * MIB;
	e->context_measured = plan->compute_capability > 0 && (turing || a100 || hopper);
	/* all kernels with the context: 666,632,192 bytes instead of 287,047,680 for one tensor of
	 * random numbers (pytorch/pytorch#85692) */
	if (!plan->lazy_modules) {
		e->context_bytes += 379584512;
		e->context_measured = false;
	}
	/* 1343 MiB on a V100 with torch 1.10 to 1.12 (huggingface/transformers docs/source/en/
	 * model_memory_anatomy.md, "the kernels alone") */
	if (!plan->lazy_modules && volta) {
		e->context_bytes = 1343 * MIB;
		e->context_measured = true;
	}
	/* of the forward's and the autograd thread */
	e->workspace_bytes = 2 * oom_workspace_bytes(plan);
	e->allocated_bytes = e->overall_peak + e->workspace_bytes;
	/* first collective on two GPUs: +1.45 GiB measured (stas00/ml-engineering).  Cards for desktops
	 * and servers without NVLink switches have two channels through the host where an A100 has 24
	 * (NCCL, src/graph/paths.cc, search.cc), 10 MiB of buffers each and direction (src/init.cc
	 * computeBuffSizes): a guess, under the 0.7 GiB that context and NCCL can have together where
	 * 22.98 GiB were reserved on cards of 23.6 (AnswerDotAI/fsdp_qlora, benchmarks_03_2024.md) */
	e->nccl_bytes = plan->gpus > 1 && !alone ? (desktop ? 192 : 1485) * MIB : 0;
	/* GPU 0's extras: the contexts of the other processes of its node */
	if (plan->rank0_contexts && plan->gpus >= plan->nodes && !oom_plan_one_process(plan))
		e->context_bytes *= (uint64_t)(plan->gpus / plan->nodes);
	e->used_bytes = e->reserved_bytes + e->context_bytes + e->workspace_bytes + e->nccl_bytes;
}
