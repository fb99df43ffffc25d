/* The columns of a sweep's rows as text: CSV (RFC 4180) or JSON lines. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "sweep.h"
#include "results.h"

static bool is_real(int i)
{
	return i == SWEEP_SECONDS || (i >= SWEEP_LOW && i <= SWEEP_HOST);
}

_Static_assert(SWEEP_HOST - SWEEP_PRODUCTS + 1 == OOM_TIME_PART_COUNT, "a column for every part");

/* Of one sample, and of one optimizer step from step_s on. */
static double seconds(const struct sweep_cell *c, int i)
{
	const struct oom_step_time t = oom_step_time(c->answer, &c->eval, c->gpu);
	const double each = t.samples_per_s > 0 ? 1 / t.samples_per_s : 0;
	const double tokens = t.samples_per_s * oom_step_tokens(c->answer);

	switch (i) {
	case SWEEP_LOW: return each * t.low_s / t.total_s;
	case SWEEP_HIGH: return each * t.high_s / t.total_s;
	case SWEEP_MFU: return t.mfu;
	case SWEEP_MFU_LOW: return t.mfu * t.total_s / t.high_s;
	case SWEEP_MFU_HIGH: return fmin(1, t.mfu * t.total_s / t.low_s);
	case SWEEP_TOKENS: return tokens;
	case SWEEP_TOKENS_LOW: return tokens * t.total_s / t.high_s;
	case SWEEP_TOKENS_HIGH: return tokens * t.total_s / t.low_s;
	case SWEEP_STEP: return t.total_s;
	case SWEEP_SECONDS: return each;
	default: return t.part_s[i - SWEEP_PRODUCTS];
	}
}

static int64_t result(const struct sweep_cell *c, int i)
{
	const struct oom_eval *e = &c->eval;

	switch (i) {
	case SWEEP_FITS: return c->fits;
	case SWEEP_USED: return (int64_t)e->used_bytes;
	case SWEEP_ESTIMATED: return (int64_t)e->used_bytes_estimated;
	case SWEEP_CAPACITY: return (int64_t)c->capacity;
	case SWEEP_HEADROOM: return c->capacity ? (int64_t)(c->capacity - e->used_bytes) : 0;
	case SWEEP_PEAK: return (int64_t)e->overall_peak;
	case SWEEP_RESERVED: return (int64_t)e->reserved_bytes;
	case SWEEP_PARAMS: return (int64_t)e->total_params;
	case SWEEP_TRAINABLE: return (int64_t)e->trainable_params;
	case SWEEP_FLOOR: return (int64_t)e->floor_bytes;
	case SWEEP_DEPARTURES: return c->searched && c->found.found ? c->found.best.departures : 0;
	default:
		return i >= SWEEP_LOAD && i <= SWEEP_EVAL ? (int64_t)e->peak[i - SWEEP_LOAD] : 0;
	}
}

/* ---- conditions ---- */

static double number(const struct sweep_column *c, const struct sweep_cell *cell)
{
	struct oom_plan p;

	if (c->kind == COLUMN_RESULT)
		return !cell->ok	  ? NAN :
		       is_real(c->result) ? seconds(cell, c->result) :
					    (double)result(cell, c->result);
	if (!c->knob || c->knob->kind == OOM_OPTION_NAMES)
		return NAN;
	p = cell->plan;
	return c->knob->kind == OOM_OPTION_REAL ? *(double *)(void *)oom_plan_field(&p, c->knob) :
						(double)*oom_plan_field(&p, c->knob);
}

bool sweep_passes(const struct oom_sweep *s, const struct sweep_cell *cell)
{
	for (size_t i = 0; i < s->n_where; i++) {
		const struct sweep_where *w = &s->where[i];
		const double v = number(&w->column, cell);
		const bool is[] = {v<w->value, v <= w->value, v> w->value, v >= w->value,
				   v == w->value, v != w->value};

		if (!is[w->op])
			return false;
	}
	return true;
}

/* ---- text ---- */

static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930"
			    "313233343536373839404142434445464748495051525354"
			    "55565758596061626364656667686970717273747576777879808182838485"
			    "868788899091929394959697989900";

