/* The table of knobs: names, ranges, defaults, sentences and sources.  One row here is an option,
 * an axis and a column.  What a knob needs or excludes stands in rules.c. */
#include <string.h>

#include "oomplan/option.h"
#include "plan/defaults.h"
#include "step/optimizers.h"

OOM_CHOICE_LIST(static, tasks, OOM_TASKS)
OOM_CHOICE_LIST(static, precisions, OOM_PRECISIONS)
OOM_CHOICE_LIST(static, attentions, OOM_ATTENTIONS)
OOM_CHOICE_LIST(static, checkpointings, OOM_CHECKPOINTINGS)
OOM_CHOICE_LIST(static, scans, OOM_SCANS)
OOM_CHOICE_LIST(static, losses, OOM_LOSSES)
OOM_CHOICE_LIST(static, allocators, OOM_ALLOCATORS)
OOM_CHOICE_LIST(static, engines, OOM_ENGINES)
OOM_CHOICE_LIST(static, pp_schedules, OOM_PP_SCHEDULES)
OOM_CHOICE_LIST(static, cp_comms, OOM_CP_COMMS)
OOM_CHOICE_LIST(static, offloads, OOM_OFFLOADS)

#define KNOB(n, col, field) .name = n, .column = col, .offset = offsetof(struct oom_plan, field)
#define WORD(list, d) .kind = OOM_OPTION_CHOICE, .metavar = "WORD", .choice = list, .def = d
#define COUNT(lo, hi, d) .kind = OOM_OPTION_COUNT, .metavar = "N", .min = lo, .max = hi, .def = d
#define REAL(word, lo, hi, d) \
	.kind = OOM_OPTION_REAL, .metavar = word, .min = lo, .max = hi, .def = d
#define SHARE(word, hi, d) REAL(word, 0, hi, d), .percent = true
#define FLAG(d) .kind = OOM_OPTION_FLAG, .max = 1, .def = d
/* transformers fills in a value of its own for the word "auto" */
#define OR_AUTO .automatic = true
#define HF "transformers TrainingArguments"
#define MEGATRON "Megatron-LM"
#define ZERO_CONFIG "DeepSpeed zero/config.py"

