/* Expressions of Python as far as they are literals: names, calls, lists, maps, numbers, whole arithmetic. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "python_parts.h"

enum { CALLS_DEEP = 24 };

struct doc_node *python_constant(const struct python *y, const char *name, size_t n)
{
	for (int option = 0; option < 2; option++)
		for (size_t i = y->n_names; i-- > 0;)
			if (y->names[i].option == (option == 1) && y->names[i].n == n &&
			    !strncmp(y->names[i].name, name, n))
				return y->names[i].value;
	return NULL;
}

void python_remember(struct python *y, const char *name, size_t n, struct doc_node *node, bool option)
{
	if (option && y->declares && y->given) {
		char key[100];
		const struct doc_node *said;

		snprintf(key, sizeof(key), "%.*s", (int)n, name);
		said = doc_member(y->given, key);
		if (said && said->kind == DOC_SCALAR && !said->tag) {
			node = doc_add_copy(&y->scratch, y->scratch.root, NULL, said);
			y->full |= !node;
			option = false;
		}
	}
	if (!node || y->n_names == PYTHON_NAMES_MAX)
		return;
	if (option && !node->tag)       /* None: it has to be given */
		node->tag = doc_is_null(node) ? ARGS_UNKNOWN : ARGS_OPTION;
	y->names[y->n_names++] = (struct python_name){name, n, node, option, option && y->declares, false};
}

void python_remember_branch(struct python *y, const char *name, size_t n, struct doc_node *node, bool option, bool perhaps)
{
	const struct doc_node *const before = perhaps && y->n_names && y->names[y->n_names - 1].perhaps ?
					      python_constant(y, name, n) : NULL;
	const size_t had = y->n_names;

	/* the branch beside it has another text for the same name */
	if (before && node && before->kind == DOC_SCALAR && node->kind == DOC_SCALAR && !node->tag && !option &&
	    strcmp(before->text, node->text))
		node->tag = ARGS_UNKNOWN;
	python_remember(y, name, n, node, option);
	if (y->n_names > had)
		y->names[had].perhaps = perhaps;
}

/* A copy of what a name stands for. */
static struct doc_node *copy_of(struct python *y, struct doc_node *parent, const char *key,
				const struct doc_node *known)
{
	struct doc_node *copy = doc_add_copy(&y->scratch, parent ? parent : y->scratch.root, key, known);

	y->full |= !copy;
	return copy;
}

/* "args.lora_r", "self.lora_r": an option of the script by that name, or what it set before. */
static const struct doc_node *attribute(const struct python *y, const char *from, size_t n)
{
	const char *last = from + n;

	while (last > from && last[-1] != '.')
		last--;
	return last > from ? python_constant(y, last, (size_t)(from + n - last)) : NULL;
}

/* "CONFIG['lora_r']", "CONFIG.get('lora_r', 8)" of a map that is known, the cursor behind the name: its member, and the
 * cursor past it all.  NULL: it is something else, and the cursor stays. */
static const struct doc_node *member_of(struct python *y, const char *from, size_t n)
{
	const struct python before = {.p = y->p, .line = y->line};
	const bool get = n > 4 && !strncmp(from + n - 4, ".get", 4) && *y->p == '(';
	const struct doc_node *map = python_constant(y, from, get ? n - 4 : n), *found = NULL;

	while (map && map->kind == DOC_MAP && !map->tag && y->p < y->end && *y->p == (get ? '(' : '[')) {
		bool whole = true;
		const char *key;
		int prefix;

		y->p++;
		python_skip(y, true);
		prefix = python_string_prefix(y);
		key = prefix < 0 ? NULL : python_string(y, prefix, &whole);
		python_skip(y, true);
		found = key && whole ? doc_member(map, key) : NULL;
		if (found && get) {
			while (y->p < y->end && *y->p == ',') {
				y->p++;
				(void)python_value(y, NULL, NULL);
				python_skip(y, true);
			}
		}
		if (!found || y->p >= y->end || *y->p != (get ? ')' : ']')) {
			found = NULL;
			break;
		}
		y->p++;
		python_skip(y, false);
		map = get ? NULL : found;
	}
	if (!found) {
		y->p = before.p;
		y->line = before.line;
	}
	return found;
}

/* name, a.b, a.b(...), a['b'] */
struct doc_node *python_reference(struct python *y, struct doc_node *parent, const char *key)
{
	static const char *const yes[] = {"is_bfloat16_supported", "is_bf16_supported"};
	static const char cuda[] = "cuda.is_available";
	const char *from = y->p, *last;
	const struct doc_node *known;
	char text[120];
	size_t n;

