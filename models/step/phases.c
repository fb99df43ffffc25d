/* The step from its first moment to its last: what each phase peaks at, what it leaves, who is alive.
 *
 * Live bytes are the holdings that are there plus what the passes have left so far; a pass peaks
 * where its span says, above what it found.  Steps after the second repeat it, and so do
 * micro-batches after the second. */
#include "step/phases.h"

#include <string.h>

/* ---- who is alive ---- */

static const uint8_t bucket_of[OOM_CATS] = {
	[OOM_CAT_TEMP] = OOM_BUCKET_TEMP,     [OOM_CAT_SAVED] = OOM_BUCKET_SAVED,
	[OOM_CAT_AMP] = OOM_BUCKET_AMP,	      [OOM_CAT_LOGITS] = OOM_BUCKET_LOGITS,
	[OOM_CAT_GRAD] = OOM_BUCKET_GRADS,    [OOM_CAT_RECOMPUTE] = OOM_BUCKET_RECOMPUTE,
	[OOM_CAT_COMM] = OOM_BUCKET_COMM};

struct reader {
	const struct oom_schedule *s;
	const struct oom_variant *v;
	const uint64_t *size;
	struct oom_eval *out;
	struct oom_alive *alive;        /* of each phase; NULL: only bytes are wanted */
	int64_t now, held;              /* bytes alive; those of holdings */
	/* holdings, a bit each: there; that come and go at a moment; not in an evaluation; of saved
	 * activations */
	uint32_t there, comes[OOM_AT_NEVER + 1], goes[OOM_AT_NEVER + 1], training, saved;
	bool evaluating;
	int64_t cats[OOM_CATS];         /* what the passes have left; kept where alive is wanted */
};

/* A part of the chain gives up what its neighbours made (received hidden states and their gradients), and its layers are
 * means: what one bucket is short of stands in the largest of a pass's own. */
static void lend(struct oom_alive *a)
{
	for (int b = OOM_BUCKET_GRADS; b < OOM_BUCKET_COMM; b++) {
		int most = OOM_BUCKET_GRADS;

		if ((int64_t)a->bucket[b] >= 0)
			continue;
		for (int k = OOM_BUCKET_SAVED; k < OOM_BUCKET_COMM; k++)
			most = (int64_t)a->bucket[k] > (int64_t)a->bucket[most] ? k : most;
		a->bucket[most] += a->bucket[b];
		a->bucket[b] = 0;
	}
}

/* A recording that frees more than it allocated would be below nothing: no phase is. */
static uint64_t bytes_of(int64_t n)
{
	return n > 0 ? (uint64_t)n : 0;
}

/* Who is alive at what is the phase's peak so far; those of the pass running are `at` (NULL: none). */
static void describe(struct reader *r, enum oom_phase phase, const int64_t at[OOM_CATS],
		     const char *op, const char *module)
{
	struct oom_alive *a = &r->alive[phase];

	*a = (struct oom_alive){.op = op, .module = module};
	for (size_t i = 0; i < r->s->n_hold; i++)
		if (r->there >> i & 1)
			a->bucket[r->s->hold[i].bucket] += r->s->hold[i].bytes;
	for (int c = 0; c < OOM_CATS; c++)
		a->bucket[bucket_of[c]] += (uint64_t)(r->cats[c] + (at ? at[c] : 0));
	if (!r->s->chain.whole)
		lend(a);
}

/* This many bytes are alive in the phase. */
static inline void note_pass(struct reader *r, enum oom_phase phase, int64_t bytes,
			     const int64_t at[OOM_CATS], const char *op, const char *module)
{
	if (bytes <= (int64_t)r->out->peak[phase])
		return;
	r->out->peak[phase] = (uint64_t)bytes;
	if (r->alive)
		describe(r, phase, at, op, module);
}

/* ... while no operation of the model runs. */
static inline void note(struct reader *r, enum oom_phase phase)
{
	note_pass(r, phase, r->now, NULL, "", "");
}

/* ---- holdings come and go ---- */

static void sort_holdings(struct reader *r)
{
	for (size_t i = 0; i < r->s->n_hold; i++) {
		const struct oom_holding *h = &r->s->hold[i];
		const uint32_t bit = (uint32_t)1 << i;

		if (h->place == OOM_ON_GPU)
			r->comes[h->from] |= bit;
		r->goes[h->until] |= bit;
		r->training |= h->training ? bit : 0;
		r->saved |= h->bucket == OOM_BUCKET_SAVED ? bit : 0;
	}
}

static uint64_t bytes_of_holdings(const struct reader *r, uint32_t bits)
{
	uint64_t sum = 0;

	for (; bits; bits &= bits - 1)
		sum += r->s->hold[__builtin_ctz(bits)].bytes;
	return sum;
}

