/* FSDP: parameters, gradients and optimizer state in shards; a layer is whole while it runs.
 *
 * fully_shard wraps every block and the root (embeddings, final norm, head), which stays gathered
 * between forward and backward.  As torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and
 * _fsdp_collectives.py (torch 2.6) allocate:
 *
 *   forward   a unit's all-gather output, then its parameters, copied out of it.  The output of the
 *             unit before is freed once that copy is made: until then both are there.  The
 *             parameters are freed when the unit returns (reshard_after_forward).
 *   backward  the unit's parameters out of the output that was prefetched, and the next unit's
 *             all-gather output.  When the unit is through: its parameters go, its gradients are
 *             copied into the reduce-scatter input (in the reduce type) and freed, the shards come.
 *             The input is freed when the next unit is through.
 *   the end   the root's gradients (the head's has waited since the backward began) likewise.
 *
 * FSDP1 (_flat_param.py) gathers straight into the flat parameter and gives it up as soon as the unit
 * has run; the allocator has it back later (replay_waiting.c).  A unit's parameters are views of it that torch.split made:
 * their gradients are joined to a flat one by its derivative, which is reduced where it lies, and the rank's part cast to
 * the type of the shards.
 *
 * Streams of the card have pools of their own in the allocator.  FSDP1 casts or fetches its part on its
 * pre-unshard stream, gathers on its unshard stream and reduces on its post-backward stream (_runtime_utils.py _unshard,
 * _post_backward_hook); FSDP2's all-gather outputs and reduced gradients lie on its own streams, what is copied out of and into them
 * on the one that computes (_fsdp_collectives.py foreach_all_gather, foreach_reduce).
 *
 * data/fsdp2_tracker.csv holds what PyTorch's own tracker counts. */
#include "step/engines.h"
#include "step/passes/fsdp_held.h"
#include "step/passes/fsdp_rows.h"
#include "step/passes/sharing.h"

static bool reshards(const struct oom_rewrite *w)
{
	return w->plan->zero_stage >= 3;
}

static void give(struct oom_rewrite *w, int32_t *r)
{
	oom_rewrite_event(w, *r, OOM_EV_FREE);
	*r = -1;
}

/* FSDP1's gathered parameters.  A part that is cast, or that lies on the host, is on the card in the type of the
 * computation until it has been gathered (_flat_param.py pre_unshard, on a stream of its own; unshard). */
static void gather_flat(struct oom_rewrite *w, const struct oom_fsdp_rows *r)
{
	if (!oom_fsdp_copies_out(w))
		oom_rewrite_event(w, r->sent, OOM_EV_ALLOC);
	oom_rewrite_event(w, r->params, OOM_EV_ALLOC);
	if (!oom_fsdp_copies_out(w))
		oom_rewrite_event(w, r->sent, OOM_EV_FREE);
}

/* ---- forward ---- */

static void gather(struct oom_rewrite *w, size_t unit)
{
	struct oom_fsdp_own *root = w->own;
	const struct oom_fsdp_rows *r = oom_fsdp_rows_of(w, unit);

	if (r->again && !reshards(w))
		return;                         /* still there */
	oom_rewrite_event(w, r->gathered, OOM_EV_ALLOC);
	gather_flat(w, r);
	give(w, &root->gathered_before);
	root->gathered_before = r->gathered;
}

/* FSDP1 prefetches a unit that has made its pre-backward hooks (_runtime_utils.py _get_handle_to_prefetch:
 * _needs_pre_backward_unshard), which hang on outputs that need a gradient.  Under reentrant checkpointing the
 * forward's do not, and the unit before has not been run again yet: nothing is gathered ahead.  When it asks for one
 * is backward_prefetch: in the hook before this unit's derivatives, in the one behind its last gradient
 * (_post_backward_reshard), or not at all. */
static bool prefetches(const struct oom_rewrite *w, enum oom_prefetch when)
{
	return oom_fsdp_copies_out(w) ? when == OOM_PREFETCH_PRE :
			       w->plan->backward_prefetch == (int64_t)when && !oom_ckpt_around_units(w->plan);
}

static void start(struct oom_rewrite *w, const struct oom_fsdp_rows *r)
{
	if (oom_fsdp_copies_out(w))
		oom_rewrite_event(w, r->gathered, OOM_EV_ALLOC);
	else
		gather_flat(w, r);
}

