/* Python scripts, as far as literal keyword arguments of calls go.
 *
 * No more is claimed: nothing is run, no import followed.  A name stands for the literal that was
 * assigned to it last before; "if False:" blocks are passed over; whether the card has bfloat16 is
 * answered with yes. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"

enum { CALLS_DEEP = 24, NAMES_MAX = 2000 };

struct constant {
	const char *name;
	size_t n;
	const struct doc_node *value;
};

struct python {
	struct doc *doc;                /* calls */
	struct doc scratch;             /* constants and values being made */
	const char *p, *end;
	uint32_t line;
	struct constant names[NAMES_MAX];
	size_t n_names;
	int depth;
	bool full;
};

static bool is_name(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Blanks, comments, continued lines; newlines only where they mean nothing. */
static void skip(struct python *y, bool lines)
{
	while (y->p < y->end) {
		if (*y->p == '#') {
			while (y->p < y->end && *y->p != '\n')
				y->p++;
		} else if (*y->p == '\\' && y->p + 1 < y->end && y->p[1] == '\n') {
			y->p += 2;
			y->line++;
		} else if (*y->p == '\n' && lines) {
			y->p++;
			y->line++;
		} else if (*y->p != '\n' && isspace((unsigned char)*y->p)) {
			y->p++;
		} else {
			return;
		}
	}
}

/* A string's prefix, its quotes behind it: the length of the prefix, -1: no string. */
static int string_prefix(const struct python *y)
{
	int n = 0;

	while (n < 2 && y->p + n < y->end && y->p[n] && strchr("rbfuRBFU", y->p[n]))
		n++;
	return y->p + n < y->end && (y->p[n] == '"' || y->p[n] == '\'') ? n : -1;
}

/* The string at p into out (NULL: passed over); *whole: no "{name}" in it is to be filled in. */
static const char *string(struct python *y, int prefix, bool *whole)
{
	const bool raw = prefix && strpbrk((char[3]){y->p[0], prefix > 1 ? y->p[1] : 0, 0}, "rR");
	const bool f = prefix && strpbrk((char[3]){y->p[0], prefix > 1 ? y->p[1] : 0, 0}, "fF");
	const char quote = y->p[prefix], *from;
	const bool triple = y->end - y->p > prefix + 2 && y->p[prefix + 1] == quote &&
			    y->p[prefix + 2] == quote;
	char *text;
	size_t n = 0;

	y->p += prefix + (triple ? 3 : 1);
	from = y->p;
	while (y->p < y->end) {
		if (*y->p == '\\' && y->p + 1 < y->end)
			y->p++;
		else if (*y->p == quote && (!triple || (y->end - y->p > 2 && y->p[1] == quote &&
							y->p[2] == quote)))
			break;
		else if (*y->p == '\n' && !triple)
			break;
		y->line += *y->p == '\n';
		y->p++;
	}
	text = doc_alloc(&y->scratch, (size_t)(y->p - from) + 1);
	y->full |= !text;
	for (const char *p = from; text && p < y->p; p++) {
		if (*p == '\\' && !raw && p + 1 < y->p && p[1] != 'n')
			p++;
		text[n++] = *p;
	}
	if (f && text && strchr(text, '{'))
		*whole = false;
	y->p += y->p < y->end && *y->p == quote ? (triple ? 3 : 1) : 0;
	return text ? text : "";
}

static struct doc_node *scratch(struct python *y, struct doc_node *parent, const char *key,
				const char *text, bool unknown)
{
	struct doc_node *node = doc_add_text(&y->scratch, parent ? parent : y->scratch.root, key,
					     text, y->line, 0);

	y->full |= !node;
	if (node && unknown)
		node->tag = ARGS_UNKNOWN;
	return node;
}

static const struct doc_node *constant(const struct python *y, const char *name, size_t n)
{
	for (size_t i = y->n_names; i-- > 0;)
		if (y->names[i].n == n && !strncmp(y->names[i].name, name, n))
			return y->names[i].value;
	return NULL;
}

static struct doc_node *value(struct python *y, struct doc_node *parent, const char *key);

/* To the ',' or bracket that ends an argument. */
static void skip_rest(struct python *y)
{
	int depth = 0;

	while (y->p < y->end) {
		const int prefix = string_prefix(y);
		bool whole;

		if (prefix >= 0) {
			string(y, prefix, &whole);
			continue;
		}
		if (*y->p == '#') {
			skip(y, true);
			continue;
		}
		if (strchr("([{", *y->p) && *y->p)
			depth++;
		else if (strchr(")]}", *y->p) && *y->p && depth-- == 0)
			return;
		else if ((*y->p == ',' || *y->p == ':') && !depth)
			return;
		y->line += *y->p == '\n';
		y->p++;
	}
}

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
static void arguments(struct python *y, const char *path, size_t n)
{
	struct doc_node *map = call_map(y, path, n);
	const char *last = path + n;
	unsigned position = 0;
	bool of_class;

	while (last > path && last[-1] != '.')
		last--;
	of_class = isupper((unsigned char)*last);

	y->p++;
	for (skip(y, true); y->p < y->end && *y->p != ')' && !y->full; skip(y, true)) {
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
			node = value(y, NULL, NULL);
			for (const struct doc_node *c = node ? node->child : NULL; c; c = c->next)
				if (c->key)
					keep(y, map, c->key, c);
			skip_rest(y);
			continue;
		}
		while (q < y->end && is_name(*q))
			q++;
		snprintf(key, sizeof(key), "%.*s", (int)(q - from < 90 ? q - from : 90), from);
		y->p = q;
		skip(y, true);
		if (q > from && y->p < y->end && *y->p == '=' &&
		    !(y->p + 1 < y->end && y->p[1] == '=')) {
			y->p++;
		} else {
			y->p = from;
			y->line = line;
			snprintf(key, sizeof(key), "%u", position++);
		}
		node = value(y, NULL, NULL);
		if (node)
			node->line = line;
		/* what stands at a place, not at a name, is a class's own business */
		if (!isdigit((unsigned char)*key) || !of_class)
			keep(y, map, key, node);
		skip_rest(y);
		if (y->p < y->end && *y->p == ':')      /* lambda, slices */
			y->p++;
	}
	y->p += y->p < y->end;
}

