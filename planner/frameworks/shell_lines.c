/* Lines of a shell script: blanks, comments, Slurm's directives, bodies of here documents. */
#include "shell.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell_parts.h"

bool shell_at_end(const struct script *s)
{
	return s->c.p >= s->c.end || s->sh->status;
}

void shell_add_file(struct oom_shell *sh, const char *name, const char *text, unsigned line)
{
	if (shell_grow(sh, &sh->files, sh->n_files, &sh->files_room, sizeof(*sh->files)))
		sh->files[sh->n_files++] = (struct oom_shell_file){name, text, line};
}

static void set_variable(struct oom_shell *sh, const char *name, struct oom_shell_word w)
{
	struct variable *v = shell_variable(sh, name, strlen(name), true);

	if (!v)
		return;
	v->value = (struct words){0};
	v->array = false;
	shell_push(sh, &v->value, w);
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
		if (!h->read || (!h->to && !h->run && !h->name))
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
			if (h->name)
				set_variable(s->sh, h->name, w);
			else if (h->to)
				shell_add_file(s->sh, h->to, w.text, line);
			else
				shell_run_text(s->sh, w.text, line);
		}
	}
	s->n_heredocs = 0;
}

void shell_newline(struct script *s)
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
void shell_blanks(struct script *s, bool lines)
{
	while (!shell_at_end(s)) {
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
			shell_newline(s);
		} else {
			return;
		}
	}
}

/* Whether this reserved word stands here. */
bool shell_at_word(const struct script *s, const char *word)
{
	const size_t n = strlen(word);
	const char *after = s->c.p + n;

	return (size_t)(s->c.end - s->c.p) >= n && !strncmp(s->c.p, word, n) &&
	       (after == s->c.end || strchr(" \t\r\n;&|()", *after));
}
