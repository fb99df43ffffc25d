/* accelerate's YAML (accelerate config): launcher, engine, mixed precision. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "framework.h"

#define LAUNCH "accelerate/commands/launch.py"
#define FSDP "accelerate/utils/dataclasses.py FullyShardedDataParallelPlugin"
#define SHARDING \
	"full_shard>3;shard_grad_op>2;no_shard>0;hybrid_shard>3 hybrid-shard=true;" \
	"hybrid_shard_zero2>2 hybrid-shard=true;1>3;2>2;3>0;4>3 hybrid-shard=true;" \
	"5>2 hybrid-shard=true"
#define DEVICES "cpu>cpu;nvme>nvme;none>none;null>none"

static const struct fw_row rows[] = {
	{"distributed_type", "engine",
	 "fsdp>fsdp1;deepspeed>deepspeed;multi_gpu>hf;no>hf;megatron_lm>megatron;multi_npu>hf;"
	 "multi_xpu>hf;multi_mlu>hf;multi_musa>hf;multi_hpu>hf;multi_cpu>hf;tp>hf;xla>hf;tpu>hf",
	 .source = LAUNCH},
	{"num_processes", "gpus", NULL, .source = LAUNCH},
	{"num_machines", "nodes", NULL, .def = "1", .source = LAUNCH},
	{"mixed_precision", "@autocast", "bf16>bf16;fp16>fp16;no>no;fp8>bf16", .source = LAUNCH},
	{"fp16", "@autocast", "true>fp16;false>no", .source = "accelerate before 0.4"},
	FW_KEY("fsdp_config", NULL, NULL, NULL, NULL),
	{"fsdp_config.fsdp_version", .hook = true, .source = FSDP},
	{"fsdp_config.fsdp_sharding_strategy", "zero", SHARDING, .source = FSDP},
	{"fsdp_config.sharding_strategy", "zero", SHARDING, .source = FSDP},
	{"fsdp_config.fsdp_reshard_after_forward", .hook = true, .source = FSDP},
	{"fsdp_config.fsdp_offload_params", "offload-params",
	 "true>cpu offload-optimizer=cpu;false>none offload-optimizer=none",
	 .source = "torch.distributed.fsdp CPUOffload: states and step are where the shards are"},
	{"fsdp_config.fsdp_backward_prefetch", .hook = true, .source = FSDP},
	{"fsdp_config.fsdp_backward_prefetch_policy", .hook = true, .source = "huggingface/accelerate#2288: its name before 0.26"},
	{"fsdp_config.offload_params", "offload-params",
	 "true>cpu offload-optimizer=cpu;false>none offload-optimizer=none", .source = FSDP},
	{"fsdp_config.fsdp_state_dict_type", "save-sharded",
	 "sharded_state_dict>true;full_state_dict>false;local_state_dict>true;1>false;2>true;3>true",
	 .source = FSDP},
	{"fsdp_config.fsdp_cpu_ram_efficient_loading", "low-cpu-mem", NULL, .source = FSDP},
	{"fsdp_config.fsdp_activation_checkpointing", "grad-ckpt", "true>full;false>", .source = FSDP},
	{"fsdp_config.fsdp_auto_wrap_policy", .hook = true, .source = FSDP},
	FW_KEY("deepspeed_config", NULL, NULL, NULL, NULL),
	{"deepspeed_config.zero_stage", "zero", NULL, .source = LAUNCH},
	{"deepspeed_config.offload_optimizer_device", "offload-optimizer", DEVICES, .source = LAUNCH},
	{"deepspeed_config.offload_param_device", "offload-params", DEVICES, .source = LAUNCH},
	{"deepspeed_config.gradient_accumulation_steps", "grad-accum", "auto>;*>=", .source = LAUNCH},
	{"deepspeed_config.deepspeed_config_file", .hook = true, .source = LAUNCH},
	{"parallelism_config.parallelism_config_tp_size", "tp", NULL, .source = LAUNCH},
	{"parallelism_config.parallelism_config_cp_size", "cp", NULL, .source = LAUNCH},
	{"parallelism_config.parallelism_config_sp_size", .hook = true, .source = LAUNCH},
	{"parallelism_config.parallelism_config_dp_replicate_size", .hook = true, .source = LAUNCH},
	{"parallelism_config.parallelism_config_dp_shard_size", .hook = true, .source = LAUNCH},
	{"parallelism_config.parallelism_config_sp_attn_implementation", "attn",
	 "flash_attention_*>flash;sdpa>sdpa;eager>eager", .source = LAUNCH},
	FW_KEY("megatron_lm_config", NULL, NULL, NULL, NULL),
	{"megatron_lm_config.megatron_lm_tp_degree", "tp", NULL, .source = LAUNCH},
	{"megatron_lm_config.megatron_lm_pp_degree", "pp", NULL, .source = LAUNCH},
	{"megatron_lm_config.megatron_lm_sequence_parallelism", "sp", NULL, .source = LAUNCH},
	{"megatron_lm_config.megatron_lm_recompute_activations", "grad-ckpt",
	 "true>selective;false>none", .source = LAUNCH},
	{"megatron_lm_config.megatron_lm_use_distributed_optimizer", "zero", "true>1;false>0",
	 .source = LAUNCH},
	{"dynamo_backend", .hook = true},
	{"dynamo_config.dynamo_backend", .hook = true},
	{"dynamo_config.dynamo_mode", .hook = true},
	{"fp8_config.backend", .hook = true, .source = LAUNCH},
	{"fp8_config.enable_fsdp_float8_all_gather", .hook = true, .source = LAUNCH},
	{"use_cpu", .note = "the run is on the CPU: no GPU memory is used"},
	{.key = NULL},
};

static const char idle[] =
	"compute_environment debug downcast_bf16 machine_rank main_training_function rdzv_backend "
	"same_network tpu_* main_process_ip main_process_port gpu_ids enable_cpu_affinity "
	"deepspeed_hostfile command_file commands ec2_instance_type iam_role_name profile region "
	"sagemaker_* additional_args* base_job_name image_uri py_version pytorch_version "
	"transformers_version mpirun_config* rdzv_conf* ipex_config* fp8_config* aws_* "
	"dynamo_config.* fsdp_config.* deepspeed_config.zero3_* "
	"deepspeed_config.deepspeed_multinode_launcher deepspeed_config.gradient_clipping "
	"deepspeed_config.deepspeed_* deepspeed_config.*_pin_memory deepspeed_config.*_nvme_path "
	"deepspeed_config.offload_* deepspeed_config.seq_parallel_communication_data_type "
	"deepspeed_config.bf16_enabled deepspeed_config.fp16_enabled "
	"parallelism_config.* megatron_lm_config.* num_cpu_threads_per_process main_process_* "
	"mixed_precision_* role log_dir tee max_restarts monitor_interval";

/* The whole model (accelerate accelerator.py prepare_model); the key stood at the top before. */
static void finish_compile(struct fw_part *p)
{
	const char *key = fw_key(p, "dynamo_backend") ? "dynamo_backend" : "dynamo_config.dynamo_backend";

	if (!fw_key(p, key) || fw_off(p, key))
		return;
	fw_set(p, "compile", "true", key, "accelerate accelerator.py prepare_model");
	fw_take_compile(p, key, "dynamo_config.dynamo_mode");
}

