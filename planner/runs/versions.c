/* Libraries and versions as logs and READMEs write them beside each other.  A name is one of the knobs that take
 * versions, or what a package is called where it is imported from; its version is what follows, whatever
 * joins the two. */
#include "versions.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "oomplan/generations.h"
#include "oomplan/option.h"

enum { MAX_WORD = 40 };

/* Other names of the same library. */
static const struct {
	const char *name, *knob;
} others[] = {{"pytorch", "torch"}, {"bnb", "bitsandbytes"}, {"hf-transformers", "transformers"}};

/* The knob that takes a library's version; NULL: none does. */
static const struct oom_option *version_knob(const char *name)
{
	const struct oom_generation *g;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strcmp(name, others[i].name))
			name = others[i].knob;
	for (size_t i = 0; (g = oom_generation_at(i)); i++)
		if (!strcmp(name, g->library))
			return oom_knob_find(name);
	return NULL;
}

/* Copies the characters of `text` that are in a name (a version: digits first), in lower case; returns what follows. */
static const char *word_of(const char *text, bool version, char out[MAX_WORD])
{
	size_t n = 0;

	while (isalnum((unsigned char)*text) || (*text && strchr(version ? "." : "._-", *text))) {
		/* "torch-2.4": the name ends before the version */
		if (!version && *text == '-' && isdigit((unsigned char)text[1]))
			break;
		if (n + 1 < MAX_WORD)
			out[n++] = (char)tolower((unsigned char)*text);
		text++;
	}
	out[n] = 0;
	return text;
}

enum oom_status oom_run_versions(struct oom_plan *plan, const char *text, struct oom_error *err)
{
	char name[MAX_WORD], version[MAX_WORD];

	while (*text) {
		const struct oom_option *k;
		enum oom_status st;

		if (!isalpha((unsigned char)*text)) {
			text++;
			continue;
		}
		text = word_of(text, false, name);
		k = version_knob(name);
		text += strspn(text, " =:@-v");
		if (!isdigit((unsigned char)*text))
			continue;
		text = word_of(text, true, version);
		/* the build: 2.4.0+cu121 */
		if (*text == '+')
			text += strcspn(text, " ,;");
		st = k ? oom_plan_set(plan, k, version, err) : OOM_OK;
		if (st)
			return st;
	}
	return OOM_OK;
}
