/* The knob table: names, ranges, defaults, help and sources.  One row here is an option, an axis
 * and a column. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/defaults.h"
#include "step/optimizers.h"

#define CHOICES(name, ...) \
	static const struct oom_choice *name(size_t i) \
	{ \
		static const struct oom_choice list[] = {__VA_ARGS__}; \
		return i < sizeof(list) / sizeof(list[0]) ? &list[i] : NULL; \
	}

#define HF "transformers TrainingArguments"
CHOICES(tasks,
	{"auto", "what the config's architecture says, else the type's usual task", "config.json architectures", OOM_SCIENCE},
	{"causal-lm", "next-token prediction", "AutoModelForCausalLM", OOM_SCIENCE},
	{"masked-lm", "masked-token prediction", "AutoModelForMaskedLM", OOM_SCIENCE},
	{"seq-cls", "one label a sequence", "AutoModelForSequenceClassification", OOM_SCIENCE},
	{"image-cls", "one label an image", "AutoModelForImageClassification", OOM_SCIENCE},
	{"seq2seq", "encoder-decoder with target tokens", "AutoModelForSeq2SeqLM", OOM_SCIENCE},
	{"image-text", "text that answers images", "AutoModelForImageTextToText", OOM_SCIENCE})
CHOICES(precisions,
	{"fp32", "everything in 32 bit", HF, OOM_NUMERICS},
	{"bf16", "weights, gradients and computation in bf16, no autocast", "torch_dtype=bfloat16", OOM_NUMERICS},
	{"fp16", "weights, gradients and computation in fp16, no autocast", "torch_dtype=float16", OOM_NUMERICS},
	{"amp-bf16", "fp32 weights under bf16 autocast", HF " bf16=True", OOM_NUMERICS},
	{"amp-fp16", "fp32 weights under fp16 autocast", HF " fp16=True", OOM_NUMERICS},
	{"bf16-amp", "bf16 weights under autocast: Trainer(bf16=True) on a model loaded in bf16", HF, OOM_NUMERICS})
CHOICES(attentions,
	{"eager", "score matrices in memory", "attn_implementation=\"eager\"", OOM_EXACT},
	{"sdpa", "torch scaled_dot_product_attention", "attn_implementation=\"sdpa\"", OOM_EXACT},
	{"flash", "the flash_attn package", "attn_implementation=\"flash_attention_2\"", OOM_EXACT})
CHOICES(checkpointings,
	{"none", "every activation is kept", HF, OOM_EXACT},
	{"full", "only block inputs are kept, blocks are recomputed", HF " gradient_checkpointing=True", OOM_EXACT},
	{"selective", "attention cores are recomputed (Megatron)", "--recompute-granularity selective, arXiv:2205.05198", OOM_EXACT})
CHOICES(scans,
	{"associative", "what traced runs take (torch.compile): the larger of the two", "torch/_higher_order_ops/associative_scan.py", OOM_EXACT},
	{"loop", "over the tokens: eager PyTorch without the mamba_ssm kernels", "transformers modeling_mamba.py slow_forward", OOM_EXACT})
CHOICES(losses,
	{"plain", "logits upcast to fp32, current transformers", "transformers loss_utils.py", OOM_EXACT},
	{"fused", "chunked linear + cross-entropy (Liger)", "use_liger_kernel=True", OOM_EXACT},
	{"sliced", "logits sliced and copied once more, transformers before 4.45", "modeling_llama.py 4.44", OOM_EXACT})
CHOICES(allocators,
	{"native", "cudaMalloc segments", "PyTorch default", OOM_EXACT},
	{"expandable_segments", "segments that grow: next to no fragmentation",
	 "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", OOM_EXACT})
CHOICES(engines,
	{"hf", "plain PyTorch, HF Trainer or Lightning Fabric (DDP on several GPUs)", HF, OOM_EXACT},
	{"deepspeed", "DeepSpeed ZeRO", "deepspeed config", OOM_PLACEMENT},
	{"fsdp2", "fully_shard, torchtitan style", "torch.distributed.fsdp", OOM_PLACEMENT},
	{"fsdp1", "FullyShardedDataParallel through accelerate", "accelerate FSDP", OOM_PLACEMENT},
	{"megatron", "Megatron-LM", "Megatron-LM arguments", OOM_PLACEMENT},
	{"torchtune", "pure bf16 recipes", "torchtune recipes", OOM_NUMERICS},
	{"device-map", "one process, layers laid out over the GPUs of a node, which work in turn",
	 "device_map=\"auto\", transformers integrations/accelerate.py", OOM_PLACEMENT})
CHOICES(pp_schedules,
	{"1f1b", "one forward, one backward; interleaved where vpp is above 1", "Megatron-LM schedules.py, arXiv:2104.04473", OOM_EXACT},
	{"gpipe", "all forward passes of a step, then all backward passes", "arXiv:1811.06965", OOM_EXACT})
CHOICES(cp_comms,
	{"p2p", "ring: keys and values travel around", "--cp-comm-type p2p, arXiv:2310.01889", OOM_EXACT},
	{"a2a", "all-to-all: whole sequences of fewer heads (Ulysses)", "--cp-comm-type a2a, arXiv:2309.14509", OOM_EXACT})
CHOICES(offloads,
	{"none", "stays on the GPU", "-", OOM_EXACT},
	{"cpu", "in host memory", "DeepSpeed offload device: cpu", OOM_PLACEMENT},
	{"nvme", "on a local disk", "DeepSpeed offload device: nvme", OOM_PLACEMENT})

#define F(field) offsetof(struct oom_plan, field)
#define COUNT(n, c, lo, hi, d, f, sum, set, src) {n, c, "N", sum, set, src, OOM_KNOB_COUNT, F(f), lo, hi, d, NULL}
#define WORD(n, c, d, f, list, sum, set, src) {n, c, "WORD", sum, set, src, OOM_KNOB_CHOICE, F(f), 0, 0, d, list}
#define FLAG(n, c, d, f, sum, set, src) {n, c, "", sum, set, src, OOM_KNOB_FLAG, F(f), 0, 1, d, NULL}

/* Counts that begin here take the word "auto" too: what transformers fills in for it. */
#define AUTO OOM_COUNT_AUTO

