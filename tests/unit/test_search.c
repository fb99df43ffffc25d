/* The search against brute force written separately, over the plans that frameworks run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/compat.h"
#include "oomplan/rules.h"
#include "oomplan/search.h"

static struct oom_model *load(const char *name, struct oom_keys *keys)
{
	struct oom_error err = {{0}};
	struct oom_model *m = NULL;

	assert_int_equal(oom_keys_read_model(keys, name, &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, keys, &err), OOM_OK);
	return m;
}

/* ---- brute force ----
 *
 * Plans are written down field by field and every one is priced; how many departures a plan is, and
 * of which classes, is read off the finished plan.  Nothing of the search's axes is used. */
struct brute {
	struct oom_evaluator *ev;
	const struct oom_model *model;
	const struct oom_plan *asked;
	uint64_t capacity;
	enum oom_objective objective;
	int64_t loss;           /* without whole logits: Liger has Llama's kin, GPT-2 is TRL's to chunk */
	bool liger;             /* and Liger's other kernels */
	bool resorts;           /* what is only tried where nothing else fits */
	struct oom_compat compat;
	struct oom_compat_set excused;
	struct triple {
		unsigned changes;       /* what is not exact: precision, optimizer, offload, length, adapters */
		double cost, seconds;
		int departures;
		uint64_t used;          /* 0: not replayed yet */
		struct oom_plan plan;
	} *all;
	size_t n, cap;
};

static bool is_fsdp(const struct oom_plan *p)
{
	return p->engine == OOM_ENGINE_FSDP1 || p->engine == OOM_ENGINE_FSDP2;
}

/* What the plan's engine and stage would be had only its offload (and number of GPUs) been asked
 * for. */
static struct oom_plan implied(const struct oom_plan *a, const struct oom_plan *p)
{
	const bool moved = p->offload_optimizer != a->offload_optimizer ||
			   p->offload_params != a->offload_params;
	const bool torchao = p->engine == OOM_ENGINE_HF && p->offload_optimizer;
	const bool off = p->offload_optimizer || p->offload_params;
	const int64_t stage = p->offload_params ? 3 : 2;
	struct oom_plan q = *a;

	if (off && moved && !torchao) {
		if (q.engine == OOM_ENGINE_HF)
			q.engine = OOM_ENGINE_DEEPSPEED;
		q.zero_stage = q.zero_stage < stage ? stage : q.zero_stage;
	}
	if (!off && p->gpus == 1 && (moved || p->gpus != a->gpus)) {
		q.engine = OOM_ENGINE_HF;
		q.zero_stage = q.hybrid_shard = 0;
	}
	return q;
}

static bool legal(const struct oom_plan *p)
{
	const bool off = p->offload_optimizer || p->offload_params;

	switch (p->engine) {
	case OOM_ENGINE_HF:            /* torchao's optimizer on the host */
		return !p->zero_stage && !p->offload_params && !p->hybrid_shard &&
		       (!off || p->gpus == 1);
	case OOM_ENGINE_MEGATRON: return !off;
	case OOM_ENGINE_DEEPSPEED:
		return !p->hybrid_shard &&
		       (!p->offload_params || (p->offload_optimizer && p->zero_stage == 3)) &&
		       (!p->offload_optimizer || p->zero_stage >= 2);
	default:
		return p->zero_stage >= 2 && !p->offload_optimizer &&
		       (!p->offload_params || p->zero_stage == 3) &&
		       (!p->hybrid_shard || (p->zero_stage == 3 && p->nodes > 1));
	}
}

