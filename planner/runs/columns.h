/* What a runs file has of every row's prediction: the pred_* columns, named as the measured ones are. */
#ifndef OOM_RUN_COLUMNS_H
#define OOM_RUN_COLUMNS_H

#include <stdio.h>

#include "oomplan/model.h"

/* A price that there is none of: its cell stays empty. */
#define OOM_NOT_RUN UINT64_MAX

/* The names, pred_error and pred_warning behind them, and the end of the line. */
void oom_run_columns_header(FILE *out);
/* The cells of a row that was priced, and of one that was not; pred_error is the caller's to write next.  What its card
 * says of itself is card's, all else e's.  native, expandable: reserved bytes under either allocator. */
void oom_run_columns_write(FILE *out, const struct oom_eval *e, const struct oom_eval *card, uint64_t native,
			   uint64_t expandable);
void oom_run_columns_empty(FILE *out);

#endif
