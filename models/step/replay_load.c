/* What loading a model that is quantised on the card takes there for a while, and the allocator keeps.
 *
 * bitsandbytes quantises a weight that has come to the card in 16 bit (nn/modules.py Params4bit._quantize, Int8Params.cuda), which
 * goes when the next one comes (transformers modeling_utils.py; quantizers/quantizer_bnb_4bit.py).  transformers 5 takes one
 * segment for the whole model beforehand and gives it up (modeling_utils.py caching_allocator_warmup).
 * prepare_model_for_kbit_training then makes fp32 of what is not quantised, one parameter after the other (peft/utils/other.py):
 * embeddings and head in 16 bit leave room that logits may be too large for.  What is wholly empty is given back where somebody
 * empties the cache (--empty-cache). */
#include "step/objectives.h"
#include "step/playing.h"

#include "ops/ops.h"
#include "tape/round.h"

static uint64_t wide_bytes(const struct oom_param *p)
{
	return 2 * p->elems;
}

static bool of_base(const struct oom_param *p)
{
	return !(p->flags & (OOM_P_LORA | OOM_P_BESIDE));
}

/* Loaded in 16 bit, in fp32 afterwards. */
static bool recast(const struct playing *g, const struct oom_param *p)
{
	return of_base(p) && !(p->flags & OOM_P_QUANTISED) && g->plan->kbit_prepare && p->dt == OOM_F32 &&
	       oom_plan_stores(g->plan) != OOM_FP32;
}

static void warm_up(struct playing *g)
{
	const struct oom_tape *t = g->v->tape;
	uint64_t block[OOM_QUANTISED_BLOCKS], sum = 0;

	for (size_t i = 0; i < t->n_params; i++) {
		const struct oom_param *p = &t->params[i];

		if (!of_base(p))
			continue;
		if (p->flags & OOM_P_QUANTISED) {
			oom_quantised_blocks(g->plan, p, block);
			sum += block[0];
		} else {
			sum += recast(g, p) ? wide_bytes(p) : p->elems * oom_dtype_bytes((enum oom_dtype)p->dt);
		}
	}
	oom_free(playing_allocator(g), oom_allocate(playing_allocator(g), sum));
}

void oom_playing_load_quantised(struct playing *g)
{
	struct oom_replay *r = playing_allocator(g);
	const struct oom_tape *t = g->v->tape;
	int32_t *const loaded = g->p->moved;

	if (g->plan->quantised_load == OOM_QLOAD_AUTO || g->plan->quantised_load == OOM_QLOAD_CARD)
		warm_up(g);
	for (size_t i = 0; i < t->n_params; i++) {
		const struct oom_param *p = &t->params[i];
		const bool codes = of_base(p) && p->flags & OOM_P_QUANTISED;

		loaded[i] = codes || recast(g, p) ? oom_allocate(r, wide_bytes(p)) : -1;
		if (of_base(p) && !recast(g, p))
			oom_playing_weight(g, p, 1, 1);
		if (codes)
			oom_free(r, loaded[i]);
	}
	for (size_t i = 0; i < t->n_params; i++) {
		const struct oom_param *p = &t->params[i];

		if (!recast(g, p))
			continue;
		oom_playing_weight(g, p, 1, 1);
		oom_free(r, loaded[i]);
	}
	for (size_t i = 0; i < t->n_params; i++)
		if (!of_base(&t->params[i]))
			oom_playing_weight(g, &t->params[i], 1, 1);
}

void oom_playing_loaded(struct playing *g)
{
	const int64_t e = g->plan->empty_cache;

	/* the Trainer does so before accelerate divides the model */
	if (e == OOM_EMPTY_CACHE_TRUE ||
	    (e == OOM_EMPTY_CACHE_AUTO && oom_loop_of(g->plan) != OOM_LOOP_PLAIN && !g->loaded && !g->wrapped))
		oom_release_cached(playing_allocator(g));
	if (g->wrapped)
		oom_playing_attributes(g);
}