/* With the asked one itself, which may be any. */
static bool reachable(const struct oom_plan *a, const struct oom_plan *p)
{
	const struct oom_plan i = implied(a, p);

	if ((p->offload_optimizer != a->offload_optimizer ||
	     p->offload_params != a->offload_params) && !legal(p))
		return false;
	if (p->engine == OOM_ENGINE_HF && p->offload_optimizer &&
	    (a->engine != OOM_ENGINE_HF || a->offload_optimizer))
		return false;
	/* small buckets on one GPU: of what moves something off it */
	if (a->gpus == 1 && p->reduce_bucket != a->reduce_bucket)
		return legal(p) && p->offload_optimizer && p->engine == i.engine && !p->bucket_view;
	/* FSDP on one GPU: to move everything off it */
	if (a->gpus == 1 && a->engine == OOM_ENGINE_HF && p->engine == OOM_ENGINE_FSDP2)
		return p->zero_stage == 3 && !p->bucket_view && !p->hybrid_shard && p->offload_params;
	if (p->engine == i.engine && p->zero_stage == i.zero_stage &&
	    p->bucket_view == i.bucket_view && p->hybrid_shard == i.hybrid_shard)
		return true;
	if (a->gpus == 1 || (p->gpus == 1 && !p->offload_optimizer && !p->offload_params))
		return false;
	if (!legal(p) || (p->bucket_view != a->bucket_view && p->engine != OOM_ENGINE_HF))
		return false;
	return a->engine == OOM_ENGINE_HF ? p->engine != OOM_ENGINE_DEEPSPEED || p->zero_stage :
					    p->engine == a->engine;
}

/* Each change must gain more time than the step time's interval: 1.35 on one GPU, 1.38 on a node, 1.45
 * beyond (models/step/time/README.md). */
static double cost(const struct brute *b, const struct oom_plan *p, double seconds, int departures)
{
	const double interval = b->asked->gpus <= 1 ? 1.35 : b->asked->nodes <= 1 ? 1.38 : 1.45;

	if (b->objective == OOM_OBJECTIVE_PRICE)
		seconds *= (double)p->gpus;
	return seconds * pow(interval, departures);
}

static void price(struct brute *b, const struct oom_plan *p, bool qlora)
{
	const struct oom_plan *a = b->asked, i = implied(a, p);
	const bool offload = p->offload_optimizer != a->offload_optimizer ||
			     p->offload_params != a->offload_params;
	const bool away = p->offload_activations != a->offload_activations;
	const bool narrow = p->precision == OOM_BF16 && a->precision != OOM_BF16;
	const bool layout = p->engine != i.engine || p->zero_stage != i.zero_stage ||
			    p->hybrid_shard != i.hybrid_shard || p->bucket_view != i.bucket_view ||
			    p->reduce_bucket != i.reduce_bucket || p->tp != i.tp || p->pp != i.pp || p->cp != i.cp || p->ep != i.ep;
	const bool precision = p->precision != a->precision && !qlora;
	const bool headroom = b->objective == OOM_OBJECTIVE_HEADROOM;
	const bool lora16 = precision && p->lora_r && !p->qlora && p->precision == OOM_BF16_AMP;
	struct oom_error err = {{0}};
	struct oom_plan run = *p;
	struct triple t = {0};
	struct oom_eval e;
	bool fits;

	/* mixed precision goes by the name of what the engine makes of it */
	oom_engine_respell(&run);
	if (!oom_compat_allows(&b->compat, &run, a, &b->excused))
		return;
	if (oom_judge(b->ev, b->model, &run, b->capacity, headroom ? OOM_EVAL_REPLAY : 0, &e, &fits,
		      &err) ||
	    !fits)
		return;
	t.departures = (p->seq_len != a->seq_len) + (p->gpus != a->gpus) + precision +
		       (p->attn != a->attn) +
		       (p->fused_ce != a->fused_ce) + (p->liger_kernels != a->liger_kernels) +
		       (p->grad_ckpt != a->grad_ckpt) + (p->lora_r != a->lora_r) +
		       (p->micro_batch != a->micro_batch) + layout + offload + away +
		       (p->optimizer != a->optimizer) + (p->sp != a->sp) +
		       (p->allocator != a->allocator) + (p->step_in_backward != a->step_in_backward);
	t.changes = (unsigned)(p->tp * p->pp * p->cp != a->tp * a->pp * a->cp && p->engine == OOM_ENGINE_FSDP2) << 5 |
		    (unsigned)precision | (unsigned)(narrow || lora16) << 1 |
		    (unsigned)(p->optimizer != a->optimizer) << 2 |
		    (unsigned)(p->step_in_backward != a->step_in_backward) << 3 |
		    (unsigned)(offload || away) << 4 | (unsigned)(p->seq_len != a->seq_len) << 6 |
		    (unsigned)(p->lora_r != a->lora_r) << 7;
	t.seconds = 1 / oom_step_time(&run, &e, NULL).samples_per_s;
	t.used = headroom ? e.wanted_bytes : 0;
	t.plan = run;
	t.cost = headroom ? (double)t.used :
		 cost(b, p, t.seconds, t.departures);
	if (b->n == b->cap) {
		b->cap = b->cap * 2 + 64;
		b->all = realloc(b->all, b->cap * sizeof(*b->all));
		assert_non_null(b->all);
	}
	b->all[b->n++] = t;
}

