/* What a search begins from: the asked plan as it runs, and the lists of values that follow from it. */
#include <stdlib.h>
#include <string.h>

#include "oomplan/rules.h"
#include "axes.h"

static bool put(int64_t d, int64_t most, int64_t first, int64_t list[MAX_DIVISORS], size_t *k)
{
	if (d > most || d == first)
		return true;
	if (*k == MAX_DIVISORS)
		return false;
	list[(*k)++] = d;
	return true;
}

static int ascending(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Divisors of n up to `most`, ascending, `first` before the others. */
static bool divisors(int64_t n, int64_t most, int64_t first, int64_t list[MAX_DIVISORS],
		     size_t *count)
{
	bool room = true;

	*count = 0;
	list[(*count)++] = first;
	for (int64_t d = 1; room && d <= most && d <= n / d; d++)
		if (n % d == 0)
			room = put(d, most, first, list, count) &&
			       (d == n / d || put(n / d, most, first, list, count));
	qsort(list + 1, *count - 1, sizeof(*list), ascending);
	return room;
}

/* Liger's fused one; cut cross-entropy, TRL's and torchtune's where that is not to be had; as asked where none is. */
static int64_t narrow_loss(const struct search_space *s)
{
	static const int64_t losses[] = {OOM_LOSS_FUSED, OOM_LOSS_CUT, OOM_LOSS_CHUNKED_NLL,
					 OOM_LOSS_CHUNKED};

	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		struct oom_plan p = s->start;

		p.fused_ce = losses[i];
		if (!oom_plan_broken(&p, NULL) &&
		    (s->start.fused_ce == losses[i] || oom_compat_launches(&s->compat, &p)))
			return losses[i];
	}
	return s->start.fused_ce;
}

static bool has_liger_kernels(const struct search_space *s)
{
	struct oom_plan p = s->start;

	p.liger_kernels = OOM_LIGER_ALL;
	return s->start.liger_kernels != OOM_LIGER_ALL && !oom_plan_broken(&p, NULL) &&
	       oom_compat_launches(&s->compat, &p);
}

enum oom_status search_space_init(struct search_space *s, const struct oom_model *model,
				  const struct oom_search_query *q, struct oom_error *err)
{
	const struct oom_plan *asked = &s->start;
	const int64_t most = (int64_t)oom_knob_find("micro-batch")->max;
	const int64_t rank = q->asked->micro_batch * q->asked->grad_accum;
	int64_t widest = rank;
	const enum oom_status st = q->compat ? OOM_OK : oom_compat_init(&s->compat, model, q->asked, q->gpu, err);

	if (st)
		return st;
	if (q->compat)
		s->compat = *q->compat;
	s->start = *q->asked;
	oom_compat_mend(&s->compat, &s->start);
	s->excused = oom_compat_broken(&s->compat, &s->start, q->asked);
	s->asked = asked;
	s->allow = q->allow;
	s->hold = q->hold;
	s->exact_only = q->exact_only;
	s->keep_batch = q->keep_batch;
	s->degrees = q->degrees;
	s->model = model;
	s->megatron = oom_engine_at((size_t)asked->engine)->degrees;
	s->resorts = false;
	s->n_leaner = 0;
	s->loss = narrow_loss(s);
	s->liger = has_liger_kernels(s);
	s->fewer_gpus = q->objective == OOM_OBJECTIVE_PRICE && !s->megatron;
	s->n_divisors = s->n_layouts = s->n_gpus = 0;
	s->optimizers = oom_smaller_states(asked->optimizer);
	if (__builtin_mul_overflow(rank, oom_plan_data_parallel(asked), &s->step_batch))
		return oom_error_set(err, OOM_ERR_LIMIT,
				     "search: the effective batch is too large");
	if (s->megatron || s->fewer_gpus || asked->gpus > 1)    /* with fewer ranks each sees more of it */
		widest = s->step_batch;
	if (!divisors(widest, most, asked->micro_batch, s->divisor, &s->n_divisors) ||
	    !search_layouts(s) ||
	    !divisors(asked->gpus, s->fewer_gpus ? asked->gpus : 0, asked->gpus, s->gpus,
		      &s->n_gpus))
		return oom_error_set(err, OOM_ERR_LIMIT,
				     "search: more than %d micro-batches or %d layouts",
				     MAX_DIVISORS, MAX_LAYOUTS);
	return OOM_OK;
}
