/* What follows from the versions that files name, and from keys that only older versions took. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/option.h"
#include "arguments.h"
#include "parts.h"

/* "4.35.2": OOM_VERSION(4, 35). */
static long release_of(const char *version)
{
	char *dot;
	const long major = strtol(version, &dot, 10);

	return major * 1000 + (*dot == '.' ? strtol(dot + 1, NULL, 10) : 0);
}

/* The release of transformers that is known; 0: none is. */
static long transformers_of(const struct oom_reading *r)
{
	const struct fact *version = part_fact(r->all, "transformers");

	return r->transformers ? (long)r->transformers : version ? release_of(version->value) : 0;
}

bool fw_older(const struct fw_part *p, const char *library, int major, int minor)
{
	const long known = strcmp(library, "torch") ? (long)p->reading->transformers : (long)p->reading->torch;
	const struct doc_node *pins = doc_below(fw_root(p), ARGS_PINS);
	char key[40];

	if (known)
		return known < OOM_VERSION(major, minor);
	snprintf(key, sizeof(key), "%s==", library);
	for (const struct doc_node *c = pins ? pins->child : NULL; c; c = c->next)
		if (!strcmp(c->key, key) && c->text && !c->tag)
			return release_of(c->text) < OOM_VERSION(major, minor);
	return false;
}

/* Before 4.36 transformers wrote attention out unless it was asked for flash_attn (modeling_utils.py
 * _autoset_attn_implementation is new in 4.36). */
static void settle_attention(struct oom_reading *r)
{
	const struct fact *attn = part_fact(r->all, "attn");
	const long release = transformers_of(r);
	bool takes_models = false;

	for (size_t i = 0; i < r->n_parts; i++)
		for (const struct fw_row *const *list = r->parts[i]->fw->rows; *list; list++)
			takes_models |= *list == hf_model_rows;
	if (takes_models && release && release < OOM_VERSION(4, 36) && attn && !attn->from_file && !strcmp(attn->value, "sdpa"))
		fw_set(r->all, "attn", "eager", NULL, "transformers before 4.36 has no SDPA");
}

/* The key of the files that transformers took longest ago; NULL: all are today's. */
static const struct fw_row *oldest_key(const struct oom_reading *r)
{
	const struct fw_row *found = NULL;

	for (size_t i = 0; i < r->n_settings; i++)
		for (size_t k = 0; k < r->n_parts && r->settings[i].kind != OOM_SETTING_DEFAULT; k++) {
			const struct oom_setting *s = &r->settings[i];
			const size_t n = strlen(r->parts[k]->prefix);
			const struct fw_row *row;
			bool idle;

			if (strcmp(r->parts[k]->file, s->file) || strncmp(s->key, r->parts[k]->prefix, n))
				continue;
			row = framework_row(r->parts[k]->fw, s->key + n, &idle);
			if (row && row->gone && (!found || release_of(row->gone) < release_of(found->gone)))
				found = row;
		}
	return found;
}

/* A key that is gone proves an old version; which one nobody says, and attention and losses were others then
 * (models/plan/generations.c; SDPA where nothing is said since transformers 4.36, modeling_utils.py
 * _autoset_attn_implementation). */
static void settle_undated(struct oom_reading *r)
{
	static const char *const knobs[] = {"attn", "loss"};
	const struct fw_row *old = transformers_of(r) ? NULL : oldest_key(r);

	for (size_t i = 0; old && i < sizeof(knobs) / sizeof(knobs[0]); i++) {
		const struct fact *f = part_fact(r->all, knobs[i]);

		if (!f || f->from_file || f->open)
			continue;
		fw_open(r->all, knobs[i],
			reading_text(r, "%s dates the files before transformers %s, and today's %s is priced: give --transformers; "
				     "before 4.36 attention was written out (--attn eager)", old->key, old->gone, knobs[i]));
		return;
	}
}

/* transformers' own AdamW, which steps tensor by tensor: its name, and what its Trainer took where nobody asked before
 * 4.32 (huggingface/transformers#25109). */
static void settle_own_adam(struct oom_reading *r)
{
	const struct fact *optimizer = part_fact(r->all, "optimizer");
	const size_t setting = optimizer ? optimizer->setting : NO_SETTING;
	const long release = transformers_of(r);
	const bool older = release && release < 4032;
	bool named, trainer = false;
	struct fact *f;

	for (size_t i = 0; i < r->n_parts; i++)
		for (const struct fw_row *const *list = r->parts[i]->fw->rows; *list; list++)
			trainer |= *list == hf_training_rows;
	if (!trainer || !optimizer || (strcmp(optimizer->value, "adamw") && strcmp(optimizer->value, "adamw-fused")))
		return;
	named = optimizer->from_file && setting != NO_SETTING && oom_same_word(r->settings[setting].value, "adamw_hf");
	if (!named && (!older || optimizer->from_file || fw_fact_is(r->all, "engine", "deepspeed")))
		return;
	fw_set(r->all, "optimizer", "adamw-loop", NULL, "transformers/optimization.py AdamW");
	f = part_fact(r->all, "optimizer");
	if (f && named) {
		f->from_file = true;
		f->setting = setting;
	}
}

void reading_settle_age(struct oom_reading *r)
{
	settle_undated(r);
	settle_attention(r);
	settle_own_adam(r);
}
