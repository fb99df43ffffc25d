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
#include "device_map.h"

#include <string.h>

#include "families/model.h"
#include "phases.h"
#include "plan/defaults.h"
#include "tape/timeline.h"

enum { BEFORE, LAYER, AFTER, PARTS };

/* A third of the model; LAYER stands for one layer of n, all taken as equal. */
struct part {
	uint64_t stored;                /* weights as they lie on the card, rounded */
	uint64_t trainable;             /* elements */
	uint64_t grads;                 /* their gradients, rounded */
	struct oom_third fwd, bwd, acc, eval;
};
struct chain {
	struct part part[PARTS];
	uint64_t n, total, shared, hidden, logits;
	bool tied;                      /* the head runs where the embedding lies */
};
struct device {
	uint64_t layers;
	bool first, before, after;
};

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

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

static void chain_of(const struct program *g, const struct oom_arch *a, const struct oom_plan *p,
		     uint64_t b, uint64_t s, uint64_t tgt, struct chain *c)
{
	const struct oom_tape *t = &g->tape;

	memset(c, 0, sizeof(*c));
	c->n = g->layers;
	c->tied = a->tie;
	sum_weights(g, p, c);
	for (int i = 0; i < PARTS; i++) {
		c->part[i].fwd = g->third[OOM_PASS_FWD][i];
		c->part[i].eval = g->third[OOM_PASS_EVAL][i];
		c->part[i].bwd = g->third[OOM_PASS_BWD][PARTS - 1 - i];
		c->part[i].acc = g->third[OOM_PASS_BWD_ACC][PARTS - 1 - i];
	}
	/* masks and rotary tables, which every layer elsewhere gets a copy of */
	for (size_t i = 0; i < t->n_rows; i++)
		if (t->rows[i].shared && t->rows[i].born == OOM_STREAM_FWD)
			c->shared += (oom_mono_eval(t, t->rows[i].mono, b, s, tgt) *
					      t->rows[i].width *
					      oom_dtype_bytes((enum oom_dtype)t->rows[i].dt) +
				      511) /
				     512 * 512;
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

	for (size_t i = 0; i < g->tape.n_params; i++)
		tensors += g->tape.params[i].count;
	mean = c->total / (tensors ? tensors : 1);
	budget = c->total / (uint64_t)p->gpus + most(c->part[LAYER].stored, mean) * 5 / 4;
	/* bitsandbytes keeps a tenth free (quantizer_bnb_4bit.py adjust_max_memory) */
	return p->qlora ? budget / 10 * 9 : budget;
}

/* The GPUs that differ: where a module begins or ends, and those between are like their
 * neighbour. Fills dev[gpus], at most n + 2 of them used; returns how many. */
static size_t lay_out(const struct program *g, const struct oom_plan *p, const struct chain *c,
		      struct device *dev, size_t cap)
{
	struct layout l = {.budget = budget_of(g, p, c), .gpus = (uint64_t)p->gpus};
	const uint64_t head = c->tied ? 0 : c->part[AFTER].stored, layer = c->part[LAYER].stored;
	uint64_t at = place(&l, c->part[BEFORE].stored, most(layer, head)), home = at;

	l.gpus = l.gpus < cap ? l.gpus : cap;
	memset(dev, 0, cap * sizeof(*dev));
	at = at < cap ? at : cap - 1;
	dev[at].before = true;
	for (uint64_t i = 0; i < c->n; i++) {
		at = place(&l, layer, most(i + 1 < c->n ? layer : 0, head));
		dev[at].layers++;
	}
	at = c->tied ? home : place(&l, head, 0);
	dev[at].after = true;
	dev[0].first = true;
	return (size_t)most(l.gpu, at) + 1;
}

/* ---- one GPU ---- */

static uint64_t share_of(uint64_t bytes, uint64_t part, uint64_t whole)
{
	return whole ? (uint64_t)((double)bytes * (double)part / (double)whole) : 0;
}

