/* The option engine.  Allocates nothing, prints nothing: failures are words for the caller. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_NAMES = 160, MAX_NAME = 64 };

/* One argument taken apart: where its option was found, and the value that came with it. */
struct given {
	const struct oom_option *own;
	const struct oom_knob *knob;
	const char *value;      /* behind '=' or behind the letter; NULL: none */
	bool off;               /* --no-NAME */
	char shown[MAX_NAME + 3];       /* as the user should read it back: --name or -x */
};

static bool same(const char *name, const char *word, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!name[i] || (name[i] != word[i] && !(name[i] == '-' && word[i] == '_')))
			return false;
	return !name[len];
}

int oom_word_index(const char *word, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (same(words[i], word, strlen(word)))
			return i;
	return -1;
}

const char *oom_words_join(const char *const *words, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = 0;
	for (size_t i = 0; words[i]; i++) {
		const int n = snprintf(buf + used, size - used, "%s%s", i ? ", " : "", words[i]);

		if (n < 0 || (size_t)n >= size - used)
			break; /* a list this long ends cut: the nearest word still follows */
		used += (size_t)n;
	}
	return buf;
}

enum oom_status oom_word_unknown(const char *what, const char *word, const char *const *words,
				 struct oom_error *err)
{
	const char *near = oom_nearest(word, words);
	char list[300];

	return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%.60s\" is none of: %s%s%s%s", what, word,
			     oom_words_join(words, list, sizeof(list)),
			     near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

static enum oom_status unknown(const struct oom_options *set, const char *arg,
			       struct oom_error *err)
{
	const char *names[MAX_NAMES], *word = arg + strspn(arg, "-"), *near;
	char key[MAX_NAME];
	size_t n = 0;

	for (const struct oom_option *o = set->own; o && o->name && n < MAX_NAMES - 1; o++)
		names[n++] = o->name;
	for (size_t i = 0; set->plan && oom_knob_at(i) && n < MAX_NAMES - 1; i++)
		names[n++] = oom_knob_at(i)->name;
	names[n] = NULL;
	snprintf(key, sizeof(key), "%.*s", (int)strcspn(word, "="), word);
	/* one letter is near to everything: no suggestion is better than a wild one */
	near = strlen(key) > 1 ? oom_nearest(key, names) : NULL;
	return oom_error_set(err, OOM_ERR_UNKNOWN, "unknown option %.80s%s%s%s", arg,
			     near ? " (did you mean --" : "", near ? near : "", near ? "?)" : "");
}

static const struct oom_option *own_named(const struct oom_options *set, const char *name,
					  size_t len)
{
	for (const struct oom_option *o = set->own; o && o->name; o++)
		if (same(o->name, name, len))
			return o;
	return NULL;
}

static const struct oom_option *own_letter(const struct oom_options *set, char letter)
{
	for (const struct oom_option *o = set->own; o && o->name; o++)
		if (o->letter && o->letter == letter)
			return o;
	return NULL;
}

static const struct oom_knob *knob_named(const struct oom_options *set, const char *name,
					 size_t len)
{
	char key[MAX_NAME];

	if (!set->plan || !len || len >= sizeof(key))
		return NULL;
	memcpy(key, name, len);
	key[len] = 0;
	return oom_knob_find(key);
}

/* --name, --name=value, --no-name: finds the row. */
static bool find_long(const struct oom_options *set, const char *arg, struct given *g)
{
	const char *name = arg + 2, *eq = strchr(arg, '=');
	size_t len = eq ? (size_t)(eq - name) : strlen(name);

	memset(g, 0, sizeof(*g));
	g->value = eq ? eq + 1 : NULL;
	g->own = own_named(set, name, len);
	g->knob = g->own ? NULL : knob_named(set, name, len);
	if (!g->own && !g->knob && len > 3 && !strncmp(name, "no-", 3)) {
		g->own = own_named(set, name + 3, len - 3);
		g->knob = g->own ? NULL : knob_named(set, name + 3, len - 3);
		g->off = true;
		if ((g->own && g->own->kind != OOM_OPTION_FLAG) ||
		    (g->knob && g->knob->kind != OOM_KNOB_FLAG))
			return false;
	}
	if (!g->own && !g->knob)
		return false;
	snprintf(g->shown, sizeof(g->shown), "--%s", g->own ? g->own->name : g->knob->name);
	return true;
}

static enum oom_status set_flag(const struct given *g, struct oom_error *err)
{
	static const char *const yes[] = {"1", "true", "yes", "on"};
	static const char *const no[] = {"0", "false", "no", "off"};

