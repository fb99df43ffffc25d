/* Scripts around transformers' Trainer that many runs are started with: their own keys, and what they
 * take where a command says nothing.  A script is known by the name of its program where that is its
 * own, else by keys that no other has. */
#include <stdio.h>
#include <string.h>

#include "framework.h"

#define INTERNVL "internvl_chat/internvl/train/internvl_chat_finetune.py"
#define FIREFLY "Firefly component/argument.py, train.py @e22b406"
#define CHAT "DeepSpeed-Chat main.py"
#define CHINESE "Chinese-LLaMA-Alpaca-3 scripts/training, MyTrainingArguments"
#define CHATGLM "ChatGLM2-6B ptuning/main.py"
#define ORPO "xfactlab/orpo main.py"
#define LMFLOW "LMFlow src/lmflow/args.py"

const struct fw_row hf_script_rows[] = {
	FW_KEY("full_finetune", "method", "true>full;false>lora", NULL, "qlora.py"),
	{"source_max_len", .hook = true, .source = "qlora.py"},
	{"target_max_len", .hook = true, .source = "qlora.py"},
	FW_KEY("model_max_len", "seq-len", NULL, NULL, "jondurbin/qlora train.py"),
	FW_KEY("lora_modules", "lora-targets", "all>all-linear;*>=", NULL, "qlora.py find_all_linear_names"),
	FW_KEY("grad_checkpoint", "grad-ckpt", "true>full;false>none", NULL, INTERNVL),
	FW_KEY("use_packed_ds", "packing", "true>true;false>false", NULL, INTERNVL),
	{"max_packed_tokens", .hook = true, .source = INTERNVL},
	{"freeze_llm", .hook = true, .source = INTERNVL},
	{"use_llm_lora", .hook = true, .source = INTERNVL},
	{"zero_stage", .hook = true, .source = CHAT},
	{"offload", .hook = true, .source = CHAT},
	FW_KEY("lora_dim", "lora-r", NULL, NULL, CHAT),
	{"lora_module_name", .hook = true, .source = CHAT},
	FW_KEY("lora_enable", "method", "true>lora;false>full", NULL, "LLaVA train.py"),
	FW_KEY("arch_type", "objective", "text_regression>reward;*>", NULL, LMFLOW),
	FW_KEY("lm_model_name_or_path", "model", NULL, NULL, "DeepSpeed-VisualChat training/main.py"),
	{"loss_type", .hook = true, .source = INTERNVL},
	FW_KEY("disable_group_texts", "packing", "false>true;true>false", NULL, LMFLOW),
	FW_KEY("disable_flash_attn2", "attn", "false>flash;true>sdpa", NULL, "Qwen2-VL-Finetune src/train"),
	FW_KEY("max_completion_length", "completion-len", NULL, NULL, "trl/trainer/grpo_config.py"),
	{"max_prompt_length", .hook = true, .source = "trl/trainer/grpo_config.py"},
	{"mm_tunable_parts", .hook = true, .source = "LLaVA-NeXT train.py"},
	{"tune_mm_mlp_adapter", .hook = true, .source = "LLaVA train.py"},
	FW_KEY("train_mode", "method", "full>full base-bits=16;lora>lora base-bits=16;qlora>lora base-bits=4-nf4", NULL, FIREFLY),
	FW_KEY("task_type", "objective", "sft>sft;dpo>dpo;pretrain>pretrain;*>", NULL, FIREFLY),
	FW_KEY("trainable", "lora-targets", NULL, NULL, CHINESE),
	FW_KEY("full_finetuning", "method", "true>full;false>", NULL, CHINESE),
	FW_KEY("response_max_length", "seq-len", NULL, NULL, ORPO ": rows are padded to it"),
	{"@objective", .hook = true},
	{"prompt_column", .hook = true, .source = CHATGLM}, {"response_column", .hook = true, .source = CHATGLM},
	{"vision_tower", .note = "a vision tower and its activations: more than is priced"},
	{.key = NULL},
};

const char hf_script_idle[] =
	"quant_type conv_style meta_path force_image_size down_sample_ratio drop_path_rate min_num_frame "
	"max_num_frame vision_select_layer margin_scale mask_prompt length_penalty data_split "
	"num_warmup_steps enable_tensorboard tensorboard_path with_tracking max_new_tokens do_mmlu_eval "
	"eval_dataset_size train_file_path only_optimize_lora template_name tokenize_num_workers data_cache_dir "
	"num_stages_per_epoch dataset_path conversation_template save_aggregated_lora validation_split_percentage prompt_max_length data_name num_proc lr alpha disable_prompt_loss";

