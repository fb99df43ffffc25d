/* Where a model lies that is named by its hub id: paths, folders of models, the hub's own cache, bundled names; and how files
 * that users name are opened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "input/config_json.h"
#include "input/open.h"
#include "oomplan/config.h"

static char root[200];
static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"};

static int begin(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/oomplan-hub-XXXXXX");
	assert_non_null(mkdtemp(root));
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	return 0;
}

static int end(void **state)
{
	char command[300];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

/* A file below root with this text; its folders are made. */
static void put(const char *path, const char *text)
{
	char full[400];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = 0;
		mkdir(full, 0700);
		*slash = '/';
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* The word that an id leads to, without root; NULL: none, and why is in *err. */
static const char *located(const char *id, const char *beside, const char *models_dir, struct oom_error *err)
{
	static char buf[600];

	memset(err, 0, sizeof(*err));
	if (oom_model_locate(id, beside, models_dir, buf, sizeof(buf), err)) {
		assert_true(*err->text);
		return NULL;
	}
	return !strncmp(buf, root, strlen(root)) ? buf + strlen(root) + 1 : buf;
}

static void is(const char *got, const char *want)
{
	assert_non_null(got);
	assert_string_equal(got, want);
}

static void paths(void **state)
{
	struct oom_error err;
	char path[300], beside[300];

	(void)state;
	put("a/config.json", "{}");
	put("a/train.yaml", "");
	put("one.json", "{}");
	put("empty/README", "");
	snprintf(path, sizeof(path), "%s/a", root);
	is(located(path, NULL, NULL, &err), "a");
	snprintf(path, sizeof(path), "%s/one.json", root);
	is(located(path, NULL, NULL, &err), "one.json");
	/* beside the file that names it */
	snprintf(beside, sizeof(beside), "%s/a/train.yaml", root);
	is(located("../one.json", beside, NULL, &err), "a/../one.json");
	is(located("config.json", beside, NULL, &err), "a/config.json");
	assert_null(located("../empty", beside, NULL, &err));   /* a folder without a config is no model */
	assert_null(located("none.json", beside, NULL, &err));
	assert_string_equal(err.text, "model none.json: no such file or folder with a config.json, and no bundled model of that "
				      "name; give --model FILE");
	is(located("-", NULL, NULL, &err), "-");
}

/* DIR/ORG/NAME, DIR/NAME, and as downloads are named. */
static void folders_of_models(void **state)
{
	struct oom_error err;

	(void)state;
	put("m/some/tiny-1/config.json", "{}");
	put("m/tiny-2/config.json", "{}");
	put("m/tiny-3.json", "{}");
	put("m/some--tiny-4/config.json", "{}");
	put("m/some__tiny-5.json", "{}");
	put("m/some_tiny-6/config.json", "{}");
	for (int i = 1; i <= 6; i++) {
		static const char *const want[] = {"m/some/tiny-1", "m/tiny-2", "m/tiny-3.json", "m/some--tiny-4",
						   "m/some__tiny-5.json", "m/some_tiny-6"};
		char id[40], dir[300];

		snprintf(id, sizeof(id), "some/tiny-%d", i);
		snprintf(dir, sizeof(dir), "%s/m", root);
		is(located(id, NULL, dir, &err), want[i - 1]);
		assert_null(located(id, NULL, NULL, &err));
	}
}

/* huggingface_hub/file_download.py: models--ORG--NAME/refs/main names a folder of snapshots. */
static void the_cache(void **state)
{
	static const struct {
		const char *variable, *at;
	} places[] = {
		{"HF_HUB_CACHE", "c0"},
		{"HUGGINGFACE_HUB_CACHE", "c1"},
		{"HF_HOME", "c2/hub"},
		{"XDG_CACHE_HOME", "c3/huggingface/hub"},
		{"HOME", "c4/.cache/huggingface/hub"},
	};
	struct oom_error err;

	(void)state;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char path[400], dir[300], want[400];

		snprintf(path, sizeof(path), "%s/models--some--tiny/refs/main", places[i].at);
		put(path, "abc123\n");
		snprintf(path, sizeof(path), "%s/models--some--tiny/snapshots/abc123/config.json", places[i].at);
		put(path, "{}");
		snprintf(path, sizeof(path), "%s/models--some--tiny/snapshots/older/config.json", places[i].at);
		put(path, "{}");
		snprintf(dir, sizeof(dir), "%s/c%zu", root, i);
		assert_null(located("some/tiny", NULL, NULL, &err));
		setenv(places[i].variable, dir, 1);
		snprintf(want, sizeof(want), "%s/models--some--tiny/snapshots/abc123", places[i].at);
		is(located("some/tiny", NULL, NULL, &err), want);
		assert_null(located("other/tiny", NULL, NULL, &err));
		unsetenv(places[i].variable);
	}
}

