/* The lists of machines that `oomplan box` looks through. */
#include <string.h>

#include "box_out.h"
#include "oomplan/rules.h"
#include "term.h"

int oom_box_offers(const struct oom_list *lists, bool own_only, struct oom_offers *o)
{
	struct oom_error err = {{0}};
	enum oom_status st = lists->n && own_only ? OOM_OK : oom_offers_load(o, &err);

	for (size_t i = 0; !st && i < lists->n; i++)
		st = oom_offers_read(o, lists->items[i], &err);
	for (size_t i = 0; !st && i < o->n; i++) {
		oom_scrub(o->items[i].provider);
		oom_scrub(o->items[i].instance);
		oom_scrub(o->items[i].region);
		oom_scrub(o->items[i].gpu_name);
	}
	return st ? oom_complain(OOM_EXIT_INPUT, "%s", err.text) : 0;
}

int oom_box_providers(const char *names, const struct oom_offers *o)
{
	enum { MOST = 64 };
	const char *known[MOST + 1] = {NULL};
	struct oom_error err = {{0}};
	size_t n = 0;

	for (size_t i = 0; i < o->n && n < MOST; i++)
		if (oom_word_index(o->items[i].provider, known) < 0)
			known[n++] = o->items[i].provider;
	for (const char *at = names; at && n < MOST; at = *at ? at + 1 : NULL) {
		char name[sizeof(o->items->provider)];
		const size_t len = strcspn(at, ",");

		snprintf(name, sizeof(name), "%.*s", (int)(len < sizeof(name) ? len : sizeof(name) - 1), at);
		at += len;
		if (oom_word_index(name, known) < 0) {
			oom_word_unknown("--provider", name, known, &err);
			return oom_complain(OOM_EXIT_USAGE, "%s", err.text);
		}
	}
	return 0;
}
