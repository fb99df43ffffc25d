/* Sweeps: a row for every cell of a grid of knobs, models and cards, in the grid's order. */
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

/* Adds cards of a user's own file (oom_gpus_read) to the table, before an axis names them.  As oom_gpus_read, OOM_ERR_IO
 * and OOM_ERR_PARSE are about the file. */
OOM_API enum oom_status oom_sweep_cards(struct oom_sweep *s, const char *path, struct oom_error *err);
/* The capacity of every cell, in place of its card's, and of cells without a card; 0: the card's. */
OOM_API void oom_sweep_capacity(struct oom_sweep *s, uint64_t bytes);

/* Adds an axis, "NAME=VALUES".  NAME is a knob, "gpu" or "model".  VALUES are joined by commas; counts may be
 * ranges, 1..64 (step 1), 1024..8192+1024 or 1..64x2; @all stands for every word of a choice or every card.
 * The axis that is added last runs fastest.  OOM_ERR_INVALID names the axis and what was expected; an axis
 * that is added twice or has no values is refused. */
OOM_API enum oom_status oom_sweep_axis(struct oom_sweep *s, const char *text,
				       struct oom_error *err);
/* Adds a list of points instead of a grid: a CSV file ("-": standard input) whose header names knobs, "gpu"
 * or "model", and whose rows together are one axis.  An empty cell has the base plan's value.  A model's
 * path may be relative to the file's folder.  A cell takes 8 bytes.  Errors name the file, line and column. */
OOM_API enum oom_status oom_sweep_points(struct oom_sweep *s, const char *path,
					 struct oom_error *err);
/* True if an axis or a list sets this knob, "gpu" or "model". */
OOM_API bool oom_sweep_has(const struct oom_sweep *s, const char *name);
/* Adds a condition that every written row must meet: "fits", "!fits", or COLUMN<NUMBER with one of <, <=, >,
 * >=, = and != (choices and flags take a word).  All conditions must hold.  OOM_ERR_INVALID names what was
 * expected, or the nearest column.
 *
 * What columns and conditions ask for has its price.  "fits" is oom_judge's verdict, which replays the
 * allocator if bounds do not decide.  "used_bytes", "reserved_bytes" and "headroom_bytes" are those of
 * estimate and take a replay for every plan.  All others are cheap, including "used_bytes_estimated", which
 * is computed from the mean ratio of reserved to allocated bytes. */
OOM_API enum oom_status oom_sweep_where(struct oom_sweep *s, const char *text,
					struct oom_error *err);
/* Chooses the columns by name, joined by commas; NULL or "": the axes and the default columns.
 * OOM_ERR_INVALID names the nearest column. */
OOM_API enum oom_status oom_sweep_columns(struct oom_sweep *s, const char *text,
					  struct oom_error *err);
/* The i-th column besides the knobs, gpu and model; NULL past the end. */
OOM_API const char *oom_sweep_column_at(size_t i);

/* How many cells have no price, and why the first one of them has none. */
struct oom_sweep_unpriced {
	uint64_t cells;
	struct oom_error why;
};

struct oom_sweep_options {
	bool jsonl;             /* JSON lines instead of CSV */
	/* for each cell, the cheapest plan that fits (oom_search) instead of the price of the cell itself */
	bool plan_each;
	enum oom_objective objective;   /* of that search */
	unsigned allow;         /* enum oom_allow: changes of the science that it may make */
	int threads;            /* 0: one per processor */
	uint64_t shard, shards; /* write part `shard` (from 1) of `shards` parts; 0: all rows */
	uint64_t skip;          /* when resuming: the number of cells that are already written */
	/* called now and then, after rows were written to the stream, with the cells done, all cells, and
	 * the rows written by this run; never by two threads at once */
	void (*progress)(void *ctx, uint64_t done, uint64_t all, uint64_t rows);
	void *ctx;
	const volatile int *stop;       /* if it becomes nonzero, the run ends after the current blocks */
	uint64_t *cells;        /* receives the number of cells done when the run ends; may be NULL */
	struct oom_sweep_unpriced *unpriced;    /* may be NULL */
};
/* The number of cells; UINT64_MAX if it overflows. */
OOM_API uint64_t oom_sweep_cells(const struct oom_sweep *s);
/* Writes the header and the rows.  The bytes are the same for any number of threads, and only the first
 * shard has the header, so that the shards can be concatenated.  A cell without a price has a row with the
 * reason, unless a condition leaves it out.  OOM_ERR_LIMIT: more than 10^12 cells.  OOM_ERR_MEMORY and
 * OOM_ERR_INTERNAL of a cell end the run. */
OOM_API enum oom_status oom_sweep_run(struct oom_sweep *s, const struct oom_sweep_options *options,
				      FILE *out, uint64_t *rows_written, struct oom_error *err);
/* A hash that differs, in all likelihood, between sweeps that do not write the same table. */
OOM_API uint64_t oom_sweep_fingerprint(const struct oom_sweep *s,
				       const struct oom_sweep_options *options);

/* One cell, for pictures; valid during the call. */
struct oom_sweep_cell {
	const uint64_t *at;             /* the value of each axis */
	bool ok, fits;
	const struct oom_eval *eval;    /* replayed; set if ok */
	const struct oom_plan *plan;
	const struct oom_model *model;
	const struct oom_gpu *gpu;      /* NULL: no card */
	uint64_t capacity_bytes;        /* 0: no card, and none was given */
	const char *error;
};
typedef void (*oom_sweep_fn)(void *ctx, const struct oom_sweep_cell *cell);
/* Calls fn for each cell in order and ignores the conditions.  A cell that has no price is no failure.
 * OOM_ERR_INVALID: there is no axis; OOM_ERR_LIMIT: there are too many cells; OOM_ERR_MEMORY. */
OOM_API enum oom_status oom_sweep_each(struct oom_sweep *s, const struct oom_sweep_options *options,
				       oom_sweep_fn fn, void *ctx, struct oom_error *err);
/* The i-th axis; false past the end.  And the k-th value of an axis as text, written into buf. */
OOM_API bool oom_sweep_axis_at(const struct oom_sweep *s, size_t i, const char **name, uint64_t *n);
OOM_API const char *oom_sweep_value_text(const struct oom_sweep *s, size_t axis, uint64_t k,
					 char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
