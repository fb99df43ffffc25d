/* What the observed lengths mean for a plan (playbook M16). */
#include <inttypes.h>
#include <math.h>

#include "cli.h"
#include "json.h"
#include "out.h"

static void strategies(const struct oom_lengths_report *r)
{
	printf("  %-16s %-56s %10s %8s\n", "batches by", "", "worst", "padding");
	for (int i = 0; i < OOM_BATCHINGS; i++)
		printf("  %-16s %-56s %10.0f %6.1f %%\n", r->batching[i].name, r->batching[i].what,
		       r->batching[i].worst_batch_tokens, 100 * r->batching[i].padding_share);
}

/* As asked, how far an epoch would come. */
static void fate(const struct oom_target *t, const struct oom_lengths_report *r)
{
	int64_t longest;
	double step;

	enum oom_status st;

	if (!t->q.capacity_bytes)
		return;
	st = oom_answer_lengths(NULL, &t->q, &longest, &step, NULL);
	if (st == OOM_ERR_MEMORY)
		oom_out_incomplete();
	if (st)
		return;
	if (!longest)
		printf("  as asked, not even one token per sequence fits\n");
	else if (step > 0)
		printf("  as asked, batches to %" PRId64
		       " tokens per sequence fit: expected to die at step %.0f of %.0f\n",
		       longest, step, (double)r->total / r->batch);
	else
		printf("  as asked, batches to %" PRId64
		       " tokens per sequence fit: none here is longer\n",
		       longest);
}

void oom_report_lengths(const struct oom_target *t)
{
	struct oom_lengths_report r;

	if (!t->q.lengths)
		return;
	r = oom_question_lengths(&t->q);
	printf("\nlengths: %" PRIu64
	       " sequence%s, mean %.1f, median %u, p90 %u, p99 %u, longest %u\n",
	       r.total, r.total == 1 ? "" : "s", r.mean, r.p50, r.p90, r.p99, r.longest);
	if (r.skipped)
		printf("  %" PRIu64 " line%s without a length left out\n", r.skipped, r.skipped == 1 ? "" : "s");
	printf("  planned for the longest batch of an epoch: %u tokens per sequence, %.0f sequences "
	       "per batch\n",
	       r.batching[OOM_BATCH_LONGEST].worst_tokens, r.batch);
	strategies(&r);
	if (r.death_step > 0)
		printf("  a batch first needs more than a plan for the mean one (%.1f tokens per sequence) at "
		       "step %.0f\n",
		       r.mean_batch_tokens, r.death_step);
	fate(t, &r);
	printf("  capping at the 99.9th percentile (%u) cuts %.2f %% of the sequences and loses "
	       "%.2f %% of the tokens: CHANGES THE SCIENCE\n",
	       r.p999, 100 * r.cut_share, 100 * r.lost_share);
}

void oom_json_lengths(struct oom_json *j, const struct oom_target *t)
{
	struct oom_lengths_report report;
	const struct oom_lengths_report *r = &report;

	if (!t->q.lengths)
		return;
	report = oom_question_lengths(&t->q);
	oom_json_object(j, "lengths");
	oom_json_uint(j, "sequences", r->total);
	oom_json_uint(j, "skipped_lines", r->skipped);
	oom_json_real(j, "mean", r->mean);
	oom_json_uint(j, "p50", r->p50);
	oom_json_uint(j, "p90", r->p90);
	oom_json_uint(j, "p99", r->p99);
	oom_json_uint(j, "p999", r->p999);
	oom_json_uint(j, "longest", r->longest);
	oom_json_real(j, "mean_batch_tokens", r->mean_batch_tokens);
	oom_json_real(j, "mean_plan_dies_at_step",
		      r->death_step > 0 ? r->death_step : (double)INFINITY);
	oom_json_real(j, "cap_p999_loses_token_share", r->lost_share);
	oom_json_real(j, "cap_p999_cuts_sequence_share", r->cut_share);
	oom_json_array(j, "batching");
	for (int i = 0; i < OOM_BATCHINGS; i++) {
		oom_json_object(j, NULL);
		oom_json_text(j, "name", r->batching[i].name);
		oom_json_uint(j, "worst_tokens", r->batching[i].worst_tokens);
		oom_json_real(j, "worst_batch_tokens", r->batching[i].worst_batch_tokens);
		oom_json_real(j, "padding_share", r->batching[i].padding_share);
		oom_json_end(j);
	}
	oom_json_end(j);
	oom_json_end(j);
}
