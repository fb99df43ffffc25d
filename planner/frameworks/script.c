/* Shell scripts and lists of pairs as trees: the launch line, what is set around it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "shell.h"

enum { WORDS_MAX = 20000 };

static struct args_word as_word(const struct oom_shell_word *w)
{
	return (struct args_word){w->text, w->known != OOM_SHELL_KNOWN, w->line};
}

static bool is_blank(const char *text)
{
	return !text[strspn(text, " \t\r")];
}

/* Does a command consist of options alone, which no shell could run? */
static bool only_options(const struct oom_shell_command *c)
{
	return c && c->n && !strncmp(c->words[0].text, "--", 2) && isalpha((unsigned char)c->words[0].text[2]);
}

/* A command's words, its assignments in front.  A comment among continued lines, or a blank behind a backslash, ends
 * a command for the shell; options that stand alone behind it are what its writer took for the rest of it.  *cut:
 * where the shell stops, 0: nowhere. */
static struct args_word *words_of(const struct oom_shell *sh, size_t at, size_t *n, uint32_t *cut)
{
	const struct oom_shell_command *c = oom_shell_command_at(sh, at), *rest;
	size_t room = c->n + 1;
	struct args_word *w;

	for (size_t k = at + 1; !only_options(c) && only_options(rest = oom_shell_command_at(sh, k)); k++)
		room += rest->n;
	w = calloc(room, sizeof(*w));
	*n = 0;
	*cut = 0;
	for (size_t i = 0; w && i < c->n && *n < WORDS_MAX; i++)
		w[(*n)++] = as_word(&c->words[i]);
	for (size_t k = at + 1; w && !only_options(c) && only_options(rest = oom_shell_command_at(sh, k)); k++) {
		while (*n && is_blank(w[*n - 1].text))
			--*n;
		*cut = *cut ? *cut : rest->words[0].line;
		for (size_t i = 0; i < rest->n && *n < WORDS_MAX; i++)
			w[(*n)++] = as_word(&rest->words[i]);
	}
	return w;
}

static size_t options_in(const struct args_word *w, size_t n)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++)
		found += (w[i].text[0] == '-' && isalpha((unsigned char)w[i].text[1 + (w[i].text[1] == '-')])) ||
			 (i && strchr(w[i].text, '=') && !strchr(w[i].text, '/'));
	return found;
}

/* Does the name of what is started say that it trains, or does it read a file that the script writes for it?
 * Others prepare, evaluate, convert. */
static bool trains(const struct oom_shell *sh, const struct args_word *w, size_t n)
{
	static const char *const words[] = {"train", "tune", "sft", "dpo", "grpo", "ppo", "rlhf", "orpo", "kto"};
	const struct oom_shell_file *f;

	for (size_t i = 0; i < n; i++) {
		const char *slash = strrchr(w[i].text, '/'), *name = slash ? slash + 1 : w[i].text;

		for (size_t k = 0; (f = oom_shell_file_at(sh, k)) != NULL; k++)
			if (!strcmp(f->name, w[i].text) && strstr(f->text, "train"))
				return true;
		if (!args_is_script(name) && !(i && !strcmp(w[i - 1].text, "-m")))
			continue;
		for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
			if (strstr(name, words[k]))
				return true;
		return false;
	}
	return false;
}

/* The launch line: what starts a program that trains, by its name, else any; of these the one with the most
 * options, of equals the first; else options that stand alone. */
static size_t launch_line(const struct oom_shell *sh, struct oom_error *err, enum oom_status *st)
{
	size_t most = 0, best = SIZE_MAX;

	for (size_t i = 0; !*st && oom_shell_command_at(sh, i); i++) {
		size_t n, options;
		uint32_t cut;
		struct args_word *w = words_of(sh, i, &n, &cut);

		if (!w) {
			*st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		} else if (args_installs(w, n)) {
			/* "python -m pip install" starts Python, but trains nothing */
		} else if (args_is_launch(w, n) || (n > 1 && !strncmp(w[0].text, "--", 2))) {
			options = options_in(w, n) + (trains(sh, w, n) ? WORDS_MAX : 0);
			if (best == SIZE_MAX || options > most) {
				best = i;
				most = options;
			}
		}
		free(w);
	}
	return best;
}

