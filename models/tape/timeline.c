/* Sums lifetimes.  A run of n equal layers is one record: its net change times n - 1 is added, and
 * its own maximum counts at the first or at the last repetition, whichever is higher (live bytes
 * are linear in the repetition). */
#include "timeline.h"

#include <string.h>

struct level {
	int64_t cur, peak, cur0, outer;
};

static inline void region_begins(struct level *l)
{
	l->cur0 = l->cur;
	l->outer = l->peak;
	l->peak = l->cur;
}

static inline void region_ends(struct level *l, uint32_t reps)
{
	const int64_t extra = (l->cur - l->cur0) * (int64_t)(reps - 1);

	l->peak += extra > 0 ? extra : 0;
	l->cur += extra;
	l->peak = l->outer > l->peak ? l->outer : l->peak;
}

static inline void change(struct level *l, int64_t d)
{
	l->cur += d;
	l->peak = l->cur > l->peak ? l->cur : l->peak;
}

/* What an event adds to live bytes, in row sizes: where gradients stay, and where they are added to those that are
 * there.  A table instead of branches, which no processor predicts. */
static const int8_t adds[2][4] = {{[OOM_EV_ALLOC] = 1, [OOM_EV_FREE] = -1, [OOM_EV_GRAD] = 0},
				  {[OOM_EV_ALLOC] = 1, [OOM_EV_FREE] = -1, [OOM_EV_GRAD] = -1}};

/* span[0]: gradients stay; [1]: they are added to those that are there.  Either may be left out, where a constant says
 * so: this is where a search spends its time. */
static inline void walk(const struct oom_tape *t, const struct oom_stream *s, const uint64_t *size, const bool stay,
			const bool add, struct oom_span span[2])
{
	struct level l[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};

	for (const int32_t *at = s->ev, *end = at + s->n; at < end; at++) {
		const int32_t ev = *at;

		if (ev < 0) {
			const uint32_t k = (uint32_t)(-1 - ev);

			if (oom_ev_is_unit(ev))
				continue;
			for (int j = !stay; j <= add; j++)
				if (k & 1)
					region_ends(&l[j], t->reps[k / 2]);
				else
					region_begins(&l[j]);
			continue;
		}
		if ((ev & 3) == OOM_EV_FREE_ALL) {
			for (int j = !stay; j <= add; j++)
				l[j].cur -= (int64_t)size[ev >> 2] * t->rows[ev >> 2].mult;
			continue;
		}
		if (stay)
			change(&l[0], (int64_t)size[ev >> 2] * adds[0][ev & 3]);
		if (add)
			change(&l[1], (int64_t)size[ev >> 2] * adds[1][ev & 3]);
	}
	for (int j = 0; j < 2; j++)
		span[j] = (struct oom_span){l[j].cur, l[j].peak};
}

struct oom_span oom_walk(const struct oom_tape *t, enum oom_stream_id stream, const uint64_t *size,
			 bool acc)
{
	struct oom_span span[2];

	if (acc)
		walk(t, &t->streams[stream], size, false, true, span);
	else
		walk(t, &t->streams[stream], size, true, false, span);
	return span[acc];
}

void oom_walk_both(const struct oom_tape *t, enum oom_stream_id stream, const uint64_t *size, struct oom_span span[2])
{
	walk(t, &t->streams[stream], size, true, true, span);
}

/* The layers' events begin with the first storage born in one and end with the first one born
 * outside after the last of them. */
void oom_cut_at_layers(const struct oom_tape *t, enum oom_stream_id stream, size_t cut[4])
{
	const struct oom_stream *s = &t->streams[stream];

	cut[0] = 0;
	cut[1] = cut[2] = cut[3] = s->n;
	for (size_t i = 0; i < s->n; i++) {
		const int32_t ev = s->ev[i];

		if (ev < 0 || (ev & 3) != OOM_EV_ALLOC)
			continue;
		if (t->rows[ev >> 2].group) {
			cut[1] = cut[1] < s->n ? cut[1] : i;
			cut[2] = s->n;
		} else if (cut[1] < s->n && cut[2] == s->n) {
			cut[2] = i;
		}
	}
}

