/* One tree in the spellings of YAML, JSON, TOML, options, overrides and Python. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit/parts.h"

void emit_put(struct emit_text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || t->failed) {
		t->failed = true;
		return;
	}
	if (t->n + (size_t)n + 1 > t->room) {
		const size_t room = (t->n + (size_t)n + 1) * 2;
		char *grown = realloc(t->text, room);

		if (!grown) {
			t->failed = true;
			return;
		}
		t->text = grown;
		t->room = room;
	}
	va_start(ap, fmt);
	vsnprintf(t->text + t->n, t->room - t->n, fmt, ap);
	va_end(ap);
	t->n += (size_t)n;
}

void emit_text_release(struct emit_text *t)
{
	free(t->text);
	*t = (struct emit_text){.text = NULL};
}

static bool is_number(const char *s)
{
	char *end;

	(void)strtod(s, &end);
	return end != s && !*end && !isalpha((unsigned char)*s);
}

static bool is_flag(const char *s)
{
	return !strcmp(s, "true") || !strcmp(s, "false");
}

/* A string between double quotes, as JSON, YAML, TOML and Python read it. */
static void put_quoted(struct emit_text *t, const char *s)
{
	emit_put(t, "\"");
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			emit_put(t, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			emit_put(t, "\\u%04x", *s);
		else
			emit_put(t, "%c", *s);
	}
	emit_put(t, "\"");
}

static bool plain_in_yaml(const char *s)
{
	if (!isalpha((unsigned char)*s) && *s != '/' && *s != '_' && !is_number(s))
		return false;
	for (const char *p = s; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("_./+-", *p))
			return false;
	/* words that YAML 1.1 reads as something else */
	return strcmp(s, "null") && strcmp(s, "yes") && strcmp(s, "no") && strcmp(s, "on") &&
	       strcmp(s, "off") && strcmp(s, "y") && strcmp(s, "n");
}

static void yaml_scalar(struct emit_text *t, const char *s)
{
	if (plain_in_yaml(s))
		emit_put(t, "%s", s);
	else
		put_quoted(t, s);
}

static void yaml_map(struct emit_text *t, const struct doc_node *map, int depth)
{
	for (const struct doc_node *c = map->child; c; c = c->next) {
		emit_put(t, "%*s%s:", 2 * depth, "", c->key);
		if (c->kind == DOC_MAP) {
			emit_put(t, "\n");
			yaml_map(t, c, depth + 1);
		} else if (c->kind == DOC_LIST) {
			emit_put(t, " [");
			for (const struct doc_node *i = c->child; i; i = i->next) {
				yaml_scalar(t, i->text);
				emit_put(t, i->next ? ", " : "");
			}
			emit_put(t, "]\n");
		} else {
			emit_put(t, " ");
			yaml_scalar(t, c->text);
			emit_put(t, "\n");
		}
	}
}

void emit_yaml(struct emission *e, struct emit_text *out)
{
	yaml_map(out, e->doc.root, 0);
}

/* JSON, and with Python's words its dictionaries. */
static void json_value(struct emit_text *t, const struct doc_node *n, int depth, bool python)
{
	if (n->kind == DOC_MAP) {
		emit_put(t, "{");
		for (const struct doc_node *c = n->child; c; c = c->next) {
			if (depth >= 0)
				emit_put(t, "\n%*s", 2 * depth + 2, "");
			put_quoted(t, c->key);
			emit_put(t, ": ");
			json_value(t, c, depth < 0 ? depth : depth + 1, python);
			emit_put(t, c->next ? (depth < 0 ? ", " : ",") : "");
		}
		if (depth >= 0)
			emit_put(t, "\n%*s", 2 * depth, "");
		emit_put(t, "}");
	} else if (n->kind == DOC_LIST) {
		emit_put(t, "[");
		for (const struct doc_node *c = n->child; c; c = c->next) {
			json_value(t, c, -1, python);
			emit_put(t, c->next ? ", " : "");
		}
		emit_put(t, "]");
	} else if (python && is_flag(n->text)) {
		emit_put(t, *n->text == 't' ? "True" : "False");
	} else if (is_number(n->text) || is_flag(n->text)) {
		emit_put(t, "%s", n->text);
	} else {
		put_quoted(t, n->text);
	}
}

void emit_json(struct emission *e, struct emit_text *out)
{
	json_value(out, e->doc.root, 0, false);
	emit_put(out, "\n");
}

