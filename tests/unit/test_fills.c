/* What each format is filled with (planner/emit/fills.h): keys and values of one plan, as the frameworks' own
 * documents spell them.  The words' origins stand beside them; the texts that become of them are test_emit.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "emit/fills.h"
#include "oomplan/option.h"
#include "knobs.h"

static struct oom_plan plan_of(const char *settings)
{
	struct oom_plan plan = oom_plan_default();

	set(&plan, settings);
	oom_plan_settle(&plan);
	return plan;
}

static struct emission begin(const struct oom_plan *plan)
{
	struct emission e = {.plan = plan, .model = "org/model"};
	struct oom_error err = {{0}};

	assert_int_equal(doc_begin(&e.doc, "test", "", &err), 0);
	assert_non_null(doc_add(&e.doc, NULL, NULL, DOC_MAP, 0, 0));
	return e;
}

#define SHARDED "engine=deepspeed zero=3 gpus=4 micro-batch=2 grad-accum=8 seq-len=512 precision=bf16 optimizer=adamw-fused "
#define ADAPTED "micro-batch=2 grad-accum=8 seq-len=512 precision=bf16-amp lora-r=16 lora-targets=q_proj+v_proj grad-ckpt=full "

static const struct {
	void (*fill)(struct emission *e);
	const char *plan;
	/* "key=value", a key alone where it must not stand */
	const char *holds[12];
} fillings[] = {
	/* deepspeed/runtime/constants.py, zero/config.py, zero/offload_config.py */
	{fill_deepspeed, SHARDED "offload-optimizer=cpu",
	 {"zero_optimization.stage=3", "zero_optimization.offload_optimizer.device=cpu", "train_micro_batch_size_per_gpu=2",
	  "gradient_accumulation_steps=8", "bf16.enabled=true", "zero_optimization.offload_param.device", NULL}},
	/* transformers/training_args.py, trl/trainer/model_config.py */
	{training_arguments, SHARDED "evaluates=no",
	 {"per_device_train_batch_size=2", "gradient_accumulation_steps=8", "optim=adamw_torch_fused", "eval_strategy=no",
	  "deepspeed.zero_optimization.stage=3", "fsdp", NULL}},
	{fill_trl, ADAPTED, {"model_name_or_path=org/model", "use_peft=true", "lora_r=16", "dtype=bfloat16", "bf16=true",
			     "eval_strategy", NULL}},
	{fill_trainer, ADAPTED, {"model_max_length=512", "use_peft=true", "gradient_checkpointing=true", "max_length", NULL}},
	/* trl/trainer/sft_config.py, transformers from_pretrained: arguments of calls */
	{fill_python, ADAPTED, {"LoraConfig.r=16", "TrainingArguments.per_device_train_batch_size=2", "SFTConfig", NULL}},
	/* accelerate/utils/dataclasses.py, commands/launch.py */
	{fill_accelerate, "engine=fsdp2 zero=3 gpus=4 nodes=2 precision=amp-bf16",
	 {"distributed_type=FSDP", "num_processes=4", "num_machines=2", "mixed_precision=bf16", "fsdp_config.fsdp_version=2",
	  "deepspeed_config", NULL}},
	/* axolotl/utils/schemas */
	{fill_axolotl, ADAPTED "base-weights=nf4",
	 {"base_model=org/model", "adapter=qlora", "load_in_4bit=true", "sequence_len=512", "micro_batch_size=2", "bf16=true", NULL}},
	/* llamafactory/hparams */
	{fill_llamafactory, ADAPTED, {"finetuning_type=lora", "lora_rank=16", "lora_target=q_proj,v_proj", "cutoff_len=512", "stage=sft",
				      "quantization_bit", NULL}},
	/* torchtune recipes/configs */
	{fill_torchtune, ADAPTED "optimizer=adamw-fused",
	 {"batch_size=2", "gradient_accumulation_steps=8", "optimizer._component_=torch.optim.AdamW", "optimizer.fused=True",
	  "model.lora_rank=16", "model.quantize_base", NULL}},
	/* torchtitan/config/job_config.py */
	{fill_torchtitan, "engine=fsdp2 zero=3 gpus=4 micro-batch=2 seq-len=512 precision=amp-bf16 grad-ckpt=full tp=2",
	 {"training.local_batch_size=2", "training.seq_len=512", "activation_checkpoint.mode=full",
	  "parallelism.tensor_parallel_degree=2", NULL}},
	/* openrlhf/cli/train_sft.py, train_ppo_ray.py: parsers of 3c3be62 */
	{fill_openrlhf, SHARDED "attn=flash packing=true offload-optimizer=cpu",
	 {"model.model_name_or_path=org/model", "train.micro_batch_size=2", "train.batch_size=64", "data.max_len=512",
	  "ds.zero_stage=3", "ds.param_dtype=bf16", "ds.attn_implementation=flash_attention_2", "ds.packing_samples=true",
	  "ds.adam_offload=true", "ds.lora", "actor", NULL}},
	{fill_openrlhf, ADAPTED "engine=deepspeed zero=2 gpus=16 nodes=2 objective=grpo use-reentrant=true",
	 {"actor.model_name_or_path=org/model", "actor.gradient_checkpointing_enable=true",
	  "actor.gradient_checkpointing_reentrant=true", "actor.num_nodes=2", "actor.num_gpus_per_node=8",
	  "algo.advantage.estimator=group_norm", "ds.lora.rank=16", "model", NULL}},
	/* verl/trainer/config: ppo_trainer.yaml, actor/actor.yaml, engine/fsdp.yaml, engine/megatron.yaml, sft_trainer.yaml */
	{fill_verl, ADAPTED "engine=fsdp2 zero=2 gpus=16 nodes=2 objective=grpo completion-len=128",
	 {"algorithm.adv_estimator=grpo", "actor_rollout_ref.model.path=org/model", "actor_rollout_ref.actor.strategy=fsdp2",
	  "actor_rollout_ref.actor.ppo_mini_batch_size=32", "actor_rollout_ref.rollout.n=8", "data.max_prompt_length=384",
	  "actor_rollout_ref.actor.fsdp_config.reshard_after_forward=false", "trainer.n_gpus_per_node=8", "model", NULL}},
	{fill_verl, ADAPTED "engine=fsdp2 zero=3 gpus=4",
	 {"model.partial_pretrain=org/model", "model.strategy=fsdp2", "data.train_batch_size=64", "data.max_length=512",
	  "model.lora_rank=16", "actor_rollout_ref", NULL}},
	{fill_verl, "engine=megatron zero=1 gpus=16 nodes=2 tp=4 sp=true pp=2 pp-last-layers=7 precision=bf16 grad-ckpt=full objective=ppo",
	 {"actor_rollout_ref.actor.strategy=megatron", "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",
	  "actor_rollout_ref.actor.megatron.override_transformer_config.num_layers_in_last_pipeline_stage=7",
	  "actor_rollout_ref.actor.megatron.override_transformer_config.recompute_method=uniform", NULL}},
	/* litgpt/finetune/lora.py, litgpt/args.py */
	{fill_litgpt, ADAPTED, {"checkpoint_dir=checkpoints/org/model", "lora_r=16", "lora_query=true", "lora_key=false",
				"train.micro_batch_size=2", "train.global_batch_size=16", "devices=1", "quantize", NULL}},
	/* llm-foundry scripts/train/yamls */
	{fill_llm_foundry, ADAPTED, {"model.name=hf_causal_lm", "model.peft_config.r=16", "device_train_microbatch_size=2",
				     "global_train_batch_size=16", "fsdp_config", NULL}},
	/* megatron/training/arguments.py */
	{fill_megatron, "engine=megatron gpus=8 tp=4 pp=2 micro-batch=2 seq-len=512 precision=bf16 zero=1",
	 {"micro-batch-size=2", "tensor-model-parallel-size=4", "pipeline-model-parallel-size=2", "seq-length=512", "bf16=true",
	  "use-distributed-optimizer=true", NULL}},
};

