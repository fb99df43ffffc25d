/* YAML through the door of libyaml: the only file that knows it.
 *
 * Events are read, not libyaml's own documents, so that aliases are copied under the document's
 * limits: a file whose anchors refer to each other a billion times ends with an error after
 * DOC_MAX_NODES values.  The first document counts; frameworks read one (yaml.safe_load). */
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "doc.h"

enum { MAX_ANCHORS = 1024 };

struct anchor {
	const char *name;
	struct doc_node *node;
	bool open;              /* its value has not ended: an alias to it would be endless */
};

struct level {
	struct doc_node *node;
	const char *key;        /* of a map: read, its value comes next */
	uint32_t line, column;  /* of the key */
	size_t anchor;          /* its anchor + 1; 0: none */
};

struct builder {
	struct doc *doc;
	struct level levels[DOC_MAX_DEPTH];
	int depth;
	struct anchor anchors[MAX_ANCHORS];
	size_t n_anchors;
	struct oom_error *err;
};

static enum oom_status fail(struct builder *b, const yaml_mark_t *at, const char *what)
{
	return oom_error_set(b->err, OOM_ERR_PARSE, "%s:%zu:%zu: %s", b->doc->file, at->line + 1,
			     at->column + 1, what);
}

static enum oom_status full(struct builder *b, const yaml_mark_t *at)
{
	return doc_full(b->doc, (uint32_t)at->line + 1, b->err);
}

/* A place for a value under the innermost container: its key is used up. */
static struct doc_node *place(struct builder *b, enum doc_kind kind, const yaml_mark_t *at)
{
	struct level *l = b->depth ? &b->levels[b->depth - 1] : NULL;
	const bool member = l && l->node->kind == DOC_MAP;
	struct doc_node *node =
		doc_add(b->doc, l ? l->node : NULL, member ? l->key : NULL, kind,
			member ? l->line : (uint32_t)at->line + 1,
			member ? l->column : (uint32_t)at->column + 1);

	if (member)
		l->key = NULL;
	return node;
}

static bool wants_key(const struct builder *b)
{
	return b->depth && b->levels[b->depth - 1].node->kind == DOC_MAP &&
	       !b->levels[b->depth - 1].key;
}

static enum oom_status set_anchor(struct builder *b, const yaml_char_t *name,
				  struct doc_node *node, bool open, const yaml_mark_t *at,
				  size_t *index)
{
	*index = 0;
	if (!name)
		return OOM_OK;
	if (b->n_anchors == MAX_ANCHORS)
		return fail(b, at, "more than 1024 anchors");
	b->anchors[b->n_anchors].name = doc_text(b->doc, (const char *)name, strlen((const char *)name));
	if (!b->anchors[b->n_anchors].name)
		return full(b, at);
	b->anchors[b->n_anchors].node = node;
	b->anchors[b->n_anchors].open = open;
	*index = ++b->n_anchors;
	return OOM_OK;
}

/* Tags of other languages are kept: their values are not what they look like. */
static const char *foreign_tag(struct builder *b, const yaml_char_t *tag)
{
	static const char *const known[] = {"str", "int", "float", "bool", "null", "map", "seq",
					    "timestamp", "merge", NULL};
	const char *t = (const char *)tag;

	if (!t || !strcmp(t, "!"))
		return NULL;
	if (!strncmp(t, "tag:yaml.org,2002:", 18)) {
		for (size_t i = 0; known[i]; i++)
			if (!strcmp(t + 18, known[i]))
				return NULL;
	}
	return doc_text(b->doc, t, strlen(t));
}

static enum oom_status scalar(struct builder *b, const yaml_event_t *e)
{
	const char *text = (const char *)e->data.scalar.value;
	const size_t size = e->data.scalar.length;
	const bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	struct doc_node *node;
	size_t index;

