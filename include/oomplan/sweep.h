/* Sweeps: every cell of a grid of knobs, models and cards, one row each, in the grid's natural order. */
#ifndef OOMPLAN_SWEEP_H
#define OOMPLAN_SWEEP_H

#include <stdio.h>

#include "oomplan/gpu.h"
#include "oomplan/ladder.h"

/* A grid.  Free with oom_sweep_free. */
struct oom_sweep;
OOM_API struct oom_sweep *oom_sweep_new(const struct oom_plan *base);
OOM_API void oom_sweep_free(struct oom_sweep *s);

/* "NAME=VALUES": NAME is a knob, "gpu" or "model".  VALUES are joined by commas; for counts 1..64 (step 1), 1024..8192+1024 and
 * 1..64x2; @all for every word of a choice or every card.  OOM_ERR_INVALID names the axis and what was expected; an axis
 * given twice, without values, or of more than 10 million values is refused. */
OOM_API enum oom_status oom_sweep_axis(struct oom_sweep *s, const char *text, struct oom_error *err);
/* A condition every written row meets: "fits", "!fits", or COLUMN<NUMBER with <, <=, >, >=, =, !=.  Several: all must hold. */
OOM_API enum oom_status oom_sweep_where(struct oom_sweep *s, const char *text, struct oom_error *err);
/* Columns by name, joined by commas; NULL or "": the axes and the default ones. */
OOM_API enum oom_status oom_sweep_columns(struct oom_sweep *s, const char *text, struct oom_error *err);
/* The columns there are besides knobs: NULL past the end. */
OOM_API const char *oom_sweep_column_at(size_t i);

struct oom_sweep_options {
	bool jsonl;             /* JSON lines instead of CSV */
	bool plan_each;         /* climb the ladder in every cell */
	int threads;            /* 0: as many as there are processors */
	uint64_t shard, shards; /* rows of part shard (1-based) of shards; 0: all */
	uint64_t skip;          /* rows of the grid already written (resume) */
	void (*progress)(void *ctx, uint64_t done, uint64_t all);
	void *ctx;
	const volatile int *stop;       /* nonzero: end after the blocks in work */
};
/* Cells of the grid; UINT64_MAX when they overflow. */
OOM_API uint64_t oom_sweep_cells(const struct oom_sweep *s);
/* Writes header and rows.  The same bytes for any number of threads; the header only in the first shard, so that shards
 * concatenate to the whole.  OOM_ERR_LIMIT above 10^12 cells, with the count. */
OOM_API enum oom_status oom_sweep_run(struct oom_sweep *s, const struct oom_sweep_options *options, FILE *out,
				      uint64_t *rows_written, struct oom_error *err);

#endif
