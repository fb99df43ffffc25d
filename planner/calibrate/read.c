/* Measurements in: rows of a CSV into predictions by part and what was measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../input/csv_rows.h"
#include "embedded.h"
#include "parts.h"
#include "oomplan/runs.h"
#include "oomplan/units.h"

enum { MAX_ROWS = 10000000 };

struct collector {
	struct oom_calibration_row *rows;
	size_t n, cap, skipped;
	char why[200];          /* the first row could not be priced */
};

/* ---- cells ---- */

/* The first of these columns that has something in it: bytes, or a size with its unit.  0: none
 * has. */
static enum oom_status size_of(const struct oom_csv_row *row, const char *const *names, double *to,
			       struct oom_error *err)
{
	*to = 0;
	for (size_t i = 0; names[i]; i++) {
		const char *s = oom_csv_cell(row, names[i]);
		struct oom_error why;
		uint64_t bytes;

		if (!s || !*s)
			continue;
		/* here bytes need no unit, however few: a test's model is small */
		if (!oom_parse_real(s, to, &why) && *to >= 0 && *to < 1e18)
			return OOM_OK;
		if (oom_parse_bytes(s, &bytes, &why))
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s:%zu: column %s: \"%.60s\" is no size: expected "
					     "bytes, or e.g. 23.65GiB",
					     row->file, row->line, names[i], s);
		*to = (double)bytes;
		return OOM_OK;
	}
	return OOM_OK;
}

static bool has(const struct oom_csv_row *row, const char *name)
{
	const char *s = oom_csv_cell(row, name);

	return s && *s;
}

static bool expandable(const struct oom_csv_row *row)
{
	const char *s = oom_csv_cell(row, "allocator");

	return s && !strcmp(s, "expandable");
}

/* The allocated peak in parts: the three, or the buckets of `estimate --runs`. */
static enum oom_status parts(const struct oom_csv_row *row, struct oom_parts *p,
			     struct oom_error *err)
{
	static const char *const three[OOM_SCALES][2] = {
		{"pred_states"}, {"pred_activations"}, {"pred_transient"}};
	static const char *const whole[] = {"pred_overall_peak", "pred_allocated", NULL};
	enum oom_status st = OOM_OK;
	struct oom_eval e = {0};
	bool buckets = true;

	if (has(row, three[0][0]) && has(row, three[1][0]) && has(row, three[2][0])) {
		for (int k = 0; !st && k < OOM_SCALES; k++)
			st = size_of(row, three[k], &p->part[k], err);
		p->split = true;
		return st;
	}
	for (int b = 0; !st && b < OOM_BUCKETS; b++) {
		char name[64];
		const char *const names[] = {name, NULL};
		double v;

		snprintf(name, sizeof(name), "pred_%s", oom_bucket_column((enum oom_bucket)b));
		buckets = buckets && has(row, name);
		st = size_of(row, names, &v, err);
		e.bucket[b] = (uint64_t)v;
		e.overall_peak += e.bucket[b];
	}
	if (!st && buckets && e.overall_peak) {
		*p = oom_parts_of(&e);
		return OOM_OK;
	}
	return st ? st : size_of(row, whole, &p->part[OOM_TERM_STATES], err);
}

static enum oom_status prediction(const struct oom_csv_row *row, struct oom_parts *p,
				  struct oom_error *err)
{
	static const char *const native[] = {"pred_reserved_native", "pred_reserved", NULL},
				 *const growing[] = {"pred_reserved_expandable", "pred_reserved",
						     NULL},
				 *const context[] = {"pred_context_bytes", NULL},
				 *const workspace[] = {"pred_workspace_bytes", NULL},
				 *const nccl[] = {"pred_nccl_bytes", NULL},
				 *const plain[] = {"predicted", NULL};
	const char *gpus = oom_csv_cell(row, "gpus");
	enum oom_status st = parts(row, p, err);

	if (!st)
		st = size_of(row, expandable(row) ? growing : native, &p->reserved, err);
	if (!st)
		st = size_of(row, context, &p->context, err);
	if (!st)
		st = size_of(row, workspace, &p->workspace, err);
	if (!st)
		st = size_of(row, nccl, &p->nccl, err);
	p->overheads = has(row, context[0]);
	p->many = p->nccl > 0 || (gpus && strtod(gpus, NULL) > 1);
	if (!st && !p->reserved)
		p->reserved = p->part[0] + p->part[1] + p->part[2];
	if (!st && !p->reserved) {
		st = size_of(row, plain, &p->reserved, err);
		p->part[OOM_TERM_STATES] = p->reserved;
		p->overheads = true;            /* they are inside */
	}
	if (!st && p->reserved && !(p->part[0] + p->part[1] + p->part[2] > 0))
		p->part[OOM_TERM_STATES] = p->reserved;
	return st;
}

enum oom_status oom_measured_of(const struct oom_csv_row *row, double to[OOM_MEASURES],
				struct oom_error *err)
{
	static const char *const allocated[] = {"allocated", "allocated_bytes", "max_allocated",
						"max_memory_allocated", "overall_peak", NULL},
				 *const native[] = {"reserved", "reserved_bytes", "max_reserved",
						    "max_memory_reserved", "reserved_native", NULL},
				 *const growing[] = {"reserved", "reserved_bytes", "max_reserved",
						     "max_memory_reserved", "reserved_expandable",
						     NULL},
				 *const used[] = {"nvidia_smi", "nvidia-smi", "nvidia_smi_bytes",
						  "used", "used_bytes", "measured", NULL};
	enum oom_status st = size_of(row, allocated, &to[OOM_MEASURE_ALLOCATED], err);

