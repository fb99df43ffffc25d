/* From a text to what it means for a row, and back: the one parser of options, knobs, axes and
 * files. */
#include <stdio.h>
#include <string.h>

#include "oomplan/option.h"
#include "oomplan/units.h"
#include "plan/pattern.h"

/* ---- words ---- */

/* Without the C library's case tables: in a Turkish locale they say that I is no i. */
static char folded(char c)
{
	return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same(const char *a, const char *b, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!a[i] || folded(a[i]) != folded(b[i]))
			return false;
	return !a[len];
}

bool oom_same_word(const char *a, const char *b)
{
	return same(a, b, strlen(b));
}

/* Is the word one of those in a list joined by blanks? */
static bool listed(const char *list, const char *word)
{
	const size_t n = strlen(word);

	for (; *list; list += strcspn(list, " "), list += strspn(list, " "))
		if (strcspn(list, " ") == n && same(word, list, n))
			return true;
	return false;
}

int oom_choice_find(oom_choice_fn *choice, const char *word)
{
	const struct oom_choice *c;

	for (size_t i = 0; (c = choice(i)) != NULL; i++)
		if (oom_same_word(c->name, word))
			return (int)i;
	for (size_t i = 0; (c = choice(i)) != NULL; i++)
		if (listed(c->setting, word))
			return (int)i;
	return -1;
}

static enum oom_status no_such_word(const struct oom_option *o, const char *shown,
				    const char *word, struct oom_error *err)
{
	const char *words[64] = {NULL}, *near;
	char list[330];

	for (size_t i = 0; o->choice(i) && i < 63; i++)
		words[i] = o->choice(i)->name;
	near = oom_nearest(word, words);
	return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%.60s\" is none of: %s%s%s%s", shown, word,
			     oom_words_join(words, list, sizeof(list)), near ? " (did you mean \"" : "",
			     near ? near : "", near ? "\"?)" : "");
}

static enum oom_status read_flag(const char *shown, const char *text, struct oom_value *v,
				 struct oom_error *err)
{
	static const char *const words[][2] = {
		{"true", "false"}, {"yes", "no"}, {"on", "off"}, {"1", "0"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		for (int no = 0; no < 2; no++)
			if (oom_same_word(words[i][no], text)) {
				v->whole = !no;
				return OOM_OK;
			}
	return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%.60s\" is neither true nor false", shown,
			     text);
}

/* ---- numbers ---- */

static enum oom_status read_count(const struct oom_option *o, const char *shown, const char *text,
				  struct oom_value *v, struct oom_error *err)
{
	struct oom_error why = {{0}};

	if (o->automatic && oom_same_word("auto", text)) {
		v->whole = OOM_COUNT_AUTO;
		return OOM_OK;
	}
	if (oom_parse_count(text, &v->whole, &why))
		return oom_error_set(err, OOM_ERR_INVALID, "%s: %s", shown, why.text);
	if ((double)v->whole < o->min || (double)v->whole > o->max)
		return oom_error_set(err, OOM_ERR_INVALID, "%s: %.60s is outside %.15g to %.15g",
				     shown, text, o->min, o->max);
	return OOM_OK;
}

static enum oom_status read_real(const struct oom_option *o, const char *shown, const char *text,
				 struct oom_value *v, struct oom_error *err)
{
	const size_t n = strlen(text);
	const bool percent = o->percent && n && text[n - 1] == '%';
	struct oom_error why = {{0}};
	char digits[80];
	double r;

	snprintf(digits, sizeof(digits), "%.*s", (int)(n - percent < 79 ? n - percent : 79), text);
	if (oom_parse_real(digits, &r, &why))
		return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%.60s\" is not a number", shown,
				     text);
	r = percent ? r / 100 : r;
	if (r >= o->min && r <= o->max) {
		v->real = r;
		return OOM_OK;
	}
	if (o->percent && !percent && r > 0 && r <= 100 * o->max)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s: %.60s is outside %g to %g (did you mean %.60s%%?)", shown,
				     text, o->min, o->max, text);
	return oom_error_set(err, OOM_ERR_INVALID, "%s: %.60s is outside %g to %g", shown, text,
			     o->min, o->max);
}

