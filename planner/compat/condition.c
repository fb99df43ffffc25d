/* The language of data/compat.csv.
 *
 *   condition := term { " & " term }
 *   term      := name op value { "|" value }         op: = != < <= > >=
 *
 * A name is a knob's, with its own words; "library", a word in the source of the optimizer's row;
 * or a fact: class.* (data/class_flags.csv; a class it lacks fulfils no term), card.*, model.*, and
 * run.framework, whose files start the run.
 * The value "asked" is the question's.
 *
 * Facts are decided here; terms about knobs become comparisons of a plan's fields. */
#include <stdlib.h>
#include <string.h>

#include "table.h"

static const char *const facts[FACTS] = {
	[FACT_CHECKPOINTING] = "class.checkpointing",
	[FACT_SDPA] = "class.sdpa",
	[FACT_FLASH] = "class.flash",
	[FACT_WRAPS] = "class.wraps",
	[FACT_LIGER] = "class.liger",
	[FACT_BATCHNORM] = "class.batchnorm",
	[FACT_FP16_OVERFLOW] = "class.fp16-overflow",
	[FACT_CUT] = "class.cut",
	[FACT_CC] = "card.cc",
	[FACT_HEAD_DIM] = "model.head-dim",
	[FACT_EXPERTS] = "model.experts",
	[FACT_HEADS] = "model.heads",
	[FACT_VENDOR] = "card.vendor",
	[FACT_TYPE] = "model.type",
	[FACT_TASK] = "model.task",
	[FACT_FRAMEWORK] = "run.framework",
};

/* ---- pieces ---- */

struct term {
	char name[40], value[200];      /* value: one or several words joined by | */
	bool negated;
	enum { EQUAL, BELOW, UP_TO, ABOVE, FROM } op;
};

/* Reads one term and what joins it to the next. */
static bool next_term(const char **at, struct term *t)
{
	const size_t name = strcspn(*at, "!=<> "), sign = strspn(*at + name, "!=<>"),
		     value = strcspn(*at + name + sign, " ");
	const char *op = *at + name;

	if (!name || !sign || !value || name >= sizeof(t->name) || value >= sizeof(t->value))
		return false;
	memcpy(t->name, *at, name);
	memcpy(t->value, op + sign, value);
	t->name[name] = t->value[value] = 0;
	t->negated = *op == '!';
	t->op = *op == '<' ? sign > 1 ? UP_TO : BELOW : *op == '>' ? sign > 1 ? FROM : ABOVE : EQUAL;
	*at = op + sign + value;
	*at += strncmp(*at, " & ", 3) ? 0 : 3;
	return true;
}

/* Cuts the first word off a list; NULL past the last. */
static char *next_word(char **list)
{
	char *word = *list, *end = word ? strchr(word, '|') : NULL;

	if (end)
		*end++ = 0;
	*list = end;
	return word;
}

static enum oom_status unknown(struct oom_error *err, const char *what, const char *word)
{
	return oom_error_set(err, OOM_ERR_PARSE, "compat.csv: %s '%s' is not known", what, word);
}

/* ---- facts ---- */

static void range(const struct term *t, int64_t n, int64_t *low, int64_t *high)
{
	*low = t->op == EQUAL || t->op == FROM ? n : t->op == ABOVE ? n + 1 : INT64_MIN;
	*high = t->op == EQUAL || t->op == UP_TO ? n : t->op == BELOW ? n - 1 : INT64_MAX;
}

static enum oom_status fact_term(struct term *t, enum fact fact, const struct facts *f, bool *holds,
				 struct oom_error *err)
{
	char *list = t->value, *end;
	int64_t low, high;

	if (fact < FACT_VENDOR) {
		const double value = strtod(t->value, &end);

		if (*end)
			return unknown(err, "number", t->value);
		range(t, (int64_t)(value * (fact == FACT_CC ? 10 : 1) + 0.5), &low, &high);
		*holds = f->number[fact] >= 0 &&
			 (f->number[fact] >= low && f->number[fact] <= high) != t->negated;
		return OOM_OK;
	}
	*holds = t->negated;
	for (const char *word; (word = next_word(&list)) != NULL;)
		if (!strcmp(word, f->word[fact]))
			*holds = !t->negated;
	return OOM_OK;
}

/* ---- knobs ---- */

/* Optimizers by the library that their row names as its source. */
static uint64_t of_library(const struct oom_option *optimizer, const char *library)
{
	uint64_t bits = 0;

	for (size_t i = 0; i < 64 && optimizer->choice(i); i++)
		bits |= (uint64_t)(strstr(optimizer->choice(i)->source, library) != NULL) << i;
	return bits;
}

static uint64_t of_name(const struct oom_option *k, const char *name)
{
	for (size_t i = 0; i < 64 && k->choice(i); i++)
		if (!strcmp(k->choice(i)->name, name))
			return (uint64_t)1 << i;
	return 0;
}

static enum oom_status knob_term(struct term *t, struct oom_compat_condition *c,
				 struct oom_error *err)
{
	const bool library = !strcmp(t->name, "library");
	const struct oom_option *k = oom_knob_named(library ? "optimizer" : t->name);
	char *list = t->value;
	uint64_t bits = 0;
	struct oom_value v;

	if (!k)
		return unknown(err, "knob", t->name);
	*c = (struct oom_compat_condition){.offset = (uint16_t)k->offset, .negated = t->negated};
	if (!strcmp(t->value, "asked")) {
		c->asked = true;
		return OOM_OK;
	}
	if (k->kind != OOM_OPTION_CHOICE) {
		if (oom_option_read(k, k->name, t->value, &v, NULL))
			return unknown(err, "value", t->value);
		range(t, v.whole, &c->low, &c->high);
		return OOM_OK;
	}
	for (const char *word; (word = next_word(&list)) != NULL;) {
		const uint64_t more = library ? of_library(k, word) : of_name(k, word);

		if (!more && !library)
			return unknown(err, "word", word);
		bits |= more;
	}
	c->choices = true;
	memcpy(&c->low, &bits, sizeof(bits));
	return OOM_OK;
}

enum oom_status compat_compile(struct oom_compat *c, const char *when, const struct facts *f,
			       bool *here, struct oom_error *err)
{
	enum oom_status st = OOM_OK;
	struct term t;

	*here = true;
	while (!st && *here && *when) {
		int fact;

		if (!next_term(&when, &t))
			return unknown(err, "term", when);
		fact = strchr(t.name, '.') ? 0 : FACTS;         /* no knob's name has a dot */
		while (fact < FACTS && strcmp(t.name, facts[fact]))
			fact++;
		if (fact < FACTS)
			st = fact_term(&t, (enum fact)fact, f, here, err);
		else if (c->n_conditions == OOM_COMPAT_CONDITIONS)
			return oom_error_set(err, OOM_ERR_LIMIT, "compat.csv: too many conditions");
		else
			st = knob_term(&t, &c->condition[c->n_conditions++], err);
	}
	return st;
}
