/* Which of a shell script's commands trains, and which others do besides. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch_line.h"

enum {
	WORDS_MAX = 20000,
	/* commands that are compared with the one that is read, and words of each: no run has so many */
	OTHERS_MAX = 32,
	COMPARED_MAX = 500
};

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

struct args_word *launch_words(const struct oom_shell *sh, size_t at, size_t *n, uint32_t *cut)
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
	static const char *const words[] = {"train", "tune", "sft", "dpo", "grpo", "ppo", "rlhf", "orpo", "kto"},
		*const others[] = {"convert", "prepare", "preprocess", "download", "merge", "export"};
	const struct oom_shell_file *f;
	bool several = false;           /* a launcher of many processes, whose script nobody can know */

	if (args_is_trainer(w, n))
		return true;
	for (size_t i = 0; i < n; i++) {
		const char *slash = strrchr(w[i].text, '/'), *name = slash ? slash + 1 : w[i].text;

		for (size_t k = 0; (f = oom_shell_file_at(sh, k)) != NULL; k++)
			if (!strcmp(f->name, w[i].text) && strstr(f->text, "train"))
				return true;
		if (i && !strcmp(w[i - 1].text, "-m")) {
			const char *dot = strchr(name, '.');

			/* "openrlhf" of "openrlhf.models.math_verifier" is whose it is, not what it does */
			name = dot ? dot + 1 : name;
			if (!strcmp(name, "distributed.run") || !strcmp(name, "distributed.launch") || !strcmp(name, "commands.launch")) {
				several = true;
				continue;
			}
		} else if (!args_is_script(name)) {
			continue;
		}
		for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
			if (!strncmp(name, others[k], strlen(others[k])))
				return false;
		for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
			if (strstr(name, words[k]))
				return true;
		return false;
	}
	return several;
}

size_t launch_line(const struct oom_shell *sh, struct oom_error *err, enum oom_status *st)
{
	size_t most = 0, best = SIZE_MAX, called = SIZE_MAX;

	for (size_t i = 0; !*st && oom_shell_command_at(sh, i); i++) {
		size_t n, options;
		uint32_t cut;
		struct args_word *w = launch_words(sh, i, &n, &cut);

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
		} else if (args_calls_script(w, n)) {
			called = i;
		}
		free(w);
	}
	/* nothing is started here: perhaps by what is called last */
	return best == SIZE_MAX ? called : best;
}

/* ---- the others ---- */

/* An option's name, "--lr=1", "lr=1": lr.  0: the word is none. */
static size_t option_name(const struct args_word *w, const char **name)
{
	const size_t dashes = strspn(w->text, "-+");
	size_t n;

	*name = w->text + dashes;
	n = strcspn(*name, "= ");
	if (!isalpha((unsigned char)**name) || memchr(*name, '/', n) || (!dashes && (*name)[n] != '='))
		return 0;
	return n;
}

/* What stands behind it: the same word's rest, or the next word where that is no option. */
static const char *option_value(const struct args_word *w, size_t at, size_t n)
{
	const char *equals = strchr(w[at].text, '=');

	if (equals)
		return equals + 1;
	return at + 1 < n && w[at + 1].text[0] != '-' ? w[at + 1].text : "";
}

/* Does the other command give that option the same value? */
static bool is_alike(const struct args_word *w, size_t at, size_t n, const struct args_word *other, size_t m)
{
	const char *name, *theirs;
	const size_t len = option_name(&w[at], &name);

	for (size_t i = m; i-- > 0;)
		if (option_name(&other[i], &theirs) == len && !strncmp(name, theirs, len))
			return !strcmp(option_value(w, at, n), option_value(other, i, m));
	return false;
}

/* "--config a.yaml", "a.yaml" of which the other command has no word. */
static bool is_other_file(const char *word, const struct args_word *other, size_t m)
{
	const char *dot = strrchr(word, '.');

	if (!dot || (strcmp(dot, ".yaml") && strcmp(dot, ".yml") && strcmp(dot, ".toml")))
		return false;
	for (size_t i = 0; i < m; i++)
		if (!strcmp(other[i].text, word))
			return false;
	return true;
}

/* Names of options that one command has, and that the other lacks or has with another value. */
static bool add_differing(struct doc *doc, struct doc_node *map, const struct args_word *w, size_t n,
			  const struct args_word *other, size_t m, uint32_t line)
{
	for (size_t i = 0; i < n; i++) {
		const char *name;
		const size_t len = option_name(&w[i], &name);

		if (len ? is_alike(w, i, n, other, m) : !is_other_file(w[i].text, other, m))
			continue;
		name = len ? doc_text(doc, name, len) : ARGS_FILE;
		if (!name || (!doc_member(map, name) && !doc_add_text(doc, map, name, "", line, 0)))
			return false;
	}
	return true;
}

bool launch_others(struct doc *doc, struct doc_node *root, const struct oom_shell *sh, size_t at)
{
	size_t n, m, found = 0;
	uint32_t cut;
	struct args_word *w = launch_words(sh, at, &n, &cut), *other;
	struct doc_node *map = NULL;
	bool room = w != NULL, others = w && trains(sh, w, n);

	n = n < COMPARED_MAX ? n : COMPARED_MAX;
	for (size_t i = 0; room && others && found < OTHERS_MAX && oom_shell_command_at(sh, i); i++) {
		other = i == at ? NULL : launch_words(sh, i, &m, &cut);
		room = other || i == at;
		if (other && !args_installs(other, m) && args_is_launch(other, m) && trains(sh, other, m)) {
			m = m < COMPARED_MAX ? m : COMPARED_MAX;
			found++;
			map = map ? map : doc_add(doc, root, ARGS_OTHERS, DOC_MAP, other->line, 0);
			room = map && add_differing(doc, map, w, n, other, m, other->line) &&
			       add_differing(doc, map, other, m, w, n, other->line);
		}
		free(other);
	}
	free(w);
	return room;
}
