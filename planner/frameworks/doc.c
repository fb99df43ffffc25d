/* The tree of a settings file: memory, look-up, what scalars say. */
#include "doc.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/option.h"

struct doc_chunk {
	struct doc_chunk *next;
	size_t used, size;
	max_align_t bytes[];
};

enum { CHUNK = 16384 };

void *doc_alloc(struct doc *doc, size_t size)
{
	struct doc_chunk *c = doc->chunks;
	void *at;

	size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
	if (doc->n_bytes + size > 4 * DOC_MAX_BYTES)
		return NULL;
	if (!c || c->size - c->used < size) {
		const size_t room = size > CHUNK ? size : CHUNK;

		c = malloc(sizeof(*c) + room);
		if (!c)
			return NULL;
		*c = (struct doc_chunk){.next = doc->chunks, .size = room};
		doc->chunks = c;
	}
	at = (char *)c->bytes + c->used;
	c->used += size;
	doc->n_bytes += size;
	return memset(at, 0, size);
}

const char *doc_text(struct doc *doc, const char *text, size_t size)
{
	char *copy = doc_alloc(doc, size + 1);

	return copy ? memcpy(copy, text, size) : NULL;
}

enum oom_status doc_begin(struct doc *doc, const char *file, const char *format,
			  struct oom_error *err)
{
	*doc = (struct doc){.format = format, .n_documents = 1};
	doc->file = doc_text(doc, file, strlen(file));
	return doc->file ? OOM_OK : oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", file);
}

void doc_release(struct doc *doc)
{
	struct doc_chunk *next;

	if (!doc)
		return;
	for (struct doc_chunk *c = doc->chunks; c; c = next) {
		next = c->next;
		free(c);
	}
	*doc = (struct doc){0};
}

enum oom_status doc_full(const struct doc *doc, uint32_t line, struct oom_error *err)
{
	if (doc->n_nodes >= DOC_MAX_NODES || doc->n_bytes >= 4 * DOC_MAX_BYTES - CHUNK)
		return oom_error_set(err, OOM_ERR_PARSE,
				     "%s:%u: more than %d values: no file of training settings",
				     doc->file, (unsigned)line, DOC_MAX_NODES);
	return oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", doc->file);
}

struct doc_node *doc_add(struct doc *doc, struct doc_node *parent, const char *key,
			 enum doc_kind kind, uint32_t line, uint32_t column)
{
	struct doc_node *node = doc->n_nodes < DOC_MAX_NODES ? doc_alloc(doc, sizeof(*node)) : NULL;

	if (!node)
		return NULL;
	*node = (struct doc_node){.text = "", .kind = kind, .line = line, .column = column};
	if (key) {
		node->key = doc_text(doc, key, strlen(key));
		if (!node->key)
			return NULL;
	}
	doc->n_nodes++;
	if (!parent) {
		doc->root = node;
		return node;
	}
	if (parent->last)
		parent->last->next = node;
	else
		parent->child = node;
	parent->last = node;
	parent->n++;
	return node;
}

struct doc_node *doc_add_text(struct doc *doc, struct doc_node *parent, const char *key,
			      const char *text, uint32_t line, uint32_t column)
{
	struct doc_node *node = doc_add(doc, parent, key, DOC_SCALAR, line, column);

	if (node) {
		node->text = doc_text(doc, text, strlen(text));
		if (!node->text) {
			node->text = "";
			return NULL;
		}
	}
	return node;
}

/* name[0..len) against a key */
static bool same(const char *key, const char *name, size_t len)
{
	if (len == 1)   /* -n and -N are two options */
		return key[0] == name[0] && !key[1];
	for (size_t i = 0; i < len; i++) {
		const char a = key[i] == '-' ? '_' : (char)tolower((unsigned char)key[i]);
		const char b = name[i] == '-' ? '_' : (char)tolower((unsigned char)name[i]);

		if (!key[i] || a != b)
			return false;
	}
	return !key[len];
}

