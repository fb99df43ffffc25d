/* Which framework a file belongs to: of those whose marks it carries, the one that knows most of
 * its keys. */
#include <stdio.h>
#include <string.h>

#include "oomplan/option.h"
#include "parts.h"

enum { MARK = 160 };

const struct framework *framework_find(const char *name)
{
	for (size_t i = 0; framework_at(i); i++)
		if (oom_same_word(framework_at(i)->name, name))
			return framework_at(i);
	return NULL;
}

int64_t oom_framework_number(const char *name)
{
	for (size_t i = 0; name && framework_at(i); i++)
		if (!strcmp(framework_at(i)->name, name))
			return (int64_t)i + 1;
	return 0;
}

const char *oom_framework_name(size_t i, const char **summary)
{
	const struct framework *fw = framework_at(i);

	if (fw && summary)
		*summary = fw->summary;
	return fw ? fw->name : NULL;
}

/* "a+b": has both */
static bool has_all(const struct doc_node *root, const char *word, size_t len)
{
	while (len) {
		char key[MARK];
		size_t n = 0;

		while (n < len && word[n] != '+')
			n++;
		snprintf(key, sizeof(key), "%.*s", (int)n, word);
		if (!doc_below(root, key))
			return false;
		n += n < len;
		word += n;
		len -= n;
	}
	return true;
}

static bool has_one(const struct doc_node *root, const char *list)
{
	for (const char *w = list; w && *w;) {
		const size_t len = strcspn(w, " ");

		if (len && has_all(root, w, len))
			return true;
		w += len + (w[len] == ' ');
	}
	return false;
}

/* Keys it knows, of the first two levels. */
static unsigned known(const struct framework *fw, const struct doc_node *map, const char *prefix)
{
	unsigned n = 0;
	char path[2 * MARK];
	bool idle;

	for (const struct doc_node *c = map->child; c; c = c->next) {
		snprintf(path, sizeof(path), "%s%.150s", prefix, c->key ? c->key : "");
		if (framework_row(fw, path, &idle) || idle) {
			n++;
		} else if (c->kind == DOC_MAP && !*prefix) {
			snprintf(path, sizeof(path), "%.150s.", c->key ? c->key : "");
			n += known(fw, c, path);
		}
	}
	return n;
}

/* Who owns the program that a command starts: "python examples/run_clm.py", "litgpt pretrain NAME". */
static const struct framework *of_program(const struct doc_node *root)
{
	const struct doc_node *program = doc_member(root, "(program)");
	const char *name = program && program->text ? program->text : "", *slash = NULL;
	const size_t words = strcspn(name, " ");
	const struct framework *fw;
	size_t n;

	for (size_t i = 0; i < words; i++)
		if (name[i] == '/')
			slash = name + i;
	name = slash ? slash + 1 : name;
	n = strcspn(name, " .");
	for (size_t i = 0; n && (fw = framework_at(i)) != NULL; i++)
		for (const char *w = fw->programs; w && *w; w += strspn(w, " ")) {
			const size_t len = strcspn(w, " ");

			if (len == n && !strncmp(w, name, n) && !has_one(root, fw->never))
				return fw;
			w += len;
		}
	return NULL;
}

/* Of the descriptors that are asked first, or of those that are asked last. */
static const struct framework *best_of(const struct doc_node *root, bool last_resort)
{
	const struct framework *best = NULL, *fw;
	unsigned most = 0;

	for (size_t i = 0; root && root->kind == DOC_MAP && (fw = framework_at(i)) != NULL; i++) {
		unsigned n;

		if (fw->last_resort != last_resort || !has_one(root, fw->marks) || has_one(root, fw->never))
			continue;
		n = known(fw, root, "");
		if (n > most) {
			most = n;
			best = fw;
		}
	}
	return best;
}

const struct framework *recognise(const struct doc_node *root)
{
	const struct framework *owner = root && root->kind == DOC_MAP ? of_program(root) : NULL;

	return owner ? owner : best_of(root, false);
}

const struct framework *recognise_at_last(const struct doc_node *root)
{
	return best_of(root, true);
}

static const char *scalar_text(const struct doc_node *node)
{
	return node && node->kind == DOC_SCALAR && node->text ? node->text : "";
}

enum oom_status not_recognised(const struct doc *doc, struct oom_error *err)
{
	char keys[160] = "", names[400] = "";
	size_t used = 0;

	if (!doc->root || doc->root->kind == DOC_NULL)
		return oom_error_set(err, OOM_ERR_UNKNOWN, "%s: an empty file", doc->file);
	if (doc->root->kind != DOC_MAP)
		return oom_error_set(err, OOM_ERR_UNKNOWN,
				     "%s: keys and values were expected, this is %s", doc->file,
				     doc->root->kind == DOC_LIST ? "a list" : "one value");
	for (const struct doc_node *c = doc->root->child; c && used < sizeof(keys) - 50; c = c->next)
		if (*c->key != '(')     /* what stands around a program's options (arguments.h) */
			used += (size_t)snprintf(keys + used, sizeof(keys) - used, "%s%.40s",
						 used ? ", " : "", c->key);
	if (!used && *scalar_text(doc_member(doc->root, "(program)")))
		return oom_error_set(err, OOM_ERR_UNKNOWN, "%s: it starts %s without an option that any framework has: what it trains "
				     "stands in that program or in a file of its own; give that file", doc->file,
				     scalar_text(doc_member(doc->root, "(program)")));
	used = 0;
	for (size_t i = 0; framework_at(i) && used < sizeof(names) - 30; i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
					 used ? ", " : "", framework_at(i)->name);
	return oom_error_set(err, OOM_ERR_UNKNOWN,
			     "%s: not the file of a known training framework (its keys: %s); "
			     "--framework NAME if it is one of: %s",
			     doc->file, keys, names);
}