/* FSDP2 prefetches the unit that ran before this one, its backward needed or not (_fsdp_param_group.py
 * _backward_prefetch: "mistargeted prefetches"); FSDP1 only one whose is. */
static void prefetch(struct oom_rewrite *w, size_t unit, enum oom_prefetch when)
{
	struct oom_fsdp_own *ahead = (struct oom_fsdp_own *)w->own + unit;

	if (!unit || !prefetches(w, when) || (!oom_fsdp_copies_out(w) && !ahead->runs))
		return;
	start(w, oom_fsdp_rows_of(w, unit));
	ahead->ahead = true;
}

/* Units whose backward is not needed are passed over: what comes next then was not gathered ahead. */
static void gather_again(struct oom_rewrite *w, size_t unit)
{
	struct oom_fsdp_own *root = w->own, *mine = root + unit;
	const struct oom_fsdp_rows *r = oom_fsdp_rows_of(w, unit);

	if (!root->met++)
		give(w, &root->gathered_before);
	if (!reshards(w))
		return;
	if (!mine->ahead)
		start(w, r);
	mine->ahead = false;
	if (oom_fsdp_copies_out(w)) {
		oom_rewrite_event(w, r->params, OOM_EV_ALLOC);
		oom_rewrite_event(w, r->gathered, OOM_EV_FREE);
	}
	prefetch(w, unit - 1, OOM_PREFETCH_PRE);
}

/* FSDP1 (_post_backward_hook): the gradients are joined to a flat one, which is cast where it is reduced in another
 * type and stays beside that; its part is reduced and cast.  On the stream of torch.split's forward (replay_waiting.c), where
 * those of a weight that is used twice are added beside themselves, as they come from another (input_buffer.cpp). */
static void reduce_flat(struct oom_rewrite *w, size_t unit, const struct oom_fsdp_rows *r)
{
	oom_rewrite_event(w, r->sum, OOM_EV_ALLOC);
	oom_rewrite_event(w, r->flat, OOM_EV_ALLOC);
	oom_rewrite_event(w, r->sum, OOM_EV_FREE);
	if ((!r->again || reshards(w)) && !oom_fsdp_keeps_frozen(w->plan))
		oom_rewrite_event(w, r->params, OOM_EV_FREE);
	oom_free_waiting(w, (uint32_t)unit);
	if (unit && reshards(w))
		prefetch(w, unit - 1, OOM_PREFETCH_POST);
	oom_rewrite_event(w, r->input, OOM_EV_ALLOC);
	oom_rewrite_event(w, r->output, OOM_EV_ALLOC);
	oom_rewrite_event(w, r->shard, OOM_EV_ALLOC);
	oom_rewrite_event(w, r->output, OOM_EV_FREE);
	oom_rewrite_event(w, r->input, OOM_EV_FREE);
	oom_rewrite_event(w, r->flat, OOM_EV_FREE);
}

static void reduce_copied(struct oom_rewrite *w, size_t unit, const struct oom_fsdp_rows *r)
{
	struct oom_fsdp_own *root = w->own;

	if (!r->again || reshards(w))
		oom_rewrite_event(w, r->params, OOM_EV_FREE);
	give(w, &root->reduced_before);
	oom_rewrite_event(w, r->input, OOM_EV_ALLOC);
	oom_free_waiting(w, (uint32_t)unit);
	oom_rewrite_event(w, r->output, OOM_EV_ALLOC);
	oom_rewrite_event(w, r->shard, OOM_EV_ALLOC);
	oom_rewrite_event(w, r->output, OOM_EV_FREE);
	root->reduced_before = r->input;
	if (!unit)
		give(w, &root->reduced_before);
}

static void reduce(struct oom_rewrite *w, size_t unit)
{
	const struct oom_fsdp_rows *r = oom_fsdp_rows_of(w, unit);

	if (oom_fsdp_copies_out(w))
		reduce_copied(w, unit, r);
	else
		reduce_flat(w, unit, r);
	/* offloaded shards go to the host at once, a shared layer's is added to what will be there */
	oom_rewrite_event(w, r->shard,
			  r->again || w->plan->offload_params != OOM_OFFLOAD_NONE ? OOM_EV_FREE :
										    OOM_EV_GRAD);
}

/* ---- the hooks ---- */

/* FSDP1's root has its hook on the loss and prefetches the unit that ran before it (_runtime_utils.py
 * _pre_backward_hook): the last layer is whole beside the gradient of the logits. */
