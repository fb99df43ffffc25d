/* The grammar of shell scripts: branches, loops, functions, lists of commands. */
#include "shell.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell_parts.h"

static void run_list(struct script *s, bool live);

static bool shell_take_word(struct script *s, const char *word)
{
	if (!shell_at_word(s, word))
		return false;
	s->c.p += strlen(word);
	return true;
}

static bool at_terminator(const struct script *s)
{
	static const char *const words[] = {"then", "elif", "else", "fi", "do", "done", "esac", "}"};

	if (*s->c.p == ')' || (*s->c.p == ';' && s->c.p + 1 < s->c.end && s->c.p[1] == ';'))
		return true;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (shell_at_word(s, words[i]))
			return true;
	return false;
}

/* ---- branches and loops ---- */

static int run_list_status(struct script *s, bool live);

static void expect(struct script *s, const char *word)
{
	char text[80];

	shell_blanks(s, true);
	if (!shell_take_word(s, word)) {
		snprintf(text, sizeof(text), "\"%s\" is missing", word);
		shell_fail(s->sh, OOM_ERR_PARSE, s->c.line, text);
	}
}

static void run_if(struct script *s, bool live)
{
	bool open = live;               /* whether a branch may still be taken */

	do {
		const int status = run_list_status(s, open);

		expect(s, "then");
		run_list(s, open && status != FAILS);
		open &= status != SUCCEEDS;
		shell_blanks(s, true);
	} while (!shell_at_end(s) && shell_take_word(s, "elif"));
	if (!shell_at_end(s) && shell_take_word(s, "else"))
		run_list(s, open);
	expect(s, "fi");
}

static void run_for(struct script *s, bool live)
{
	struct words w = {0}, values = {0};
	struct variable *v;

	shell_blanks(s, false);
	if (s->c.p + 1 < s->c.end && !strncmp(s->c.p, "((", 2)) {
		while (s->c.p + 1 < s->c.end && strncmp(s->c.p, "))", 2))
			s->c.p++;
		s->c.p += s->c.end - s->c.p < 2 ? s->c.end - s->c.p : 2;
	} else if (shell_word(s->sh, &s->c, &w) && w.n) {
		shell_blanks(s, true);
		if (!shell_at_end(s) && shell_take_word(s, "in"))
			for (;;) {
				shell_blanks(s, false);
				if (shell_at_end(s) || strchr("\n;&|)", *s->c.p) ||
				    !shell_word(s->sh, &s->c, &values))
					break;
			}
		v = live && values.n ? shell_variable(s->sh, w.items[0].text,
						      strlen(w.items[0].text), true)
				     : NULL;
		if (v) {
			v->value = (struct words){0};
			shell_push(s->sh, &v->value, values.items[0]);
		}
	}
	shell_blanks(s, true);
	if (!shell_at_end(s) && *s->c.p == ';')
		s->c.p++;
	expect(s, "do");
	run_list(s, live);
	expect(s, "done");
}

static void run_while(struct script *s, bool live, bool until)
{
	const int status = run_list_status(s, live);

	expect(s, "do");
	run_list(s, live && status != (until ? SUCCEEDS : FAILS));
	expect(s, "done");
}

static void run_case(struct script *s, bool live)
{
	struct words w = {0};
	bool open = live;

	shell_blanks(s, false);
	shell_word(s->sh, &s->c, &w);
	expect(s, "in");
	for (;;) {
		bool taken = false;

		shell_blanks(s, true);
		if (shell_at_end(s) || shell_at_word(s, "esac"))
			break;
		if (*s->c.p == '(')
			s->c.p++;
		for (;;) {
			struct words pattern = {0};

			shell_blanks(s, false);
			if (shell_at_end(s))
				break;
			if (*s->c.p == ')') {
				s->c.p++;
				break;
			}
			if (!shell_word(s->sh, &s->c, &pattern)) {
				s->c.p++;
				continue;
			}
			taken |= pattern.n && w.n &&
				 (w.items[0].known == OOM_SHELL_UNKNOWN ||
				  shell_matches(pattern.items[0].text,
						w.items[0].known ? "" : w.items[0].text));
		}
		run_list(s, open && taken);
		open &= !taken || !w.n || w.items[0].known == OOM_SHELL_UNKNOWN;
		if (!shell_at_end(s) && *s->c.p == ';') {
			s->c.p += s->c.p + 1 < s->c.end ? 2 : 1;
			if (!shell_at_end(s) && *s->c.p == '&')
				s->c.p++;
		} else if (!shell_at_end(s) && !shell_at_word(s, "esac")) {
			shell_blanks(s, true);
			if (!shell_at_end(s) && !shell_at_word(s, "esac"))
				s->c.p++;
		}
	}
	expect(s, "esac");
}

/* One command of any form. */
static int run_one(struct script *s, bool live)
{
	if (shell_take_word(s, "!")) {
		int status;

		shell_blanks(s, false);
		status = shell_at_end(s) ? NOBODY_KNOWS : run_one(s, live);
		return status < 0 ? status : !status;
	}
	if (shell_take_word(s, "if")) {
		run_if(s, live);
	} else if (shell_take_word(s, "for")) {
		run_for(s, live);
	} else if (shell_take_word(s, "while")) {
		run_while(s, live, false);
	} else if (shell_take_word(s, "until")) {
		run_while(s, live, true);
	} else if (shell_take_word(s, "case")) {
		run_case(s, live);
	} else if (shell_take_word(s, "function")) {
		struct words name = {0};

		shell_blanks(s, false);
		shell_word(s->sh, &s->c, &name);
		if (s->c.p + 1 < s->c.end && !strncmp(s->c.p, "()", 2))
			s->c.p += 2;
	} else if (shell_take_word(s, "{")) {
		run_list(s, live);
		expect(s, "}");
	} else if (shell_at_word(s, "[[")) {
		return shell_brackets(s);
	} else if (s->c.p + 1 < s->c.end && !strncmp(s->c.p, "((", 2)) {
		while (!shell_at_end(s) && *s->c.p != '\n' && strncmp(s->c.p, "))", 2))
			s->c.p++;
		s->c.p += s->c.end - s->c.p < 2 ? s->c.end - s->c.p : 2;
		return NOBODY_KNOWS;
	} else if (*s->c.p == '(') {
		s->c.p++;
		run_list(s, live);
		shell_blanks(s, true);
		s->c.p += !shell_at_end(s) && *s->c.p == ')';
	} else {
		return shell_simple(s, live);
	}
	return NOBODY_KNOWS;
}

