/* One rank of an undivided model: its batch, the ranks that share its states, its schedule. */
#include "step/rank.h"

#include "config/arch.h"
#include "step/engines.h"
#include "step/objectives.h"
#include "step/pass.h"
#include "step/passes/sharing.h"
#include "tape/round.h"

/* The batch as it lies on the GPU: ids, labels and mask, or pixels and labels. */
static uint64_t input_bytes(const struct oom_tape *t, const struct oom_arch *a,
			    const struct oom_plan *p, const struct oom_batch *at,
			    uint64_t *rounded)
{
	const enum oom_task task = oom_task_of(p, a);
	const uint64_t side = p->image_size ? (uint64_t)p->image_size : a->image_size;
	const uint64_t b = at->b, s = at->s - oom_virtual_tokens(p), tgt = at->t;
	const bool full = oom_plan_stores(p) == OOM_FP32;
	const struct oom_objective *o = oom_objective_of(p);
	uint64_t x[8] = {b * s * 8, b * 8, 0, b * t->pixels * (full ? 4 : 2),
			 t->token_types ? b * s * 8 : 0, 0, b * t->pixel_mask * 8, b * s * t->token_mask * 8};

	if (task == OOM_TASK_IMAGE_CLS)
		x[0] = b * (a->channels ? a->channels : 3) * side * side * (full ? 4 : 2);
	else if (task == OOM_TASK_SEQ2SEQ) {
		x[1] = b * tgt * 8;
		if (o->no_labels && !o->inputs)         /* labels for the loss, and ids for the decoder */
			x[5] = b * tgt * 8;
		if (a->frame)
			x[0] = b * (a->frames ? a->frames : s) * a->frame * (full ? 4 : 2);
	}
	else if (task == OOM_TASK_CTC) {        /* labels beside the samples, whose mask is as long as they are */
		x[0] = 0;
		x[1] = b * s * 8;
	} else if (task != OOM_TASK_SEQ_CLS)
		x[1] = b * s * 8;
	if (task != OOM_TASK_CTC && (p->padding_mask || p->packing))      /* a mask, or the positions within each sample */
		x[2] = b * s * 8;
	if (o->no_labels && o->inputs) {        /* what the objective's collator makes */
		x[1] = o->inputs > 1 ? b * s * 8 : 0;
		x[2] = p->padding_mask || p->packing || o->inputs > 2 ? b * s * 8 : 0;
	}
	if (o->by_text) {                       /* ids and a mask each */
		x[2] = 0;
		for (int i = 0; i < 8; i++)
			x[i] *= (uint64_t)p->texts;
	}
	*rounded = 0;
	for (int i = 0; i < 8; i++)
		*rounded += oom_block(x[i]);
	return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
}

/* An eighth of what sound.c lets pass. */
#define MOST_BYTES ((uint64_t)1 << 57)

/* What an objective's loop keeps on the card between passes: logits and hidden states that still have a name,
 * scores of rollouts. */
static void outside_the_loss(struct oom_schedule *s, const struct program *g, const struct oom_plan *p,
			     const struct oom_arch *a, const struct oom_batch *at)
{
	const struct oom_objective *o = oom_objective_of(p);
	const bool wide = oom_plan_stores(p) == OOM_FP32 || g->tape.amp;
	const uint64_t layers = p->num_layers ? (uint64_t)p->num_layers : a->n_layers,
		       width = a->vocab + (layers + 1) * a->d_model,
		       outputs = oom_block(at->b * at->s * width * (wide ? 4 : 2)),
		       answer = (uint64_t)p->completion_len < at->s ? (uint64_t)p->completion_len : at->s;

	uint64_t scores = 0;

	if (o->lingers) {
		oom_add_holding(s, "outputs of the last micro-batch", OOM_BUCKET_SAVED, outputs, OOM_AT_STEP, OOM_AT_STEP_END);
		if (p->grad_accum > 1)
			oom_add_holding(s, "outputs of the micro-batch before", OOM_BUCKET_SAVED, outputs,
					OOM_AT_FORWARD, OOM_AT_BACKWARD);
	}
	/* of a batch that no machine holds: as many bytes as none has */
	if (o->rollouts && __builtin_mul_overflow(at->b * answer * a->vocab, 4 * (uint64_t)p->grad_accum, &scores))
		scores = MOST_BYTES;
	if (o->rollouts)
		oom_add_holding(s, "scores of rollouts", OOM_BUCKET_SAVED,
				oom_block(scores < MOST_BYTES ? scores : MOST_BYTES),
				OOM_AT_START, OOM_AT_NEVER);
}

uint64_t oom_cut_rows(const struct oom_param *q)
{
	if (!q->rows)
		return q->elems;
	return q->flags & OOM_P_EXPERT && q->mid ? q->rows / q->mid : q->rows;
}

/* ZeRO divides the joined gradients into equal parts, whatever tensors they cut (stage_1_and_2.py
 * get_partition_info: a tensor of two parts is in both). */
struct parting {
	uint64_t part, at, here, most;  /* elements: of a part, so far, of tensors that this part touches, of any */
};

