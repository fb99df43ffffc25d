/* Between the files of the sweep. */
#ifndef OOM_SWEEP_PARTS_H
#define OOM_SWEEP_PARTS_H

#include "oomplan/sweep.h"

enum sweep_axis_kind { AXIS_KNOB, AXIS_GPU, AXIS_MODEL };
struct sweep_axis {
	enum sweep_axis_kind kind;
	const struct oom_knob *knob;
	char name[40];
	char **word;                    /* as written in the row; owned */
	size_t n, cap;
	/* AXIS_KNOB: the plan field each value sets */
	int64_t *count;
	double *real;
	/* AXIS_GPU, AXIS_MODEL */
	struct oom_gpu *gpu;
	struct oom_model **model;
	struct oom_keys *keys;
	struct oom_error *refused;      /* a model that could not be read: its rows say so */
};

enum { SWEEP_AXES = 24, SWEEP_COLUMNS = 96, SWEEP_WHERE = 16 };
enum sweep_column_kind { COLUMN_AXIS, COLUMN_KNOB, COLUMN_RESULT };
struct sweep_column {
	enum sweep_column_kind kind;
	int index;                      /* axis, or result */
	const struct oom_knob *knob;
	const char *name;
};
struct sweep_where {
	struct sweep_column column;
	int op;                         /* 0 <, 1 <=, 2 >, 3 >=, 4 =, 5 != */
	double value;
};
struct oom_sweep {
	struct oom_plan base;
	struct sweep_axis axis[SWEEP_AXES];
	size_t n_axes;
	struct sweep_column column[SWEEP_COLUMNS];
	size_t n_columns;
	struct sweep_where where[SWEEP_WHERE];
	size_t n_where;
	struct oom_gpus gpus;
};

/* One cell, evaluated. */
struct sweep_cell {
	uint64_t at[SWEEP_AXES];        /* value of each axis */
	struct oom_plan plan;
	const struct oom_gpu *gpu;
	const struct oom_model *model;
	struct oom_eval eval;
	bool ok, fits;
	int rungs;                      /* taken, with plan_each */
	struct oom_error err;
};

/* sweep_write.c: the number of a result column; its text.  Room for at least 400 bytes at out; returns the end. */
double sweep_number(const struct oom_sweep *s, const struct sweep_column *c, const struct sweep_cell *cell);
char *sweep_put(const struct oom_sweep *s, const struct sweep_cell *cell, bool jsonl, char *out);
bool sweep_passes(const struct oom_sweep *s, const struct sweep_cell *cell);
bool sweep_find_column(const struct oom_sweep *s, const char *name, struct sweep_column *out);
size_t sweep_row_room(const struct oom_sweep *s);

#endif