/* A pass over what the GPU holds of the chain, from `cur` bytes on; fwd: in its order. */
static uint64_t run(const struct chain *c, const struct device *d, size_t offset, bool forward,
		    int64_t *cur)
{
	int64_t peak = *cur;

	for (int k = 0; k < PARTS; k++) {
		const int i = forward ? k : PARTS - 1 - k;
		const struct oom_third *s =
			(const void *)((const char *)&c->part[i] + offset);
		const int64_t n = i == BEFORE ? d->before :
				  i == AFTER  ? d->after :
						(int64_t)d->layers;
		const int64_t top = *cur + s->peak + (s->net > 0 ? (n - 1) * s->net : 0);

		if (!n)
			continue;
		peak = top > peak ? top : peak;
		*cur += n * s->net;
	}
	return peak > 0 ? (uint64_t)peak : 0;
}

#define PASS(name) offsetof(struct part, name)

/* What lies on a GPU between passes. */
struct holding {
	uint64_t stored, trained, grads, opt, temps[2], base;
};

static struct holding held_by(const struct program *g, const struct chain *c,
			      const struct device *d, uint64_t inputs,
			      const struct oom_state_sums *state)
{
	const uint64_t n[PARTS] = {d->before, d->layers, d->after};
	/* foreach steps list by list and device by device; others one tensor at a time */
	const bool lists = state->temps[1] >= g->trainable;
	struct holding h = {0};

	for (int i = 0; i < PARTS; i++) {
		h.stored += n[i] * c->part[i].stored;
		h.trained += n[i] * c->part[i].trainable;
		h.grads += n[i] * c->part[i].grads;
	}
	h.base = h.stored + g->tape.buffer_rounded + (d->first ? inputs : 0);
	h.opt = share_of(state->rounded, h.trained, g->trainable);
	for (int i = 0; i < 2 && h.trained; i++)
		h.temps[i] = lists ? share_of(state->temps[i], h.trained, g->trainable) :
				     state->temps[i];
	return h;
}

static void one_gpu(const struct program *g, const struct oom_plan *p, const struct chain *c,
		    const struct device *d, const struct holding *h, uint64_t inputs,
		    struct oom_eval *out)
{
	const uint64_t copies = d->before ? 0 :
					    c->shared * (p->grad_ckpt ? d->layers != 0 : d->layers);
	/* the root module's hook brings the logits back to where the inputs were */
	const uint64_t back = d->first && !d->after ? c->logits : 0,
		       held = p->grad_accum > 1 ? h->grads : 0;
	int64_t cur = (int64_t)(d->before ? 0 : c->hidden), again, ev = cur;
	uint64_t fpeak = run(c, d, PASS(fwd), true, &cur), bpeak, left;

	left = cur > 0 ? (uint64_t)cur : 0;
	again = cur;
	fpeak = most(fpeak, left + back);
	bpeak = run(c, d, PASS(bwd), false, &cur);
	if (held)
		bpeak = most(bpeak, held + run(c, d, PASS(acc), false, &again));
	out->param_bytes = h->stored;
	out->peak[OOM_PHASE_LOAD] = out->end[OOM_PHASE_LOAD] = h->stored + g->tape.buffer_rounded;
	out->peak[OOM_PHASE_EVAL] = h->base + run(c, d, PASS(eval), true, &ev) + back;
	out->end[OOM_PHASE_EVAL] = h->base;
	for (int step = 0; step < 2; step++) {
		const uint64_t now = h->base + (step ? h->opt : 0);
		const int i = step * 3;

		out->peak[OOM_PHASE_FWD1 + i] = now + held + copies + fpeak;
		out->end[OOM_PHASE_FWD1 + i] = now + held + copies + left;
		out->peak[OOM_PHASE_BWD1 + i] = now + copies + bpeak;
		out->end[OOM_PHASE_BWD1 + i] = now + h->grads;
		out->peak[OOM_PHASE_OPT1 + i] = h->base + h->grads + h->opt + h->temps[step];
		out->end[OOM_PHASE_OPT1 + i] = h->base + h->opt;
	}
	out->saved_bytes = left + copies;
	out->overall_peak = 0;
	for (int i = OOM_PHASE_FWD1; i <= OOM_PHASE_OPT2; i++)
		if (out->peak[i] > out->overall_peak) {
			out->overall_peak = out->peak[i];
			out->peak_phase = (enum oom_phase)i;
		}
	out->bucket[OOM_BUCKET_PARAMS] = h->stored;
	out->bucket[OOM_BUCKET_BUFFERS] = g->tape.buffer_rounded;
	out->bucket[OOM_BUCKET_INPUTS] = d->first ? inputs : 0;
	out->bucket[OOM_BUCKET_GRADS] = h->grads;
	out->bucket[OOM_BUCKET_OPT] = h->opt;
}

