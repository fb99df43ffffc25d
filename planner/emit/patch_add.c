/* A line for a key that no file has yet: beside a key of the same map whose value stands whole on one line, in
 * that line's indentation and spelling.  Where the surroundings are not that plain, there is no line. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit/patch.h"
#include "frameworks/arguments.h"
#include "frameworks/parts.h"
#include "input/config_json.h"

/* How a file spells one key on one line: YAML 1.2 (block mappings), TOML 1.0, RFC 8259, a shell command continued by backslashes. */
struct spelling {
	const char *format;             /* as struct doc has it */
	const char *before, *between, *after;
	const char *rest;               /* what else such a line ends with; NULL: nothing, or a comment */
	bool quotes;                    /* strings stand in them */
	bool numbers;                   /* only whole numbers: a flag's word differs from program to program */
	bool last;                      /* the map's last line lacks `rest`: the new one stands above it */
};

static const struct spelling spellings[] = {
	{.format = "yaml", .before = "", .between = ": ", .after = ""},
	{.format = "toml", .before = "", .between = " = ", .after = "", .quotes = true},
	{.format = "json", .before = "\"", .between = "\": ", .after = ",", .rest = ",", .quotes = true, .last = true},
	{.format = ARGS_FORMAT, .before = "--", .between = " ", .after = " \\", .rest = "\\", .numbers = true},
};

static const struct spelling *spelling_of(const struct fw_part *p)
{
	for (size_t i = 0; p->doc.format && i < sizeof(spellings) / sizeof(spellings[0]); i++)
		if (!strcmp(spellings[i].format, p->doc.format))
			return &spellings[i];
	return NULL;
}

static const char *last_name(const char *key)
{
	const char *dot = strrchr(key, '.');

	return dot ? dot + 1 : key;
}

static bool ends_as(const struct spelling *sp, const char *rest, size_t n, bool *last)
{
	while (n && isspace((unsigned char)rest[n - 1]))
		n--;
	while (n && isspace((unsigned char)*rest))
		rest++, n--;
	*last = sp->last && !n;
	if (!sp->rest)
		return !n || *rest == '#';
	return *last || (n == strlen(sp->rest) && !memcmp(rest, sp->rest, n));
}

/* The new line beside this key's; false: the line is not as plain as that. */
static bool beside(const struct spelling *sp, const char *text, const struct oom_setting *s, const char *key,
		   const char *word, struct patch_change *out)
{
	const struct patch_change old = {.key = last_name(s->key), .was = s->value};
	const char *quote = sp->quotes && patch_is_text(word) ? "\"" : "";
	size_t n = 0, indent = 0, from, to;
	const char *line = patch_line(text, s->line, &n);
	int len;

	while (line && indent < n && (line[indent] == ' ' || line[indent] == '\t'))
		indent++;
	if (!line || strncmp(line + indent, sp->before, strlen(sp->before)) ||
	    strncmp(line + indent + strlen(sp->before), old.key, strlen(old.key)) ||
	    !patch_locate(line, n, &old, &from, &to) || !ends_as(sp, line + to, n - to, &out->above))
		return false;
	if (sp->numbers && !patch_goes_on(line, n))
		return false;
	len = snprintf(out->word, sizeof(out->word), "%.*s%s%s%s%s%s%s%s", (int)indent, line, sp->before, key,
		       sp->between, quote, word, quote, sp->after);
	out->file = s->file;
	out->line = s->line;
	out->added = true;
	return len > 0 && (size_t)len < sizeof(out->word);
}

/* Whose entry is it?  Those of a command and of what launches it have one file and no level between them. */
bool patch_is_of(const struct oom_reading *r, const struct fw_part *p, const struct oom_setting *s)
{
	const size_t at = (size_t)(s - r->settings);
	const struct fw_part *owner = NULL;

	for (size_t i = 0; i < r->n_parts; i++)
		if (r->parts[i]->first_setting <= at && (!owner || r->parts[i]->first_setting >= owner->first_setting))
			owner = r->parts[i];
	return owner == p;
}

/* Is that a key of the same file and map? */
static bool same_map(const struct oom_reading *r, const struct fw_part *p, const struct oom_setting *s, const char *key)
{
	const size_t prefix = strlen(p->prefix), map = (size_t)(last_name(key) - key);

	return s->line && patch_is_of(r, p, s) && s->kind != OOM_SETTING_DEFAULT && *s->value && !strcmp(s->file, p->file) &&
	       !strncmp(s->key, p->prefix, prefix) && !strncmp(s->key + prefix, key, map) &&
	       !strchr(s->key + prefix + map, '.');
}

