/* Comparing a plan with the last one. */
#include "step/before.h"

#include <stddef.h>
#include <string.h>

#include "step/program.h"

/* The plan in stretches between the sizes and the names, which are mostly empty. */
#define BEGIN(field) offsetof(struct oom_plan, field)
#define END(field) (offsetof(struct oom_plan, field) + sizeof(((struct oom_plan *)0)->field))
static const struct stretch {
	size_t from, to;
} numbers[] = {
	{0, BEGIN(micro_batch)},
	{END(micro_batch), BEGIN(grad_accum)},
	{END(seq_len), BEGIN(optimizer)},
	{END(optimizer), BEGIN(lora_targets)},
	{END(lora_targets), BEGIN(layers_to_transform)},
	{END(train), BEGIN(compute_capability)},
	{END(compute_capability), BEGIN(pp_layout)},
	{END(pp_layout), BEGIN(recompute_modules)},
	{END(offload_modules), sizeof(struct oom_plan)},
};
static const size_t names[] = {
	BEGIN(lora_targets), BEGIN(layers_to_transform), BEGIN(modules_to_save), BEGIN(exclude_modules),
	BEGIN(freeze), BEGIN(train), BEGIN(pp_layout), BEGIN(recompute_modules), BEGIN(offload_modules)};

_Static_assert(BEGIN(seq_len) == END(grad_accum), "the two stand together");
_Static_assert(END(train) == BEGIN(layers_to_transform) + 5 * OOM_NAMES_SIZE, "names and nothing else");
_Static_assert(END(offload_modules) == BEGIN(recompute_modules) + 2 * OOM_NAMES_SIZE, "likewise");

/* Equal in all but the sizes. */
static bool alike(const struct oom_plan *p, const struct oom_plan *q)
{
	const char *a = (const char *)p, *b = (const char *)q;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (memcmp(a + numbers[i].from, b + numbers[i].from, numbers[i].to - numbers[i].from))
			return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if ((a[names[i]] || b[names[i]]) && strcmp(a + names[i], b + names[i]))
			return false;
	return true;
}

bool oom_before_serves(struct oom_evaluator *ev, const struct oom_model *model,
		       const struct oom_plan *plan, struct oom_batch *at, struct program **g,
		       struct oom_variant **v)
{
	struct oom_before *last = &ev->before;
	struct oom_plan *p = &last->plan;

	if (last->model != model || !alike(plan, p) || !oom_open_rules_hold(&last->open, plan))
		return false;
	if (p->compute_capability < plan->compute_capability ||
	    p->compute_capability > plan->compute_capability) {
		const double kernels = oom_kernels_of(plan);

		if (kernels < last->kernels || kernels > last->kernels)
			return false;
	}
	if (!oom_program_holds(last->g, at))
		return false;
	at->ranks = last->ranks;
	*g = last->g;
	/* of the sizes, passes ask for the optimizer and whether anything is accumulated (pass.h) */
	*v = plan->optimizer == p->optimizer && (plan->grad_accum > 1) == (p->grad_accum > 1) ? last->v : NULL;
	p->micro_batch = plan->micro_batch;
	p->grad_accum = plan->grad_accum;
	p->seq_len = plan->seq_len;
	p->optimizer = plan->optimizer;
	p->compute_capability = plan->compute_capability;
	return true;
}

void oom_before_keep(struct oom_evaluator *ev, const struct oom_model *model,
		     const struct oom_plan *plan, const struct oom_batch *at, struct program *g,
		     struct oom_variant *v)
{
	struct oom_before *last = &ev->before;

	last->plan = *plan;
	last->g = g;
	last->v = v;
	last->ranks = at->ranks;
	last->kernels = oom_kernels_of(plan);
	last->model = oom_rules_left_open(plan, &last->open) ? model : NULL;
}

void oom_before_forget(struct oom_evaluator *ev, const struct program *g, const struct oom_variant *v)
{
	if ((g && ev->before.g == g) || (v && ev->before.v == v))
		ev->before.model = NULL;
}