static inline void come(struct reader *r, enum oom_moment_of_step moment)
{
	const uint32_t bits = r->comes[moment] & ~r->there & ~(r->evaluating ? r->training : 0);
	int64_t bytes;

	if (!bits)
		return;
	bytes = (int64_t)bytes_of_holdings(r, bits);
	r->there |= bits;
	r->now += bytes;
	r->held += bytes;
}

static inline void go(struct reader *r, enum oom_moment_of_step moment)
{
	const uint32_t bits = r->goes[moment] & r->there;
	int64_t bytes;

	if (!bits)
		return;
	bytes = (int64_t)bytes_of_holdings(r, bits);
	r->there &= ~bits;
	r->now -= bytes;
	r->held -= bytes;
}

/* ---- a pass over the model ---- */

/* One stretch of a pass: its span, and by category. */
struct stretch {
	struct oom_span span;
	int64_t at[OOM_CATS], net[OOM_CATS];
	int32_t row;
};

/* One of n layers that are taken as equal.  What the division leaves over, less than a block per
 * category, is counted with the temporaries. */
static void mean_layer(struct stretch *k, uint64_t n, struct oom_span one)
{
	int64_t net = 0, at = 0;

	for (int c = 0; c < OOM_CATS; c++) {
		const int64_t each = k->net[c] / (int64_t)n;

		k->at[c] -= k->span.net > 0 ? each * (int64_t)(n - 1) : 0;
		k->net[c] = each;
		net += k->net[c];
		at += k->at[c];
	}
	k->net[OOM_CAT_TEMP] += one.net - net;
	k->at[OOM_CAT_TEMP] += one.peak - at;
	k->span = one;
}

static const struct oom_span *span_of(const struct reader *r, enum oom_pass_id pass, bool whole,
				      size_t place)
{
	return whole ? &r->v->span[pass] : &r->v->third[pass][place];
}

/* Stretch `place` of a pass in the order of its stream (place 0 of a whole one is all of it). */
static struct stretch stretch_of(const struct reader *r, enum oom_pass_id pass, bool whole,
				 size_t place)
{
	const struct oom_tape *t = r->v->tape;
	const struct oom_stream *s = &t->streams[oom_stream_of(pass)];
	struct stretch k = {.row = -1};
	size_t cut[4] = {0, s->n, s->n, s->n};

	k.span = *span_of(r, pass, whole, place);
	if (!whole)
		oom_cut_at_layers(t, oom_stream_of(pass), cut);
	k.span = oom_walk_cats(t, &(struct oom_stream){.ev = s->ev + cut[place],
						       .n = cut[place + 1] - cut[place]},
			       r->size, pass == OOM_PASS_BWD_ACC, k.at, k.net, &k.row);
	if (!whole && place == 1)
		mean_layer(&k, r->v->layers, r->v->third[pass][place]);
	return k;
}

/* The stretch `times` over: where only bytes are wanted, k is NULL. */
static void run(struct reader *r, enum oom_phase phase, const struct oom_span *span,
		const struct stretch *k, uint64_t times)
{
	const struct oom_row *row = k && k->row >= 0 ? &r->v->tape->rows[k->row] : NULL;
	const int64_t before = span->net > 0 ? (int64_t)times - 1 : 0;
	int64_t at[OOM_CATS];

	for (int c = 0; k && c < OOM_CATS; c++)
		at[c] = k->at[c] + before * k->net[c];
	note_pass(r, phase, r->now + span->peak + before * span->net, k ? at : NULL, row ? row->name : "",
	     row ? row->scope : "");
	r->now += (int64_t)times * span->net;
	for (int c = 0; k && c < OOM_CATS; c++)
		r->cats[c] += (int64_t)times * k->net[c];
}

static void play_parts(struct reader *r, enum oom_phase phase, enum oom_pass_id pass)
{
	const struct oom_chain *chain = &r->s->chain;
	const bool back = oom_stream_of(pass) == OOM_STREAM_BWD;

	for (size_t place = 0; r->v && place < (chain->whole ? 1 : OOM_PARTS); place++) {
		const uint64_t n = chain->whole ? 1 :
						  chain->times[back ? OOM_PARTS - 1 - place : place];
		struct stretch k;

		if (!n)
			continue;
		if (!r->alive) {
			run(r, phase, span_of(r, pass, chain->whole, place), NULL, n);
			continue;
		}
		k = stretch_of(r, pass, chain->whole, place);
		run(r, phase, &k.span, &k, n);
	}
}

/* Mostly bytes are wanted, of all of the chain. */
static inline void play(struct reader *r, enum oom_phase phase, enum oom_pass_id pass)
{
	if (r->alive || !r->v || !r->s->chain.whole) {
		play_parts(r, phase, pass);
		return;
	}
	note_pass(r, phase, r->now + r->v->span[pass].peak, NULL, "", "");
	r->now += r->v->span[pass].net;
}

/* ---- phases ---- */

