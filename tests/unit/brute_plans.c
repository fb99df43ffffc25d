/* Which plans can be launched, what each is and costs. */
#include "brute.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

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
bool brute_reachable(const struct oom_plan *a, const struct oom_plan *p)
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

void brute_batches(struct brute *b, struct oom_plan p, bool qlora)
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
