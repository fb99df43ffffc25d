/* Megatron-LM's arguments, those of Megatron-DeepSpeed and of its test recipes (model_config.yaml).
 *
 * The model is described by dimensions, not by a name (megatron_model.c). */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define TRAINING "megatron/training/arguments.py"
#define PARALLEL "megatron/core/model_parallel_config.py"
#define TRANSFORMER "megatron/core/transformer/transformer_config.py"

static const struct fw_row megatron_rows[] = {
	FW_KEY("micro-batch-size", "micro-batch", NULL, NULL, TRAINING),
	FW_KEY("batch-size", "micro-batch", NULL, NULL, "Megatron-LM 2.0 arguments.py"),
	FW_KEY("global-batch-size", "global-batch", NULL, NULL, TRAINING),
	FW_KEY("seq-length", "seq-len", NULL, NULL, TRAINING),
	FW_KEY("encoder-seq-length", "seq-len", NULL, NULL, TRAINING),
	FW_KEY("decoder-seq-length", "tgt-len", NULL, NULL, TRAINING),
	FW_KEY("tensor-model-parallel-size", "tp", NULL, NULL, PARALLEL ":55"),
	FW_KEY("model-parallel-size", "tp", NULL, NULL, "Megatron-LM 2.0 arguments.py"),
	FW_KEY("pipeline-model-parallel-size", "pp", NULL, NULL, PARALLEL ":83"),
	FW_KEY("context-parallel-size", "cp", NULL, NULL, PARALLEL),
	FW_KEY("expert-model-parallel-size", "ep", NULL, NULL, PARALLEL),
	FW_KEY("moe-expert-parallel-size", "ep", NULL, NULL, "Megatron-DeepSpeed megatron/arguments.py"),
	FW_KEY("sequence-parallel", "sp", NULL, NULL, PARALLEL),
	FW_KEY("num-virtual-stages-per-pipeline-rank", "vpp", NULL, NULL, TRAINING),
	FW_KEY("decoder-first-pipeline-num-layers", "pp-first-layers", NULL, NULL, TRAINING),
	FW_KEY("decoder-last-pipeline-num-layers", "pp-last-layers", NULL, NULL, TRAINING),
	FW_KEY("account-for-embedding-in-pipeline-split", "pp-embedding", NULL, NULL, TRAINING),
	FW_KEY("account-for-loss-in-pipeline-split", "pp-loss", NULL, NULL, TRAINING),
	FW_KEY("pipeline-model-parallel-layout", "pp-layout", NULL, NULL, TRAINING),
	FW_KEY("mtp-num-layers", "mtp-num-layers", NULL, NULL, TRANSFORMER),
	FW_KEY("expert-tensor-parallel-size", "etp", NULL, NULL, PARALLEL),
	{"num-layers-per-virtual-pipeline-stage", .hook = true, .source = TRAINING},
	{"num-layers", .hook = true},
	FW_KEY("bf16", "precision", "true>bf16;false>", NULL, PARALLEL),
	FW_KEY("fp16", "precision", "true>fp16;false>", NULL, PARALLEL ":177"),
	FW_KEY("use-distributed-optimizer", "zero", "true>1;false>", NULL, TRAINING),
	FW_KEY("optimizer", "optimizer", "adam>adamw-fused;sgd>sgd-momentum;muon>muon;*>=", NULL,
	       TRAINING),
	FW_KEY("recompute-granularity", "grad-ckpt", "full>full;selective>selective;none>none", NULL,
	       TRAINING),
	FW_KEY("recompute-activations", "grad-ckpt", "true>selective;false>", NULL, TRAINING),
	FW_KEY("activations-checkpoint-method", "grad-ckpt", "uniform>full;block>full", NULL,
	       "Megatron-LM 2.5 arguments.py"),
	FW_KEY("checkpoint-activations", "grad-ckpt", "true>full;false>", NULL, TRAINING ":2884"),
	/* by whom, not whether: megatron/model/gpt_model.py asks for checkpoint_activations */
	{"deepspeed-activation-checkpointing", .source = "Megatron-DeepSpeed initialize.py"},
	{"recompute-method", .hook = true, .source = TRANSFORMER},
	{"recompute-num-layers", .hook = true, .source = TRANSFORMER},
	{"optimizer-offload-fraction", .hook = true, .source = TRAINING},
	{"pp-partition-method", .hook = true, .source = "deepspeed/runtime/pipe/module.py _partition_layers"},
	FW_KEY("attention-backend", "attn",
	       "flash>flash;fused>flash;auto>flash;unfused>eager;local>eager;"
	       "AttnBackend.flash>flash;AttnBackend.fused>flash;AttnBackend.auto>flash;"
	       "AttnBackend.unfused>eager",
	       NULL, TRANSFORMER " attention_backend"),
	FW_KEY("use-flash-attn", "attn", "true>flash;false>", NULL, TRAINING),
	FW_KEY("use-flash-attn-v2", "attn", "true>flash;false>", NULL, "Megatron-DeepSpeed"),
	FW_KEY("optimizer-cpu-offload", "offload-optimizer", "true>cpu;false>none", NULL, TRAINING),
	FW_KEY("cpu-optimizer", "offload-optimizer", "true>cpu;false>none", NULL,
	       "Megatron-DeepSpeed arguments.py"),
	FW_KEY("zero-stage", "zero", NULL, NULL, "Megatron-DeepSpeed arguments.py"),
	FW_KEY("num-workers", "dataloader-workers", NULL, NULL, TRAINING),
	FW_KEY("freeze-LM", "method", "true>freeze;false>", NULL, "examples/multimodal"),
	{"hidden-size", .hook = true}, {"ffn-hidden-size", .hook = true},
	{"num-attention-heads", .hook = true}, {"num-query-groups", .hook = true},
	{"group-query-attention", .hook = true}, {"kv-channels", .hook = true},
	{"num-experts", .hook = true}, {"moe-expert-model-parallelism",
	 .note = "MegaBlocks' experts lie over the data-parallel cards (ep): less on each than is priced"},
	{"moe-*", .hook = true}, {"vocab-size", .hook = true},
	{"max-position-embeddings", .hook = true}, {"swiglu", .hook = true},
	{"untie-embeddings-and-output-weights", .hook = true},
	{"make-vocab-size-divisible-by", .hook = true}, {"pad-vocab-size-to", .hook = true},
	FW_KEY("transformer-impl", "transformer-impl",
	       "transformer_engine>transformer-engine;inference_optimized>transformer-engine;local>local",
	       NULL, TRANSFORMER),
	{"use-mcore-models", .hook = true},
	{"hidden-dropout", .hook = true}, {"attention-dropout", .hook = true, .source = TRAINING},
	{"fp8-format", .hook = true, .source = TRAINING}, {"fp8-recipe", .hook = true, .source = TRAINING},
	{"fp4-format", .note = "fp4: copies of weights and inputs beside the 16-bit ones"},
	FW_KEY("fp8-param-gather", "fp8-param-gather", NULL, NULL, TRAINING),
	FW_KEY("defer-embedding-wgrad-compute", "defer-embedding-wgrad", NULL, NULL, TRAINING),
	FW_KEY("offload-modules", "offload-modules", NULL, NULL, TRANSFORMER),
	FW_KEY("fine-grained-activation-offloading", NULL, NULL, NULL, NULL),  /* offload-modules says of what */
	{"use-layer-wise-distributed-optimizer", .note = "each rank steps whole layers: states lie otherwise than is priced"},
	{"use-torch-fsdp2", .note = "FSDP2 shards the weights: less than is priced; --engine fsdp2"},
	{"use-megatron-fsdp", .note = "Megatron-FSDP shards weights and gradients: less than is priced"},
	{"use-custom-fsdp", .note = "Megatron-FSDP shards weights and gradients: less than is priced"},
	FW_KEY("data-parallel-sharding-strategy", NULL, NULL, NULL, NULL),     /* of Megatron-FSDP, which is told above */
	{"cpu-offloading-num-layers", .note = "activations of layers wait in host memory: less than "
					      "is priced"},
	FW_KEY("recompute-modules", "recompute-modules", NULL, NULL, TRANSFORMER),
	FW_KEY("grad-reduce-in-bf16", "grad-reduce-in-bf16", NULL, NULL, TRAINING),
	FW_KEY("accumulate-allreduce-grads-in-fp32", NULL, NULL, NULL, NULL),  /* buffers are priced so, --bf16 asks for it */
	{"use-precision-aware-optimizer", .note = "optimizer states of fewer bits: less than is priced"},
	{"main-grads-dtype", .note = "gradients of fewer bits: less than is priced"},
	{"main-params-dtype", .note = "master weights of fewer bits: less than is priced"},
	{"exp-avg-dtype", .note = "optimizer states of fewer bits: less than is priced"},
	{"exp-avg-sq-dtype", .note = "optimizer states of fewer bits: less than is priced"},
	/* one graph of the whole step is no graph of layers: what it leaves of the launches no knob says */
	{"cuda-graph-impl", .knob = "cuda-graph", .map = "none>false;full_iteration>false;*>true", .source = TRANSFORMER,
	 .note = "CUDA graphs hold their own pools: more than is priced"},
	{"enable-cuda-graph", .knob = "cuda-graph", .map = "true>true;false>", .source = TRANSFORMER,
	 .note = "CUDA graphs hold their own pools: more than is priced"},
	{"tp-comm-overlap", .knob = "tp-comm-overlap", .map = "true>true;false>", .source = TRANSFORMER,
	 .note = "user buffers of overlapped tensor parallelism: more than is priced"},
	FW_KEY("rampup-batch-size", NULL, NULL, NULL, NULL),
	{"deepspeed", .hook = true}, {"deepspeed_config", .hook = true},
	{.key = NULL},
};

