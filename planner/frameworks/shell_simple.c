/* Simple commands of a shell script: redirections, and what a command leaves behind. */
#include "shell.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell_parts.h"

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool is_shell(const char *word)
{
	static const char *const names[] = {"bash", "sh", "zsh", "sbatch", "dash"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(base_name(word), names[i]))
			return true;
	return false;
}

const char *shell_joined(struct oom_shell *sh, const struct oom_shell_word *w, size_t n)
{
	size_t size = 1, at = 0;
	char *text;

	for (size_t i = 0; i < n; i++)
		size += strlen(w[i].text) + 1;
	text = shell_alloc(sh, size);
	for (size_t i = 0; text && i < n; i++)
		at += (size_t)snprintf(text + at, size - at, "%s%s", i ? " " : "", w[i].text);
	return text ? text : "";
}

/* A redirection at the cursor, its target into *to where it writes. */
/* "<PATH TO vocab.json>", which its author left to be filled in: one word, and not from one file to another,
 * where a blank stands before the second sign.  Where it ends; NULL: it is none. */
static const char *placeholder(const char *p, const char *end)
{
	const char *at = p + 1;

	while (at < end && at - p < 80 && (isalnum((unsigned char)*at) || strchr(" _-./,:", *at)))
		at++;
	if (at >= end || *at != '>' || at - p < 3 || at[-1] == ' ' || !isalpha((unsigned char)p[1]))
		return NULL;
	for (at++; at < end && !isspace((unsigned char)*at) && !strchr(";|&<>()", *at);)
		at++;
	return at;
}

static bool redirection(struct script *s, const char **to, bool live, bool runs)
{
	const char *p = s->c.p;
	struct words target = {0};

	while (p < s->c.end && isdigit((unsigned char)*p))
		p++;
	if (p < s->c.end && *p == '&' && p + 1 < s->c.end && p[1] == '>')
		p++;
	if (p >= s->c.end || (*p != '<' && *p != '>'))
		return false;
	if (*p == '<' && placeholder(p, s->c.end)) {
		s->c.p = placeholder(p, s->c.end);
		return true;
	}
	if (s->c.end - p > 2 && p[0] == '<' && p[1] == '<' && p[2] != '<') {
		const bool dash = p[2] == '-';
		bool expand;

		s->c.p = p + 2 + dash;
		shell_blanks(s, false);
		if (shell_at_end(s))
			return true;
		expand = *s->c.p != '\'' && *s->c.p != '"' && *s->c.p != '\\';
		if (!shell_word(s->sh, &s->c, &target) || !target.n)
			return true;
		if (s->n_heredocs < sizeof(s->heredocs) / sizeof(s->heredocs[0]))
			s->heredocs[s->n_heredocs++] = (struct heredoc){
				.end = target.items[0].text, .expand = expand, .run = runs, .read = live};
		return true;
	}
	if (*to == NULL || *p == '>')
		*to = "";
	while (p < s->c.end && (*p == '<' || *p == '>'))
		p++;
	p += p < s->c.end && (*p == '&' || *p == '|');
	s->c.p = p;
	shell_blanks(s, false);
	while (!shell_at_end(s) && *s->c.p == '<')            /* < <(command) */
		s->c.p++;
	if (!shell_at_end(s) && *s->c.p == '(') {
		s->c.p = shell_closing(s->c.p + 1, s->c.end, '(', ')');
		s->c.p = s->c.p ? s->c.p + 1 : s->c.end;
	} else if (!shell_at_end(s) && shell_word(s->sh, &s->c, &target) && target.n) {
		*to = target.items[0].text;
	}
	return true;
}

/* What a command does that matters: text that is run again, files, or to be shown. */
static int run_command(struct oom_shell *sh, const struct words *w, size_t n_assignments,
		       const char *to)
{
	const struct oom_shell_word *c = w->items + n_assignments;
	const size_t n = w->n - n_assignments;

	if (!n)
		return SUCCEEDS;
	if (!strcmp(c[0].text, "test"))
		return shell_test(c + 1, n - 1, 0);
	if (!strcmp(c[0].text, "["))
		return shell_test(c + 1, n - 1 - (n > 1 && !strcmp(c[n - 1].text, "]")), 0);
	if (!strcmp(c[0].text, "shift")) {      /* in loops that are read once */
		shell_set_words(sh, NULL, 0);
		return SUCCEEDS;
	}
	if (!strcmp(c[0].text, "true") || !strcmp(c[0].text, ":"))
		return SUCCEEDS;
	if (!strcmp(c[0].text, "false"))
		return FAILS;
	if (!strcmp(c[0].text, "echo")) {
		if (to && *to && n > 1)
			shell_add_file(sh, to, shell_joined(sh, c + 1, n - 1), c[0].line);
		return SUCCEEDS;
	}
	/* a session of its own for a text: tmux new-session -d -s NAME "accelerate launch ..." */
	if (!strcmp(c[0].text, "tmux") && n > 2 && strncmp(c[1].text, "new", 3) == 0 && strchr(c[n - 1].text, ' ')) {
		shell_run_text(sh, c[n - 1].text, c[n - 1].line);
		return SUCCEEDS;
	}
	if (!strcmp(c[0].text, "eval")) {
		shell_run_text(sh, shell_joined(sh, c + 1, n - 1), c[0].line);
		return SUCCEEDS;
	}
	for (size_t i = 0; i + 2 < n; i++)
		if (is_shell(c[i].text) && c[i + 1].text[0] == '-' &&
		    c[i + 1].text[strlen(c[i + 1].text) - 1] == 'c') {
			shell_run_text(sh, c[i + 2].text, c[i + 2].line);
			return SUCCEEDS;
		}
	/* a job script that this one wrote itself: sbatch job.sh */
	for (size_t i = 0; is_shell(c[0].text) && i < sh->n_files && n > 1; i++)
		if (!strcmp(c[n - 1].text, sh->files[i].name)) {
			shell_run_text(sh, sh->files[i].text, sh->files[i].line);
			return SUCCEEDS;
		}
	if (shell_grow(sh, &sh->commands, sh->n_commands, &sh->commands_room,
		       sizeof(*sh->commands)))
		sh->commands[sh->n_commands++] = (struct oom_shell_command){
			w->items, n_assignments, w->n, w->items[0].line};
	return SUCCEEDS;
}

