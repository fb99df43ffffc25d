/* What no single key of the files says, as the format's own writer would say it: an engine is several keys at once.
 * The same format is filled twice, for the plan as it was and with the knobs in question changed; the keys in which the
 * two differ are the change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emit/parts.h"
#include "emit/patch.h"
#include "frameworks/arguments.h"
#include "frameworks/parts.h"
#include "input/config_json.h"

/* ---- the format filled ---- */

static const char *format_of(const struct emit_target *t)
{
	const char *dot = t->reads_as ? strrchr(t->reads_as, '.') : NULL;

	return !dot ? "" : !strcmp(dot, ".sh") ? ARGS_FORMAT : dot + 1;
}

/* Does a map within the part hold its settings ("parameters" of a platform's job)?  Such a frame no writer makes. */
static bool is_frame(const struct fw_part *p)
{
	const struct oom_reading *r = p->reading;

	for (size_t i = 0; i < r->n_parts; i++)
		if (r->parts[i]->fw == p->fw && *r->parts[i]->prefix && !strcmp(r->parts[i]->file, p->file))
			return true;
	return false;
}

/* The format in which a file of this part is written; NULL: none is. */
static const struct emit_target *target_of(const struct fw_part *p)
{
	for (const struct emit_target *t = emit_targets; t->format.name; t++)
		if (t->framework && !t->line && p->doc.format && !*p->prefix && !strcmp(t->framework, p->fw->name) &&
		    !strcmp(format_of(t), p->doc.format) && !is_frame(p))
			return t;
	return NULL;
}

static bool begin(struct emission *e, const struct oom_plan *plan)
{
	struct oom_error err;

	*e = (struct emission){.plan = plan, .model = "ORG/MODEL"};
	return !doc_begin(&e->doc, "emit", "", &err) && doc_add(&e->doc, NULL, NULL, DOC_MAP, 0, 0);
}

static bool fill(struct emission *e, const struct emit_target *t, const struct oom_plan *plan)
{
	if (begin(e, plan))
		t->fill(e);
	else
		e->failed = true;
	return !e->failed;
}

static const struct doc_node *child_of(const struct doc_node *map, const char *key)
{
	for (const struct doc_node *c = map ? map->child : NULL; c; c = c->next)
		if (!strcmp(c->key, key))
			return c;
	return NULL;
}

static bool same(const struct doc_node *a, const struct doc_node *b)
{
	const struct doc_node *x, *y;

	if (!a || !b || a->kind != b->kind || strcmp(a->text, b->text))
		return false;
	for (x = a->child, y = b->child; x && y; x = x->next, y = y->next)
		if ((x->key && strcmp(x->key, y->key)) || !same(x, y))
			return false;
	return !x && !y;
}

/* ---- where lines go ---- */

/* The line of the part below which others may stand. */
static const struct oom_setting *anchor_of(const struct oom_reading *r, const struct fw_part *p, char indent[40],
					   bool *failed)
{
	const bool command = !strcmp(p->doc.format, ARGS_FORMAT);
	const struct oom_setting *found = NULL;
	struct oom_error err;
	char *text = NULL;
	size_t size;

	*failed = oom_read_text(&text, &size, p->file, DOC_MAX_BYTES, &err) == OOM_ERR_MEMORY;
	if (!text)
		return NULL;
	/* below the first option of a command; below the last entry of YAML, where it parts none that belong together */
	for (size_t i = p->first_setting; !(found && command) && i < r->n_settings; i++) {
		const struct oom_setting *s = &r->settings[i];
		size_t n = 0;
		const char *line = s->line && s->kind != OOM_SETTING_DEFAULT && !strcmp(s->file, p->file) && patch_is_of(r, p, s) ?
					   patch_line(text, s->line, &n) :
					   NULL;

		if (!line || (found && s->line < found->line) || !(command ? patch_goes_on(line, n) : patch_whole_entry(line, n)))
			continue;
		found = s;
		n = strspn(line, " \t");
		/* the command's own name stands further out than its options */
		snprintf(indent, 40, "%.*s%s", n < 30 ? (int)n : 30, line, command && line[n] != '-' ? "  " : "");
	}
	free(text);
	return found;
}

/* ---- a key ---- */

