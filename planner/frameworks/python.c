/* Python scripts, as far as literal keyword arguments of calls go.
 *
 * No more is claimed: nothing is run, no import followed.  A name stands for the literal that was
 * assigned to it last before, or for the default of an option, a field or a parameter of that name; branches
 * whose condition is such a name are taken or passed over; whether the card has bfloat16 is answered with
 * yes. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "python_parts.h"

enum { INDENTS = 80 };

/* The blocks that the cursor is in. */
struct blocks {
	/* By indent: an "if" there was true, so that its "elif" and "else" are dead. */
	bool taken[INDENTS];
	/* By indent: whether an "if" there holds is not known, nor which of its branches runs. */
	bool open[INDENTS];
};

/* Does a line of this indent run only if a condition holds that is not known? */
static bool perhaps(const struct blocks *b, size_t indent)
{
	for (size_t i = 0; i < indent && i < INDENTS; i++)
		if (b->open[i])
			return true;
	return false;
}

/* NAME["key"] = value, of a map that is known; the cursor stands on '['. */
static bool member_assignment(struct python *y, const char *name, size_t n)
{
	struct doc_node *map = python_constant(y, name, n), *node;
	bool whole = true;
	const char *key;
	int prefix;

	if (!map || map->kind != DOC_MAP || map->tag)
		return false;
	y->p++;
	prefix = python_string_prefix(y);
	key = prefix < 0 ? NULL : python_string(y, prefix, &whole);
	if (!key || !whole || y->p >= y->end || *y->p != ']')
		return false;
	y->p++;
	python_skip(y, false);
	if (y->p + 1 >= y->end || *y->p != '=' || y->p[1] == '=')
		return false;
	y->p++;
	node = python_value(y, NULL, NULL);
	/* of equal keys the last is the member */
	y->full |= node && !doc_add_copy(&y->scratch, map, key, node);
	return true;
}

/* NAME = value or NAME: type = value at the beginning of a line; false: it is something else.  A type within
 * a class declares a field, whose value is a default. */
static bool assignment(struct python *y, size_t indent, bool perhaps)
{
	const char *from = y->p, *q = from;
	const uint32_t line = y->line;
	bool typed = false, done = false;

	while (q < y->end && python_is_name(*q))
		q++;
	if (q == from || isdigit((unsigned char)*from))
		return false;
	y->p = q;
	python_skip(y, false);
	if (y->p < y->end && *y->p == ':') {
		typed = indent > 0;
		while (y->p < y->end && *y->p != '=' && *y->p != '\n')
			y->p++;
	}
	if (y->p + 1 < y->end && *y->p == '=' && y->p[1] != '=') {
		struct doc_node *value;

		y->p++;
		value = python_value(y, NULL, NULL);
		y->declares = typed;
		python_remember_branch(y, from, (size_t)(q - from), value, typed, perhaps);
		y->declares = false;
		return true;
	}
	if (y->p < y->end && *y->p == '[')
		done = member_assignment(y, from, (size_t)(q - from));
	if (!done) {
		y->p = from;
		y->line = line;
	}
	return done;
}

static bool word_at(const struct python *y, const char *word)
{
	const size_t n = strlen(word);

	return (size_t)(y->end - y->p) > n && !strncmp(y->p, word, n);
}

/* To the "=" or the "," or ")" behind a parameter's type. */
static void skip_type(struct python *y)
{
	int depth = 0;

	for (; y->p < y->end && (depth || !strchr("=,)", *y->p)); y->p++) {
		depth += *y->p == '[' || *y->p == '(';
		depth -= *y->p == ']' || *y->p == ')';
		y->line += *y->p == '\n';
	}
}

/* def f(a, b: int = 1): a default holds unless a caller says otherwise. */
static void parameters(struct python *y)
{
	while (y->p < y->end && *y->p != '(' && *y->p != '\n')
		y->p++;
	if (y->p >= y->end || *y->p != '(')
		return;
	y->p++;
	for (python_skip(y, true); y->p < y->end && *y->p != ')' && !y->full; python_skip(y, true)) {
		const char *from = y->p;
		size_t n;

		while (y->p < y->end && python_is_name(*y->p))
			y->p++;
		n = (size_t)(y->p - from);
		python_skip(y, true);
		if (y->p < y->end && *y->p == ':')
			skip_type(y);
		if (n && y->p < y->end && *y->p == '=') {
			y->p++;
			python_remember(y, from, n, python_value(y, NULL, NULL), true);
			python_skip_rest(y);
		}
		y->p += y->p < y->end && *y->p != ')';
	}
	y->p += y->p < y->end;
}

/* "if NAME:", "if not args.NAME:", "if False:": 1, 0, or -1 where it is more or nobody knows. */
static int condition(struct python *y)
{
	const char *p = y->p + strlen("if "), *name;
	const struct doc_node *value;
	bool not = false;
	size_t n = 0;
	int64_t v;

	p += strspn(p, " ");
	if (!strncmp(p, "not ", 4)) {
		not = true;
		p += 4;
	}
	name = p;
	/* "args.lora" is the option lora */
	for (; p < y->end && (python_is_name(*p) || *p == '.'); p++)
		name = *p == '.' ? p + 1 : name;
	n = (size_t)(p - name);
	p += strspn(p, " ");
	if (!n || p >= y->end || *p != ':' || p[1 + strspn(p + 1, " \t\r")] != '\n')
		return -1;
	if (n == 1 && isdigit((unsigned char)*name))
		return (*name != '0') != not;
	if ((n == 4 && !strncmp(name, "True", 4)) || (n == 5 && !strncmp(name, "False", 5)))
		return (n == 4) != not;
	value = python_constant(y, name, n);
	/* a default holds where the command is known that says otherwise */
	if (!value || (value->tag && !(y->given && !strcmp(value->tag, ARGS_OPTION))) || value->kind != DOC_SCALAR ||
	    !(doc_is_true(value) || doc_is_off(value) || doc_whole(value, &v)))
		return -1;
	return !doc_is_off(value) != not;
}

