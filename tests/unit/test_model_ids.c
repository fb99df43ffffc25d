/* What bundled models are called elsewhere: data/model_ids.csv, and what a file is told to load.
 *
 * Origin: ids and shapes are those of the models' own config.json on their hub; test_shapes compares
 * none of them with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "input/model_ids.h"
#include "oomplan/config.h"

static void test_every_bundled_model_has_an_id(void **state)
{
	char name[64];
	size_t n = 0;

	(void)state;
	for (; oom_bundled_model(n, name, sizeof(name)); n++) {
		struct oom_model_id id;
		char buf[200];

		if (!oom_model_id_find(name, &id) || strcmp(id.bundled, name))
			fail_msg("%s has no row in data/model_ids.csv", name);
		assert_non_null(strchr(id.hub_id, '/'));
		assert_string_equal(oom_model_called(name, buf, sizeof(buf)), id.hub_id);
	}
	assert_true(n >= 100);
}

static void test_shapes(void **state)
{
	static const struct {
		const char *id, *bundled;       /* NULL: none */
	} cases[] = {
		{"meta-llama/Llama-3.2-1B", "Llama-3.2-1B"},
		{"NousResearch/Llama-3.2-1B", "Llama-3.2-1B"},
		{"unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "Llama-3.2-1B"},
		{"unsloth/Meta-Llama-3.1-8B-unsloth-bnb-4bit", "Llama-3.1-8B"},
		{"TheBloke/Mistral-7B-v0.1-GPTQ", "Mistral-7B-v0.1"},
		{"Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen2.5-7B"},
		{"Qwen/Qwen-14B-Chat-Int4", "Qwen-14B"},
		{"Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"},
		{"bert-base-uncased", "BERT-base"},
		{"bert-base-cased", NULL},              /* another vocabulary */
		{"Qwen/Qwen2.5-7B-Instruct-1M", "Qwen2.5-7B-Instruct-1M"},     /* longer */
		{"Qwen/Qwen2.5-72B", "Qwen2.5-72B"},
		{"unsloth/llama-3-8b-Instruct-bnb-4bit", "Llama-3-8B"},
		{"codellama/CodeLlama-7b-Python-hf", NULL},             /* another vocabulary */
		{"meta-llama/Llama-3.2-1", NULL},
		{"-bnb-4bit", NULL},
		{"", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_model_id id;

		if (oom_model_id_find(cases[i].id, &id) ? !cases[i].bundled || strcmp(id.bundled, cases[i].bundled)
							: cases[i].bundled != NULL)
			fail_msg("%s", cases[i].id);
	}
}

/* What transformers reads in the config of such a copy: bits and groups that AutoGPTQ and AutoAWQ write unless they are told
 * otherwise, BitsAndBytesConfig as unsloth/models/loader.py has it. */
static void test_copies(void **state)
{
	static const struct {
		const char *id, *method;        /* NULL: not quantised */
		double bits, group;             /* 0: the key is not there */
	} cases[] = {
		{"TheBloke/Mistral-7B-v0.1-GPTQ", "gptq", 4, 128},
		{"Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "gptq", 8, 128},
		{"hugging-quants/Meta-Llama-3.1-8B-Instruct-GPTQ-INT4", "gptq", 4, 128},
		{"hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "awq", 4, 128},
		{"Qwen/Qwen-72B-Chat-Int8", "gptq", 8, 128},
		{"Qwen/Qwen2.5-7B-Instruct-AWQ", "awq", 4, 128},
		{"unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "bitsandbytes", 0, 0},       /* a config that is a file of its own */
		{"Llama-3.2-1B", NULL, 0, 0},
		{"Qwen/Qwen2.5-72B", NULL, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_key *method, *bits, *group;
		struct oom_error err = {{0}};
		struct oom_keys keys;

		if (oom_keys_read_model(&keys, cases[i].id, &err))
			fail_msg("%s: %s", cases[i].id, err.text);
		method = oom_keys_find(&keys, "quantization_config.quant_method");
		bits = oom_keys_find(&keys, "quantization_config.bits");
		group = oom_keys_find(&keys, "quantization_config.group_size");
		if (method ? !cases[i].method || strcmp(method->string, cases[i].method) : cases[i].method != NULL)
			fail_msg("%s", cases[i].id);
		assert_true((bits ? bits->number : 0) == cases[i].bits);
		assert_true((group ? group->number : 0) == cases[i].group);
		assert_non_null(oom_keys_find(&keys, "model_type"));
		oom_keys_release(&keys);
	}
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void test_called(void **state)
{
	static const struct {
		const char *word, *called;
	} cases[] = {
		{"org/name", "org/name"},
		{"folder", "folder"},
		{"folder/config.json", "folder"},
		{"named.json", "an-org/its-name"},
		{"local.json", NULL},           /* names a path of somebody's disk */
		{"mute.json", NULL},
		{"-", NULL},
		{"nothing", NULL},
		{"/no/such", NULL},
		{"a/b/c", NULL},
	};
	char dir[] = "/tmp/oomplan-ids-XXXXXX", old[500], command[600];

	(void)state;
	assert_non_null(getcwd(old, sizeof(old)));
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chdir(dir), 0);
	assert_int_equal(mkdir("folder", 0700), 0);
	write_file("folder/config.json", "{\"model_type\": \"llama\"}");
	write_file("named.json", "{\"_name_or_path\": \"an-org/its-name\"}");
	write_file("local.json", "{\"_name_or_path\": \"./checkpoint-500\"}");
	write_file("mute.json", "{\"model_type\": \"llama\"}");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char buf[200];
		const char *got = oom_model_called(cases[i].word, buf, sizeof(buf));

		if (got ? !cases[i].called || strcmp(got, cases[i].called) != 0 : cases[i].called != NULL)
			fail_msg("%s: %s", cases[i].word, got ? got : "(none)");
	}
	assert_int_equal(chdir(old), 0);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_bundled_model_has_an_id),
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_called),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