static bool declares(const struct script *s)
{
	static const char *const words[] = {"export", "declare", "local", "readonly", "typeset"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (shell_at_word(s, words[i]))
			return true;
	return false;
}

/* export A=1 B=2, declare -a C=(...) */
static void run_declaration(struct script *s, bool live)
{
	struct words ignored = {0};

	shell_word(s->sh, &s->c, &ignored);
	for (;;) {
		shell_blanks(s, false);
		if (shell_at_end(s) || strchr("\n;&|)", *s->c.p))
			return;
		if (!shell_assign(s, NULL, live) && !shell_word(s->sh, &s->c, &ignored))
			s->c.p++;
	}
}

/* Does a simple command end here? */
static bool ends_here(const struct script *s)
{
	return shell_at_end(s) || strchr("\n;|)", *s->c.p) ||
	       (*s->c.p == '&' && !(s->c.p + 1 < s->c.end && s->c.p[1] == '>'));
}

/* Where the documents go that begin with this command: a file, or the name of "read -r -d '' NAME <<END". */
static void place_heredocs(struct script *s, size_t first, const struct words *w, size_t command, const char *to)
{
	for (size_t i = first; to && *to && i < s->n_heredocs; i++)
		s->heredocs[i].to = to;
	if (w->n > command + 1 && !strcmp(w->items[command].text, "read") &&
	    shell_name(w->items[w->n - 1].text, w->items[w->n - 1].text + strlen(w->items[w->n - 1].text)))
		for (size_t i = first; i < s->n_heredocs; i++)
			s->heredocs[i].name = w->items[w->n - 1].text;
}

/* NAME=value counts for the script where no command follows it. */
static void assign_all(struct script *s, const struct cursor *start, size_t n)
{
	const struct cursor end = s->c;

	s->c = *start;
	for (size_t i = 0; i < n && !s->sh->status; i++) {
		shell_blanks(s, false);
		shell_assign(s, NULL, true);
	}
	s->c = end;
}

int shell_simple(struct script *s, bool live)
{
	const struct cursor start = s->c;
	struct words w = {0};
	const char *to = NULL;
	size_t n_assignments = 0, name, first = s->n_heredocs;
	bool more;

	if (declares(s)) {
		run_declaration(s, live);
		return SUCCEEDS;
	}
	for (;;) {
		const struct cursor at = s->c;

		shell_blanks(s, false);
		if (ends_here(s))
			break;
		if (redirection(s, &to, live, w.n > n_assignments &&
						      is_shell(w.items[n_assignments].text)))
			continue;
		if (w.n == n_assignments && shell_assignment(s->c.p, s->c.end, &name, &more)) {
			const size_t before = w.n;

			shell_assign(s, &w, true);
			n_assignments = w.n;
			if (w.n == before)
				break;
			continue;
		}
		if (*s->c.p == '(') {           /* a function: its body is read where it stands */
			s->c.p++;
			shell_blanks(s, false);
			s->c.p += s->c.p < s->c.end && *s->c.p == ')';
			return SUCCEEDS;
		}
		if (!shell_word(s->sh, &s->c, &w) && s->c.p == at.p)
			s->c.p++;
	}
	place_heredocs(s, first, &w, n_assignments, to);
	if (!live || s->sh->status)
		return NOBODY_KNOWS;
	if (w.n == n_assignments && n_assignments) {
		assign_all(s, &start, n_assignments);
		return SUCCEEDS;
	}
	if (w.n == n_assignments && !to)
		return SUCCEEDS;
	return run_command(s->sh, &w, n_assignments, to);
}

/* [[ words ]], with && and || as words */
int shell_brackets(struct script *s)
{
	struct words w = {0};

	s->c.p += 2;
	for (;;) {
		const char *from;

		shell_blanks(s, true);
		if (shell_at_end(s))
			return NOBODY_KNOWS;
		from = s->c.p;
		if (shell_at_word(s, "]]")) {
			s->c.p += 2;
			return shell_test(w.items, w.n, 0);
		}
		if (!shell_word(s->sh, &s->c, &w)) {
			const size_t n = s->c.p + 1 < s->c.end && s->c.p[1] == *s->c.p ? 2 : 1;

			shell_push(s->sh, &w,
				   (struct oom_shell_word){shell_copy(s->sh, from, n),
							   OOM_SHELL_KNOWN, s->c.line});
			s->c.p += n;
			if (s->sh->status)
				return NOBODY_KNOWS;
		}
	}
}
