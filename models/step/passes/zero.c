/* DeepSpeed ZeRO: optimizer state from stage 1 on, gradients from 2, parameters from 3, each divided
 * by the data-parallel degree (Rajbhandari et al., arXiv:1910.02054, section 5).
 *
 * stage_1_and_2.py and stage3.py keep an fp32 master copy (single_partition_of_fp32_groups,
 * fp32_partitioned_groups_flat) and optimizer state over it, which is there from the first step on (until
 * deepspeedai/DeepSpeed#5104, of 2024, initialize_optimizer_states stepped once: a difference of the first step alone,
 * which is left out).  The step casts the rank's gradients to fp32 (one sub-group at a time in stage
 * 3), and what the optimizer itself takes comes beside them: torch's AdamW one more flat tensor, its loop two, a
 * fused kernel none.
 *
 * With grad_accum_dtype fp32, stage 2 takes no more: it adds up the parameters' own .grad, in the weights'
 * type (stage_1_and_2.py get_all_grad_tensors; use_grad_accum_attribute is off where gradients are
 * divided). */
#include "step/allocator.h"
#include "step/engines.h"
#include "step/passes/sharing.h"

/* ---- gradients added up in fp32 (data_types.grad_accum_dtype) ---- */

static bool fp32_over_half(const struct oom_plan *p)
{
	return p->fp32_grads && p->precision != OOM_FP32 && !oom_plan_autocasts(p);
}

/* Stage 1 in bf16, nothing offloaded: BF16_Optimizer, with one flat fp32 buffer of all gradients that is
 * made at start-up and only zeroed (bf16_optimizer.py fp32_groups_gradients_flat); the 16-bit gradients
 * lie beside it, as immediate_grad_update is off (engine.py _do_optimizer_sanity_check). */
static bool flat_fp32(const struct oom_plan *p)
{
	return fp32_over_half(p) && p->zero_stage == 1 && p->offload_optimizer == OOM_OFFLOAD_NONE &&
	       (p->precision == OOM_BF16 || p->precision == OOM_BF16_AMP || p->precision == OOM_AMP_BF16);
}

/* Else in stage 1: a gradient becomes param.grad_accum, in fp32 and whole, as soon as it is there
 * (stage_1_and_2.py _fill_param_grad_accum_attribute). */
static bool each_fp32(const struct oom_plan *p)
{
	return fp32_over_half(p) && p->zero_stage == 1 && !flat_fp32(p);
}

/* ---- stage 2: a gradient is added to its part and freed as soon as it is whole ---- */

struct own {
	int32_t shard, bucket;
	bool made, came;
};

/* The rank's part is made by the stream that reduces (stage_1_and_2.py reduce_ipg_grads, copy_grads_in_partition). */
static void reduced_apart(struct oom_rewrite *w, int32_t row)
{
	if (row >= 0 && w->plan->zero_stage == 2 && oom_overlaps(w->plan))
		w->to->rows[row].stream = OOM_REDUCES;
}

static int32_t shard_of(struct oom_rewrite *w, size_t unit)
{
	struct own *o = (struct own *)w->own + unit;
	const bool whole = each_fp32(w->plan);
	const uint64_t bytes = o->made ? 0 : oom_sum_unit(w, (uint32_t)unit, whole).grads;

	if (!o->made)
		o->shard = bytes ? oom_rewrite_row(w, "gradient partition", bytes, OOM_CAT_GRAD,
						   whole ? OOM_SHARE_WHOLE : OOM_SHARE_PART) :
				   -1;
	if (!o->made)
		reduced_apart(w, o->shard);
	if (!o->made && o->shard >= 0 && unit)
		w->to->rows[o->shard].mult = w->from->units[unit - 1].mult;
	o->made = true;
	return o->shard;
}

/* The part of a layer's gradients that is the rank's own.  With the optimizer offloaded it goes to
 * the host as it comes; stage 3 has allocated all of it at once (holdings, below). */
