/* What XLA says of a program's memory: the totals of its buffer assignment and the list of its largest buffers,
 * on GPUs and on TPUs; and its allocator's table, which is TensorFlow's.
 *
 * Wordings: xla/service/buffer_assignment.cc (Stats::ToString, the list of peak buffers), XLA's TPU compiler
 * ("Total hbm usage >= ..."), tsl/framework/bfc_allocator.cc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

/* A number behind a word, as it is printed; false where there is none. */
static bool printed(const char *begin, const char *end, const char *word, char *out, size_t size)
{
	const char *p = oom_text_find(begin, end, word), *after;
	uint64_t bytes;

	if (!p)
		return false;
	for (p += strlen(word); p < end && (*p == ' ' || *p == ':');)
		p++;
	if (!oom_number_at(p, end, false, &bytes, &after) || !bytes)
		return false;
	snprintf(out, size, "%.*s", (int)(after - p < 24 ? after - p : 24), p);
	return true;
}

/* A program's total and its parts, in the order in which they are worth reading. */
static void program_total(struct oom_crash *c, const char *begin, const char *end)
{
	static const struct {
		const char *total;
		struct {
			const char *word, *of;
		} part[4];
	} tables[] = {
		{"total allocation", {{"parameter allocation", "of parameters"}, {"constant allocation", "of constants"},
				      {"maybe_live_out allocation", "of results"}, {"preallocated temp allocation", "of temporaries"}}},
		{"Total hbm usage >=", {{"reserved", "reserved"}, {"program", "of the program"}, {"arguments", "of arguments"}, {NULL, NULL}}},
	};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		const char *const at = oom_text_find(begin, end, tables[i].total);
		/* the parts stand above the total on GPUs, below it on TPUs */
		const char *const from = at ? (at - begin > 400 ? at - 400 : begin) : NULL,
				  *const to = at ? (end - at > 400 ? at + 400 : end) : NULL;
		char *const out = c->program_total, text[32];
		const size_t size = sizeof(c->program_total);
		size_t n;

		if (!at || !printed(at, to, tables[i].total, text, sizeof(text)))
			continue;
		n = (size_t)snprintf(out, size, "%s", text);
		for (size_t k = 0; k < 4 && tables[i].part[k].word && n < size; k++)
			if (printed(oom_text_find(at, to, tables[i].part[k].word) ? at : from, to, tables[i].part[k].word, text, sizeof(text)))
				n += (size_t)snprintf(out + n, size - n, "%s %s %s", strchr(out, ',') || strchr(out, ':') ? "," : ":",
						      text, tables[i].part[k].of);
		return;
	}
}

/* "Buffer 1:", "Size: 2.00GiB", "Operator: op_name="jit(...)/..."; TPUs number without the word. The largest
 * of those that the excerpt still holds. */
static void largest(struct oom_crash *c, const char *begin, const char *end)
{
	uint64_t most = 0;

	for (const char *p = begin; (p = oom_text_find(p, end, "Size: ")); p++) {
		const char *const size = p + 6, *const next = oom_text_find(size, end, "Size: "), *after,
			   *const op = oom_text_find(size, next ? next : end, "op_name=\"");
		const char *pad;
		const size_t n = strcspn(size, " \n"), all = op ? strcspn(op + 9, "[\"\n") : 0, m = all < 120 ? all : 117;
		uint64_t bytes;

		if (!oom_number_at(size, end, false, &bytes, &after) || bytes <= most)
			continue;
		most = bytes;
		/* a TPU's: "Extra memory due to padding: 31.00G (32.0x expansion)" */
		pad = oom_text_find(size, next ? next : end, "due to padding:");
		pad = pad ? oom_text_find(pad, oom_line_end(pad, end), "(") : NULL;
		c->padding = pad ? strtod(pad + 1, NULL) : 0;
		/* its end says which operation it is */
		snprintf(c->largest, sizeof(c->largest), "%.*s%s%.*s", (int)(n < 24 ? n : 24), size, !m ? "" : m < all ? ", ..." : ", ",
			 (int)m, m ? op + 9 + all - m : "");
	}
}

void oom_xla_program(struct oom_crash *c, const struct oom_excerpt *x)
{
	if (!oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE))
		return;
	program_total(c, x->at, x->end);
	if (oom_text_find(x->at, x->end, "Size: "))
		largest(c, x->at, x->end);
	else
		largest(c, x->begin, x->end);
	/* the list alone: what stands above its first entry is of the same message */
	if (!*c->program_total)
		program_total(c, x->begin, x->end);
}

