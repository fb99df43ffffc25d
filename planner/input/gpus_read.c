/* The GPU table as it is read: the shipped one, and a user's own over it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "csv_rows.h"
#include "embedded.h"
#include "oomplan/gpu.h"

static const char *const kinds[] = {"measured", "nvidia-smi", "marketing"};

const char *oom_capacity_kind_str(enum oom_capacity_kind kind)
{
	return kinds[kind];
}

#define TEXT(name) {#name, offsetof(struct oom_gpu, name), sizeof(((struct oom_gpu *)0)->name)}
#define REAL(name, field) {name, offsetof(struct oom_gpu, field), 0}
/* The columns that are a field as they stand: a text of so many bytes, or a number (0).  Beside them what a card's sizes
 * are made of, and how it is known. */
static const struct column {
	const char *name;
	size_t offset, size;
} columns[] = {
	TEXT(name), TEXT(aliases), TEXT(vendor), TEXT(architecture), TEXT(interconnect), TEXT(source), TEXT(checked),
	REAL("compute_capability", compute_capability), REAL("mem_bw_gb_s", bandwidth_gb_s),
	REAL("bf16_tflops", bf16_tflops), REAL("fp16_tflops", fp16_tflops), REAL("fp32_tflops", fp32_tflops), REAL("tf32_tflops", tf32_tflops),
	REAL("matmul_tflops", matmul_tflops), REAL("fp32_matmul_tflops", fp32_matmul_tflops),
	REAL("tdp_w", tdp_w), REAL("nvlink_domain", nvlink_domain),
};
static const char *const others[] = {"capacity_kind", "capacity_mib", "memory_gb", "torch_total_mib_high", "step_sources"};
enum { KIND, MIB, GB, MIB_HIGH, STEP_SOURCES, OTHERS, COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* A table while it is read: its rows so far, and where its columns stand, which its first row is asked for. */
struct table {
	struct oom_gpus *gpus;
	size_t rows;
	size_t column[COLUMNS], other[OTHERS];
};

static size_t place(const struct oom_csv_row *row, const char *name)
{
	size_t i = 0;

	while (i < row->n && strcmp(row->names[i], name))
		i++;
	return i;
}

static void find_columns(struct table *t, const struct oom_csv_row *row)
{
	for (size_t i = 0; i < COLUMNS; i++)
		t->column[i] = place(row, columns[i].name);
	for (size_t i = 0; i < OTHERS; i++)
		t->other[i] = place(row, others[i]);
}

/* NULL: there is no such column. */
static const char *cell(const struct oom_csv_row *row, size_t column)
{
	return column < row->n ? row->cells[column] : NULL;
}

/* Up to 15 digits and a power of ten up to 10^22 are doubles, so that one division rounds as strtod does. */
static bool plain_number(const char *s, double *x)
{
	uint64_t digits = 0, unit = 0;
	int n = 0;

	for (; n < 15 && ((*s >= '0' && *s <= '9') || (*s == '.' && !unit)); s++)
		if (*s == '.') {
			unit = 1;
		} else {
			digits = digits * 10 + (uint64_t)(*s - '0');
			unit *= 10;
			n++;
		}
	*x = unit ? (double)digits / (double)unit : (double)digits;
	return n && !*s;
}

static double number(const struct oom_csv_row *row, size_t column)
{
	const char *s = cell(row, column);
	double x;

	return !s || !*s ? 0 : plain_number(s, &x) ? x : strtod(s, NULL);
}

static void take_columns(const struct table *t, const struct oom_csv_row *row, struct oom_gpu *g)
{
	for (size_t i = 0; i < COLUMNS; i++) {
		char *to = (char *)g + columns[i].offset;
		const char *s = columns[i].size ? cell(row, t->column[i]) : NULL;
		const double x = columns[i].size ? 0 : number(row, t->column[i]);

		if (s)
			memcpy(to, s, strnlen(s, columns[i].size - 1));
		else if (!columns[i].size)
			memcpy(to, &x, sizeof(x));
	}
}

/* In place of the card of that name, or behind the others. */
static enum oom_status put(struct oom_gpus *gpus, const struct oom_gpu *g, const struct oom_csv_row *row,
			   struct oom_error *err)
{
	struct oom_gpu *items;

	for (size_t i = 0; i < gpus->n; i++)
		if (gpus->items[i].name[0] == g->name[0] && !strcmp(gpus->items[i].name, g->name)) {
			gpus->items[i] = *g;
			return OOM_OK;
		}
	if (gpus->n >= 100000)
		return oom_error_set(err, OOM_ERR_LIMIT, "%s:%zu: more than 100000 GPUs", row->file, row->line);
	items = realloc(gpus->items, (gpus->n + 1) * sizeof(*items));
	if (!items)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	gpus->items = items;
	gpus->items[gpus->n++] = *g;
	return OOM_OK;
}

static enum oom_status take(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct table *t = ctx;
	struct oom_gpu g = {.capacity_kind = OOM_CAPACITY_MEASURED};
	const char *kind;
	double mib, gb;

	if (!t->rows++)
		find_columns(t, row);
	take_columns(t, row, &g);
	kind = cell(row, t->other[KIND]);
	mib = number(row, t->other[MIB]);
	gb = number(row, t->other[GB]);
	if (!*g.name)
		return oom_error_set(err, OOM_ERR_INVALID, "%s:%zu: a GPU without a name (column \"name\")", row->file, row->line);
	if (!(mib > 0) && gb > 0) {
		mib = gb * 1024;
		g.capacity_kind = OOM_CAPACITY_MARKETING;
	}
	if (!(mib > 0 && mib < 1e9))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s:%zu: %s has no memory size (column \"capacity_mib\" or "
				     "\"memory_gb\")",
				     row->file, row->line, cell(row, t->column[0]));
	for (int i = 0; kind && i < 3; i++)
		if (!strcmp(kind, kinds[i]))
			g.capacity_kind = (enum oom_capacity_kind)i;
	g.memory_gb = gb > 0 ? gb : mib / 1024;
	g.capacity_bytes = (uint64_t)(mib * 1048576.0);
	g.capacity_high_bytes = (uint64_t)(fmax(mib, number(row, t->other[MIB_HIGH])) * 1048576.0);
	g.step_sources = (int)fmin(fmax(number(row, t->other[STEP_SOURCES]), 0), 1000);
	return put(t->gpus, &g, row, err);
}

enum oom_status oom_gpus_load(struct oom_gpus *gpus, struct oom_error *err)
{
	const struct oom_embedded *f = oom_embedded_find("gpus.csv");
	struct table t = {.gpus = gpus};

	return oom_csv_parse((const char *)f->bytes, f->size, "gpus.csv", take, &t, err);
}

enum oom_status oom_gpus_read(struct oom_gpus *gpus, const char *path, struct oom_error *err)
{
	struct table t = {.gpus = gpus};
	const enum oom_status st = oom_csv_read(path, take, &t, err);

	return st || t.rows ? st : oom_error_set(err, OOM_ERR_PARSE, "%s: no card: a header and no row", path);
}

void oom_gpus_release(struct oom_gpus *gpus)
{
	if (!gpus)
		return;
	free(gpus->items);
	gpus->items = NULL;
	gpus->n = 0;
}
