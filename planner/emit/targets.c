/* The formats: which keys each is made of, in which order.
 *
 * The keys are those of the readers' rows (planner/frameworks), which name where in each framework's code a
 * key stands.  tests/README.md says which of these files the frameworks' own parsers took, and how. */
#include <stddef.h>

#include "emit/fills.h"

/* no-sync is what accelerate does where a file says nothing */
#define HOST "dataloader-workers save-total-limit save-sharded no-sync"
/* what a file of the engine alone leaves to the trainer's */
#define TRAINERS "eval-batch eval-accumulation padding-mask task loop num-layers convert-outputs-fp32 "

/* The key that asks for Liger's fused loss takes its norms, feed-forwards and rotary positions with it, which keep less
 * than PyTorch's (transformers integrations/liger.py; LLaMA-Factory model/model_utils/liger_kernel.py); a file of
 * TrainingArguments can leave them out (liger_kernel_config), a command line and the others cannot. */
#define LIGER_SPARES \
	{"liger-kernels", "none", "all", " (the key of the fused loss asks for Liger's norms and feed-forwards as well: less than was priced)", false}

/* TRL's sft_trainer.py, compute_loss */
static const struct emit_cost trl_costs[] = {
	{"loss", "plain", "sft",
	 " (SFTTrainer computes entropy and token accuracy over the logits besides: more than was priced where the loss "
	 "makes the peak, see --loss sft)", false},
	LIGER_SPARES,
	{NULL, NULL, NULL, NULL, false},
};

static const struct emit_cost liger_costs[] = {
	LIGER_SPARES,
	{NULL, NULL, NULL, NULL, false},
};

/* Models that see nothing have neither, and LLaMA-Factory freezes both unless it is told otherwise. */
static const struct emit_cost factory_costs[] = {
	LIGER_SPARES,
	{"freeze-vision-tower", "false", "true", "", true},
	{"freeze-projector", "false", "true", "", true},
	{NULL, NULL, NULL, NULL, false},
};

/* Its schema drops the key, and accelerate prefetches nothing unless told to (axolotl utils/schemas/fsdp.py FSDPConfig). */
static const struct emit_cost axolotl_costs[] = {
	{"backward-prefetch", "pre", "none", "", true},
	{"backward-prefetch", "post", "none", "", true},
	{NULL, NULL, NULL, NULL, false},
};

/* Where shards wait on the host, states wait beside them (torch/distributed/fsdp CPUOffloadPolicy). */
static const struct emit_cost tune_costs[] = {
	{"offload-optimizer", "none", "cpu", "", true},
	{NULL, NULL, NULL, NULL, false},
};

/* Transformer Engine's kernels have no other (megatron/core/transformer/enums.py AttnBackend). */
static const struct emit_cost megatron_costs[] = {
	{"attn", "sdpa", "flash", "", true},
	{"optimizer", "adamw", "adamw-fused", "", true},
	{NULL, NULL, NULL, NULL, false},
};

/* torchtitan models/llama3/model/model.py repeat_kv, infra/parallelize.py apply_compile */
static const struct emit_cost titan_costs[] = {
	{"kv-repeat", "grouped", "sdpa", " (torchtitan copies keys and values to all heads: more than was priced)", false},
	{"compile-layers", "false", "true", "", true},
	{NULL, NULL, NULL, NULL, false},
};

/* litgpt/model.py: torch's attention, whose kernels are flash's where they can be; finetune/lora.py: the head in chunks;
 * finetune/full.py: whole logits, in fp32 as Fabric returns them. */
static const struct emit_cost litgpt_costs[] = {
	{"attn", "flash", "sdpa", "", true},
	{"attn", "eager", "sdpa", "", true},
	{"loss", "plain", "parts", "", true},
	{"loss", "plain", "outside", " (Fabric returns logits in fp32: more than was priced)", false},
	{"autocast-adapter-dtype", "true", "false", "", true},
	{"lora-targets", "all-linear", "q_proj+k_proj+v_proj+o_proj+gate_proj+up_proj+down_proj", "", true},
	{"lora-zero-pad", "false", "true", " (litgpt copies a joined matrix into zeros: more than was priced)", false},
	{"keep-base-inputs", "false", "true", " (litgpt pins a bitsandbytes that keeps them: more than was priced)", false},
	{"optimizer", "adamw-fused", "adamw", " (fine-tuning steps with foreach: more than was priced)", false},
	{NULL, NULL, NULL, NULL, false},
};

