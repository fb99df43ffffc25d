/* The crash beside the prediction: which tensor the failing request was, what was resident, what
 * would have fitted. */
#include <inttypes.h>
#include <string.h>

#include "diagnose.h"

static const char *gib(uint64_t bytes)
{
	static char buf[6][32];
	static int i;

	i = (i + 1) % 6;
	return oom_format_bytes(bytes, buf[i], sizeof(buf[i]));
}

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

/* As asked; else with other micro-batches, halved and doubled, the nearest first. */
static void find_request(struct oom_evaluator *ev, const struct oom_model *model,
			 const struct oom_crash *c, struct oom_comparison *out)
{
	struct match m = {.out = out, .tried = c->bytes[OOM_CRASH_TRIED]};
	struct oom_plan p = out->asked;

	/* two decimals of the unit printed */
	m.half = m.tried >= 1024 * MIB ? 1024 * MIB / 200 + 1 : m.tried >= MIB ? MIB / 200 + 1 : 6;
	m.plain = strncmp(c->framework, "torch", 5) != 0 || !strcmp(c->framework, "torch-cpu") ||
		  !strcmp(c->framework, "torch-mps");
	out->step_only = !m.plain && (m.tried == 2 * MIB || m.tried == 20 * MIB);
	if (out->step_only)
		return;
	out->matched = match(ev, model, &p, &m);
	for (int64_t by = 2; !out->matched && by <= 256; by *= 2)
		for (int up = 0; up < 2 && !out->matched; up++) {
			p.micro_batch = up ? out->asked.micro_batch * by :
					     out->asked.micro_batch / by;
			if (p.micro_batch < 1 || p.micro_batch > 65536 ||
			    (p.global_batch && p.micro_batch > p.global_batch))
				continue;
			out->matched = match(ev, model, &p, &m);
			out->micro_batch = out->matched ? p.micro_batch : 0;
		}
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
			const uint64_t a = out->eval.peak[pairs[i].first],
				       b = out->eval.peak[pairs[i].second];

			out->phase_peak = a > b ? a : b;
			out->phase = oom_phase_str(a > b ? pairs[i].first : pairs[i].second);
		}
}

static bool find_plan(struct oom_evaluator *ev, const struct oom_target *t,
		      struct oom_comparison *out)
{
	struct oom_search_report *r = &out->search;
	const struct oom_search_query q = {.asked = &out->asked,
					   .capacity_bytes = out->capacity,
					   .gpu = t->has_gpu ? &t->gpu : NULL};

	r->asked = q.asked;
	r->objective = q.objective;
	if (oom_search(ev, t->model, &q, &r->found, NULL))
		return false;
	return !r->found.found || !oom_search_reasons(ev, t->model, &q, &r->found.best, r->reason,
						      &r->n_reasons, NULL);
}

int oom_compare_crash(struct oom_job *job, const struct oom_crash *c, struct oom_comparison *out)
{
	struct oom_evaluator *ev;
	struct oom_error err = {{0}};
	struct oom_target t;
	int code;

	memset(out, 0, sizeof(*out));
	if (!job->model)
		return 0;
	code = oom_target_open(job, &t, false);
	if (code)
		return code;
	ev = oom_evaluator_new();
	out->asked = job->plan;
	out->capacity = t.capacity		  ? t.capacity :
			c->known[OOM_CRASH_TOTAL] ? c->bytes[OOM_CRASH_TOTAL] :
						    0;
	if (!ev || oom_evaluate(ev, t.model, &job->plan, OOM_EVAL_BUCKETS | OOM_EVAL_REPLAY,
				&out->eval, &err)) {
		code = oom_complain(OOM_EXIT_INPUT, "%s", ev ? err.text : "out of host memory");
	} else {
		out->done = true;
		phase_of(c, out);
		if (c->known[OOM_CRASH_TRIED])
			find_request(ev, t.model, c, out);
		out->searched = out->capacity && find_plan(ev, &t, out);
	}
	oom_evaluator_free(ev);
	oom_target_close(&t);
	return code;
}

/* ---- reports ---- */

static void request_text(const struct oom_crash *c, const struct oom_comparison *m)
{
	const char *tried = gib(c->bytes[OOM_CRASH_TRIED]);

	if (m->step_only)
		printf("  the request of %s is the allocator's own step: any tensor of %s\n", tried,
		       c->bytes[OOM_CRASH_TRIED] == 2 * MIB ? "up to 1 MiB" : "1 to 10 MiB");
	else if (!m->matched)
		printf("  no row of this plan has the size of the request (%s): other knobs, or "
		       "another batch\n",
		       tried);
	else
		printf("  the request of %s is %s%s%s, %s: %s = %s\n", tried, m->scope,
		       *m->scope ? " " : "", m->row, m->kind, m->formula, m->numbers);
	if (m->matched && m->also)
		printf("    (%zu other rows have the same size)\n", m->also);
	if (m->matched && m->micro_batch)
		printf("    with a micro-batch of %" PRId64 ", not the %" PRId64 " given\n",
		       m->micro_batch, m->asked.micro_batch);
}