/* "for 3.39GiB (3640655872B)": the exact number where both are printed. */
void oom_xla_line(struct oom_crash *c, const struct oom_excerpt *x)
{
	const char *const exact = oom_text_find(x->after, x->stop, "B ("), *both;

	if (exact && oom_text_find(x->after, exact, "request for") && exact - x->after < 80)
		oom_number_follows(c, OOM_CRASH_TRIED, exact, x->stop, "B (", true);
	oom_number_follows(c, OOM_CRASH_TRIED, oom_line_begin(x->begin, x->at), x->at + 5, "Failed to allocate", false);
	/* xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc: "Free memory/Total memory: 22635544576/85095874560" */
	both = oom_number_follows(c, OOM_CRASH_FREE, x->after, x->stop, "Free memory/Total memory:", true);
	if (both)
		oom_number_follows(c, OOM_CRASH_TOTAL, both, x->stop, "/", true);
	/* "RESOURCE_EXHAUSTED: Allocation (size=...) would exceed memory (size=...)" */
	oom_number_follows(c, OOM_CRASH_TRIED, x->after, x->stop, "RESOURCE_EXHAUSTED: Allocation (size=", true);
	if (c->known[OOM_CRASH_TRIED])
		oom_number_follows(c, OOM_CRASH_TOTAL, x->after, x->stop, "would exceed memory (size=", true);
}

/* "TPU TensorCore Hbm usage: 34.82G, SparseCore Hbm usage 174.10G, exceeding available bytes: 95.74G": both lie in the
 * one memory. */
static void tensor_and_sparse(struct oom_crash *c, const struct oom_excerpt *x)
{
	struct oom_crash part = {0};
	const char *const line = oom_line_begin(x->begin, x->at);
	char text[32];

	if (strncmp(x->after, "exceeding available bytes", 25))
		return;
	oom_number_follows(&part, OOM_CRASH_TRIED, line, x->at, "TensorCore Hbm usage:", false);
	oom_number_follows(&part, OOM_CRASH_FREE, line, x->at, "SparseCore Hbm usage", false);
	part.bytes[OOM_CRASH_TRIED] += part.bytes[OOM_CRASH_FREE];
	if (part.bytes[OOM_CRASH_TRIED]) {
		snprintf(text, sizeof(text), "%.2fG", (double)part.bytes[OOM_CRASH_TRIED] / 1073741824);
		oom_number_put(c, OOM_CRASH_TRIED, part.bytes[OOM_CRASH_TRIED], text, text + strlen(text));
	}
	oom_number_follows(c, OOM_CRASH_TOTAL, x->after, x->stop, "available bytes:", false);
}

/* "Allocation (size=21474836480) would exceed memory (size=17179869184) :: #... [shape = 'f32[320,4096,4096]{1,2,0}', ...": a
 * buffer that no other makes room for. */
static void one_buffer(struct oom_crash *c, const struct oom_excerpt *x)
{
	const char *const at = oom_text_find(x->at, x->end, "Allocation (size="), *const shape = at ? oom_text_find(at, oom_line_end(at, x->end), "shape = '") : NULL, *after;
	uint64_t bytes;

	if (*c->largest || !shape || !oom_number_at(at + 17, x->end, true, &bytes, &after))
		return;
	snprintf(c->largest, sizeof(c->largest), "%.2fGiB, %.*s", (double)bytes / 1073741824, (int)strcspn(shape + 9, "{'\n"), shape + 9);
}

/* "Used 21.95G of 15.48G hbm", "Allocation (size=...) would exceed memory (size=...)" */
void oom_xla_hbm(struct oom_crash *c, const struct oom_excerpt *x)
{
	const char *used;

	oom_number_follows(c, OOM_CRASH_TRIED, oom_line_begin(x->begin, x->at), x->at, "Allocation (size=", true);
	if (!strncmp(x->after, "would exceed", 12))
		oom_number_follows(c, OOM_CRASH_TOTAL, x->after, x->stop, "would exceed memory (size=", true);
	one_buffer(c, x);
	tensor_and_sparse(c, x);
	used = oom_number_follows(c, OOM_CRASH_TRIED, x->after, x->stop, "Used", false);
	if (used)
		oom_number_follows(c, OOM_CRASH_TOTAL, used, x->stop, "of", false);
}

/* The allocator's table of chunks; its summary stands above its limit. */
void oom_xla_pool(struct oom_crash *c, const struct oom_excerpt *x)
{
	oom_number_follows(c, OOM_CRASH_TOTAL, x->begin, x->at, "Limit:", true);
	oom_number_follows(c, OOM_CRASH_ALLOCATED, x->begin, x->at, "InUse:", true);
}

/* The same table alone, from its summary on. */
void oom_xla_dump(struct oom_crash *c, const struct oom_excerpt *x)
{
	oom_number_follows(c, OOM_CRASH_TOTAL, x->at, x->end, "Limit:", true);
	oom_number_follows(c, OOM_CRASH_ALLOCATED, x->at, x->end, "InUse:", true);
	oom_number_follows(c, OOM_CRASH_ALLOCATED, x->at, x->end, "in-use chunks:", false);
}