/* composer/optim/decoupled_weight_decay.py steps tensor by tensor */
static const struct emit_cost foundry_costs[] = {
	{"optimizer", "adamw", "adamw-loop", "", true},
	{"optimizer", "adamw-fused", "adamw-loop", " (DecoupledAdamW steps tensor by tensor: more than was priced)", false},
	{NULL, NULL, NULL, NULL, false},
};

/* openrlhf/utils/deepspeed/deepspeed.py create_optimizer: FusedAdam, or DeepSpeedCPUAdam on the host */
static const struct emit_cost rlhf_costs[] = {
	{"optimizer", "adamw", "adamw-fused", "", true},
	{NULL, NULL, NULL, NULL, false},
};

/* verl/workers load models with flash_attention_2; Megatron-core steps with its fused Adam */
static const struct emit_cost verl_costs[] = {
	/* log-probabilities are flash_attn's losses (verl/utils/torch_functional.py) */
	{"loss", "plain", "flash", "", true},
	{"attn", "sdpa", "flash", "", true},
	{"attn", "eager", "flash", "", true},
	{"optimizer", "adamw-fused", "adamw", " (torch.optim.AdamW steps with foreach: more than was priced)", false},
	{"optimizer", "adamw", "adamw-fused", "", true},
	{NULL, NULL, NULL, NULL, false},
};

