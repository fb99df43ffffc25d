/* Arguments of calls to classes and to functions that load or wrap models. */
#include <stdio.h>
#include <string.h>

#include "python_parts.h"

/* Classes, and functions that load or wrap models. */
static bool matters(const char *last, size_t n)
{
	static const char *const names[] = {"from_pretrained", "get_peft_model",
					    "prepare_model_for_kbit_training"};

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

static void keep(struct python *y, struct doc_node *map, const char *key,
		 const struct doc_node *node)
{
	if (!map || !node || y->full)
		return;
	for (const struct doc_node *c = map->child; c; c = c->next)
		if (!strcmp(c->key, key))
			return;
	y->full |= !doc_add_copy(y->doc, map, key, node);
}

/* ( arguments ) behind a name; the cursor stands on '('. */
void python_arguments(struct python *y, const char *path, size_t n)
{
	struct doc_node *map = call_map(y, path, n);
	const char *last = path + n;
	unsigned position = 0;
	bool of_class;

	while (last > path && last[-1] != '.')
		last--;
	of_class = isupper((unsigned char)*last);

	y->p++;
	for (python_skip(y, true); y->p < y->end && *y->p != ')' && !y->full; python_skip(y, true)) {
		const char *from = y->p, *q = from;
		const uint32_t line = y->line;
		struct doc_node *node;
		char key[100];

		if (*y->p == ',') {
			y->p++;
			continue;
		}
		if (*y->p == ']' || *y->p == '}')       /* closes what was opened before */
			break;
		if (*y->p == '*') {     /* **{"a": 1}, **names of maps */
			y->p += strspn(y->p, "*");
			node = python_value(y, NULL, NULL);
			for (const struct doc_node *c = node ? node->child : NULL; c; c = c->next)
				if (c->key)
					keep(y, map, c->key, c);
			python_skip_rest(y);
			continue;
		}
		while (q < y->end && python_is_name(*q))
			q++;
		snprintf(key, sizeof(key), "%.*s", (int)(q - from < 90 ? q - from : 90), from);
		y->p = q;
		python_skip(y, true);
		if (q > from && y->p < y->end && *y->p == '=' &&
		    !(y->p + 1 < y->end && y->p[1] == '=')) {
			y->p++;
		} else {
			y->p = from;
			y->line = line;
			snprintf(key, sizeof(key), "%u", position++);
		}
		node = python_value(y, NULL, NULL);
		if (node)
			node->line = line;
		/* what stands at a place, not at a name, is a class's own business */
		if (!isdigit((unsigned char)*key) || !of_class)
			keep(y, map, key, node);
		python_skip_rest(y);
		if (y->p < y->end && *y->p == ':')      /* lambda, slices */
			y->p++;
	}
	y->p += y->p < y->end;
}
