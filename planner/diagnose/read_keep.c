/* What is kept of a log for the run that it gives: its beginning, where people paste what they started, and what stands around
 * the message that counts. */
#include <string.h>

#include "parts.h"
#include "read_parts.h"

void oom_scan_keep_head(struct oom_scan *s, const char *from, size_t n)
{
	struct oom_crash_text *const t = s->kept;
	const size_t room = t ? sizeof(t->text[0]) - 1 - t->size[0] : 0;

	if (!room)
		return;
	n = n < room ? n : room;
	memcpy(t->text[0] + t->size[0], from, n);
	t->size[0] += n;
	t->line[0] = 1;
}

/* The head has all of a short text. */
void oom_scan_keep_window(struct oom_scan *s)
{
	struct oom_crash_text *const t = s->kept;
	const bool full = t && t->size[0] + 1 == sizeof(t->text[0]);
	size_t n;

	if (!t)
		return;
	for (size_t i = 0; i < 2; i++) {
		size_t at = 0;

		if (i == 1 && full) {
			n = s->window_size < sizeof(t->text[1]) ? s->window_size : sizeof(t->text[1]) - 1;
			memcpy(t->text[1], s->window, n);
			t->size[1] = n;
			t->line[1] = s->window_line - oom_lines_in(s->window, s->window + (s->window_at < n ? s->window_at : n));
		}
		t->text[i][t->size[i]] = 0;
		t->size[i] = oom_text_clean(t->text[i], t->size[i], &at);
	}
}
