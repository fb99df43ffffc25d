#include "answer_case.h"

void open_model(struct fixture *f, const char *name)
{
	struct oom_error err = {{0}};

	f->name = name;
	f->ev = oom_evaluator_new();
	memset(&f->keys, 0, sizeof(f->keys));
	assert_int_equal(oom_keys_read_model(&f->keys, name, &err), OOM_OK);
	assert_int_equal(oom_model_new(&f->model, &f->keys, &err), OOM_OK);
}

void close_model(struct fixture *f)
{
	oom_evaluator_free(f->ev);
	oom_model_free(f->model);
	oom_keys_release(&f->keys);
}

static uint32_t draw(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1664525 + 1013904223;
	return (*seed >> 16) % n;
}

/* ---- a question ---- */

void set(struct oom_plan *p, const char *knob, const char *word)
{
	struct oom_error err = {{0}};

	if (oom_plan_set(p, oom_knob_find(knob), word, &err))
		fail_msg("%s", err.text);
}

static void some_engine(struct oom_plan *p, uint32_t *seed)
{
	p->gpus = 1 << draw(seed, 4);
	p->nodes = p->gpus > 4 ? 2 : 1;
	switch (p->gpus > 1 ? draw(seed, 5) : 0) {
	case 1:
		p->engine = OOM_ENGINE_DEEPSPEED;
		p->zero_stage = 1 + draw(seed, 3);
		p->offload_optimizer = p->zero_stage > 1 && draw(seed, 3) == 0 ? OOM_OFFLOAD_CPU :
										OOM_OFFLOAD_NONE;
		break;
	case 2:
		p->engine = OOM_ENGINE_FSDP2;
		p->zero_stage = 2 + draw(seed, 2);
		break;
	case 3:
		p->engine = OOM_ENGINE_DEVICE_MAP;
		p->nodes = 1;
		break;
	case 4:
		p->engine = OOM_ENGINE_MEGATRON;
		p->precision = OOM_BF16;
		p->zero_stage = draw(seed, 2);
		break;
	}
}

static struct oom_plan some_plan(uint32_t *seed)
{
	static const char *const optimizers[] = {"adamw", "adamw-fused", "adamw-8bit", "sgd",
						 "adafactor", "lion"};
	static const char *const precisions[] = {"fp32", "bf16", "amp-bf16", "amp-fp16"};
	struct oom_plan p = oom_plan_default();

	p.micro_batch = 1 + draw(seed, 1 + draw(seed, 24));
	p.grad_accum = 1 + draw(seed, 4);
	p.seq_len = 128 << draw(seed, 5);
	set(&p, "precision", precisions[draw(seed, 4)]);
	set(&p, "optimizer", optimizers[draw(seed, 6)]);
	p.attn = draw(seed, 3) ? OOM_ATTN_SDPA : OOM_ATTN_EAGER;
	p.grad_ckpt = draw(seed, 3) ? OOM_CKPT_NONE : OOM_CKPT_FULL;
	p.allocator = draw(seed, 2) ? OOM_ALLOC_NATIVE : OOM_ALLOC_EXPANDABLE;
	p.lora_r = draw(seed, 4) ? 0 : 8;
	if (draw(seed, 3) == 0)
		some_engine(&p, seed);
	if (draw(seed, 6) == 0)
		p.global_batch = p.micro_batch * oom_plan_data_parallel(&p) * (1 + draw(seed, 5));
	return p;
}

/* A card about as large as the plan needs: there the verdicts could part. */
static const struct oom_gpu *near_card(const struct fixture *f, uint32_t *seed)
{
	const struct oom_gpu *best = &f->gpus.items[0];
	const double used = (double)f->truth.eval.used_bytes * (0.9 + draw(seed, 20) / 100.0);

	for (size_t i = 0; i < f->gpus.n; i++) {
		const double a = used - (double)f->gpus.items[i].capacity_bytes,
			     b = used - (double)best->capacity_bytes;

		if ((a < 0 ? -a : a) < (b < 0 ? -b : b))
			best = &f->gpus.items[i];
	}
	return best;
}

bool ask(struct fixture *f, uint32_t *seed)
{
	struct oom_error err = {{0}};

	f->q = oom_question_default();
	f->q.model = f->model;
	f->q.plan = some_plan(seed);
	f->q.allow = draw(seed, 3) ? 0 : OOM_ALLOW_SCIENCE;
	f->q.objective = (enum oom_objective)draw(seed, 4);
	if (oom_answer_as_asked(f->ev, &f->q, &f->truth, &err))
		return false;
	f->gpu = *near_card(f, seed);
	f->q.gpu = &f->gpu;
	assert_int_equal(oom_answer_as_asked(f->ev, &f->q, &f->truth, &err), OOM_OK);
	oom_plan_options(&(struct oom_plan){0}, &f->truth.plan, f->what, sizeof(f->what));
	return true;
}

/* ---- held against it ---- */

void same(const struct fixture *f, const char *who, uint64_t used, bool fits,
		 const struct oom_judged *truth)
{
	if (used != truth->eval.used_bytes || fits != truth->fits_gpu)
		fail_msg("%s on %s, %s: %s says %llu, fits %d; estimate %llu, fits %d", f->name,
			 f->gpu.name, f->what, who, (unsigned long long)used, fits,
			 (unsigned long long)truth->eval.used_bytes, truth->fits_gpu);
}

struct oom_judged estimate(const struct fixture *f, const struct oom_plan *p)
{
	struct oom_question q = f->q;
	struct oom_error err = {{0}};
	struct oom_judged j;

	q.plan = *p;
	if (oom_answer_as_asked(f->ev, &q, &j, &err))
		fail_msg("%s: %s", f->what, err.text);
	assert_memory_equal(&j.plan, p, sizeof(*p));
	return j;
}

void check_search(const struct fixture *f, const struct oom_search *s)
{
	for (size_t i = 0; s->found && i <= s->n_alternatives; i++) {
		const struct oom_candidate *c = i ? &s->alternative[i - 1] : &s->best;
		const struct oom_judged j = estimate(f, &c->plan);

		same(f, i ? "an alternative" : "the search", c->used_bytes, true, &j);
	}
	for (size_t i = 0; i < s->n_reasons; i++) {
		const struct oom_reason *r = &s->reason[i];

		if (r->runs) {
			const struct oom_judged j = estimate(f, &r->without);

			same(f, "a reason", r->used_bytes, r->fits, &j);
		}
	}
}
