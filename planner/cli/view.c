/* Own rows and knobs, seen alike. */
#include "view.h"

#include <stdio.h>
#include <string.h>

static void view_own(const struct oom_option *o, struct oom_view *v)
{
	v->letter = o->letter;
	v->hint = o->hint;
	v->setting = v->source = "";
	snprintf(v->def, sizeof(v->def), "%s", o->unset ? o->unset : "");
}

static void view_knob(const struct oom_option *k, struct oom_view *v)
{
	const struct oom_plan plan = oom_plan_default();

	v->knob = true;
	v->setting = k->setting;
	v->source = k->source;
	oom_plan_get(&plan, k, v->def, sizeof(v->def));
	if (k->kind == OOM_OPTION_FLAG) {
		v->on = !strcmp(v->def, "true");
		snprintf(v->def, sizeof(v->def), "%s", v->on ? "on" : "off");
	}
}

bool oom_view_at(const struct oom_option *own, bool knobs, size_t i, struct oom_view *v)
{
	memset(v, 0, sizeof(*v));
	for (; own && own->name && i; own++)
		i--;
	if (own && own->name)
		v->row = own;
	else
		v->row = knobs ? oom_knob_at(i) : NULL;
	if (!v->row)
		return false;
	v->name = v->row->name;
	v->summary = v->row->summary;
	v->metavar = v->row->metavar;
	if (v->row->kind == OOM_OPTION_COUNT || v->row->kind == OOM_OPTION_REAL)
		snprintf(v->range, sizeof(v->range), "%.15g to %.15g%s", v->row->min, v->row->max,
			 v->row->automatic ? ", or auto" : "");
	if (v->row == own)
		view_own(v->row, v);
	else
		view_knob(v->row, v);
	return true;
}

bool oom_view_alias(const struct oom_view *v, size_t i, struct oom_view *out)
{
	const struct oom_alias *a = v->row->aliases;

	while (a && a->name && i--)
		a++;
	if (!a || !a->name)
		return false;
	memset(out, 0, sizeof(*out));
	*out = (struct oom_view){.row = v->row,
				 .alias = a,
				 .knob = v->knob,
				 .foreign = v->foreign,
				 .hint = v->hint};
	out->name = a->name;
	out->setting = out->source = "";
	out->metavar = a->flag ? NULL : a->words || !v->row->metavar ? "WORD" : v->row->metavar;
	if (v->foreign)
		out->metavar = v->row->metavar;
	snprintf(out->as, sizeof(out->as), "as --%s", v->name);
	out->summary = out->as;
	return true;
}

bool oom_view_foreign(size_t i, struct oom_view *v)
{
	memset(v, 0, sizeof(*v));
	v->row = oom_foreign_at(i);
	if (!v->row)
		return false;
	v->foreign = true;
	v->name = v->row->name;
	v->metavar = v->row->metavar;
	v->setting = v->source = "";
	snprintf(v->as, sizeof(v->as), "%s",
		 v->row->kind == OOM_OPTION_ABSENT ? "not modelled" :
		 v->row->note			   ? v->row->note :
						     "without effect on memory");
	v->summary = v->as;
	return true;
}

const char *oom_view_aliases(const struct oom_view *v, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = 0;
	for (const struct oom_alias *a = v->row->aliases; a && a->name && !a->older && used < size; a++)
		used += (size_t)snprintf(buf + used, size - used, "%s--%s", used ? ", " : "",
					 a->name);
	return buf;
}

/* The i-th word of a framework; a word whose meaning depends on the knob's value has two rows. */
static const char *alias_word(const struct oom_alias *a, size_t i)
{
	for (const struct oom_alias_word *w = a->words; w->word; w++)
		if ((w == a->words || strcmp(w[-1].word, w->word)) && !i--)
			return w->word;
	return NULL;
}

const char *oom_view_choice(const struct oom_view *v, size_t i, const char **summary)
{
	const struct oom_choice *c = v->row->choice ? v->row->choice(i) : NULL;

	if (v->alias && v->alias->words) {
		if (summary)
			*summary = NULL;
		return alias_word(v->alias, i);
	}
	if (summary)
		*summary = c ? c->summary : NULL;
	return c ? c->name : NULL;
}

const char *oom_view_choices(const struct oom_view *v, char *buf, size_t size)
{
	const char *list[OOM_LIST_MAX] = {NULL};

	for (size_t i = 0; i < OOM_LIST_MAX - 1; i++)
		list[i] = oom_view_choice(v, i, NULL);
	return oom_words_join(list, buf, size);
}
