/* Plans in the words of frameworks.  Every text is read back when it is made; what would be lost is
 * named: so a plan that a format can say is written without a word, and one it cannot with one.
 *
 * Whether the frameworks' own parsers take the files is not tested here; planner/emit/targets.c says what is
 * known of that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "oomplan/emit.h"
#include "oomplan/option.h"
#include "emitted.h"
#include "knobs.h"

static struct oom_plan plan_of(const char *settings)
{
	struct oom_plan plan = oom_plan_default();

	set(&plan, settings);
	oom_plan_settle(&plan);
	return plan;
}

static const struct oom_gpu card = {.name = "A100-SXM4-80GB", .memory_gb = 80};
static const struct oom_emit_run run = {.model = "org/model", .gpu = &card};

struct saying {
	const char *format, *plan;
	const char *holds[12];   /* texts that stand in it, NULL ends */
	const char *unsaid;     /* all that is lost, joined by "; " */
};

#define QLORA "precision=bf16-amp micro-batch=2 grad-accum=4 seq-len=2048 lora-r=16 lora-targets=q_proj+v_proj " \
	      "base-weights=nf4 grad-ckpt=full attn=flash loss=sft "

static const struct saying sayings[] = {
	{"trl", QLORA "optimizer=paged-adamw-8bit",
	 {"model_name_or_path: org/model", "dtype: bfloat16", "load_in_4bit: true", "lora_target_modules: [q_proj, v_proj]",
	  "per_device_train_batch_size: 2", "optim: paged_adamw_8bit", "attn_implementation: flash_attention_2"}, ""},
	{"trl", "precision=amp-bf16 grad-ckpt=full loss=fused packing=true seq-len=512 optimizer=adamw-fused",
	 {"dtype: float32", "bf16: true", "use_liger_kernel: true", "packing: true", "optim: adamw_torch_fused"}, ""},
	/* integrations/liger.py of transformers: all parts of Liger's are on unless liger_kernel_config, which no command line
	 * takes (training_args.py _VALID_DICT_FIELDS), switches them off */
	{"trl", "loss=fused liger-kernels=all precision=bf16 optimizer=adamw-fused", {"use_liger_kernel: true"}, ""},
	{"trainer", "loss=fused liger-kernels=all precision=bf16 optimizer=adamw-fused", {"--use_liger_kernel true"}, ""},
	{"llamafactory", "loss=fused liger-kernels=all precision=bf16 optimizer=adamw-fused lora-r=8 lora-targets=all-linear",
	 {"enable_liger_kernel: true"}, ""},
	{"trl", "loss=fused liger-kernels=norm precision=bf16 optimizer=adamw-fused",
	 {"use_liger_kernel: true", "liger_kernel_config:\n", "  swiglu: false", "  rope: false"}, ""},
	{"trainer", "loss=fused liger-kernels=norm precision=bf16 optimizer=adamw-fused", {"--use_liger_kernel true"},
	 "--liger-kernels norm"},
	{"trl", "loss=in-place liger-kernels=all precision=bf16 optimizer=adamw-fused",
	 {"use_liger_kernel: true", "  fused_linear_cross_entropy: false", "  cross_entropy: true"}, ""},
	{"trl", "loss=sft precision=bf16 engine=deepspeed zero=3 gpus=8 offload-optimizer=cpu micro-batch=1 optimizer=adamw-fused",
	 {"deepspeed:\n", "    stage: 3", "      device: cpu", "    enabled: true"}, ""},
	{"trl", "loss=sft precision=fp32 grad-ckpt=selective", {"bf16: false"}, "--grad-ckpt selective"},
	{"trainer", QLORA "optimizer=adamw", {"--load_in_4bit true", "--lora_target_modules q_proj v_proj", "--optim adamw_torch"}, ""},
	{"trainer", "loss=sft precision=bf16 engine=deepspeed zero=2 gpus=2 optimizer=adamw-fused", {"--deepspeed '{"}, ""},
	{"python", QLORA "optimizer=adamw-fused",
	 {"AutoModelForCausalLM.from_pretrained(\n", "BitsAndBytesConfig(\n", "load_in_4bit=True", "SFTConfig(\n", "    bf16=True,",
	  "target_modules=[\"q_proj\", \"v_proj\"]"}, ""},
	/* under DeepSpeed bf16 is 16-bit weights and an fp32 master, asked for as autocast or not */
	{"deepspeed", "engine=deepspeed zero=2 gpus=2 precision=amp-bf16", {"\"bf16\": {"}, ""},
	{"trl", "loss=sft engine=deepspeed zero=2 gpus=2 precision=amp-bf16 optimizer=adamw-fused", {"dtype: float32", "bf16: true"}, ""},
	/* transformers integrations/deepspeed.py: fp16.enabled and TrainingArguments' fp16 have to agree */
	{"trl", "loss=sft engine=deepspeed zero=2 gpus=2 precision=fp16 optimizer=adamw-fused", {"fp16: true"}, ""},
	/* axolotl's schema of 0.5 to 0.18 takes true, false or auto, and autocast goes with true */
	{"axolotl", "precision=bf16 micro-batch=2 optimizer=adamw-fused", {"bf16: true", "# axolotl train FILE\n"}, "--precision bf16"},
	/* what the frameworks' own parsers asked for (TRL f2cd577, axolotl 067b021, LLaMA-Factory ff6d4d1, torchtune bd2a0fc) */
	{"axolotl", "precision=bf16-amp objective=kto optimizer=adamw-fused", {"rl: kto", "remove_unused_columns: false"}, ""},
	{"trl", "precision=bf16 objective=grpo micro-batch=2 gpus=2 optimizer=adamw-fused", {"num_generations: 4\n"}, "--seq-len 1024"},
	{"trl", "precision=bf16 objective=grpo micro-batch=3 grad-accum=2 optimizer=adamw-fused", {"num_generations: 6\n"}, "--seq-len 1024"},
	{"trl", "precision=bf16 objective=grpo micro-batch=13 optimizer=adamw-fused", {"num_generations: 13\n"}, "--seq-len 1024"},
	{"trl", "precision=bf16 objective=grpo micro-batch=4 grad-accum=4 optimizer=adamw-fused", {"num_generations: 8\n"}, "--seq-len 1024"},
	{"llamafactory", "precision=bf16 engine=deepspeed zero=2 micro-batch=2 optimizer=adamw-fused",
	 {"# FORCE_TORCHRUN=1 llamafactory-cli train FILE\n"}, ""},
	{"torchtune", "precision=bf16 grad-accum=4 optimizer=adamw-fused engine=torchtune", {"optimizer_in_bwd=False"}, ""},
	{"torchtune", "precision=bf16 objective=dpo optimizer=adamw-fused engine=torchtune",
	 {"tune run --nproc_per_node 1 full_dpo_distributed "}, ""},
	{"megatron", "precision=bf16 engine=megatron optimizer=muon", {"--optimizer muon"}, ""},
	{"axolotl", "precision=bf16-amp micro-batch=2 optimizer=adamw-fused", {"bf16: true"}, ""},
	/* core/builders/base.py _configure_gradient_checkpointing of 067b021: "true" switches checkpointing off where adapters
	 * train, "hidden_states" keeps it; validation.py refuses either without gradient_checkpointing */
	{"axolotl", "precision=bf16-amp lora-r=16 lora-targets=q_proj+v_proj optimizer=adamw-fused grad-ckpt=full offload-activations=true", {"activation_offloading: hidden_states", "gradient_checkpointing: true"}, ""},
	{"axolotl", "precision=bf16-amp lora-r=16 lora-targets=q_proj+v_proj optimizer=adamw-fused grad-ckpt=none offload-activations=true", {"activation_offloading: true", "gradient_checkpointing: true"}, ""},
	{"axolotl", "precision=bf16-amp optimizer=adamw-fused grad-ckpt=full offload-activations=true", {"activation_offloading: true", "gradient_checkpointing: true"}, ""},
	/* versions of libraries are nothing that a file of a framework could say */
	{"trl", "loss=sft precision=amp-bf16 optimizer=adamw-fused compile=true bitsandbytes=0.43 peft=0.11 transformers=4.45",
	 {"torch_compile: true"}, ""},
	{"llamafactory", QLORA "optimizer=adamw-fused compile=true", {"torch_compile: true"}, NULL},
	{"axolotl", "precision=bf16-amp optimizer=adamw-fused compile=true deepspeed=0.14", {"torch_compile: true"}, ""},
	{"ms-swift", QLORA "loss=plain optimizer=paged-adamw-8bit gpus=2 allocator=expandable_segments",
	 {"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True NPROC_PER_NODE=2 swift sft ", "--model org/model", "--tuner_type lora", "--quant_bits 4", "--torch_dtype bfloat16",
	  "--target_modules q_proj v_proj", "--max_length 2048"}, ""},
	{"ms-swift", "objective=grpo completion-len=1024 seq-len=3072 rollouts=engine vllm-gpu-memory-utilization=0.5 vllm-sleep=true loss=plain "
	 "precision=bf16-amp optimizer=adamw-fused",
	 {"swift rlhf ", "--rlhf_type grpo", "--max_completion_length 1024", "--max_length 2048", "--vllm_mode colocate",
	  "--vllm_gpu_memory_utilization 0.5", "--sleep_level 1"}, ""},
	{"ms-swift", "engine=megatron gpus=8 tp=2 pp=2 sp=true zero=1 precision=bf16 micro-batch=1 grad-accum=4 attn=flash seq-len=4096 "
	 "grad-ckpt=full recompute-num-layers=4 optimizer=adamw-fused",
	 {"NPROC_PER_NODE=8 megatron sft ", "--tensor_model_parallel_size 2", "--global_batch_size 8", "--recompute_method block"}, ""},
	{"torchtune", "engine=torchtune precision=bf16 optimizer=adamw compile=true", {"compile=True"}, ""},
	{"torchtitan", "engine=fsdp2 zero=3 gpus=4 precision=amp-bf16 grad-ckpt=selective-op optimizer=adamw-fused compile=true "
	 "kv-repeat=sdpa",
	 {"[compile]\n", "enable = true"}, ""},
	{"accelerate", "engine=fsdp2 zero=3 gpus=16 nodes=2 precision=amp-bf16",
	 {"distributed_type: FSDP", "fsdp_version: 2", "num_processes: 16", "num_machines: 2", "mixed_precision: bf16",
	  "fsdp_reshard_after_forward: true"}, ""},
	{"accelerate", "engine=fsdp1 zero=2 gpus=4 precision=amp-bf16 offload-params=cpu offload-optimizer=cpu",
	 {"fsdp_sharding_strategy: SHARD_GRAD_OP", "fsdp_offload_params: true"}, ""},
	{"accelerate", "engine=deepspeed zero=3 gpus=4 grad-accum=4 precision=bf16 offload-optimizer=cpu",
	 {"distributed_type: DEEPSPEED", "zero_stage: 3", "offload_optimizer_device: cpu", "gradient_accumulation_steps: 4"}, ""},
	{"deepspeed", "engine=deepspeed zero=3 gpus=4 micro-batch=2 grad-accum=4 precision=bf16 offload-params=cpu "
	 "offload-optimizer=cpu reduce-bucket-size=16777216 sub-group-size=100000000",
	 {"\"stage\": 3", "\"reduce_bucket_size\": 16777216", "\"sub_group_size\": 100000000", "\"enabled\": true"}, ""},
	{"deepspeed", "engine=deepspeed zero=2 gpus=4 precision=bf16 overlap-comm=true", {"\"overlap_comm\": true"}, ""},
	{"torchtune", "engine=torchtune precision=bf16 micro-batch=2 seq-len=4096 packing=true grad-ckpt=full optimizer=adamw "
	 "offload-activations=true",
	 {"tune run full_finetune_single_device", "batch_size=2", "tokenizer.max_seq_len=4096", "dataset.packed=true",
	  "optimizer.fused=False"}, ""},
	{"torchtune", "engine=torchtune zero=3 gpus=4 precision=bf16 lora-r=8 lora-targets=all-linear optimizer=adamw-fused",
	 {"--nproc_per_node 4 lora_finetune_distributed", "model.lora_rank=8", "model.apply_lora_to_mlp=True"}, NULL},
	/* what waits on the host is FSDP's to gather: the recipes of one device cannot */
	{"torchtune", "engine=torchtune precision=bf16 optimizer=adamw-fused offload-params=cpu",
	 {"tune run --nproc_per_node 1 full_finetune_distributed", "fsdp_cpu_offload=True"}, ""},
	{"torchtitan", "engine=fsdp2 zero=3 gpus=16 tp=2 precision=amp-bf16 grad-ckpt=selective-op seq-len=8192 micro-batch=1 "
	 "grad-accum=2 optimizer=adamw-fused kv-repeat=sdpa",
	 {"[training]\n", "local_batch_size = 1", "global_batch_size = 16", "tensor_parallel_degree = 2", "mode = \"selective\""}, ""},
	{"torchtitan", "engine=fsdp2 zero=3 gpus=4 precision=bf16 optimizer=adamw-fused optimizer-in-backward=true compile=true loss=outside",
	 {"dtype = \"bfloat16\"", "early_step_in_backward = true", "components = [\"model\"]"},
	 "--kv-repeat grouped (torchtitan copies keys and values to all heads: more than was priced)"},
	/* a pipeline's micro-batches are parts of the local batch */
	{"torchtitan", "engine=fsdp2 zero=3 gpus=8 pp=4 precision=amp-bf16 optimizer=adamw-fused micro-batch=2 grad-accum=4 kv-repeat=sdpa",
	 {"local_batch_size = 8", "pipeline_parallel_microbatch_size = 2"}, ""},
	{"torchtune", "engine=torchtune precision=bf16 optimizer=adamw grad-ckpt=full ckpt-every=3",
	 {"enable_activation_checkpointing=False", "ac_mode=selective", "ac_option=3"}, ""},
	/* torchrun on several nodes hangs where none is told where the first is (torch/distributed/run.py) */
	{"verl", "engine=fsdp2 zero=3 gpus=16 nodes=2 precision=amp-bf16 attn=flash optimizer=adamw micro-batch=2 seq-len=512",
	 {"torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint \"${HEAD:?address of the first node}:29500\" -m verl"}, ""},
	/* openrlhf/cli of 3c3be62 */
	{"openrlhf", "engine=deepspeed zero=3 gpus=16 nodes=2 precision=bf16 attn=flash optimizer=adamw-fused lora-r=8 "
	 "lora-targets=q_proj+v_proj micro-batch=2 grad-accum=2 seq-len=512 objective=dpo",
	 {"deepspeed --hostfile \"${HOSTFILE:?file of the nodes and their slots}\" --num_nodes 2 --num_gpus 8 --module openrlhf.cli.train_dpo", "--ds.lora.target_modules q_proj v_proj",
	  "--train.batch_size 64"}, ""},
	/* litgpt/finetune/lora.py, litgpt/args.py */
	{"litgpt", "precision=bf16 lora-r=16 lora-targets=all-linear lora-dropout=0.05 base-weights=nf4 optimizer=paged-adamw keep-base-inputs=true "
	 "micro-batch=2 grad-accum=4 seq-len=512",
	 {"# litgpt finetune_lora --config FILE", "checkpoint_dir: checkpoints/org/model", "precision: bf16-true", "quantize: bnb.nf4-dq",
	  "lora_r: 16", "lora_mlp: true", "lora_head: false", "  micro_batch_size: 2", "  global_batch_size: 8", "  max_seq_length: 512"}, ""},
	{"litgpt", "engine=fsdp1 zero=3 gpus=8 nodes=2 precision=bf16 grad-ckpt=full optimizer=adamw loss=outside attn=flash",
	 {"# litgpt finetune_full", "devices: 4", "num_nodes: 2", "optimizer: AdamW"}, ""},
	{"litgpt", "precision=bf16 grad-ckpt=full optimizer=adamw loss=outside", {"devices: 1"}, "--grad-ckpt full"},
	{"litgpt", "engine=fsdp1 zero=3 hybrid-shard=true gpus=4 precision=amp-bf16 optimizer=adamw-fused loss=outside",
	 {"# litgpt pretrain", "model_name: model", "tokenizer_dir: checkpoints/org/model"}, ""},
	/* scripts/train/yamls/finetune of llm-foundry, composer/distributed/mosaic_parallelism.py */
	{"llm-foundry", "engine=fsdp1 zero=3 gpus=8 precision=amp-bf16 grad-ckpt=full use-reentrant=false optimizer=adamw-loop reduce-dtype=fp32 "
	 "micro-batch=2 grad-accum=2 packing=true attn=flash seq-len=4096",
	 {"max_seq_len: 4096", "  name: hf_causal_lm", "  attn_implementation: flash_attention_2", "    packing_ratio: auto",
	  "  name: decoupled_adamw", "global_train_batch_size: 32", "device_train_microbatch_size: 2", "precision: amp_bf16",
	  "  sharding_strategy: FULL_SHARD", "  mixed_precision: DEFAULT", "  activation_checkpointing: true"}, ""},
	{"llm-foundry", "engine=fsdp1 zero=2 gpus=4 precision=amp-bf16 lora-r=8 lora-targets=q_proj+v_proj optimizer=adamw-fused attn=sdpa "
	 "reduce-dtype=own", {"    peft_type: LORA", "    r: 8", "  sharding_strategy: SHARD_GRAD_OP", "  mixed_precision: PURE"},
	 "--optimizer adamw-fused (DecoupledAdamW steps tensor by tensor: more than was priced)"},
	{"megatron", "engine=megatron gpus=16 tp=4 pp=2 sp=true zero=1 precision=bf16 micro-batch=1 grad-accum=8 attn=flash "
	 "seq-len=4096 grad-ckpt=full recompute-num-layers=4 optimizer=adamw-fused",
	 {"--tensor-model-parallel-size 4", "--sequence-parallel", "--use-distributed-optimizer", "--global-batch-size 16",
	  "--recompute-method block", "--recompute-num-layers 4", "--bf16"}, ""},
	{"torchrun", "loss=sft precision=amp-bf16 gpus=16 nodes=2 allocator=expandable_segments optimizer=adamw-fused",
	 {"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d "
	  "--rdzv_endpoint \"${HEAD:?address of the first node}:29500\" -m trl.scripts.sft"}, ""},
	{"slurm", "loss=sft precision=amp-bf16 gpus=8 nodes=2 allocator=expandable_segments optimizer=adamw-fused",
	 {"#!/bin/bash\n", "#SBATCH --nodes=2", "#SBATCH --gpus-per-node=4", "srun torchrun --nnodes $SLURM_NNODES"}, ""},
	{"skypilot", "loss=sft precision=amp-bf16 gpus=4 optimizer=adamw-fused allocator=expandable_segments",
	 {"num_nodes: 1", "accelerators: A100-80GB:4", "run: |\n", "  PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True"}, ""},
	{"skypilot", "loss=sft precision=amp-bf16 gpus=8 nodes=2 optimizer=adamw-fused",
	 {"num_nodes: 2", "--node_rank $SKYPILOT_NODE_RANK --master_addr $(echo \"$SKYPILOT_NODE_IPS\" | head -n 1) --master_port"}, ""},
	{"dstack", "loss=sft precision=amp-bf16 gpus=8 nodes=2 optimizer=adamw-fused", {"type: task", "nodes: 2",
	  "--node_rank $DSTACK_NODE_RANK --master_addr $DSTACK_MASTER_NODE_IP --master_port 29500", "name: A100\n    memory: 80GB\n    count: 4", "commands:\n"}, ""},
	{"trl", "engine=megatron tp=2 gpus=2 precision=bf16", {"bf16: false"}, NULL},
};