/* name, a.b, a.b(...) */
static struct doc_node *name(struct python *y, struct doc_node *parent, const char *key)
{
	static const char *const yes[] = {"is_bfloat16_supported", "is_bf16_supported"};
	const char *from = y->p, *last;
	const struct doc_node *known;
	char text[120];
	size_t n;

	while (y->p < y->end && (is_name(*y->p) || *y->p == '.'))
		y->p++;
	n = (size_t)(y->p - from);
	skip(y, false);
	if (y->p < y->end && *y->p == '(') {
		arguments(y, from, n);
		last = from + n;
		while (last > from && last[-1] != '.')
			last--;
		n = (size_t)(from + n - last);
		for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
			if (strlen(yes[i]) == n && !strncmp(yes[i], last, n))
				return scratch(y, parent, key, "True", false);
		snprintf(text, sizeof(text), "%.*s(...)", (int)(n < 100 ? n : 100), last);
		/* attributes of what was called: not followed */
		return scratch(y, parent, key, text, !isupper((unsigned char)*last));
	}
	known = constant(y, from, n);
	if (known && !(y->p < y->end && *y->p == '[')) {
		struct doc_node *copy =
			doc_add_copy(&y->scratch, parent ? parent : y->scratch.root, key, known);

		y->full |= !copy;
		return copy;
	}
	snprintf(text, sizeof(text), "%.*s", (int)(n < 110 ? n : 110), from);
	if (!strncmp(text, "torch.", 6))
		return scratch(y, parent, key, text + 6, false);
	return scratch(y, parent, key, text,
		       strcmp(text, "True") && strcmp(text, "False") && strcmp(text, "None"));
}

static struct doc_node *brackets(struct python *y, struct doc_node *parent, const char *key)
{
	const char close = *y->p == '[' ? ']' : *y->p == '{' ? '}' : ')';
	struct doc_node *node = doc_add(&y->scratch, parent ? parent : y->scratch.root, key,
					DOC_LIST, y->line, 0);
	bool comma = false;

