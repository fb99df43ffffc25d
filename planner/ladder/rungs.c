/* The ten rungs (playbook M4), in the order of their cost.  Sharding over GPUs that are there anyway
 * leaves the run as it is: it comes before quantised states, against the playbook's numbers. */
#include "oomplan/ladder.h"

#include "allocator_variable.h"
#include "moves.h"

#define HF_ONE_GPU "transformers docs perf_train_gpu_one"

static const struct oom_rung rungs[OOM_RUNGS] = {
	{.number = 1,
	 .name = "smaller micro-batch, more gradient accumulation",
	 .cls = OOM_EXACT,
	 .cost = "slower steps, same effective batch",
	 .setting = "per_device_train_batch_size, gradient_accumulation_steps",
	 .source = "playbook M5; " HF_ONE_GPU,
	 .apply = move_to_smaller_batch},
	{.number = 2,
	 .name = "bf16 mixed precision",
	 .cls = OOM_NUMERICS,
	 .cost = "none, usually faster; needs Ampere or newer",
	 .setting = "bf16=True",
	 .source = "playbook M6; " HF_ONE_GPU,
	 .knobs = {"precision"},
	 .apply = move_to_16_bit},
	{.number = 3,
	 .name = "activation checkpointing",
	 .cls = OOM_EXACT,
	 .cost = "20-30 % more compute",
	 .setting = "gradient_checkpointing=True",
	 .source = "playbook M7; " HF_ONE_GPU,
	 .knobs = {"grad-ckpt"},
	 .apply = move_to_checkpoints},
	{.number = 4,
	 .name = "expandable segments",
	 .cls = OOM_EXACT,
	 .cost = "none; removes fragmentation only",
	 .setting = OOM_ALLOCATOR_EXPANDABLE,
	 .source = "playbook M8; PyTorch CUDA notes",
	 .knobs = {"allocator"},
	 .apply = move_to_expandable},
	{.number = 5,
	 .name = "SDPA / FlashAttention",
	 .cls = OOM_EXACT,
	 .cost = "none, usually faster",
	 .setting = "attn_implementation=\"sdpa\"",
	 .source = "playbook M11; " HF_ONE_GPU,
	 .knobs = {"attn"},
	 .apply = move_to_sdpa},
	{.number = 6,
	 .name = "shorter sequences / lower resolution",
	 .cls = OOM_SCIENCE,
	 .cost = "the model no longer sees what it saw",
	 .setting = "max_length / image_size",
	 .source = "playbook M11",
	 .allow = OOM_ALLOW_SEQ_LEN,
	 .apply = move_to_shorter},
	{.number = 8,
	 .name = "ZeRO-1 -> 2 -> 3 / FSDP",
	 .cls = OOM_EXACT,
	 .cost = "communication; needs at least two GPUs, of those asked for",
	 .setting = "deepspeed zero_optimization.stage / fsdp=\"full_shard\"",
	 .source = "playbook M9; arXiv:1910.02054",
	 .more_gpus = true,
	 .apply = move_to_shards},
	{.number = 7,
	 .name = "8-bit / paged optimizer",
	 .cls = OOM_NUMERICS,
	 .cost = "quantised optimizer state",
	 .setting = "optim=\"adamw_bnb_8bit\"",
	 .source = "playbook M12; arXiv:2110.02861",
	 .knobs = {"optimizer"},
	 .apply = move_to_small_states},
	{.number = 9,
	 .name = "CPU / NVMe offload",
	 .cls = OOM_PLACEMENT,
	 .cost = "several times slower: PCIe becomes the bottleneck",
	 .setting = "deepspeed zero_optimization.offload_optimizer.device=cpu",
	 .source = "playbook M10",
	 .knobs = {"offload-optimizer", "offload-params"},
	 .apply = move_to_host},
	{.number = 10,
	 .name = "LoRA -> QLoRA",
	 .cls = OOM_SCIENCE,
	 .cost = "trains an adapter, not the model",
	 .setting = "peft.LoraConfig / load_in_4bit=True",
	 .source = "playbook M13; arXiv:2305.14314",
	 .allow = OOM_ALLOW_LORA,
	 .apply = move_to_adapters},
};

const struct oom_rung *oom_rung_at(size_t i)
{
	return i < OOM_RUNGS ? &rungs[i] : NULL;
}

const struct oom_rung *oom_rung_numbered(int number)
{
	for (size_t i = 0; i < OOM_RUNGS; i++)
		if (rungs[i].number == number)
			return &rungs[i];
	return NULL;
}

const char *oom_allow_str(enum oom_allow what)
{
#define WORD(id, word, summary) word,
	static const char *const words[] = {OOM_ALLOWS(WORD)};
#undef WORD

	return words[what - OOM_ALLOW_SEQ_LEN];
}