static const struct script {
	const char *programs;   /* blank-separated, without ".py"; "": its name is everybody's */
	const char *keys;       /* "a+b c": both, or the third */
	const char *facts;      /* "knob=value": where the command says nothing */
	const char *source;
} scripts[] = {
	{"qlora", "source_max_len target_max_len",
	 "objective=sft method=lora lora-r=64 lora-dropout=0 lora-targets=all-linear base-bits=4-nf4 "
	 "double-quant=true optimizer=paged-adamw grad-ckpt=full micro-batch=1 grad-accum=16 packing=false",
	 "qlora.py, its dataclasses"},
	{"", "template_name+max_seq_length train_mode+max_seq_length",
	 "objective=sft method=lora lora-r=64 lora-dropout=0.05 lora-targets=all-linear base-bits=4-nf4 packing=false", FIREFLY},
	{"internvl_chat_finetune internvl_chat_pretrain internvl_chat_mpo", "conv_style+meta_path",
	 "objective=sft seq-len=2048 grad-ckpt=full attn=flash packing=false @dtype=bf16", INTERNVL},
	/* the older ones call the script run_pt_with_peft or run_sft_with_peft, which say no attention either */
	{"run_clm_pt_with_peft run_pt_with_peft", "trainable+lora_rank+block_size",
	 "objective=pretrain method=lora lora-r=8 lora-dropout=0.1 lora-targets=q_proj+v_proj seq-len=1024 packing=true",
	 CHINESE},
	{"run_clm_sft_with_peft run_sft_with_peft", "trainable+lora_rank+max_seq_length",
	 "objective=sft method=lora lora-r=8 lora-dropout=0.1 lora-targets=q_proj+v_proj seq-len=1024 packing=false",
	 CHINESE},
	/* its disable_group_texts is on: rows are cut and padded to block_size */
	{"", "use_lora+dataset_path use_qlora+dataset_path",
	 "objective=sft lora-r=8 lora-dropout=0.1 packing=false double-quant=true", LMFLOW},
	{"", "dataset_path+block_size dataset_path+conversation_template", "objective=sft packing=false", LMFLOW},
	{"", "prompt_max_length+response_max_length",
	 "objective=orpo seq-len=1024 grad-ckpt=full @dtype=bf16 @autocast=bf16 micro-batch=2 eval-batch=2 "
	 "optimizer=paged-adamw packing=false", ORPO ", src/args.py"},
	{"", "train_file_path+block_size", "objective=sft packing=false @dtype=fp32", "s1 train/sft.py"},
	{"", "margin_scale+mask_prompt", "objective=dpo seq-len=2048 packing=false",
	 "LMFlow args.py DPOv2AlignerArguments max_length"},
	{"", "data_split+num_warmup_steps zero_stage+lora_dim only_optimize_lora+lora_dim",
	 "engine=deepspeed zero=0 optimizer=adamw-fused micro-batch=16 eval-batch=16 seq-len=512 packing=false "
	 "@ds16=fp16 grad-ckpt=none",
	 CHAT ", its parser: FusedAdam, fp16"},
	{"train_lora", "q_lora+lora_alpha+model_max_length",
	 "objective=sft method=lora lora-r=8 lora-dropout=0.05 lora-targets=q_proj+v_proj seq-len=512 packing=false",
	 "FastChat train_lora.py LoraArguments"},
	{"", "use_lora+llm_type use_lora+max_slice_nums",
	 "objective=sft lora-r=64 lora-dropout=0.05 seq-len=2048 packing=false", "MiniCPM-V finetune.py LoraArguments"},
	{"", "llm_type+max_slice_nums", "objective=sft seq-len=2048 packing=false", "MiniCPM-V finetune.py TrainingArguments"},
	{"", "use_lora+lazy_preprocess q_lora+lazy_preprocess",
	 "objective=sft lora-r=64 lora-dropout=0.05 lora-targets=c_attn+c_proj+w1+w2 seq-len=8192 packing=false",
	 "Qwen finetune.py LoraArguments"},
	{"", "lora_enable+lazy_preprocess",
	 "objective=sft lora-r=64 lora-dropout=0.05 lora-targets=all-linear packing=false",
	 "LLaVA train.py LoRAArguments, find_all_linear_names"},
	{"", "lazy_preprocess", "objective=sft seq-len=512 packing=false", "FastChat, LLaVA train.py"},
	/* whose data_path the scripts that descend from it have kept */
	{"", "data_path+model_name_or_path", "objective=sft seq-len=512 packing=false", "stanford_alpaca train.py model_max_length"},
	{"run_glue run_classification", "task_name+max_seq_length task_name+max_length", "objective=classification task=seq-cls seq-len=128 packing=false",
	 "transformers run_glue.py DataTrainingArguments"},
	{"run_summarization run_summarization_no_trainer run_translation run_translation_no_trainer", "",
	 "objective=sft seq-len=1024 tgt-len=128 packing=false",
	 "transformers run_summarization.py, run_translation.py DataTrainingArguments"},
	{"run_qa run_qa_no_trainer", "", "objective=sft seq-len=384 packing=false", "transformers run_qa.py"},
	/* transformers' before run_clm.py and run_mlm.py: TextDataset cuts the text to block_size, or to what the model takes */
	{"run_language_modeling", "train_data_file+model_type train_data_file+do_train", "objective=pretrain seq-len=1024 packing=true",
	 "transformers examples/legacy/run_language_modeling.py"},
	{"run_clm run_clm_no_trainer",
	 "dataset_config_name+block_size validation_split_percentage+block_size dataset_config_name+do_train",
	 "objective=pretrain seq-len=1024 packing=true", "transformers run_clm.py group_texts"},
};

