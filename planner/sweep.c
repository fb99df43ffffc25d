/* The grid of a sweep: axes, conditions, columns; and how a cell's number becomes a plan. */
#include "sweep.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 10000000 };

struct oom_sweep *oom_sweep_new(const struct oom_plan *base)
{
	struct oom_sweep *s = calloc(1, sizeof(*s));

	if (s)
		s->base = *base;
	return s;
}

static void release_axis(struct sweep_axis *a)
{
	for (size_t i = 0; i < a->n; i++) {
		if (a->word)
			free(a->word[i]);
		if (a->keys)
			oom_keys_release(&a->keys[i]);
	}
	free(a->word);
	free(a->count);
	free(a->real);
	free(a->gpu);
	free(a->keys);
	free(a->refused);
}

void oom_sweep_free(struct oom_sweep *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_axes; i++)
		release_axis(&s->axis[i]);
	oom_gpus_release(&s->gpus);
	free(s);
}

/* ---- values ---- */

static bool grow(void **p, size_t size, size_t cap)
{
	void *q = realloc(*p, cap * size);

	if (q)
		*p = q;
	return q != NULL;
}

/* Room for one more value. */
static enum oom_status room(struct sweep_axis *a, struct oom_error *err)
{
	const size_t cap = a->cap ? a->cap * 2 : 16;

	if (a->n < a->cap)
		return OOM_OK;
	if (a->n >= MAX_VALUES)
		return oom_error_set(err, OOM_ERR_INVALID, "axis %s: more than %d values", a->name, MAX_VALUES);
	if (!grow((void **)&a->word, sizeof(*a->word), cap) || !grow((void **)&a->count, sizeof(*a->count), cap) ||
	    !grow((void **)&a->real, sizeof(*a->real), cap) || (a->kind == AXIS_GPU && !grow((void **)&a->gpu, sizeof(*a->gpu), cap)) ||
	    (a->kind == AXIS_MODEL && (!grow((void **)&a->keys, sizeof(*a->keys), cap) || !grow((void **)&a->refused, sizeof(*a->refused), cap))))
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	a->cap = cap;
	return OOM_OK;
}

static enum oom_status push(struct sweep_axis *a, const char *word, int64_t count, double real, struct oom_error *err)
{
	const enum oom_status st = room(a, err);

	if (st)
		return st;
	a->word[a->n] = NULL;
	if (word && !(a->word[a->n] = strdup(word)))
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	a->count[a->n] = count;
	a->real[a->n++] = real;
	return OOM_OK;
}

/* One word of a knob: checked and read by the knob itself. */
static enum oom_status knob_word(struct sweep_axis *a, const char *word, struct oom_error *err)
{
	struct oom_plan p = oom_plan_default();
	const enum oom_status st = oom_plan_set(&p, a->knob, word, err);
	char text[140];

	if (st)
		return st;
	oom_plan_get(&p, a->knob, text, sizeof(text));
	return push(a, text, a->knob->kind == OOM_KNOB_REAL || a->knob->kind == OOM_KNOB_TEXT ? 0 : *oom_plan_field(&p, a->knob),
		    a->knob->kind == OOM_KNOB_REAL ? *(double *)(void *)oom_plan_field(&p, a->knob) : 0, err);
}

/* "1..64", "1..64+2", "1..64x2": counts from the first to the last. */
static enum oom_status range(struct sweep_axis *a, const char *word, const char *dots, struct oom_error *err)
{
	struct oom_plan p = oom_plan_default();
	char first[40], last[40];
	const char *op = dots + 2 + strcspn(dots + 2, "x+");
	int64_t lo, hi, step = 1;
	enum oom_status st;

	snprintf(first, sizeof(first), "%.*s", (int)(dots - word < 39 ? dots - word : 39), word);
	snprintf(last, sizeof(last), "%.*s", (int)(op - dots - 2 < 39 ? op - dots - 2 : 39), dots + 2);
	if (a->knob->kind != OOM_KNOB_COUNT)
		return oom_error_set(err, OOM_ERR_INVALID, "axis %s: \"%s\" is a range, but the knob is no count", a->name, word);
	st = oom_plan_set(&p, a->knob, first, err);
	lo = *oom_plan_field(&p, a->knob);
	if (!st)
		st = oom_plan_set(&p, a->knob, last, err);
	hi = *oom_plan_field(&p, a->knob);
	if (st)
		return st;
	if (*op) {
		char *end;

		step = strtoll(op + 1, &end, 10);
		if (end == op + 1 || *end || step < (*op == 'x' ? 2 : 1) || (*op == 'x' && lo < 1))
			return oom_error_set(err, OOM_ERR_INVALID, "axis %s: \"%s\": a step is +N or xN (N > 1, from 1 on)", a->name, word);
	}
	if (lo > hi)
		return oom_error_set(err, OOM_ERR_INVALID, "axis %s: \"%s\" runs backwards", a->name, word);
	if (*op != 'x' && (hi - lo) / step >= MAX_VALUES)
		return oom_error_set(err, OOM_ERR_INVALID, "axis %s: \"%s\" has more than %d values", a->name, word, MAX_VALUES);
	for (int64_t v = lo; !st && v <= hi; v = *op == 'x' ? (v > hi / step ? hi + 1 : v * step) : v + step)
		st = push(a, NULL, v, 0, err);
	return st;
}

