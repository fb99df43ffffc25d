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
OOM_CHOICE_LIST(static, reentrants, OOM_REENTRANTS)
OOM_CHOICE_LIST(static, kv_repeats, OOM_KV_REPEATS)
OOM_CHOICE_LIST(static, experts, OOM_MOE_EXPERTS)
OOM_CHOICE_LIST(static, zero_grads, OOM_ZERO_GRADS)
OOM_CHOICE_LIST(static, scans, OOM_SCANS)
OOM_CHOICE_LIST(static, fp8s, OOM_FP8S)
OOM_CHOICE_LIST(static, losses, OOM_LOSSES)
OOM_CHOICE_LIST(static, ligers, OOM_LIGERS)
OOM_CHOICE_LIST(static, allocators, OOM_ALLOCATORS)
OOM_CHOICE_LIST(static, methods, OOM_METHODS)
OOM_CHOICE_LIST(static, references, OOM_REFERENCES)
OOM_CHOICE_LIST(static, rollouts, OOM_ROLLOUTS)
OOM_CHOICE_LIST(static, emas, OOM_EMAS)
OOM_CHOICE_LIST(static, evaluations, OOM_EVALUATES)
OOM_CHOICE_LIST(static, engines, OOM_ENGINES)
OOM_CHOICE_LIST(static, pp_schedules, OOM_PP_SCHEDULES)
OOM_CHOICE_LIST(static, cp_comms, OOM_CP_COMMS)
OOM_CHOICE_LIST(static, layer_impls, OOM_LAYER_IMPLS)
OOM_CHOICE_LIST(static, offloads, OOM_OFFLOADS)
OOM_CHOICE_LIST(static, bases, OOM_BASES)
OOM_CHOICE_LIST(static, adapters, OOM_ADAPTERS)
OOM_CHOICE_LIST(static, lora_biases, OOM_LORA_BIASES)

#define KNOB(n, col, field) .name = n, .column = col, .offset = offsetof(struct oom_plan, field)
#define WORD(list, d) .kind = OOM_OPTION_CHOICE, .metavar = "WORD", .choice = list, .def = d
#define COUNT(lo, hi, d) .kind = OOM_OPTION_COUNT, .metavar = "N", .min = lo, .max = hi, .def = d
#define REAL(word, lo, hi, d) \
	.kind = OOM_OPTION_REAL, .metavar = word, .min = lo, .max = hi, .def = d
#define SHARE(word, hi, d) REAL(word, 0, hi, d), .percent = true
#define SINCE(major, minor) \
	.kind = OOM_OPTION_VERSION, .metavar = "X.Y", .min = OOM_VERSION(major, minor), \
	.max = OOM_VERSION(999, 999), .def = 0
#define FLAG(d) .kind = OOM_OPTION_FLAG, .max = 1, .def = d
#define NAMES(word) .kind = OOM_OPTION_NAMES, .metavar = word
/* transformers fills in a value of its own for the word "auto" */
#define OR_AUTO .automatic = true
#define HF "transformers TrainingArguments"
#define MEGATRON "Megatron-LM"
#define STAGES "transformer_block.py get_num_layers_to_build"
#define ZERO_CONFIG "DeepSpeed zero/config.py"

/* ---- what frameworks call them ---- */

#define ALSO(...) (const struct oom_alias[]){__VA_ARGS__, {.name = NULL}}
#define MEANS(...) (const struct oom_alias_word[]){__VA_ARGS__, {NULL, NULL, NULL}}
/* another name; a flag with the knob's own words; words of its own; a switch and what it sets */
#define AS(n) {.name = n}
#define FLAG_AS(n) {.name = n, .flag = true}
#define WORDS(n, ...) {.name = n, .words = MEANS(__VA_ARGS__)}
#define SWITCH(n, told, ...) {.name = n, .flag = true, .words = MEANS(__VA_ARGS__), .note = told}
#define IGNORED(word) {word, NULL, ""}

/* transformers' bf16 and fp16 are autocast, torch_dtype is what the weights are loaded in
 * (training_args.py, modeling_utils.py): the two make one precision, in either order. */
#define AUTOCAST \
	"read as transformers' autocast: over fp32 weights, or with --torch-dtype bfloat16 over " \
	"bf16 ones"
#define WEIGHTS \
	{"bfloat16", "amp-bf16", "bf16-amp"}, {"bfloat16", NULL, "bf16"}, \
		{"bf16", "amp-bf16", "bf16-amp"}, {"bf16", NULL, "bf16"}, \
		{"float16", NULL, "fp16"}, {"fp16", NULL, "fp16"}, {"float32", "auto", "fp32"}, \
		IGNORED("float32"), {"fp32", "auto", "fp32"}, IGNORED("fp32"), IGNORED("auto")
#define FLASH {"true", NULL, "flash"}, IGNORED("false")
#define BITS {"4", NULL, "plain qlora=true"}, {"8", NULL, "int8"}, IGNORED("16"), IGNORED("32")
/* rank 8 unless one is given: LLaMA-Factory hparams/finetuning_args.py, ms-swift tuner_args.py */
#define TUNER \
	{"lora", "0", "8"}, IGNORED("lora"), {"qlora", "0", "8 qlora=true"}, \
		{"qlora", NULL, "qlora=true"}, {"full", NULL, "0"}
/* by name, or by number as accelerate's questionnaire has them (FullyShardedDataParallelPlugin) */
#define SHARDING \
	{"full_shard", NULL, "3"}, {"shard_grad_op", NULL, "2"}, {"no_shard", NULL, "0"}, \
		{"hybrid_shard", NULL, "3 hybrid-shard=true"}, {"1", NULL, "3"}, {"2", NULL, "2"}, \
		{"3", NULL, "0"}, {"4", NULL, "3 hybrid-shard=true"}