/* Past the line and what is indented below it. */
static void skip_block(struct python *y, size_t indent)
{
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
			return;
	}
}

/* Branches that are known not to run are passed over, of an "if" whose condition is known. */
static bool dead_branch(struct python *y, struct blocks *b, size_t indent)
{
	const bool other = word_at(y, "else:") || word_at(y, "else :") || word_at(y, "elif ");
	const bool was = indent < INDENTS && b->taken[indent];

	if (y->p < y->end && *y->p != '#' && *y->p != '\n')
		for (size_t i = indent + !!other; i < INDENTS; i++)
			b->taken[i] = b->open[i] = false;
	if (other && was) {
		skip_block(y, indent);
		return true;
	}
	if (word_at(y, "if ")) {
		const int holds = condition(y);

		if (indent < INDENTS) {
			b->taken[indent] = holds == 1;
			b->open[indent] = holds < 0;
		}
		if (!holds)
			skip_block(y, indent);
		return !holds;
	}
	return false;
}

/* Shell commands of a notebook: what they install. */
static void shell_line(struct python *y)
{
	const char *command = y->p + 1;

	while (y->p < y->end && *y->p != '\n')
		y->p++;
	y->full |= !args_pins_of_line(y->doc, y->doc->root, command, (size_t)(y->p - command), y->line);
}

/* The beginning of a line; false: it goes on as any text. */
static bool first_word(struct python *y, struct blocks *b)
{
	const char *line = y->p;
	size_t indent;

	while (y->p < y->end && (*y->p == ' ' || *y->p == '\t'))
		y->p++;
	indent = (size_t)(y->p - line);
	if (y->p < y->end && (*y->p == '%' || *y->p == '!'))
		shell_line(y);
	else if (dead_branch(y, b, indent))
		return true;
	else if (word_at(y, "def ") || word_at(y, "async def "))
		parameters(y);
	else
		(void)assignment(y, indent, perhaps(b, indent));
	return false;
}

static void statements(struct python *y)
{
	struct blocks blocks = {{false}, {false}};
	bool begins = true;             /* at the beginning of a line */

	while (y->p < y->end && !y->full) {
		bool whole;
		int prefix;

		if (*y->p == '\n') {
			begins = true;
			y->line++;
			y->p++;
			continue;
		}
		if (begins) {
			begins = first_word(y, &blocks);
			continue;
		}
		prefix = python_string_prefix(y);
		if (prefix >= 0)
			python_string(y, prefix, &whole);
		else if (*y->p == '#')
			python_skip(y, false);
		else if (isalpha((unsigned char)*y->p) || *y->p == '_')
			(void)python_reference(y, NULL, NULL);
		else
			y->p++;
	}
}

/* The declared options as members of the document, by their names; of equal names the last is the one that counts. */
static void keep_options(struct python *y)
{
	struct doc_node *map = doc_add(y->doc, y->doc->root, ARGS_OPTIONS, DOC_MAP, 0, 0);

	y->full |= !map;
	for (size_t i = y->n_names; map && i-- > 0 && !y->full;) {
		const struct python_name *name = &y->names[i];
		const char *key = doc_text(y->doc, name->name, name->n);
		struct doc_node *copy;

		if (!key || !name->declared || name->value->kind != DOC_SCALAR || doc_member(map, key) ||
		    !name->value->tag || strcmp(name->value->tag, ARGS_OPTION)) {
			y->full |= !key;
			continue;
		}
		copy = doc_add_copy(y->doc, map, key, name->value);
		y->full |= !copy;
		if (copy)
			copy->tag = NULL;
	}
}

enum oom_status doc_read_python(struct doc *doc, const char *text, size_t size, const char *file,
				struct oom_error *err)
{
	return doc_read_python_as(doc, text, size, file, false, NULL, err);
}

enum oom_status doc_read_python_as(struct doc *doc, const char *text, size_t size, const char *file, bool options,
				   const struct doc_node *given, struct oom_error *err)
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
	y->given = given;
	if (!st)
		st = doc_begin(&y->scratch, file, "", err);
	if (!st && (!doc_add(doc, NULL, NULL, DOC_MAP, 1, 1) ||
		    !doc_add(&y->scratch, NULL, NULL, DOC_LIST, 1, 1)))
		st = doc_full(doc, 0, err);
	if (!st)
		statements(y);
	if (!st && options && !y->full)
		keep_options(y);
	if (!st && y->full)
		st = doc_full(doc->n_nodes >= y->scratch.n_nodes ? doc : &y->scratch, y->line, err);
	if (!st && !options && (!doc->root->n || (doc->root->n == 1 && *doc->root->child->key == '(')))
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
