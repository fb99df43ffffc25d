/* The grid of a sweep: axes, conditions, columns. */
#include "sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/units.h"

struct oom_sweep *oom_sweep_new(const struct oom_plan *base)
{
	struct oom_sweep *s = calloc(1, sizeof(*s));

	if (s)
		s->base = *base;
	return s;
}

static void release_axis(struct sweep_axis *a)
{
	for (size_t i = 0; i < a->n_vars; i++) {
		free(a->var[i].values);
		free(a->var[i].point);
	}
	free(a->var);
}

enum oom_status sweep_make_models(struct oom_sweep *s)
{
	enum oom_status st = OOM_OK;

	for (size_t i = 0; i < s->n_models && st != OOM_ERR_MEMORY; i++) {
		struct sweep_model *m = &s->model[i];

		if (!m->made && !*m->refused.text)
			st = oom_model_new(&m->made, &m->keys, &m->refused);
	}
	return st == OOM_ERR_MEMORY ? st : OOM_OK;
}

void oom_sweep_free(struct oom_sweep *s)
{
	if (!s)
		return;
	sweep_drop_models(s);
	for (size_t i = 0; i < s->n_axes; i++)
		release_axis(&s->axis[i]);
	for (size_t i = 0; i < s->n_models; i++) {
		oom_keys_release(&s->model[i].keys);
		free(s->model[i].word);
	}
	for (size_t i = 0; i < s->n_texts; i++)
		free(s->text[i]);
	free(s->model);
	free(s->text);
	free(s->card);
	oom_gpus_release(&s->gpus);
	free(s);
}

enum oom_status oom_sweep_cards(struct oom_sweep *s, const char *path, struct oom_error *err)
{
	const enum oom_status st = s->gpus.n ? OOM_OK : oom_gpus_load(&s->gpus, err);

	return st ? st : oom_gpus_read(&s->gpus, path, err);
}

void oom_sweep_capacity(struct oom_sweep *s, uint64_t bytes)
{
	s->capacity = bytes;
}

bool sweep_room(void *array, size_t size, size_t n)
{
	void **p = array, *q;

	if (n & (n - 1) || (n && n < 8))        /* between powers of two there is room */
		return true;
	q = realloc(*p, (n ? n * 2 : 8) * size);
	if (q)
		*p = q;
	return q != NULL;
}

/* ---- an axis ---- */

static enum oom_status no_memory(struct oom_error *err)
{
	return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
}

static enum oom_status push(struct sweep_axis *a, int64_t start, int64_t step, uint64_t n,
			    struct oom_error *err)
{
	struct sweep_var *v = a->var;

	if (!sweep_room(&v->values, sizeof(*v->values), v->n_values))
		return no_memory(err);
	v->values[v->n_values++] = (struct sweep_values){a->n, start, step};
	a->n += n;
	return OOM_OK;
}

static enum oom_status push_word(struct oom_sweep *s, struct sweep_axis *a, const char *word,
				 struct oom_error *err)
{
	int64_t value;
	const enum oom_status st = sweep_value(s, a->var, word, &value, err);

	return st ? st : push(a, value, 0, 1, err);
}

/* "1..64", "1..64+2", "1..64x2": counts from the first to the last. */
static enum oom_status range(struct sweep_axis *a, const char *word, const char *dots,
			     struct oom_error *err)
{
	const struct sweep_var *v = a->var;
	struct oom_value lowest, highest;
	char first[40], last[40];
	const char *op = dots + 2 + strcspn(dots + 2, "x+");
	int64_t lo, hi, step = 1;
	enum oom_status st;

	snprintf(first, sizeof(first), "%.*s", (int)(dots - word < 39 ? dots - word : 39), word);
	snprintf(last, sizeof(last), "%.*s", (int)(op - dots - 2 < 39 ? op - dots - 2 : 39),
		 dots + 2);
	if (v->kind != SWEEP_KNOB || v->knob->kind != OOM_OPTION_COUNT)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "axis %s: \"%s\" is a range, but the knob is no count",
				     v->name, word);
	st = oom_option_read(v->knob, v->knob->name, first, &lowest, err);
	if (!st)
		st = oom_option_read(v->knob, v->knob->name, last, &highest, err);
	if (st)
		return st;
	lo = lowest.whole;
	hi = highest.whole;
	if (*op && (oom_parse_count(op + 1, &step, NULL) || step < (*op == 'x' ? 2 : 1) ||
		    (*op == 'x' && lo < 1)))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "axis %s: \"%s\": a step is +N or xN (N > 1, from 1 on)",
				     v->name, word);
	if (lo > hi)
		return oom_error_set(err, OOM_ERR_INVALID, "axis %s: \"%s\" runs backwards",
				     v->name, word);
	if (*op != 'x')
		return push(a, lo, step, (uint64_t)((hi - lo) / step) + 1, err);
	for (; !st && lo <= hi; lo = lo > hi / step ? hi + 1 : lo * step)
		st = push(a, lo, 0, 1, err);
	return st;
}