static bool comes_along(const struct oom_plan *p)
{
	return (p->zero_stage == 2 && p->offload_optimizer == OOM_OFFLOAD_NONE) || each_fp32(p);
}

/* The buffer of the rank's gradients holds whole tensors, those at its edges too (stage_1_and_2.py copy_grads_in_partition:
 * total_size).  An embedding may be larger than all of the part; its gradient comes last. */
static void edges_come(struct oom_rewrite *w)
{
	const int32_t row = w->plan->zero_stage == 2 && w->plan->offload_optimizer == OOM_OFFLOAD_NONE ?
				    oom_rewrite_row(w, "gradients cut by the partition", 1, OOM_CAT_GRAD, OOM_SHARE_EDGES) :
				    -1;

	reduced_apart(w, row);
	oom_rewrite_event(w, row, OOM_EV_ALLOC);
	oom_rewrite_event(w, row, OOM_EV_GRAD);
}

static void shard_comes(struct oom_rewrite *w, size_t unit)
{
	if (comes_along(w->plan))
		oom_rewrite_event(w, shard_of(w, unit), OOM_EV_ALLOC);
}

static void shard_stays(struct oom_rewrite *w, size_t unit)
{
	if (comes_along(w->plan))
		oom_rewrite_event(w, shard_of(w, unit), OOM_EV_GRAD);
}

/* The bucket of stages 1 and 2, and what belongs to no layer, come with the first gradient (stage_1_and_2.py
 * setup_buckets, called by process_gradients), after the loss has been through, and the bucket goes with the pass
 * (independent_gradient_partition_epilogue).  Stage 3 has one from the start (holdings, below). */
static void first_gradient(struct oom_rewrite *w)
{
	struct own *o = w->own;

	if (w->stream != OOM_STREAM_BWD || o->came)
		return;
	o->came = true;
	o->bucket = w->plan->zero_stage < 3 ?
			    oom_rewrite_row(w, "reduce bucket", 1, OOM_CAT_COMM, OOM_SHARE_BUCKET) :
			    -1;
	oom_rewrite_event(w, o->bucket, OOM_EV_ALLOC);
	shard_comes(w, 0);
}

static void unit_begin(struct oom_rewrite *w, size_t unit)
{
	if (w->stream == OOM_STREAM_BWD)
		shard_comes(w, unit + 1);
}

static void unit_end(struct oom_rewrite *w, size_t unit)
{
	if (w->stream == OOM_STREAM_BWD)
		shard_stays(w, unit + 1);
}

static void end(struct oom_rewrite *w)
{
	if (w->stream != OOM_STREAM_BWD)
		return;
	first_gradient(w);
	oom_rewrite_event(w, ((struct own *)w->own)->bucket, OOM_EV_FREE);
	shard_stays(w, 0);
	edges_come(w);
}

/* Stage 1 keeps them whole until all are there. */
static bool stay_whole(const struct oom_plan *p)
{
	return p->zero_stage < 2 && !each_fp32(p);
}

static void leaves(struct oom_rewrite *w, int32_t row)
{
	first_gradient(w);
	oom_rewrite_event(w, row, stay_whole(w->plan) ? OOM_EV_GRAD : OOM_EV_FREE);
}

static const struct oom_hooks hooks = {.layers = first_gradient, .end = end, .unit_begin = unit_begin,
				       .unit_end = unit_end, .grad = leaves};

/* ---- what stays between passes ---- */

/* Bytes of an element of what is divided. */
static uint64_t bytes_of_one(const struct oom_schedule *s)
{
	const uint64_t n = s->in.total - s->in.whole_elems,
		       each = (s->in.params - (s->in.whole_elems ? s->in.whole : 0)) / (n ? n : 1);

	return each ? each : 1;
}

