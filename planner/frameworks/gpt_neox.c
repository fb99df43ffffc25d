/* GPT-NeoX: YAML of DeepSpeed's, Megatron's and its own keys in one map, of several files that count together.
 *
 * Keys are spelled with '-' or '_'; both are one here as everywhere. */
#include <stdlib.h>
#include <string.h>

#include "framework.h"
#include "oomplan/option.h"

#define ARGS "megatron/neox_arguments/neox_args.py"
#define DERIVED "megatron/neox_arguments/arguments.py"
#define TRAINING "megatron/training.py get_optimizer"
#define BUCKET "zero_optimization.reduce_bucket_size"
#define ZERO "deepspeed/runtime/zero/config.py"

static const struct fw_row rows[] = {
	FW_KEY("train_micro_batch_size_per_gpu", "micro-batch", NULL, NULL, DERIVED " calculate_batch_parameters"),
	FW_KEY("gradient_accumulation_steps", "grad-accum", NULL, NULL, DERIVED " calculate_batch_parameters"),
	/* the file of Pythia has both names, of which the longer one is read */
	FW_KEY("gas", NULL, NULL, NULL, "EleutherAI/pythia models"),
	FW_KEY("train_batch_size", "global-batch", NULL, NULL, DERIVED " calculate_batch_parameters"),
	FW_KEY("seq_length", "seq-len", NULL, NULL, ARGS ":150"),
	FW_KEY("model_parallel_size", "tp", NULL, "1", ARGS ":65"),
	{"pipe_parallel_size", .hook = true, .source = ARGS ":60"},
	FW_KEY("context_parallel_size", "cp", NULL, NULL, ARGS),
	FW_KEY("sequence_parallel", "sp", "true>true;false>false", NULL, ARGS ":88"),
	FW_KEY("global_num_gpus", "gpus", NULL, NULL, ARGS ":972"),
	{"precision", .hook = true, .source = DERIVED ":966"},
	{"fp16.enabled", .hook = true, .source = DERIVED ":966"},
	{"bf16.enabled", .hook = true, .source = DERIVED ":974"},
	FW_KEY("checkpoint_activations", "grad-ckpt", "true>full;false>none", "none", ARGS ":1399"),
	FW_KEY("checkpoint_num_layers", "@layers-at-once", "1>;*>=", NULL, ARGS ":1404"),
	{"checkpoint_in_cpu", .note = "inputs of checkpointed layers wait in host memory: less than is priced"},
	{"attention_config", .hook = true, .source = ARGS ":234"},
	{"optimizer.type", .hook = true, .source = TRAINING},
	{"use_bnb_optimizer", .hook = true, .source = TRAINING},
	FW_KEY("zero_optimization.stage", "zero", NULL, NULL, ZERO),
	FW_KEY(BUCKET, "reduce-bucket-size", NULL, NULL, ZERO),
	FW_KEY("zero_stage", "zero", NULL, NULL, ARGS ":628"),
	FW_KEY("zero_optimization.offload_optimizer.device", "offload-optimizer", "cpu>cpu;nvme>nvme;none>none", NULL,
	       ZERO),
	FW_KEY("zero_optimization.cpu_offload", "offload-optimizer", "true>cpu;false>none", NULL, ZERO),
	FW_KEY("data_types.grad_accum_dtype", "fp32-grad-accum", "fp32>true;*>", NULL, DERIVED ":1003"),
	{"train_impl", .hook = true, .source = ARGS},
	FW_KEY("num_workers", "dataloader-workers", NULL, NULL, ARGS),
	{"fp32_allreduce", .note = "gradients are reduced in fp32: a buffer more than is priced"},
	{"moe_num_experts", .note = "experts in place of MLPs: give the model's config.json with them"},
	{"gmlp_attn_dim", .note = "gMLP layers: not modelled"},
	{"soft_prompt_tuning.enabled", .note = "soft prompts are trained: not modelled"},
	{.key = NULL},
};