static const struct oom_knob knobs[] = {
	WORD("task", "task", OOM_TASK_AUTO, task, tasks, "what the model is trained for",
	     "AutoModelFor...", "config.json"),
	COUNT("micro-batch", "micro_batch", 1, 1048576, 8, micro_batch,
	      "sequences in one forward pass on one GPU", "per_device_train_batch_size", HF),
	COUNT("global-batch", "global_batch", 0, 1e9, 0, global_batch,
	      "sequences an optimizer step sees (0: micro-batch x accumulation x GPUs)", "",
	      "playbook M5"),
	COUNT("grad-accum", "grad_accum", 1, 1e6, 1, grad_accum, "micro-steps per optimizer step",
	      "gradient_accumulation_steps", HF),
	COUNT("seq-len", "seq_len", 0, 1e8, 1024, seq_len, "tokens a sequence", "max_length",
	      "tokenizer"),
	COUNT("tgt-len", "tgt_len", 0, 1e8, 0, tgt_len, "decoder tokens (0: as seq-len)",
	      "max_target_length", "Seq2SeqTrainer"),
	COUNT("image-size", "image_size", 0, 65536, 0, image_size,
	      "pixels a side (0: the config's)", "image_size", "config.json"),
	COUNT("images", "images", 0, 4096, 0, images,
	      "images a sample (vision-language models; 0: text alone)", "pixel_values",
	      "processor"),
	COUNT("num-labels", "num_labels", 0, 1e6, 0, num_labels, "classes (0: the config's)",
	      "num_labels", "config.json"),
	COUNT("num-layers", "num_layers", 0, 2000, 0, num_layers,
	      "depth instead of the config's (0: the config's)", "num_hidden_layers",
	      "config.json"),
	FLAG("padding-mask", "padding_mask", 0, padding_mask,
	     "batches really hold padding, so that a mask reaches attention",
	     "DataCollatorWithPadding", "transformers masking_utils.py"),
	WORD("precision", "precision", OOM_FP32, precision, precisions,
	     "number format of weights and computation", "bf16=True", HF),
	WORD("attn", "attn", OOM_ATTN_SDPA, attn, attentions, "attention implementation",
	     "attn_implementation", "transformers integrations"),
	WORD("grad-ckpt", "grad_ckpt", OOM_CKPT_NONE, grad_ckpt, checkpointings,
	     "activation checkpointing", "gradient_checkpointing", HF),
	WORD("scan", "scan", OOM_SCAN_ASSOCIATIVE, scan, scans,
	     "how Mamba and Falcon Mamba run their recurrence", "",
	     "transformers modeling_mamba.py"),
	WORD("optimizer", "optimizer", 1, optimizer, oom_optimizer_choice, "optimizer", "optim",
	     HF),
	COUNT("lora-r", "lora_r", 0, 65536, 0, lora_r, "LoRA rank (0: full fine-tuning)",
	      "LoraConfig(r=)", "PEFT"),
	{"lora-targets", "lora_targets", "NAMES",
	 "modules that get adapters: all-linear, or names joined by +",
	 "LoraConfig(target_modules=)", "PEFT", OOM_KNOB_TEXT, F(lora_targets), 0, 0, 0, NULL},
	{"lora-dropout", "lora_dropout", "P", "dropout before the adapters",
	 "LoraConfig(lora_dropout=)", "PEFT", OOM_KNOB_REAL, F(lora_dropout), 0, 0.99, 0, NULL},
	FLAG("qlora", "qlora", 0, qlora, "NF4 base weights under the adapters",
	     "BitsAndBytesConfig(load_in_4bit=True)", "arXiv:2305.14314"),
	FLAG("kbit-prepare", "kbit_prepare", 0, kbit_prepare,
	     "prepare_model_for_kbit_training: the rest of the base in fp32",
	     "prepare_model_for_kbit_training", "PEFT utils/other.py"),
	FLAG("double-quant", "double_quant", 1, double_quant, "quantise the 4-bit scales too",
	     "bnb_4bit_use_double_quant", "arXiv:2305.14314"),
	WORD("loss", "fused_ce", OOM_LOSS_PLAIN, fused_ce, losses, "head and loss implementation",
	     "use_liger_kernel", HF),
	FLAG("convert-outputs-fp32", "convert_outputs_fp32", 0, convert_outputs_fp32,
	     "accelerate's wrapper that upcasts model outputs", "Accelerator.prepare",
	     "accelerate operations.py"),
	WORD("allocator", "allocator", OOM_ALLOC_NATIVE, allocator, allocators,
	     "CUDA caching allocator", "PYTORCH_CUDA_ALLOC_CONF", "PyTorch CUDA notes"),
	COUNT("eval-accumulation", "eval_accumulation", 0, 1e6, 0, eval_accumulation,
	      "evaluation batches whose logits pile up on the GPU: eval_accumulation_steps, or all "
	      "of the evaluation set without it, "
	      "once compute_metrics is given (0: none)",
	      "eval_accumulation_steps", HF),
	{"compute-capability", "compute_capability", "X.Y",
	 "decides attention kernels, cuBLAS workspaces and context (0: the card's own, 8.0 for a "
	 "card without one)",
	 "torch.cuda.get_device_capability()", "ATen sdp_utils.cpp, CUDABlas.cpp", OOM_KNOB_REAL,
	 F(compute_capability), 0, 99, 0, NULL},
	WORD("engine", "engine", OOM_ENGINE_HF, engine, engines, "what runs the training",
	     "launcher", "engines"),
	COUNT("gpus", "gpus", 1, 1e6, 1, gpus, "GPUs over all nodes", "--nproc_per_node x --nnodes",
	      "torchrun"),
	COUNT("nodes", "nodes", 1, 1e5, 1, nodes, "machines", "--nnodes", "torchrun"),
	COUNT("gpus-per-node", "gpus_per_node", 0, 1024, 0, gpus_per_node,
	      "GPUs of one machine; gpus or nodes follow from it (0: gpus / nodes)",
	      "--nproc_per_node", "torchrun"),
	COUNT("zero", "zero_stage", 0, 3, 0, zero_stage,
	      "ZeRO stage (FSDP: 0 NO_SHARD, 2 SHARD_GRAD_OP, 3 FULL_SHARD)",
	      "zero_optimization.stage", "arXiv:1910.02054"),
	COUNT("tp", "tp", 1, 1024, 1, tp, "tensor-parallel degree", "--tensor-model-parallel-size",
	      "Megatron-LM"),
	FLAG("sp", "sp", 0, sp, "sequence parallelism beside tensor parallelism",
	     "--sequence-parallel", "arXiv:2205.05198"),
	COUNT("pp", "pp", 1, 1024, 1, pp, "pipeline-parallel degree",
	      "--pipeline-model-parallel-size", "Megatron-LM"),
	COUNT("vpp", "vpp", 1, 64, 1, vpp,
	      "model chunks a pipeline rank holds (interleaved schedule)",
	      "--num-virtual-stages-per-pipeline-rank", "Megatron-LM"),
	WORD("pp-schedule", "pp_schedule", 0, pp_schedule, pp_schedules,
	     "order of a pipeline's passes", "", "Megatron-LM"),
	COUNT("cp", "cp", 1, 1024, 1, cp, "context-parallel degree", "--context-parallel-size",
	      "Megatron-LM"),
	WORD("cp-comm", "cp_comm_type", 0, cp_comm, cp_comms,
	     "how context-parallel ranks exchange keys and values", "--cp-comm-type",
	     "Megatron-LM"),
	COUNT("ep", "ep", 1, 1024, 1, ep, "expert-parallel degree", "--expert-model-parallel-size",
	      "Megatron-LM"),
	COUNT("recompute-num-layers", "recompute_num_layers", 0, 4096, 0, recompute_layers,
	      "with full checkpointing: layers of a stage that are recomputed, the others keep "
	      "everything (0: all)",
	      "--recompute-method block --recompute-num-layers", "Megatron-LM"),
	{"moe-imbalance", "moe_imbalance", "X",
	 "tokens the fullest expert-parallel rank gets over the mean; balanced routing is 1, early "
	 "training often 2 and more (a guess)",
	 "",
	 "Megatron-LM --moe-token-dispatcher-type; formulas of pith-train and NVIDIA's estimators "
	 "leave it out",
	 OOM_KNOB_REAL, F(moe_imbalance), 1, 1024, 1, NULL},
	WORD("offload-optimizer", "offload_optimizer", OOM_OFFLOAD_NONE, offload_optimizer,
	     offloads, "where optimizer state lives", "offload_optimizer.device", "DeepSpeed"),
	WORD("offload-params", "offload_params", OOM_OFFLOAD_NONE, offload_params, offloads,
	     "where parameters live", "offload_param.device", "DeepSpeed"),
	FLAG("offload-activations", "offload_activations", 0, offload_activations,
	     "what the layers keep for backward waits in pinned host memory, but for two layers",
	     "enable_activation_offloading (torchtune, TRL)",
	     "torchtune training/_activation_offloading.py"),
	FLAG("hybrid-shard", "hybrid_shard", 0, hybrid_shard,
	     "FSDP shards within a node and replicates between nodes", "HYBRID_SHARD",
	     "torch.distributed.fsdp"),
	FLAG("rank0-contexts", "rank0_contexts", 0, rank0_contexts,
	     "the node's other processes hold a CUDA context on GPU 0 too: torch.load without "
	     "map_location, a tensor made before torch.cuda.set_device",
	     "", "pytorch/pytorch#49481, #23138; huggingface/peft#2193"),
	FLAG("gradient-as-bucket-view", "gradient_as_bucket_view", 0, bucket_view,
	     "DDP gradients live in the buckets",
	     "DistributedDataParallel(gradient_as_bucket_view=)", "torch DDP"),
	COUNT("reduce-bucket-size", "reduce_bucket_size", AUTO, 1e11, OOM_DEFAULT_REDUCE_BUCKET,
	      reduce_bucket,
	      "elements of a ZeRO gradient bucket, or auto: hidden x hidden (transformers)",
	      "zero_optimization.reduce_bucket_size", "DeepSpeed zero/config.py"),
	COUNT("max-live-parameters", "stage3_max_live_parameters", 0, 1e12, OOM_DEFAULT_MAX_LIVE,
	      max_live_params,
	      "elements ZeRO-3 keeps gathered; also the reuse distance",
	      "zero_optimization.stage3_max_live_parameters", "DeepSpeed zero/config.py"),
	COUNT("prefetch-bucket-size", "stage3_prefetch_bucket_size", AUTO, 1e12,
	      OOM_DEFAULT_PREFETCH, prefetch_bucket, "elements ZeRO-3 gathers ahead, or auto: 0.9 x hidden x hidden",
	      "zero_optimization.stage3_prefetch_bucket_size", "DeepSpeed zero/config.py"),
	COUNT("param-persistence-threshold", "stage3_param_persistence_threshold", AUTO, 1e12,
	      OOM_DEFAULT_PERSISTENCE, persistence,
	      "parameters of fewer elements ZeRO-3 leaves whole on every rank, or auto: "
	      "10 x hidden",
	      "zero_optimization.stage3_param_persistence_threshold", "DeepSpeed zero/config.py"),
	COUNT("sub-group-size", "sub_group_size", 1, 1e12, OOM_DEFAULT_SUB_GROUP, sub_group_size,
	      "elements ZeRO-3 steps at once", "zero_optimization.sub_group_size",
	      "DeepSpeed zero/config.py"),
	COUNT("dataloader-workers", "dataloader_num_workers", 0, 1024, 0, dataloader_workers,
	      "data-loader processes a GPU", "dataloader_num_workers", HF),
	COUNT("prefetch-factor", "dataloader_prefetch_factor", 1, 1024,
	      OOM_DEFAULT_PREFETCH_FACTOR, prefetch_factor,
	      "batches each worker reads ahead", "dataloader_prefetch_factor", "torch.utils.data"),
	FLAG("low-cpu-mem", "low_cpu_mem_usage", 1, low_cpu_mem,
	     "checkpoints are loaded a shard at a time", "low_cpu_mem_usage=True",
	     "transformers modeling_utils.py"),
	FLAG("save-sharded", "save_sharded", 0, save_sharded,
	     "checkpoints are saved by every rank, not gathered on the first",
	     "fsdp state_dict_type SHARDED_STATE_DICT", "accelerate FSDP"),
	COUNT("save-total-limit", "save_total_limit", 1, 1000, 2, save_total_limit,
	      "checkpoints kept on disk", "save_total_limit", HF),
	{"margin", "margin", "SHARE", "share of the capacity kept free", "",
	 "a guess: see calibrate", OOM_KNOB_REAL, F(margin), 0, 0.9, 0.02, NULL},
};

