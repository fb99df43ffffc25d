/* DeepSpeed's JSON.  "auto" is left to the trainer, as transformers fills it in
 * (transformers/integrations/deepspeed.py, HfTrainerDeepSpeedConfig). */
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define ZERO "deepspeed/runtime/zero/config.py"
#define PRECISION "deepspeed/runtime/precision_config.py"
/* two of the three batch sizes give the third: runtime/config.py _configure_train_batch_size */
#define BATCH "deepspeed/runtime/constants.py"
#define DEVICES "cpu>cpu;nvme>nvme;none>none"
/* type -> what _configure_basic_optimizer makes of it (runtime/engine.py): Adam and AdamW are
 * FusedAdam unless torch_adam */
#define TYPES \
	"adam>adamw-fused;adamw>adamw-fused;onebitadam>adamw-fused;zerooneadam>adamw-fused;" \
	"lamb>lamb;onebitlamb>lamb;fusedlamb>lamb;lion>lion;fusedlion>lion;adagrad>adagrad;" \
	"sgd>sgd;muon>muon"

static const struct fw_row rows[] = {
	{"train_micro_batch_size_per_gpu", "micro-batch", "auto>;*>=", .source = BATCH},
	{"gradient_accumulation_steps", "grad-accum", "auto>;*>=", .source = BATCH},
	{"train_batch_size", "global-batch", "auto>;*>=", .source = BATCH},
	{"zero_optimization", .hook = true, .source = ZERO},
	{"zero_optimization.stage", "zero", NULL, .source = ZERO},
	{"zero_optimization.offload_optimizer.device", "offload-optimizer", DEVICES, .source = ZERO},
	{"zero_optimization.offload_param.device", "offload-params", DEVICES, .source = ZERO},
	/* the names before 0.3.16 */
	{"zero_optimization.cpu_offload", "offload-optimizer", "true>cpu;false>", .source = ZERO},
	{"zero_optimization.cpu_offload_params", "offload-params", "true>cpu;false>", .source = ZERO},
	{"zero_optimization.reduce_bucket_size", "reduce-bucket-size", NULL, .source = ZERO},
	{"zero_optimization.overlap_comm", "overlap-comm", "true>true;false>false;auto>;null>", .source = ZERO},
	{"zero_optimization.stage3_prefetch_bucket_size", "prefetch-bucket-size", NULL, .source = ZERO},
	{"zero_optimization.prefetch_bucket_size", "prefetch-bucket-size", NULL, .source = ZERO},
	{"zero_optimization.stage3_param_persistence_threshold", "param-persistence-threshold", NULL,
	 .source = ZERO},
	{"zero_optimization.param_persistence_threshold", "param-persistence-threshold", NULL,
	 .source = ZERO},
	{"zero_optimization.stage3_max_live_parameters", "max-live-parameters", "auto>;*>=", .source = ZERO},
	{"zero_optimization.max_live_parameters", "max-live-parameters", "auto>;*>=", .source = ZERO},
	{"zero_optimization.sub_group_size", .hook = true, .source = ZERO},
	{"zero_optimization.zero_hpz_partition_size",
	 .note = "ZeRO++ keeps a second copy of the weights in each node: more than is priced"},
	{"zero_optimization.mics_shard_size",
	 .note = "MiCS shards over fewer ranks: more on each than is priced"},
	{"zero_optimization.zenflow", .note = "ZenFlow keeps the gradients it selects: not modelled"},
	{"bf16", .hook = true},
	{"bf16.enabled", "@ds16", "true>bf16;auto>auto;false>", .source = PRECISION},
	{"bfloat16.enabled", "@ds16", "true>bf16;auto>auto;false>", .source = PRECISION},
	{"fp16", .hook = true},
	{"fp16.enabled", "@ds16", "true>fp16;auto>auto;false>", .source = PRECISION},
	{"bf16.bf16_master_weights_and_grads",
	 .note = "masters in bf16 instead of fp32: less than is priced"},
	{"bf16.bf16_optimizer_states", .note = "optimizer states in bf16: less than is priced"},
	{"torch_autocast.enabled", .note = "autocast within DeepSpeed: weights stay as loaded"},
	{"amp.enabled", .note = "Apex AMP: not modelled"},
	{"optimizer", .hook = true},
	{"optimizer.type", "optimizer", TYPES, .source = "deepspeed/runtime/engine.py"},
	{"optimizer.params.torch_adam", .hook = true},
	{"activation_checkpointing.cpu_checkpointing",
	 .note = "holds for models that call DeepSpeed's own checkpointing: less than is priced"},
	{"activation_checkpointing.partition_activations",
	 .note = "holds for models that call DeepSpeed's own checkpointing: less than is priced"},
	{"sequence_parallel_size", "cp", "*>=", .source = "deepspeed/runtime/sequence_parallel"},
	{"tensor_parallel.autotp_size", "tp", "*>=", .source = "deepspeed AutoTP"},
	{"data_types.grad_accum_dtype", "fp32-grad-accum",
	 "fp32>true;float32>true;float>true;torch.float32>true;fp16>;bf16>;float16>;half>;bfloat16>;"
	 "torch.float16>;torch.bfloat16>",
	 .source = "deepspeed/runtime/config.py grad_accum_dtype, config_utils.py DtypeEnum"},
	{"compression_training.layer_reduction.enabled",
	 .note = "a teacher model and fewer layers: not modelled"},
	{"compression_training.weight_quantization.shared_parameters.enabled",
	 .note = "quantisation while training: more than is priced"},
	{"compression_training.activation_quantization.shared_parameters.enabled",
	 .note = "quantisation while training: more than is priced"},
	{"compile.deepcompile", .note = "DeepCompile: not modelled"},
	{"hybrid_engine.enabled",
	 .note = "DeepSpeed-Chat's hybrid engine holds inference buffers: more than is priced"},
	{.key = NULL},
};

