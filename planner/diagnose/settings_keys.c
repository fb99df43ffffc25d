/* Options by the keys that training frameworks give to knobs (planner/frameworks/): who reads their files for a plan knows what
 * "lora_dim", "reft_rank" or "use_adam_mini" means, and no second list says it.
 *
 * Of a key "a.b.c" the last part counts: a pasted file shows it in a line of its own. */
#include <string.h>

#include "frameworks/framework.h"
#include "tables.h"

/* What a knob is among the levers, and what an option of it is about. */
static const struct {
	const char *knob;
	enum oom_lever lever;
	enum oom_told_about about;
} knobs[] = {
	{"grad-ckpt", OOM_LEVER_RECOMPUTE, OOM_ABOUT_ELSE},
	{"lora-r", OOM_LEVER_ADAPTER, OOM_ABOUT_ELSE},
	{"loss", OOM_LEVER_LOGITS, OOM_ABOUT_ELSE},
	{"offload-optimizer", OOM_LEVER_OPTIMIZER, OOM_ABOUT_ELSE},
	{"micro-batch", OOM_LEVER_BATCH, OOM_ABOUT_BATCH},
	{"seq-len", OOM_LEVER_NONE, OOM_ABOUT_LENGTH},
};
enum { KNOBS = sizeof(knobs) / sizeof(knobs[0]), SHORTEST = 6 };

/* The last part of the key, or all of it. */
static bool is_key(const char *name, size_t n, const char *key)
{
	const size_t k = strlen(key);

	if (k < n || (k > n && key[k - n - 1] != '.'))
		return false;
	for (size_t i = 0; i < n; i++) {
		const char a = name[i] == '-' ? '_' : name[i], b = key[k - n + i] == '-' ? '_' : key[k - n + i];

		if (a != b)
			return false;
	}
	return true;
}

/* The knob that a framework gives this name to, where all that have the name give it to the same; KNOBS: none does. */
static size_t knob_of(const char *name, size_t n)
{
	const struct framework *f;
	size_t found = KNOBS;

	for (size_t i = 0; n >= SHORTEST && (f = framework_at(i)) != NULL; i++)
		for (const struct fw_row *const *list = f->rows; list && *list; list++)
			for (const struct fw_row *r = *list; r->key; r++) {
				size_t k = 0;

				/* a hook's key has no knob of its own */
				if (!r->knob || !is_key(name, n, r->key))
					continue;
				while (k < KNOBS && strcmp(r->knob, knobs[k].knob))
					k++;
				if (k == KNOBS || (found < KNOBS && found != k))
					return KNOBS;
				found = k;
			}
	return found;
}

enum oom_lever oom_lever_of_key(const char *name, size_t n)
{
	const size_t k = knob_of(name, n);

	return k < KNOBS ? knobs[k].lever : OOM_LEVER_NONE;
}

enum oom_told_about oom_about_of_key(const char *name, size_t n)
{
	const size_t k = knob_of(name, n);

	return k < KNOBS ? knobs[k].about : OOM_ABOUT_ELSE;
}
