/* Modules of Python whose functions make and return the config of one run each: torchtitan's config_registry.py.
 *
 * A run's config is a map of its sections, as a file of settings would have them.  What is called stands in a section's
 * member REGISTRY_CLASS; a section that another run of the module made is that one's, with what is assigned to it since
 * ("config = llama3_8b()", "config.compile.enable = True").  Nothing is run, no import followed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "python_registry.h"

/* "def NAME(...) -> ...Config:" at the beginning of a line: the cursor then stands behind it. */
static bool makes_config(struct python *y, struct run *run)
{
	const char *arrow, *colon;

	y->p += strlen("def ");
	*run = (struct run){.name = y->p, .line = y->line};
	while (y->p < y->end && python_is_name(*y->p))
		y->p++;
	run->n = (size_t)(y->p - run->name);
	arrow = y->p;
	/* its parameters */
	for (int depth = 0; arrow < y->end && (depth || *arrow != '-') && *arrow; arrow++) {
		depth += *arrow == '(' || *arrow == '[';
		depth -= *arrow == ')' || *arrow == ']';
		if (!depth && (*arrow == ':' || *arrow == '\n'))
			return false;
	}
	colon = arrow < y->end ? memchr(arrow, ':', (size_t)(y->end - arrow)) : NULL;
	if (!colon || strncmp(arrow, "->", 2) || colon - arrow < 9 || strncmp(colon - 6, "Config", 6))
		return false;
	for (; y->p <= colon; y->p++)
		y->line += *y->p == '\n';
	return true;
}

/* The functions of the module, and the names that it gives to literals outside of them. */
static void find_runs(struct registry *g)
{
	struct python *y = g->y;
	struct run *last = NULL;

	while (y->p < y->end && !y->full) {
		const bool outside = *y->p != ' ' && *y->p != '\t' && *y->p != '\n' && *y->p != ')' && *y->p != '#';
		struct run run;

		if (outside && last) {
			last->end = y->p;
			last = NULL;
		}
		if (registry_begins(y, "def ") && g->n_runs < RUNS_MAX && makes_config(y, &run)) {
			run.body = y->p;
			run.end = y->end;
			last = &g->runs[g->n_runs++];
			*last = run;
		} else if (outside && (isalpha((unsigned char)*y->p) || *y->p == '_')) {
			const char *name = y->p;
			size_t n = 0;

			while (y->p + n < y->end && python_is_name(y->p[n]))
				n++;
			if (y->p + n + 3 < y->end && !strncmp(y->p + n, " = ", 3)) {
				y->p += n + 3;
				python_remember(y, name, n, python_value(y, NULL, NULL), false);
			}
		}
		registry_skip(y);
		if (y->p < y->end) {
			y->line++;
			y->p++;
		}
	}
}

/* ---- what was taken out of such a module ---- */

/* "8 * 2048" */
static const char *product(struct doc *doc, const char *text)
{
	char *end, number[24];
	const long long a = strtoll(text, &end, 10);
	const char *q = end + strspn(end, " ");
	long long b, c;

	if (end == text || *q != '*' || q[1] == '*')
		return text;
	b = strtoll(q + 1, &end, 10);
	if (end == q + 1 || *(end + strspn(end, " ")) || __builtin_mul_overflow(a, b, &c))
		return text;
	snprintf(number, sizeof(number), "%lld", c);
	q = doc_text(doc, number, strlen(number));
	return q ? q : text;
}

bool doc_pairs_to_sections(struct doc *doc)
{
	static const char *const sections[][2] = {{"TrainingConfig", "training"}, {"ParallelismConfig", "parallelism"},
						  {"CompileConfig", "compile"}};
	struct doc_node *root = doc->root;
	const struct doc_node *config = NULL;
	bool ok = true;

	for (const struct doc_node *c = root->child; c && !config; c = c->next)
		config = c->kind == DOC_MAP && strstr(c->key, "Config") && doc_member(c, "model_spec") ? c : NULL;
	if (!config)
		return true;
	for (const struct doc_node *c = config->child; ok && c; c = c->next) {
		const size_t n = c->kind == DOC_SCALAR ? strcspn(c->text, "( ") : 0;
		struct doc_node *map = n && c->text[n] == '(' ? doc_add(doc, root, c->key, DOC_MAP, c->line, 0) : NULL;

		/* of the many calls that are named so, the weights' place is the config's own */
		if (map)
			ok = doc_add_text(doc, map, REGISTRY_CLASS, doc_text(doc, c->text, n), c->line, 0) != NULL;
		else if (!strcmp(c->key, "hf_assets_path") || !strcmp(c->key, "hf_model"))
			ok = doc_add_copy(doc, root, c->key, c) != NULL;
		for (size_t i = 0; map && i < sizeof(sections) / sizeof(sections[0]); i++)
			for (const struct doc_node *v = strcmp(sections[i][1], c->key) ? NULL : doc_member(root, sections[i][0]) ?
					doc_member(root, sections[i][0])->child : NULL; ok && v; v = v->next)
				ok = v->kind != DOC_SCALAR || doc_add_text(doc, map, v->key, product(doc, v->text), v->line, 0);
	}
	/* its own members are sections now */
	for (struct doc_node *c = root->child; c; c = c->next)
		if (c->kind == DOC_MAP && (isupper((unsigned char)*c->key) || *c->key == '_'))
			c->key = "(taken)";
	return ok;
}