const struct oom_knob *oom_knob_at(size_t i)
{
	return i < sizeof(knobs) / sizeof(knobs[0]) ? &knobs[i] : NULL;
}

static bool same_word(const char *a, const char *b)
{
	for (; *a && *b; a++, b++)
		if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
			return false;
	return !*a && !*b;
}

const struct oom_knob *oom_knob_find(const char *name)
{
	for (size_t i = 0; oom_knob_at(i); i++)
		if (same_word(knobs[i].name, name) || same_word(knobs[i].column, name))
			return &knobs[i];
	return NULL;
}

int64_t *oom_plan_field(struct oom_plan *plan, const struct oom_knob *k)
{
	return (int64_t *)(void *)((char *)plan + k->offset);
}

double oom_capability(const struct oom_plan *p)
{
	return p->compute_capability > 0 ? p->compute_capability : 8;
}

const char *oom_plan_options(const struct oom_plan *from, const struct oom_plan *to, char *buf,
			     size_t size)
{
	size_t used = 0;

	buf[0] = 0;
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_knob *k = oom_knob_at(i);
		char a[140], b[140];
		int n;

		oom_plan_get(to, k, a, sizeof(a));
		oom_plan_get(from, k, b, sizeof(b));
		if (!strcmp(a, b))
			continue;
		if (k->kind == OOM_KNOB_FLAG)
			n = snprintf(buf + used, size - used, "%s--%s%s", used ? " " : "",
				     strcmp(a, "true") ? "no-" : "", k->name);
		else
			n = snprintf(buf + used, size - used, "%s--%s=%s", used ? " " : "", k->name,
				     a);
		used += (size_t)n < size - used ? (size_t)n : size - used - 1;
	}
	return buf;
}

