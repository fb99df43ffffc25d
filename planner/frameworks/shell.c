/* The grammar of shell scripts: commands, branches, loops, functions, here documents. */
#include "shell.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell_parts.h"

/* What a command leaves behind for "&&", "||" and "if": 1, 0, or not known. */
enum { FAILS, SUCCEEDS, NOBODY_KNOWS = -1 };

struct heredoc {
	const char *end;
	bool expand;
	const char *to;                 /* the file its command writes; NULL: none */
	bool run;                       /* its command is a shell */
	bool read;                      /* whether its command is read at all */
};

struct script {
	struct oom_shell *sh;
	struct cursor c;
	struct heredoc heredocs[8];
	size_t n_heredocs;
};

static void run_list(struct script *s, bool live);
static void run_text(struct oom_shell *sh, const char *text, unsigned line);

static bool at_end(const struct script *s)
{
	return s->c.p >= s->c.end || s->sh->status;
}

static void add_file(struct oom_shell *sh, const char *name, const char *text, unsigned line)
{
	if (shell_grow(sh, &sh->files, sh->n_files, &sh->files_room, sizeof(*sh->files)))
		sh->files[sh->n_files++] = (struct oom_shell_file){name, text, line};
}

/* Behind a newline: the bodies of the here documents that the line began. */
static void read_heredocs(struct script *s)
{
	for (size_t i = 0; i < s->n_heredocs; i++) {
		const struct heredoc *h = &s->heredocs[i];
		const char *from = s->c.p, *to = from;
		const unsigned line = s->c.line;
		bool ended = false;

		while (!ended && s->c.p < s->c.end) {
			const char *p = s->c.p, *eol = memchr(p, '\n', (size_t)(s->c.end - p));
			size_t n;

			to = p;
			s->c.p = eol ? eol + 1 : s->c.end;
			s->c.line += eol && !s->c.fixed;
			while (p < s->c.p && *p == '\t')
				p++;
			n = (size_t)((eol ? eol : s->c.end) - p);
			ended = n == strlen(h->end) && !strncmp(p, h->end, n);
		}
		if (!ended)
			to = s->c.end;
		if (!h->read || (!h->to && !h->run))
			continue;
		{
			struct oom_shell_word w = {"", OOM_SHELL_KNOWN, line};

			if (h->expand) {
				/* double quotes are letters here */
				const char *p = from;
				char *text = shell_alloc(s->sh, (size_t)(to - from) * 2 + 1);
				size_t n = 0;

				for (; text && p < to; p++) {
					if (*p == '"')
						text[n++] = '\\';
					text[n++] = *p;
				}
				if (text)
					w = shell_quoted(s->sh, text, n, line);
			} else {
				w.text = shell_copy(s->sh, from, (size_t)(to - from));
			}
			if (s->sh->status)
				return;
			if (h->to)
				add_file(s->sh, h->to, w.text, line);
			else
				run_text(s->sh, w.text, line);
		}
	}
	s->n_heredocs = 0;
}

static void newline(struct script *s)
{
	s->c.p++;
	s->c.line += !s->c.fixed;
	read_heredocs(s);
}

/* Variables that Slurm sets in a job, from what the job asks for (sbatch(1), output environment). */
static void slurm_variables(struct oom_shell *sh, size_t first)
{
	static const struct {
		const char *option, *variable;
	} rows[] = {
		{"--nodes=", "SLURM_NNODES"},       {"--nodes=", "SLURM_JOB_NUM_NODES"},
		{"-N=", "SLURM_NNODES"},            {"-N=", "SLURM_JOB_NUM_NODES"},
		{"--gpus-per-node=", "SLURM_GPUS_PER_NODE"},
		{"--gpus-per-node=", "SLURM_GPUS_ON_NODE"},
		{"--gres=gpu:", "SLURM_GPUS_ON_NODE"},
		{"--ntasks-per-node=", "SLURM_NTASKS_PER_NODE"},
	};
	const struct words *d = &sh->directives;

	for (size_t i = first; i < d->n; i++)
		for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
			const size_t n = strlen(rows[k].option) - 1;
			const char *text = d->items[i].text, *colon;
			struct variable *v;

			if (!strncmp(text, rows[k].option, n + 1))
				text += n + 1;
			else if (!strncmp(text, rows[k].option, n) && !text[n] && i + 1 < d->n)
				text = d->items[i + 1].text;
			else
				continue;
			colon = strrchr(text, ':');     /* gpu:a100:8 */
			v = shell_variable(sh, rows[k].variable, strlen(rows[k].variable), true);
			if (!v)
				return;
			v->value = (struct words){0};
			shell_push(sh, &v->value,
				   (struct oom_shell_word){colon ? colon + 1 : text, OOM_SHELL_KNOWN,
							   d->items[i].line});
		}
}