/* Sizes of the model are its config.json's to say. */
static const char idle[] =
	"num_layers hidden_size intermediate_size mlp_multiple_of expansion_factor num_attention_heads num_kv_heads "
	"sliding_window_width max_position_embeddings norm layernorm* rmsnorm* rms_norm* scalenorm* use_qk_layernorm "
	"pos_emb rpe_* opt_pos_emb_offset no_weight_tying sparsity_config* num_unique_layers param_sharing_style "
	"make_vocab_size_divisible_by activation use_flashattn_swiglu scaled_* bias_* rope_fusion fused_kernels* "
	"fp16_lm_cross_entropy fp16.* fp16.fp16 fp16 bf16.* bf16 init_method* output_layer_* apply_query_key_layer_scaling "
	"use_cpu_initialization attention_softmax_in_fp32 rotary_* gpt_j_* use_bias_* mamba_* te_* dim_att head_size "
	"ffn_dim optimizer optimizer.params* zero_optimization zero_optimization.* zero_* lr lr_* min_lr warmup "
	"override_lr_scheduler use_checkpoint_lr_scheduler scheduler* use_wandb wandb_* git_hash log_* tensorboard* "
	"use_comet comet_* peak_theoretical_tflops gradient_noise_scale* memory_profiling* profile* distributed_backend "
	"local_rank rank lazy_mpu_init short_seq_prob eod_mask_loss adlr_* seed onnx_safe deepscale* deepspeed_* "
	"deepspeed user_script iteration do_* tokenizer_* padded_vocab_size data_* use_shared_fs train_* valid_* test_* "
	"pos_* neg_* weight_by_num_documents weighted_sampler_alpha pack_impl dpo_* kto_* z_loss reinforce_* kl_* "
	"fp32_reinforce allow_chopped mmap_warmup save* s3_* config_files load checkpoint_* extra_save_iters no_save_* "
	"no_load_* finetune batch_size eval_* keep_last_n_checkpoints split vocab_file merge_file exit_interval "
	"attention_dropout hidden_dropout weight_decay contiguous_checkpointing synchronize_each_layer "
	"profile_backward partition_activations clip_grad gradient_clipping hysteresis dynamic_loss_scale loss_scale* "
	"min_scale char_level_ppl use_mup mup_* coord_check base_shapes_file text_gen_type temperature top_* "
	"return_logits maximum_tokens prompt_end sample_* num_samples recompute steps_per_print wall_clock_breakdown "
	"flops_profiler* autotuning* tensorboard* csv_monitor* comms_logger* launcher include exclude hostfile "
	"master_* no_ssh_check comment detect_nvlink_pairs pipe_partition_method is_pipe_parallel world_size "
	"prescale_gradients data_types* activation_checkpointing* moe_* soft_prompt_tuning* serve_* online_* weight_server*";

static void finish_precision(struct fw_part *p)
{
	const char *word = fw_text(p, "precision");

	if (*word)
		fw_set(p, "precision", !strcmp(word, "bfloat16") ? "bf16" : word, "precision", DERIVED ":734");
	else if (fw_on(p, "bf16.enabled"))
		fw_set(p, "precision", "bf16", "bf16.enabled", DERIVED ":974");
	else if (fw_on(p, "fp16.enabled"))
		fw_set(p, "precision", "fp16", "fp16.enabled", DERIVED ":966");
	else
		fw_default(p, "precision", "fp32", DERIVED ":1011");
}

/* [[["flash"], 24]]: kinds of attention and how many layers have them; layers are taken to have the first. */
static void finish_attention(struct fw_part *p)
{
	const struct doc_node *node = fw_key(p, "attention_config");

	while (node && node->kind == DOC_LIST && node->child)
		node = node->child;
	if (!node || node->kind != DOC_SCALAR)
		fw_default(p, "attn", "eager", DERIVED ":1093 \"global\"");
	else if (!strcmp(node->text, "flash"))
		fw_set(p, "attn", "flash", "attention_config", ARGS ":234");
	else
		fw_set(p, "attn", "eager", "attention_config", ARGS ":234");
	if (node && node->kind == DOC_SCALAR && strcmp(node->text, "flash") && strcmp(node->text, "global"))
		fw_unmodelled(p, "attention_config", "priced as unfused attention over whole rows");
}

