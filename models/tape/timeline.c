/* Sums lifetimes.  A run of n equal layers is one record: its net change times n - 1 is added, and
 * its own maximum counts at the first or at the last repetition, whichever is higher (live bytes
 * are linear in the repetition). */
#include "timeline.h"

static struct oom_span walk(const struct oom_tape *t, const struct oom_stream *s,
			    const uint64_t *size, bool acc)
{
	int64_t cur = 0, peak = 0, cur0 = 0, outer = 0;

	for (size_t i = 0; i < s->n; i++) {
		const int32_t ev = s->ev[i];

		if (oom_ev_is_unit(ev))
			continue;
		if (ev < 0) {
			const uint32_t k = (uint32_t)(-1 - ev);

			if (!(k & 1)) {
				cur0 = cur;
				outer = peak;
				peak = cur;
			} else {
				const int64_t extra = (cur - cur0) * (int64_t)(t->reps[k / 2] - 1);

				peak += extra > 0 ? extra : 0;
				cur += extra;
				if (outer > peak)
					peak = outer;
			}
			continue;
		}
		switch (ev & 3) {
		case OOM_EV_ALLOC:
			cur += (int64_t)size[ev >> 2];
			peak = cur > peak ? cur : peak;
			break;
		case OOM_EV_FREE: cur -= (int64_t)size[ev >> 2]; break;
		case OOM_EV_FREE_ALL: cur -= (int64_t)size[ev >> 2] * t->rows[ev >> 2].mult; break;
		case OOM_EV_GRAD: cur -= acc ? (int64_t)size[ev >> 2] : 0; break;
		}
	}
	return (struct oom_span){cur, peak};
}

struct oom_span oom_walk(const struct oom_tape *t, enum oom_stream_id stream, const uint64_t *size,
			 bool acc)
{
	return walk(t, &t->streams[stream], size, acc);
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
		const struct oom_span p = walk(t, &part, size, acc);

		third[k] = k == 1 ? oom_one_layer(p.net, p.peak, n) : p;
	}
}

struct oom_span oom_walk_cats(const struct oom_tape *t, const struct oom_stream *s,
			      const uint64_t *size, bool acc, int64_t at[OOM_CATS],
			      int64_t net[OOM_CATS], int32_t *row)
{
	int64_t cur = 0, peak = 0, cur0 = 0, outer = 0, start[OOM_CATS] = {0},
		outer_at[OOM_CATS] = {0};
	int32_t last = -1, outer_row = -1;

	*row = -1;
	for (int c = 0; c < OOM_CATS; c++)
		at[c] = net[c] = 0;
	for (size_t i = 0; i < s->n; i++) {
		const int32_t ev = s->ev[i];
		int64_t d = 0;

		if (oom_ev_is_unit(ev))
			continue;
		if (ev < 0) {
			const uint32_t k = (uint32_t)(-1 - ev);
			const int64_t n = (int64_t)t->reps[k / 2] - 1;

			if (!(k & 1)) {
				cur0 = cur;
				outer = peak;
				peak = cur;
				outer_row = *row;
				for (int c = 0; c < OOM_CATS; c++) {
					outer_at[c] = at[c];
					start[c] = at[c] = net[c];
				}
			} else {
				const int64_t extra = (cur - cur0) * n;

				for (int c = 0; c < OOM_CATS; c++) {
					const int64_t more = (net[c] - start[c]) * n;

					at[c] += extra > 0 ? more : 0;
					net[c] += more;
				}
				peak += extra > 0 ? extra : 0;
				cur += extra;
				if (outer > peak) {
					peak = outer;
					*row = outer_row;
					for (int c = 0; c < OOM_CATS; c++)
						at[c] = outer_at[c];
				}
			}
			continue;
		}
		switch (ev & 3) {
		case OOM_EV_ALLOC: d = (int64_t)size[ev >> 2]; last = ev >> 2; break;
		case OOM_EV_FREE: d = -(int64_t)size[ev >> 2]; break;
		case OOM_EV_FREE_ALL: d = -(int64_t)size[ev >> 2] * t->rows[ev >> 2].mult; break;
		case OOM_EV_GRAD: d = acc ? -(int64_t)size[ev >> 2] : 0; break;
		}
		cur += d;
		net[t->rows[ev >> 2].cat] += d;
		if (cur > peak) {
			peak = cur;
			*row = last;
			for (int c = 0; c < OOM_CATS; c++)
				at[c] = net[c];
		}
	}
	return (struct oom_span){cur, peak};
}
