/* What the parts of the reader of Python share: the cursor, the names that were assigned, values being made.
 * Private to planner/frameworks. */
#ifndef OOM_FRAMEWORKS_PYTHON_PARTS_H
#define OOM_FRAMEWORKS_PYTHON_PARTS_H

#include <ctype.h>

#include "arguments.h"

enum { PYTHON_NAMES_MAX = 2000 };

struct python_name {
	const char *name;               /* in the text, not terminated */
	size_t n;
	struct doc_node *value;
	/* The default of an option or a parameter: who runs the script may say otherwise. */
	bool option;
	/* Of these: declared as one, by a class' field or by add_argument, not a function's parameter. */
	bool declared;
	/* Assigned in a branch of which nobody knows whether it runs. */
	bool perhaps;
};

struct python {
	struct doc *doc;                /* calls */
	struct doc scratch;             /* names' values and values being made */
	const char *p, *end;
	uint32_t line;
	struct python_name names[PYTHON_NAMES_MAX];
	size_t n_names;
	int depth;
	const struct doc_node *given;   /* options of the command, above what is declared; NULL: none */
	bool declares;                  /* names that are remembered now are declared */
	bool full;                      /* a document has no room left: nothing more is read */
};

static inline bool python_is_name(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* python_text.c */

/* Blanks, comments, continued lines; newlines only where they mean nothing. */
void python_skip(struct python *y, bool lines);
/* A string's prefix, its quotes behind it: the length of the prefix, -1: no string. */
int python_string_prefix(const struct python *y);
/* The string at the cursor; *whole becomes false where a "{name}" in it is to be filled in. */
const char *python_string(struct python *y, int prefix, bool *whole);
/* To the ',' or bracket that ends an argument. */
void python_skip_rest(struct python *y);
/* A text as a node of the scratch document; NULL and `full` without room. */
struct doc_node *python_scratch(struct python *y, struct doc_node *parent, const char *key, const char *text,
				bool unknown);

/* python_values.c */

/* The expression at the cursor; what is more than a literal or a known name has the tag ARGS_UNKNOWN. */
struct doc_node *python_value(struct python *y, struct doc_node *parent, const char *key);
/* A literal, a name, a call or something in brackets: an expression without operators. */
struct doc_node *python_operand(struct python *y, struct doc_node *parent, const char *key);
/* name, a.b, a.b(...): calls on the way are kept. */
struct doc_node *python_reference(struct python *y, struct doc_node *parent, const char *key);
/* What was assigned to a name last before, else the default of an option or a parameter of that name;
 * NULL: nothing. */
struct doc_node *python_constant(const struct python *y, const char *name, size_t n);
/* NAME stands for the node from here on. */
void python_remember(struct python *y, const char *name, size_t n, struct doc_node *node, bool option);

/* The same of an assignment that perhaps runs: where branches differ, what the name stands for is not known. */
void python_remember_branch(struct python *y, const char *name, size_t n, struct doc_node *node, bool option, bool perhaps);

/* python_choices.c */

/* The calls that were kept so far. */
struct python_kept {
	struct doc_node *last;
	uint32_t n;
};

struct python_kept python_kept_now(const struct python *y);
/* The node is what another one is, where it stands. */
void python_become(struct doc_node *node, const struct doc_node *only);
/* "if NAME == 'word' else ..." behind a value, of which it is known whether the condition holds: the node becomes what
 * is chosen, and the cursor goes past it all; calls since `before` are forgotten where they are of the other branch. */
bool python_chosen(struct python *y, struct doc_node *node, const struct python_kept *before);

/* python_arguments.c: "( arguments )" behind the name of what is called; the cursor stands on '('.  Calls
 * of interest are kept in the document.  The value of the call where it is known (dict(...), int(...), the
 * default of an option); NULL: it is not. */
struct doc_node *python_arguments(struct python *y, const char *path, size_t n);

#endif