static void test_sayings(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(sayings) / sizeof(sayings[0]); i++) {
		const struct saying *s = &sayings[i];
		const struct oom_plan plan = plan_of(s->plan);
		struct oom_error err = {{0}};
		struct oom_emitted e;
		char lost[800];

		if (oom_emit(s->format, &plan, &run, &e, &err))
			fail_msg("%s: %s", s->format, err.text);
		joined(&e, lost, sizeof(lost));
		if (s->unsaid ? strcmp(lost, s->unsaid) != 0 : !*lost)
			fail_msg("%s of %s: lost \"%s\"\n%s", s->format, s->plan, lost, e.text);
		for (size_t k = 0; k < 8 && s->holds[k]; k++)
			if (!strstr(e.text, s->holds[k]))
				fail_msg("%s of %s lacks \"%s\":\n%s", s->format, s->plan, s->holds[k], e.text);
		assert_int_equal(strlen(e.text), e.size);
		oom_emitted_release(&e);
	}
}

/* Every format writes any plan, and names as many losses as it has comments for. */
static void test_all_formats(void **state)
{
	static const char *const plans[] = {"", "gpus=64 nodes=8 engine=megatron tp=8 pp=4 vpp=2 precision=bf16",
					    "precision=fp16 lora-r=4 lora-targets=all-linear", "optimizer=lomo"};
	const struct oom_emit_run odd = {.model = "a \"quoted\"\nname: [x]"};
	const struct oom_emit_format *f;

	(void)state;
	for (size_t i = 0; (f = oom_emit_format_at(i)) != NULL; i++) {
		assert_true(*f->summary && *f->version);
		for (size_t k = 0; k < sizeof(plans) / sizeof(plans[0]); k++) {
			const struct oom_plan plan = plan_of(plans[k]);
			struct oom_error err = {{0}};
			struct oom_emitted e;
			size_t said = 0;

			if (oom_emit(f->name, &plan, &odd, &e, &err))
				fail_msg("%s of %s: %s", f->name, plans[k], err.text);
			for (const char *p = e.text; (p = strstr(p, "cannot be said here")) != NULL; p++)
				said++;
			if (strcmp(f->name, "deepspeed"))
				assert_int_equal(said, e.n_unsaid);
			oom_emitted_release(&e);
		}
	}
}

