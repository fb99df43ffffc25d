/* The two halves of a patch (planner/emit/patch.h): where a value stands in a line, and the line that is put in for a
 * key that no file has.  Expected places and lines are read off the texts by hand; their forms are YAML 1.2's, TOML 1.0's,
 * RFC 8259's and a shell's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "emit/patch.h"

static const struct {
	const char *line, *key, *was;
	const char *value;      /* what stands between *from and *to; NULL: the value is not there */
} places[] = {
	{"micro_batch_size: 2", "micro_batch_size", "2", "2"},
	{"  lr: 1e-4  # as ever", "lr", "1e-4", "1e-4"},
	{"optimizer: 'adamw'", "optimizer", "adamw", "'adamw'"},
	{"seq_len = 2048", "seq_len", "2048", "2048"},
	{"  \"stage\": 3,", "stage", "3", "3"},
	{"  \"device\": \"cpu\",", "device", "cpu", "\"cpu\""},
	{"--bf16 True --lora_r 8 \\", "lora_r", "8", "8"},
	{"--lora_r=8 --lora_alpha 16", "lora_alpha", "16", "16"},
	/* the key's name ends another's, and begins another's */
	{"eval_batch_size: 2", "batch_size", "2", NULL},
	{"lora_rank: 8", "lora_r", "8", NULL},
	/* another value, and one that goes on */
	{"micro_batch_size: 4", "micro_batch_size", "2", NULL},
	{"micro_batch_size: 20", "micro_batch_size", "2", NULL},
	/* nothing stands behind it yet */
	{"flash_attention:", "flash_attention", "", ""},
	{"flash_attention:  # off", "flash_attention", "", ""},
	{"flash_attention: true", "flash_attention", "", NULL},
};

static void test_places(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		const struct patch_change c = {.key = places[i].key, .was = places[i].was};
		const size_t n = strlen(places[i].line);
		size_t from = 0, to = 0;
		const bool found = patch_locate(places[i].line, n, &c, &from, &to);

		if (found != (places[i].value != NULL))
			fail_msg("%s: %s", places[i].line, found ? "found" : "not found");
		if (found && (to - from != strlen(places[i].value) || strncmp(places[i].line + from, places[i].value, to - from)))
			fail_msg("%s: %.*s, not %s", places[i].line, (int)(to - from), places[i].line + from, places[i].value);
	}
}

static void test_texts(void **state)
{
	static const char *const texts[] = {"adamw", "bf16", "1.5x"};
	static const char *const words[] = {"8", "1e-4", "-1", "true", "False", "null"};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_true(patch_is_text(texts[i]));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		assert_false(patch_is_text(words[i]));
}

static const struct {
	const char *name, *text, *knob, *value;
	uint32_t line;          /* 0: there is no place for it */
	bool above;
	const char *word;
} additions[] = {
	/* beside the batch's key, in its indentation */
	{"a.yml", "base_model: some/model\nmicro_batch_size: 2\nsequence_len: 64\n", "grad-accum", "4", 2, false,
	 "gradient_accumulation_steps: 4"},
	/* the last member of a map has no comma: the new line stands above it */
	{"d.json", "{\n  \"zero_optimization\": {\n    \"stage\": 3\n  },\n  \"train_micro_batch_size_per_gpu\": 1\n}\n", "grad-accum", "4",
	 5, true, "  \"gradient_accumulation_steps\": 4,"},
	/* a key that leaves its value to another program is filled in */
	{"b.json", "{\n  \"zero_optimization\": {\n    \"stage\": 3\n  },\n  \"gradient_accumulation_steps\": \"auto\"\n}\n", "grad-accum", "4", 5,
	 false, "4"},
	/* among the command's own options, whatever lines its launcher's stand on */
	{"c.sh", "accelerate launch \\\n  --num_processes 2 \\\n  train.py --model_name_or_path some/model \\\n"
		 "  --per_device_train_batch_size 2 \\\n  --output_dir out --bf16 True\n",
	 "grad-accum", "4", 4, false, "  --gradient_accumulation_steps 4 \\"},
	/* the batch does not stand alone on its line, and no other option does */
	{"e.sh", "accelerate launch \\\n  --num_processes 2 \\\n  train.py --model_name_or_path some/model "
		 "--per_device_train_batch_size 2 --bf16 True\n",
	 "grad-accum", "4", 0, false, NULL},
	/* what stands on the next line is no option: perhaps it belongs to this one's */
	{"p.sh", "torchrun --nproc_per_node 2 train.py --model_name_or_path some/model --bf16 True \\\n  --per_device_train_batch_size 2 \\\n"
		 "  settings --output_dir out\n",
	 "grad-accum", "4", 0, false, NULL},
	/* the file leaves it to a variable: nobody's number may stand in for that */
	{"w.yml", "base_model: some/model\nmicro_batch_size: 2\nsequence_len: 64\ngradient_accumulation_steps: ${ACCUM}\n", "grad-accum",
	 "4", 0, false, NULL},
	/* no key of axolotl's */
	{"n.yml", "base_model: some/model\nmicro_batch_size: 2\nsequence_len: 64\n", "sub-group-size", "4", 0, false, NULL},
};

