/* The walk over a tape, done once in symbols.
 *
 * Live bytes at a moment are a sum over storages, and many storages have the same size for every
 * batch: counting them by class of size turns each moment into a short list of counts.  A moment
 * that another covers can never be the peak alone and is dropped; what remains, some ten moments per
 * pass, is all that an evaluation has to look at.  Repeated layers enter as in timeline.c: a
 * moment inside counts at the first and at the last repetition. */
#include "compiled.h"

#include <stdlib.h>
#include <string.h>

#include "round.h"

enum { MAX_CLASSES = 192, MAX_FRONT = 256 };

/* A storage as so many units of a class. */
struct unit {
	uint16_t cls;
	int64_t n;
};
/* A set of moments none of which is sure to be as high as another. */
struct front {
	int64_t (*at)[MAX_CLASSES];
	size_t n;
	/* lender[k]: whole-block classes whose sizes are at least those of k, for any batch; and whether there are any */
	const uint8_t (*lender)[MAX_CLASSES];
	const uint8_t *lent;
};

/* Is b at least as high as a for every batch?  What b has less of, it must have more of in a
 * class at least as large. */
static bool covers(const struct front *f, const int64_t *b, const int64_t *a, size_t classes)
{
	int64_t spare[MAX_CLASSES];

	for (size_t k = 0; k < classes; k++) {
		spare[k] = b[k] - a[k];
		if (spare[k] < 0 && !f->lent[k])
			return false;
	}
	for (size_t k = 0; k < classes; k++) {
		if (spare[k] >= 0)
			continue;
		for (size_t j = 0; j < classes && spare[k] < 0; j++) {
			const int64_t lent = f->lender[k][j] && spare[j] > 0 ?
						     (spare[j] < -spare[k] ? spare[j] : -spare[k]) :
						     0;

			spare[j] -= lent;
			spare[k] += lent;
		}
		if (spare[k] < 0)
			return false;
	}
	return true;
}

static void add(struct front *f, const int64_t *v, size_t classes, bool *full)
{
	for (size_t i = 0; i < f->n;) {
		if (covers(f, f->at[i], v, classes))
			return;
		if (covers(f, v, f->at[i], classes))
			memcpy(f->at[i], f->at[--f->n], sizeof(f->at[0]));
		else
			i++;
	}
	if (f->n == MAX_FRONT) {
		*full = true;
		return;
	}
	memcpy(f->at[f->n++], v, sizeof(f->at[0]));
}

static bool moment(struct oom_compiled *c, const int64_t *v, uint8_t span,
		   enum oom_moment kind)
{
	if (c->n_moments == c->cap_moments) {
		void *q = realloc(c->moments, (c->cap_moments * 2 + 32) * sizeof(*c->moments));

		if (!q)
			return false;
		c->moments = q;
		c->cap_moments = c->cap_moments * 2 + 32;
	}
	if (c->n_terms + c->n_classes > c->cap_terms) {
		void *q = realloc(c->terms,
				  (c->cap_terms * 2 + 4 * MAX_CLASSES) * sizeof(*c->terms));

		if (!q)
			return false;
		c->terms = q;
		c->cap_terms = c->cap_terms * 2 + 4 * MAX_CLASSES;
	}
	c->moments[c->n_moments].from = c->n_terms;
	for (size_t k = 0; k < c->n_classes; k++)
		if (v[k])
			c->terms[c->n_terms++] = (struct oom_term){v[k], k};
	c->moments[c->n_moments].to = c->n_terms;
	c->moments[c->n_moments].span = span;
	c->moments[c->n_moments++].kind = (uint8_t)kind;
	return true;
}

/* The end of a region that is repeated n times more: each moment within it counts as it was the first time
 * and as it is the last; what the region added, it adds n times more. */
static void repeat(const struct oom_compiled *c, int64_t n, const int64_t *start, int64_t *cur,
		   const struct front *inner, struct front *outer, bool *full)
{
	for (size_t m = 0; m < inner->n; m++) {
		int64_t last[MAX_CLASSES] = {0};

		for (size_t j = 0; j < c->n_classes; j++)
			last[j] = inner->at[m][j] + n * (cur[j] - start[j]);
		add(outer, inner->at[m], c->n_classes, full);
		add(outer, last, c->n_classes, full);
	}
	for (size_t j = 0; j < c->n_classes; j++)
		cur[j] += n * (cur[j] - start[j]);
}

