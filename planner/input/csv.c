/* CSV in and out.  Parsing is libcsv's; header lookup, limits and messages are ours. */
#include "csv_rows.h"
#include "input/open.h"
#include "oomplan/units.h"

#include <csv.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CELLS = 4096, MAX_ROW = 1 << 20, MAX_GIVEN = 4 * MAX_ROW };  /* quotes within a cell are doubled */

struct reader {
	char *text;                     /* cells of the row being read, NUL-separated */
	size_t used;
	size_t start[MAX_CELLS];
	size_t n;
	char *header;
	const char *names[MAX_CELLS], *cells[MAX_CELLS];
	size_t n_names, line;
	bool begun;                     /* the first bytes were looked at */
	int between;                    /* libcsv's state between two rows */
	size_t given;                   /* letters of the row that libcsv is inside of */
	const char *file;
	oom_csv_fn fn;
	void *ctx;
	enum oom_status status;
	struct oom_error *err;
};

static void too_long(struct reader *r)
{
	r->status = oom_error_set(r->err, OOM_ERR_PARSE, "%s:%zu: a row longer than 1 MiB or wider than %d columns", r->file,
				  r->line, MAX_CELLS);
}

static void on_cell(void *s, size_t len, void *ctx)
{
	struct reader *r = ctx;

	if (r->status)
		return;
	if (r->n == MAX_CELLS || r->used + len + 1 > MAX_ROW) {
		too_long(r);
		return;
	}
	/* everything behind it would be cut off without a word */
	if (len && memchr(s, 0, len)) {
		r->status = oom_error_set(r->err, OOM_ERR_PARSE, "%s:%zu: a NUL byte in a cell", r->file, r->line);
		return;
	}
	r->start[r->n++] = r->used;
	if (len)
		memcpy(r->text + r->used, s, len);
	r->used += len;
	r->text[r->used++] = 0;
}

static void take_header(struct reader *r)
{
	r->header = malloc(r->used ? r->used : 1);
	if (!r->header) {
		r->status = oom_error_set(r->err, OOM_ERR_MEMORY, "out of host memory");
		return;
	}
	memcpy(r->header, r->text, r->used);
	for (size_t i = 0; i < r->n; i++)
		r->names[i] = r->header + r->start[i];
	if (r->n && !strncmp(r->names[0], "\xef\xbb\xbf", 3))
		r->names[0] += 3;               /* a byte-order mark before the first name */
	r->n_names = r->n;
}

static void on_row(int c, void *ctx)
{
	struct reader *r = ctx;

	(void)c;
	if (!r->status && !r->n_names) {
		take_header(r);
	} else if (!r->status) {
		const struct oom_csv_row row = {r->names, r->cells, r->n_names, r->line, r->file};

		for (size_t i = 0; i < r->n_names; i++)
			r->cells[i] = i < r->n ? r->text + r->start[i] : "";
		if (r->n > r->n_names)
			r->status = oom_error_set(r->err, OOM_ERR_PARSE,
						  "%s:%zu: %zu cells, but the header names %zu "
						  "columns",
						  r->file, r->line, r->n, r->n_names);
		else
			r->status = r->fn(r->ctx, &row, r->err);
	}
	r->n = r->used = r->given = 0;
}

static struct reader *reader_new(const char *name, oom_csv_fn fn, void *ctx, struct oom_error *err)
{
	struct reader *r = calloc(1, sizeof(*r));

	if (r && !(r->text = malloc(MAX_ROW))) {
		free(r);
		r = NULL;
	}
	if (!r) {
		oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		return NULL;
	}
	*r = (struct reader){.text = r->text, .file = name, .fn = fn, .ctx = ctx, .err = err, .line = 1};
	return r;
}

/* Excel's "Unicode text": every cell of it would be garbage. */
static void look_at_first(struct reader *r, const char *s, size_t n)
{
	if (!r->begun && n >= 2 && (!memcmp(s, "\xff\xfe", 2) || !memcmp(s, "\xfe\xff", 2)))
		r->status = oom_error_set(r->err, OOM_ERR_PARSE, "%s:1: the file is in UTF-16: save it as UTF-8",
					  r->file);
	r->begun = true;
}

/* A whole line that leaves libcsv nothing to decide, which takes it 30 instructions a letter: cells that are quoted from
 * end to end without a quote in them, or have no quote, no carriage return and no space to trim at either end.  False:
 * it is another line, and none of it was taken. */