/* "#SBATCH --nodes=4 --gres=gpu:8  # why" */
static void directive(struct script *s)
{
	const char *eol = memchr(s->c.p, '\n', (size_t)(s->c.end - s->c.p));
	struct cursor c = {s->c.p + 7, eol ? eol : s->c.end, s->c.line, true};
	const size_t first = s->sh->directives.n;

	while (c.p < c.end && !s->sh->status) {
		while (c.p < c.end && (*c.p == ' ' || *c.p == '\t'))
			c.p++;
		if (c.p == c.end || *c.p == '#' || !shell_word(s->sh, &c, &s->sh->directives))
			break;
	}
	slurm_variables(s->sh, first);
}

/* Blanks and comments; with lines: line ends, too. */
static void skip_blanks(struct script *s, bool lines)
{
	while (!at_end(s)) {
		const char *p = s->c.p;

		if (*p == '\\' && p + 1 < s->c.end && p[1] == '\n') {
			s->c.p += 2;
			s->c.line += !s->c.fixed;
		} else if (*p == '\\' && p + 2 < s->c.end && p[1] == '\r' && p[2] == '\n') {
			s->c.p += 3;
			s->c.line += !s->c.fixed;
		} else if (*p == ' ' || *p == '\t' || *p == '\r') {
			s->c.p++;
		} else if (*p == '#') {
			const char *eol = memchr(p, '\n', (size_t)(s->c.end - p));

			if (s->c.end - p > 8 && !strncmp(p, "#SBATCH", 7))
				directive(s);
			s->c.p = eol ? eol : s->c.end;
		} else if (lines && *p == '\n') {
			newline(s);
		} else {
			return;
		}
	}
}

/* Whether this reserved word stands here. */
static bool at_word(const struct script *s, const char *word)
{
	const size_t n = strlen(word);
	const char *after = s->c.p + n;

	return (size_t)(s->c.end - s->c.p) >= n && !strncmp(s->c.p, word, n) &&
	       (after == s->c.end || strchr(" \t\r\n;&|()", *after));
}

static bool take_word(struct script *s, const char *word)
{
	if (!at_word(s, word))
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
		if (at_word(s, words[i]))
			return true;
	return false;
}

/* ---- assignments ---- */

/* NAME=, NAME+= or NAME[..]= at p: its length with the sign, 0 where it is none. */
static size_t assignment(const char *p, const char *end, size_t *name, bool *append)
{
	size_t n = *name = shell_name(p, end);

	if (!n)
		return 0;
	if (p + n < end && p[n] == '[') {
		while (p + n < end && p[n] != ']' && p[n] != '\n')
			n++;
		n += p + n < end && p[n] == ']';
	}
	*append = p + n + 1 < end && p[n] == '+' && p[n + 1] == '=';
	n += *append;
	return p + n < end && p[n] == '=' ? n + 1 : 0;
}

/* ( words ) of an array */
static void array_words(struct script *s, struct words *out)
{
	s->c.p++;
	for (;;) {
		skip_blanks(s, true);
		if (at_end(s)) {
			shell_fail(s->sh, OOM_ERR_PARSE, s->c.line, "an array is never closed");
			return;
		}
		if (*s->c.p == ')')
			break;
		if (!shell_word(s->sh, &s->c, out))
			s->c.p++;       /* an operator has no place here */
	}
	s->c.p++;
}

