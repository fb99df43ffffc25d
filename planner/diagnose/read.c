/* Logs of any size: blocks are searched for the few letters every message holds, and only around
 * a hit is text decoded. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"
#include "run.h"
#include "input/open.h"
#include "oomplan/units.h"

enum { BLOCK = 1 << 20, BEFORE = 24 << 10, AFTER = 6 << 10, WINDOW = BEFORE + AFTER + 1 };

struct scan {
	oom_crash_fn each;
	void *ctx;
	struct oom_crash *last;
	/* the text around the last message that counts, decoded when all is read; behind it room
	 * for the one of each() */
	char *window;
	/* it still lies here, in the block that is searched; NULL: copied */
	const char *pending;
	size_t window_at, window_size;
	/* in the same block: the end of the latest allocator's message, NULL before */
	const char *behind;
	const struct oom_trigger *trigger;
	uint64_t window_line;
	struct oom_crash_log *log;
	uint64_t allocated[4];          /* of the latest messages of one process, for a rise */
	size_t n_allocated;
	int64_t process;                /* its rank, or its card */
	uint64_t first_tried;           /* of the first rank's message */
	struct oom_run_reader run, at_message;
	/* in the block that is searched: up to where lines were read for the run */
	const char *fed;
	uint64_t line;
	uint64_t ranks;                 /* a bit each, modulo 64 */
	struct oom_trigger_index index;
};

/* The window of a message: what came before it back to BEFORE bytes, and what follows up to AFTER.
 * A second message inside the window ends it. */
static void window(const char *begin, const char *at, const char *end, const struct oom_trigger *t,
		   const char **from, const char **to)
{
	*from = at - begin > BEFORE ? at - BEFORE : begin;
	*to = end - at > AFTER ? at + AFTER : end;
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
	oom_decode_part(c, from, at, to);
	oom_decode_settings(c, from, to);
	oom_decode_causes(c, from, at, to);
}

/* "[rank3]: ..." at the line's beginning; -1: none */
static int64_t rank_at(const char *begin, const char *at)
{
	const char *const p = oom_text_find(oom_line_begin(at - begin > 300 ? at - 300 : begin, at), at, "[rank");

	return p && p[5] >= '0' && p[5] <= '9' ? strtol(p + 5, NULL, 10) : -1;
}

/* Ranks that die together are one crash: which was first, and whether they asked for the same. */
static void note_rank(struct scan *s, int64_t rank, const char *at, const char *to)
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
		s->first_tried = tried;
	} else if ((double)tried > 1.05 * (double)s->first_tried ||
		   (double)tried < 0.95 * (double)s->first_tried) {
		s->log->ranks_differ = true;
	}
}

