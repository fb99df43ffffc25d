/* Python scripts, as far as literal keyword arguments of calls go.
 *
 * No more is claimed: nothing is run, no import followed.  A name stands for the literal that was
 * assigned to it last before; "if False:" blocks are passed over; whether the card has bfloat16 is
 * answered with yes. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "python_parts.h"

/* NAME = value or NAME: type = value at the beginning of a line; false: it is something else. */
static bool assignment(struct python *y)
{
	const char *from = y->p, *q = from;
	struct doc_node *node;

	while (q < y->end && python_is_name(*q))
		q++;
	if (q == from || isdigit((unsigned char)*from))
		return false;
	y->p = q;
	python_skip(y, false);
	if (y->p < y->end && *y->p == ':') {
		while (y->p < y->end && *y->p != '=' && *y->p != '\n')
			y->p++;
	}
	if (y->p + 1 >= y->end || *y->p != '=' || y->p[1] == '=') {
		y->p = from;
		return false;
	}
	y->p++;
	node = python_value(y, NULL, NULL);
	if (node && y->n_names < PYTHON_NAMES_MAX)
		y->names[y->n_names++] = (struct python_name){from, (size_t)(q - from), node};
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
		const int prefix = python_string_prefix(y);
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
			python_string(y, prefix, &whole);
		else if (*y->p == '#')
			python_skip(y, false);
		else if (isalpha((unsigned char)*y->p) || *y->p == '_')
			(void)python_reference(y, NULL, NULL);
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
