/* llm-foundry's and Composer's YAML. */
#include <string.h>

#include "framework.h"
#include "oomplan/option.h"

#define CONFIG "llmfoundry/utils/config_utils.py"
#define FSDP "composer/distributed/mosaic_parallelism.py:59 get_mixed_precision"

static const struct fw_row rows[] = {
	{"device_train_microbatch_size", .hook = true, .source = CONFIG ":175"},
	FW_KEY("device_eval_batch_size", "eval-batch", NULL, NULL, CONFIG ":109"),
	FW_KEY("global_train_batch_size", "global-batch", NULL, NULL, CONFIG ":176"),
	FW_KEY("max_seq_len", "seq-len", NULL, NULL, CONFIG ":111"),
	FW_KEY("train_loader.dataset.max_seq_len", "seq-len", NULL, NULL, NULL),
	FW_KEY("precision", "@precision", "amp_bf16>amp-bf16;amp_fp16>amp-fp16;fp32>fp32;bf16>bf16;amp>amp-fp16;"
	       "amp_fp8>amp-bf16", "amp-bf16", CONFIG ":117"),
	FW_KEY("optimizer.name", "optimizer",
	       "decoupled_adamw>adamw-loop;adamw>adamw;decoupled_lionw>lion;decoupled_lionw_8b>lion-8bit;lion>lion;"
	       "no_op>none;adam>adamw", NULL, "llmfoundry/optim, composer/optim/decoupled_weight_decay.py"),
	FW_KEY("train_loader.num_workers", "dataloader-workers", NULL, NULL, NULL),
	FW_KEY("fsdp_config.activation_checkpointing", "grad-ckpt", "true>full;false>none", NULL,
	       "composer/utils/parallelism.py:16"),
	FW_KEY("fsdp_config.activation_checkpointing_reentrant", "use-reentrant", NULL, NULL,
	       "composer/utils/parallelism.py:17"),
	FW_KEY("fsdp_config.activation_cpu_offload", "offload-activations", NULL, NULL,
	       "composer/utils/parallelism.py:18"),
	FW_KEY("fsdp_config.sharding_strategy", "zero",
	       "FULL_SHARD>3;SHARD_GRAD_OP>2;NO_SHARD>0;HYBRID_SHARD>3 hybrid-shard=true;"
	       "_HYBRID_SHARD_ZERO2>2 hybrid-shard=true", NULL, "composer/utils/parallelism.py"),
	FW_KEY("fsdp_config.cpu_offload", "offload-params", "true>cpu offload-optimizer=cpu;false>none", NULL, NULL),
	{"fsdp_config", .hook = true},
	FW_KEY("fsdp_config.mixed_precision", "reduce-dtype", "PURE>own;DEFAULT>fp32;FULL>fp32;{...}>", NULL, FSDP),
	FW_KEY("fsdp_config.backward_prefetch", "backward-prefetch", "BACKWARD_PRE>pre;BACKWARD_POST>post;NONE>none;null>none",
	       NULL, "composer/utils/parallelism.py:22"),
	{"model.name", .hook = true}, {"model.pretrained_model_name_or_path", .hook = true},
	{"model.pretrained_model_name", .hook = true}, FW_KEY("model.pretrained", NULL, NULL, NULL, NULL),
	{"model.attn_config.attn_impl", .hook = true}, {"model.attn_impl", .hook = true},
	{"model.config_overrides.attn_config.attn_impl", .hook = true}, {"model.config_overrides.attn_impl", .hook = true},
	{"model.attn_implementation", .hook = true, .source = "llmfoundry/models/hf/hf_base.py:260"},
	{"use_ema", .note = "an average of the weights beside them: more than is priced"}, {"model.use_flash_attention_2", .hook = true},
	FW_KEY("model.loss_fn", "loss", "fused_crossentropy>flash;torch_crossentropy>plain", NULL,
	       "llmfoundry/models/mpt/modeling_mpt.py ComposerMPTCausalLM"),
	{"model_name_or_path", .hook = true},
	FW_KEY("model.peft_config.r", "lora-r", NULL, NULL, "PEFT"),
	FW_KEY("model.peft_config.target_modules", "lora-targets", NULL, NULL, "PEFT"),
	FW_KEY("model.peft_config.lora_dropout", "lora-dropout", NULL, NULL, "PEFT"),
	{"train_loader.name", .hook = true}, {"train_loader.dataset.packing_ratio", .hook = true},
	{"expandable_segments", .hook = true}, {"compute.gpus", .hook = true}, {"gpu_num", .hook = true},
	{"compile_config", .hook = true}, {"compile_config.backend", .hook = true},
	{"compile_config.mode", .hook = true},
	{.key = NULL},
};
static const char idle[] =
	"data_local data_remote tokenizer* run_name run_project* model* train_loader* eval_loader* scheduler* "
	"optimizer* algorithms* max_duration eval_* seed progress_bar log_* console_log_interval callbacks* "
	"loggers* save_* load_* autoresume dist_timeout python_log_level global_seed variables* "
	"icl_* tp_config* integrations* image* name compute* command* parameters* scheduling* cluster gpu_type "
	"data_* mlm_probability metadata* fsdp_config* precision* device_* profiler* max_split_size_mb "
	"use_* tasks* starting_checkpoint* local_pretrain* finetune_* auto_* accumulate* "
	"(launcher) (program) (words) (files)";

