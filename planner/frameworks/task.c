/* Files of tasks for clusters and clouds: SkyPilot's, dstack's and Beaker's YAML, whose commands are a script of the
 * shell, and whose resources are cards and machines. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "framework.h"

#define SKY "skypilot docs/source/reference/yaml-spec.rst"
#define SKY_CARDS "resources.accelerators"
#define BEAKER "beaker-docs.apps.allenai.org experiment spec v2"
#define DSTACK "dstack reference/dstack.yml/task.md"

enum { SCRIPT = 1 << 16 };

static const struct fw_row rows[] = {
	/* "${NAME}" in these is the shell's */
	{"run", .source = SKY}, {"commands", .source = DSTACK}, {"envs", .source = SKY}, {"env", .source = DSTACK},
	{"workdir", .source = SKY}, {"file_mounts", .source = SKY},
	{SKY_CARDS, .hook = true, .source = SKY}, {"resources.gpu", .hook = true, .source = DSTACK},
	{"num_nodes", .hook = true, .source = SKY}, {"nodes", .hook = true, .source = DSTACK},
	{"tasks", .hook = true, .source = BEAKER},
	{.key = NULL},
};
static const char idle[] = "*";

struct script {
	char text[SCRIPT];
	size_t n;
};

static void put(struct script *s, const char *text, size_t n)
{
	if (s->n + n + 1 > sizeof(s->text))
		return;
	memcpy(s->text + s->n, text, n);
	s->n += n;
	s->text[s->n] = 0;
}

/* NAME='value', which the commands see. */
static void put_variable(struct script *s, const char *name, const char *value)
{
	if (!*name || strchr(value, '\'') || strchr(value, '\n'))
		return;
	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_')
			return;
	put(s, name, strlen(name));
	put(s, "='", 2);
	put(s, value, strlen(value));
	put(s, "'\n", 2);
}

static void put_number(struct script *s, const char *name, int64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)n);
	put_variable(s, name, text);
}

/* {NAME: value} or ["NAME=value", "NAME"]; what has no value comes from whoever starts the task. */
static void put_environment(struct script *s, const struct doc_node *env)
{
	for (const struct doc_node *c = env ? env->child : NULL; c; c = c->next) {
		const char *equals = c->kind == DOC_SCALAR && c->text ? strchr(c->text, '=') : NULL;
		char name[80];

		if (c->key && c->kind == DOC_SCALAR && !doc_is_null(c) && *c->text) {
			put_variable(s, c->key, c->text);
		} else if (!c->key && equals && (size_t)(equals - c->text) < sizeof(name)) {
			snprintf(name, sizeof(name), "%.*s", (int)(equals - c->text), c->text);
			put_variable(s, name, equals + 1);
		}
	}
}

/* The commands, a path below a folder that is mounted from beside the file as that folder. */
static void put_commands(struct script *s, const char *text, const struct doc_node *mounts)
{
	for (const char *p = text; *p;) {
		const struct doc_node *m = NULL;

		for (const struct doc_node *c = mounts ? mounts->child : NULL; c && !m; c = c->next)
			if (c->key && c->kind == DOC_SCALAR && c->text && *c->text && !strstr(c->text, "://") &&
			    !strncmp(p, c->key, strlen(c->key)) && (p == text || isspace((unsigned char)p[-1])) &&
			    strchr("/ \n", p[strlen(c->key)]))
				m = c;
		if (m) {
			put(s, m->text, strlen(m->text));
			p += strlen(m->key);
		} else {
			put(s, p++, 1);
		}
	}
	put(s, "\n", 1);
}

/* "A100:8", "H100", "24GB:2", "A100:80GB:4", "8": the cards of a machine. */
static int64_t count_of(const char *text)
{
	const char *colon = strrchr(text, ':'), *last = colon ? colon + 1 : text;
	char *end;
	const long n = strtol(last, &end, 10);

	return end != last && !*end && n > 0 && n < 10000 ? n : 1;
}

