/* The crash beside the prediction. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose.h"

/* A row that grows with the tokens, as batch x tokens x what one token has of it. */
static void shape_text(const struct oom_comparison *m)
{
	const uint64_t b = (uint64_t)(m->micro_batch ? m->micro_batch : m->asked.plan.micro_batch),
		       s = (uint64_t)m->asked.plan.seq_len;
	char *rest;

	if (strncmp(m->formula, "b * s * ", 8) || strtoull(m->numbers, &rest, 10) != b * s || strncmp(rest, " * ", 3))
		return;
	printf("    a batch of %" PRIu64 " x %" PRIu64 " tokens x %s of %s per token\n", b, s, rest + 3, m->kind);
}

/* Tokens of one sequence, as near as the message's two decimals say. */
static uint64_t each(const struct oom_comparison *m, uint64_t tokens)
{
	return (tokens + (uint64_t)m->asked.plan.micro_batch / 2) / (uint64_t)m->asked.plan.micro_batch;
}

static void implied_text(const struct oom_comparison *m, const char *tried)
{
	printf("  no row of this plan has the size of the request (%s); as %s%s%s (%s, %s) it would be that of "
	       "%" PRIu64 " tokens: a micro-batch of %" PRId64 " padded to %" PRIu64 ", not the %" PRId64 " given\n",
	       tried, m->scope, *m->scope ? " " : "", m->row, m->kind, m->formula, m->implied_tokens, m->asked.plan.micro_batch,
	       each(m, m->implied_tokens), m->asked.plan.seq_len);
	if (m->implied_or)
		printf("    as the next narrower of them that of %" PRIu64 " tokens: padded to %" PRIu64 "\n", m->implied_or, each(m, m->implied_or));
}

static void request_text(const struct oom_crash *c, const struct oom_comparison *m)
{
	const char *tried = oom_gib(c->bytes[OOM_CRASH_TRIED]);

	if (m->step_only)
		printf("  the request of %s is the allocator's own step: any tensor of %s\n", tried,
		       c->bytes[OOM_CRASH_TRIED] == 2 << 20 ? "up to 1 MiB" : "1 to 10 MiB");
	else if (m->implied_tokens)
		implied_text(m, tried);
	else if (!m->matched)
		printf("  no row of this plan has the size of the request (%s): other knobs, or "
		       "another batch\n",
		       tried);
	else
		printf("  the request of %s is %s%s%s, %s: %s = %s\n", tried, m->scope,
		       *m->scope ? " " : "", m->row, m->kind, m->formula, m->numbers);
	if (m->matched)
		shape_text(m);
	if (m->matched && m->also)
		printf("    (%zu other rows have the same size)\n", m->also);
	if (m->whole_logits)
		printf("    which the plan's loss (%s) does not make: the run's does, --loss plain\n",
		       oom_knob_find("loss")->choice((size_t)m->asked.plan.fused_ce)->name);
	if (m->matched && m->micro_batch)
		printf("    with a micro-batch of %" PRId64 ", not the %" PRId64 " given\n",
		       m->micro_batch, m->asked.plan.micro_batch);
}

/* Killed, not refused: what the node's memory holds by this plan, each part as the box command counts
 * it. */
static void host_text(const struct oom_target *t, const struct oom_comparison *m)
{
	const struct oom_host_need *const h = &m->asked.host;
	const struct {
		const char *what;
		uint64_t bytes;
	} rows[] = {{"processes", h->processes}, {"loading the weights", h->loading},
		    {"offloaded, pinned", h->pinned}, {"offloaded, pageable", h->pageable},
		    {"data-loader workers", h->loader}, {"saving a full state", h->saving}};

	printf("\nthe host's memory for these knobs: %s at its peak", oom_gib(h->ram_peak));
	if (t->q.host_ram_bytes)
		printf(" of %s%s", oom_gib(t->q.host_ram_bytes),
		       h->ram_peak > t->q.host_ram_bytes ? ": it does not fit" : "");
	printf("\n");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].bytes)
			printf("    %-26s %12s\n", rows[i].what, oom_gib(rows[i].bytes));
	if (t->q.host_ram_bytes && m->asked.first_limit != OOM_LIMIT_NONE)
		printf("  met first: %s\n", oom_limit_str(m->asked.first_limit));
	else if (!t->q.host_ram_bytes)
		printf("  --host-ram says what the node has, and which limit is met first\n");
}

