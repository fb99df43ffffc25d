/* NeMo 1's YAML of language models (megatron_gpt_pretraining.py, megatron_gpt_finetuning.py and their like), and
 * hydra's overrides of it.
 *
 * The step is Megatron-core's; the model is described by dimensions or by a .nemo file, not by a name: --model is
 * the user's to give. */
#include <stdio.h>
#include <string.h>

#include "framework.h"

#define BASE "nemo/collections/nlp/models/language_modeling/megatron_base_model.py"
#define CONF "examples/nlp/language_modeling/conf/megatron_gpt_config.yaml"
#define ALIGNER "NVIDIA/NeMo-Aligner examples/nlp/gpt/conf"
#define TUNING "examples/nlp/language_modeling/tuning/conf/megatron_gpt_finetuning_config.yaml"

static const struct fw_row rows[] = {
	FW_KEY("model.micro_batch_size", "micro-batch", NULL, NULL, CONF),
	FW_KEY("model.global_batch_size", "global-batch", NULL, NULL, CONF),
	FW_KEY("model.encoder_seq_length", "seq-len", NULL, NULL, CONF),
	{"model.data.train_ds.max_seq_length", .hook = true, .source = TUNING},
	{"model.data.seq_length", .hook = true, .source = CONF},
	{"model.data.train_ds", .hook = true, .source = TUNING},
	FW_KEY("model.tensor_model_parallel_size", "tp", NULL, "1", CONF),
	FW_KEY("model.pipeline_model_parallel_size", "pp", NULL, "1", CONF),
	FW_KEY("model.context_parallel_size", "cp", NULL, "1", CONF),
	FW_KEY("model.expert_model_parallel_size", "ep", NULL, "1", CONF),
	FW_KEY("model.virtual_pipeline_model_parallel_size", "vpp", NULL, NULL, CONF),
	FW_KEY("model.sequence_parallel", "sp", NULL, NULL, CONF),
	FW_KEY("model.activations_checkpoint_granularity", "grad-ckpt", "full>full;selective>selective", "none", CONF),
	{"model.activations_checkpoint_method", .hook = true, .source = CONF},
	{"model.activations_checkpoint_num_layers", .hook = true, .source = CONF},
	{"model.num_micro_batches_with_partial_activation_checkpoints",
	 .note = "some micro-batches are checkpointed in part: more than is priced"},
	{"model.activations_checkpoint_layers_per_pipeline",
	 .note = "later stages checkpoint fewer layers: more than is priced"},
	FW_KEY("model.use_flash_attention", "attn", "true>flash;false>", NULL, CONF),
	{"model.mcore_gpt", .hook = true}, {"model.transformer_engine", .hook = true}, {"model.name", .hook = true},
	{"model.megatron_amp_O2", .hook = true, .source = BASE ":133"},
	{"model.fp8", .hook = true, .source = CONF},
	{"model.fsdp", .note = "FSDP shards the weights: less than is priced; --engine fsdp2"},
	{"model.cpu_offloading", .note = "activations of layers wait in host memory: less than is priced"},
	{"model.ub_tp_comm_overlap", .knob = "tp-comm-overlap", .map = "true>true;false>", .source = CONF, .note = "user buffers of overlapped tensor parallelism: more than is priced"},
	{"model.fp32_residual_connection", .note = "hidden states between layers are in fp32: more than is priced"},
	{"model.fp16_lm_cross_entropy", .note = "the loss is computed in 16 bit: less than is priced"},
	{"model.activations_checkpoint_recurrent", .note = "recurrent blocks are checkpointed apart: not priced"},
	FW_KEY("model.data.train_ds.packed_sequence", "packing", "true>true;false>false", NULL, TUNING),
	{"model.enable_cuda_graph", .knob = "cuda-graph", .map = "true>true;false>", .source = CONF, .note = "CUDA graphs hold their own pools: more than is priced"},
	FW_KEY("model.optim.name", "optimizer",
	       "fused_adam>adamw-fused;distributed_fused_adam>adamw-fused zero=1;"
	       "mcore_distributed_optim>adamw-fused zero=1;megatron_fused_adam>adamw-fused;adam>adamw;*>=",
	       "adamw-fused", BASE ":1032"),
	FW_KEY("model.peft.peft_scheme", "method", "lora>lora;qlora>lora base-bits=4-nf4;null>full;none>full", NULL, TUNING),
	{"model.peft.lora_tuning.adapter_dim", .hook = true, .source = TUNING},
	{"model.peft.lora_tuning.adapter_dropout", .hook = true, .source = TUNING},
	{"model.peft.lora_tuning.target_modules", .hook = true, .source = TUNING},
	{"trainer.sft", .hook = true, .source = ALIGNER}, {"trainer.dpo", .hook = true, .source = ALIGNER},
	{"trainer.rm", .hook = true, .source = ALIGNER}, {"trainer.kto", .hook = true, .source = ALIGNER},
	{"trainer.ppo", .hook = true, .source = ALIGNER}, {"trainer.rs", .hook = true, .source = ALIGNER},
	{"trainer.spin", .hook = true, .source = ALIGNER}, {"trainer.reinforce", .hook = true, .source = ALIGNER},
	{"trainer.knowledge_distillation", .hook = true, .source = ALIGNER},
	{"pretrained_checkpoint", .hook = true, .source = ALIGNER},
	{"trainer.devices", .hook = true}, {"trainer.num_nodes", .hook = true}, {"trainer.precision", .hook = true},
	FW_KEY("model.data.num_workers", "dataloader-workers", NULL, NULL, CONF),
	{.key = NULL},
};
static const char idle[] =
	/* the model, which the user gives with --model */
	"model.num_layers model.hidden_size model.ffn_hidden_size model.num_attention_heads model.num_query_groups "
	"model.kv_channels model.max_position_embeddings model.make_vocab_size_divisible_by model.vocab_size "
	"model.override_vocab_size model.normalization model.layernorm_* model.activation model.bias model.qkv_bias "
	"model.rotary_* model.position_embedding_type model.share_* model.init_method_std model.use_scaled_init_method "
	"model.embedding_* model.hidden_dropout model.attention_dropout model.ffn_dropout model.transformer_block_type "
	"model.attention_type model.openai_gelu model.onnx_safe model.headscale model.normalize_attention_scores "
	"model.gated_linear_unit model.window_size model.tokens_head_bias model.logits_soft_cap model.use_emha "
	"model.num_moe_experts model.moe_router_topk model.tokenizer* model.pre_process model.post_process "
	"model.mcore_customization_config* model.retro* model.encoder model.decoder model.arch "
	"model.seq_len_interpolation_factor "
	/* how it is run, with the same bytes */
	"model.apex_* model.apply_* model.persist_layer_norm model.bias_* model.masked_softmax_fusion "
	"model.get_attention_mask_from_fusion model.grad_div_ar_fusion model.grad_allreduce_chunk_size_mb "
	"model.gradient_accumulation_fusion model.gradient_as_bucket_view model.native_amp_* model.hysteresis "
	"model.fp8_* model.reduce_amax model.overlap_p2p_comm model.batch_p2p_comm model.sync_batch_comm "
	"model.use_cpu_initialization model.nsys_profile* model.gc_interval model.seed model.deterministic_mode "
	"model.do_layer_norm_weight_decay model.optim.* model.defer_embedding_wgrad_compute model.tp_comm_* "
	"model.ub_tp_comm_overlap_cfg* model.megatron_legacy model.dist_ckpt* model.eval_languages model.precision "
	/* where it comes from and goes to; its data */
	"model.restore_* model.resume_from_checkpoint model.pretrained_* model.save_nemo_on_validation_end "
	"model.hparams_file model.answer_only_loss model.data* model.dpo* model.kto* model.ppo* model.spin* model.reward* model.output_sequence "
	"model.knowledge_distillation* model.overwrite_base_config* precision model.test_ds* model.validation_ds* model.peft.* "
	"model.seq_length model.inference* model.pipeline_model_parallel_split_rank "
	"trainer.accelerator trainer.logger trainer.enable_* trainer.use_distributed_sampler trainer.replace_sampler_ddp "
	"trainer.max_* trainer.log_* trainer.val_* trainer.limit_* trainer.accumulate_grad_batches trainer.benchmark "
	"trainer.gradient_clip_* trainer.check_* trainer.num_sanity_val_steps trainer.profiler trainer.strategy* "
	"trainer.callbacks trainer.default_root_dir trainer.resume_from_checkpoint trainer.sync_batchnorm "
	"exp_manager* run* name defaults* hydra* restore_from_path cluster* inference* "
	"(launcher) (program) (words) (files) config_path config_name";