const struct emit_target emit_targets[] = {
	{{"trl", "TRL's YAML (trl sft --config FILE)", "TRL 1.10, transformers 5.12"},
	 "trl", "plan.yaml", fill_trl, write_trl, NULL, "# ", "gpus nodes allocator " HOST, "dataset_name", NULL, trl_costs},
	{{"trainer", "TRL's command line", "TRL 1.10, transformers 5.12"},
	 "trl", "plan.sh", fill_trl, write_trl_command, NULL, "# ", "gpus nodes allocator " HOST,
	 "--dataset_name", NULL, trl_costs},
	{{"hf-trainer", "options of a script around transformers' Trainer", "transformers 5.12, PEFT 0.18"},
	 "hf-trainer", "plan.sh", fill_trainer, emit_options, NULL, "# ", "gpus nodes allocator " HOST,
	 "the script and its data", NULL, liger_costs},
	{{"python", "keyword arguments: from_pretrained, LoraConfig, SFTConfig", "TRL 1.10, PEFT 0.18"},
	 "python", "plan.py", fill_python, emit_keywords, NULL, "# ", "gpus nodes allocator " HOST,
	 "the data set, and a trainer that takes these", NULL, liger_costs},
	{{"accelerate", "accelerate's YAML (accelerate launch --config_file FILE)", "accelerate 1.10"},
	 "accelerate", "plan.yaml", fill_accelerate, emit_yaml, NULL, "# ",
	 TRAINERS "micro-batch grad-accum seq-len packing precision attn grad-ckpt optimizer loss liger-kernels lora-r lora-targets "
	 "lora-dropout base-weights allocator objective use-reentrant offload-optimizer kbit-prepare double-quant "
	 "autocast-adapter-dtype reduce-bucket-size max-live-parameters prefetch-bucket-size param-persistence-threshold "
	 "sub-group-size " HOST, NULL, NULL, NULL},
	{{"deepspeed", "DeepSpeed's JSON", "DeepSpeed 0.17"},
	 "deepspeed", "plan.json", fill_deepspeed, emit_json, NULL, NULL,
	 TRAINERS "gpus nodes seq-len packing attn grad-ckpt optimizer loss liger-kernels lora-r lora-targets lora-dropout base-weights "
	 "allocator objective use-reentrant kbit-prepare double-quant autocast-adapter-dtype " HOST, NULL, NULL, NULL},
	{{"axolotl", "axolotl's YAML", "axolotl 0.12"},
	 "axolotl", "plan.yaml", fill_axolotl, write_axolotl, NULL, "# ", "gpus nodes allocator " HOST,
	 "datasets", NULL, axolotl_costs},
	{{"llamafactory", "LLaMA-Factory's YAML", "LLaMA-Factory 0.9.4"},
	 "llamafactory", "plan.yaml", fill_llamafactory, write_llamafactory, NULL, "# ", "gpus nodes allocator " HOST,
	 "dataset, template", NULL, factory_costs},
	{{"ms-swift", "ms-swift's command line", "ms-swift 4.0"},
	 "ms-swift", "plan.sh", fill_ms_swift, write_ms_swift, NULL, "# ", HOST,
	 "--dataset", NULL, factory_costs},
	{{"torchtune", "overrides of a torchtune recipe", "torchtune 0.6"},
	 "torchtune", "plan.sh", fill_torchtune, write_torchtune, NULL, "# ", "attn allocator engine zero " HOST,
	 "paths of the checkpoint and its tokenizer, where they are not the config's", NULL, tune_costs},
	{{"torchtitan", "torchtitan's TOML", "torchtitan 238fa99"},
	 "torchtitan", "plan.toml", fill_torchtitan, emit_toml, NULL, "# ",
	 "gpus nodes allocator attn grad-accum " HOST,
	 "[model] name, flavor and hf_assets_path, [training] dataset", NULL, titan_costs},
	{{"litgpt", "litgpt's YAML (litgpt finetune_lora --config FILE)", "litgpt 0.5"},
	 "litgpt", "plan.yaml", fill_litgpt, write_litgpt, NULL, "# ", "grad-accum allocator " HOST,
	 "data", NULL, litgpt_costs},
	{{"llm-foundry", "llm-foundry's YAML (composer train.py FILE)", "llm-foundry 0.20"},
	 "llm-foundry", "plan.yaml", fill_llm_foundry, write_llm_foundry, NULL, "# ", "gpus nodes grad-accum " HOST,
	 "train_loader.dataset, eval_loader, scheduler, max_duration", NULL, foundry_costs},
	{{"openrlhf", "OpenRLHF's command line", "OpenRLHF 3c3be62"},
	 "openrlhf", "plan.sh", fill_openrlhf, write_openrlhf, NULL, "# ", "grad-accum allocator " HOST,
	 "--data.dataset or --data.prompt_dataset (for PPO and GRPO on several nodes: a Ray cluster)", NULL, rlhf_costs},
	{{"verl", "verl's overrides (main_ppo, fsdp_sft_trainer)", "verl b178a3c"},
	 "verl", "plan.sh", fill_verl, write_verl, NULL, "# ", "grad-accum allocator " HOST,
	 "data.train_files, data.val_files, data.train_batch_size of prompts, the rollout engine's share of the cards (on several nodes: a Ray cluster)", NULL, verl_costs},
	{{"megatron", "Megatron-LM's arguments", "Megatron-LM core 0.14"},
	 "megatron-lm", "plan.sh", fill_megatron, write_megatron, NULL, "# ", "gpus nodes allocator grad-accum " HOST,
	 "the architecture (--num-layers, --hidden-size, ...), tokenizer and data",
	 "--data-path in place of --mock-data, --lr and --train-iters as they should be; --rotary-base and its scaling where "
	 "they are not the model's", megatron_costs},
	{{"torchrun", "a torchrun line with its environment", "TRL 1.10, transformers 5.12"},
	 "trl", "plan.sh", fill_trl, write_torchrun, NULL, "# ", HOST,
	 "--dataset_name", NULL, trl_costs},
	{{"slurm", "a batch script for sbatch", "TRL 1.10, transformers 5.12"},
	 "trl", "plan.sh", fill_trl, write_slurm, NULL, "# ", HOST,
	 "--dataset_name", NULL, trl_costs},
	{{"skypilot", "a SkyPilot task", "SkyPilot 0.9.2, TRL 1.10"},
	 "trl", "plan.sh", fill_trl, write_skypilot, write_torchrun, "# ", HOST,
	 "--dataset_name", NULL, trl_costs},
	{{"dstack", "a dstack task", "dstack 0.19, TRL 1.10"},
	 "trl", "plan.sh", fill_trl, write_dstack, write_torchrun, "# ", HOST,
	 "--dataset_name", NULL, trl_costs},
	{{NULL, NULL, NULL}, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};
