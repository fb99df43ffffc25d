/* The ledger row by row: formula as compiled, numbers put in, bytes, origin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines.h"
#include "families/model.h"
#include "oomplan/generations.h"
#include "oomplan/rules.h"
#include "tape/round.h"
#include "step/optimizers.h"
#include "program.h"
#include "step/objectives.h"
#include "step/rank.h"

static void write_formula(const struct oom_tape *t, const struct oom_row *r,
			  struct oom_ledger_row *out)
{
	const struct oom_mono *m = &t->monos[r->mono];
	const char *text = r->text;
	size_t n = 0;

	out->formula[0] = 0;
	for (int i = 0; i < m->n; i++) {
		char f[40];

		oom_var_text(&t->vars[m->var[i]], f, sizeof(f));
		n += (size_t)snprintf(out->formula + n, sizeof(out->formula) - n, "%s * ", f);
	}
	if (text && !strncmp(text, "a->", 3))
		text += 3;
	if (text)
		snprintf(out->formula + n, sizeof(out->formula) - n, "%s * %u B", text,
			 oom_dtype_bytes((enum oom_dtype)r->dt));
	else
		snprintf(out->formula + n, sizeof(out->formula) - n, "%llu * %u B",
			 (unsigned long long)r->width, oom_dtype_bytes((enum oom_dtype)r->dt));
	snprintf(out->numbers, sizeof(out->numbers), "%llu * %llu * %u B",
		 (unsigned long long)oom_mono_now(t, r->mono), (unsigned long long)r->width,
		 oom_dtype_bytes((enum oom_dtype)r->dt));
}

static const char *const kinds[OOM_CATS] = {
	[OOM_CAT_TEMP] = "temporary", [OOM_CAT_SAVED] = "saved activation", [OOM_CAT_AMP] = "autocast weight copy",
	[OOM_CAT_LOGITS] = "logits and loss", [OOM_CAT_GRAD] = "gradient", [OOM_CAT_RECOMPUTE] = "recomputed activation",
	[OOM_CAT_COMM] = "communication buffer"};
static const char *const births[OOM_STREAMS] = {"forward", "backward", "evaluation"};

/* What the rank keeps of the parameters and of their states is said tensor by tensor where it is the tensors'
 * own bytes, and as one row each where it is something else: a part, another type, another place. */
struct kept {
	bool weights, states;
};

static uint64_t state_bytes(const struct oom_param *q, const struct oom_optimizer *o)
{
	uint64_t sum = 0;

	for (uint8_t k = 0; q->trainable && q->grad >= 0 && k < o->n_slots; k++)
		sum += oom_slot_bytes(&o->slots[k], q, false, NULL);
	return sum;
}

static struct kept kept_by_tensor(const struct program *g, const struct oom_plan *p, const struct oom_schedule *s)
{
	const struct oom_optimizer *o = oom_optimizer_at((size_t)p->optimizer);
	const struct oom_holding *w = &s->hold[OOM_HOLD_WEIGHTS], *st = &s->hold[OOM_HOLD_STATE];
	uint64_t weights = 0, states = 0, rounded;

	for (size_t i = 0; i < g->tape.n_params; i++) {
		const struct oom_param *q = &g->tape.params[i];

		(void)oom_param_bytes(q, p, &rounded);
		weights += rounded * q->count;
		states += state_bytes(q, o) * q->count;
	}
	return (struct kept){.weights = w->place == OOM_ON_GPU && w->bytes == weights,
			     .states = st->place == OOM_ON_GPU && st->bytes == states};
}

static void weight_row(struct oom_ledger_row *r, const struct oom_param *q, const struct oom_plan *p, bool kept)
{
	const unsigned wide = oom_dtype_bytes((enum oom_dtype)q->dt);

	(void)oom_param_bytes(q, p, &r->bytes);
	if (!kept) {
		r->kind = "whole weight";
		r->born = "forward";
	}
	if (q->flags & OOM_P_QUANTISED)
		snprintf(r->formula, sizeof(r->formula), "%llu elements: codes and what scales them",
			 (unsigned long long)q->elems);
	else if (q->rows)
		snprintf(r->formula, sizeof(r->formula), "%u * %u * %u B", q->rows, q->cols, wide);
	else
		snprintf(r->formula, sizeof(r->formula), "%llu * %u B", (unsigned long long)q->elems, wide);
	snprintf(r->numbers, sizeof(r->numbers), "%.119s", r->formula);
}