void emit_toml(struct emission *e, struct emit_text *out)
{
	for (const struct doc_node *s = e->doc.root->child; s; s = s->next) {
		emit_put(out, "[%s]\n", s->key);
		for (const struct doc_node *c = s->child; c; c = c->next) {
			emit_put(out, "%s = ", c->key);
			json_value(out, c, -1, false);
			emit_put(out, "\n");
		}
		emit_put(out, s->next ? "\n" : "");
	}
}

void emit_shell_word(struct emit_text *t, const char *word)
{
	const char *p = word;

	while (*p && (isalnum((unsigned char)*p) || strchr("_./+-:=,@%", *p)))
		p++;
	if (*word && !*p) {
		emit_put(t, "%s", word);
		return;
	}
	emit_put(t, "'");
	for (p = word; *p; p++)
		emit_put(t, *p == '\'' ? "'\\''" : "%c", *p);
	emit_put(t, "'");
}

static void option_value(struct emit_text *t, const struct doc_node *c)
{
	struct emit_text json = {.text = NULL};

	if (c->kind == DOC_LIST) {
		for (const struct doc_node *i = c->child; i; i = i->next) {
			emit_put(t, " ");
			emit_shell_word(t, i->text);
		}
		return;
	}
	emit_put(t, " ");
	if (c->kind == DOC_SCALAR) {
		emit_shell_word(t, c->text);
		return;
	}
	json_value(&json, c, -1, false);
	t->failed |= json.failed;
	if (json.text)
		emit_shell_word(t, json.text);
	free(json.text);
}

static void options(struct emission *e, struct emit_text *out, bool flags)
{
	for (const struct doc_node *c = e->doc.root->child; c; c = c->next) {
		const bool off = flags && !strcmp(c->text, "false");

		if (off)
			continue;
		emit_put(out, "%s--%s", out->n && out->text[out->n - 1] != ' ' ? " \\\n  " : "", c->key);
		if (!flags || strcmp(c->text, "true"))
			option_value(out, c);
	}
	emit_put(out, "\n");
}

void emit_options(struct emission *e, struct emit_text *out)
{
	options(e, out, false);
}

void emit_flags(struct emission *e, struct emit_text *out)
{
	options(e, out, true);
}

static void overrides(struct emit_text *t, const struct doc_node *map, const char *above)
{
	for (const struct doc_node *c = map->child; c; c = c->next) {
		char path[200];

		snprintf(path, sizeof(path), "%s%s%s", above, *above ? "." : "", c->key);
		if (c->kind == DOC_MAP) {
			overrides(t, c, path);
			continue;
		}
		emit_put(t, " %s=", path);
		if (c->kind == DOC_LIST) {
			struct emit_text list = {.text = NULL};

			emit_put(&list, "[");
			for (const struct doc_node *i = c->child; i; i = i->next)
				emit_put(&list, "%s%s", i->text, i->next ? "," : "");
			emit_put(&list, "]");
			t->failed |= list.failed;
			if (list.text)
				emit_shell_word(t, list.text);
			free(list.text);
		} else {
			emit_shell_word(t, c->text);
		}
	}
}

void emit_overrides(struct emission *e, struct emit_text *out)
{
	overrides(out, e->doc.root, "");
	emit_put(out, "\n");
}

static bool is_class(const struct doc_node *node)
{
	return node->kind == DOC_MAP && node->n == 1 && node->child->kind == DOC_MAP && isupper((unsigned char)*node->child->key);
}

/* An argument that holds nothing but a class is a call of it, and no class in it has another. */
static void call(struct emit_text *t, const char *class, const char *method, const struct doc_node *map, int indent)
{
	emit_put(t, "%s%s%s(\n", class, *method ? "." : "", method);
	for (const struct doc_node *c = map->child; c; c = c->next) {
		emit_put(t, "%*s%s=", indent + 4, "", c->key);
		if (!indent && is_class(c)) {
			call(t, c->child->key, "", c->child, 4);
		} else {
			json_value(t, c, -1, true);
		}
		emit_put(t, ",\n");
	}
	emit_put(t, "%*s)%s", indent, "", indent ? "" : "\n");
}

/* The tree's first level are classes; what holds nothing but a map is a method's name. */
void emit_keywords(struct emission *e, struct emit_text *out)
{
	for (const struct doc_node *c = e->doc.root->child; c; c = c->next) {
		if (c->n == 1 && c->child->kind == DOC_MAP)
			call(out, c->key, c->child->key, c->child, 0);
		else
			call(out, c->key, "", c, 0);
	}
}