static void batches(struct brute *b, struct oom_plan p, bool qlora)
{
	const struct oom_plan *a = b->asked;
	const int64_t step = a->micro_batch * a->grad_accum * oom_plan_data_parallel(a),
		      ranks = oom_plan_data_parallel(&p);

	for (int64_t m = 1; m <= step / ranks; m++) {
		if (step % ranks || step / ranks % m)
			continue;
		p.micro_batch = m;
		p.grad_accum = step / ranks / m;
		p.offload_gradients = p.engine == OOM_ENGINE_HF && p.offload_optimizer && p.grad_accum == 1;
		for (int k = 0; k < 4; k++) {
			p.allocator = k & 1;
			p.step_in_backward = k >> 1;
			if ((p.allocator || !a->allocator) &&
			    (!p.step_in_backward ||
			     (a->gpus == 1 && p.engine == OOM_ENGINE_HF && p.grad_accum == 1 &&
			      !p.lora_r && !p.zero_stage)))
				price(b, &p, qlora);
		}
	}
}

static int64_t named(const char *optimizer)
{
	for (size_t i = 0;; i++)
		if (!strcmp(oom_knob_find("optimizer")->choice(i)->name, optimizer))
			return (int64_t)i;
}

/* torchao's optimizer on the host, FSDP on one GPU, FSDP1 where plain PyTorch was asked for, small buckets. */
static bool last_resort(const struct oom_plan *a, const struct oom_plan *p)
{
	return p->reduce_bucket != a->reduce_bucket ||
	       (p->engine == OOM_ENGINE_FSDP1 && a->engine == OOM_ENGINE_HF) ||
	       (p->engine == OOM_ENGINE_HF && p->offload_optimizer && !a->offload_optimizer) ||
	       (a->gpus == 1 && p->engine == OOM_ENGINE_FSDP2 && a->engine == OOM_ENGINE_HF);
}

/* FSDP2's mixtures with tensor, pipeline and context parallelism: every degree, whatever it divides. */
static void mixtures(struct brute *b, struct oom_plan p)
{
	const struct oom_plan *a = b->asked;
	const struct oom_model_shape m = oom_model_shape(b->model);
	const int64_t layers = a->num_layers;

	if (!b->resorts || p.gpus < 2 || p.gpus != a->gpus || a->engine == OOM_ENGINE_DEEPSPEED)
		return;
	p.engine = OOM_ENGINE_FSDP2;
	p.zero_stage = 3;
	for (p.tp = 1; p.tp <= p.gpus / p.nodes; p.tp++)
		for (p.pp = 1; p.pp <= p.gpus; p.pp++)
			for (p.cp = 1; p.cp <= p.gpus; p.cp++)
				if (p.tp * p.pp * p.cp > 1 && p.gpus % (p.tp * p.pp * p.cp) == 0 &&
				    (int64_t)m.n_heads % p.tp == 0 && layers % p.pp == 0 &&
				    (p.cp == 1 || p.seq_len % (2 * p.cp) == 0))
					batches(b, p, false);
}

