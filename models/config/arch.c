/* Reading a config's keys: aliases, defaults of the model type, ranges, messages with line and
 * key. */
#include "arch.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void oom_read_fail(struct oom_reader *r, const char *fmt, ...)
{
	va_list ap;

	if (r->status)
		return;
	r->status = OOM_ERR_INVALID;
	va_start(ap, fmt);
	vsnprintf(r->err.text, sizeof(r->err.text), fmt, ap);
	va_end(ap);
}

static const struct oom_key *lookup(const struct oom_keys *keys, const char *prefix,
				    const char *key)
{
	char path[160];

	if (!keys || snprintf(path, sizeof(path), "%s%s", prefix, key) >= (int)sizeof(path))
		return NULL;
	return oom_keys_find(keys, path);
}

/* The key itself, else any older name that the type's aliases lead to it. */
const struct oom_key *oom_read_explicit(struct oom_reader *r, const char *key)
{
	const struct oom_key *k = lookup(r->keys, r->prefix, key);
	const char *word;

	for (size_t i = 0; !k && r->loose && (word = oom_read_other_word(key, i)); i++)
		k = lookup(r->keys, r->prefix, word);
	if (k || !r->defaults)
		return k;
	for (size_t i = 0; i < r->defaults->n; i++) {
		const struct oom_key *d = &r->defaults->items[i];

		if (!strncmp(d->path, "aliases.", 8) && d->type == OOM_KEY_STRING &&
		    !strcmp(d->string, key)) {
			k = lookup(r->keys, r->prefix, d->path + 8);
			if (k)
				return k;
		}
		/* attribute_map may point the other way: canonical name stored under this one */
		if (!strncmp(d->path, "aliases.", 8) && d->type == OOM_KEY_STRING &&
		    !strcmp(d->path + 8, key)) {
			k = lookup(r->keys, r->prefix, d->string);
			if (k)
				return k;
		}
	}
	return NULL;
}

const struct oom_key *oom_read_key(struct oom_reader *r, const char *key)
{
	const struct oom_key *k = oom_read_explicit(r, key);
	const char *word;

	if (k)
		return k;
	k = r->over ? lookup(r->over, r->over_prefix, key) : NULL;
	if (k)
		return k;
	k = lookup(r->defaults, "defaults.", key);
	for (size_t i = 0; !k && r->loose && (word = oom_read_other_word(key, i)); i++)
		k = lookup(r->defaults, "defaults.", word);
	if (k || !r->defaults)
		return k;
	for (size_t i = 0; i < r->defaults->n; i++) {
		const struct oom_key *d = &r->defaults->items[i];

		if (strncmp(d->path, "aliases.", 8) || d->type != OOM_KEY_STRING)
			continue;
		if (!strcmp(d->path + 8, key))
			k = lookup(r->defaults, "defaults.", d->string);
		else if (!strcmp(d->string, key))
			k = lookup(r->defaults, "defaults.", d->path + 8);
		if (k)
			return k;
	}
	return NULL;
}

static bool in_file(const struct oom_reader *r, const struct oom_key *k)
{
	return r->keys && k >= r->keys->items && k < r->keys->items + r->keys->n;
}

/* A share that is 0 is common, a count is not. */
static void remember(struct oom_reader *r, const struct oom_key *k, bool share)
{
	if (!in_file(r, k) || k->type != OOM_KEY_NUMBER)
		return;
	if (!r->largest || k->number > r->largest->number)
		r->largest = k;
	if (k->number < 0 || (k->number == 0 && !share))
		r->nothing = k;
}

/* The key as the file spells it; of a default, the name that was asked for. */
static const char *spelled(const struct oom_reader *r, const struct oom_key *k, const char *key,
			   char buf[160])
{
	if (in_file(r, k))
		return k->path;
	snprintf(buf, 160, "%s%s", r->prefix, key);
	return buf;
}