static void test_unknown(void **state)
{
	const struct oom_plan plan = oom_plan_default();
	struct oom_error err = {{0}};
	struct oom_emitted e;

	(void)state;
	assert_int_equal(oom_emit("torchtun", &plan, NULL, &e, &err), OOM_ERR_UNKNOWN);
	assert_non_null(strstr(err.text, "did you mean torchtune?"));
}

/* A user's file: comments, quotes and order stay, three lines of context. */
static void test_patch(void **state)
{
	static const char yaml[] = "# my run\nmodel_name_or_path: org/model   # the base\ntorch_dtype: bfloat16\n"
				   "learning_rate: 1.0e-5\nwarmup_ratio: 0.1\nper_device_train_batch_size: 8  # too many\n"
				   "gradient_accumulation_steps: 2\noptim: \"adamw_torch\"\nbf16: true\nmax_seq_length: 4096\n";
	static const char expected[] = "@@ -3,8 +3,8 @@\n torch_dtype: bfloat16\n learning_rate: 1.0e-5\n warmup_ratio: 0.1\n"
				       "-per_device_train_batch_size: 8  # too many\n+per_device_train_batch_size: 2  # too many\n"
				       "-gradient_accumulation_steps: 2\n+gradient_accumulation_steps: 8\n optim: \"adamw_torch\"\n"
				       " bf16: true\n max_seq_length: 4096\n";
	char path[] = "/tmp/oomplan-test-XXXXXX";
	const char *files[] = {path};
	struct oom_plan from = oom_plan_default(), to;
	struct oom_error err = {{0}};
	struct oom_reading *r;
	struct oom_emitted e;
	const int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, yaml, sizeof(yaml) - 1), (ssize_t)sizeof(yaml) - 1);
	close(fd);
	if (oom_reading_new(&r, files, 1, NULL, &err))
		fail_msg("%s", err.text);
	oom_reading_apply(r, &from, NULL, NULL);
	to = from;
	to.micro_batch = 2;
	to.grad_accum = 8;
	to.vpp = 3;             /* no key of that file */
	assert_int_equal(oom_emit_patch(r, &from, &to, &e, &err), OOM_OK);
	if (!strstr(e.text, expected))
		fail_msg("%s", e.text);
	assert_int_equal(e.n_unsaid, 1);
	assert_string_equal(e.unsaid[0], "--vpp 3");
	oom_emitted_release(&e);
	oom_reading_free(r);
	unlink(path);
}

