/* The config that a function of a registry makes: its statements, calls and literals as maps (python_registry.c). */
#include <stdio.h>
#include <string.h>

#include "python_registry.h"

static struct doc_node *value_of(struct registry *g, struct doc_node *parent, const char *key);

bool registry_begins(const struct python *y, const char *word)
{
	const size_t n = strlen(word);

	return (size_t)(y->end - y->p) > n && !strncmp(y->p, word, n);
}

void registry_skip(struct python *y)
{
	int depth = 0;

	while (y->p < y->end && !(*y->p == '\n' && depth <= 0)) {
		const int prefix = python_string_prefix(y);
		bool whole;

		if (prefix >= 0) {
			python_string(y, prefix, &whole);
			continue;
		}
		if (*y->p == '#') {
			while (y->p < y->end && *y->p != '\n')
				y->p++;
			continue;
		}
		depth += strchr("([{", *y->p) && *y->p;
		depth -= strchr(")]}", *y->p) && *y->p;
		y->line += *y->p == '\n';
		y->p++;
	}
}

static int levels_of(const struct doc_node *node)
{
	int most = 0;

	for (const struct doc_node *c = node->child; c; c = c->next) {
		const int n = levels_of(c);

		most = n > most ? n : most;
	}
	return most + 1;
}

/* Nothing where a section would lie deeper than any does: "config = Config(config)", over and over. */
static struct doc_node *copy_of(struct python *y, struct doc_node *parent, const char *key, const struct doc_node *node)
{
	const bool taken = node && levels_of(node) < LEVELS;
	struct doc_node *copy = taken ? doc_add_copy(&y->scratch, parent ? parent : y->scratch.root, key, node) : NULL;

	y->full |= taken && !copy;
	return copy;
}

static struct doc_node *map_in(struct python *y, struct doc_node *parent, const char *key)
{
	struct doc_node *map = doc_add(&y->scratch, parent ? parent : y->scratch.root, key, DOC_MAP, y->line, 0);

	y->full |= !map;
	return map;
}

/* The cursor stands on '(': the arguments, by their names or places. */
static void arguments(struct registry *g, struct doc_node *map)
{
	struct python *y = g->y;
	unsigned place = 0;

	y->p++;
	for (python_skip(y, true); y->p < y->end && *y->p != ')' && !y->full; python_skip(y, true)) {
		const char *name = y->p, *q = name;
		char number[12];
		const char *key;

		if (strchr(",]}", *y->p)) {
			y->p++;
			continue;
		}
		y->p += strspn(y->p, "*");
		while (q < y->end && python_is_name(*q))
			q++;
		if (q > name && q + 1 < y->end && *q == '=' && q[1] != '=') {
			key = doc_text(&y->scratch, name, (size_t)(q - name));
			y->p = q + 1;
		} else {
			snprintf(number, sizeof(number), "%u", place++);
			key = doc_text(&y->scratch, number, strlen(number));
		}
		y->full |= !key;
		if (key && !y->full)
			(void)value_of(g, map, key);
		python_skip_rest(y);
		y->p += y->p < y->end && *y->p == ':';
	}
	y->p += y->p < y->end;
}

/* The function of the module that has this name. */
const struct run *registry_run_named(const struct registry *g, const char *name, size_t n)
{
	for (size_t i = 0; i < g->n_runs; i++)
		if (g->runs[i].n == n && !strncmp(g->runs[i].name, name, n))
			return &g->runs[i];
	return NULL;
}

/* A name at the cursor with an argument list behind it: a section, or another run's config. */
static struct doc_node *call(struct registry *g, const char *name, size_t n, struct doc_node *parent, const char *key)
{
	struct python *y = g->y;
	const struct run *other = registry_run_named(g, name, n);
	struct doc_node *map;

	if (other && g->depth < CALLS_DEEP && g->made < MADE_MAX) {
		const struct doc_node *made = registry_config(g, other);

		y->p++;
		python_skip_rest(y);
		while (y->p < y->end && (*y->p == ',' || *y->p == ':')) {
			y->p++;
			python_skip_rest(y);
		}
		y->p += y->p < y->end;
		return copy_of(y, parent, key, made);
	}
	map = map_in(y, parent, key);
	if (map && !doc_add_text(&y->scratch, map, REGISTRY_CLASS, doc_text(&y->scratch, name, n), y->line, 0))
		y->full = true;
	if (!y->full)
		arguments(g, map);
	return map;
}

