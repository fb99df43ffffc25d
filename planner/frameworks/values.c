/* What values of files say beyond their text: references, placeholders, names of modules. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "parts.h"
#include "oomplan/option.h"

enum { TEXT = 1024, REFERENCES = 8 };

bool node_is_placeholder(const struct doc_node *node)
{
	const char *t = node->text;

	if (node->tag && strcmp(node->tag, ARGS_OPTION) && strcmp(node->tag, ARGS_OF_SCRIPT))
		return true;
	if (node->kind != DOC_SCALAR || !*t)
		return false;
	return strstr(t, "${") || strstr(t, "{{") || (t[0] == '$' && (isupper((unsigned char)t[1]) || t[1] == '_')) ||
	       (t[0] == '<' && t[strlen(t) - 1] == '>');
}

/* "${VAR:-word}" of shells and "${oc.env:VAR,word}" of OmegaConf name what holds without VAR. */
static const char *otherwise(const char *name)
{
	const char *at = strstr(name, ":-");

	if (at)
		return at + 2;
	at = strncmp(name, "oc.env:", 7) ? NULL : strchr(name, ',');
	return at ? at + 1 : NULL;
}

/* The maps that a node lies in, innermost first. */
struct within {
	const struct doc_node *map;
	const struct within *outer;
};

/* "a.b" from the root, else from the nearest map around that has it; OmegaConf's ".a.b" from the map that the reference stands in, "..a" from the one around that. */
static const struct doc_node *referred(const struct doc *doc, const struct within *in, const char *name)
{
	size_t dots = strspn(name, ".");

	if (!*name)
		return NULL;
	if (!dots) {
		const struct doc_node *found = doc_find(doc, name);

		/* what a job file holds of another program's settings is a root of its own (MosaicML's "parameters") */
		for (; !found && in; in = in->outer)
			found = doc_below(in->map, name);
		return found;
	}
	name += dots;
	while (--dots && in)
		in = in->outer;
	return in && *name ? doc_below(in->map, name) : NULL;
}

/* One node's references to other keys, at most REFERENCES deep. */
static void resolve(struct doc *doc, struct doc_node *node, const struct within *in, int depth)
{
	char out[TEXT], name[TEXT];
	const char *at = node->text;
	size_t used = 0;

	while (*at && used < sizeof(out) - 1) {
		const char *end = strncmp(at, "${", 2) ? NULL : strchr(at, '}');
		const struct doc_node *to;
		const char *word;
		size_t len;

		if (!end) {
			out[used++] = *at++;
			continue;
		}
		len = (size_t)(end - at) - 2;
		snprintf(name, sizeof(name), "%.*s", (int)len, at + 2);
		to = referred(doc, in, name);
		if (to && at == node->text && !end[1] && to->kind == DOC_LIST) {
			node->kind = DOC_LIST;
			node->child = to->child;
			node->n = to->n;
			return;
		}
		if (to == node || (to && to->kind != DOC_SCALAR))
			to = NULL;
		word = to ? to->text : otherwise(name);
		if (!word)
			return;
		used += (size_t)snprintf(out + used, sizeof(out) - used, "%s", word);
		at = end + 1;
	}
	if (used >= sizeof(out))
		return;
	out[used] = 0;
	if (strcmp(out, node->text)) {
		const char *copy = doc_text(doc, out, used);

		if (copy)
			node->text = copy;
		if (copy && depth < REFERENCES && strstr(copy, "${"))
			resolve(doc, node, in, depth + 1);
	}
}

static void resolve_all(struct doc *doc, struct doc_node *node, const struct within *outer)
{
	const struct within in = {node, outer};

	if (node->kind == DOC_SCALAR && strstr(node->text, "${"))
		resolve(doc, node, outer, 0);
	else
		for (struct doc_node *c = node->child; c; c = c->next)
			resolve_all(doc, c, &in);
}

void resolve_references(struct doc *doc)
{
	if (doc->root)
		resolve_all(doc, doc->root, NULL);
}

/* ---- names of modules ---- */

/* "...\.(q|k|v)_proj": the names that its last part stands for; false where it is more than that. */
static bool expand(const char *regex, char *buf, size_t size)
{
	const char *tail = regex, *open, *close, *end = regex + strlen(regex);
	size_t used = 0;
	int depth = 0;

	for (const char *p = regex; *p; p++) {
		depth += (*p == '(') - (*p == ')');
		if (!depth && *p == '.')
			tail = p + 1;
	}
	tail += strspn(tail, "*\\^");
	if (end > tail && end[-1] == '$')
		end--;
	open = memchr(tail, '(', (size_t)(end - tail));
	close = open ? memchr(open, ')', (size_t)(end - open)) : NULL;
	if (!open || !close)
		return false;
	for (const char *p = tail; p < end; p++)
		if (p != open && p != close && !isalnum((unsigned char)*p) && !strchr("_|", *p))
			return false;
	buf[0] = 0;
	for (const char *p = open + 1; p < close && used < size; p += strcspn(p, "|)") + 1)
		used += (size_t)snprintf(buf + used, size - used, "%s%.*s%.*s%.*s", used ? "+" : "",
					 (int)(open - tail), tail, (int)strcspn(p, "|)"), p,
					 (int)(end - close - 1), close + 1);
	return used < size;
}

/* Names divided by commas or blanks, joined by '+'. */
static void join(const char *text, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = 0;
	for (const char *p = text + strspn(text, ", +[]'\""); *p && used < size - 1;) {
		const size_t n = strcspn(p, ", +[]'\"");

		used += (size_t)snprintf(buf + used, size - used, "%s%.*s", used ? "+" : "", (int)n, p);
		p += n;
		p += strspn(p, ", +[]'\"");
	}
}

const char *names_of(const struct doc_node *node, char *buf, size_t size)
{
	char text[TEXT];

	if (node->kind == DOC_SCALAR) {
		snprintf(text, sizeof(text), "%s", node->text);
		if (oom_same_word(text, "all") || oom_same_word(text, "all-linear") ||
		    oom_same_word(text, "ALL")) {
			snprintf(buf, size, "all-linear");
			return buf;
		}
		if (strpbrk(text, "()|\\") && expand(text, buf, size))
			return buf;
		join(text, buf, size);
		return buf;
	}
	doc_show(node, text, sizeof(text));
	join(text, buf, size);
	if (node->n == 1 && (oom_same_word(buf, "all") || oom_same_word(buf, "all-linear")))
		snprintf(buf, size, "all-linear");
	return buf;
}

void fw_compare_by_beta(struct fw_part *p, double otherwise, const char *source)
{
	const char *beta = fw_text(p, "beta");
	const bool adapted = fw_fact_is(p, "method", "lora") || atoi(fw_fact(p, "lora-r")) > 0;

	if (!fw_fact_is(p, "objective", "grpo") || fw_fact_is(p, "engine", "megatron") || *fw_fact(p, "reference"))
		return;
	if ((*beta ? strtod(beta, NULL) : otherwise) > 0)
		fw_set(p, "reference", adapted ? "adapter" : "model", *beta ? "beta" : NULL, source);
}

void fw_take_whole_logits(struct fw_part *p, const char *source)
{
	if (!fw_fact_is(p, "objective", "grpo") && !fw_fact_is(p, "@price.objective", "grpo"))
		return;
	if (*fw_fact(p, "seq-len") && !fw_is_withheld(p, "seq-len"))
		fw_set(p, "completion-len", fw_fact(p, "seq-len"), NULL, source);
	else
		fw_open(p, "completion-len", "the update computes the logits of prompt and answer alike: give --completion-len "
			"as --seq-len");
}
