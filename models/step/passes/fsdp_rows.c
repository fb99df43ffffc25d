/* What FSDP gathers, reduces and keeps of a unit, as rows of the rewritten tape. */
#include "step/passes/fsdp_rows.h"

#include "step/allocator.h"
#include "step/passes/sharing.h"

static int32_t row(struct oom_rewrite *w, size_t unit, const char *name, uint64_t bytes,
		   enum oom_cat cat, enum oom_share share, enum oom_cuda_stream stream)
{
	const int32_t r = bytes ? oom_rewrite_row(w, name, bytes, cat, share) : -1;

	if (r < 0)
		return r;
	w->to->rows[r].stream = stream;
	if (unit)
		w->to->rows[r].mult = w->from->units[unit - 1].mult;
	return r;
}

/* FSDP1's are read by another stream than they lie on (replay_waiting.c). */
static void wait_for_another(struct oom_rewrite *w, const struct oom_fsdp_rows *r)
{
	if (oom_fsdp_copies_out(w))
		return;
	if (r->params >= 0)
		w->to->rows[r->params].opens_wait = true;
	if (r->flat >= 0)
		w->to->rows[r->flat].joins_wait = true;
}

/* The layer whose parameters this one runs: itself, or where layers share theirs (ALBERT), and this
 * one has brought none, the first that ends with the same. */
static size_t owner_of(const struct oom_rewrite *w, size_t unit)
{
	const struct oom_unit *u = w->from->units;
	size_t k = 1;

	if (!unit || u[unit - 1].param0 < u[unit - 1].param1)
		return unit;
	while (k < unit && u[k - 1].param1 != u[unit - 1].param1)
		k++;
	return k;
}

/* Gradients in fp32 on their way between ranks.  Unsaid: under mixed precision FSDP2's are, as torchtitan sets
 * MixedPrecisionPolicy, FSDP1's as they were computed, as accelerate does (utils/dataclasses.py). */
bool oom_fsdp_reduces_wide(const struct oom_plan *p)
{
	if (p->reduce_dtype != OOM_REDUCE_AUTO)
		return p->reduce_dtype == OOM_REDUCE_FP32;
	return oom_engine_of(p)->gathers_apart && oom_engine_casts(p);
}

const struct oom_fsdp_rows *oom_fsdp_rows_of(struct oom_rewrite *w, size_t unit)
{
	struct oom_fsdp_rows *r = &((struct oom_fsdp_own *)w->own)[unit].rows;
	const bool casts = oom_engine_casts_trained(w->plan);
	struct oom_unit_sums sum;
	uint64_t narrow, reduced;

	if (r->made)
		return r;
	sum = oom_sum_unit(w, (uint32_t)owner_of(w, unit), casts);
	narrow = oom_sum_unit(w, (uint32_t)owner_of(w, unit), false).grads;
	reduced = oom_fsdp_reduces_wide(w->plan) ? oom_sum_unit(w, (uint32_t)owner_of(w, unit), true).grads : narrow;
	r->made = true;
	r->again = owner_of(w, unit) != unit;
	r->params = row(w, unit, unit ? "gathered layer" : "gathered embeddings and head",
			sum.bytes, OOM_CAT_COMM, OOM_SHARE_WHOLE,
			oom_fsdp_copies_out(w) ? OOM_COMPUTE : OOM_GATHERS);
	r->gathered = row(w, unit, "all-gather output", oom_fsdp_copies_out(w) ? sum.bytes : 0,
			  OOM_CAT_COMM, OOM_SHARE_PADDED, OOM_GATHERS);
	r->input = row(w, unit, "reduce-scatter input", oom_fsdp_copies_out(w) || reduced != narrow ? reduced : 0,
		       OOM_CAT_COMM, oom_fsdp_copies_out(w) ? OOM_SHARE_PADDED : OOM_SHARE_WHOLE,
		       oom_fsdp_copies_out(w) ? OOM_COMPUTE : OOM_REDUCES);
	r->output = row(w, unit, "reduce-scatter output", reduced != sum.grads ? reduced : 0, OOM_CAT_COMM,
			OOM_SHARE_PART, OOM_REDUCES);
	r->sent = row(w, unit, "shard to be gathered",
		      !oom_fsdp_copies_out(w) && (casts || w->plan->offload_params != OOM_OFFLOAD_NONE) ? sum.bytes : 0,
		      OOM_CAT_COMM, OOM_SHARE_PART, OOM_BEFORE_GATHERS);
	r->sum = row(w, unit, "sum of a shared weight's gradients",
		     oom_fsdp_copies_out(w) ? 0 : oom_shared_grads(w, (uint32_t)unit), OOM_CAT_COMM, OOM_SHARE_WHOLE, OOM_GATHERS);
	r->flat = row(w, unit, "flat gradient", oom_fsdp_copies_out(w) ? 0 : narrow, OOM_CAT_COMM, OOM_SHARE_WHOLE,
		      OOM_GATHERS);
	r->shard = row(w, unit, "gradient shard", sum.grads, OOM_CAT_GRAD, OOM_SHARE_PART,
		       OOM_REDUCES);
	wait_for_another(w, r);
	return r;
}
