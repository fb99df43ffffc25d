/* Checkpoint headers: tiny files written here, right ones and broken ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "oomplan/safetensors.h"

static char dir[] = "/tmp/oomplan-tensors-XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

/* A safetensors file: length, header, then data_bytes zeroes. */
static void write_tensors(const char *name, const char *header, uint64_t length, size_t data_bytes)
{
	FILE *f = fopen(in_dir(name), "wb");

	assert_non_null(f);
	for (int i = 0; i < 8; i++)
		fputc((int)(length >> (8 * i) & 0xff), f);
	fputs(header, f);
	for (size_t i = 0; i < data_bytes; i++)
		fputc(0, f);
	assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text)
{
	FILE *f = fopen(in_dir(name), "wb");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static int make_dir(void **state)
{
	(void)state;
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	static const char *const names[] = {"model.safetensors", "a.safetensors", "b.safetensors",
					    "model.safetensors.index.json"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(in_dir(names[i]));
	return rmdir(dir);
}

#define ONE "{\"w\":{\"dtype\":\"BF16\",\"shape\":[3,4],\"data_offsets\":[0,24]}}"

static void one_file(void **state)
{
	/* 3*4 bf16 = 24 bytes, 5 fp32 = 20, a scalar of 8 bytes, an empty one; names with dots, out
	 * of order */
	static const char header[] =
		"{\"__metadata__\":{\"format\":\"pt\"},"
		"\"m.layers.0.q.weight\":{\"dtype\":\"BF16\",\"shape\":[3,4],\"data_offsets\":[20,"
		"44]},"
		"\"m.layers.0.q\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]},"
		"\"m.layers.0.q-x\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[44,52]},"
		"\"empty\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[44,44]}}   ";
	struct oom_error err = {{0}};
	struct oom_tensors t = {0};
	const struct oom_tensor *w;

	(void)state;
	write_tensors("model.safetensors", header, strlen(header), 52);
	if (oom_tensors_read(&t, dir, &err))
		fail_msg("%s", err.text);
	assert_int_equal(t.n, 4);
	assert_int_equal(t.n_files, 1);
	assert_int_equal(t.total_elems, 12 + 5 + 1);
	assert_int_equal(t.total_bytes, 52);
	w = oom_tensors_find(&t, "m.layers.0.q.weight");
	assert_string_equal(w->dtype, "BF16");
	assert_string_equal(w->file, "model.safetensors");
	assert_int_equal(w->n_dims, 2);
	assert_int_equal(w->shape[0], 3);
	assert_int_equal(w->shape[1], 4);
	assert_int_equal(w->elems, 12);
	assert_true(w->is_known);
	assert_int_equal(oom_tensors_find(&t, "m.layers.0.q-x")->elems, 1);
	assert_int_equal(oom_tensors_find(&t, "empty")->elems, 0);
	assert_null(oom_tensors_find(&t, "__metadata__"));
	assert_null(oom_tensors_find(&t, "m"));
	oom_tensors_release(&t);
	oom_tensors_release(&t);
	oom_tensors_release(NULL);
	assert_int_equal(oom_tensors_read(&t, in_dir("model.safetensors"), &err),
			 OOM_OK); /* the file itself */
	assert_int_equal(t.n, 4);
	oom_tensors_release(&t);
}

static void shards(void **state)
{
	static const char other[] =
		"{\"v\":{\"dtype\":\"F8_E4M3\",\"shape\":[6],\"data_offsets\":[0,6]}}";
	struct oom_error err = {{0}};
	struct oom_tensors t = {0};

	(void)state;
	assert_int_equal(oom_tensors_read(&t, dir, &err), OOM_OK); /* nothing there */
	assert_int_equal(t.n, 0);
	assert_null(oom_tensors_find(&t, "w"));
	oom_tensors_release(&t);

	write_tensors("a.safetensors", ONE, strlen(ONE), 24);
	write_tensors("b.safetensors", other, strlen(other), 6);
	assert_int_equal(oom_tensors_read(&t, dir, &err), OOM_OK); /* without an index: all */
	assert_int_equal(t.n, 2);
	assert_int_equal(t.total_elems, 18);
	oom_tensors_release(&t);

	write_text("model.safetensors.index.json",
		   "{\"metadata\":{\"total_size\":30,\"total_parameters\":18},"
		   "\"weight_map\":{\"w\":\"a.safetensors\",\"v\":\"b.safetensors\",\"x.y\":\"gone."
		   "safetensors\"}}");
	assert_int_equal(oom_tensors_read(&t, dir, &err), OOM_OK);
	assert_int_equal(t.n, 3);
	assert_int_equal(t.n_files, 2);
	assert_int_equal(t.n_missing_files, 1);
	assert_int_equal(t.index_bytes, 30);
	assert_int_equal(t.index_elems, 18);
	assert_int_equal(t.total_bytes, 30);
	assert_false(oom_tensors_find(&t, "x.y")->is_known);
	assert_string_equal(oom_tensors_find(&t, "x.y")->file, "gone.safetensors");
	oom_tensors_release(&t);

	write_text("model.safetensors.index.json", "{\"weight_map\":{\"w\":\"../a.safetensors\"}}");
	assert_int_equal(oom_tensors_read(&t, dir, &err), OOM_ERR_INVALID);
	write_text("model.safetensors.index.json", "{\"weight_map\":{}}");
	assert_int_equal(oom_tensors_read(&t, dir, &err), OOM_ERR_INVALID);
	write_text("model.safetensors.index.json", "{\"weight_map\":");
	assert_int_equal(oom_tensors_read(&t, dir, &err), OOM_ERR_PARSE);
	unlink(in_dir("model.safetensors.index.json"));
	write_tensors("b.safetensors", ONE, strlen(ONE), 24);
	assert_int_equal(oom_tensors_read(&t, dir, &err), OOM_ERR_INVALID); /* w twice */
	assert_non_null(strstr(err.text, "both"));
}

static const struct {
	const char *header;
	uint64_t length; /* 0: as it is */
	size_t data;
	enum oom_status status;
	const char *word;
} broken[] = {
	{ONE, 0, 23, OOM_ERR_INVALID, "cut short: 23 of 24"},
	{ONE, 0, 25, OOM_ERR_INVALID, "1 bytes after"},
	{ONE, 1000, 24, OOM_ERR_INVALID, "within its header"},
	{ONE, 100000001, 24, OOM_ERR_PARSE, "header of 100000001"},
	{ONE, UINT64_MAX, 24, OOM_ERR_PARSE, "not a safetensors file"},
	{"", 1, 24, OOM_ERR_PARSE, "not a safetensors file"},
	{"[1]", 0, 0, OOM_ERR_PARSE, "a list"},
	{"{\"w\":}", 0, 0, OOM_ERR_PARSE, ":1:6:"},
	{"{\"w\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4,
	 OOM_ERR_INVALID, "F99"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 0, 4,
	 OOM_ERR_INVALID, "data_offsets"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 0, 4,
	 OOM_ERR_INVALID, "data_offsets"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 0, 4,
	 OOM_ERR_INVALID, "lacks"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, 4, OOM_ERR_INVALID, "lacks"},
	{"{\"w\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4,
	 OOM_ERR_INVALID, "lacks"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 0, 4,
	 OOM_ERR_INVALID, "whole numbers"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[0.5],\"data_offsets\":[0,2]}}", 0, 2,
	 OOM_ERR_INVALID, "whole numbers"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[NaN],\"data_offsets\":[0,2]}}", 0, 2,
	 OOM_ERR_INVALID, "whole numbers"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[1e300],\"data_offsets\":[0,2]}}", 0, 2,
	 OOM_ERR_INVALID, "whole numbers"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}", 0, 4,
	 OOM_ERR_INVALID, "whole numbers"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,"
	 "0]}}",
	 0, 0, OOM_ERR_LIMIT, "2^53"},
	{"{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
	 0, 4, OOM_ERR_LIMIT, "9 dimensions"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":"
	 "\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
	 0, 7, OOM_ERR_INVALID, "overlap"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":"
	 "\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}",
	 0, 9, OOM_ERR_INVALID, "hole"},
};

static void broken_files(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		const uint64_t length = broken[i].length ? broken[i].length : strlen(broken[i].header);
		struct oom_error err = {{0}};
		struct oom_tensors t = {.n = 55};
		enum oom_status status;

		write_tensors("model.safetensors", broken[i].header, length, broken[i].data);
		status = oom_tensors_read(&t, dir, &err);
		if (status != broken[i].status || !strstr(err.text, broken[i].word) || t.n != 55)
			fail_msg("%s gave %d: %s", broken[i].header, status, err.text);
	}
}

static void files_that_are_none(void **state)
{
	struct oom_error err = {{0}};
	struct oom_tensors t = {0};

	(void)state;
	assert_int_equal(oom_tensors_read(&t, in_dir("nowhere"), &err), OOM_ERR_IO);
	assert_non_null(strstr(err.text, "nowhere"));
	write_text("model.safetensors", "abc");
	assert_int_equal(oom_tensors_read(&t, dir, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "too short"));
	unlink(in_dir("model.safetensors"));
	assert_int_equal(mkfifo(in_dir("model.safetensors"), 0600), 0);
	assert_int_equal(oom_tensors_read(&t, dir, &err),
			 OOM_ERR_IO); /* and does not wait for a writer */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_file, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(shards, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(broken_files, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(files_that_are_none, make_dir, remove_dir),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
