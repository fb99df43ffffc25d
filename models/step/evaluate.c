/* The spine: one plan in, one evaluation out.
 *
 *   plan -> program (tape recorded once per structure, program.c) -> row sizes for this batch
 *        -> spans of the passes -> phases (phases.c) -> peak
 */
#include <stdlib.h>

#include "allocator.h"
#include "device_map.h"
#include "families/model.h"
#include "oomplan/rules.h"
#include "phases.h"
#include "program.h"
#include "tape/timeline.h"

/* ---- sizes and phases ---- */

#define ROW_LIMIT ((uint64_t)1 << 46)

enum oom_status oom_row_sizes(struct oom_evaluator *ev, const struct oom_tape *t, uint64_t b,
			      uint64_t s, uint64_t tgt, struct oom_error *err)
{
	uint64_t mono[OOM_MAX_MONOS];

	if (t->n_rows > ev->cap_size) {
		uint64_t *q = realloc(ev->size, t->n_rows * 2 * sizeof(*q));

		if (!q)
			return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		ev->size = q;
		ev->cap_size = t->n_rows * 2;
	}
	for (size_t i = 0; i < t->n_monos; i++)
		mono[i] = oom_mono_eval(t, (uint16_t)i, b, s, tgt);
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct oom_row *r = &t->rows[i];
		uint64_t n;

		if (__builtin_mul_overflow(mono[r->mono],
					   r->width * oom_dtype_bytes((enum oom_dtype)r->dt), &n) ||
		    n > ROW_LIMIT)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s.%s alone would need more than 64 TiB", r->scope,
					     r->name);
		ev->size[i] = (n + 511) & ~(uint64_t)511;
	}
	return OOM_OK;
}

static uint64_t block(uint64_t bytes)
{
	return (bytes + 511) / 512 * 512;
}

/* The batch as it lies on the GPU: ids, labels and mask, or pixels and labels. */
static uint64_t input_bytes(const struct oom_tape *t, const struct oom_arch *a,
			    const struct oom_plan *p, uint64_t b, uint64_t s, uint64_t tgt,
			    uint64_t *rounded)
{
	const enum oom_task task = p->task ? (enum oom_task)p->task : a->default_task;
	const uint64_t side = p->image_size ? (uint64_t)p->image_size : a->image_size;
	const bool full = p->precision == OOM_FP32 || p->precision == OOM_AMP_BF16 ||
			  p->precision == OOM_AMP_FP16;
	uint64_t x[4] = {b * s * 8, b * 8, 0, b * t->pixels * (full ? 4 : 2)};

	if (task == OOM_TASK_IMAGE_CLS)
		x[0] = b * (a->channels ? a->channels : 3) * side * side * (full ? 4 : 2);
	else if (task == OOM_TASK_SEQ2SEQ) {
		x[1] = b * tgt * 8;
		if (a->frame)
			x[0] = b * (a->frames ? a->frames : s) * a->frame * (full ? 4 : 2);
	}
	else if (task != OOM_TASK_SEQ_CLS)
		x[1] = b * s * 8;
	if (p->padding_mask)
		x[2] = b * s * 8;
	*rounded = block(x[0]) + block(x[1]) + block(x[2]) + block(x[3]);
	return x[0] + x[1] + x[2] + x[3];
}

/* What of the parameters does not divide evenly.  FSDP2 shards rows (torch/distributed/fsdp/
 * _fully_shard/_fsdp_param.py _init_sharded_param: chunks of dimension 0, padded to the first one's
 * size): eight stacked experts on 64 ranks are an eighth each, not a 64th. */
static void uneven_shards(struct program *g, const struct oom_plan *p, uint64_t hidden)
{
	const int64_t whole = p->persistence == OOM_COUNT_AUTO ? (int64_t)(10 * hidden) :
								 p->persistence;
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
		const uint64_t rows = !q->rows			       ? q->elems :
				      q->flags & OOM_P_EXPERT && q->mid ? q->rows / q->mid :
									 q->rows;
		const uint64_t chunk = (rows + ranks - 1) / ranks;

		if (q->elems < (uint64_t)whole)
			g->shards.small += q->elems * q->count;
		even += (double)q->elems * q->count;
		padded += (double)(chunk * ranks) / (double)rows * (double)q->elems * q->count;
	}
	g->shards.uneven = even > 0 ? padded / even : 1;
}

/* The model as an engine meets it: its wrapped unit is a block, the rest (embeddings, head) is
 * the root's. */
