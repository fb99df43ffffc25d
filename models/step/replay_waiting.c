/* Blocks that the allocator does not have back when they are freed, because another stream of the card may still read them.
 *
 * FSDP1 gathers a unit's parameters on a stream of its own, where torch.split's derivative runs, too (_flat_param.py
 * _use_unsharded_flat_param is called under it, and autograd runs a node on the stream of its forward): it joins the
 * gradients to the flat one there.  So parameters are recorded as used by the stream that computes
 * (_free_unsharded_flat_param), gradients by the one that gathers (torch/csrc/autograd/input_buffer.cpp), the flat gradient
 * by the one that reduces (_runtime_utils.py _post_backward_hook), and each comes back when that stream has passed the event
 * of its free (c10/cuda/CUDACachingAllocator.cpp insert_events).  The host runs ahead of the card, but before it gathers it
 * waits for the unit before the last to be through (_runtime_utils.py _unshard, _limiter_utils.py _FreeEventQueue: two may be
 * under way), which is the oldest of them here; after a backward pass it waits for all (transformers' Trainer looks whether
 * the loss is a number).  An event stays in the queue until then, so that the forward of later steps has one unit more under
 * way than that of the first.
 *
 * A card that is ahead of its host gives them back at once: this is the most.  A full card is waited for
 * (card_memory.c). */
#include <string.h>

#include "step/playing.h"

enum { UNDER_WAY = 2 };

static void oldest_back(struct playing *g)
{
	int32_t *late = g->p->late;
	const size_t n = g->late_to[0], rest = g->late_to[g->n_waits - 1] - n;

	for (size_t i = 0; i < n; i++)
		oom_free(playing_allocator(g), late[i]);
	memmove(late, late + n, rest * sizeof(*late));
	g->n_waits--;
	for (size_t i = 0; i < g->n_waits; i++)
		g->late_to[i] = g->late_to[i + 1] - n;
}

void oom_playing_before_gather(struct playing *g, enum oom_stream_id stream)
{
	const size_t most = g->s->waits[stream == OOM_STREAM_BWD];

	if (g->n_waits >= UNDER_WAY || g->n_waits > most)
		oldest_back(g);
}

void oom_playing_sync(void *playing)
{
	struct playing *g = playing;

	for (size_t i = 0, n = g->n_waits ? g->late_to[g->n_waits - 1] : 0; i < n; i++)
		oom_free(playing_allocator(g), g->p->late[i]);
	for (size_t i = 0; i < g->n_waits; i++)
		g->late_to[i] = 0;
}

static void join(struct playing *g, int32_t block)
{
	const size_t n = g->n_waits ? g->late_to[g->n_waits - 1] : 0;

	if (!g->n_waits || n >= g->p->cap_late) {
		oom_free(playing_allocator(g), block);
		return;
	}
	g->p->late[n] = block;
	g->late_to[g->n_waits - 1]++;
}

void oom_playing_free_late(struct playing *g, const struct oom_played *row, enum oom_stream_id stream)
{
	const bool backward = stream == OOM_STREAM_BWD;
	const size_t most = g->s->waits[backward];

	if (row->opens_wait && most) {
		if (g->n_waits >= most)
			oldest_back(g);
		g->late_to[g->n_waits] = g->n_waits ? g->late_to[g->n_waits - 1] : 0;
		g->n_waits++;
	}
	if (!most || (row->opens_wait && backward))
		oom_free(playing_allocator(g), row->block);
	else
		join(g, row->block);
}
