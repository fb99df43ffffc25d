/* Parameters and arithmetic in the words of a shell script, as POSIX sh and bash expand them. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "shell_parts.h"

/* Names without '$', too: what they hold; a copy of 256 bytes is enough for sums. */
static bool sum_of(struct oom_shell *sh, const char *from, size_t n, unsigned line, int64_t *result)
{
	const struct oom_shell_word w = shell_quoted(sh, from, n, line);
	const char *end = w.text + strlen(w.text);
	char text[256];
	size_t used = 0;

	if (w.known != OOM_SHELL_KNOWN)
		return false;
	for (const char *p = w.text; p < end && used < sizeof(text) - 1;) {
		const size_t name = shell_name(p, end);
		const struct variable *v = name ? shell_variable(sh, p, name, false) : NULL;

		if (!name) {
			text[used++] = *p++;
			continue;
		}
		if (!v || v->value.n != 1 || v->value.items[0].known != OOM_SHELL_KNOWN ||
		    strlen(v->value.items[0].text) >= sizeof(text) - used)
			return false;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s",
					 v->value.items[0].text);
		p += name;
	}
	text[used] = 0;
	return used < sizeof(text) - 1 && shell_arithmetic(text, result);
}

static void put_number(struct oom_shell *sh, struct builder *b, int64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, n);
	word_value(sh, b, &(struct oom_shell_word){text, OOM_SHELL_KNOWN, 0}, true);
}

/* $((..)), $(..): the first is computed, of the second only expr. */
static void put_command(struct oom_shell *sh, struct builder *b, struct cursor *c)
{
	const char *from = c->p, *in = c->p + 2, *end = shell_closing(in, c->end, '(', ')');
	int64_t n;

	if (!end) {
		shell_fail(sh, OOM_ERR_PARSE, c->line, "$( is never closed");
		return;
	}
	c->p = end + 1;
	for (const char *p = from; p < end && !c->fixed; p++)
		c->line += *p == '\n';
	if (in[0] == '(' && end[-1] == ')' && end - in >= 2) {
		if (sum_of(sh, in + 1, (size_t)(end - in) - 2, c->line, &n)) {
			put_number(sh, b, n);
			return;
		}
	} else if (end - in > 5 && !strncmp(in, "expr ", 5)) {
		char text[256];
		size_t used = 0;

		for (const char *p = in + 5; p < end && used < sizeof(text) - 1; p++)
			if (!strchr("\\'\"", *p))
				text[used++] = *p;
		if (sum_of(sh, text, used, c->line, &n)) {
			put_number(sh, b, n);
			return;
		}
	}
	word_unknown(sh, b, from, (size_t)(c->p - from), OOM_SHELL_UNKNOWN);
}

static void put_words(struct oom_shell *sh, struct builder *b, const struct words *w, bool quoted,
		      bool apart)
{
	for (size_t i = 0; i < w->n && !sh->status; i++) {
		if (i && apart)
			word_end(sh, b);
		else if (i)
			word_letter(sh, b, ' ');
		word_value(sh, b, &w->items[i], quoted);
	}
}

static bool is_empty(const struct variable *v)
{
	return !v || !v->value.n ||
	       (v->value.n == 1 && (v->value.items[0].known == OOM_SHELL_UNSET ||
				    !*v->value.items[0].text));
}

/* ${NAME op word}; false: an operator that is not followed. */
static bool put_operator(struct oom_shell *sh, struct builder *b, const char *name, size_t n,
			 const char *p, const char *end, unsigned line, bool quoted)
{
	struct variable *v = shell_variable(sh, name, n, false);
	const char op = *p == ':' && p + 1 < end ? p[1] : *p;
	struct oom_shell_word w;

	p += *p == ':' ? 2 : 1;
	if (!strchr("-=+?", op) || p > end)
		return false;
	if (op == '+' ? is_empty(v) : !is_empty(v)) {
		if (op != '+')
			put_words(sh, b, &v->value, quoted, !quoted);
		else if (quoted)
			b->open = true;
		return true;
	}
	if (op == '?')
		return false;
	w = shell_quoted(sh, p, (size_t)(end - p), line);
	if (op == '=') {
		v = shell_variable(sh, name, n, true);
		if (v) {
			v->value = (struct words){0};
			shell_push(sh, &v->value, w);
		}
	}
	word_value(sh, b, &w, quoted);
	return true;
}