/* A whole number that is one of a count of things; 0: there is none. */
static int64_t count(const struct fw_part *p, const char *key)
{
	int64_t n;

	return doc_whole(fw_key(p, key), &n) && n > 0 && n < 1000000 ? n : 0;
}

/* Weights of 16 bit with fp32 masters under megatron_amp_O2, else fp32 ones under autocast. */
static void finish_precision(struct fw_part *p)
{
	const char *word = fw_text(p, "trainer.precision"), *key = "trainer.precision";
	const bool o2 = fw_on(p, "model.megatron_amp_O2"), half = strstr(word, "16") && !strstr(word, "bf");

	if (strstr(word, "bf16"))
		fw_set(p, "precision", o2 || strstr(word, "true") ? "bf16" : "amp-bf16", key, BASE ":133, megatron_amp_O2");
	else if (half)
		fw_set(p, "precision", o2 ? "fp16" : "amp-fp16", key, BASE ":133, megatron_amp_O2");
	else if (strstr(word, "32"))
		fw_set(p, "precision", "fp32", key, NULL);
}

static void finish_adapters(struct fw_part *p)
{
	static const char *const names[][2] = {{"attention_qkv", "q_proj+k_proj+v_proj"}, {"attention_dense", "o_proj"},
					       {"mlp_fc1", "gate_proj+up_proj"}, {"mlp_fc2", "down_proj"}};
	const char *key = "model.peft.lora_tuning.target_modules", *rank = "model.peft.lora_tuning.adapter_dim";
	char list[200] = "", targets[200] = "";

	if (!fw_fact_is(p, "method", "lora"))
		return;
	if (count(p, rank))
		fw_set_whole(p, "lora-r", count(p, rank), rank, NULL);
	if (*fw_text(p, "model.peft.lora_tuning.adapter_dropout"))
		fw_set(p, "lora-dropout", fw_text(p, "model.peft.lora_tuning.adapter_dropout"),
		       "model.peft.lora_tuning.adapter_dropout", NULL);
	if (fw_key(p, key))
		doc_show(fw_key(p, key), list, sizeof(list));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strstr(list, names[i][0]))
			snprintf(targets + strlen(targets), sizeof(targets) - strlen(targets), "%s%s", *targets ? "+" : "",
				 names[i][1]);
	if (strstr(list, "all"))
		snprintf(targets, sizeof(targets), "all-linear");
	fw_default(p, "lora-targets", "q_proj+k_proj+v_proj", TUNING " target_modules: attention_qkv");
	if (*targets)
		fw_set(p, "lora-targets", targets, key, "fused projections take one adapter each: priced as separate ones");
}

