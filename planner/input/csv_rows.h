/* Rows of any CSV with named columns: the door to libcsv. */
#ifndef OOM_CSV_H
#define OOM_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "oomplan/status.h"

/* One row, valid during the callback.  Missing trailing cells are empty strings. */
struct oom_csv_row {
	const char *const *names;       /* of the header, n of them */
	const char *const *cells;
	size_t n;
	size_t line;                    /* 1-based line on which the row ends */
	const char *file;
};
typedef enum oom_status (*oom_csv_fn)(void *ctx, const struct oom_csv_row *row,
				      struct oom_error *err);

/* Streams a file ("-": standard input); memory is bounded by the longest row (1 MiB, 4096
 * columns). */
enum oom_status oom_csv_read(const char *path, oom_csv_fn fn, void *ctx, struct oom_error *err);
enum oom_status oom_csv_parse(const char *text, size_t size, const char *name, oom_csv_fn fn,
			      void *ctx, struct oom_error *err);
/* The cell of a column, or NULL when there is no such column. */
const char *oom_csv_cell(const struct oom_csv_row *row, const char *name);
/* Writes a cell, quoted by RFC 4180 where needed. */
void oom_csv_put(FILE *out, const char *cell);

#endif
