/* The spine: one plan in, one evaluation out.  Read this first.
 *
 *   plan -> program   the model's tape, recorded once per structure (program.c)
 *        -> variant   its streams as the plan's passes rewrite them (passes/, variant.c)
 *        -> spans     what every pass peaks at and leaves at this batch (tape/timeline.c)
 *        -> schedule  what lives from one moment of the step to another (schedule.c)
 *        -> phases    peaks, ends, who is alive (phases.c); device maps: one schedule per GPU
 *        -> reserved  what the caching allocator makes of it (replay.c)
 */
#include <stdlib.h>
#include <string.h>

#include "families/model.h"
#include "oomplan/generations.h"
#include "oomplan/rules.h"
#include "step/device_map.h"
#include "step/objectives.h"
#include "step/pass.h"
#include "step/phases.h"
#include "step/program.h"
#include "step/time/work.h"
#include "step/rank.h"
#include "step/reserved.h"
#include "step/rollouts.h"
#include "step/sound.h"
#include "step/warnings.h"
#include "tape/round.h"

/* ---- sizes ---- */

static enum oom_status too_large(const struct oom_tape *t, const struct oom_row *r, struct oom_error *err)
{
	oom_error_set(err, OOM_ERR_INVALID, "%s.%s alone would need more than 64 TiB", r->scope, r->name);
	if (err)
		oom_read_explain(&t->arch->rd, OOM_SUSPECT_LARGE, err);
	return OOM_ERR_INVALID;
}

enum oom_status oom_row_sizes(struct oom_evaluator *ev, const struct oom_tape *t,
			      const struct oom_batch *at, struct oom_error *err)
{
	uint64_t mono[OOM_MAX_MONOS], *size;

	if (t->n_rows > ev->cap_size) {
		uint64_t *q = realloc(ev->size, t->n_rows * 2 * sizeof(*q));

		if (!q)
			return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		ev->size = q;
		ev->cap_size = t->n_rows * 2;
	}
	size = ev->size;
	oom_monos_eval(t, at->b, at->s, at->t, mono);
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct oom_row *r = &t->rows[i];
		uint64_t n;

		if (__builtin_mul_overflow(mono[r->mono], r->width * oom_dtype_bytes((enum oom_dtype)r->dt), &n) ||
		    n > OOM_ROW_LIMIT)
			return too_large(t, r, err);
		size[i] = oom_block(oom_shared_bytes(n, (enum oom_share)r->share, at->ranks));
	}
	return OOM_OK;
}

/* Phases of GPUs that are all alike. */
static void alike(const struct oom_variant *v, const struct oom_model *model,
		  const struct oom_plan *p, const struct oom_schedule *s, const uint64_t *size,
		  struct oom_eval *out, struct oom_alive *alive)
{
	uint64_t b, seq, tgt;

	oom_batch_sizes(p, &b, &seq, &tgt);
	oom_read_phases(s, v, size, out, alive);
	if (p->eval_accumulation)
		oom_pile_up(s, out, (uint64_t)p->eval_accumulation,
			    oom_eval_outputs(v->tape, &model->arch, p, b, seq, tgt), alive);
}

/* Activations that went to the host: what the plain recording's forward leaves more than this
 * variant's, beside the rows that passes added. */
static enum oom_status count_offloaded(struct oom_evaluator *ev, struct program *g,
				       const struct oom_plan *p, const struct oom_variant *v,
				       const struct oom_batch *at, struct oom_eval *out,
				       struct oom_error *err)
{
	struct oom_plan plain;
	struct oom_variant *all;
	enum oom_status st;
	int64_t away;

	out->offloaded_bytes = 0;
	if (!p->offload_activations)
		return OOM_OK;
	plain = *p;
	plain.offload_activations = 0;
	st = oom_variant_for(ev, g, &plain, &all, err);
	if (!st)
		st = oom_variant_spans(ev, all, at, err);
	if (st)
		return st;
	away = all->span[OOM_PASS_FWD].net - v->span[OOM_PASS_FWD].net;
	out->offloaded_bytes = away > 0 ? (uint64_t)away : 0;
	return OOM_OK;
}