struct changes {
	const struct oom_reading *r;
	const struct fw_part *p;
	const struct oom_setting *anchor;
	uint32_t below;                 /* where there is none: the line below which the next ones stand */
	char indent[40];                /* of the lines beside it */
	struct patch_change *out;
	size_t n, room;
	bool failed;                    /* out of host memory */
};

static bool put_line(struct changes *c, const char *text, size_t n, const char *end)
{
	struct patch_change *o = &c->out[c->n];
	int len;

	if (c->n == c->room)
		return false;
	*o = (struct patch_change){.file = c->p->file, .added = true, .line = c->anchor ? c->anchor->line : c->below};
	len = snprintf(o->word, sizeof(o->word), "%s%.*s%s", c->indent, (int)n, text, end);
	c->n++;
	return len >= 0 && (size_t)len < sizeof(o->word);
}

/* The key and all below it, as the format's writer spells them. */
static bool put_new(struct changes *c, const struct doc_node *node)
{
	const bool command = !strcmp(c->p->doc.format, ARGS_FORMAT);
	struct emit_text text = {.text = NULL};
	struct emission e;
	bool ok = begin(&e, NULL) && doc_add_copy(&e.doc, e.doc.root, node->key, node);

	if (ok && command)
		emit_options(&e, &text);
	else if (ok)
		emit_yaml(&e, &text);
	ok = ok && !text.failed && text.text;
	c->failed |= !ok;
	for (const char *line = ok ? text.text : ""; ok && *line; line += strcspn(line, "\n") + 1)
		ok = put_line(c, line, strcspn(line, "\n"), command && c->anchor ? " \\" : "");
	emit_text_release(&text);
	doc_release(&e.doc);
	return ok;
}

/* A key that stands there already. */
static bool put_over(struct changes *c, const char *key, const char *word)
{
	if (c->n == c->room || !patch_fill_in(c->r, c->p, key, word, &c->out[c->n]))
		return false;
	c->n++;
	return true;
}

static bool put_node(struct changes *c, const struct doc_node *node)
{
	const struct doc_node *there = child_of(c->p->root, node->key);

	if (!there)
		return put_new(c, node);
	if (node->kind == DOC_SCALAR && there->kind == DOC_SCALAR)
		return !strcmp(node->text, there->text) || put_over(c, node->key, node->text);
	return same(node, there);       /* maps are not merged */
}

/* ---- TOML: tables of keys ---- */

/* The line of the table's header in the file, which keys may stand below; 0: it is not that plain. */
static uint32_t header_of(const struct fw_part *p, const struct doc_node *table)
{
	struct oom_error err;
	const char *line;
	char *text = NULL;
	size_t size, n = 0;
	bool plain;

	if (oom_read_text(&text, &size, p->file, DOC_MAX_BYTES, &err))
		return 0;
	line = patch_line(text, table->line, &n);
	plain = line && n > strlen(table->key) + 1 && line[0] == '[' && !strncmp(line + 1, table->key, strlen(table->key)) &&
		line[1 + strlen(table->key)] == ']';
	free(text);
	return plain ? table->line : 0;
}

/* The lines of a file, and whether all can stand below the last one. */
static uint32_t last_line(const char *file)
{
	struct oom_error err;
	char *text = NULL;
	size_t size;
	uint32_t n = 0;

	if (oom_read_text(&text, &size, file, DOC_MAX_BYTES, &err))
		return 0;
	for (size_t i = 0; i < size; i++)
		n += text[i] == '\n';
	n += size && text[size - 1] != '\n';
	free(text);
	return n;
}

/* Keys that are new, in a table of the file or one of their own at its end. */
static bool put_keys(struct changes *c, struct emission *e, const struct doc_node *there)
{
	struct emit_text text = {.text = NULL};
	bool ok;

	c->below = there ? header_of(c->p, there) : last_line(c->p->file);
	emit_toml(e, &text);
	ok = c->below && !e->failed && !text.failed && text.text;
	c->failed |= e->failed || text.failed;
	if (ok && !there)
		ok = put_line(c, "", 0, "");
	for (const char *line = ok ? text.text : ""; ok && *line; line += strcspn(line, "\n") + 1)
		ok = (there && *line == '[') || put_line(c, line, strcspn(line, "\n"), "");
	emit_text_release(&text);
	return ok;
}

