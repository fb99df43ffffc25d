/* Exact search: every combination of the free knobs is priced; the best is kept, and what it does not dominate.
 *
 * Nothing is pruned.  A combination costs one evaluation of a recorded tape, so the whole single-GPU grid is a few
 * thousand of them; knobs that change the tape vary slowest, so that each structure is recorded once. */
#include "oomplan/search.h"

#include <string.h>

#include "optimizers.h"

/* Outer axes change what is recorded, the batch its sizes; those inside of it neither (the evaluator remembers). */
static const struct oom_search_axis axes[] = {
	{"precision", "amp-bf16 when fp32 was asked", OOM_NUMERICS},
	{"attn", "sdpa when eager was asked", OOM_EXACT},
	{"loss", "fused", OOM_EXACT},
	{"grad-ckpt", "full", OOM_EXACT},
	{"lora-r", "16, and QLoRA (only when allowed)", OOM_SCIENCE},
	{"micro-batch", "every divisor of the batch a GPU sees", OOM_EXACT},
	{"optimizer", "adamw-8bit, paged-adamw-8bit for an Adam", OOM_NUMERICS},
	{"zero", "every stage of the engine, on two GPUs or more", OOM_PLACEMENT},
	{"offload-optimizer", "cpu", OOM_PLACEMENT},
	{"allocator", "expandable_segments", OOM_EXACT},
};
enum { PRECISION, ATTN, LOSS, CKPT, LORA, BATCH, OPTIMIZER, ZERO, OFFLOAD, ALLOCATOR, AXES };

const struct oom_search_axis *oom_search_axis_at(size_t i)
{
	return i < AXES ? &axes[i] : NULL;
}

struct seeker {
	struct oom_evaluator *ev;
	const struct oom_model *model;
	const struct oom_plan *asked;
	const struct oom_gpu *gpu;
	uint64_t capacity;
	unsigned allow;
	enum oom_objective objective;
	int64_t divisor[128];
	size_t n_divisors;
	int64_t eight, paged;           /* optimizers by name */
	struct oom_search *out;
	struct oom_error *err;
};

static int64_t optimizer_index(const char *name)
{
	for (int64_t i = 0; oom_optimizer_choice((size_t)i); i++)
		if (!strcmp(oom_optimizer_choice((size_t)i)->name, name))
			return i;
	return -1;
}

/* Value k of an axis applied to p; false past the last.  Value 0 is what was asked. */
static bool apply(const struct seeker *s, int axis, size_t k, struct oom_plan *p)
{
	const struct oom_plan *a = s->asked;
	const bool fsdp = a->engine == OOM_ENGINE_FSDP1 || a->engine == OOM_ENGINE_FSDP2;

	if (axis == BATCH) {
		if (k >= s->n_divisors)
			return false;
		p->grad_accum = a->micro_batch * a->grad_accum / s->divisor[k];
		p->micro_batch = s->divisor[k];
		return true;
	}
	if (k == 0)
		return true;
	switch (axis) {
	case PRECISION:
		p->precision = OOM_AMP_BF16;
		return k == 1 && a->precision == OOM_FP32;
	case ATTN:
		p->attn = OOM_ATTN_SDPA;
		return k == 1 && a->attn == OOM_ATTN_EAGER;
	case LOSS:
		p->fused_ce = OOM_LOSS_FUSED;
		return k == 1 && a->fused_ce != OOM_LOSS_FUSED;
	case CKPT:
		p->grad_ckpt = OOM_CKPT_FULL;
		return k == 1 && a->grad_ckpt != OOM_CKPT_FULL;
	case OPTIMIZER:
		p->optimizer = k == 1 ? s->eight : s->paged;
		return k <= 2 && p->optimizer >= 0 && !strncmp(oom_optimizer_choice((size_t)a->optimizer)->name, "adamw", 5) &&
		       p->optimizer != a->optimizer;
	case LORA:
		if (!(s->allow & OOM_ALLOW_LORA) || k > 2 || a->lora_r)
			return false;
		p->lora_r = 16;
		if (!p->lora_targets[0])
			strcpy(p->lora_targets, "all-linear");
		if (k == 2) {
			p->qlora = p->kbit_prepare = 1;
			p->precision = OOM_BF16_AMP;
		}
		return true;
	case ZERO:
		if (a->gpus < 2 || (int64_t)k + a->zero_stage > 3)
			return false;
		p->zero_stage = a->zero_stage + (int64_t)k;
		if (p->engine == OOM_ENGINE_HF)
			p->engine = OOM_ENGINE_DEEPSPEED;
		(void)fsdp;
		return true;
	case OFFLOAD:
		if (k > 1 || a->offload_optimizer != OOM_OFFLOAD_NONE || a->engine == OOM_ENGINE_MEGATRON || fsdp)
			return false;
		p->engine = OOM_ENGINE_DEEPSPEED;
		p->zero_stage = p->zero_stage < 2 ? 2 : p->zero_stage;
		p->offload_optimizer = OOM_OFFLOAD_CPU;
		return true;
	case ALLOCATOR:
		p->allocator = OOM_ALLOC_EXPANDABLE;
		return k == 1 && a->allocator != OOM_ALLOC_EXPANDABLE;
	}
	return false;
}

