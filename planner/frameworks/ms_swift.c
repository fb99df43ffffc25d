/* ms-swift's command line: versions 2 (model_type, sft_type), 3 (train_type) and 4 (tuner_type), and
 * its Megatron mode. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ms_swift.h"
#include "parts.h"

static bool is_megatron(const struct fw_part *p)
{
	static const char *const keys[] = {"tensor_model_parallel_size", "expert_model_parallel_size",
					   "pipeline_model_parallel_size", "recompute_granularity",
					   "cross_entropy_loss_fusion", "micro_batch_size", "train_iters",
					   "moe_permute_fusion", "no_save_optim", "mcore_model"};

	if (!strncmp(fw_text(p, "(program)"), "megatron", 8))
		return true;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (fw_key(p, keys[i]))
			return true;
	return false;
}

static void finish_objective(struct fw_part *p)
{
	static const char *const known[] = {"dpo", "kto", "orpo", "simpo", "cpo", "ppo", "grpo"};
	const char *type = fw_text(p, "rlhf_type"), *task = fw_text(p, "task_type"),
		   *program = fw_text(p, "(program)");
	const size_t n = strlen(program);

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(type, known[i]))
			fw_set(p, "objective", type, "rlhf_type", NULL);
	/* swift/cli/dpo.py and "swift dpo" of version 2, wherever the package lies */
	for (size_t i = 0; !*type && i < sizeof(known) / sizeof(known[0]); i++) {
		char script[40];

		snprintf(script, sizeof(script), "/cli/%s.py", known[i]);
		if (strstr(program, script))
			fw_set(p, "objective", known[i], NULL, "the command");
	}
	if (!strcmp(type, "rm"))
		fw_set(p, "objective", "reward", "rlhf_type", NULL);
	else if (!strcmp(type, "gkd"))
		fw_set(p, "objective", "gkd", "rlhf_type", NULL);
	else if (!strcmp(task, "seq_cls"))
		fw_set(p, "objective", "classification", "task_type", NULL);
	if (!strcmp(task, "seq_cls"))
		fw_set(p, "task", "seq-cls", "task_type", NULL);
	if (!strcmp(task, "embedding") || !strcmp(task, "reranker") ||
		 !strcmp(task, "generative_reranker"))
		fw_set(p, "objective", "embedding", "task_type", NULL);
	fw_default(p, "objective", n > 3 && !strcmp(program + n - 3, " pt") ? "pretrain" : "sft",
		   "the command");
}

static void finish_base(struct fw_part *p)
{
	const char *key = fw_key(p, "quant_bits") ? "quant_bits" : "quantization_bit";
	const char *bits = fw_text(p, key), *model = fw_fact(p, "model");

	if (!strcmp(bits, "4") || !strcmp(bits, "8")) {
		const char *method = fw_text(p, "quant_method");

		fw_set(p, "base-bits",
		       *bits == '8'		  ? "8"
		       : !strcmp(method, "hqq")   ? "4-hqq"
		       : !strcmp(method, "awq")   ? "4-awq"
		       : !strcmp(method, "gptq")  ? "4-gptq"
						  : "4-nf4",
		       key, NULL);
	} else if (strstr(model, "GPTQ-Int4") || strstr(model, "-Int4") || strstr(model, "GPTQ-4")) {
		fw_set(p, "base-bits", "4-gptq", "model", "a quantised checkpoint");
	} else if (strstr(model, "AWQ") || strstr(model, "-awq")) {
		fw_set(p, "base-bits", "4-awq", "model", "a quantised checkpoint");
	} else if (strstr(model, "GPTQ-Int8") || strstr(model, "-Int8")) {
		fw_set(p, "base-bits", "8-gptq", "model", "a quantised checkpoint");
	} else if (strstr(model, "bnb-4bit")) {
		fw_set(p, "base-bits", "4-nf4", "model", "a quantised checkpoint");
	}
	fw_default(p, "base-bits", "16", "no quantisation is asked for");
}