static const char megatron_idle[] =
	"lr* min-lr decoupled-* weight-decay* adam-* clip-grad train-iters train-samples seed init-method-std "
	"save save-* load load-* log-* tensorboard-* wandb-* eval-* data-* mock-data split tokenizer-* "
	"vocab-file merge-file position-embedding-type rotary-* use-rotary-* normalization "
	"apply-layernorm-1p disable-bias-linear add-* no-* overlap-* manual-gc* exit-* profile* "
	"distributed-* ckpt-* use-checkpoint* async-* dist-ckpt-* attention-softmax-in-fp32 initial-loss-scale "
	"loss-scale* min-loss-scale hysteresis fp8-amax-* fp8-interval fp8-margin "
	"cross-entropy-* calculate-per-token-loss deterministic-mode timing-* inference-* "
	"use-dist-ckpt* finetune reset-* skip-* empty-unused-memory-level openai-gelu squared-relu "
	"train-data-path valid-data-path test-data-path tiktoken-* legacy-* local-rank bias-* "
	"masked-* apply-query-key-layer-scaling qk-layernorm norm-epsilon sgd-momentum end-weight-decay "
	"start-weight-decay embed-* ds-* override-* use-legacy-models te-rng-tracker check-* "
	"create-attention-mask-in-dataloader kill-* abort-* codecarbon-* universal-checkpoint "
	"partition-activations num-dataset-builder-threads export-* sample-rate rl-* grpo-* langrl-* "
	"gradient-accumulation-fusion delay-* tp-comm-overlap-* tp-comm-bootstrap-* micro-batch-size-* position-* "
	"cuda-graph-modules cuda-graph-scope cuda-graph-warmup-steps "
	"(program) (words) (files) adlr-* enable-experimental ddp-* align-* use-one-sent-docs "
	"straggler-* high-priority-stream-groups nccl-* dataloader-* perform-* result-* error-* "
	"mmap-bin-files gradient-reduce-* max-tokens-to-oom per-split-* "
	"logging-level record-* mamba-* hybrid-* is-hybrid-model spec use-fused-* "
	"short-seq-prob mask-prob bert-* onnx-safe use-persistent-ckpt-worker repeated-dataloader "
	/* latent attention, which the model's config has */
	"multi-latent-attention q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim mscale* cache-mla-latents "
	"mla-down-proj-fusion qk-clip* "
	/* BigCode's fork */
	"attention-head-type fim-* valid-num-workers train-weighted-split-paths-path valid-weighted-split-paths-path "
	"structured-logs*";

