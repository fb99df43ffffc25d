/* The ten rungs (playbook M4) and the climb.
 *
 * A rung is judged by evaluating with and without it; it is never credited with a declared saving.
 * One that does not lower the peak is left out.  After the fit the micro-batch is raised again
 * as far as it goes. */
#include "oomplan/ladder.h"

#include <stdio.h>
#include <string.h>

#include "oomplan/rules.h"
#include "replay.h"
#include "step/optimizers.h"

#define HF_ONE_GPU "transformers docs perf_train_gpu_one"

static bool micro_batch(struct oom_plan *p, const struct oom_model *m)
{
	const int64_t per_gpu = p->micro_batch * p->grad_accum;

	(void)m;
	/* the next divisor below keeps the effective batch */
	for (int64_t b = p->micro_batch - 1; b >= 1; b--)
		if (per_gpu % b == 0) {
			p->micro_batch = b;
			p->grad_accum = per_gpu / b;
			return true;
		}
	return false;
}

static bool bf16(struct oom_plan *p, const struct oom_model *m)
{
	(void)m;
	if (p->precision != OOM_FP32)
		return false;
	/* bf16 begins with Ampere */
	p->precision = oom_capability(p) < 8 ? OOM_AMP_FP16 : OOM_AMP_BF16;
	return true;
}

static bool checkpointing(struct oom_plan *p, const struct oom_model *m)
{
	(void)m;
	if (p->grad_ckpt == OOM_CKPT_FULL)
		return false;
	p->grad_ckpt = OOM_CKPT_FULL;
	return true;
}

static bool expandable(struct oom_plan *p, const struct oom_model *m)
{
	(void)m;
	if (p->allocator == OOM_ALLOC_EXPANDABLE)
		return false;
	p->allocator = OOM_ALLOC_EXPANDABLE;
	return true;
}

static bool sdpa(struct oom_plan *p, const struct oom_model *m)
{
	(void)m;
	if (p->attn != OOM_ATTN_EAGER)
		return false;
	p->attn = OOM_ATTN_SDPA;
	return true;
}

static bool shorter(struct oom_plan *p, const struct oom_model *m)
{
	const struct oom_model_shape s = oom_model_shape(m);

	if (s.image_size && !p->seq_len) {
		const int64_t side = p->image_size ? p->image_size : (int64_t)s.image_size;

		p->image_size = side / 2;
		return side >= 32;
	}
	if (p->seq_len < 256)
		return false;
	p->seq_len /= 2;
	p->tgt_len /= 2;
	return true;
}

static int64_t optimizer_named(const char *name)
{
	for (size_t i = 0; oom_optimizer_at(i); i++)
		if (!strcmp(oom_optimizer_at(i)->choice.name, name))
			return (int64_t)i;
	return -1;
}

static bool eight_bit(struct oom_plan *p, const struct oom_model *m)
{
	const char *now = oom_optimizer_at((size_t)p->optimizer)->choice.name;

	(void)m;
	if (!strncmp(now, "paged", 5) || strncmp(now, "adamw", 5))
		return false;
	p->optimizer = optimizer_named(strstr(now, "8bit") ? "paged-adamw-8bit" : "adamw-8bit");
	return true;
}

/* From GPUs that work in turn to GPUs that share the batch: as many samples a step as before. */
static bool apart(struct oom_plan *p)
{
	const int64_t batch = p->micro_batch * p->grad_accum, per_gpu = batch / p->gpus;

	if (batch % p->gpus)
		return false;
	while (p->micro_batch > per_gpu || per_gpu % p->micro_batch)
		p->micro_batch--;
	p->grad_accum = per_gpu / p->micro_batch;
	p->engine = OOM_ENGINE_DEEPSPEED;
	p->zero_stage = 3;
	return true;
}

static bool shard(struct oom_plan *p, const struct oom_model *m)
{
	const bool fsdp = p->engine == OOM_ENGINE_FSDP1 || p->engine == OOM_ENGINE_FSDP2 ||
			  p->engine == OOM_ENGINE_TORCHTUNE;

	(void)m;
	if (p->gpus < 2 || p->zero_stage >= 3)
		return false;
	if (p->engine == OOM_ENGINE_DEVICE_MAP)
		return apart(p);
	p->zero_stage += fsdp && !p->zero_stage ? 2 : 1;        /* FSDP begins at SHARD_GRAD_OP */
	if (p->engine == OOM_ENGINE_HF)
		p->engine = OOM_ENGINE_DEEPSPEED;
	return true;
}

