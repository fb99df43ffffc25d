/* JSON text to flat keys: the only file that knows cJSON.
 *
 * oom_json_check() has seen the text first, so here it is well formed, at most JSON_MAX_DEPTH deep
 * and JSON_MAX_VALUES long; what the JSON library can still fail at is memory.  The tree is walked
 * twice, once to measure and once to fill, so that all keys, paths and strings of a file are one
 * allocation. */
#include "oomplan/config.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "config_json.h"
#include "json_check.h"

/* Paths repeat their parents' names, so their sum can be quadratic in the text.  A guess, far above
 * any real file. */
#define MAX_ARENA_BYTES ((size_t)512 << 20)
#define NO_PARENT UINT32_MAX

/* What a key needs while the list is being made, beside struct oom_key. */
struct node {
	struct oom_key key;
	size_t path_len;
	uint32_t order;  /* position in document order, the root's first child 0 */
	uint32_t parent; /* its order, or NO_PARENT */
};

struct fill {
	const struct json_mark *marks;
	struct node *nodes;
	char *chars; /* where the next string goes */
	uint32_t n;
};

static size_t digits(size_t v)
{
	size_t n = 1;

	while (v >= 10) {
		v /= 10;
		n++;
	}
	return n;
}

/* Adds what the paths and strings below parent need to *bytes; false when it is too much. */
static bool measure(const cJSON *parent, size_t prefix, size_t *bytes)
{
	const bool list = cJSON_IsArray(parent);
	size_t index = 0;

	for (const cJSON *c = parent->child; c; c = c->next, index++) {
		const size_t len = prefix + (list ? digits(index) : strlen(c->string));

		*bytes += len + 1;
		if (cJSON_IsString(c))
			*bytes += strlen(c->valuestring) + 1;
		if (*bytes > MAX_ARENA_BYTES || (c->child && !measure(c, len + 1, bytes)))
			return false;
	}
	return true;
}

static void set_value(struct fill *f, struct oom_key *key, const cJSON *c)
{
	if (cJSON_IsNumber(c)) {
		key->type = OOM_KEY_NUMBER;
		key->number = c->valuedouble;
	} else if (cJSON_IsBool(c)) {
		key->type = OOM_KEY_BOOL;
		key->number = cJSON_IsTrue(c);
	} else if (cJSON_IsString(c)) {
		const size_t size = strlen(c->valuestring) + 1;

		key->type = OOM_KEY_STRING;
		key->string = memcpy(f->chars, c->valuestring, size);
		f->chars += size;
	} else if (cJSON_IsArray(c)) {
		key->type = OOM_KEY_LIST;
	} else if (cJSON_IsObject(c)) {
		key->type = OOM_KEY_OBJECT;
	} else {
		key->type = OOM_KEY_NULL;
	}
}

static void set_path(struct fill *f, struct node *node, const struct node *above, const char *name)
{
	const size_t len = strlen(name);

	node->key.path = f->chars;
	if (above) {
		memcpy(f->chars, above->key.path, above->path_len);
		f->chars += above->path_len;
		*f->chars++ = '.';
		node->path_len = above->path_len + 1;
	}
	memcpy(f->chars, name, len + 1);
	f->chars += len + 1;
	node->path_len += len;
}

/* One node per value below parent, in document order: the order of the marks, of which the root has
 * the first. */
static void fill(struct fill *f, const cJSON *parent, uint32_t above)
{
	const bool list = cJSON_IsArray(parent);
	size_t index = 0;

	for (const cJSON *c = parent->child; c; c = c->next, index++) {
		const uint32_t order = f->n++;
		struct node *node = &f->nodes[order];
		char number[24];

		*node = (struct node){.order = order, .parent = above};
		snprintf(number, sizeof(number), "%zu", index);
		set_path(f, node, above == NO_PARENT ? NULL : &f->nodes[above],
			 list ? number : c->string);
		node->key.line = f->marks[order + 1].line;
		set_value(f, &node->key, c);
		if (f->marks[order + 1].is_nan)
			node->key.number = NAN;
		if (above != NO_PARENT)
			f->nodes[above].key.n_items++;
		if (c->child)
			fill(f, c, order);
	}
}

static int by_path(const void *a, const void *b)
{
	const struct node *x = a, *y = b;
	const int c = strcmp(x->key.path, y->key.path);

	return c ? c : (x->order > y->order) - (x->order < y->order);
}

/* Sorts, and of equal paths keeps the last in the document, together with what hangs below it.
 * is_dead[n] and parents[n] are scratch.  Returns how many stay. */
