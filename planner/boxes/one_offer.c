/* What one offer does with a plan: its host's memory and disk, its speed and its price. */
#include <math.h>
#include <stdlib.h>

#include "finder.h"
#include "offers_parts.h"

/* The best plan, or one of those that it does not dominate. */
struct oom_candidate *finder_candidate(struct group *g, size_t i)
{
	return i ? &g->found.alternative[i - 1] : &g->found.best;
}

static void host_and_disk(const struct oom_offer *o, struct oom_box *b)
{
	b->shortage = OOM_BOX_FITS;
	b->short_bytes = 0;
	if (!isnan(o->host_ram_gib) && (double)b->need.ram_peak > o->host_ram_gib * 1073741824.0) {
		b->shortage = OOM_BOX_RAM;
		b->short_bytes = b->need.ram_peak - (uint64_t)(o->host_ram_gib * 1073741824.0);
	} else if (!isnan(o->disk_gib) && o->disk_gib > 0 &&
		   (double)b->need.disk_peak > o->disk_gib * 1073741824.0) {
		b->shortage = OOM_BOX_DISK;
		b->short_bytes = b->need.disk_peak - (uint64_t)(o->disk_gib * 1073741824.0);
	}
}

/* Searches asked for verdicts; what is listed is priced as estimate does, once per group. */
static enum oom_status price_exactly(const struct finder *f, struct oom_candidate *c)
{
	struct oom_eval e;
	const enum oom_status st = c->exact ? OOM_OK :
					      oom_evaluate(f->ev, f->model, &c->plan,
							   OOM_EVAL_REPLAY, &e, f->err);

	if (!st && !c->exact)
		c->used_bytes = e.used_bytes;
	c->exact = !st;
	return st;
}

/* The candidate as boxes refer to it: of 50,000 offers most share their hardware, and a plan is ten times what else is
 * known of an offer. */
static enum oom_status keep(const struct finder *f, struct group *g, size_t i)
{
	struct oom_boxes *out = f->out;
	struct oom_candidate *c;

	if (g->kept[i])
		return OOM_OK;
	if (out->n_plans == out->cap_plans) {
		void *q = realloc(out->plans, (out->cap_plans * 2 + 64) * sizeof(*out->plans));

		if (!q)
			return oom_error_set(f->err, OOM_ERR_MEMORY, "out of host memory");
		out->plans = q;
		out->cap_plans = out->cap_plans * 2 + 64;
	}
	c = malloc(sizeof(*c));
	if (!c)
		return oom_error_set(f->err, OOM_ERR_MEMORY, "out of host memory");
	*c = *finder_candidate(g, i);
	out->plans[out->n_plans++] = c;
	g->kept[i] = c;
	return OOM_OK;
}

/* Where the fastest plan asks too much of the host, one that asks less; short of all, the fastest
 * says by how much. */
static enum oom_status choose(const struct finder *f, const struct oom_offer *o, struct group *g,
			      struct oom_box *b, size_t *which)
{
	size_t chosen = 0;
	enum oom_status st;

	for (size_t i = 0; i <= g->found.n_alternatives; i++) {
		struct oom_box other = *b;

		other.need = g->need[i];
		host_and_disk(o, &other);
		if (!i || other.shortage == OOM_BOX_FITS) {
			chosen = i;
			*b = other;
		}
		if (b->shortage == OOM_BOX_FITS)
			break;
	}
	st = price_exactly(f, finder_candidate(g, chosen));
	if (!st)
		st = keep(f, g, chosen);
	if (!st)
		b->plan = g->kept[chosen];
	*which = chosen;
	return st;
}

struct oom_box finder_blank(const struct finder *f, const struct oom_offer *o, int64_t nodes, double usd_h)
{
	static const struct oom_candidate none;

	return (struct oom_box){.offer = o,
				.plan = &none,
				.nodes = nodes,
				.usd_h = usd_h,
				.tokens_per_s = NAN,
				.usd_per_mtokens = NAN,
				.usd_per_ksamples = NAN,
				.days = NAN,
				.days_low = NAN,
				.days_high = NAN,
				.gpu_hours = NAN,
				.usd = NAN,
				.usd_low = NAN,
				.usd_high = NAN,
				.usd_storage = NAN,
				.usd_egress = NAN,
				.stale = offers_stale_at(o, f->now),
				.ondemand_usd_per_mtokens = NAN,
				.spot_usd_per_mtokens = NAN};
}

enum oom_status finder_fill(const struct finder *f, const struct oom_offer *o, struct group *g,
				struct oom_box *b)
{
	enum oom_status st;
	const double hour = f->q->spot ? o->spot_usd_h : o->ondemand_usd_h;
	size_t chosen;

	*b = finder_blank(f, o, g->nodes, hour * (double)g->nodes);
	b->needs_science = g->science;
	if (!g->found.found) {
		b->shortage = g->layout ? OOM_BOX_LAYOUT : OOM_BOX_VRAM;
		b->short_bytes = g->short_bytes;
		return OOM_OK;
	}
	st = choose(f, o, g, b, &chosen);
	if (st)
		return st;
	b->batch = b->plan->plan.micro_batch * b->plan->plan.grad_accum * oom_plan_data_parallel(&b->plan->plan);
	b->tokens_per_s = (b->plan->plan.seq_len > 0 ? (double)b->plan->plan.seq_len : 1) /
			  b->plan->seconds_per_sample;
	b->usd_per_mtokens = b->usd_h / 3600 / b->tokens_per_s * 1e6;
	b->usd_per_ksamples = b->usd_h / 3.6 * b->plan->seconds_per_sample;
	b->ondemand_usd_per_mtokens = o->ondemand_usd_h * (double)g->nodes / 3600 /
				      b->tokens_per_s * 1e6;
	b->spot_usd_per_mtokens = o->spot_usd_h * (double)g->nodes / 3600 / b->tokens_per_s * 1e6;
	oom_box_quote(&f->offers->gpus.items[o->gpu], f->q, &g->time[chosen], b);
	return OOM_OK;
}