static bool present(const struct fw_part *p, const char *key)
{
	const struct doc_node *n = fw_key(p, key);

	return n && !doc_is_off(n);
}

/* DeepSpeed's pipeline cuts stages by layers alone where it is not told otherwise; with "embedding" the two of
 * them count as layers do. */
static void cut_stages(struct fw_part *p)
{
	const char *key = "pp-partition-method", *method = fw_text(p, key);
	const int64_t pp = atoll(fw_fact(p, "pp"));
	int64_t layers;

	if (pp < 2 || !*method || !strcmp(method, "type:transformer"))
		return;
	if (!strcmp(method, "type:transformer|embedding") && doc_whole(fw_key(p, "num-layers"), &layers) && layers > 0 &&
	    !((layers + 2) % pp)) {
		fw_set(p, "pp-embedding", "true", key, NULL);
		fw_set(p, "pp-loss", "true", key, NULL);
		return;
	}
	fw_unmodelled(p, key, "stages are priced as cut by layers alone");
}

/* Megatron's own defaults.  A file that names TransformerEngine or the core's models is of 2023 or
 * later, where attention is flash or cuDNN's unless it is said otherwise
 * (transformer_config.py attention_backend: auto); before, it was torch's products and a softmax. */
static void megatron_finish(struct fw_part *p)
{
	const bool modern = !present(p, "checkpoint-activations") && !present(p, "use-legacy-models") &&
			    !present(p, "model-parallel-size") && !present(p, "deepspeed") &&
			    (present(p, "use-mcore-models") || present(p, "attention-backend") ||
			     present(p, "recompute-granularity") || present(p, "swiglu") ||
			     present(p, "use-distributed-optimizer") || present(p, "transformer-impl") ||
			     present(p, "ckpt-format") || present(p, "expert-model-parallel-size"));
	int64_t layers, chunk, pp;

	fw_set(p, "engine", present(p, "deepspeed") && atoll(fw_fact(p, "zero")) < 2 ? "megatron-deepspeed" :
										      "megatron",
	       NULL, "Megatron-LM");
	fw_default(p, "objective", present(p, "rl-partial-rollouts") || present(p, "grpo-group-size") ||
					   present(p, "perform-rl-step")
					   ? "grpo"
					   : "pretrain",
		   "pretrain_*.py");
	/* seq-length counts the image's tokens there (examples/multimodal/train.py, config.py) */
	if (present(p, "language-model-type") && *fw_text(p, "decoder-seq-length")) {
		fw_set(p, "seq-len", fw_text(p, "decoder-seq-length"), "decoder-seq-length", "examples/multimodal/train.py");
		fw_unset(p, "tgt-len");
	}
	fw_default(p, "method", "full", "no adapters");
	fw_default(p, "base-bits", "16", "no quantisation is asked for");
	fw_default(p, "precision", "fp32", TRAINING " neither --bf16 nor --fp16");
	fw_default(p, "optimizer", "adamw-fused", TRAINING " adam: FusedAdam of TransformerEngine or Apex");
	fw_default(p, "grad-ckpt", "none", TRANSFORMER " recompute_granularity");
	if (present(p, "transformer-impl") && !strcmp(fw_text(p, "transformer-impl"), "local") &&
	    !*fw_fact(p, "attn"))
		fw_set(p, "attn", "eager", "transformer-impl", "local: no TransformerEngine");
	fw_default(p, "attn", modern ? "flash" : "eager",
		   modern ? TRANSFORMER " attention_backend auto" : "megatron/model/transformer.py");
	if (present(p, "fp8-format"))
		fw_default(p, "fp8", !strcmp(fw_text(p, "fp8-recipe"), "blockwise") ? "blockwise" :
				     !strcmp(fw_text(p, "fp8-recipe"), "mxfp8")	    ? "mxfp8" :
										      "tensorwise",
			   TRAINING " --fp8-format, --fp8-recipe");
	fw_default(p, "loss", "plain", "vocabulary-parallel cross entropy");
	fw_default(p, "zero", "0", TRAINING " --use-distributed-optimizer is not given");
	fw_default(p, "ep", "1", PARALLEL);
	if (!*fw_fact(p, "eval-batch") && *fw_fact(p, "micro-batch"))
		fw_default(p, "eval-batch", fw_fact(p, "micro-batch"), "evaluation takes the micro-batch");
	fw_megatron_blocks(p, "recompute-method", "recompute-num-layers");
	fw_megatron_offload(p, "optimizer-offload-fraction");
	cut_stages(p);
	if (doc_whole(fw_key(p, "num-layers-per-virtual-pipeline-stage"), &chunk) && chunk > 0 &&
	    doc_whole(fw_key(p, "num-layers"), &layers) &&
	    (pp = atoll(fw_fact(p, "pp"))) > 0 && pp < 100000 && chunk < 100000 &&
	    layers % (pp * chunk) == 0)
		fw_set_whole(p, "vpp", layers / (pp * chunk), "num-layers-per-virtual-pipeline-stage",
			     NULL);
	if (present(p, "deepspeed") && *fw_text(p, "deepspeed_config")) {
		if (!fw_follow(p, "deepspeed_config", fw_text(p, "deepspeed_config")))
			fw_note(p, "deepspeed_config", "not found: give the file too");
	}
}