	if (wants_key(b)) {
		struct level *l = &b->levels[b->depth - 1];

		if (memchr(text, 0, size))
			return fail(b, &e->start_mark, "a NUL character in a key");

		l->key = doc_text(b->doc, text, size);
		l->line = (uint32_t)e->start_mark.line + 1;
		l->column = (uint32_t)e->start_mark.column + 1;
		return l->key ? OOM_OK : full(b, &e->start_mark);
	}
	node = place(b, plain && !size ? DOC_NULL : DOC_SCALAR, &e->start_mark);
	if (!node)
		return full(b, &e->start_mark);
	node->quoted = !plain;
	node->tag = foreign_tag(b, e->data.scalar.tag);
	if (size) {
		/* "\0", as chat templates have it, is no knob's word: what stands behind it is not kept */
		node->text = doc_text(b->doc, text, strlen(text));
		if (!node->text) {
			node->text = "";
			return full(b, &e->start_mark);
		}
	}
	return set_anchor(b, e->data.scalar.anchor, node, false, &e->start_mark, &index);
}

/* What hangs below `from`, copied below `to`; the depth of `to` counts. */
static bool copy(struct doc *doc, struct doc_node *to, const struct doc_node *from, int depth)
{
	if (depth >= DOC_MAX_DEPTH)
		return false;
	for (const struct doc_node *c = from->child; c; c = c->next) {
		struct doc_node *node = doc_add(doc, to, c->key, c->kind, c->line, c->column);

		if (!node)
			return false;
		node->text = c->text;
		node->tag = c->tag;
		node->quoted = c->quoted;
		if (c->child && !copy(doc, node, c, depth + 1))
			return false;
	}
	return true;
}

static enum oom_status alias(struct builder *b, const yaml_event_t *e)
{
	const char *name = (const char *)e->data.alias.anchor;
	const struct anchor *a = NULL;
	struct doc_node *node;

	for (size_t i = b->n_anchors; i-- && !a;)
		if (!strcmp(b->anchors[i].name, name))
			a = &b->anchors[i];
	if (!a)
		return fail(b, &e->start_mark, "an alias of an anchor that the file does not have");
	if (a->open)
		return fail(b, &e->start_mark, "an alias within its own anchor");
	if (wants_key(b))
		return fail(b, &e->start_mark, "an alias as a key");
	node = place(b, a->node->kind, &e->start_mark);
	if (!node)
		return full(b, &e->start_mark);
	node->text = a->node->text;
	node->tag = a->node->tag;
	node->quoted = a->node->quoted;
	return copy(b->doc, node, a->node, b->depth) ? OOM_OK : full(b, &e->start_mark);
}

static enum oom_status open_level(struct builder *b, enum doc_kind kind, const yaml_event_t *e)
{
	const yaml_char_t *anchor = kind == DOC_MAP ? e->data.mapping_start.anchor :
						      e->data.sequence_start.anchor,
			  *tag = kind == DOC_MAP ? e->data.mapping_start.tag :
						   e->data.sequence_start.tag;
	struct doc_node *node;
	enum oom_status st;
	size_t index;

	if (wants_key(b))
		return fail(b, &e->start_mark,
			    "a map or list as a key: is {{ ... }} a placeholder that was not "
			    "filled in?");
	if (b->depth == DOC_MAX_DEPTH)
		return fail(b, &e->start_mark, "nested deeper than 64 levels");
	node = place(b, kind, &e->start_mark);
	if (!node)
		return full(b, &e->start_mark);
	node->tag = foreign_tag(b, tag);
	st = set_anchor(b, anchor, node, true, &e->start_mark, &index);
	b->levels[b->depth++] = (struct level){.node = node, .anchor = index};
	return st;
}

/* "<<: *base": the members of the maps it names that the map does not have itself. */
static enum oom_status merge(struct builder *b, struct doc_node *map, const yaml_mark_t *at)
{
	const struct doc_node *from = doc_member(map, "<<");
	const struct doc_node *one = from && from->kind == DOC_LIST ? from->child : from;