/* A pass over one sequence in 16 bit, with autocast or without; 0: it does not run so. */
static uint64_t pass(const struct brute *b, int64_t attn, int64_t ckpt, bool autocast, enum oom_phase phase)
{
	struct oom_plan p = *b->asked;
	struct oom_eval e;

	p.micro_batch = p.grad_accum = 1;
	p.attn = attn;
	p.fused_ce = b->loss;
	p.grad_ckpt = ckpt;
	if (p.precision == OOM_FP32)
		p.precision = OOM_AMP_BF16;
	if (!oom_compat_launches(&b->compat, &p))
		return 0;
	p.precision = autocast ? p.precision : OOM_BF16;
	if (oom_evaluate(b->ev, b->model, &p, OOM_EVAL_FAST, &e, NULL))
		return 0;
	return e.peak[phase];
}

/* It holds less under this attention than under SDPA, be it with checkpoints or without. */
static bool is_leaner(const struct brute *b, int64_t attn)
{
	for (int i = 0; i < 8; i++) {
		const int64_t ckpt = i % 2 ? OOM_CKPT_FULL : OOM_CKPT_NONE;
		const enum oom_phase phase = i % 4 / 2 ? OOM_PHASE_BWD1 : OOM_PHASE_FWD1;
		const uint64_t other = pass(b, attn, ckpt, i / 4, phase);

		if (other && other < pass(b, OOM_ATTN_SDPA, ckpt, i / 4, phase))
			return true;
	}
	return false;
}

/* DeepSpeed's buckets as transformers makes them of "auto", a tenth of its live parameters. */
static bool narrow_buckets(struct oom_plan *p)
{
	if (p->engine != OOM_ENGINE_DEEPSPEED || !p->zero_stage)
		return false;
	p->reduce_bucket = OOM_COUNT_AUTO;
	if (p->zero_stage == 3) {
		p->prefetch_bucket = p->persistence = OOM_COUNT_AUTO;
		p->max_live_params = 100000000;
	}
	return true;
}

/* The plan, and with small buckets. */
static void buckets(struct brute *b, const struct oom_plan *p, bool qlora)
{
	struct oom_plan narrow = *p;

	if (reachable(b->asked, p) && (b->resorts || !last_resort(b->asked, p)))
		batches(b, *p, qlora);
	if (b->resorts && narrow_buckets(&narrow) && reachable(b->asked, &narrow))
		batches(b, narrow, qlora);
}

static void engines(struct brute *b, struct oom_plan p, bool qlora)
{
	static const int64_t off[4][2] = {{OOM_OFFLOAD_NONE, OOM_OFFLOAD_NONE},
					  {OOM_OFFLOAD_CPU, OOM_OFFLOAD_NONE},
					  {OOM_OFFLOAD_CPU, OOM_OFFLOAD_CPU},
					  {OOM_OFFLOAD_NONE, OOM_OFFLOAD_CPU}};
	const struct oom_plan *a = b->asked;
	const int64_t optimizers[5] = {a->optimizer, named("adamw-8bit-embfp32"), named("paged-adamw-8bit"),
				       named("adamw-4bit"), named("adamw")};
	const bool adam = !strncmp(oom_knob_find("optimizer")->choice((size_t)a->optimizer)->name,
				   "adamw", 5);

	for (int o = 0; o < (!adam ? 1 : b->resorts ? 5 : 3); o++)
		for (int k = 0; k < (b->resorts ? 8 : 4); k++)
			for (p.engine = 0; p.engine <= OOM_ENGINE_FSDP1; p.engine++)
				for (p.zero_stage = 0; p.zero_stage <= 3; p.zero_stage++)
					for (int flags = 0; flags < 4; flags++) {
						if (o && optimizers[o] == a->optimizer)
							continue;
						if (o == 1 && a->optimizer == named("adamw-8bit"))
							continue;       /* it is in 8 bits */
						p.optimizer = o == 1 && p.engine == OOM_ENGINE_FSDP2 && adam ?
								      named("adamw-torchao-8bit") : optimizers[o];
						p.offload_optimizer = off[k % 4][0];
						p.offload_params = off[k % 4][1];
						p.offload_activations = k / 4;
						p.bucket_view = flags & 1;
						p.hybrid_shard = flags >> 1;
						if (!k && !flags && !p.zero_stage && p.engine == OOM_ENGINE_FSDP2)
							mixtures(b, p);
						if (!is_fsdp(&p) || off[k % 4][0] == OOM_OFFLOAD_NONE)
							buckets(b, &p, qlora);
					}
}