static void finish_optimizer(struct fw_part *p)
{
	static const struct {
		const char *type, *knob;
	} types[] = {{"adam", "adamw-fused"}, {"onebitadam", "adamw-fused"}, {"cpu_adam", "adamw"},
		     {"cpu_torch_adam", "adamw"}, {"lion", "lion"}, {"sgd", "sgd"}};
	const char *type = fw_text(p, "optimizer.type");

	if (!*type) {
		fw_default(p, "optimizer", "adamw-fused", ARGS ":608 adam: Apex' FusedAdam");
		return;
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (oom_same_word(type, types[i].type))
			fw_set(p, "optimizer", fw_on(p, "use_bnb_optimizer") ? "adamw-8bit" : types[i].knob,
			       "optimizer.type", TRAINING);
	if (!*fw_fact(p, "optimizer"))
		fw_unmodelled(p, "optimizer.type", "no knob for this optimizer");
	if (!strncmp(type, "cpu", 3))
		fw_set(p, "offload-optimizer", "cpu", "optimizer.type", TRAINING);
}

static void finish_objective(struct fw_part *p)
{
	const char *impl = fw_text(p, "train_impl");

	if (!*impl || !strcmp(impl, "normal"))
		fw_default(p, "objective", "pretrain", ARGS " train_impl normal");
	else
		fw_set(p, "objective", !strcmp(impl, "rm") ? "reward" : impl, "train_impl", ARGS);
}

static void finish(struct fw_part *p)
{
	int64_t bucket, stages;

	/* 0 and 1 are both one stage */
	fw_set_whole(p, "pp", fw_whole_or(p, "pipe_parallel_size", 1),
		     fw_key(p, "pipe_parallel_size") ? "pipe_parallel_size" : NULL, ARGS ":60");
	if (fw_key(p, "train_micro_batch_size_per_gpu") && !fw_key(p, "train_batch_size"))
		fw_default(p, "grad-accum", "1", DERIVED " calculate_batch_parameters");
	if (fw_key(p, "seq_length")) {  /* a file of paths or of a cluster says nothing of the run */
		finish_precision(p);
		finish_attention(p);
		finish_optimizer(p);
		if (*fw_fact(p, "@layers-at-once") && fw_fact_is(p, "grad-ckpt", "full"))
			fw_unmodelled(p, fw_key(p, "checkpoint_num_layers") ? "checkpoint_num_layers" : "checkpoint-num-layers",
				      FW_SEVERAL_AT_ONCE);
		finish_objective(p);
		fw_default(p, "method", "full", "no adapters");
		fw_default(p, "loss", "plain", "megatron/mpu/cross_entropy.py");
		fw_default(p, "packing", "true", "megatron/data/gpt2_dataset.py: rows of seq_length");
		fw_default(p, "zero", "0", ZERO);
	}
	if (*fw_fact(p, "micro-batch"))
		fw_default(p, "eval-batch", fw_fact(p, "micro-batch"), "evaluation takes the micro-batch");
	/* no pipeline: DeepSpeed's engine of all ZeRO stages (megatron/training.py, model.to_sequential() at 0) */
	if (doc_whole(fw_key(p, "pipe_parallel_size"), &stages) && !stages && fw_whole_or(p, "model_parallel_size", 1) <= 1)
		fw_set(p, "engine", "deepspeed", "pipe_parallel_size", "GPT-NeoX without its pipeline");
	else
		fw_set(p, "engine", "megatron-deepspeed", NULL, "GPT-NeoX: DeepSpeed under Megatron's layers");
	/* of its engine the step's bucket is priced as DeepSpeed's default (models/step/engines.c) */
	if (*fw_fact(p, "reduce-bucket-size"))
		fw_set(p, "@price.reduce-bucket-size", "500000000", NULL, NULL);
	if (doc_whole(fw_key(p, BUCKET), &bucket) && bucket > 500000000)
		fw_unmodelled(p, BUCKET, "a bucket of 500 M gradients at the step is priced: less than this one");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_gpt_neox = {
	.name = "gpt-neox",
	.summary = "GPT-NeoX YAML",
	.version = "GPT-NeoX main of May 2026",
	.role = FW_TRAINER,
	.marks = "pipe_parallel_size model_parallel_size+seq_length train_data_paths checkpoint_factor deepspeed_slurm "
		 "pipe_partition_method",
	/* its settings stand in files alone: options of these names are Megatron-LM's and Megatron-DeepSpeed's */
	.never = "base_model model_name_or_path pipeline_model_parallel_size (launcher)",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
