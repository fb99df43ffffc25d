/* Options of training scripts that no knob stands for: those without effect on memory, which are
 * accepted and named, and those that have one and are not modelled, which are refused.
 *
 * The rows were chosen by how often they occur in some 3,000 public configuration files and command
 * lines of Trainer, TRL, axolotl, LLaMA-Factory, ms-swift, open-instruct and Megatron-LM. */
#include "oomplan/option.h"

#define ALSO(...) (const struct oom_alias[]){__VA_ARGS__, {.name = NULL}}
#define AS(n) {.name = n}
#define VALUE(n, what) .name = n, .kind = OOM_OPTION_IDLE, .metavar = "VALUE", .summary = what
#define SWITCH(n, what) .name = n, .kind = OOM_OPTION_IDLE, .summary = what
#define REFUSED(n, what, told) \
	.name = n, .kind = OOM_OPTION_ABSENT, .summary = what, .note = what " " told
#define REFUSED_VALUE(n, what, told) REFUSED(n, what, told), .metavar = "VALUE"

static const struct oom_option rows[] = {
	/* how far and how fast */
	{VALUE("learning-rate", "how far an optimizer step goes"),
	 .aliases = ALSO(AS("lr"), AS("min-lr"), AS("lr-decay-iters"), AS("lr-decay-style"))},
	{VALUE("lr-scheduler-type", "how the learning rate changes"),
	 .aliases = ALSO(AS("lr-scheduler"))},
	{VALUE("warmup-ratio", "steps of a growing learning rate"),
	 .aliases = ALSO(AS("warmup-steps"), AS("num-warmup-steps"), AS("lr-warmup-fraction"),
			 AS("lr-warmup-samples"), AS("lr-warmup-iters"))},
	{VALUE("num-train-epochs", "how long the training runs"),
	 .aliases = ALSO(AS("num-epochs"), AS("max-steps"), AS("train-iters"), AS("train-samples"),
			 {.name = "epochs", .older = true})},
	{VALUE("weight-decay", "shrinks weights in place")},
	{VALUE("adam-beta1", "a constant of the optimizer"),
	 .aliases = ALSO(AS("adam-beta2"), AS("adam-epsilon"), AS("adam-eps"))},
	{VALUE("clip-grad", "gradients are scaled in place; their norms are a few bytes"),
	 .aliases = ALSO(AS("gradient-clipping"))},
	{VALUE("beta", "how far the objective lets the model move"),
	 .aliases = ALSO(AS("dpo-beta"), AS("pref-beta"), AS("simpo-gamma"), AS("desirable-weight"))},
	{VALUE("num-generations", "answers of a group; --micro-batch counts answers"),
	 .aliases = ALSO(AS("num-generation"))},
	{VALUE("temperature", "how answers are sampled"), .aliases = ALSO(AS("top-p"), AS("top-k"))},
	{VALUE("lora-alpha", "scale of the adapters' output")},
	/* runs measured with and without it take the same bytes in every phase */
	{SWITCH("use-rslora", "another scale of the adapters' output")},
	{VALUE("loraplus-lr-ratio", "another learning rate for half of the adapters"),
	 .aliases = ALSO(AS("loraplus-lr-embedding"))},
	{VALUE("init-lora-weights", "what adapters begin with (PiSSA, OLoRA, LoftQ and others)"),
	 .aliases = ALSO(AS("pissa-init"), AS("pissa-iter"), AS("pissa-convert"))},
	{VALUE("bnb-4bit-quant-type", "NF4 and FP4 take the same bytes"),
	 .aliases = ALSO(AS("bnb-4bit-compute-dtype"), AS("quantization-type"))},
	{VALUE("seed", "random numbers"), .aliases = ALSO(AS("data-seed"))},
	{SWITCH("group-by-length", "order of the samples: the longest batch is planned for")},

	/* data */
	{VALUE("dataset", "what is trained on; its lengths: --lengths"),
	 .aliases = ALSO(AS("dataset-name"), AS("dataset-path"), AS("data-path"), AS("train-file"),
			 AS("dataset-dir"), AS("split"), AS("max-samples"), AS("val-set-size"))},
	{VALUE("validation-file", "what is evaluated on"), .aliases = ALSO(AS("eval-dataset"))},
	{VALUE("template", "text around the samples"),
	 .aliases = ALSO(AS("chat-template"), AS("template-type"), AS("conv-style"))},
	{VALUE("preprocessing-num-workers", "processes before the training"),
	 .aliases = ALSO(AS("dataset-num-proc"))},
	{VALUE("tokenizer-name", "the tokenizer"),
	 .aliases = ALSO(AS("tokenizer-name-or-path"), AS("tokenizer-type"), AS("tokenizer-model"),
			 AS("vocab-file"), AS("merge-file"))},
	{SWITCH("remove-unused-columns", "columns of the data set")},
	{SWITCH("overwrite-cache", "where prepared samples lie")},

	/* saving, evaluating, telling */
	{VALUE("output-dir", "where checkpoints go"),
	 .aliases = ALSO(AS("save"), AS("run-name"), AS("logging-dir"), AS("tensorboard-dir"))},
	{SWITCH("overwrite-output-dir", "where checkpoints go")},
	{VALUE("save-steps", "how often a checkpoint is written"),
	 .aliases = ALSO(AS("save-strategy"), AS("save-interval"), AS("save-freq"))},
	{SWITCH("save-only-model", "what a checkpoint on disk holds"),
	 .aliases = ALSO(AS("save-safetensors"))},
	{VALUE("logging-steps", "how often a line is logged"),
	 .aliases = ALSO(AS("logging-strategy"), AS("log-interval"), AS("log-level"))},
	{VALUE("report-to", "where the log goes"),
	 .aliases = ALSO(AS("wandb-project"), AS("wandb-entity"), AS("wandb-name"))},
	{VALUE("eval-steps", "how often the model is evaluated"),
	 .aliases = ALSO(AS("eval-interval"), AS("eval-iters"))},
	{SWITCH("do-train", "what the script does")},
	{VALUE("resume-from-checkpoint", "where training continues")},
	{SWITCH("push-to-hub", "where the model goes")},
	{VALUE("hub-model-id", "where the model goes")},
	{SWITCH("plot-loss", "a picture at the end")},
	{SWITCH("trust-remote-code", "whether code of the model's repository may run")},
	{VALUE("model-revision", "which version of the weights")},

	/* launching */
	{VALUE("master-port", "how processes find each other"),
	 .aliases = ALSO(AS("master-addr"), AS("node-rank"), AS("machine-rank"), AS("local-rank"),
			 AS("main-process-port"), AS("main-process-ip"), AS("rdzv-backend"),
			 AS("rdzv-endpoint"), AS("distributed-backend"))},
	{VALUE("ddp-timeout", "how long processes wait for each other")},

	/* what bears on memory */
	{REFUSED_VALUE("deepspeed-config", "a file of DeepSpeed's is read by",
		       "--from FILE; as options: --engine deepspeed --zero N, --offload-optimizer, "
		       "--reduce-bucket-size and the like"),
	 .aliases = ALSO(AS("deepspeed-config-file"))},
	{REFUSED_VALUE("fsdp-config", "a file of FSDP's is read by",
		       "--from FILE; as options: --engine fsdp1 or fsdp2 --zero 3, --offload-params")},
	{REFUSED_VALUE("config-file", "a file of accelerate's is read by",
		       "--from FILE; as options: --engine, --zero, --gpus and --precision")},
	{REFUSED("zero3", "stages are DeepSpeed's:", "--engine deepspeed --zero 3 (or 1, 2)"),
	 .aliases = ALSO(AS("zero2"), AS("zero1"))},
	{REFUSED_VALUE("strategy", "Lightning's strategies are engines here:",
		       "--engine hf (ddp), fsdp1, fsdp2 or deepspeed, with --zero")},
	{REFUSED_VALUE("r", "PEFT's rank is", "--lora-r")},
	{REFUSED_VALUE("quantization", "how the base is stored:",
		       "--qlora (4 bit under adapters), or --base-weights")},
	{REFUSED("cpu-offload", "what goes to the host is said one by one:",
		 "--offload-params cpu, --offload-optimizer cpu")},
	{REFUSED("auto-find-batch-size", "it halves the batch after each crash:",
		 "oomplan solve micro-batch says what fits")},
	{REFUSED_VALUE("gradient-checkpointing-kwargs", "its use_reentrant is a knob:",
		       "--grad-ckpt full --use-reentrant true or false")},
	{REFUSED("use-vllm", "it does not say where the rollouts' engine runs;",
		 "--vllm-gpu-memory-utilization where it shares the training card (vllm_mode=colocate), "
		 "--rollouts engine where it is a server elsewhere")},
};

const struct oom_option *oom_foreign_at(size_t i)
{
	return i < sizeof(rows) / sizeof(rows[0]) ? &rows[i] : NULL;
}