static enum oom_status all_cards(struct oom_sweep *s, struct sweep_axis *a, struct oom_error *err)
{
	enum oom_status st = s->gpus.n ? OOM_OK : oom_gpus_load(&s->gpus, err);

	for (size_t i = 0; !st && i < s->gpus.n; i++) {
		int64_t value;

		st = sweep_card(s, &s->gpus.items[i], &value, err);
		if (!st)
			st = push(a, value, 0, 1, err);
	}
	return st;
}

static enum oom_status one_word(struct oom_sweep *s, struct sweep_axis *a, const char *word,
				struct oom_error *err)
{
	const struct sweep_var *v = a->var;
	const char *dots = v->kind == SWEEP_KNOB ? strstr(word, "..") : NULL;
	enum oom_status st = OOM_OK;

	if (dots)
		return range(a, word, dots, err);
	if (strcmp(word, "@all"))
		return push_word(s, a, word, err);
	if (v->kind == SWEEP_GPU)
		return all_cards(s, a, err);
	if (v->kind == SWEEP_KNOB && v->knob->kind == OOM_OPTION_FLAG) {
		st = push_word(s, a, "false", err);
		return st ? st : push_word(s, a, "true", err);
	}
	if (v->kind != SWEEP_KNOB || v->knob->kind != OOM_OPTION_CHOICE)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "axis %s: @all is for choices and for gpu", v->name);
	for (size_t i = 0; !st && v->knob->choice(i); i++)
		st = push_word(s, a, v->knob->choice(i)->name, err);
	return st;
}

static enum oom_status unknown_axis(const char *name, struct oom_error *err)
{
	const char *words[256] = {"gpu", "model"}, *near;
	size_t n = 2;

	for (size_t i = 0; oom_knob_at(i) && n < 255; i++)
		words[n++] = oom_knob_at(i)->name;
	words[n] = NULL;
	near = oom_nearest(name, words);
	return oom_error_set(err, OOM_ERR_INVALID,
			     "no axis \"%s\"%s%s%s; axes are gpu, model and the knobs (oomplan "
			     "list knobs)",
			     name, near ? " (did you mean \"" : "", near ? near : "",
			     near ? "\"?)" : "");
}

bool oom_sweep_has(const struct oom_sweep *s, const char *name)
{
	const struct oom_option *k = oom_knob_find(name);

	for (size_t i = 0; i < s->n_axes; i++)
		for (size_t j = 0; j < s->axis[i].n_vars; j++)
			if (!strcmp(s->axis[i].var[j].name, name) ||
			    (k && s->axis[i].var[j].knob == k))
				return true;
	return false;
}

enum oom_status sweep_var_named(const struct oom_sweep *s, const char *name, struct sweep_var *out,
				struct oom_error *err)
{
	memset(out, 0, sizeof(*out));
	out->kind = !strcmp(name, "gpu")   ? SWEEP_GPU :
		    !strcmp(name, "model") ? SWEEP_MODEL :
					     SWEEP_KNOB;
	out->knob = out->kind == SWEEP_KNOB ? oom_knob_find(name) : NULL;
	if (out->kind == SWEEP_KNOB && !out->knob)
		return unknown_axis(name, err);
	out->plain = out->knob && sweep_knob_is_plain(out->knob);
	out->near = out->knob && oom_knob_near(out->knob);
	snprintf(out->name, sizeof(out->name), "%s", out->knob ? out->knob->column : name);
	if (oom_sweep_has(s, out->name))
		return oom_error_set(err, OOM_ERR_INVALID, "axis %s is given twice", out->name);
	return OOM_OK;
}

/* What divides the values of an axis: commas, or + where it is no part of a value.  A name of a
 * model or a card may hold one, lists of modules and the steps of ranges do. */