	y->full |= !node;
	y->p++;
	for (skip(y, true); y->p < y->end && *y->p != close && !y->full; skip(y, true)) {
		const struct doc_node *first;

		if (*y->p == ',') {
			comma = true;
			y->p++;
			continue;
		}
		if (strchr(")]}", *y->p))
			break;
		first = value(y, node, NULL);
		skip_rest(y);
		if (y->p < y->end && *y->p == ':' && close == '}' && first && !y->full) {
			struct doc_node *v;

			y->p++;
			v = value(y, node, first->text);
			skip_rest(y);
			if (v && !y->full) {
				/* the key's own node goes: {"k": v} is a map */
				node->kind = DOC_MAP;
			}
		} else if (y->p < y->end && *y->p == ':') {
			y->p++;
		}
	}
	y->p += y->p < y->end;
	if (node && node->kind == DOC_MAP) {    /* keys' nodes have no key themselves */
		struct doc_node **at = &node->child;

		node->n = 0;
		node->last = NULL;
		while (*at) {
			if (!(*at)->key) {
				*at = (*at)->next;
			} else {
				node->n++;
				node->last = *at;
				at = &(*at)->next;
			}
		}
	}
	/* (x) is x */
	if (node && close == ')' && node->n == 1 && !comma) {
		struct doc_node *only = node->child;

		*node = (struct doc_node){.key = node->key, .text = only->text, .tag = only->tag,
					  .kind = only->kind, .quoted = only->quoted,
					  .line = only->line, .n = only->n, .child = only->child,
					  .last = only->last, .next = node->next};
	}
	return node;
}

static struct doc_node *number(struct python *y, struct doc_node *parent, const char *key)
{
	const char *from = y->p;
	char text[60];
	size_t n = 0;

	while (y->p < y->end && (is_name(*y->p) || *y->p == '.' ||
				 ((*y->p == '-' || *y->p == '+') && y->p > from &&
				  (y->p[-1] == 'e' || y->p[-1] == 'E')))) {
		if (*y->p != '_' && n < sizeof(text) - 1)
			text[n++] = *y->p;
		y->p++;
	}
	text[n] = 0;
	return scratch(y, parent, key, text, false);
}

static struct doc_node *operand(struct python *y, struct doc_node *parent, const char *key)
{
	const int prefix = string_prefix(y);
	bool whole = true;
	struct doc_node *node;