static void note_growth(struct scan *s, int64_t rank, const char *at, const char *to)
{
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
enum { READ_ALL = 16 << 20, READ_SOME = 16 << 10 };

/* Whole lines up to the one that "to" lies in. */
static void feed(struct scan *s, const char *to, bool message)
{
	const char *from = s->fed;

	to = from ? oom_line_begin(from, to) : to;
	if (!from || to <= from)
		return;
	if (s->run.read > READ_ALL && to - from > READ_SOME) {
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

/* Newlines, eight bytes at a time: a byte's high bit ends up set where it was one (Warren, Hacker's
 * Delight, 2nd edition, 6-1); 255 words' worth of them are added in place before they are summed
 * across. */
static uint64_t lines_in(const char *from, const char *to)
{
	const uint64_t ones = UINT64_C(0x0101010101010101), low = ones * 0x7f;
	uint64_t n = 0;

	while (to - from >= 8) {
		uint64_t sum = 0;

		for (int i = 0; i < 255 && to - from >= 8; i++, from += 8) {
			uint64_t w;

			memcpy(&w, from, 8);
			w ^= ones * '\n';
			sum += ~(((w & low) + low) | w) >> 7 & ones;
		}
		sum = (sum & UINT64_C(0x00ff00ff00ff00ff)) +
		      (sum >> 8 & UINT64_C(0x00ff00ff00ff00ff));
		n += sum * UINT64_C(0x0001000100010001) >> 48;
	}
	for (; from < to; from++)
		n += *from == '\n';
	return n;
}

/* Before the block that it lies in is overwritten. */
static void keep_pending(struct scan *s)
{
	if (s->pending)
		keep(s->window, s->pending, s->pending + s->window_size);
	s->pending = s->behind = NULL;
}

/* A log may be messages throughout: beyond these many, each one's own lines must do, without
 * what led to it. */
enum { WITH_CONTEXT = 1000 };

/* Every message is noted; only the one that counts is decoded, once the log has ended: a log may
 * be messages throughout. */
static void found(struct scan *s, const char *begin, const char *p, const char *end,
		  const struct oom_trigger *t)
{
	const char *from, *to;

	window(begin, p, end, t, &from, &to);
	if (t->strength == 3) {
		const int64_t rank = rank_at(begin, p);

		s->log->messages++;
		note_growth(s, rank, p, to);
		note_rank(s, rank, p, to);
	}
	if (s->each) {
		const char *own = s->log->messages > WITH_CONTEXT && s->behind && s->behind > from ?
					  s->behind :
					  from;
		struct oom_crash c;

		keep(s->window + WINDOW, own, to);
		decode(s->window + WINDOW, (size_t)(p - own), (size_t)(to - own), t, &c);
		c.line = s->line + 1;
		s->each(s->ctx, &c);
	}
	if (t->strength == 3)
		s->behind = p;
	if (s->trigger && t->strength < s->trigger->strength)
		return;
	feed(s, p, true);
	s->at_message = s->run;
	s->trigger = t;
	s->window_at = (size_t)(p - from);
	s->window_size = (size_t)(to - from);
	s->window_line = s->line + 1;
	s->pending = from;
}

static bool finish(struct scan *s)
{
	memset(s->last, 0, sizeof(*s->last));
	keep_pending(s);
	if (!s->trigger)
		return false;
	decode(s->window, s->window_at, s->window_size, s->trigger, s->last);
	s->last->line = s->window_line;
	oom_run_close(&s->at_message, &s->log->run);
	oom_run_causes(s->last, s->log);
	return true;
}

/* Places where a trigger may begin.  Each jump waits for the table's answer about the one before;
 * four lanes of one block are asked at once.  A lane that is full is gone through to its end
 * later. */
enum { LANES = 4, HITS = 128, PIECE = 16 << 10 };
struct lane {
	const char *w, *end;            /* the window's last byte */
	size_t n;
	const char *hit[HITS];
};

static inline void jump(struct lane *l, const uint8_t *shift)
{
	const uint8_t skip = shift[oom_trigger_hash(l->w)];

	if (!skip)
		l->hit[l->n++] = l->w - OOM_TRIGGER_MIN + 1;
	l->w += skip ? skip : 1;
}

static inline bool open(const struct lane *l)
{
	return l->w < l->end && l->n < HITS;
}

static void skim(struct lane lanes[LANES], const char *w, const char *stop, const uint8_t *shift)
{
	const size_t part = stop > w ? (size_t)(stop - w) / LANES : 0;
	struct lane *const a = &lanes[0], *const b = &lanes[1], *const c = &lanes[2],
			   *const d = &lanes[3];

	for (int i = 0; i < LANES; i++) {
		lanes[i].w = w + part * (size_t)i;
		lanes[i].end = i == LANES - 1 ? stop : w + part * (size_t)(i + 1);
		lanes[i].n = 0;
	}
	while (open(a) && open(b) && open(c) && open(d)) {
		const char *wa = a->w, *wb = b->w, *wc = c->w, *wd = d->w;
		uint8_t ka, kb, kc, kd;

		/* in registers, until one of them stops */
		do {
			wa += ka = shift[oom_trigger_hash(wa)];
			wb += kb = shift[oom_trigger_hash(wb)];
			wc += kc = shift[oom_trigger_hash(wc)];
			wd += kd = shift[oom_trigger_hash(wd)];
		} while (ka && kb && kc && kd && wa < a->end && wb < b->end && wc < c->end &&
			 wd < d->end);
		a->w = wa;
		b->w = wb;
		c->w = wc;
		d->w = wd;
		for (int i = 0; i < LANES; i++)
			if (open(&lanes[i]))
				jump(&lanes[i], shift);
	}
	for (int i = 0; i < LANES; i++)
		while (open(&lanes[i]))
			jump(&lanes[i], shift);
}

struct place {
	const char *begin, *end;        /* of the text that is there */
	const char *previous, *counted; /* the latest message; up to where lines are counted */
	const struct oom_trigger *trigger;      /* its word */
};

static void consider(struct scan *s, struct place *at, const char *p)
{
	const struct oom_trigger *t = oom_trigger_at(&s->index, p, (size_t)(at->end - p), at->begin);

	/* the same word again is another process's message on the same line */
	if (!t || broken_in_two(at->previous, at->trigger, p, t) ||
	    (same_message(at->previous, p) && t != at->trigger &&
	     t->strength <= at->trigger->strength))
		return;
	s->line += lines_in(at->counted, p);
	at->counted = p;
	found(s, at->begin, p, at->end, t);
	at->previous = p;
	at->trigger = t;
}

static void go_through(struct scan *s, struct place *at, struct lane *l)
{
	for (size_t k = 0; k < l->n; k++)
		consider(s, at, l->hit[k]);
	while (l->w < l->end) {
		l->n = 0;
		jump(l, s->index.shift);
		if (l->n)
			consider(s, at, l->hit[0]);
	}
}

/* Triggers that begin in [from, to). */
static void search(struct scan *s, const char *begin, const char *from, const char *to,
		   const char *end)
{
	const char *const stop = to + OOM_TRIGGER_MIN - 1 < end ? to + OOM_TRIGGER_MIN - 1 : end;
	struct place at = {.begin = begin, .end = end, .counted = from};
	struct lane lanes[LANES];

	for (const char *w = from + OOM_TRIGGER_MIN - 1; w < stop; w = lanes[LANES - 1].end) {
		skim(lanes, w, stop - w > PIECE ? w + PIECE : stop, s->index.shift);
		for (int i = 0; i < LANES; i++)
			go_through(s, &at, &lanes[i]);
	}
	s->line += lines_in(at.counted, to);
}

bool oom_crash_decode(const char *text, size_t size, struct oom_crash *out)
{
	struct oom_crash_log log = {.first_rank = -1};
	struct scan s = {.last = out, .log = &log, .window = malloc(2 * (size_t)WINDOW)};
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
	any = finish(&s);
	oom_locale_leave(locale);
	free(s.window);
	return any;
}

static enum oom_status stream(FILE *f, struct scan *s, struct oom_error *err)
{
	char *buf = malloc(BLOCK + BEFORE + AFTER);
	size_t len = 0, done = 0;       /* bytes in buf; bytes of it already searched */
	bool eof = false;

	if (!buf)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	s->fed = buf;
	while (!eof) {
		const size_t got = fread(buf + len, 1, (size_t)(BLOCK + BEFORE + AFTER) - len, f);
		size_t to, keep;

		len += got;
		eof = got == 0;
		to = eof ? len : len > AFTER ? len - AFTER : 0;
		if (to > done) {
			search(s, buf, buf + done, buf + to, buf + len);
			done = to;
			feed(s, buf + to, false);
		}
		keep_pending(s);
		keep = done > BEFORE ? done - BEFORE : 0;
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
	FILE *f = oom_input_open(path, err);
	struct scan s = {.each = each,
			 .ctx = ctx,
			 .last = last,
			 .log = log,
			 .window = malloc(2 * (size_t)WINDOW)};
	struct oom_locale locale;
	enum oom_status st;

	if (!f || !s.window) {
		st = f ? oom_error_set(err, OOM_ERR_MEMORY, "out of host memory") : OOM_ERR_IO;
		free(s.window);
		oom_input_close(f);
		return st;
	}
	memset(log, 0, sizeof(*log));
	log->first_rank = -1;
	oom_run_init(&s.run);
	oom_trigger_index_init(&s.index);
	locale = oom_locale_enter();
	st = stream(f, &s, err);
	oom_input_close(f);
	log->lines = s.line;
	if (!finish(&s) && !st)
		st = oom_error_set(err, OOM_ERR_UNKNOWN, "%s: nothing in it speaks of memory",
				   path);
	oom_locale_leave(locale);
	free(s.window);
	return st;
}
