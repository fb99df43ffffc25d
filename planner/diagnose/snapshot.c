/* PyTorch memory snapshots (playbook M19).
 *
 * Layout: the types Snapshot, Segment, Block, TraceEntry and Frame of the page "Understanding CUDA
 * Memory Usage" (docs.pytorch.org, torch_cuda_memory).  What is allocated rises with "alloc" and
 * falls with "free_requested"; the state at any event is the one of the segments, at the end,
 * with every later event undone.  Sizes are those requested. */
#include "oomplan/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input/open.h"
#include "snapshot_parts.h"

enum { MAX_BYTES = 1 << 29, MAX_DEVICES = 1024 };

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- blocks by address ---- */

struct block {
	uint64_t addr, size;
	const node *frames;
	bool used, live, recorded, grad;
	uint8_t held;                   /* of the timeline: enum oom_held */
};
struct map {
	struct block *slot;
	size_t mask, live;
	uint64_t bytes;
};

static bool map_init(struct map *m, size_t most)
{
	size_t cap = 64;

	while (cap < 2 * most)
		cap *= 2;
	memset(m, 0, sizeof(*m));
	m->slot = calloc(cap, sizeof(*m->slot));
	m->mask = cap - 1;
	return m->slot != NULL;
}

static struct block *map_at(struct map *m, uint64_t addr)
{
	size_t i = (size_t)((addr >> 9) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & m->mask;

	while (m->slot[i].used && m->slot[i].addr != addr)
		i = (i + 1) & m->mask;
	m->slot[i].used = true;
	m->slot[i].addr = addr;
	return &m->slot[i];
}

static void map_remove(struct map *m, struct block *b)
{
	if (!b->live)
		return;
	b->live = false;
	m->live--;
	m->bytes -= b->size;
}

static void map_put(struct map *m, struct block *b, uint64_t size, const node *frames)
{
	map_remove(m, b);
	if (size > UINT64_MAX - m->bytes)
		size = UINT64_MAX - m->bytes;
	b->live = true;
	b->size = size;
	b->frames = frames;
	b->recorded = b->grad = false;
	m->live++;
	m->bytes += size;
}

/* ---- the trace of one device ---- */

struct event {
	enum { ALLOC, FREE, OOM, OTHER } kind;
	uint64_t addr, size;
	const node *frames;
	bool grad;                      /* of an allocation: zero_grad() frees it */
};
struct reader {
	const struct oom_pickle *p;
	struct oom_told *told;
	struct event *event;
	size_t n_events;
	const node *segments;
	int64_t device;
	struct oom_snapshot out;
};

static bool on_device(const struct reader *r, const node *segment)
{
	return (int64_t)oom_node_number(r->p, segment, "device") == r->device;
}

static void read_event(struct reader *r, const node *n, size_t i)
{
	const node *action = oom_node_get(r->p, n, "action");
	struct event *e = &r->event[i];

	e->kind = oom_node_is(action, "alloc")					       ? ALLOC :
		  oom_node_is(action, "free_requested") || oom_node_is(action, "free") ? FREE :
		  oom_node_is(action, "oom")					       ? OOM :
											 OTHER;
	e->addr = oom_node_number(r->p, n, "addr");
	e->size = oom_node_number(r->p, n, "size");
	e->frames = oom_node_list(r->p, n, "frames");
	if (e->kind != OOM)
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

static void each_block(struct reader *r, const node *segment, struct map *m, bool measure)
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
				map_put(m, map_at(m, at), asked ? asked : size,
					block_frames(r->p, b));
		} else if (measure && oom_node_is(state, "inactive")) {
			r->out.n_idle++;
			r->out.idle_bytes = plus(r->out.idle_bytes, size);
			if (size > r->out.largest_idle_bytes)
				r->out.largest_idle_bytes = size;
		}
	}
}

static void at_end(struct reader *r, struct map *m, bool measure)
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

static void undo(struct reader *r, struct map *m, struct event *e)
{
	struct block *b;

	if (e->kind != ALLOC && e->kind != FREE)
		return;
	b = map_at(m, e->addr);
	if (e->kind == ALLOC) {
		e->grad = b->live && b->grad;
		map_remove(m, b);
	} else {
		map_put(m, b, e->size, e->frames);
		/* a gradient is known by who frees it */
		b->grad = e->frames && oom_frames_tell(r->p, r->told, e->frames)->zero_grad;
	}
}

/* The frames of a block are those of its allocation, where that was recorded. */
static void find_allocations(struct reader *r, struct map *m, size_t upto)
{
	for (size_t i = upto; i-- > 0;) {
		const struct event *e = &r->event[i];
		struct block *b = e->kind == ALLOC || e->kind == FREE ? map_at(m, e->addr) : NULL;

		if (!b || !b->live || b->recorded)
			continue;
		b->recorded = true;
		if (e->kind == ALLOC)
			b->frames = e->frames;
	}
}

/* ---- the summary ---- */

struct share {
	const node *frame;
	enum oom_held held;
	uint64_t bytes;
	size_t blocks;
	char where[120];
};

