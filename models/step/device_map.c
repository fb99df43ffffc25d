/* device_map="auto": one process, layers laid out over several GPUs one after the other, which work
 * in turn.
 *
 * The layout follows transformers/integrations/accelerate.py (get_balanced_memory,
 * infer_auto_device_map): weights are balanced, training is not.  Each GPU but the last may take
 *
 *   weights / GPUs + 1.25 x max(largest block, mean leaf module)
 *
 * and the first one keeps room for the largest module still to come.  What a GPU then holds is read
 * from the tape: what the step does before the layers, in one layer, and after them. */
#include "step/device_map.h"

#include <string.h>

#include "config/arch.h"
#include "plan/defaults.h"
#include "tape/round.h"

enum { BEFORE = OOM_PART_BEFORE, LAYER = OOM_PART_LAYER, AFTER = OOM_PART_AFTER };

/* A third of the model; LAYER stands for one layer of n, all taken as equal. */
struct part {
	uint64_t stored;                /* weights as they lie on the card, rounded */
	uint64_t trainable;             /* elements */
	uint64_t grads;                 /* their gradients, rounded */
};
struct chain {
	struct part part[OOM_PARTS];
	uint64_t n, total, shared, hidden, logits;
	bool tied;                      /* the head runs where the embedding lies */
};
struct device {
	uint64_t layers, from;          /* its layers begin with number `from` */
	bool first, before, after;
};

/* ---- the chain ---- */

static void sum_weights(const struct program *g, const struct oom_plan *p, struct chain *c)
{
	int at = BEFORE;

	for (size_t i = 0; i < g->tape.n_params; i++) {
		const struct oom_param *q = &g->tape.params[i];
		uint64_t rounded;

		oom_param_bytes(q, p, &rounded);
		at = q->in_layer ? LAYER : at == BEFORE ? BEFORE : AFTER;
		c->part[at].stored += rounded * q->count;
		if (q->trainable && q->grad >= 0) {
			c->part[at].trainable += q->elems * q->count;
			c->part[at].grads += rounded * q->count;
		}
		c->total += rounded * q->count;
	}
	c->part[LAYER].stored /= c->n;
	c->part[LAYER].trainable /= c->n;
	c->part[LAYER].grads /= c->n;
}

/* Masks and rotary tables, which every layer elsewhere gets a copy of. */
static uint64_t shared_bytes(const struct oom_tape *t, const struct oom_batch *at)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < t->n_rows; i++)
		if (t->rows[i].shared && t->rows[i].born == OOM_STREAM_FWD)
			sum += oom_block(oom_mono_eval(t, t->rows[i].mono, at->b, at->s, at->t) *
					 t->rows[i].width *
					 oom_dtype_bytes((enum oom_dtype)t->rows[i].dt));
	return sum;
}

static void chain_of(const struct program *g, const struct oom_variant *v,
		     const struct oom_arch *a, const struct oom_plan *p, struct chain *c)
{
	const struct oom_batch *at = &v->cut_at;

	memset(c, 0, sizeof(*c));
	c->n = v->layers;
	c->tied = a->tie;
	sum_weights(g, p, c);
	c->shared = shared_bytes(v->tape, at);
	c->hidden = at->b * at->s * a->d_model *
		    (p->precision == OOM_BF16 || p->precision == OOM_FP16 ? 2 : 4);
	c->logits = oom_eval_logits(a, p, at->b, at->s, at->t);
}

/* ---- the layout ---- */

struct layout {
	uint64_t budget, used, gpu, gpus;
	bool reserves;                  /* this is the first GPU */
};

/* The GPU a module of this size goes to; `largest` of those still to come is kept free on the
 * first. */
static uint64_t place(struct layout *l, uint64_t size, uint64_t largest)
{
	while (l->gpu + 1 < l->gpus &&
	       l->used + size + (l->gpu ? 0 : largest) > l->budget) {
		l->gpu++;
		l->used = 0;
	}
	l->used += size;
	return l->gpu;
}

static uint64_t budget_of(const struct program *g, const struct oom_plan *p, const struct chain *c)
{
	uint64_t tensors = 0, budget, mean;
	bool four_bit = false;

	for (size_t i = 0; i < g->tape.n_params; i++) {
		tensors += g->tape.params[i].count;
		four_bit |= (g->tape.params[i].flags & OOM_P_QUANTISED) != 0;
	}
	mean = c->total / (tensors ? tensors : 1);
	budget = c->total / (uint64_t)p->gpus + oom_most(c->part[LAYER].stored, mean) * 5 / 4;
	/* bitsandbytes keeps a tenth free (quantizer_bnb_4bit.py adjust_max_memory) */
	return four_bit ? budget / 10 * 9 : budget;
}

/* The GPUs that differ: where a module begins or ends, and those between are like their
 * neighbour. Fills dev[gpus], at most n + 2 of them used; returns how many. */
static size_t lay_out(const struct program *g, const struct oom_plan *p, const struct chain *c,
		      struct device *dev, size_t cap)
{
	struct layout l = {.budget = budget_of(g, p, c), .gpus = (uint64_t)p->gpus};
	const uint64_t head = c->tied ? 0 : c->part[AFTER].stored, layer = c->part[LAYER].stored;
	uint64_t at = place(&l, c->part[BEFORE].stored, oom_most(layer, head)), home = at;