static void adapters(struct brute *b, struct oom_plan p, unsigned allow)
{
	engines(b, p, false);
	if (!(allow & OOM_ALLOW_LORA) || b->asked->lora_r)
		return;
	p.lora_r = 16;
	if (b->resorts && p.precision == OOM_BF16)
		p.precision = OOM_BF16_AMP;     /* PEFT's adapters stay in fp32 */
	snprintf(p.lora_targets, sizeof(p.lora_targets), "%s", oom_model_lora_targets(b->model));
	engines(b, p, false);
	if (p.precision != b->asked->precision)
		return;                         /* QLoRA has a precision of its own */
	p.qlora = p.kbit_prepare = 1;
	p.precision = OOM_BF16_AMP;
	engines(b, p, true);
}

static void kernels(struct brute *b, struct oom_plan p, unsigned allow)
{
	const struct oom_plan *a = b->asked, q = p;

	for (int precision = 0; precision < 3; precision++)
		for (int64_t attn = OOM_ATTN_EAGER; attn <= OOM_ATTN_FLASH; attn++)
			for (int loss = 0; loss < 4; loss++)
				for (p.grad_ckpt = 0; p.grad_ckpt < 2; p.grad_ckpt++) {
					if ((precision == 1 && a->precision != OOM_FP32) ||
					    (precision == 2 && !b->resorts))
						continue;
					p.precision = precision == 2 ? OOM_BF16 :
						      precision	    ? OOM_AMP_BF16 :
								      q.precision;
					if (attn != a->attn && (attn != OOM_ATTN_SDPA || a->attn != OOM_ATTN_EAGER) &&
					    (!b->resorts || !is_leaner(b, attn)))
						continue;
					p.attn = attn;
					/* Liger's other kernels beside the loss that they come with */
					if (loss > 1 && (!b->resorts || !b->liger))
						continue;
					p.liger_kernels = loss > 1 ? OOM_LIGER_ALL : q.liger_kernels;
					p.fused_ce = loss & 1 ? b->loss : q.fused_ce;
					if (loss & 1 ? q.fused_ce != b->loss &&
							       (b->resorts || b->loss != OOM_LOSS_CHUNKED_NLL) :
						       loss < 2 || q.fused_ce == b->loss)
						adapters(b, p, allow);
				}
}

static int gravest(unsigned changes)
{
	return changes >= 64 ? OOM_SCIENCE :
	       changes >= 16 ? OOM_PLACEMENT :
	       changes	     ? OOM_NUMERICS :
			       OOM_EXACT;
}

static bool science_alone(const struct brute *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (gravest(b->all[i].changes) < OOM_SCIENCE)
			return false;
	return true;
}