static const char *between(const struct sweep_var *v, const char *rest)
{
	const bool range = rest && strstr(rest, "..");

	if (v->kind != SWEEP_KNOB || v->knob->kind == OOM_OPTION_NAMES ||
	    v->knob->kind == OOM_OPTION_REAL || range)
		return ",";
	return ",+";
}

enum oom_status oom_sweep_axis(struct oom_sweep *s, const char *text, struct oom_error *err)
{
	struct sweep_axis *a = &s->axis[s->n_axes];
	const char *eq = strchr(text, '=');
	struct sweep_var var;
	enum oom_status st;
	char name[40], *copy, *rest, *word;

	if (!eq || eq == text || eq - text >= (ptrdiff_t)sizeof(name))
		return oom_error_set(err, OOM_ERR_INVALID, "axis \"%s\": expected NAME=VALUES",
				     text);
	if (s->n_axes == SWEEP_AXES)
		return oom_error_set(err, OOM_ERR_INVALID, "more than %d axes", SWEEP_AXES);
	snprintf(name, sizeof(name), "%.*s", (int)(eq - text), text);
	st = sweep_var_named(s, name, &var, err);
	if (st)
		return st;
	*a = (struct sweep_axis){.var = malloc(sizeof(var)), .n_vars = 1};
	copy = rest = strdup(eq + 1);
	if (!copy || !a->var) {
		free(copy);
		free(a->var);
		return no_memory(err);
	}
	*a->var = var;
	while (!st && (word = strsep(&rest, between(&var, rest))))
		if (*word)
			st = one_word(s, a, word, err);
	free(copy);
	if (!st && !a->n)
		st = oom_error_set(err, OOM_ERR_INVALID, "axis %s has no values", var.name);
	if (st)
		release_axis(a);
	else
		s->n_axes++;
	return st;
}

uint64_t oom_sweep_cells(const struct oom_sweep *s)
{
	uint64_t n = s->n_axes ? 1 : 0;

	for (size_t i = 0; i < s->n_axes; i++)
		if (__builtin_mul_overflow(n, s->axis[i].n, &n))
			return UINT64_MAX;
	return n;
}

/* ---- what two runs must have in common to be one table ---- */

static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
	const unsigned char *c = bytes;

	for (size_t i = 0; i < n; i++)          /* FNV-1a, 64 bits */
		h = (h ^ c[i]) * 0x100000001b3;
	return h;
}

uint64_t oom_sweep_fingerprint(const struct oom_sweep *s, const struct oom_sweep_options *o)
{
	const uint64_t how[] = {o->jsonl,
				o->plan_each,
				o->plan_each ? o->objective : 0,
				o->plan_each ? o->allow : 0,
				o->shard,
				o->shards,
				s->n_axes,
				s->n_columns,
				s->n_where};
	uint64_t h = mix(mix(0xcbf29ce484222325, how, sizeof(how)), &s->base, sizeof(s->base));

	if (s->capacity)
		h = mix(h, &s->capacity, sizeof(s->capacity));
	for (size_t i = 0; i < s->n_axes; i++)
		for (size_t j = 0; j < s->axis[i].n_vars; j++) {
			const struct sweep_var *v = &s->axis[i].var[j];

			h = mix(h, v->name, strlen(v->name) + 1);
			for (size_t k = 0; v->values && k < v->n_values; k++)
				h = mix(h, &v->values[k], sizeof(v->values[k]));
			if (v->point)
				h = mix(h, v->point, s->axis[i].n * sizeof(v->point[0]));
			h = mix(h, &s->axis[i].n, sizeof(s->axis[i].n));
		}
	for (size_t i = 0; i < s->n_cards; i++)
		h = mix(mix(h, s->card[i].name, strlen(s->card[i].name) + 1),
			&s->card[i].capacity_bytes, sizeof(uint64_t));
	for (size_t i = 0; i < s->n_models; i++)
		h = mix(h, s->model[i].word, strlen(s->model[i].word) + 1);
	for (size_t i = 0; i < s->n_texts; i++)
		h = mix(h, s->text[i], strlen(s->text[i]) + 1);
	for (size_t i = 0; i < s->n_columns; i++)
		h = mix(h, s->column[i].name, strlen(s->column[i].name) + 1);
	for (size_t i = 0; i < s->n_where; i++) {
		h = mix(h, s->where[i].column.name, strlen(s->where[i].column.name) + 1);
		h = mix(mix(h, &s->where[i].op, sizeof(int)), &s->where[i].value, sizeof(double));
	}
	return h;
}
