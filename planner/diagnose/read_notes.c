/* What a log says beside its messages: which ranks died and whether they differ, whether a process holds more from
 * message to message, the lines of the run. */
#include <stdlib.h>
#include <string.h>

#include "read_parts.h"
#include "tables.h"

/* "[rank3]: ..." at the line's beginning; -1: none */
int64_t oom_scan_rank(const char *begin, const char *at)
{
	const char *const p = oom_text_find(oom_line_begin(at - begin > 300 ? at - 300 : begin, at), at, "[rank");

	return p && p[5] >= '0' && p[5] <= '9' ? strtol(p + 5, NULL, 10) : -1;
}

/* Ranks that die together are one crash: which was first, and whether they asked for the same. */
void oom_scan_note_rank(struct oom_scan *s, int64_t rank, const char *at, const char *to)
{
	struct oom_crash c = {0};
	const uint64_t before = s->log->ranks;
	uint64_t tried;

	if (rank < 0)
		return;
	s->ranks |= (uint64_t)1 << (rank & 63);
	s->log->ranks = 0;
	for (uint64_t bits = s->ranks; bits; bits &= bits - 1)
		s->log->ranks++;
	oom_number_follows(&c, OOM_CRASH_TRIED, at, to, "Tried to allocate", false);
	tried = c.bytes[OOM_CRASH_TRIED];
	if (!before) {
		s->log->first_rank = rank;
		s->log->first_rank_line = s->line + 1;
		s->log->first_rank_tried = tried;
	} else if ((double)tried > 1.05 * (double)s->log->first_rank_tried ||
		   (double)tried < 0.95 * (double)s->log->first_rank_tried) {
		s->log->ranks_differ = true;
	}
}

void oom_scan_note_growth(struct oom_scan *s, const char *at, const char *to)
{
	const int64_t rank = oom_scan_rank(s->begin, at);
	struct oom_crash c = {.gpu_index = -1};
	uint64_t bytes;
	bool rises = true;

	if (!oom_decode_allocated(at, to, &bytes))
		return;
	oom_gpu_index(&c, at, to - at > 300 ? at + 300 : to);
	/* another process's: a new beginning */
	if (s->n_allocated && s->process != (rank >= 0 ? rank : c.gpu_index))
		s->n_allocated = 0;
	s->process = rank >= 0 ? rank : c.gpu_index;
	if (s->n_allocated == 4)
		memmove(s->allocated, s->allocated + 1, 3 * sizeof(s->allocated[0]));
	else
		s->n_allocated++;
	s->allocated[s->n_allocated - 1] = bytes;
	for (size_t i = 1; i < s->n_allocated; i++)
		rises &= (double)s->allocated[i] > 1.02 * (double)s->allocated[i - 1];
	s->log->rising = rises && s->n_allocated == 4;
}

/* All of a log's first 16 MiB is read for its run, then 16 KiB of every block, and of what stands before
 * a message: a slope needs no more, and gigabytes take no longer than their search. */
enum { READ_SOME = 16 << 10 };

/* Whole lines up to the one that "to" lies in. */
void oom_scan_feed(struct oom_scan *s, const char *to, bool message)
{
	const char *from = s->fed;

	to = from ? oom_line_begin(from, to) : to;
	if (!from || to <= from)
		return;
	if (s->run.read > OOM_SCAN_READ_ALL && to - from > READ_SOME) {
		const char *const some = oom_line_begin(from, from + READ_SOME);

		if (!message)
			oom_run_lines(&s->run, from, some);
		else
			oom_run_lines(&s->run, oom_line_end(to - READ_SOME, to), to);
	} else {
		oom_run_lines(&s->run, from, to);
	}
	s->fed = to;
}