/* What differs within one table. */
static bool put_table(struct changes *c, const struct doc_node *was, const struct doc_node *is)
{
	const struct doc_node *there = child_of(c->p->root, is->key);
	struct doc_node *table;
	struct emission e;
	bool ok = begin(&e, NULL) && (table = doc_add(&e.doc, e.doc.root, is->key, DOC_MAP, 0, 0)) != NULL;
	char path[160];

	c->failed |= !ok;
	for (const struct doc_node *k = is->child; ok && k; k = k->next) {
		const struct doc_node *old = child_of(there, k->key);

		if (same(child_of(was, k->key), k) || (old && same(old, k)))
			continue;
		snprintf(path, sizeof(path), "%s.%s", is->key, k->key);
		if (old)
			ok = k->kind == DOC_SCALAR && old->kind == DOC_SCALAR && put_over(c, path, k->text);
		else
			ok = doc_add_copy(&e.doc, table, k->key, k);
	}
	for (const struct doc_node *k = was ? was->child : NULL; ok && k; k = k->next)
		ok = child_of(is, k->key) || !child_of(there, k->key);
	if (ok && table->child)
		ok = put_keys(c, &e, there);
	doc_release(&e.doc);
	return ok;
}

static bool put_tables(struct changes *c, const struct doc_node *was, const struct doc_node *is)
{
	for (const struct doc_node *k = is->child; k; k = k->next)
		if (k->kind != DOC_MAP || !put_table(c, child_of(was, k->key), k))
			return false;
	for (const struct doc_node *k = was->child; k; k = k->next)
		for (const struct doc_node *g = child_of(is, k->key) ? NULL : k->child; g; g = g->next)
			if (child_of(child_of(c->p->root, k->key), g->key))
				return false;
	return c->n > 0;
}

/* ---- the part that says it ---- */

static bool is_toml(const struct fw_part *p)
{
	return !strcmp(p->doc.format, "toml");
}

/* Something of it goes away: that is nobody's line to take out, where it stands at all. */
static bool loses(const struct doc_node *was, const struct doc_node *is)
{
	for (const struct doc_node *k = was ? was->child : NULL; k; k = k->next)
		if (k->key && !child_of(is, k->key))
			return true;
	return false;
}

/* The keys in which the two differ. */
static bool put_all(struct changes *c, const struct doc_node *was, const struct doc_node *is)
{
	for (const struct doc_node *k = is->child; k; k = k->next)
		if (!same(child_of(was, k->key), k) && (loses(child_of(was, k->key), k) || !put_node(c, k)))
			return false;
	for (const struct doc_node *k = was->child; k; k = k->next)
		if (!child_of(is, k->key) && child_of(c->p->root, k->key))
			return false;
	return c->n > 0;
}

static bool by_part(struct changes *c, const struct emit_target *t, const struct oom_plan *from, const struct oom_plan *to)
{
	struct emission was, is;
	const bool ok = fill(&was, t, from), both = fill(&is, t, to) && ok;
	bool done = false;

	c->failed |= !both;
	c->n = 0;
	if (both && !same(was.doc.root, is.doc.root))
		done = is_toml(c->p) ? put_tables(c, was.doc.root, is.doc.root) : put_all(c, was.doc.root, is.doc.root);
	doc_release(&was.doc);
	doc_release(&is.doc);
	return done;
}

size_t patch_keys(const struct oom_reading *r, const struct oom_plan *from, const struct oom_plan *to,
		  struct patch_change *out, size_t room, const struct emit_target **format)
{
	/* what launches says how; only where nothing of it is a file, the trainer's own arguments do */
	for (int launcher = 1; launcher >= 0; launcher--)
		for (size_t i = 0; i < r->n_parts; i++) {
			struct changes c = {.r = r, .p = r->parts[i], .out = out, .room = room};
			const struct emit_target *t = target_of(c.p);
			const bool on_disk = t && !access(c.p->file, F_OK);     /* else a command line */

			if (!t || (c.p->fw->role == FW_LAUNCHER) != launcher)
				continue;
			c.anchor = on_disk && !is_toml(c.p) ? anchor_of(r, c.p, c.indent, &c.failed) : NULL;
			if ((!on_disk || c.anchor || is_toml(c.p)) && by_part(&c, t, from, to)) {
				*format = t;
				return c.n;
			}
			if (c.failed)
				return SIZE_MAX;
		}
	return 0;
}