/* 4.45, 4.45.2, 2.4.1+cu121, 5.0.0rc1: what follows the second number does not count. */
static enum oom_status read_version(const struct oom_option *o, const char *shown, const char *text,
				    struct oom_value *v, struct oom_error *err)
{
	int64_t part[2] = {0, 0};
	const char *at = text;
	char lowest[40];

	if (oom_same_word("newest", text)) {
		v->whole = 0;
		return OOM_OK;
	}
	for (int i = 0; i < 2; i++) {
		const char *digits = at;

		while (*at >= '0' && *at <= '9' && at - digits < 3)
			part[i] = part[i] * 10 + (*at++ - '0');
		if (at == digits || (*at >= '0' && *at <= '9'))
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s: \"%.60s\" is no version: newest, or MAJOR.MINOR as "
					     "in %s%s", shown, text,
					     oom_write_version((int64_t)o->min, lowest, sizeof(lowest)),
					     strstr(text, ".json") ?
						     "; a library's own file is read by --from" : "");
		if (!i && *at++ != '.')
			break;                  /* "5" is 5.0 */
	}
	v->whole = OOM_VERSION(part[0], part[1]);
	if ((double)v->whole >= o->min && (double)v->whole <= o->max)
		return OOM_OK;
	return oom_error_set(err, OOM_ERR_INVALID, "%s: %.60s is older than %s, the oldest that is known",
			     shown, text, oom_write_version((int64_t)o->min, lowest, sizeof(lowest)));
}

static enum oom_status read_size(const char *shown, const char *text, struct oom_value *v,
				 struct oom_error *err)
{
	struct oom_error why = {{0}};
	uint64_t bytes;

	if (oom_parse_bytes(text, &bytes, &why))
		return oom_error_set(err, OOM_ERR_INVALID, "%s: %s", shown, why.text);
	v->whole = (int64_t)bytes;
	v->text = text;
	return OOM_OK;
}

/* ---- texts ---- */

static enum oom_status read_names(const char *shown, const char *text, struct oom_value *v,
				  struct oom_error *err)
{
	if (strlen(text) >= sizeof(v->names))
		return oom_error_set(err, OOM_ERR_INVALID, "%s: longer than %zu characters", shown,
				     sizeof(v->names) - 1);
	if (oom_is_pattern(text)) {
		struct oom_error why = {{0}};

		if (oom_pattern_check(text, &why))
			return oom_error_set(err, OOM_ERR_INVALID, "%s: %s", shown, why.text);
		snprintf(v->names, sizeof(v->names), "%s", text);
		return OOM_OK;
	}
	for (size_t i = 0; i <= strlen(text); i++)
		v->names[i] = text[i] == ',' ? '+' : text[i];
	if (v->names[0] == '+' || strstr(v->names, "++") ||
	    (*text && v->names[strlen(text) - 1] == '+'))
		return oom_error_set(err, OOM_ERR_INVALID, "%s: \"%.60s\" holds an empty name",
				     shown, text);
	return OOM_OK;
}

enum oom_status oom_option_read(const struct oom_option *o, const char *shown, const char *text,
				struct oom_value *v, struct oom_error *err)
{
	switch (o->kind) {
	case OOM_OPTION_FLAG: return read_flag(shown, text, v, err);
	case OOM_OPTION_COUNT: return read_count(o, shown, text, v, err);
	case OOM_OPTION_REAL: return read_real(o, shown, text, v, err);
	case OOM_OPTION_VERSION: return read_version(o, shown, text, v, err);
	case OOM_OPTION_SIZE: return read_size(shown, text, v, err);
	case OOM_OPTION_NAMES: return read_names(shown, text, v, err);
	case OOM_OPTION_CHOICE:
	case OOM_OPTION_LIST:
		v->whole = oom_choice_find(o->choice, text);
		return v->whole < 0 ? no_such_word(o, shown, text, err) : OOM_OK;
	case OOM_OPTION_TEXT:
		v->text = text;
		return *text ? OOM_OK :
			       oom_error_set(err, OOM_ERR_INVALID, "%s: the value is empty", shown);
	case OOM_OPTION_IDLE: return OOM_OK;
	case OOM_OPTION_ABSENT:
		return !read_flag(shown, text, v, NULL) && !v->whole ?
			       OOM_OK :
			       oom_error_set(err, OOM_ERR_INVALID, "%s: %s", shown, o->note);
	}
	return OOM_ERR_INVALID;
}

