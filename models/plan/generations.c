/* What changed in memory when: one row for each, and the one place that applies them.
 *
 * Knobs' default words are those that a library gives another meaning later ("plain", "auto"): a
 * version decides what they come to, a word that says more than the default is left alone. */
#include "oomplan/generations.h"

#include "oomplan/option.h"

#define TORCH(major, minor) "torch", OOM_VERSION(major, minor)
#define TRANSFORMERS(major, minor) "transformers", OOM_VERSION(major, minor)

static const struct oom_generation rows[] = {
	{TRANSFORMERS(5, 0), "use-reentrant", OOM_REENTRANT_AUTO, OOM_REENTRANT_TRUE,
	 "gradient checkpointing is reentrant unless told otherwise",
	 "huggingface/transformers#43203 (5.0); pinned to true by #28538"},
	{TRANSFORMERS(4, 46), "loss", OOM_LOSS_PLAIN, OOM_LOSS_SLICED,
	 "logits are upcast as a whole, then sliced and copied for the shift by one token",
	 "modeling_llama.py 4.45 LlamaForCausalLM.forward; loss/loss_utils.py from 4.46 on"},
	{TORCH(1, 13), "lazy-modules", 1, 0,
	 "the context holds every kernel of PyTorch's libraries from the start",
	 "pytorch/pytorch#85692, #86509: CUDA_MODULE_LOADING=LAZY from 1.13 on"},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

const struct oom_generation *oom_generation_at(size_t i)
{
	return i < N_ROWS ? &rows[i] : NULL;
}

bool oom_plan_dated(const struct oom_plan *p)
{
	return p->transformers || p->torch;
}

void oom_plan_resolve(struct oom_plan *p)
{
	for (size_t i = 0; oom_plan_dated(p) && i < N_ROWS; i++) {
		const struct oom_generation *g = &rows[i];
		const int64_t version = *oom_plan_field(p, oom_knob_find(g->library));
		int64_t *value = oom_plan_field(p, oom_knob_find(g->knob));

		if (version && version < g->before && *value == g->from)
			*value = g->to;
	}
	p->transformers = p->torch = 0;
}
