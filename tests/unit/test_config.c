/* config.json to keys: what Python's json module would have seen, and a place for every mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "oomplan/config.h"

static struct oom_keys parse(const char *text)
{
	struct oom_error err = {{0}};
	struct oom_keys keys = {0};

	if (oom_keys_parse(&keys, text, strlen(text), "t", &err))
		fail_msg("%s: %s", text, err.text);
	return keys;
}

static void keys_have_paths_types_and_lines(void **state)
{
	struct oom_keys k = parse("{\n \"b\": {\"x\": [1, 2.5, \"s\"]},\n \"a\": true,\n\n \"n\": "
				  "null, \"e\": \"h\\u00e9\\n\"\n}\n");
	const struct oom_key *f;

	(void)state;
	assert_int_equal(k.n, 8);
	for (size_t i = 1; i < k.n; i++)
		assert_true(strcmp(k.items[i - 1].path, k.items[i].path) < 0);
	f = oom_keys_find(&k, "b");
	assert_int_equal(f->type, OOM_KEY_OBJECT);
	assert_int_equal(f->n_items, 1);
	assert_int_equal(f->line, 2);
	f = oom_keys_find(&k, "b.x");
	assert_int_equal(f->type, OOM_KEY_LIST);
	assert_int_equal(f->n_items, 3);
	f = oom_keys_find(&k, "b.x.1");
	assert_int_equal(f->type, OOM_KEY_NUMBER);
	assert_float_equal(f->number, 2.5, 0);
	assert_string_equal(oom_keys_find(&k, "b.x.2")->string, "s");
	f = oom_keys_find(&k, "a");
	assert_int_equal(f->type, OOM_KEY_BOOL);
	assert_float_equal(f->number, 1, 0);
	assert_int_equal(f->line, 3);
	f = oom_keys_find(&k, "n");
	assert_int_equal(f->type, OOM_KEY_NULL);
	assert_int_equal(f->line, 5);
	assert_string_equal(oom_keys_find(&k, "e")->string, "h\xc3\xa9\n");
	assert_null(oom_keys_find(&k, "x"));
	assert_null(oom_keys_find(&k, ""));
	assert_string_equal(k.file, "t");
	oom_keys_release(&k);
	oom_keys_release(&k);
	oom_keys_release(NULL);
}

/* python3 -c 'import json; print(json.loads(...))' keeps the last of two equal keys, whole. */
static void the_last_of_equal_keys_wins(void **state)
{
	struct oom_keys k = parse(
		"{\"a\":{\"x\":1,\"y\":{\"z\":2}},\"b\":1,\"a\":{\"x\":3,\"x\":4},\n\"b\":[5]}");

	(void)state;
	assert_int_equal(k.n, 4);
	assert_float_equal(oom_keys_find(&k, "a.x")->number, 4, 0);
	assert_int_equal(oom_keys_find(&k, "a")->n_items, 1);
	assert_null(oom_keys_find(&k, "a.y"));
	assert_null(oom_keys_find(&k, "a.y.z"));
	assert_int_equal(oom_keys_find(&k, "b")->type, OOM_KEY_LIST);
	assert_int_equal(oom_keys_find(&k, "b")->line, 2);
	oom_keys_release(&k);
}

/* json.dumps(float("nan")) writes NaN; json.loads takes it. */
static void pythons_extra_numbers(void **state)
{
	struct oom_keys k = parse("{\"a\":[NaN,Infinity,-Infinity,1e400],\"b\":7}");

	(void)state;
	assert_true(isnan(oom_keys_find(&k, "a.0")->number));
	assert_true(isinf(oom_keys_find(&k, "a.1")->number) &&
		    oom_keys_find(&k, "a.1")->number > 0);
	assert_true(isinf(oom_keys_find(&k, "a.2")->number) &&
		    oom_keys_find(&k, "a.2")->number < 0);
	assert_true(isinf(oom_keys_find(&k, "a.3")->number));
	assert_float_equal(oom_keys_find(&k, "b")->number, 7, 0);
	oom_keys_release(&k);
}