/* ${..}: arrays, their length, defaults. */
static void put_braces(struct oom_shell *sh, struct builder *b, struct cursor *c, bool quoted)
{
	const char *from = c->p, *p = c->p + 2, *end = shell_closing(p, c->end, '{', '}');
	const struct variable *v;
	bool length = false, all = false, star = false;
	size_t n, index = 0;
	const char *name;

	if (!end) {
		shell_fail(sh, OOM_ERR_PARSE, c->line, "${ is never closed");
		return;
	}
	c->p = end + 1;
	length = *p == '#';
	p += length || *p == '!';       /* ${!name}: not followed, unknown below */
	if (*p == '@' || *p == '*')
		return;                 /* it is run without words */
	name = p;
	n = shell_name(p, end);
	if (!n)
		n = strspn(p, "0123456789");
	v = n ? shell_variable(sh, p, n, false) : NULL;
	p += n;
	if (n && p < end && *p == '[') {
		star = p + 1 < end && p[1] == '*';
		all = star || (p + 1 < end && p[1] == '@');
		if (!all && p + 2 < end && isdigit((unsigned char)p[1]) && p[2] == ']')
			index = (size_t)(p[1] - '0');
		else if (!all)
			v = NULL;
		p = memchr(p, ']', (size_t)(end - p));
		p = p ? p + 1 : end;
	}
	if (from[2] != '!' && length && all && p == end) {
		put_number(sh, b, v ? (int64_t)v->value.n : 0);
	} else if (from[2] != '!' && !length && p == end && v && (all || index < v->value.n)) {
		if (all)
			put_words(sh, b, &v->value, quoted, !(quoted && star));
		else if (v->value.items[index].known == OOM_SHELL_UNSET && shell_is_rank(v->name, strlen(v->name)))
			word_unknown(sh, b, from, (size_t)(c->p - from), OOM_SHELL_UNSET);
		else
			word_value(sh, b, &v->value.items[index], quoted);
	} else if (all && p == end && !length) {
		return;                 /* an empty array: no word */
	} else if (!length && n && p < end &&
		   put_operator(sh, b, name, n, p, end, c->line, quoted)) {
		return;
	} else {
		word_unknown(sh, b, from, (size_t)(c->p - from),
			    !length && p == end && !v ? OOM_SHELL_UNSET : OOM_SHELL_UNKNOWN);
	}
}

/* "$NAME", "${..}", "$(..)", "$1", "$@", "$#". */
void word_parameter(struct oom_shell *sh, struct builder *b, struct cursor *c, bool quoted)
{
	const size_t n = shell_name(c->p + 1, c->end);
	const struct variable *v = n ? shell_variable(sh, c->p + 1, n, false) : NULL;
	const char next = c->p + 1 < c->end ? c->p[1] : 0;

	if (++sh->depth > SHELL_DEPTH_MAX) {
		shell_fail(sh, OOM_ERR_LIMIT, c->line, "parameters more than 40 deep");
	} else if (next == '(') {
		put_command(sh, b, c);
	} else if (next == '{') {
		put_braces(sh, b, c, quoted);
	} else if (v && v->value.n) {
		/* of NODE_RANK=$1 the name says more than what it was given */
		if (v->value.items[0].known == OOM_SHELL_UNSET && shell_is_rank(v->name, strlen(v->name)))
			word_unknown(sh, b, c->p, n + 1, OOM_SHELL_UNSET);
		else
			word_value(sh, b, &v->value.items[0], quoted);
		c->p += n + 1;
	} else if (n) {
		if (v)
			b->open |= quoted;
		else
			word_unknown(sh, b, c->p, n + 1, OOM_SHELL_UNSET);
		c->p += n + 1;
	} else if (next == '#') {
		put_number(sh, b, (int64_t)sh->n_words);
		c->p += 2;
	} else if (next == '@' || next == '*') {
		c->p += 2;              /* it is run without words */
	} else if (isdigit((unsigned char)next) && (v = shell_variable(sh, c->p + 1, 1, false)) != NULL && v->value.n) {
		word_value(sh, b, &v->value.items[0], quoted);
		c->p += 2;
	} else if (next && (isdigit((unsigned char)next) || strchr("?$!-", next))) {
		word_unknown(sh, b, c->p, 2,
			    isdigit((unsigned char)next) && next != '0' ? OOM_SHELL_UNSET
									: OOM_SHELL_UNKNOWN);
		c->p += 2;
	} else {
		word_letter(sh, b, '$');
		c->p++;
	}
	sh->depth--;
}

void word_backquotes(struct oom_shell *sh, struct builder *b, struct cursor *c)
{
	const char *end = memchr(c->p + 1, '`', (size_t)(c->end - c->p - 1));

	if (!end) {
		shell_fail(sh, OOM_ERR_PARSE, c->line, "` is never closed");
		return;
	}
	/* "`# why`" among continued lines is a comment: it runs nothing and leaves nothing */
	if (c->p[1 + strspn(c->p + 1, " \t")] != '#')
		word_unknown(sh, b, c->p, (size_t)(end + 1 - c->p), OOM_SHELL_UNKNOWN);
	for (; c->p <= end; c->p++)
		c->line += !c->fixed && *c->p == '\n';
}
