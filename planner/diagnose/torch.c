/* PyTorch's sentence, in every wording since 1.0, on every device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder/allocator_variable.h"
#include "tables.h"

static void processes(struct oom_crash *c, const char *begin, const char *end)
{
	for (const char *p = begin; (p = oom_text_find(p, end, "Process ")); p += 8) {
		char *stop;
		const long long pid = p[8] >= '0' && p[8] <= '9' ? strtoll(p + 8, &stop, 10) : -1;
		const char *after;
		uint64_t v;

		if (pid < 0 || end - stop < 5 || strncmp(stop, " has ", 5) ||
		    !oom_number_at(stop + 5, end, false, &v, &after) ||
		    c->n_processes == OOM_CRASH_PROCESSES)
			continue;
		c->process[c->n_processes].pid = pid;
		c->process[c->n_processes++].bytes = v;
	}
}

static void derive_reserved(struct oom_crash *c)
{
	const uint64_t a = c->bytes[OOM_CRASH_ALLOCATED];

	if (!c->known[OOM_CRASH_ALLOCATED])
		return;
	if (c->known[OOM_CRASH_RESERVED_UNALLOCATED] && !c->known[OOM_CRASH_RESERVED_TOTAL])
		oom_number_put(c, OOM_CRASH_RESERVED_TOTAL,
			       a + c->bytes[OOM_CRASH_RESERVED_UNALLOCATED], "", "");
	else if (c->known[OOM_CRASH_RESERVED_TOTAL] && !c->known[OOM_CRASH_RESERVED_UNALLOCATED] &&
		 c->bytes[OOM_CRASH_RESERVED_TOTAL] >= a)
		oom_number_put(c, OOM_CRASH_RESERVED_UNALLOCATED,
			       c->bytes[OOM_CRASH_RESERVED_TOTAL] - a, "", "");
}

/* c10/cuda/CUDAMallocAsyncAllocator.cpp prints a list instead of a sentence; its user-supplied limit
 * is 2^64 bytes where there is none, which is no number of bytes here. */
static void async_numbers(struct oom_crash *c, const char *at, const char *end)
{
	const char *device = oom_text_find(at, end, "on device ");

	if (device && device[10] >= '0' && device[10] <= '9')
		c->gpu_index = strtol(device + 10, NULL, 10);
	oom_number_follows(c, OOM_CRASH_ALLOCATED, at, end, "Currently allocated :", false);
	oom_number_follows(c, OOM_CRASH_TRIED, at, end, "Requested :", false);
	oom_number_follows(c, OOM_CRASH_TOTAL, at, end, "Device limit :", false);
	oom_number_follows(c, OOM_CRASH_FREE, at, end, "Free (according to CUDA):", false);
	oom_number_follows(c, OOM_CRASH_ALLOWED, at, end, "memory fraction) :", false);
}

/* Behind the numbers of one sentence: no form of it is longer. */
static const char *sentence_end(const char *at, const char *end)
{
	return end - at > 700 ? at + 700 : end;
}

