/* Knobs that no single key says: several keys together (patch_keys.c), or the environment of a script's command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ladder/allocator_variable.h"
#include "emit/parts.h"
#include "emit/patch.h"
#include "frameworks/arguments.h"
#include "frameworks/parts.h"
#include "input/config_json.h"
#include "oomplan/rules.h"

static bool differ(const struct patch_change *a, const struct patch_change *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(a[i].word, b[i].word))
			return true;
	return false;
}

static void take(struct oom_plan *p, const struct oom_plan *from, const struct oom_option *knob)
{
	char value[160];

	oom_plan_set(p, knob, oom_plan_get(from, knob, value, sizeof(value)), NULL);
}

/* ---- what the environment says ---- */

static const struct {
	const char *knob, *value, *word;
} environment[] = {
	{"allocator", "expandable_segments", OOM_ALLOCATOR_EXPANDABLE},
};

static const char *environment_of(const struct oom_option *knob, const char *value)
{
	for (size_t i = 0; i < sizeof(environment) / sizeof(environment[0]); i++)
		if (!strcmp(environment[i].knob, knob->name) && !strcmp(environment[i].value, value))
			return environment[i].word;
	return NULL;
}

/* The first line of the script's command, or what of it stands highest; 0: it has none. */
static uint32_t first_line(const struct oom_reading *r, const struct fw_part *p, const char *text)
{
	uint32_t first = 0;

	for (size_t i = p->first_setting; i < r->n_settings; i++) {
		const struct oom_setting *s = &r->settings[i];

		if (s->line && s->kind != OOM_SETTING_DEFAULT && !strcmp(s->file, p->file) && (!first || s->line < first))
			first = s->line;
	}
	while (first > 1) {
		size_t n;
		const char *line = patch_line(text, first - 1, &n);

		if (!n || line[n - 1] != '\\')
			break;
		first--;
	}
	return first;
}

/* A line above a script's command that exports it; 0: there is no script, or it says something of it already. */
static size_t put_export(const struct oom_reading *r, const char *word, struct patch_change *out)
{
	for (size_t i = 0; i < r->n_parts; i++) {
		const struct fw_part *p = r->parts[i];
		struct oom_error err;
		char *text = NULL;
		uint32_t line = 0;
		size_t size;

		if (!p->doc.format || strcmp(p->doc.format, ARGS_FORMAT) || *p->prefix || access(p->file, F_OK))
			continue;
		if (oom_read_text(&text, &size, p->file, DOC_MAX_BYTES, &err) == OOM_ERR_MEMORY)
			return SIZE_MAX;
		if (text && !strstr(text, "ALLOC_CONF") && !strstr(text, "<<"))
			line = first_line(r, p, text);
		free(text);
		if (!line)
			continue;
		*out = (struct patch_change){.file = p->file, .line = line, .added = true, .above = true};
		snprintf(out->word, sizeof(out->word), "export %s", word);
		return 1;
	}
	return 0;
}

/* Who would read the key that says the knob, where this run's program does not; NULL: the key is missing for another reason. */
static const char *other_program(const struct oom_reading *r, const struct oom_option *knob)
{
	for (size_t i = 0; i < r->n_parts; i++) {
		const struct fw_part *p = r->parts[i];

		for (size_t l = 0; p->fw->rows && p->fw->rows[l]; l++)
			for (const struct fw_row *row = p->fw->rows[l]; row->key; row++)
				if (row->only && row->knob && !strcmp(row->knob, knob->name) && !*fw_fact(p, row->only) &&
				    *fw_fact(p, "@other-program"))
					return fw_fact(p, "@other-program");
	}
	return NULL;
}

/* ---- all together ---- */

/* What a key of the files says is that key's: others would stand beside it in vain. */
static bool is_free(const struct oom_reading *r, const struct oom_plan *from, const struct oom_plan *to,
		    const struct oom_option *knob, struct patch_change *other, size_t room, bool *failed)
{
	const struct emit_target *format;
	const struct oom_setting *s = oom_reading_key_of(r, knob->name);
	struct oom_plan one = *from;
	const struct oom_plan *const tried[] = {&one, to};
	const char *dot;

	if (!s || !s->line || s->kind == OOM_SETTING_DEFAULT)
		return true;
	take(&one, to, knob);
	dot = strrchr(s->key, '.');
	for (size_t k = 0; k < 2; k++) {
		const size_t n = patch_keys(r, from, tried[k], other, room, &format);

		*failed |= n == SIZE_MAX;
		for (size_t i = 0; n != SIZE_MAX && i < n; i++)
			if (!other[i].added && other[i].line == s->line && !strcmp(other[i].key, dot ? dot + 1 : s->key))
				return true;
	}
	return false;
}