/* Events of one pass, or of a third of it: span is the place of the result. */
static enum oom_status compile_pass(struct oom_compiled *c, const struct oom_tape *t,
				    const struct unit *unit, enum oom_pass_id pass, uint8_t span,
				    const struct oom_stream *s, struct front *outer,
				    struct front *inner)
{
	int64_t cur[MAX_CLASSES] = {0}, start[MAX_CLASSES];
	struct front *now = outer;
	bool full = false;

	outer->n = inner->n = 0;
	add(outer, cur, c->n_classes, &full);
	for (size_t i = 0; i < s->n; i++) {
		const int32_t ev = s->ev[i];
		const uint16_t k = ev >= 0 ? unit[ev >> 2].cls : 0;
		const int64_t w = ev >= 0 ? unit[ev >> 2].n : 0;

		if (oom_ev_is_unit(ev))
			continue;
		if (ev < 0) {
			const uint32_t mark = (uint32_t)(-1 - ev);

			if (mark & 1) {
				repeat(c, (int64_t)t->reps[mark / 2] - 1, start, cur, inner, outer, &full);
				now = outer;
			} else {
				memcpy(start, cur, sizeof(start));
				inner->n = 0;
				now = inner;
				add(now, cur, c->n_classes, &full);
			}
			continue;
		}
		switch (ev & 3) {
		case OOM_EV_ALLOC:
			cur[k] += w;
			/* an allocation right after this one has all that this one has */
			if (i + 1 == s->n || s->ev[i + 1] < 0 ||
			    (s->ev[i + 1] & 3) != OOM_EV_ALLOC) {
				add(now, cur, c->n_classes, &full);
			}
			break;
		case OOM_EV_FREE: cur[k] -= w; break;
		case OOM_EV_FREE_ALL: cur[k] -= w * t->rows[ev >> 2].mult; break;
		case OOM_EV_GRAD: cur[k] -= pass == OOM_PASS_BWD_ACC ? w : 0; break;
		}
	}
	if (full)
		return OOM_ERR_LIMIT;
	for (size_t m = 0; m < outer->n; m++)
		if (!moment(c, outer->at[m], span, OOM_MOMENT_PEAK))
			return OOM_ERR_MEMORY;
	return moment(c, cur, span, OOM_MOMENT_NET) ? OOM_OK : OOM_ERR_MEMORY;
}

static enum oom_status classify(struct oom_compiled *c, const struct oom_tape *t, struct unit *unit)
{
	c->n_classes = 0;
	for (size_t i = 0; i < t->n_rows; i++) {
		const uint64_t bytes = t->rows[i].width *
				       oom_dtype_bytes((enum oom_dtype)t->rows[i].dt);
		const bool whole = bytes && bytes % OOM_BLOCK == 0 && !t->rows[i].share;
		const uint64_t one = whole ? OOM_BLOCK : bytes;
		size_t k = 0;

		while (k < c->n_classes && (c->mono[k] != t->rows[i].mono || c->bytes[k] != one ||
					    c->share[k] != t->rows[i].share))
			k++;
		if (k == MAX_CLASSES)
			return OOM_ERR_LIMIT;
		if (k == c->n_classes) {
			c->mono[k] = t->rows[i].mono;
			c->bytes[k] = one;
			c->share[k] = t->rows[i].share;
			c->most[k] = 0;
			c->n_classes++;
		}
		c->most[k] = bytes > c->most[k] ? bytes : c->most[k];
		unit[i] = (struct unit){(uint16_t)k, whole ? (int64_t)(bytes / OOM_BLOCK) : 1};
	}
	return OOM_OK;
}

static void lenders(const struct oom_compiled *c, const struct oom_tape *t,
		    uint8_t (*lender)[MAX_CLASSES], uint8_t *lent)
{
	for (size_t k = 0; k < c->n_classes; k++) {
		lent[k] = 0;
		for (size_t j = 0; j < c->n_classes; j++) {
			lender[k][j] = k != j && c->bytes[k] == OOM_BLOCK && c->bytes[j] == OOM_BLOCK &&
				       !c->share[k] && !c->share[j] &&
				       oom_mono_contains(t, c->mono[j], c->mono[k]);
			lent[k] |= lender[k][j];
		}
	}
}

/* Every pass, whole or in its thirds. */
static enum oom_status compile_passes(struct oom_compiled *c, const struct oom_tape *t,
				      const struct unit *unit, struct front *outer,
				      struct front *inner)
{
	enum oom_status st = OOM_OK;

