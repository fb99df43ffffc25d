/* A file of settings as a tree: what every door (YAML, JSON, TOML, command lines, scripts) fills
 * and every reader of a framework looks keys up in.
 *
 * Private to planner/.  A document owns all its nodes and texts; they live until doc_release().
 * Doors bound what they make: DOC_MAX_NODES values, DOC_MAX_DEPTH levels, DOC_MAX_BYTES of text, so
 * that no file, however its anchors refer to each other, takes more than that. */
#ifndef OOM_FRAMEWORKS_DOC_H
#define OOM_FRAMEWORKS_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

/* The largest public training files have some 2 000 values and 200 kB; both limits are guesses far
 * above. */
#define DOC_MAX_NODES 20000
#define DOC_MAX_DEPTH 64
#define DOC_MAX_BYTES ((size_t)8 << 20)

enum doc_kind { DOC_NULL, DOC_SCALAR, DOC_LIST, DOC_MAP };

struct doc_node {
	const char *key;        /* of a member of a map; NULL in lists and at the root */
	const char *text;       /* SCALAR: without its quotes; "" otherwise, never NULL */
	const char *tag;        /* a YAML tag other than the standard ones ("!!python/..."); or NULL */
	enum doc_kind kind;
	bool quoted;            /* a string whatever it looks like */
	uint32_t line, column;  /* of the key, else of the value; 1-based, 0: unknown */
	uint32_t n;             /* LIST, MAP: children */
	struct doc_node *child, *last, *next;
};

struct doc {
	struct doc_node *root;  /* NULL: an empty file */
	const char *file;       /* for messages; owned */
	const char *head;       /* comments above everything else; NULL: none */
	const char *format;     /* "yaml", "json", "toml", "arguments", ...; static */
	uint32_t n_documents;   /* YAML: how many stood in the file; the first is root */
	uint32_t n_nodes;
	size_t n_bytes;
	struct doc_chunk *chunks;       /* private */
};

/* Zero a struct doc, then begin it.  OOM_ERR_MEMORY. */
enum oom_status doc_begin(struct doc *doc, const char *file, const char *format,
			  struct oom_error *err);
/* Accepts zeroed and NULL. */
void doc_release(struct doc *doc);

/* For doors.  Memory of the document (zeroed), or NULL where it is full or malloc failed. */
void *doc_alloc(struct doc *doc, size_t size);
/* A copy of text[0..size), NUL-terminated. */
const char *doc_text(struct doc *doc, const char *text, size_t size);
/* A new last child of `parent` (NULL: the root, once).  key: NULL in lists.  Returns NULL where a
 * limit is reached or malloc failed; doc_full() then words it. */
struct doc_node *doc_add(struct doc *doc, struct doc_node *parent, const char *key,
			 enum doc_kind kind, uint32_t line, uint32_t column);
/* The same with a text: a SCALAR. */
struct doc_node *doc_add_text(struct doc *doc, struct doc_node *parent, const char *key,
			      const char *text, uint32_t line, uint32_t column);
/* The error of a door whose doc_* call returned NULL. */
enum oom_status doc_full(const struct doc *doc, uint32_t line, struct oom_error *err);

/* Looking up.  Names are compared without case, '-' and '_' alike.  The member of a map, the last
 * of equal ones; NULL: none (also where `map` is NULL or no map). */
const struct doc_node *doc_member(const struct doc_node *map, const char *name);
/* By a path of members and list indices, "a.b.0"; a member whose own name holds dots is found
 * too. */
const struct doc_node *doc_find(const struct doc *doc, const char *path);
/* The same from a node. */
const struct doc_node *doc_below(const struct doc_node *node, const char *path);

/* What a scalar says.  Booleans are YAML 1.1's words and Python's: true, yes, on, 1, ... */
bool doc_is_true(const struct doc_node *node);
/* Absent, null, an empty text, "none" and "null" (unquoted). */
bool doc_is_null(const struct doc_node *node);
/* false, no, off, 0 and all that is null; an empty list or map. */
bool doc_is_off(const struct doc_node *node);
/* A whole number in any usual spelling: 8, 1_000, 5e8, 8.0, 0x10.  False where it is none. */
bool doc_whole(const struct doc_node *node, int64_t *value);
/* A value as one line into buf: the text, [a, b], {...}; cut where it does not fit; returns buf. */
const char *doc_show(const struct doc_node *node, char *buf, size_t size);

/* Doors: text[0..size) into a zeroed *doc, which is left zeroed on failure.  OOM_ERR_PARSE with
 * file:line:column. */
enum oom_status doc_read_yaml(struct doc *doc, const char *text, size_t size, const char *file,
			      struct oom_error *err);
enum oom_status doc_read_json(struct doc *doc, const char *text, size_t size, const char *file,
			      struct oom_error *err);
/* By what the name and the beginning of the text say; text[size] is 0. */
enum oom_status doc_read_text(struct doc *doc, const char *text, size_t size, const char *name,
			      struct oom_error *err);
/* Any file ("-": standard input) by what its name and its beginning say, a byte order mark and
 * UTF-16 taken off. */
enum oom_status doc_read(struct doc *doc, const char *path, struct oom_error *err);

#endif