/* Elements gathered at once in stage 3, from the second step on, whose order is known.  What is fetched ahead goes
 * past what is there already, so that where the forward pass turns into the backward one it has run up to
 * stage3_max_live_parameters, however small the bucket; a module in use is whole even above that (runtime/zero/
 * partitioned_param_coordinator.py _fetch_sub_module_impl).  Without fetching ahead those stay whose next use lies
 * within the reuse distance, which at the turn is half of it (__params_to_release).  Modules are taken for a layer,
 * or for the largest weight, where that is larger. */
static uint64_t live_params(const struct oom_schedule *s, const struct oom_plan *p)
{
	const uint64_t cap = (uint64_t)p->max_live_params, total = s->in.total - s->in.whole_elems,
		       whole = total - oom_least(total, s->in.small), each = bytes_of_one(s),
		       largest = s->in.largest / each,
		       used = s->in.layer > largest ? s->in.layer : largest,
		       most = p->prefetch_bucket ? cap : oom_least(cap, cap / 2 + s->in.layer);

	return oom_least(whole, most > used ? most : used);
}

static struct oom_ahead ahead_of(const struct oom_schedule *s, const struct oom_plan *p)
{
	const uint64_t least = oom_persistence(p, s->in.hidden);

	return (struct oom_ahead){.least = least ? least : 1, .elems = oom_prefetch_bucket(p, s->in.hidden)};
}

static void stage3(struct oom_schedule *s, const struct oom_plan *p, uint64_t bucket, uint64_t w)
{
	const uint64_t bytes = bytes_of_one(s), live = bytes * live_params(s, p);
	const bool wide = fp32_over_half(p);
	struct oom_holding *gathered;

	/* small parameters stay whole beside their shard (partition_parameters.py ds_persist), and scales beside the codes
	 * of quantised ones, which are no parameters (bitsandbytes nn/modules.py Params4bit.quant_state); nor are buffers
	 * (partition_parameters.py _convert_to_deepspeed_param takes module.parameters) */
	s->hold[OOM_HOLD_WEIGHTS].bytes = oom_part_of(s->in.params - s->in.whole, s->ranks) + s->in.whole + bytes * s->in.small;
	/* such a model is not made in parts but whole on every rank's card first (transformers modeling_utils.py:
	 * is_deepspeed_zero3_enabled() and not _is_quantized; quantizer_bnb_4bit.py update_device_map) */
	s->whole_first = s->in.whole > 0;
	oom_add_holding(s, "reduce bucket", OOM_BUCKET_COMM, bucket, OOM_AT_START, OOM_AT_NEVER);
	if (wide && w < 4)      /* the reduced parts of a bucket, cast (__avg_scatter_grads) */
		oom_add_holding(s, "reduced gradients in fp32", OOM_BUCKET_COMM,
				oom_part_of(oom_least(bucket / w, s->in.trainable) * 4, s->ranks),
				OOM_AT_BACKWARD, OOM_AT_STEP);
	gathered = oom_add_holding(s, "gathered parameters", OOM_BUCKET_COMM, live, OOM_AT_FORWARD, OOM_AT_STEP);
	if (oom_overlaps(p)) {
		gathered->pieces = OOM_PER_GATHER;
		s->ahead = ahead_of(s, p);
	}
	/* the rank's whole partition at once, made with the optimizer and never given up
	 * (stage3.py grad_partitions_flat_buffer) */
	s->hold[OOM_HOLD_GRADS].bytes = oom_part_of((wide ? 4 : w) * s->in.trainable, s->ranks);
	s->hold[OOM_HOLD_GRADS].from = OOM_AT_START;
	s->hold[OOM_HOLD_GRADS].until = OOM_AT_NEVER;
}

/* What the optimizer takes for itself over a flat group, which is one tensor to it. */
static uint64_t of_optimizer(const struct oom_schedule *s, const struct oom_plan *p, uint64_t group, int step)
{
	const uint64_t each = s->in.half ? 2 : 4,
		       over = oom_optimizer_at((size_t)p->optimizer)->lists ? s->in.trainable : s->in.largest / each;

	return over ? (uint64_t)((double)s->in.master_state->temps[step] / (double)over * (double)group) : 0;
}

