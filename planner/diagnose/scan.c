/* A block of a log searched for the places where a message may open, several at once.
 *
 * Wu and Manber's shifts (triggers.c) say how far a search may skip. */
#include "parts.h"

/* Newlines, eight bytes at a time: a byte's high bit ends up set where it was one (Warren, Hacker's
 * Delight, 2nd edition, 6-1); 255 words' worth of them are added in place before they are summed
 * across. */
uint64_t oom_lines_in(const char *from, const char *to)
{
	const uint64_t ones = UINT64_C(0x0101010101010101), low = ones * 0x7f;
	uint64_t n = 0;

	while (to - from >= 8) {
		uint64_t sum = 0;

		for (int i = 0; i < 255 && to - from >= 8; i++, from += 8) {
			uint64_t w;

			memcpy(&w, from, 8);
			w ^= ones * '\n';
			sum += ~(((w & low) + low) | w) >> 7 & ones;
		}
		sum = (sum & UINT64_C(0x00ff00ff00ff00ff)) +
		      (sum >> 8 & UINT64_C(0x00ff00ff00ff00ff));
		n += sum * UINT64_C(0x0001000100010001) >> 48;
	}
	for (; from < to; from++)
		n += *from == '\n';
	return n;
}

/* Places where a trigger may begin.  Each jump waits for the table's answer about the one before;
 * four lanes of one block are asked at once.  A lane that is full is gone through to its end
 * later. */
enum { LANES = 4, HITS = 128, PIECE = 16 << 10 };
struct lane {
	const char *w, *end;            /* the window's last byte */
	size_t n;
	const char *hit[HITS];
};

static inline void jump(struct lane *l, const uint8_t *shift)
{
	const uint8_t skip = shift[oom_trigger_hash(l->w)];

	if (!skip)
		l->hit[l->n++] = l->w - OOM_TRIGGER_MIN + 1;
	l->w += skip ? skip : 1;
}

static inline bool lane_open(const struct lane *l)
{
	return l->w < l->end && l->n < HITS;
}

static void skim(struct lane lanes[LANES], const char *w, const char *stop, const uint8_t *shift)
{
	const size_t part = stop > w ? (size_t)(stop - w) / LANES : 0;
	struct lane *const a = &lanes[0], *const b = &lanes[1], *const c = &lanes[2],
			   *const d = &lanes[3];

	for (int i = 0; i < LANES; i++) {
		lanes[i].w = w + part * (size_t)i;
		lanes[i].end = i == LANES - 1 ? stop : w + part * (size_t)(i + 1);
		lanes[i].n = 0;
	}
	while (lane_open(a) && lane_open(b) && lane_open(c) && lane_open(d)) {
		const char *wa = a->w, *wb = b->w, *wc = c->w, *wd = d->w;
		uint8_t ka, kb, kc, kd;

		/* in registers, until one of them stops */
		do {
			wa += ka = shift[oom_trigger_hash(wa)];
			wb += kb = shift[oom_trigger_hash(wb)];
			wc += kc = shift[oom_trigger_hash(wc)];
			wd += kd = shift[oom_trigger_hash(wd)];
		} while (ka && kb && kc && kd && wa < a->end && wb < b->end && wc < c->end &&
			 wd < d->end);
		a->w = wa;
		b->w = wb;
		c->w = wc;
		d->w = wd;
		for (int i = 0; i < LANES; i++)
			if (lane_open(&lanes[i]))
				jump(&lanes[i], shift);
	}
	for (int i = 0; i < LANES; i++)
		while (lane_open(&lanes[i]))
			jump(&lanes[i], shift);
}

/* One place is told of before the lanes behind it are looked at. */
static void go_through(struct lane *l, const uint8_t *shift, oom_hit_fn hit, void *ctx)
{
	for (size_t k = 0; k < l->n; k++)
		hit(ctx, l->hit[k]);
	while (l->w < l->end) {
		l->n = 0;
		jump(l, shift);
		if (l->n)
			hit(ctx, l->hit[0]);
	}
}

void oom_scan(const struct oom_trigger_index *index, const char *from, const char *to, const char *end, oom_hit_fn hit,
	      void *ctx)
{
	const char *const stop = to + OOM_TRIGGER_MIN - 1 < end ? to + OOM_TRIGGER_MIN - 1 : end;
	struct lane lanes[LANES];

	for (const char *w = from + OOM_TRIGGER_MIN - 1; w < stop; w = lanes[LANES - 1].end) {
		skim(lanes, w, stop - w > PIECE ? w + PIECE : stop, index->shift);
		for (int i = 0; i < LANES; i++)
			go_through(&lanes[i], index->shift, hit, ctx);
	}
}
