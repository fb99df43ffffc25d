/* Logs of any size: blocks are searched for the few letters every message holds, and only around
 * a hit is text decoded. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"
#include "read_parts.h"
#include "input/open.h"
#include "oomplan/units.h"

enum { BLOCK = 1 << 20, OOM_SCAN_BEFORE = 24 << 10, OOM_SCAN_AFTER = 6 << 10, WINDOW = OOM_SCAN_BEFORE + OOM_SCAN_AFTER + 1 };

/* The window of a message: what came before it back to OOM_SCAN_BEFORE bytes, and what follows up to OOM_SCAN_AFTER.
 * A second message inside the window ends it. */
static void window(const char *begin, const char *at, const char *end, const struct oom_trigger *t,
		   const char **from, const char **to)
{
	*from = at - begin > OOM_SCAN_BEFORE ? at - OOM_SCAN_BEFORE : begin;
	*to = end - at > OOM_SCAN_AFTER ? at + OOM_SCAN_AFTER : end;
	for (const char *p = at + strlen(t->needle);
	     (p = oom_text_find(p, *to, "out of memory. Tried")); p++)
		if (p - at > 40) {
			*to = p;
			break;
		}
}

/* Copied, and ended by a NUL: numbers at the very end of a text are then safe to read. */
static void keep(char *window, const char *from, const char *to)
{
	memcpy(window, from, (size_t)(to - from));
	window[to - from] = 0;
}

static void decode(char *from, size_t offset, size_t size, const struct oom_trigger *t,
		   struct oom_crash *c)
{
	const char *const to = from + oom_text_clean(from, size, &offset), *const at = from + offset;

	oom_decode_numbers(c, t, from, at, to);
	oom_decode_program(c, from, at, to);
	oom_decode_phase(c, from, at, to);
	oom_decode_own_line(c, from, at, to);
	oom_decode_task(c, from, at, to);
	oom_decode_part(c, from, at, to);
	oom_decode_settings(c, from, to);
	oom_phase_of_weights(c, from, to);
	oom_decode_causes(c, from, at, to);
}

/* Two hits on one message: the later one is dropped when it adds nothing. */
static bool same_message(const char *previous, const char *at)
{
	return previous && at - previous < 200 && !memchr(previous, '\n', (size_t)(at - previous));
}

/* "CUDA out of memory." with its sentence on the next line is one message. */
static bool broken_in_two(const char *previous, const struct oom_trigger *before, const char *at,
			  const struct oom_trigger *t)
{
	const char *gap, *line;

	if (!previous || !before || t == before || !t->continues ||
	    before->strength < t->strength || !(oom_runtime_named(before->framework)->traits & OOM_RUNTIME_TORCH))
		return false;
	gap = previous + strlen(before->needle);
	line = at - gap < 80 && at > gap ? memchr(gap, '\n', (size_t)(at - gap)) : NULL;
	return line && !memchr(line + 1, '\n', (size_t)(at - line - 1));
}

/* A sentence of PyTorch's is shorter. */
enum { SENTENCE = 1500 };

static void note_latest(struct oom_scan *s, const char *p)
{
	if (s->n_latest == 4)
		memmove(s->latest, s->latest + 1, 3 * sizeof(s->latest[0]));
	else
		s->n_latest++;
	s->latest[s->n_latest - 1] = p;
}

/* Of the message that counts, before its block is overwritten: what stands around it, and the run before it. */
static void keep_pending(struct oom_scan *s)
{
	const char *from, *to;

	/* four show a rise: what the block held before them is of no account */
	for (size_t i = 0; i < s->n_latest; i++)
		oom_scan_note_growth(s, s->latest[i], s->end - s->latest[i] > SENTENCE ? s->latest[i] + SENTENCE : s->end);
	s->n_latest = 0;
	if (s->pending) {
		window(s->begin, s->pending, s->end, s->trigger, &from, &to);
		keep(s->window, from, to);
		s->window_at = (size_t)(s->pending - from);
		s->window_size = (size_t)(to - from);
		if (s->unread) {
			oom_scan_feed(s, s->pending, true);
			s->at_message = s->run;
		}
	}
	s->pending = s->behind = NULL;
	s->unread = false;
}

/* A log may be messages throughout: beyond these many, each one's own lines must do, without
 * what led to it. */
enum { WITH_CONTEXT = 1000 };

/* --all: decoded as it is met. */
static void tell(struct oom_scan *s, const char *begin, const char *p, const char *end, const struct oom_trigger *t)
{
	const char *from, *to, *own;
	struct oom_crash c;

	window(begin, p, end, t, &from, &to);
	own = s->log->messages > WITH_CONTEXT && s->behind && s->behind > from ? s->behind : from;
	keep(s->window + WINDOW, own, to);
	decode(s->window + WINDOW, (size_t)(p - own), (size_t)(to - own), t, &c);
	c.line = s->line + 1;
	s->each(s->ctx, &c);
}

/* The ranks of a crash die within moments of one another, with a traceback each: what comes later, or after another
 * step, is another crash. */
enum { ONE_CRASH = 2000 };