static void gather_last(struct oom_rewrite *w)
{
	const struct oom_stream *s = &w->from->streams[OOM_STREAM_BWD];
	struct oom_fsdp_own *own = w->own;

	for (size_t u = 0; u <= w->from->n_units; u++)
		own[u].runs = own[u].ahead = false;
	for (size_t k = 0; k < s->n; k++)
		if (oom_ev_is_unit(s->ev[k]))
			own[oom_ev_unit(s->ev[k]) + 1].runs = true;
	if (!oom_fsdp_copies_out(w) && reshards(w))
		prefetch(w, w->from->n_units, OOM_PREFETCH_PRE);
}

static void begin(struct oom_rewrite *w)
{
	struct oom_fsdp_own *root = w->own;

	root->met = 0;
	root->reduced_before = -1;
	if (w->stream == OOM_STREAM_BWD) {
		gather_last(w);
		return;
	}
	root->gathered_before = -1;
	gather(w, 0);
}

static void unit_begin(struct oom_rewrite *w, size_t unit)
{
	if (w->stream == OOM_STREAM_BWD)
		gather_again(w, unit + 1);
	else
		gather(w, unit + 1);
}

static void unit_end(struct oom_rewrite *w, size_t unit)
{
	if (w->stream == OOM_STREAM_BWD)
		reduce(w, unit + 1);
	else if (reshards(w))
		oom_rewrite_event(w, oom_fsdp_rows_of(w, unit + 1)->params, OOM_EV_FREE);
}

static void end(struct oom_rewrite *w)
{
	struct oom_fsdp_own *root = w->own;

	if (w->stream == OOM_STREAM_FWD)
		return;
	if (w->stream == OOM_STREAM_BWD) {
		give(w, &root->gathered_before);        /* a model without layers */
		reduce(w, 0);
		/* prefetched, and nothing came for it: cleared when the backward is through (finalize_backward) */
		for (size_t u = 1; u <= w->from->n_units; u++)
			if (root[u].ahead)
				oom_rewrite_event(w, oom_fsdp_rows_of(w, u)->gathered, OOM_EV_FREE);
		oom_fsdp_let_go(w);
		for (size_t u = 0; u <= w->from->n_units && oom_fsdp_keeps_frozen(w->plan); u++)
			if (!oom_fsdp_rows_of(w, u)->again)
				oom_rewrite_event(w, oom_fsdp_rows_of(w, u)->params, u ? OOM_EV_FREE_ALL : OOM_EV_FREE);
		return;
	}
	give(w, &root->gathered_before);
	oom_rewrite_event(w, oom_fsdp_rows_of(w, 0)->params, OOM_EV_FREE);
	for (size_t u = 1; u <= w->from->n_units && !reshards(w); u++)
		if (!oom_fsdp_rows_of(w, u)->again)
			oom_rewrite_event(w, oom_fsdp_rows_of(w, u)->params, OOM_EV_FREE_ALL);
}

static const struct oom_hooks hooks = {
	.begin = begin, .end = end, .unit_begin = unit_begin, .unit_end = unit_end,
	.grad = oom_grad_waits, .freed = oom_fsdp_freed};

/* ---- what stays between passes ---- */

static bool applies(const struct oom_plan *p)
{
	return oom_engine_of(p)->wraps_units && p->zero_stage;
}

/* Under mixed precision the tape is that of 16-bit weights: what is added to it is not.  1 to 48, and to 60 with what old
 * FSDP1 keeps; what is offloaded is stage 3. */
static unsigned shape(const struct oom_plan *p)
{
	const unsigned stage = p->offload_params != OOM_OFFLOAD_NONE ? 2 : p->zero_stage >= 3,
		       kind = oom_engine_of(p)->gathers_apart ? 0 : 1u + (unsigned)p->backward_prefetch;

	if (oom_fsdp_keeps_frozen(p))
		return 48u + kind + 3u * oom_engine_casts_trained(p) + 6u * oom_fsdp_reduces_wide(p);
	return 1u + stage + 3u * kind + 12u * oom_engine_casts_trained(p) + 24u * oom_fsdp_reduces_wide(p);
}

/* Who names no version starts FSDP2 with transformers 5, which has a quantised model whole on every rank's card, and
 * FSDP1 with one before it (of_old_libraries).  accelerate moves no such model to the meta device (fsdp_utils.py
 * fsdp2_prepare_model: "will still cause the VRAM spike"); torchtune loads parts. */
