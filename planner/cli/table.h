/* Aligned columns: cells are collected, then printed as wide as the widest needs. */
#ifndef OOM_CLI_TABLE_H
#define OOM_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { OOM_TABLE_COLUMNS = 12 };

struct oom_table {
	const char *head[OOM_TABLE_COLUMNS];
	bool right[OOM_TABLE_COLUMNS];
	size_t n_columns;
	char *text;             /* the cells, each ended by a NUL; owned */
	size_t used, room, n_cells;
	bool failed;            /* memory ran out: print says so */
};

/* Columns by name, NULL-terminated; a name that begins with '>' is aligned to the right.  "" for
 * all: no head. */
void oom_table_init(struct oom_table *t, const char *const *columns);
/* The next cell, row by row from the left.  Tabs and newlines become blanks. */
void oom_table_cell(struct oom_table *t, const char *text);
/* Prints at most `width` columns (0: no limit) by wrapping the last one; false when memory ran
 * out. */
bool oom_table_print(const struct oom_table *t, FILE *out, int width);
void oom_table_release(struct oom_table *t);

#endif
