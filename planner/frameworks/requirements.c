/* Versions that stand beside a run: requirements.txt, pyproject.toml, conda's environment.yaml, a
 * Dockerfile.  Exact ones count alone, as in pip install lines (pins.c); a range is none. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "framework.h"
#include "oomplan/option.h"

#define MARK "(requirements)"
enum { MOST_LINES = 4000 };

static struct doc_node *begin(struct doc *doc, const char *file, struct oom_error *err, enum oom_status *st)
{
	struct doc_node *root, *list = NULL;

	*st = doc_begin(doc, file, "requirements", err);
	root = *st ? NULL : doc_add(doc, NULL, NULL, DOC_MAP, 1, 1);
	if (root && doc_add_text(doc, root, MARK, "true", 1, 0))
		list = doc_add(doc, root, "dependencies", DOC_LIST, 1, 1);
	if (!*st && !list)
		*st = doc_full(doc, 0, err);
	return list;
}

/* A requirement of n bytes, without its comment and its quotes; true: there is room for it, or it is none. */
static bool add(struct doc *doc, struct doc_node *list, const char *text, size_t n, uint32_t line)
{
	const char *word;

	for (size_t i = 1; i < n; i++)
		if (text[i] == '#' && isspace((unsigned char)text[i - 1]))
			n = i;
	while (n && (isspace((unsigned char)*text) || *text == '"' || *text == '\''))
		text++, n--;
	while (n && (isspace((unsigned char)text[n - 1]) || text[n - 1] == '"' || text[n - 1] == '\''))
		n--;
	if (!n || !isalnum((unsigned char)*text))
		return true;            /* options, comments */
	word = doc_text(doc, text, n);
	return word && doc_add_text(doc, list, NULL, word, line, 0);
}

/* A requirement on each line. */
enum oom_status doc_read_requirements(struct doc *doc, const char *text, size_t size, const char *file,
				      struct oom_error *err)
{
	enum oom_status st;
	struct doc_node *list = begin(doc, file, err, &st);
	uint32_t line = 1;

	for (const char *p = text, *end = text + size; !st && p < end && line < MOST_LINES; line++) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		const size_t n = (size_t)((eol ? eol : end) - p);

		if (!add(doc, list, p, n, line))
			st = doc_full(doc, line, err);
		p += n + (eol != NULL);
	}
	if (st)
		doc_release(doc);
	return st;
}

/* The words behind "pip install" on RUN lines, as far as the next command. */
enum oom_status doc_read_dockerfile(struct doc *doc, const char *text, size_t size, const char *file,
				    struct oom_error *err)
{
	enum oom_status st;
	struct doc_node *list = begin(doc, file, err, &st);
	bool installs = false;
	uint32_t line = 1, words = 0;

	for (const char *p = text, *end = text + size; !st && p < end && words < MOST_LINES; words++) {
		const char *from = p;

		while (p < end && !isspace((unsigned char)*p))
			p++;
		if (p > from && (strchr("&|;", *from) || p[-1] == ';'))
			installs = false;
		else if (p - from == 7 && !strncmp(from, "install", 7))
			installs = true;
		else if (installs && !add(doc, list, from, (size_t)(p - from), line))
			st = doc_full(doc, line, err);
		for (; p < end && isspace((unsigned char)*p); p++)
			if (*p == '\n') {
				line++;
				installs = installs && p > text && p[-1] == '\\';
			}
	}
	if (st)
		doc_release(doc);
	return st;
}

/* ---- what they mean ---- */

/* Packages whose version is a knob, as pip and conda call them. */
static const char *const packages[][2] = {
	{"transformers", "transformers"}, {"torch", "torch"}, {"pytorch", "torch"},
	{"bitsandbytes", "bitsandbytes"}, {"peft", "peft"},   {"deepspeed", "deepspeed"},
	{"accelerate", "accelerate"},
};

/* "torch==2.4.1+cu121; marker", conda's "pytorch=2.4.1=build": the package and an exact version. */
static void take(struct fw_part *p, const char *text, const char *key)
{
	const size_t name = strcspn(text, "[=<>!~;, @"), sign = name + strcspn(text + name, "=<>!~;,@");
	const char *from = text + sign, *at;
	char version[24];
	size_t n;

	if (*from != '=' || strpbrk(text + sign, "<>!~,*"))
		return;
	from += strspn(from, "= ");
	n = strspn(from, "0123456789.");
	if (!n || n >= sizeof(version) || !isdigit((unsigned char)from[n - 1]))
		return;
	snprintf(version, sizeof(version), "%.*s", (int)n, from);
	for (size_t i = 0; i < sizeof(packages) / sizeof(packages[0]); i++)
		if (strlen(packages[i][0]) == name && !strncmp(text, packages[i][0], name)) {
			struct oom_plan plan = oom_plan_default();
			struct oom_error err = {{0}};
			const struct oom_option *k = oom_knob_find(packages[i][1]);
			char shown[40];

			at = k && !oom_plan_set(&plan, k, version, &err) ? oom_plan_get(&plan, k, shown, sizeof(shown))
									 : version;
			fw_set(p, packages[i][1], at, key, "an exact version");
		}
}

static void take_list(struct fw_part *p, const struct doc_node *list, const char *key)
{
	for (const struct doc_node *c = list && list->kind == DOC_LIST ? list->child : NULL; c; c = c->next) {
		if (c->kind == DOC_SCALAR)
			take(p, c->text, key);
		/* conda: "- pip: [...]" */
		for (const struct doc_node *m = c->kind == DOC_MAP ? c->child : NULL; m; m = m->next)
			take_list(p, m, key);
	}
}

static void finish(struct fw_part *p)
{
	const struct doc_node *extras = fw_key(p, "project.optional-dependencies"),
			      *poetry = fw_key(p, "tool.poetry.dependencies");

	take_list(p, fw_key(p, "dependencies"), "dependencies");
	take_list(p, fw_key(p, "project.dependencies"), "project.dependencies");
	for (const struct doc_node *c = extras && extras->kind == DOC_MAP ? extras->child : NULL; c; c = c->next)
		take_list(p, c, "project.optional-dependencies");
	for (const struct doc_node *c = poetry && poetry->kind == DOC_MAP ? poetry->child : NULL; c; c = c->next)
		if (c->kind == DOC_SCALAR) {
			char text[80];

			snprintf(text, sizeof(text), "%.40s==%.30s", c->key, c->text);
			take(p, text, "tool.poetry.dependencies");
		}
}

static const struct fw_row rows[] = {
	{"dependencies", .hook = true}, {"project.dependencies", .hook = true},
	{"project.optional-dependencies", .hook = true}, {"tool.poetry.dependencies", .hook = true},
	{.key = NULL},
};
static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {"*", NULL};

const struct framework framework_requirements = {
	.name = "requirements",
	.summary = "versions: requirements.txt, pyproject.toml, conda's environment.yaml, Dockerfile",
	.version = "pip",
	.role = FW_LAUNCHER,
	.marks = MARK " dependencies+channels project.dependencies tool.poetry.dependencies",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