/* Who is alive at the peak of phase: the states of this GPU, the rest as activations or, in the
 * step, temporaries. */
static void compose(struct oom_eval *out, const struct oom_plan *p, enum oom_phase phase)
{
	const int kind = ((int)phase - OOM_PHASE_FWD1) % 3;
	uint64_t rest = out->peak[phase];

	if (phase < OOM_PHASE_OPT1)
		out->bucket[OOM_BUCKET_OPT] = 0;
	if (kind == 0 && p->grad_accum == 1)
		out->bucket[OOM_BUCKET_GRADS] = 0;
	for (int b = 0; b < OOM_BUCKETS; b++) {
		if (b == OOM_BUCKET_SAVED || b == OOM_BUCKET_TEMP)
			continue;
		out->bucket[b] = out->bucket[b] < rest ? out->bucket[b] : rest;
		rest -= out->bucket[b];
	}
	if (kind != 2)
		out->bucket[OOM_BUCKET_SAVED] = rest < out->saved_bytes ? rest : out->saved_bytes;
	out->bucket[OOM_BUCKET_TEMP] = rest - out->bucket[OOM_BUCKET_SAVED];
	out->peak_op = kind == 2 ? "optimizer step" : kind ? "backward" : "forward";
	out->peak_module = "layers of the fullest GPU";
}

void oom_device_map(const struct program *g, const struct oom_arch *a, const struct oom_plan *p,
		    uint64_t inputs, const struct oom_state_sums *state,
		    enum oom_phase at, struct oom_eval *out)
{
	enum { MOST = OOM_MAP_GPUS };
	struct oom_eval one, top, home;
	struct device dev[MOST], *last = NULL;
	uint64_t b, s, tgt, least = UINT64_MAX;
	struct holding h;
	struct chain c;
	size_t n;

	out->offloaded_bytes = out->floor_bytes = out->saved_amp_bytes = out->saved_logits_bytes =
		0;
	one = top = home = *out;
	oom_batch_sizes(p, &b, &s, &tgt);
	chain_of(g, a, p, b, s, tgt, &c);
	c.hidden = b * s * a->d_model *
		   (p->precision == OOM_BF16 || p->precision == OOM_FP16 ? 2 : 4);
	c.logits = oom_eval_logits(a, p, b, s, tgt);
	n = lay_out(g, p, &c, dev, MOST);
	top.overall_peak = 0;
	for (size_t i = 0; i < n; last = &dev[i++]) {
		if (last && !memcmp(last, &dev[i], sizeof(dev[i])))
			continue;               /* like its neighbour */
		memset(one.bucket, 0, sizeof(one.bucket));
		h = held_by(g, &c, &dev[i], inputs, state);
		one_gpu(g, p, &c, &dev[i], &h, inputs, &one);
		least = one.overall_peak < least ? one.overall_peak : least;
		home = i ? home : one;
		if (one.overall_peak <= top.overall_peak)
			continue;
		top = one;
		top.stage = (uint32_t)i;
	}
	*out = top;
	out->n_stages = (uint32_t)p->gpus;
	out->least_peak = n < (size_t)p->gpus ? 0 : least;
	/* evaluation piles its logits up where the inputs were */
	if (p->eval_accumulation) {
		oom_pile_up(&home, (uint64_t)p->eval_accumulation, c.logits,
			    home.end[OOM_PHASE_EVAL], home.bucket[OOM_BUCKET_OPT]);
		out->peak[OOM_PHASE_EVAL] = home.peak[OOM_PHASE_EVAL];
		if (home.overall_peak > out->overall_peak && home.peak_phase == OOM_PHASE_EVAL) {
			*out = home;
			out->n_stages = (uint32_t)p->gpus;
			out->stage = 0;
			out->least_peak = least;
		}
	}
	compose(out, p, at ? at : out->peak_phase);
}