/* MPT's own key stands in its section, in the overrides of a model that transformers loads, and in forks and before 0.2
 * without a level of its own; transformers' models have transformers' words. */
static void finish_attention(struct fw_part *p, bool mpt)
{
	static const char *const keys[] = {"model.attn_config.attn_impl", "model.attn_impl",
					   "model.config_overrides.attn_config.attn_impl", "model.config_overrides.attn_impl",
					   "model.attn_implementation"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const char *impl = fw_text(p, keys[i]);

		if (!*impl)
			continue;
		fw_set(p, "attn", !strcmp(impl, "torch") || !strcmp(impl, "eager") ? "eager" : !strcmp(impl, "sdpa") ? "sdpa" : "flash",
		       keys[i], NULL);
		return;
	}
	if (fw_on(p, "model.use_flash_attention_2"))
		fw_set(p, "attn", "flash", "model.use_flash_attention_2", NULL);
	fw_default(p, "attn", mpt ? "flash" : "eager",
		   mpt ? "llmfoundry/models/mpt/configuration_mpt.py" : "llmfoundry/models/hf/hf_base.py:291");
}

static void finish(struct fw_part *p)
{
	const char *name = fw_text(p, "model.name"), *id = "model.pretrained_model_name_or_path";
	const struct doc_node *micro = fw_key(p, "device_train_microbatch_size");
	const bool sharded = fw_key(p, "fsdp_config") != NULL, mpt = strstr(name, "mpt") != NULL;
	int64_t gpus, n;

	if (!*fw_text(p, id))
		id = *fw_text(p, "model.pretrained_model_name") ? "model.pretrained_model_name"
								: "model_name_or_path";
	if (*fw_text(p, id))
		fw_set(p, "model", fw_text(p, id), id, NULL);
	if (doc_whole(micro, &n) && n > 0)
		fw_set_whole(p, "micro-batch", n, "device_train_microbatch_size", NULL);
	else if (micro) {
		fw_withhold(p, "micro-batch");
		fw_unmodelled(p, "device_train_microbatch_size",
			      "Composer halves it until it fits: oomplan solve micro-batch says to what");
	}
	fw_default(p, "precision", fw_fact(p, "@precision"), CONFIG ":117");
	fw_default(p, "objective", strstr(fw_text(p, "train_loader.name"), "finetuning") ? "sft" : "pretrain",
		   "train_loader.name");
	fw_default(p, "method", *fw_fact(p, "lora-r") ? "lora" : "full", "model.peft_config");
	fw_default(p, "base-bits", "16", "no quantisation is asked for");
	fw_default(p, "engine", sharded ? "fsdp1" : "hf", "fsdp_config");
	fw_default(p, "zero", sharded ? "3" : "0", "composer/utils/parallelism.py");
	if (sharded)
		fw_default(p, "backward-prefetch", "post", "composer/utils/parallelism.py:22");
	fw_default(p, "grad-ckpt", "none", "composer/utils/parallelism.py:16");
	if (sharded)
		fw_default(p, "reduce-dtype", "fp32", FSDP " DEFAULT");
	if (oom_same_word(fw_text(p, "fsdp_config.mixed_precision"), "FULL"))
		fw_unmodelled(p, "fsdp_config.mixed_precision", "weights are gathered in fp32: more than is priced");
	finish_attention(p, mpt);
	/* flash-attn's, not in place, for MPT; transformers models make their own */
	fw_default(p, "loss", mpt ? "flash" : "plain",
		   mpt ? "llmfoundry/models/mpt/modeling_mpt.py loss_fn" : "llmfoundry/models/hf");
	/* an algorithm that switches Composer's autocast off around layer norms */
	if (sharded && fw_key(p, "algorithms.low_precision_layernorm"))
		fw_set(p, "torch-autocast", "false", "algorithms.low_precision_layernorm",
		       "composer/algorithms/low_precision_layernorm");
	if (fw_key(p, "train_loader.dataset.packing_ratio"))
		fw_set(p, "packing", "true", "train_loader.dataset.packing_ratio", NULL);
	else if (fw_fact_is(p, "objective", "sft"))
		fw_default(p, "packing", "false", "llmfoundry/data/finetuning/dataloader.py packing_ratio");
	/* a map, be it empty, asks for torch.compile (composer/trainer/trainer.py) */
	if (fw_key(p, "compile_config"))
		fw_set(p, "compile", "true", "compile_config", "composer/trainer/trainer.py");
	fw_take_compile(p, "compile_config.backend", "compile_config.mode");
	if (fw_on(p, "expandable_segments"))
		fw_set(p, "allocator", "expandable_segments", "expandable_segments", CONFIG ":124");
	else if (!fw_off(p, "expandable_segments"))
		fw_default(p, "allocator", "expandable_segments", CONFIG ":124 expandable_segments");
	if (doc_whole(fw_key(p, "compute.gpus"), &gpus) && gpus > 0)
		fw_set_whole(p, "gpus", gpus, "compute.gpus", NULL);
	else if (doc_whole(fw_key(p, "gpu_num"), &gpus) && gpus > 0)
		fw_set_whole(p, "gpus", gpus, "gpu_num", NULL);
}