/* What a script does besides, whoever's keys it takes. */
static const struct {
	const char *programs, *knob, *value, *source;
} besides[] = {
	{"train_mem train_flash_attn", "attn", "flash", "LLaVA, FastChat train_mem.py: flash_attn for every layer"},
	{"train_fast", "attn", "flash", "LLMZoo train_fast.py: flash_attn for every layer"},
	{"train_lomo train_lomo_lora", "optimizer", "lomo", "OpenLMLab/LOMO lomo/src"},
};

static bool is_word_of(const char *list, const char *name, size_t n)
{
	for (const char *w = list; *w && n; w += strspn(w, " ")) {
		const size_t len = strcspn(w, " ");

		if (len == n && !strncmp(w, name, n))
			return true;
		w += len;
	}
	return false;
}

/* "a+b c" */
static bool has_keys(const struct fw_part *p, const char *list)
{
	while (*list) {
		const size_t end = strcspn(list, " ");
		bool all = end > 0;

		for (size_t at = 0; at < end; ) {
			const size_t n = strcspn(list + at, "+ ");
			char key[64];

			snprintf(key, sizeof(key), "%.*s", (int)n, list + at);
			all &= doc_below(fw_root(p), key) != NULL;
			at += n + 1;
		}
		if (all)
			return true;
		list += end + strspn(list + end, " ");
	}
	return false;
}

/* The program's name, without its folder. */
static const char *program_of(const struct fw_part *p)
{
	const char *program = fw_text(p, "(program)"), *slash = strrchr(program, '/');

	return slash ? slash + 1 : program;
}

static const struct script *script_of(const struct fw_part *p)
{
	const char *name = program_of(p);

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (is_word_of(scripts[i].programs, name, strcspn(name, ".")))
			return &scripts[i];
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (has_keys(p, scripts[i].keys))
			return &scripts[i];
	return NULL;
}

/* Does the command, or the script it starts, have an option for adapters? */
static bool speaks_of_adapters(const struct fw_part *p)
{
	for (const struct doc_node *c = fw_root(p)->child; c; c = c->next)
		if (c->key && strstr(c->key, "lora"))
			return true;
	return false;
}

static bool is_of_adapters(const char *knob)
{
	return !strcmp(knob, "method") || !strncmp(knob, "lora", 4) || !strcmp(knob, "base-bits") ||
	       !strcmp(knob, "double-quant");
}

