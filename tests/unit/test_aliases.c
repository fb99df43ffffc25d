/* What training frameworks call the knobs: every name is one name, every word means something that
 * the knob takes, and command lines of real scripts come to the plan they describe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "commands.h"
#include "options.h"

static char told[1000];

static void hear(const char *text)
{
	snprintf(told + strlen(told), sizeof(told) - strlen(told), "%s\n", text);
}

/* Parses one line, words divided by blanks ('|' stands for a blank within a word); returns the
 * failure's text or "". */
static const char *parse(const char *line, struct oom_plan *plan, struct oom_list *idle)
{
	static struct oom_error err;
	struct oom_list words = {.n = 0};
	const struct oom_options set = {
		.plan = plan, .words = &words, .idle = idle, .tell = hear};
	static char copy[4000];
	char *argv[200], *save = NULL;
	int argc = 0;

	told[0] = 0;
	idle->n = 0;
	memset(&err, 0, sizeof(err));
	snprintf(copy, sizeof(copy), "%s", line);
	for (char *w = strtok_r(copy, " ", &save); w && argc < 200; w = strtok_r(NULL, " ", &save)) {
		for (char *c = w; *c; c++)
			*c = *c == '|' ? ' ' : *c;
		argv[argc++] = w;
	}
	*plan = oom_plan_default();
	if (oom_options_parse(&set, argc, argv, &err))
		return err.text;
	if (words.n)
		fail_msg("%s: \"%s\" is no option", line, words.items[0]);
	return "";
}

/* ---- the tables ---- */

struct names {
	const char *name[1000];
	size_t n;
};

static void add(struct names *all, const char *name, const char *owner)
{
	for (size_t i = 0; i < all->n; i++)
		if (oom_same_word(all->name[i], name))
			fail_msg("%s of %s is a name already", name, owner);
	assert_true(all->n < 1000);
	all->name[all->n++] = name;
}

static void add_row(struct names *all, const struct oom_option *o)
{
	add(all, o->name, o->name);
	if (o->column && !oom_same_word(o->column, o->name))
		add(all, o->column, o->name);
	for (const struct oom_alias *a = o->aliases; a && a->name; a++)
		if (!a->older)
			add(all, a->name, o->name);
}

static void every_name_is_one_name(void **state)
{
	static struct names common, all;
	const struct oom_command *c;

	(void)state;
	for (size_t i = 0; oom_knob_at(i); i++)
		add_row(&common, oom_knob_at(i));
	for (size_t i = 0; oom_foreign_at(i); i++)
		add_row(&common, oom_foreign_at(i));
	for (size_t i = 0; (c = oom_command_at(i)) != NULL; i++) {
		all = common;
		for (const struct oom_option *o = c->options; c->knobs && o->name; o++)
			add_row(&all, o);
	}
}

/* A word of the alias, and of the knob where it has none of its own. */
static const char *some_word(const struct oom_option *k, const struct oom_alias *a)
{
	return a->words			       ? a->words->word :
	       a->flag			       ? "true" :
	       k->choice		       ? k->choice(0)->name :
	       k->kind == OOM_OPTION_NAMES     ? "q_proj" :
	       k->kind == OOM_OPTION_VERSION   ? "9.9" :
	       k->max < 1 && k->max > 0	       ? "0.5" :
						 "1";
}

static void every_alias_sets_its_knob(void **state)
{
	(void)state;
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);

		for (const struct oom_alias *a = k->aliases; a && a->name; a++) {
			struct oom_plan plan = oom_plan_default();
			struct oom_error err = {{0}};

			if (oom_plan_set_as(&plan, k, a, a->name, some_word(k, a), &err))
				fail_msg("--%s: %s", a->name, err.text);
			for (const struct oom_alias_word *w = a->words; w && w->word; w++) {
				plan = oom_plan_default();
				if (w->from && oom_plan_set(&plan, k, w->from, &err))
					fail_msg("--%s from %s: %s", a->name, w->from, err.text);
				if (oom_plan_set_as(&plan, k, a, a->name, w->word, &err))
					fail_msg("--%s %s: %s", a->name, w->word, err.text);
			}
			if (!a->words)
				assert_ptr_equal(oom_knob_find(a->name), k);
		}
	}
}

static void every_foreign_row_is_complete(void **state)
{
	(void)state;
	for (size_t i = 0; oom_foreign_at(i); i++) {
		const struct oom_option *o = oom_foreign_at(i);

		if (!*o->summary || (o->kind == OOM_OPTION_ABSENT && !*o->note))
			fail_msg("%s lacks a text", o->name);
	}
}

/* ---- command lines ---- */

