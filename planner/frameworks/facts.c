/* What finish hooks see and set. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "parts.h"
#include "oomplan/option.h"

const char *reading_text(struct oom_reading *r, const char *fmt, ...)
{
	char buf[1024];
	const char *copy;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	copy = doc_text(&r->texts, buf, strlen(buf));
	r->out_of_memory |= !copy;
	return copy ? copy : "";
}

size_t reading_add(struct oom_reading *r, const struct oom_setting *s)
{
	if (r->n_settings == r->capacity) {
		const size_t capacity = r->capacity ? 2 * r->capacity : 128;
		struct oom_setting *grown = realloc(r->settings, capacity * sizeof(*grown));

		if (!grown) {
			r->out_of_memory = true;
			return NO_SETTING;
		}
		r->settings = grown;
		r->capacity = capacity;
	}
	r->settings[r->n_settings] = *s;
	return r->n_settings++;
}

struct fact *part_fact(const struct fw_part *p, const char *knob)
{
	for (size_t i = 0; i < p->n_facts; i++)
		if (!strcmp(p->facts[i].knob, knob))
			return (struct fact *)(uintptr_t)&p->facts[i];
	return NULL;
}

const struct doc *fw_doc(const struct fw_part *p)
{
	return &p->doc;
}

const struct doc_node *fw_root(const struct fw_part *p)
{
	return p->root;
}

const char *fw_head(const struct fw_part *p)
{
	return p->doc.head ? p->doc.head : "";
}

const struct doc_node *fw_key(const struct fw_part *p, const char *key)
{
	const struct doc_node *node = p->command ? doc_below(p->command->root, key) : NULL;

	if (!node)
		node = doc_below(p->root, key);
	return !node || doc_is_null(node) || node_is_placeholder(node) ? NULL : node;
}

bool fw_script_read(const struct fw_part *p)
{
	return p->script;
}

int64_t fw_whole_or(const struct fw_part *p, const char *key, int64_t otherwise)
{
	int64_t n;

	return doc_whole(fw_key(p, key), &n) && n > 0 && n < 100000000 ? n : otherwise;
}

bool fw_on(const struct fw_part *p, const char *key)
{
	return doc_is_true(fw_key(p, key));
}

bool fw_off(const struct fw_part *p, const char *key)
{
	const struct doc_node *node = fw_key(p, key);

	return node && node->kind == DOC_SCALAR && doc_is_off(node);
}

const char *fw_text(const struct fw_part *p, const char *key)
{
	const struct doc_node *node = fw_key(p, key);

	return node ? node->text : "";
}

const char *fw_fact(const struct fw_part *p, const char *knob)
{
	const struct fact *f = part_fact(p, knob);

	return f ? f->value : "";
}

bool fw_fact_is(const struct fw_part *p, const char *knob, const char *value)
{
	return !strcmp(fw_fact(p, knob), value);
}

bool fw_fact_from_file(const struct fw_part *p, const char *knob)
{
	const struct fact *f = part_fact(p, knob);

	return f && f->from_file;
}

/* The entry of a key of this part. */
static struct oom_setting *setting_of(const struct fw_part *p, const char *key)
{
	struct oom_reading *r = p->reading;

	for (size_t i = r->n_settings; key && i-- > p->first_setting;)
		/* -n and -N are two options */
		if (r->settings[i].file == p->file && (key[0] && !key[1] ? !strcmp(r->settings[i].key, key) :
		    oom_same_word(r->settings[i].key + strlen(p->prefix), key)))
			return &r->settings[i];
	return NULL;
}

static struct fact *make(struct fw_part *p, const char *knob)
{
	struct fact *f = part_fact(p, knob);

	if (f || p->n_facts == FW_MAX_FACTS)
		return f;
	f = &p->facts[p->n_facts++];
	*f = (struct fact){.knob = reading_text(p->reading, "%s", knob)};
	return f;
}

void fw_withhold(struct fw_part *p, const char *knob)
{
	if (p->n_withheld < FW_MAX_WITHHELD)
		p->withheld[p->n_withheld++] = knob;
}

bool fw_is_withheld(const struct fw_part *p, const char *knob)
{
	for (size_t i = 0; i < p->n_withheld; i++)
		if (!strcmp(p->withheld[i], knob))
			return true;
	return false;
}

void fw_set(struct fw_part *p, const char *knob, const char *value, const char *key,
	    const char *source)
{
	struct oom_setting *s = setting_of(p, key);
	const struct doc_node *node = key ? fw_key(p, key) : NULL;
	const char *tag = node ? node->tag : NULL;
	const bool said = node;
	struct fact *f = !said && fw_is_withheld(p, knob) ? NULL : make(p, knob);

	if (!f)
		return;
	*f = (struct fact){.knob = f->knob,
			   .value = reading_text(p->reading, "%s", value),
			   .setting = s ? (size_t)(s - p->reading->settings) : NO_SETTING,
			   .from_file = said,
			   .open = said && tag && !strcmp(tag, ARGS_OPTION),
			   .key = key ? reading_text(p->reading, "%s", key) : "",
			   .source = source ? reading_text(p->reading, "%s", source) : "",
			   .why = ""};
	if (f->open)
		f->why = "the default of an option of the script itself: its command line may say otherwise";
	if (!s || *knob == '@')
		return;
	if (!*s->knob) {
		s->knob = f->knob;
		s->knob_value = f->value;
	} else if (strcmp(s->knob, knob)) {
		if (!strstr(s->knob, knob))
			s->knob = reading_text(p->reading, "%s %s", s->knob, knob);
	} else {
		s->knob_value = f->value;
	}
	if (source && !*s->source)
		s->source = f->source;
	if (s->kind == OOM_SETTING_IDLE)
		s->kind = OOM_SETTING_USED;
}

void fw_set_whole(struct fw_part *p, const char *knob, int64_t value, const char *key,
		  const char *source)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)value);
	fw_set(p, knob, text, key, source);
}

void fw_default(struct fw_part *p, const char *knob, const char *value, const char *source)
{
	if (!part_fact(p, knob))
		fw_set(p, knob, value, NULL, source);
}

void fw_unset(struct fw_part *p, const char *knob)
{
	struct fact *f = part_fact(p, knob);

	if (f)
		*f = p->facts[--p->n_facts];
}

void fw_open(struct fw_part *p, const char *knob, const char *why)
{
	struct fact *f = part_fact(p, knob);

	/* what decides it may come later or stand in another file: told all the same */
	if (!f) {
		fw_set(p, reading_text(p->reading, FW_OPEN_PREFIX "%s", knob), "", NULL, NULL);
		f = part_fact(p, reading_text(p->reading, FW_OPEN_PREFIX "%s", knob));
	}
	if (f) {
		f->open = true;
		f->why = reading_text(p->reading, "%s", why);
	}
}

void fw_unmodelled(struct fw_part *p, const char *key, const char *note)
{
	struct oom_setting *s = setting_of(p, key);

	if (!s)
		return;
	s->kind = OOM_SETTING_UNMODELLED;
	s->note = reading_text(p->reading, "%s", note);
}

void fw_answered(struct fw_part *p, const char *key)
{
	struct oom_setting *s = setting_of(p, key);

	if (s && s->kind == OOM_SETTING_UNREADABLE) {
		s->kind = OOM_SETTING_USED;
		s->note = NULL;
	}
}

void fw_note(struct fw_part *p, const char *key, const char *note)
{
	struct oom_setting *s = setting_of(p, key);

	if (s)
		s->note = reading_text(p->reading, "%s", note);
}