static enum oom_status gpu_word(struct oom_sweep *s, struct sweep_axis *a, const char *word, struct oom_error *err)
{
	struct oom_gpu g;
	enum oom_status st = s->gpus.n ? OOM_OK : oom_gpus_load(&s->gpus, err);

	if (!st && !strcmp(word, "@all")) {
		for (size_t i = 0; !st && i < s->gpus.n; i++) {
			st = push(a, s->gpus.items[i].name, 0, 0, err);
			if (!st)
				a->gpu[a->n - 1] = s->gpus.items[i];
		}
		return st;
	}
	if (!st)
		st = oom_gpu_find(&s->gpus, word, &g, NULL, err);
	if (!st)
		st = push(a, g.name, 0, 0, err);
	if (!st)
		a->gpu[a->n - 1] = g;
	return st;
}

/* A model that cannot be read keeps its rows, with the reason. */
static enum oom_status model_word(struct sweep_axis *a, const char *word, struct oom_error *err)
{
	const enum oom_status st = push(a, word, 0, 0, err);

	if (st)
		return st;
	memset(&a->keys[a->n - 1], 0, sizeof(a->keys[0]));
	a->refused[a->n - 1].text[0] = 0;
	oom_keys_read_model(&a->keys[a->n - 1], word, &a->refused[a->n - 1]);
	return OOM_OK;
}

static enum oom_status one_word(struct oom_sweep *s, struct sweep_axis *a, const char *word, struct oom_error *err)
{
	const char *dots = strstr(word, "..");
	enum oom_status st = OOM_OK;

	if (a->kind == AXIS_GPU)
		return gpu_word(s, a, word, err);
	if (a->kind == AXIS_MODEL)
		return model_word(a, word, err);
	if (dots)
		return range(a, word, dots, err);
	if (strcmp(word, "@all"))
		return knob_word(a, word, err);
	if (a->knob->kind == OOM_KNOB_FLAG) {
		st = knob_word(a, "false", err);
		return st ? st : knob_word(a, "true", err);
	}
	if (a->knob->kind != OOM_KNOB_CHOICE)
		return oom_error_set(err, OOM_ERR_INVALID, "axis %s: @all is for choices and for gpu", a->name);
	for (size_t i = 0; !st && a->knob->choice(i); i++)
		st = knob_word(a, a->knob->choice(i)->name, err);
	return st;
}

/* ---- axes ---- */

static enum oom_status unknown_axis(const char *name, struct oom_error *err)
{
	const char *words[128] = {"gpu", "model"}, *near;
	size_t n = 2;

