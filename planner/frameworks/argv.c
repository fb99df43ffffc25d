/* Command lines: launchers, the program, its options.
 *
 * Which words are options and which their values is argparse's business and would need each
 * program's own list; what is done here is right where an option is followed by its values, and a
 * flag by an option or by nothing. */
#include <ctype.h>
#include <string.h>

#include "launchers.h"

/* NAME=value: the length of the name, 0 where it is none. */
static size_t variable_name(const char *word)
{
	size_t n = 0;

	while (isalpha((unsigned char)word[n]) || word[n] == '_' ||
	       (n && isdigit((unsigned char)word[n])))
		n++;
	return word[n] == '=' ? n : 0;
}

/* -x, --x, not -1 and not "-" alone */
static bool is_option(const char *word)
{
	return word[0] == '-' && word[1] && !isdigit((unsigned char)word[1]) && word[1] != '.' &&
	       strspn(word, "-") <= 2 && word[strspn(word, "-")] && !isspace((unsigned char)word[1]);
}

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

bool args_is_script(const char *word)
{
	return ends_with(word, ".py") || ends_with(word, ".ipynb");
}

/* "a.b=c", "+a=c", "~a": Hydra's, OmegaConf's and torchtune's overrides; the length of the key */
static size_t override_key(const char *word, size_t *start)
{
	size_t n;

	*start = strspn(word, "+~");
	if (*start > 2 || !(isalpha((unsigned char)word[*start]) || word[*start] == '_'))
		return 0;
	for (n = *start; isalnum((unsigned char)word[n]) || (word[n] && strchr("_.-/@", word[n])); n++)
		;
	return word[n] == '=' ? n - *start : 0;
}

static struct doc_node *child_map(struct doc *doc, struct doc_node *root, const char *key)
{
	for (struct doc_node *c = root->child; c; c = c->next)
		if (!strcmp(c->key, key))
			return c;
	return doc_add(doc, root, key, DOC_MAP, 0, 0);
}

struct reader {
	struct doc *doc;
	struct doc_node *root;
	const struct args_word *w;
	size_t n, at, options;
	bool full;
};

static void add_word(struct reader *r, struct doc_node *to, const char *key,
		     const struct args_word *w, const char *text)
{
	struct doc_node *node = doc_add_value(r->doc, to, key, text, w->line);

	if (!node)
		r->full = true;
	else if (w->unknown)
		node->tag = ARGS_UNKNOWN;
}

static void add_variable(struct reader *r, const struct args_word *w, size_t name)
{
	struct doc_node *env = child_map(r->doc, r->root, ARGS_LAUNCHER);
	const char *key = doc_text(r->doc, w->text, name + 1);

	if (!env || !key)
		r->full = true;
	else
		add_word(r, env, key, w, w->text + name + 1);
}

/* How many values follow an option: up to the next option or override. */
static size_t values_at(const struct reader *r, size_t at, bool launcher)
{
	size_t n = 0, start;

	while (at + n < r->n && !is_option(r->w[at + n].text)) {
		const char *word = r->w[at + n].text;

		if (n && override_key(word, &start))
			break;
		/* "--dataset NAME $MORE_OPTIONS": what stands in there is no value of this one */
		if (n && r->w[at + n].unknown && *word == '$')
			break;
		if (launcher && (n || args_is_script(word) ||
				 launcher_at(r->w + at + n, r->n - at - n)))
			break;
		n++;
	}
	return n;
}

static void add_option(struct reader *r, struct doc_node *to, bool launcher)
{
	const struct args_word *w = &r->w[r->at++];
	const char *name = w->text + strspn(w->text, "-"), *equals = strchr(name, '=');
	const char *key = doc_text(r->doc, name, equals ? (size_t)(equals - name) : strlen(name));
	size_t n;

	r->options++;
	if (!key || !to) {
		r->full = true;
		return;
	}
	if (equals) {
		add_word(r, to, key, w, equals + 1);
		return;
	}
	n = values_at(r, r->at, launcher);
	if (n == 0) {
		struct doc_node *flag = doc_add_text(r->doc, to, key, "true", w->line, 0);

		r->full |= !flag;
	} else if (n == 1) {
		add_word(r, to, key, &r->w[r->at], r->w[r->at].text);
	} else {
		struct doc_node *list = doc_add(r->doc, to, key, DOC_LIST, w->line, 0);

		r->full |= !list;
		for (size_t i = 0; list && i < n && !r->full; i++)
			add_word(r, list, NULL, &r->w[r->at + i], r->w[r->at + i].text);
	}
	r->at += n;
}

