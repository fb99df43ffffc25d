/* Files of tests/frameworks against what they mean: NAME.knobs lists the files of a run, the knobs
 * that follow with the reason beside them, and words that some warning must hold.
 *
 *   dated transformers 4.50     # a version that who reads the next files knows besides
 *   files a.yaml ds.json
 *   micro-batch 2        # per_device_train_batch_size
 *   warn packing
 *   unwarned trains as well
 *   absent lora-targets
 *   priced nodes 2       # what the plan has, where that is another value
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/option.h"
#include "oomplan/reading.h"

#define FOLDER OOM_SOURCE_ROOT "/tests/frameworks/"

struct warnings {
	char text[8192];
	size_t used;
};

static void keep(void *data, const char *text)
{
	struct warnings *w = data;
	const int n = snprintf(w->text + w->used, sizeof(w->text) - w->used, "%s\n", text);

	if (n > 0 && (size_t)n < sizeof(w->text) - w->used)
		w->used += (size_t)n;
}

static struct oom_reading *open_files(char *names, const struct oom_plan *versions)
{
	static char paths[8][256];
	const char *files[8];
	struct oom_error err = {{0}};
	struct oom_reading *r;
	size_t n = 0;

	for (char *save = NULL, *f = strtok_r(names, " \n", &save); f && n < 8;
	     f = strtok_r(NULL, " \n", &save), n++) {
		snprintf(paths[n], sizeof(paths[n]), FOLDER "%s", f);
		files[n] = paths[n];
	}
	if (oom_reading_of_dated(&r, files, n, NULL, 0, NULL, versions, &err))
		fail_msg("%s", err.text);
	return r;
}

/* "KNOB VALUE" of the plan that comes of it. */
static void check_priced(const char *name, const struct oom_plan *plan, char *knob)
{
	char *value = knob + strcspn(knob, " "), got[160];

	if (*value)
		*value++ = 0;
	oom_plan_get(plan, oom_knob_find(knob), got, sizeof(got));
	if (strcmp(got, value))
		fail_msg("%s: priced with %s %s, not %s", name, knob, got, value);
}

static void check_line(const char *name, const struct oom_reading *r, const struct warnings *w, const struct oom_plan *plan,
		       char *line)
{
	char *value = line + strcspn(line, " ");
	const char *got;

	line[strcspn(line, "#\n")] = 0;
	for (size_t n = strlen(line); n && line[n - 1] == ' ';)
		line[--n] = 0;
	if (!*line)
		return;
	if (*value)
		*value++ = 0;
	value += strspn(value, " ");
	if (!strcmp(line, "warn")) {
		if (!strstr(w->text, value))
			fail_msg("%s: no warning says \"%s\":\n%s", name, value, w->text);
		return;
	}
	if (!strcmp(line, "unwarned")) {
		if (strstr(w->text, value))
			fail_msg("%s: a warning says \"%s\":\n%s", name, value, w->text);
		return;
	}
	if (!strcmp(line, "priced")) {
		check_priced(name, plan, value);
		return;
	}
	if (!strcmp(line, "silent")) {
		if (*w->text)
			fail_msg("%s: %s", name, w->text);
		return;
	}
	if (!strcmp(line, "absent")) {
		if (oom_reading_value(r, value))
			fail_msg("%s: %s is %s", name, value, oom_reading_value(r, value));
		return;
	}
	got = oom_reading_value(r, line);
	if (!got || strcmp(got, value))
		fail_msg("%s: %s is %s, not %s", name, line, got ? got : "not set", value);
}

/* "transformers 4.50" into the versions that are known. */
static void learn(const char *name, struct oom_plan *versions, char *line)
{
	char *value = line + strcspn(line, " ");
	struct oom_error err = {{0}};

	line[strcspn(line, " #\n")] = 0;
	value += 1 + strspn(value + 1, " ");
	value[strcspn(value, " #\n")] = 0;
	if (oom_plan_set(versions, oom_knob_find(line), value, &err))
		fail_msg("%s: %s", name, err.text);
}

static void check_file(const char *name)
{
	struct oom_plan plan = oom_plan_default(), versions = plan;
	struct warnings *w = calloc(1, sizeof(*w));
	struct oom_reading *r = NULL;
	char path[512], line[512];
	FILE *f;

	snprintf(path, sizeof(path), FOLDER "%s", name);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(w);
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "files ", 6)) {
			oom_reading_free(r);
			w->used = 0;
			w->text[0] = 0;
			r = open_files(line + 6, &versions);
			plan = versions = oom_plan_default();
			oom_reading_apply(r, &plan, keep, w);
		} else if (!strncmp(line, "dated ", 6)) {
			learn(name, &versions, line + 6);
		} else {
			check_line(name, r, w, &plan, line);
		}
	}
	fclose(f);
	oom_reading_free(r);
	free(w);
}

static void test_folder(void **state)
{
	DIR *d = opendir(FOLDER);
	struct dirent *e;
	int n = 0;

	(void)state;
	assert_non_null(d);
	while ((e = readdir(d)) != NULL)
		if (strlen(e->d_name) > 6 && !strcmp(e->d_name + strlen(e->d_name) - 6, ".knobs")) {
			check_file(e->d_name);
			n++;
		}
	closedir(d);
	assert_true(n >= 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_folder)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