static void big_integers_are_exact_to_2_53(void **state)
{
	struct oom_keys k = parse("{\"a\":9007199254740991,\"b\":-4611686018427387904}");

	(void)state;
	assert_true((uint64_t)oom_keys_find(&k, "a")->number == 9007199254740991u);
	assert_true((int64_t)oom_keys_find(&k, "b")->number == -4611686018427387904);
	oom_keys_release(&k);
}

static void accepted(void **state)
{
	static const char *const texts[] = {
		"{}",
		" {\"a\" : [ ] } ",
		"{\"\":0}",
		"\xef\xbb\xbf{\"a\":1}",
		"{\"a\":-0.5e-3}",
		"{\"a\":\"\\ud83d\\ude00\"}",
		"{\"a\":\"\xf0\x9f\x98\x80\"}",
		"{\"a\":{\"b\":{}}}",
		"\r\n{\t\"a\":0}\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct oom_keys k = parse(texts[i]);

		oom_keys_release(&k);
	}
}

/* Positions counted by hand; a column is a character, not a byte. */
static const struct {
	const char *text, *place, *word;
} refused[] = {
	{"", "t:1:1:", "empty"},
	{"[1, 2]", "t:1:1:", "a list"},
	{"\n\n \"s\"", "t:3:1:", "a string"},
	{"12", "t:1:1:", "a number"},
	{"null", "t:1:1:", "null"},
	{"true", "t:1:1:", "true or false"},
	{"{\"a\":1,}", "t:1:8:", "key in double quotes"},
	{"{\"a\":1\n,\"b\" 2}", "t:2:6:", "':'"},
	{"{\"a\":1 \"b\":2}", "t:1:8:", "','"},
	{"{\"a\":[1,]}", "t:1:9:", "value"},
	{"{\"a\":[1 2]}", "t:1:9:", "','"},
	{"{'a':1}", "t:1:2:", "double quotes"},
	{"{\"a\":tru}", "t:1:6:", "value"},
	{"{\"a\":None}", "t:1:6:", "value"},
	{"{\"a\":01}", "t:1:6:", "leading zero"},
	{"{\"a\":1.}", "t:1:6:", "point"},
	{"{\"a\":1e}", "t:1:6:", "exponent"},
	{"{\"a\":+1}", "t:1:6:", "value"},
	{"{\"a\":0x10}", "t:1:7:", "','"},
	{"{\"a\":1", "t:1:7:", "ends"},
	{"{\"a\":", "t:1:6:", "ends"},
	{"{\"a\"", "t:1:5:", "':'"},
	{"{", "t:1:2:", "ends"},
	{"{\"a\":\"b}", "t:1:6:", "closing quote"},
	{"{\"a\":\"b\\", "t:1:8:", "closing quote"},
	{"{\"a\":\"\xc3\xa9\\q\"}", "t:1:8:", "escape"},
	{"{\"a\":\"\\u12g4\"}", "t:1:7:", "hexadecimal"},
	{"{\"a\":\"\\u12", "t:1:7:", "hexadecimal"},
	{"{\"a\":\"\\u0000\"}", "t:1:7:", "u0000"},
	{"{\"a\":\"\\ud800x\"}", "t:1:7:", "surrogate"},
	{"{\"a\":\"\\udc00\"}", "t:1:7:", "surrogate"},
	{"{\"a\":\"x\ny\"}", "t:1:8:", "line break"},
	{"{\"a\":\"\xff\"}", "t:1:7:", "UTF-8"},
	{"{\"a\":\"\xc0\x80\"}", "t:1:7:", "UTF-8"},
	{"{\"a\":\"\xed\xa0\x80\"}", "t:1:7:", "UTF-8"},
	{"{\"a\":\"\xf4\x90\x80\x80\"}", "t:1:7:", "UTF-8"},
	{"{\"a\":\"\xe2\x82", "t:1:7:", "UTF-8"},
	{"{}{}", "t:1:3:", "more text"},
	{"{\"a\":1]", "t:1:7:", "'}'"},
	{"<html>", "t:1:1:", "web page"},
	{"\xff\xfe{", "t:1:1:", "UTF-16"},
	{"{\"a\":111111111111111111111111111111111111111111111111111111111111111}",
	 "t:1:6:", "62 characters"},
};