static void finish_size(struct fw_part *p)
{
	const char *lengths[] = {"model.data.train_ds.max_seq_length", "model.data.seq_length"};
	const int64_t devices = count(p, "trainer.devices"), nodes = count(p, "trainer.num_nodes");

	for (size_t i = 0; i < 2; i++)
		if (!*fw_fact(p, "seq-len") && count(p, lengths[i]))
			fw_set_whole(p, "seq-len", count(p, lengths[i]), lengths[i], NULL);
	if (devices)
		fw_set_whole(p, "gpus", devices * (nodes ? nodes : 1), "trainer.devices", "devices of a node x nodes");
	if (devices && nodes)
		fw_set_whole(p, "nodes", nodes, "trainer.num_nodes", NULL);
	fw_megatron_blocks(p, "model.activations_checkpoint_method", "model.activations_checkpoint_num_layers");
}

/* NeMo-Aligner's trainers: a map under the trainer's own name says which it is. */
static void finish_aligner(struct fw_part *p)
{
	static const struct {
		const char *key, *objective, *note;
	} trainers[] = {
		{"trainer.sft", "sft", NULL},
		{"trainer.dpo", "dpo", "the reference policy waits in host memory and takes the trained one's place for its pass"},
		{"trainer.kto", "kto", "the reference policy waits in host memory and takes the trained one's place for its pass"},
		{"trainer.rm", "reward", NULL},
		{"trainer.ppo", "ppo", "a critic, a reward model and rollouts are missing in the price"},
		{"trainer.reinforce", "reinforce", "a reward model and rollouts are missing in the price"},
		{"trainer.rs", "sft", "rollouts are missing in the price"},
		{"trainer.spin", "dpo", "rollouts are missing in the price"},
		{"trainer.knowledge_distillation", "distill", "the teacher's logits come from files"},
	};

	for (size_t i = 0; i < sizeof(trainers) / sizeof(trainers[0]); i++)
		if (fw_key(p, trainers[i].key)) {
			fw_set(p, "objective", trainers[i].objective, trainers[i].key, ALIGNER);
			if (trainers[i].note)
				fw_unmodelled(p, trainers[i].key, trainers[i].note);
		}
}

