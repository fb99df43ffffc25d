/* Commands, files and calls among what people paste: where each begins and ends. Whether it is one, its reader says. */
#include "pieces.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

enum { LINES = 4000, PIECES = 200 };

void oom_cut_put(struct oom_cut *c, const char *from, const char *to)
{
	const size_t n = (size_t)(to - from);

	if (c->used + n + 1 >= OOM_PIECE_MAX)
		return;
	memcpy(c->text + c->used, from, n);
	c->used += n;
	c->text[c->used++] = '\n';
}

void oom_cut_hand(struct oom_cut *c, const char *name, size_t first, size_t last)
{
	const struct oom_piece p = {.name = name, .text = c->text, .size = c->used, .first = c->number + first, .last = c->number + last};

	c->text[c->used] = 0;
	/* what people paste has a handful; a log that repeats one command has thousands */
	if (c->used && c->handed++ < PIECES)
		c->take(c->ctx, &p);
	c->used = 0;
}

/* ---- commands ---- */

static const char *const launchers[] = {"torchrun ", "accelerate launch ", "deepspeed ", "python ", "python3 ", "swift ", "llamafactory-cli ", "trl ",
					"tune run ", "axolotl ", "litgpt ", "megatron ", "uv run ", "CUDA_VISIBLE_DEVICES=", "NPROC_PER_NODE=", "xtuner train "};

static bool has_options(const struct oom_lines *l)
{
	for (const char *p = l->from; (p = oom_text_find(p, l->to, "--")) != NULL; p += 2)
		if (l->to - p > 4 && isalpha((unsigned char)p[2]) && (p == l->from || strchr(" \t", p[-1])))
			return true;
	return false;
}

/* Where a program is started in the line: behind a prompt, an asterisk or words of a sentence. */
static const char *launcher(const struct oom_lines *l)
{
	const char *first = NULL;

	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		for (const char *p = l->from; (p = oom_text_find(p, l->to, launchers[i])) != NULL; p++)
			if ((p == l->from || strchr(" \t`*$#>!\"'", p[-1])) && (!first || p < first))
				first = p;
	return first;
}

static bool goes_on(const struct oom_lines *l)
{
	const char *to = l->to;

	while (to > l->from && (isspace((unsigned char)to[-1])))
		to--;
	return to > l->from && to[-1] == '\\';
}

/* An option or a comment between options; a line of values that belongs to the option above it. */
static bool continues(const struct oom_lines *l)
{
	const char *p = l->from;

	while (p < l->to && isspace((unsigned char)*p))
		p++;
	return l->to - p > 3 && ((p[0] == '-' && p[1] == '-' && isalpha((unsigned char)p[2])) || (p[0] == '#' && oom_text_find(p, l->to, "--")));
}

/* "NAME=value", as a script gives variables. */
static bool assigns(const struct oom_lines *l)
{
	const char *p = l->from;

	if (l->to - p > 7 && !memcmp(p, "export ", 7))
		p += 7;
	if (p == l->to || !(isupper((unsigned char)*p) || islower((unsigned char)*p)))
		return false;
	while (p < l->to && (isalnum((unsigned char)*p) || *p == '_'))
		p++;
	return p > l->from && p + 1 < l->to && *p == '=' && p[1] != '=' && p[1] != ' ' && !memchr(p, ',', (size_t)(l->to - p));
}

/* Its last mark of a page ("`", "**"), which is none of the shell's. */
static const char *without_marks(const char *from, const char *to)
{
	while (to > from && strchr("`* \t\r", to[-1]))
		to--;
	return to;
}

/* Comments among options and what a page adds are left out: a shell would end the command there. */
static void put_command(struct oom_cut *c, const char *from, const struct oom_lines *l, bool last)
{
	const char *p = from, *to = without_marks(from, l->to), *close;
	char line[2048];
	size_t n;

	while (p < to && isspace((unsigned char)*p))
		p++;
	if (p == to || *p == '#')
		return;
	/* the command ends where its quotation does, and the sentence goes on */
	close = from > l->from && from[-1] == '`' ? memchr(from, '`', (size_t)(to - from)) : NULL;
	to = close ? close : to;
	while (to > p && (to[-1] == '\\' || isspace((unsigned char)to[-1])))
		to--;
	n = (size_t)(to - p);
	if (n + 3 > sizeof(line))
		return;
	memcpy(line, p, n);
	if (!last) {
		line[n++] = ' ';
		line[n++] = '\\';
	}
	oom_cut_put(c, line, line + n);
}

static size_t command_end(const struct oom_cut *c, size_t i)
{
	while (i + 1 < c->n && (goes_on(&c->line[i]) || continues(&c->line[i + 1])) && c->line[i + 1].to > c->line[i + 1].from)
		i++;
	return i;
}

void oom_cut_commands(struct oom_cut *c)
{
	for (size_t i = 0; i < c->n; i++) {
		const char *const start = launcher(&c->line[i]);
		const size_t end = start ? command_end(c, i) : i;

		if (!start || (end == i && !has_options(&c->line[i]) && !oom_text_find(start, c->line[end].to, ".y")))
			continue;
		for (size_t k = 0; k < i; k++)
			if (assigns(&c->line[k]))
				oom_cut_put(c, c->line[k].from, c->line[k].to);
		for (size_t k = i; k <= end; k++)
			put_command(c, k == i ? start : c->line[k].from, &c->line[k], k == end);
		oom_cut_hand(c, "run.sh", i, end);
		i = end;
	}
}

void oom_pieces(const char *begin, const char *end, uint64_t line, oom_piece_fn take, void *ctx)
{
	struct oom_lines *const lines = calloc(LINES, sizeof(*lines));
	struct oom_cut c = {.line = lines, .number = line, .text = malloc(OOM_PIECE_MAX + 1), .take = take, .ctx = ctx};

	for (const char *p = begin; lines && p < end && c.n < LINES; c.n++) {
		lines[c.n] = (struct oom_lines){p, oom_line_end(p, end)};
		p = lines[c.n].to + 1;
	}
	if (lines && c.text) {
		oom_cut_commands(&c);
		oom_cut_maps(&c);
		oom_cut_calls(&c);
	}
	free(c.text);
	free(lines);
}