/* What engines keep off the card. */
static void off_card(const struct oom_plan *p, const struct oom_schedule *s, struct oom_eval *out)
{
	uint64_t held[OOM_PLACES] = {0};

	for (size_t i = 0; i < s->n_hold; i++)
		held[s->hold[i].place] += s->hold[i].bytes;
	out->host_pinned_bytes = held[OOM_IN_PINNED] + out->offloaded_bytes;
	/* paged states need as much host memory as they may have to leave for */
	out->host_pageable_bytes = held[OOM_IN_PAGEABLE] +
				   s->in.state->paged / (uint64_t)(p->zero_stage ? p->gpus : 1);
	out->nvme_bytes = held[OOM_ON_NVME];
}

/* No tokens is what a model of images alone is asked about. */
static enum oom_status without_tokens(const struct oom_model *model, struct oom_error *err)
{
	return oom_error_set(err, OOM_ERR_INVALID, "seq-len: 0 tokens, and %s reads text: at least 1",
			     model->arch.model_type);
}

/* Engines whose ranks have schedules of their own. */
static enum oom_status evaluate_ranks(struct oom_evaluator *ev, const struct oom_rank_engine *ranks,
				      const struct oom_model *model, const struct oom_plan *plan,
				      unsigned flags, struct oom_eval *out, struct oom_alive *alive,
				      struct oom_error *err)
{
	enum oom_status st = oom_plan_check(plan, err);

	if (!st)
		st = plan->seq_len ? ranks->evaluate(model, plan, out, alive, err) :
				     without_tokens(model, err);
	return st ? st : oom_reserve(ev, model, plan, flags & OOM_EVAL_REPLAY, NULL, NULL, out, err);
}

/* A recorded step at a batch. */
struct recorded {
	struct program *g;
	struct oom_variant *v;
	struct oom_batch at;
};

/* The plan's program and batch; those of the evaluation before where they serve.  Its variant, unless out
 * (NULL: do not look) has been found before: then it stays NULL. */
static enum oom_status structure_for(struct oom_evaluator *ev, const struct oom_model *model,
				     const struct oom_plan *plan, bool near, struct oom_eval *out,
				     struct recorded *r, struct oom_error *err)
{
	enum oom_status st;

	oom_batch_sizes(plan, &r->at.b, &r->at.s, &r->at.t);
	if (oom_before_serves(ev, model, plan, near, &r->at, &r->g, &r->v)) {
		const bool found = out && oom_before_found(ev, plan, out);

		if (r->v || found) {
			r->v = found ? NULL : r->v;
			return OOM_OK;
		}
		st = oom_variant_for(ev, r->g, plan, &r->v, err);
		if (!st)
			oom_before_keep_variant(ev, plan, r->v);
		return st;
	}
	st = oom_plan_check(plan, err);
	if (!st)
		st = oom_program_for(ev, model, plan, &r->g, err);
	if (st)
		return st;
	r->at.ranks = oom_ranks_of(r->g, plan);
	st = oom_variant_for(ev, r->g, plan, &r->v, err);
	if (!st)
		oom_before_keep(ev, model, plan, &r->at, r->g, r->v);
	return st;
}

/* What is said of a recorded step beside its phases.  s becomes its schedule; stages: GPUs work in turn. */
static enum oom_status price(struct oom_evaluator *ev, const struct oom_model *model,
			     const struct oom_plan *plan, const struct recorded *r, bool stages,
			     struct oom_schedule *s, struct oom_eval *out, struct oom_alive *alive,
			     struct oom_error *err)
{
	const struct oom_tape *t = &r->g->tape;
	enum oom_status st = stages ? oom_variant_thirds(ev, r->v, &r->at, err) :
				      oom_variant_spans(ev, r->v, &r->at, err);

	if (!st)
		st = count_offloaded(ev, r->g, plan, r->v, &r->at, out, err);
	if (!st && alive)
		st = oom_row_sizes(ev, r->v->tape, &r->at, err);
	if (!st)
		st = oom_rank_schedule(r->g, &model->arch, plan, &r->at, out, s);
	if (!st && !plan->seq_len && !out->input_bytes)
		st = without_tokens(model, err);
	if (!st)
		st = oom_variant_floor(ev, r->v, r->at.ranks, &out->floor_bytes, err);
	if (st)
		return st == OOM_ERR_MEMORY ? oom_error_set(err, st, "out of host memory") : st;
	oom_warnings_collect(t, model, plan, out);
	out->stage = out->n_stages = 0;
	out->least_peak = 0;
	out->floor_bytes += oom_buffers_of(s);
	oom_program_size(r->g, &r->at);
	out->flops_per_sample = r->g->sized.flops / (double)(r->at.b ? r->at.b : 1);
	out->work = r->g->sized.work;
	return OOM_OK;
}