static uint64_t count(struct oom_reader *r, const struct oom_key *k, const char *key, uint64_t min)
{
	const char *file = r->keys ? r->keys->file : "config";
	char name[160];

	remember(r, k, false);
	if (k->type != OOM_KEY_NUMBER) {
		oom_read_fail(r, "%s:%u: \"%s\" must be a number (model type %s)", file, k->line,
			      spelled(r, k, key, name), r->family);
		return min ? min : 1;
	}
	if (!(k->number >= (double)min && k->number <= 1099511627776.0) ||
	    k->number != (double)(uint64_t)k->number) {
		oom_read_fail(r,
			      "%s:%u: \"%s\" is %.17g; expected a whole number from %llu to 2^40 "
			      "(model type %s)",
			      file, k->line, spelled(r, k, key, name), k->number,
			      (unsigned long long)min, r->family);
		return min ? min : 1;
	}
	return (uint64_t)k->number;
}

uint64_t oom_read_count(struct oom_reader *r, const char *key, uint64_t min)
{
	const struct oom_key *k = oom_read_key(r, key);

	if (k && k->type == OOM_KEY_NULL && in_file(r, k)) {
		oom_read_fail(r, "%s:%u: \"%s\" is null; model type %s needs a number", r->keys->file,
			      k->line, k->path, r->family);
		return min ? min : 1;
	}
	if (!k || k->type == OOM_KEY_NULL) {
		oom_read_fail(r, "%s: key \"%s%s\" is missing; model type %s needs it",
			      r->keys ? r->keys->file : "config", r->prefix, key, r->family);
		return min ? min : 1;
	}
	return count(r, k, key, min);
}

uint64_t oom_read_count_or(struct oom_reader *r, const char *key, uint64_t def)
{
	const struct oom_key *k = oom_read_key(r, key);

	return !k || k->type == OOM_KEY_NULL ? def : count(r, k, key, 0);
}

bool oom_read_bool(struct oom_reader *r, const char *key, bool def)
{
	const struct oom_key *k = oom_read_key(r, key);

	if (!k || k->type == OOM_KEY_NULL)
		return def;
	if (k->type != OOM_KEY_BOOL && k->type != OOM_KEY_NUMBER) {
		oom_read_fail(r, "%s:%u: \"%s%s\" must be true or false",
			      r->keys ? r->keys->file : "config", k->line, r->prefix, key);
		return def;
	}
	return k->number != 0;
}

double oom_read_real(struct oom_reader *r, const char *key, double def)
{
	const struct oom_key *k = oom_read_key(r, key);
	char name[160];

	if (!k || k->type == OOM_KEY_NULL)
		return def;
	if (k->type != OOM_KEY_NUMBER) {
		oom_read_fail(r, "%s:%u: \"%s\" must be a number",
			      r->keys ? r->keys->file : "config", k->line,
			      spelled(r, k, key, name));
		return def;
	}
	remember(r, k, true);
	if (!(fabs(k->number) <= 1099511627776.0)) {
		oom_read_fail(r, "%s:%u: \"%s\" is %g; expected a number up to 2^40",
			      r->keys ? r->keys->file : "config", k->line,
			      spelled(r, k, key, name), k->number);
		return def;
	}
	return k->number;
}

const char *oom_read_string(struct oom_reader *r, const char *key, const char *def)
{
	const struct oom_key *k = oom_read_key(r, key);

	return k && k->type == OOM_KEY_STRING ? k->string : def;
}

/* The i-th item of a list; NULL: there is none. */
static const struct oom_key *item_of(struct oom_reader *r, const char *key, uint32_t i)
{
	const struct oom_key *k = oom_read_key(r, key), *e;
	char path[200];

	if (!k || k->type != OOM_KEY_LIST || i >= k->n_items)
		return NULL;
	snprintf(path, sizeof(path), "%s.%u", k->path, i);
	e = oom_keys_find(r->keys, path);
	if (!e && r->over)
		e = oom_keys_find(r->over, path);
	if (!e && r->defaults)
		e = oom_keys_find(r->defaults, path);
	return e;
}