/* The scripts' own words on the left, ours on the right. */
static const struct {
	const char *theirs, *ours;
} scripts[] = {
	/* FastChat and Alpaca train vicuna.sh like this */
	{"--model_max_length 2048 --bf16 True --num_train_epochs 3 "
	 "--per_device_train_batch_size 2 --gradient_accumulation_steps 16 "
	 "--evaluation_strategy no --save_strategy steps --save_steps 1200 "
	 "--save_total_limit 10 --learning_rate 2e-5 --weight_decay 0. "
	 "--warmup_ratio 0.03 --lr_scheduler_type cosine --logging_steps 1 "
	 "--fsdp full_shard|auto_wrap --tf32 True --gradient_checkpointing True "
	 "--nproc_per_node=4",
	 "--seq-len 2048 --precision auto-amp --micro-batch 2 --grad-accum 16 --tf32 "
	 "--save-total-limit 10 --engine fsdp1 --zero 3 --grad-ckpt full --gpus-per-node 4 --evaluates no"},
	/* TRL's sft.py */
	{"--dtype bfloat16 --bf16 --use_peft --lora_r 32 --lora_target_modules q_proj v_proj "
	 "--attn_implementation flash_attention_2 --gradient_checkpointing --load_in_4bit "
	 "--max_length 4096 --optim paged_adamw_8bit",
	 "--precision bf16-amp --lora-r 32 --lora-targets q_proj+v_proj --attn flash "
	 "--grad-ckpt full --qlora --seq-len 4096 --optimizer paged-adamw-8bit"},
	/* the same precision, the other way round */
	{"--bf16 true --torch_dtype bfloat16", "--precision bf16-amp"},
	{"--fp16 false --bf16 true", "--precision auto-amp"},
	{"--bf16 false", ""},
	{"--mixed_precision no", ""},
	/* LLaMA-Factory */
	{"--finetuning_type lora --lora_target all-linear --cutoff_len 2048 --flash_attn fa2 "
	 "--quantization_bit 4 --use_liger_kernel --plot_loss True --template qwen",
	 "--lora-r 8 --lora-targets all-linear --seq-len 2048 --attn flash --qlora "
	 "--loss fused"},
	{"--lora_rank 64 --finetuning_type lora", "--lora-r 64"},
	{"--lora_rank 64 --finetuning_type full", ""},
	/* ms-swift */
	{"--train_type lora --lora_rank 8 --target_modules q_proj k_proj --max_length 1024 "
	 "--torch_dtype float16 --deepspeed_stage 3",
	 "--lora-r 8 --lora-targets q_proj,k_proj --seq-len 1024 --precision fp16 --zero 3"},
	/* accelerate launch */
	{"--use_fsdp --fsdp_version 2 --fsdp_sharding_strategy FULL_SHARD "
	 "--fsdp_state_dict_type SHARDED_STATE_DICT --fsdp_offload_params true "
	 "--num_processes 8 --num_machines 1 --mixed_precision bf16",
	 "--engine fsdp2 --zero 3 --save-sharded --offload-params cpu --gpus 8 "
	 "--precision auto-amp"},
	{"--fsdp_sharding_strategy 4 --distributed_type FSDP",
	 "--zero 3 --hybrid-shard --engine fsdp1"},
	{"--distributed_type MULTI_GPU", ""},
	/* Megatron-LM */
	{"--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 "
	 "--sequence-parallel --micro-batch-size 1 --global-batch-size 128 --seq-length 4096 "
	 "--recompute-activations --use-distributed-optimizer --lr 1e-4 --train-iters 500",
	 "--tp 8 --pp 2 --sp --micro-batch 1 --global-batch 128 --seq-len 4096 "
	 "--grad-ckpt selective --zero 1"},
	{"--no-gradient-checkpointing", "--grad-ckpt none"},
	{"--optim adamw_8bit", "--optimizer adamw-8bit-embfp32"},
	{"--optimizer adamw_8bit", "--optimizer adamw-8bit"},
	{"--optimizer adamw_bnb_8bit", "--optimizer adamw-8bit-embfp32"},
};

static void lines_of_scripts(void **state)
{
	struct oom_list idle;

	(void)state;
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		struct oom_plan theirs, ours;
		char a[2000], b[2000];

		assert_string_equal(parse(scripts[i].theirs, &theirs, &idle), "");
		assert_string_equal(parse(scripts[i].ours, &ours, &idle), "");
		if (memcmp(&ours, &theirs, sizeof(ours))) {
			struct oom_plan plain = oom_plan_default();

			fail_msg("%s\nis    %s\nnot   %s", scripts[i].theirs,
				 oom_plan_options(&plain, &theirs, a, sizeof(a)),
				 oom_plan_options(&plain, &ours, b, sizeof(b)));
		}
	}
}

