/* Aligned columns. */
#include "table.h"

#include <stdlib.h>
#include <string.h>

#include "term.h"

enum { GAP = 2, NARROWEST = 20 };

void oom_table_init(struct oom_table *t, const char *const *columns)
{
	memset(t, 0, sizeof(*t));
	for (; columns[t->n_columns] && t->n_columns < OOM_TABLE_COLUMNS; t->n_columns++) {
		const char *name = columns[t->n_columns];

		t->right[t->n_columns] = *name == '>';
		t->head[t->n_columns] = name + (*name == '>');
	}
}

void oom_table_cell(struct oom_table *t, const char *text)
{
	const size_t len = strlen(text) + 1;

	if (t->room - t->used < len) {
		const size_t room = (t->used + len) * 2;
		char *grown = t->failed ? NULL : realloc(t->text, room);

		if (!grown) {
			t->failed = true;
			return;
		}
		t->text = grown;
		t->room = room;
	}
	for (size_t i = 0; i < len; i++)
		t->text[t->used + i] = text[i] == '\t' || text[i] == '\n' ? ' ' : text[i];
	oom_scrub(t->text + t->used);
	t->used += len;
	t->n_cells++;
}

static void pad(FILE *out, size_t n)
{
	while (n--)
		putc(' ', out);
}

static void line(const struct oom_table *t, FILE *out, const char *const *cells,
		 const size_t *widths, int width)
{
	size_t column = 0, last = t->n_columns;

	while (last > 0 && !*cells[last - 1])
		last--;         /* no blanks at the end of a line */
	for (size_t c = 0; c < last; c++) {
		const size_t w = oom_display_width(cells[c]);
		const bool wraps = c + 1 == t->n_columns && !t->right[c] && width &&
				   (int)column + NARROWEST <= width;

		if (t->right[c])
			pad(out, widths[c] - w);
		if (wraps) {
			oom_wrap(out, cells[c], (int)column, (int)column, width);
			return;
		}
		fputs(cells[c], out);
		if (c + 1 < last)
			pad(out, (t->right[c] ? 0 : widths[c] - w) + GAP);
		column += widths[c] + GAP;
	}
	putc('\n', out);
}

bool oom_table_print(const struct oom_table *t, FILE *out, int width)
{
	size_t widths[OOM_TABLE_COLUMNS] = {0};
	const char *cells[OOM_TABLE_COLUMNS], *at = t->text;
	bool has_head = false;

	if (t->failed)
		return false;
	for (size_t c = 0; c < t->n_columns; c++) {
		widths[c] = oom_display_width(t->head[c]);
		has_head |= widths[c] > 0;
	}
	for (size_t i = 0; i < t->n_cells; i++, at += strlen(at) + 1) {
		const size_t w = oom_display_width(at);

		if (w > widths[i % t->n_columns])
			widths[i % t->n_columns] = w;
	}
	if (has_head)
		line(t, out, t->head, widths, width);
	at = t->text;
	for (size_t i = 0; i + t->n_columns <= t->n_cells; i += t->n_columns) {
		for (size_t c = 0; c < t->n_columns; c++, at += strlen(at) + 1)
			cells[c] = at;
		line(t, out, cells, widths, width);
	}
	return true;
}

void oom_table_release(struct oom_table *t)
{
	free(t->text);
	memset(t, 0, sizeof(*t));
}
