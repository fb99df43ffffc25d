/* Modules of Python whose functions make and return the config of one run each: torchtitan's config_registry.py.
 *
 * A run's config is a map of its sections, as a file of settings would have them.  What is called stands in a section's
 * member REGISTRY_CLASS; a section that another run of the module made is that one's, with what is assigned to it since
 * ("config = llama3_8b()", "config.compile.enable = True").  Nothing is run, no import followed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "python_parts.h"

/* MADE_MAX: functions that call each other all over make no more configs than that */
enum { RUNS_MAX = 64, CALLS_DEEP = 12, MADE_MAX = 1000, LEVELS = 24 };

struct run {
	const char *name;
	size_t n;
	const char *body, *end;
	uint32_t line;
};

struct registry {
	struct python *y;
	struct doc calls;               /* of what is called within literals: nobody's */
	struct run runs[RUNS_MAX];
	size_t n_runs;
	int depth;
	unsigned made;
};

static struct doc_node *value_of(struct registry *g, struct doc_node *parent, const char *key);

static bool begins(const struct python *y, const char *word)
{
	const size_t n = strlen(word);

	return (size_t)(y->end - y->p) > n && !strncmp(y->p, word, n);
}

/* To the end of the statement: of its line, but for what brackets and strings hold. */
static void skip_statement(struct python *y)
{
	int depth = 0;

	while (y->p < y->end && !(*y->p == '\n' && depth <= 0)) {
		const int prefix = python_string_prefix(y);
		bool whole;

		if (prefix >= 0) {
			python_string(y, prefix, &whole);
			continue;
		}
		if (*y->p == '#') {
			while (y->p < y->end && *y->p != '\n')
				y->p++;
			continue;
		}
		depth += strchr("([{", *y->p) && *y->p;
		depth -= strchr(")]}", *y->p) && *y->p;
		y->line += *y->p == '\n';
		y->p++;
	}
}

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
		if (begins(y, "def ") && g->n_runs < RUNS_MAX && makes_config(y, &run)) {
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
		skip_statement(y);
		if (y->p < y->end) {
			y->line++;
			y->p++;
		}
	}
}

static int levels_of(const struct doc_node *node)
{
	int most = 0;

	for (const struct doc_node *c = node->child; c; c = c->next) {
		const int n = levels_of(c);

		most = n > most ? n : most;
	}
	return most + 1;
}

/* Nothing where a section would lie deeper than any does: "config = Config(config)", over and over. */
static struct doc_node *copy_of(struct python *y, struct doc_node *parent, const char *key, const struct doc_node *node)
{
	const bool taken = node && levels_of(node) < LEVELS;
	struct doc_node *copy = taken ? doc_add_copy(&y->scratch, parent ? parent : y->scratch.root, key, node) : NULL;

	y->full |= taken && !copy;
	return copy;
}

static struct doc_node *map_in(struct python *y, struct doc_node *parent, const char *key)
{
	struct doc_node *map = doc_add(&y->scratch, parent ? parent : y->scratch.root, key, DOC_MAP, y->line, 0);

	y->full |= !map;
	return map;
}

/* The cursor stands on '(': the arguments, by their names or places. */
static void arguments(struct registry *g, struct doc_node *map)
{
	struct python *y = g->y;
	unsigned place = 0;

	y->p++;
	for (python_skip(y, true); y->p < y->end && *y->p != ')' && !y->full; python_skip(y, true)) {
		const char *name = y->p, *q = name;
		char number[12];
		const char *key;

		if (strchr(",]}", *y->p)) {
			y->p++;
			continue;
		}
		y->p += strspn(y->p, "*");
		while (q < y->end && python_is_name(*q))
			q++;
		if (q > name && q + 1 < y->end && *q == '=' && q[1] != '=') {
			key = doc_text(&y->scratch, name, (size_t)(q - name));
			y->p = q + 1;
		} else {
			snprintf(number, sizeof(number), "%u", place++);
			key = doc_text(&y->scratch, number, strlen(number));
		}
		y->full |= !key;
		if (key && !y->full)
			(void)value_of(g, map, key);
		python_skip_rest(y);
		y->p += y->p < y->end && *y->p == ':';
	}
	y->p += y->p < y->end;
}

static struct doc_node *config_of(struct registry *g, const struct run *run);

/* The function of the module that has this name. */
static const struct run *run_named(const struct registry *g, const char *name, size_t n)
{
	for (size_t i = 0; i < g->n_runs; i++)
		if (g->runs[i].n == n && !strncmp(g->runs[i].name, name, n))
			return &g->runs[i];
	return NULL;
}

/* A name at the cursor with an argument list behind it: a section, or another run's config. */
static struct doc_node *call(struct registry *g, const char *name, size_t n, struct doc_node *parent, const char *key)
{
	struct python *y = g->y;
	const struct run *other = run_named(g, name, n);
	struct doc_node *map;

