/* From a reading to a plan, and what the price then leaves out. */
#include <stdio.h>
#include <string.h>

#include "oomplan/option.h"
#include "parts.h"

/* Words that stand in a reading and that no knob has: the knobs they are priced with. */
struct stand_in {
	const char *knob, *value;
	const char *set;        /* "qlora=true"; "": nothing */
	const char *told;       /* NULL: exactly that, nothing to tell */
};

static const struct stand_in stand_ins[] = {
	{"method", "lora", "", NULL},
	{"method", "full", "", NULL},
	{"method", "freeze", "", "all weights are priced as trained: more than it needs"},
	{"base-bits", "16", "", NULL},
	{"base-bits", "4-nf4", "base-weights=nf4", NULL},
	{"base-bits", "4-fp4", "base-weights=fp4", NULL},
	{"base-bits", "8", "base-weights=int8", NULL},
	{"base-bits", "4-gptq", "base-weights=gptq", NULL},
	{"base-bits", "8-gptq", "base-weights=gptq-8bit", NULL},
	{"base-bits", "4-awq", "base-weights=awq", NULL},
	{"base-bits", "4-hqq", "base-weights=hqq", NULL},
	{"base-bits", "*", "base-weights=nf4", "priced as NF4, the nearest 4-bit format"},
	{"objective", "sft", "", NULL},
	{"objective", "pretrain", "", NULL},
	{"objective", "classification", "task=seq-cls", NULL},
	/* one policy is trained on its own rows, as GRPO does */
	{"objective", "rloo", "objective=grpo", "priced as GRPO: the policy on the rows it made"},
	{"objective", "remax", "objective=grpo", "priced as GRPO: the policy on the rows it made"},
	{"objective", "reinforce", "objective=grpo", "priced as GRPO: the policy on the rows it made"},
	{"objective", "ppo", "",
	 "priced as supervised fine-tuning of micro-batch rows: critic, reference and reward models, rollouts are "
	 "missing (--objective ppo is TRL's, with all of them on one card)"},
	{"objective", "*", "",
	 "priced as supervised fine-tuning of micro-batch rows: reference models, pairs of rows, "
	 "rollouts are missing"},
	{"packing", "*", "", NULL},     /* rows of seq-len tokens either way */
	/* a run that never evaluates */
	{"eval-batch", "0", "evaluates=no", NULL},
	{"eval-batch", "*", "", NULL},
	{"attn", "xformers", "attn=flash", NULL},       /* memory-efficient attention keeps as much */
	{"loss", "cce", "loss=cut", NULL},
	{"loss", "chunked", "loss=plain",
	 "a chunked loss is priced as the plain one: more than it needs"},
};

const char *reading_word_of(const char *knob, const char *set)
{
	for (size_t i = 0; i < sizeof(stand_ins) / sizeof(stand_ins[0]); i++)
		if (!strcmp(stand_ins[i].knob, knob) && !strcmp(stand_ins[i].set, set) && !stand_ins[i].told)
			return stand_ins[i].value;
	return NULL;
}

struct teller {
	void (*tell)(void *data, const char *text);
	void *data;
};

static void tell(const struct teller *t, const char *a, const char *b, const char *c)
{
	char text[480];

	if (!t->tell)
		return;
	snprintf(text, sizeof(text), "%s%s%s", a, b, c);
	t->tell(t->data, text);
}

