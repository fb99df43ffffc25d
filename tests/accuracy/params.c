/* Parameter counts against measured ones: every config of the oracle's params.csv, which
 * transformers built on the meta device.
 *
 *     params_accuracy PARAMS.csv
 *
 * Fails unless total, trainable and active parameters are exact on every one.  Exit 77 (skipped)
 * where the measured counts are absent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "input/csv_rows.h"
#include "oomplan/model.h"

static struct {
	size_t n, exact, refused, announced;
	const char *folder;
} all;

/* Prices the row's config for its task; false: refused, err says why. */
static bool price(const struct oom_csv_row *row, struct oom_eval *e, bool *announced,
		  struct oom_error *err)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_plan p = oom_plan_default();
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	char path[512];
	bool fine;

	snprintf(path, sizeof(path), "%s/%s", all.folder, oom_csv_cell(row, "config"));
	p.micro_batch = 1;
	p.seq_len = !strcmp(oom_csv_cell(row, "task"), "image-cls") ? 0 : 16;
	fine = ev && !oom_keys_read(&keys, path, err) && !oom_model_new(&m, &keys, err) &&
	       !oom_plan_set(&p, oom_knob_find("task"), oom_csv_cell(row, "task"), err) &&
	       !oom_evaluate(ev, m, &p, OOM_EVAL_FAST, e, err);
	*announced = fine && *oom_model_warning(m);
	oom_evaluator_free(ev);
	oom_model_free(m);
	oom_keys_release(&keys);
	return fine;
}

static bool same(const struct oom_csv_row *row, const char *column, uint64_t ours)
{
	const char *theirs = oom_csv_cell(row, column);

	if (!*theirs || strtoull(theirs, NULL, 10) == ours)
		return true;
	printf("not exact: %s: %s %llu, measured %s\n", oom_csv_cell(row, "name"), column,
	       (unsigned long long)ours, theirs);
	return false;
}

static enum oom_status take(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct oom_error why = {{0}};
	struct oom_eval e;
	bool announced, exact;

	(void)ctx;
	(void)err;
	all.n++;
	if (!price(row, &e, &announced, &why)) {
		printf("not counted: %s: %s\n", oom_csv_cell(row, "name"), why.text);
		all.refused++;
		return OOM_OK;
	}
	all.announced += announced;
	/* all three are looked at, so that each that is off is named */
	exact = same(row, "total_params", e.total_params);
	exact = same(row, "trainable_params", e.trainable_params) && exact;
	exact = same(row, "active_params", e.active_params) && exact;
	all.exact += exact;
	return OOM_OK;
}

int main(int argc, char **argv)
{
	struct oom_error err = {{0}};
	char folder[400] = ".";

	if (argc != 2 || access(argv[1], R_OK)) {
		printf("measured counts absent: skipped\n");
		return 77;
	}
	if (strrchr(argv[1], '/'))
		snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(argv[1], '/') - argv[1]),
			 argv[1]);
	all.folder = folder;
	if (oom_csv_read(argv[1], take, NULL, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	printf("parameters: %zu configs, %zu exact (total, trainable, active), %zu refused, %zu "
	       "announced as approximated\n",
	       all.n, all.exact, all.refused, all.announced);
	return all.exact != all.n || !all.n;
}
