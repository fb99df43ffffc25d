/* Which of a config's keys may be behind a refusal that does not name one: sizes beyond all models, sizes that are
 * nothing, older names; else the one that is furthest from what the model type has by itself. */
#include "arch.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct oom_key *in_file(const struct oom_reader *r, const char *key)
{
	char path[160];

	if (!r->keys || snprintf(path, sizeof(path), "%s%s", r->prefix, key) >= (int)sizeof(path))
		return NULL;
	return oom_keys_find(r->keys, path);
}

/* No size of a published model is as large: vocabularies reach 2^20, positions 10 million. */
#define BEYOND_ALL 16777216.0

/* Whether a word stands in a sentence by itself. */
static bool mentions(const char *text, const char *word)
{
	const size_t len = strlen(word);

	for (const char *at = text; (at = strstr(at, word)) != NULL; at += len) {
		const bool before = at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_'),
			   after = isalnum((unsigned char)at[len]) || at[len] == '_';

		if (!before && !after)
			return true;
	}
	return false;
}

static void append(struct oom_error *err, const char *fmt, const char *a, const char *b)
{
	const size_t used = strlen(err->text);

	if (used + strlen(fmt) + strlen(a) + strlen(b) < sizeof(err->text))
		snprintf(err->text + used, sizeof(err->text) - used, fmt, a, b);
}

static void name_suspect(const struct oom_reader *r, enum oom_suspects whom, struct oom_error *err)
{
	const struct oom_key *k = r->largest && r->largest->number > BEYOND_ALL ? r->largest : NULL;
	char value[40];

	if (whom >= OOM_SUSPECT_NOTHING && !k)
		k = r->nothing;
	if (!k || mentions(err->text, k->path))
		return;
	snprintf(value, sizeof(value), "%.17g", k->number);
	append(err, "; \"%s\" in the config is %s", k->path, value);
}

static const struct oom_key *default_of(const struct oom_reader *r, const char *name, const char *behind)
{
	char path[200];

	return snprintf(path, sizeof(path), "defaults.%s%s", name, behind) < (int)sizeof(path) ?
		       oom_keys_find(r->defaults, path) : NULL;
}

/* The type's own value of a key of the file, under its name or the one that it leads to, of a list the first; NULL: the
 * type has no such key. */
static const struct oom_key *own_value(const struct oom_reader *r, const char *key)
{
	const size_t prefix = strlen(r->prefix);
	const char *name = strncmp(key, r->prefix, prefix) ? key : key + prefix;
	const struct oom_key *d = default_of(r, name, ""), *to;
	char alias[200];

	if (!d && snprintf(alias, sizeof(alias), "aliases.%s", name) < (int)sizeof(alias) &&
	    (to = oom_keys_find(r->defaults, alias)) && to->type == OOM_KEY_STRING) {
		name = to->string;
		d = default_of(r, name, "");
	}
	return d && d->type == OOM_KEY_LIST ? default_of(r, name, ".0") : d;
}

/* How far it is from the type's own value, in powers of two.  What one of them has no number for comes after all numbers
 * that differ. */
static double distance(const struct oom_key *k, const struct oom_key *own)
{
	const bool number = k->type == OOM_KEY_NUMBER, has = own->type == OOM_KEY_NUMBER;

	if (number && has)
		return fabs(log2(fabs(k->number) + 1) - log2(fabs(own->number) + 1));
	return (number && own->type == OOM_KEY_NULL) || (has && k->type == OOM_KEY_NULL) ? 1e-9 : 0;
}

static void write_value(char buf[40], const struct oom_key *k)
{
	if (k->type == OOM_KEY_NUMBER)
		snprintf(buf, 40, "%.17g", k->number);
	else
		strcpy(buf, "null");
}

/* Numbers that are no sizes; and positions, of which a model has as many as it likes, where a step is too large. */
static bool may_be_behind(const char *key, enum oom_suspects whom)
{
	static const char *const others[] = {"token_id", "_token", "theta", "dropout", "drop_", "_range", "_eps", "_coef"};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strstr(key, others[i]))
			return false;
	return whom == OOM_SUSPECT_ANY || !strstr(key, "position");
}

/* The config's size that is furthest from the type's own, unless the message names a key that differs.  Where a step is
 * too large, which the plan may be the reason of, one that is 64 times the type's. */
static void name_strangest(const struct oom_reader *r, enum oom_suspects whom, struct oom_error *err)
{
	const struct oom_key *strangest = NULL, *its = NULL;
	double most = whom == OOM_SUSPECT_ANY ? 0 : 6;
	char is[40], not[40], both[100];

	for (size_t i = 0; r->keys && r->defaults && i < r->keys->n; i++) {
		const struct oom_key *k = &r->keys->items[i], *own = own_value(r, k->path);
		const double far = own && may_be_behind(k->path, whom) ? distance(k, own) : 0;

		if ((far > 0 || !own) && mentions(err->text, k->path))
			return;
		if (far > most) {
			most = far;
			strangest = k;
			its = own;
		}
	}
	if (!strangest)
		return;
	write_value(is, strangest);
	write_value(not, its);
	snprintf(both, sizeof(both), "%s, not %s", is, not);
	append(err, "; of the config's sizes \"%s\" is furthest from the type's own: %s", strangest->path, both);
}

void oom_read_explain(const struct oom_reader *r, enum oom_suspects whom, struct oom_error *err)
{
	name_suspect(r, whom, err);
	for (size_t i = 0; r->defaults && i < r->defaults->n; i++) {
		const struct oom_key *d = &r->defaults->items[i];

		if (strncmp(d->path, "aliases.", 8) || d->type != OOM_KEY_STRING)
			continue;
		for (int turned = 0; turned < 2; turned++) {
			const char *asked = turned ? d->path + 8 : d->string,
				   *written = turned ? d->string : d->path + 8;

			if (mentions(err->text, asked) && !mentions(err->text, written) &&
			    !in_file(r, asked) && in_file(r, written))
				append(err, " (%s: \"%s\" in the config)", asked, written);
		}
	}
	if (whom != OOM_SUSPECT_NOTHING)
		name_strangest(r, whom, err);
}