static bool offload(struct oom_plan *p, const struct oom_model *m)
{
	const bool fsdp = p->engine == OOM_ENGINE_FSDP1 || p->engine == OOM_ENGINE_FSDP2 ||
			  p->engine == OOM_ENGINE_TORCHTUNE;

	(void)m;
	if (p->engine == OOM_ENGINE_MEGATRON || p->engine == OOM_ENGINE_DEVICE_MAP)
		return false;
	if (fsdp) {                             /* everything at once */
		if (p->offload_params != OOM_OFFLOAD_NONE)
			return false;
		p->zero_stage = 3;
		p->offload_params = OOM_OFFLOAD_CPU;
		return true;
	}
	p->engine = OOM_ENGINE_DEEPSPEED;
	if (p->offload_optimizer == OOM_OFFLOAD_NONE) {
		p->zero_stage = p->zero_stage < 2 ? 2 : p->zero_stage;
		p->offload_optimizer = OOM_OFFLOAD_CPU;
		return true;
	}
	if (p->offload_params == OOM_OFFLOAD_NONE) {
		p->zero_stage = 3;
		p->offload_params = OOM_OFFLOAD_CPU;
		return true;
	}
	return false;
}

static bool lora(struct oom_plan *p, const struct oom_model *m)
{
	(void)m;
	if (!p->lora_r) {
		p->lora_r = 16;
		if (!p->lora_targets[0])
			strcpy(p->lora_targets, "all-linear");
		return true;
	}
	if (!p->qlora) {
		p->qlora = p->kbit_prepare = 1;
		if (p->precision == OOM_FP32 || p->precision == OOM_AMP_BF16)
			p->precision = OOM_BF16_AMP;
		return true;
	}
	return false;
}

