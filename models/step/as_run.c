/* A plan as the run would have it: what versions, engines and losses make of it before anything is priced. */
#include "families/model.h"
#include "oomplan/generations.h"
#include "oomplan/rules.h"
#include "step/engines.h"
#include "step/objectives.h"
#include "step/program.h"

/* A cached contrastive loss (sentence_transformers CachedMultipleNegativesRankingLoss, GradCache) runs one text of some
 * rows after another, each forward and backward on its own, as if they were accumulated.  What it keeps of all rows, an
 * embedding and its gradient per text, some KiB per row, is left out, and so is the time of the first round without graphs. */
static void uncache(struct oom_plan *p)
{
	const int64_t rows = p->micro_batch < p->texts_chunk ? p->micro_batch : p->texts_chunk,
		      turns = rows ? (p->micro_batch + rows - 1) / rows * p->texts : 1;

	p->grad_accum = p->grad_accum < INT32_MAX / turns ? p->grad_accum * turns : INT32_MAX;
	p->micro_batch = rows;
	p->texts = 1;
	p->texts_chunk = 0;
}

/* What breaks a rule as it stands is refused as it stands. */
static bool caches(const struct oom_plan *p)
{
	return p->texts_chunk && p->objective == OOM_METHOD_CONTRASTIVE && !p->step_in_backward;
}

void oom_plan_as_run(const struct oom_model *model, struct oom_plan *p)
{
	oom_model_settle_precision(model, p, NULL);
	oom_plan_resolve(p);
	oom_engine_recast(p);
	if (caches(p))
		uncache(p);
}

/* Megatron-Bridge's LoRA takes all four of a layer's linear modules (peft/lora.py, target_modules). */
const char *oom_plan_lora_targets(const struct oom_plan *p, const struct oom_model *m)
{
	return oom_plan_norms(p) || oom_engine_core_layers(p) ? "all-linear" : oom_model_lora_targets(m);
}
