/* What ggml's allocators print: a refusal that every layer tells again, each with what it knows of it. */
#include <stdlib.h>
#include <string.h>

#include "tables.h"

/* ggml: "allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory" */
static void allocating_before(struct oom_crash *c, const char *begin, const char *at)
{
	const char *line = oom_line_begin(begin, at), *device = oom_text_find(line, at, "on device ");

	oom_number_follows(c, OOM_CRASH_TRIED, line, at, "allocating", false);
	if (device && device[10] >= '0' && device[10] <= '9')
		c->gpu_index = strtol(device + 10, NULL, 10);
}

/* A layer above repeats a refusal without its size: that stands on one of the lines before, the nearest first. */
static void allocating_above(struct oom_crash *c, const char *begin, const char *at)
{
	const char *from = oom_line_begin(begin, at);

	for (int n = 0; n < 12 && from > begin && !c->known[OOM_CRASH_TRIED]; n++) {
		const char *const to = from - 1;

		from = oom_line_begin(begin, to);
		if (oom_text_find(from, to, "allocating ") && oom_text_find(from, to, "on device "))
			allocating_before(c, begin, to);
	}
}

/* ggml names the buffer and its size on one of the lines around: "failed to allocate CUDA0 buffer of
 * size 151851674624", "failed to allocate buffer, size = 8192.00 MiB", "buffer 'data' size 100 is
 * larger than buffer maximum of 50". */
static void ggml_buffer(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	static const struct {
		const char *word;
		enum oom_crash_number number;
		bool bare;
	} rows[] = {{"buffer of size", OOM_CRASH_TRIED, true},
		    {"buffer, size =", OOM_CRASH_TRIED, false},
		    {"buffer maximum of", OOM_CRASH_ALLOWED, true},
		    {"' size", OOM_CRASH_TRIED, true}};
	const char *const line = oom_line_begin(begin, at);
	const char *from = line;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		oom_number_follows(c, rows[i].number, line, oom_line_end(at, end), rows[i].word,
				   rows[i].bare);
	/* a layer above repeats the refusal with the size; then the lines before, the nearest first */
	if (!c->known[OOM_CRASH_TRIED])
		oom_number_follows(c, OOM_CRASH_TRIED, line, end - line > 400 ? line + 400 : end, "buffer of size", true);
	for (int n = 0; n < 12 && from > begin && !c->known[OOM_CRASH_TRIED]; n++) {
		const char *const to = from - 1;

		from = oom_line_begin(begin, to);
		oom_number_follows(c, OOM_CRASH_TRIED, from, to, "buffer of size", true);
		oom_number_follows(c, OOM_CRASH_TRIED, from, to, "allocation of size", true);
	}
}

void oom_read_ggml(struct oom_crash *c, const struct oom_excerpt *p)
{
	allocating_before(c, p->begin, p->at);
	if (!c->known[OOM_CRASH_TRIED])
		oom_number_follows(c, OOM_CRASH_TRIED, p->after, p->stop, "buffer of size", true);
	allocating_above(c, p->begin, p->at);
}

void oom_read_ggml_buffer(struct oom_crash *c, const struct oom_excerpt *p)
{
	ggml_buffer(c, p->begin, p->at, p->end);
}
