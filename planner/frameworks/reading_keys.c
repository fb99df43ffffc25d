/* The keys of one file, by its framework's rows: entries of the reading, and what they say of knobs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "oomplan/option.h"
#include "parts.h"

enum { PATH = 512, VALUE = 400 };

/* A value as the knob spells it; false with words why not. */
static bool as_knob(const struct fw_row *row, const struct doc_node *node,
		    const char *key, char *buf, size_t size, struct oom_error *err)
{
	const struct oom_option *k = oom_knob_find(row->knob);
	const struct oom_alias alias = {.name = key};
	struct oom_plan plan = oom_plan_default();
	char text[VALUE];
	int64_t whole;

	doc_show(node, text, sizeof(text));
	if (row->map) {
		const char *mapped = row_value(row, text, buf, size), *word = NULL;
		char other[VALUE];

		if ((!mapped || !strcmp(buf, "=")) && node->kind == DOC_SCALAR)
			word = doc_is_true(node) ? "true" : doc_is_off(node) ? "false" : NULL;
		/* "True", "yes", 1, unless only a map's '*' takes them */
		if (word && row_value(row, word, other, sizeof(other)) && strcmp(other, "=")) {
			snprintf(buf, size, "%s", other);
			mapped = buf;
		}
		if (!mapped)
			oom_error_set(err, OOM_ERR_INVALID, "\"%.60s\" is no word that is known here",
				      text);
		if (!mapped || strcmp(buf, "="))
			return mapped != NULL;
	}
	if (k && k->kind == OOM_OPTION_NAMES) {
		names_of(node, buf, size);
		return true;
	}
	if (node->kind != DOC_SCALAR) {
		oom_error_set(err, OOM_ERR_INVALID, "one value was expected");
		return false;
	}
	if (!k) {
		snprintf(buf, size, "%s", text);
		return true;
	}
	if (k->kind == OOM_OPTION_COUNT) {
		if (!doc_whole(node, &whole) && !(k->automatic && oom_same_word(text, "auto"))) {
			oom_error_set(err, OOM_ERR_INVALID, "\"%.60s\" is no whole number", text);
			return false;
		}
		if (!oom_same_word(text, "auto"))
			snprintf(text, sizeof(text), "%lld", (long long)whole);
	}
	if (k->kind == OOM_OPTION_FLAG)
		snprintf(text, sizeof(text), "%s", doc_is_true(node) ? "true" : doc_is_off(node) ? "false" : node->text);
	if (oom_plan_set_as(&plan, k, &alias, key, text, err))
		return false;
	oom_plan_get(&plan, k, buf, size);
	return true;
}

