/* Telling a model from another one that was made at its address after it was freed.
 *
 * The library has no counter to number models with: its only writable memory is its callers'.  So a model is known
 * by a print of all that evaluations read of it: its own bytes, addresses of what it owns among them, and the keys
 * of its config.  Models of equal prints at one address give equal answers, whichever of them was asked. */
#include <string.h>

#include "families/model.h"

/* FNV-1a in words of eight bytes, folded so that high bits reach the low ones. */
static uint64_t mixed(uint64_t print, const void *bytes, size_t n)
{
	const char *at = bytes;
	uint64_t word = 0;

	for (; n >= sizeof(word); n -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		print = (print ^ word) * 0x100000001b3u;
		print ^= print >> 29;
	}
	word = 0;
	memcpy(&word, at, n);
	print = (print ^ word ^ (uint64_t)n << 56) * 0x100000001b3u;
	return print ^ print >> 29;
}

static uint64_t keys_mixed(uint64_t print, const struct oom_keys *keys)
{
	for (size_t i = 0; i < keys->n; i++) {
		const struct oom_key *k = &keys->items[i];

		print = mixed(print, k->path, strlen(k->path));
		if (k->type == OOM_KEY_STRING)
			print = mixed(print, k->string, strlen(k->string));
		print = mixed(print, &k->number, sizeof(k->number));
		print = mixed(print, &k->n_items, sizeof(k->n_items));
		print = mixed(print, &k->type, sizeof(k->type));
	}
	return print;
}

void oom_model_identify(struct oom_model *m)
{
	m->own_print = m->print = 0;
	m->own_print = mixed(0xcbf29ce484222325u, m, sizeof(*m));
	m->own_print = keys_mixed(keys_mixed(m->own_print, m->keys), &m->defaults);
	m->print = m->own_print;
}

void oom_model_teach(struct oom_model *m, const struct oom_model *teacher)
{
	m->teacher = teacher;
	m->print = teacher ? mixed(m->own_print, &teacher->print, sizeof(teacher->print)) : m->own_print;
}