	while (y->p < y->end && (python_is_name(*y->p) || *y->p == '.'))
		y->p++;
	n = (size_t)(y->p - from);
	python_skip(y, false);
	known = y->p < y->end && strchr("[(", *y->p) && *y->p ? member_of(y, from, n) : NULL;
	if (known)
		return copy_of(y, parent, key, known);
	if (y->p < y->end && *y->p == '(') {
		known = python_arguments(y, from, n);
		if (known)
			return copy_of(y, parent, key, known);
		last = from + n;
		while (last > from && last[-1] != '.')
			last--;
		n = (size_t)(from + n - last);
		for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
			if (strlen(yes[i]) == n && !strncmp(yes[i], last, n))
				return python_scratch(y, parent, key, "True", false);
		if ((size_t)(last + n - from) >= sizeof(cuda) - 1 && !strncmp(last + n + 1 - sizeof(cuda), cuda, sizeof(cuda) - 1))
			return python_scratch(y, parent, key, "True", false);
		snprintf(text, sizeof(text), "%.*s(...)", (int)(n < 100 ? n : 100), last);
		/* attributes of what was called: not followed */
		return python_scratch(y, parent, key, text, !isupper((unsigned char)*last));
	}
	known = python_constant(y, from, n);
	if (known && !(y->p < y->end && *y->p == '['))
		return copy_of(y, parent, key, known);
	snprintf(text, sizeof(text), "%.*s", (int)(n < 110 ? n : 110), from);
	if (!strncmp(text, "torch.", 6))
		return python_scratch(y, parent, key, text + 6, false);
	known = attribute(y, from, n);
	if (known && !(y->p < y->end && *y->p == '[')) {
		struct doc_node *copy = copy_of(y, parent, key, known);

		/* of whatever object it is */
		if (copy && !copy->tag)
			copy->tag = ARGS_OPTION;
		return copy;
	}
	return python_scratch(y, parent, key, text,
		       strcmp(text, "True") && strcmp(text, "False") && strcmp(text, "None"));
}

/* A key of {...} and its value, behind ':'; the key's own node goes, as {"k": v} is a map. */
static void pair(struct python *y, struct doc_node *node, const struct doc_node *key)
{
	const struct doc_node *v;

	y->p++;
	v = python_value(y, node, key->text);
	python_skip_rest(y);
	if (v && !y->full)
		node->kind = DOC_MAP;
}

/* Of a map: the nodes of its keys, which have no key themselves, are no members. */
static void drop_keys(struct doc_node *map)
{
	struct doc_node **at = &map->child;

	map->n = 0;
	map->last = NULL;
	while (*at) {
		if (!(*at)->key) {
			*at = (*at)->next;
		} else {
			map->n++;
			map->last = *at;
			at = &(*at)->next;
		}
	}
}

/* "**map" within {...}: its members; what another function made is not known, and left out. */
static void unpack(struct python *y, struct doc_node *node)
{
	const struct doc_node *map;

	y->p += 2;
	map = python_value(y, NULL, NULL);
	python_skip_rest(y);
	for (const struct doc_node *c = map && map->kind == DOC_MAP && node ? map->child : NULL; c && !y->full; c = c->next) {
		y->full |= !doc_add_copy(&y->scratch, node, c->key, c);
		node->kind = DOC_MAP;
	}
}

static struct doc_node *brackets(struct python *y, struct doc_node *parent, const char *key)
{
	const char close = *y->p == '[' ? ']' : *y->p == '{' ? '}' : ')';
	struct doc_node *node = doc_add(&y->scratch, parent ? parent : y->scratch.root, key,
					DOC_LIST, y->line, 0);
	bool comma = false;

	y->full |= !node;
	y->p++;
	for (python_skip(y, true); y->p < y->end && *y->p != close && !y->full; python_skip(y, true)) {
		const struct doc_node *first;

		if (*y->p == ',') {
			comma = true;
			y->p++;
			continue;
		}
		if (strchr(")]}", *y->p))
			break;
		if (close == '}' && y->end - y->p > 2 && !strncmp(y->p, "**", 2)) {
			unpack(y, node);
			continue;
		}
		first = python_value(y, node, NULL);
		python_skip_rest(y);
		if (y->p < y->end && *y->p == ':' && close == '}' && first && !y->full)
			pair(y, node, first);
		else if (y->p < y->end && *y->p == ':')
			y->p++;
	}
	y->p += y->p < y->end;
	if (node && node->kind == DOC_MAP)
		drop_keys(node);
	if (node && close == ')' && node->n == 1 && !comma)
		python_become(node, node->child);      /* (x) is x */
	return node;
}

