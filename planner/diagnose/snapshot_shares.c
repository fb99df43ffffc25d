/* Who holds the memory at the peak of a snapshot, by the frame that asked for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot_parts.h"

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

static void list_shares(struct oom_snapshot_reader *r, struct share *s, size_t n)
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

bool oom_snapshot_summarise(struct oom_snapshot_reader *r, const struct oom_blocks *m)
{
	struct share *s = calloc(m->live + 1, sizeof(*s));
	size_t n = 0;

	if (!s)
		return false;
	for (size_t i = 0; i <= m->mask; i++) {
		const struct oom_block *b = &m->slot[i];
		uint32_t frame;

		if (!b->live)
			continue;
		s[n].held = oom_block_held(r, b);
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