static int64_t gpus_of(const struct fw_part *p)
{
	int64_t each = 0, nodes = 1;

	/* what the launcher's part will find too: processes, not visible cards */
	if (!doc_whole(fw_key(p, "(launcher).NPROC_PER_NODE="), &each) &&
	    !doc_whole(fw_key(p, "(launcher).nproc_per_node"), &each))
		each = 1;
	if (!doc_whole(fw_key(p, "(launcher).NNODES="), &nodes))
		doc_whole(fw_key(p, "(launcher).nnodes"), &nodes);
	return each > 0 && each < 10000 && nodes > 0 && nodes < 10000 ? each * nodes : 1;
}

static void finish_batch(struct fw_part *p)
{
	int64_t accum, micro;

	fw_default(p, "micro-batch", "1", ARGS ":129");
	micro = atoll(fw_fact(p, "micro-batch"));
	/* "$(expr 16 / $nproc_per_node)" */
	if (doc_below(fw_root(p), "gradient_accumulation_steps") &&
	    !fw_key(p, "gradient_accumulation_steps"))
		fw_withhold(p, "grad-accum");
	if (doc_whole(fw_key(p, "gradient_accumulation_steps"), &accum) && accum > 0) {
		fw_set_whole(p, "grad-accum", accum, "gradient_accumulation_steps", NULL);
	} else if (micro > 0 && micro < 100000) {
		const int64_t each = micro * gpus_of(p);

		fw_set_whole(p, "grad-accum", (16 + each - 1) / each, NULL,
			     ARGS ":283 ceil(16 / batch / processes)");
	}
	fw_default(p, "eval-batch", "1", ARGS ":130");
}

static void finish_length(struct fw_part *p, bool old)
{
	int64_t prompt, completion;

	if (fw_fact_is(p, "objective", "grpo")) {
		if (doc_whole(fw_key(p, "max_completion_length"), &completion) && completion > 0 && completion < 100000000)
			fw_set_whole(p, "completion-len", completion, "max_completion_length", NULL);
		else if (!fw_is_withheld(p, "completion-len"))
			fw_default(p, "completion-len", "512", "swift/trainers/rlhf_arguments/grpo_config.py");
	}
	if (fw_fact_is(p, "objective", "grpo") && doc_whole(fw_key(p, "max_length"), &prompt) &&
	    doc_whole(fw_key(p, "max_completion_length"), &completion) && prompt > 0 && completion > 0 &&
	    prompt < 100000000 && completion < 100000000)
		fw_set_whole(p, "seq-len", prompt + completion, "max_length", "prompt and completion");
	else if (doc_whole(fw_key(p, "max_length"), &prompt) && prompt > 0)
		fw_set_whole(p, "seq-len", prompt, "max_length", NULL);
	else if (old)
		fw_default(p, "seq-len", "2048", "swift 2 utils/argument.py max_length");
}

/* Each GPU holds its part of every sequence; attention trades it for all of the sequence and a part of the
 * heads, which is as much (Ulysses, arXiv:2309.14509). */
static void finish_sequence_parallel(struct fw_part *p)
{
	const int64_t tokens = strtoll(fw_fact(p, "seq-len"), NULL, 10);
	char each[24];
	int64_t n;

	if (!doc_whole(fw_key(p, "sequence_parallel_size"), &n) || n < 2 || n > 100000)
		return;
	fw_set_whole(p, "@sequence-shards", n, NULL, NULL);
	/* whole logits in 16 bit, their gradient in their place (swift/sequence_parallel/utils.py) */
	if (atoi(fw_text(p, "(launcher).CELOSS_PARALLEL_SIZE=")) > 0 && !fw_fact_is(p, "loss", "fused"))
		fw_set(p, "@price.loss", "in-place", NULL, NULL);
	if (tokens < n) {
		fw_unmodelled(p, "sequence_parallel_size", "sequences are cut over GPUs: --seq-len of one GPU's part");
		return;
	}
	snprintf(each, sizeof(each), "%lld", (long long)((tokens + n - 1) / n));
	fw_set(p, "@price.seq-len", each, NULL, NULL);
	fw_open(p, "seq-len", "sequences are cut over GPUs (sequence_parallel_size): the part of one is priced");
}