/* Live bytes are linear in the layers: the peak lies in the last one or, as they shrink, in the
 * first. */
struct oom_span oom_one_layer(int64_t net, int64_t peak, uint64_t n)
{
	const int64_t one = net / (int64_t)n;

	return (struct oom_span){one, one > 0 ? peak - one * (int64_t)(n - 1) : peak};
}

void oom_walk_thirds(const struct oom_tape *t, enum oom_stream_id stream, const uint64_t *size,
		     bool acc, uint64_t n, struct oom_span third[3])
{
	const struct oom_stream *s = &t->streams[stream];
	size_t cut[4];

	oom_cut_at_layers(t, stream, cut);
	for (int k = 0; k < 3; k++) {
		const struct oom_stream part = {.ev = s->ev + cut[k], .n = cut[k + 1] - cut[k]};
		struct oom_span p[2];

		walk(t, &part, size, true, true, p);
		third[k] = k == 1 ? oom_one_layer(p[acc].net, p[acc].peak, n) : p[acc];
	}
}

/* A walk by categories: what is alive now, the highest moment so far and who was alive then. */
struct cats_walk {
	int64_t cur, peak, net[OOM_CATS], at[OOM_CATS];
	int32_t row;                    /* allocated last before the peak; -1: none */
};

/* At the end of a region that is repeated n times more: `begin` is the walk as it stood at its beginning. */
static void walk_again(struct cats_walk *w, const struct cats_walk *begin, int64_t n)
{
	const int64_t extra = (w->cur - begin->cur) * n;

	for (int c = 0; c < OOM_CATS; c++) {
		const int64_t more = (w->net[c] - begin->net[c]) * n;

		w->at[c] += extra > 0 ? more : 0;
		w->net[c] += more;
	}
	w->peak += extra > 0 ? extra : 0;
	w->cur += extra;
	if (begin->peak > w->peak) {
		w->peak = begin->peak;
		w->row = begin->row;
		memcpy(w->at, begin->at, sizeof(w->at));
	}
}

struct oom_span oom_walk_cats(const struct oom_tape *t, const struct oom_stream *s,
			      const uint64_t *size, bool acc, int64_t at[OOM_CATS],
			      int64_t net[OOM_CATS], int32_t *row)
{
	struct cats_walk w = {.row = -1}, begin = w;
	int32_t last = -1;

	for (size_t i = 0; i < s->n; i++) {
		const int32_t ev = s->ev[i];
		int64_t d = 0;

		if (oom_ev_is_unit(ev))
			continue;
		if (ev < 0) {
			const uint32_t k = (uint32_t)(-1 - ev);

			if (k & 1) {
				walk_again(&w, &begin, (int64_t)t->reps[k / 2] - 1);
			} else {
				begin = w;
				w.peak = w.cur;
				memcpy(w.at, w.net, sizeof(w.at));
			}
			continue;
		}
		switch (ev & 3) {
		case OOM_EV_ALLOC: d = (int64_t)size[ev >> 2]; last = ev >> 2; break;
		case OOM_EV_FREE: d = -(int64_t)size[ev >> 2]; break;
		case OOM_EV_FREE_ALL: d = -(int64_t)size[ev >> 2] * t->rows[ev >> 2].mult; break;
		case OOM_EV_GRAD: d = acc ? -(int64_t)size[ev >> 2] : 0; break;
		}
		w.cur += d;
		w.net[t->rows[ev >> 2].cat] += d;
		if (w.cur > w.peak) {
			w.peak = w.cur;
			w.row = last;
			memcpy(w.at, w.net, sizeof(w.at));
		}
	}
	memcpy(at, w.at, sizeof(w.at));
	memcpy(net, w.net, sizeof(w.net));
	*row = w.row;
	return (struct oom_span){w.cur, w.peak};
}
