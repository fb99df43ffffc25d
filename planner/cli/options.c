/* The option engine.  Allocates nothing, prints nothing: failures are words for the caller. */
#include "options.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NAMES = 800, MAX_NAME = 64, JOINED = 2 * OOM_NAMES_SIZE };

/* Whose row an option is. */
enum owner { COMMAND, KNOBS, FOREIGN };

/* One argument taken apart: the row that was found, and the value that came with it. */
struct given {
	const struct oom_option *row;
	const struct oom_alias *alias;  /* the name it goes by here; NULL: its own */
	enum owner owner;
	const char *value;      /* behind '=' or behind the letter; NULL: none */
	bool off;               /* --no-NAME */
	char shown[MAX_NAME + 3];       /* as the user should read it back: --name or -x */
	char joined[JOINED];    /* of names that were several arguments */
};

static const struct oom_option *row_at(const struct oom_options *set, enum owner owner, size_t i)
{
	if (owner == COMMAND)
		return set->own && set->own[i].name ? &set->own[i] : NULL;
	if (!set->plan)
		return NULL;
	return owner == KNOBS ? oom_knob_at(i) : oom_foreign_at(i);
}

int oom_word_index(const char *word, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (oom_same_word(words[i], word))
			return i;
	return -1;
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

/* All names an option may have, the rows' own before their aliases; NULL-terminated. */
static void all_names(const struct oom_options *set, const char *names[MAX_NAMES])
{
	const struct oom_option *o;
	size_t n = 0;

	for (int owner = COMMAND; owner <= FOREIGN; owner++)
		for (size_t i = 0; (o = row_at(set, (enum owner)owner, i)) && n < MAX_NAMES - 1; i++)
			names[n++] = o->name;
	for (int owner = COMMAND; owner <= FOREIGN; owner++)
		for (size_t i = 0; (o = row_at(set, (enum owner)owner, i)) != NULL; i++)
			for (const struct oom_alias *a = o->aliases;
			     a && a->name && n < MAX_NAMES - 1; a++)
				names[n++] = a->name;
	names[n] = NULL;
}

static enum oom_status unknown(const struct oom_options *set, const char *arg,
			       struct oom_error *err)
{
	const char *names[MAX_NAMES], *word = arg + strspn(arg, "-"), *near;
	char key[MAX_NAME];

	all_names(set, names);
	snprintf(key, sizeof(key), "%.*s", (int)strcspn(word, "="), word);
	/* one letter is near to everything: no suggestion is better than a wild one */
	near = strlen(key) > 1 ? oom_nearest(key, names) : NULL;
	return oom_error_set(err, OOM_ERR_UNKNOWN, "unknown option %.80s%s%s%s", arg,
			     near ? " (did you mean --" : "", near ? near : "", near ? "?)" : "");
}

static const struct oom_option *own_letter(const struct oom_options *set, char letter)
{
	for (const struct oom_option *o = set->own; o && o->name; o++)
		if (o->letter && o->letter == letter)
			return o;
	return NULL;
}

/* The row of that name, a command's own before a knob. */
static bool find_name(const struct oom_options *set, const char *name, struct given *g)
{
	for (int owner = COMMAND; *name && owner <= FOREIGN; owner++) {
		g->owner = (enum owner)owner;
		for (size_t i = 0; (g->row = row_at(set, g->owner, i)) != NULL; i++)
			if (oom_option_goes_by(g->row, name, &g->alias))
				return true;
	}
	return false;
}

/* Does it stand without a value? */
static bool is_flag(const struct given *g)
{
	return g->alias && g->owner == KNOBS ? g->alias->flag : !g->row->metavar;
}

/* --name, --name=value, --no-name: finds the row. */
static bool find_long(const struct oom_options *set, const char *arg, struct given *g)
{
	const char *eq = strchr(arg, '=');
	const size_t len = eq ? (size_t)(eq - arg) - 2 : strlen(arg) - 2;
	char name[MAX_NAME];

	memset(g, 0, sizeof(*g));
	g->value = eq ? eq + 1 : NULL;
	if (len >= sizeof(name))
		return false;
	memcpy(name, arg + 2, len);
	name[len] = 0;
	if (!find_name(set, name, g)) {
		g->off = true;
		if (strncmp(name, "no-", 3) || !find_name(set, name + 3, g) || !is_flag(g))
			return false;
	}
	snprintf(g->shown, sizeof(g->shown), "--%s", g->alias ? g->alias->name : g->row->name);
	return true;
}

static enum oom_status append(struct oom_list *list, const char *item, const char *what,
			      struct oom_error *err)
{
	if (list->n == OOM_LIST_MAX)
		return oom_error_set(err, OOM_ERR_LIMIT, "%s: more than %d", what, OOM_LIST_MAX);
	list->items[list->n++] = item;
	return OOM_OK;
}

/* Words of a list that has choices are joined by commas or +. */
static enum oom_status set_list(const struct given *g, struct oom_error *err)
{
	const char *at = g->value;

	if (!g->row->choice)
		return append(g->row->target, at, g->shown, err);
	for (;;) {
		const size_t len = strcspn(at, ",+");
		char word[MAX_NAME];
		struct oom_value v;
		enum oom_status st;

		snprintf(word, sizeof(word), "%.*s",
			 (int)(len < sizeof(word) ? len : sizeof(word) - 1), at);
		st = oom_option_read(g->row, g->shown, word, &v, err);
		if (!st)
			st = append(g->row->target, g->row->choice((size_t)v.whole)->name, g->shown,
				    err);
		if (st || !at[len])
			return st;
		at += len + 1;
	}
}

static void store_own(const struct oom_option *o, const struct oom_value *v)
{
	switch (o->kind) {
	case OOM_OPTION_FLAG: *(bool *)o->target = v->whole; break;
	case OOM_OPTION_CHOICE: *(int *)o->target = (int)v->whole; break;
	case OOM_OPTION_COUNT:
	case OOM_OPTION_VERSION: *(int64_t *)o->target = v->whole; break;
	case OOM_OPTION_REAL: *(double *)o->target = v->real; break;
	case OOM_OPTION_SIZE:
		*(struct oom_size *)o->target = (struct oom_size){(uint64_t)v->whole, v->text};
		break;
	case OOM_OPTION_TEXT: *(const char **)o->target = v->text; break;
	case OOM_OPTION_NAMES: memcpy(o->target, v->names, sizeof(v->names)); break;
	case OOM_OPTION_LIST:
	case OOM_OPTION_IDLE:
	case OOM_OPTION_ABSENT: break;
	}
}

static enum oom_status set_own(const struct given *g, const char *value, struct oom_error *err)
{
	struct oom_value v;
	enum oom_status st;

	if (!g->row->target)
		return OOM_OK;
	if (g->row->kind == OOM_OPTION_LIST)
		return set_list(g, err);
	st = oom_option_read(g->row, g->shown, value, &v, err);
	if (!st)
		store_own(g->row, &v);
	return st;
}

static void tell(const struct oom_options *set, const char *shown, const char *note)
{
	char text[300];

	snprintf(text, sizeof(text), "%s: %s", shown, note);
	if (set->tell)
		set->tell(text);
}

/* Of a row that no knob stands for. */
static enum oom_status take_note(const struct oom_options *set, const struct given *g,
				 const char *value, struct oom_error *err)
{
	struct oom_value v;
	const enum oom_status st = oom_option_read(g->row, g->shown, value, &v, err);

	if (st || g->row->kind == OOM_OPTION_ABSENT)
		return st;
	if (g->row->note)
		tell(set, g->shown, g->row->note);
	else if (set->idle && set->idle->n < OOM_LIST_MAX)
		set->idle->items[set->idle->n++] = g->alias ? g->alias->name : g->row->name;
	return OOM_OK;
}

/* An older name of a command's option may be a knob's today: the word says which is meant. */
static void prefer_knob(const struct oom_options *set, const char *value, struct given *g)
{
	const struct oom_option *o;

	if (g->owner != COMMAND || !g->alias || !g->alias->older || !g->row->choice ||
	    oom_choice_find(g->row->choice, value) >= 0)
		return;
	for (size_t i = 0; (o = row_at(set, KNOBS, i)) != NULL; i++)
		if (oom_same_word(o->name, g->alias->name)) {
			g->row = o;
			g->owner = KNOBS;
			g->alias = NULL;
			return;
		}
}

static enum oom_status set_value(const struct oom_options *set, struct given *g,
				 struct oom_error *err)
{
	const char *value = g->value ? g->value : g->off ? "false" : "true";
	enum oom_status st;

	prefer_knob(set, value, g);
	if (g->off && g->value)
		return oom_error_set(err, OOM_ERR_INVALID, "--no-%s takes no value", g->shown + 2);
	if (g->owner == COMMAND)
		return set_own(g, value, err);
	if (g->owner == FOREIGN)
		return take_note(set, g, value, err);
	st = oom_plan_set_as(set->plan, g->row, g->alias, g->shown, value, err);
	if (!st && set->knobs && set->knobs->n < OOM_LIST_MAX)
		set->knobs->items[set->knobs->n++] = g->row->name;
	/* a switch that is turned off says nothing */
	if (!st && g->alias && g->alias->note && !(g->alias->flag && value && oom_same_word(value, "false")))
		tell(set, g->shown, g->alias->note);
	return st;
}

/* Frameworks divide the names of modules by blanks: --lora-target-modules q_proj v_proj. */
static void join_names(struct given *g, int argc, char *const *argv, int *i)
{
	size_t n = (size_t)snprintf(g->joined, JOINED, "%s", g->value);

	while (*i + 1 < argc && argv[*i + 1][0] != '-' && n < JOINED)
		n += (size_t)snprintf(g->joined + n, JOINED - n, "+%s", argv[++*i]);
	g->value = g->joined;
}

/* Is the argument after a switch its value?  --bf16 True, --flash_attn fa2. */
static bool takes(const struct given *g, const char *next)
{
	const struct oom_alias_word *w = g->alias ? g->alias->words : NULL;

	if (g->owner == COMMAND || !next)
		return false;
	for (; w && w->word; w++)
		if (oom_same_word(w->word, next))
			return true;
	for (w = g->alias ? g->row->also : NULL; w && w->word; w++)
		if (oom_same_word(w->word, next))
			return true;
	return oom_same_word("true", next) || oom_same_word("false", next) ||
	       (g->alias && g->row->choice && oom_choice_find(g->row->choice, next) >= 0);
}

/* Stores one option; *i moves over a value of its own argument. */
static enum oom_status store(const struct oom_options *set, struct given *g, int argc,
			     char *const *argv, int *i, struct oom_error *err)
{
	const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;

	if (g->value || g->off)
		return set_value(set, g, err);
	if (is_flag(g)) {
		if (takes(g, next))
			g->value = argv[++*i];
		return set_value(set, g, err);
	}
	/* "--model --gpu X" is a forgotten value, not a file called --gpu; --model=--gpu says the
	 * other */
	if (!next || (next[0] == '-' && next[1] == '-'))
		return oom_error_set(err, OOM_ERR_INVALID, "%s needs a value (%s)", g->shown,
				     g->row->metavar ? g->row->metavar : "WORD");
	g->value = argv[++*i];
	if (g->alias && g->row->kind == OOM_OPTION_NAMES)
		join_names(g, argc, argv, i);
	return set_value(set, g, err);
}

/* -x, -x value, -xvalue, -abc of flags. */
static enum oom_status letters(const struct oom_options *set, int argc, char *const *argv, int *i,
			       bool *stop, struct oom_error *err)
{
	const char *arg = argv[*i];

	for (const char *p = arg + 1; *p; p++) {
		struct given g = {.row = own_letter(set, *p)};
		enum oom_status st;

		if (!g.row)
			return unknown(set, p == arg + 1 ? arg : (const char[]){'-', *p, 0}, err);
		snprintf(g.shown, sizeof(g.shown), "-%c", *p);
		if (g.row->kind != OOM_OPTION_FLAG && p[1])
			g.value = p[1] == '=' ? p + 2 : p + 1;
		st = store(set, &g, argc, argv, i, err);
		*stop = !st && g.row == set->stop;
		if (st || *stop || g.row->kind != OOM_OPTION_FLAG)
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
			stop = !st && g.row == set->stop;
		}
		if (st)
			return st;
	}
	return OOM_OK;
}