static uint32_t sort_and_drop(struct node *nodes, uint32_t n, unsigned char *is_dead,
			      uint32_t *parents)
{
	uint32_t kept = 0;
	bool any = false;

	memset(is_dead, 0, n);
	for (uint32_t i = 0; i < n; i++)
		parents[i] = nodes[i].parent;
	qsort(nodes, n, sizeof(*nodes), by_path);
	for (uint32_t i = 0; i + 1 < n; i++)
		if (strcmp(nodes[i].key.path, nodes[i + 1].key.path) == 0) {
			is_dead[nodes[i].order] = 1;
			any = true;
		}
	if (!any)
		return n;
	for (uint32_t i = 0; i < n; i++) /* a parent comes before its children */
		if (parents[i] != NO_PARENT && is_dead[parents[i]])
			is_dead[i] = 1;
	for (uint32_t i = 0; i < n; i++)
		if (!is_dead[nodes[i].order])
			nodes[kept++] = nodes[i];
	return kept;
}

/* The parents' element counts after something was dropped: members of an object whose key came
 * twice. */
static void recount(struct node *nodes, uint32_t kept, uint32_t *count, uint32_t n)
{
	memset(count, 0, n * sizeof(*count));
	for (uint32_t i = 0; i < kept; i++)
		if (nodes[i].parent != NO_PARENT)
			count[nodes[i].parent]++;
	for (uint32_t i = 0; i < kept; i++)
		nodes[i].key.n_items = count[nodes[i].order];
}

/* Tree to sorted keys.  n is the number of values below the root. */
static enum oom_status flatten(struct oom_keys *out, const cJSON *root,
			       const struct json_mark *marks, uint32_t n, const char *name,
			       struct oom_error *err)
{
	const size_t name_size = strlen(name) + 1;
	enum oom_status status = OOM_OK;
	struct node *nodes = NULL;
	unsigned char *is_dead = NULL;
	uint32_t *scratch = NULL;
	struct oom_key *arena = NULL;
	size_t bytes = name_size;
	struct fill f;
	uint32_t kept;

	if (!measure(root, 0, &bytes))
		return oom_error_set(err, OOM_ERR_PARSE,
				     "%s: keys of more than 512 MiB when written out", name);
	nodes = malloc(((size_t)n + 1) * sizeof(*nodes));
	is_dead = malloc((size_t)n + 1);
	scratch = malloc(((size_t)n + 1) * sizeof(*scratch));
	arena = malloc(n * sizeof(*arena) + bytes);
	if (!nodes || !is_dead || !scratch || !arena) {
		free(arena);
		status = oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", name);
		goto out;
	}
	f = (struct fill){.marks = marks, .nodes = nodes, .chars = (char *)(arena + n)};
	out->file = memcpy(f.chars, name, name_size);
	f.chars += name_size;
	fill(&f, root, NO_PARENT);
	kept = sort_and_drop(nodes, n, is_dead, scratch);
	if (kept < n)
		recount(nodes, kept, scratch, n);
	for (uint32_t i = 0; i < kept; i++)
		arena[i] = nodes[i].key;
	out->items = arena;
	out->n = kept;
	out->arena = arena;
out:
	free(scratch);
	free(is_dead);
	free(nodes);
	return status;
}

static const char *kind_of(const cJSON *v)
{
	return cJSON_IsArray(v)    ? "a list"
	       : cJSON_IsString(v) ? "a string"
	       : cJSON_IsNumber(v) ? "a number"
	       : cJSON_IsBool(v)   ? "true or false"
				   : "null";
}

enum oom_status oom_keys_parse_buffer(struct oom_keys *out, char *text, size_t size,
				      const char *name, struct oom_error *err)
{
	struct json_marks marks = {0};
	enum oom_status status = oom_json_check(text, size, name, &marks, err);
	cJSON *root;

	if (status)
		return status;
	root = cJSON_ParseWithLength(text, size);
	if (!root)
		status = oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", name);
	else if (!cJSON_IsObject(root))
		status = oom_error_set(err, OOM_ERR_PARSE,
				       "%s:%u:1: a JSON object ({...}) was expected, this is %s",
				       name, (unsigned)marks.items[0].line, kind_of(root));
	else
		status = flatten(out, root, marks.items, (uint32_t)marks.n - 1, name, err);
	cJSON_Delete(root);
	free(marks.items);
	return status;
}

enum oom_status oom_keys_parse(struct oom_keys *out, const char *text, size_t size,
			       const char *name, struct oom_error *err)
{
	enum oom_status status;
	char *copy;

	if (size > OOM_CONFIG_BYTES)
		return oom_error_set(err, OOM_ERR_PARSE, "%s: larger than 64 MiB", name);
	copy = malloc(size + 1);
	if (!copy)
		return oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", name);
	if (size)
		memcpy(copy, text, size);
	copy[size] = 0;
	status = oom_keys_parse_buffer(out, copy, size, name, err);
	free(copy);
	return status;
}

void oom_keys_release(struct oom_keys *keys)
{
	if (!keys)
		return;
	free(keys->arena);
	*keys = (struct oom_keys){0};
}

const struct oom_key *oom_keys_find(const struct oom_keys *keys, const char *path)
{
	size_t lo = 0, hi = keys->n;

	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;
		const int c = strcmp(keys->items[mid].path, path);

		if (c == 0)
			return &keys->items[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}