/* Lists of sections; a literal is python_value()'s. */
static struct doc_node *list(struct registry *g, struct doc_node *parent, const char *key)
{
	struct python *y = g->y;
	struct doc_node *node = doc_add(&y->scratch, parent ? parent : y->scratch.root, key, DOC_LIST, y->line, 0);

	y->full |= !node;
	y->p++;
	for (python_skip(y, true); y->p < y->end && *y->p != ']' && !y->full; python_skip(y, true)) {
		if (strchr(",)}", *y->p)) {
			y->p++;
			continue;
		}
		(void)value_of(g, node, NULL);
		python_skip_rest(y);
		y->p += y->p < y->end && *y->p == ':';
	}
	y->p += y->p < y->end;
	return node;
}

static struct doc_node *value_of(struct registry *g, struct doc_node *parent, const char *key)
{
	struct python *y = g->y;
	const char *name, *q;
	struct doc_node *known;

	python_skip(y, true);
	name = q = y->p;
	while (q < y->end && (python_is_name(*q) || *q == '.'))
		q++;
	if (g->depth > 4 * CALLS_DEEP || y->full)
		return NULL;
	g->depth++;
	if (q > name && q < y->end && *q == '(' && !isdigit((unsigned char)*name)) {
		y->p = q;
		known = call(g, name, (size_t)(q - name), parent, key);
	} else if (*name == '[') {
		known = list(g, parent, key);
	} else if (q > name && (known = python_constant(y, name, (size_t)(q - name))) != NULL && known->kind == DOC_MAP) {
		y->p = q;
		known = copy_of(y, parent, key, known);
	} else {
		known = python_value(y, parent, key);
	}
	g->depth--;
	return known;
}

/* "a.b.c = value" below the map: sections on the way are made where they are missing. */
static void assign(struct registry *g, struct doc_node *map, const char *path, size_t n)
{
	struct python *y = g->y;

	for (int level = 0; level < 6 && map && map->kind == DOC_MAP && n && !y->full; level++) {
		const size_t len = memchr(path, '.', n) ? (size_t)((const char *)memchr(path, '.', n) - path) : n;
		const char *key = doc_text(&y->scratch, path, len);
		struct doc_node *found = NULL;

		y->full |= !key;
		if (len == n) {
			if (key)
				(void)value_of(g, map, key);    /* of equal members the last counts */
			return;
		}
		for (struct doc_node *c = map->child; key && c; c = c->next)
			found = !strcmp(c->key, key) ? c : found;
		map = found && found->kind == DOC_MAP ? found : key ? map_in(y, map, key) : NULL;
		path += len + 1;
		n -= len + 1;
	}
}

/* One statement of a function; what it returns, once it does. */
static struct doc_node *statement(struct registry *g)
{
	struct python *y = g->y;
	const char *name = y->p, *q = name;
	const char *dot;
	struct doc_node *map;

	if (registry_begins(y, "return ")) {
		y->p += strlen("return ");
		return value_of(g, NULL, NULL);
	}
	while (q < y->end && (python_is_name(*q) || *q == '.'))
		q++;
	if (q == name || q + 3 >= y->end || strncmp(q, " = ", 3))
		return NULL;
	dot = memchr(name, '.', (size_t)(q - name));
	map = dot ? python_constant(y, name, (size_t)(dot - name)) : NULL;
	y->p = q + 3;
	if (map)
		assign(g, map, dot + 1, (size_t)(q - dot) - 1);
	else if (!dot)
		python_remember(y, name, (size_t)(q - name), value_of(g, NULL, NULL), false);
	return NULL;
}

struct doc_node *registry_config(struct registry *g, const struct run *run)
{
	struct python *y = g->y;
	const char *p = y->p, *end = y->end;
	const uint32_t line = y->line;
	const size_t names = y->n_names;
	struct doc_node *made = NULL;

	g->depth++;
	g->made++;
	y->p = run->body;
	y->end = run->end;
	y->line = run->line;
	while (!made && y->p < y->end && !y->full) {
		while (y->p < y->end && isspace((unsigned char)*y->p))
			y->line += *y->p++ == '\n';
		made = y->p < y->end ? statement(g) : NULL;
		registry_skip(y);
	}
	g->depth--;
	y->p = p;
	y->end = end;
	y->line = line;
	y->n_names = names;
	return made && made->kind == DOC_MAP ? made : NULL;
}
