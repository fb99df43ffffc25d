/* What each program calls the things that can be changed: finding the words of a lever.
 *
 * The words are rows of dialect_training.c, dialect_fields.c, dialect_serving.c, dialect_drawing.c, dialect_runtimes.c and
 * dialect_tasks.c. A lever that a dialect leaves out is its base's; "" says that the program has none. */
#include <string.h>

#include "tables.h"

static const struct oom_dialect *const tables[] = {oom_dialects_training, oom_dialects_fields, oom_dialects_devices,
						   oom_dialects_serving, oom_dialects_drawing, oom_dialects_runtimes, oom_dialects_tasks};

static const struct oom_dialect *find_in(const struct oom_dialect *table, const char *name)
{
	for (const struct oom_dialect *d = table; d->name; d++)
		if (!strcmp(d->name, name))
			return d;
	return NULL;
}

static const struct oom_dialect *find(const char *name)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		const struct oom_dialect *const d = find_in(tables[i], name);

		if (d)
			return d;
	}
	return NULL;
}

bool oom_dialect_rests_on(const char *dialect, const char *base)
{
	for (const struct oom_dialect *d = find(dialect); d; d = d->base ? find(d->base) : NULL)
		if (!strcmp(d->name, base))
			return true;
	return false;
}

bool oom_dialect_is(const struct oom_crash *c, enum oom_dialect_trait trait)
{
	for (const struct oom_dialect *d = find(oom_program_of(c)->dialect); d; d = d->base ? find(d->base) : NULL)
		if (d->traits & trait)
			return true;
	return false;
}

const char *oom_device_word(const struct oom_crash *c)
{
	const struct oom_dialect *const d = find_in(oom_dialects_devices, oom_runtime_named(c->framework)->as.dialect);

	return d ? d->device : NULL;
}

const char *oom_whole_share(const struct oom_crash *c)
{
	const struct oom_dialect *d = find(oom_program_of(c)->dialect);

	return d ? d->whole_share : NULL;
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

/* What the common base says of these is PyTorch's own. */
static bool of_torch_alone(enum oom_lever lever)
{
	static const bool own[OOM_LEVERS] = {
		[OOM_LEVER_RECOMPUTE] = true, [OOM_LEVER_PRECISION] = true, [OOM_LEVER_LOGITS] = true, [OOM_LEVER_OPTIMIZER] = true,
		[OOM_LEVER_SHARD] = true, [OOM_LEVER_ADAPTER] = true, [OOM_LEVER_NO_GRAD] = true, [OOM_LEVER_LOAD] = true,
		[OOM_LEVER_SPREAD] = true, [OOM_LEVER_OFFLOAD] = true, [OOM_LEVER_GRAPHS] = true, [OOM_LEVER_SAVE] = true,
		[OOM_LEVER_FRAGMENT] = true, [OOM_LEVER_COMPILE] = true, [OOM_LEVER_GATHER] = true, [OOM_LEVER_EXPORT] = true, [OOM_LEVER_SPLIT] = true,
		    [OOM_LEVER_RESTORE] = true, [OOM_LEVER_LOAD_SMALL] = true};

	return own[lever];
}

/* A runtime that is none of PyTorch's: its row stands in the table of those. */
static bool is_other_runtime(const char *runtime)
{
	return find_in(oom_dialects_runtimes, runtime) != NULL;
}

/* Of the tables of PyTorch's own frameworks, fields and devices. */
static bool is_of_torch(const char *dialect)
{
	return find_in(oom_dialects_training, dialect) || find_in(oom_dialects_fields, dialect) || find_in(oom_dialects_devices, dialect);
}

/* These are the device's before they are the program's. */
static bool of_device(enum oom_lever lever)
{
	return lever == OOM_LEVER_OPTIMIZER || lever == OOM_LEVER_FRAGMENT || lever == OOM_LEVER_OTHERS || lever == OOM_LEVER_LOGITS || lever == OOM_LEVER_SHARD;
}

/* The program's words first, then its device's, then everybody's. */
const char *oom_lever_in(const char *dialect, const char *runtime, enum oom_lever lever)
{
	/* what PyTorch's frameworks call theirs is nothing to a script of theirs on JAX */
	const bool foreign = of_torch_alone(lever) && is_other_runtime(runtime) && is_of_torch(dialect);
	const char *text = !foreign && of_device(lever) && find_in(oom_dialects_devices, runtime) ? own_words(runtime, lever) : NULL;

	if (!text && !foreign)
		text = own_words(dialect, lever);
	if (!text)
		text = own_words(runtime, lever);
	if (!text && of_torch_alone(lever) && is_other_runtime(runtime))
		return NULL;
	if (!text)
		text = oom_dialects_training[0].say[lever];
	return text && *text ? text : NULL;
}
