/* Own rows and knobs, seen alike. */
#include "view.h"

#include <stdio.h>
#include <string.h>

static void view_own(const struct oom_option *o, struct oom_view *v)
{
	v->own = o;
	v->name = o->name;
	v->summary = o->summary;
	v->metavar = o->kind == OOM_OPTION_FLAG ? NULL : o->metavar;
	v->letter = o->letter;
	v->hint = o->hint;
	snprintf(v->def, sizeof(v->def), "%s", o->def ? o->def : "");
	if (o->kind == OOM_OPTION_COUNT || o->kind == OOM_OPTION_REAL)
		snprintf(v->range, sizeof(v->range), "%.15g to %.15g", o->min, o->max);
}

static void view_knob(const struct oom_knob *k, struct oom_view *v)
{
	const struct oom_plan plan = oom_plan_default();

	v->knob = k;
	v->name = k->name;
	v->summary = k->summary;
	v->setting = k->setting;
	v->source = k->source;
	oom_plan_get(&plan, k, v->def, sizeof(v->def));
	if (k->kind == OOM_KNOB_FLAG) {
		v->on = !strcmp(v->def, "true");
		snprintf(v->def, sizeof(v->def), "%s", v->on ? "on" : "off");
		return;
	}
	v->metavar = k->metavar;
	if (k->kind == OOM_KNOB_COUNT || k->kind == OOM_KNOB_REAL)
		snprintf(v->range, sizeof(v->range), "%.15g to %.15g%s", k->min < 0 ? 0 : k->min,
			 k->max, k->min < 0 ? ", or auto" : "");
}

bool oom_view_at(const struct oom_option *own, bool knobs, size_t i, struct oom_view *v)
{
	const struct oom_knob *k;

	memset(v, 0, sizeof(*v));
	v->setting = v->source = "";
	for (; own && own->name; own++) {
		if (!i--) {
			view_own(own, v);
			return true;
		}
	}
	k = knobs ? oom_knob_at(i) : NULL;
	if (!k)
		return false;
	view_knob(k, v);
	return true;
}

const char *oom_view_choice(const struct oom_view *v, size_t i, const char **summary)
{
	const struct oom_choice *c;

	if (summary)
		*summary = NULL;
	if (v->own) {
		const char *const *words = v->own->choices;

		for (size_t n = 0; words && n < i; n++)
			if (!words[n])
				return NULL;
		return words ? words[i] : NULL;
	}
	c = v->knob->kind == OOM_KNOB_CHOICE ? v->knob->choice(i) : NULL;
	if (c && summary)
		*summary = c->summary;
	return c ? c->name : NULL;
}

const char *oom_view_choices(const struct oom_view *v, char *buf, size_t size)
{
	const char *list[OOM_LIST_MAX] = {NULL};

	for (size_t i = 0; i < OOM_LIST_MAX - 1; i++)
		list[i] = oom_view_choice(v, i, NULL);
	return oom_words_join(list, buf, size);
}