static void check_fill(size_t i)
{
	const struct oom_plan plan = plan_of(fillings[i].plan);
	struct emission e = begin(&plan);

	fillings[i].fill(&e);
	assert_false(e.failed);
	for (const char *const *h = fillings[i].holds; *h; h++) {
		const char *equals = strchr(*h, '=');
		const struct doc_node *node;
		char key[120], shown[200];

		snprintf(key, sizeof(key), "%.*s", (int)(equals ? equals - *h : (long)strlen(*h)), *h);
		node = doc_find(&e.doc, key);
		if (!node && equals)
			fail_msg("%zu: no %s", i, key);
		if (node && !equals)
			fail_msg("%zu: %s stands there", i, key);
		if (node && strcmp(doc_show(node, shown, sizeof(shown)), equals + 1))
			fail_msg("%zu: %s is %s, not %s", i, key, shown, equals + 1);
	}
	doc_release(&e.doc);
}

static void test_fills(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(fillings) / sizeof(fillings[0]); i++)
		check_fill(i);
}

/* DeepSpeed's map stands below a key of another file. */
static void test_prefix(void **state)
{
	const struct oom_plan plan = plan_of(SHARDED);
	struct emission e = begin(&plan);

	(void)state;
	deepspeed_config(&e, "deepspeed.");
	assert_non_null(doc_find(&e.doc, "deepspeed.zero_optimization.stage"));
	assert_null(doc_find(&e.doc, "zero_optimization"));
	doc_release(&e.doc);
}