/* ---- which is better ---- */

static double rank_of(const struct seeker *s, const struct oom_candidate *c)
{
	switch (s->objective) {
	case OOM_OBJECTIVE_FEWEST_CHANGES: return (double)c->departures;
	case OOM_OBJECTIVE_HEADROOM: return (double)c->used_bytes;
	default: return c->seconds_per_sample;
	}
}

static int compare(const struct seeker *s, const struct oom_candidate *a, const struct oom_candidate *b)
{
	const double x = rank_of(s, a), y = rank_of(s, b);

	if (a->cls != b->cls)
		return a->cls < b->cls ? -1 : 1;
	if (x != y)
		return x < y ? -1 : 1;
	if (a->departures != b->departures)
		return a->departures < b->departures ? -1 : 1;
	return a->seconds_per_sample < b->seconds_per_sample ? -1 : a->seconds_per_sample > b->seconds_per_sample;
}

/* a is nowhere worse than b, and somewhere better. */
static bool dominates(const struct oom_candidate *a, const struct oom_candidate *b)
{
	return a->cls <= b->cls && a->seconds_per_sample <= b->seconds_per_sample && a->departures <= b->departures &&
	       (a->cls < b->cls || a->seconds_per_sample < b->seconds_per_sample || a->departures < b->departures);
}

static void keep(struct seeker *s, const struct oom_candidate *c)
{
	struct oom_search *o = s->out;
	struct oom_candidate all[OOM_ALTERNATIVES + 2];
	size_t n = 0;

	o->fitting++;
	if (o->found)
		all[n++] = o->best;
	for (size_t i = 0; i < o->n_alternatives; i++)
		all[n++] = o->alternative[i];
	for (size_t i = 0; i < n; i++)
		if (dominates(&all[i], c) || (all[i].cls == c->cls && all[i].departures == c->departures &&
					      all[i].seconds_per_sample == c->seconds_per_sample))
			return;
	for (size_t i = 0; i < n;)              /* what it dominates leaves */
		if (dominates(c, &all[i]))
			all[i] = all[--n];
		else
			i++;
	all[n++] = *c;
	for (size_t i = 1; i < n; i++)
		for (size_t j = i; j > 0 && compare(s, &all[j], &all[j - 1]) < 0; j--) {
			const struct oom_candidate t = all[j];

			all[j] = all[j - 1];
			all[j - 1] = t;
		}
	o->found = true;
	o->best = all[0];
	o->n_alternatives = n - 1 < OOM_ALTERNATIVES ? n - 1 : OOM_ALTERNATIVES;
	memcpy(o->alternative, all + 1, o->n_alternatives * sizeof(all[0]));
}

static enum oom_status price(struct seeker *s, const struct oom_plan *p, enum oom_class cls, int departures)
{
	struct oom_candidate c = {.plan = *p, .cls = cls, .departures = departures};
	struct oom_eval e;
	const enum oom_status st = oom_evaluate(s->ev, s->model, p, OOM_EVAL_FAST, &e, s->err);

	s->out->evaluated++;
	if (st)
		return st == OOM_ERR_INVALID || st == OOM_ERR_LIMIT ? OOM_OK : st;      /* this combination cannot run */
	if (e.used_bytes > oom_budget(s->capacity, p))
		return OOM_OK;
	c.used_bytes = e.used_bytes;
	c.seconds_per_sample = 1 / oom_step_time(p, &e, s->gpu).samples_per_s;
	keep(s, &c);
	return OOM_OK;
}

static enum oom_status visit(struct seeker *s, int axis, const struct oom_plan *p, enum oom_class cls, int departures)
{
	if (axis == AXES)
		return price(s, p, cls, departures);
	for (size_t k = 0;; k++) {
		struct oom_plan q = *p;
		enum oom_status st;
		bool changed;

		if (!apply(s, axis, k, &q))
			return OOM_OK;
		changed = axis == BATCH ? q.micro_batch != s->asked->micro_batch : k > 0;
		st = visit(s, axis + 1, &q, changed && axes[axis].cls > cls ? axes[axis].cls : cls, departures + changed);
		if (st)
			return st;
	}
}

enum oom_status oom_search(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_plan *asked, uint64_t capacity,
			   const struct oom_gpu *gpu, unsigned allow, enum oom_objective objective, struct oom_search *out,
			   struct oom_error *err)
{
	struct seeker s = {.ev = ev, .model = model, .asked = asked, .gpu = gpu, .capacity = capacity, .allow = allow,
			   .objective = objective, .out = out, .err = err};
	const int64_t per_gpu = asked->micro_batch * asked->grad_accum;

	memset(out, 0, sizeof(*out));
	s.eight = optimizer_index("adamw-8bit");
	s.paged = optimizer_index("paged-adamw-8bit");
	/* divisors from the largest; of huge batches the first hundred and twenty-eight by size from the small end count too */
	for (int64_t d = 1; d * d <= per_gpu && s.n_divisors < 126; d++)
		if (per_gpu % d == 0) {
			s.divisor[s.n_divisors++] = d;
			if (d != per_gpu / d)
				s.divisor[s.n_divisors++] = per_gpu / d;
		}
	return visit(&s, 0, asked, OOM_EXACT, 0);
}
