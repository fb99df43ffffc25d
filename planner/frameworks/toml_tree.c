/* TOML as a tree. */
#include <string.h>

#include "arguments.h"
#include "toml_door.h"

static void *add_branch(void *data, void *parent, const char *key, bool map, uint32_t line,
			uint32_t column)
{
	return doc_add(data, parent, key, map ? DOC_MAP : DOC_LIST, line, column);
}

static void *add_text(void *data, void *parent, const char *key, const char *text, bool quoted,
		      uint32_t line, uint32_t column)
{
	struct doc_node *node = doc_add_text(data, parent, key, text, line, column);

	if (node)
		node->quoted = quoted;
	return node;
}

enum oom_status doc_read_toml(struct doc *doc, const char *text, size_t size, const char *file,
			      struct oom_error *err)
{
	struct toml_sink sink = {.data = doc, .open = add_branch, .text = add_text};
	struct toml_failure failure = {.text = ""};
	enum oom_status st = doc_begin(doc, file, "toml", err);

	if (st)
		return st;
	sink.root = doc_add(doc, NULL, NULL, DOC_MAP, 1, 1);
	if (!sink.root) {
		st = doc_full(doc, 0, err);
	} else {
		switch (oom_toml_parse(text, size, &sink, &failure)) {
		case 0:
			return OOM_OK;
		case 1:
			st = oom_error_set(err, OOM_ERR_PARSE, "%s:%u:%u: %s", file, failure.line,
					   failure.column, failure.text);
			break;
		default:
			st = doc_full(doc, 0, err);
		}
	}
	doc_release(doc);
	return st;
}