/* No key is the knob's own, but the format says it with those of the others: written out and read back, it is there. */
static bool says(const struct emit_target *t, const struct oom_plan *plan, const struct oom_option *knob, const char *value,
		 bool *failed)
{
	struct oom_emitted e;
	struct oom_error err;
	enum oom_status st;
	char is[160];
	bool lost = false;

	if (strcmp(oom_plan_get(plan, knob, is, sizeof(is)), value))
		return false;           /* not free */
	for (const char *w = t->elsewhere; w && *w; w += strcspn(w, " "), w += strspn(w, " "))
		if (!strncmp(w, knob->name, strlen(knob->name)) && strchr(" ", w[strlen(knob->name)]) != NULL)
			return false;
	st = oom_emit(t->format.name, plan, NULL, &e, &err);
	*failed |= st == OOM_ERR_MEMORY;
	if (st)
		return false;
	for (size_t i = 0; i < e.n_unsaid; i++)
		lost |= !strncmp(e.unsaid[i], "--", 2) && !strncmp(e.unsaid[i] + 2, knob->name, strlen(knob->name)) &&
			e.unsaid[i][2 + strlen(knob->name)] == ' ';
	oom_emitted_release(&e);
	return !lost;
}

/* The engine makes it so: DeepSpeed trains 16-bit weights where mixed precision is asked for. */
static bool runs_as(const struct oom_plan *plan, const struct oom_option *knob, const char *value)
{
	struct oom_plan run = *plan;
	char is[160];

	oom_engine_recast(&run);
	return !strcmp(oom_plan_get(&run, knob, is, sizeof(is)), value);
}

enum oom_status patch_together(const struct oom_reading *r, const struct oom_plan *from, const struct oom_plan *to,
			       const struct oom_option *const *knob, size_t n, struct patch_change *out, size_t room,
			       size_t *lines, struct oom_emitted *said)
{
	struct patch_change *other = calloc(room + 1, sizeof(*other));
	/* what single keys say is as it will be: a map may have the batch in it, too */
	struct oom_plan was = *to, all;
	const struct emit_target *format = NULL, *other_format;
	size_t exports = 0, more;
	bool failed = !other;
	const char *word, *other_one;
	char value[160];

	*lines = 0;
	for (size_t i = 0; i < n; i++)
		take(&was, from, knob[i]);
	all = was;
	for (size_t i = 0; !failed && i < n; i++)
		if (is_free(r, &was, to, knob[i], other, room, &failed))
			take(&all, to, knob[i]);
	if (!failed && n)
		*lines = patch_keys(r, &was, &all, out, room, &format);
	failed |= *lines == SIZE_MAX;
	for (size_t i = 0; !failed && i < n; i++) {
		struct oom_plan less = all;
		size_t without;

		take(&less, from, knob[i]);
		without = *lines ? patch_keys(r, &was, &less, other, room, &other_format) : 0;
		failed |= without == SIZE_MAX;
		if (*lines && (without != *lines || differ(out, other, *lines)))
			continue;
		oom_plan_get(to, knob[i], value, sizeof(value));
		if (*lines && (runs_as(&less, knob[i], value) || says(format, &all, knob[i], value, &failed)))
			continue;
		word = environment_of(knob[i], value);
		more = word && *lines + exports < room ? put_export(r, word, &out[*lines + exports]) : 0;
		failed |= more == SIZE_MAX;
		exports += more == 1;
		other_one = word ? NULL : other_program(r, knob[i]);
		if (!more && said->n_unsaid < OOM_EMIT_UNSAID_MAX)
			snprintf(said->unsaid[said->n_unsaid++], sizeof(said->unsaid[0]), "--%s %.60s%s%s", knob[i]->name, value,
				 word ? ": the environment's " : other_one ? ": needs " : "", word ? word : other_one ? other_one : "");
	}
	*lines += failed ? 0 : exports;
	free(other);
	return failed ? OOM_ERR_MEMORY : OOM_OK;
}
