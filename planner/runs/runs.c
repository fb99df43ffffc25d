/* Pricing a runs file row by row.  Models are kept once read: runs files repeat them. */
#include "oomplan/runs.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "calibrate/parts.h"
#include "input/csv_rows.h"
#include "megatron.h"
#include "oomplan/gpu.h"
#include "oomplan/ladder.h"
#include "oomplan/units.h"
#include "columns.h"
#include "errors.h"
#include "plan.h"

struct loaded {
	char path[512];
	const struct loaded *teacher;           /* of the same list; NULL: none */
	struct oom_keys keys;
	struct oom_model *model;
	struct oom_error err;
	enum oom_status status;         /* of reading it */
	struct loaded *next;
};

struct runs {
	const char *dir;
	FILE *out;
	struct oom_evaluator *ev;
	struct loaded *models;
	struct oom_runs_report *report;
	struct oom_run_errors errors;
	struct oom_gpus gpus;
	bool cards;             /* they are read */
	oom_runs_fn each;       /* in place of writing; NULL: rows are written */
	void *ctx;
	bool header;
	bool megatron;          /* the file describes Megatron launches */
};

static struct loaded *load(struct runs *r, const char *path, const struct loaded *teacher)
{
	struct loaded *m;

	for (m = r->models; m; m = m->next)
		if (!strcmp(m->path, path) && m->teacher == teacher)
			return m;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	snprintf(m->path, sizeof(m->path), "%s", path);
	m->status = oom_keys_read_model(&m->keys, path, &m->err);
	if (!m->status)
		m->status = oom_model_new(&m->model, &m->keys, &m->err);
	m->teacher = teacher;
	if (m->model && teacher)
		oom_model_teach(m->model, teacher->model);
	m->next = r->models;
	r->models = m;
	return m;
}

/* The model's file: DIR/model, DIR/model.json, DIR/id.json, else a bundled name. */
static void find_model(const struct runs *r, const char *model, const char *id, char out[512])
{
	const char *tries[][3] = {{r->dir, model, ""},
				  {r->dir, model, ".json"},
				  {r->dir, id, ".json"}};

	for (int i = 0; i < 3; i++) {
		if (!tries[i][1] || !*tries[i][1])
			continue;
		if (tries[i][1][0] == '/')
			snprintf(out, 512, "%s%s", tries[i][1], tries[i][2]);
		else
			snprintf(out, 512, "%s/%s%s", r->dir, tries[i][1], tries[i][2]);
		if (access(out, R_OK) == 0)
			return;
	}
	snprintf(out, 512, "%s", model ? model : "");
}

/* Of a file that was priced before: the same columns follow, made anew. */
static bool was_predicted(const char *column)
{
	return !strncmp(column, "pred_", 5);
}