static enum oom_status evaluate_phases(struct oom_evaluator *ev, const struct oom_model *model,
				       const struct oom_plan *plan, unsigned flags,
				       struct oom_eval *out, struct oom_alive *alive,
				       struct oom_error *err);

/* The step without kept logits, and above it an evaluation that is another question's (NULL: none). */
static enum oom_status evaluate_beside(struct oom_evaluator *ev, const struct oom_model *model,
				       const struct oom_plan *plan, unsigned flags, const struct oom_eval *other,
				       struct oom_eval *out, struct oom_alive *alive, struct oom_error *err)
{
	struct oom_plan q = *plan;
	enum oom_status st;
	uint64_t kept;

	q.eval_accumulation = 0;
	st = evaluate_phases(ev, model, &q, flags, out, alive, err);
	ev->before.model = NULL;
	if (st || !other)
		return st;
	out->peak[OOM_PHASE_EVAL] = other->peak[OOM_PHASE_EVAL];
	out->end[OOM_PHASE_EVAL] = other->end[OOM_PHASE_EVAL];
	if (out->peak[OOM_PHASE_EVAL] <= out->overall_peak)
		return OOM_OK;
	out->overall_peak = out->peak[OOM_PHASE_EVAL];
	out->peak_phase = OOM_PHASE_EVAL;
	kept = out->reserved_bytes > out->overall_peak ? out->reserved_bytes : out->overall_peak;
	st = oom_reserve(ev, model, plan, false, NULL, NULL, out, err);
	if (st || !(flags & OOM_EVAL_REPLAY))
		return st;
	/* the pile is a few large blocks: no replay plays it, and what the cache kept of the step serves it */
	out->used_bytes += kept - out->reserved_bytes;
	out->reserved_bytes = kept;
	out->reserved_replayed = false;
	return OOM_OK;
}

/* Logits pile up in an evaluation whose batch is not the step's: the phase is that of a plan with the evaluation's
 * batch, the rest of the step is priced as if no logits were kept.  The question within is asked first, as it
 * leaves its own spans in the evaluator.  A run that does not evaluate keeps none. */
static enum oom_status evaluate_apart(struct oom_evaluator *ev, const struct oom_model *model,
				      const struct oom_plan *plan, unsigned flags, struct oom_eval *out,
				      struct oom_alive *alive, struct oom_error *err)
{
	struct oom_alive there[OOM_PHASES];
	struct oom_plan q = *plan;
	struct oom_eval e = {0};
	enum oom_status st;

	if (plan->evaluates == OOM_EVALUATES_NO)
		return evaluate_beside(ev, model, plan, flags, NULL, out, alive, err);
	q.micro_batch = plan->eval_batch;
	q.grad_accum = 1;
	q.global_batch = 0;
	st = evaluate_phases(ev, model, &q, OOM_EVAL_FAST, &e, alive ? there : NULL, err);
	ev->before.model = NULL;
	if (!st)
		st = evaluate_beside(ev, model, plan, flags, &e, out, alive, err);
	if (!st && alive)
		alive[OOM_PHASE_EVAL] = there[OOM_PHASE_EVAL];
	return st;
}

static enum oom_status evaluate_phases(struct oom_evaluator *ev, const struct oom_model *model,
				       const struct oom_plan *plan, unsigned flags,
				       struct oom_eval *out, struct oom_alive *alive,
				       struct oom_error *err)
{
	const bool stages = oom_engine_of(plan)->info.in_turn && oom_engine_divides(plan),
		   replays = flags & OOM_EVAL_REPLAY;
	const struct oom_rank_engine *ranks = oom_rank_engine_of(plan);
	struct oom_schedule s, fullest;
	struct recorded r;
	enum oom_status st;