/* Keys that the file does not have: below or above a line of their map, as such a file spells a line. */
static void test_added(void **state)
{
	static const struct {
		const char *suffix, *text, *expected;
	} cases[] = {
		/* below a table's key, the file's last line, which had no end */
		{".yaml", "model_name_or_path: org/model\nbf16: true\nper_device_train_batch_size: 8",
		 "@@ -1,3 +1,4 @@\n model_name_or_path: org/model\n bf16: true\n-per_device_train_batch_size: 8\n"
		 "\\ No newline at end of file\n+per_device_train_batch_size: 2\n+gradient_accumulation_steps: 4\n"},
		/* the last of a JSON map has no comma: above it */
		{".json", "{\n  \"model_name_or_path\": \"org/model\",\n  \"per_device_train_batch_size\": 8\n}\n",
		 "@@ -1,4 +1,5 @@\n {\n   \"model_name_or_path\": \"org/model\",\n+  \"gradient_accumulation_steps\": 4,\n"
		 "-  \"per_device_train_batch_size\": 8\n+  \"per_device_train_batch_size\": 2\n }\n"},
		/* a command's line that goes on */
		{".sh", "python train.py --model_name_or_path org/model \\\n  --per_device_train_batch_size 8 \\\n  --bf16 True\n",
		 "@@ -1,3 +1,4 @@\n python train.py --model_name_or_path org/model \\\n-  --per_device_train_batch_size 8 \\\n"
		 "+  --per_device_train_batch_size 2 \\\n+  --gradient_accumulation_steps 4 \\\n   --bf16 True\n"},
		/* no line of the map stands alone: nothing is added, and that is said */
		{".yaml", "{model_name_or_path: org/model, bf16: true, per_device_train_batch_size: 8}\n",
		 "+{model_name_or_path: org/model, bf16: true, per_device_train_batch_size: 2}\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan from = oom_plan_default(), to;
		struct oom_error err = {{0}};
		struct oom_reading *r;
		struct oom_emitted e;
		char path[64] = "/tmp/oomplan-test-XXXXXX";
		const char *files[] = {path};
		int fd;

		strcat(path, cases[i].suffix);
		fd = mkstemps(path, (int)strlen(cases[i].suffix));
		assert_true(fd >= 0);
		assert_int_equal(write(fd, cases[i].text, strlen(cases[i].text)), (ssize_t)strlen(cases[i].text));
		close(fd);
		if (oom_reading_new(&r, files, 1, "hf-trainer", &err))
			fail_msg("%zu: %s", i, err.text);
		oom_reading_apply(r, &from, NULL, NULL);
		to = from;
		to.micro_batch = 2;
		to.grad_accum = 4;
		assert_int_equal(oom_emit_patch(r, &from, &to, &e, &err), OOM_OK);
		if (!strstr(e.text, cases[i].expected))
			fail_msg("%zu: %s", i, e.text);
		assert_int_equal(e.n_unsaid, strstr(cases[i].expected, "accumulation") ? 0 : 1);
		oom_emitted_release(&e);
		oom_reading_free(r);
		unlink(path);
	}
}

/* A key that means something only beside another brings that along, and where that one says something else already the
 * knob is named as what the patch cannot say (axolotl's plugins). */
static void test_needed(void **state)
{
	static const struct {
		const char *text, *holds;
		size_t unsaid;
	} cases[] = {
		{"base_model: org/model\nmicro_batch_size: 1\nsequence_len: 512\nlearning_rate: 0.1\n",
		 "+liger_fused_linear_cross_entropy: true\n+plugins: [axolotl.integrations.liger.LigerPlugin]\n", 0},
		{"base_model: org/model\nmicro_batch_size: 1\nsequence_len: 512\nplugins:\n"
		 "  - axolotl.integrations.liger.LigerPlugin\n",
		 " micro_batch_size: 1\n+liger_fused_linear_cross_entropy: true\n sequence_len: 512\n", 0},
		{"base_model: org/model\nmicro_batch_size: 1\nsequence_len: 512\nplugins: [my.Plugin]\n", "", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char path[64] = "/tmp/oomplan-test-XXXXXX.yml";
		struct oom_plan from = oom_plan_default(), to;
		struct oom_error err = {{0}};
		const char *files[] = {path};
		struct oom_reading *r;
		struct oom_emitted e;
		const int fd = mkstemps(path, 4);

		assert_true(fd >= 0);
		assert_int_equal(write(fd, cases[i].text, strlen(cases[i].text)), (ssize_t)strlen(cases[i].text));
		close(fd);
		if (oom_reading_new(&r, files, 1, "axolotl", &err))
			fail_msg("%zu: %s", i, err.text);
		oom_reading_apply(r, &from, NULL, NULL);
		to = from;
		assert_int_equal(oom_plan_set(&to, oom_knob_find("loss"), "fused", &err), OOM_OK);
		assert_int_equal(oom_emit_patch(r, &from, &to, &e, &err), OOM_OK);
		if (!strstr(e.text, cases[i].holds) || e.n_unsaid != cases[i].unsaid)
			fail_msg("%zu: %zu not said\n%s", i, e.n_unsaid, e.text);
		oom_emitted_release(&e);
		oom_reading_free(r);
		unlink(path);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sayings), cmocka_unit_test(test_all_formats),
		cmocka_unit_test(test_unknown), cmocka_unit_test(test_patch),
		cmocka_unit_test(test_added), cmocka_unit_test(test_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
