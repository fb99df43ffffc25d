/* ms-swift's command, version 4: its trainer's, or that of its Megatron mode. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder/allocator_variable.h"
#include "emit/fills.h"

#define MS "ms-swift"

static bool of_megatron(const struct emission *e)
{
	return emit_is(e, "engine", "megatron");
}

static const char *command(const struct emission *e)
{
	const struct emit_objective *o = emit_objective(e);

	return o->swift_type ? "rlhf" : o->swift_command ? o->swift_command : "sft";
}

/* One process per card, but where one lays the model over all that it sees (swift utils is_mp). */
void write_ms_swift(struct emission *e, struct emit_text *out)
{
	const int64_t nodes = e->plan->nodes > 0 ? e->plan->nodes : 1, each = e->plan->gpus / nodes;

	if (emit_is(e, "allocator", "expandable_segments"))
		emit_put(out, OOM_ALLOCATOR_EXPANDABLE " ");
	if (emit_is(e, "engine", "device-map")) {
		emit_put(out, "CUDA_VISIBLE_DEVICES=0");
		for (int64_t i = 1; i < e->plan->gpus && i < 16; i++)
			emit_put(out, ",%lld", (long long)i);
		emit_put(out, " ");
	} else {
		if (nodes > 1)
			emit_put(out, "NNODES=%lld ", (long long)nodes);
		emit_put(out, "NPROC_PER_NODE=%lld ", (long long)each);
	}
	emit_put(out, "%s %s ", of_megatron(e) ? "megatron" : "swift", command(e));
	emit_options(e, out);
}

static void adapters(struct emission *e)
{
	const struct fw_swift_tuner *t = fw_swift_tuners;
	char buf[160];

	while (t[1].kind && !emit_is(e, "peft-type", t->kind))
		t++;
	/* of a kind that it does not make LoRA is what is written, and what is missing is said */
	if (!emit_is(e, "peft-type", t->kind))
		t = fw_swift_tuners;
	emit_set(e, "tuner_type", emit_adapted(e) ? t->word : "full");
	if (!emit_adapted(e))
		return;
	emit_set(e, t->rank, emit_fact(e, "lora-r", buf));
	if (!t->dropout)
		emit_rows(e, "", MS, "lora_dropout");
	if (*e->plan->lora_targets)
		emit_names(e, "target_modules", e->plan->lora_targets);
	if (*e->plan->modules_to_save)
		emit_names(e, "modules_to_save", e->plan->modules_to_save);
	if (emit_is(e, "use-dora", "true"))
		emit_set(e, "use_dora", "true");
	if (emit_is(e, "base-bits", "4-nf4") || emit_is(e, "base-bits", "8")) {
		emit_set(e, "quant_bits", emit_is(e, "base-bits", "8") ? "8" : "4");
		emit_set(e, "quant_method", "bnb");
	}
}

/* The format of weights says what computes: autocast in the same, of fp32 weights in fp16 (base_args/model_args.py). */
static void precision(struct emission *e)
{
	static const char *const words[][2] = {{"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (emit_is(e, "@dtype", words[i][0]))
			emit_set(e, "torch_dtype", words[i][1]);
	emit_set(e, "bf16", emit_is(e, "@autocast", "bf16") ? "true" : "false");
	emit_set(e, "fp16", emit_is(e, "@autocast", "fp16") ? "true" : "false");
}

static void megatron_ranks(struct emission *e)
{
	char buf[160];

	snprintf(buf, sizeof(buf), "%lld", (long long)(e->plan->micro_batch * e->plan->grad_accum * oom_plan_data_parallel(e->plan)));
	emit_rows(e, "", MS, "micro_batch_size");
	emit_set(e, "global_batch_size", buf);
	emit_rows(e, "", MS, "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
		  "expert_model_parallel_size expert_tensor_parallel_size sequence_parallel "
		  "virtual_pipeline_model_parallel_size decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers");
	emit_rows(e, "", MS, "recompute_granularity");
	if (emit_is(e, "grad-ckpt", "full")) {
		emit_set(e, "recompute_method", e->plan->recompute_layers ? "block" : "uniform");
		emit_set(e, "recompute_num_layers",
			 e->plan->recompute_layers ? emit_fact(e, "recompute-num-layers", buf) : "1");
	}
	if (emit_is(e, "optimizer", "sgd-momentum"))
		emit_set(e, "optimizer", "sgd");
	else if (emit_is(e, "optimizer", "muon"))
		emit_set(e, "optimizer", "muon");
	emit_set(e, "attention_backend", emit_is(e, "attn", "eager") ? "unfused" : "flash");
	if (!emit_is(e, "offload-optimizer", "none"))
		emit_set(e, "optimizer_cpu_offload", "true");
	emit_set(e, "num_workers", emit_fact(e, "dataloader-workers", buf));
}

/* GRPO's max_length is the prompt's.  What has no share of the training cards answers from others (rlhf_args.py). */
static void lengths(struct emission *e)
{
	const struct oom_plan *plan = e->plan;
	char buf[160];

	if (!emit_is(e, "objective", "grpo")) {
		if (plan->seq_len > 0)
			emit_set(e, "max_length", emit_fact(e, "seq-len", buf));
		return;
	}
	emit_set(e, "max_completion_length", emit_fact(e, "completion-len", buf));
	if (plan->seq_len > plan->completion_len) {
		snprintf(buf, sizeof(buf), "%lld", (long long)(plan->seq_len - plan->completion_len));
		emit_set(e, "max_length", buf);
	}
	if (!emit_is(e, "rollouts", "engine"))
		return;
	emit_set(e, "use_vllm", "true");
	emit_fact(e, "vllm-gpu-memory-utilization", buf);
	emit_set(e, "vllm_mode", strtod(buf, NULL) > 0 ? "colocate" : "server");
	if (strtod(buf, NULL) > 0)
		emit_set(e, "vllm_gpu_memory_utilization", buf);
	if (emit_is(e, "vllm-sleep", "true"))
		emit_set(e, "sleep_level", "1");
}

void fill_ms_swift(struct emission *e)
{
	char buf[160];

	emit_set(e, "model", e->model);
	if (emit_objective(e)->swift_type)
		emit_set(e, "rlhf_type", emit_objective(e)->swift_type);
	/* swift/arguments/rlhf_args.py: 0.04 and a reference where nothing is said */
	if (emit_is(e, "objective", "grpo"))
		emit_set(e, "beta", emit_is(e, "reference", "model") || emit_is(e, "reference", "adapter") ? "0.04" : "0.0");
	if (emit_is(e, "task", "seq-cls"))
		emit_set(e, "task_type", "seq_cls");
	if (e->plan->num_labels > 0)
		emit_rows(e, "", MS, "num_labels");
	adapters(e);
	lengths(e);
	emit_set(e, "packing", emit_fact(e, "packing", buf));
	emit_rows(e, "", MS, "freeze_vit freeze_aligner freeze_llm");
	if (of_megatron(e)) {
		megatron_ranks(e);
		return;
	}
	training_arguments(e);
	if (!emit_is(e, "evaluates", "no"))     /* 1 where nobody says it (swift/arguments/sft_args.py) */
		emit_rows(e, "", "hf-trainer", "per_device_eval_batch_size");
	precision(e);
	emit_rows(e, "", MS, "attn_impl");
	if (emit_is(e, "attn", "flash"))
		emit_set(e, "attn_impl", "flash_attn");
	if (emit_is(e, "engine", "device-map"))
		emit_set(e, "device_map", "auto");
}