static void brute(struct brute *b, unsigned allow)
{
	struct oom_plan p = *b->asked;

	b->resorts = false;
	b->n = 0;
	for (;; p.seq_len /= 2) {
		const struct oom_plan q = p;

		b->n = 0;
		for (int64_t n = 1; n <= q.gpus; n++) {
			const int64_t each = q.gpus / q.nodes, nodes = (n + each - 1) / each;

			if (n != q.gpus &&
			    (b->objective != OOM_OBJECTIVE_PRICE || q.gpus % n || n % nodes))
				continue;
			p.gpus = n;
			p.nodes = nodes;
			kernels(b, p, allow);
		}
		p = q;
		/* the last resorts before anything that changes the science */
		if (!b->resorts && (!b->n || (p.seq_len == b->asked->seq_len && science_alone(b)))) {
			b->resorts = true;
			p.seq_len *= 2;
			continue;
		}
		b->resorts = false;
		if (b->n || !(allow & OOM_ALLOW_SEQ_LEN) || p.seq_len < 256)
			return;
	}
}

static uint64_t used(const struct brute *b, struct triple *t)
{
	struct oom_error err = {{0}};
	struct oom_eval e;

	if (!t->used) {
		assert_int_equal(oom_evaluate(b->ev, b->model, &t->plan, OOM_EVAL_REPLAY, &e, &err),
				 OOM_OK);
		t->used = e.used_bytes;
	}
	return t->used;
}

/* The order the header promises. */
static int order(const struct brute *b, struct triple *x, struct triple *y)
{
	const bool few = b->objective == OOM_OBJECTIVE_FEWEST_CHANGES;
	const double a[5] = {gravest(x->changes), __builtin_popcount(x->changes),
			     few ? x->departures : x->cost, few ? x->cost : x->departures,
			     -(double)x->plan.micro_batch};
	const double c[5] = {gravest(y->changes), __builtin_popcount(y->changes),
			     few ? y->departures : y->cost, few ? y->cost : y->departures,
			     -(double)y->plan.micro_batch};

	for (int i = 0; i < 5; i++)
		if (a[i] != c[i])
			return a[i] < c[i] ? -1 : 1;
	if (used(b, x) != used(b, y))
		return used(b, x) < used(b, y) ? -1 : 1;
	return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* x is nowhere worse than y. */
static bool covers(const struct triple *x, const struct triple *y)
{
	return !(x->changes & ~y->changes) && x->cost <= y->cost && x->departures <= y->departures;
}

/* How many different plans nothing else covers. */
static size_t front(struct triple *t, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		size_t j = 0;

		for (; j < k && !covers(&t[j], &t[i]); j++)
			;
		if (j < k)
			continue;
		for (j = 0; j < k;)
			if (covers(&t[i], &t[j]))
				t[j] = t[--k];
			else
				j++;
		t[k++] = t[i];
	}
	return k;
}

/* Where two answers part. */
static void print_knobs(const struct oom_plan *asked, const struct oom_plan *x, const struct oom_plan *y)
{
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char a[OOM_VALUE_SIZE], b[OOM_VALUE_SIZE], c[OOM_VALUE_SIZE];

		oom_plan_get(asked, k, a, sizeof(a));
		oom_plan_get(x, k, b, sizeof(b));
		oom_plan_get(y, k, c, sizeof(c));
		if (strcmp(a, b) || strcmp(a, c))
			print_error("%s: asked %s, search %s, brute force %s\n", k->name, a, b, c);
	}
}