int64_t oom_plan_data_parallel(const struct oom_plan *p)
{
	const int64_t model = p->engine == OOM_ENGINE_DEVICE_MAP ? p->gpus : p->tp * p->pp * p->cp;

	return p->gpus > model ? p->gpus / model : 1;
}

void oom_plan_settle(struct oom_plan *p)
{
	if (!p->gpus_per_node)
		return;
	if (p->gpus == 1)
		p->gpus = p->nodes * p->gpus_per_node;
	else if (p->nodes == 1 && p->gpus % p->gpus_per_node == 0)
		p->nodes = p->gpus / p->gpus_per_node;
}

struct oom_plan oom_plan_default(void)
{
	struct oom_plan p;

	memset(&p, 0, sizeof(p));
	for (size_t i = 0; oom_knob_at(i); i++) {
		if (knobs[i].kind == OOM_KNOB_REAL)
			*(double *)(void *)((char *)&p + knobs[i].offset) = knobs[i].def;
		else if (knobs[i].kind != OOM_KNOB_TEXT)
			*oom_plan_field(&p, &knobs[i]) = (int64_t)knobs[i].def;
	}
	return p;
}

static enum oom_status set_choice(struct oom_plan *p, const struct oom_knob *k, const char *text,
				  struct oom_error *err)
{
	const char *words[64] = {NULL}, *near;
	char list[300] = "";
	size_t used = 0;