static void finish(struct fw_part *p)
{
	fw_nested(p, "MODEL_ARGS", "megatron-lm");
	if (fw_key(p, "MODEL_ARGS"))
		return;
	megatron_finish(p);
}

static const struct fw_row test_recipe[] = {
	{"MODEL_ARGS", .hook = true},
	{.key = NULL},
};
static const char test_idle[] = "ENV_VARS TEST_TYPE METRICS MODE BEFORE_SCRIPT AFTER_SCRIPT SKIP_* "
				"THROUGHPUT_* GOLDEN_* LAUNCHER* MODEL_ARGS_*";
static const struct fw_row *const lists[] = {test_recipe, megatron_rows, NULL};
static const char *const idles[] = {megatron_idle, test_idle, NULL};

const struct framework framework_megatron_lm = {
	.name = "megatron-lm",
	.summary = "Megatron-LM's arguments, shell scripts around them, its test recipes",
	.version = "Megatron-LM core 0.14",
	.role = FW_TRAINER,
	.marks = "MODEL_ARGS tensor-model-parallel-size pipeline-model-parallel-size "
		 "micro-batch-size+num-layers hidden-size+num-attention-heads seq-length+num-layers",
	.never = "model sft_type train_type tuner_type rlhf_type actor_rollout_ref.model.path trainer",
	.rows = lists,
	.idle = idles,
	.finish = finish,
	.describe = fw_megatron_model,
};
