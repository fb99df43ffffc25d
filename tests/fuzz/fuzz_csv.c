/* Any bytes as a CSV and as a GPU table: a status, never a crash. */
#include <stddef.h>
#include <stdint.h>

#include "input/csv_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum oom_status count(void *ctx, const struct oom_csv_row *row, struct oom_error *err)
{
	(void)err;
	*(size_t *)ctx += row->n + row->line;
	return OOM_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n = 0;

	oom_csv_parse((const char *)data, size, "fuzz", count, &n, NULL);
	return 0;
}