/* An engine on the training card has its share of it; asleep it gives that back. */
static void finish_rollouts(struct fw_part *p)
{
	const char *share = fw_text(p, "vllm_gpu_memory_utilization");

	if (!fw_fact_is(p, "objective", "grpo")) {
		fw_unset(p, "rollouts");        /* gkd's and ppo's are not said by the plan */
		return;
	}
	fw_compare_by_beta(p, 0.04, "swift/arguments/rlhf_args.py _init_grpo beta, ref_model");
	if (!fw_on(p, "use_vllm") || strcmp(fw_text(p, "vllm_mode"), "colocate"))
		return;
	fw_set(p, "vllm-gpu-memory-utilization", *share ? share : "0.9", *share ? "vllm_gpu_memory_utilization" : NULL,
	       "swift/arguments/rlhf_args.py");
	if (atoi(fw_text(p, "sleep_level")) > 0)
		fw_set(p, "vllm-sleep", "true", "sleep_level", NULL);
}

static void finish_megatron(struct fw_part *p)
{
	const char *load = *fw_text(p, "mcore_model") ? "mcore_model" : "load";

	fw_set(p, "engine", "megatron", "(program)", "megatron sft");
	fw_unset(p, "loop");            /* Megatron's */
	/* a converted checkpoint, whose folder has config.json's copy */
	if (!*fw_fact(p, "model") && *fw_text(p, load))
		fw_set(p, "model", fw_text(p, load), load, MEGATRON);
	fw_default(p, "method", "full", MEGATRON ":449-499");
	fw_default(p, "zero", "1", MEGATRON " use_distributed_optimizer");
	fw_default(p, "grad-ckpt", "selective", MEGATRON ":449");
	fw_megatron_blocks(p, "recompute_method", "recompute_num_layers");
	fw_megatron_offload(p, "optimizer_offload_fraction");
	fw_default(p, "attn", "flash", MEGATRON);
	if (strstr(fw_text(p, "optimizer"), "muon"))
		fw_set(p, "optimizer", "muon", "optimizer", MEGATRON);
	else if (!strcmp(fw_text(p, "optimizer"), "sgd"))
		fw_set(p, "optimizer", "sgd-momentum", "optimizer", MEGATRON);
	fw_default(p, "optimizer", "adamw-fused", MEGATRON);
	fw_default(p, "micro-batch", "1", MEGATRON);
	fw_default(p, "global-batch", "16", MEGATRON);
	if (!fw_fact_is(p, "@dtype", ""))
		fw_default(p, "precision", fw_fact(p, "@dtype"), NULL);
	fw_default(p, "precision", "bf16", MEGATRON " the model's own");
	fw_default(p, "ep", "1", MEGATRON);
	fw_unset(p, "eval-batch");
}

/* XLA's programs with flash attention; swift asks for its checkpointing whatever the options say (swift 2
 * llm/sft.py ta_accelerate(gradient_checkpointing=True), torchacc_utils.py). */
static void finish_torchacc(struct fw_part *p)
{
	const char *key = "(launcher).USE_TORCHACC=";

	if (atoi(fw_text(p, key)) <= 0)
		return;
	fw_set(p, "grad-ckpt", "full", key, "swift 2 llm/sft.py");
	fw_set(p, "attn", "flash", key, "swift 2 torchacc_utils.py");
	fw_set(p, "loss", "compiled", key, "XLA");
	fw_unmodelled(p, key, "TorchAcc compiles the step with XLA, whose memory is not PyTorch's");
}

/* More cards than processes: each process lays the model over its share of them (swift utils is_mp). */
static void finish_spread(struct fw_part *p)
{
	const char *list = fw_text(p, "(launcher).CUDA_VISIBLE_DEVICES=");
	int64_t cards = *list ? 1 : 0, each = 0;

	for (const char *c = list; *c; c++)
		cards += *c == ',';
	if (!doc_whole(fw_key(p, "(launcher).NPROC_PER_NODE="), &each))
		doc_whole(fw_key(p, "(launcher).nproc_per_node"), &each);
	if (each < 2 || cards <= each || cards % each || *fw_fact(p, "engine"))
		return;
	fw_set(p, "engine", "device-map", "(launcher).CUDA_VISIBLE_DEVICES=", "swift utils is_mp");
	fw_set_whole(p, "@price.gpus", cards / each, NULL, NULL);
	fw_open(p, "gpus", "each process lays the model over its share of the cards: one process is priced");
}