static void append(struct oom_shell *sh, struct words *to, bool array, const struct words *more)
{
	const struct oom_shell_word *a = to->n ? &to->items[0] : NULL, *b = more->items;
	char *text;

	if (array || !a || !more->n) {
		for (size_t i = 0; i < more->n; i++)
			shell_push(sh, to, more->items[i]);
		return;
	}
	text = shell_alloc(sh, strlen(a->text) + strlen(b->text) + 1);
	if (text) {
		strcpy(text, a->text);
		strcat(text, b->text);
		to->items[0] = (struct oom_shell_word){
			text, a->known > b->known ? a->known : b->known, b->line};
	}
}

/* NAME=value where it stands; the value ends up in `words` as "NAME=value" too, unless NULL. */
static bool assign(struct script *s, struct words *words, bool live)
{
	const char *from = s->c.p;
	size_t name;
	bool more = false, array;
	const size_t n = assignment(from, s->c.end, &name, &more);
	struct words value = {0};
	struct variable *v;

	if (!n)
		return false;
	s->c.p += n;
	array = s->c.p < s->c.end && *s->c.p == '(';
	if (array) {
		array_words(s, &value);
	} else {
		/* no splitting at blanks: between quotes as it were */
		struct words pieces = {0};

		shell_word(s->sh, &s->c, &pieces);
		if (pieces.n > 1) {
			size_t size = 1;
			enum oom_shell_known known = OOM_SHELL_KNOWN;
			char *text;

			for (size_t i = 0; i < pieces.n; i++) {
				size += strlen(pieces.items[i].text) + 1;
				if (pieces.items[i].known)
					known = OOM_SHELL_UNKNOWN;
			}
			text = shell_alloc(s->sh, size);
			for (size_t i = 0, at = 0; text && i < pieces.n; i++)
				at += (size_t)snprintf(text + at, size - at, "%s%s", i ? " " : "",
						       pieces.items[i].text);
			if (text)
				shell_push(s->sh, &value, (struct oom_shell_word){text, known, s->c.line});
		} else {
			shell_push(s->sh, &value,
				   pieces.n ? pieces.items[0]
					    : (struct oom_shell_word){"", OOM_SHELL_KNOWN, s->c.line});
		}
	}
	if (s->sh->status || !live)
		return true;
	if (words) {
		const struct oom_shell_word *w = value.n ? value.items : NULL;
		char *text = shell_alloc(s->sh, name + 2 + (w ? strlen(w->text) : 0));

		if (text) {
			memcpy(text, from, name);
			sprintf(text + name, "=%s", w ? w->text : "");
			shell_push(s->sh, words,
				   (struct oom_shell_word){text, w ? w->known : OOM_SHELL_KNOWN,
							   s->c.line});
		}
		return true;
	}
	v = from[name] == '[' ? NULL : shell_variable(s->sh, from, name, true);
	if (!v)
		return true;
	if (more) {
		append(s->sh, &v->value, array || v->array, &value);
	} else {
		v->value = value;
	}
	v->array = array || (more && v->array);
	return true;
}

/* ---- simple commands ---- */

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

