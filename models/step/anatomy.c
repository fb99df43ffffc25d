/* The composition of every phase's peak.
 *
 * The six phases of training come from the walk itself.  Loading and evaluating are read off the
 * evaluation: weights and buffers, then what is neither is inputs, communication and the pass's own
 * tensors.  Megatron's formulas speak of the fullest moment only: there a phase keeps the states
 * it has and the rest is activations. */
#include <string.h>

#include "oomplan/model.h"

static void take(uint64_t *bucket, uint64_t want, uint64_t *rest)
{
	*bucket = want < *rest ? want : *rest;
	*rest -= *bucket;
}

/* Weights, buffers, inputs as at the overall peak; whatever is left is `into`. */
static void at_rest(const struct oom_eval *e, enum oom_phase phase, enum oom_bucket into,
		    uint64_t bucket[OOM_BUCKETS])
{
	uint64_t rest = e->peak[phase];
	const uint64_t loaded = e->peak[OOM_PHASE_LOAD], base = e->end[OOM_PHASE_EVAL];

	memset(bucket, 0, OOM_BUCKETS * sizeof(bucket[0]));
	take(&bucket[OOM_BUCKET_PARAMS], e->bucket[OOM_BUCKET_PARAMS], &rest);
	take(&bucket[OOM_BUCKET_BUFFERS], e->bucket[OOM_BUCKET_BUFFERS], &rest);
	if (phase != OOM_PHASE_LOAD) {
		take(&bucket[OOM_BUCKET_INPUTS], e->bucket[OOM_BUCKET_INPUTS], &rest);
		take(&bucket[OOM_BUCKET_COMM],
		     base > loaded + bucket[OOM_BUCKET_INPUTS] ?
			     base - loaded - bucket[OOM_BUCKET_INPUTS] :
			     0,
		     &rest);
	}
	if (into == OOM_BUCKET_LOGITS)          /* the pile lies beside the optimizer's state */
		take(&bucket[OOM_BUCKET_OPT], e->end[OOM_PHASE_OPT1] - base, &rest);
	bucket[into] += rest;
}

static void megatron(const struct oom_eval *e, enum oom_phase phase, uint64_t bucket[OOM_BUCKETS])
{
	const bool state = phase >= OOM_PHASE_OPT1 && phase <= OOM_PHASE_OPT2;
	const uint64_t activations = e->bucket[OOM_BUCKET_TEMP] + e->bucket[OOM_BUCKET_SAVED] +
				     e->bucket[OOM_BUCKET_LOGITS];
	uint64_t rest = e->peak[phase];

	memset(bucket, 0, OOM_BUCKETS * sizeof(bucket[0]));
	take(&bucket[OOM_BUCKET_PARAMS], e->bucket[OOM_BUCKET_PARAMS], &rest);
	take(&bucket[OOM_BUCKET_BUFFERS], e->bucket[OOM_BUCKET_BUFFERS], &rest);
	take(&bucket[OOM_BUCKET_GRADS], e->bucket[OOM_BUCKET_GRADS], &rest);
	if (state)
		take(&bucket[OOM_BUCKET_OPT], e->bucket[OOM_BUCKET_OPT], &rest);
	take(&bucket[OOM_BUCKET_SAVED], activations, &rest);
	bucket[OOM_BUCKET_OPT] += rest;         /* master weights before the first step */
}

enum oom_status oom_anatomy(struct oom_evaluator *ev, const struct oom_model *model,
			    const struct oom_plan *plan, const struct oom_eval *e,
			    struct oom_anatomy *out, struct oom_error *err)
{
	struct oom_anatomy a = {{{0}}};

	for (int p = 0; p < OOM_PHASES; p++) {
		struct oom_eval at;
		enum oom_status st;

		if (p == OOM_PHASE_LOAD || p == OOM_PHASE_EVAL) {
			at_rest(e, (enum oom_phase)p,
				p == OOM_PHASE_LOAD	? OOM_BUCKET_BUFFERS :
				plan->eval_accumulation ? OOM_BUCKET_LOGITS :
							  OOM_BUCKET_TEMP,
				a.bucket[p]);
			continue;
		}
		if (plan->engine == OOM_ENGINE_MEGATRON) {
			megatron(e, (enum oom_phase)p, a.bucket[p]);
			continue;
		}
		st = oom_evaluate(ev, model, plan, OOM_EVAL_BUCKETS | OOM_EVAL_AT(p), &at, err);
		if (st)
			return st;
		memcpy(a.bucket[p], at.bucket, sizeof(a.bucket[p]));
	}
	*out = a;
	return OOM_OK;
}
