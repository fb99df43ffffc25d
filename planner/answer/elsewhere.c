/* What another launcher would make of the question.
 *
 * Tensor, pipeline, context and expert parallelism are to be had where torchtitan or Megatron-LM launches the run.
 * The search takes them only as a last resort (search/layouts.c): a change of launcher is no change of a knob.  Where
 * nothing else fits, or only a plan that is slower by more than the estimate can tell, or one that is no faster and
 * changes the numerics or moves state to the host, the best plan of each is weighed here and offered by name, never
 * taken. */
#include <stdlib.h>

#include "parts.h"
#include "oomplan/emit.h"
#include "oomplan/engine.h"
#include "oomplan/rules.h"

/* Recomputation repeats the forward pass, a third of the work of forward and backward. */
#define WITHOUT_RECOMPUTATION 0.75

static bool mixes_degrees(const struct oom_plan *p)
{
	return p->tp > 1 || p->pp > 1 || p->cp > 1 || p->ep > 1;
}

/* The same numerics: DeepSpeed and Megatron keep an fp32 master beside 16-bit weights, FSDP2 16-bit copies beside
 * fp32 weights.  False: this launcher has none (torchtitan's mixed_precision_param is bfloat16 or float32). */
static bool same_numerics(const struct oom_engine_info *from, const struct oom_engine_info *to, struct oom_plan *p)
{
	const bool half = p->precision == OOM_FP16 || p->precision == OOM_AMP_FP16 ||
			  p->precision == OOM_FP16_AMP;
	const bool master = p->precision == OOM_AMP_BF16 || p->precision == OOM_AMP_FP16 ||
			    (from->casts_model && p->precision != OOM_FP32);

	if (half && to->mixes)
		return false;
	/* weights that nothing keeps in fp32 are another run than either's */
	if (p->precision != OOM_FP32 && !master)
		return !to->degrees;
	if (master)
		p->precision = to->mixes ? OOM_AMP_BF16 : half ? OOM_FP16 : OOM_BF16;
	return true;
}

/* The question's run as this engine would begin it; false: it cannot. */
static bool begin(const struct asker *a, const struct oom_plan *start, int64_t engine, struct oom_plan *p)
{
	const struct oom_engine_info *from = oom_engine_at((size_t)start->engine),
				     *to = oom_engine_at((size_t)engine);
	const int64_t whole = oom_smaller_states(start->optimizer).whole;

	*p = *start;
	p->engine = engine;
	p->zero_stage = to->shards_to;
	p->bucket_view = p->hybrid_shard = p->torch_autocast = p->reduce_dtype = p->step_in_backward = 0;
	p->backward_prefetch = p->no_sync = 0;
	p->offload_optimizer = p->offload_params = OOM_OFFLOAD_NONE;
	p->offload_activations = p->offload_gradients = 0;
	p->optimizer = whole >= 0 ? whole : p->optimizer;
	if (to->degrees && !oom_emit_megatron_builds(oom_model_type(a->q.model)))
		return false;
	if (!same_numerics(from, to, p))
		return false;
	oom_plan_relax(p);
	return !oom_plan_broken(p, NULL);
}

/* The answer changes more than how the run is laid over the GPUs. */
static bool is_inexact(const struct oom_answer *out)
{
	return out->from == OOM_FROM_SEARCH && out->search.best.cls != OOM_EXACT;
}

/* Whether a plan could be faster than the answer by more than the interval of the estimate: not where computing
 * alone, without recomputation, takes most of the answer's time. */
static bool could_gain(const struct asker *a, const struct oom_answer *out)
{
	const struct oom_step_time t = oom_step_time(&out->best.plan, &out->best.eval, a->q.gpu);
	const double least = WITHOUT_RECOMPUTATION *
			     (t.part_s[OOM_TIME_PRODUCTS] + t.part_s[OOM_TIME_ATTENTION]);

	return least * oom_step_time_interval(&a->q.plan) < t.total_s;
}

/* Worth a sentence: it fits where nothing does, is faster by more than can be told, or exact and no slower. */
static bool is_better(const struct asker *a, const struct oom_answer *out, const struct oom_candidate *c)
{
	const double mine = 1 / oom_step_time(&out->best.plan, &out->best.eval, a->q.gpu).samples_per_s;

	return !out->best.fits_gpu ||
	       c->seconds_per_sample * oom_step_time_interval(&a->q.plan) < mine ||
	       (is_inexact(out) && c->seconds_per_sample <= mine);
}

static bool on_this_card(const struct asker *a, const struct oom_candidate *c)
{
	struct oom_plan p = c->plan;
	struct oom_eval e;
	bool fits;

	if (asker_calibrates(a) && (asker_judge(a, &p, &e, &fits) || !fits))
		return false;
	return c->plan.evaluates != OOM_EVALUATES_YES ||
	       oom_evaluation_fits(a->ev, a->q.model, &c->plan, a->q.capacity_bytes);
}

static enum oom_status weigh(const struct asker *a, int64_t engine, struct oom_search *found, struct oom_answer *out)
{
	struct oom_error why;
	struct oom_plan p;
	struct oom_search_query q = {.asked = &p,
				     .capacity_bytes = a->q.capacity_bytes,
				     .gpu = a->q.gpu,
				     .objective = a->q.objective,
				     .best_only = true,
				     .exact_only = true,
				     .degrees = true};
	const struct oom_candidate *c = &found->best;
	enum oom_status st;

	if (!begin(a, &out->ladder.start, engine, &p))
		return OOM_OK;
	st = oom_search(a->ev, a->q.model, &q, found, &why);
	if (st == OOM_ERR_INVALID || st == OOM_ERR_LIMIT)
		return OOM_OK;                  /* it does not run this model */
	if (st)
		return oom_error_set(a->err, st, "%s", why.text);
	if (found->found && mixes_degrees(&c->plan) && is_better(a, out, c) && on_this_card(a, c))
		out->elsewhere[out->n_elsewhere++] = *c;
	return OOM_OK;
}

enum oom_status answer_elsewhere(const struct asker *a, struct oom_answer *out)
{
	const struct oom_plan *p = &out->ladder.start;
	const struct oom_engine_info *own = oom_engine_at((size_t)p->engine);
	struct oom_search *found;
	enum oom_status st = OOM_OK;

	out->n_elsewhere = 0;
	if (a->q.keep_launcher || a->q.hold || p->gpus < 2 || own->degrees || own->in_turn || mixes_degrees(p) ||
	    oom_plan_adapted(p) ||
	    (out->best.fits_gpu && (a->q.brief || !(is_inexact(out) || could_gain(a, out)))))
		return OOM_OK;
	found = malloc(sizeof(*found));
	if (!found)
		return oom_error_set(a->err, OOM_ERR_MEMORY, "out of host memory");
	for (size_t i = 0; !st && oom_engine_at(i); i++)
		if (oom_engine_at(i)->launcher && out->n_elsewhere < OOM_ELSEWHERE)
			st = weigh(a, (int64_t)i, found, out);
	free(found);
	return st;
}
