/* The playbook (M1 to M20) as answers of `oomplan explain M8`. */
#include "oomplan/lore.h"

#include <strings.h>

#include "allocator_variable.h"

#define HF1 "transformers docs, perf_train_gpu_one"
#define CUDA "PyTorch documentation, CUDA semantics: memory management"
static const struct oom_lore lore[] = {
	{"M1", "where the memory goes",
	 "Training holds weights, gradients, optimizer state and activations. Adam with mixed precision keeps 6 + 4 + 8 = 18 bytes a "
	 "parameter before the first activation; inference needs 2. A model that answers prompts on a card may be far from training on it.",
	 "oomplan estimate --model M --gpu G --precision amp-bf16", "playbook M1; " HF1},
	{"M2", "reading the message",
	 "The request against what is free: a request beyond the card can never fit; a small request with gigabytes reserved but "
	 "unallocated is fragmentation; a card that is full although this process holds little has another tenant.",
	 "oomplan diagnose message.txt", "playbook M2; c10/cuda/CUDACachingAllocator.cpp"},
	{"M3", "host memory is not GPU memory",
	 "Killed, exit code 137 or -9, oom-kill and OOMKilled come from the host's kernel. Shrinking the model's batch does nothing; "
	 "fewer data-loader workers, lazy loading and less offload do.", "oomplan diagnose log.txt", "playbook M3"},
	{"M4", "the ladder",
	 "Ten fixes in the order of what they cost: exact ones first, then numerics, then placement, and last those that change the "
	 "science. Stop where it fits.", "oomplan plan --model M --gpu G", "playbook M4"},
	{"M5", "smaller micro-batch, more accumulation",
	 "The effective batch is micro-batch x accumulation x data-parallel ranks. Halving the first and doubling the second leaves the "
	 "gradient the same up to rounding (batch normalisation aside).", "oomplan solve micro-batch --model M --gpu G", "playbook M5; " HF1},
	{"M6", "bf16",
	 "Autocast stores activations in 16 bit; the weights stay in 32. bf16 needs no loss scaling, but Ampere or newer; fp16 keeps "
	 "working on older cards and needs a scaler.", "oomplan estimate --model M --precision amp-bf16", "playbook M6; " HF1},
	{"M7", "activation checkpointing",
	 "Only the inputs of blocks are kept; the rest is computed again in the backward pass, for about a third more forward work. What "
	 "remains is one block's activations and the logits.", "oomplan estimate --model M --grad-ckpt full", "playbook M7; arXiv:1604.06174"},
	{"M8", "expandable segments",
	 "The caching allocator cannot join pieces of different cudaMalloc blocks. With " OOM_ALLOCATOR_EXPANDABLE " one "
	 "segment grows in place. It helps against fragmentation only: reserved falls, allocated does not.",
	 "oomplan estimate --model M --allocator expandable_segments", "playbook M8; " CUDA},
	{"M9", "sharding",
	 "ZeRO-1 divides optimizer state over the ranks, ZeRO-2 gradients too, ZeRO-3 and FSDP the weights as well. Gathered parameters and "
	 "buckets do not shrink with more GPUs.", "oomplan estimate --model M --gpus 8 --engine fsdp2 --zero 3", "playbook M9; arXiv:1910.02054"},
	{"M10", "offload",
	 "Optimizer state, gradients and parameters can live in host memory or on NVMe. PCIe is then the pace: several times slower, and "
	 "the host needs 16 to 18 bytes per parameter.", "oomplan estimate --model M --engine deepspeed --zero 2 --offload-optimizer cpu",
	 "playbook M10; arXiv:2101.06840"},
	{"M11", "sequence length and resolution",
	 "Score matrices grow with the square of the sequence unless a fused kernel is used; everything else in the blocks and the logits "
	 "grows linearly. Cutting it changes what the model sees.", "oomplan solve seq-len --model M --gpu G", "playbook M11"},
	{"M12", "8-bit and paged optimizers",
	 "bitsandbytes keeps the two moments in 8 bit with a scale per block: about 2 bytes per parameter instead of 8. Tensors below 4096 "
	 "elements stay in 32 bit. Paged states move to the host under pressure.", "oomplan estimate --model M --optimizer adamw-8bit-embfp32",
	 "playbook M12; arXiv:2110.02861"},
	{"M13", "LoRA and QLoRA",
	 "The base is frozen; small matrices are trained. Gradients and optimizer state nearly vanish, activations do not. QLoRA stores the "
	 "base in 4 bit and dequantises a matrix at a time.", "oomplan estimate --model M --lora-r 16 --qlora", "playbook M13; arXiv:2305.14314"},
	{"M14", "the first backward",
	 "The forward pass fits and the backward does not: gradients appear while activations are still held, and the logits' gradient is as "
	 "large as the logits. Checkpointing is the remedy aimed at it.", "oomplan estimate --model M --gpu G (step 1 backward)", "playbook M14"},
	{"M15", "only in evaluation",
	 "Predictions pile up on the GPU until eval_accumulation_steps, and the logits of a large vocabulary are most of them. Without "
	 "torch.no_grad the graph is kept too.", "oomplan estimate --model M --eval-accumulation 16", "playbook M15; transformers Trainer"},
	{"M16", "the longest batch",
	 "With padding to the longest sequence, memory follows the longest batch of the epoch, not the mean one. It dies when that batch "
	 "comes.", "oomplan plan --model M --gpu G --lengths lengths.txt", "playbook M16"},
	{"M17", "step 2",
	 "Adam's state is allocated by the first optimizer step. Step 1 runs without it, step 2 with it: test two full steps, not one.",
	 "oomplan estimate --model M --gpu G (step 2)", "playbook M17"},
	{"M18", "memory_summary",
	 "allocated is what tensors hold, reserved what the allocator keeps from the driver; nvidia-smi shows reserved plus the context. A "
	 "wide gap between the first two is fragmentation or cache.", "oomplan diagnose summary.txt", "playbook M18; " CUDA},
	{"M19", "the memory snapshot",
	 "torch.cuda.memory._record_memory_history and _dump_snapshot record every allocation with its frames; the viewer names the tensors "
	 "alive at the peak. oomplan reads the file without executing anything in it.",
	 "oomplan diagnose snapshot.pickle --model M", "playbook M19; PyTorch, Understanding CUDA memory usage"},
	{"M20", "empty_cache and leaks",
	 "empty_cache returns unused cached blocks to the driver; it frees no tensor and cannot mend a shortage in one process. Memory that "
	 "rises from step to step is kept by something: a list of losses, outputs with their graph, a hook.",
	 "oomplan diagnose --all log.txt", "playbook M20; PyTorch FAQ"},
};

const struct oom_lore *oom_lore_at(size_t i)
{
	return i < sizeof(lore) / sizeof(lore[0]) ? &lore[i] : NULL;
}

const struct oom_lore *oom_lore_find(const char *id)
{
	for (size_t i = 0; oom_lore_at(i); i++)
		if (!strcasecmp(lore[i].id, id))
			return &lore[i];
	return NULL;
}