	l.gpus = l.gpus < cap ? l.gpus : cap;
	memset(dev, 0, cap * sizeof(*dev));
	at = at < cap ? at : cap - 1;
	dev[at].before = true;
	for (uint64_t i = 0; i < c->n; i++) {
		at = place(&l, layer, oom_most(i + 1 < c->n ? layer : 0, head));
		dev[at].layers++;
	}
	at = c->tied ? home : place(&l, head, 0);
	dev[at].after = true;
	dev[0].first = true;
	for (size_t i = 1; i < cap; i++)
		dev[i].from = dev[i - 1].from + dev[i - 1].layers;
	return (size_t)oom_most(l.gpu, at) + 1;
}

/* ---- one GPU ---- */

static uint64_t share_of(uint64_t bytes, uint64_t part, uint64_t whole)
{
	return whole ? (uint64_t)((double)bytes * (double)part / (double)whole) : 0;
}

/* The schedule of one GPU: the whole model's, with its own part of the states and of the chain. */
static void schedule_of(const struct oom_schedule *whole, const struct oom_plan *p,
			const struct chain *c, const struct device *d, struct oom_schedule *s)
{
	const uint64_t n[OOM_PARTS] = {d->before, d->layers, d->after};
	/* foreach steps list by list and device by device; others one tensor at a time */
	const bool lists = oom_optimizer_at((size_t)p->optimizer)->lists;
	uint64_t trained = 0;

	*s = *whole;
	s->hold[OOM_HOLD_WEIGHTS].bytes = s->chain_grads = 0;
	for (int i = 0; i < OOM_PARTS; i++) {
		s->hold[OOM_HOLD_WEIGHTS].bytes += n[i] * c->part[i].stored;
		trained += n[i] * c->part[i].trainable;
		s->chain_grads += n[i] * c->part[i].grads;
	}
	s->hold[OOM_HOLD_INPUTS].bytes = d->first ? whole->hold[OOM_HOLD_INPUTS].bytes : 0;
	s->hold[OOM_HOLD_STATE].bytes =
		share_of(whole->hold[OOM_HOLD_STATE].bytes, trained, whole->in.trainable);
	for (int i = 0; i < 2; i++)
		s->temps[i] = !trained ? 0 :
			      lists    ? share_of(whole->temps[i], trained, whole->in.trainable) :
					 whole->temps[i];
	s->chain = (struct oom_chain){.times = {n[0], n[1], n[2]}, .first = d->from};
	if (d->before)
		return;
	oom_add_holding(s, "hidden states received", OOM_BUCKET_SAVED, c->hidden, OOM_AT_FORWARD,
		 OOM_AT_STEP);
	oom_add_holding(s, "copies of masks and tables", OOM_BUCKET_SAVED,
		 c->shared * (p->grad_ckpt ? d->layers != 0 : d->layers), OOM_AT_FORWARD,
		 OOM_AT_STEP)->training = true;
	/* the root module's hook brings the logits back to where the inputs were */
	if (d->first && !d->after)
		oom_add_holding(s, "logits brought back", OOM_BUCKET_LOGITS, c->logits, OOM_AT_OUTPUT,
			 OOM_AT_BACKWARD);
}

static bool alike(const struct device *a, const struct device *b)
{
	return a->layers == b->layers && a->first == b->first && a->before == b->before &&
	       a->after == b->after;
}

void oom_device_map(const struct program *g, const struct oom_variant *v, const struct oom_arch *a,
		    const struct oom_plan *p, const struct oom_schedule *whole,
		    const uint64_t *size, struct oom_eval *out, struct oom_alive *alive,
		    struct oom_schedule *fullest)
{
	struct oom_alive here[OOM_PHASES] = {{{0}, NULL, NULL}};
	struct device dev[OOM_MAP_GPUS], *last = NULL;
	struct oom_eval one = *out, top = *out;
	uint64_t least = UINT64_MAX;
	struct oom_schedule s;
	struct chain c;
	size_t n;

	chain_of(g, v, a, p, &c);
	n = lay_out(g, p, &c, dev, OOM_MAP_GPUS);
	top.overall_peak = 0;
	for (size_t i = 0; i < n; last = &dev[i++]) {
		if (last && alike(last, &dev[i]))
			continue;
		schedule_of(whole, p, &c, &dev[i], &s);
		oom_read_phases(&s, v, size, &one, alive ? here : NULL);
		/* evaluation piles its logits up where the inputs were */
		if (p->eval_accumulation && dev[i].first)
			oom_pile_up(&s, &one, (uint64_t)p->eval_accumulation, c.logits,
				    alive ? here : NULL);
		one.param_bytes = s.hold[OOM_HOLD_WEIGHTS].bytes;
		least = one.overall_peak < least ? one.overall_peak : least;
		if (one.overall_peak <= top.overall_peak)
			continue;
		top = one;
		top.stage = (uint32_t)i;
		*fullest = s;
		if (alive)
			memcpy(alive, here, sizeof(here));
	}
	*out = top;
	out->n_stages = (uint32_t)p->gpus;
	out->least_peak = n < (size_t)p->gpus ? 0 : least;
}
