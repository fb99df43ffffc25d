/* How the files say another value of a knob: in the key that says it now, else in the first that
 * could. */
#include <stdio.h>
#include <string.h>

#include "oomplan/option.h"
#include "parts.h"

/* The setting's key as this part has it; NULL: it stands elsewhere. */
static const char *key_in(const struct fw_part *p, const struct oom_setting *s)
{
	const size_t n = strlen(p->prefix);

	return p->file == s->file && !strncmp(p->prefix, s->key, n) && doc_below(p->root, s->key + n) ? s->key + n : NULL;
}

/* A script holds arguments that are another framework's: the first part whose row has the knob. */
static bool now(const struct oom_reading *r, const struct fact *f, const char *value,
		struct oom_key_change *out)
{
	const struct oom_setting *s = &r->settings[f->setting];

	for (size_t i = 0; i < r->n_parts; i++) {
		const char *key = key_in(r->parts[i], s);
		const struct fw_row *row;
		bool idle;

		row = key ? framework_row(r->parts[i]->fw, key, &idle) : NULL;
		if (row && row->knob && !strcmp(row->knob, f->knob) &&
		    row_word(row, value, out->word, sizeof(out->word))) {
			out->file = s->file;
			out->key = s->key;
			out->was = s->value;
			return true;
		}
	}
	return false;
}

/* Are all of the part's keys of one word, as in the flat options of a release whose later ones have sections? */
static bool is_flat(const struct oom_reading *r, const struct fw_part *p)
{
	bool any = false;

	for (size_t i = 0; i < r->n_settings; i++) {
		const char *key = r->settings[i].kind == OOM_SETTING_DEFAULT ? NULL : key_in(p, &r->settings[i]);

		if (key && strchr(key, '.'))
			return false;
		any |= key != NULL;
	}
	return any;
}

/* The framework's first row of the knob that has the value; `key`: the one whose default counts now ("": any). */
static const struct fw_row *row_for(const struct framework *fw, const char *knob, const char *key, const char *value, bool flat,
				    struct oom_key_change *out)
{
	for (size_t l = 0; fw->rows[l]; l++)
		for (const struct fw_row *row = fw->rows[l]; row->key; row++)
			if (row->knob && !strcmp(row->knob, knob) && (!*key || !strcmp(row->key, key)) &&
			    (!flat || !strchr(row->key, '.')) && row_word(row, value, out->word, sizeof(out->word)))
				return row;
	return NULL;
}

/* A key that no file has yet, of the trainer's first. */
static bool absent(const struct oom_reading *r, const char *knob, const char *key, const char *value,
		   struct oom_key_change *out)
{
	for (int role = FW_TRAINER; role <= FW_ENGINE; role++)
		for (size_t i = 0; i < r->n_parts; i++) {
			const struct framework *fw = r->parts[i]->fw;
			const struct fw_row *row;
			bool flat;

			if (fw->role != (enum fw_role)role)
				continue;
			flat = is_flat(r, r->parts[i]);
			row = row_for(fw, knob, key, value, flat, out);
			if (!row && flat && !*key)
				row = row_for(fw, knob, key, value, false, out);
			if (!row)
				continue;
			out->file = out->was = "";
			out->key = row->key;
			return true;
		}
	return false;
}

bool oom_reading_change(const struct oom_reading *r, const char *knob, const char *value,
			struct oom_key_change *out)
{
	const struct fact *f = part_fact(r->all, knob);

	if (f && f->from_file && f->setting != NO_SETTING)
		return now(r, f, value, out);
	return (f && *f->key && absent(r, knob, f->key, value, out)) || absent(r, knob, "", value, out);
}
