/* What training frameworks call the knobs, and what their words mean. */
#include <stdio.h>
#include <string.h>

#include "oomplan/option.h"

bool oom_option_goes_by(const struct oom_option *o, const char *name,
			const struct oom_alias **alias)
{
	*alias = NULL;
	if (oom_same_word(o->name, name) || (o->column && oom_same_word(o->column, name)))
		return true;
	for (*alias = o->aliases; *alias && (*alias)->name; ++*alias)
		if (oom_same_word((*alias)->name, name))
			return true;
	return false;
}

/* Yes, on, 1 and true are one word to a flag of a framework, too. */
static const char *normal(const struct oom_alias *alias, const char *word)
{
	static const char *const words[] = {"true", "yes", "on", "1"},
				*const opposites[] = {"false", "no", "off", "0"};

	for (size_t i = 0; alias->flag && i < sizeof(words) / sizeof(words[0]); i++) {
		if (oom_same_word(words[i], word))
			return "true";
		if (oom_same_word(opposites[i], word))
			return "false";
	}
	return word;
}

static const struct oom_alias_word *find_word(const struct oom_alias *alias, const char *text,
					      const char *value)
{
	const char *word = normal(alias, text);

	for (const struct oom_alias_word *w = alias->words; w && w->word; w++)
		if (oom_same_word(w->word, word) && (!w->from || !strcmp(w->from, value)))
			return w;
	return NULL;
}

/* "fsdp1 zero=3": words of the knob, settings of others. */
static enum oom_status apply(struct oom_plan *plan, const struct oom_option *k, const char *to,
			     struct oom_error *err)
{
	enum oom_status st = OOM_OK;
	char copy[OOM_VALUE_SIZE], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", to);
	for (char *w = strtok_r(copy, " ", &save); w && !st; w = strtok_r(NULL, " ", &save)) {
		char *value = strchr(w, '=');

		if (value)
			*value++ = 0;
		st = oom_plan_set(plan, value ? oom_knob_find(w) : k, value ? value : w, err);
	}
	return st;
}

static enum oom_status no_such_word(const struct oom_alias *alias, const char *shown,
				    const char *word, struct oom_error *err)
{
	const char *words[64] = {NULL};
	char list[300];
	size_t n = 0;

	for (const struct oom_alias_word *w = alias->words; w->word && n < 63; w++)
		if (w == alias->words || !oom_same_word(w[-1].word, w->word))
			words[n++] = w->word;
	return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%.60s\" is none of: %s", shown, word,
			     oom_words_join(words, list, sizeof(list)));
}

/* One word, or several: --fsdp "full_shard auto_wrap". */
static enum oom_status set_words(struct oom_plan *plan, const struct oom_option *k,
				 const struct oom_alias *alias, const char *shown, const char *text,
				 struct oom_error *err)
{
	enum oom_status st = OOM_OK;
	char copy[OOM_VALUE_SIZE], value[OOM_VALUE_SIZE], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *w = strtok_r(copy, " ,", &save); w && !st; w = strtok_r(NULL, " ,", &save)) {
		const struct oom_alias_word *known =
			find_word(alias, w, oom_plan_get(plan, k, value, sizeof(value)));

		st = known ? apply(plan, k, known->to, err) : no_such_word(alias, shown, w, err);
	}
	return st;
}

/* Of a choice: the row whose framework's word this is to the letter, before one whose own word it
 * resembles: optim=adamw_8bit of transformers is our adamw-8bit-embfp32, not our adamw-8bit. */
static const char *own_word(const struct oom_option *k, const char *text)
{
	const struct oom_choice *c;
	const size_t n = strlen(text);

	for (size_t i = 0; k->choice && (c = k->choice(i)) != NULL; i++)
		for (const char *w = c->setting; *w; w += strcspn(w, " "), w += strspn(w, " "))
			if (strcspn(w, " ") == n && !strncmp(w, text, n))
				return c->name;
	return text;
}

/* The word that says more than the knob's own do, by the knob's name or one of its aliases: unsloth. */
static const char *says_more(const struct oom_option *k, const struct oom_alias *alias, const char *text)
{
	const struct oom_alias *a = k->aliases;

	while (alias && a && a->name && a != alias)
		a++;
	if (alias && (!a || !a->name))          /* a key of a training file, which sets one knob alone */
		return NULL;
	for (const struct oom_alias_word *w = k->also; w && w->word; w++)
		if (oom_same_word(w->word, text))
			return w->to;
	return NULL;
}

enum oom_status oom_plan_set_as(struct oom_plan *plan, const struct oom_option *k,
				const struct oom_alias *alias, const char *shown, const char *text,
				struct oom_error *err)
{
	const char *more = says_more(k, alias, text);
	struct oom_value v;
	enum oom_status st;

	if (more)
		return apply(plan, k, more, err);
	if (alias && alias->words && *text)
		return set_words(plan, k, alias, shown, text, err);
	st = oom_option_read(k, shown, alias ? own_word(k, text) : text, &v, err);
	if (!st)
		oom_plan_store(plan, k, &v);
	return st;
}
