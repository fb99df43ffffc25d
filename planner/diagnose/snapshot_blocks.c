/* The blocks that are held, by their address, and what each of them is for. */
#include <stdlib.h>
#include <string.h>

#include "snapshot_parts.h"

bool oom_blocks_init(struct oom_blocks *m, size_t most)
{
	size_t cap = 64;

	while (cap < 2 * most)
		cap *= 2;
	memset(m, 0, sizeof(*m));
	m->slot = calloc(cap, sizeof(*m->slot));
	m->mask = cap - 1;
	return m->slot != NULL;
}

struct oom_block *oom_blocks_at(struct oom_blocks *m, uint64_t addr)
{
	size_t i = (size_t)((addr >> 9) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & m->mask;

	while (m->slot[i].used && m->slot[i].addr != addr)
		i = (i + 1) & m->mask;
	m->slot[i].used = true;
	m->slot[i].addr = addr;
	return &m->slot[i];
}

void oom_blocks_remove(struct oom_blocks *m, struct oom_block *b)
{
	if (!b->live)
		return;
	b->live = false;
	m->live--;
	m->bytes -= b->size;
}

void oom_blocks_put(struct oom_blocks *m, struct oom_block *b, uint64_t size, const node *frames)
{
	oom_blocks_remove(m, b);
	if (size > UINT64_MAX - m->bytes)
		size = UINT64_MAX - m->bytes;
	b->live = true;
	b->size = size;
	b->frames = frames;
	b->recorded = b->grad = false;
	m->live++;
	m->bytes += size;
}

enum oom_held oom_block_held(struct oom_snapshot_reader *r, const struct oom_block *b)
{
	enum oom_held h;

	if (!b->frames || !b->frames->n)
		return b->grad	   ? OOM_HELD_GRADS :
		       b->recorded ? OOM_HELD_NO_FRAMES :
				     OOM_HELD_BEFORE;
	h = (enum oom_held)oom_frames_tell(r->p, r->told, b->frames)->held;
	return b->grad && (h == OOM_HELD_BACKWARD || h == OOM_HELD_OTHER) ? OOM_HELD_GRADS : h;
}