static void refused_with_a_place(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct oom_error err = {{0}};
		struct oom_keys keys = {.n = 77};

		assert_int_equal(
			oom_keys_parse(&keys, refused[i].text, strlen(refused[i].text), "t", &err),
			OOM_ERR_PARSE);
		assert_int_equal(keys.n, 77); /* untouched */
		if (strncmp(err.text, refused[i].place, strlen(refused[i].place)) ||
		    !strstr(err.text, refused[i].word))
			fail_msg("%s gave: %s", refused[i].text, err.text);
	}
	{
		struct oom_error err = {{0}};
		struct oom_keys keys = {0};

		assert_int_equal(oom_keys_parse(&keys, "{\"a\":1\0}", 8, "t", &err), OOM_ERR_PARSE);
		assert_non_null(strstr(err.text, "t:1:7"));
		assert_int_equal(oom_keys_parse(&keys, NULL, 0, "t", NULL), OOM_ERR_PARSE);
		assert_int_equal(oom_keys_parse(&keys, "x", (size_t)65 << 20, "t", &err),
				 OOM_ERR_PARSE);
	}
}

/* "{"a":" or "[" n times, closed again. */
static char *nested(size_t n, bool objects)
{
	const char *open = objects ? "{\"a\":" : "[";
	const size_t len = strlen(open);
	char *text = malloc(n * (len + 1) + 16), *p = text;

	assert_non_null(text);
	if (!objects)
		p += sprintf(p, "{\"r\":");
	for (size_t i = 0; i < n; i++, p += len)
		memcpy(p, open, len);
	*p++ = '1';
	memset(p, objects ? '}' : ']', n);
	p += n;
	strcpy(p, objects ? "" : "}");
	return text;
}

