/* The table of torch.cuda.memory_summary(), behind a message or alone.
 *
 * torch/cuda/memory.py: rows of metrics, each with its current, peak, allocated and freed amount in a unit of its own
 * cell; units count 1024, also where releases before 2.1 call them KB and MB. Two counters stand above: how often
 * memory ran out, and how often the cache was emptied to try again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

enum { CURRENT, PEAK };

/* A row's cell: "| Allocated memory      |    1062 MB |    4877 MB |" */
static uint64_t cell(const char *begin, const char *end, const char *row, int column, const char **from, const char **to)
{
	const char *p = oom_text_find(begin, end, row), *const stop = p ? oom_line_end(p, end) : NULL, *after;
	uint64_t bytes;

	for (int i = 0; p && i <= column; i++) {
		p = memchr(p, '|', (size_t)(stop - p));
		p = p ? p + 1 : NULL;
	}
	while (p && p < stop && *p == ' ')
		p++;
	if (!p || !oom_number_at(p, stop, false, &bytes, &after))
		return 0;
	*from = p;
	*to = after;
	return bytes;
}

void oom_summary_counters(struct oom_crash *c, const char *begin, const char *end)
{
	const char *p = oom_text_find(begin, end, "CUDA OOMs:");

	if (p)
		c->ooms = strtoull(p + 10, NULL, 10);
	p = oom_text_find(begin, end, "cudaMalloc retries:");
	if (p)
		c->retries = strtoull(p + 19, NULL, 10);
}

void oom_summary_numbers(struct oom_crash *c, const struct oom_excerpt *x)
{
	const char *from, *to, *p = oom_text_find(x->at, x->end, "device ID ");
	uint64_t bytes;

	if (p)
		c->gpu_index = strtol(p + 10, NULL, 10);
	bytes = cell(x->at, x->end, "| Allocated memory", CURRENT + 1, &from, &to);
	if (bytes)
		oom_number_put(c, OOM_CRASH_ALLOCATED, bytes, from, to);
	bytes = cell(x->at, x->end, "| GPU reserved memory", CURRENT + 1, &from, &to);
	if (!bytes)
		return;
	oom_number_put(c, OOM_CRASH_RESERVED_TOTAL, bytes, from, to);
	if (c->known[OOM_CRASH_ALLOCATED] && bytes >= c->bytes[OOM_CRASH_ALLOCATED])
		oom_number_put(c, OOM_CRASH_RESERVED_UNALLOCATED, bytes - c->bytes[OOM_CRASH_ALLOCATED], "", "");
}

/* Alone it does not say what was asked for or what the card has: how much of what was reserved was ever used at once
 * is what tells. What is held when it is printed may be less than when memory ran out, so the peaks count. */
void oom_causes_of_summary(struct oom_crash *c, const char *begin, const char *end)
{
	const double gib = 1073741824.0;
	const char *from, *to;
	const uint64_t peak = cell(begin, end, "| Allocated memory", PEAK + 1, &from, &to),
		       reserved = cell(begin, end, "| GPU reserved memory", PEAK + 1, &from, &to);
	char why[160];

	if (oom_text_find(begin, end, "CUDA OOMs:") && !c->ooms) {
		oom_cause_say(c, OOM_CAUSE_NOT_OOM, 0.6, "the table counts no refusal of memory: CUDA OOMs is 0");
		return;
	}
	if (!peak || !reserved) {
		oom_cause_say(c, OOM_CAUSE_UNKNOWN, 0.5, "the table is cut off");
		return;
	}
	snprintf(why, sizeof(why), "at their peaks %.2f GiB were in use and %.2f GiB reserved", (double)peak / gib, (double)reserved / gib);
	if (peak < reserved - reserved / 4)
		oom_cause_say(c, OOM_CAUSE_FRAGMENTATION, 0.55, why);
	oom_cause_say(c, OOM_CAUSE_TOO_LARGE, c->n_causes ? 0.45 : 0.6, why);
}