	if (plan->eval_accumulation && !plan->generating && !oom_rank_engine_of(plan) &&
	    (plan->evaluates == OOM_EVALUATES_NO || plan->eval_batch != plan->micro_batch))
		return evaluate_apart(ev, model, plan, flags, out, alive, err);
	ev->asked++;
	out->wrap_bytes = 0;
	out->peak[OOM_PHASE_ROLLOUTS] = out->end[OOM_PHASE_ROLLOUTS] = 0;
	if (alive)
		alive[OOM_PHASE_ROLLOUTS] = (struct oom_alive){.op = "", .module = ""};
	if (ranks)
		return evaluate_ranks(ev, ranks, model, plan, flags, out, alive, err);
	st = structure_for(ev, model, plan, flags & OOM_EVAL_NEAR, alive || replays ? NULL : out, &r, err);
	if (st)
		return st;
	if (!r.v)
		return oom_reserve(ev, model, plan, false, NULL, NULL, out, err);
	st = price(ev, model, plan, &r, stages, &s, out, alive, err);
	if (st)
		return st;
	if (stages) {
		fullest = s;
		oom_device_map(r.g, r.v, &model->arch, plan, &s, ev->size, out, alive, &fullest);
	} else {
		alike(r.v, model, plan, &s, ev->size, out, alive);
	}
	off_card(plan, &s, out);
	if (oom_plan_generates(plan)) { /* which asks further questions */
		st = oom_rollouts(ev, model, plan, out, alive, err);
		ev->before.model = NULL;
		if (st)
			return st;
	} else if (plan->eval_generates && !plan->generating) {
		st = oom_eval_answers(ev, model, plan, out, alive, err);
		ev->before.model = NULL;
		if (st)
			return st;
	} else {
		oom_before_find(ev, plan, out);
	}
	return oom_reserve(ev, model, plan, replays, stages ? &fullest : &s, &r.at, out, err);
}

enum oom_status oom_evaluate_phases(struct oom_evaluator *ev, const struct oom_model *model,
				    const struct oom_plan *plan, unsigned flags,
				    struct oom_eval *out, struct oom_alive *alive,
				    struct oom_error *err)
{
	struct oom_plan settled;

	ev->as_asked = !oom_plan_dated(plan) && !oom_engine_recasts(plan) && !plan->texts_chunk &&
		       !oom_plan_precision_open(plan);
	if (ev->as_asked)
		return evaluate_phases(ev, model, plan, flags, out, alive, err);
	settled = *plan;
	oom_plan_as_run(model, &settled);
	return evaluate_phases(ev, model, &settled, flags, out, alive, err);
}

enum oom_status oom_evaluate(struct oom_evaluator *ev, const struct oom_model *model,
			     const struct oom_plan *plan, unsigned flags, struct oom_eval *out,
			     struct oom_error *err)
{
	struct oom_alive alive[OOM_PHASES];
	const enum oom_phase asked = (enum oom_phase)(flags >> OOM_EVAL_PHASE_SHIFT);
	const bool wanted = flags & OOM_EVAL_BUCKETS;
	enum oom_status st;

	if (!model)
		return oom_error_set(err, OOM_ERR_INVALID, "no model to evaluate");
	if ((flags & (OOM_EVAL_NEAR | OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY)) == OOM_EVAL_NEAR && !ev->budget &&
	    oom_before_again(ev, model, plan, out))
		return oom_sound_on_card(model, plan, out, err);
	st = oom_evaluate_phases(ev, model, plan, flags, out, wanted ? alive : NULL, err);
	if (!st && wanted) {
		const struct oom_alive *a = &alive[asked ? asked : out->peak_phase];

		memcpy(out->bucket, a->bucket, sizeof(out->bucket));
		out->peak_op = a->op;
		out->peak_module = a->module;
	}
	if (!st)
		st = oom_sound(model, plan, out, wanted, err);
	if (st)
		ev->before.model = NULL;        /* what it found is not to be taken again */
	ev->starved |= st == OOM_ERR_MEMORY;
	return st;
}

enum oom_status oom_evaluate_on(struct oom_evaluator *ev, const struct oom_model *model,
				const struct oom_plan *plan, uint64_t budget, unsigned flags,
				struct oom_eval *out, struct oom_error *err)
{
	enum oom_status st;

	ev->budget = budget;
	st = oom_evaluate(ev, model, plan, flags, out, err);
	ev->budget = 0;
	return st;
}
