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

const char *oom_view_choice(const struct oom_view *v, size_t i, const char **summary)
{
	const struct oom_choice *c = v->row->choice ? v->row->choice(i) : NULL;

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