/* The knob's GaLore projects to its authors' rank, in 32 bit. */
static void finish_galore(struct fw_part *p)
{
	int64_t rank;

	if (!fw_on(p, "use_galore"))
		return;
	if (doc_whole(fw_key(p, "galore_rank"), &rank) && rank != 128)
		fw_unmodelled(p, "galore_rank", rank > 128 ? "more states than are priced, which have rank 128" :
							     "fewer states than are priced, which have rank 128");
	if (fw_on(p, "galore_quantization"))
		fw_unmodelled(p, "galore_quantization", "states and weights in 8 bit: less than is priced");
}

static void finish_transformers(struct fw_part *p, bool old)
{
	const char *dtype = fw_fact(p, "@dtype");
	const struct doc_node *device_map = fw_key(p, "device_map");

	finish_batch(p);
	hf_compile(p);
	hf_liger(p, (const char *const[]){"use_liger_kernel", NULL});
	ms_swift_own_loss(p);
	fw_default(p, "method", "lora", TUNER);
	/* the JSON files that come with it ask DeepSpeed for AdamW, which is FusedAdam on a card */
	if (old && !strncmp(fw_text(p, "deepspeed"), "default-zero", 12) && !strstr(fw_text(p, "deepspeed"), "offload"))
		fw_default(p, "optimizer", "adamw-fused", "swift/llm/ds_config/zero2.json optimizer");
	fw_default(p, "optimizer", old ? "adamw" : "adamw-fused",
		   old ? "swift 2 adamw_torch" : "transformers/training_args.py adamw_torch_fused");
	fw_default(p, "grad-ckpt", "full", ARGS ":134");
	/* swift 2, too, leaves the choice to transformers (llm/utils/model.py: only False means eager) */
	fw_default(p, "attn", "sdpa", BASE "/model_args.py");
	if (!*dtype) {
		fw_set(p, "@dtype", "bf16", NULL, BASE "/model_args.py: config.json's");
		dtype = "bf16";
	}
	/* autocast in the weights' format; of fp32 weights in fp16 (model_args.py:134) */
	fw_default(p, "@autocast", !strcmp(dtype, "bf16") ? "bf16" : "fp16", BASE "/model_args.py:134");
	fw_take_deepspeed(p, "deepspeed");
	fw_take_fsdp(p, "fsdp", "fsdp_config", "fsdp1");
	if (fw_key(p, "fsdp_num") && atoi(fw_text(p, "fsdp_num")) > 1) {
		fw_set(p, "engine", "fsdp1", "fsdp_num", "TorchAcc's FSDP");
		fw_set(p, "zero", "3", "fsdp_num", NULL);
	}
	finish_galore(p);
	finish_torchacc(p);
	finish_spread(p);
	if (!*fw_fact(p, "engine") && gpus_of(p) == 1 && !fw_key(p, "(launcher).nproc_per_node") &&
	    !fw_key(p, "(launcher).NPROC_PER_NODE=") &&
	    (device_map || strchr(fw_text(p, "(launcher).CUDA_VISIBLE_DEVICES="), ',')))
		fw_set(p, "engine", "device-map", "device_map", "several cards, one process");
	fw_default(p, "engine", "hf", "Trainer itself");
}

/* Adapters of other kinds than LoRA have a rank, or what a plan calls so, under a key of their own (swift/pipelines/
 * train/tuner.py prepare_adapter; AdaLoraConfig starts from init_r), and AdaLoRA alone has LoRA's dropout. */
const struct fw_swift_tuner fw_swift_tuners[] = {
	{"", "lora", "lora_rank", "8", NULL},
	{"adalora", "adalora", "adalora_init_r", "12", NULL},
	{"vera", "vera", "vera_rank", "256", "0"},
	{"boft", "boft", "boft_block_size", "4", "0"},
	{"fourierft", "fourierft", "fourier_n_frequency", "2000", "0"},
	{"miss", "bone", "reft_rank", "4", "0"},
	{NULL, NULL, NULL, NULL, NULL},
};