static const char *joined(struct oom_shell *sh, const struct oom_shell_word *w, size_t n)
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
	if (s->c.end - p > 2 && p[0] == '<' && p[1] == '<' && p[2] != '<') {
		const bool dash = p[2] == '-';
		bool expand;

		s->c.p = p + 2 + dash;
		skip_blanks(s, false);
		if (at_end(s))
			return true;
		expand = *s->c.p != '\'' && *s->c.p != '"' && *s->c.p != '\\';
		if (!shell_word(s->sh, &s->c, &target) || !target.n)
			return true;
		if (s->n_heredocs < sizeof(s->heredocs) / sizeof(s->heredocs[0]))
			s->heredocs[s->n_heredocs++] = (struct heredoc){target.items[0].text, expand,
									NULL, runs, live};
		return true;
	}
	if (*to == NULL || *p == '>')
		*to = "";
	while (p < s->c.end && (*p == '<' || *p == '>'))
		p++;
	p += p < s->c.end && (*p == '&' || *p == '|');
	s->c.p = p;
	skip_blanks(s, false);
	while (!at_end(s) && *s->c.p == '<')            /* < <(command) */
		s->c.p++;
	if (!at_end(s) && *s->c.p == '(') {
		s->c.p = shell_closing(s->c.p + 1, s->c.end, '(', ')');
		s->c.p = s->c.p ? s->c.p + 1 : s->c.end;
	} else if (!at_end(s) && shell_word(s->sh, &s->c, &target) && target.n) {
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
	if (!strcmp(c[0].text, "true") || !strcmp(c[0].text, ":"))
		return SUCCEEDS;
	if (!strcmp(c[0].text, "false"))
		return FAILS;
	if (!strcmp(c[0].text, "echo")) {
		if (to && *to && n > 1)
			add_file(sh, to, joined(sh, c + 1, n - 1), c[0].line);
		return SUCCEEDS;
	}
	if (!strcmp(c[0].text, "eval")) {
		run_text(sh, joined(sh, c + 1, n - 1), c[0].line);
		return SUCCEEDS;
	}
	for (size_t i = 0; i + 2 < n; i++)
		if (is_shell(c[i].text) && c[i + 1].text[0] == '-' &&
		    c[i + 1].text[strlen(c[i + 1].text) - 1] == 'c') {
			run_text(sh, c[i + 2].text, c[i + 2].line);
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
		if (at_word(s, words[i]))
			return true;
	return false;
}

/* export A=1 B=2, declare -a C=(...) */
static void run_declaration(struct script *s, bool live)
{
	struct words ignored = {0};

	shell_word(s->sh, &s->c, &ignored);
	for (;;) {
		skip_blanks(s, false);
		if (at_end(s) || strchr("\n;&|)", *s->c.p))
			return;
		if (!assign(s, NULL, live) && !shell_word(s->sh, &s->c, &ignored))
			s->c.p++;
	}
}

static int run_simple(struct script *s, bool live)
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

		skip_blanks(s, false);
		if (at_end(s) || strchr("\n;|)", *s->c.p) ||
		    (*s->c.p == '&' && !(s->c.p + 1 < s->c.end && s->c.p[1] == '>')))
			break;
		if (redirection(s, &to, live, w.n > n_assignments &&
						      is_shell(w.items[n_assignments].text)))
			continue;
		if (w.n == n_assignments && assignment(s->c.p, s->c.end, &name, &more)) {
			const size_t before = w.n;

			assign(s, &w, true);
			n_assignments = w.n;
			if (w.n == before)
				break;
			continue;
		}
		if (*s->c.p == '(') {           /* a function: its body is read where it stands */
			s->c.p++;
			skip_blanks(s, false);
			s->c.p += s->c.p < s->c.end && *s->c.p == ')';
			return SUCCEEDS;
		}
		if (!shell_word(s->sh, &s->c, &w) && s->c.p == at.p)
			s->c.p++;
	}
	for (size_t i = first; to && *to && i < s->n_heredocs; i++)
		s->heredocs[i].to = to;
	if (!live || s->sh->status)
		return NOBODY_KNOWS;
	if (w.n == n_assignments && n_assignments) {
		/* NAME=value counts for the script where no command follows it */
		const struct cursor end = s->c;

		s->c = start;
		for (size_t i = 0; i < n_assignments && !s->sh->status; i++) {
			skip_blanks(s, false);
			assign(s, NULL, true);
		}
		s->c = end;
		return SUCCEEDS;
	}
	if (w.n == n_assignments && !to)
		return SUCCEEDS;
	return run_command(s->sh, &w, n_assignments, to);
}