static struct doc_node *number(struct python *y, struct doc_node *parent, const char *key)
{
	const char *from = y->p;
	char text[60];
	size_t n = 0;

	while (y->p < y->end && (python_is_name(*y->p) || *y->p == '.' ||
				 ((*y->p == '-' || *y->p == '+') && y->p > from &&
				  (y->p[-1] == 'e' || y->p[-1] == 'E')))) {
		if (*y->p != '_' && n < sizeof(text) - 1)
			text[n++] = *y->p;
		y->p++;
	}
	text[n] = 0;
	return python_scratch(y, parent, key, text, false);
}

struct doc_node *python_operand(struct python *y, struct doc_node *parent, const char *key)
{
	const int prefix = python_string_prefix(y);
	bool whole = true;
	struct doc_node *node;

	if (prefix >= 0) {
		const char *text = python_string(y, prefix, &whole);

		node = python_scratch(y, parent, key, text, !whole);
		if (node)
			node->quoted = true;
		return node;
	}
	if (y->p < y->end && strchr("[({", *y->p) && *y->p)
		return brackets(y, parent, key);
	if (y->p < y->end && (isdigit((unsigned char)*y->p) || *y->p == '.'))
		return number(y, parent, key);
	if (y->p < y->end && (isalpha((unsigned char)*y->p) || *y->p == '_'))
		return python_reference(y, parent, key);
	node = python_scratch(y, parent, key, "", true);
	return node;
}

static bool whole_number(const struct doc_node *node, int64_t *v)
{
	return node && !node->tag && !node->quoted && doc_whole(node, v);
}

static void set_number(struct python *y, struct doc_node *node, int64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, v);
	node->text = doc_text(&y->scratch, text, strlen(text));
	if (!node->text) {
		node->text = "";
		y->full = true;
	}
}

/* a * b + c from left to right is not Python's order: only one kind of operator is followed. */
static void operators(struct python *y, struct doc_node *node)
{
	for (python_skip(y, false); y->p < y->end && *y->p && strchr("*/+-%", *y->p); python_skip(y, false)) {
		const char op = *y->p;
		const bool twice = y->p + 1 < y->end && y->p[1] == op;
		struct doc_node *right;
		int64_t a, b;
		bool wrong;

		y->p += twice ? 2 : 1;
		python_skip(y, false);
		right = python_operand(y, NULL, NULL);
		wrong = !whole_number(node, &a) || !whole_number(right, &b);
		if (!wrong && op == '*' && !twice)
			wrong = __builtin_mul_overflow(a, b, &a);
		else if (!wrong && op == '/' && twice && b > 0)
			a /= b;
		else if (!wrong && op == '+')
			wrong = __builtin_add_overflow(a, b, &a);
		else if (!wrong && op == '-')
			wrong = __builtin_sub_overflow(a, b, &a);
		else
			wrong = true;
		if (!wrong)
			set_number(y, node, a);
		else if (node)
			node->tag = ARGS_UNKNOWN;
	}
}

struct doc_node *python_value(struct python *y, struct doc_node *parent, const char *key)
{
	const struct python_kept before = python_kept_now(y);
	struct doc_node *node;
	bool minus = false, not = false;
	int64_t v;

	if (++y->depth > CALLS_DEEP || y->full) {
		y->depth--;
		node = python_scratch(y, parent, key, "", true);
		python_skip_rest(y);
		return node;
	}
	python_skip(y, true);
	while (y->p < y->end && (*y->p == '-' || *y->p == '+')) {
		minus ^= *y->p++ == '-';
		python_skip(y, false);
	}
	while (y->end - y->p > 4 && !strncmp(y->p, "not ", 4)) {
		not = !not;
		y->p += 4;
		python_skip(y, false);
	}
	node = python_operand(y, parent, key);
	operators(y, node);
	python_skip(y, false);
	if (node && not) {
		node->text = doc_is_true(node) ? "False" : "True";
	} else if (node && minus && !node->tag) {
		if (whole_number(node, &v))
			set_number(y, node, -v);
		else
			node->tag = ARGS_UNKNOWN;
	}
	/* "a b", "x if y else z", "x or y": more than a literal, unless y is known to hold */
	if (node && !python_chosen(y, node, &before) && y->p < y->end && *y->p != ',' && *y->p != ':' && *y->p != '\n' && *y->p != ';' &&
	    !strchr(")]}", *y->p) && python_string_prefix(y) < 0)
		node->tag = ARGS_UNKNOWN;
	y->depth--;
	return node;
}