static struct oom_engine_in engine_in(struct program *g, const struct oom_plan *p,
				      const struct oom_state_sums *state)
{
	if (p->zero_stage >= 2)
		uneven_shards(g, p, g->tape.arch->d_model);
	return (struct oom_engine_in){.total = g->total,
				      .hidden = g->tape.arch->d_model,
				      .trainable = g->trainable,
				      .params = g->param_rounded,
				      .grads = g->grad_bytes,
				      .opt = state->rounded,
				      .temps = {state->temps[0], state->temps[1]},
				      .layer = g->layer,
				      .root = g->root,
				      .head = g->head,
				      .small = g->shards.small,
				      .uneven = g->shards.uneven > 1 ? g->shards.uneven : 1,
				      .half = g->param_bytes < 3 * g->total,
				      .quantised = state->quantised};
}

/* Net and peak of every pass.  Engines, optimizers and allocators do not change them: the last ones
 * are kept.  A structure evaluated often is compiled; the compiled form gives the same bytes. */
static enum oom_status spans_of(struct oom_evaluator *ev, struct program *g, uint64_t b, uint64_t s,
				uint64_t tgt, unsigned flags, struct oom_error *err)
{
	enum { WORTH = 48 };
	const struct oom_tape *t = &g->tape;
	enum oom_status st;

	if (g->spanned && g->span_of[0] == b && g->span_of[1] == s && g->span_of[2] == tgt &&
	    !(flags & OOM_EVAL_BUCKETS))
		return OOM_OK;
	g->spanned = false;
	if (++g->evaluations == WORTH && oom_compile(&g->fast, t, false) == OOM_ERR_MEMORY)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (!g->fast.ready || flags & OOM_EVAL_BUCKETS ||
	    !oom_compiled_spans(&g->fast, t, b, s, tgt, ROW_LIMIT, g->span)) {
		st = oom_row_sizes(ev, t, b, s, tgt, err);
		if (st)
			return st;
		g->span[OOM_PASS_FWD] = oom_walk(t, OOM_STREAM_FWD, ev->size, false);
		g->span[OOM_PASS_BWD] = oom_walk(t, OOM_STREAM_BWD, ev->size, false);
		g->span[OOM_PASS_BWD_ACC] = oom_walk(t, OOM_STREAM_BWD, ev->size, true);
		g->span[OOM_PASS_EVAL] = oom_walk(t, OOM_STREAM_EVAL, ev->size, false);
	}
	g->spanned = true;
	g->span_of[0] = b;
	g->span_of[1] = s;
	g->span_of[2] = tgt;
	return OOM_OK;
}

/* The same of every pass's thirds, one layer standing for all. */
static enum oom_status thirds_of(struct oom_evaluator *ev, struct program *g, uint64_t b,
				 uint64_t s, uint64_t tgt, struct oom_error *err)
{
	enum { WORTH = 24 };
	const struct oom_tape *t = &g->tape;
	struct oom_span part[OOM_PASSES * 3];
	enum oom_status st;

	if (g->cut && g->third_of[0] == b && g->third_of[1] == s && g->third_of[2] == tgt)
		return OOM_OK;
	g->cut = false;
	g->layers = 0;
	for (size_t i = 0; i < t->n_layers; i++)
		g->layers += t->layers[i].layers;
	g->layers = g->layers ? g->layers : 1;
	if (++g->cuts == WORTH && oom_compile(&g->cut_fast, t, true) == OOM_ERR_MEMORY)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (g->cut_fast.ready && oom_compiled_spans(&g->cut_fast, t, b, s, tgt, ROW_LIMIT, part)) {
		for (int p = 0; p < OOM_PASSES; p++)
			for (int k = 0; k < 3; k++)
				g->third[p][k] = oom_one_layer(part[p * 3 + k].net,
							       part[p * 3 + k].peak,
							       k == 1 ? g->layers : 1);
	} else {
		st = oom_row_sizes(ev, t, b, s, tgt, err);
		if (st)
			return st;
		oom_walk_thirds(t, OOM_STREAM_FWD, ev->size, false, g->layers, g->third[0]);
		oom_walk_thirds(t, OOM_STREAM_BWD, ev->size, false, g->layers, g->third[1]);
		oom_walk_thirds(t, OOM_STREAM_BWD, ev->size, true, g->layers, g->third[2]);
		oom_walk_thirds(t, OOM_STREAM_EVAL, ev->size, false, g->layers, g->third[3]);
	}
	g->cut = true;
	g->third_of[0] = b;
	g->third_of[1] = s;
	g->third_of[2] = tgt;
	return OOM_OK;
}

