/* Words of shell scripts: quotes, and what is put together into a word. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "shell_parts.h"

static void put(struct oom_shell *sh, struct builder *b, char ch)
{
	if (b->n + 1 >= b->room) {
		const size_t want = b->room ? b->room * 2 : 64;
		char *grown = shell_alloc(sh, want);

		if (!grown)
			return;
		if (b->n)
			memcpy(grown, b->text, b->n);
		b->text = grown;
		b->room = want;
	}
	b->text[b->n++] = ch;
}

static void put_text(struct oom_shell *sh, struct builder *b, const char *text, size_t n)
{
	for (size_t i = 0; i < n && !sh->status; i++)
		put(sh, b, text[i]);
}

static struct oom_shell_word finished(struct oom_shell *sh, struct builder *b)
{
	struct oom_shell_word w = {shell_copy(sh, b->text, b->n), OOM_SHELL_KNOWN, b->line};

	if (!w.text)
		w.text = "";
	if (b->unknown || (b->unset && b->literal))
		w.known = OOM_SHELL_UNKNOWN;
	else if (b->unset)
		w.known = OOM_SHELL_UNSET;
	*b = (struct builder){.out = b->out, .line = b->line};
	return w;
}

void word_end(struct oom_shell *sh, struct builder *b)
{
	if (b->open)
		shell_push(sh, b->out, finished(sh, b));
}

void word_letter(struct oom_shell *sh, struct builder *b, char ch)
{
	b->open = b->literal = true;
	put(sh, b, ch);
}

static void mark(struct builder *b, enum oom_shell_known known, bool some)
{
	b->unknown |= known == OOM_SHELL_UNKNOWN;
	b->unset |= known == OOM_SHELL_UNSET;
	b->literal |= known == OOM_SHELL_KNOWN && some;
}

/* A value in a word: whole between quotes, at its blanks into several words otherwise.  What is not
 * known of a piece is what has a parameter in it. */
void word_value(struct oom_shell *sh, struct builder *b, const struct oom_shell_word *w,
		      bool quoted)
{
	if (quoted) {
		b->open = true;
		mark(b, w->known, *w->text != 0);
		put_text(sh, b, w->text, strlen(w->text));
		return;
	}
	for (const char *p = w->text; *p && !sh->status;) {
		size_t n = strcspn(p, " \t\n");

		if (n) {
			const bool parameter = memchr(p, '$', n) || memchr(p, '`', n);

			b->open = true;
			mark(b, parameter ? w->known : OOM_SHELL_KNOWN, true);
			put_text(sh, b, p, n);
		}
		p += n;
		if (*p) {
			word_end(sh, b);
			p += strspn(p, " \t\n");
		}
	}
}

/* What cannot be said, as it is written, without blanks. */
void word_unknown(struct oom_shell *sh, struct builder *b, const char *from, size_t n,
			enum oom_shell_known known)
{
	b->open = true;
	mark(b, known, true);
	for (size_t i = 0; i < n && i < 200; i++)
		put(sh, b, isspace((unsigned char)from[i]) ? '_' : from[i]);
}

size_t shell_name(const char *p, const char *end)
{
	size_t n = 0;

	if (p < end && (isalpha((unsigned char)*p) || *p == '_'))
		while (p + n < end && (isalnum((unsigned char)p[n]) || p[n] == '_'))
			n++;
	return n;
}

const char *shell_closing(const char *p, const char *end, char open, char close)
{
	int depth = 1;

	for (; p < end; p++) {
		if (*p == '\\' && p + 1 < end) {
			p++;
		} else if (*p == '\'' || *p == '"') {
			const char *q = p + 1;

			/* "\"" within double quotes is a letter */
			while (q < end && *q != *p)
				q += 1 + (*p == '"' && *q == '\\' && q + 1 < end);
			p = q < end ? q : p;
		} else if (*p == open) {
			depth++;
		} else if (*p == close && !--depth) {
			return p;
		}
	}
	return NULL;
}

static void single_quotes(struct oom_shell *sh, struct builder *b, struct cursor *c)
{
	const char *end = memchr(c->p + 1, '\'', (size_t)(c->end - c->p - 1));

	if (!end) {
		shell_fail(sh, OOM_ERR_PARSE, c->line, "' is never closed");
		return;
	}
	b->open = true;
	for (c->p++; c->p < end && !sh->status; c->p++) {
		word_letter(sh, b, *c->p);
		c->line += !c->fixed && *c->p == '\n';
	}
	c->p = end + 1;
}

static void in_double_quotes(struct oom_shell *sh, struct builder *b, struct cursor *c)
{
	b->open = true;
	while (c->p < c->end && *c->p != '"' && !sh->status) {
		if (*c->p == '\\' && c->p + 1 < c->end && strchr("$`\"\\\n", c->p[1])) {
			if (c->p[1] != '\n')
				word_letter(sh, b, c->p[1]);
			else
				c->line += !c->fixed;
			c->p += 2;
		} else if (*c->p == '$') {
			word_parameter(sh, b, c, true);
		} else if (*c->p == '`') {
			word_backquotes(sh, b, c);
		} else {
			c->line += !c->fixed && *c->p == '\n';
			word_letter(sh, b, *c->p++);
		}
	}
}

struct oom_shell_word shell_quoted(struct oom_shell *sh, const char *text, size_t n, unsigned line)
{
	struct cursor c = {text, text + n, line, true};
	struct builder b = {.line = line};

	if (++sh->depth > SHELL_DEPTH_MAX)
		shell_fail(sh, OOM_ERR_LIMIT, line, "parameters more than 40 deep");
	/* quotes inside are as good as gone: ${X:-"a b"} */
	while (c.p < c.end && !sh->status) {
		in_double_quotes(sh, &b, &c);
		c.p += c.p < c.end;
	}
	sh->depth--;
	return finished(sh, &b);
}

bool shell_word(struct oom_shell *sh, struct cursor *c, struct words *out)
{
	struct builder b = {.out = out, .line = c->line};
	const char *from = c->p;

	while (c->p < c->end && !sh->status && !strchr(" \t\r\n;&|()<>", *c->p)) {
		if (*c->p == '\\') {
			if (c->p + 1 < c->end && c->p[1] == '\n')
				c->line += !c->fixed;
			else if (c->p + 1 < c->end)
				word_letter(sh, &b, c->p[1]);
			c->p += c->p + 1 < c->end ? 2 : 1;
		} else if (*c->p == '\'') {
			single_quotes(sh, &b, c);
		} else if (*c->p == '"') {
			const unsigned line = c->line;

			c->p++;
			in_double_quotes(sh, &b, c);
			if (c->p == c->end)
				shell_fail(sh, OOM_ERR_PARSE, line, "\" is never closed");
			c->p += c->p < c->end;
		} else if (*c->p == '$' && c->p + 1 < c->end && c->p[1] == '\'') {
			c->p++;
			single_quotes(sh, &b, c);
		} else if (*c->p == '$') {
			word_parameter(sh, &b, c, false);
		} else if (*c->p == '`') {
			word_backquotes(sh, &b, c);
		} else {
			word_letter(sh, &b, *c->p++);
		}
	}
	word_end(sh, &b);
	return c->p > from;
}
