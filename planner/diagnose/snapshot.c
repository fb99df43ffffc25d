/* PyTorch memory snapshots (playbook M19).
 *
 * Layout: the types Snapshot, Segment, Block, TraceEntry and Frame of the page "Understanding CUDA
 * Memory Usage" (docs.pytorch.org, torch_cuda_memory).  What is allocated rises with "alloc" and
 * falls with "free_requested"; the state at any event is the one of the segments, at the end,
 * with every later event undone.  Sizes are those requested. */
#include "oomplan/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "snapshot_parts.h"

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- the trace of one device ---- */

static bool on_device(const struct oom_snapshot_reader *r, const node *segment)
{
	return (int64_t)oom_node_number(r->p, segment, "device") == r->device;
}

static void read_event(struct oom_snapshot_reader *r, const node *n, size_t i)
{
	const node *action = oom_node_get(r->p, n, "action");
	struct oom_event *e = &r->event[i];

	e->kind = oom_node_is(action, "alloc")					       ? OOM_EVENT_ALLOC :
		  oom_node_is(action, "free_requested") || oom_node_is(action, "free") ? OOM_EVENT_FREE :
		  oom_node_is(action, "oom")					       ? OOM_EVENT_OOM :
											 OOM_EVENT_OTHER;
	e->addr = oom_node_number(r->p, n, "addr");
	e->size = oom_node_number(r->p, n, "size");
	e->frames = oom_node_list(r->p, n, "frames");
	if (e->kind != OOM_EVENT_OOM)
		return;
	r->out.oom = true;
	r->out.oom_event = i + 1;
	r->out.oom_tried_bytes = e->size;
	r->out.oom_free_bytes = oom_node_number(r->p, n, "device_free");
}

/* Older releases keep an allocation's frames in a block's "history". */
static const node *block_frames(const struct oom_pickle *p, const node *block)
{
	const node *frames = oom_node_list(p, block, "frames"),
		   *history = frames ? NULL : oom_node_list(p, block, "history");

	return history && history->n ? oom_node_list(p, &p->nodes[history->u.items[0]], "frames") :
				       frames;
}

static void each_block(struct oom_snapshot_reader *r, const node *segment, struct oom_blocks *m, bool measure)
{
	const node *blocks = oom_node_list(r->p, segment, "blocks");
	uint64_t addr = oom_node_number(r->p, segment, "address");

	for (uint32_t i = 0; blocks && i < blocks->n; i++) {
		const node *b = &r->p->nodes[blocks->u.items[i]],
			   *state = oom_node_get(r->p, b, "state");
		const uint64_t size = oom_node_number(r->p, b, "size"),
			       asked = oom_node_number(r->p, b, "requested_size");
		const uint64_t at = oom_node_number(r->p, b, "address") ?
					    oom_node_number(r->p, b, "address") :
					    addr;

		addr = plus(at, size);
		if (oom_node_is(state, "active_allocated")) {
			if (m)
				oom_blocks_put(m, oom_blocks_at(m, at), asked ? asked : size,
					block_frames(r->p, b));
		} else if (measure && oom_node_is(state, "inactive")) {
			r->out.n_idle++;
			r->out.idle_bytes = plus(r->out.idle_bytes, size);
			if (size > r->out.largest_idle_bytes)
				r->out.largest_idle_bytes = size;
		}
	}
}

static void at_end(struct oom_snapshot_reader *r, struct oom_blocks *m, bool measure)
{
	for (uint32_t i = 0; i < r->segments->n; i++) {
		const node *s = &r->p->nodes[r->segments->u.items[i]],
			   *grows = oom_node_get(r->p, s, "is_expandable");

		if (!on_device(r, s))
			continue;
		each_block(r, s, m, measure);
		if (!measure)
			continue;
		r->out.n_segments++;
		r->out.reserved_bytes = plus(r->out.reserved_bytes,
					     oom_node_number(r->p, s, "total_size"));
		r->out.allocated_bytes = plus(r->out.allocated_bytes,
					      oom_node_number(r->p, s, "allocated_size"));
		r->out.expandable |= grows && grows->kind == OOM_PICKLE_INT && grows->u.integer;
	}
}

static void undo(struct oom_snapshot_reader *r, struct oom_blocks *m, struct oom_event *e)
{
	struct oom_block *b;

	if (e->kind != OOM_EVENT_ALLOC && e->kind != OOM_EVENT_FREE)
		return;
	b = oom_blocks_at(m, e->addr);
	if (e->kind == OOM_EVENT_ALLOC) {
		e->grad = b->live && b->grad;
		oom_blocks_remove(m, b);
	} else {
		oom_blocks_put(m, b, e->size, e->frames);
		/* a gradient is known by who frees it */
		b->grad = e->frames && oom_frames_tell(r->p, r->told, e->frames)->zero_grad;
	}
}