/* Commands up to a word that ends a block; the status of the last. */
static int run_list_status(struct script *s, bool live)
{
	int status = SUCCEEDS;
	bool go = live;

	if (++s->sh->depth > SHELL_DEPTH_MAX)
		shell_fail(s->sh, OOM_ERR_LIMIT, s->c.line, "blocks more than 40 deep");
	for (;;) {
		const char *from;

		shell_blanks(s, true);
		if (shell_at_end(s) || at_terminator(s))
			break;
		from = s->c.p;
		{
			const int now = run_one(s, go);

			status = go ? now : status;
		}
		shell_blanks(s, false);
		if (shell_at_end(s))
			break;
		if (s->c.p + 1 < s->c.end && !strncmp(s->c.p, "&&", 2)) {
			go &= status != FAILS;
			s->c.p += 2;
		} else if (s->c.p + 1 < s->c.end && !strncmp(s->c.p, "||", 2)) {
			/* what is to be done where the command before it fails */
			go = live && status == FAILS;
			s->c.p += 2;
		} else if (*s->c.p == '|' || *s->c.p == '&') {
			go = live;
			s->c.p++;
		} else if (*s->c.p == ';' && !at_terminator(s)) {
			go = live;
			s->c.p++;
		} else if (*s->c.p == '\n') {
			go = live;
		} else if (s->c.p == from) {
			s->c.p++;
		}
	}
	s->sh->depth--;
	return status;
}

static void run_list(struct script *s, bool live)
{
	(void)run_list_status(s, live);
}

/* All of a text, terminators without a beginning passed over. */
static void run_all(struct script *s)
{
	while (!shell_at_end(s)) {
		run_list(s, true);
		if (!shell_at_end(s))
			s->c.p++;
	}
}

void shell_run_text(struct oom_shell *sh, const char *text, unsigned line)
{
	struct script *s;

	if (++sh->depth > SHELL_DEPTH_MAX)
		shell_fail(sh, OOM_ERR_LIMIT, line, "scripts more than 40 deep");
	s = shell_alloc(sh, sizeof(*s));
	if (s) {
		*s = (struct script){.sh = sh, .c = {text, text + strlen(text), line, true}};
		run_all(s);
	}
	sh->depth--;
}

enum oom_status oom_shell_read(const char *text, size_t size, const char *name,
			       struct oom_shell **shell, struct oom_error *err)
{
	return oom_shell_read_called(text, size, name, NULL, 0, shell, err);
}

enum oom_status oom_shell_read_called(const char *text, size_t size, const char *name, const char *const *words,
				      size_t n_words, struct oom_shell **shell, struct oom_error *err)
{
	struct oom_shell *sh = calloc(1, sizeof(*sh));
	enum oom_status st;

	if (!sh)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	*sh = (struct oom_shell){.file = name, .err = err};
	if (size > SHELL_TEXT_MAX || memchr(text, 0, size)) {
		st = oom_error_set(err, size > SHELL_TEXT_MAX ? OOM_ERR_LIMIT : OOM_ERR_PARSE,
				   size > SHELL_TEXT_MAX ? "%s: a script of more than 4 MiB"
							 : "%s: holds a zero byte: no script",
				   name);
		oom_shell_free(sh);
		return st;
	}
	{
		struct script s = {.sh = sh, .c = {text, text + size, 1, false}};

		shell_set_words(sh, words, n_words);
		run_all(&s);
	}
	sh->shown = shell_alloc(sh, (sh->n_variables + 1) * sizeof(*sh->shown));
	for (size_t i = 0; sh->shown && i < sh->n_variables; i++) {
		const struct variable *v = &sh->variables[i];

		sh->shown[i] = (struct oom_shell_variable){v->name, {"", OOM_SHELL_KNOWN, 0}};
		if (v->value.n == 1)
			sh->shown[i].value = v->value.items[0];
		else if (v->value.n)
			sh->shown[i].value.text = shell_joined(sh, v->value.items, v->value.n);
	}
	st = sh->status;
	if (st) {
		oom_shell_free(sh);
		return st;
	}
	sh->err = NULL;
	*shell = sh;
	return OOM_OK;
}

const struct oom_shell_command *oom_shell_command_at(const struct oom_shell *sh, size_t i)
{
	return i < sh->n_commands ? &sh->commands[i] : NULL;
}

const struct oom_shell_variable *oom_shell_variable_at(const struct oom_shell *sh, size_t i)
{
	return i < sh->n_variables ? &sh->shown[i] : NULL;
}

const struct oom_shell_file *oom_shell_file_at(const struct oom_shell *sh, size_t i)
{
	return i < sh->n_files ? &sh->files[i] : NULL;
}

const struct oom_shell_word *oom_shell_directive_at(const struct oom_shell *sh, size_t i)
{
	return i < sh->directives.n ? &sh->directives.items[i] : NULL;
}