/* ---- values of a plan ---- */

int64_t *oom_plan_field(struct oom_plan *plan, const struct oom_option *k)
{
	return (int64_t *)(void *)((char *)plan + k->offset);
}

void oom_plan_store(struct oom_plan *p, const struct oom_option *k, const struct oom_value *v)
{
	if (k->kind == OOM_OPTION_REAL)
		*(double *)(void *)((char *)p + k->offset) = v->real;
	else if (k->kind == OOM_OPTION_NAMES)
		/* to the last byte: plans are compared as bytes */
		strncpy((char *)p + k->offset, v->names, OOM_NAMES_SIZE);
	else
		*oom_plan_field(p, k) = v->whole;
	if (k->offset == offsetof(struct oom_plan, zero_stage))
		p->zero_said = 1;
}

enum oom_status oom_plan_set(struct oom_plan *p, const struct oom_option *k, const char *text,
			     struct oom_error *err)
{
	return oom_plan_set_as(p, k, NULL, k->name, text, err);
}

const char *oom_plan_get(const struct oom_plan *p, const struct oom_option *k, char *buf,
			 size_t size)
{
	const char *at = (const char *)p + k->offset;
	int64_t n;
	double d;

	if (k->kind == OOM_OPTION_REAL) {
		memcpy(&d, at, sizeof(d));
		return oom_write_real(d, buf, size);
	}
	if (k->kind == OOM_OPTION_NAMES) {
		snprintf(buf, size, "%s", at);
		return buf;
	}
	memcpy(&n, at, sizeof(n));
	if (k->kind == OOM_OPTION_CHOICE)
		snprintf(buf, size, "%s", k->choice((size_t)n) ? k->choice((size_t)n)->name : "?");
	else if (k->kind == OOM_OPTION_FLAG)
		snprintf(buf, size, "%s", n ? "true" : "false");
	else if (k->kind == OOM_OPTION_VERSION)
		oom_write_version(n, buf, size);
	else if (k->automatic && n == OOM_COUNT_AUTO)
		snprintf(buf, size, "auto");
	else
		snprintf(buf, size, "%lld", (long long)n);
	return buf;
}

bool oom_plan_alike(const struct oom_plan *a, const struct oom_plan *b, const struct oom_option *k)
{
	const char *x = (const char *)a + k->offset, *y = (const char *)b + k->offset;
	char mine[OOM_VALUE_SIZE], other[OOM_VALUE_SIZE];

	/* most values of two plans are the same, and writing them is what takes time */
	if (k->kind == OOM_OPTION_NAMES ? !strcmp(x, y) : !memcmp(x, y, sizeof(int64_t)))
		return true;
	return !strcmp(oom_plan_get(a, k, mine, sizeof(mine)), oom_plan_get(b, k, other, sizeof(other)));
}

const char *oom_plan_options(const struct oom_plan *from, const struct oom_plan *to, char *buf,
			     size_t size)
{
	const struct oom_option *k;
	size_t used = 0;

	buf[0] = 0;
	for (size_t i = 0; (k = oom_knob_at(i)) != NULL; i++) {
		char a[OOM_VALUE_SIZE];
		int n;

		if (oom_plan_alike(from, to, k))
			continue;
		oom_plan_get(to, k, a, sizeof(a));
		if (k->kind == OOM_OPTION_FLAG)
			n = snprintf(buf + used, size - used, "%s--%s%s", used ? " " : "",
				     strcmp(a, "true") ? "no-" : "", k->name);
		else
			n = snprintf(buf + used, size - used, "%s--%s=%s", used ? " " : "", k->name,
				     a);
		used += (size_t)n < size - used ? (size_t)n : size - used - 1;
	}
	return buf;
}
