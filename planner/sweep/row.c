/* A row of a sweep, kept as text from one cell to the next: of most columns nothing has moved since, and what has
 * is set in its place. */
#include <string.h>

#include "sweep.h"

/* A column's text at most: 300 characters with what escapes them. */
enum { VALUE_SIZE = 800 };

size_t sweep_row_room(const struct oom_sweep *s)
{
	return s->n_columns * VALUE_SIZE + 64;
}

/* Columns by how their text is come by: those that need no look at the evaluation first. */
void sweep_row_init(struct sweep_row *r, const struct oom_sweep *s)
{
	size_t n = 0;

	for (int kind = 0; kind < TEXT_KINDS; kind++) {
		for (size_t i = 0; i < s->n_columns; i++)
			if ((int)s->column[i].text == kind)
				r->field[n++] = (struct sweep_field){.column = (uint16_t)i,
								     .depends = s->column[i].depends,
								     .axis = (int16_t)s->column[i].axis,
								     .number = s->column[i].number};
		r->end[kind] = n;
	}
}

/* What separates a column from the one before, and its name. */
static char *put_separator(const struct oom_sweep *s, size_t i, bool jsonl, char *out)
{
	if (i)
		*out++ = ',';
	if (jsonl) {
		out = sweep_put_text(out, s->column[i].name, true);
		*out++ = ':';
	}
	return out;
}

/* What the field's text was made of, where that is one number. */
static int64_t key_now(const struct sweep_worker *w, const struct sweep_field *f, enum sweep_text kind)
{
	int64_t key = 0;

	if (kind == TEXT_OF_NUMBER)
		memcpy(&key, (const char *)&w->cell.eval + f->number, sizeof(key));
	else if (kind == TEXT_OF_KEY)
		key = sweep_key_of(&w->cell, w->s->column[f->column].result);
	return key;
}

/* All of it anew at out; returns its end. */
static char *make(struct sweep_worker *w, bool jsonl, char *out)
{
	struct sweep_row *r = &w->row;
	char *const row = out;

	if (jsonl)
		*out++ = '{';
	for (size_t i = 0; i < w->s->n_columns; i++) {
		out = put_separator(w->s, i, jsonl, out);
		r->at[i].begin = (uint32_t)(out - row);
		out = sweep_put_value(&w->cell, &w->s->column[i], jsonl, out);
		r->at[i].n = (uint32_t)(out - row) - r->at[i].begin;
	}
	if (jsonl)
		*out++ = '}';
	*out++ = '\n';
	r->n = (size_t)(out - row);
	for (size_t k = r->end[TEXT_STANDS]; k < r->end[TEXT_OF_KEY]; k++)
		r->field[k].key = key_now(w, &r->field[k], k < r->end[TEXT_OF_NUMBER] ? TEXT_OF_NUMBER : TEXT_OF_KEY);
	return out;
}

/* Moves what stands behind column i, which is n characters long from now on. */
static void stretch(struct sweep_row *r, char *row, size_t i, size_t n, size_t columns)
{
	const size_t end = r->at[i].begin + r->at[i].n;
	const uint32_t more = (uint32_t)n - r->at[i].n;         /* modulo 2^32 where it is less */

	memmove(row + r->at[i].begin + n, row + end, r->n - end);
	r->at[i].n = (uint32_t)n;
	r->n = r->n - end + r->at[i].begin + n;
	for (size_t j = i + 1; j < columns; j++)
		r->at[j].begin += more;
}

/* Eight to sixteen bytes as two words that overlap: numbers mostly are so long. */
static inline void copy(char *to, const char *from, size_t n)
{
	char first[8], last[8];

	if (n < 8 || n > 16) {
		memcpy(to, from, n);
		return;
	}
	memcpy(first, from, 8);
	memcpy(last, from + n - 8, 8);
	memcpy(to, first, 8);
	memcpy(to + n - 8, last, 8);
}

static inline void set(struct sweep_worker *w, char *row, size_t i, const char *text, size_t n)
{
	struct sweep_row *r = &w->row;

	if (n != r->at[i].n)
		stretch(r, row, i, n, w->s->n_columns);
	copy(row + r->at[i].begin, text, n);
}

static void set_value(struct sweep_worker *w, char *row, size_t i, bool jsonl)
{
	char text[VALUE_SIZE];
	const char *const end = sweep_put_value(&w->cell, &w->s->column[i], jsonl, text);

	set(w, row, i, text, (size_t)(end - text));
}

/* The text of a value of its axis, which comes again soon where the axis runs fast. */
static void set_standing(struct sweep_worker *w, char *row, struct sweep_field *f, bool jsonl)
{
	const uint64_t at = f->axis < 0 ? 0 : w->cell.at[f->axis];
	const size_t k = at % (sizeof(f->kept) / sizeof(f->kept[0]));

	if (f->axis >= 0 && f->kept[k].n && f->kept[k].at == at) {
		set(w, row, f->column, f->kept[k].text, f->kept[k].n);
		return;
	}
	set_value(w, row, f->column, jsonl);
	f->kept[k].at = at;
	f->kept[k].n = w->row.at[f->column].n <= SWEEP_KEPT ? w->row.at[f->column].n : 0;
	memcpy(f->kept[k].text, row + w->row.at[f->column].begin, f->kept[k].n);
}

static void set_number(struct sweep_worker *w, char *row, size_t i, int64_t number)
{
	char text[40];
	const char *const end = sweep_put_int(text, number);

	set(w, row, i, text, (size_t)(end - text));
}

/* What has changed since the last row, which was priced as this one is. */
static void mend(struct sweep_worker *w, bool jsonl, char *row)
{
	struct sweep_row *r = &w->row;
	size_t k = 0;

	for (; k < r->end[TEXT_STANDS]; k++)
		if (w->stale & r->field[k].depends)
			set_standing(w, row, &r->field[k], jsonl);
	for (; k < r->end[TEXT_OF_NUMBER]; k++) {
		const int64_t key = key_now(w, &r->field[k], TEXT_OF_NUMBER);

		if (r->field[k].key != key)
			set_number(w, row, r->field[k].column, key);
		r->field[k].key = key;
	}
	for (; k < r->end[TEXT_OF_KEY]; k++) {
		const int64_t key = key_now(w, &r->field[k], TEXT_OF_KEY);

		if (r->field[k].key != key)
			set_value(w, row, r->field[k].column, jsonl);
		r->field[k].key = key;
	}
	for (; k < r->end[TEXT_ANEW]; k++)
		set_value(w, row, r->field[k].column, jsonl);
}

char *sweep_put(struct sweep_worker *w, bool jsonl, char *out)
{
	struct sweep_row *r = &w->row;

	/* rows without a price are few, and nothing of theirs is kept */
	if (w->stale & SWEEP_SEEK || !r->priced || !w->cell.ok) {
		out = make(w, jsonl, out);
	} else {
		memcpy(out, out - r->n, r->n);
		mend(w, jsonl, out);
		out += r->n;
	}
	r->priced = w->cell.ok;
	w->stale = 0;
	return out;
}