static int by_where(const void *a, const void *b)
{
	const struct share *x = a, *y = b;
	const int c = strcmp(x->where, y->where);

	return c ? c : (x->held > y->held) - (x->held < y->held);
}

static int by_bytes(const void *a, const void *b)
{
	const struct share *x = a, *y = b;

	return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) :
				      strcmp(x->where, y->where);
}

static enum oom_held held_of(struct reader *r, const struct block *b)
{
	enum oom_held h;

	if (!b->frames || !b->frames->n)
		return b->grad	   ? OOM_HELD_GRADS :
		       b->recorded ? OOM_HELD_NO_FRAMES :
				     OOM_HELD_BEFORE;
	h = (enum oom_held)oom_frames_tell(r->p, r->told, b->frames)->held;
	return b->grad && (h == OOM_HELD_BACKWARD || h == OOM_HELD_OTHER) ? OOM_HELD_GRADS : h;
}

static void list_shares(struct reader *r, struct share *s, size_t n)
{
	size_t kept = 0;

	qsort(s, n, sizeof(*s), by_where);
	for (size_t i = 0; i < n; i++) {
		if (kept && !by_where(&s[kept - 1], &s[i])) {
			s[kept - 1].bytes += s[i].bytes;
			s[kept - 1].blocks++;
		} else {
			s[kept++] = s[i];
		}
	}
	qsort(s, kept, sizeof(*s), by_bytes);
	for (size_t i = 0; i < kept; i++) {
		struct oom_snapshot_frame *f = &r->out.frame[r->out.n_frames];

		if (r->out.n_frames == OOM_SNAPSHOT_FRAMES) {
			r->out.n_other_frames++;
			r->out.other_frame_bytes += s[i].bytes;
			continue;
		}
		r->out.n_frames++;
		f->held = s[i].held;
		f->bytes = s[i].bytes;
		f->blocks = s[i].blocks;
		memcpy(f->where, s[i].where, sizeof(f->where));
	}
}

static bool summarise(struct reader *r, const struct map *m)
{
	struct share *s = calloc(m->live + 1, sizeof(*s));
	size_t n = 0;

	if (!s)
		return false;
	for (size_t i = 0; i <= m->mask; i++) {
		const struct block *b = &m->slot[i];
		uint32_t frame;

		if (!b->live)
			continue;
		s[n].held = held_of(r, b);
		r->out.held[s[n].held] += b->size;
		frame = b->frames ? oom_frames_tell(r->p, r->told, b->frames)->frame : UINT32_MAX;
		if (frame != UINT32_MAX)
			oom_frame_where(r->p, &r->p->nodes[frame], s[n].where, sizeof(s[n].where));
		else
			snprintf(s[n].where, sizeof(s[n].where), "(%s)", oom_held_str(s[n].held));
		s[n].bytes = b->size;
		s[n++].blocks = 1;
	}
	list_shares(r, s, n);
	free(s);
	return true;
}

/* ---- the timeline ---- */

/* Held now, of every kind. */
struct sums {
	uint64_t held[OOM_HELD_KINDS], bytes;
};

static void point(struct reader *r, const struct sums *s, size_t event)
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
static void draw(struct reader *r, struct map *m)
{
	struct sums s = {{0}, 0};

	for (size_t i = 0; i <= m->mask; i++) {
		struct block *b = &m->slot[i];

		if (!b->live)
			continue;
		b->held = b->grad ? OOM_HELD_GRADS : OOM_HELD_BEFORE;
		s.held[b->held] += b->size;
		s.bytes += b->size;
	}
	if (r->n_events)
		point(r, &s, 0);
	for (size_t i = 0; i < r->n_events; i++) {
		const struct event *e = &r->event[i];
		struct block *b = e->kind == ALLOC || e->kind == FREE ? map_at(m, e->addr) : NULL;

		if (b && b->live) {
			s.held[b->held] -= b->size;
			s.bytes -= b->size;
			map_remove(m, b);
		}
		if (e->kind == ALLOC) {
			map_put(m, b, e->size, e->frames);
			b->recorded = true;
			b->grad = e->grad;
			b->held = (uint8_t)held_of(r, b);
			s.held[b->held] += b->size;
			s.bytes += b->size;
		}
		point(r, &s, i + 1);
	}
}

static size_t count_blocks(const struct reader *r)
{
	size_t n = 0;

	for (uint32_t i = 0; i < r->segments->n; i++) {
		const node *blocks = oom_node_list(r->p, &r->p->nodes[r->segments->u.items[i]],
						   "blocks");

		n += blocks ? blocks->n : 0;
	}
	return n;
}

static enum oom_status read_device(struct reader *r, const node *trace, struct oom_error *err)
{
	struct map m = {0};
	enum oom_status st = OOM_ERR_MEMORY;