static bool whole_before(const struct oom_plan *p)
{
	const struct oom_engine *e = oom_engine_of(p);

	return p->quantised_load == OOM_QLOAD_CARD ||
	       (e->gathers_apart && !e->own_adapters && p->quantised_load == OOM_QLOAD_AUTO);
}

/* Under no_sync nothing is reduced: the gradients stay on every GPU and are added to until the backward pass of the last
 * micro-batch reduces them.  FSDP1's are of the type of the computation (_runtime_utils.py _post_backward_hook, which returns
 * before it reduces), FSDP2's of the type that they will be reduced in (_fsdp_param_group.py post_backward,
 * _fsdp_param.py to_accumulated_grad_if_needed).  The tape has the rank's part of them. */
static void whole_gradients(struct oom_schedule *s, const struct oom_plan *p)
{
	const bool wide = oom_engine_of(p)->gathers_apart && oom_fsdp_reduces_wide(p);
	const uint64_t part = oom_part_of((oom_engine_casts_trained(p) ? 2 : 1) * s->in.grads, s->ranks),
		       whole = s->in.grads + (wide ? s->in.trained_wide - s->in.trained : 0);

	if (p->no_sync && s->accumulates && whole > part)
		oom_add_holding(s, "whole gradients", OOM_BUCKET_GRADS, whole - part, OOM_AT_BACKWARD, OOM_AT_STEP)->training = true;
}

static void holdings(struct oom_schedule *s, const struct oom_plan *p)
{
	const bool casts = oom_engine_casts_trained(p);
	/* the tape is in 16 bit, the shards are not */
	const struct oom_state_sums *state = casts ? s->in.master_state : s->in.state;
	const uint64_t wide = oom_engine_casts(p) ? 2 : 1, adapters = oom_engine_casts_adapters(p) ? s->in.trained : 0;

	s->master = casts;
	s->divided = true;
	/* FSDP1's flat gradients outlive zero_grad, which empties the parameters' that are views into
	 * them, until _clear_grads_if_needed runs before the next forward (_flat_param.py); offloaded
	 * ones lie on the host */
	if (!oom_engine_of(p)->gathers_apart) {
		/* adapters are units of their own, and pass the limit of two before the next layer is met; where nothing
		 * is gathered in the backward pass no row shows that limit, which each unit meets all the same */
		s->waits[0] = oom_plan_adapted(p) ? 1 : OOM_MOST_WAITS;
		s->waits[1] = oom_plan_adapted(p) ? 0 : p->zero_stage >= 3 ? OOM_MOST_WAITS : 1;
	}
	whole_gradients(s, p);
	s->grads_linger = !oom_engine_of(p)->gathers_apart && p->offload_params == OOM_OFFLOAD_NONE;
	/* the flat parameter holds the codes of 4-bit weights; their scales are attributes of the
	 * module, whole on every rank (bitsandbytes nn/modules.py Params4bit.quant_state), as are buffers
	 * (fully_shard/_fsdp_init.py _get_managed_states: only parameters are sharded) */
	s->hold[OOM_HOLD_WEIGHTS].bytes =
		oom_part_of(wide * (s->in.params - s->in.whole) + adapters, s->ranks) + s->in.whole;
	if (!oom_engine_of(p)->gathers_apart)
		s->hold[OOM_HOLD_WEIGHTS].pieces = OOM_PER_UNIT;
	/* parts that go to the host wait for the card, unit by unit */
	s->later_ahead = !oom_engine_of(p)->gathers_apart && s->in.whole && p->quantised_load <= OOM_QLOAD_META &&
			 p->offload_params == OOM_OFFLOAD_NONE && p->gpus > p->nodes;
	s->whole_first = s->in.whole && whole_before(p);
	s->hold[OOM_HOLD_STATE].bytes = oom_part_of(state->rounded, s->ranks);
	for (int i = 0; i < 2; i++)
		s->temps[i] = oom_part_of(state->temps[i], s->ranks);
}

const struct oom_pass oom_pass_fsdp = {
	.name = "fsdp",
	.cls = OOM_PLACEMENT,
	.summary = "parameters, gradients and optimizer state in shards, whole one layer at a time",
	.knobs = "engine+zero",
	.source = "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py; "
		  "_flat_param.py, _runtime_utils.py",
	.applies = applies,
	.shape = shape,
	.hooks = &hooks,
	.own_size = sizeof(struct oom_fsdp_own),
	.holdings = holdings,
};