/* [[ words ]], with && and || as words */
static int run_brackets(struct script *s)
{
	struct words w = {0};

	s->c.p += 2;
	for (;;) {
		const char *from;

		skip_blanks(s, true);
		if (at_end(s))
			return NOBODY_KNOWS;
		from = s->c.p;
		if (at_word(s, "]]")) {
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

/* ---- branches and loops ---- */

static int run_list_status(struct script *s, bool live);

static void expect(struct script *s, const char *word)
{
	char text[80];

	skip_blanks(s, true);
	if (!take_word(s, word)) {
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
		skip_blanks(s, true);
	} while (!at_end(s) && take_word(s, "elif"));
	if (!at_end(s) && take_word(s, "else"))
		run_list(s, open);
	expect(s, "fi");
}

static void run_for(struct script *s, bool live)
{
	struct words w = {0}, values = {0};
	struct variable *v;

	skip_blanks(s, false);
	if (s->c.p + 1 < s->c.end && !strncmp(s->c.p, "((", 2)) {
		while (s->c.p + 1 < s->c.end && strncmp(s->c.p, "))", 2))
			s->c.p++;
		s->c.p += s->c.end - s->c.p < 2 ? s->c.end - s->c.p : 2;
	} else if (shell_word(s->sh, &s->c, &w) && w.n) {
		skip_blanks(s, true);
		if (!at_end(s) && take_word(s, "in"))
			for (;;) {
				skip_blanks(s, false);
				if (at_end(s) || strchr("\n;&|)", *s->c.p) ||
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
	skip_blanks(s, true);
	if (!at_end(s) && *s->c.p == ';')
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

	skip_blanks(s, false);
	shell_word(s->sh, &s->c, &w);
	expect(s, "in");
	for (;;) {
		bool taken = false;

		skip_blanks(s, true);
		if (at_end(s) || at_word(s, "esac"))
			break;
		if (*s->c.p == '(')
			s->c.p++;
		for (;;) {
			struct words pattern = {0};

			skip_blanks(s, false);
			if (at_end(s))
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
		if (!at_end(s) && *s->c.p == ';') {
			s->c.p += s->c.p + 1 < s->c.end ? 2 : 1;
			if (!at_end(s) && *s->c.p == '&')
				s->c.p++;
		} else if (!at_end(s) && !at_word(s, "esac")) {
			skip_blanks(s, true);
			if (!at_end(s) && !at_word(s, "esac"))
				s->c.p++;
		}
	}
	expect(s, "esac");
}

/* One command of any form. */
static int run_one(struct script *s, bool live)
{
	if (take_word(s, "!")) {
		int status;

		skip_blanks(s, false);
		status = at_end(s) ? NOBODY_KNOWS : run_one(s, live);
		return status < 0 ? status : !status;
	}
	if (take_word(s, "if")) {
		run_if(s, live);
	} else if (take_word(s, "for")) {
		run_for(s, live);
	} else if (take_word(s, "while")) {
		run_while(s, live, false);
	} else if (take_word(s, "until")) {
		run_while(s, live, true);
	} else if (take_word(s, "case")) {
		run_case(s, live);
	} else if (take_word(s, "function")) {
		struct words name = {0};

		skip_blanks(s, false);
		shell_word(s->sh, &s->c, &name);
		if (s->c.p + 1 < s->c.end && !strncmp(s->c.p, "()", 2))
			s->c.p += 2;
	} else if (take_word(s, "{")) {
		run_list(s, live);
		expect(s, "}");
	} else if (at_word(s, "[[")) {
		return run_brackets(s);
	} else if (s->c.p + 1 < s->c.end && !strncmp(s->c.p, "((", 2)) {
		while (!at_end(s) && *s->c.p != '\n' && strncmp(s->c.p, "))", 2))
			s->c.p++;
		s->c.p += s->c.end - s->c.p < 2 ? s->c.end - s->c.p : 2;
		return NOBODY_KNOWS;
	} else if (*s->c.p == '(') {
		s->c.p++;
		run_list(s, live);
		skip_blanks(s, true);
		s->c.p += !at_end(s) && *s->c.p == ')';
	} else {
		return run_simple(s, live);
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

		skip_blanks(s, true);
		if (at_end(s) || at_terminator(s))
			break;
		from = s->c.p;
		{
			const int now = run_one(s, go);

			status = go ? now : status;
		}
		skip_blanks(s, false);
		if (at_end(s))
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
	while (!at_end(s)) {
		run_list(s, true);
		if (!at_end(s))
			s->c.p++;
	}
}

static void run_text(struct oom_shell *sh, const char *text, unsigned line)
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

		run_all(&s);
	}
	sh->shown = shell_alloc(sh, (sh->n_variables + 1) * sizeof(*sh->shown));
	for (size_t i = 0; sh->shown && i < sh->n_variables; i++) {
		const struct variable *v = &sh->variables[i];

		sh->shown[i] = (struct oom_shell_variable){v->name, {"", OOM_SHELL_KNOWN, 0}};
		if (v->value.n == 1)
			sh->shown[i].value = v->value.items[0];
		else if (v->value.n)
			sh->shown[i].value.text = joined(sh, v->value.items, v->value.n);
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