static void params(const struct program *g, const struct oom_plan *p, const struct kept *kept, const char *source,
		   oom_ledger_fn fn, void *ctx)
{
	const struct oom_optimizer *o = oom_optimizer_at((size_t)p->optimizer);

	for (size_t i = 0; i < g->tape.n_params; i++) {
		const struct oom_param *q = &g->tape.params[i];
		struct oom_ledger_row r = {.scope = q->scope,
					   .name = q->name,
					   .kind = "weight",
					   .born = "load",
					   .count = q->count,
					   .source = source};
		const uint64_t state = state_bytes(q, o);

		weight_row(&r, q, p, kept->weights);
		fn(ctx, &r);
		if (!state || !kept->states)
			continue;
		r.kind = "optimizer state";
		r.born = "optimizer";
		r.bytes = state;
		r.source = o->choice.source;
		snprintf(r.formula, sizeof(r.formula), "%s of %llu elements", o->choice.name,
			 (unsigned long long)q->elems);
		fn(ctx, &r);
	}
}

/* How many of each row are alive when the forward ends; NULL without memory. */
static int64_t *held_rows(const struct oom_tape *t)
{
	const struct oom_stream *s = &t->streams[OOM_STREAM_FWD];
	int64_t *held = calloc(t->n_rows + 1, sizeof(*held)), reps = 1;

	for (size_t i = 0; held && i < s->n; i++) {
		const int32_t ev = s->ev[i];

		if (oom_ev_is_unit(ev))
			continue;
		if (ev < 0)
			reps = (-1 - ev) & 1 ? 1 : t->reps[(-1 - ev) / 2];
		else if ((ev & 3) == OOM_EV_ALLOC)
			held[ev >> 2] += reps;
		else if ((ev & 3) == OOM_EV_FREE)
			held[ev >> 2] -= reps;
		else if ((ev & 3) == OOM_EV_FREE_ALL)
			held[ev >> 2] -= t->rows[ev >> 2].mult;
	}
	return held;
}

/* A layer that repeats and lets go of what the one before it made: written down is the row of the first
 * layer, for every repetition.  Its twin in the repeated layer, the next row of that name and size, is what
 * the others let go of. */
static void settle_twins(const struct oom_tape *t, const uint64_t *size, int64_t *held)
{
	for (size_t i = 0; i < t->n_rows; i++)
		for (size_t j = i + 1; j < t->n_rows && held[i] < 0; j++)
			if (held[j] > 0 && size[i] == size[j] &&
			    !strcmp(t->rows[i].name, t->rows[j].name)) {
				const int64_t n = held[j] < -held[i] ? held[j] : -held[i];

				held[i] += n;
				held[j] -= n;
			}
}

static const char *const held_kinds[OOM_BUCKETS] = {
	[OOM_BUCKET_PARAMS] = "weight", [OOM_BUCKET_GRADS] = "gradient", [OOM_BUCKET_OPT] = "optimizer state",
	[OOM_BUCKET_COMM] = "communication buffer", [OOM_BUCKET_SAVED] = "saved activation",
	[OOM_BUCKET_INPUTS] = "input", [OOM_BUCKET_BUFFERS] = "buffer"};
static const char *const places[OOM_PLACES] = {
	[OOM_IN_PINNED] = "pinned host memory", [OOM_IN_PAGEABLE] = "pageable host memory", [OOM_ON_NVME] = "NVMe"};
static const char *const moments[OOM_AT_NEVER] = {
	[OOM_AT_LOAD] = "load", [OOM_AT_START] = "start", [OOM_AT_FORWARD] = "forward", [OOM_AT_OUTPUT] = "optimizer",
	[OOM_AT_BACKWARD] = "backward", [OOM_AT_STEP] = "optimizer", [OOM_AT_STEP_END] = "optimizer"};

/* What lives from one moment of the step to another and is no row of the tape: parts of weights and states,
 * inputs, the engine's buffers, what the training loop keeps. */