/* contiguous_gradients: a bucket of reduce_bucket_size elements, two with overlap_comm (oom_ranks_of)
 * (stage_1_and_2.py setup_buckets; stage3.py __ipg_bucket_flat_buffer, one). */
enum { MOST_GROUPS = 1024 };   /* sub-groups played one by one */

static void holdings(struct oom_schedule *s, const struct oom_plan *p)
{
	const uint64_t part = oom_part_of(s->in.trainable, s->ranks), w = s->in.half ? 2 : 4,
		       group = p->zero_stage == 3 ? oom_least(part, (uint64_t)p->sub_group_size) :
						    part;

	s->hold[OOM_HOLD_STATE].bytes = oom_part_of(s->in.master_state->rounded, s->ranks);
	s->hold[OOM_HOLD_STATE].pieces = OOM_IN_ONE;
	if (p->early_states)
		s->hold[OOM_HOLD_STATE].from = OOM_AT_START;
	/* over flat partitions, one sub-group at a time, whose gradients are joined and cast before (stage3.py step,
	 * _prepare_sub_group; stage_1_and_2.py step) */
	if (group && part / group < MOST_GROUPS && oom_optimizer_by_element(oom_optimizer_at((size_t)p->optimizer))) {
		s->hold[OOM_HOLD_STATE].pieces = OOM_PER_FLAT_STATE;
		s->flat = (struct oom_flat){.part = part, .group = group, .leave = p->zero_stage < 3};
		if (!flat_fp32(p)) {
			s->flat.joined = (uint8_t)w;
			s->flat.cast = w < 4 ? 4 : 0;
		}
	}
	s->hold[OOM_HOLD_MASTER].bytes = 4 * part;
	for (int i = 0; i < 2; i++)     /* the step's gradient is a view of the buffer, where there is one */
		s->temps[i] = (flat_fp32(p) ? 0 : 4 * group) + of_optimizer(s, p, group, i);
	if (flat_fp32(p))
		oom_add_holding(s, "fp32 gradients", OOM_BUCKET_GRADS, 4 * s->in.trainable, OOM_AT_START,
				OOM_AT_NEVER);
	/* reduced after the backward pass, which leaves the rank's part (stage_1_and_2.py _clear_param_grad_only) */
	s->grads_leave = stay_whole(p) && !flat_fp32(p);
	if (p->zero_stage == 3)
		stage3(s, p, s->ranks.bucket, w);
	else if (p->offload_optimizer != OOM_OFFLOAD_NONE)
		/* a gradient on its way to the host (stage_1_and_2.py temp_grad_buffer_for_gpu_offload) */
		oom_add_holding(s, "gradient on its way", OOM_BUCKET_COMM, s->in.largest, OOM_AT_START, OOM_AT_NEVER);
}

static bool applies(const struct oom_plan *p)
{
	return oom_engine_of(p)->partitions && p->zero_stage;
}

static unsigned shape(const struct oom_plan *p)
{
	if (p->zero_stage < 2)
		return each_fp32(p) ? 8 : 16;
	return 1u | (p->zero_stage == 3) << 1 | (p->offload_optimizer != OOM_OFFLOAD_NONE) << 2 |
	       (p->zero_stage == 2 && oom_overlaps(p)) << 5;
}

const struct oom_pass oom_pass_zero = {
	.name = "zero",
	.cls = OOM_PLACEMENT,
	.summary = "optimizer state, gradients and parameters divided between the ranks, in three stages",
	.knobs = "engine+zero",
	.source = "arXiv:1910.02054; deepspeed/runtime/zero/stage_1_and_2.py, stage3.py",
	.applies = applies,
	.shape = shape,
	.hooks = &hooks,
	.own_size = sizeof(struct own),
	.holdings = holdings,
};