/* What the script sets and asks Slurm for, before its launch line so that this overrides it. */
static bool add_surroundings(struct doc *doc, struct doc_node *root, const struct oom_shell *sh)
{
	struct doc_node *launcher = doc_add(doc, root, ARGS_LAUNCHER, DOC_MAP, 0, 0), *files = NULL;
	const struct oom_shell_variable *v;
	const struct oom_shell_file *f;
	const struct oom_shell_word *d;

	if (!launcher)
		return false;
	for (size_t i = 0; (v = oom_shell_variable_at(sh, i)) != NULL; i++) {
		const size_t n = strlen(v->name);
		char *key = doc_alloc(doc, n + 2);
		struct doc_node *node;

		if (!key)
			return false;
		memcpy(key, v->name, n);
		key[n] = '=';
		node = doc_add_text(doc, launcher, key, v->value.text, v->value.line, 0);
		if (!node)
			return false;
		node->tag = v->value.known ? ARGS_UNKNOWN : NULL;
	}
	for (size_t i = 0; (f = oom_shell_file_at(sh, i)) != NULL; i++) {
		files = files ? files : doc_add(doc, root, ARGS_FILES, DOC_MAP, 0, 0);
		if (!files || !doc_add_text(doc, files, f->name, f->text, f->line, 0))
			return false;
	}
	for (size_t i = 0; (d = oom_shell_directive_at(sh, i)) != NULL; i++) {
		const char *name = d->text + strspn(d->text, "-"), *equals = strchr(name, '=');
		const char *key = doc_text(doc, name, equals ? (size_t)(equals - name) : strlen(name));
		const char *value = equals ? equals + 1 : "true";

		if (!equals && oom_shell_directive_at(sh, i + 1) &&
		    *oom_shell_directive_at(sh, i + 1)->text != '-')
			value = oom_shell_directive_at(sh, ++i)->text;
		if (!key || !doc_add_text(doc, launcher, key, value, d->line, 0))
			return false;
	}
	return true;
}

/* What all commands of the script install. */
static bool add_pins(struct doc *doc, struct doc_node *root, const struct oom_shell *sh)
{
	bool room = true;

	for (size_t i = 0; room && oom_shell_command_at(sh, i); i++) {
		size_t n;
		uint32_t cut;
		struct args_word *w = words_of(sh, i, &n, &cut);

		room = w && args_pins(doc, root, w, n);
		free(w);
	}
	return room;
}

/* Is the name assigned somewhere in the text, at the beginning of a line? */
static bool assigned(const char *text, const char *name, size_t n)
{
	for (const char *at = text; (at = strstr(at, name)) != NULL; at += n) {
		const char *line = at;

		while (line > text && (line[-1] == ' ' || line[-1] == '\t'))
			line--;
		if (at[n] == '=' && (line == text || line[-1] == '\n'))
			return true;
	}
	return false;
}

/* "$pr_options" of which the script says what it is in branches that hang on its own arguments ("PR=$1"): what
 * the line then has is known only when it runs.  The first of these words; NULL: there is none. */
static const struct args_word *unsaid_word(struct doc *doc, const struct args_word *w, size_t n, const char *text)
{
	if (!strstr(text, "=$1") && !strstr(text, "=${1"))
		return NULL;
	for (size_t i = 1; i < n; i++) {
		const char *from = w[i].text + 1;
		size_t len;
		const char *name;

		if (!w[i].unknown || *w[i].text != '$')
			continue;
		from += *from == '{';
		len = strspn(from, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
		name = len && !isdigit((unsigned char)*from) && strlen(from + len) < 2 ? doc_text(doc, from, len) : NULL;
		/* the value of an option is withheld by its own key */
		if (name && (w[i - 1].text[0] != '-' || strstr(name, "opt")) && assigned(text, name, len))
			return &w[i];
	}
	return NULL;
}

enum oom_status doc_read_shell(struct doc *doc, const char *text, size_t size, const char *file,
			       struct oom_error *err)
{
	const struct args_word *unsaid;
	struct args_word *words = NULL;
	struct doc_node *root = NULL;
	struct oom_shell *sh = NULL;
	enum oom_status st = oom_shell_read(text, size, file, &sh, err);
	size_t n = 0, at;
	uint32_t cut = 0;
	char where[16];

	if (st)
		return st;
	at = launch_line(sh, err, &st);
	if (!st && at == SIZE_MAX)
		st = oom_error_set(err, OOM_ERR_UNKNOWN,
				   "%s: no line that starts a training program (torchrun, accelerate "
				   "launch, deepspeed, python SCRIPT.py, swift, ...)", file);
	if (!st)
		st = doc_begin(doc, file, ARGS_FORMAT, err);
	if (st) {
		oom_shell_free(sh);
		return st;
	}
	root = doc_add(doc, NULL, NULL, DOC_MAP, 1, 1);
	words = words_of(sh, at, &n, &cut);
	snprintf(where, sizeof(where), "%u", cut);
	if (!root || !words || !add_surroundings(doc, root, sh) || !add_pins(doc, root, sh) ||
	    !args_command(doc, root, words, n, NULL) || (cut && !doc_add_text(doc, root, ARGS_CUT, where, cut, 0)))
		st = doc_full(doc, oom_shell_command_at(sh, at)->line, err);
	if (!st && (unsaid = unsaid_word(doc, words, n, text)) != NULL &&
	    !doc_add_text(doc, root, ARGS_REST, unsaid->text, unsaid->line, 0))
		st = doc_full(doc, oom_shell_command_at(sh, at)->line, err);
	free(words);
	oom_shell_free(sh);
	if (st)
		doc_release(doc);
	return st;
}

/* ---- pairs ---- */

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
			return true;
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
		"gres", "gpus-per-node", "gpus_per_node"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(key + strspn(key, "-"), names[i]))
			return true;
	return false;
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
	value = known ? known : *value ? value : "true";
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
	if (!st && line && calls)
		doc->format = PYTHON_FORMAT;
	if (st)
		doc_release(doc);
	return st;
}
