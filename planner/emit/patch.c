/* The user's own files with the few lines that change: a unified diff, comments and order kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emit/parts.h"
#include "emit/patch.h"
#include "frameworks/parts.h"
#include "input/config_json.h"
#include "oomplan/option.h"

enum { CHANGES = 64, CONTEXT = 3 };

/* The row by which the reading took the key: its framework's. */
static const struct fw_row *row_of(const struct oom_reading *r, const struct oom_setting *s)
{
	for (size_t i = 0; i < r->n_parts; i++) {
		const struct fw_part *p = r->parts[i];
		const size_t n = strlen(p->prefix);
		const struct fw_row *row;
		bool idle;

		if (strcmp(p->file, s->file) || strncmp(s->key, p->prefix, n))
			continue;
		row = framework_row(p->fw, s->key + n, &idle);
		if (row && row->knob)
			return row;
	}
	return NULL;
}

/* How the file spells this knob's new value; false: no key of it does. */
static bool spell(const struct oom_reading *r, const struct oom_option *k, const char *value,
		  struct patch_change *c)
{
	const struct oom_setting *s = oom_reading_key_of(r, k->name);
	const struct fw_row *row = s && s->line && !strchr(s->knob, ' ') ? row_of(r, s) : NULL;
	const char *word, *dot;

	if (!row || strcmp(row->knob, k->name))
		return false;
	word = row_word(row, value, c->word, sizeof(c->word));
	if (!word)
		return false;
	if (word != c->word)
		snprintf(c->word, sizeof(c->word), "%s", word);
	dot = strrchr(s->key, '.');
	c->file = s->file;
	c->line = s->line;
	c->key = dot ? dot + 1 : s->key;
	c->was = s->value;
	return patch_finds(c);
}

/* A line with one new value: quotes where the old value had them. */
static void put_value(struct emit_text *t, const char *line, size_t n, const struct patch_change *c)
{
	size_t from = 0, to = 0;
	char quote;

	if (!patch_locate(line, n, c, &from, &to)) {
		emit_put(t, "%.*s", (int)n, line);
		return;
	}
	quote = line[from] == '"' || line[from] == '\'' ? line[from] : 0;
	emit_put(t, "%.*s%s", (int)from, line, from == to && from && line[from - 1] == ':' ? " " : "");
	if (quote && patch_is_text(c->word))
		emit_put(t, "%c%s%c", quote, c->word, quote);
	else
		emit_put(t, "%s", c->word);
	emit_put(t, "%s%.*s", from == to && to < n ? "  " : "", (int)(n - to), line + to);
}

static bool changes(const struct patch_change *c, const char *file, size_t line)
{
	return !c->added && c->line == line && !strcmp(c->file, file);
}

/* The line with all its new values: a command may stand on one. */
static void put_changed(struct emit_text *t, const char *line, size_t n, const struct patch_change *c, size_t n_changes,
			const char *file, size_t number)
{
	struct emit_text now = {.text = NULL};

	emit_put(&now, "%.*s", (int)n, line);
	for (size_t i = 0; i < n_changes && now.text; i++) {
		struct emit_text next = {.text = NULL};

		if (!changes(&c[i], file, number))
			continue;
		put_value(&next, now.text, now.n, &c[i]);
		next.failed |= now.failed;
		emit_text_release(&now);
		now = next;
	}
	t->failed |= now.failed || !now.text;
	if (now.text)
		emit_put(t, "%s", now.text);
	emit_text_release(&now);
}

/* ---- one file ---- */

static size_t line_at(const char *text, size_t size, size_t at)
{
	const char *eol = memchr(text + at, '\n', size - at);

	return eol ? (size_t)(eol - text) + 1 : size;
}

static bool is_changed(const struct patch_change *c, size_t n, const char *file, size_t line)
{
	for (size_t i = 0; i < n; i++)
		if (changes(&c[i], file, line))
			return true;
	return false;
}

/* The lines that are new beside this one; the count of them. */
static size_t put_added(struct emit_text *t, const struct patch_change *c, size_t n, const char *file, size_t line,
			bool above)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		if (c[i].added && c[i].above == above && c[i].line == line && !strcmp(c[i].file, file)) {
			if (t)
				emit_put(t, "+%s\n", c[i].word);
			count++;
		}
	return count;
}

static void put_line(struct emit_text *t, const char *text, size_t len, const struct patch_change *c, size_t n,
		     const char *file, size_t line, bool eol)
{
	const bool changed = is_changed(c, n, file, line), added = put_added(NULL, c, n, file, line, false) != 0;
	/* a line below the last one ends that one too */
	const char *const missing = eol ? "" : "\\ No newline at end of file\n";

	if (!changed && (eol || !added)) {
		emit_put(t, " %.*s\n%s", (int)len, text, missing);
		return;
	}
	emit_put(t, "-%.*s\n%s+", (int)len, text, missing);
	if (changed)
		put_changed(t, text, len, c, n, file, line);
	else
		emit_put(t, "%.*s", (int)len, text);
	emit_put(t, "\n%s", added ? "" : missing);
}