static struct oom_reading *read_text(const char *name, const char *text)
{
	struct oom_error err = {{0}};
	struct oom_reading *r = NULL;
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	if (oom_reading_new(&r, &name, 1, NULL, &err))
		fail_msg("%s", err.text);
	return r;
}

static void test_additions(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(additions) / sizeof(additions[0]); i++) {
		char name[64];
		struct patch_change c = {.file = NULL};
		struct oom_reading *r;
		bool found;

		snprintf(name, sizeof(name), "test_patch_%ld_%s", (long)getpid(), additions[i].name);
		r = read_text(name, additions[i].text);
		found = patch_add(r, additions[i].knob, additions[i].value, &c);
		if (found != (additions[i].line != 0))
			fail_msg("%s: %s", additions[i].name, found ? c.word : "no line");
		if (found) {
			assert_string_equal(c.file, name);
			assert_int_equal(c.line, additions[i].line);
			assert_int_equal(c.above, additions[i].above);
			assert_string_equal(c.word, additions[i].word);
		}
		oom_reading_free(r);
		unlink(name);
	}
}

/* An engine is several keys.  Their names and values are those of the frameworks' own documentation of FSDP 2:
 * axolotl's docs/multi-gpu.qmd, transformers' TrainingArguments.fsdp and fsdp_config, accelerate's FSDP2 guide. */
static const struct {
	const char *name, *text;
	uint32_t line;          /* below which they stand; 0: there is no place */
	const char *lines[8];
} engines[] = {
	{"e.yml", "base_model: some/model\ndatasets:\n  - path: a/b\nmicro_batch_size: 2\nsequence_len: 64\n", 5,
	 {"fsdp_version: 2", "fsdp_config:", "  reshard_after_forward: false", "  offload_params: false", NULL}},
	{"t.sh", "torchrun --nproc_per_node 2 sft.py \\\n\t--model_name_or_path some/model --dataset_name a/b \\\n"
		 "\t--per_device_train_batch_size 2 --bf16 True --max_length 64\n", 2,
	 {"\t--fsdp 'shard_grad_op auto_wrap' \\", "\t--fsdp_config '{\"version\": 2, \"reshard_after_forward\": false}' \\", NULL}},
	/* a launcher's lines are not its command's, and a list of values may go on in the next line */
	{"l.sh", "torchrun \\\n\t--nproc_per_node 2 \\\n\tsft.py --model_name_or_path some/model --dataset_name a/b "
		 "--per_device_train_batch_size 2 --bf16 True --max_length 64\n", 0, {NULL}},
	{"m.sh", "torchrun --nproc_per_node 2 sft.py --model_name_or_path some/model --lora_target_modules q_proj \\\n\tv_proj "
		 "--dataset_name a/b --per_device_train_batch_size 2 --bf16 True --max_length 64\n", 0, {NULL}},
	/* an option's value may stand on the next line: nothing is put between the two */
	{"o.sh", "torchrun --nproc_per_node 2 sft.py --model_name_or_path \\\n\tsome/model --dataset_name \\\n"
		 "\ta/b --per_device_train_batch_size 2 --bf16 True --max_length 64\n", 0, {NULL}},
};

static void test_engines(void **state)
{
	const struct oom_option *const knobs[] = {oom_knob_find("engine"), oom_knob_find("zero")};

	(void)state;
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
		struct patch_change c[16];
		struct oom_emitted said = {.text = NULL};
		struct oom_plan from = oom_plan_default(), to;
		struct oom_reading *r;
		size_t lines = 0, n = 0;
		char name[64];

		snprintf(name, sizeof(name), "test_patch_%ld_%s", (long)getpid(), engines[i].name);
		r = read_text(name, engines[i].text);
		oom_reading_apply(r, &from, NULL, NULL);
		to = from;
		to.engine = OOM_ENGINE_FSDP2;
		to.zero_stage = 2;
		assert_int_equal(patch_together(r, &from, &to, knobs, 2, c, 16, &lines, &said), OOM_OK);
		for (; engines[i].lines[n]; n++) {
			assert_true(n < lines);
			assert_string_equal(c[n].word, engines[i].lines[n]);
			assert_int_equal(c[n].line, engines[i].line);
			assert_true(c[n].added);
		}
		assert_int_equal(lines, n);
		assert_int_equal(said.n_unsaid, n ? 0 : 2);
		oom_reading_free(r);
		unlink(name);
	}
}

/* Keys of TOML stand in tables (TOML 1.0): one that the file has takes new ones below its header, another is put at the
 * end.  torchtitan's replicas alone are DDP's, shards of -1 FSDP's (torchtitan/config/job_config.py Parallelism). */
