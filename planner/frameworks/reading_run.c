/* All files of a run together, and what callers ask of them. */
#include <stdlib.h>
#include <string.h>

#include "oomplan/option.h"
#include "arguments.h"
#include "parts.h"

#define COMMAND_LINE "command line"

/* What a file withholds no default of any other may say. */
static void merge_withheld(struct fw_part *all, const struct fw_part *p)
{
	for (size_t i = 0; i < p->n_withheld; i++)
		fw_withhold(all, p->withheld[i]);
}

/* One part's facts below those of parts before it; what a file says is above any default. */
static void merge(struct fw_part *all, const struct fw_part *p)
{
	merge_withheld(all, p);
	for (size_t i = 0; i < p->n_facts; i++) {
		const struct fact *f = &p->facts[i];
		struct fact *have = part_fact(all, f->knob);

		if (!have && all->n_facts < FW_MAX_FACTS) {
			all->facts[all->n_facts++] = *f;
		} else if (have && f->from_file && !have->from_file) {
			*have = *f;
		} else if (have && f->from_file && strcmp(have->value, f->value) &&
			   f->setting != NO_SETTING && *f->knob != '@') {
			struct oom_setting *s = &all->reading->settings[f->setting];

			s->note = reading_text(all->reading, "%s%s%s is taken instead", have->key,
					       *have->key ? ": " : "", have->value);
		}
	}
}

/* A default stands for a key that is absent, not for one that is there and says nothing ("${BATCH}"). */
static void drop_withheld(struct fw_part *all)
{
	for (size_t i = 0; i < all->n_withheld; i++)
		if (part_fact(all, all->withheld[i]) && !fw_fact_from_file(all, all->withheld[i]))
			fw_unset(all, all->withheld[i]);
}

static size_t place_of(const char *knob)
{
	static const char *const first[] = {"model", "objective", "method", NULL};
	size_t i;

	for (i = 0; first[i]; i++)
		if (!strcmp(first[i], knob))
			return i;
	for (size_t k = 0; oom_knob_at(k); k++)
		if (!strcmp(oom_knob_at(k)->name, knob))
			return i + k;
	return SIZE_MAX;
}

static int by_place(const void *a, const void *b)
{
	const struct oom_reading_knob *x = a, *y = b;
	const size_t i = place_of(x->name), j = place_of(y->name);

	return i == j ? strcmp(x->name, y->name) : (i > j) - (i < j);
}

/* A default that counts is an entry of its own. */
static void add_default(struct oom_reading *r, struct fact *f)
{
	const struct oom_setting s = {.key = f->key, .value = "", .knob = f->knob,
				      .knob_value = f->value, .file = "", .source = f->source,
				      .note = f->why, .kind = OOM_SETTING_DEFAULT};

	if (!f->from_file && f->setting == NO_SETTING)
		f->setting = reading_add(r, &s);
}

static void list_knobs(struct oom_reading *r)
{
	struct fw_part *all = r->all;

	r->knobs = calloc(all->n_facts + 1, sizeof(*r->knobs));
	if (!r->knobs) {
		r->out_of_memory = true;
		return;
	}
	for (size_t i = 0; i < all->n_facts; i++)
		if (*all->facts[i].knob != '@')
			add_default(r, &all->facts[i]);
	for (size_t i = 0; i < all->n_facts; i++) {
		const struct fact *f = &all->facts[i];

		if (*f->knob != '@')
			r->knobs[r->n_knobs++] = (struct oom_reading_knob){
				.name = f->knob, .value = f->value, .from_file = f->from_file,
				.from = f->setting == NO_SETTING ? NULL : &r->settings[f->setting],
				.open = f->open, .why = f->why};
	}
	qsort(r->knobs, r->n_knobs, sizeof(*r->knobs), by_place);
}

/* All parts are read: what follows from them together. */
static enum oom_status conclude(struct oom_reading *r, struct oom_error *err)
{
	r->all = calloc(1, sizeof(*r->all));
	if (!r->all)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of memory");
	r->all->reading = r;
	r->all->file = r->all->prefix = "";
	for (int role = FW_TRAINER; role <= FW_ENGINE; role++)
		for (size_t i = 0; i < r->n_parts; i++)
			if (r->parts[i]->fw->role == (enum fw_role)role)
				merge(r->all, r->parts[i]);
	drop_withheld(r->all);
	r->all->first_setting = r->n_settings;
	reading_settle(r);
	list_knobs(r);
	return r->out_of_memory ? oom_error_set(err, OOM_ERR_MEMORY, "out of memory") : OOM_OK;
}

static enum oom_status hand_out(struct oom_reading *r, struct oom_reading **out, enum oom_status st,
				struct oom_error *err)
{
	if (!st)
		st = conclude(r, err);
	if (st)
		oom_reading_free(r);
	else
		*out = r;
	return st;
}