/* A download that was cut short, or whose reference is gone: whatever snapshot holds a config. */
static void a_cache_in_disorder(void **state)
{
	struct oom_error err;
	char dir[300];

	(void)state;
	snprintf(dir, sizeof(dir), "%s/c", root);
	setenv("HF_HUB_CACHE", dir, 1);
	put("c/models--some--a/snapshots/x/config.json", "{}");
	is(located("some/a", NULL, NULL, &err), "c/models--some--a/snapshots/x");
	/* of several the first by name, in whatever order they came */
	put("c/models--some--a/snapshots/y/config.json", "{}");
	put("c/models--some--a/snapshots/b/config.json", "{}");
	put("c/models--some--a/snapshots/w/config.json", "{}");
	is(located("some/a", NULL, NULL, &err), "c/models--some--a/snapshots/b");
	put("c/models--some--b/refs/main", "gone");
	put("c/models--some--b/snapshots/y/config.json", "{}");
	put("c/models--some--b/snapshots/z/README.md", "");
	is(located("some/b", NULL, NULL, &err), "c/models--some--b/snapshots/y");
	put("c/models--some--d/refs/main", "../../../../etc");  /* a reference is a name, not a path */
	assert_null(located("some/d", NULL, NULL, &err));
	put("c/models--some--e/refs/main", "");
	assert_null(located("some/e", NULL, NULL, &err));
	assert_non_null(strstr(err.text, "model some/e: its config.json is not here; fetch "
					 "https://huggingface.co/some/e/resolve/main/config.json"));
	/* a model without an organisation */
	put("c/models--gpt-tiny/snapshots/x/config.json", "{}");
	is(located("gpt-tiny", NULL, NULL, &err), "c/models--gpt-tiny/snapshots/x");
	unsetenv("HF_HUB_CACHE");
}

static void bundled_names(void **state)
{
	struct oom_error err;

	(void)state;
	is(located("meta-llama/Llama-3.2-1B", NULL, NULL, &err), "Llama-3.2-1B");
	is(located("Llama-3.2-1B", NULL, NULL, &err), "Llama-3.2-1B");
	/* the same shape, other weights */
	is(located("meta-llama/Llama-3.2-1B-Instruct", NULL, NULL, &err), "Llama-3.2-1B");
	assert_null(located("nobody/Llama-9-1B", NULL, NULL, &err));
}

static void results_that_do_not_fit(void **state)
{
	struct oom_error err = {{0}};
	char small[4];

	(void)state;
	assert_int_equal(oom_model_locate("meta-llama/Llama-3.2-1B", NULL, NULL, small, sizeof(small), &err), OOM_ERR_UNKNOWN);
}

/* ---- opening ---- */

static void files_and_folders(void **state)
{
	struct oom_error err = {{0}};
	char path[300], *text = NULL;
	size_t size = 0;
	FILE *f;

	(void)state;
	put("text", "hello");
	snprintf(path, sizeof(path), "%s/text", root);
	f = oom_input_open(path, &err);
	assert_non_null(f);
	oom_input_close(f);
	oom_input_close(NULL);
	assert_ptr_equal(oom_input_open("-", &err), stdin);
	oom_input_close(stdin);                 /* stays open */
	assert_int_equal(oom_read_text(&text, &size, path, 100, &err), OOM_OK);
	assert_int_equal(size, 5);
	assert_string_equal(text, "hello");
	free(text);
	assert_int_not_equal(oom_read_text(&text, &size, path, 4, &err), OOM_OK);       /* longer than the limit */
	snprintf(path, sizeof(path), "%s/none", root);
	assert_null(oom_input_open(path, &err));
	assert_non_null(strstr(err.text, "No such file or directory"));
	assert_int_equal(oom_read_text(&text, &size, path, 100, &err), OOM_ERR_IO);
	assert_int_equal(oom_read_text(&text, &size, root, 100, &err), OOM_ERR_IO);
	assert_non_null(strstr(err.text, "is a folder"));
}

/* open() would wait for ever for somebody to write. */
static void a_pipe_that_nobody_writes_to(void **state)
{
	struct oom_error err = {{0}};
	char path[300];

	(void)state;
	snprintf(path, sizeof(path), "%s/pipe", root);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_null(oom_input_open(path, &err));
	assert_non_null(strstr(err.text, "a pipe that nobody writes to"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(paths, begin, end),
		cmocka_unit_test_setup_teardown(folders_of_models, begin, end),
		cmocka_unit_test_setup_teardown(the_cache, begin, end),
		cmocka_unit_test_setup_teardown(a_cache_in_disorder, begin, end),
		cmocka_unit_test_setup_teardown(bundled_names, begin, end),
		cmocka_unit_test_setup_teardown(results_that_do_not_fit, begin, end),
		cmocka_unit_test_setup_teardown(files_and_folders, begin, end),
		cmocka_unit_test_setup_teardown(a_pipe_that_nobody_writes_to, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
