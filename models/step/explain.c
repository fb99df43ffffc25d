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

static void params(const struct program *g, const struct oom_plan *p, const char *source,
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
		const bool packed = q->flags & OOM_P_QUANTISED && oom_plan_four_bit(p);
		uint64_t state = 0;

		r.bytes = oom_block(packed ? q->elems / 2 : q->elems * oom_dtype_bytes((enum oom_dtype)q->dt));
		if (q->rows)
			snprintf(r.formula, sizeof(r.formula),
				 packed ? "%u * %u / 2 B (4 bit)" : "%u * %u * %u B",
				 q->rows, q->cols, oom_dtype_bytes((enum oom_dtype)q->dt));
		else
			snprintf(r.formula, sizeof(r.formula), "%llu * %u B",
				 (unsigned long long)q->elems,
				 oom_dtype_bytes((enum oom_dtype)q->dt));
		snprintf(r.numbers, sizeof(r.numbers), "%.119s", r.formula);
		fn(ctx, &r);
		if (!q->trainable || q->grad < 0)
			continue;
		for (uint8_t k = 0; k < o->n_slots; k++)
			state += oom_slot_bytes(&o->slots[k], q, false, NULL);
		if (!state)
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

/* What the training loop keeps beside the model's own rows: scores of rollouts, outputs with a name. */
static enum oom_status held_by_the_loop(struct program *g, const struct oom_model *model,
					const struct oom_plan *p, struct oom_batch *at, oom_ledger_fn fn,
					void *ctx)
{
	struct oom_schedule s;
	struct oom_eval e;
	enum oom_status st;

	memset(&e, 0, sizeof(e));
	at->ranks = oom_ranks_of(g, p);
	st = oom_rank_schedule(g, &model->arch, p, at, &e, &s);
	for (size_t i = 0; !st && i < s.n_hold; i++) {
		const struct oom_holding *h = &s.hold[i];
		const bool early = h->from < OOM_AT_OUTPUT;
		struct oom_ledger_row r = {.scope = "training loop", .name = h->name, .kind = "saved activation",
					   .born = early ? "forward" : "optimizer", .count = 1,
					   .bytes = h->bytes, .held = early,
					   .source = oom_objective_of(p)->source};

		if (h->bucket != OOM_BUCKET_SAVED || h->place != OOM_ON_GPU || !h->bytes)
			continue;
		snprintf(r.formula, sizeof(r.formula), "%llu B", (unsigned long long)h->bytes);
		snprintf(r.numbers, sizeof(r.numbers), "%.119s", r.formula);
		fn(ctx, &r);
	}
	return st;
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
	struct program *g;
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
	held = held_rows(&g->tape);
	if (!held)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	settle_twins(&g->tape, ev->size, held);
	params(g, p, model->arch.family->source, fn, ctx);
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
	if (held_by_the_loop(g, model, p, &at, fn, ctx))
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	return OOM_OK;
}