/* A command line as one part more: COMMAND_LINE stands where a file's name would. */
static enum oom_status read_command(struct oom_reading *r, const char *const *words, size_t n,
				    const char *framework, struct oom_error *err)
{
	struct fw_part *p = r->n_parts < FW_MAX_PARTS ? part_new(r) : NULL;
	struct args_word *w = p ? calloc(n, sizeof(*w)) : NULL;
	enum oom_status st;

	if (!w)
		return p || r->out_of_memory ? oom_error_set(err, OOM_ERR_MEMORY, "out of memory") :
					       part_too_many(COMMAND_LINE, err);
	for (size_t i = 0; i < n; i++)
		w[i] = (struct args_word){.text = words[i], .line = 1};
	st = n == 1 && strchr(words[0], ' ') ?
		     doc_read_shell(&p->doc, words[0], strlen(words[0]), COMMAND_LINE, err) :
		     doc_read_words(&p->doc, w, n, COMMAND_LINE, err);
	free(w);
	if (!st)
		st = part_recognise(p, framework, &p, err);
	if (!st)
		part_run(p);
	return st;
}

enum oom_status oom_reading_new(struct oom_reading **out, const char *const *files, size_t n,
				const char *framework, struct oom_error *err)
{
	return oom_reading_of_run(out, files, n, NULL, 0, framework, err);
}

enum oom_status oom_reading_of_run(struct oom_reading **out, const char *const *files, size_t n,
				   const char *const *words, size_t n_words, const char *framework,
				   struct oom_error *err)
{
	return oom_reading_of_dated(out, files, n, words, n_words, framework, NULL, err);
}

enum oom_status oom_reading_of_dated(struct oom_reading **out, const char *const *files, size_t n,
				     const char *const *words, size_t n_words, const char *framework,
				     const struct oom_plan *versions, struct oom_error *err)
{
	struct oom_reading *r = calloc(1, sizeof(*r));
	enum oom_status st = r ? doc_begin(&r->texts, "reading", "", err) :
				 oom_error_set(err, OOM_ERR_MEMORY, "out of memory");
	struct fw_part *p;

	if (r && versions) {
		r->transformers = versions->transformers;
		r->torch = versions->torch;
		r->gpus = versions->gpus;
		r->other_engine = versions->engine != oom_plan_default().engine;
	}
	for (size_t i = 0; !st && i < n; i++) {
		st = part_read(r, files[i], framework, &p, err);
		if (!st)
			part_run(p);
	}
	if (!st && n_words)
		st = read_command(r, words, n_words, framework, err);
	return hand_out(r, out, st, err);
}

/* One text as one part more. */
static enum oom_status read_text(struct oom_reading *r, const struct oom_reading_text *t, const char *framework, struct oom_error *err)
{
	struct fw_part *p = r->n_parts < FW_MAX_PARTS ? part_new(r) : NULL;
	enum oom_status st;

	if (!p)
		return r->out_of_memory ? oom_error_set(err, OOM_ERR_MEMORY, "out of memory") : part_too_many(t->name, err);
	st = doc_read_text(&p->doc, t->text, t->size, t->name, err);
	if (!st)
		st = part_recognise(p, framework, &p, err);
	if (!st)
		part_run(p);
	return st;
}

enum oom_status oom_reading_of_texts(struct oom_reading **out, const struct oom_reading_text *texts, size_t n, const char *framework,
				     struct oom_error *err)
{
	struct oom_reading *r = calloc(1, sizeof(*r));
	enum oom_status st = r ? doc_begin(&r->texts, "reading", "", err) :
				 oom_error_set(err, OOM_ERR_MEMORY, "out of memory");

	for (size_t i = 0; !st && i < n; i++)
		st = read_text(r, &texts[i], framework, err);
	return hand_out(r, out, st, err);
}

enum oom_status oom_reading_of_text(struct oom_reading **out, const char *name, const char *text,
				    size_t size, const char *framework, struct oom_error *err)
{
	const struct oom_reading_text one = {.name = name, .text = text, .size = size};

	return oom_reading_of_texts(out, &one, 1, framework, err);
}

void oom_reading_free(struct oom_reading *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n_parts; i++) {
		doc_release(&r->parts[i]->doc);
		free(r->parts[i]);
	}
	doc_release(&r->texts);
	free(r->settings);
	free(r->knobs);
	free(r->all);
	free(r);
}

const struct oom_setting *oom_reading_setting(const struct oom_reading *r, size_t i)
{
	return i < r->n_settings ? &r->settings[i] : NULL;
}

const struct oom_reading_knob *oom_reading_knob_at(const struct oom_reading *r, size_t i)
{
	return i < r->n_knobs ? &r->knobs[i] : NULL;
}

const char *oom_reading_value(const struct oom_reading *r, const char *knob)
{
	for (size_t i = 0; i < r->n_knobs; i++)
		if (oom_same_word(r->knobs[i].name, knob))
			return r->knobs[i].value;
	return NULL;
}

const char *oom_reading_file(const struct oom_reading *r, size_t i, const char **framework)
{
	if (i >= r->n_parts)
		return NULL;
	if (framework)
		*framework = r->parts[i]->fw->name;
	return r->parts[i]->file;
}

const char *oom_reading_framework(const struct oom_reading *r)
{
	for (size_t i = 0; i < r->n_parts; i++)
		if (r->parts[i]->fw->role == FW_TRAINER)
			return r->parts[i]->fw->name;
	return NULL;
}

const struct oom_setting *oom_reading_key_of(const struct oom_reading *r, const char *knob)
{
	for (size_t i = 0; i < r->n_knobs; i++)
		if (oom_same_word(r->knobs[i].name, knob) && r->knobs[i].from &&
		    r->knobs[i].from_file)
			return r->knobs[i].from;
	return NULL;
}
