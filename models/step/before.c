/* Comparing a plan with the last one. */
#include "step/before.h"

#include <stddef.h>
#include <string.h>

#include "families/model.h"
#include "oomplan/option.h"
#include "step/objectives.h"
#include "step/program.h"
#include "step/reserved.h"

enum { KEPT_CARDS = sizeof(((struct oom_before *)0)->card) / sizeof(struct oom_before_card) };

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
	BEGIN(rank_pattern),
	BEGIN(freeze), BEGIN(train), BEGIN(pp_layout), BEGIN(recompute_modules), BEGIN(offload_modules)};

_Static_assert(BEGIN(seq_len) == END(grad_accum), "the two stand together");
_Static_assert(END(train) == BEGIN(layers_to_transform) + 6 * OOM_NAMES_SIZE, "names and nothing else");
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

/* Whether a plan that differs in its sizes breaks no rule.  What they leave open is found out when there is
 * such a plan: most structures that a search meets are asked about once. */
static bool is_right(struct oom_before *last, const struct oom_plan *plan)
{
	if (!last->opened && !oom_rules_left_open(&last->plan, &last->open)) {
		last->model = NULL;
		return false;
	}
	last->opened = true;
	return oom_open_rules_hold(&last->open, plan);
}

/* The place of the plan's card among those asked about last; the one it takes where it is none of them. */
static struct oom_before_card *card_of(struct oom_before *last, const struct oom_plan *plan)
{
	struct oom_before_card *c;

	for (size_t i = 0; i < KEPT_CARDS; i++)
		if (last->card[i].known && !memcmp(&last->card[i].capability, &plan->compute_capability, sizeof(double)))
			return &last->card[i];
	c = &last->card[last->n_cards++ % KEPT_CARDS];
	c->capability = plan->compute_capability;
	c->kernels = oom_kernels_of(plan);
	c->known = false;
	return c;
}

static bool same_kernels(const struct oom_before *last, double kernels)
{
	return !(kernels < last->kernels) && !(kernels > last->kernels);
}

/* Reserved bytes as estimated, and what lies outside of them, as oom_reserve without a replay has it. */
static void reserve(const struct oom_plan *plan, struct oom_before_card *c, struct oom_eval *out)
{
	oom_reserve_estimated(out, plan);
	if (!c->known) {
		oom_overheads(out, plan);
		c->context_bytes = out->context_bytes;
		c->context_measured = out->context_measured;
		c->workspace_bytes = out->workspace_bytes;
		c->nccl_bytes = out->nccl_bytes;
		c->known = true;
	}
	out->context_bytes = c->context_bytes;
	out->context_measured = c->context_measured;
	out->workspace_bytes = c->workspace_bytes;
	out->nccl_bytes = c->nccl_bytes;
	out->allocated_bytes = out->overall_peak + out->workspace_bytes;
	out->used_bytes = out->reserved_bytes + out->context_bytes + out->workspace_bytes + out->nccl_bytes;
	out->used_bytes_estimated = out->wanted_bytes = out->used_bytes;
}

bool oom_before_serves(struct oom_evaluator *ev, const struct oom_model *model,
		       const struct oom_plan *plan, bool near, struct oom_batch *at,
		       struct program **g, struct oom_variant **v)
{
	struct oom_before *last = &ev->before;
	struct oom_plan *p = &last->plan;
	const bool batch = p->micro_batch != plan->micro_batch || p->seq_len != plan->seq_len;

	if (!oom_model_is(last->model, last->print, model) ||
	    !((near && last->asked + 1 == ev->asked) || alike(plan, p)) || !is_right(last, plan))
		return false;
	if (!same_kernels(last, card_of(last, plan)->kernels) || (batch && !oom_program_holds(last->g, at)))
		return false;
	at->ranks = last->ranks;
	*g = last->g;
	/* of the sizes, passes ask for the optimizer and whether anything is accumulated (pass.h) */
	*v = plan->optimizer == last->optimizer && (plan->grad_accum > 1) == last->accumulates ? last->v :
												NULL;
	p->micro_batch = plan->micro_batch;
	p->grad_accum = plan->grad_accum;
	p->seq_len = plan->seq_len;
	p->optimizer = plan->optimizer;
	p->compute_capability = plan->compute_capability;
	last->asked = ev->asked;
	last->as_asked = ev->as_asked;
	last->now += batch;
	return true;
}

void oom_before_keep_variant(struct oom_evaluator *ev, const struct oom_plan *plan,
			     struct oom_variant *v)
{
	ev->before.v = v;
	ev->before.optimizer = plan->optimizer;
	ev->before.accumulates = plan->grad_accum > 1;
}

void oom_before_keep(struct oom_evaluator *ev, const struct oom_model *model,
		     const struct oom_plan *plan, const struct oom_batch *at, struct program *g,
		     struct oom_variant *v)
{
	struct oom_before *last = &ev->before;

	last->plan = *plan;
	last->g = g;
	oom_before_keep_variant(ev, plan, v);
	last->ranks = at->ranks;
	last->kernels = oom_kernels_of(plan);
	for (size_t i = 0; i < KEPT_CARDS; i++)
		last->card[i].known = false;
	last->asked = ev->asked;
	last->as_asked = ev->as_asked;
	last->now++;
	last->opened = false;
	last->model = model;
	last->print = model->print;
}

bool oom_before_found(const struct oom_evaluator *ev, const struct oom_plan *plan, struct oom_eval *out)
{
	const struct oom_before *last = &ev->before;
	const size_t more = plan->grad_accum > 1;

	if (last->stamp[plan->optimizer][more] != last->now)
		return false;
	memcpy(out, ev->found[plan->optimizer][more], OOM_EVAL_KEPT);
	return true;
}

bool oom_before_again(struct oom_evaluator *ev, const struct oom_model *model,
		      const struct oom_plan *plan, struct oom_eval *out)
{
	struct oom_before *last = &ev->before;
	struct oom_plan *p = &last->plan;
	struct oom_before_card *card;

	if (!oom_model_is(last->model, last->print, model) || last->asked != ev->asked || !last->as_asked ||
	    p->micro_batch != plan->micro_batch || p->seq_len != plan->seq_len)
		return false;
	card = card_of(last, plan);
	if (!same_kernels(last, card->kernels) || !is_right(last, plan) || !oom_before_found(ev, plan, out))
		return false;
	reserve(plan, card, out);
	p->grad_accum = plan->grad_accum;
	p->optimizer = plan->optimizer;
	p->compute_capability = plan->compute_capability;
	last->asked = ++ev->asked;
	return true;
}

void oom_before_find(struct oom_evaluator *ev, const struct oom_plan *plan, const struct oom_eval *e)
{
	struct oom_before *last = &ev->before;
	const size_t more = plan->grad_accum > 1;

	/* scores of rollouts are of all micro-batches (rank.c) */
	if (!last->model || oom_objective_of(plan)->rollouts)
		return;
	memcpy(ev->found[plan->optimizer][more], e, OOM_EVAL_KEPT);
	last->stamp[plan->optimizer][more] = last->now;
}

bool oom_knob_near(const struct oom_option *knob)
{
	return oom_is_size(knob->offset);
}

void oom_before_forget(struct oom_evaluator *ev, const struct program *g, const struct oom_variant *v)
{
	if ((g && ev->before.g == g) || (v && ev->before.v == v))
		ev->before.model = NULL;
}