void oom_compare_text(const struct oom_job *job, const struct oom_crash *c,
		      const struct oom_comparison *m)
{
	if (!m->done)
		return;
	printf("\nthe plan for these knobs: peak %s used, %s allocated (%s)\n",
	       gib(m->eval.used_bytes), gib(m->eval.overall_peak),
	       oom_phase_str(m->eval.peak_phase));
	for (int b = 0; b < OOM_BUCKETS; b++)
		if (m->eval.bucket[b])
			printf("    %-26s %12s\n", oom_bucket_str((enum oom_bucket)b),
			       gib(m->eval.bucket[b]));
	if (m->phase)
		printf("  highest in the phase of the crash (%s): %s\n", m->phase,
		       gib(m->phase_peak));
	if (c->known[OOM_CRASH_ALLOCATED]) {
		const uint64_t there = c->bytes[OOM_CRASH_ALLOCATED],
			       plan = m->phase ? m->phase_peak : m->eval.overall_peak;
		const uint64_t with = there + c->bytes[OOM_CRASH_TRIED];

		printf("  allocated at the crash: %s, with the request %s: %s\n", gib(there),
		       gib(with),
		       with > plan + plan / 20 ? "more than the plan has; other knobs, a longer "
						 "batch, or something is kept" :
						 "within what the plan needs");
	}
	if (c->known[OOM_CRASH_TRIED])
		request_text(c, m);
	if (!m->capacity)
		printf("  what would have fitted: give --gpu or --gpu-memory, the message does not "
		       "say how large the card is\n");
	else if (m->eval.used_bytes <= oom_budget(m->capacity, &m->asked))
		printf("  as asked it should have fitted %s: see the causes above\n",
		       gib(m->capacity));
	else if (m->searched)
		oom_report_search(job, &m->search);
}

void oom_compare_json(struct oom_json *j, const struct oom_comparison *m)
{
	if (!m->done)
		return;
	oom_json_object(j, "predicted");
	oom_json_uint(j, "used_bytes", m->eval.used_bytes);
	oom_json_uint(j, "overall_peak_bytes", m->eval.overall_peak);
	oom_json_text(j, "peak_phase", oom_phase_column(m->eval.peak_phase));
	oom_json_object(j, "at_peak");
	for (int b = 0; b < OOM_BUCKETS; b++)
		oom_json_uint(j, oom_bucket_column((enum oom_bucket)b), m->eval.bucket[b]);
	oom_json_end(j);
	if (m->phase)
		oom_json_uint(j, "phase_peak_bytes", m->phase_peak);
	else
		oom_json_null(j, "phase_peak_bytes");
	oom_json_uint(j, "capacity_bytes", m->capacity);
	if (m->capacity)
		oom_json_bool(j, "fits", m->eval.used_bytes <= oom_budget(m->capacity, &m->asked));
	else
		oom_json_null(j, "fits");
	if (m->matched) {
		oom_json_object(j, "request");
		oom_json_text(j, "scope", m->scope);
		oom_json_text(j, "row", m->row);
		oom_json_text(j, "kind", m->kind);
		oom_json_text(j, "formula", m->formula);
		oom_json_text(j, "numbers", m->numbers);
		oom_json_uint(j, "other_rows", m->also);
		oom_json_int(j, "micro_batch",
			     m->micro_batch ? m->micro_batch : m->asked.micro_batch);
		oom_json_end(j);
	} else {
		oom_json_null(j, "request");
	}
	if (m->searched && m->search.found.found) {
		const struct oom_candidate *b = &m->search.found.best;

		oom_json_object(j, "cheapest");
		oom_json_uint(j, "used_bytes", b->used_bytes);
		oom_json_text(j, "class", oom_class_str(b->cls));
		oom_json_object(j, "changes");
		for (size_t i = 0; oom_knob_at(i); i++) {
			const struct oom_option *k = oom_knob_at(i);
			char was[140], is[140];

			oom_plan_get(&m->asked, k, was, sizeof(was));
			oom_plan_get(&b->plan, k, is, sizeof(is));
			if (strcmp(was, is))
				oom_json_text(j, k->column, is);
		}
		oom_json_end(j);
		oom_json_end(j);
	} else {
		oom_json_null(j, "cheapest");
	}
	oom_json_end(j);
}