static const struct doc_node *member(const struct doc_node *map, const char *name, size_t len)
{
	const struct doc_node *found = NULL;

	if (map && map->kind == DOC_MAP)
		for (const struct doc_node *c = map->child; c; c = c->next)
			if (c->key && same(c->key, name, len))
				found = c;
	return found;
}

const struct doc_node *doc_member(const struct doc_node *map, const char *name)
{
	return member(map, name, strlen(name));
}

const struct doc_node *doc_below(const struct doc_node *node, const char *path)
{
	const struct doc_node *found;

	while (node && *path) {
		const size_t len = strcspn(path, ".");

		/* a dotted key as a whole first: "a.b: 1" and command lines have those */
		if (path[len] && (found = member(node, path, strlen(path))) != NULL)
			return found;
		if (node->kind == DOC_LIST) {
			unsigned long i = strtoul(path, NULL, 10);

			if (!isdigit((unsigned char)*path))
				return NULL;
			for (node = node->child; node && i; i--)
				node = node->next;
		} else {
			node = member(node, path, len);
		}
		path += len + (path[len] == '.');
	}
	return node;
}

const struct doc_node *doc_find(const struct doc *doc, const char *path)
{
	return doc_below(doc->root, path);
}

static bool is_one_of(const struct doc_node *node, const char *const *words)
{
	for (size_t i = 0; words[i]; i++)
		if (oom_same_word(words[i], node->text))
			return true;
	return false;
}

bool doc_is_true(const struct doc_node *node)
{
	static const char *const words[] = {"true", "yes", "on", "1", "y", NULL};

	return node && node->kind == DOC_SCALAR && is_one_of(node, words);
}

bool doc_is_null(const struct doc_node *node)
{
	static const char *const words[] = {"", "~", "null", "none", NULL};

	if (!node || node->kind == DOC_NULL)
		return true;
	if (node->kind != DOC_SCALAR)
		return false;
	return node->quoted ? !*node->text : is_one_of(node, words);
}

bool doc_is_off(const struct doc_node *node)
{
	static const char *const words[] = {"false", "no", "off", "0", "n", "0.0", "none", NULL};

	if (doc_is_null(node))
		return true;
	return node->kind == DOC_SCALAR ? is_one_of(node, words) : node->n == 0;
}

bool doc_whole(const struct doc_node *node, int64_t *value)
{
	char digits[48], *end;
	size_t n = 0;
	double x;

	if (!node || node->kind != DOC_SCALAR)
		return false;
	for (const char *p = node->text; *p && n < sizeof(digits) - 1; p++)
		if (*p != '_' || p == node->text)
			digits[n++] = *p;
	digits[n] = 0;
	if (!n || isspace((unsigned char)*digits))
		return false;
	errno = 0;
	x = strtod(digits, &end);
	if (end == digits || *end || !isfinite(x) || fabs(x) > 9e15 || x != floor(x))
		return false;
	*value = (int64_t)x;
	return true;
}

static size_t put(char *buf, size_t size, size_t used, const char *text)
{
	const int n = used < size ? snprintf(buf + used, size - used, "%s", text) : 0;

	return used + (n > 0 ? (size_t)n : 0);
}

const char *doc_show(const struct doc_node *node, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = 0;
	if (!node || node->kind == DOC_NULL) {
		put(buf, size, 0, "null");
	} else if (node->kind == DOC_MAP) {
		put(buf, size, 0, node->n ? "{...}" : "{}");
	} else if (node->kind == DOC_LIST) {
		used = put(buf, size, used, "[");
		for (const struct doc_node *c = node->child; c && used < size; c = c->next) {
			used = put(buf, size, used,
				   c->kind == DOC_SCALAR ? c->text : c->kind == DOC_NULL ? "null" : "...");
			used = put(buf, size, used, c->next ? ", " : "");
		}
		put(buf, size, used, "]");
	} else {
		put(buf, size, 0, node->text);
	}
	return buf;
}