static const struct oom_option knobs[] = {
	{KNOB("task", "task", task), WORD(tasks, OOM_TASK_AUTO),
	 .summary = "what the model is trained for", .setting = "AutoModelFor...",
	 .source = "config.json"},
	{KNOB("micro-batch", "micro_batch", micro_batch), COUNT(1, 1048576, 8),
	 .summary = "sequences in one forward pass on one GPU",
	 .setting = "per_device_train_batch_size", .source = HF},
	{KNOB("global-batch", "global_batch", global_batch), COUNT(0, 1e9, 0),
	 .summary = "sequences an optimizer step sees (0: micro-batch x accumulation x GPUs)",
	 .setting = "", .source = "playbook M5"},
	{KNOB("grad-accum", "grad_accum", grad_accum), COUNT(1, 1e6, 1),
	 .summary = "micro-steps per optimizer step", .setting = "gradient_accumulation_steps",
	 .source = HF},
	{KNOB("seq-len", "seq_len", seq_len), COUNT(0, 1e8, 1024),
	 .summary = "tokens per sequence", .setting = "max_length", .source = "tokenizer"},
	{KNOB("tgt-len", "tgt_len", tgt_len), COUNT(0, 1e8, 0),
	 .summary = "decoder tokens (0: as seq-len)", .setting = "max_target_length",
	 .source = "Seq2SeqTrainer"},
	{KNOB("image-size", "image_size", image_size), COUNT(0, 65536, 0),
	 .summary = "pixels per side (0: the config's)", .setting = "image_size",
	 .source = "config.json"},
	{KNOB("images", "images", images), COUNT(0, 4096, 0),
	 .summary = "images per sample (vision-language models; 0: text alone)",
	 .setting = "pixel_values", .source = "processor"},
	{KNOB("num-labels", "num_labels", num_labels), COUNT(0, 1e6, 0),
	 .summary = "classes (0: the config's)", .setting = "num_labels", .source = "config.json"},
	{KNOB("num-layers", "num_layers", num_layers), COUNT(0, 2000, 0),
	 .summary = "depth instead of the config's (0: the config's)",
	 .setting = "num_hidden_layers", .source = "config.json"},
	{KNOB("padding-mask", "padding_mask", padding_mask), FLAG(0),
	 .summary = "batches really hold padding, so that a mask reaches attention",
	 .setting = "DataCollatorWithPadding", .source = "transformers masking_utils.py"},
	{KNOB("precision", "precision", precision), WORD(precisions, OOM_FP32),
	 .summary = "number format of weights and computation", .setting = "bf16=True",
	 .source = HF},
	{KNOB("attn", "attn", attn), WORD(attentions, OOM_ATTN_SDPA),
	 .summary = "attention implementation", .setting = "attn_implementation",
	 .source = "transformers integrations"},
	{KNOB("grad-ckpt", "grad_ckpt", grad_ckpt), WORD(checkpointings, OOM_CKPT_NONE),
	 .summary = "activation checkpointing", .setting = "gradient_checkpointing",
	 .source = HF},
	{KNOB("scan", "scan", scan), WORD(scans, OOM_SCAN_ASSOCIATIVE),
	 .summary = "how Mamba and Falcon Mamba run their recurrence", .setting = "",
	 .source = "transformers modeling_mamba.py"},
	{KNOB("optimizer", "optimizer", optimizer), WORD(oom_optimizer_choice, 1),
	 .summary = "optimizer", .setting = "optim", .source = HF},
	{KNOB("lora-r", "lora_r", lora_r), COUNT(0, 65536, 0),
	 .summary = "LoRA rank (0: full fine-tuning)", .setting = "LoraConfig(r=)",
	 .source = "PEFT"},
	{KNOB("lora-targets", "lora_targets", lora_targets), .kind = OOM_OPTION_NAMES,
	 .metavar = "NAMES",
	 .summary = "modules that get adapters: all-linear, or names joined by + or commas",
	 .setting = "LoraConfig(target_modules=)", .source = "PEFT"},
	{KNOB("lora-dropout", "lora_dropout", lora_dropout), SHARE("P", 0.99, 0),
	 .summary = "dropout before the adapters", .setting = "LoraConfig(lora_dropout=)",
	 .source = "PEFT"},
	{KNOB("qlora", "qlora", qlora), FLAG(0), .summary = "NF4 base weights under the adapters",
	 .setting = "BitsAndBytesConfig(load_in_4bit=True)", .source = "arXiv:2305.14314"},
	{KNOB("kbit-prepare", "kbit_prepare", kbit_prepare), FLAG(0),
	 .summary = "prepare_model_for_kbit_training: the rest of the base in fp32",
	 .setting = "prepare_model_for_kbit_training", .source = "PEFT utils/other.py"},
	{KNOB("double-quant", "double_quant", double_quant), FLAG(1),
	 .summary = "quantise the 4-bit scales too", .setting = "bnb_4bit_use_double_quant",
	 .source = "arXiv:2305.14314"},
	{KNOB("loss", "fused_ce", fused_ce), WORD(losses, OOM_LOSS_PLAIN),
	 .summary = "head and loss implementation", .setting = "use_liger_kernel", .source = HF},
	{KNOB("convert-outputs-fp32", "convert_outputs_fp32", convert_outputs_fp32), FLAG(0),
	 .summary = "accelerate's wrapper that upcasts model outputs",
	 .setting = "Accelerator.prepare", .source = "accelerate operations.py"},
	{KNOB("allocator", "allocator", allocator), WORD(allocators, OOM_ALLOC_NATIVE),
	 .summary = "CUDA caching allocator", .setting = "PYTORCH_CUDA_ALLOC_CONF",
	 .source = "PyTorch CUDA notes"},
	{KNOB("eval-accumulation", "eval_accumulation", eval_accumulation), COUNT(0, 1e6, 0),
	 .summary = "evaluation batches whose logits pile up on the GPU: eval_accumulation_steps, "
		    "or all of the evaluation set without it, once compute_metrics is given (0: "
		    "none)",
	 .setting = "eval_accumulation_steps", .source = HF},
	{KNOB("compute-capability", "compute_capability", compute_capability),
	 REAL("X.Y", 0, 99, 0),
	 .summary = "decides attention kernels, cuBLAS workspaces and context (0: the card's own, "
		    "8.0 for a card without one)",
	 .setting = "torch.cuda.get_device_capability()",
	 .source = "ATen sdp_utils.cpp, CUDABlas.cpp"},
	{KNOB("engine", "engine", engine), WORD(engines, OOM_ENGINE_HF),
	 .summary = "what runs the training", .setting = "launcher", .source = "engines"},
	{KNOB("gpus", "gpus", gpus), COUNT(1, 1e6, 1), .summary = "GPUs over all nodes",
	 .setting = "--nproc_per_node x --nnodes", .source = "torchrun"},
	{KNOB("nodes", "nodes", nodes), COUNT(1, 1e5, 1), .summary = "machines",
	 .setting = "--nnodes", .source = "torchrun"},
	{KNOB("gpus-per-node", "gpus_per_node", gpus_per_node), COUNT(0, 1024, 0),
	 .summary = "GPUs of one machine; gpus or nodes follow from it (0: gpus / nodes)",
	 .setting = "--nproc_per_node", .source = "torchrun"},
	{KNOB("zero", "zero_stage", zero_stage), COUNT(0, 3, 0),
	 .summary = "ZeRO stage (FSDP: 0 NO_SHARD, 2 SHARD_GRAD_OP, 3 FULL_SHARD)",
	 .setting = "zero_optimization.stage", .source = "arXiv:1910.02054"},
	{KNOB("tp", "tp", tp), COUNT(1, 1024, 1), .summary = "tensor-parallel degree",
	 .setting = "--tensor-model-parallel-size", .source = MEGATRON},
	{KNOB("sp", "sp", sp), FLAG(0), .summary = "sequence parallelism beside tensor parallelism",
	 .setting = "--sequence-parallel", .source = "arXiv:2205.05198"},
	{KNOB("pp", "pp", pp), COUNT(1, 1024, 1), .summary = "pipeline-parallel degree",
	 .setting = "--pipeline-model-parallel-size", .source = MEGATRON},
	{KNOB("vpp", "vpp", vpp), COUNT(1, 64, 1),
	 .summary = "model chunks a pipeline rank holds (interleaved schedule)",
	 .setting = "--num-virtual-stages-per-pipeline-rank", .source = MEGATRON},
	{KNOB("pp-schedule", "pp_schedule", pp_schedule), WORD(pp_schedules, OOM_PP_1F1B),
	 .summary = "order of a pipeline's passes", .setting = "", .source = MEGATRON},
	{KNOB("cp", "cp", cp), COUNT(1, 1024, 1), .summary = "context-parallel degree",
	 .setting = "--context-parallel-size", .source = MEGATRON},
	{KNOB("cp-comm", "cp_comm_type", cp_comm), WORD(cp_comms, OOM_CP_P2P),
	 .summary = "how context-parallel ranks exchange keys and values",
	 .setting = "--cp-comm-type", .source = MEGATRON},
	{KNOB("ep", "ep", ep), COUNT(1, 1024, 1), .summary = "expert-parallel degree",
	 .setting = "--expert-model-parallel-size", .source = MEGATRON},
	{KNOB("recompute-num-layers", "recompute_num_layers", recompute_layers), COUNT(0, 4096, 0),
	 .summary = "with full checkpointing: layers of a stage that are recomputed, the others "
		    "keep everything (0: all)",
	 .setting = "--recompute-method block --recompute-num-layers", .source = MEGATRON},
	{KNOB("moe-imbalance", "moe_imbalance", moe_imbalance), REAL("X", 1, 1024, 1),
	 .summary = "tokens the fullest expert-parallel rank gets over the mean; balanced routing "
		    "is 1, early training often 2 and more (a guess)",
	 .setting = "",
	 .source = "Megatron-LM --moe-token-dispatcher-type; formulas of pith-train and NVIDIA's "
		   "estimators leave it out"},
	{KNOB("offload-optimizer", "offload_optimizer", offload_optimizer),
	 WORD(offloads, OOM_OFFLOAD_NONE), .summary = "where optimizer state lives",
	 .setting = "offload_optimizer.device", .source = "DeepSpeed"},
	{KNOB("offload-params", "offload_params", offload_params),
	 WORD(offloads, OOM_OFFLOAD_NONE), .summary = "where parameters live",
	 .setting = "offload_param.device", .source = "DeepSpeed"},
	{KNOB("offload-activations", "offload_activations", offload_activations), FLAG(0),
	 .summary = "what the layers keep for backward waits in pinned host memory, but for two "
		    "layers",
	 .setting = "enable_activation_offloading (torchtune, TRL)",
	 .source = "torchtune training/_activation_offloading.py"},
	{KNOB("hybrid-shard", "hybrid_shard", hybrid_shard), FLAG(0),
	 .summary = "FSDP shards within a node and replicates between nodes",
	 .setting = "HYBRID_SHARD", .source = "torch.distributed.fsdp"},
	{KNOB("rank0-contexts", "rank0_contexts", rank0_contexts), FLAG(0),
	 .summary = "the node's other processes hold a CUDA context on GPU 0 too: torch.load "
		    "without map_location, a tensor made before torch.cuda.set_device",
	 .setting = "", .source = "pytorch/pytorch#49481, #23138; huggingface/peft#2193"},
	{KNOB("gradient-as-bucket-view", "gradient_as_bucket_view", bucket_view), FLAG(0),
	 .summary = "DDP gradients live in the buckets",
	 .setting = "DistributedDataParallel(gradient_as_bucket_view=)", .source = "torch DDP"},
	{KNOB("reduce-bucket-size", "reduce_bucket_size", reduce_bucket),
	 COUNT(0, 1e11, OOM_DEFAULT_REDUCE_BUCKET), OR_AUTO,
	 .summary = "elements of a ZeRO gradient bucket, or auto: hidden x hidden (transformers)",
	 .setting = "zero_optimization.reduce_bucket_size", .source = ZERO_CONFIG},
	{KNOB("max-live-parameters", "stage3_max_live_parameters", max_live_params),
	 COUNT(0, 1e12, OOM_DEFAULT_MAX_LIVE),
	 .summary = "elements ZeRO-3 keeps gathered; also the reuse distance",
	 .setting = "zero_optimization.stage3_max_live_parameters", .source = ZERO_CONFIG},
	{KNOB("prefetch-bucket-size", "stage3_prefetch_bucket_size", prefetch_bucket),
	 COUNT(0, 1e12, OOM_DEFAULT_PREFETCH), OR_AUTO,
	 .summary = "elements ZeRO-3 gathers ahead, or auto: 0.9 x hidden x hidden",
	 .setting = "zero_optimization.stage3_prefetch_bucket_size", .source = ZERO_CONFIG},
	{KNOB("param-persistence-threshold", "stage3_param_persistence_threshold", persistence),
	 COUNT(0, 1e12, OOM_DEFAULT_PERSISTENCE), OR_AUTO,
	 .summary = "parameters of fewer elements ZeRO-3 leaves whole on every rank, or auto: 10 x "
		    "hidden",
	 .setting = "zero_optimization.stage3_param_persistence_threshold", .source = ZERO_CONFIG},
	{KNOB("sub-group-size", "sub_group_size", sub_group_size),
	 COUNT(1, 1e12, OOM_DEFAULT_SUB_GROUP), .summary = "elements ZeRO-3 steps at once",
	 .setting = "zero_optimization.sub_group_size", .source = ZERO_CONFIG},
	{KNOB("dataloader-workers", "dataloader_num_workers", dataloader_workers),
	 COUNT(0, 1024, 0), .summary = "data-loader processes per GPU",
	 .setting = "dataloader_num_workers", .source = HF},
	{KNOB("prefetch-factor", "dataloader_prefetch_factor", prefetch_factor),
	 COUNT(1, 1024, OOM_DEFAULT_PREFETCH_FACTOR),
	 .summary = "batches each worker reads ahead", .setting = "dataloader_prefetch_factor",
	 .source = "torch.utils.data"},
	{KNOB("low-cpu-mem", "low_cpu_mem_usage", low_cpu_mem), FLAG(1),
	 .summary = "checkpoints are loaded one shard at a time",
	 .setting = "low_cpu_mem_usage=True", .source = "transformers modeling_utils.py"},
	{KNOB("save-sharded", "save_sharded", save_sharded), FLAG(0),
	 .summary = "checkpoints are saved by every rank, not gathered on the first",
	 .setting = "fsdp state_dict_type SHARDED_STATE_DICT", .source = "accelerate FSDP"},
	{KNOB("save-total-limit", "save_total_limit", save_total_limit), COUNT(1, 1000, 2),
	 .summary = "checkpoints kept on disk", .setting = "save_total_limit", .source = HF},
	{KNOB("margin", "margin", margin), SHARE("SHARE", 0.9, 0.02),
	 .summary = "share of the capacity kept free", .setting = "",
	 .source = "a guess: see calibrate"},
};

const struct oom_option *oom_knob_at(size_t i)
{
	return i < sizeof(knobs) / sizeof(knobs[0]) ? &knobs[i] : NULL;
}

const struct oom_option *oom_knob_find(const char *name)
{
	for (size_t i = 0; oom_knob_at(i); i++)
		if (oom_same_word(knobs[i].name, name) || oom_same_word(knobs[i].column, name))
			return &knobs[i];
	return NULL;
}