	if (prefix >= 0) {
		const char *text = string(y, prefix, &whole);

		node = scratch(y, parent, key, text, !whole);
		if (node)
			node->quoted = true;
		return node;
	}
	if (y->p < y->end && strchr("[({", *y->p) && *y->p)
		return brackets(y, parent, key);
	if (y->p < y->end && (isdigit((unsigned char)*y->p) || *y->p == '.'))
		return number(y, parent, key);
	if (y->p < y->end && (isalpha((unsigned char)*y->p) || *y->p == '_'))
		return name(y, parent, key);
	node = scratch(y, parent, key, "", true);
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
	for (skip(y, false); y->p < y->end && *y->p && strchr("*/+-%", *y->p); skip(y, false)) {
		const char op = *y->p;
		const bool twice = y->p + 1 < y->end && y->p[1] == op;
		struct doc_node *right;
		int64_t a, b;
		bool wrong;

		y->p += twice ? 2 : 1;
		skip(y, false);
		right = operand(y, NULL, NULL);
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

static struct doc_node *value(struct python *y, struct doc_node *parent, const char *key)
{
	struct doc_node *node;
	bool minus = false, not = false;
	int64_t v;

	if (++y->depth > CALLS_DEEP || y->full) {
		y->depth--;
		node = scratch(y, parent, key, "", true);
		skip_rest(y);
		return node;
	}
	skip(y, true);
	while (y->p < y->end && (*y->p == '-' || *y->p == '+')) {
		minus ^= *y->p++ == '-';
		skip(y, false);
	}
	while (y->end - y->p > 4 && !strncmp(y->p, "not ", 4)) {
		not = !not;
		y->p += 4;
		skip(y, false);
	}
	node = operand(y, parent, key);
	operators(y, node);
	skip(y, false);
	if (node && not) {
		node->text = doc_is_true(node) ? "False" : "True";
	} else if (node && minus && !node->tag) {
		if (whole_number(node, &v))
			set_number(y, node, -v);
		else
			node->tag = ARGS_UNKNOWN;
	}
	/* "a b", "x if y else z", "x or y": more than a literal */
	if (node && y->p < y->end && *y->p != ',' && *y->p != ':' && *y->p != '\n' && *y->p != ';' &&
	    !strchr(")]}", *y->p) && string_prefix(y) < 0)
		node->tag = ARGS_UNKNOWN;
	y->depth--;
	return node;
}

/* NAME = value or NAME: type = value at the beginning of a line; false: it is something else. */
static bool assignment(struct python *y)
{
	const char *from = y->p, *q = from;
	struct doc_node *node;

	while (q < y->end && is_name(*q))
		q++;
	if (q == from || isdigit((unsigned char)*from))
		return false;
	y->p = q;
	skip(y, false);
	if (y->p < y->end && *y->p == ':') {
		while (y->p < y->end && *y->p != '=' && *y->p != '\n')
			y->p++;
	}
	if (y->p + 1 >= y->end || *y->p != '=' || y->p[1] == '=') {
		y->p = from;
		return false;
	}
	y->p++;
	node = value(y, NULL, NULL);
	if (node && y->n_names < NAMES_MAX)
		y->names[y->n_names++] = (struct constant){from, (size_t)(q - from), node};
	return true;
}

/* "if False:" and what is indented below it. */
static bool dead_block(struct python *y, size_t indent)
{
	static const char *const heads[] = {"if False:", "if False :", "if 0:"};
	bool dead = false;

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		dead |= (size_t)(y->end - y->p) > strlen(heads[i]) &&
			!strncmp(y->p, heads[i], strlen(heads[i]));
	if (!dead)
		return false;
	for (;;) {
		size_t n = 0;

		while (y->p < y->end && *y->p != '\n')
			y->p++;
		while (y->p < y->end && *y->p == '\n') {
			y->p++;
			y->line++;
		}
		while (y->p + n < y->end && (y->p[n] == ' ' || y->p[n] == '\t'))
			n++;
		if (y->p + n >= y->end || (n <= indent && y->p[n] != '\n'))
			return true;
	}
}

static void statements(struct python *y)
{
	bool begins = true;             /* at the beginning of a line */

	while (y->p < y->end && !y->full) {
		const int prefix = string_prefix(y);
		const char *line = y->p;
		bool whole;

		if (*y->p == '\n') {
			begins = true;
			y->line++;
			y->p++;
			continue;
		}
		if (begins) {
			while (y->p < y->end && (*y->p == ' ' || *y->p == '\t'))
				y->p++;
			begins = false;
			if (y->p < y->end && (*y->p == '%' || *y->p == '!')) {  /* notebooks */
				const char *command = y->p + 1;

				while (y->p < y->end && *y->p != '\n')
					y->p++;
				y->full |= !args_pins_of_line(y->doc, y->doc->root, command,
							      (size_t)(y->p - command), y->line);
			} else if (dead_block(y, (size_t)(y->p - line))) {
				begins = true;
			} else {
				(void)assignment(y);
			}
			continue;
		}
		if (prefix >= 0)
			string(y, prefix, &whole);
		else if (*y->p == '#')
			skip(y, false);
		else if (isalpha((unsigned char)*y->p) || *y->p == '_')
			(void)name(y, NULL, NULL);
		else
			y->p++;
	}
}

enum oom_status doc_read_python(struct doc *doc, const char *text, size_t size, const char *file,
				struct oom_error *err)
{
	struct python *y = calloc(1, sizeof(*y));
	enum oom_status st;

	if (!y)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	st = doc_begin(doc, file, PYTHON_FORMAT, err);
	y->doc = doc;
	y->p = text;
	y->end = text + size;
	y->line = 1;
	if (!st)
		st = doc_begin(&y->scratch, file, "", err);
	if (!st && (!doc_add(doc, NULL, NULL, DOC_MAP, 1, 1) ||
		    !doc_add(&y->scratch, NULL, NULL, DOC_LIST, 1, 1)))
		st = doc_full(doc, 0, err);
	if (!st)
		statements(y);
	if (!st && y->full)
		st = doc_full(doc->n_nodes >= y->scratch.n_nodes ? doc : &y->scratch, y->line, err);
	if (!st && (!doc->root->n || (doc->root->n == 1 && *doc->root->child->key == '(')))
		st = oom_error_set(err, OOM_ERR_UNKNOWN,
				   "%s: no call with literal arguments that a training script makes "
				   "(TrainingArguments, SFTConfig, LoraConfig, from_pretrained, ...)",
				   file);
	doc_release(&y->scratch);
	if (st)
		doc_release(doc);
	free(y);
	return st;
}