	if (!g->value) {
		*(bool *)g->own->target = !g->off;
		return OOM_OK;
	}
	for (int i = 0; !g->off && i < 4; i++) {
		if (!strcasecmp(g->value, yes[i]) || !strcasecmp(g->value, no[i])) {
			*(bool *)g->own->target = !strcasecmp(g->value, yes[i]);
			return OOM_OK;
		}
	}
	if (g->off)
		return oom_error_set(err, OOM_ERR_INVALID, "--no-%s takes no value", g->own->name);
	return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%.60s\" is neither true nor false",
			     g->shown, g->value);
}

/* "12", "2k", "2Ki", "1.5M": whole after the unit. */
static bool read_number(const char *text, bool whole, double *v)
{
	char *end;

	/* strtod also reads "inf", "nan", hexadecimal and leading blanks; none is meant here */
	if (!*text || strspn(text, "+-.0123456789eEkKMGi%") != strlen(text))
		return false;
	errno = 0;
	*v = strtod(text, &end);
	if (end == text || errno)
		return false;
	if (whole && *end && strchr("kKMG", *end)) {
		const int power = *end == 'G' ? 3 : *end == 'M' ? 2 : 1;

		*v *= end[1] == 'i' ? pow(1024, power) : pow(1000, power);
		end += end[1] == 'i' ? 2 : 1;
	} else if (!whole && *end == '%') {
		*v /= 100;
		end++;
	}
	return !*end && isfinite(*v) && (!whole || *v == floor(*v));
}

static enum oom_status set_number(const struct given *g, struct oom_error *err)
{
	const struct oom_option *o = g->own;
	const bool whole = o->kind == OOM_OPTION_COUNT;
	double v;

	if (!read_number(g->value, whole, &v))
		return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%.60s\" is not a %snumber",
				     g->shown, g->value, whole ? "whole " : "");
	if (v < o->min || v > o->max)
		return oom_error_set(err, OOM_ERR_INVALID, "%s: %.60s is outside %.*g to %.*g",
				     g->shown, g->value, whole ? 19 : 6, o->min, whole ? 19 : 6,
				     o->max);
	if (whole && (v < -9007199254740992.0 || v > 9007199254740992.0))
		return oom_error_set(err, OOM_ERR_INVALID, "%s: %.60s is too large", g->shown,
				     g->value);
	if (whole)
		*(int64_t *)o->target = (int64_t)v;
	else
		*(double *)o->target = v;
	return OOM_OK;
}

static enum oom_status append(struct oom_list *list, const char *item, const char *what,
			      struct oom_error *err)
{
	if (list->n == OOM_LIST_MAX)
		return oom_error_set(err, OOM_ERR_LIMIT, "%s: more than %d", what, OOM_LIST_MAX);
	list->items[list->n++] = item;
	return OOM_OK;
}

static enum oom_status set_list(const struct given *g, struct oom_error *err)
{
	const struct oom_option *o = g->own;
	const char *at = g->value;

	if (!o->choices)
		return append(o->target, at, g->shown, err);
	for (;;) {
		const size_t len = strcspn(at, ",");
		char word[MAX_NAME];
		enum oom_status st;
		int i;

		snprintf(word, sizeof(word), "%.*s",
			 (int)(len < sizeof(word) ? len : sizeof(word) - 1), at);
		i = oom_word_index(word, o->choices);
		if (i < 0)
			return oom_word_unknown(g->shown, word, o->choices, err);
		st = append(o->target, o->choices[i], g->shown, err);
		if (st || !at[len])
			return st;
		at += len + 1;
	}
}

static enum oom_status set_own(const struct given *g, struct oom_error *err)
{
	const struct oom_option *o = g->own;
	int i;