static void depth_is_bounded(void **state)
{
	static const struct {
		size_t n;
		bool objects;
		enum oom_status status;
	} cases[] = {
		{1000, true, OOM_OK},           {1001, true, OOM_ERR_PARSE},
		{999, false, OOM_OK},           {1000, false, OOM_ERR_PARSE},
		{1000000, true, OOM_ERR_PARSE}, {1000000, false, OOM_ERR_PARSE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *text = nested(cases[i].n, cases[i].objects);
		struct oom_error err = {{0}};
		struct oom_keys keys = {0};

		assert_int_equal(oom_keys_parse(&keys, text, strlen(text), "t", &err),
				 cases[i].status);
		if (cases[i].status)
			assert_non_null(strstr(err.text, "nested more than 1000 deep"));
		oom_keys_release(&keys);
		free(text);
	}
}

static void size_is_bounded(void **state)
{
	const size_t n = 2000001, key = 600000;
	char *text = malloc(2 * n + 16);
	struct oom_error err = {{0}};
	struct oom_keys keys = {0};
	char *p;

	(void)state;
	assert_non_null(text);
	p = text + sprintf(text, "{\"a\":[");
	for (size_t i = 0; i < n; i++) {
		*p++ = '1';
		*p++ = ',';
	}
	strcpy(p - 1, "]}");
	assert_int_equal(oom_keys_parse(&keys, text, strlen(text), "t", &err), OOM_ERR_PARSE);
	assert_non_null(strstr(err.text, "2000000 values"));
	/* 1000 elements below one key of 600000 characters would need 600 MB of paths */
	p = text + sprintf(text, "{\"");
	memset(p, 'k', key);
	p += key;
	p += sprintf(p, "\":[0");
	for (int i = 0; i < 999; i++)
		p += sprintf(p, ",0");
	strcpy(p, "]}");
	assert_int_equal(oom_keys_parse(&keys, text, strlen(text), "t", &err), OOM_ERR_PARSE);
	assert_non_null(strstr(err.text, "512 MiB"));
	free(text);
}

/* ImageNet-21k, the largest label map in use: 21841 names. */
static void long_label_maps(void **state)
{
	char *text = malloc(21841 * 40 + 32), *p;
	struct oom_keys k;

	(void)state;
	assert_non_null(text);
	p = text + sprintf(text, "{\"id2label\":{");
	for (int i = 0; i < 21841; i++)
		p += sprintf(p, "%s\"%d\":\"label %d\"\n", i ? "," : "", i, i);
	strcpy(p, "}}");
	k = parse(text);
	assert_int_equal(oom_keys_find(&k, "id2label")->n_items, 21841);
	assert_string_equal(oom_keys_find(&k, "id2label.21840")->string, "label 21840");
	assert_int_equal(oom_keys_find(&k, "id2label.21840")->line, 21841);
	oom_keys_release(&k);
	free(text);
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void files_and_folders(void **state)
{
	char dir[] = "/tmp/oomplan-config-XXXXXX", path[64];
	struct oom_error err = {{0}};
	struct oom_keys k = {0};

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(oom_keys_read(&k, dir, &err), OOM_ERR_IO);
	assert_non_null(strstr(err.text, "config.json"));
	snprintf(path, sizeof(path), "%s/config.json", dir);
	assert_int_equal(oom_keys_read(&k, path, &err), OOM_ERR_IO);
	assert_non_null(strstr(err.text, path));
	write_file(path, "{\"model_type\": \"llama\"}");
	assert_int_equal(oom_keys_read(&k, dir, &err), OOM_OK);
	assert_string_equal(k.file, path);
	assert_string_equal(oom_keys_find(&k, "model_type")->string, "llama");
	oom_keys_release(&k);
	assert_int_equal(oom_keys_read(&k, path, &err), OOM_OK);
	oom_keys_release(&k);
	write_file(path, "{\n\"a\":}");
	assert_int_equal(oom_keys_read(&k, path, &err), OOM_ERR_PARSE);
	assert_non_null(strstr(err.text, "config.json:2:5:"));
	assert_int_equal(truncate(path, 1000000000), 0); /* sparse: refused by its size, not read */
	assert_int_equal(oom_keys_read(&k, path, &err), OOM_ERR_PARSE);
	assert_non_null(strstr(err.text, "64 MiB"));
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(oom_keys_read(&k, dir, &err), OOM_ERR_IO);
	rmdir(path);
	rmdir(dir);
}

static void other_kinds_of_json_are_named(void **state)
{
	static const struct {
		const char *text, *word;
	} cases[] = {
		{"{\"tokenizer_class\":\"X\",\"model_max_length\":1}", "tokenizer_config.json"},
		{"{\"version\":\"1.0\",\"pre_tokenizer\":null,\"model\":{}}", "tokenizer.json"},
		{"{\"bos_token\":\"a\",\"eos_token\":\"b\"}", "special_tokens_map.json"},
		{"{\"transformers_version\":\"5\",\"eos_token_id\":2}", "generation_config.json"},
		{"{\"metadata\":{\"total_size\":1},\"weight_map\":{}}", "index"},
		{"{\"peft_type\":\"LORA\",\"r\":8}", "adapter"},
		{"{\"zero_optimization\":{\"stage\":2}}", "DeepSpeed"},
		{"{\"dim\":4096,\"n_layers\":32,\"n_heads\":32}", "params.json"},
		{"{\"image_mean\":[0],\"image_std\":[1]}", "preprocessor_config.json"},
		{"{}", "empty"},
		{"{\"model_type\":\"llama\",\"tokenizer_class\":\"X\"}", NULL},
		{"{\"architectures\":[\"X\"],\"eos_token_id\":2,\"transformers_version\":\"4\"}",
		 NULL},
		{"{\"n_embd\":768}", NULL},
		{"{\"something\":1}", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_keys k = parse(cases[i].text);
		const char *hint = oom_keys_kind_hint(&k);

		if (!cases[i].word ? hint != NULL : !hint || !strstr(hint, cases[i].word))
			fail_msg("%s gave: %s", cases[i].text, hint ? hint : "nothing");
		oom_keys_release(&k);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_have_paths_types_and_lines),
		cmocka_unit_test(the_last_of_equal_keys_wins),
		cmocka_unit_test(pythons_extra_numbers),
		cmocka_unit_test(big_integers_are_exact_to_2_53),
		cmocka_unit_test(accepted),
		cmocka_unit_test(refused_with_a_place),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(size_is_bounded),
		cmocka_unit_test(long_label_maps),
		cmocka_unit_test(files_and_folders),
		cmocka_unit_test(other_kinds_of_json_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