	if (!st)
		st = size_of(row, expandable(row) ? growing : native, &to[OOM_MEASURE_RESERVED],
			     err);
	return st ? st : size_of(row, used, &to[OOM_MEASURE_USED], err);
}

/* ---- rows ---- */

static enum oom_status collect(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	static const char *const names[] = {"id", "name", "run", "model", NULL};
	struct collector *c = ctx;
	struct oom_calibration_row r = {.line = row->line};
	enum oom_status st = prediction(row, &r.predicted, err);

	if (!st)
		st = oom_measured_of(row, r.measured, err);
	if (st)
		return st;
	if (!(r.predicted.reserved > 0) ||
	    !(r.measured[0] > 0 || r.measured[1] > 0 || r.measured[2] > 0)) {
		const char *why = oom_csv_cell(row, "pred_error");

		if (why && *why && !*c->why)
			snprintf(c->why, sizeof(c->why), "; line %zu: %.150s", row->line, why);
		c->skipped++;           /* a row that was not priced, or not measured */
		return OOM_OK;
	}
	if (c->n == c->cap) {
		const size_t cap = c->cap * 2 + 256;
		void *q;

		if (c->cap > MAX_ROWS)
			return oom_error_set(err, OOM_ERR_LIMIT, "%s: more than %d rows", row->file,
					     MAX_ROWS);
		q = realloc(c->rows, cap * sizeof(*c->rows));
		if (!q)
			return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		c->rows = q;
		c->cap = cap;
	}
	for (size_t i = 0; names[i] && !*r.name; i++) {
		const char *s = oom_csv_cell(row, names[i]);

		snprintf(r.name, sizeof(r.name), "%s", s ? s : "");
	}
	c->rows[c->n++] = r;
	return OOM_OK;
}

static enum oom_status hand_over(enum oom_status st, struct collector *c, const char *name,
				 struct oom_calibration_row **rows, size_t *n, size_t *skipped,
				 struct oom_error *err)
{
	if (!st && !c->n)
		st = oom_error_set(err, OOM_ERR_INVALID,
				   "%s: no row with a prediction (pred_ columns of estimate --runs, "
				   "or predicted) and a measurement (allocated, reserved, "
				   "nvidia_smi): %zu rows without%s",
				   name, c->skipped, c->why);
	if (st) {
		free(c->rows);
		return st;
	}
	*rows = c->rows;
	*n = c->n;
	*skipped = c->skipped;
	return OOM_OK;
}

enum oom_status oom_calibration_rows_parse(const char *text, size_t size, const char *name,
					   struct oom_calibration_row **rows, size_t *n,
					   size_t *skipped, struct oom_error *err)
{
	struct collector c = {0};

	return hand_over(oom_csv_parse(text, size, name, collect, &c, err), &c, name, rows, n,
			 skipped, err);
}

/* Whether the file has models but no predictions: its first row says it. */
struct header {
	bool seen, bare;
};

static enum oom_status look(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct header *h = ctx;

	(void)err;
	if (!h->seen) {
		h->bare = oom_csv_cell(row, "model") && !oom_csv_cell(row, "predicted");
		for (size_t i = 0; i < row->n; i++)
			h->bare = h->bare && strncmp(row->names[i], "pred_", 5);
	}
	h->seen = true;
	return OOM_OK;
}

/* The priced file is kept in memory: a row is about a kilobyte. */
static enum oom_status priced(const char *path, const char *models_dir, char **text, size_t *size,
			      struct oom_error *err)
{
	struct oom_runs_report report;
	FILE *f = open_memstream(text, size);
	enum oom_status st;

	if (!f)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	st = oom_runs_price(path, models_dir, f, &report, err);
	if (fclose(f) && !st)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	return st;
}

enum oom_status oom_calibration_rows(const char *path, const char *models_dir,
				     struct oom_calibration_row **rows, size_t *n, size_t *skipped,
				     struct oom_error *err)
{
	const bool again = strcmp(path, "-") != 0;      /* standard input is read once */
	struct collector c = {0};
	struct header h = {0};
	enum oom_status st = again ? oom_csv_read(path, look, &h, err) : OOM_OK;
	char *text = NULL;
	size_t size = 0;

	if (!st && h.bare) {
		st = priced(path, models_dir, &text, &size, err);
		if (!st)
			st = oom_calibration_rows_parse(text, size, path, rows, n, skipped, err);
		free(text);
		return st;
	}
	if (!st)
		st = oom_csv_read(path, collect, &c, err);
	return hand_over(st, &c, path, rows, n, skipped, err);
}

enum oom_status oom_calibration_shipped(struct oom_calibration_row **rows, size_t *n,
					struct oom_error *err)
{
	const struct oom_embedded *f = oom_embedded_find("measured.csv");
	size_t skipped;

	return oom_calibration_rows_parse((const char *)f->bytes, f->size, "measured.csv", rows, n,
					  &skipped, err);
}

enum oom_status oom_calibration_default(struct oom_calibration *out, struct oom_error *err)
{
	struct oom_calibration_row *rows;
	size_t n;
	enum oom_status st = oom_calibration_shipped(&rows, &n, err);

	if (st)
		return st;
	st = oom_calibrate(out, rows, n, NULL, err);
	free(rows);
	return st;
}
