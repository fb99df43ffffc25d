/* data/compat.csv and data/class_flags.csv, row by row. */
#include "table.h"

#include <stdio.h>
#include <string.h>

#include "embedded.h"

/* ---- rows ----
 *
 * The files are our own and small; every question reads them, so nothing is allocated for it. */

/* One cell, quoted by RFC 4180 or not; returns what ends it, or NULL when it has no room.  Stretches between
 * quotes are copied as a whole: the table has some 60,000 characters. */
static const char *cell(const char *at, char **out, const char *end)
{
	const bool quoted = *at == '"';

	for (at += quoted;; (*out)++, at++) {
		const size_t n = strcspn(at, quoted ? "\"" : ",\r\n");

		if ((size_t)(end - *out) <= n + 1)
			return NULL;
		memcpy(*out, at, n);
		*out += n;
		at += n;
		if (!quoted || !*at || *++at != '"')
			break;
		**out = '"';                    /* written twice, it is one */
	}
	*(*out)++ = 0;
	return at;
}

bool compat_next_row(struct rows *rows, size_t n, const char *cells[], char *buf, size_t size)
{
	const char *end = buf + size;

	for (size_t i = 0; i < n; i++) {
		cells[i] = buf;
		if (!*rows->at || buf >= end)
			return false;
		rows->at = cell(rows->at, &buf, end);
		if (!rows->at)
			return false;
		if (i + 1 < n && *rows->at++ != ',')
			return false;
	}
	rows->at += strspn(rows->at, "\r\n");
	return true;
}

struct rows compat_rows(const char *file)
{
	const char *text = (const char *)oom_embedded_find(file)->bytes;

	return (struct rows){text + strcspn(text, "\n") + 1};   /* past the header */
}

/* ---- rules ---- */

static int verdict(const char *word)
{
	for (int v = OOM_REFUSED; v <= OOM_CONDITIONAL; v++)
		if (!strcmp(word, oom_compat_verdict_str((enum oom_compat_verdict)v)))
			return v;
	return OOM_REFUSED;
}

bool oom_compat_rule_at(size_t i, struct oom_compat_rule *out)
{
	enum { RULE, WHEN, VERDICT, HAPPENS, SETTING, INSTEAD, SOURCE, CHECKED, COLUMNS };
	struct rows rows = compat_rows("compat.csv");
	const char *c[COLUMNS];
	char buf[1600];

	for (size_t k = 0; k <= i; k++)
		if (!compat_next_row(&rows, COLUMNS, c, buf, sizeof(buf)))
			return false;
	out->verdict = (enum oom_compat_verdict)verdict(c[VERDICT]);
	snprintf(out->name, sizeof(out->name), "%s", c[RULE]);
	snprintf(out->when, sizeof(out->when), "%s", c[WHEN]);
	snprintf(out->happens, sizeof(out->happens), "%s", c[HAPPENS]);
	snprintf(out->setting, sizeof(out->setting), "%s", c[SETTING]);
	snprintf(out->instead, sizeof(out->instead), "%s", c[INSTEAD]);
	snprintf(out->source, sizeof(out->source), "%s", c[SOURCE]);
	snprintf(out->checked, sizeof(out->checked), "%s", c[CHECKED]);
	return true;
}

const char *oom_compat_verdict_str(enum oom_compat_verdict v)
{
#define WORD(id, word, summary) word,
	static const char *const words[] = {OOM_VERDICTS(WORD)};
#undef WORD

	return words[v];
}

/* ---- classes ---- */

bool oom_class_flags(const struct oom_model *model, enum oom_task task, struct oom_class_flags *out)
{
	enum { TASK, TYPE, CLASS, CKPT, SDPA, FLASH, WRAPS, LIGER, NORM, FP16, CUT, COLUMNS };
	const char *type = oom_model_type(model);
	const char *word = oom_knob_find("task")->choice((size_t)task)->name;
	struct rows rows = compat_rows("class_flags.csv");
	bool found = false, exact = false;
	const char *c[COLUMNS];
	char buf[300];

	/* heads share their backbone's traits: a class of the type will do where the task has none */
	while (!exact && compat_next_row(&rows, COLUMNS, c, buf, sizeof(buf))) {
		exact = !strcmp(c[TYPE], type) && !strcmp(c[TASK], word);
		if (strcmp(c[TYPE], type) || (found && !exact))
			continue;
		found = true;
		snprintf(out->name, sizeof(out->name), "%s", c[CLASS]);
		out->checkpointing = *c[CKPT] == '1';
		out->sdpa = *c[SDPA] == '1';
		out->flash = *c[FLASH] == '1';
		out->wraps = *c[WRAPS] == '1';
		out->liger = *c[LIGER] == '1';
		out->batchnorm = *c[NORM] == '1';
		out->fp16_overflow = *c[FP16] == '1';
		out->cut = *c[CUT] == '1';
	}
	return found;
}