const char *oom_read_item(struct oom_reader *r, const char *key, uint32_t i)
{
	const struct oom_key *e = item_of(r, key, i);

	return e && e->type == OOM_KEY_STRING ? e->string : NULL;
}

double oom_read_item_real(struct oom_reader *r, const char *key, uint32_t i, double def)
{
	const struct oom_key *e = item_of(r, key, i);

	if (e)
		remember(r, e, true);
	return e && (e->type == OOM_KEY_NUMBER || e->type == OOM_KEY_BOOL) ? e->number : def;
}

const char *oom_read_where(const struct oom_reader *r, uint64_t layers)
{
	static const char *const depths[] = {"layer", "block", "depth"};

	/* another size may have the same value */
	for (size_t w = 0; w < sizeof(depths) / sizeof(depths[0]); w++)
		for (size_t i = 0; r->keys && i < r->keys->n; i++) {
			const struct oom_key *k = &r->keys->items[i];

			if (k->type == OOM_KEY_NUMBER && k->number == (double)layers &&
			    strstr(k->path, depths[w]))
				return k->path;
		}
	return "num_hidden_layers";
}

uint64_t oom_read_labels(struct oom_reader *r)
{
	const struct oom_key *k = lookup(r->keys, r->prefix, "id2label");

	if (k && k->type == OOM_KEY_OBJECT && k->n_items)
		return k->n_items;
	k = lookup(r->keys, r->prefix, "num_labels");
	if (k && k->type == OOM_KEY_NUMBER)
		return count(r, k, "num_labels", 0);
	return oom_read_count_or(r, "num_labels", 2);
}

/* transformers/activations.py ACT2FN */
enum oom_act oom_read_act(struct oom_reader *r, const char *key, const char *def)
{
	static const struct {
		const char *name;
		enum oom_act act;
	} acts[] = {
		{"silu", OOM_ACT_SILU}, {"swish", OOM_ACT_SILU}, {"gelu", OOM_ACT_GELU}, {"gelu_new", OOM_ACT_GELU_NEW},
		{"gelu_fast", OOM_ACT_GELU_FAST}, {"gelu_pytorch_tanh", OOM_ACT_GELU_TANH}, {"quick_gelu", OOM_ACT_QUICK_GELU},
		{"gelu_python", OOM_ACT_GELU_PYTHON}, {"gelu_accurate", OOM_ACT_GELU_NEW}, {"gelu_python_tanh", OOM_ACT_GELU_NEW},
		{"gelu_10", OOM_ACT_GELU_CLIPPED}, {"relu", OOM_ACT_RELU}, {"relu2", OOM_ACT_RELU2}, {"relu6", OOM_ACT_RELU6},
		{"tanh", OOM_ACT_TANH}, {"sigmoid", OOM_ACT_SIGMOID}, {"hardswish", OOM_ACT_HARDSWISH},
		{"hard_swish", OOM_ACT_HARDSWISH}, {"mish", OOM_ACT_MISH}, {"leaky_relu", OOM_ACT_LEAKY_RELU},
		{"linear", OOM_ACT_NONE}, {"laplace", OOM_ACT_LAPLACE}, {"gelu_pytorch", OOM_ACT_GELU_TANH},
	};
	const struct oom_key *k = oom_read_key(r, key);
	const char *word = oom_read_string(r, key, def);

	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
		if (word && !strcmp(acts[i].name, word))
			return acts[i].act;
	oom_read_fail(r,
		      "%s:%u: \"%s%s\" is \"%s\", an activation this version does not know (gelu, "
		      "gelu_new, relu, silu, ...)",
		      r->keys ? r->keys->file : "config", k ? k->line : 0, r->prefix, key, word ? word : "null");
	return OOM_ACT_GELU;
}
