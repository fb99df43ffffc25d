/* Columns of a sweep: which there are, their values, and rows as CSV (RFC 4180) or JSON lines. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sweep.h"

enum { FITS, USED, CAPACITY, HEADROOM, PEAK, PHASE, RESERVED, PARAMS, TRAINABLE, LOAD, FWD1, BWD1, OPT1, FWD2, BWD2, OPT2, EVAL,
       FLOOR, RUNGS, ERROR, RESULTS };
static const char *const results[] = {
	"fits", "used_bytes", "capacity_bytes", "headroom_bytes", "overall_peak_bytes", "peak_phase", "reserved_bytes", "total_params",
	"trainable_params", "after_load_bytes", "fwd1_peak_bytes", "bwd1_peak_bytes", "opt1_peak_bytes", "fwd2_peak_bytes",
	"bwd2_peak_bytes", "opt2_peak_bytes", "eval_fwd_peak_bytes", "floor_bytes", "rungs_taken", "error", NULL};

const char *oom_sweep_column_at(size_t i)
{
	return i < RESULTS ? results[i] : NULL;
}

bool sweep_find_column(const struct oom_sweep *s, const char *name, struct sweep_column *out)
{
	const struct oom_knob *k = oom_knob_find(name);

	for (size_t i = 0; i < s->n_axes; i++)
		if (!strcmp(s->axis[i].name, name) || (s->axis[i].knob && s->axis[i].knob == k)) {
			*out = (struct sweep_column){COLUMN_AXIS, (int)i, s->axis[i].knob, s->axis[i].name};
			return true;
		}
	for (int i = 0; results[i]; i++)
		if (!strcmp(results[i], name)) {
			*out = (struct sweep_column){COLUMN_RESULT, i, NULL, results[i]};
			return true;
		}
	if (k)
		*out = (struct sweep_column){COLUMN_KNOB, 0, k, k->column};
	return k != NULL;
}

static int64_t result(const struct sweep_cell *c, int i)
{
	const struct oom_eval *e = &c->eval;

	switch (i) {
	case FITS: return c->fits;
	case USED: return (int64_t)e->used_bytes;
	case CAPACITY: return c->gpu ? (int64_t)c->gpu->capacity_bytes : 0;
	case HEADROOM: return c->gpu ? (int64_t)(c->gpu->capacity_bytes - e->used_bytes) : 0;
	case PEAK: return (int64_t)e->overall_peak;
	case RESERVED: return (int64_t)e->reserved_bytes;
	case PARAMS: return (int64_t)e->total_params;
	case TRAINABLE: return (int64_t)e->trainable_params;
	case FLOOR: return (int64_t)e->floor_bytes;
	case RUNGS: return c->rungs;
	default:
		return i >= LOAD && i <= EVAL ? (int64_t)e->peak[i - LOAD] : 0;
	}
}

double sweep_number(const struct oom_sweep *s, const struct sweep_column *c, const struct sweep_cell *cell)
{
	struct oom_plan p = cell->plan;

	(void)s;
	if (c->kind == COLUMN_RESULT)
		return cell->ok ? (double)result(cell, c->index) : NAN;
	if (!c->knob || c->knob->kind == OOM_KNOB_TEXT)
		return NAN;
	return c->knob->kind == OOM_KNOB_REAL ? *(double *)(void *)oom_plan_field(&p, c->knob) : (double)*oom_plan_field(&p, c->knob);
}

bool sweep_passes(const struct oom_sweep *s, const struct sweep_cell *cell)
{
	for (size_t i = 0; i < s->n_where; i++) {
		const struct sweep_where *w = &s->where[i];
		const double v = sweep_number(s, &w->column, cell);
		const bool is[] = {v < w->value, v <= w->value, v > w->value, v >= w->value, v == w->value, v != w->value};

		if (!is[w->op])
			return false;
	}
	return true;
}

/* Two digits at a time, from the right. */
static char *put_int(char *out, int64_t v)
{
	char tmp[24];
	uint64_t u = v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v;
	int n = 0;

	if (v < 0)
		*out++ = '-';
	do
		tmp[n++] = (char)('0' + u % 10);
	while (u /= 10);
	while (n)
		*out++ = tmp[--n];
	return out;
}

static char *put_text(char *out, const char *text, bool jsonl)
{
	const bool quote = jsonl || strpbrk(text, ",\"\r\n") != NULL;
	size_t n = 0;

	if (quote)
		*out++ = '"';
	for (; *text && n < 300; text++, n++) {
		if (*text == '"')
			*out++ = jsonl ? '\\' : '"';
		else if (jsonl && *text == '\\')
			*out++ = '\\';
		*out++ = (unsigned char)*text < 0x20 ? ' ' : *text;
	}
	if (quote)
		*out++ = '"';
	return out;
}

static char *put_result(char *out, const struct sweep_cell *cell, int i, bool jsonl)
{
	if (i == ERROR)
		return put_text(out, cell->ok ? "" : cell->err.text, jsonl);
	if (!cell->ok)
		return jsonl ? (memcpy(out, "null", 4), out + 4) : out;
	if (i == PHASE)
		return put_text(out, oom_phase_column(cell->eval.peak_phase), jsonl);
	if (i == FITS && !cell->gpu)
		return jsonl ? (memcpy(out, "null", 4), out + 4) : out;
	return put_int(out, result(cell, i));
}

static char *put_column(const struct oom_sweep *s, const struct sweep_cell *cell, const struct sweep_column *c, bool jsonl, char *out)
{
	char buf[140];

	switch (c->kind) {
	case COLUMN_AXIS: {
		const struct sweep_axis *a = &s->axis[c->index];

		if (a->kind == AXIS_KNOB && a->knob->kind == OOM_KNOB_COUNT)
			return put_int(out, a->count[cell->at[c->index]]);
		return put_text(out, a->word[cell->at[c->index]], jsonl);
	}
	case COLUMN_KNOB:
		return put_text(out, oom_plan_get(&cell->plan, c->knob, buf, sizeof(buf)), jsonl);
	case COLUMN_RESULT:
		return put_result(out, cell, c->index, jsonl);
	}
	return out;
}

size_t sweep_row_room(const struct oom_sweep *s)
{
	return s->n_columns * 700 + 16;
}

char *sweep_put(const struct oom_sweep *s, const struct sweep_cell *cell, bool jsonl, char *out)
{
	if (jsonl)
		*out++ = '{';
	for (size_t i = 0; i < s->n_columns; i++) {
		if (i)
			*out++ = ',';
		if (jsonl) {
			out = put_text(out, s->column[i].name, true);
			*out++ = ':';
		}
		out = put_column(s, cell, &s->column[i], jsonl, out);
	}
	if (jsonl)
		*out++ = '}';
	*out++ = '\n';
	return out;
}