/* The frames of a block are those of its allocation, where that was recorded. */
static void find_allocations(struct oom_snapshot_reader *r, struct oom_blocks *m, size_t upto)
{
	for (size_t i = upto; i-- > 0;) {
		const struct oom_event *e = &r->event[i];
		struct oom_block *b = e->kind == OOM_EVENT_ALLOC || e->kind == OOM_EVENT_FREE ? oom_blocks_at(m, e->addr) : NULL;

		if (!b || !b->live || b->recorded)
			continue;
		b->recorded = true;
		if (e->kind == OOM_EVENT_ALLOC)
			b->frames = e->frames;
	}
}

/* ---- the timeline ---- */

/* Held now, of every kind. */
struct sums {
	uint64_t held[OOM_HELD_KINDS], bytes;
};

static void point(struct oom_snapshot_reader *r, const struct sums *s, size_t event)
{
	const size_t pieces = r->n_events < OOM_SNAPSHOT_POINTS ? r->n_events : OOM_SNAPSHOT_POINTS;
	/* below 2^29 events: no overflow */
	const size_t i = event ? (event - 1) * pieces / r->n_events : 0;
	struct oom_snapshot_point *const p = &r->out.point[i];

	if (i >= r->out.n_points)
		r->out.n_points = i + 1;
	else if (s->bytes <= p->bytes)
		return;
	p->event = event;
	p->bytes = s->bytes;
	memcpy(p->held, s->held, sizeof(p->held));
}

/* Forwards from the state before the first event, which m is: what a block is for is known when it is
 * allocated, for undo() has seen how it ends. */
static void draw(struct oom_snapshot_reader *r, struct oom_blocks *m)
{
	struct sums s = {{0}, 0};

	for (size_t i = 0; i <= m->mask; i++) {
		struct oom_block *b = &m->slot[i];

		if (!b->live)
			continue;
		b->held = b->grad ? OOM_HELD_GRADS : OOM_HELD_BEFORE;
		s.held[b->held] += b->size;
		s.bytes += b->size;
	}
	if (r->n_events)
		point(r, &s, 0);
	for (size_t i = 0; i < r->n_events; i++) {
		const struct oom_event *e = &r->event[i];
		struct oom_block *b = e->kind == OOM_EVENT_ALLOC || e->kind == OOM_EVENT_FREE ? oom_blocks_at(m, e->addr) : NULL;

		if (b && b->live) {
			s.held[b->held] -= b->size;
			s.bytes -= b->size;
			oom_blocks_remove(m, b);
		}
		if (e->kind == OOM_EVENT_ALLOC) {
			oom_blocks_put(m, b, e->size, e->frames);
			b->recorded = true;
			b->grad = e->grad;
			b->held = (uint8_t)oom_block_held(r, b);
			s.held[b->held] += b->size;
			s.bytes += b->size;
		}
		point(r, &s, i + 1);
	}
}

static size_t count_blocks(const struct oom_snapshot_reader *r)
{
	size_t n = 0;

	for (uint32_t i = 0; i < r->segments->n; i++) {
		const node *blocks = oom_node_list(r->p, &r->p->nodes[r->segments->u.items[i]],
						   "blocks");

		n += blocks ? blocks->n : 0;
	}
	return n;
}

enum oom_status oom_snapshot_device(struct oom_snapshot_reader *r, const node *trace, struct oom_error *err)
{
	struct oom_blocks m = {0};
	enum oom_status st = OOM_ERR_MEMORY;

	r->n_events = trace ? trace->n : 0;
	r->event = calloc(r->n_events + 1, sizeof(*r->event));
	r->told = calloc(r->p->n, sizeof(*r->told));
	if (!r->event || !r->told || !oom_blocks_init(&m, count_blocks(r) + r->n_events))
		goto out;
	for (size_t i = 0; i < r->n_events; i++)
		read_event(r, &r->p->nodes[trace->u.items[i]], i);
	at_end(r, &m, true);
	r->out.n_events = r->out.peak_event = r->n_events;
	r->out.peak_bytes = m.bytes;
	for (size_t i = r->n_events; i-- > 0;) {
		undo(r, &m, &r->event[i]);
		if (m.bytes > r->out.peak_bytes) {
			r->out.peak_bytes = m.bytes;
			r->out.peak_event = i;
		}
	}
	draw(r, &m);
	memset(m.slot, 0, (m.mask + 1) * sizeof(*m.slot));
	m.live = 0;
	m.bytes = 0;
	at_end(r, &m, false);
	for (size_t i = r->n_events; i-- > r->out.peak_event;)
		undo(r, &m, &r->event[i]);
	find_allocations(r, &m, r->out.peak_event);
	r->out.peak_blocks = m.live;
	r->out.device = r->device;
	if (oom_snapshot_summarise(r, &m))
		st = OOM_OK;
out:
	free(m.slot);
	free(r->event);
	free(r->told);
	r->event = NULL;
	r->told = NULL;
	return st ? oom_error_set(err, st, "out of host memory") : OOM_OK;
}