static const struct oom_rung rungs[OOM_RUNGS] = {
	{1, "smaller micro-batch, more gradient accumulation", OOM_EXACT, "slower steps, same effective batch",
	 "per_device_train_batch_size, gradient_accumulation_steps", "playbook M5; " HF_ONE_GPU, NULL, micro_batch},
	{2, "bf16 mixed precision", OOM_NUMERICS, "none, usually faster; needs Ampere or newer", "bf16=True", "playbook M6; " HF_ONE_GPU,
	 NULL, bf16},
	{3, "activation checkpointing", OOM_EXACT, "20-30 % more compute", "gradient_checkpointing=True", "playbook M7; " HF_ONE_GPU,
	 NULL, checkpointing},
	{4, "expandable segments", OOM_EXACT, "none; removes fragmentation only",
	 "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "playbook M8; PyTorch CUDA notes", NULL, expandable},
	{5, "SDPA / FlashAttention", OOM_EXACT, "none, usually faster", "attn_implementation=\"sdpa\"", "playbook M11; " HF_ONE_GPU,
	 NULL, sdpa},
	{6, "shorter sequences / lower resolution", OOM_SCIENCE, "the model no longer sees what it saw", "max_length / image_size",
	 "playbook M11", "seq-len", shorter},
	{7, "8-bit / paged optimizer", OOM_NUMERICS, "quantised optimizer state", "optim=\"adamw_bnb_8bit\"",
	 "playbook M12; arXiv:2110.02861", NULL, eight_bit},
	{8, "ZeRO-1 -> 2 -> 3 / FSDP", OOM_PLACEMENT, "communication; needs at least two GPUs",
	 "deepspeed zero_optimization.stage / fsdp=\"full_shard\"", "playbook M9; arXiv:1910.02054", NULL, shard},
	{9, "CPU / NVMe offload", OOM_PLACEMENT, "several times slower: PCIe becomes the bottleneck",
	 "deepspeed zero_optimization.offload_optimizer.device=cpu", "playbook M10", NULL, offload},
	{10, "LoRA -> QLoRA", OOM_SCIENCE, "trains an adapter, not the model", "peft.LoraConfig / load_in_4bit=True",
	 "playbook M13; arXiv:2305.14314", "lora", lora},
};

const struct oom_rung *oom_rung_at(size_t i)
{
	return i < OOM_RUNGS ? &rungs[i] : NULL;
}

struct climb {
	struct oom_evaluator *ev;
	const struct oom_model *model;
	uint64_t capacity;
	int64_t slack;                  /* what the replay said beyond the estimate, bytes */
	struct oom_error *err;
};

static enum oom_status price(const struct climb *c, const struct oom_plan *p, struct oom_eval *e,
			     bool *fits)
{
	const enum oom_status st = oom_evaluate(c->ev, c->model, p, OOM_EVAL_FAST, e, c->err);

	if (!st && (c->slack > 0 || (uint64_t)-c->slack < e->used_bytes))
		e->used_bytes += (uint64_t)c->slack;
	*fits = !st && e->used_bytes <= oom_budget(c->capacity, p);
	return st;
}

/* Steps of one rung until it fits, stops helping or runs out. */
static enum oom_status climb_rung(const struct climb *c, const struct oom_rung *r,
				  struct oom_ladder *l, struct oom_rung_result *res, bool take)
{
	struct oom_plan plan = l->plan, next = plan;
	struct oom_eval e = l->eval, best = e;
	bool fits = false, any = false, helped = false;

	res->before_bytes = res->after_bytes = l->eval.used_bytes;
	while (!fits && r->apply(&next, c->model)) {
		enum oom_status st;

		oom_plan_relax(&next);          /* of what the engine before had */
		any = true;
		st = price(c, &next, &e, &fits);
		/* this model cannot run that way: the rung ends here */
		if (st == OOM_ERR_INVALID) {
			snprintf(res->note, sizeof(res->note), "%.190s",
				 c->err ? c->err->text : "");
			break;
		}
		if (st)
			return st;
		if (e.used_bytes < best.used_bytes) {
			best = e;
			plan = next;
			helped = true;
		}
	}
	res->after_bytes = best.used_bytes;
	res->fits = helped && best.used_bytes <= oom_budget(c->capacity, &plan);
	res->outcome = !any    ? OOM_RUNG_NOT_APPLICABLE :
		       !helped ? OOM_RUNG_NO_HELP :
		       take    ? OOM_RUNG_TAKEN :
				 OOM_RUNG_OFFERED;
	if (helped && take) {
		l->plan = plan;
		l->eval = best;
		l->fits = res->fits;
	}
	return OOM_OK;
}

/* One GPU cannot shard: how many would do with stage 3, as a remark. */
static void how_many_gpus(const struct climb *c, const struct oom_ladder *l,
			  struct oom_rung_result *res)
{
	struct oom_plan p = l->plan;
	struct oom_eval e;
	bool fits;

	p.engine = OOM_ENGINE_DEEPSPEED;
	p.zero_stage = 3;
	oom_plan_relax(&p);
	for (p.gpus = 2; p.gpus <= 1024; p.gpus *= 2)
		if (!price(c, &p, &e, &fits) && fits) {
			snprintf(res->note, sizeof(res->note),
				 "would fit on %lld such GPUs with ZeRO-3 (a guess)",
				 (long long)p.gpus);
			return;
		}
	snprintf(res->note, sizeof(res->note),
		 "no number of such GPUs up to 1024 makes it fit by sharding alone");
}

/* The largest divisor of the per-GPU batch that still fits: divisors are tried from the top. */
static enum oom_status raise_micro_batch(const struct climb *c, struct oom_ladder *l, int64_t most)
{
	const int64_t per_gpu = l->plan.micro_batch * l->plan.grad_accum;
	struct oom_plan p = l->plan;
	struct oom_eval e;
	bool fits;

	for (int64_t b = per_gpu < most ? per_gpu : most; b > l->plan.micro_batch; b--) {
		enum oom_status st;

		if (per_gpu % b)
			continue;
		p.micro_batch = b;
		p.grad_accum = per_gpu / b;
		st = price(c, &p, &e, &fits);
		if (st)
			return st == OOM_ERR_INVALID ? OOM_OK : st;
		if (fits) {
			l->plan = p;
			l->eval = e;
			return OOM_OK;
		}
	}
	return OOM_OK;
}

/* Makes micro x accumulation x GPUs equal the global batch that was asked for. */
static void settle_batch(struct oom_plan *p, char note[300])
{
	const int64_t ranks = oom_plan_data_parallel(p);
	int64_t per_gpu, b = p->micro_batch;

	note[0] = 0;
	if (!p->global_batch)
		return;
	per_gpu = p->global_batch / ranks;
	if (per_gpu < 1)
		per_gpu = 1;
	if (b > per_gpu)
		b = per_gpu;
	while (per_gpu % b)
		b--;
	if (b != p->micro_batch || per_gpu * ranks != p->global_batch)
		snprintf(note, 300,
			 "global batch %lld over %lld data-parallel rank%s: micro-batch %lld x "
			 "accumulation %lld%s",
			 (long long)p->global_batch, (long long)ranks, ranks > 1 ? "s" : "",
			 (long long)b, (long long)(per_gpu / b),
			 per_gpu * ranks != p->global_batch ? " (the nearest that divides)" : "");
	p->micro_batch = b;
	p->grad_accum = per_gpu / b;
}

static enum oom_status walk(const struct climb *k, const struct oom_plan *start, unsigned allow,
			    struct oom_ladder *l)
{
	const struct climb c = *k;
	enum oom_status st;

	memset(l, 0, sizeof(*l));
	l->start = *start;
	settle_batch(&l->start, l->note);
	l->plan = l->start;
	l->effective_batch = l->plan.micro_batch * l->plan.grad_accum *
			     oom_plan_data_parallel(&l->plan);
	st = price(&c, &l->plan, &l->eval, &l->fits);
	if (st)
		return st;
	l->start_fits = l->fits;
	l->start_eval = l->eval;
	for (int i = 0; i < OOM_RUNGS; i++) {
		const struct oom_rung *r = &rungs[i];
		const bool allowed = !r->allow ||
				     (i == 5 ? allow & OOM_ALLOW_SEQ_LEN : allow & OOM_ALLOW_LORA);

		if (l->fits) {
			l->rung[i].before_bytes = l->rung[i].after_bytes = l->eval.used_bytes;
			l->rung[i].fits = true;
			continue;
		}
		st = climb_rung(&c, r, l, &l->rung[i], allowed);
		if (st)
			return st;
		if (r->number == 8 && l->plan.gpus == 1)
			how_many_gpus(&c, l, &l->rung[i]);
	}
	if (l->fits && !l->start_fits)
		st = raise_micro_batch(&c, l, l->plan.micro_batch * l->plan.grad_accum);
	return st;
}

enum oom_status oom_ladder_walk(struct oom_evaluator *ev, const struct oom_model *model,
				const struct oom_plan *start, uint64_t capacity, unsigned allow,
				struct oom_ladder *l, struct oom_error *err)
{
	const struct climb c = {ev, model, capacity, 0, err};

	return walk(&c, start, allow, l);
}

/* The climb judges by estimated reserved bytes; the plan it ends at is replayed through the
 * allocator.  Where the two disagree about fitting, the climb is repeated with the difference
 * put in. */
enum oom_status oom_ladder_plan(struct oom_evaluator *ev, const struct oom_model *model,
				const struct oom_plan *start, uint64_t capacity, unsigned allow,
				struct oom_ladder *l, struct oom_error *err)
{
	enum { TRIES = 4 };
	struct climb c = {ev, model, capacity, 0, err};
	struct oom_eval exact;
	enum oom_status st;

	if (!oom_evaluate(ev, model, start, OOM_EVAL_FAST, &exact, NULL) &&
	    replay_decides(&exact, oom_budget(capacity, start))) {
		const uint64_t estimate = exact.used_bytes;

		if (!oom_evaluate(ev, model, start, OOM_EVAL_REPLAY, &exact, NULL) &&
		    exact.used_bytes <= oom_budget(capacity, start))
			c.slack = (int64_t)(exact.used_bytes - estimate);
	}
	for (int i = 0; i < TRIES; i++) {
		bool fits;

		st = walk(&c, start, allow, l);
		if (!st)
			st = oom_evaluate(ev, model, &l->plan, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY,
					  &exact, err);
		if (st)
			return st;
		fits = exact.used_bytes <= oom_budget(capacity, &l->plan);
		if (fits == l->fits || i == TRIES - 1) {
			l->eval = exact;
			l->fits = fits;
			break;
		}
		c.slack += (int64_t)(exact.used_bytes - l->eval.used_bytes);
	}
	return oom_evaluate(ev, model, &l->start, OOM_EVAL_BUCKETS, &l->start_eval, err);
}
