/* Rows of Megatron runs files: launches instead of models with knobs. */
#ifndef OOM_MEGATRON_RUNS_H
#define OOM_MEGATRON_RUNS_H

#include <stdio.h>

#include "input/csv_rows.h"

/* True when the header describes Megatron launches (a column "hidden" beside "tp"). */
bool oom_megatron_row(const struct oom_csv_row *row);
/* True for a column the launch table knows. */
bool oom_megatron_column(const char *name);
/* The predicted columns' names, each followed by a comma. */
void oom_megatron_header(FILE *out);
/* Prices one row and writes its predicted cells, each followed by a comma.  On failure writes empty
 * cells and says why. warning: static text or "". */
enum oom_status oom_megatron_price(const struct oom_csv_row *row, FILE *out, char warning[200],
				   struct oom_error *why);

#endif