/* A product's two gradients cost as much as itself each; frozen weights need but one of them. */
static double flops_of(const struct program *g, const struct oom_plan *p, uint64_t b, uint64_t s,
		       uint64_t tgt)
{
	const struct oom_tape *t = &g->tape;
	double f = 0;

	for (size_t i = 0; i < t->n_monos; i++)
		f += ((p->lora_r ? 2 : 3) * t->flops_fwd[i] + t->flops_again[i]) *
		     (double)oom_mono_eval(t, (uint16_t)i, b, s, tgt);
	return f / (double)(b ? b : 1);
}

/* What is fixed by the structure and its optimizer. */
static void counts(const struct program *g, const struct oom_state_sums *state,
		   struct oom_eval *out)
{
	out->total_params = g->total;
	out->trainable_params = g->trainable;
	out->active_params = g->active ? g->active : g->total;
	out->param_bytes = g->param_bytes;
	out->buffer_bytes = g->tape.buffer_bytes;
	out->grad_bytes = g->grad_bytes;
	out->opt_bytes = state->bytes;
}

/* Weights on disk decide how many parameters a type has that no family models: the difference is
 * counted like the rest, activations are not. */
static void surplus(const struct program *g, const struct oom_plan *p, struct oom_engine_in *in,
		    struct oom_eval *out)
{
	const double more = p->surplus_params > 0 ? (double)p->surplus_params : 0,
		     n = (double)(g->total ? g->total : 1);
	const uint64_t elems = (uint64_t)more,
		       bytes = (uint64_t)(more * (double)g->param_bytes / n);

	if (!elems)
		return;
	in->total += elems;
	in->params += bytes;
	out->total_params += elems;
	out->active_params += elems;
	out->param_bytes += bytes;
	if (p->lora_r)
		return;
	in->trainable += elems;
	in->grads += (uint64_t)(more * (double)g->grad_bytes / n);
	in->opt += (uint64_t)(more * (double)out->opt_bytes / n);
	out->trainable_params += elems;
	out->grad_bytes += in->grads - g->grad_bytes;
	out->opt_bytes += (uint64_t)(more * (double)out->opt_bytes / n);
}

/* Phases and composition of GPUs that are all alike. */
static void alike(const struct program *g, const struct oom_model *model, const struct oom_plan *p,
		  const uint64_t *size, uint64_t inputs, uint64_t more_grads,
		  const struct oom_states *states, unsigned flags, struct oom_eval *out)
{
	const uint64_t base = states->params + states->comm + g->tape.buffer_rounded + inputs;
	const enum oom_phase at = (enum oom_phase)(flags >> 8);
	enum oom_phase top;
	uint64_t most, b, s, tgt;

	oom_batch_sizes(p, &b, &s, &tgt);
	oom_phases(g, p, out, base, states);
	out->floor_bytes -= more_grads;         /* no collective's buffer */
	if (p->eval_accumulation)
		oom_pile_up(out, (uint64_t)p->eval_accumulation,
			    oom_eval_logits(&model->arch, p, b, s, tgt), base, states->opt);
	top = out->peak_phase;
	most = out->overall_peak;
	if (!(flags & OOM_EVAL_BUCKETS))
		return;
	if (at) {
		out->peak_phase = at;
		out->overall_peak = out->peak[at];
	}
	oom_compose(g, p, size, out, inputs, states);
	out->peak_phase = top;
	out->overall_peak = most;
}

/* Reserved bytes, by replay where it is asked for and can be, and what lies outside of them. */
static enum oom_status reserve(struct oom_evaluator *ev, const struct oom_model *model,
			       const struct oom_plan *plan, unsigned flags, struct oom_eval *out,
			       struct oom_error *err)
{
	enum oom_status st = OOM_OK;

	out->reserved_replayed = false;
	out->reserved_bytes = oom_reserved_estimate(out, plan);
	oom_overheads(out, plan);
	out->used_bytes_estimated = out->used_bytes;
	/* the replay plays plain single-GPU steps: sharded and offloaded plans keep the estimate */
	if (flags & OOM_EVAL_REPLAY && !plan->zero_stage && plan->gpus == 1 &&
	    plan->offload_optimizer == OOM_OFFLOAD_NONE && !plan->offload_activations) {
		st = oom_record(&ev->full, model, plan, true, err);
		ev->full.input_bytes = out->input_bytes;
		if (!st)
			st = oom_replay(&ev->replay, &ev->full, plan, &out->reserved_bytes, err);
		out->reserved_replayed = !st;
		if (st == OOM_ERR_LIMIT)
			st = OOM_OK;            /* too deep to replay: the estimate stands */
	}
	/* the pile of an evaluation, which is not replayed */
	if (out->reserved_bytes < out->overall_peak) {
		out->reserved_bytes = out->overall_peak;
		out->reserved_replayed = false;
	}
	oom_overheads(out, plan);
	return st;
}