/* Beside the batch's key, which a reader looks at anyway, or else the first that is plain. */
static bool add_to(const struct oom_reading *r, const struct fw_part *p, const char *key, const char *word,
		   struct patch_change *out)
{
	const struct spelling *const sp = spelling_of(p);
	const struct oom_setting *const batch = oom_reading_key_of(r, "micro-batch");
	const size_t digits = strspn(word, "0123456789");
	struct oom_error err;
	char *text = NULL;
	size_t size;
	bool found = false;

	if (!sp || (sp->numbers && word[digits]) || oom_read_text(&text, &size, p->file, DOC_MAX_BYTES, &err))
		return false;
	if (batch && same_map(r, p, batch, key))
		found = beside(sp, text, batch, last_name(key), word, out);
	for (size_t i = 0; !found && i < r->n_settings; i++)
		if (same_map(r, p, &r->settings[i], key))
			found = beside(sp, text, &r->settings[i], last_name(key), word, out);
	free(text);
	return found;
}

/* The key stands there and says nothing yet: "max_seq_len: null", "auto". */
bool patch_fill_in(const struct oom_reading *r, const struct fw_part *p, const char *key, const char *word,
		   struct patch_change *out)
{
	const size_t prefix = strlen(p->prefix);
	struct oom_error err;
	char *text = NULL;
	size_t size, n = 0, from, to;
	const char *line;
	bool found = false;

	for (size_t i = 0; i < r->n_settings && !found; i++) {
		const struct oom_setting *s = &r->settings[i];
		const struct spelling *const sp = spelling_of(p);

		if (!s->line || s->kind == OOM_SETTING_DEFAULT || strcmp(s->file, p->file) ||
		    strncmp(s->key, p->prefix, prefix) || strcmp(s->key + prefix, key))
			continue;
		if (oom_read_text(&text, &size, p->file, DOC_MAX_BYTES, &err))
			return false;
		*out = (struct patch_change){.file = s->file, .line = s->line, .key = last_name(s->key), .was = s->value};
		line = patch_line(text, s->line, &n);
		found = line && patch_locate(line, n, out, &from, &to);
		/* a word takes quotes of its own where the old value had none */
		snprintf(out->word, sizeof(out->word),
			 found && sp && sp->quotes && patch_is_text(word) && line[from] != '"' && line[from] != '\'' ? "\"%s\"" : "%s", word);
		free(text);
		if (!found)
			return false;
	}
	return found;
}

static bool stands(const struct oom_reading *r, const struct fw_part *p, const char *key)
{
	const size_t prefix = strlen(p->prefix);

	for (size_t i = 0; i < r->n_settings; i++) {
		const struct oom_setting *s = &r->settings[i];

		if (s->line && s->kind != OOM_SETTING_DEFAULT && !strcmp(s->file, p->file) &&
		    !strncmp(s->key, p->prefix, prefix) && !strcmp(s->key + prefix, key))
			return true;
	}
	return false;
}

/* What a row needs besides, as a second line: how many lines that is; SIZE_MAX: the key has another value already. */
static size_t add_needed(const struct oom_reading *r, const struct fw_part *p, const char *needs, struct patch_change *out)
{
	const char *equals = needs ? strchr(needs, '=') : NULL;
	const struct doc_node *node;
	char key[80], value[160];

	if (!equals)
		return 0;
	snprintf(key, sizeof(key), "%.*s", (int)(equals - needs), needs);
	node = doc_below(p->root, key);
	if (!node)
		return add_to(r, p, key, equals + 1, out) ? 1 : SIZE_MAX;
	/* "[a.b]" in "[x, a.b]" */
	snprintf(value, sizeof(value), "%.*s", (int)strcspn(equals + 2, "]"), equals + 2);
	for (const struct doc_node *c = node->child; c; c = c->next)
		if (c->kind == DOC_SCALAR && !strcmp(c->text, value))
			return 0;
	return SIZE_MAX;
}

size_t patch_add(const struct oom_reading *r, const char *knob, const char *value, struct patch_change *out)
{
	struct oom_key_change c;

	/* names joined by '+' are a list, and each format has lists of its own */
	if (fw_is_withheld(r->all, knob) || !oom_reading_change(r, knob, value, &c) || *c.file || strchr(c.key, '*') || strchr(c.word, '+'))
		return 0;
	for (size_t i = 0; i < r->n_parts; i++) {
		const struct fw_part *p = r->parts[i];
		bool idle;
		const struct fw_row *row = framework_row(p->fw, c.key, &idle);
		size_t more;

		if (!row || !row->knob || strcmp(row->knob, knob))
			continue;
		/* another program would read it */
		if (row->only && !*fw_fact(p, row->only))
			return 0;
		more = add_needed(r, p, row->needs, &out[1]);
		if (more == SIZE_MAX)
			return 0;
		if (stands(r, p, c.key))
			return patch_fill_in(r, p, c.key, c.word, out) ? 1 + more : 0;
		if (add_to(r, p, c.key, c.word, out))
			return 1 + more;
	}
	return 0;
}
