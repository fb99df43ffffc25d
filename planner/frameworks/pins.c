/* Versions that a script installs beside its launch line: "pip install transformers==4.45.2".  An
 * exact version counts alone; a range is none. */
#include <ctype.h>
#include <string.h>

#include "arguments.h"
#include "framework.h"

enum { LINE_WORDS = 64, BEFORE_PIP = 8 };

/* "pip", "pip3.11", "/opt/env/bin/pip" */
static bool is_pip(const char *word)
{
	const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;

	return !strncmp(name, "pip", 3) && strspn(name + 3, ".0123456789") == strlen(name + 3);
}

/* The first word behind "pip install"; n: it is none. */
static size_t behind_install(const struct args_word *w, size_t n)
{
	for (size_t i = 0; i + 1 < n && i < BEFORE_PIP; i++)
		if (is_pip(w[i].text) && !strcmp(w[i + 1].text, "install"))
			return i + 2;
	return n;
}

bool args_installs(const struct args_word *w, size_t n)
{
	return behind_install(w, n) < n;
}

/* "NAME[extra]==VERSION+build; marker": NAME== and VERSION (packaging.python.org, version
 * specifiers).  Without a version: true. */
static bool add_pin(struct doc *doc, struct doc_node *pins, const struct args_word *w)
{
	const char *sign = strstr(w->text, "=="), *from = sign ? sign + 2 : NULL;
	const size_t name = strcspn(w->text, "[=<>!~;, ");
	char key[64] = "";
	const char *value;
	struct doc_node *node;
	size_t n;

	if (!sign || !name || name + 3 > sizeof(key) || strpbrk(w->text, "<>!~,"))
		return true;
	for (size_t i = 0; i < name; i++)
		key[i] = w->text[i] == '_' ? '-' : (char)tolower((unsigned char)w->text[i]);
	memcpy(key + name, "==", 3);
	from += *from == '=';
	from += strspn(from, " ");
	n = strcspn(from, "+; ");
	if (n > 2 && !strncmp(from + n - 2, ".*", 2))
		n -= 2;
	value = doc_text(doc, from, n);
	for (struct doc_node *c = pins->child; value && c; c = c->next)
		if (!strcmp(c->key, key)) {
			c->text = value;        /* the last one installed is what is there */
			c->line = w->line;
			c->tag = w->unknown ? ARGS_UNKNOWN : NULL;
			return true;
		}
	node = value ? doc_add_text(doc, pins, doc_text(doc, key, strlen(key)), value, w->line, 0) : NULL;
	if (node)
		node->tag = w->unknown ? ARGS_UNKNOWN : NULL;
	return node != NULL;
}

bool args_pins(struct doc *doc, struct doc_node *root, const struct args_word *w, size_t n)
{
	struct doc_node *pins = NULL;

	for (size_t i = behind_install(w, n); i < n; i++) {
		if (!strstr(w[i].text, "=="))
			continue;
		for (struct doc_node *c = pins ? NULL : root->child; c; c = c->next)
			if (!strcmp(c->key, ARGS_PINS))
				pins = c;
		pins = pins ? pins : doc_add(doc, root, ARGS_PINS, DOC_MAP, w[i].line, 0);
		if (!pins || !add_pin(doc, pins, &w[i]))
			return false;
	}
	return true;
}

bool args_pins_of_line(struct doc *doc, struct doc_node *root, const char *text, size_t size,
		       uint32_t line)
{
	struct args_word words[LINE_WORDS];
	size_t n = 0;

	for (const char *p = text, *end = text + size; p < end && n < LINE_WORDS;) {
		const char *from = p, *word;
		size_t len;

		while (p < end && *p != ' ' && *p != '\t')
			p++;
		len = (size_t)(p - from);
		while (len && (*from == '"' || *from == '\'')) {
			from++;
			len--;
		}
		while (len && (from[len - 1] == '"' || from[len - 1] == '\'' || from[len - 1] == '\r'))
			len--;
		p += p < end;
		if (!len)
			continue;
		word = doc_text(doc, from, len);
		if (!word)
			return false;
		words[n++] = (struct args_word){word, strchr(word, '{') || strchr(word, '$'), line};
	}
	return args_pins(doc, root, words, n);
}

#define PIN(package, knob) FW_KEY(package "==", knob, NULL, NULL, "pip install")

static const struct fw_row rows[] = {
	PIN("transformers", "transformers"),
	PIN("torch", "torch"),
	PIN("bitsandbytes", "bitsandbytes"),
	PIN("peft", "peft"),
	PIN("deepspeed", "deepspeed"),
	PIN("accelerate", "accelerate"),
	{.key = NULL},
};
static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {"*", NULL};

const struct framework framework_pins = {
	.name = "pip",
	.summary = "exact versions of pip install lines",
	.version = "pip",
	.role = FW_LAUNCHER,
	.marks = "(no file)",
	.rows = lists,
	.idle = idles,
};