/* A column that no knob has, with the knob that was probably meant. */
static void unknown_column(struct oom_runs_report *rep, const char *name, bool knobs)
{
	const size_t used = strlen(rep->unknown_columns);
	enum { KNOBS = 255 };
	const char *columns[KNOBS + 1] = {NULL}, *near;
	size_t n = 0;

	for (size_t i = 0; knobs && n < KNOBS && oom_knob_at(i); i++)
		columns[n++] = oom_knob_at(i)->column;
	/* a column may be about anything: only a slip of the finger is named */
	near = strlen(name) > 3 ? oom_nearest_within(name, columns, 2) : NULL;
	snprintf(rep->unknown_columns + used, sizeof(rep->unknown_columns) - used, "%s%s%s%s%s", used ? ", " : "",
		 name, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static void write_header(struct runs *r, const struct oom_csv_row *row)
{
	static const char *const known[] = {"model", "teacher", "id", "family", "notes", "group", "gpu", "gpu_memory",
					   "framework", "lengths", "lengths_field", "steps",
					   "allocated", "reserved", "nvidia_smi"};

	for (size_t i = 0; i < row->n; i++) {
		bool ours = r->megatron ? oom_megatron_column(row->names[i]) :
					  oom_knob_find(row->names[i]) != NULL;

		for (size_t j = 0; j < sizeof(known) / sizeof(known[0]); j++)
			ours |= !strcmp(known[j], row->names[i]);
		if (was_predicted(row->names[i]))
			continue;
		if (!ours)
			unknown_column(r->report, row->names[i], !r->megatron);
		oom_csv_put(r->out, row->names[i]);
		putc(',', r->out);
	}
	if (!r->megatron) {
		oom_run_columns_header(r->out);
		return;
	}
	oom_megatron_header(r->out);
	fprintf(r->out, "pred_error,pred_warning\n");
}

/* Holds what is predicted against what was measured, where the row says. */
static bool compare(struct runs *r, const struct oom_csv_row *row, const struct oom_plan *p,
		    const struct oom_eval *e)
{
	const char *group = oom_csv_cell(row, "group");
	const double predicted[OOM_MEASURES] = {(double)e->allocated_bytes,
						(double)(e->reserved_bytes + e->workspace_bytes),
						(double)e->used_bytes};
	double measured[OOM_MEASURES] = {0};

	/* a cell that is no size is no measurement */
	if (oom_measured_of(row, measured, NULL))
		return true;
	for (int m = 0; m < OOM_MEASURES; m++)
		if (!oom_run_errors_add(&r->errors, group && *group ? group : oom_kind_of_run(p),
					(enum oom_measure)m, predicted[m], measured[m]))
			return false;
	return true;
}

/* The card that a row names: its capacity, 0 without one, and what its kernels ask of the plan. */
static enum oom_status card_of(struct runs *r, const struct oom_csv_row *row, struct oom_plan *p,
			       uint64_t *capacity, struct oom_error *why)
{
	const char *name = oom_csv_cell(row, "gpu"), *memory = oom_csv_cell(row, "gpu_memory");
	enum oom_status st = OOM_OK;
	struct oom_gpu card;

	*capacity = 0;
	if (name && *name) {
		if (!r->cards)
			st = oom_gpus_load(&r->gpus, why);
		r->cards |= !st;
		if (!st)
			st = oom_gpu_find(&r->gpus, name, &card, NULL, why);
		if (st)
			return st;
		*capacity = card.capacity_bytes;
		if (p->compute_capability <= 0)
			p->compute_capability = card.compute_capability;
	}
	return memory && *memory ? oom_parse_bytes(memory, capacity, why) : OOM_OK;
}

/* One price on the row's card; capacity 0: on none. */
static enum oom_status price_on(struct runs *r, const struct loaded *m, const struct oom_plan *p, uint64_t capacity,
				struct oom_eval *e, struct oom_error *why)
{
	const unsigned flags = OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY;
	bool fits;

	return capacity ? oom_judge(r->ev, m->model, p, capacity, flags, e, &fits, why) :
			  oom_evaluate(r->ev, m->model, p, flags, e, why);
}

/* With both allocators; what is used is that of the row's own.  A run on a card that its cache fills is
 * priced on that card: the allocator gives cached segments back before more is reserved, and knows of no
 * margin.  Columns that are named as measured ones leave out what CUDA's libraries make for themselves, inside of
 * softmax's derivative and in cuBLAS's workspaces, as trackers of operators and emulated cards do; what a card says
 * has it. */
static enum oom_status price(struct runs *r, const struct oom_csv_row *row, const struct loaded *m,
			     char warning[OOM_WARNINGS_SIZE], struct oom_error *why)
{
	struct oom_plan p = oom_plan_default(), seen, other;
	struct oom_eval own, tracked, its;
	char note[300];
	enum oom_status st = oom_run_plan(r->dir, row, &p, why);
	uint64_t capacity = 0, reserved[2];

	if (!st)
		st = card_of(r, row, &p, &capacity, why);
	if (st)
		return st;
	if (capacity)
		p.margin = 0;
	oom_plan_settle_for(&p, m->model, note);
	seen = p;
	seen.softmax_product = seen.casts_backwards = seen.cublas_workspaces = seen.segments_down = seen.sum_buffers = seen.view_sums = 0;
	if (oom_plan_quantised(&seen) && !seen.zero_stage)
		seen.quantised_load = OOM_QLOAD_MADE;
	st = price_on(r, m, &p, capacity, &own, why);
	tracked = own;
	if (!st && memcmp(&seen, &p, sizeof(p)))
		st = price_on(r, m, &seen, capacity, &tracked, why);
	if (st)
		return st;
	/* the other one knows nothing of limits on cudaMalloc's segments, and may not be there at all */
	other = seen;
	other.allocator = p.allocator == OOM_ALLOC_EXPANDABLE ? OOM_ALLOC_NATIVE : OOM_ALLOC_EXPANDABLE;
	other.max_split = 0;
	st = price_on(r, m, &other, capacity, &its, NULL);
	if (st && st != OOM_ERR_INVALID && st != OOM_ERR_LIMIT)
		return oom_error_set(why, st, "out of host memory");
	reserved[p.allocator == OOM_ALLOC_EXPANDABLE] = tracked.reserved_bytes;
	reserved[p.allocator != OOM_ALLOC_EXPANDABLE] = st ? OOM_NOT_RUN : its.reserved_bytes;
	oom_warnings_of(m->model, &own, warning);
	oom_run_columns_write(r->out, &tracked, &own, reserved[0], reserved[1]);
	return compare(r, row, &p, &own) ? OOM_OK : oom_error_set(why, OOM_ERR_MEMORY, "out of host memory");
}

/* The cell pred_error. */
static void not_priced(struct runs *r, const struct oom_error *why)
{
	if (!r->report->failed++)
		r->report->first = *why;
	oom_csv_put(r->out, why->text);
}

static enum oom_status on_launch(struct runs *r, const struct oom_csv_row *row,
				 struct oom_error *err)
{
	struct oom_error why = {{0}};
	char warning[200];

	if (oom_megatron_price(row, r->out, warning, &why)) {
		not_priced(r, &why);
	} else {
		r->report->warned += *warning != 0;
	}
	putc(',', r->out);
	oom_csv_put(r->out, warning);
	putc('\n', r->out);
	return ferror(r->out) ? oom_error_set(err, OOM_ERR_IO, "cannot write the output") : OOM_OK;
}

/* The row's model, taught by its teacher; NULL without memory. */
static struct loaded *model_of(struct runs *r, const struct oom_csv_row *row)
{
	const char *teacher = oom_csv_cell(row, "teacher");
	const struct loaded *taught = NULL;
	char path[512];

	if (teacher && *teacher) {
		find_model(r, teacher, NULL, path);
		taught = load(r, path, NULL);
		if (!taught)
			return NULL;
	}
	find_model(r, oom_csv_cell(row, "model"), oom_csv_cell(row, "id"), path);
	return load(r, path, taught);
}

/* A row for oom_runs_each. */
static enum oom_status hand_over(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct runs *r = ctx;
	struct oom_plan plan = oom_plan_default();
	struct oom_error why = {{0}};
	const struct loaded *m;
	enum oom_status st;

	if (oom_megatron_row(row) || !oom_csv_cell(row, "model"))
		return oom_error_set(err, OOM_ERR_INVALID, "%s:1: no column \"model\"", row->file);
	m = model_of(r, row);
	if (!m)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (!m->model)
		why = m->err;
	st = m->model ? oom_run_plan(r->dir, row, &plan, &why) : m->status;
	/* the fault of this process, not of the row */
	if (st == OOM_ERR_MEMORY)
		return oom_error_set(err, st, "%s", why.text);
	return r->each(r->ctx,
		       &(struct oom_run){.line = row->line,
					 .name = oom_csv_cell(row, "model"),
					 .id = oom_csv_cell(row, "id"),
					 .gpu = oom_csv_cell(row, "gpu"),
					 .gpu_memory = oom_csv_cell(row, "gpu_memory"),
					 .model = m->model,
					 .plan = &plan,
					 .error = why.text},
		       err);
}

static enum oom_status on_row(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct runs *r = ctx;
	const char *model = oom_csv_cell(row, "model");
	char warning[OOM_WARNINGS_SIZE] = "";
	struct oom_error why = {{0}};
	enum oom_status st;
	struct loaded *m;

	if (!r->header) {
		r->megatron = oom_megatron_row(row);
		if (!model && !r->megatron)
			return oom_error_set(err, OOM_ERR_INVALID, "%s:1: no column \"model\"",
					     row->file);
		write_header(r, row);
		r->header = true;
	}
	for (size_t i = 0; i < row->n; i++)
		if (!was_predicted(row->names[i])) {
			oom_csv_put(r->out, row->cells[i]);
			putc(',', r->out);
		}
	r->report->rows++;
	if (r->megatron)
		return on_launch(r, row, err);
	m = model_of(r, row);
	if (!m)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	st = m->model ? price(r, row, m, warning, &why) : m->status;
	/* the fault of this process, not of the row */
	if (st == OOM_ERR_MEMORY || st == OOM_ERR_INTERNAL)
		return oom_error_set(err, st, "%s", m->model ? why.text : m->err.text);
	if (st) {
		oom_run_columns_empty(r->out);
		not_priced(r, m->model ? &why : &m->err);
	} else {
		r->report->warned += *warning != 0;
	}
	putc(',', r->out);
	oom_csv_put(r->out, warning);
	putc('\n', r->out);
	return ferror(r->out) ? oom_error_set(err, OOM_ERR_IO, "cannot write the output") : OOM_OK;
}

/* Models that a row names are looked for beside the file, unless a folder is named. */
static enum oom_status read_rows(struct runs *r, const char *path, oom_csv_fn fn, struct oom_error *err)
{
	char dir[512];
	const char *slash = strrchr(path, '/');
	enum oom_status st;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
	r->dir = r->dir ? r->dir : dir;
	st = oom_csv_read(path, fn, r, err);
	while (r->models) {
		struct loaded *next = r->models->next;

		oom_model_free(r->models->model);
		oom_keys_release(&r->models->keys);
		free(r->models);
		r->models = next;
	}
	return st;
}

enum oom_status oom_runs_price(const char *path, const char *models_dir, FILE *out,
			       struct oom_runs_report *report, struct oom_error *err)
{
	struct runs r = {.dir = models_dir, .out = out, .report = report, .ev = oom_evaluator_new()};
	enum oom_status st;

	memset(report, 0, sizeof(*report));
	if (!r.ev)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	st = read_rows(&r, path, on_row, err);
	if (!st && !report->rows)
		st = oom_error_set(err, OOM_ERR_PARSE, "%s: no run: a header and no row", path);
	oom_evaluator_free(r.ev);
	report->n_errors = oom_run_errors_sum(&r.errors, report->error, OOM_RUN_ERRORS);
	oom_run_errors_release(&r.errors);
	oom_gpus_release(&r.gpus);
	return st;
}

enum oom_status oom_runs_each(const char *path, const char *models_dir, oom_runs_fn fn, void *ctx,
			      struct oom_error *err)
{
	struct runs r = {.dir = models_dir, .each = fn, .ctx = ctx};

	return read_rows(&r, path, hand_over, err);
}