/* Words that a knob has and means one framework's by, which says so with a fact of its own ("@price."). */
static bool means_another(const struct oom_reading_knob *k)
{
	static const char *const words[][2] = {{"objective", "ppo"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(words[i][0], k->name) && !strcmp(words[i][1], k->value))
			return true;
	return false;
}

/* Words with a stand-in, and those that are another's alias ("rloo" of grpo, which needs as much). */
bool reading_is_replaced(const struct oom_reading *r, const char *knob)
{
	const struct oom_option *option = oom_knob_find(knob);
	const char *value = oom_reading_value(r, knob);
	struct oom_plan plan = oom_plan_default();
	struct oom_error err = {{0}};
	char text[160];

	snprintf(text, sizeof(text), "@price.%s", knob);
	if (!value || !option || part_fact(r->all, text))
		return false;
	for (size_t i = 0; i < sizeof(stand_ins) / sizeof(stand_ins[0]); i++)
		if (!strcmp(stand_ins[i].knob, knob) && !strcmp(stand_ins[i].value, value) && !stand_ins[i].told)
			return false;
	return means_another(&(struct oom_reading_knob){.name = knob, .value = value}) ||
	       oom_plan_set(&plan, option, value, &err) || strcmp(oom_plan_get(&plan, option, text, sizeof(text)), value);
}

static void use_stand_in(const struct oom_reading *r, const struct oom_reading_knob *k, struct oom_plan *plan,
			 const struct teller *t)
{
	char what[200], priced[60];

	snprintf(what, sizeof(what), "%s %s: ", k->name, k->value);
	for (size_t i = 0; i < sizeof(stand_ins) / sizeof(stand_ins[0]); i++) {
		const struct stand_in *s = &stand_ins[i];
		const char *eq = strchr(s->set, '=');
		char name[40];

		if (strcmp(s->knob, k->name) || (strcmp(s->value, "*") && strcmp(s->value, k->value)))
			continue;
		if (eq) {
			snprintf(name, sizeof(name), "%.*s", (int)(eq - s->set), s->set);
			/* a framework has its own form of the same */
			snprintf(priced, sizeof(priced), "@price.%s", name);
			oom_plan_set(plan, oom_knob_find(name), part_fact(r->all, priced) ? part_fact(r->all, priced)->value : eq + 1,
				     NULL);
		}
		if (s->told)
			tell(t, what, s->told, "");
		return;
	}
	tell(t, what, "no knob says that yet, it is not priced", "");
}

const char *oom_reading_card(const struct oom_reading *r)
{
	return part_fact(r->all, "@card") ? part_fact(r->all, "@card")->value : NULL;
}

const char *oom_reading_config(const struct oom_reading *r, const char **why)
{
	*why = NULL;
	for (size_t i = 0; i < r->n_parts; i++) {
		const struct fw_part *p = r->parts[i];
		const char *text = p->fw->describe ? p->fw->describe(p, why) : NULL;

		if (text)
			return text;
	}
	return NULL;
}

static void apply_knob(const struct oom_reading *r, const struct oom_reading_knob *k,
		       struct oom_plan *plan, const struct teller *t)
{
	const struct oom_option *knob = oom_knob_find(k->name);
	struct oom_error err = {{0}};
	char priced[60];

	if (!strcmp(k->name, "model"))
		return;
	/* what a framework's own word is priced with */
	snprintf(priced, sizeof(priced), "@price.%s", k->name);
	if ((!knob || !part_fact(r->all, priced) ||
	     oom_plan_set(plan, knob, part_fact(r->all, priced)->value, &err)) &&
	    (!knob || means_another(k) || oom_plan_set(plan, knob, k->value, &err)))
		use_stand_in(r, k, plan, t);
	if (k->open)
		tell(t, k->name, ": ", k->why);
}

void oom_reading_apply(const struct oom_reading *r, struct oom_plan *plan,
		       void (*fn)(void *data, const char *text), void *data)
{
	const struct teller t = {fn, data};
	const struct oom_setting *s;
	const struct oom_reading_knob *k;

	for (size_t i = 0; (k = oom_reading_knob_at(r, i)) != NULL; i++)
		apply_knob(r, k, plan, &t);
	for (size_t i = 0; i < r->all->n_facts; i++)
		if (!strncmp(r->all->facts[i].knob, FW_OPEN_PREFIX, strlen(FW_OPEN_PREFIX)))
			tell(&t, r->all->facts[i].knob + strlen(FW_OPEN_PREFIX), ": ", r->all->facts[i].why);
	plan->precision_by_card = part_fact(r->all, "@by-card") != NULL;
	/* what counts and stands in no file */
	if (oom_reading_value(r, "micro-batch") && !oom_reading_value(r, "seq-len"))
		tell(&t, "seq-len: ", "the files name no length: 1024 tokens, or what --seq-len says", "");
	if (oom_reading_value(r, "engine") && !oom_reading_value(r, "gpus") &&
	    strcmp(oom_reading_value(r, "engine"), "hf"))
		tell(&t, "gpus: ", "the files do not say how many: 1, or what --gpus says", "");
	for (size_t i = 0; (s = oom_reading_setting(r, i)) != NULL; i++) {
		char what[400];

		if (s->kind < OOM_SETTING_UNMODELLED)
			continue;
		snprintf(what, sizeof(what), "%s:%u: %s: %.80s: ", s->file, (unsigned)s->line, s->key,
			 s->value);
		tell(&t, what,
		     s->kind == OOM_SETTING_UNMODELLED ? "" :
		     s->kind == OOM_SETTING_UNREADABLE ? "not understood: " :
							 "no such key is known, not used; ",
		     s->note);
	}
}