static bool of_same_crash(struct oom_scan *s)
{
	const bool near = s->line + 1 - s->last_line < ONE_CRASH;

	s->last_line = s->line + 1;
	/* beyond what is read whole, steps are known once a block */
	return near && (s->run.read > OOM_SCAN_READ_ALL || s->run.run.last_step == s->at_message.run.last_step);
}

/* PyTorch's, which says whose it is; true: it is another rank's than that of the message that counts, and of the same
 * crash, of which the first that died is shown. */
static bool follows_first(struct oom_scan *s, const char *begin, const char *p, const char *end)
{
	const int64_t rank = oom_scan_rank(begin, p), first = s->rank;
	const bool same = of_same_crash(s);

	if (!same) {
		s->ranks = s->log->ranks = 0;
		s->log->ranks_differ = false;
	}
	note_latest(s, p);
	oom_scan_note_rank(s, rank, p, end - p > SENTENCE ? p + SENTENCE : end);
	if (same && s->ranked && rank >= 0 && rank != first)
		return true;
	s->rank = rank;
	s->ranked = rank >= 0;
	return false;
}

/* The allocator's sentence, not its first words as somebody repeats them below it. */
static bool has_sizes(const char *p, const char *end)
{
	return oom_text_find(p, end - p > 200 ? p + 200 : end, "ried to allocate") != NULL;
}

/* Every message is noted; only the one that counts is decoded, once the log has ended: a log may
 * be messages throughout. */
static void found(struct oom_scan *s, const char *begin, const char *p, const char *end, const struct oom_trigger *t)
{
	const bool sized = has_sizes(p, end), counts = !s->trigger || t->strength > s->trigger->strength || (t->strength == s->trigger->strength && !(t == s->trigger && s->sized && !sized));
	bool later = false;

	/* beyond what is read whole, once a block: of the last message in it */
	if (counts && s->run.read <= OOM_SCAN_READ_ALL)
		oom_scan_feed(s, p, true);
	if (t->strength == 3) {
		s->log->messages++;
		/* others print no ranks, and not what they hold */
		if (oom_runtime_named(t->framework)->traits & OOM_RUNTIME_TORCH)
			later = follows_first(s, begin, p, end);
		else
			s->ranked = false;
	}
	if (s->each)
		tell(s, begin, p, end, t);
	if (t->strength == 3)
		s->behind = p;
	if (!counts || later)
		return;
	s->unread = s->run.read > OOM_SCAN_READ_ALL;
	if (!s->unread)
		s->at_message = s->run;
	s->trigger = t;
	s->sized = sized;
	s->window_line = s->line + 1;
	s->pending = p;
}

static bool finish(struct oom_scan *s)
{
	memset(s->last, 0, sizeof(*s->last));
	keep_pending(s);
	if (!s->trigger)
		return false;
	oom_scan_keep_window(s);
	decode(s->window, s->window_at, s->window_size, s->trigger, s->last);
	s->last->line = s->window_line;
	/* people's words stand above the log that they show */
	if (!s->last->known[OOM_CRASH_TRIED] && !s->last->known[OOM_CRASH_TOTAL] && !s->at_message.run.samples && s->run.run.samples && s->run.read <= OOM_SCAN_READ_ALL)
		s->at_message = s->run;
	oom_run_close(&s->at_message, &s->log->run);
	oom_run_causes(s->last, s->log);
	return true;
}

struct place {
	struct oom_scan *scan;
	const char *begin, *end;        /* of the text that is there */
	const char *previous, *counted; /* the latest message; up to where lines are counted */
	const struct oom_trigger *trigger;      /* its word */
};

static void consider(struct oom_scan *s, struct place *at, const char *p)
{
	const struct oom_trigger *t = oom_trigger_at(&s->index, p, (size_t)(at->end - p), at->begin);

	/* the same word again is another process's message on the same line */
	if (!t || broken_in_two(at->previous, at->trigger, p, t) ||
	    (same_message(at->previous, p) && t != at->trigger &&
	     t->strength <= at->trigger->strength))
		return;
	s->line += oom_lines_in(at->counted, p);
	at->counted = p;
	found(s, at->begin, p, at->end, t);
	at->previous = p;
	at->trigger = t;
}

static void consider_hit(void *ctx, const char *p)
{
	struct place *const at = ctx;

	consider(at->scan, at, p);
}

/* Triggers that begin in [from, to). */
static void search(struct oom_scan *s, const char *begin, const char *from, const char *to, const char *end)
{
	struct place at = {.scan = s, .begin = begin, .end = end, .counted = from};

	s->begin = begin;
	s->end = end;
	oom_scan(&s->index, from, to, end, consider_hit, &at);
	s->line += oom_lines_in(at.counted, to);
}

/* Nothing in it is a message: what people say of it. */
static void search_said(struct oom_scan *s, const char *begin, const char *end)
{
	const char *at;
	const struct oom_trigger *const t = s->trigger || s->packed ? NULL : oom_said(begin, end, &at);

	if (!t)
		return;
	s->begin = begin;
	s->end = end;
	s->line = oom_lines_in(begin, at);
	found(s, begin, at, end, t);
}

