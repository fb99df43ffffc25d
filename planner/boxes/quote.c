/* A row as a quote: what the whole training takes on it, in days, GPU-hours and dollars. */
#include <math.h>
#include <string.h>

#include "offers_parts.h"
#include "oomplan/steptime.h"
#include "oomplan/units.h"

#define GIB 1073741824.0
#define HOUR 3600.0
#define DAY 86400.0
#define YEAR_DAYS 365
#define MONTH_HOURS 730.0

/* Meta's 54 days on 16,384 H100s saw 419 interruptions that nobody had planned: one in 50,700
 * GPU-hours (Llama Team 2024, arXiv:2407.21783, section 3.3.4). */
#define GPU_HOURS_TO_FAILURE 50700.0
/* A run that starts again reads its checkpoint and builds everything anew (estimated). */
#define RESTART_S 600.0
/* A checkpoint is written to one of a node's disks (estimated: network volumes of the large clouds do
 * 1 GB/s and more). */
#define WRITE_BYTES_S 1e9

bool offers_stale_at(const struct oom_offer *o, time_t now)
{
	return offers_age_days(o->price_date, now) > YEAR_DAYS;
}

bool oom_offer_is_stale(const struct oom_offer *o)
{
	return offers_stale_at(o, time(NULL));
}

/* The fullest of what a run can run out of. */
static void first_limit(const struct oom_gpu *card, struct oom_box *b)
{
	const struct oom_offer *o = b->offer;
	const double shares[] = {(double)b->plan->used_bytes / (double)card->capacity_bytes,
				 o->host_ram_gib > 0 ? (double)b->need.ram_peak / (o->host_ram_gib * GIB) : 0,
				 o->disk_gib > 0 ? (double)b->need.disk_peak / (o->disk_gib * GIB) : 0};
	static const enum oom_shortage kinds[] = {OOM_BOX_VRAM, OOM_BOX_RAM, OOM_BOX_DISK};

	b->breaks_first = OOM_BOX_VRAM;
	b->breaks_share = 0;
	for (size_t i = 0; i < 3; i++)
		if (shares[i] > b->breaks_share) {
			b->breaks_share = shares[i];
			b->breaks_first = kinds[i];
		}
}

/* What is not known costs nothing in a sum, and is said to be unknown beside it. */
static double known(double usd)
{
	return isnan(usd) ? 0 : usd;
}

void oom_box_quote(const struct oom_gpu *card, const struct oom_box_query *q,
		   const struct oom_step_time *t, struct oom_box *b)
{
	const struct oom_offer *o = b->offer;
	const double gpus = (double)o->gpu_count * (double)b->nodes;
	double mean_h = GPU_HOURS_TO_FAILURE / gpus, hours;

	b->tokens_low = b->tokens_per_s * t->total_s / t->high_s;
	b->tokens_high = b->tokens_per_s * t->total_s / t->low_s;
	b->mfu = t->mfu;
	b->mfu_low = t->mfu * t->total_s / t->high_s;
	b->mfu_high = fmin(1, t->mfu * t->total_s / t->low_s);
	b->binds = t->binds;
	first_limit(card, b);
	if (q->spot && q->spot_hours > 0) {
		const double taken = q->spot_hours / (double)b->nodes;

		mean_h = 1 / (1 / mean_h + 1 / taken);
	}
	b->failures = oom_failures_of((double)b->need.checkpoint / WRITE_BYTES_S / (double)b->nodes,
				      RESTART_S, mean_h * HOUR);
	if (!(q->tokens > 0))
		return;
	hours = q->tokens / b->tokens_per_s / HOUR * b->failures.factor;
	b->days = hours / 24;
	b->days_low = b->days * b->tokens_per_s / b->tokens_high;
	b->days_high = b->days * b->tokens_per_s / b->tokens_low;
	b->gpu_hours = hours * gpus;
	b->usd_storage = o->storage_usd_gib_month * (double)b->need.disk_peak / GIB *
			 (double)b->nodes * hours / MONTH_HOURS;
	b->usd_egress = o->egress_usd_gib * (double)b->need.checkpoint / GIB;
	b->usd = hours * b->usd_h + known(b->usd_storage) + known(b->usd_egress);
	b->usd_low = b->usd * b->tokens_per_s / b->tokens_high;
	b->usd_high = b->usd * b->tokens_per_s / b->tokens_low;
	b->late = q->deadline_days > 0 && b->days > q->deadline_days;
	b->may_be_late = q->deadline_days > 0 && !b->late && b->days_high > q->deadline_days;
	b->over_budget = q->budget_usd > 0 && !(b->usd <= q->budget_usd);
	b->may_be_over_budget = q->budget_usd > 0 && !b->over_budget && b->usd_high > q->budget_usd;
}