static bool take_plain(struct reader *r, const char *s, const char *end)
{
	const char *quote, *stop = end;

	if (s < stop && stop[-1] == '\r')
		stop--;
	if (s == stop)
		return true;                    /* no row */
	if (memchr(s, '\r', (size_t)(stop - s)))
		return false;
	quote = memchr(s, '"', (size_t)(stop - s));
	for (;; s++) {
		const bool quoted = s < stop && *s == '"';
		const char *from = s + quoted, *to = memchr(from, quoted ? '"' : ',', (size_t)(stop - from));

		to = to ? to : stop;
		s = to + quoted;
		if (quoted ? s > stop || (s < stop && *s != ',') :
			     (quote && quote < to) || (from < to && (strchr(" \t", *from) || strchr(" \t", to[-1]))))
			break;
		on_cell((void *)(uintptr_t)from, (size_t)(to - from), r);
		if (s == stop) {
			on_row('\n', r);
			return true;
		}
		if (quoted)
			quote = memchr(s, '"', (size_t)(stop - s));
	}
	if (!r->status)
		r->n = r->used = 0;
	return r->status;
}

/* Feeds line by line, so that every callback knows its line. */
static void feed(struct reader *r, struct csv_parser *p, const char *s, size_t n)
{
	look_at_first(r, s, n);
	while (n && !r->status) {
		const char *nl = memchr(s, '\n', n);
		const size_t k = nl ? (size_t)(nl - s) + 1 : n;
		const bool taken = nl && p->pstate == r->between && take_plain(r, s, nl);

		r->given += taken ? 0 : k;      /* on_row begins anew */
		if (!taken && csv_parse(p, s, k, on_cell, on_row, r) != (size_t)k && !r->status)
			r->status = csv_error(p) == CSV_ENOMEM ?
					    oom_error_set(r->err, OOM_ERR_MEMORY, "out of host memory") :
					    oom_error_set(r->err, OOM_ERR_PARSE, "%s:%zu: malformed CSV: %s", r->file,
							  r->line, csv_strerror(csv_error(p)));
		/* libcsv keeps a cell until it ends, and one of /dev/zero never does */
		if (p->pstate == r->between)
			r->given = 0;           /* blanks that are no row */
		if (r->given > MAX_GIVEN && !r->status)
			too_long(r);
		r->line += nl != NULL;
		s += k;
		n -= k;
	}
}

static void begin(struct reader *r, struct csv_parser *p)
{
	csv_init(p, CSV_APPEND_NULL);
	r->between = p->pstate;
}

static enum oom_status finish(struct reader *r, struct csv_parser *p)
{
	enum oom_status st;

	/* lax about stray quotes within, strict about one that is never closed: it would swallow
	 * the rest of the file */
	csv_set_opts(p, CSV_APPEND_NULL | CSV_STRICT | CSV_STRICT_FINI);
	if (!r->status && csv_fini(p, on_cell, on_row, r))
		r->status = csv_error(p) == CSV_ENOMEM ?
				    oom_error_set(r->err, OOM_ERR_MEMORY, "out of host memory") :
				    oom_error_set(r->err, OOM_ERR_PARSE, "%s: ends inside a quoted cell", r->file);
	if (!r->status && !r->n_names)
		r->status = oom_error_set(r->err, OOM_ERR_PARSE,
					  "%s: empty: a header line was expected", r->file);
	st = r->status;
	csv_free(p);
	free(r->header);
	free(r->text);
	free(r);
	return st;
}

enum oom_status oom_csv_parse(const char *text, size_t size, const char *name, oom_csv_fn fn,
			      void *ctx, struct oom_error *err)
{
	struct csv_parser p;
	struct reader *r = reader_new(name, fn, ctx, err);
	struct oom_locale locale;
	enum oom_status st;

	if (!r)
		return OOM_ERR_MEMORY;
	begin(r, &p);
	locale = oom_locale_enter();
	feed(r, &p, text, size);
	st = finish(r, &p);
	oom_locale_leave(locale);
	return st;
}

enum oom_status oom_csv_read(const char *path, oom_csv_fn fn, void *ctx, struct oom_error *err)
{
	FILE *f = oom_input_open(path, err);
	struct csv_parser p;
	struct oom_locale locale;
	enum oom_status st;
	struct reader *r;
	char buf[65536];
	size_t n;

	if (!f)
		return OOM_ERR_IO;
	r = reader_new(path, fn, ctx, err);
	if (!r) {
		oom_input_close(f);
		return OOM_ERR_MEMORY;
	}
	begin(r, &p);
	locale = oom_locale_enter();
	while (!r->status && (n = fread(buf, 1, sizeof(buf), f)) > 0)
		feed(r, &p, buf, n);
	if (!r->status && ferror(f))
		r->status = oom_error_set(err, OOM_ERR_IO, "%s: %s", path, strerror(errno));
	oom_input_close(f);
	st = finish(r, &p);
	oom_locale_leave(locale);
	return st;
}

const char *oom_csv_cell(const struct oom_csv_row *row, const char *name)
{
	for (size_t i = 0; i < row->n; i++)
		if (!strcmp(row->names[i], name))
			return row->cells[i];
	return NULL;
}

void oom_csv_put(FILE *out, const char *cell)
{
	if (!strpbrk(cell, ",\"\r\n")) {
		fputs(cell, out);
		return;
	}
	putc('"', out);
	for (; *cell; cell++) {
		if (*cell == '"')
			putc('"', out);
		putc(*cell, out);
	}
	putc('"', out);
}