/* Eight digits, zeros before them. */
static inline void put_eight(char *out, uint32_t v)
{
	const uint32_t high = v / 10000, low = v % 10000;

	memcpy(out, pairs + high / 100 * 2, 2);
	memcpy(out + 2, pairs + high % 100 * 2, 2);
	memcpy(out + 4, pairs + low / 100 * 2, 2);
	memcpy(out + 6, pairs + low % 100 * 2, 2);
}

/* Less than 10^8, without zeros; eight bytes are written. */
static inline char *put_few(char *out, uint32_t v)
{
	static const uint32_t tens[] = {0, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
	/* 1233 / 4096 is log10(2) */
	const unsigned least = (unsigned)(32 - __builtin_clz(v | 1)) * 1233 >> 12,
		       digits = least + (v >= tens[least]);
	char all[16];

	put_eight(all, v);
	memcpy(out, all + 8 - digits, 8);
	return out + digits;
}

char *sweep_put_int(char *out, int64_t v)
{
	const uint64_t part = 100000000;
	uint64_t u = v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v;

	if (v < 0)
		*out++ = '-';
	if (u < part)
		return put_few(out, (uint32_t)u);
	if (u / part < part) {
		out = put_few(out, (uint32_t)(u / part));
	} else {
		out = put_few(out, (uint32_t)(u / part / part));
		put_eight(out, (uint32_t)(u / part % part));
		out += 8;
	}
	put_eight(out, (uint32_t)(u % part));
	return out + 8;
}

/* A word of our own tables: nothing in it needs quoting in CSV. */
static char *put_plain(char *out, const char *word, bool jsonl)
{
	const size_t n = strlen(word);

	if (jsonl)
		*out++ = '"';
	memcpy(out, word, n);
	out += n;
	if (jsonl)
		*out++ = '"';
	return out;
}

/* Text as it is, where nothing in it has to be quoted and it is not too long; else NULL. */
static char *put_as_is(char *out, const char *text)
{
	static const bool asks[256] = {['"'] = true, [','] = true};
	size_t n = 0;

	for (; (unsigned char)text[n] >= 0x20 && !asks[(unsigned char)text[n]] && n < 300; n++)
		out[n] = text[n];
	return text[n] ? NULL : out + n;
}

char *sweep_put_text(char *out, const char *text, bool jsonl)
{
	char *end = jsonl ? NULL : put_as_is(out, text);
	bool quote;
	size_t n = 0;

	if (end)
		return end;
	quote = jsonl || strpbrk(text, ",\"\r\n") != NULL;
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

static char *put_nothing(char *out, bool jsonl)
{
	return jsonl ? (memcpy(out, "null", 4), out + 4) : out;
}

static char *put_real(char *out, double v, bool jsonl)
{
	return isfinite(v) ? out + snprintf(out, 32, "%.9g", v) : put_nothing(out, jsonl);
}

static char *put_word(char *out, const struct sweep_cell *c, int i, bool jsonl)
{
	char buf[300];

	if (!c->searched || !c->found.found)
		return put_nothing(out, jsonl);
	return sweep_put_text(out, i == SWEEP_CLASS ? oom_class_str(c->found.best.cls) :
			     oom_plan_options(c->asked, c->answer, buf, sizeof(buf)), jsonl);
}

static char *put_result(char *out, const struct sweep_cell *cell, int i, bool jsonl)
{
	if (i == SWEEP_ERROR)
		return cell->ok && !jsonl ? out :
					    sweep_put_text(out, cell->ok ? "" : cell->err.text, jsonl);
	if (!cell->ok ||
	    (!cell->capacity && (i == SWEEP_FITS || i == SWEEP_CAPACITY || i == SWEEP_HEADROOM)) ||
	    (i == SWEEP_DEPARTURES && !(cell->searched && cell->found.found)))
		return put_nothing(out, jsonl);
	if (i == SWEEP_PHASE)
		return put_plain(out, oom_phase_column(cell->eval.peak_phase), jsonl);
	if (i == SWEEP_CLASS || i == SWEEP_CHANGES)
		return put_word(out, cell, i, jsonl);
	if (i == SWEEP_BINDS)
		return put_plain(out, oom_bound_str(oom_step_time(cell->answer, &cell->eval, cell->gpu).binds),
				 jsonl);
	return is_real(i) ? put_real(out, seconds(cell, i), jsonl) : sweep_put_int(out, result(cell, i));
}

static char *put_knob(char *out, const struct oom_plan *plan, const struct oom_option *k, bool jsonl)
{
	struct oom_plan p;
	char buf[OOM_VALUE_SIZE];
	int64_t v;

	memcpy(&v, (const char *)plan + k->offset, sizeof(v));
	if (k->kind == OOM_OPTION_COUNT)
		return sweep_put_int(out, v);
	if (k->kind == OOM_OPTION_CHOICE)
		return put_plain(out, k->choice((size_t)v)->name, jsonl);
	p = *plan;
	return sweep_put_text(out, oom_plan_get(&p, k, buf, sizeof(buf)), jsonl);
}

char *sweep_put_value(const struct sweep_cell *cell, const struct sweep_column *c, bool jsonl, char *out)
{
	switch (c->kind) {
	case COLUMN_KNOB:
		return put_knob(out, c->answer ? cell->answer : &cell->plan, c->knob, jsonl);
	case COLUMN_GPU:
		return c->plain && cell->gpu ? put_plain(out, cell->gpu->name, jsonl) :
					       sweep_put_text(out, cell->gpu ? cell->gpu->name : "", jsonl);
	case COLUMN_MODEL: return sweep_put_text(out, cell->named ? cell->named->word : "", jsonl);
	case COLUMN_RESULT: return put_result(out, cell, c->result, jsonl);
	}
	return out;
}

int64_t sweep_key_of(const struct sweep_cell *c, int i)
{
	return i == SWEEP_PHASE ? (int64_t)c->eval.peak_phase : result(c, i);
}

static bool is_number(int i, size_t *offset)
{
	static const struct {
		int result;
		size_t offset;
	} rows[] = {
		{SWEEP_USED, offsetof(struct oom_eval, used_bytes)},
		{SWEEP_ESTIMATED, offsetof(struct oom_eval, used_bytes_estimated)},
		{SWEEP_PEAK, offsetof(struct oom_eval, overall_peak)},
		{SWEEP_RESERVED, offsetof(struct oom_eval, reserved_bytes)},
		{SWEEP_PARAMS, offsetof(struct oom_eval, total_params)},
		{SWEEP_TRAINABLE, offsetof(struct oom_eval, trainable_params)},
		{SWEEP_FLOOR, offsetof(struct oom_eval, floor_bytes)},
	};

	*offset = offsetof(struct oom_eval, peak) + (size_t)(i - SWEEP_LOAD) * sizeof(uint64_t);
	if (i >= SWEEP_LOAD && i <= SWEEP_EVAL)
		return true;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
		if (rows[k].result == i) {
			*offset = rows[k].offset;
			return true;
		}
	return false;
}

/* Nothing in the names of the cards is to be quoted, in CSV or in JSON. */
static bool are_plain(const struct oom_sweep *s)
{
	for (size_t i = 0; i < s->n_cards; i++)
		for (const char *p = s->card[i].name; *p; p++)
			if ((unsigned char)*p < 0x20 || *p == ',' || *p == '"' || *p == '\\')
				return false;
	return true;
}

void sweep_column_text(const struct oom_sweep *s, struct sweep_column *c)
{
	const int i = c->result;

	c->plain = c->kind == COLUMN_GPU && are_plain(s);
	c->text = c->kind != COLUMN_RESULT ? (c->answer ? TEXT_ANEW : TEXT_STANDS) :
		  i == SWEEP_ERROR || i == SWEEP_CAPACITY ? TEXT_STANDS :
		  is_number(i, &c->number) ? TEXT_OF_NUMBER :
		  is_real(i) || i == SWEEP_CLASS || i == SWEEP_CHANGES || i == SWEEP_BINDS ||
				  i == SWEEP_DEPARTURES ?
					     TEXT_ANEW :
					     TEXT_OF_KEY;
}
