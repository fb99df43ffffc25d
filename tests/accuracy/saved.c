/* The rows of the ledger against the tensors autograd really holds: same tensors, same bytes, for
 * every measured block.
 *
 *     saved CONFIGS_DIR LISTS_DIR
 *
 * Each list (the oracle's saved_tensors/, see its README) is a shallow run: every tensor held at
 * the end of the forward by one middle block, those held outside of blocks, and the sum over the
 * model.  Every one of them must be found among the rows the forward leaves behind, with its bytes
 * to the last; and those rows must add up to the sum, so that there is none too many.  (tests/tools/
 * restate.py writes the lists; two QLoRA ones were measured anew, with PEFT's Linear4bit: they have shapes.)
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "oomplan/model.h"

enum { MAX_HELD = 65536 };
static struct {
	uint64_t bytes;
	const char *name;
} held[MAX_HELD];
static size_t n_held;

static uint64_t total;

static void hold(void *ctx, const struct oom_ledger_row *r)
{
	(void)ctx;
	for (uint64_t i = 0; i < r->held && n_held < MAX_HELD; i++) {
		total += r->bytes;
		held[n_held].bytes = r->bytes;
		held[n_held++].name = r->name;
	}
}

static bool strike(uint64_t bytes)
{
	for (size_t i = 0; i < n_held; i++)
		if (held[i].bytes == bytes) {
			held[i] = held[--n_held];
			return true;
		}
	return false;
}

static char *slurp(const char *path)
{
	FILE *f = fopen(path, "rb");
	char *text = f ? calloc(1, 1 << 22) : NULL;

	if (text && !fread(text, 1, (1 << 22) - 1, f)) {
		free(text);
		text = NULL;
	}
	if (f)
		fclose(f);
	return text;
}

/* The spec's fields are the runs file's columns; what it leaves out has the oracle's defaults. */
static void set(struct oom_plan *plan, const char *column, const char *text, struct oom_error *err)
{
	for (size_t i = 0; oom_knob_at(i); i++)
		if (!strcmp(oom_knob_at(i)->column, column) &&
		    oom_plan_set(plan, oom_knob_at(i), text, err))
			fprintf(stderr, "%s: %s\n", column, err->text);
}

static struct oom_plan plan_of(const cJSON *spec, struct oom_error *err)
{
	struct oom_plan plan = oom_plan_default();
	const cJSON *f;

	set(&plan, "micro_batch", "1", err);
	set(&plan, "seq_len", "512", err);
	set(&plan, "precision", "bf16", err);
	set(&plan, "attn", "sdpa", err);
	set(&plan, "num_labels", "2", err);
	cJSON_ArrayForEach(f, spec) {
		char text[64];

		snprintf(text, sizeof(text), "%g", f->valuedouble);
		set(&plan, f->string,
		    cJSON_IsString(f) ? f->valuestring :
		    cJSON_IsBool(f)   ? cJSON_IsTrue(f) ? "True" : "False" :
					text,
		    err);
	}
	return plan;
}

static uint64_t number(const cJSON *list, const char *key)
{
	return (uint64_t)cJSON_GetNumberValue(cJSON_GetObjectItem(list, key));
}

/* Tensors of one part of the list that no row stands for. */
static int missing(const cJSON *tensors, int *n)
{
	const cJSON *t;
	int bad = 0;

	cJSON_ArrayForEach(t, tensors) {
		++*n;
		if (strike(number(t, "bytes")))
			continue;
		bad++;
		printf("no row: %s of %s, %llu bytes\n",
		       cJSON_GetObjectItem(t, "made_by")->valuestring,
		       cJSON_GetObjectItem(t, "module")->valuestring,
		       (unsigned long long)number(t, "bytes"));
	}
	return bad;
}

static int compare(const char *path, const cJSON *list)
{
	int n = 0, bad = missing(cJSON_GetObjectItem(list, "block"), &n) +
			 missing(cJSON_GetObjectItem(list, "outside_blocks"), &n);

	printf("%-28s %3d tensors, %d without a row; the model holds %llu bytes, measured %llu\n",
	       strrchr(path, '/') + 1, n, bad, (unsigned long long)total,
	       (unsigned long long)number(list, "total_bytes"));
	return bad + (total != number(list, "total_bytes"));
}

static int check(const char *models, const char *path)
{
	char *text = slurp(path), config[4096];
	cJSON *list = text ? cJSON_Parse(text) : NULL;
	const cJSON *spec = cJSON_GetObjectItem(list, "spec");
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_model *model = NULL;
	struct oom_error err = {{0}};
	struct oom_keys keys = {0};
	struct oom_plan plan;
	int bad = 1;

	if (spec && ev) {
		snprintf(config, sizeof(config), "%s/%s.json", models,
			 cJSON_GetObjectItem(spec, "model")->valuestring);
		plan = plan_of(spec, &err);
		n_held = total = 0;
		if (!oom_keys_read(&keys, config, &err) && !oom_model_new(&model, &keys, &err) &&
		    !oom_ledger_each(ev, model, &plan, hold, NULL, &err))
			bad = compare(path, list);
	}
	if (*err.text)
		printf("%s: %s\n", path, err.text);
	oom_evaluator_free(ev);
	oom_model_free(model);
	oom_keys_release(&keys);
	cJSON_Delete(list);
	free(text);
	return bad;
}

/* Every list of a folder. */
static int check_all(const char *models, const char *lists, int *n)
{
	DIR *dir = opendir(lists);
	int bad = 0;

	if (!dir)
		return 0;
	for (struct dirent *f; (f = readdir(dir));) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/%s", lists, f->d_name);
		if (f->d_name[0] == '.')
			continue;
		bad += check(models, path);
		++*n;
	}
	closedir(dir);
	return bad;
}

int main(int argc, char **argv)
{
	int bad, n = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: saved CONFIGS_DIR LISTS_DIR\n");
		return 2;
	}
	bad = check_all(argv[1], argv[2], &n);
	printf("%d lists, %d deviations\n", n, bad);
	return bad || n < 18;
}