/* The command's own word stands.  Of a script that was read and has no adapters its likes say nothing. */
static void take_facts(struct fw_part *p, const struct script *s)
{
	const bool full = fw_script_read(p) && !speaks_of_adapters(p);

	for (const char *w = s->facts; *w; w += strspn(w, " ")) {
		const size_t n = strcspn(w, " "), knob = strcspn(w, "=");
		char name[48], value[48];

		snprintf(name, sizeof(name), "%.*s", (int)knob, w);
		snprintf(value, sizeof(value), "%.*s", (int)(n - knob - 1), w + knob + 1);
		if (!fw_fact_from_file(p, name) && !(full && is_of_adapters(name)))
			fw_set(p, name, value, NULL, s->source);
		w += n;
	}
}

static void finish_qlora(struct fw_part *p)
{
	int64_t source = 1024, target = 256;

	doc_whole(fw_key(p, "source_max_len"), &source);
	doc_whole(fw_key(p, "target_max_len"), &target);
	/* forks of it have one length for both */
	if (!(fw_fact_from_file(p, "seq-len") && !fw_key(p, "source_max_len") && !fw_key(p, "target_max_len")) && source > 0 &&
	    target > 0 && source < 100000000 && target < 100000000)
		fw_set_whole(p, "seq-len", source + target, "target_max_len", "source and target");
	fw_default(p, "@dtype", fw_on(p, "bf16") ? "bf16" : "fp32", "qlora.py get_accelerate_model");
}

static void finish_internvl(struct fw_part *p)
{
	int64_t rank = 0, tokens;

	/* rows of several samples, whatever a sample may have (train/dataset_packed.py) */
	if (fw_on(p, "use_packed_ds") && doc_whole(fw_key(p, "max_packed_tokens"), &tokens) && tokens > 0 && tokens < 100000000)
		fw_set_whole(p, "seq-len", tokens, "max_packed_tokens", INTERNVL);
	/* its losses are of pairs, or of one answer alone beside them (train/trainer_dpo.py) */
	if (*fw_text(p, "loss_type"))
		fw_set(p, "objective", "dpo", "loss_type", INTERNVL);
	if (doc_whole(fw_key(p, "use_llm_lora"), &rank) && rank > 0) {
		fw_set(p, "method", "lora", "use_llm_lora", NULL);
		fw_set_whole(p, "lora-r", rank, "use_llm_lora", NULL);
		fw_default(p, "lora-dropout", "0.05", INTERNVL " wrap_llm_lora");
	} else if (fw_on(p, "freeze_llm")) {
		fw_set(p, "method", "freeze", "freeze_llm", "the language model does not train");
		fw_set(p, "objective", "pretrain", "freeze_llm", "the projector is aligned");
		fw_open(p, "objective", "the language model is frozen: taken for the stage before tuning");
	}
}

static void finish_chat(struct fw_part *p)
{
	int64_t stage;
	const bool off = fw_on(p, "offload");

	if (doc_whole(fw_key(p, "zero_stage"), &stage) && stage >= 0 && stage <= 3)
		fw_set_whole(p, "zero", stage, "zero_stage", NULL);
	else if (doc_below(fw_root(p), "zero_stage"))
		fw_open(p, "zero", "the stage is an argument of the script");
	fw_set(p, "offload-optimizer", off ? "cpu" : "none", "offload", CHAT);
	if (off && fw_fact_is(p, "zero", "3"))
		fw_set(p, "offload-params", "cpu", "offload", CHAT " get_train_ds_config");
	if (*fw_fact(p, "@dtype"))
		fw_set(p, "@ds16", fw_fact(p, "@dtype"), "dtype", CHAT);
	if (fw_key(p, "lora_dim") && !fw_on(p, "only_optimize_lora"))
		fw_unmodelled(p, "lora_dim", "embeddings and norms train beside the adapters: more than is "
			      "priced");
	fw_take_chat_lora(p, "lora_module_name");
	fw_default(p, "objective", "sft", CHAT);
	fw_open(p, "objective", "which step the script is of is not said; sft is taken");
}

/* What a script trains stands in its name: "train_dpo.py", "finetune_grpo.py". */
void hf_objective_by_name(struct fw_part *p)
{
	static const char *const words[][2] = {
		{"dpo", "dpo"}, {"mpo", "dpo"}, {"kto", "kto"}, {"orpo", "orpo"}, {"simpo", "simpo"}, {"grpo", "grpo"}, {"ppo", "ppo"},
		{"reward", "reward"}, {"rm", "reward"}, {"cls", "classification"}, {"classification", "classification"},
		{"mlm", "pretrain"}, {"glue", "classification"}};
	for (const char *w = program_of(p); *w; w += strspn(w, "_-.")) {
		const size_t n = strcspn(w, "_-.");

		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (n == strlen(words[i][0]) && !strncmp(w, words[i][0], n))
				fw_set(p, "objective", words[i][1], "(program)", "the script's name");
		w += n;
		if (!n && !strspn(w, "_-."))
			break;
	}
}

