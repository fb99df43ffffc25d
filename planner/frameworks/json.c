/* JSON through the door of cJSON, which sees only text that was checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "doc.h"
#include "input/json_check.h"

struct fill {
	struct doc *doc;
	const struct json_marks *marks; /* of the values in document order */
	size_t at;
};

static struct doc_node *fill(struct fill *f, struct doc_node *parent, const cJSON *v, int depth)
{
	const uint32_t line = f->at < f->marks->n ? f->marks->items[f->at].line : 0;
	const char *key = parent && parent->kind == DOC_MAP ? v->string : NULL;
	struct doc_node *node;
	char number[40];

	f->at++;
	if (cJSON_IsObject(v) || cJSON_IsArray(v)) {
		node = depth < DOC_MAX_DEPTH ?
			       doc_add(f->doc, parent, key,
				       cJSON_IsObject(v) ? DOC_MAP : DOC_LIST, line, 0) :
			       NULL;
		for (const cJSON *c = v->child; node && c; c = c->next)
			if (!fill(f, node, c, depth + 1))
				return NULL;
		return node;
	}
	if (cJSON_IsNull(v))
		return doc_add(f->doc, parent, key, DOC_NULL, line, 0);
	snprintf(number, sizeof(number), "%.15g", v->valuedouble);
	node = doc_add_text(f->doc, parent, key,
			    cJSON_IsString(v) ? v->valuestring :
			    cJSON_IsBool(v)   ? (cJSON_IsTrue(v) ? "true" : "false") :
						number,
			    line, 0);
	if (node)
		node->quoted = cJSON_IsString(v);
	return node;
}

enum oom_status doc_read_json(struct doc *doc, const char *text, size_t size, const char *file,
			      struct oom_error *err)
{
	struct json_marks marks = {0};
	struct fill f = {.doc = doc, .marks = &marks};
	enum oom_status st;
	char *copy = malloc(size + 1);
	cJSON *root;

	if (!copy)
		return oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", file);
	memcpy(copy, text, size);
	copy[size] = 0;
	st = oom_json_check(copy, size, file, &marks, err);
	if (!st)
		st = doc_begin(doc, file, "json", err);
	if (!st) {
		root = cJSON_ParseWithLength(copy, size);
		if (!root)
			st = oom_error_set(err, OOM_ERR_MEMORY, "%s: out of memory", file);
		else if (!fill(&f, NULL, root, 0))
			st = f.at < DOC_MAX_NODES && doc->n_nodes < DOC_MAX_NODES ?
				     oom_error_set(err, OOM_ERR_PARSE,
						   "%s:%u: nested deeper than %d levels", file,
						   f.at && f.at <= marks.n ? (unsigned)marks.items[f.at - 1].line : 0U,
						   DOC_MAX_DEPTH) :
				     doc_full(doc, 0, err);
		cJSON_Delete(root);
	}
	if (st)
		doc_release(doc);
	free(marks.items);
	free(copy);
	return st;
}