static void finish_fsdp(struct fw_part *p)
{
	const char *reshard = "fsdp_config.fsdp_reshard_after_forward";
	const char *words = fw_text(p, reshard);
	const bool two = !strcmp(fw_text(p, "fsdp_config.fsdp_version"), "2");

	fw_set(p, "engine", two ? "fsdp2" : "fsdp1",
	       two ? "fsdp_config.fsdp_version" : "distributed_type", FSDP);
	if (two)
		fw_default(p, "reduce-dtype", "own", FSDP " set_mixed_precision");
	fw_take_prefetch(p, (const char *const[]){"fsdp_config.fsdp_backward_prefetch", "fsdp_config.fsdp_backward_prefetch_policy",
						  NULL});
	/* reshard_after_forward is the strategy's successor: a flag for version 2, and the old words
	 * for version 1 */
	if (two && fw_off(p, reshard))
		fw_set(p, "zero", "2", reshard, FSDP);
	else if (two && fw_on(p, reshard))
		fw_set(p, "zero", "3", reshard, FSDP);
	else if (!two && !strcasecmp(words, "SHARD_GRAD_OP"))
		fw_set(p, "zero", "2", reshard, FSDP);
	fw_default(p, "zero", "3", FSDP " (FULL_SHARD)");
	fw_default(p, "offload-params", "none", FSDP);
	fw_default(p, "offload-optimizer", "none", FSDP);
	if (fw_on(p, "fsdp_config.fsdp_activation_checkpointing"))
		fw_set(p, "use-reentrant", "false", "fsdp_config.fsdp_activation_checkpointing", FSDP);
	if (!strcasecmp(fw_text(p, "fsdp_config.fsdp_auto_wrap_policy"), "NO_WRAP"))
		fw_unmodelled(p, "fsdp_config.fsdp_auto_wrap_policy",
			      "the whole model is one unit and gathered at once: more than is priced");
}