static void test_tables(void **state)
{
	static const char text[] = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 4\nseq_len = 1024\n"
				   "[parallelism]  # of ranks\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1\n"
				   "[activation_checkpoint]\nmode = 'none'";
	static const char *const lines[] = {
		"+fsdp_reshard_after_forward = \"never\"\n", "-data_parallel_replicate_degree = 8\n+data_parallel_replicate_degree = 1\n",
		"-data_parallel_shard_degree = 1\n+data_parallel_shard_degree = -1\n", "+mode = 'full'\n+\n+[compile]\n+enable = true\n"};
	struct oom_plan from = oom_plan_default(), to;
	struct oom_error err = {{0}};
	struct oom_reading *r;
	struct oom_emitted e;
	char name[64];

	(void)state;
	snprintf(name, sizeof(name), "test_patch_%ld_t.toml", (long)getpid());
	r = read_text(name, text);
	oom_reading_apply(r, &from, NULL, NULL);
	to = from;
	to.engine = OOM_ENGINE_FSDP2;
	to.zero_stage = 2;
	to.grad_ckpt = OOM_CKPT_FULL;
	to.compile = to.compile_layers = true;
	if (oom_emit_patch(r, &from, &to, &e, &err))
		fail_msg("%s", err.text);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		if (!strstr(e.text, lines[i]))
			fail_msg("no %s in %s", lines[i], e.text);
	assert_int_equal(e.n_unsaid, 0);
	oom_emitted_release(&e);
	oom_reading_free(r);
	unlink(name);
}

/* The allocator's option is the environment's (PyTorch's CUDA notes, PYTORCH_CUDA_ALLOC_CONF). */
static void test_environment(void **state)
{
	static const char script[] = "set -e\ncd run && torchrun --nproc_per_node 2 \\\n  sft.py --model_name_or_path some/model \\\n"
				     "  --per_device_train_batch_size 2 --bf16 True --max_length 64\n";
	const struct oom_option *const knob = oom_knob_find("allocator");
	static const char *const names[] = {"x.sh", "x.yml"};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct patch_change c[4];
		struct oom_emitted said = {.text = NULL};
		struct oom_plan from = oom_plan_default(), to;
		struct oom_reading *r;
		size_t lines = 0;
		char name[64];

		snprintf(name, sizeof(name), "test_patch_%ld_%s", (long)getpid(), names[i]);
		r = read_text(name, i ? "base_model: some/model\nmicro_batch_size: 2\nsequence_len: 64\n" : script);
		oom_reading_apply(r, &from, NULL, NULL);
		to = from;
		to.allocator = OOM_ALLOC_EXPANDABLE;
		assert_int_equal(patch_together(r, &from, &to, &knob, 1, c, 4, &lines, &said), OOM_OK);
		assert_int_equal(lines, !i);
		assert_int_equal(said.n_unsaid, i);
		if (i) {
			/* a file of settings has no environment: which variable it is, is said */
			assert_non_null(strstr(said.unsaid[0], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"));
		} else {
			assert_string_equal(c[0].word, "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
			assert_int_equal(c[0].line, 2);
			assert_true(c[0].above);
		}
		oom_reading_free(r);
		unlink(name);
	}
}

/* fsdp_reshard_after_forward is a key of torchtune's distributed recipes alone (recipes/full_finetune_distributed.py; no
 * recipe *_single_device.py has it): a file of another is not given it, and the recipe is named. */
static void test_other_recipe(void **state)
{
	static const char form[] = "# tune run %s --config mine\nmodel:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
				   "batch_size: 2\ngradient_accumulation_steps: 4\nenable_activation_checkpointing: True\ndtype: bf16\n";
	static const char *const recipes[] = {"full_finetune_single_device", "--nproc_per_node 2 full_finetune_distributed"};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct oom_plan from = oom_plan_default(), to;
		struct oom_error err = {{0}};
		struct oom_reading *r;
		struct oom_emitted e;
		char name[64], text[400];

		snprintf(name, sizeof(name), "test_patch_%ld_r.yaml", (long)getpid());
		snprintf(text, sizeof(text), form, recipes[i]);
		r = read_text(name, text);
		oom_reading_apply(r, &from, NULL, NULL);
		to = from;
		to.zero_stage = 2;
		if (oom_emit_patch(r, &from, &to, &e, &err))
			fail_msg("%s", err.text);
		assert_int_equal(strstr(e.text, "+fsdp_reshard_after_forward: false") != NULL, i);
		assert_int_equal(e.n_unsaid, !i);
		if (!i && !strstr(e.unsaid[0], "full_finetune_distributed"))
			fail_msg("%s", e.unsaid[0]);
		oom_emitted_release(&e);
		oom_reading_free(r);
		unlink(name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_recipe),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_additions),
		cmocka_unit_test(test_engines), cmocka_unit_test(test_tables),
		cmocka_unit_test(test_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
