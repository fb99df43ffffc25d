/* What a plan says in the words of a file, and the tree that a format is filled into. */
#include <stdio.h>
#include <string.h>

#include "emit/parts.h"
#include "frameworks/parts.h"
#include "oomplan/engine.h"
#include "oomplan/option.h"

/* ---- facts of the plan ---- */

/* Weights' format and what computes, of a precision (settle.c puts them together again). */
static const struct {
	int64_t precision;
	const char *dtype, *autocast;
} precisions[] = {
	{OOM_FP32, "fp32", "no"},       {OOM_BF16, "bf16", "no"},       {OOM_FP16, "fp16", "no"},
	{OOM_AMP_BF16, "fp32", "bf16"}, {OOM_BF16_AMP, "bf16", "bf16"}, {OOM_AMP_FP16, "fp32", "fp16"},
	{OOM_FP16_AMP, "fp16", "fp16"},
};

static const char *knob_text(const struct oom_plan *plan, const char *knob, char buf[160])
{
	const struct oom_option *k = oom_knob_find(knob);

	return k ? oom_plan_get(plan, k, buf, 160) : "";
}

static const char *precision_part(const struct emission *e, bool dtype)
{
	const int64_t precision = e->plan->precision;
	/* where 16-bit weights are what mixed precision means, it is asked for by the same switch */
	const bool same = (precision == OOM_BF16 || precision == OOM_FP16) &&
			  oom_engine_at((size_t)e->plan->engine)->casts_model;

	for (size_t i = 0; i < sizeof(precisions) / sizeof(precisions[0]); i++)
		if (precision == precisions[i].precision)
			return dtype || same ? precisions[i].dtype : precisions[i].autocast;
	return "";
}

const char *emit_base_bits(const struct emission *e)
{
	char buf[160], set[200];
	const char *word;

	if (!strcmp(knob_text(e->plan, "qlora", buf), "true") ||
	    !strcmp(knob_text(e->plan, "base-weights", buf), "nf4") ||
	    /* NF4 in another's layers */
	    !strcmp(buf, "lightning") || !strcmp(buf, "litgpt"))
		return "4-nf4";
	snprintf(set, sizeof(set), "base-weights=%s", buf);
	word = reading_word_of("base-bits", set);
	return word ? word : "16";
}

const char *emit_fact(const struct emission *e, const char *knob, char buf[160])
{
	if (!strcmp(knob, "model"))
		return e->model;
	if (!strcmp(knob, "method"))
		return oom_plan_adapted(e->plan) ? "lora" : "full";
	if (!strcmp(knob, "base-bits"))
		return emit_base_bits(e);
	if (!strcmp(knob, "@dtype"))
		return precision_part(e, true);
	if (!strcmp(knob, "@autocast"))
		return precision_part(e, false);
	return knob_text(e->plan, knob, buf);
}

bool emit_is(const struct emission *e, const char *knob, const char *value)
{
	char buf[160];

	return !strcmp(emit_fact(e, knob, buf), value);
}

bool emit_adapted(const struct emission *e)
{
	return oom_plan_adapted(e->plan);
}

bool emit_deepspeed(const struct emission *e)
{
	return emit_is(e, "engine", "deepspeed");
}

bool emit_fsdp(const struct emission *e)
{
	return emit_is(e, "engine", "fsdp1") || emit_is(e, "engine", "fsdp2");
}

bool emit_fsdp_checkpoints(const struct emission *e)
{
	return emit_fsdp(e) && emit_is(e, "zero", "3") && emit_is(e, "grad-ckpt", "full");
}

/* ---- the tree ---- */

static struct doc_node *branch(struct emission *e, const char *path, const char **leaf)
{
	struct doc_node *at = e->doc.root;
	const char *dot;

	for (; at && (dot = strchr(path, '.')) != NULL; path = dot + 1) {
		struct doc_node *found = NULL;

		for (struct doc_node *c = at->child; c; c = c->next)
			if (!strncmp(c->key, path, (size_t)(dot - path)) && !c->key[dot - path])
				found = c;
		if (!found) {
			const char *name = doc_text(&e->doc, path, (size_t)(dot - path));

			found = name ? doc_add(&e->doc, at, name, DOC_MAP, 0, 0) : NULL;
		}
		at = found;
	}
	*leaf = path;
	e->failed |= !at;
	return at;
}

void emit_set(struct emission *e, const char *path, const char *value)
{
	struct doc_node *at;
	const char *leaf;

	if (!*value)
		return;
	at = branch(e, path, &leaf);
	for (struct doc_node *c = at ? at->child : NULL; c; c = c->next)
		if (!strcmp(c->key, leaf))
			return;
	e->failed |= !at || !doc_add_text(&e->doc, at, leaf, value, 0, 0);
}

void emit_names(struct emission *e, const char *path, const char *names)
{
	const char *leaf;
	struct doc_node *at = branch(e, path, &leaf), *list;

	list = at ? doc_add(&e->doc, at, leaf, DOC_LIST, 0, 0) : NULL;
	for (const char *p = names; list && *p;) {
		const size_t n = strcspn(p, "+");
		const char *one = doc_text(&e->doc, p, n);

		e->failed |= !one || !doc_add_text(&e->doc, list, NULL, one, 0, 0);
		p += n + (p[n] == '+');
	}
	e->failed |= !list;
}

static void set_row(struct emission *e, const char *path, const struct fw_row *row)
{
	char buf[160], word[160];
	const char *value = emit_fact(e, row->knob, buf), *said;
	const struct oom_option *k = oom_knob_find(row->knob);

	if (!*value)
		return;
	if (k && k->kind == OOM_OPTION_NAMES) {
		/* one of them, or a word for many, is no list */
		if (strchr(value, '+'))
			emit_names(e, path, value);
		else
			emit_set(e, path, value);
		return;
	}
	said = row_word(row, value, word, sizeof(word));
	if (said)
		emit_set(e, path, said);
}

void emit_rows(struct emission *e, const char *prefix, const char *framework, const char *keys)
{
	const struct framework *fw = framework_find(framework);

	for (const char *p = keys; fw && *p;) {
		char key[120], path[200];
		const size_t n = strcspn(p, " ");
		const struct fw_row *row;
		bool idle;

		snprintf(key, sizeof(key), "%.*s", (int)n, p);
		snprintf(path, sizeof(path), "%s%s", prefix, key);
		row = framework_row(fw, key, &idle);
		if (row && row->knob)
			set_row(e, path, row);
		p += n + (p[n] == ' ');
	}
}