static void load(struct reader *r)
{
	come(r, OOM_AT_LOAD);
	note(r, OOM_PHASE_LOAD);
	r->out->end[OOM_PHASE_LOAD] = bytes_of(r->now);
	come(r, OOM_AT_START);
}

/* An evaluation before the first step, on a card that is as it was when it is through. */
static void evaluation(struct reader *r)
{
	const int64_t now = r->now, held = r->held;
	const uint32_t there = r->there;
	int64_t cats[OOM_CATS];

	memcpy(cats, r->cats, sizeof(cats));
	r->evaluating = true;
	r->out->end[OOM_PHASE_EVAL] = bytes_of(r->now);
	come(r, OOM_AT_FORWARD);
	note(r, OOM_PHASE_EVAL);
	play(r, OOM_PHASE_EVAL, OOM_PASS_EVAL);
	come(r, OOM_AT_OUTPUT);
	note(r, OOM_PHASE_EVAL);
	r->evaluating = false;
	r->now = now;
	r->held = held;
	r->there = there;
	memcpy(r->cats, cats, sizeof(cats));
}

/* What the passes have left is gradients.  Of a part of the chain, whose layers are means and whose
 * ends hand gradients on, it is its own. */
static void settle(struct reader *r)
{
	if (r->s->chain.whole)
		return;
	r->now = r->held + (int64_t)r->s->chain_grads;
	memset(r->cats, 0, sizeof(r->cats));
	r->cats[OOM_CAT_GRAD] = (int64_t)r->s->chain_grads;
}

static void micro_batch(struct reader *r, int step, bool again)
{
	const enum oom_phase fwd = (enum oom_phase)(OOM_PHASE_FWD1 + 3 * step),
			     bwd = (enum oom_phase)(OOM_PHASE_BWD1 + 3 * step);
	int64_t found;

	go(r, OOM_AT_FORWARD);
	come(r, OOM_AT_FORWARD);
	found = r->now;
	note(r, fwd);
	play(r, fwd, OOM_PASS_FWD);
	r->out->saved_bytes =
		bytes_of(r->now - found - (r->v ? oom_variant_left(r->v, r->s->ranks) : 0)) +
		/* what no operation of this rank made: received ones, copies of masks */
		bytes_of_holdings(r, r->there & r->saved);
	r->out->end[fwd] = bytes_of(r->now);
	if (r->alive) {
		r->out->saved_amp_bytes = bytes_of(r->cats[OOM_CAT_AMP]);
		r->out->saved_logits_bytes = bytes_of(r->cats[OOM_CAT_LOGITS]);
	}
	come(r, OOM_AT_OUTPUT);
	note(r, fwd);
	go(r, OOM_AT_BACKWARD);
	come(r, OOM_AT_BACKWARD);
	note(r, bwd);
	play(r, bwd, again ? OOM_PASS_BWD_ACC : OOM_PASS_BWD);
	settle(r);
	note(r, bwd);
}

static void give_up_grads(struct reader *r)
{
	r->now = r->held;
	memset(r->cats, 0, sizeof(r->cats));
}

static void training_step(struct reader *r, int step)
{
	const enum oom_phase bwd = (enum oom_phase)(OOM_PHASE_BWD1 + 3 * step),
			     opt = (enum oom_phase)(OOM_PHASE_OPT1 + 3 * step);
	int64_t temps[OOM_CATS] = {0};

	micro_batch(r, step, step && r->s->grads_stay);
	if (r->s->accumulates)
		micro_batch(r, step, true);
	go(r, OOM_AT_STEP);
	r->out->end[bwd] = bytes_of(r->now);
	if (r->s->grads_leave)
		give_up_grads(r);
	come(r, OOM_AT_STEP);
	temps[OOM_CAT_TEMP] = (int64_t)r->s->temps[step];
	note_pass(r, opt, r->now + temps[OOM_CAT_TEMP], temps, "optimizer step", "");
	go(r, OOM_AT_STEP_END);
	r->out->end[opt] = bytes_of(r->s->grads_linger || r->s->grads_stay ? r->now : r->held);
	if (!r->s->grads_stay)
		give_up_grads(r);
}

void oom_read_phases(const struct oom_schedule *s, const struct oom_variant *v,
		     const uint64_t *size, struct oom_eval *out, struct oom_alive *alive)
{
	struct reader r = {.s = s, .v = v, .size = size, .out = out, .alive = alive};

	sort_holdings(&r);
	memset(out->peak, 0, sizeof(out->peak));
	for (int i = 0; alive && i < OOM_PHASES; i++)
		alive[i] = (struct oom_alive){.op = "", .module = ""};
	load(&r);
	evaluation(&r);
	training_step(&r, 0);
	training_step(&r, 1);
	out->overall_peak = 0;
	for (int i = OOM_PHASE_FWD1; i <= OOM_PHASE_OPT2; i++)
		if (out->peak[i] > out->overall_peak) {
			out->overall_peak = out->peak[i];
			out->peak_phase = (enum oom_phase)i;
		}
}