/* Gradients lie in one buffer (contiguous_gradients): the engine is priced as transformers' users run it, which these
 * keys hardly change. */
static const char idle[] =
	"cuda_visible_devices steps_per_print wall_clock_breakdown gradient_clipping prescale_gradients "
	"gradient_predivide_factor communication_data_type seq_parallel_communication_data_type "
	"sparse_gradients dump_state memory_breakdown zero_allow_untested_optimizer "
	"zero_force_ds_cpu_optimizer disable_allgather comment* _comment* scheduler scheduler.* "
	"optimizer.params optimizer.params.* optimizer.legacy_fusion "
	"zero_optimization.contiguous_gradients zero_optimization.reduce_scatter "
	"zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size "
	"zero_optimization.round_robin_gradients zero_optimization.load_from_fp32_weights "
	"zero_optimization.elastic_checkpoint zero_optimization.ignore_unused_parameters "
	"zero_optimization.legacy_stage1 zero_optimization.offload_optimizer.* "
	"zero_optimization.offload_param.* zero_optimization.stage3_max_reuse_distance "
	"zero_optimization.max_reuse_distance "
	"zero_optimization.stage3_gather_16bit_weights_on_model_save "
	"zero_optimization.gather_16bit_weights_on_model_save "
	"zero_optimization.stage3_gather_fp16_weights_on_model_save "
	"zero_optimization.stage3_model_persistence_threshold zero_optimization.memory_efficient_linear "
	"zero_optimization.stage3_use_all_reduce_for_fetch_params "
	"zero_optimization.use_all_reduce_for_fetch_params zero_optimization.stage3_module_granularity_threshold "
	"zero_optimization.zero_quantized_weights zero_optimization.zero_quantized_gradients "
	"zero_optimization.zero_quantized_nontrainable_weights zero_optimization.zero_module_granularity_threshold "
	"zero_optimization.mics_hierarchical_params_gather zero_optimization.log_trace_cache_warnings "
	"zero_optimization.cpu_offload_use_pin_memory zero_optimization.find_unused_parameters "
	"zero_optimization.leaf_module* zero_optimization.pipeline_loading_checkpoint "
	"zero_optimization.zero_quantized_* fp16.* bf16.* bfloat16.* amp.* torch_autocast.* "
	"flops_profiler* tensorboard* wandb* csv_monitor* comet* monitor_config* autotuning* "
	"autotuning_config* aio* comms_logger* comms_config* checkpoint.* checkpoint eigenvalue* "
	"curriculum_learning* data_efficiency* progressive_layer_drop* sparse_attention* elasticity* "
	"nebula* compile.* dataloader_drop_last data_types.* pipeline.* compression_training.* "
	"quantize_training.* activation_checkpointing.* tensor_parallel.* train_iters data_sampling* "
	"timers* use_data_before_expert_parallelism use_node_local_storage launcher "
	"sequence_parallel_comm* log.* min_lr mpu csv* graph_harvesting weight_quantization* "
	"hybrid_engine.* gradient_noise_scale* dump_state enable_* zero_quantized*";

