/* "a if CONDITION else b" in scripts of Python, where it is known whether the condition holds. */
#include <string.h>

#include "python_parts.h"

void python_become(struct doc_node *node, const struct doc_node *only)
{
	*node = (struct doc_node){.key = node->key, .text = only->text, .tag = only->tag,
				  .kind = only->kind, .quoted = only->quoted,
				  .line = only->line, .n = only->n, .child = only->child,
				  .last = only->last, .next = node->next};
}

/* Is it a literal, or the default of an option, which holds until somebody says otherwise? */
static bool is_known(const struct doc_node *node, bool *option)
{
	*option |= node && node->tag && !strcmp(node->tag, ARGS_OPTION);
	return node && node->kind == DOC_SCALAR && (!node->tag || !strcmp(node->tag, ARGS_OPTION));
}

/* "NAME", "not NAME", "NAME == 'word'" at the cursor: 1 it holds, 0 it does not, -1 nobody knows. */
static int condition(struct python *y, bool *option)
{
	const struct doc_node *a, *b;
	bool not = false;
	int holds = -1;

	if (y->end - y->p > 4 && !strncmp(y->p, "not ", 4)) {
		not = true;
		y->p += 4;
		python_skip(y, false);
	}
	a = python_operand(y, NULL, NULL);
	python_skip(y, true);
	if (y->end - y->p > 2 && !strncmp(y->p, "==", 2)) {
		y->p += 2;
		python_skip(y, true);
		b = python_operand(y, NULL, NULL);
		python_skip(y, true);
		if (is_known(a, option) && is_known(b, option))
			holds = !strcmp(a->text, b->text);
	} else if (is_known(a, option)) {
		holds = doc_is_true(a) ? 1 : !strcmp(a->text, "False") || !strcmp(a->text, "None") || !strcmp(a->text, "0") ? 0 : -1;
	}
	return holds < 0 ? holds : not ? !holds : holds;
}

struct python_kept python_kept_now(const struct python *y)
{
	return (struct python_kept){y->doc->root->last, y->doc->root->n};
}

/* Those since then are of a branch that is not taken. */
static void forget_calls(struct python *y, const struct python_kept *since)
{
	struct doc_node *root = y->doc->root;

	if (root->n == since->n)
		return;
	if (since->last)
		since->last->next = NULL;
	else
		root->child = NULL;
	root->last = since->last;
	root->n = since->n;
}

bool python_chosen(struct python *y, struct doc_node *node, const struct python_kept *before)
{
	const char *from = y->p;
	const uint32_t line = y->line;
	const struct python_kept now = python_kept_now(y);
	const struct doc_node *other;
	bool option = false;
	int holds = -1;

	/* on the next line, too: a statement there has no "else" of its own */
	python_skip(y, true);
	if (y->end - y->p > 3 && !strncmp(y->p, "if ", 3)) {
		y->p += 3;
		python_skip(y, false);
		holds = condition(y, &option);
	}
	if (holds < 0 || y->end - y->p < 6 || strncmp(y->p, "else", 4) || !isspace((unsigned char)y->p[4])) {
		y->p = from;
		y->line = line;
		return false;
	}
	if (!holds)
		forget_calls(y, before);
	y->p += 5;
	other = python_value(y, NULL, NULL);
	if (holds)
		forget_calls(y, &now);
	else if (other)
		python_become(node, other);
	if (option && !node->tag)
		node->tag = ARGS_OPTION;
	return true;
}
