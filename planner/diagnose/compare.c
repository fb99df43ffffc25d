/* The crash beside the prediction: which tensor the failing request was, in which phase, and what
 * would have fitted. */
#include "oomplan/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "shown.h"

/* ---- the request ---- */

/* The message gives what the allocator asks of the driver (c10/cuda/CUDACachingAllocator.cpp,
 * get_allocation_size): 2 MiB for up to 1 MiB, 20 MiB below 10 MiB, else the next multiple of 2
 * MiB. */
static const uint64_t MIB = 1 << 20;

static uint64_t asked_of_driver(uint64_t bytes)
{
	if (bytes <= MIB)
		return 2 * MIB;
	if (bytes < 10 * MIB)
		return 20 * MIB;
	return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

struct match {
	struct oom_comparison *out;
	uint64_t tried, half;           /* of the last printed digit */
	/* the message gives the tensor's own size (XLA, TensorFlow, the host) */
	bool plain;
	size_t hits;
};

static void meet(void *ctx, const struct oom_ledger_row *r)
{
	struct match *m = ctx;
	const uint64_t b = m->plain ? r->bytes : asked_of_driver(r->bytes);

	if (b > m->tried + m->half || b + m->half < m->tried)
		return;
	if (m->hits++) {
		m->out->also++;
		return;
	}
	snprintf(m->out->scope, sizeof(m->out->scope), "%s", r->scope);
	snprintf(m->out->row, sizeof(m->out->row), "%s", r->name);
	snprintf(m->out->kind, sizeof(m->out->kind), "%s", r->kind);
	snprintf(m->out->formula, sizeof(m->out->formula), "%s", r->formula);
	snprintf(m->out->numbers, sizeof(m->out->numbers), "%s", r->numbers);
}

static bool match(struct oom_evaluator *ev, const struct oom_model *model,
		  const struct oom_plan *plan, struct match *m)
{
	m->hits = m->out->also = 0;
	return !oom_ledger_each(ev, model, plan, meet, m, NULL) && m->hits;
}

/* As asked; else with other micro-batches, halved and doubled, the nearest first. Beyond eight times, a
 * longer batch says more. */
static void find_request(struct oom_evaluator *ev, const struct oom_model *model,
			 const struct oom_crash *c, struct oom_comparison *out)
{
	struct match m = {.out = out, .tried = c->bytes[OOM_CRASH_TRIED]};
	struct oom_plan p = out->asked.plan;

	/* two decimals of the unit printed */
	m.half = m.tried >= 1024 * MIB ? 1024 * MIB / 200 + 1 : m.tried >= MIB ? MIB / 200 + 1 : 6;
	m.plain = !oom_crash_of_card(c);
	out->step_only = !m.plain && (m.tried == 2 * MIB || m.tried == 20 * MIB);
	if (out->step_only)
		return;
	out->matched = match(ev, model, &p, &m);
	/* a loop that makes all logits, though the plan's loss does not */
	if (!out->matched && p.fused_ce != OOM_LOSS_PLAIN) {
		p.fused_ce = OOM_LOSS_PLAIN;
		out->whole_logits = out->matched = match(ev, model, &p, &m) && strstr(out->formula, "vocab_size");
		p.fused_ce = out->asked.plan.fused_ce;
	}
	for (int64_t by = 2; !out->matched && by <= 8; by *= 2)
		for (int up = 0; up < 2 && !out->matched; up++) {
			p.micro_batch = up ? out->asked.plan.micro_batch * by :
					     out->asked.plan.micro_batch / by;
			if (p.micro_batch < 1 || p.micro_batch > 65536 ||
			    (p.global_batch && p.micro_batch > p.global_batch))
				continue;
			out->matched = match(ev, model, &p, &m);
			out->micro_batch = out->matched ? p.micro_batch : 0;
		}
}

/* ---- a longer batch ---- */

/* The widest row that grows with the tokens and with nothing else that a batch brings: the logits, where
 * there are any. */
struct widest {
	struct oom_ledger_row row;
	char scope[64], name[64], kind[40];
};

static void widen(void *ctx, const struct oom_ledger_row *r)
{
	struct widest *w = ctx;

	if (strncmp(r->formula, "b * s * ", 8) || strstr(r->formula + 8, " s ") || r->bytes <= w->row.bytes)
		return;
	w->row = *r;
	snprintf(w->scope, sizeof(w->scope), "%s", r->scope);
	snprintf(w->name, sizeof(w->name), "%s", r->name);
	snprintf(w->kind, sizeof(w->kind), "%s", r->kind);
}

/* A batch padded to its longest sample has more tokens than the plan's: how many, from 16 MiB up, below
 * which the allocator's steps of 2 MiB blur it.  Thirty-two times the plan's are another run. */
static void find_tokens(struct oom_evaluator *ev, const struct oom_model *model,
			const struct oom_crash *c, struct oom_comparison *out)
{
	const struct oom_plan *const p = &out->asked.plan;
	const uint64_t tried = c->bytes[OOM_CRASH_TRIED],
		       planned = (uint64_t)p->micro_batch * (uint64_t)p->seq_len;
	struct widest w = {0};
	double tokens;

	if (p->seq_len <= 0 || tried < 16 * MIB || oom_ledger_each(ev, model, p, widen, &w, NULL) ||
	    !w.row.bytes || tried <= w.row.bytes)
		return;
	tokens = (double)tried / (double)w.row.bytes * (double)planned;
	if (tokens > 32.0 * (double)planned)
		return;
	out->implied_tokens = (uint64_t)(tokens + 0.5);
	snprintf(out->scope, sizeof(out->scope), "%s", w.scope);
	snprintf(out->row, sizeof(out->row), "%s", w.name);
	snprintf(out->kind, sizeof(out->kind), "%s", w.kind);
	snprintf(out->formula, sizeof(out->formula), "%s", w.row.formula);
}

/* ---- a shorter batch ---- */

/* Rows of one kind that are no smaller than the request: the widest of them, and the next that is narrower. */
struct kind_of_row {
	const char *of;         /* what their formula has */
	uint64_t least, next;
	struct widest w;
};

static void widen_kind(void *ctx, const struct oom_ledger_row *r)
{
	struct kind_of_row *k = ctx;

	if (strncmp(r->formula, "b * s * ", 8) || !strstr(r->formula, k->of) || r->bytes < k->least || r->bytes == k->w.row.bytes)
		return;
	if (r->bytes < k->w.row.bytes) {
		k->next = r->bytes > k->next ? r->bytes : k->next;
		return;
	}
	k->next = k->w.row.bytes;
	k->w.row = *r;
	snprintf(k->w.scope, sizeof(k->w.scope), "%s", r->scope);
	snprintf(k->w.name, sizeof(k->w.name), "%s", r->name);
	snprintf(k->w.kind, sizeof(k->w.kind), "%s", r->kind);
}

static uint64_t tokens_of(uint64_t tried, uint64_t row, const struct oom_plan *p, bool squared)
{
	const double share = (double)tried / (double)row;

	return (uint64_t)((squared ? sqrt(share) : share) * (double)p->micro_batch * (double)p->seq_len + 0.5);
}

/* A batch padded to its own longest has fewer tokens than the plan's.  Any row is large enough then: only where the
 * code says which it was. */
static void find_fewer(struct oom_evaluator *ev, const struct oom_model *model, const struct oom_crash *c, struct oom_comparison *out)
{
	const struct oom_plan *const p = &out->asked.plan;
	const uint64_t tried = c->bytes[OOM_CRASH_TRIED];
	const bool scores = c->part == OOM_PART_SCORES;
	struct kind_of_row k = {.of = scores ? OOM_SCORES_FORMULA : "vocab_size", .least = tried};

	if (p->seq_len <= 0 || tried < 16 * MIB || (!scores && c->part != OOM_PART_LOGITS) || oom_ledger_each(ev, model, p, widen_kind, &k, NULL) || !k.w.row.bytes)
		return;
	out->implied_tokens = tokens_of(tried, k.w.row.bytes, p, scores);
	out->implied_or = k.next ? tokens_of(tried, k.next, p, scores) : 0;
	snprintf(out->scope, sizeof(out->scope), "%s", k.w.scope);
	snprintf(out->row, sizeof(out->row), "%s", k.w.name);
	snprintf(out->kind, sizeof(out->kind), "%s", k.w.kind);
	snprintf(out->formula, sizeof(out->formula), "%s", k.w.row.formula);
}

/* ---- the phase ---- */

static void phase_of(const struct oom_crash *c, struct oom_comparison *out)
{
	static const struct {
		enum oom_crash_phase crash;
		enum oom_phase first, second;
	} pairs[] = {{OOM_CRASH_LOAD, OOM_PHASE_LOAD, OOM_PHASE_LOAD},
		     {OOM_CRASH_TO_DEVICE, OOM_PHASE_LOAD, OOM_PHASE_LOAD},
		     {OOM_CRASH_FORWARD, OOM_PHASE_FWD1, OOM_PHASE_FWD2},
		     {OOM_CRASH_BACKWARD, OOM_PHASE_BWD1, OOM_PHASE_BWD2},
		     {OOM_CRASH_OPTIMIZER, OOM_PHASE_OPT1, OOM_PHASE_OPT2},
		     {OOM_CRASH_EVAL, OOM_PHASE_EVAL, OOM_PHASE_EVAL},
		     {OOM_CRASH_INFERENCE, OOM_PHASE_EVAL, OOM_PHASE_EVAL}};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (pairs[i].crash == c->phase && c->phase_confidence >= 0.5) {
			const uint64_t a = out->asked.eval.peak[pairs[i].first],
				       b = out->asked.eval.peak[pairs[i].second];

			out->phase_peak = a > b ? a : b;
			out->phase = oom_phase_str(a > b ? pairs[i].first : pairs[i].second);
		}
}

static bool trains(const struct oom_crash *c)
{
	const enum oom_crash_work work = oom_crash_work(c);

	return work == OOM_WORK_UNKNOWN || work == OOM_WORK_TRAINING || work == OOM_WORK_EVAL ||
	       work == OOM_WORK_SETUP || work == OOM_WORK_COLLECTIVE || work == OOM_WORK_COMPILING;
}

enum oom_status oom_compare_request(struct oom_evaluator *ev, struct oom_question *q, const struct oom_crash *c,
				    struct oom_comparison *out, struct oom_error *err)
{
	enum oom_status st;

	oom_question_settle(q);
	st = oom_answer_as_asked(ev, q, &out->asked, err);
	if (st)
		return st;
	out->capacity_bytes = q->capacity_bytes;
	phase_of(c, out);
	if (c->known[OOM_CRASH_TRIED])
		find_request(ev, q->model, c, out);
	if (c->known[OOM_CRASH_TRIED] && !out->step_only && !out->matched)
		find_tokens(ev, q->model, c, out);
	if (c->known[OOM_CRASH_TRIED] && !out->step_only && !out->matched && !out->implied_tokens)
		find_fewer(ev, q->model, c, out);
	out->weights_bytes = out->asked.eval.bucket[OOM_BUCKET_PARAMS] + out->asked.eval.bucket[OOM_BUCKET_BUFFERS];
	out->weights_alone = out->capacity_bytes && out->weights_bytes > out->capacity_bytes;
	return OOM_OK;
}

static enum oom_status compare(struct oom_evaluator *ev, struct oom_question *q,
			       const struct oom_crash *c, struct oom_comparison *out,
			       struct oom_error *err)
{
	enum oom_status st;

	if (!q->capacity_bytes && !q->gpu && c->known[OOM_CRASH_TOTAL])
		q->capacity_bytes = c->bytes[OOM_CRASH_TOTAL];
	st = oom_compare_request(ev, q, c, out, err);
	if (st)
		return st;
	/* what a training could change is no answer to a server, a loader or a test */
	out->searched = out->capacity_bytes != 0 && trains(c);
	return out->searched ? oom_answer_search(ev, q, &out->search, err) : OOM_OK;
}

enum oom_status oom_compare(struct oom_evaluator *ev, const struct oom_question *q,
			    const struct oom_crash *c, struct oom_comparison *out,
			    struct oom_error *err)
{
	struct oom_evaluator *own = ev ? NULL : oom_evaluator_new();
	struct oom_question settled = *q;
	enum oom_status st;

	memset(out, 0, sizeof(*out));
	if (!ev && !own)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	st = compare(ev ? ev : own, &settled, c, out, err);
	oom_evaluator_free(own);
	return st;
}