static void compare(struct brute *b, int problem, unsigned allow)
{
	struct triple *best = NULL;
	struct oom_error err = {{0}};
	struct oom_search_query q = {.asked = b->asked,
				     .capacity_bytes = b->capacity,
				     .allow = allow,
				     .objective = b->objective};
	struct oom_search s, one;

	assert_int_equal(oom_search(b->ev, b->model, &q, &s, &err), OOM_OK);
	q.best_only = true;
	assert_int_equal(oom_search(b->ev, b->model, &q, &one, &err), OOM_OK);
	assert_int_equal(s.found, one.found);
	assert_true(one.replayed <= s.replayed);
	if (s.found)
		assert_memory_equal(&s.best, &one.best, sizeof(one.best));
	/* asked for verdicts alone it finds the same plan */
	q.verdicts_only = true;
	assert_int_equal(oom_search(b->ev, b->model, &q, &one, &err), OOM_OK);
	assert_int_equal(s.found, one.found);
	if (s.found)
		assert_memory_equal(&s.best.plan, &one.best.plan, sizeof(one.best.plan));
	for (size_t i = 0; i < b->n; i++)
		if (!best || order(b, &b->all[i], best) < 0)
			best = &b->all[i];
	if (s.found != (b->n > 0))
		fail_msg("problem %d: search %d, brute force %zu", problem, s.found, b->n);
	if (!best)
		return;
	if ((int)s.best.cls != gravest(best->changes) ||
	    s.best.seconds_per_sample != best->seconds || s.best.departures != best->departures ||
	    s.best.wanted_bytes != used(b, best) || s.best.used_bytes > s.best.wanted_bytes) {
		print_knobs(b->asked, &s.best.plan, &best->plan);
		fail_msg("problem %d, objective %d: search class %d, %.9g s, %d departures, %llu; "
			 "brute force %d, %.9g, %d, %llu",
			 problem, b->objective, s.best.cls, s.best.seconds_per_sample,
			 s.best.departures, (unsigned long long)s.best.wanted_bytes,
			 gravest(best->changes), best->seconds, best->departures,
			 (unsigned long long)best->used);
	}
	assert_int_equal(s.n_undominated + 1, front(b->all, b->n));
}

static uint32_t draw(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1664525 + 1013904223;
	return (*seed >> 16) % n;
}

/* A set-up as somebody might ask for it. */
static struct oom_plan some_plan(uint32_t *seed)
{
	static const int64_t gpus[] = {1, 1, 1, 2, 4, 6, 8};
	struct oom_plan p = oom_plan_default();

	p.num_layers = 2 + draw(seed, 3);
	p.seq_len = 64 << draw(seed, 4);
	p.micro_batch = 1 + draw(seed, 12);
	p.grad_accum = 1 + draw(seed, 3);
	p.attn = draw(seed, 2) ? OOM_ATTN_EAGER : OOM_ATTN_SDPA;
	p.precision = draw(seed, 4) ? OOM_FP32 : OOM_AMP_BF16;
	p.grad_ckpt = draw(seed, 4) ? OOM_CKPT_NONE : OOM_CKPT_FULL;
	p.allocator = draw(seed, 4) ? OOM_ALLOC_NATIVE : OOM_ALLOC_EXPANDABLE;
	p.optimizer = draw(seed, 3) ? named("adamw") :
		      draw(seed, 2) ? named("adamw-8bit") :
				      named("sgd");
	p.gpus = gpus[draw(seed, 7)];
	p.nodes = p.gpus > 2 ? 1 + draw(seed, 2) : 1;
	switch (p.gpus > 1 ? draw(seed, 3) : draw(seed, 4) / 3) {
	case 1:
		p.engine = OOM_ENGINE_DEEPSPEED;
		p.zero_stage = p.gpus > 1 ? 1 + draw(seed, 3) : 2;
		if (p.zero_stage > 1 && draw(seed, 2))
			p.offload_optimizer = OOM_OFFLOAD_CPU;
		break;
	case 2:
		p.engine = OOM_ENGINE_FSDP2;
		p.zero_stage = 2 + draw(seed, 2);
		break;
	}
	return p;
}

/* What does not run becomes what does, before anything is searched for. */
static void ask(struct brute *b, struct oom_plan *p)
{
	assert_int_equal(oom_compat_init(&b->compat, b->model, p, NULL, NULL), OOM_OK);
	oom_compat_mend(&b->compat, p);
	b->excused = oom_compat_broken(&b->compat, p, p);
	b->asked = p;
}