static void part_tensor(struct parting *p, uint64_t elems)
{
	const uint64_t end = p->at + elems, first = p->at / p->part, last = (end - 1) / p->part;

	p->here += elems;
	p->most = p->here > p->most ? p->here : p->most;
	if (last > first || end % p->part == 0)
		p->here = end % p->part ? elems : 0;    /* the next part begins in it, or behind it */
	p->at = end;
}

/* What the part that touches most of them has beyond its own elements.  Tensors stand in the order in which modules register
 * them, equal layers one after another. */
static uint64_t cut_elements(const struct oom_tape *t, uint64_t ranks)
{
	struct parting p = {0};
	uint64_t trained = 0;

	for (size_t i = 0; i < t->n_params; i++)
		trained += t->params[i].trainable ? t->params[i].elems * t->params[i].count : 0;
	p.part = (trained + ranks - 1) / ranks;
	if (!p.part)
		return 0;
	for (size_t i = 0, end; i < t->n_params; i = end) {
		const struct oom_unit *u = t->params[i].unit ? &t->units[t->params[i].unit - 1] : NULL;
		const uint64_t times = t->params[i].count;

		for (end = i + 1; u && end < t->n_params && t->params[end].unit == t->params[i].unit;)
			end++;
		for (uint64_t k = 0; k < times; k++)
			for (size_t j = i; j < end; j++)
				if (t->params[j].trainable && t->params[j].elems)
					part_tensor(&p, t->params[j].elems);
	}
	return p.most > p.part ? p.most - p.part : 0;
}

/* What of the parameters does not divide evenly: eight stacked experts on 64 ranks are an eighth
 * each, not a 64th. */
static void uneven_shards(struct program *g, const struct oom_plan *p, uint64_t hidden)
{
	const int64_t whole = (int64_t)oom_persistence(p, hidden);
	const int64_t shared = p->hybrid_shard ? p->gpus / p->nodes : p->gpus;
	const uint64_t ranks = (uint64_t)shared;
	double even = 0, padded = 0;

	if (g->shards.ranks == (int64_t)ranks && g->shards.threshold == whole)
		return;
	g->shards.ranks = (int64_t)ranks;
	g->shards.threshold = whole;
	g->shards.small = 0;
	for (size_t i = 0; i < g->tape.n_params; i++) {
		const struct oom_param *q = &g->tape.params[i];
		const uint64_t rows = oom_cut_rows(q);
		const uint64_t chunk = (rows + ranks - 1) / ranks;

		if (oom_param_whole(q, p))
			continue;
		if (q->elems < (uint64_t)whole)
			g->shards.small += q->elems * q->count;
		even += (double)q->elems * q->count;
		padded += (double)(chunk * ranks) / (double)rows * (double)q->elems * q->count;
	}
	g->shards.uneven = even > 0 ? padded / even : 1;
	g->shards.edges = cut_elements(&g->tape, ranks);
}

/* Whether weights are stored in 16 bit, most of them at least. */
static bool half_weights(const struct program *g)
{
	return g->param_bytes < 3 * g->total;
}

/* Ranks that divide the states: HYBRID_SHARD shards within a node and copies between nodes. */
struct oom_ranks oom_ranks_of(struct program *g, const struct oom_plan *p)
{
	struct oom_ranks r = {.n = (uint64_t)(p->hybrid_shard ? p->gpus / p->nodes : p->gpus), .pad = 1};

	if (p->zero_stage >= 2)
		uneven_shards(g, p, g->tape.arch->d_model);
	if (oom_engine_of(p)->gathers_apart && p->zero_stage && g->shards.uneven > 1)
		r.pad = g->shards.uneven;
	if (oom_engine_of(p)->partitions && p->zero_stage)
		r.bucket = oom_reduce_bucket(p, g->tape.arch->d_model, half_weights(g)) *
			   (p->zero_stage < 3 && oom_overlaps(p) ? 2 : 1);
	if (oom_engine_of(p)->partitions && p->zero_stage == 2)
		r.edges = g->shards.edges * (half_weights(g) ? 2 : 4);
	return r;
}

/* What is fixed by the structure and its optimizer. */
static void counts(const struct program *g, const struct oom_state_sums *state,
		   struct oom_eval *out)
{
	out->total_params = g->total;
	out->trainable_params = g->trainable;
	out->active_params = g->active ? g->active : g->total;
	out->param_bytes = g->param_bytes;
	out->whole_bytes = g->whole_bytes;
	out->buffer_bytes = g->tape.buffer_bytes;
	out->grad_bytes = g->grad_bytes;
	out->opt_bytes = state->bytes;
}

/* Weights on disk decide how many parameters a type has that no family models: the difference is
 * counted like the rest, activations are not. */
static void surplus(const struct program *g, const struct oom_plan *p, struct oom_model_sums *in,
		    struct oom_eval *out)
{
	const double more = p->surplus_params > 0 ? (double)p->surplus_params : 0,
		     n = (double)(g->total ? g->total : 1);
	const uint64_t elems = (uint64_t)more,
		       bytes = (uint64_t)(more * (double)g->param_bytes / n);