static void finish(struct fw_part *p)
{
	const char *file = fw_text(p, "deepspeed_config.deepspeed_config_file");
	int64_t n, m;

	if (fw_fact_is(p, "engine", "fsdp1"))
		finish_fsdp(p);
	if (fw_fact_is(p, "engine", "deepspeed")) {
		if (*file)
			fw_take_deepspeed(p, "deepspeed_config.deepspeed_config_file");
		else    /* launch.py: default_zero_stage 2 */
			fw_default(p, "zero", "2", LAUNCH " --zero_stage");
		if (*fw_fact(p, "zero")) {
			fw_keep_offload_of_stage(p, "deepspeed_config.offload_param_device");
			fw_default(p, "offload-optimizer", "none", LAUNCH);
			fw_default(p, "offload-params", "none", LAUNCH);
		}
		/* mixed precision is DeepSpeed's then */
	}
	if (fw_fact_is(p, "engine", "hf")) {
		fw_default(p, "zero", "0", LAUNCH);
		if (!strcasecmp(fw_text(p, "distributed_type"), "no") && !*fw_fact(p, "gpus"))
			fw_default(p, "gpus", "1", LAUNCH);
	}
	if (doc_whole(fw_key(p, "parallelism_config.parallelism_config_sp_size"), &n) && n > 1) {
		fw_set_whole(p, "cp", n, "parallelism_config.parallelism_config_sp_size",
			     "ALST/Ulysses: all-to-all over heads");
		fw_set(p, "cp-comm", "a2a", "parallelism_config.parallelism_config_sp_size", NULL);
	}
	if (doc_whole(fw_key(p, "parallelism_config.parallelism_config_dp_replicate_size"), &n) &&
	    doc_whole(fw_key(p, "parallelism_config.parallelism_config_dp_shard_size"), &m) && n > 1) {
		/* shards lie over context ranks as well (accelerate/parallelism_config.py dp_shard_cp) */
		if (m > 1 || atoi(fw_fact(p, "cp")) > 1)
			fw_take_replicas(p, m, n, "parallelism_config.parallelism_config_dp_replicate_size");
		else
			fw_set(p, "zero", "0", "parallelism_config.parallelism_config_dp_replicate_size", "nothing is sharded");
	}
	finish_compile(p);
	fw_accelerate_fp8(p, "fp8_config.backend", "fp8_config.enable_fsdp_float8_all_gather");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_accelerate = {
	.name = "accelerate",
	.summary = "the YAML of accelerate config",
	.version = "accelerate 1.12",
	.role = FW_LAUNCHER,
	.marks = "distributed_type compute_environment",
	.never = "zero_optimization",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