/* "value other=value": the row's knob, then others. */
static void set_all(struct fw_part *p, const struct fw_row *row, char *value, const char *key)
{
	char *save = NULL;
	bool first = true;

	if (!row->map) {
		fw_set(p, row->knob, value, key, row->source);
		return;
	}
	for (char *w = strtok_r(value, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		char *eq = first ? NULL : strchr(w, '=');

		if (eq)
			*eq++ = 0;
		fw_set(p, eq ? w : row->knob, eq ? eq : w, key, row->source);
		first = false;
	}
}

static void unreadable(struct oom_setting *s, const char *note)
{
	s->kind = OOM_SETTING_UNREADABLE;
	s->note = note;
}

/* The entry of a key that has a row. */
static void take(struct fw_part *p, const struct fw_row *row, const struct doc_node *node,
		 const char *key, struct oom_setting *s)
{
	struct oom_error err = {{0}};
	char value[VALUE];
	size_t at;

	s->source = row->source ? row->source : "";
	s->kind = OOM_SETTING_USED;
	/* "none" may be a word of the key's own */
	if (doc_is_null(node) && !node_is_placeholder(node) &&
	    !(row->map && node->kind == DOC_SCALAR && row_value(row, node->text, value, sizeof(value)))) {
		reading_add(p->reading, s);
		return;
	}
	if (node_is_placeholder(node)) {
		if (row->knob || row->hook || row->note)
			unreadable(s, node->tag && strcmp(node->tag, ARGS_UNKNOWN) ?
					      "an object of another language: not evaluated" :
					      "a placeholder that the file does not fill in");
		if (row->knob)
			fw_withhold(p, row->knob);
		reading_add(p->reading, s);
		return;
	}
	if (row->note && !doc_is_off(node)) {
		s->kind = OOM_SETTING_UNMODELLED;
		s->note = row->note;
	}
	if (row->knob && !as_knob(row, node, key, value, sizeof(value), &err))
		unreadable(s, reading_text(p->reading, "%s", err.text));
	at = reading_add(p->reading, s);
	if (row->knob && at != NO_SETTING && s->kind != OOM_SETTING_UNREADABLE)
		set_all(p, row, value, key);
}

/* All keys that the framework has, of rows and of lists; `words` holds copies of the lists. */
static size_t all_keys(const struct framework *fw, const char **names, size_t most, char *words,
		       size_t size)
{
	size_t n = 0, used = 0;

	for (size_t l = 0; fw->rows && fw->rows[l]; l++)
		for (const struct fw_row *r = fw->rows[l]; r->key && n < most; r++)
			names[n++] = r->key;
	for (size_t l = 0; fw->idle && fw->idle[l]; l++) {
		const size_t len = strlen(fw->idle[l]) + 1;
		char *save = NULL, *copy = words + used;

		if (used + len > size)
			break;
		memcpy(copy, fw->idle[l], len);
		used += len;
		for (char *w = strtok_r(copy, " ", &save); w && n < most; w = strtok_r(NULL, " ", &save))
			if (!strchr(w, '*'))
				names[n++] = w;
	}
	return n;
}

/* The known key nearest to one that is not. */
static const char *near_key(struct fw_part *p, const char *key)
{
	enum { MOST = 4000, WORDS = 1 << 16 };
	const char **names = malloc((MOST + 1) * sizeof(*names)), *near = NULL;
	char *words = malloc(WORDS);

	if (names && words) {
		names[all_keys(p->fw, names, MOST, words, WORDS)] = NULL;
		near = oom_nearest_within(key, names, strlen(key) > 6 ? 2 : 1);
		if (near)
			near = reading_text(p->reading, "%s", near);
	}
	free(words);
	free(names);
	return near;
}

/* Does a row stand for something below this key? */
static bool rows_below(const struct framework *fw, const char *key)
{
	const size_t n = strlen(key);

	for (size_t l = 0; fw->rows && fw->rows[l]; l++)
		for (const struct fw_row *r = fw->rows[l]; r->key; r++)
			if (!strncmp(r->key, key, n) && r->key[n] == '.')
				return true;
	return false;
}

static void walk(struct fw_part *p, const struct doc_node *map, const char *above, bool covered,
		 int depth)
{
	for (const struct doc_node *c = map->child; c; c = c->next) {
		char path[PATH], shown[VALUE];
		const struct fw_row *row;
		struct oom_setting s;
		bool idle;

		if (!c->key || *c->key == '(' || !strcmp(c->key, ARGS_REST) || doc_member(map, c->key) != c || !strcmp(c->key, "<<") ||
		    (size_t)snprintf(path, sizeof(path), "%s%s%s", above, *above ? "." : "",
				     c->key) >= sizeof(path))
			continue;
		row = framework_row(p->fw, path, &idle);
		s = (struct oom_setting){
			.key = reading_text(p->reading, "%s%s", p->prefix, path),
			.value = reading_text(p->reading, "%s", doc_show(c, shown, sizeof(shown))),
			.knob = "", .knob_value = "", .file = p->file, .line = c->line,
			.column = c->column, .source = "", .note = "",
			.kind = OOM_SETTING_IDLE};
		if (c->tag && !strcmp(c->tag, ARGS_OF_SCRIPT))
			s.note = reading_text(p->reading, "not in the command: the default of %s", p->script);
		if (p->command && c->kind == DOC_SCALAR && doc_below(p->command->root, path)) {
			s.note = "the command says otherwise";
			reading_add(p->reading, &s);
		} else if (row && !idle) {
			take(p, row, c, path, &s);
			if (c->kind == DOC_MAP && depth < DOC_MAX_DEPTH && rows_below(p->fw, row->key))
				walk(p, c, path, true, depth + 1);
		} else if (c->kind == DOC_MAP && c->n && depth < DOC_MAX_DEPTH &&
			   (rows_below(p->fw, path) || !(idle || covered))) {
			walk(p, c, path, covered, depth + 1);
		} else if (idle || covered || (c->kind == DOC_MAP && !c->n)) {
			reading_add(p->reading, &s);
		} else {
			/* of the first ones: a file of unknown keys alone has no nearest */
			const char *near = p->n_unknown++ < 50 ? near_key(p, path) : NULL;

			s.kind = OOM_SETTING_UNKNOWN;
			s.note = near ? reading_text(p->reading, "did you mean %s?", near) : "";
			reading_add(p->reading, &s);
		}
	}
}

static void defaults(struct fw_part *p)
{
	for (size_t l = 0; p->fw->rows && p->fw->rows[l] && !(l && p->fw->own_defaults); l++)
		for (const struct fw_row *r = p->fw->rows[l]; r->key; r++) {
			char value[VALUE];
			struct fw_row named = *r;

			if (!r->def || part_fact(p, r->knob) || fw_key(p, r->key))
				continue;
			snprintf(value, sizeof(value), "%s", r->def);
			named.map = "";
			set_all(p, &named, value, r->key);
		}
}

void part_run(struct fw_part *p)
{
	p->first_setting = p->reading->n_settings;
	if (p->doc.n_documents > 1) {
		const struct oom_setting s = {
			.key = "---", .value = "", .knob = "", .knob_value = "", .file = p->file,
			.source = "", .kind = OOM_SETTING_UNKNOWN,
			.note = "documents after the first are not read"};

		reading_add(p->reading, &s);
	}
	part_tell_others(p);
	if (p->root && p->root->kind == DOC_MAP)
		walk(p, p->root, "", false, 0);
	if (!p->command) {
		fw_nested(p, ARGS_LAUNCHER, "launcher");
		fw_nested(p, ARGS_PINS, "pip");
	}
	part_run_config(p);
	if (p->config || (p->missing_config && p->fw->role == FW_LAUNCHER))
		return;
	defaults(p);
	if (p->fw->loop)
		fw_default(p, "loop", p->fw->loop, p->fw->name);
	if (p->fw->finish)
		p->fw->finish(p);
	part_tell(p);
}
