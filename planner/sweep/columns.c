/* Columns of a sweep by name, and the conditions rows must meet. */
#include <stdlib.h>
#include <string.h>

#include "oomplan/units.h"
#include "results.h"
#include "sweep.h"

#define NAME(id, name) name,
static const char *const results[] = {OOM_SWEEP_RESULTS(NAME) NULL};
#undef NAME

const char *oom_sweep_column_at(size_t i)
{
	return i < SWEEP_RESULTS ? results[i] : NULL;
}

bool sweep_find_column(const struct oom_sweep *s, const char *name, struct sweep_column *out)
{
	const struct oom_option *k = oom_knob_find(name);
	const bool gpu = !strcmp(name, "gpu"), model = !strcmp(name, "model");

	if ((gpu || model) && oom_sweep_has(s, name)) {
		*out = (struct sweep_column){.kind = gpu ? COLUMN_GPU : COLUMN_MODEL, .name = gpu ? "gpu" : "model"};
		return true;
	}
	for (int i = 0; results[i]; i++)
		if (!strcmp(results[i], name)) {
			*out = (struct sweep_column){.kind = COLUMN_RESULT, .result = i, .name = results[i]};
			return true;
		}
	if (k)
		*out = (struct sweep_column){.kind = COLUMN_KNOB, .knob = k, .name = k->column};
	return k != NULL;
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
	return oom_error_set(err, OOM_ERR_INVALID,
			     "no column \"%s\"%s%s%s (oomplan list columns, oomplan list knobs)",
			     name, near ? " (did you mean \"" : "", near ? near : "",
			     near ? "\"?)" : "");
}

static enum oom_status add_column(struct oom_sweep *s, const char *name, struct oom_error *err)
{
	if (s->n_columns == SWEEP_COLUMNS)
		return oom_error_set(err, OOM_ERR_INVALID, "more than %d columns", SWEEP_COLUMNS);
	if (!sweep_find_column(s, name, &s->column[s->n_columns]))
		return unknown_column(name, err);
	s->n_columns++;
	return OOM_OK;
}

enum oom_status oom_sweep_columns(struct oom_sweep *s, const char *text, struct oom_error *err)
{
	static const char *const usual[] = {
		"fits",		"used_bytes_estimated", "capacity_bytes",   "overall_peak_bytes",
		"peak_phase",	"total_params",		"trainable_params", "error"};
	enum oom_status st = OOM_OK;
	char *copy, *rest, *word;

	s->n_columns = 0;
	if (!text || !*text) {
		for (size_t i = 0; !st && i < s->n_axes; i++)
			for (size_t j = 0; !st && j < s->axis[i].n_vars; j++)
				st = add_column(s, s->axis[i].var[j].name, err);
		for (size_t i = 0; !st && i < sizeof(usual) / sizeof(usual[0]); i++)
			st = add_column(s, usual[i], err);
		return st;
	}
	copy = rest = strdup(text);
	if (!copy)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	while (!st && (word = strsep(&rest, ",")))
		if (*word)
			st = add_column(s, word, err);
	free(copy);
	if (!st && !s->n_columns)
		st = oom_error_set(err, OOM_ERR_INVALID, "columns \"%.100s\": none is named", text);
	return st;
}

static enum sweep_need need_of(const struct sweep_column *c)
{
	if (c->kind != COLUMN_RESULT)
		return SWEEP_PRICE;
	switch (c->result) {
	case SWEEP_FITS: return SWEEP_VERDICT;
	case SWEEP_USED: case SWEEP_HEADROOM: case SWEEP_RESERVED: return SWEEP_BYTES;
	default: return SWEEP_PRICE;
	}
}

static void need(struct oom_sweep *s, const struct sweep_column *c)
{
	const enum sweep_need n = need_of(c);

	s->need = n > s->need ? n : s->need;
	s->evaluations |= c->kind == COLUMN_RESULT && c->result == SWEEP_EVAL;
}

