/* What FSDP1 holds of frozen layers through the backward pass.
 *
 * FSDP1 with a frozen base (PEFT's fsdp_auto_wrap_policy makes the adapters units of their own, so
 * that a block's flat parameter needs no gradient): _runtime_utils.py
 * _register_post_backward_reshard_only_hook hangs a hook on the block's inputs.  Reentrant
 * checkpointing runs the block in the backward on detached inputs, which are leaves; the hook's
 * closure holds their AccumulateGrad, that the leaf, that the hook, until _finalize_params takes the
 * hook away when the backward is through.  Until then every block's input and the gradient of it
 * stay: the first block's backward runs above n inputs and n - 1 gradients.  Seen with torch 2.4 in
 * published readings (fms-acceleration: 30.00 hidden states more on 32 layers) and with 2.14 on a
 * CPU; not with use_reentrant=False, whose hooks hang on what the block before has made, nor with a
 * checkpoint_wrapper inside of FSDP's unit (torch's apply_activation_checkpointing: accelerate's
 * fsdp_activation_checkpointing, Composer, fsdp_qlora): FSDP's hook is hung once, in the forward. */
#include "step/passes/fsdp_held.h"

#include "oomplan/generations.h"
#include "step/engines.h"

#define HELD ((uint32_t)1 << 31)

static bool holds_inputs(const struct oom_rewrite *w)
{
	return w->stream == OOM_STREAM_BWD && !oom_engine_of(w->plan)->gathers_apart && oom_plan_adapted(w->plan) &&
	       oom_ckpt_around_units(w->plan);
}

/* Before torch 2.1 nothing reshards frozen parameters in the backward pass: the post-backward hook hangs on the
 * AccumulateGrad of a flat parameter, and one that needs no gradient has none (pytorch/pytorch#101982, "frozen parameters
 * involved in gradient computation are kept as unsharded through the entire backward pass").  Flat parameters are frozen
 * where adapters are units of their own.  Those on the host are left out. */
bool oom_fsdp_keeps_frozen(const struct oom_plan *p)
{
	return p->torch_named && p->torch_named < OOM_VERSION(2, 1) && !oom_engine_of(p)->gathers_apart &&
	       p->zero_stage >= 3 && p->offload_params == OOM_OFFLOAD_NONE && oom_plan_adapted(p);
}

bool oom_fsdp_freed(struct oom_rewrite *w, int32_t row)
{
	const bool *late = holds_inputs(w) ? oom_rewrite_late(w) : NULL;
	uint32_t *handed = late ? oom_rewrite_handed(w) : NULL;

	if (!handed || (!handed[row] && (w->unit < 0 || w->from->rows[row].born != OOM_STREAM_FWD || late[row])))
		return true;
	handed[row] |= HELD;
	return false;
}

void oom_fsdp_let_go(struct oom_rewrite *w)
{
	for (size_t row = 0; w->handed && row < w->from->n_rows; row++)
		if (w->handed[row] & HELD)
			oom_rewrite_event(w, (int32_t)row, w->from->rows[row].mult == 1 ?
							   OOM_EV_FREE : OOM_EV_FREE_ALL);
}