	in->total += elems;
	in->params += bytes;
	out->total_params += elems;
	out->active_params += elems;
	out->param_bytes += bytes;
	if (g->adapted)                 /* adapters alone are trained */
		return;
	in->trainable += elems;
	in->grads += (uint64_t)(more * (double)g->grad_bytes / n);
	in->trained += (uint64_t)(more * (double)g->trained_rounded / n);
	in->trained_wide += (uint64_t)(more * (double)g->trained_wide / n);
	out->trainable_params += elems;
	out->grad_bytes += in->grads - g->grad_bytes;
	out->opt_bytes += (uint64_t)(more * (double)out->opt_bytes / n);
}

/* All ranks' together.  Shards of parameters that train are fp32 under mixed precision (passes/fsdp.c), and what
 * ZeRO divides is moments and master of all parameters (passes/zero.c). */
static void held_by_all(const struct oom_plan *p, const struct oom_schedule *s, struct oom_eval *out)
{
	const struct oom_model_sums *in = &s->in;
	const bool wide = oom_engine_casts_trained(p), zero = oom_engine_of(p)->partitions && p->zero_stage;
	const uint64_t more = out->opt_bytes - in->state->bytes;        /* of weights that are in no tape */

	out->held_grads = wide ? 4 * out->trainable_params : out->grad_bytes;
	out->held_states = wide || zero ? in->master_state->bytes + (in->half ? 2 : 1) * more : out->opt_bytes;
	if (zero)
		out->held_states += 4 * out->trainable_params;
}

/* Engines that divide gradients, and hooks that use them as they come, give them up themselves. */
static bool grads_stay(const struct oom_plan *p, const struct oom_schedule *s)
{
	return p->zero_grad == OOM_ZERO_GRAD_ZEROS && !p->zero_stage && !s->divided &&
	       !p->step_in_backward && !p->offload_gradients;
}

/* A unit's parameters, their copies under way, the flat one and its part, of the largest: a layer, or what is
 * outside of the layers; and the whole model where that is on the card before. */
static uint64_t joined(const struct program *g, const struct oom_arch *a, const struct oom_schedule *s)
{
	const uint64_t layers = g->layer * a->n_layers,
		       root = g->total > layers ? g->total - layers : g->total,
		       width = s->master || !s->in.half ? 4 : 2;

	return (s->hold[OOM_HOLD_WEIGHTS].pieces == OOM_PER_UNIT ? 4 * width * (root > g->layer ? root : g->layer) : 0) +
	       (s->whole_first ? s->in.params : 0);
}

/* The plan's schedule on one rank of an undivided model: the plain step, then every pass. */
enum oom_status oom_rank_schedule(struct program *g, const struct oom_arch *a,
				  const struct oom_plan *p, const struct oom_batch *at,
				  struct oom_eval *out, struct oom_schedule *s)
{
	struct oom_model_sums in = {.total = g->total,
				    .hidden = g->tape.arch->d_model,
				    .trainable = g->trainable,
				    .params = g->param_rounded,
				    .whole = g->whole_rounded,
				    .whole_elems = g->whole_elems,
				    .grads = g->grad_bytes,
				    .trained = g->trained_rounded,
				    .trained_wide = g->trained_wide,
				    .tensors = g->trained_tensors,
				    .layer = g->layer,
				    .largest = g->largest,
				    .small = g->shards.small,
				    .half = half_weights(g),
				    .state = oom_state_sums(g, p->optimizer, false),
				    /* asked for where states are divided */
				    .master_state = oom_state_sums(g, p->optimizer,
								   p->zero_stage > 0)};
	uint64_t inputs;

	if (!in.state || !in.master_state)
		return OOM_ERR_MEMORY;
	out->input_bytes = input_bytes(&g->tape, a, p, at, &inputs);
	counts(g, in.state, out);
	surplus(g, p, &in, out);
	oom_schedule_init(s, &in, g->tape.buffer_rounded, inputs);
	if (g->tape.beside.rounded)
		oom_add_holding(s, "weights of the reference", OOM_BUCKET_PARAMS,
				p->zero_stage == 3 ? oom_shared_bytes(g->tape.beside.rounded,
								      OOM_SHARE_PART, at->ranks) :
						     g->tape.beside.rounded,
				OOM_AT_LOAD, OOM_AT_NEVER)->pieces = OOM_PER_BESIDE;
	outside_the_loss(s, g, p, a, at);
	s->ranks = at->ranks;
	s->accumulates = p->grad_accum > 1;
	s->grads_stay = grads_stay(p, s);
	if (oom_optimizer_at((size_t)p->optimizer)->early)
		s->hold[OOM_HOLD_STATE].from = OOM_AT_START;
	/* of weights that are in no tape */
	s->hold[OOM_HOLD_GRADS].bytes = in.grads - g->grad_bytes;
	s->hold[OOM_HOLD_STATE].bytes += out->opt_bytes - in.state->bytes;
	held_by_all(p, s, out);
	oom_apply_passes(s, p);
	s->grads_stay = grads_stay(p, s);       /* passes may have divided them */
	out->wrap_bytes = joined(g, a, s);
	return OOM_OK;
}