	if (other && g->depth < CALLS_DEEP && g->made < MADE_MAX) {
		const struct doc_node *made = config_of(g, other);

		y->p++;
		python_skip_rest(y);
		while (y->p < y->end && (*y->p == ',' || *y->p == ':')) {
			y->p++;
			python_skip_rest(y);
		}
		y->p += y->p < y->end;
		return copy_of(y, parent, key, made);
	}
	map = map_in(y, parent, key);
	if (map && !doc_add_text(&y->scratch, map, REGISTRY_CLASS, doc_text(&y->scratch, name, n), y->line, 0))
		y->full = true;
	if (!y->full)
		arguments(g, map);
	return map;
}

/* Lists of sections; a literal is python_value()'s. */
static struct doc_node *list(struct registry *g, struct doc_node *parent, const char *key)
{
	struct python *y = g->y;
	struct doc_node *node = doc_add(&y->scratch, parent ? parent : y->scratch.root, key, DOC_LIST, y->line, 0);

	y->full |= !node;
	y->p++;
	for (python_skip(y, true); y->p < y->end && *y->p != ']' && !y->full; python_skip(y, true)) {
		if (strchr(",)}", *y->p)) {
			y->p++;
			continue;
		}
		(void)value_of(g, node, NULL);
		python_skip_rest(y);
		y->p += y->p < y->end && *y->p == ':';
	}
	y->p += y->p < y->end;
	return node;
}

static struct doc_node *value_of(struct registry *g, struct doc_node *parent, const char *key)
{
	struct python *y = g->y;
	const char *name, *q;
	struct doc_node *known;

	python_skip(y, true);
	name = q = y->p;
	while (q < y->end && (python_is_name(*q) || *q == '.'))
		q++;
	if (g->depth > 4 * CALLS_DEEP || y->full)
		return NULL;
	g->depth++;
	if (q > name && q < y->end && *q == '(' && !isdigit((unsigned char)*name)) {
		y->p = q;
		known = call(g, name, (size_t)(q - name), parent, key);
	} else if (*name == '[') {
		known = list(g, parent, key);
	} else if (q > name && (known = python_constant(y, name, (size_t)(q - name))) != NULL && known->kind == DOC_MAP) {
		y->p = q;
		known = copy_of(y, parent, key, known);
	} else {
		known = python_value(y, parent, key);
	}
	g->depth--;
	return known;
}

/* "a.b.c = value" below the map: sections on the way are made where they are missing. */
static void assign(struct registry *g, struct doc_node *map, const char *path, size_t n)
{
	struct python *y = g->y;

	for (int level = 0; level < 6 && map && map->kind == DOC_MAP && n && !y->full; level++) {
		const size_t len = memchr(path, '.', n) ? (size_t)((const char *)memchr(path, '.', n) - path) : n;
		const char *key = doc_text(&y->scratch, path, len);
		struct doc_node *found = NULL;

		y->full |= !key;
		if (len == n) {
			if (key)
				(void)value_of(g, map, key);    /* of equal members the last counts */
			return;
		}
		for (struct doc_node *c = map->child; key && c; c = c->next)
			found = !strcmp(c->key, key) ? c : found;
		map = found && found->kind == DOC_MAP ? found : key ? map_in(y, map, key) : NULL;
		path += len + 1;
		n -= len + 1;
	}
}

/* One statement of a function; what it returns, once it does. */
static struct doc_node *statement(struct registry *g)
{
	struct python *y = g->y;
	const char *name = y->p, *q = name;
	const char *dot;
	struct doc_node *map;

	if (begins(y, "return ")) {
		y->p += strlen("return ");
		return value_of(g, NULL, NULL);
	}
	while (q < y->end && (python_is_name(*q) || *q == '.'))
		q++;
	if (q == name || q + 3 >= y->end || strncmp(q, " = ", 3))
		return NULL;
	dot = memchr(name, '.', (size_t)(q - name));
	map = dot ? python_constant(y, name, (size_t)(dot - name)) : NULL;
	y->p = q + 3;
	if (map)
		assign(g, map, dot + 1, (size_t)(q - dot) - 1);
	else if (!dot)
		python_remember(y, name, (size_t)(q - name), value_of(g, NULL, NULL), false);
	return NULL;
}

/* The map that the function returns, or NULL; the cursor and the names stay as they were. */
static struct doc_node *config_of(struct registry *g, const struct run *run)
{
	struct python *y = g->y;
	const char *p = y->p, *end = y->end;
	const uint32_t line = y->line;
	const size_t names = y->n_names;
	struct doc_node *made = NULL;

	g->depth++;
	g->made++;
	y->p = run->body;
	y->end = run->end;
	y->line = run->line;
	while (!made && y->p < y->end && !y->full) {
		while (y->p < y->end && isspace((unsigned char)*y->p))
			y->line += *y->p++ == '\n';
		made = y->p < y->end ? statement(g) : NULL;
		skip_statement(y);
	}
	g->depth--;
	y->p = p;
	y->end = end;
	y->line = line;
	y->n_names = names;
	return made && made->kind == DOC_MAP ? made : NULL;
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

/* ---- */

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
		return run_named(g, named, strlen(named));
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
	const struct doc_node *made = run ? config_of(g, run) : NULL;
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
		const struct doc_node *config = room && is_run(&g->runs[i]) ? config_of(g, &g->runs[i]) : NULL;
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