static const struct oom_option knobs[] = {
	{KNOB("task", "task", task), WORD(tasks, OOM_TASK_AUTO),
	 .summary = "what the model is trained for", .setting = "AutoModelFor...",
	 .source = "config.json",
	 .aliases = ALSO(AS("task-type"))},
	{KNOB("micro-batch", "micro_batch", micro_batch), COUNT(1, 1048576, 8),
	 .summary = "sequences in one forward pass on one GPU",
	 .setting = "per_device_train_batch_size", .source = HF,
	 .aliases = ALSO(AS("per-device-train-batch-size"), AS("micro-batch-size"),
			 AS("train-micro-batch-size-per-gpu"), AS("micro-train-batch-size"),
			 AS("local-batch-size"), AS("batch-size"))},
	{KNOB("global-batch", "global_batch", global_batch), COUNT(0, 1e9, 0),
	 .summary = "sequences an optimizer step sees (0: micro-batch x accumulation x GPUs)",
	 .setting = "", .source = "playbook M5",
	 .aliases = ALSO(AS("global-batch-size"), AS("train-batch-size"),
			 AS("global-train-batch-size"))},
	{KNOB("grad-accum", "grad_accum", grad_accum), COUNT(1, 1e6, 1),
	 .summary = "micro-steps per optimizer step", .setting = "gradient_accumulation_steps",
	 .source = HF,
	 .aliases = ALSO(AS("gradient-accumulation-steps"))},
	{KNOB("seq-len", "seq_len", seq_len), COUNT(0, 1e8, 1024),
	 .summary = "tokens per sequence", .setting = "max_length", .source = "tokenizer",
	 .aliases = ALSO(AS("max-seq-length"), AS("max-seq-len"), AS("max-length"),
			 AS("model-max-length"), AS("cutoff-len"), AS("sequence-len"),
			 AS("seq-length"), AS("block-size"))},
	{KNOB("tgt-len", "tgt_len", tgt_len), COUNT(0, 1e8, 0),
	 .summary = "decoder tokens (0: as seq-len)", .setting = "max_target_length",
	 .source = "Seq2SeqTrainer",
	 .aliases = ALSO(AS("max-target-length"), AS("decoder-seq-length"))},
	{KNOB("image-size", "image_size", image_size), COUNT(0, 65536, 0),
	 .summary = "pixels per side (0: the config's)", .setting = "image_size",
	 .source = "config.json"},
	{KNOB("images", "images", images), COUNT(0, 4096, 0),
	 .summary = "images per sample (vision-language models; 0: text alone)",
	 .setting = "pixel_values", .source = "processor"},
	{KNOB("num-labels", "num_labels", num_labels), COUNT(0, 1e6, 0),
	 .summary = "classes (0: the config's)", .setting = "num_labels", .source = "config.json",
	 .aliases = ALSO(AS("num-classes"))},
	{KNOB("num-layers", "num_layers", num_layers), COUNT(0, 2000, 0),
	 .summary = "depth instead of the config's (0: the config's)",
	 .setting = "num_hidden_layers", .source = "config.json",
	 .aliases = ALSO(AS("num-hidden-layers"))},
	{KNOB("padding-mask", "padding_mask", padding_mask), FLAG(0),
	 .summary = "batches really hold padding, so that a mask reaches attention",
	 .setting = "DataCollatorWithPadding", .source = "transformers masking_utils.py"},
	{KNOB("packing", "packing", packing), FLAG(0),
	 .summary = "several samples share a sequence: every step is as long as seq-len, and attention "
		    "is kept within each sample",
	 .setting = "SFTConfig(packing=True)", .source = "transformers masking_utils.py "
		    "find_packed_sequence_indices",
	 .aliases = ALSO(FLAG_AS("sample-packing"), FLAG_AS("padding-free"), FLAG_AS("neat-packing"),
			 FLAG_AS("packed"))},
	{KNOB("objective", "objective", objective), WORD(methods, OOM_METHOD_SFT),
	 .summary = "training objective: what the loss is computed on, and which models it needs beside "
		    "the trained one",
	 .setting = "the trainer's class", .source = "trl/trainer",
	 .aliases = ALSO(AS("rlhf-type"), AS("rl"), AS("stage"), AS("train-method"))},
	{KNOB("reference", "reference", reference), WORD(references, OOM_REF_AUTO),
	 .summary = "what the objective compares the trained model with",
	 .setting = "DPOTrainer(ref_model=)", .source = "trl/trainer/dpo_trainer.py",
	 .aliases = ALSO(SWITCH("precompute-ref-log-probs", NULL, {"true", NULL, "none"},
				IGNORED("false")))},
	{KNOB("completion-len", "completion_len", completion_len),
	 COUNT(1, 1e8, OOM_DEFAULT_COMPLETION),
	 .summary = "tokens of an answer, the last of seq-len: what an online objective takes "
		    "log-probabilities of",
	 .setting = "max_completion_length", .source = "trl/trainer/grpo_config.py",
	 .aliases = ALSO(AS("max-completion-length"), AS("max-new-tokens"), AS("response-length"),
			 AS("completion-length"))},
	{KNOB("texts", "texts", texts), COUNT(2, OOM_MOST_TEXTS, 2),
	 .summary = "texts of a sample that are compared: anchor and positive, and hard negatives",
	 .setting = "the columns of the dataset", .source = "sentence_transformers/losses"},
	{KNOB("rollouts", "rollouts", rollouts), WORD(rollouts, OOM_ROLLOUTS_AUTO),
	 .summary = "who gives the answers of an online objective",
	 .setting = "use_vllm=False", .source = "trl/trainer/grpo_config.py"},
	{KNOB("vllm-gpu-memory-utilization", "vllm_gpu_memory_utilization", vllm_share), SHARE("P", 0.99, 0),
	 .summary = "share of the card that vLLM or SGLang takes for rollouts in the training process (0: "
		    "they run elsewhere)",
	 .setting = "vllm_gpu_memory_utilization", .source = "trl/trainer/grpo_config.py",
	 .aliases = ALSO(AS("sglang-mem-fraction-static"))},
	{KNOB("vllm-sleep", "vllm_enable_sleep_mode", vllm_sleep), FLAG(0),
	 .summary = "that engine gives its share back while the model trains, and needs it beside weights and "
		    "states while it generates",
	 .setting = "vllm_enable_sleep_mode", .source = "trl/generation/vllm_generation.py"},
	{KNOB("label-smoothing", "label_smoothing_factor", label_smoothing), SHARE("P", 1, 0),
	 .summary = "Trainer's label smoothing, which makes the loss outside of the model",
	 .setting = "label_smoothing_factor", .source = "transformers trainer_pt_utils.py LabelSmoother"},
	{KNOB("keep-outputs", "keep_outputs", keep_outputs), FLAG(0),
	 .summary = "the training loop holds the model's outputs until the backward pass is done",
	 .setting = "outputs = model(**batch)", .source = "accelerate's examples"},
	{KNOB("precision", "precision", precision), WORD(precisions, OOM_AUTO_PRECISION),
	 .summary = "number format of weights and computation", .setting = "bf16=True",
	 .source = HF,
	 .aliases = ALSO(SWITCH("bf16", AUTOCAST, {"true", "bf16", "bf16-amp"},
				{"true", NULL, "amp-bf16"}, IGNORED("false")),
			 SWITCH("fp16", AUTOCAST, {"true", NULL, "amp-fp16"}, IGNORED("false")),
			 SWITCH("pure-bf16", NULL, {"true", NULL, "bf16"}, IGNORED("false")),
			 WORDS("torch-dtype", WEIGHTS), WORDS("dtype", WEIGHTS),
			 WORDS("mixed-precision", {"bf16", "bf16", "bf16-amp"},
			       {"bf16", NULL, "amp-bf16"}, {"fp16", NULL, "amp-fp16"},
			       IGNORED("no")))},
	{KNOB("fp8", "fp8", fp8), WORD(fp8s, OOM_FP8_NONE),
	 .summary = "8-bit matrix products; they make steps shorter, the bytes are priced without",
	 .setting = "", .source = "torchao, TransformerEngine",
	 .aliases = ALSO(AS("fp8-recipe"))},
	{KNOB("compile", "compile", compile), FLAG(0),
	 .summary = "torch.compile: norms, activations and the loss keep what they cannot make again, a "
		    "mask is always made, gradients come all at once (estimated)",
	 .setting = "torch_compile=True", .source = "torch/_functorch/partitioners.py",
	 .aliases = ALSO(FLAG_AS("torch-compile"))},
	{KNOB("attn", "attn", attn), WORD(attentions, OOM_ATTN_SDPA),
	 .summary = "attention implementation", .setting = "attn_implementation",
	 .source = "transformers integrations",
	 .aliases = ALSO(AS("attn-implementation"), AS("attn-impl"),
			 SWITCH("flash-attn", NULL, FLASH, {"fa2", NULL, "flash"},
				{"sdpa", NULL, "sdpa"}, {"disabled", NULL, "eager"}, IGNORED("auto")),
			 SWITCH("use-flash-attn", NULL, FLASH),
			 SWITCH("use-flash-attention-2", NULL, FLASH),
			 SWITCH("flash-attention", NULL, FLASH))},
	{KNOB("grad-ckpt", "grad_ckpt", grad_ckpt), WORD(checkpointings, OOM_CKPT_NONE),
	 .summary = "activation checkpointing", .setting = "gradient_checkpointing",
	 .source = HF,
	 .aliases = ALSO(FLAG_AS("gradient-checkpointing"), FLAG_AS("activation-checkpointing"),
			 FLAG_AS("enable-activation-checkpointing"),
			 FLAG_AS("checkpoint-activations"), AS("recompute-granularity"),
			 SWITCH("recompute-activations", NULL, {"true", NULL, "selective"}, IGNORED("false")))},
	{KNOB("ckpt-every", "ckpt_every", ckpt_every), COUNT(1, 12, 1),
	 .summary = "with checkpointing: only every n-th layer is recomputed",
	 .setting = "ac_freq", .source = "torchtune training/_activation_checkpointing.py",
	 .aliases = ALSO(AS("ac-freq"))},
	{KNOB("use-reentrant", "use_reentrant", use_reentrant), WORD(reentrants, OOM_REENTRANT_AUTO),
	 .summary = "which of torch's two ways of checkpointing; under FSDP1 with frozen blocks the "
		    "reentrant one keeps a block's input and its gradient until the backward ends",
	 .setting = "gradient_checkpointing_kwargs={\"use_reentrant\": ...}",
	 .source = "torch/utils/checkpoint.py, distributed/fsdp/_runtime_utils.py",
	 .aliases = ALSO(AS("gradient-checkpointing-use-reentrant"))},
	{KNOB("kv-repeat", "kv_repeat", kv_repeat), WORD(kv_repeats, OOM_KV_GROUPED),
	 .summary = "which attention gets keys and values copied to all query heads, where a model groups them",
	 .setting = "", .source = "transformers integrations/sdpa_attention.py; torchtune modules/attention.py"},
	{KNOB("moe-experts", "moe_experts", moe_experts), WORD(experts, OOM_EXPERTS_FUSED),
	 .summary = "how the experts of a layer are stored and run; separate ones are quantised and adapted as linear layers",
	 .setting = "", .source = "transformers 5 integrations/moe.py; modeling_mixtral.py 4.45"},
	{KNOB("scan", "scan", scan), WORD(scans, OOM_SCAN_ASSOCIATIVE),
	 .summary = "how Mamba and Falcon Mamba run their recurrence", .setting = "",
	 .source = "transformers modeling_mamba.py"},
	{KNOB("evaluates", "evaluates", evaluates), WORD(evaluations, OOM_EVALUATES_UNSAID),
	 .summary = "whether the run evaluates, so that an evaluation has to fit as well",
	 .setting = "eval_strategy", .source = HF,
	 .aliases = ALSO(AS("eval-strategy"), AS("evaluation-strategy"), FLAG_AS("do-eval"))},
	{KNOB("eval-batch", "eval_batch", eval_batch), COUNT(1, 1048576, 8),
	 .summary = "sequences of an evaluation batch on one GPU",
	 .setting = "per_device_eval_batch_size", .source = HF,
	 .aliases = ALSO(AS("per-device-eval-batch-size"), AS("eval-batch-size"))},
	{KNOB("optimizer", "optimizer", optimizer), WORD(oom_optimizer_choice, 1),
	 .summary = "optimizer", .setting = "optim", .source = HF,
	 .aliases = ALSO(AS("optim"))},
	{KNOB("optimizer-in-backward", "optimizer_in_bwd", step_in_backward), FLAG(0),
	 .summary = "each parameter is updated, and its gradient freed, as soon as the gradient is "
		    "complete",
	 .setting = "optimizer_in_bwd", .source = "torchtune training/memory.py "
		    "register_optim_in_bwd_hooks",
	 .aliases = ALSO(FLAG_AS("fuse-optimizer-step-into-bwd"))},
	{KNOB("zero-grad", "zero_grad", zero_grad), WORD(zero_grads, OOM_ZERO_GRAD_NONE),
	 .summary = "what becomes of gradients between two steps, where the engine does not keep them "
		    "itself",
	 .setting = "optimizer.zero_grad(set_to_none=...)", .source = "torch/optim/optimizer.py"},
	{KNOB("ema", "ema", ema), WORD(emas, OOM_EMA_NONE),
	 .summary = "exponential moving average of the trained weights, kept beside them",
	 .setting = "use_ema", .source = "diffusers training_utils.py; torch/optim/swa_utils.py",
	 .aliases = ALSO(FLAG_AS("use-ema"))},
	{KNOB("lora-r", "lora_r", lora_r), COUNT(0, 65536, 0),
	 .summary = "LoRA rank (0: full fine-tuning)", .setting = "LoraConfig(r=)",
	 .source = "PEFT",
	 .aliases = ALSO(AS("lora-rank"), AS("lora-dim"),
			 SWITCH("use-peft", NULL, {"true", "0", "16"}, IGNORED("true"),
			 IGNORED("false")), WORDS("finetuning-type", TUNER),
			 WORDS("train-type", TUNER), WORDS("tuner-type", TUNER),
			 WORDS("sft-type", TUNER), WORDS("adapter", TUNER))},
	{KNOB("peft-type", "peft_type", peft_type), WORD(adapters, OOM_ADAPTER_LORA),
	 .summary = "kind of adapters", .setting = "get_peft_model(PeftConfig)", .source = "PEFT"},
	{KNOB("lora-targets", "lora_targets", lora_targets), .kind = OOM_OPTION_NAMES,
	 .metavar = "NAMES",
	 .summary = "modules that get adapters: all-linear, names joined by + or commas, or a regular "
		    "expression for whole paths",
	 .setting = "LoraConfig(target_modules=)", .source = "PEFT",
	 .aliases = ALSO(AS("lora-target-modules"), AS("target-modules"), AS("lora-target"))},
	{KNOB("rank-pattern", "rank_pattern", rank_pattern), NAMES("NAME:RANK,..."),
	 .summary = "ranks of single modules, where lora-r is that of the others",
	 .setting = "LoraConfig(rank_pattern=)", .source = "PEFT tuners/lora/config.py"},
	{KNOB("layers-to-transform", "layers_to_transform", layers_to_transform),
	 .kind = OOM_OPTION_NAMES, .metavar = "NUMBERS",
	 .summary = "layers that get adapters, by number from 0 and joined by +",
	 .setting = "LoraConfig(layers_to_transform=)", .source = "PEFT tuners_utils.py"},
	{KNOB("trainable-tokens", "trainable_tokens", trainable_tokens), COUNT(0, 1048576, 0),
	 .summary = "rows of the embedding that train beside the adapters, tied heads with them",
	 .setting = "LoraConfig(trainable_token_indices=)",
	 .source = "PEFT tuners/trainable_tokens/layer.py"},
	{KNOB("lora-bias", "lora_bias", lora_bias), WORD(lora_biases, OOM_LORA_BIAS_NONE),
	 .summary = "biases that train beside the adapters", .setting = "LoraConfig(bias=)",
	 .source = "PEFT"},
	{KNOB("num-virtual-tokens", "num_virtual_tokens", virtual_tokens), COUNT(0, 65536, 0),
	 .summary = "virtual tokens before each sequence: of prompt-tuning and p-tuning",
	 .setting = "PromptTuningConfig(num_virtual_tokens=)", .source = "PEFT"},
	{KNOB("encoder-hidden-size", "encoder_hidden_size", encoder_hidden), COUNT(0, 1048576, 0),
	 .summary = "width of the network that makes p-tuning's tokens (0: the model's)",
	 .setting = "PromptEncoderConfig(encoder_hidden_size=)", .source = "PEFT tuners/p_tuning"},
	{KNOB("modules-to-save", "modules_to_save", modules_to_save), .kind = OOM_OPTION_NAMES,
	 .metavar = "NAMES",
	 .summary = "modules trained whole, as a copy, beside the adapters: heads, embeddings",
	 .setting = "LoraConfig(modules_to_save=)", .source = "PEFT utils/other.py",
	 .aliases = ALSO(AS("lora-modules-to-save"), AS("additional-target"))},
	{KNOB("exclude-modules", "exclude_modules", exclude_modules), .kind = OOM_OPTION_NAMES,
	 .metavar = "NAMES", .summary = "of the modules that lora-targets names, those left out",
	 .setting = "LoraConfig(exclude_modules=)", .source = "PEFT"},
	{KNOB("lora-dropout", "lora_dropout", lora_dropout), SHARE("P", 0.99, 0),
	 .summary = "dropout before the adapters", .setting = "LoraConfig(lora_dropout=)",
	 .source = "PEFT",
	 .aliases = ALSO(AS("lora-dropout-p"))},
	{KNOB("use-dora", "use_dora", use_dora), FLAG(0),
	 .summary = "DoRA: the adapters' directions and magnitudes are trained separately",
	 .setting = "LoraConfig(use_dora=True)", .source = "arXiv:2402.09353",
	 .aliases = ALSO(FLAG_AS("peft-use-dora"), FLAG_AS("lora-use-dora"))},
	{KNOB("autocast-adapter-dtype", "autocast_adapter_dtype", adapter_fp32), FLAG(1),
	 .summary = "adapters of a 16-bit base are kept in fp32, as PEFT does",
	 .setting = "get_peft_model(autocast_adapter_dtype=)", .source = "PEFT peft_model.py"},
	{KNOB("qlora", "qlora", qlora), FLAG(0), .summary = "NF4 base weights under the adapters",
	 .setting = "BitsAndBytesConfig(load_in_4bit=True)", .source = "arXiv:2305.14314",
	 .aliases = ALSO(FLAG_AS("load-in-4bit"))},
	{KNOB("base-weights", "base_weights", base_weights), WORD(bases, OOM_BASE_PLAIN),
	 .summary = "how layers of the frozen base are stored",
	 .setting = "BitsAndBytesConfig", .source = "transformers quantizers",
	 .aliases = ALSO(SWITCH("load-in-8bit", NULL, {"true", NULL, "int8"}, IGNORED("false")),
			 WORDS("quantization-bit", BITS), WORDS("bits", BITS))},
	{KNOB("kbit-prepare", "kbit_prepare", kbit_prepare), FLAG(0),
	 .summary = "prepare_model_for_kbit_training: the rest of the base in fp32",
	 .setting = "prepare_model_for_kbit_training", .source = "PEFT utils/other.py"},
	{KNOB("keep-base-inputs", "keep_base_inputs", keep_base_inputs), FLAG(0),
	 .summary = "frozen 4-bit layers keep their inputs for a backward pass that does not need them",
	 .setting = "", .source = "bitsandbytes before 0.43.2, autograd/_functions.py MatMul4Bit"},
	{KNOB("double-quant", "double_quant", double_quant), FLAG(1),
	 .summary = "quantise the 4-bit scales too", .setting = "bnb_4bit_use_double_quant",
	 .source = "arXiv:2305.14314",
	 .aliases = ALSO(FLAG_AS("bnb-4bit-use-double-quant"), FLAG_AS("use-bnb-nested-quant"),
			 FLAG_AS("double-quantization"))},
	{KNOB("freeze", "freeze", freeze), .kind = OOM_OPTION_NAMES, .metavar = "NAMES",
	 .summary = "parameters that do not train: modules joined by + or commas, or a regular "
		    "expression found in their names",
	 .setting = "requires_grad_(False)", .source = "torch.nn.Module",
	 .aliases = ALSO(AS("freeze-parameters"), AS("freeze-parameters-regex"))},
	{KNOB("train", "train", train), .kind = OOM_OPTION_NAMES, .metavar = "NAMES",
	 .summary = "parameters that train while all others stay frozen; written as for freeze",
	 .setting = "unfrozen_parameters", .source = "axolotl utils/freeze.py",
	 .aliases = ALSO(AS("unfrozen-parameters"), AS("trainable-parameters"),
			 AS("trainable-parameters-regex"))},
	{KNOB("train-last", "train_last", train_last), COUNT(0, 2000, 0),
	 .summary = "train only the last N layers of the stack, and what train names (0: all layers)",
	 .setting = "freeze_trainable_layers", .source = "LLaMA-Factory model/adapter.py",
	 .aliases = ALSO(AS("freeze-trainable-layers"), AS("num-layer-trainable"))},
	{KNOB("freeze-vision-tower", "freeze_vision_tower", freeze_tower), FLAG(0),
	 .summary = "the encoders of images or sound neither train nor get adapters",
	 .setting = "freeze_vision_tower", .source = "LLaMA-Factory model/model_utils/visual.py",
	 .aliases = ALSO(FLAG_AS("freeze-vit"), FLAG_AS("freeze-vision-encoder"))},
	{KNOB("freeze-projector", "freeze_multi_modal_projector", freeze_projector), FLAG(0),
	 .summary = "the projector between the encoders and the text model neither trains nor gets "
		    "adapters",
	 .setting = "freeze_multi_modal_projector",
	 .source = "LLaMA-Factory model/model_utils/visual.py",
	 .aliases = ALSO(FLAG_AS("freeze-aligner"))},
	{KNOB("freeze-language-model", "freeze_language_model", freeze_language), FLAG(0),
	 .summary = "the text model neither trains nor gets adapters",
	 .setting = "freeze_language_model", .source = "LLaMA-Factory model/model_utils/visual.py",
	 .aliases = ALSO(FLAG_AS("freeze-llm"))},
	{KNOB("loss", "fused_ce", fused_ce), WORD(losses, OOM_LOSS_PLAIN),
	 .summary = "head and loss implementation", .setting = "use_liger_kernel", .source = HF,
	 .aliases = ALSO(FLAG_AS("use-liger-kernel"), FLAG_AS("use-liger"))},
	{KNOB("loss-chunk", "loss_chunk", loss_chunk), COUNT(0, 1e9, 0),
	 .summary = "tokens that loss chunked-nll or tiled takes at once (0: its own: 256, an eighth of a "
		    "sequence)",
	 .setting = "chunk_size", .source = "trl/trainer/sft_trainer.py"},
	{KNOB("liger-kernels", "liger_kernels", liger_kernels), WORD(ligers, OOM_LIGER_NONE),
	 .summary = "Liger's Triton kernels beside the loss, where a model has such modules",
	 .setting = "liger_kernel_config", .source = HF},
	{KNOB("convert-outputs-fp32", "convert_outputs_fp32", convert_outputs_fp32), FLAG(0),
	 .summary = "accelerate's wrapper that upcasts model outputs",
	 .setting = "Accelerator.prepare", .source = "accelerate operations.py"},
	{KNOB("allocator", "allocator", allocator), WORD(allocators, OOM_ALLOC_NATIVE),
	 .summary = "CUDA caching allocator", .setting = "PYTORCH_CUDA_ALLOC_CONF",
	 .source = "PyTorch CUDA notes"},
	{KNOB("lazy-modules", "lazy_modules", lazy_modules), FLAG(1),
	 .summary = "CUDA loads a kernel when it is first used, not all of them with the context",
	 .setting = "CUDA_MODULE_LOADING=LAZY", .source = "pytorch/pytorch#85692, #86509 (1.13)"},
	{KNOB("max-split-size-mb", "max_split_size_mb", max_split), COUNT(0, 1e6, 0),
	 .summary = "MiB from which cached blocks are not split; such blocks are the first to be released "
		    "on a full card (0: no limit)",
	 .setting = "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:N",
	 .source = "c10/cuda/CUDACachingAllocator.cpp"},
	{KNOB("eval-accumulation", "eval_accumulation", eval_accumulation), COUNT(0, 1e6, 0),
	 .summary = "evaluation batches whose logits pile up on the GPU: eval_accumulation_steps, "
		    "or all of the evaluation set without it, once compute_metrics is given (0: "
		    "none)",
	 .setting = "eval_accumulation_steps", .source = HF,
	 .aliases = ALSO(AS("eval-accumulation-steps"),
			 SWITCH("prediction-loss-only",
				"true keeps no logits, which is so without compute_metrics, too; with it "
				"--eval-accumulation says how many batches pile up",
				{"true", NULL, "0"}, IGNORED("false")))},
	{KNOB("compute-capability", "compute_capability", compute_capability),
	 REAL("X.Y", 0, 99, 0), .machine = true,
	 .summary = "decides attention kernels, cuBLAS workspaces and context (0: the card's own, "
		    "8.0 for a card without one)",
	 .setting = "torch.cuda.get_device_capability()",
	 .source = "ATen sdp_utils.cpp, CUDABlas.cpp"},
	{KNOB("engine", "engine", engine), WORD(engines, OOM_ENGINE_HF),
	 .summary = "what runs the training", .setting = "launcher", .source = "engines",
	 .aliases = ALSO(WORDS("distributed-type", {"multi_gpu", NULL, "hf"}, {"no", NULL, "hf"},
			       {"deepspeed", NULL, "deepspeed"}, {"fsdp", NULL, "fsdp1"},
			       {"megatron_lm", NULL, "megatron"}),
			 SWITCH("use-deepspeed", NULL, {"true", NULL, "deepspeed"},
				IGNORED("false")),
			 SWITCH("use-fsdp", NULL, {"true", NULL, "fsdp1"}, IGNORED("false")),
			 WORDS("fsdp-version", {"1", NULL, "fsdp1"}, {"2", NULL, "fsdp2"}),
			 WORDS("fsdp", {"full_shard", NULL, "fsdp1 zero=3"},
			       {"shard_grad_op", NULL, "fsdp1 zero=2"},
			       {"hybrid_shard", NULL, "fsdp1 zero=3 hybrid-shard=true"},
			       {"no_shard", NULL, "fsdp1 zero=0"},
			       {"offload", NULL, "offload-params=cpu"}, IGNORED("auto_wrap")),
			 WORDS("device-map", {"auto", NULL, "device-map"},
			       {"balanced", NULL, "device-map"}))},
	{KNOB("gpus", "gpus", gpus), COUNT(1, 1e6, 1), .machine = true, .summary = "GPUs over all nodes",
	 .setting = "--nproc_per_node x --nnodes", .source = "torchrun",
	 .aliases = ALSO(AS("num-processes"), AS("world-size"), AS("num-gpus"), AS("n-gpus"),
			 AS("devices"))},
	{KNOB("nodes", "nodes", nodes), COUNT(1, 1e5, 1), .machine = true, .summary = "machines",
	 .setting = "--nnodes", .source = "torchrun",
	 .aliases = ALSO(AS("nnodes"), AS("num-machines"), AS("num-nodes"))},
	{KNOB("gpus-per-node", "gpus_per_node", gpus_per_node), COUNT(0, 1024, 0),
	 .summary = "GPUs of one machine; gpus or nodes follow from it (0: gpus / nodes)",
	 .setting = "--nproc_per_node", .source = "torchrun",
	 .aliases = ALSO(AS("nproc-per-node"), AS("num-gpus-per-node"), AS("n-gpus-per-node"))},
	{KNOB("zero", "zero_stage", zero_stage), COUNT(0, 3, 0),
	 .summary = "ZeRO stage (FSDP: 0 NO_SHARD, 2 SHARD_GRAD_OP, 3 FULL_SHARD)",
	 .setting = "zero_optimization.stage", .source = "arXiv:1910.02054",
	 .aliases = ALSO(AS("deepspeed-stage"),
			 WORDS("fsdp-sharding-strategy", SHARDING),
			 WORDS("sharding-strategy", SHARDING),
			 SWITCH("fsdp-reshard-after-forward", NULL, {"true", NULL, "3"}, {"false", NULL, "2"}),
			 SWITCH("use-distributed-optimizer", NULL, {"true", "0", "1"}, IGNORED("true"),
			 IGNORED("false")))},
	{KNOB("tp", "tp", tp), COUNT(1, 1024, 1), .summary = "tensor-parallel degree",
	 .setting = "--tensor-model-parallel-size", .source = MEGATRON,
	 .aliases = ALSO(AS("tensor-model-parallel-size"), AS("tensor-parallel-size"),
			 AS("tensor-parallel-degree"))},
	{KNOB("sp", "sp", sp), FLAG(0), .summary = "sequence parallelism beside tensor parallelism",
	 .setting = "--sequence-parallel", .source = "arXiv:2205.05198",
	 .aliases = ALSO(FLAG_AS("sequence-parallel"))},
	{KNOB("pp", "pp", pp), COUNT(1, 1024, 1), .summary = "pipeline-parallel degree",
	 .setting = "--pipeline-model-parallel-size", .source = MEGATRON,
	 .aliases = ALSO(AS("pipeline-model-parallel-size"), AS("pipeline-parallel-size"),
			 AS("pipeline-parallel-degree"))},
	{KNOB("vpp", "vpp", vpp), COUNT(1, 64, 1),
	 .summary = "model chunks a pipeline rank holds (interleaved schedule)",
	 .setting = "--num-virtual-stages-per-pipeline-rank", .source = MEGATRON,
	 .aliases = ALSO(AS("num-virtual-stages-per-pipeline-rank"))},
	{KNOB("pp-schedule", "pp_schedule", pp_schedule), WORD(pp_schedules, OOM_PP_1F1B),
	 .summary = "order of a pipeline's passes", .setting = "", .source = MEGATRON},
	{KNOB("pp-first-layers", "pp_first_layers", pp_first), COUNT(0, 4096, 0),
	 .summary = "layers of the first pipeline rank (0: like the others)",
	 .setting = "--decoder-first-pipeline-num-layers", .source = MEGATRON " " STAGES,
	 .aliases = ALSO(AS("decoder-first-pipeline-num-layers"),
			 AS("num-layers-in-first-pipeline-stage"))},
	{KNOB("pp-last-layers", "pp_last_layers", pp_last), COUNT(0, 4096, 0),
	 .summary = "layers of the last pipeline rank (0: like the others)",
	 .setting = "--decoder-last-pipeline-num-layers", .source = MEGATRON " " STAGES,
	 .aliases = ALSO(AS("decoder-last-pipeline-num-layers"),
			 AS("num-layers-in-last-pipeline-stage"))},
	{KNOB("pp-embedding", "pp_embedding", pp_embedding), FLAG(0),
	 .summary = "in the pipeline's split the embedding takes the place of a layer",
	 .setting = "--account-for-embedding-in-pipeline-split", .source = MEGATRON " " STAGES,
	 .aliases = ALSO(FLAG_AS("account-for-embedding-in-pipeline-split"))},
	{KNOB("pp-loss", "pp_loss", pp_loss), FLAG(0),
	 .summary = "in the pipeline's split the loss takes the place of a layer",
	 .setting = "--account-for-loss-in-pipeline-split", .source = MEGATRON " " STAGES,
	 .aliases = ALSO(FLAG_AS("account-for-loss-in-pipeline-split"))},
	{KNOB("pp-layout", "pp_layout", pp_layout), NAMES("LAYOUT"),
	 .summary = "what each stage holds, as Et*7|(t*8|)*6t*5mL: E embedding, t layer, "
		    "m prediction module, L loss",
	 .setting = "--pipeline-model-parallel-layout",
	 .source = MEGATRON " pipeline_parallel_layer_layout.py",
	 .aliases = ALSO(AS("pipeline-model-parallel-layout"))},
	{KNOB("cp", "cp", cp), COUNT(1, 1024, 1), .summary = "context-parallel degree",
	 .setting = "--context-parallel-size", .source = MEGATRON,
	 .aliases = ALSO(AS("context-parallel-size"), AS("context-parallel-degree"))},
	{KNOB("cp-comm", "cp_comm_type", cp_comm), WORD(cp_comms, OOM_CP_P2P),
	 .summary = "how context-parallel ranks exchange keys and values",
	 .setting = "--cp-comm-type", .source = MEGATRON},
	{KNOB("ep", "ep", ep), COUNT(1, 1024, 1), .summary = "expert-parallel degree",
	 .setting = "--expert-model-parallel-size", .source = MEGATRON,
	 .aliases = ALSO(AS("expert-model-parallel-size"), AS("expert-parallel-size"))},
	{KNOB("etp", "etp", etp), COUNT(1, 1024, 1),
	 .summary = "expert-tensor-parallel degree", .setting = "--expert-tensor-parallel-size",
	 .source = MEGATRON, .aliases = ALSO(AS("expert-tensor-parallel-size"))},
	{KNOB("mtp-num-layers", "mtp_num_layers", mtp_layers), COUNT(0, 16, 0),
	 .summary = "modules that predict further tokens and are trained with the model",
	 .setting = "--mtp-num-layers", .source = MEGATRON " multi_token_prediction.py"},
	{KNOB("transformer-impl", "transformer_impl", layer_impl),
	 WORD(layer_impls, OOM_LAYERS_TE), .summary = "whose layers a Megatron model is built of",
	 .setting = "--transformer-impl", .source = MEGATRON},
	{KNOB("grad-reduce-in-bf16", "grad_reduce_in_bf16", grads_16bit), FLAG(0),
	 .summary = "gradients are added up and reduced in 16 bit",
	 .setting = "--grad-reduce-in-bf16", .source = MEGATRON " param_and_grad_buffer.py"},
	{KNOB("offload-modules", "offload_modules", offload_modules), NAMES("NAMES"),
	 .summary = "modules of a layer whose inputs wait in host memory: attn_norm, qkv_linear, "
		    "core_attn, attn_proj, mlp_norm, expert_fc1, moe_act",
	 .setting = "--fine-grained-activation-offloading --offload-modules",
	 .source = MEGATRON " fine_grained_activation_offload.py"},
	{KNOB("defer-embedding-wgrad", "defer_embedding_wgrad", defer_wgrad), FLAG(0),
	 .summary = "the head's weight gradients wait until the pipeline has drained",
	 .setting = "--defer-embedding-wgrad-compute",
	 .source = MEGATRON " tensor_parallel/layers.py",
	 .aliases = ALSO(FLAG_AS("defer-embedding-wgrad-compute"))},
	{KNOB("fp8-param-gather", "fp8_param_gather", fp8_params), FLAG(0),
	 .summary = "weights are kept and gathered in fp8", .setting = "--fp8-param-gather",
	 .source = MEGATRON " distrib_optimizer.py"},
	{KNOB("recompute-modules", "recompute_modules", recompute_modules), NAMES("NAMES"),
	 .summary = "with --grad-ckpt selective: what a layer computes again, of core_attn, moe_act, "
		    "layernorm, mla_up_proj, mlp, moe and shared_experts (core_attn where empty)",
	 .setting = "--recompute-modules", .source = MEGATRON " transformer_config.py"},
	{KNOB("loss-parallel", "loss_parallel", loss_parallel), FLAG(1),
	 .summary = "with FSDP2 and tensor parallelism: the loss is of divided logits",
	 .setting = "parallelism.disable_loss_parallel", .source = "torchtitan",
	 .aliases = ALSO(SWITCH("disable-loss-parallel", NULL, {"true", NULL, "false"},
				{"false", NULL, "true"}))},
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
	 .setting = "offload_optimizer.device", .source = "DeepSpeed",
	 .aliases = ALSO(AS("offload-optimizer-device"))},
	{KNOB("offload-gradients", "offload_gradients", offload_gradients), FLAG(0),
	 .summary = "gradients go to the host as they come, and are given up on the card: torchao's "
		    "CPUOffloadOptimizer, with offload-optimizer cpu",
	 .setting = "CPUOffloadOptimizer(offload_gradients=True)",
	 .source = "torchao optim/cpu_offload.py"},
	{KNOB("offload-params", "offload_params", offload_params),
	 WORD(offloads, OOM_OFFLOAD_NONE), .summary = "where parameters live",
	 .setting = "offload_param.device", .source = "DeepSpeed",
	 .aliases = ALSO(AS("offload-param-device"),
			 SWITCH("fsdp-offload-params", NULL, {"true", NULL, "cpu"}, {"false", NULL, "none"}))},
	{KNOB("offload-activations", "offload_activations", offload_activations), FLAG(0),
	 .summary = "what the layers keep for backward waits in pinned host memory, but for two "
		    "layers",
	 .setting = "enable_activation_offloading (torchtune, TRL)",
	 .source = "torchtune training/_activation_offloading.py",
	 .aliases = ALSO(FLAG_AS("enable-activation-offloading"),
			 FLAG_AS("activation-offloading"))},
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
	{KNOB("torch-autocast", "torch_autocast", torch_autocast), FLAG(0),
	 .summary = "DeepSpeed: amp-bf16 and amp-fp16 are autocast over fp32 weights; without it they "
		    "are 16-bit weights and an fp32 master, what Trainer(bf16=True) runs there. FSDP1: autocast "
		    "around its mixed precision, as accelerate leaves it: layer norms run in fp32",
	 .setting = "torch_autocast: {enabled: true}",
	 .source = "deepspeed/runtime/torch_autocast.py, engine.py; accelerate accelerator.py prepare_model",
	 .aliases = NULL},
	{KNOB("fp32-grad-accum", "fp32_grad_accum", fp32_grads), FLAG(0),
	 .summary = "DeepSpeed: gradients of 16-bit weights are added up in fp32",
	 .setting = "data_types: {grad_accum_dtype: fp32}",
	 .source = "deepspeed/runtime/bf16_optimizer.py, zero/stage_1_and_2.py, zero/stage3.py"},
	{KNOB("reduce-bucket-size", "reduce_bucket_size", reduce_bucket),
	 COUNT(0, 1e11, OOM_DEFAULT_REDUCE_BUCKET), OR_AUTO,
	 .summary = "elements of a ZeRO gradient bucket, or auto: hidden x hidden (transformers)",
	 .setting = "zero_optimization.reduce_bucket_size", .source = ZERO_CONFIG},
	{KNOB("max-live-parameters", "stage3_max_live_parameters", max_live_params),
	 COUNT(0, 1e12, OOM_DEFAULT_MAX_LIVE),
	 .summary = "elements ZeRO-3 keeps gathered; also the reuse distance",
	 .setting = "zero_optimization.stage3_max_live_parameters", .source = ZERO_CONFIG,
	 .aliases = ALSO(AS("stage3-max-reuse-distance"))},
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
	 .setting = "dataloader_num_workers", .source = HF,
	 .aliases = ALSO(AS("num-workers"))},
	{KNOB("prefetch-factor", "dataloader_prefetch_factor", prefetch_factor),
	 COUNT(1, 1024, OOM_DEFAULT_PREFETCH_FACTOR),
	 .summary = "batches each worker reads ahead", .setting = "dataloader_prefetch_factor",
	 .source = "torch.utils.data"},
	{KNOB("low-cpu-mem", "low_cpu_mem_usage", low_cpu_mem), FLAG(1),
	 .summary = "checkpoints are loaded one shard at a time",
	 .setting = "low_cpu_mem_usage=True", .source = "transformers modeling_utils.py",
	 .aliases = ALSO(FLAG_AS("fsdp-cpu-ram-efficient-loading"))},
	{KNOB("save-sharded", "save_sharded", save_sharded), FLAG(0),
	 .summary = "checkpoints are saved by every rank, not gathered on the first",
	 .setting = "fsdp state_dict_type SHARDED_STATE_DICT", .source = "accelerate FSDP",
	 .aliases = ALSO(WORDS("fsdp-state-dict-type", {"sharded_state_dict", NULL, "true"},
			       {"full_state_dict", NULL, "false"}))},
	{KNOB("save-total-limit", "save_total_limit", save_total_limit), COUNT(1, 1000, 2),
	 .summary = "checkpoints kept on disk", .setting = "save_total_limit", .source = HF},
	{KNOB("transformers", "transformers", transformers), SINCE(4, 0),
	 .summary = "version of transformers, or newest: what it decides stands in `oomplan list "
		    "generations`",
	 .setting = "transformers.__version__", .source = "release notes",
	 .aliases = ALSO(AS("transformers-version"))},
	{KNOB("torch", "torch", torch), SINCE(1, 0),
	 .summary = "version of PyTorch, or newest", .setting = "torch.__version__",
	 .source = "release notes", .aliases = ALSO(AS("torch-version"))},
	{KNOB("bitsandbytes", "bitsandbytes", bitsandbytes), SINCE(0, 37),
	 .summary = "version of bitsandbytes, or newest", .setting = "bitsandbytes.__version__",
	 .source = "release notes", .aliases = ALSO(AS("bitsandbytes-version"))},
	{KNOB("peft", "peft", peft), SINCE(0, 1),
	 .summary = "version of PEFT, or newest", .setting = "peft.__version__",
	 .source = "release notes", .aliases = ALSO(AS("peft-version"))},
	{KNOB("deepspeed", "deepspeed", deepspeed), SINCE(0, 1),
	 .summary = "version of DeepSpeed, or newest", .setting = "deepspeed.__version__",
	 .source = "release notes", .aliases = ALSO(AS("deepspeed-version"))},
	{KNOB("margin", "margin", margin), SHARE("SHARE", 0.9, 0.04),
	 .summary = "share of the capacity kept free", .setting = "",
	 .source = "chosen on published outcomes of real cards: planner/README.md"},
};

const struct oom_option *oom_knob_at(size_t i)
{
	return i < sizeof(knobs) / sizeof(knobs[0]) ? &knobs[i] : NULL;
}

const struct oom_option *oom_knob_find(const char *name)
{
	const struct oom_alias *alias;

	for (size_t i = 0; oom_knob_at(i); i++)
		if (oom_option_goes_by(&knobs[i], name, &alias) && !(alias && alias->words))
			return &knobs[i];
	return NULL;
}
