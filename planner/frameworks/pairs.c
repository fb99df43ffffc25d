/* Lists of pairs as trees: options, variables and keyword arguments that were taken out of a script. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"

struct pair {
	const char *key, *value;
	uint32_t line;
};

/* $NAME and ${NAME}, ${NAME:-value}: the value, or NULL where the text is not just that. */
static const char *parameter(struct doc *doc, const struct doc_node *env, const char *text, int depth)
{
	const struct doc_node *v = NULL;
	const char *from = text + 1, *rest;
	char name[80];
	size_t n = 0;

	if (*text != '$' || depth > 8)
		return NULL;
	from += *from == '{';
	while ((isalnum((unsigned char)from[n]) || from[n] == '_') && n < sizeof(name) - 1)
		n++;
	memcpy(name, from, n);
	name[n] = 0;
	rest = from + n;
	for (const struct doc_node *e = env->child; e; e = e->next)
		/* "MODEL=$1" among others is what a loop over the arguments sets: the script's own
		 * value holds without them */
		if (!strncmp(e->key, name, n) && !strcmp(e->key + n, "=") && *e->text &&
		    strcmp(e->text, text) && !(v && e->text[0] == '$' && isdigit((unsigned char)e->text[1])))
			v = e;
	if (v && *v->text == '$')
		return parameter(doc, env, v->text, depth + 1);
	if (v && *v->text != '(')
		return v->text;
	if (!strncmp(rest, ":-", 2)) {
		rest += 2;
		return *rest == '$' ? parameter(doc, env, rest, depth + 1)
				    : doc_text(doc, rest, strcspn(rest, "}"));
	}
	return NULL;
}

static struct doc_node *below(struct doc *doc, struct doc_node *map, const char *key, size_t n)
{
	const char *name;

	for (struct doc_node *c = map->child; c; c = c->next)
		if (!strncmp(c->key, key, n) && !c->key[n])
			return c->kind == DOC_MAP ? c : NULL;
	name = doc_text(doc, key, n);
	return name ? doc_add(doc, map, name, DOC_MAP, 0, 0) : NULL;
}

/* A later call of the same name has another value. */
static bool add_other(struct doc *doc, struct doc_node *root, const char *call, const char *key, const struct pair *p)
{
	struct doc_node *others = below(doc, root, ARGS_OTHERS, strlen(ARGS_OTHERS));
	char path[160];

	snprintf(path, sizeof(path), "%.70s.%.80s", call, key);
	return others && (doc_member(others, path) || doc_add_text(doc, others, path, p->value, p->line, 0));
}

/* "A.b(key)": A: {b: {key: value}}; the first of equal ones counts. */
static bool add_keyword(struct doc *doc, struct doc_node *root, const struct pair *p)
{
	const char *open = strchr(p->key, '('), *close = strrchr(p->key, ')'), *from = p->key;
	struct doc_node *map = root;
	const char *key;

	for (const char *dot; map && (dot = memchr(from, '.', (size_t)(open - from))); from = dot + 1)
		map = below(doc, map, from, (size_t)(dot - from));
	map = map ? below(doc, map, from, (size_t)(open - from)) : NULL;
	if (!map)
		return doc->n_nodes < DOC_MAX_NODES;    /* a value stands where a map is wanted */
	key = doc_text(doc, open + 1, (size_t)(close - open) - 1);
	if (!key)
		return false;
	for (const struct doc_node *c = map->child; c; c = c->next)
		if (!strcmp(c->key, key))
			return c->kind != DOC_SCALAR || !strcmp(c->text, p->value) || add_other(doc, root, map->key, key, p);
	return doc_add_value(doc, map, key, p->value, p->line) != NULL;
}

/* Options that only launchers have. */
static bool of_launchers(const char *key)
{
	static const char *const names[] = {
		"nproc_per_node", "nproc-per-node", "nnodes", "node_rank", "master_addr", "master_port",
		"rdzv_backend", "rdzv_endpoint", "rdzv_id", "max_restarts", "tee", "num_processes",
		"num_machines", "machine_rank", "main_process_ip", "main_process_port", "num_gpus",
		"config_file", "mixed_precision", "use_deepspeed", "deepspeed_config_file", "use_fsdp",
		"num_cpu_threads_per_process", "deepspeed_multinode_launcher", "dynamo_backend", "nodes",
		"gres", "gpus-per-node", "gpus_per_node", "ntasks", "ntasks-per-node"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(key + strspn(key, "-"), names[i]))
			return true;
	return false;
}

/* "--fp16 $OPTIMIZER_ARGS": a switch, and behind it the variable that holds the next options. */
static bool is_more_options(const char *value, const char *known)
{
	const char *name = value + (*value == '$');
	size_t n;

	if (known)
		return !strncmp(known + strspn(known, " \t"), "--", 2);
	name += *name == '{';
	n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
	return *value == '$' && n > 5 && !strncmp(name + n - 5, "_ARGS", 5) && (!name[n] || !strcmp(name + n, "}"));
}

static bool add_pair(struct doc *doc, struct doc_node *root, struct doc_node *env,
		     const struct pair *p)
{
	const size_t n = strlen(p->key);
	const char *value = p->value, *known;
	struct doc_node *node;

	if (n > 2 && strchr(p->key, '(') && p->key[n - 1] == ')')
		return add_keyword(doc, root, p);
	if (p->key[n - 1] == '=')
		return doc_add_text(doc, env, p->key, value, p->line, 0) != NULL;
	known = parameter(doc, env, value, 0);
	value = !*value || is_more_options(value, known) ? "true" : known ? known : value;
	node = doc_add_value(doc, of_launchers(p->key) ? env : root, p->key + strspn(p->key, "-"), value,
			     p->line);
	if (node && *node->text == '$')
		node->tag = ARGS_UNKNOWN;
	return node != NULL;
}

enum oom_status doc_read_pairs(struct doc *doc, const char *text, size_t size, const char *file,
			       struct oom_error *err)
{
	enum oom_status st = doc_begin(doc, file, ARGS_FORMAT, err);
	struct doc_node *root = st ? NULL : doc_add(doc, NULL, NULL, DOC_MAP, 1, 1), *env;
	const char *end = text + size;
	uint32_t line = 0;
	bool calls = true;

	env = root ? doc_add(doc, root, ARGS_LAUNCHER, DOC_MAP, 0, 0) : NULL;
	if (!st && !env)
		st = doc_full(doc, 0, err);
	for (const char *p = text; !st && p < end; ) {
		const char *eol = memchr(p, '\n', (size_t)(end - p)), *tab;
		struct pair pair = {.line = line + 1};

		line++;
		eol = eol ? eol : end;
		tab = memchr(p, '\t', (size_t)(eol - p));
		if (eol > p) {
			pair.key = doc_text(doc, p, (size_t)((tab ? tab : eol) - p));
			pair.value = tab ? doc_text(doc, tab + 1, (size_t)(eol - tab - 1)) : "";
			if (!pair.key || !pair.value ||
			    (*pair.key && !add_pair(doc, root, env, &pair)))
				st = doc_full(doc, line, err);
			calls &= !st && strchr(pair.key, '(') != NULL;
		}
		p = eol + 1;
	}
	if (!st && line && calls) {
		doc->format = PYTHON_FORMAT;
		if (!doc_pairs_to_sections(doc))
			st = doc_full(doc, line, err);
	}
	if (st)
		doc_release(doc);
	return st;
}