/* {A100: 8} and [A100:8, H100:8], of which the first counts; {name: A100, count: 2}. */
static int64_t cards(const struct doc_node *node, const char **name)
{
	const struct doc_node *count = node ? doc_member(node, "count") : NULL;
	int64_t n;

	*name = "";
	if (node && node->kind == DOC_LIST)
		node = node->child;
	if (!node)
		return 0;
	if (node->kind == DOC_SCALAR) {
		*name = node->text;
		return count_of(node->text);
	}
	if (doc_member(node, "name") && doc_member(node, "name")->kind == DOC_SCALAR)
		*name = doc_member(node, "name")->text;
	if (doc_whole(count, &n) && n > 0 && n < 10000)
		return n;
	if (count || doc_member(node, "name") || doc_member(node, "memory"))
		return 1;
	*name = node->child ? node->child->key : "";
	return node->child && doc_whole(node->child, &n) && n > 0 && n < 10000 ? n : 1;
}

/* Names of which SkyPilot's catalog has a second one for the larger memory (docs/source/compute/gpus.rst: A100 and
 * A100-80GB, V100 and V100-32GB). */
static const struct {
	const char *name, *card;
} smaller[] = {{"A100", "A100-40GB"}, {"V100", "V100-16GB"}};

/* "80GB", no range and no bound. */
static bool is_memory(const char *text, size_t n)
{
	size_t digits = 0;

	while (digits < n && isdigit((unsigned char)text[digits]))
		digits++;
	return digits && n - digits == 2 && !strncasecmp(text + digits, "GB", 2);
}

/* The card as --gpu takes it: its name with the memory that "A100:80GB:4" or {name: A100, memory: 80GB} give. */
static void card_of(const struct doc_node *resource, const char *name, bool sky, char *card, size_t size)
{
	const struct doc_node *memory = resource ? doc_member(resource, "memory") : NULL;
	const size_t n = strcspn(name, ":");

	snprintf(card, size, "%.*s", (int)n, name);
	for (size_t i = 0; sky && i < sizeof(smaller) / sizeof(smaller[0]); i++)
		if (!strcasecmp(card, smaller[i].name))
			snprintf(card, size, "%s", smaller[i].card);
	if (memory && memory->kind == DOC_SCALAR && is_memory(memory->text, strlen(memory->text)))
		snprintf(card, size, "%.*s-%s", (int)n, name, memory->text);
	for (const char *part = name + n; *part; part += strcspn(part, ":")) {
		part++;
		if (is_memory(part, strcspn(part, ":")))
			snprintf(card, size, "%.*s-%.*s", (int)n, name, (int)strcspn(part, ":"), part);
	}
}

static void finish_resources(struct fw_part *p, int64_t each, int64_t nodes, const char *key, const char *name)
{
	/* what the commands say of processes stands above that */
	if (each)
		fw_set_whole(p, "gpus", each * nodes, NULL, "cards of a machine x machines of the task");
	fw_set_whole(p, "nodes", nodes, NULL, "machines of the task");
	if (*name && isalpha((unsigned char)*name)) {
		char card[64], note[120];

		card_of(fw_key(p, key), name, !strcmp(key, SKY_CARDS), card, sizeof(card));
		fw_set(p, "@card", card, NULL, NULL);
		snprintf(note, sizeof(note), "the card, where --gpu names none: %s", card);
		fw_note(p, key, note);
	}
}

/* One word of a command, in quotes where the shell would see more than one. */
static void put_word(struct script *s, const char *text, bool script)
{
	const bool quoted = !script && strpbrk(text, " \t\n;&|<>()$`\"\\*?~#") && !strchr(text, '\'');

	put(s, "'", quoted);
	put(s, text, strlen(text));
	put(s, "'", quoted);
	put(s, " ", 1);
}