/* ---- the run that is meant ---- */

bool python_is_registry(const char *text)
{
	return strstr(text, "model_registry") && strstr(text, "torchtitan") && strstr(text, "Config:\n") && strstr(text, "\ndef ");
}

const char *python_run_of(const char *path)
{
	const char *at = strstr(path, ".py:");

	return at && at[4] && at[4] != ':' && !strchr(at, '/') && !strchr(at, ' ') ? at + 4 : NULL;
}

/* Helpers are nobody's run. */
static bool is_run(const struct run *run)
{
	return run->name[0] != '_';
}

/* The one that is meant: named behind the file, else the first that is no debug model's, else the first. */
static const struct run *choose(const struct registry *g, const char *named)
{
	const struct run *first = NULL, *real = NULL;

	if (named)
		return registry_run_named(g, named, strlen(named));
	for (size_t i = g->n_runs; i-- > 0;) {
		char name[100];

		snprintf(name, sizeof(name), "%.*s", (int)(g->runs[i].n < 99 ? g->runs[i].n : 99), g->runs[i].name);
		if (!is_run(&g->runs[i]))
			continue;
		first = &g->runs[i];
		real = strstr(name, "debug") ? real : first;
	}
	return real ? real : first;
}

/* The chosen config's sections at the root, all of the others by name in a member of their own. */
static enum oom_status keep(struct registry *g, struct doc *doc, const struct run *run, const char *named, struct oom_error *err)
{
	const struct doc_node *made = run ? registry_config(g, run) : NULL;
	struct doc_node *others;

	if (!made && !g->y->full)
		return oom_error_set(err, OOM_ERR_UNKNOWN, "%s: no function%s%s that returns a config", doc->file,
				     named ? " " : "", named ? named : "");
	for (const struct doc_node *c = made ? made->child : NULL; c; c = c->next)
		g->y->full |= !doc_add_copy(doc, doc->root, c->key, c);
	/* a run with answers of its own has its trainer's sections a level below */
	for (const struct doc_node *c = doc_member(made, "trainer") ? doc_member(made, "trainer")->child : NULL; c; c = c->next)
		g->y->full |= *c->key != '(' && !doc_add_copy(doc, doc->root, c->key, c);
	others = g->y->full ? NULL : doc_add(doc, doc->root, REGISTRY_RUNS, DOC_MAP, run->line, 0);
	for (size_t i = 0; others && i < g->n_runs && !g->y->full; i++) {
		/* a module of very many is not compared to its end */
		const bool room = g->y->scratch.n_nodes < DOC_MAX_NODES / 2 && doc->n_nodes < DOC_MAX_NODES / 2;
		const struct doc_node *config = room && is_run(&g->runs[i]) ? registry_config(g, &g->runs[i]) : NULL;
		const char *name = config ? doc_text(doc, g->runs[i].name, g->runs[i].n) : NULL;

		g->y->full |= config && (!name || !doc_add_copy(doc, others, name, config));
	}
	if (others && !named && others->n > 1 && !doc_add_text(doc, doc->root, REGISTRY_RUN, doc_text(doc, run->name, run->n), run->line, 0))
		g->y->full = true;
	return g->y->full ? doc_full(doc->n_nodes >= g->y->scratch.n_nodes ? doc : &g->y->scratch, run ? run->line : 0, err) : OOM_OK;
}

enum oom_status doc_read_registry(struct doc *doc, const char *text, size_t size, const char *file, struct oom_error *err)
{
	struct python *y = calloc(1, sizeof(*y));
	struct registry *g = calloc(1, sizeof(*g));
	const char *named = python_run_of(file);
	enum oom_status st = y && g ? doc_begin(doc, file, PYTHON_FORMAT, err) : oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");

	if (!st) {
		*y = (struct python){.doc = &g->calls, .p = text, .end = text + size, .line = 1};
		g->y = y;
		st = doc_begin(&y->scratch, file, "", err);
		if (!st)
			st = doc_begin(&g->calls, file, "", err);
		if (!st && (!doc_add(doc, NULL, NULL, DOC_MAP, 1, 1) || !doc_add(&y->scratch, NULL, NULL, DOC_LIST, 1, 1) ||
			    !doc_add(&g->calls, NULL, NULL, DOC_MAP, 1, 1)))
			st = doc_full(doc, 0, err);
		if (!st) {
			find_runs(g);
			st = keep(g, doc, choose(g, named), named, err);
		}
		doc_release(&y->scratch);
		doc_release(&g->calls);
		if (st)
			doc_release(doc);
	}
	free(g);
	free(y);
	return st;
}
