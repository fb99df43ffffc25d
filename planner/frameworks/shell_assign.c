/* Assignments of a shell script: words, arrays, what is appended. */
#include "shell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell_parts.h"

size_t shell_assignment(const char *p, const char *end, size_t *name, bool *append)
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
		shell_blanks(s, true);
		if (shell_at_end(s)) {
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

/* A value is not split at blanks: it is between quotes as it were. */
static void as_one_word(struct script *s, struct words *value)
{
	struct words pieces = {0};
	enum oom_shell_known known = OOM_SHELL_KNOWN;
	size_t size = 1;
	char *text;

	shell_word(s->sh, &s->c, &pieces);
	if (pieces.n < 2) {
		shell_push(s->sh, value,
			   pieces.n ? pieces.items[0] : (struct oom_shell_word){"", OOM_SHELL_KNOWN, s->c.line});
		return;
	}
	for (size_t i = 0; i < pieces.n; i++) {
		size += strlen(pieces.items[i].text) + 1;
		if (pieces.items[i].known)
			known = OOM_SHELL_UNKNOWN;
	}
	text = shell_alloc(s->sh, size);
	for (size_t i = 0, at = 0; text && i < pieces.n; i++)
		at += (size_t)snprintf(text + at, size - at, "%s%s", i ? " " : "", pieces.items[i].text);
	if (text)
		shell_push(s->sh, value, (struct oom_shell_word){text, known, s->c.line});
}

/* NAME=value where it stands; the value ends up in `words` as "NAME=value" too, unless NULL. */
bool shell_assign(struct script *s, struct words *words, bool live)
{
	const char *from = s->c.p;
	size_t name;
	bool more = false, array;
	const size_t n = shell_assignment(from, s->c.end, &name, &more);
	struct words value = {0};
	struct variable *v;

	if (!n)
		return false;
	s->c.p += n;
	array = s->c.p < s->c.end && *s->c.p == '(';
	if (array) {
		array_words(s, &value);
	} else {
		as_one_word(s, &value);
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
