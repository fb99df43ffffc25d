/* The shell script that another one calls: "srun bash train.sh 8", "sbatch train.sh". What it trains is read there. */
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "input/config_json.h"
#include "parts.h"

enum { PATH = 512, WORDS = 9 };

bool args_is_shell_script(const char *word)
{
	static const char *const ends[] = {".sh", ".bash", ".slurm", ".sbatch"};
	const size_t n = strlen(word);

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (n > strlen(ends[i]) && !strcmp(word + n - strlen(ends[i]), ends[i]))
			return true;
	return false;
}

bool args_calls_script(const struct args_word *w, size_t n)
{
	static const char *const shells[] = {"bash", "sh", "zsh", "source", "."};

	if (n && args_is_shell_script(w[0].text))
		return true;
	for (size_t i = 0; n > 1 && i < sizeof(shells) / sizeof(shells[0]); i++)
		if (!strcmp(w[0].text, shells[i]) && args_is_shell_script(w[1].text))
			return strcmp(shells[i], "source") && strcmp(shells[i], ".");
	return false;
}

/* The script's path as the command has it; NULL: it starts none. */
static const char *script_of(const struct fw_part *command)
{
	const struct doc_node *program = doc_member(command->root, ARGS_PROGRAM), *words = doc_member(command->root, ARGS_WORDS);

	if (!command->doc.format || strcmp(command->doc.format, ARGS_FORMAT) || !program || !program->text)
		return NULL;
	if (args_is_shell_script(program->text))
		return program->text;
	for (const struct doc_node *w = words ? words->child : NULL; w; w = w->next)
		if (w->text && args_is_shell_script(w->text))
			return w->text;
	return NULL;
}

/* What it is called with, as far as words in front of all options go. */
static size_t words_of(const struct fw_part *command, const char *path, const char *words[WORDS])
{
	const struct doc_node *list = doc_member(command->root, ARGS_WORDS), *w = list ? list->child : NULL;
	size_t n = 0;

	for (const struct doc_node *c = command->root->child; c && c != list; c = c->next)
		if (*c->key != '(')
			return 0;
	if (!args_is_shell_script(fw_text(command, ARGS_PROGRAM)))
		while (w && strcmp(w->text, path))
			w = w->next;
	w = w && !args_is_shell_script(fw_text(command, ARGS_PROGRAM)) ? w->next : w;
	for (; w && n < WORDS && !w->tag; w = w->next)
		words[n++] = w->text;
	return n;
}

/* The script itself, with its words. */
static enum oom_status read_called(struct fw_part *c, const struct fw_part *command, const char *path, const char *found,
				   struct oom_error *err)
{
	const char *words[WORDS];
	char *text = NULL;
	size_t size = 0;
	enum oom_status st = oom_read_text(&text, &size, found, DOC_MAX_BYTES, err);

	if (!st)
		st = doc_read_shell_called(&c->doc, text, size, found, words, words_of(command, path, words), err);
	free(text);
	return st ? st : part_recognise(c, NULL, &c, err);
}

void part_follow_called(struct fw_part *command)
{
	const char *path = script_of(command);
	struct oom_reading *r = command->reading;
	struct oom_error err = {{0}};
	char found[PATH];
	struct fw_part *c;
	enum oom_status st;

	if (!path || !part_find_beside(found, sizeof(found), command->file, path) || r->n_parts == FW_MAX_PARTS)
		return;
	/* a script that calls itself, or the one that called it */
	for (size_t i = 0; i < r->n_parts; i++)
		if (r->parts[i]->file && !strcmp(r->parts[i]->file, found))
			return;
	c = part_new(r);
	if (!c)
		return;
	st = read_called(c, command, path, found, &err);
	if (st) {
		part_drop(r, c, st);
		return;
	}
	command->fw = framework_find("launcher");
	for (const struct doc_node *o = command->root->child; o; o = o->next)
		if (*o->key != '(') {
			const struct oom_setting s = {
				.key = reading_text(r, "%s", o->key), .value = "", .knob = "", .knob_value = "", .file = command->file,
				.line = o->line, .source = "", .kind = OOM_SETTING_UNMODELLED,
				.note = "the script that is called reads its options itself: they are not followed"};

			reading_add(r, &s);
			break;
		}
	part_run(c);
}