static void holdings(const struct oom_schedule *s, const struct kept *kept, const struct oom_plan *p,
		     const char *source, oom_ledger_fn fn, void *ctx)
{
	for (size_t i = 0; i < s->n_hold; i++) {
		const struct oom_holding *h = &s->hold[i];
		const bool loop = h->bucket == OOM_BUCKET_SAVED, input = h->bucket == OOM_BUCKET_INPUTS;
		struct oom_ledger_row r = {
			.scope = h->place != OOM_ON_GPU ? places[h->place] : loop ? "training loop" : "rank",
			.name = h->name,
			.kind = held_kinds[h->bucket] ? held_kinds[h->bucket] : "temporary",
			/* what a loop makes before a step, scores of rollouts, is there in its passes */
			.born = loop && h->from < OOM_AT_FORWARD ? "forward" : moments[h->from],
			.count = 1,
			.bytes = h->bytes,
			.held = loop && h->from < OOM_AT_OUTPUT,
			.host = h->place != OOM_ON_GPU,
			.source = loop ? oom_objective_of(p)->source : input ? source : oom_engine_of(p)->info.source};

		if (!h->bytes || i == OOM_HOLD_BUFFERS || (i == OOM_HOLD_WEIGHTS && kept->weights) ||
		    (i == OOM_HOLD_STATE && kept->states))
			continue;
		if (s->ranks.n > 1 && !loop && !input && h->bucket != OOM_BUCKET_COMM)
			snprintf(r.formula, sizeof(r.formula), "%llu B, what one of %llu ranks has of it",
				 (unsigned long long)h->bytes, (unsigned long long)s->ranks.n);
		else
			snprintf(r.formula, sizeof(r.formula), "%llu B", (unsigned long long)h->bytes);
		snprintf(r.numbers, sizeof(r.numbers), "%llu B", (unsigned long long)h->bytes);
		fn(ctx, &r);
	}
}

/* Buffers belong to no row of a family's: one for all of them. */
static void buffers(const struct oom_tape *t, const char *source, oom_ledger_fn fn, void *ctx)
{
	struct oom_ledger_row r = {.scope = "model", .name = "buffers", .kind = "buffer", .born = "load",
				   .formula = "rotary frequencies, position ids and the like",
				   .bytes = t->buffer_rounded, .count = 1, .source = source};

	if (!t->buffer_rounded)
		return;
	snprintf(r.numbers, sizeof(r.numbers), "%llu B in all", (unsigned long long)t->buffer_bytes);
	fn(ctx, &r);
}

enum oom_status oom_ledger_each(struct oom_evaluator *ev, const struct oom_model *model,
				const struct oom_plan *asked, oom_ledger_fn fn, void *ctx,
				struct oom_error *err)
{
	struct oom_plan settled = *asked;
	const struct oom_plan *p = &settled;
	struct oom_batch at = {.ranks = {.n = 1, .pad = 1}};
	const struct oom_rank_engine *ranks;
	struct oom_schedule s;
	struct program *g;
	struct oom_eval e;
	struct kept kept;
	enum oom_status st = oom_plan_check(p, err);
	int64_t *held;

	if (st)
		return st;
	oom_plan_as_run(model, &settled);
	ranks = oom_rank_engine_of(p);
	if (ranks)
		return ranks->ledger(model, p, fn, ctx, err);
	oom_batch_sizes(p, &at.b, &at.s, &at.t);
	st = oom_program_for(ev, model, p, &g, err);
	if (!st)
		st = oom_row_sizes(ev, &g->tape, &at, err);
	if (st)
		return st;
	g->tape.val_b = at.b;                           /* the sizes shown are this plan's */
	g->tape.val_s = at.s;
	g->tape.val_t = at.t;
	memset(&e, 0, sizeof(e));
	at.ranks = oom_ranks_of(g, p);
	held = held_rows(&g->tape);
	if (!held || oom_rank_schedule(g, &model->arch, p, &at, &e, &s)) {
		free(held);
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	}
	settle_twins(&g->tape, ev->size, held);
	kept = kept_by_tensor(g, p, &s);
	params(g, p, &kept, model->arch.family->source, fn, ctx);
	buffers(&g->tape, model->arch.family->source, fn, ctx);
	for (size_t i = 0; i < g->tape.n_rows; i++) {
		const struct oom_row *row = &g->tape.rows[i];
		struct oom_ledger_row r = {.scope = row->scope,
					   .name = row->name,
					   .kind = kinds[row->cat],
					   .born = births[row->born],
					   .bytes = ev->size[i],
					   .count = row->mult,
					   .held = held[i] > 0 ? (uint64_t)held[i] : 0,
					   .source = oom_row_source(row->name,
								    (enum oom_cat)row->cat,
								    model->arch.family->source)};

		write_formula(&g->tape, row, &r);
		fn(ctx, &r);
	}
	free(held);
	holdings(&s, &kept, p, model->arch.family->source, fn, ctx);
	return OOM_OK;
}