static void finish_tuner(struct fw_part *p)
{
	for (const struct fw_swift_tuner *t = fw_swift_tuners; t->kind; t++) {
		const char *rank = fw_text(p, t->rank);

		if (!fw_fact_is(p, "peft-type", t->kind))
			continue;
		fw_set(p, "lora-r", *rank ? rank : t->otherwise, t->rank, TUNER);
		if (t->dropout)
			fw_set(p, "lora-dropout", t->dropout, NULL, TUNER);
	}
	if (fw_fact_is(p, "peft-type", "vera"))
		fw_open(p, "lora-targets", "VeRA adapts the layers of v_proj's shape alone (get_vera_target_modules): fewer, where "
			"others are named too");
}

/* Version 4 evaluates on what it is told to split off, and splits nothing off by itself (arguments/base_args/data_args.py
 * split_dataset_ratio: 0; sft_args.py eval_strategy).  Before, some versions took a hundredth of the data. */
static void finish_eval(struct fw_part *p)
{
	if (fw_key(p, "tuner_type") && !fw_key(p, "val_dataset") && strtod(fw_text(p, "split_dataset_ratio"), NULL) <= 0)
		fw_default(p, "evaluates", "no", BASE "/data_args.py: no data to evaluate on");
}

static void finish(struct fw_part *p)
{
	const bool old = fw_key(p, "sft_type") || fw_key(p, "model_id_or_path") || fw_key(p, "model_type");
	const char *targets = fw_text(p, "lora_target_modules");

	finish_objective(p);
	if (is_megatron(p))
		finish_megatron(p);
	else
		finish_transformers(p, old && !fw_key(p, "train_type") && !fw_key(p, "tuner_type"));
	finish_base(p);
	finish_length(p, old);
	finish_sequence_parallel(p);
	finish_rollouts(p);
	fw_take_lisa(p, "lisa_activated_layers");
	fw_default(p, "loss", "plain", "use_liger_kernel");
	if (fw_fact_is(p, "@backend", "unsloth"))
		fw_unmodelled(p, "tuner_backend", "Unsloth's kernels and offloading: less than is priced");
	fw_default(p, "packing", "false", BASE);
	finish_eval(p);
	if (!fw_fact_is(p, "method", "lora"))
		return;
	fw_default(p, "lora-dropout", "0.05", TUNER);
	if (fw_key(p, "lora_target_modules") && fw_key(p, "lora_target_modules")->kind == DOC_LIST) {
		char list[120];

		fw_set(p, "lora-targets", names_of(fw_key(p, "lora_target_modules"), list, sizeof(list)),
		       "lora_target_modules", NULL);
	} else if (!strcmp(targets, "ALL") || !strcmp(targets, "EMBEDDING") || !strcmp(targets, "all-linear")) {
		fw_set(p, "lora-targets", "all-linear", "lora_target_modules", NULL);
	} else if (*targets && strcmp(targets, "DEFAULT") && strcmp(targets, "AUTO")) {
		char list[120];

		fw_set(p, "lora-targets", names_of(fw_key(p, "lora_target_modules"), list, sizeof(list)),
		       "lora_target_modules", NULL);
	} else if (!old) {
		fw_default(p, "lora-targets", "all-linear", TUNER ":126");
	}
	finish_tuner(p);
}

static const struct fw_row *const lists[] = {ms_swift_rows, hf_training_rows, NULL};
static const char *const idles[] = {ms_swift_idle, hf_training_idle, NULL};

const struct framework framework_ms_swift = {
	.name = "ms-swift",
	.summary = "ms-swift's command line, versions 2 to 4, with its Megatron mode",
	.version = "ms-swift 4.0",
	.role = FW_TRAINER,
	.loop = "trainer",
	.marks = "sft_type train_type tuner_type rlhf_type model_type model_id_or_path cached_dataset "
		 "model+tensor_model_parallel_size model+expert_model_parallel_size "
		 "model+torch_dtype model+dataset model+attn_impl model+no_save_optim",
	.never = "actor_rollout_ref.model.path base_model finetuning_type checkpoint_dir "
		 "model_name_or_path hidden_size num_attention_heads data train model._component_ dist_config context_length",
	/* "swift sft", swift/cli/sft.py, and version 1's llm_sft.py */
	.programs = "swift megatron",
	.commands = "swift* megatron* sft rlhf pt main llm_* mllm_*",
	.rows = lists,
	.idle = idles,
	.own_defaults = true,
	.finish = finish,
};