/* MosaicML's job files hold the YAML under "parameters". */
static void finish_job(struct fw_part *p)
{
	if (fw_key(p, "parameters") && fw_key(p, "parameters")->n && !fw_key(p, "global_train_batch_size")) {
		int64_t gpus;

		fw_nested(p, "parameters", "llm-foundry");
		if (doc_whole(fw_key(p, "compute.gpus"), &gpus) && gpus > 0)
			fw_set_whole(p, "gpus", gpus, "compute.gpus", NULL);
		else if (doc_whole(fw_key(p, "gpu_num"), &gpus) && gpus > 0)
			fw_set_whole(p, "gpus", gpus, "gpu_num", NULL);
		fw_unset(p, "@precision");
		return;
	}
	/* a job whose command says it all: "composer train/train.py yamls/a.yaml max_duration=100ba" */
	if (fw_key(p, "command") && !fw_key(p, "global_train_batch_size")) {
		int64_t gpus;

		fw_read_shell(p, "command", fw_text(p, "command"), "");
		if (doc_whole(fw_key(p, "compute.gpus"), &gpus) && gpus > 0)
			fw_set_whole(p, "gpus", gpus, "compute.gpus", NULL);
		return;
	}
	finish(p);
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_llm_foundry = {
	.name = "llm-foundry",
	.summary = "llm-foundry's and Composer's YAML",
	.version = "llm-foundry 0.19",
	.role = FW_TRAINER,
	.marks = "device_train_microbatch_size global_train_batch_size parameters.global_train_batch_size "
		 "parameters.device_train_microbatch_size command+compute+integrations",
	.rows = lists,
	.idle = idles,
	.finish = finish_job,
};