	for (; one; one = from->kind == DOC_LIST ? one->next : NULL) {
		if (one->kind != DOC_MAP)
			return fail(b, at, "<< of something that is no map");
		for (const struct doc_node *c = one->child; c; c = c->next) {
			struct doc_node *node;

			if (doc_member(map, c->key))
				continue;
			node = doc_add(b->doc, map, c->key, c->kind, c->line, c->column);
			if (!node || !copy(b->doc, node, c, b->depth + 1))
				return full(b, at);
			node->text = c->text;
			node->tag = c->tag;
			node->quoted = c->quoted;
		}
	}
	return OOM_OK;
}

static enum oom_status close_level(struct builder *b, const yaml_event_t *e)
{
	const struct level *l = &b->levels[--b->depth];

	if (l->anchor)
		b->anchors[l->anchor - 1].open = false;
	return l->node->kind == DOC_MAP ? merge(b, l->node, &e->start_mark) : OOM_OK;
}

static enum oom_status take(struct builder *b, const yaml_event_t *e)
{
	switch (e->type) {
	case YAML_SCALAR_EVENT: return scalar(b, e);
	case YAML_ALIAS_EVENT: return alias(b, e);
	case YAML_MAPPING_START_EVENT: return open_level(b, DOC_MAP, e);
	case YAML_SEQUENCE_START_EVENT: return open_level(b, DOC_LIST, e);
	case YAML_MAPPING_END_EVENT:
	case YAML_SEQUENCE_END_EVENT: return close_level(b, e);
	default: return OOM_OK;
	}
}

/* libyaml's words: "did not find expected key", with what it was at */
static enum oom_status complain(struct builder *b, const yaml_parser_t *p)
{
	const bool reader = p->error == YAML_READER_ERROR;

	if (p->error == YAML_MEMORY_ERROR)
		return oom_error_set(b->err, OOM_ERR_MEMORY, "%s: out of memory", b->doc->file);
	if (reader)
		return oom_error_set(b->err, OOM_ERR_PARSE, "%s: byte %zu: %s", b->doc->file,
				     p->problem_offset, p->problem ? p->problem : "not YAML");
	return oom_error_set(b->err, OOM_ERR_PARSE, "%s:%zu:%zu: not YAML: %s%s%s", b->doc->file,
			     p->problem_mark.line + 1, p->problem_mark.column + 1,
			     p->problem ? p->problem : "it does not go on like that",
			     p->context ? " " : "", p->context ? p->context : "");
}

static enum oom_status run(struct builder *b, yaml_parser_t *p)
{
	enum oom_status st = OOM_OK;
	uint32_t n_documents = 0;
	bool ended = false;

	while (!st && !ended) {
		yaml_event_t e;

		if (!yaml_parser_parse(p, &e)) {
			/* what follows the first document is not read, so its mistakes are nobody's */
			if (n_documents > 1)
				break;
			return complain(b, p);
		}
		n_documents += e.type == YAML_DOCUMENT_START_EVENT;
		ended = e.type == YAML_STREAM_END_EVENT;
		if (n_documents <= 1)
			st = take(b, &e);
		yaml_event_delete(&e);
	}
	b->doc->n_documents = n_documents;
	return st;
}

enum oom_status doc_read_yaml(struct doc *doc, const char *text, size_t size, const char *file,
			      struct oom_error *err)
{
	struct builder *b = calloc(1, sizeof(*b));
	enum oom_status st = doc_begin(doc, file, "yaml", err);
	yaml_parser_t p;

	if (!b && !st)
		st = oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", file);
	if (!st && !yaml_parser_initialize(&p)) {
		st = oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", file);
	} else if (!st) {
		b->doc = doc;
		b->err = err;
		yaml_parser_set_input_string(&p, (const unsigned char *)text, size);
		st = run(b, &p);
		yaml_parser_delete(&p);
	}
	if (st)
		doc_release(doc);
	free(b);
	return st;
}