	for (size_t p = 0; !st && p < OOM_PASSES; p++) {
		const struct oom_stream *s = &t->streams[oom_stream_of((enum oom_pass_id)p)];
		size_t cut[4] = {0, s->n, s->n, s->n};

		if (c->parts == 3)
			oom_cut_at_layers(t, oom_stream_of((enum oom_pass_id)p), cut);
		for (size_t k = 0; !st && k < c->parts; k++) {
			const struct oom_stream part = {.ev = s->ev + cut[k],
							.n = cut[k + 1] - cut[k]};

			st = compile_pass(c, t, unit, (enum oom_pass_id)p,
					  (uint8_t)(p * c->parts + k), &part, outer, inner);
		}
	}
	return st;
}

enum oom_status oom_compile(struct oom_compiled *c, const struct oom_tape *t, bool thirds)
{
	uint8_t lent[MAX_CLASSES];
	uint8_t (*lender)[MAX_CLASSES] = malloc(MAX_CLASSES * sizeof(*lender));
	/* what is read of these was written */
	struct front outer = {malloc(MAX_FRONT * sizeof(*outer.at)), 0,
			      (const uint8_t(*)[MAX_CLASSES])lender, lent};
	struct front inner = {malloc(MAX_FRONT * sizeof(*inner.at)), 0,
			      (const uint8_t(*)[MAX_CLASSES])lender, lent};
	struct unit *unit = malloc((t->n_rows + 1) * sizeof(*unit));
	enum oom_status st = OOM_ERR_MEMORY;

	c->ready = false;
	c->parts = thirds ? 3 : 1;
	c->n_terms = c->n_moments = 0;
	if (!c->mono)
		c->mono = malloc(MAX_CLASSES * sizeof(*c->mono));
	if (!c->bytes)
		c->bytes = malloc(MAX_CLASSES * sizeof(*c->bytes));
	if (!c->most)
		c->most = malloc(MAX_CLASSES * sizeof(*c->most));
	if (!c->share)
		c->share = malloc(MAX_CLASSES * sizeof(*c->share));
	if (!c->size)
		c->size = malloc(MAX_CLASSES * sizeof(*c->size));
	if (outer.at && inner.at && lender && unit && c->mono && c->most && c->bytes &&
	    c->share && c->size)
		st = classify(c, t, unit);
	if (!st)
		lenders(c, t, lender, lent);
	if (!st)
		st = compile_passes(c, t, unit, &outer, &inner);
	c->ready = !st;
	free(outer.at);
	free(inner.at);
	free(lender);
	free(unit);
	return st;
}

void oom_compiled_release(struct oom_compiled *c)
{
	free(c->mono);
	free(c->bytes);
	free(c->most);
	free(c->share);
	free(c->size);
	free(c->terms);
	free(c->moments);
	memset(c, 0, sizeof(*c));
}

bool oom_compiled_spans(struct oom_compiled *c, const struct oom_tape *t,
			const struct oom_batch *at, uint64_t limit, struct oom_span *out)
{
	uint64_t mono[OOM_MAX_MONOS], *const size = c->size;

	oom_monos_eval(t, at->b, at->s, at->t, mono);
	for (size_t k = 0; k < c->n_classes; k++) {
		uint64_t n;

		if (__builtin_mul_overflow(mono[c->mono[k]], c->most[k], &n) || n > limit)
			return false;
		n = oom_shared_bytes(mono[c->mono[k]] * c->bytes[k], (enum oom_share)c->share[k],
				     at->ranks);
		size[k] = oom_block(n);
	}
	for (size_t p = 0; p < OOM_PASSES * c->parts; p++)
		out[p] = (struct oom_span){0, 0};
	for (size_t m = 0; m < c->n_moments; m++) {
		struct oom_span *o = &out[c->moments[m].span];
		const struct oom_term *q = c->terms + c->moments[m].from,
				      *to = c->terms + c->moments[m].to;
		int64_t sum = 0, odd = 0;

		/* two sums side by side: neither waits for the other */
		for (; q + 1 < to; q += 2) {
			sum += q[0].count * (int64_t)size[q[0].cls];
			odd += q[1].count * (int64_t)size[q[1].cls];
		}
		if (q < to)
			sum += q->count * (int64_t)size[q->cls];
		sum += odd;
		if (c->moments[m].kind == OOM_MOMENT_NET)
			o->net = sum;
		else
			o->peak = sum > o->peak ? sum : o->peak;
	}
	return true;
}
