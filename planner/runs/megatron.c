/* Megatron runs files.  Columns are those of oom_mg_arg_at (documented in the README); the
 * predictions carry the names of what Megatron logs (mem-allocated-bytes, mem-max-allocated-bytes
 * of the last rank) and of SimuMax's table (GiB over all ranks). */
#include "megatron.h"

#include <stdlib.h>
#include <string.h>

#include "oomplan/megatron.h"

static const char *const columns[] = {
	"last_rank_params", "last_rank_expert_params", "last_rank_static_bytes", "alloc_last", "peak_first", "peak_second",
	"peak_max", "peak_last", "first_stage_peak", "overall_peak", "measured_gib", "measured_first_stage_gib",
	"measured_last_stage_gib", "measured_reserved_gib"};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* Features that move memory and that the engine does not know: a row that uses one says so. */
static const char *const foreign[] = {"hybrid_pattern",	       "cuda_graph",
				      "optimizer_cpu_offload", "cpu_offload_activations",
				      "experimental_attention", "fp4"};

bool oom_megatron_row(const struct oom_csv_row *row)
{
	return oom_csv_cell(row, "hidden") && oom_csv_cell(row, "tp");
}

bool oom_megatron_column(const char *name)
{
	return oom_mg_arg_find(name) != NULL;
}

void oom_megatron_header(FILE *out)
{
	for (int i = 0; i < COLUMNS; i++)
		fprintf(out, "pred_%s,", columns[i]);
}

static enum oom_status launch_of(const struct oom_csv_row *row, struct oom_megatron *m,
				 struct oom_error *why)
{
	*m = oom_megatron_default();
	for (size_t i = 0; i < row->n; i++) {
		const struct oom_mg_arg *a = oom_mg_arg_find(row->names[i]);
		enum oom_status st;

		if (!a || !*row->cells[i])
			continue;
		st = oom_megatron_set(m, a, row->cells[i], why);
		if (st)
			return st;
	}
	return oom_megatron_derive(m, why);
}

static void warn(const struct oom_csv_row *row, char warning[200])
{
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		const char *s = oom_csv_cell(row, foreign[i]);

		if (s && *s && strcmp(s, "0") && strcmp(s, "none")) {
			snprintf(warning, 200, "%s is not modelled", foreign[i]);
			return;
		}
	}
}

enum oom_status oom_megatron_price(const struct oom_csv_row *row, FILE *out, char warning[200],
				   struct oom_error *why)
{
	struct oom_mg_rank last = {0}, first = {0}, one;
	struct oom_megatron m;
	uint64_t top = 0, reserved = 0;
	int64_t fullest = 0;
	enum oom_status st = launch_of(row, &m, why);

	warning[0] = 0;
	warn(row, warning);
	if (!st)
		st = oom_megatron_rank(&m, 0, &first, why);
	for (int64_t r = 0; !st && r < m.pp; r++) {
		st = oom_megatron_rank(&m, r, &one, why);
		fullest = one.peak_bytes > top ? r : fullest;
		top = one.peak_bytes > top ? one.peak_bytes : top;
		last = one;
	}
	if (!st && oom_megatron_reserved(&m, fullest, &reserved, why) == OOM_ERR_MEMORY)
		st = OOM_ERR_MEMORY;
	if (st) {
		for (int i = 0; i < COLUMNS; i++)
			putc(',', out);
		return st;
	}
	{
		const uint64_t v[] = {last.params,	     last.expert_params,
				      last.static_bytes,     last.alloc_bytes,
				      last.peak_first_bytes, last.peak_bytes,
				      last.peak_bytes,	     last.peak_bytes,
				      first.peak_bytes,	     top};
		const uint64_t gib[] = {top, first.peak_bytes, last.peak_bytes, reserved};

		for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
			fprintf(out, "%llu,", (unsigned long long)v[i]);
		for (size_t i = 0; i < sizeof(gib) / sizeof(gib[0]); i++)
			fprintf(out, "%.4f,", (double)gib[i] / 1073741824.0);
	}
	return OOM_OK;
}