void oom_torch_numbers(struct oom_crash *c, const char *at, const char *end)
{
	oom_number_follows(c, OOM_CRASH_TRIED, at, end, "Tried to allocate", false);
	oom_number_precedes(c, OOM_CRASH_TOTAL, at, end, " total capacity");
	oom_number_follows(c, OOM_CRASH_TOTAL, at, end, "total capacity of", false);
	oom_number_follows(c, OOM_CRASH_TOTAL, at, end, "total capacty of", false);
	/* a sentence that a page cut off: "(GPU 0; 12.00 GiB total" */
	if (!c->known[OOM_CRASH_TOTAL])
		oom_number_precedes(c, OOM_CRASH_TOTAL, at, oom_line_end(at, end), " total");
	oom_number_precedes(c, OOM_CRASH_FREE, at, end, " free;");
	oom_number_follows(c, OOM_CRASH_FREE, at, end, "of which", false);
	oom_number_precedes(c, OOM_CRASH_FREE, at, end, " free of");
	/* as people shorten it: "741.02 MiB free)", "62.25 MiB is free" */
	oom_number_precedes(c, OOM_CRASH_FREE, at, sentence_end(at, end), " free)");
	oom_number_precedes(c, OOM_CRASH_FREE, at, sentence_end(at, end), " free ...");
	oom_number_precedes(c, OOM_CRASH_FREE, at, sentence_end(at, end), " is free");
	oom_number_precedes(c, OOM_CRASH_ALLOCATED, at, end, " already allocated");
	oom_number_follows(c, OOM_CRASH_ALLOCATED, at, end, "Of the allocated memory", false);
	oom_number_precedes(c, OOM_CRASH_ALLOCATED, at, sentence_end(at, end), " is allocated by PyTorch");
	oom_number_precedes(c, OOM_CRASH_ALLOCATED, at, sentence_end(at, end), " allocated by PyTorch");
	oom_number_precedes(c, OOM_CRASH_RESERVED_UNALLOCATED, at, end, " cached");
	oom_number_precedes(c, OOM_CRASH_RESERVED_TOTAL, at, end, " reserved in total");
	oom_number_precedes(c, OOM_CRASH_RESERVED_UNALLOCATED, at, end, " is reserved by PyTorch but");
	oom_number_precedes(c, OOM_CRASH_RESERVED_UNALLOCATED, at, sentence_end(at, end), " reserved-but-unallocated");
	oom_number_precedes(c, OOM_CRASH_RESERVED_UNALLOCATED, at, sentence_end(at, end), " reserved but unallocated");
	oom_number_follows(c, OOM_CRASH_PROCESS, at, end, "this process has", false);
	oom_number_precedes(c, OOM_CRASH_PRIVATE_POOL, at, end, " allocated in private pools");
	oom_number_precedes(c, OOM_CRASH_ALLOWED, at, end, " allowed;");
	oom_number_follows(c, OOM_CRASH_ALLOWED, at, end, "block with size larger than", false);
	oom_number_follows(c, OOM_CRASH_ALLOCATED, at, end, "MPS allocated:", false);
	oom_number_follows(c, OOM_CRASH_OTHER, at, end, "other allocations:", false);
	oom_number_follows(c, OOM_CRASH_TOTAL, at, end, "max allowed:", false);
	if (oom_format_is(c, OOM_FORMAT_ASYNC))
		async_numbers(c, at, end);
	processes(c, at, end);
	oom_gpu_index(c, at, end);
	derive_reserved(c);
}

bool oom_decode_allocated(const char *at, const char *end, uint64_t *bytes)
{
	struct oom_crash c = {0};

	oom_number_precedes(&c, OOM_CRASH_ALLOCATED, at, end, " already allocated");
	oom_number_follows(&c, OOM_CRASH_ALLOCATED, at, end, "Of the allocated memory", false);
	if (c.known[OOM_CRASH_ALLOCATED])
		*bytes = c.bytes[OOM_CRASH_ALLOCATED];
	return c.known[OOM_CRASH_ALLOCATED];
}

void oom_torch_format(struct oom_crash *c, const char *at, const char *end)
{
	static const struct {
		const char *mark, *suffix;
	} marks[] = {
		{OOM_ALLOCATOR_VARIABLE_2_9, "2.9-alloc-conf"}, {" cached)", "1.0-cached"}, {"total capacty", "2.1-capacty"},
		{"reserved in total by PyTorch) If", "1.10-split-advice"}, {"reserved in total", "1.4-reserved-total"}};
	const char *base = c->format[0] == 'h' ? "hip" :
			   c->format[0] == 'x' ? "xpu" :
			   c->format[0] == 'n' ? "npu" :
						 "cuda";

	if (oom_runtime_is(c, OOM_RUNTIME_WATERMARK)) {
		snprintf(c->format, sizeof(c->format), "%s",
			 strstr(c->text[OOM_CRASH_ALLOCATED], "iB") ? "mps-gib" : "mps-gb");
		return;
	}
	if (oom_format_is(c, OOM_FORMAT_ASYNC))
		return;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (oom_text_find(at, end, marks[i].mark)) {
			snprintf(c->format, sizeof(c->format), "%s-%s", base, marks[i].suffix);
			return;
		}
	if (!strcmp(c->exception, "torch.OutOfMemoryError") && c->known[OOM_CRASH_TRIED])
		snprintf(c->format, sizeof(c->format), "%s-2.5-OutOfMemoryError", base);
	else if (oom_text_find(at, end, "total capacity of"))
		snprintf(c->format, sizeof(c->format), "%s-2.2-capacity", base);
	else
		snprintf(c->format, sizeof(c->format), "%s-%s", base,
			 c->known[OOM_CRASH_TRIED] ? "other" : "no-numbers");
	if (!c->known[OOM_CRASH_TOTAL] && c->known[OOM_CRASH_TRIED])
		snprintf(c->format, sizeof(c->format), "%s-other", base);
}