/* trl/scripts and trl/cli: commands of these objectives; CPOTrainer, which trains SimPO, has none. */
static void test_commands(void **state)
{
	static const char *const commands[][2] = {{"sft", "sft"}, {"dpo", "dpo"}, {"kto", "kto"}, {"reward", "reward"},
						  {"grpo", "grpo"}, {"simpo", NULL}, {"ppo", NULL}};

	(void)state;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		char settings[40];
		struct oom_plan plan;
		struct emission e;

		snprintf(settings, sizeof(settings), "objective=%s", commands[i][0]);
		plan = plan_of(settings);
		e = begin(&plan);
		if (commands[i][1])
			assert_string_equal(trl_command(&e), commands[i][1]);
		else
			assert_null(trl_command(&e));
		doc_release(&e.doc);
	}
}

/* Launch lines: torch/distributed/run.py; sbatch(1); TRL's and torchtune's commands. */
static void test_writers(void **state)
{
	static const struct {
		void (*fill)(struct emission *e);
		void (*write)(struct emission *e, struct emit_text *out);
		const char *begins, *holds;
	} writers[] = {
		{fill_trl, write_trl, "# trl sft --config FILE\n", "model_name_or_path: org/model\n"},
		{fill_trl, write_trl_command, "trl sft ", "--model_name_or_path org/model"},
		{fill_trl, write_torchrun, "torchrun --nnodes 2 --nproc_per_node 4 ", "--rdzv_backend c10d"},
		{fill_trl, write_slurm, "#!/bin/bash\n", "#SBATCH --gpus-per-node=4\n"},
		{fill_trl, write_skypilot, "", "num_nodes: 2"},
		{fill_trl, write_dstack, "type: task\n", "nodes: 2"},
		{fill_torchtune, write_torchtune, "tune run --nproc_per_node 8 ", "full_finetune_distributed"},
		{fill_megatron, write_megatron, "--micro-batch-size 2 \\\n", "--bf16"},
	};
	const struct oom_plan plan = plan_of("gpus=8 nodes=2 micro-batch=2 seq-len=512 precision=bf16 optimizer=adamw-fused");

	(void)state;
	for (size_t i = 0; i < sizeof(writers) / sizeof(writers[0]); i++) {
		struct emission e = begin(&plan);
		struct emit_text out = {.text = NULL};

		writers[i].fill(&e);
		writers[i].write(&e, &out);
		assert_false(out.failed);
		if (strncmp(out.text, writers[i].begins, strlen(writers[i].begins)) || !strstr(out.text, writers[i].holds))
			fail_msg("%zu: %s", i, out.text);
		emit_text_release(&out);
		doc_release(&e.doc);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fills),
		cmocka_unit_test(test_prefix),
		cmocka_unit_test(test_commands),
		cmocka_unit_test(test_writers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