static bool has_offload(const struct fw_part *p, const char *knob)
{
	return strcmp(fw_fact(p, knob), "none") && *fw_fact(p, knob);
}

void fw_keep_offload_of_stage(struct fw_part *p, const char *key)
{
	const long stage = strtol(fw_fact(p, "zero"), NULL, 10);

	if (stage < 3 && has_offload(p, "offload-params")) {
		fw_note(p, key, "ignored below stage 3");
		fw_unset(p, "offload-params");
	}
	if (stage < 1 && has_offload(p, "offload-optimizer"))
		fw_unset(p, "offload-optimizer");
}

static void finish(struct fw_part *p)
{
	const struct doc_node *zero = fw_key(p, "zero_optimization");
	int64_t size;

	fw_set(p, "engine", "deepspeed", zero ? "zero_optimization" : "train_batch_size",
	       "a DeepSpeed config");
	/* "zero_optimization": true was stage 1 (zero/config.py read_zero_config_deprecated) */
	if (zero && zero->kind == DOC_SCALAR && doc_is_true(zero))
		fw_set(p, "zero", "1", "zero_optimization", ZERO);
	fw_default(p, "zero", "0", ZERO " stage");
	fw_keep_offload_of_stage(p, "zero_optimization.offload_param.device");
	fw_default(p, "offload-optimizer", "none", "deepspeed/runtime/zero/offload_config.py");
	fw_default(p, "offload-params", "none", "deepspeed/runtime/zero/offload_config.py");
	/* one that is on stands above another's "auto", which the trainer leaves off then */
	if (fw_on(p, "bf16.enabled") || fw_on(p, "bfloat16.enabled"))
		fw_set(p, "@ds16", "bf16", fw_key(p, "bf16.enabled") ? "bf16.enabled" : "bfloat16.enabled", PRECISION);
	else if (fw_on(p, "fp16.enabled"))
		fw_set(p, "@ds16", "fp16", "fp16.enabled", PRECISION);
	/* fp16 is said to be off and nothing else is on: as loaded; where a trainer is told more, accelerate adds a section of
	 * its own */
	if (fw_off(p, "fp16.enabled") && !*fw_fact(p, "@ds16"))
		fw_set(p, "@ds16", "no", "fp16.enabled", PRECISION);
	/* 0 is what some write for "no limit"; the partitioner then steps one tensor at a time */
	if (doc_whole(fw_key(p, "zero_optimization.sub_group_size"), &size) && size > 0)
		fw_set_whole(p, "sub-group-size", size, "zero_optimization.sub_group_size", ZERO);
	if (fw_on(p, "optimizer.params.torch_adam"))
		fw_set(p, "optimizer", "adamw", "optimizer.params.torch_adam",
		       "deepspeed/runtime/engine.py");
	if (*fw_fact(p, "optimizer") && has_offload(p, "offload-optimizer"))
		fw_note(p, "optimizer.type",
			"DeepSpeedCPUAdam where the optimizer is offloaded: its states are the same");
	if (fw_fact_from_file(p, "optimizer"))
		fw_set(p, "@engine-optimizer", fw_fact(p, "optimizer"), "optimizer.type", NULL);
	/* only the global batch: accumulation 1 (runtime/config.py _configure_train_batch_size);
	 * Trainer fills in its own */
	if (*fw_fact(p, "global-batch") && !*fw_fact(p, "micro-batch") && !*fw_fact(p, "grad-accum") &&
	    !fw_key(p, "train_micro_batch_size_per_gpu") && !fw_key(p, "gradient_accumulation_steps"))
		fw_default(p, "grad-accum", "1", "deepspeed/runtime/config.py");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_deepspeed = {
	.name = "deepspeed",
	.summary = "a DeepSpeed JSON",
	.version = "DeepSpeed 0.18",
	.role = FW_ENGINE,
	.marks = "zero_optimization train_micro_batch_size_per_gpu train_batch_size+steps_per_print "
		 "train_batch_size+fp16 train_batch_size+optimizer bf16+gradient_accumulation_steps "
		 "compression_training",
	.never = "compute_environment base_model global_train_batch_size hidden_size",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