	r->n_events = trace ? trace->n : 0;
	r->event = calloc(r->n_events + 1, sizeof(*r->event));
	r->told = calloc(r->p->n, sizeof(*r->told));
	if (!r->event || !r->told || !map_init(&m, count_blocks(r) + r->n_events))
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
	if (summarise(r, &m))
		st = OOM_OK;
out:
	free(m.slot);
	free(r->event);
	free(r->told);
	r->event = NULL;
	r->told = NULL;
	return st ? oom_error_set(err, st, "out of host memory") : OOM_OK;
}

/* ---- the file ---- */

bool oom_snapshot_is(const void *bytes, size_t size)
{
	const uint8_t *b = bytes;

	return size > 2 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5;
}

static enum oom_status read_all(const struct oom_pickle *p, const char *name,
				struct oom_snapshot *out, struct oom_error *err)
{
	/* torch.cuda.memory_snapshot() gives the segments alone */
	const node *root = &p->nodes[p->root],
		   *segments = root->kind == OOM_PICKLE_LIST ? root : oom_node_list(p, root, "segments"),
		   *traces = oom_node_list(p, root, "device_traces");
	struct oom_snapshot_device each[OOM_SNAPSHOT_DEVICES] = {{0}};
	size_t devices = traces ? traces->n : 0, n_each = 0;
	enum oom_status st = OOM_OK;
	bool any = false;

	if (root->kind == OOM_PICKLE_LIST && (!root->n || !oom_node_get(p, &p->nodes[root->u.items[0]], "total_size")))
		segments = NULL;
	if (!segments)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s: a pickle, but no memory snapshot: the key \"segments\" "
				     "(torch.cuda.memory._snapshot) "
				     "is needed",
				     name);
	for (uint32_t i = 0; i < segments->n; i++) {
		const uint64_t d = oom_node_number(p, &p->nodes[segments->u.items[i]], "device");

		if (d >= MAX_DEVICES)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s: segment %u is on device %llu: not below %d", name,
					     i, (unsigned long long)d, MAX_DEVICES);
		if (d >= devices)
			devices = (size_t)d + 1;
	}
	if (devices > MAX_DEVICES)
		return oom_error_set(err, OOM_ERR_INVALID, "%s: %zu devices: not above %d", name,
				     devices, MAX_DEVICES);
	for (size_t d = 0; !st && d < devices; d++) {
		struct reader r = {.p = p, .segments = segments, .device = (int64_t)d};
		const node *trace = traces && d < traces->n ? &p->nodes[traces->u.items[d]] : NULL;

		if (trace && trace->kind != OOM_PICKLE_LIST)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s: device_traces[%zu] is no list", name, d);
		st = read_device(&r, trace, err);
		if (st)
			break;
		if (n_each < OOM_SNAPSHOT_DEVICES && (r.out.peak_bytes || r.out.n_events))
			each[n_each++] = (struct oom_snapshot_device){(int64_t)d, r.out.peak_bytes, r.out.oom};
		if (!any || r.out.oom > out->oom || (r.out.oom == out->oom && r.out.peak_bytes > out->peak_bytes))
			*out = r.out;
		any = true;
	}
	if (!st && !any)
		st = oom_error_set(err, OOM_ERR_INVALID,
				   "%s: an empty snapshot: no segment, no event", name);
	out->n_devices = devices;
	memcpy(out->each, each, sizeof(each));
	out->n_each = n_each;
	return st;
}

enum oom_status oom_snapshot_parse(struct oom_snapshot *out, const void *bytes, size_t size,
				   const char *name, struct oom_error *err)
{
	struct oom_pickle p = {0};
	struct oom_snapshot found = {0};
	struct oom_error why = {{0}};
	enum oom_status st = oom_pickle_parse(&p, bytes, size, &why);

	if (st)
		return oom_error_set(err, st, "%s: %s", name, why.text);
	st = read_all(&p, name, &found, err);
	oom_pickle_release(&p);
	if (!st)
		*out = found;
	return st;
}

enum oom_status oom_snapshot_read(struct oom_snapshot *out, const char *path, struct oom_error *err)
{
	FILE *f = oom_input_open(path, err);
	size_t size = 0, cap = 1 << 20;
	uint8_t *buf = malloc(cap);
	enum oom_status st = OOM_OK;

	if (!f)
		st = OOM_ERR_IO;
	while (!st && buf) {
		const size_t got = fread(buf + size, 1, cap - size, f);

		size += got;
		if (!got)
			break;
		if (size == cap) {
			uint8_t *q = cap < MAX_BYTES ? realloc(buf, cap * 2) : NULL;

			if (!q) {
				st = oom_error_set(err, OOM_ERR_LIMIT,
						   "%s: more than %zu bytes: record with a smaller "
						   "max_entries",
						   path, cap);
				break;
			}
			buf = q;
			cap *= 2;
		}
	}
	if (!st && !buf)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (!st && ferror(f))
		st = oom_error_set(err, OOM_ERR_IO, "%s: cannot be read", path);
	if (!st)
		st = oom_snapshot_parse(out, buf, size, path, err);
	oom_input_close(f);
	free(buf);
	return st;
}