	for (size_t i = 0; k->choice(i) && i < 63; i++) {
		int n;

		if (same_word(k->choice(i)->name, text)) {
			*oom_plan_field(p, k) = (int64_t)i;
			return OOM_OK;
		}
		words[i] = k->choice(i)->name;
		n = snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", words[i]);
		used += n > 0 && (size_t)n < sizeof(list) - used ? (size_t)n : 0;
	}
	/* True / False where a runs file has a switch for what is a choice here */
	if (!strcasecmp(text, "true") || !strcasecmp(text, "false")) {
		*oom_plan_field(p, k) = !strcasecmp(text, "true");
		return OOM_OK;
	}
	near = oom_nearest(text, words);
	return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%s\" is none of: %s%s%s%s", k->name, text,
			     list, near ? " (did you mean \"" : "", near ? near : "",
			     near ? "\"?)" : "");
}

static enum oom_status set_count(struct oom_plan *p, const struct oom_knob *k, const char *text,
				 struct oom_error *err)
{
	char *end;
	double v;

	if (k->min < 0 && !strcasecmp(text, "auto")) {
		*oom_plan_field(p, k) = OOM_COUNT_AUTO;
		return OOM_OK;
	}
	errno = 0;
	v = strtod(text, &end);
	if (end != text && (*end == 'k' || *end == 'K' || *end == 'M')) {
		double unit = *end == 'M' ? 1e6 : 1e3;

		end++;
		if (*end == 'i') {
			unit = unit > 1e5 ? 1048576 : 1024;
			end++;
		}
		v *= unit;
	}
	if (end == text || *end || errno || v != floor(v) || isnan(v))
		return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%s\" is not a whole number",
				     k->name, text);
	if (v < k->min || v < 0 || v > k->max)
		return oom_error_set(err, OOM_ERR_INVALID, "%s: %s is outside %.0f to %.0f",
				     k->name, text, k->min < 0 ? 0 : k->min, k->max);
	*oom_plan_field(p, k) = (int64_t)v;
	return OOM_OK;
}