enum oom_status oom_evaluate(struct oom_evaluator *ev, const struct oom_model *model,
			     const struct oom_plan *plan, unsigned flags, struct oom_eval *out,
			     struct oom_error *err)
{
	const bool stages = plan->engine == OOM_ENGINE_DEVICE_MAP && plan->gpus > 1;
	uint64_t b, s, tgt, inputs, more_grads = 0;
	const struct oom_state_sums *state;
	struct oom_engine_in in;
	struct oom_states states;
	struct program *g;
	enum oom_status st;

	st = oom_plan_check(plan, err);
	if (st)
		return st;
	if (plan->engine == OOM_ENGINE_MEGATRON)
		return oom_megatron_evaluate(model, plan, flags, out, err);
	oom_batch_sizes(plan, &b, &s, &tgt);
	st = oom_program_for(ev, model, plan, &g, err);
	if (!st)
		st = stages ? thirds_of(ev, g, b, s, tgt, err) :
			      spans_of(ev, g, b, s, tgt, flags, err);
	if (st)
		return st;
	out->input_bytes = input_bytes(&g->tape, &model->arch, plan, b, s, tgt, &inputs);
	out->warning = g->tape.warning	   ? g->tape.warning :
		       g->tape.approximate ? "PEFT 0.20 stops with an error on this model with "
					     "these adapters: the figures are what it would hold" :
					     "";
	state = oom_state_sums(g, plan->optimizer);
	counts(g, state, out);
	in = engine_in(g, plan, state);
	surplus(g, plan, &in, out);
	oom_engine_states(plan, &in, &states);
	if (!states.grads_reduced && !plan->lora_r)     /* theirs are in no tape */
		more_grads = in.grads - g->grad_bytes;
	states.comm += more_grads;
	if (*states.warning)
		out->warning = states.warning;
	out->stage = out->n_stages = 0;
	out->least_peak = 0;
	if (stages)
		oom_device_map(g, &model->arch, plan, inputs, state,
			       (enum oom_phase)(flags >> 8), out);
	else
		alike(g, model, plan, ev->size, inputs, more_grads, &states, flags, out);
	out->host_pinned_bytes = states.host_pinned + out->offloaded_bytes;
	/* paged states need as much host memory as they may have to leave for */
	out->host_pageable_bytes = states.host_pageable +
				   state->paged / (uint64_t)(plan->zero_stage ? plan->gpus : 1);
	out->nvme_bytes = states.nvme;
	out->flops_per_sample = flops_of(g, plan, b, s, tgt);
	return reserve(ev, model, plan, flags, out, err);
}

uint64_t oom_budget(uint64_t capacity, const struct oom_plan *p)
{
	return (uint64_t)((double)capacity * (1 - p->margin));
}

/* Every row of data/measured.csv reserves between one and two times what it allocates. */
enum oom_decision oom_decide(const struct oom_eval *e, uint64_t budget)
{
	const uint64_t outside = e->used_bytes - e->reserved_bytes;

	if (e->reserved_replayed)
		return e->used_bytes <= budget ? OOM_FITS : OOM_DOES_NOT_FIT;
	return outside + e->overall_peak > budget       ? OOM_DOES_NOT_FIT :
	       outside + 2 * e->overall_peak <= budget ? OOM_FITS :
							 OOM_UNDECIDED;
}

enum oom_status oom_judge(struct oom_evaluator *ev, const struct oom_model *model,
			  const struct oom_plan *plan, uint64_t capacity, unsigned flags,
			  struct oom_eval *out, bool *fits, struct oom_error *err)
{
	const uint64_t budget = oom_budget(capacity, plan);
	enum oom_status st = oom_evaluate(ev, model, plan, flags, out, err);

	if (!st && !(flags & OOM_EVAL_REPLAY) && oom_decide(out, budget) == OOM_UNDECIDED)
		st = oom_evaluate(ev, model, plan, flags | OOM_EVAL_REPLAY, out, err);
	*fits = !st && out->used_bytes <= budget;
	return st;
}