/* A knob that is not plain may follow from others, too. */
static int axis_of(const struct sweep_column *c)
{
	const uint32_t axes = c->depends & ~SWEEP_SEEK;

	if (!axes || axes & (axes - 1) || (c->knob && !sweep_knob_is_plain(c->knob)))
		return -1;
	return __builtin_ctz(axes);
}

void sweep_resolve(struct oom_sweep *s, bool plan_each)
{
	s->need = SWEEP_PRICE;
	s->evaluations = false;
	for (size_t w = 0; w < s->n_where; w++)
		need(s, &s->where[w].column);
	for (size_t c = 0; c < s->n_columns; c++) {
		struct sweep_column *col = &s->column[c];
		const bool card_too = col->knob && !strcmp(col->knob->name, "compute-capability");
		const bool of_card = col->kind == COLUMN_GPU ||
				     (col->kind == COLUMN_RESULT && col->result == SWEEP_CAPACITY);
		bool own = false;

		need(s, col);
		col->depends = col->kind != COLUMN_RESULT || of_card ? SWEEP_SEEK : 0;
		/* where nobody says it, of the model and the engine */
		if (col->knob && (col->knob->offset == offsetof(struct oom_plan, precision) ||
				  col->knob->offset == offsetof(struct oom_plan, zero_stage)))
			col->depends = UINT32_MAX;
		for (size_t i = 0; col->depends && i < s->n_axes; i++)
			for (size_t j = 0; j < s->axis[i].n_vars; j++) {
				const struct sweep_var *v = &s->axis[i].var[j];
				const bool mine = of_card ? v->kind == SWEEP_GPU :
						  col->kind == COLUMN_MODEL ?
									    v->kind == SWEEP_MODEL :
									    v->knob == col->knob;

				own |= mine;
				if (mine || (card_too && v->kind == SWEEP_GPU))
					col->depends |= 1u << i;
			}
		col->axis = axis_of(col);
		col->answer = plan_each && col->kind == COLUMN_KNOB && !own;
		sweep_column_text(s, col);
	}
}

/* ---- conditions ---- */

/* A count, a real number or a size. */
static enum oom_status condition_number(const char *text, double *v)
{
	uint64_t bytes;
	int64_t n;

	if (!oom_parse_count(text, &n, NULL)) {
		*v = (double)n;
		return OOM_OK;
	}
	if (!oom_parse_real(text, v, NULL))
		return OOM_OK;
	if (oom_parse_bytes(text, &bytes, NULL))
		return OOM_ERR_INVALID;
	*v = (double)bytes;
	return OOM_OK;
}

/* The number a condition compares with: of a choice or a flag, a word will do. */
static enum oom_status condition_value(struct sweep_where *w, const char *value, const char *text,
				       struct oom_error *err)
{
	const struct oom_option *k = w->column.knob;
	struct oom_value v;

	if (k && (k->kind == OOM_OPTION_CHOICE || k->kind == OOM_OPTION_FLAG)) {
		const enum oom_status st = oom_option_read(k, k->name, value, &v, err);

		w->value = (double)v.whole;
		return st;
	}
	if (condition_number(value, &w->value))
		return oom_error_set(err, OOM_ERR_INVALID, "condition \"%s\": \"%s\" is no number",
				     text, value);
	return OOM_OK;
}

enum oom_status oom_sweep_where(struct oom_sweep *s, const char *text, struct oom_error *err)
{
	static const struct {
		const char *text;
		int op;
	} ops[] = {{"<=", 1}, {">=", 3}, {"!=", 5}, {"==", 4}, {"<", 0}, {">", 2}, {"=", 4}};
	struct sweep_where *w = &s->where[s->n_where];
	char name[60];
	const char *at = NULL;
	size_t k = 0;
	enum oom_status st;

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
		return oom_error_set(err, OOM_ERR_INVALID,
				     "condition \"%s\": expected fits, !fits or COLUMN<NUMBER",
				     text);
	snprintf(name, sizeof(name), "%.*s", (int)(at - text), text);
	if (!sweep_find_column(s, name, &w->column))
		return unknown_column(name, err);
	st = condition_value(w, at + strlen(ops[k].text), text, err);
	w->op = ops[k].op;
	s->n_where += !st;
	return st;
}