	for (size_t i = 0; oom_knob_at(i) && n < 127; i++)
		words[n++] = oom_knob_at(i)->name;
	near = oom_nearest(name, words);
	return oom_error_set(err, OOM_ERR_INVALID, "no axis \"%s\"%s%s%s; axes are gpu, model and the knobs (oomplan list knobs)", name,
			     near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

enum oom_status oom_sweep_axis(struct oom_sweep *s, const char *text, struct oom_error *err)
{
	struct sweep_axis *a = &s->axis[s->n_axes];
	const char *eq = strchr(text, '=');
	enum oom_status st = OOM_OK;
	char *copy, *rest, *word;

	if (!eq || eq == text || eq - text >= (ptrdiff_t)sizeof(a->name))
		return oom_error_set(err, OOM_ERR_INVALID, "axis \"%s\": expected NAME=VALUES", text);
	if (s->n_axes == SWEEP_AXES)
		return oom_error_set(err, OOM_ERR_INVALID, "more than %d axes", SWEEP_AXES);
	memset(a, 0, sizeof(*a));
	snprintf(a->name, sizeof(a->name), "%.*s", (int)(eq - text), text);
	a->kind = !strcmp(a->name, "gpu") ? AXIS_GPU : !strcmp(a->name, "model") ? AXIS_MODEL : AXIS_KNOB;
	a->knob = a->kind == AXIS_KNOB ? oom_knob_find(a->name) : NULL;
	if (a->kind == AXIS_KNOB && !a->knob)
		return unknown_axis(a->name, err);
	if (a->knob)
		snprintf(a->name, sizeof(a->name), "%s", a->knob->column);
	for (size_t i = 0; i < s->n_axes; i++)
		if (!strcmp(s->axis[i].name, a->name))
			return oom_error_set(err, OOM_ERR_INVALID, "axis %s is given twice", a->name);
	copy = rest = strdup(eq + 1);
	if (!copy)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	while (!st && (word = strsep(&rest, ",")))
		if (*word)
			st = one_word(s, a, word, err);
	free(copy);
	if (!st && !a->n)
		st = oom_error_set(err, OOM_ERR_INVALID, "axis %s has no values", a->name);
	if (st)
		release_axis(a);
	else
		s->n_axes++;
	return st;
}

static enum oom_status unknown_column(const char *name, struct oom_error *err)
{
	const char *words[192], *near;
	size_t n = 0;

	for (size_t i = 0; oom_sweep_column_at(i); i++)
		words[n++] = oom_sweep_column_at(i);
	for (size_t i = 0; oom_knob_at(i) && n < 190; i++)
		words[n++] = oom_knob_at(i)->column;
	words[n] = NULL;
	near = oom_nearest(name, words);
	return oom_error_set(err, OOM_ERR_INVALID, "no column \"%s\"%s%s%s", name, near ? " (did you mean \"" : "", near ? near : "",
			     near ? "\"?)" : "");
}

enum oom_status oom_sweep_where(struct oom_sweep *s, const char *text, struct oom_error *err)
{
	static const struct {
		const char *text;
		int op;
	} ops[] = {{"<=", 1}, {">=", 3}, {"!=", 5}, {"==", 4}, {"<", 0}, {">", 2}, {"=", 4}};
	struct sweep_where *w = &s->where[s->n_where];
	char name[60];
	const char *at = NULL, *value;
	size_t k = 0;
	char *end;

	if (s->n_where == SWEEP_WHERE)
		return oom_error_set(err, OOM_ERR_INVALID, "more than %d conditions", SWEEP_WHERE);
	if (!strcmp(text, "fits") || !strcmp(text, "!fits")) {
		sweep_find_column(s, "fits", &w->column);
		w->op = 4;
		w->value = *text != '!';
		s->n_where++;
		return OOM_OK;
	}
	for (; k < sizeof(ops) / sizeof(ops[0]); k++)
		if ((at = strstr(text, ops[k].text)))
			break;
	if (!at || at - text >= (ptrdiff_t)sizeof(name))
		return oom_error_set(err, OOM_ERR_INVALID, "condition \"%s\": expected fits, !fits or COLUMN<NUMBER", text);
	snprintf(name, sizeof(name), "%.*s", (int)(at - text), text);
	if (!sweep_find_column(s, name, &w->column))
		return unknown_column(name, err);
	value = at + strlen(ops[k].text);
	w->value = strtod(value, &end);
	if (end == value || *end)
		return oom_error_set(err, OOM_ERR_INVALID, "condition \"%s\": \"%s\" is no number", text, value);
	w->op = ops[k].op;
	s->n_where++;
	return OOM_OK;
}

enum oom_status oom_sweep_columns(struct oom_sweep *s, const char *text, struct oom_error *err)
{
	static const char *const usual[] = {"fits", "used_bytes", "capacity_bytes", "headroom_bytes", "overall_peak_bytes", "peak_phase",
					    "reserved_bytes", "total_params", "trainable_params", "error"};
	enum oom_status st = OOM_OK;
	char *copy, *rest, *word;

	s->n_columns = 0;
	if (!text || !*text) {
		for (size_t i = 0; i < s->n_axes; i++)
			sweep_find_column(s, s->axis[i].name, &s->column[s->n_columns++]);
		for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
			sweep_find_column(s, usual[i], &s->column[s->n_columns++]);
		return OOM_OK;
	}
	copy = rest = strdup(text);
	if (!copy)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	while (!st && (word = strsep(&rest, ","))) {
		if (!*word)
			continue;
		if (s->n_columns == SWEEP_COLUMNS)
			st = oom_error_set(err, OOM_ERR_INVALID, "more than %d columns", SWEEP_COLUMNS);
		else if (!sweep_find_column(s, word, &s->column[s->n_columns++]))
			st = unknown_column(word, err);
	}
	free(copy);
	return st;
}

uint64_t oom_sweep_cells(const struct oom_sweep *s)
{
	uint64_t n = s->n_axes ? 1 : 0;

	for (size_t i = 0; i < s->n_axes; i++)
		if (__builtin_mul_overflow(n, (uint64_t)s->axis[i].n, &n))
			return UINT64_MAX;
	return n;
}
