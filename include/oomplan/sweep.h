/* Sweeps: every cell of a grid of knobs, models and cards, one row each, in the grid's natural
 * order. */
#ifndef OOMPLAN_SWEEP_H
#define OOMPLAN_SWEEP_H

#include <stdio.h>

#include "oomplan/gpu.h"
#include "oomplan/ladder.h"
#include "oomplan/search.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A grid.  Free with oom_sweep_free. */
struct oom_sweep;
OOM_API struct oom_sweep *oom_sweep_new(const struct oom_plan *base);
OOM_API void oom_sweep_free(struct oom_sweep *s);

/* "NAME=VALUES": NAME is a knob, "gpu" or "model".  VALUES are joined by commas; for counts 1..64
 * (step 1), 1024..8192+1024 and
 * 1..64x2; @all for every word of a choice or every card.  The axis given last runs fastest.
 * OOM_ERR_INVALID names the axis and what was expected; an axis given twice or without values is
 * refused. */
OOM_API enum oom_status oom_sweep_axis(struct oom_sweep *s, const char *text,
				       struct oom_error *err);
/* A list of points in place of a grid: a CSV file ("-": standard input) whose header names knobs,
 * "gpu" or "model" and whose rows are one axis together.  An empty cell is the base plan's value; a
 * model's path may count from the file's folder. Takes 8 bytes a cell.  Errors name file, line
 * and column. */
OOM_API enum oom_status oom_sweep_points(struct oom_sweep *s, const char *path,
					 struct oom_error *err);
/* Whether an axis or a list sets this knob, "gpu" or "model". */
OOM_API bool oom_sweep_has(const struct oom_sweep *s, const char *name);
/* A condition every written row meets: "fits", "!fits", or COLUMN<NUMBER with <, <=, >, >=, =, !=
 * (a word for choices and flags).  Several: all must hold.
 *
 * Columns and conditions cost what they ask for.  "fits" is oom_judge's verdict: it replays the
 * allocator where bounds do not decide.  "used_bytes", "reserved_bytes" and "headroom_bytes" are as
 * estimate prints them: a replay for every plan.  All others are cheap, "used_bytes_estimated" (the
 * same by a mean share of reserved over allocated bytes) among them. */
OOM_API enum oom_status oom_sweep_where(struct oom_sweep *s, const char *text,
					struct oom_error *err);
/* Columns by name, joined by commas; NULL or "": the axes and the default ones. */
OOM_API enum oom_status oom_sweep_columns(struct oom_sweep *s, const char *text,
					  struct oom_error *err);
/* The columns there are besides knobs, gpu and model: NULL past the end. */
OOM_API const char *oom_sweep_column_at(size_t i);

/* Cells that have no price, and why the first of them that was met has none. */
struct oom_sweep_unpriced {
	uint64_t cells;
	struct oom_error why;
};

struct oom_sweep_options {
	bool jsonl;             /* JSON lines instead of CSV */
	/* the cheapest plan that fits for each cell (oom_search), instead of the price of what
	 * it says */
	bool plan_each;
	enum oom_objective objective;   /* of that search */
	unsigned allow;         /* science it may change: enum oom_allow */
	int threads;            /* 0: as many as there are processors */
	uint64_t shard, shards; /* rows of part shard (1-based) of shards; 0: all */
	uint64_t skip;          /* cells of the run whose rows are written already (resume) */
	/* now and then, after rows were handed to the stream: cells and rows of this run so far.
	 *  One call at a time */
	void (*progress)(void *ctx, uint64_t done, uint64_t all, uint64_t rows);
	void *ctx;
	const volatile int *stop;       /* nonzero: end after the blocks in work */
	uint64_t *cells;        /* or NULL: gets the cells done when the run ends */
	struct oom_sweep_unpriced *unpriced;    /* or NULL */
};
/* Cells of the grid; UINT64_MAX when they overflow. */
OOM_API uint64_t oom_sweep_cells(const struct oom_sweep *s);
/* Writes header and rows.  The same bytes for any number of threads; the header only in the first
 * shard, so that shards concatenate to the whole.  A cell that has no price has a row with the reason
 * (unless conditions leave it out).  OOM_ERR_LIMIT above 10^12 cells, with the count; OOM_ERR_MEMORY and
 * OOM_ERR_INTERNAL of a cell end the run. */
OOM_API enum oom_status oom_sweep_run(struct oom_sweep *s, const struct oom_sweep_options *options,
				      FILE *out, uint64_t *rows_written, struct oom_error *err);
/* A number that differs, in all likelihood, for sweeps that do not write the same table. */
OOM_API uint64_t oom_sweep_fingerprint(const struct oom_sweep *s,
				       const struct oom_sweep_options *options);

/* One cell, for pictures: valid during the call. */
struct oom_sweep_cell {
	const uint64_t *at;             /* the value of each axis */
	bool ok, fits;
	const struct oom_eval *eval;    /* when ok: replayed */
	const struct oom_plan *plan;
	const struct oom_model *model;
	const struct oom_gpu *gpu;      /* NULL: no card */
	uint64_t capacity_bytes;        /* 0: no card */
	const char *error;
};
typedef void (*oom_sweep_fn)(void *ctx, const struct oom_sweep_cell *cell);
/* Calls fn for each cell in order, whatever the conditions. */
OOM_API enum oom_status oom_sweep_each(struct oom_sweep *s, const struct oom_sweep_options *options,
				       oom_sweep_fn fn, void *ctx, struct oom_error *err);
/* The axes in order: false past the end.  And a value of one as text, into buf. */
OOM_API bool oom_sweep_axis_at(const struct oom_sweep *s, size_t i, const char **name, uint64_t *n);
OOM_API const char *oom_sweep_value_text(const struct oom_sweep *s, size_t axis, uint64_t k,
					 char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