/* Lines [first, last) as one hunk; *shift: by how much the new file is longer above it, and then below. */
static void hunk(struct emit_text *t, const char *text, size_t size, const struct patch_change *c, size_t n,
		 const char *file, size_t first, size_t last, size_t *shift)
{
	size_t at = 0, line = 1, more = 0;

	for (size_t i = first; i < last; i++)
		more += put_added(NULL, c, n, file, i, true) + put_added(NULL, c, n, file, i, false);
	emit_put(t, "@@ -%zu,%zu +%zu,%zu @@\n", first, last - first, first + *shift, last - first + more);
	*shift += more;
	for (; at < size && line < last; line++) {
		const size_t next = line_at(text, size, at);
		const bool eol = text[next - 1] == '\n';

		if (line >= first) {
			put_added(t, c, n, file, line, true);
			put_line(t, text + at, next - at - eol, c, n, file, line, eol);
			put_added(t, c, n, file, line, false);
		}
		at = next;
	}
}

static size_t lines_in(const char *text, size_t size)
{
	size_t n = 0;

	for (size_t at = 0; at < size; at = line_at(text, size, at))
		n++;
	return n;
}

static bool touched(const struct patch_change *c, size_t n, const char *file, size_t line)
{
	for (size_t i = 0; i < n; i++)
		if (c[i].line == line && !strcmp(c[i].file, file))
			return true;
	return false;
}

static void diff(struct emit_text *t, const char *text, size_t size, const struct patch_change *c, size_t n,
		 const char *file)
{
	const size_t lines = lines_in(text, size);
	size_t shift = 0;

	emit_put(t, "--- %s\n+++ %s\n", file, file);
	for (size_t line = 1; line <= lines; line++) {
		size_t first, last;

		if (!touched(c, n, file, line))
			continue;
		first = line > CONTEXT ? line - CONTEXT : 1;
		for (last = line; line <= lines && line <= last + 2 * CONTEXT; line++)
			if (touched(c, n, file, line))
				last = line;
		line = last;
		last = last + CONTEXT < lines ? last + CONTEXT : lines;
		hunk(t, text, size, c, n, file, first, last + 1, &shift);
		line = last;
	}
}

/* ---- */

static bool before(const struct patch_change *c, size_t n, const char *file)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(c[i].file, file))
			return true;
	return false;
}

enum oom_status oom_emit_patch(const struct oom_reading *reading, const struct oom_plan *from,
			       const struct oom_plan *to, struct oom_emitted *out, struct oom_error *err)
{
	struct patch_change *c = calloc(CHANGES, sizeof(*c));
	struct emit_text t = {.text = NULL};
	enum oom_status st = c ? OOM_OK : oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	const struct oom_option *unsaid[OOM_EMIT_UNSAID_MAX];
	size_t n = 0, n_unsaid = 0, together = 0;

	*out = (struct oom_emitted){.text = NULL};
	for (size_t i = 0; !st && oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char a[160], b[160];
		size_t lines;

		oom_plan_get(from, k, a, sizeof(a));
		oom_plan_get(to, k, b, sizeof(b));
		if (!strcmp(a, b) || emit_is_aside(k->name))
			continue;
		lines = n + PATCH_LINES > CHANGES ? 0 : spell(reading, k, b, &c[n]) ? 1 : patch_add(reading, k->name, b, &c[n]);
		n += lines;
		if (!lines && n_unsaid < OOM_EMIT_UNSAID_MAX)
			unsaid[n_unsaid++] = k;
	}
	if (!st && patch_together(reading, from, to, unsaid, n_unsaid, &c[n], CHANGES - n, &together, out))
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	n += st ? 0 : together;
	for (size_t i = 0; !st && i < n; i++) {
		char *text = NULL;
		size_t size = 0;

		if (before(c, i, c[i].file))
			continue;
		if (access(c[i].file, F_OK)) {          /* a command line */
			for (size_t k = i; k < n; k++)
				if (!strcmp(c[k].file, c[i].file) && c[k].added)
					emit_put(&t, "%s: + %s\n", c[k].file, c[k].word);
				else if (!strcmp(c[k].file, c[i].file))
					emit_put(&t, "%s: --%s %s -> %s\n", c[k].file, c[k].key, c[k].was, c[k].word);
			continue;
		}
		st = oom_read_text(&text, &size, c[i].file, DOC_MAX_BYTES, err);
		if (!st)
			diff(&t, text, size, c, n, c[i].file);
		free(text);
	}
	if (!st)
		emit_put(&t, "%s", "");
	if (!st && t.failed)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	free(c);
	if (st) {
		free(t.text);
		return st;
	}
	out->text = t.text;
	out->size = t.n;
	return OOM_OK;
}