static void what_has_no_effect_is_named(void **state)
{
	struct oom_plan plan;
	struct oom_list idle;

	(void)state;
	assert_string_equal(parse("--learning_rate 2e-5 --do_train --group-by-length True --wandb-project=x "
				  "--micro-batch 4",
				  &plan, &idle),
			    "");
	assert_int_equal(plan.micro_batch, 4);
	assert_int_equal(idle.n, 4);
	assert_string_equal(idle.items[0], "learning-rate");
	assert_string_equal(idle.items[1], "do-train");
	assert_string_equal(idle.items[2], "group-by-length");
	assert_string_equal(idle.items[3], "wandb-project");
	assert_string_equal(told, "");

	assert_string_equal(parse("--per_device_eval_batch_size 4 --bf16", &plan, &idle), "");
	assert_int_equal(idle.n, 0);
	assert_int_equal(plan.eval_batch, 4);
	assert_string_equal(told, "--bf16: read as transformers' autocast, over weights in the config's own "
				  "dtype as transformers 5 loads them, or in that of --torch-dtype\n");
}

/* Beside the knob's own words stands one that sets another knob, too: by whatever name, and with a blank. */
static void a_word_may_say_more(void **state)
{
	static const char *const lines[] = {"--grad-ckpt unsloth", "--grad-ckpt=unsloth", "--gradient-checkpointing unsloth",
					    "--use_gradient_checkpointing unsloth"};
	struct oom_plan plan;
	struct oom_list idle;

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		assert_string_equal(parse(lines[i], &plan, &idle), "");
		assert_int_equal(plan.grad_ckpt, OOM_CKPT_FULL);
		assert_true(plan.offload_activations);
	}
	assert_string_equal(parse("--use_gradient_checkpointing True", &plan, &idle), "");
	assert_int_equal(plan.grad_ckpt, OOM_CKPT_FULL);
	assert_false(plan.offload_activations);
}

static void what_is_not_modelled_is_refused(void **state)
{
	struct oom_plan plan;
	struct oom_list idle;
	const char *text;

	(void)state;
	for (size_t i = 0; oom_foreign_at(i); i++) {
		const struct oom_option *o = oom_foreign_at(i);
		char line[100];

		if (o->kind != OOM_OPTION_ABSENT)
			continue;
		snprintf(line, sizeof(line), "--%s%s", o->name, o->metavar ? " something" : "");
		text = parse(line, &plan, &idle);
		if (!strstr(text, o->note) || strncmp(text + 2, o->name, strlen(o->name)))
			fail_msg("%s: \"%s\"", line, text);
		snprintf(line, sizeof(line), "--%s False", o->name);
		assert_string_equal(parse(line, &plan, &idle), "");
	}
}

static void wrong_words_are_told_the_right_ones(void **state)
{
	static const struct {
		const char *line, *text;
	} cases[] = {
		{"--fsdp fullshard", "--fsdp: \"fullshard\" is none of: full_shard, shard_grad_op, "
				     "hybrid_shard, no_shard, offload, auto_wrap"},
		{"--mixed-precision fp8", "--mixed-precision: \"fp8\" is none of: bf16, fp16, no"},
		{"--bf16=maybe", "--bf16: \"maybe\" is none of: true, false"},
		{"--per_device_train_batch_size 0",
		 "--per-device-train-batch-size: 0 is outside 1 to 1048576"},
		{"--gradient-checkpointing=somewhat",
		 "--gradient-checkpointing: \"somewhat\" is none of: none, full, selective, selective-attention, "
		 "selective-op"},
		{"--no-bf16=1", "--no-bf16 takes no value"},
		{"--torch-dtype", "--torch-dtype needs a value (WORD)"},
		{"--no-torch-dtype", "unknown option --no-torch-dtype (did you mean --torch-dtype?)"},
		{"--gradient_acumulation_steps 4", "unknown option --gradient_acumulation_steps (did "
						   "you mean --gradient-accumulation-steps?)"},
		{"--lerning-rate 1", "unknown option --lerning-rate (did you mean --learning-rate?)"},
		{"--lora-target-modules q_proj,,k_proj",
		 "--lora-target-modules: \"q_proj,,k_proj\" holds an empty name"},
	};
	struct oom_plan plan;
	struct oom_list idle;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(parse(cases[i].line, &plan, &idle), cases[i].text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_name_is_one_name),
		cmocka_unit_test(every_alias_sets_its_knob),
		cmocka_unit_test(every_foreign_row_is_complete),
		cmocka_unit_test(lines_of_scripts),
		cmocka_unit_test(what_has_no_effect_is_named),
		cmocka_unit_test(what_is_not_modelled_is_refused), cmocka_unit_test(a_word_may_say_more),
		cmocka_unit_test(wrong_words_are_told_the_right_ones),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
