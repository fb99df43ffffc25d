/* A list of points instead of a grid: one row of a CSV file each, outermost of all axes. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../input/csv_rows.h"
#include "sweep.h"

struct points {
	struct oom_sweep *s;
	struct sweep_axis *axis;
	const char *path;
	bool begun;
};

static enum oom_status begin(struct points *p, const struct oom_csv_row *row, struct oom_error *err)
{
	struct sweep_axis *a = p->axis;

	a->var = calloc(row->n, sizeof(*a->var));
	if (!a->var)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	for (size_t i = 0; i < row->n; i++) {
		struct oom_error why = {{0}};
		const enum oom_status st = sweep_var_named(p->s, row->names[i], &a->var[i], &why);

		if (st)
			return oom_error_set(err, st, "%s:1: column %zu: %s", row->file, i + 1,
					     why.text);
		a->n_vars = i + 1;
		for (size_t j = 0; j < i; j++)
			if (!strcmp(a->var[j].name, a->var[i].name))
				return oom_error_set(err, OOM_ERR_INVALID,
						     "%s:1: column %zu: %s is given twice",
						     row->file, i + 1, a->var[i].name);
	}
	p->begun = true;
	return OOM_OK;
}

/* A model's path counts from the list's folder, where there is such a file. */
static const char *beside(const char *list, const char *word, char path[PATH_MAX])
{
	const char *slash = strrchr(list, '/');

	if (!slash || *word == '/' ||
	    snprintf(path, PATH_MAX, "%.*s/%s", (int)(slash - list), list, word) >= PATH_MAX ||
	    access(path, F_OK))
		return word;
	return path;
}

/* An empty cell is what the command line says. */
static enum oom_status cell(const struct points *p, const struct sweep_var *v, const char *word,
			    int64_t *value, struct oom_error *err)
{
	struct oom_plan base = p->s->base;
	char path[PATH_MAX];

	if (*word)
		return sweep_value(p->s, v,
				   v->kind == SWEEP_MODEL ? beside(p->path, word, path) : word,
				   value, err);
	if (v->kind != SWEEP_KNOB)
		return oom_error_set(err, OOM_ERR_INVALID, "%s is empty", v->name);
	if (v->knob->kind == OOM_OPTION_NAMES)
		return sweep_value(p->s, v, (const char *)(void *)oom_plan_field(&base, v->knob),
				   value, err);
	*value = *oom_plan_field(&base, v->knob);
	return OOM_OK;
}

static enum oom_status on_point(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	struct points *p = ctx;
	struct sweep_axis *a = p->axis;
	enum oom_status st = p->begun ? OOM_OK : begin(p, row, err);

	for (size_t i = 0; !st && i < row->n; i++) {
		struct sweep_var *v = &a->var[i];
		struct oom_error why = {{0}};

		if (!sweep_room(&v->point, sizeof(*v->point), a->n))
			return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		st = cell(p, v, row->cells[i], &v->point[a->n], &why);
		if (st)
			return oom_error_set(err, st == OOM_ERR_UNKNOWN ? OOM_ERR_INVALID : st,
					     "%s:%zu: column %s: %.300s", row->file, row->line,
					     v->name, why.text);
	}
	a->n += !st;
	return st;
}

enum oom_status oom_sweep_points(struct oom_sweep *s, const char *path, struct oom_error *err)
{
	struct sweep_axis a = {0};
	struct points p = {s, &a, path, false};
	enum oom_status st;

	if (s->n_axes == SWEEP_AXES)
		return oom_error_set(err, OOM_ERR_INVALID, "more than %d axes", SWEEP_AXES);
	st = oom_csv_read(path, on_point, &p, err);
	if (!st && !a.n)
		st = oom_error_set(err, OOM_ERR_INVALID,
				   "%s: no points: a header with knobs' names and a row for each "
				   "point were expected",
				   path);
	if (!st) {
		s->axis[s->n_axes++] = a;
		return OOM_OK;
	}
	for (size_t i = 0; i < a.n_vars; i++)
		free(a.var[i].point);
	free(a.var);
	return st;
}