static void test_brute_force(void **state)
{
	static const char *const models[] = {"GPT-2", "SmolLM2-135M"};
	enum { PROBLEMS = 28 };
	uint32_t seed = 7;
	int found = 0, not_found = 0;

	(void)state;
	for (int k = 0; k < 2; k++) {
		struct oom_keys keys = {0};
		struct oom_model *m = load(models[k], &keys);
		struct brute b = {.ev = oom_evaluator_new(), .model = m,
				  .loss = k ? OOM_LOSS_FUSED : OOM_LOSS_CHUNKED_NLL, .liger = k > 0};

		for (int i = 0; i < PROBLEMS / 2; i++) {
			struct oom_plan p = some_plan(&seed);
			const unsigned allow = draw(&seed, 3) ? 0 : 1 + draw(&seed, 3);

			ask(&b, &p);
			b.objective = (enum oom_objective)(i % 4);
			b.capacity = (uint64_t)((p.gpus > 1 ? 1900 : 520) +
						150 * draw(&seed, 1 + draw(&seed, 20)))
				     << 20;
			brute(&b, allow);
			found += b.n > 0;
			not_found += !b.n;
			compare(&b, k * 1000 + i, allow);
		}
		free(b.all);
		oom_evaluator_free(b.ev);
		oom_model_free(m);
		oom_keys_release(&keys);
	}
	assert_true(found > 10);               /* both answers occur */
	assert_true(not_found > 2);
}

/* Megatron's layouts: every degree up to the number of GPUs, whatever it divides. */
static void megatron(struct brute *b, struct oom_plan p)
{
	const struct oom_model_shape m = oom_model_shape(b->model);
	const int64_t n = p.gpus, a_sp = p.sp;

	for (p.tp = 1; p.tp <= n / p.nodes; p.tp++)
		for (p.pp = 1; p.pp <= n; p.pp++)
			for (p.cp = 1; p.cp <= n; p.cp++) {
				if ((int64_t)m.n_heads % p.tp || n % (p.tp * p.pp * p.cp) ||
				    p.num_layers % p.pp || (p.cp > 1 && p.seq_len % (2 * p.cp)))
					continue;
				for (p.zero_stage = 0; p.zero_stage < 2; p.zero_stage++)
					for (p.grad_ckpt = 0; p.grad_ckpt < 3; p.grad_ckpt++)
						for (p.fused_ce = 0; p.fused_ce < 2; p.fused_ce++)
							for (p.sp = a_sp; p.sp < (p.tp > 1 ? 2 : 1);
							     p.sp++)
								if (reachable(b->asked, &p))
									batches(b, p, false);
			}
}

static void test_megatron(void **state)
{
	struct oom_keys keys = {0};
	struct oom_model *m = load("GPT-2", &keys);
	struct brute b = {.ev = oom_evaluator_new(), .model = m};
	uint32_t seed = 3;
	int found = 0;

	(void)state;
	for (int i = 0; i < 60; i++) {
		struct oom_plan p = oom_plan_default();

		p.engine = OOM_ENGINE_MEGATRON;
		p.precision = OOM_BF16;
		p.num_layers = 4;
		p.gpus = 4 << draw(&seed, 3);
		p.nodes = p.gpus > 8 ? 2 : 1;
		p.micro_batch = 1 + draw(&seed, 4);
		p.grad_accum = 1 + draw(&seed, 4);
		p.seq_len = 256 << draw(&seed, 4);
		ask(&b, &p);
		b.objective = (enum oom_objective)(i % 4);
		b.capacity = (uint64_t)(2200 + 100 * draw(&seed, 30)) << 20;
		b.n = 0;
		megatron(&b, p);
		found += b.n > 0;
		compare(&b, i, 0);
	}
	assert_true(found > 10 && found < 60);
	free(b.all);
	oom_evaluator_free(b.ev);
	oom_model_free(m);
	oom_keys_release(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_brute_force),
					   cmocka_unit_test(test_megatron)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