/* Beaker's first task: what /bin/sh -c is given is a script, anything else one word behind the other. */
static void finish_beaker(struct fw_part *p, const struct doc_node *task)
{
	const struct doc_node *command = doc_member(task, "command"), *arguments = doc_member(task, "arguments"),
			      *variables = doc_member(task, "envVars");
	struct script *s = calloc(1, sizeof(*s));
	int64_t each = 0, nodes = 1;
	bool shell = false;

	if (!doc_whole(doc_member(task, "replicas"), &nodes) || nodes < 1 || nodes > 100000)
		nodes = 1;
	doc_whole(doc_below(task, "resources.gpuCount"), &each);
	finish_resources(p, each > 0 && each < 100000 ? each : 0, nodes, "tasks", "");
	if (!s)
		return;
	for (const struct doc_node *v = variables ? variables->child : NULL; v; v = v->next) {
		const struct doc_node *name = doc_member(v, "name"), *value = doc_member(v, "value");

		if (name && name->kind == DOC_SCALAR && value && value->kind == DOC_SCALAR)
			put_variable(s, name->text, value->text);
	}
	for (const struct doc_node *c = command ? command->child : NULL; c; c = c->next)
		shell |= c->kind == DOC_SCALAR && !strcmp(c->text, "-c");
	for (const struct doc_node *c = command && !shell ? command->child : NULL; c; c = c->next)
		if (c->kind == DOC_SCALAR)
			put_word(s, c->text, false);
	for (const struct doc_node *c = arguments ? arguments->child : NULL; c; c = c->next)
		if (c->kind == DOC_SCALAR)
			put_word(s, c->text, shell);
	put(s, "\n", 1);
	fw_read_shell(p, "tasks", s->text, "");
	free(s);
}

static void finish(struct fw_part *p)
{
	const struct doc_node *tasks = doc_below(fw_root(p), "tasks");
	const struct doc_node *run = doc_below(fw_root(p), "run");
	const bool sky = run != NULL;
	const char *card_key = sky ? SKY_CARDS : "resources.gpu", *name;
	const struct doc_node *mounts = doc_below(fw_root(p), "file_mounts"),
			      *commands = doc_below(fw_root(p), "commands");
	const int64_t each = cards(fw_key(p, card_key), &name);
	struct script *s = calloc(1, sizeof(*s));
	int64_t nodes = 1;

	if (tasks && tasks->kind == DOC_LIST && tasks->child) {
		free(s);
		finish_beaker(p, tasks->child);
		if (tasks->child->next)
			fw_unmodelled(p, "tasks", "tasks after the first are not read");
		return;
	}
	if (!doc_whole(fw_key(p, sky ? "num_nodes" : "nodes"), &nodes) || nodes < 1 || nodes > 100000)
		nodes = 1;
	finish_resources(p, each, nodes, card_key, name);
	if (!s)
		return;
	put_environment(s, doc_below(fw_root(p), "envs"));
	put_environment(s, doc_below(fw_root(p), "env"));
	if (each) {
		put_number(s, "SKYPILOT_NUM_GPUS_PER_NODE", each);
		put_number(s, "DSTACK_GPUS_PER_NODE", each);
		put_number(s, "DSTACK_GPUS_NUM", each * nodes);
	}
	put_number(s, "SKYPILOT_NUM_NODES", nodes);
	put_number(s, "DSTACK_NODES_NUM", nodes);
	put_number(s, "SKYPILOT_NODE_RANK", 0);
	put_number(s, "DSTACK_NODE_RANK", 0);
	if (sky && run->kind == DOC_SCALAR && run->text)
		put_commands(s, run->text, mounts);
	for (const struct doc_node *c = commands ? commands->child : NULL; c; c = c->next)
		if (c->kind == DOC_SCALAR && c->text)
			put_commands(s, c->text, NULL);
	fw_read_shell(p, sky ? "run" : "commands", s->text, fw_text(p, "workdir"));
	free(s);
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_task = {
	.name = "task",
	.summary = "SkyPilot's, dstack's and Beaker's tasks: their commands and their cards",
	.version = "SkyPilot 0.10, dstack 0.19",
	.role = FW_LAUNCHER,
	.marks = "run+resources run+setup run+num_nodes commands+resources commands+type "
		 "tasks+version tasks+budget",
	.never = "model_name_or_path step_scheduler trainer",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