	if (!o->target)
		return OOM_OK;
	switch (o->kind) {
	case OOM_OPTION_FLAG: return set_flag(g, err);
	case OOM_OPTION_TEXT:
		if (!*g->value)
			return oom_error_set(err, OOM_ERR_INVALID, "%s: the value is empty",
					     g->shown);
		*(const char **)o->target = g->value;
		return OOM_OK;
	case OOM_OPTION_CHOICE:
		i = oom_word_index(g->value, o->choices);
		if (i < 0)
			return oom_word_unknown(g->shown, g->value, o->choices, err);
		*(int *)o->target = i;
		return OOM_OK;
	case OOM_OPTION_COUNT:
	case OOM_OPTION_REAL: return set_number(g, err);
	case OOM_OPTION_LIST: return set_list(g, err);
	}
	return OOM_ERR_INVALID;
}

static enum oom_status set_knob(const struct oom_options *set, const struct given *g,
				struct oom_error *err)
{
	struct oom_error why = {{0}};
	const char *value = g->value ? g->value : g->off ? "false" : "true";
	enum oom_status st;

	if (g->off && g->value)
		return oom_error_set(err, OOM_ERR_INVALID, "--no-%s takes no value", g->knob->name);
	st = oom_plan_set(set->plan, g->knob, value, &why);
	return st ? oom_error_set(err, st, "--%.470s", why.text) : OOM_OK;
}

static bool is_flag(const struct given *g)
{
	return g->own ? g->own->kind == OOM_OPTION_FLAG : g->knob->kind == OOM_KNOB_FLAG;
}

/* Stores one option; *i moves over a value of its own argument. */
static enum oom_status store(const struct oom_options *set, struct given *g, int argc,
			     char *const *argv, int *i, struct oom_error *err)
{
	if (!g->value && !is_flag(g)) {
		const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;

		/* "--model --gpu X" is a forgotten value, not a file called --gpu; --model=--gpu
		 * says the other */
		if (!next || (next[0] == '-' && next[1] == '-'))
			return oom_error_set(err, OOM_ERR_INVALID, "%s needs a value (%s)",
					     g->shown, g->own ? g->own->metavar : g->knob->metavar);
		g->value = next;
		(*i)++;
	}
	return g->own ? set_own(g, err) : set_knob(set, g, err);
}

/* -x, -x value, -xvalue, -abc of flags. */
static enum oom_status letters(const struct oom_options *set, int argc, char *const *argv, int *i,
			       bool *stop, struct oom_error *err)
{
	const char *arg = argv[*i];

	for (const char *p = arg + 1; *p; p++) {
		struct given g = {.own = own_letter(set, *p)};
		enum oom_status st;

		if (!g.own)
			return unknown(set, p == arg + 1 ? arg : (const char[]){'-', *p, 0}, err);
		snprintf(g.shown, sizeof(g.shown), "-%c", *p);
		if (g.own->kind != OOM_OPTION_FLAG && p[1])
			g.value = p[1] == '=' ? p + 2 : p + 1;
		st = store(set, &g, argc, argv, i, err);
		*stop = !st && g.own == set->stop;
		if (st || *stop || g.own->kind != OOM_OPTION_FLAG)
			return st;
	}
	return OOM_OK;
}

enum oom_status oom_options_parse(const struct oom_options *set, int argc, char *const *argv,
				  struct oom_error *err)
{
	bool only_words = false, stop = false;

	for (int i = 0; i < argc && !stop; i++) {
		const char *arg = argv[i];
		enum oom_status st;

		if (!only_words && !strcmp(arg, "--")) {
			only_words = true;
			continue;
		}
		if (only_words || arg[0] != '-' || !arg[1]) {
			st = append(set->words, arg, "words", err);
		} else if (arg[1] != '-') {
			st = letters(set, argc, argv, &i, &stop, err);
		} else {
			struct given g;

			if (!find_long(set, arg, &g))
				return unknown(set, arg, err);
			st = store(set, &g, argc, argv, &i, err);
			stop = !st && g.own && g.own == set->stop;
		}
		if (st)
			return st;
	}
	return OOM_OK;
}