/* Scripts of models that see: the language model may be left as it is. */
static void finish_tunable(struct fw_part *p)
{
	const char *parts = fw_text(p, "mm_tunable_parts");

	if (fw_fact_is(p, "method", "lora"))
		return;
	if (fw_on(p, "freeze_llm") || (*parts && !strstr(parts, "mm_language_model")) || fw_on(p, "tune_mm_mlp_adapter"))
		fw_set(p, "method", "freeze",
		       *parts ? "mm_tunable_parts" : fw_on(p, "freeze_llm") ? "freeze_llm" : "tune_mm_mlp_adapter",
		       "the language model does not train");
	/* a projector alone is what the first stage trains */
	if (fw_on(p, "tune_mm_mlp_adapter") || !strcmp(parts, "mm_mlp_adapter"))
		fw_set(p, "objective", "pretrain", *parts ? "mm_tunable_parts" : "tune_mm_mlp_adapter",
		       "the projector is aligned");
}

static void finish_rollouts(struct fw_part *p)
{
	int64_t prompt, completion;

	if (!fw_fact_is(p, "objective", "grpo"))
		fw_unset(p, "completion-len");
	else if (doc_whole(fw_key(p, "max_prompt_length"), &prompt) && prompt > 0 && prompt < 100000000 &&
		 doc_whole(fw_key(p, "max_completion_length"), &completion) && completion > 0 && completion < 100000000)
		fw_set_whole(p, "seq-len", prompt + completion, "max_completion_length", "prompt and completion");
}

/* A prompt and its answer in one row, and a token that ends it. */
static void finish_chatglm(struct fw_part *p)
{
	int64_t prompt = 1024, answer = 128;

	doc_whole(fw_key(p, "max_source_length"), &prompt);
	doc_whole(fw_key(p, "max_target_length"), &answer);
	if (prompt > 0 && answer > 0 && prompt < 100000000 && answer < 100000000)
		fw_set_whole(p, "seq-len", prompt + answer + 1, "max_target_length", CHATGLM);
	fw_unset(p, "tgt-len");
}

static void of_script(struct fw_part *p)
{
	const struct script *s = script_of(p);
	const char *name = program_of(p);

	for (size_t i = 0; i < sizeof(besides) / sizeof(besides[0]); i++)
		if (is_word_of(besides[i].programs, name, strcspn(name, ".")) &&
		    !fw_fact_from_file(p, besides[i].knob))
			fw_set(p, besides[i].knob, besides[i].value, NULL, besides[i].source);
	if (!*fw_fact(p, "model") && fw_key(p, "config_name") && !doc_below(fw_root(p), "model_name_or_path"))
		fw_set(p, "model", fw_text(p, "config_name"), "config_name", "made anew from its config");
	if (s) {
		fw_set(p, "@known-script", "true", NULL, NULL);
		take_facts(p, s);
	}
	if (s && is_word_of(s->programs, "qlora", 5))
		finish_qlora(p);
	if (has_keys(p, "prompt_column+response_column+max_source_length"))
		finish_chatglm(p);
	if (!s)
		return;
	if (has_keys(p, "conv_style+meta_path"))
		finish_internvl(p);
	else if (has_keys(p, "use_lora+lazy_preprocess") && !fw_on(p, "q_lora"))
		fw_unmodelled(p, "use_lora", "of a base model (not a chat model) Qwen's finetune.py trains "
			      "embedding and output whole as well: more than is priced");
	else if (!strncmp(s->source, CHAT, sizeof(CHAT) - 1))
		finish_chat(p);
}

void hf_script(struct fw_part *p)
{
	of_script(p);
	if (*fw_text(p, "@objective"))
		fw_set(p, "objective", fw_text(p, "@objective"), "@objective", "the trainer that the script makes");
	hf_objective_by_name(p);
	finish_tunable(p);
	finish_rollouts(p);
}