bool oom_crash_decode(const char *text, size_t size, struct oom_crash *out)
{
	struct oom_crash_log log = {.first_rank = -1};
	struct oom_scan s = {.last = out, .log = &log, .window = malloc(2 * (size_t)WINDOW)};
	struct oom_locale locale;
	bool any;

	if (!s.window) {
		memset(out, 0, sizeof(*out));
		return false;
	}
	oom_trigger_index_init(&s.index);
	oom_run_init(&s.run);
	s.fed = text;
	locale = oom_locale_enter();
	search(&s, text, text, text + size, text + size);
	search_said(&s, text, text + (size < BLOCK ? size : BLOCK));
	any = finish(&s);
	oom_locale_leave(locale);
	free(s.window);
	return any;
}

/* Logs are rotated and snapshots are packed: what a file is whose first bytes are of no text. */
static const char *packed(const char *head, size_t n)
{
	static const struct {
		const char *magic, *what;
	} rows[] = {{"\x1f\x8b", "compressed by gzip (zcat FILE | oomplan diagnose)"},
		    {"\x28\xb5\x2f\xfd", "compressed by zstd (zstdcat FILE | oomplan diagnose)"},
		    {"\xfd" "7zXZ", "compressed by xz (xzcat FILE | oomplan diagnose)"},
		    {"BZh", "compressed by bzip2 (bzcat FILE | oomplan diagnose)"},
		    {"PK\x03\x04", "a zip archive, as torch.save writes: snapshots are read as torch.cuda.memory._dump_snapshot writes them"}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (n >= strlen(rows[i].magic) && !memcmp(head, rows[i].magic, strlen(rows[i].magic)))
			return rows[i].what;
	return NULL;
}

static enum oom_status stream(FILE *f, struct oom_scan *s, struct oom_error *err)
{
	char *buf = malloc(BLOCK + OOM_SCAN_BEFORE + OOM_SCAN_AFTER);
	size_t len = 0, done = 0;       /* bytes in buf; bytes of it already searched */
	bool eof = false;

	if (!buf)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	s->fed = buf;
	while (!eof) {
		const size_t got = fread(buf + len, 1, (size_t)(BLOCK + OOM_SCAN_BEFORE + OOM_SCAN_AFTER) - len, f);
		size_t to, keep;

		if (!s->line && !len)
			s->packed = packed(buf, got);
		oom_scan_keep_head(s, buf + len, got);
		len += got;
		eof = got == 0;
		to = eof ? len : len > OOM_SCAN_AFTER ? len - OOM_SCAN_AFTER : 0;
		if (to > done) {
			search(s, buf, buf + done, buf + to, buf + len);
			done = to;
			keep_pending(s);
			oom_scan_feed(s, buf + to, false);
		}
		/* of a text that people paste, all of it is here */
		if (eof && !s->trigger) {
			search_said(s, buf, buf + len);
			keep_pending(s);
		}
		keep = done > OOM_SCAN_BEFORE ? done - OOM_SCAN_BEFORE : 0;
		/* of a line longer than what is kept, the rest */
		s->fed = s->fed - buf > (ptrdiff_t)keep ? s->fed - keep : buf;
		memmove(buf, buf + keep, len - keep);
		len -= keep;
		done -= keep;
	}
	free(buf);
	if (ferror(f))
		return oom_error_set(err, OOM_ERR_IO, "cannot read: %s", strerror(errno));
	return OOM_OK;
}

enum oom_status oom_crash_read(const char *path, oom_crash_fn each, void *ctx,
			       struct oom_crash *last, struct oom_crash_log *log,
			       struct oom_error *err)
{
	return oom_crash_read_keeping(path, each, ctx, last, log, NULL, err);
}

enum oom_status oom_crash_read_keeping(const char *path, oom_crash_fn each, void *ctx, struct oom_crash *last,
				       struct oom_crash_log *log, struct oom_crash_text *text, struct oom_error *err)
{
	FILE *f = oom_input_open(path, err);
	struct oom_scan s = {.each = each,
			 .ctx = ctx,
			 .last = last,
			 .log = log,
			 .kept = text,
			 .window = malloc(2 * (size_t)WINDOW)};
	struct oom_locale locale;
	enum oom_status st;

	if (!f || !s.window) {
		st = f ? oom_error_set(err, OOM_ERR_MEMORY, "out of host memory") : OOM_ERR_IO;
		free(s.window);
		oom_input_close(f);
		return st;
	}
	if (text)
		memset(text, 0, sizeof(*text));
	memset(log, 0, sizeof(*log));
	log->first_rank = -1;
	oom_run_init(&s.run);
	oom_trigger_index_init(&s.index);
	locale = oom_locale_enter();
	st = stream(f, &s, err);
	oom_input_close(f);
	log->lines = s.line;
	if (!finish(&s) && !st)
		st = oom_error_set(err, OOM_ERR_UNKNOWN, "%s: %s", path, s.packed ? s.packed : "nothing in it speaks of memory");
	oom_locale_leave(locale);
	free(s.window);
	return st;
}