void oom_compare_text(const struct oom_job *job, const struct oom_target *t,
		      const struct oom_crash *c, const struct oom_comparison *m)
{
	if (m->weights_alone)
		printf("\nweights and buffers alone (%s) are larger than the card (%s): no batch fits; quantise or spread them\n",
		       oom_gib(m->weights_bytes), oom_gib(m->capacity_bytes));
	if (c->n_causes && c->cause[0].cause == OOM_CAUSE_HOST_RAM) {
		host_text(t, m);
		return;
	}
	printf("\nthe plan for these knobs: peak %s used, %s allocated (%s)\n",
	       oom_gib(m->asked.eval.used_bytes), oom_gib(m->asked.eval.overall_peak),
	       oom_phase_str(m->asked.eval.peak_phase));
	for (int b = 0; b < OOM_BUCKETS; b++)
		if (m->asked.eval.bucket[b])
			printf("    %-26s %12s\n", oom_bucket_str((enum oom_bucket)b),
			       oom_gib(m->asked.eval.bucket[b]));
	if (m->phase)
		printf("  highest in the phase of the crash (%s): %s\n", m->phase,
		       oom_gib(m->phase_peak));
	if (c->known[OOM_CRASH_ALLOCATED]) {
		const uint64_t there = c->bytes[OOM_CRASH_ALLOCATED],
			       plan = m->phase ? m->phase_peak : m->asked.eval.overall_peak;
		const uint64_t with = there + c->bytes[OOM_CRASH_TRIED];

		printf("  allocated at the crash: %s, with the request %s: %s\n", oom_gib(there),
		       oom_gib(with),
		       with > plan + plan / 20 ? "more than the plan has; other knobs, a longer "
						 "batch, or something is kept" :
						 "within what the plan needs");
	}
	if (c->known[OOM_CRASH_TRIED])
		request_text(c, m);
	if (!m->capacity_bytes)
		printf("  what would have fitted: give --gpu or --gpu-memory, the message does not "
		       "say how large the card is\n");
	else if (!m->searched)
		printf("  the crash was no training's: weights and buffers of this model are %s, of %s\n",
		       oom_gib(m->weights_bytes), oom_gib(m->capacity_bytes));
	else if (m->asked.fits_gpu)
		printf("  as asked it should have fitted %s: see the causes above\n",
		       oom_gib(m->capacity_bytes));
	else if (m->searched) {
		/* the change that fits the batch as it was planned need not fit the one that died */
		if (m->implied_tokens > (uint64_t)m->asked.plan.micro_batch * (uint64_t)m->asked.plan.seq_len)
			printf("  what follows is for the %" PRId64 " tokens given: --seq-len=%" PRIu64 " asks for the batch that died\n",
			       m->asked.plan.seq_len,
			       each(m, m->implied_tokens));
		oom_report_search(t, &m->asked.plan, &m->search);
	}
	if (m->capacity_bytes && m->searched && !m->asked.fits_gpu && m->search.found)
		oom_report_to_run(job, t, &m->asked.plan, &m->search.best.plan);
}

/* The row that the request was. */
static void request_json(struct oom_json *j, const struct oom_comparison *m)
{
	if (m->matched) {
		oom_json_object(j, "request");
		oom_json_text(j, "scope", m->scope);
		oom_json_text(j, "row", m->row);
		oom_json_text(j, "kind", m->kind);
		oom_json_text(j, "formula", m->formula);
		oom_json_text(j, "numbers", m->numbers);
		oom_json_uint(j, "other_rows", m->also);
		oom_json_int(j, "micro_batch",
			     m->micro_batch ? m->micro_batch : m->asked.plan.micro_batch);
		oom_json_end(j);
	} else {
		oom_json_null(j, "request");
	}
}

/* The cheapest plan that would have fitted, by what it changes. */
static void cheapest_json(struct oom_json *j, const struct oom_comparison *m)
{
	if (m->searched && m->search.found) {
		const struct oom_candidate *b = &m->search.best;

		oom_json_object(j, "cheapest");
		oom_json_uint(j, "used_bytes", b->used_bytes);
		oom_json_text(j, "class", oom_class_str(b->cls));
		oom_json_object(j, "changes");
		for (size_t i = 0; oom_knob_at(i); i++) {
			const struct oom_option *k = oom_knob_at(i);
			char is[OOM_VALUE_SIZE];

			if (!oom_plan_alike(&m->asked.plan, &b->plan, k))
				oom_json_text(j, k->column, oom_plan_get(&b->plan, k, is, sizeof(is)));
		}
		oom_json_end(j);
		oom_json_end(j);
	} else {
		oom_json_null(j, "cheapest");
	}
}

void oom_compare_json(struct oom_json *j, const struct oom_comparison *m, const struct oom_patch *patch)
{
	oom_json_object(j, "predicted");
	oom_json_uint(j, "used_bytes", m->asked.eval.used_bytes);
	oom_json_uint(j, "overall_peak_bytes", m->asked.eval.overall_peak);
	oom_json_text(j, "peak_phase", oom_phase_column(m->asked.eval.peak_phase));
	oom_json_object(j, "at_peak");
	for (int b = 0; b < OOM_BUCKETS; b++)
		oom_json_uint(j, oom_bucket_column((enum oom_bucket)b), m->asked.eval.bucket[b]);
	oom_json_end(j);
	if (m->phase)
		oom_json_uint(j, "phase_peak_bytes", m->phase_peak);
	else
		oom_json_null(j, "phase_peak_bytes");
	oom_json_uint(j, "capacity_bytes", m->capacity_bytes);
	oom_json_uint(j, "weights_bytes", m->weights_bytes);
	oom_json_bool(j, "weights_alone_too_large", m->weights_alone);
	oom_json_uint(j, "host_peak_bytes", m->asked.host.ram_peak);
	if (m->implied_tokens)
		oom_json_uint(j, "implied_tokens", m->implied_tokens);
	else
		oom_json_null(j, "implied_tokens");
	if (m->implied_or)
		oom_json_uint(j, "implied_tokens_narrower", m->implied_or);
	else
		oom_json_null(j, "implied_tokens_narrower");
	if (m->capacity_bytes)
		oom_json_bool(j, "fits", m->asked.fits_gpu);
	else
		oom_json_null(j, "fits");
	request_json(j, m);
	cheapest_json(j, m);
	if (patch)
		oom_json_text(j, "patch", patch->diff.text);
	else
		oom_json_null(j, "patch");
	oom_json_end(j);
}
