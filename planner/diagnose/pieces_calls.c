/* Calls of a training script among what people paste, put together as the script that they are of: from_pretrained(),
 * TrainingArguments(), LoraConfig(), and the names that stand for their values. */
#include <ctype.h>
#include <string.h>

#include "parts.h"
#include "pieces.h"

static const char *skip(const char *p, const char *to)
{
	while (p < to && (*p == ' ' || *p == '\t'))
		p++;
	return p;
}

/* What a call that the readers know ends in. */
static const char *const marks[] = {"from_pretrained(", "Arguments(", "Config(", "Trainer(", "get_peft_model(", "prepare_model_for_kbit_training(", "gradient_checkpointing_enable("};

/* Where the call's arguments begin; NULL: the line begins no such call. */
static const char *call(const struct oom_lines *l)
{
	const char *const p = skip(l->from, l->to);
	const char *first = NULL;

	/* "def", "class", "return", "import" are somebody else's code, and frames are what ran */
	if (p == l->to || !(isalpha((unsigned char)*p) || *p == '_'))
		return NULL;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const char *const at = oom_text_find(p, l->to, marks[i]);

		if (at && (!first || at < first))
			first = at + strlen(marks[i]) - 1;
	}
	for (const char *q = p; first && q < first; q++)
		if (!isalnum((unsigned char)*q) && !strchr("_., =", *q))
			return NULL;
	for (const char *const *w = (const char *const[]){"def ", "class ", "return ", "import ", "from ", "if ", "with ", NULL}; first && *w; w++)
		if ((size_t)(l->to - p) > strlen(*w) && !memcmp(p, *w, strlen(*w)))
			return NULL;
	return first;
}

/* Behind the bracket that closes the one at p; NULL: none does. */
static const char *closing(const char *p, const char *end)
{
	int depth = 0;
	char quote = 0;

	for (; p < end; p++) {
		if (quote) {
			p += *p == '\\';
			quote = p < end && *p == quote ? 0 : quote;
		} else if (*p == '"' || *p == '\'') {
			quote = *p;
		} else if (*p == '#') {
			while (p < end && *p != '\n')
				p++;
		} else if (strchr("([{", *p)) {
			depth++;
		} else if (strchr(")]}", *p) && !--depth) {
			return p + 1;
		}
	}
	return NULL;
}

/* name = "text", name = 4 */
static bool is_constant(const struct oom_lines *l)
{
	const char *p = skip(l->from, l->to);

	if (p == l->to || !(isalpha((unsigned char)*p) || *p == '_'))
		return false;
	while (p < l->to && (isalnum((unsigned char)*p) || *p == '_'))
		p++;
	p = skip(p, l->to);
	if (p + 1 >= l->to || *p != '=' || p[1] == '=')
		return false;
	p = skip(p + 1, l->to);
	return p < l->to && (strchr("\"'", *p) || isdigit((unsigned char)*p)) && l->to[-1] != ',' && l->to[-1] != '(';
}

/* A frame's line of code: the one above it names a file. */
static bool in_frame(const struct oom_cut *c, size_t i)
{
	return i > 0 && oom_text_find(c->line[i - 1].from, c->line[i - 1].to, ", line ") != NULL;
}

void oom_cut_calls(struct oom_cut *c)
{
	const char *const end = c->n ? c->line[c->n - 1].to : NULL;
	size_t first = c->n, last = 0;

	for (size_t i = 0; i < c->n; i++) {
		const char *const open = in_frame(c, i) ? NULL : call(&c->line[i]);
		const char *const close = open ? closing(open, end) : NULL;

		if (close && close - open < 6000) {
			first = first < i ? first : i;
			oom_cut_put(c, skip(c->line[i].from, c->line[i].to), oom_line_end(close, end));
			while (i + 1 < c->n && c->line[i].to < close)
				i++;
			last = i;
		} else if (!open && is_constant(&c->line[i])) {
			oom_cut_put(c, skip(c->line[i].from, c->line[i].to), c->line[i].to);
		}
	}
	if (first < c->n)
		oom_cut_hand(c, "run.py", first, last);
	c->used = 0;
}