enum oom_status oom_plan_set(struct oom_plan *p, const struct oom_knob *k, const char *text,
			     struct oom_error *err)
{
	static const char *const yes[] = {"1", "true", "yes", "on"}, *const no[] = {"0", "false",
										    "no", "off"};
	char *end;
	double v;

	switch (k->kind) {
	case OOM_KNOB_CHOICE: return set_choice(p, k, text, err);
	case OOM_KNOB_COUNT: return set_count(p, k, text, err);
	case OOM_KNOB_FLAG:
		for (int i = 0; i < 4; i++) {
			if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
				*oom_plan_field(p, k) = !strcasecmp(text, yes[i]);
				return OOM_OK;
			}
		}
		return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%s\" is neither true nor false",
				     k->name, text);
	case OOM_KNOB_REAL:
		v = strtod(text, &end);
		if (end != text && *end == '%') {
			v /= 100;
			end++;
		}
		if (end == text || *end || !(v >= k->min && v <= k->max))
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s: \"%s\" is not a number from %g to %g", k->name,
					     text, k->min, k->max);
		*(double *)(void *)((char *)p + k->offset) = v;
		return OOM_OK;
	case OOM_KNOB_TEXT:
		if (strlen(text) >= sizeof(p->lora_targets))
			return oom_error_set(err, OOM_ERR_INVALID, "%s: longer than %zu characters",
					     k->name, sizeof(p->lora_targets) - 1);
		strcpy((char *)p + k->offset, text);
		return OOM_OK;
	}
	return OOM_ERR_INVALID;
}

const char *oom_plan_get(const struct oom_plan *p, const struct oom_knob *k, char *buf, size_t size)
{
	const char *at = (const char *)p + k->offset;
	int64_t n;
	double d;

	switch (k->kind) {
	case OOM_KNOB_REAL:
		memcpy(&d, at, sizeof(d));
		snprintf(buf, size, "%g", d);
		break;
	case OOM_KNOB_TEXT:
		snprintf(buf, size, "%s", at);
		break;
	default:
		memcpy(&n, at, sizeof(n));
		if (k->kind == OOM_KNOB_CHOICE)
			snprintf(buf, size, "%s",
				 k->choice((size_t)n) ? k->choice((size_t)n)->name : "?");
		else if (k->kind == OOM_KNOB_FLAG)
			snprintf(buf, size, "%s", n ? "true" : "false");
		else if (k->min < 0 && n == OOM_COUNT_AUTO)
			snprintf(buf, size, "auto");
		else
			snprintf(buf, size, "%lld", (long long)n);
	}
	return buf;
}

const char *oom_class_str(enum oom_class cls)
{
	static const char *const words[] = {"exact", "numerics", "placement",
					    "changes the science"};

	return words[cls];
}