/* The program's own words. */
static void read_program(struct reader *r)
{
	while (r->at < r->n && !r->full) {
		const struct args_word *w = &r->w[r->at];
		size_t start, n;

		if (is_option(w->text)) {
			add_option(r, r->root, false);
		} else if ((n = override_key(w->text, &start)) != 0) {
			const char *key = doc_text(r->doc, w->text + start, n);

			r->options++;
			r->at++;
			if (key)
				add_word(r, r->root, key, w, w->text + start + n + 1);
			r->full |= !key;
		} else {
			struct doc_node *words = NULL;

			for (struct doc_node *c = r->root->child; c; c = c->next)
				words = !strcmp(c->key, ARGS_WORDS) ? c : words;
			words = words ? words
				      : doc_add(r->doc, r->root, ARGS_WORDS, DOC_LIST, w->line, 0);
			r->at++;
			if (words && strcmp(w->text, "--"))
				add_word(r, words, NULL, w, w->text);
			r->full |= !words;
		}
	}
}

static void set_program(struct reader *r, const struct launcher *l)
{
	const struct args_word *w = &r->w[r->at];
	char text[200];

	if (r->at == r->n)
		return;
	if (l && l->second) {
		strcpy(text, l->word);
		strcat(text, " ");
		strcat(text, l->second);
	}
	r->full |= !doc_add_text(r->doc, r->root, ARGS_PROGRAM, l && l->second ? text : w->text,
				 w->line, 0);
	r->at += l && l->second ? 2 : 1;
}

/* python -u script.py, python -m module: true where the module is a launcher itself */
static bool read_interpreter(struct reader *r)
{
	r->at++;
	while (r->at < r->n && is_option(r->w[r->at].text)) {
		const bool module = !strcmp(r->w[r->at].text, "-m");

		/* options with a value: -W, -X */
		r->at += !strcmp(r->w[r->at].text, "-W") || !strcmp(r->w[r->at].text, "-X") ? 2 : 1;
		if (module)
			break;
	}
	if (r->at > r->n)
		r->at = r->n;
	return r->at < r->n && launcher_at(r->w + r->at, r->n - r->at);
}

static void read_launcher(struct reader *r, const struct launcher *l)
{
	struct doc_node *map = child_map(r->doc, r->root, ARGS_LAUNCHER);

	if (!map) {
		r->full = true;
		return;
	}
	r->full |= !doc_add_text(r->doc, map, "name", l->word, r->w[r->at].line, 0);
	r->at += l->second ? 2 : 1;
	while (r->at < r->n && !r->full) {
		const char *word = r->w[r->at].text;

		if (!strcmp(word, "--")) {
			r->at++;
			break;
		}
		if (!strcmp(word, "-m") || !strcmp(word, "--module")) {
			r->at++;
			break;
		}
		if (!is_option(word))
			break;
		add_option(r, map, true);
	}
}

/* Options and their values of something that only runs the rest. */
static void skip_wrapper(struct reader *r, const struct launcher *l)
{
	r->at += l->second ? 2 : 1;
	while (r->at < r->n) {
		const struct launcher *next = launcher_at(r->w + r->at, r->n - r->at);

		if ((next && next->kind != WRAPPER) || args_is_script(r->w[r->at].text) ||
		    variable_name(r->w[r->at].text) || (next && next != l))
			return;
		r->at++;
	}
}

bool args_command(struct doc *doc, struct doc_node *root, const struct args_word *words, size_t n,
		  size_t *n_options)
{
	struct reader r = {.doc = doc, .root = root, .w = words, .n = n};
	const struct launcher *l = NULL;
	bool named = false;

	while (r.at < n && !r.full) {
		const size_t name = variable_name(words[r.at].text);

		l = launcher_at(words + r.at, n - r.at);
		if (name && !l) {
			add_variable(&r, &words[r.at++], name);
		} else if (!l || l->kind == PROGRAM) {
			/* options without a program: a list of arguments */
			named = !is_option(words[r.at].text);
			break;
		} else if (l->kind == INTERPRETER) {
			if (!read_interpreter(&r)) {
				l = NULL;
				named = true;
				break;
			}
		} else if (l->kind == LAUNCHER) {
			read_launcher(&r, l);
		} else {
			skip_wrapper(&r, l);
		}
	}
	if (named && !r.full)
		set_program(&r, l && l->kind == PROGRAM ? l : NULL);
	read_program(&r);
	if (n_options)
		*n_options = r.options;
	return !r.full;
}

enum oom_status doc_read_words(struct doc *doc, const struct args_word *words, size_t n,
			       const char *file, struct oom_error *err)
{
	enum oom_status st = doc_begin(doc, file, ARGS_FORMAT, err);
	struct doc_node *root = st ? NULL : doc_add(doc, NULL, NULL, DOC_MAP, 1, 1);

	if (!st && (!root || !args_command(doc, root, words, n, NULL)))
		st = doc_full(doc, n ? words[n - 1].line : 0, err);
	if (st)
		doc_release(doc);
	return st;
}
