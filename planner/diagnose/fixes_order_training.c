/* The order of a training's levers: by what its weights, gradients and states take of the card, by what the step made, by what
 * it works on.  The table of all works is in fixes_order.c. */
#include "tables.h"

#define DO(...) {__VA_ARGS__}
#define V(name) OOM_LEVER_##name

/* No vocabulary and no sequence: what grows are the activations of images. */
static const enum oom_lever of_images[OOM_MAX_LEVERS] = DO(V(BATCH), V(PRECISION), V(LENGTH), V(RECOMPUTE));
static const enum oom_lever of_drawn[OOM_MAX_LEVERS] = DO(V(BATCH), V(RECOMPUTE), V(LENGTH), V(LOGITS), V(PRECISION), V(OPTIMIZER));
static const enum oom_lever of_states[OOM_MAX_LEVERS] = DO(V(SHARD), V(OPTIMIZER), V(ADAPTER), V(RECOMPUTE), V(BATCH));
/* Of those whose trainer keeps blocks of the model on the host. */
static const enum oom_lever of_swapped[OOM_MAX_LEVERS] = DO(V(BATCH), V(RECOMPUTE), V(SHARD), V(LENGTH), V(LOGITS), V(PRECISION));
/* Told more than one sample: the states are in the way, and the batch as well. */
static const enum oom_lever of_states_and_batch[OOM_MAX_LEVERS] = DO(V(SHARD), V(OPTIMIZER), V(BATCH), V(ADAPTER), V(RECOMPUTE));
static const enum oom_lever of_second_steps[OOM_MAX_LEVERS] = DO(V(OPTIMIZER), V(SHARD), V(BATCH), V(RECOMPUTE), V(PRECISION), V(LENGTH));
/* A whole copy of the weights was asked for: whoever divides them among cards asks for a part of it. */
static const enum oom_lever of_copies[OOM_MAX_LEVERS] = DO(V(SHARD), V(OPTIMIZER), V(ADAPTER));
static const enum oom_lever of_engine_steps[OOM_MAX_LEVERS] = DO(V(BATCH), V(OPTIMIZER), V(RECOMPUTE), V(LOGITS), V(SHARD));
static const enum oom_lever of_logits_alone[OOM_MAX_LEVERS] = DO(V(BATCH), V(LENGTH), V(PRECISION), V(OPTIMIZER));
/* What is generated within the step is most of its samples, and has a limit of its own. */
static const enum oom_lever of_rollouts[OOM_MAX_LEVERS] = DO(V(BATCH), V(LENGTH), V(RECOMPUTE), V(LOGITS), V(SHARD), V(OPTIMIZER)),
			    /* after steps that fitted its answers have become longer */
			    of_longer_rollouts[OOM_MAX_LEVERS] = DO(V(LENGTH), V(BATCH), V(RECOMPUTE), V(LOGITS), V(SHARD), V(OPTIMIZER));
/* Larger than the card in 16 bits as well: what is kept for the backward pass is none of it. */
static const enum oom_lever of_sure_states[OOM_MAX_LEVERS] = DO(V(SHARD), V(OPTIMIZER), V(ADAPTER)),
			    /* and a small optimizer does not make them fit */
			    of_sure_weights[OOM_MAX_LEVERS] = DO(V(SHARD), V(ADAPTER), V(OPTIMIZER));
/* Divided they fit, and leave little: states on the host first, what is shorter then. */
static const enum oom_lever of_shares[OOM_MAX_LEVERS] = DO(V(OPTIMIZER), V(BATCH), V(RECOMPUTE), V(LOGITS), V(ADAPTER));
/* A training that is set up: states and gradients are made beside the weights. */
static const enum oom_lever of_states_made[OOM_MAX_LEVERS] = DO(V(OPTIMIZER), V(SHARD), V(PRECISION), V(ADAPTER));

/* The log counts one step: what is new since are the optimizer's states. */
static bool in_second_step(const struct oom_crash *c)
{
	for (size_t i = 0; i < c->n_causes; i++)
		if (c->cause[i].cause == OOM_CAUSE_STEP_2 && c->cause[i].confidence >= 0.5)
			return true;
	return false;
}

const enum oom_lever *oom_levers_of_states(const struct oom_crash *c)
{
	const struct oom_crash_told *const batch = oom_told_first(c, OOM_ABOUT_BATCH);
	unsigned each;

	if (oom_copy_of_parameters(c, &each))
		return of_copies;
	if (c->states_over && !c->answered)
		return of_sure_weights;
	if (oom_states_share(c, OOM_WORK_TRAINING) > 0 && c->part == OOM_PART_UNKNOWN)
		return of_shares;
	if (oom_states_beyond_cards(c, OOM_WORK_TRAINING))
		return of_states;
	if (!oom_weights_too_large(c, OOM_WORK_TRAINING))
		return NULL;
	if (oom_states_surely(c, OOM_WORK_TRAINING))
		return oom_small_states_fit(c) ? of_sure_states : of_sure_weights;
	/* the frames show what was computed, and what fills the card is not sure */
	if (oom_part_of(c)->trains)
		return NULL;
	return batch && batch->value > 1 ? of_states_and_batch : of_states;
}

const enum oom_lever *oom_levers_of_states_made(const struct oom_crash *c)
{
	unsigned each;

	return oom_copy_of_parameters(c, &each) ? of_copies : c->part == OOM_PART_STATES ? of_states_made : NULL;
}

const enum oom_lever *oom_levers_of_step(const struct oom_crash *c)
{
	if (in_second_step(c))
		return of_second_steps;
	/* activations are gone when states are made, in whatever frame that is */
	if ((c->part == OOM_PART_STATES && c->phase == OOM_CRASH_TRAIN_STEP) || oom_copies_all(c))
		return of_states_made;
	if (c->rolls && c->phase != OOM_CRASH_OPTIMIZER && oom_runtime_is(c, OOM_RUNTIME_TORCH))
		return c->stepped ? of_longer_rollouts : of_rollouts;
	/* no loss of its own that makes fewer of them: tokens are what is left */
	if (c->part == OOM_PART_LOGITS && !oom_lever_of(c, OOM_LEVER_LOGITS) && oom_runtime_is(c, OOM_RUNTIME_TORCH))
		return of_logits_alone;
	/* beside an engine's weights and cache: the states can wait on the host while it speaks */
	if (c->engine && c->phase != OOM_CRASH_OPTIMIZER)
		return of_engine_steps;
	if (c->phase != OOM_CRASH_OPTIMIZER && oom_runtime_is(c, OOM_RUNTIME_TORCH | OOM_RUNTIME_GRAPH) &&
	    (!oom_lever_of(c, OOM_LEVER_ADAPTER) || (!c->language && !oom_lever_own(c, OOM_LEVER_ADAPTER))) && !(c->sharded && oom_lever_own(c, OOM_LEVER_SHARD)))
		return of_images;
	/* trainers of what draws have adapters as well */
	if (c->phase != OOM_CRASH_OPTIMIZER && oom_runtime_is(c, OOM_RUNTIME_TORCH) && !c->language && oom_task_dialect(c) && !c->sharded)
		return oom_swaps_blocks(c) ? of_swapped : of_drawn;
	return NULL;
}