/* What is trained is a checkpoint, which says how it is divided where the file is silent. */
static void finish_checkpoint(struct fw_part *p)
{
	static const char *const divided[] = {"tp", "pp", "cp", "ep", "attn", "grad-ckpt"};

	for (size_t i = 0; fw_key(p, "pretrained_checkpoint") && i < sizeof(divided) / sizeof(divided[0]); i++)
		if (!fw_fact_from_file(p, divided[i]))
			fw_open(p, divided[i], "as the checkpoint has it where the file is silent (NeMo-Aligner "
				"load_and_override_model_config); the default is taken");
}

/* megatron-core's layers are made of its own modules, whose attention is written out, where Transformer Engine is not
 * asked for and no model of NeMo's is named (megatron_gpt_model.py get_specs); who tunes has them as the checkpoint. */
static bool is_local(struct fw_part *p)
{
	return fw_on(p, "model.mcore_gpt") && !fw_on(p, "model.transformer_engine") && !*fw_text(p, "model.name") &&
	       (fw_key(p, "model.transformer_engine") || !fw_key(p, "model.data.train_ds"));
}

static void finish(struct fw_part *p)
{
	const bool local = is_local(p),
		   modern = !local && (fw_on(p, "model.mcore_gpt") || fw_on(p, "model.transformer_engine"));
	const char *scheme = fw_text(p, "model.peft.peft_scheme");

	fw_set(p, "engine", "megatron", NULL, BASE);
	finish_aligner(p);
	fw_default(p, "objective", fw_key(p, "model.data.train_ds") ? "sft" : "pretrain", "model.data");
	if (*scheme && !*fw_fact(p, "method"))
		fw_unmodelled(p, "model.peft.peft_scheme", "no knob for this kind of adapters: all weights are priced");
	fw_default(p, "method", "full", TUNING " peft_scheme");
	finish_precision(p);
	finish_adapters(p);
	finish_size(p);
	if (fw_on(p, "model.fp8"))
		fw_set(p, "fp8", "tensorwise", "model.fp8", CONF);
	fw_default(p, "attn", modern ? "flash" : "eager",
		   local  ? "megatron_gpt_model.py get_specs: no transformer_engine" :
		   modern ? "megatron-core: attention_backend auto" :
			    CONF " use_flash_attention");
	if (local)
		fw_open(p, "attn", "megatron-core's own modules without Transformer Engine; the first NeMo with "
			"megatron-core took its layers all the same");
	fw_default(p, "loss", "plain", "vocabulary-parallel cross entropy");
	fw_default(p, "zero", "0", BASE " with_distributed_adam");
	fw_default(p, "base-bits", "16", "no quantisation is asked for");
	fw_default(p, "packing", fw_fact_is(p, "objective", "pretrain") ? "true" : "false", "documents fill rows; " TUNING);
	if (*fw_fact(p, "micro-batch"))
		fw_default(p, "eval-batch", fw_fact(p, "micro-batch"), "evaluation takes the micro-batch");
	/* switched off without sequence parallelism (megatron_base_model.py _validate_and_override_config) */
	if (fw_fact_is(p, "tp-comm-overlap", "true") && !fw_fact_is(p, "sp", "true"))
		fw_set(p, "@price.tp-comm-overlap", "false", NULL, NULL);
	finish_checkpoint(p);
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_nemo = {
	.name = "nemo",
	.summary = "NeMo 1's YAML of language models (megatron_gpt_pretraining, _finetuning) and its overrides",
	.version = "NeMo 8cfedd7",
	.role = FW_TRAINER,
	.marks = "model.tensor_model_parallel_size+trainer model.tensor_model_parallel_size+trainer.devices "
		 "model.micro_batch_size+trainer model.micro_batch_size+trainer.devices",
	.never = "actor_rollout_ref actor_rollout_ref.model.path data.train_files",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
