/* Shell scripts as trees: the launch line, what is set around it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch_line.h"

/* So many options in variables make a script one of settings: a guess. */
enum { FEWEST_OPTIONS = 8 };

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
		struct args_word *w = launch_words(sh, i, &n, &cut);

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

/* A script that starts nothing and is sourced by one that does: the options that it puts into its variables
 * ("MODEL_ARGS=..."), as one line of nothing else.  To be freed; NULL: it has none, or memory is out. */
static char *options_of_variables(const struct oom_shell *sh)
{
	const struct oom_shell_variable *v;
	size_t size = 0, options = 0;
	char *line;

	for (size_t i = 0; (v = oom_shell_variable_at(sh, i)) != NULL; i++)
		size += strlen(v->value.text) + 2;
	line = calloc(1, size + 1);
	for (size_t i = 0; line && (v = oom_shell_variable_at(sh, i)) != NULL; i++) {
		const char *text = v->value.text + strspn(v->value.text, " \t\n");

		if (strncmp(text, "--", 2) || !isalpha((unsigned char)text[2]))
			continue;
		for (const char *at = text; (at = strstr(at, "--")) != NULL; at += 2)
			options++;
		snprintf(line + strlen(line), size - strlen(line), "%s ", text);
	}
	for (char *c = line; c && *c; c++)
		*c = *c == '\n' ? ' ' : *c;
	if (options >= FEWEST_OPTIONS)
		return line;
	free(line);
	return NULL;
}

enum oom_status doc_read_shell(struct doc *doc, const char *text, size_t size, const char *file,
			       struct oom_error *err)
{
	return doc_read_shell_called(doc, text, size, file, NULL, 0, err);
}

enum oom_status doc_read_shell_called(struct doc *doc, const char *text, size_t size, const char *file,
				      const char *const *called_with, size_t n_called_with, struct oom_error *err)
{
	const struct args_word *unsaid;
	struct args_word *words = NULL;
	struct doc_node *root = NULL;
	struct oom_shell *sh = NULL;
	enum oom_status st = oom_shell_read_called(text, size, file, called_with, n_called_with, &sh, err);
	size_t n = 0, at;
	uint32_t cut = 0;
	char where[16], *alone;

	if (st)
		return st;
	at = launch_line(sh, err, &st);
	alone = !st && at == SIZE_MAX ? options_of_variables(sh) : NULL;
	if (alone) {
		oom_shell_free(sh);
		st = doc_read_shell_called(doc, alone, strlen(alone), file, NULL, 0, err);
		free(alone);
		return st;
	}
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
	words = launch_words(sh, at, &n, &cut);
	snprintf(where, sizeof(where), "%u", cut);
	if (!root || !words || !add_surroundings(doc, root, sh) || !add_pins(doc, root, sh) ||
	    !args_command(doc, root, words, n, NULL) || (cut && !doc_add_text(doc, root, ARGS_CUT, where, cut, 0)) ||
	    !launch_others(doc, root, sh, at))
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
