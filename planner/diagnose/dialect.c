/* What each program calls the things that can be changed: finding the words of a lever.
 *
 * The words are rows of dialect_training.c, dialect_serving.c and dialect_runtimes.c. A lever that a dialect leaves
 * out is its base's; "" says that the program has none. */
#include <string.h>

#include "answer.h"

static const struct oom_dialect *const tables[] = {oom_dialects_training, oom_dialects_serving, oom_dialects_runtimes};

static const struct oom_dialect *find(const char *name)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct oom_dialect *d = tables[i]; d->name; d++)
			if (!strcmp(d->name, name))
				return d;
	return NULL;
}

/* Through a dialect and its bases, but not their common one; NULL: none of them speaks of it. */
static const char *own_words(const char *dialect, enum oom_lever lever)
{
	for (const struct oom_dialect *d = find(dialect); d && d != oom_dialects_training;
	     d = d->base ? find(d->base) : NULL)
		if (d->say[lever])
			return d->say[lever];
	return NULL;
}

/* The program's words first, then its device's, then everybody's. */
const char *oom_lever_in(const char *dialect, const char *runtime, enum oom_lever lever)
{
	const char *text = own_words(dialect, lever);

	if (!text)
		text = own_words(runtime, lever);
	if (!text)
		text = oom_dialects_training[0].say[lever];
	return text && *text ? text : NULL;
}
