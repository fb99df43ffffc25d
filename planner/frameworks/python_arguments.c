/* Arguments of calls to classes and to functions that load or wrap models. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "python_parts.h"

/* Classes, and functions that load or wrap models. */
static bool matters(const char *last, size_t n)
{
	static const char *const names[] = {"from_pretrained", "get_peft_model",
					    "prepare_model_for_kbit_training", "gradient_checkpointing_enable"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == n && !strncmp(names[i], last, n))
			return true;
	return isupper((unsigned char)*last);
}

/* The map of a call "a.B.c(": the class and the function, of modules nothing; NULL: it is of no
 * interest, or was called before. */
static struct doc_node *call_map(struct python *y, const char *path, size_t n)
{
	const char *last = path + n, *before;
	struct doc_node *map = y->doc->root;
	const char *parts[2];
	size_t sizes[2], k = 0;

	while (last > path && last[-1] != '.')
		last--;
	if (!matters(last, (size_t)(path + n - last)))
		return NULL;
	before = last > path ? last - 1 : path;
	while (before > path && before[-1] != '.')
		before--;
	if (before < last && isupper((unsigned char)*before) && !isupper((unsigned char)*last)) {
		parts[k] = before;
		sizes[k++] = (size_t)(last - 1 - before);
	}
	parts[k] = last;
	sizes[k++] = (size_t)(path + n - last);
	for (size_t i = 0; i < k; i++) {
		struct doc_node *found = NULL;

		for (struct doc_node *c = map->child; c; c = c->next)
			if (!strncmp(c->key, parts[i], sizes[i]) && !c->key[sizes[i]])
				found = c;
		if (found && (i + 1 == k || found->kind != DOC_MAP))
			return NULL;
		if (!found) {
			const char *name = doc_text(y->doc, parts[i], sizes[i]);

			found = name ? doc_add(y->doc, map, name, DOC_MAP, y->line, 0) : NULL;
		}
		if (!found) {
			y->full = true;
			return NULL;
		}
		map = found;
	}
	return map;
}

/* The first of equal keys stays. */
static void keep(struct python *y, struct doc *doc, struct doc_node *map, const char *key,
		 const struct doc_node *node)
{
	if (!map || !node || y->full)
		return;
	for (const struct doc_node *c = map->child; c; c = c->next)
		if (!strcmp(c->key, key))
			return;
	y->full |= !doc_add_copy(doc, map, key, node);
}

/* "**{"a": 1}", "**name" of a map; what another function made is not known. */
static void keep_unpacked(struct python *y, struct doc *doc, struct doc_node *map)
{
	const struct doc_node *node;

	y->p += strspn(y->p, "*");
	node = python_value(y, NULL, NULL);
	for (const struct doc_node *c = node ? node->child : NULL; c; c = c->next)
		if (c->key && doc_member(node, c->key) == c)
			keep(y, doc, map, c->key, c);
	if (node && node->kind != DOC_MAP)
		keep(y, doc, map, ARGS_REST, node);
	python_skip_rest(y);
}

/* The key of an argument, or its place among those without one; the cursor then stands on its value. */
static bool argument_key(struct python *y, unsigned *position, char key[100])
{
	const char *from = y->p, *q = from;
	const uint32_t line = y->line;

	while (q < y->end && python_is_name(*q))
		q++;
	snprintf(key, 100, "%.*s", (int)(q - from < 90 ? q - from : 90), from);
	y->p = q;
	python_skip(y, true);
	if (q > from && y->p < y->end && *y->p == '=' && !(y->p + 1 < y->end && y->p[1] == '=')) {
		y->p++;
		return true;
	}
	y->p = from;
	y->line = line;
	snprintf(key, 100, "%u", (*position)++);
	return false;
}

/* Into a map of a document; NULL: they are passed over.  places: those without a name as well. */
static void read_arguments(struct python *y, struct doc *doc, struct doc_node *map, bool places)
{
	unsigned position = 0;

	y->p++;
	for (python_skip(y, true); y->p < y->end && *y->p != ')' && !y->full; python_skip(y, true)) {
		const uint32_t line = y->line;
		struct doc_node *node;
		char key[100];

		if (*y->p == ',') {
			y->p++;
			continue;
		}
		if (*y->p == ']' || *y->p == '}')       /* closes what was opened before */
			break;
		if (*y->p == '*') {
			keep_unpacked(y, doc, map);
			continue;
		}
		if (!argument_key(y, &position, key) && !places)
			*key = 0;
		node = python_value(y, NULL, NULL);
		if (node)
			node->line = line;
		if (*key)
			keep(y, doc, map, key, node);
		python_skip_rest(y);
		if (y->p < y->end && *y->p == ':')      /* lambda, slices */
			y->p++;
	}
	y->p += y->p < y->end;
}

/* parser.add_argument("--lora-r", default=16) */
static void remember_option(struct python *y, const struct doc_node *map)
{
	const struct doc_node *value = doc_member(map, "default");

	for (const struct doc_node *c = map->child; (value || y->given) && c; c = c->next) {
		const char *name = c->text + strspn(c->text, "-");
		const size_t n = strlen(name);
		char *spelled = isdigit((unsigned char)*c->key) && n ? doc_alloc(&y->scratch, n + 1) : NULL;

		if (!spelled)
			continue;
		for (size_t i = 0; i <= n; i++)
			spelled[i] = name[i] == '-' ? '_' : name[i];
		y->declares = true;
		python_remember(y, spelled, n, value ? doc_add_copy(&y->scratch, y->scratch.root, NULL, value) : NULL, true);
		y->declares = false;
	}
}

/* Functions whose value follows from their arguments. */
static const struct function {
	const char *name;
	const char *argument;   /* whose value it is; NULL: the map of all of them */
	bool option;            /* as long as nobody says otherwise */
} functions[] = {
	{"dict", NULL, false},
	{"int", "0", false}, {"float", "0", false}, {"str", "0", false}, {"bool", "0", false},
	{"field", "default", true}, {"Field", "default", true},         /* dataclasses, pydantic */
	{"HfArg", "default", true},                                     /* transformers */
	{"getenv", "1", true}, {"environ.get", "1", true},
};

static bool ends_in(const char *path, size_t n, const char *name)
{
	const size_t m = strlen(name);

	return n >= m && !strncmp(path + n - m, name, m) && (n == m || path[n - m - 1] == '.');
}

static struct doc_node *value_of(struct doc_node *map, const struct function *f)
{
	struct doc_node *node;

	if (!f->argument)
		return map;
	node = (struct doc_node *)(uintptr_t)doc_member(map, f->argument);
	if (node && f->option && !node->tag)
		node->tag = ARGS_OPTION;
	return node;
}

struct doc_node *python_arguments(struct python *y, const char *path, size_t n)
{
	const bool declares = ends_in(path, n, "add_argument");
	const struct function *f = NULL;
	const char *last = path + n;
	struct doc_node *map;

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (ends_in(path, n, functions[i].name))
			f = &functions[i];
	if (f || declares) {
		map = doc_add(&y->scratch, y->scratch.root, NULL, DOC_MAP, y->line, 0);
		y->full |= !map;
		read_arguments(y, &y->scratch, map, true);
		if (map && declares)
			remember_option(y, map);
		return map && f ? value_of(map, f) : NULL;
	}
	while (last > path && last[-1] != '.')
		last--;
	/* what stands at a place, not at a name, is a class's own business */
	read_arguments(y, y->doc, call_map(y, path, n), !isupper((unsigned char)*last));
	return NULL;
}
