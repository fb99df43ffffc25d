/* Which machine to rent: the cheapest fitting plan on every offer, and their order.
 *
 * Offers that share cards, their number and their links share a search; what differs then is host memory,
 * disk and price. */
#include "oomplan/box.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "oomplan/answer.h"

#include "moves.h"

struct group {
	int32_t gpu;
	uint32_t count;
	int64_t nodes;
	char interconnect[32];
	double network_gbps;            /* 0 = unknown */
	struct oom_search found;
	bool science;                   /* found only with what must be allowed */
	uint64_t short_bytes;           /* of the cards, when nothing fits */
	bool layout;                    /* nothing could even run */
	/* of the plan found, and of those beside it */
	struct oom_host_need need[1 + OOM_ALTERNATIVES];
};
struct finder {
	const struct oom_offers *offers;
	const struct oom_model *model;
	const struct oom_plan *plan;
	const struct oom_box_query *q;
	struct oom_evaluator *ev;
	struct group *group;
	size_t n_groups, cap_groups;
	const char *gpu;                /* the table's name of the card asked for; NULL: all */
	struct oom_error *err;
};

const char *oom_shortage_str(enum oom_shortage s)
{
	static const char *const words[] = {"fits", "VRAM", "host RAM", "disk", "layout"};

	return words[s];
}

/* The plan as it would be launched on so many GPUs: the batch a GPU sees shrinks with their number,
 * so that the step stays the same; one GPU alone trains plainly. */
static struct oom_plan launched(const struct finder *f, const struct oom_gpu *card, int64_t gpus,
				int64_t nodes)
{
	struct oom_plan p = *f->plan;
	const bool old = card->compute_capability > 0 && card->compute_capability < 8;
	const int64_t batch = p.global_batch ? p.global_batch : p.micro_batch * p.grad_accum;
	int64_t mine = batch / gpus;

	p.gpus = gpus;
	p.nodes = nodes;
	p.gpus_per_node = 0;            /* the machine's */
	if (p.compute_capability <= 0)
		p.compute_capability = card->compute_capability;
	if (old)
		move_off_bf16(&p);
	if (mine < 1)
		mine = 1;
	if (p.micro_batch > mine)
		p.micro_batch = mine;
	while (mine % p.micro_batch)
		p.micro_batch--;
	p.grad_accum = mine / p.micro_batch;
	return p;
}

/* The best plan, or one of those that it does not dominate. */
static struct oom_candidate *candidate(struct group *g, size_t i)
{
	return i ? &g->found.alternative[i - 1] : &g->found.best;
}

/* Host memory and disk follow from the plan alone: once a group, not once an offer. */
static enum oom_status host_of(struct finder *f, struct group *g)
{
	for (size_t i = 0; i <= g->found.n_alternatives; i++) {
		const struct oom_plan *p = &candidate(g, i)->plan;
		struct oom_eval e;
		const enum oom_status st = oom_evaluate(f->ev, f->model, p, OOM_EVAL_FAST, &e,
							f->err);

		if (st)
			return st;
		g->need[i] = oom_host_need(p, &e);
	}
	return OOM_OK;
}

/* The card as it is linked in these machines. */
static const struct oom_gpu *as_linked(const struct finder *f, const struct group *g,
				       struct oom_gpu *card)
{
	*card = f->offers->gpus.items[g->gpu];
	if (*g->interconnect)
		snprintf(card->interconnect, sizeof(card->interconnect), "%s", g->interconnect);
	card->network_gbps = g->network_gbps;
	return card;
}

static enum oom_status look(struct finder *f, const struct oom_plan *p, uint64_t room,
			    const struct oom_gpu *card, unsigned allow, struct oom_search *found)
{
	const struct oom_question q = {.model = f->model,
				       .plan = *p,
				       .gpu = card,
				       .capacity_bytes = room,
				       .allow = allow,
				       .brief = true,
				       .verdicts_only = true,
				       .calibration = f->q->calibration,
				       .confidence = f->q->confidence};

	return oom_answer_search(f->ev, &q, found, f->err);
}

/* How much the smallest way to run it lacks. */
static void measure_shortage(struct finder *f, struct oom_plan p, uint64_t room, struct group *g)
{
	const uint64_t budget = oom_budget(room, &p);
	struct oom_eval e;
	bool fits;

	p.micro_batch = 1;
	p.grad_ckpt = OOM_CKPT_FULL;
	g->layout = oom_judge(f->ev, f->model, &p, room, OOM_EVAL_REPLAY, &e, &fits, f->err) !=
		    OOM_OK;
	g->short_bytes = g->layout || fits ? 0 : e.used_bytes - budget;
}

static enum oom_status search(struct finder *f, struct group *g)
{
	struct oom_gpu linked;
	const struct oom_gpu *card = as_linked(f, g, &linked);
	const struct oom_plan p = launched(f, card, (int64_t)g->count * g->nodes, g->nodes);
	const uint64_t room = card->capacity_bytes -
			      (uint64_t)((double)card->capacity_bytes * f->q->min_headroom);
	enum oom_status st = look(f, &p, room, card, f->q->allow, &g->found);

	if (st || g->found.found)
		return st ? st : host_of(f, g);
	/* what is not allowed is looked for all the same, and listed apart */
	if ((f->q->allow & OOM_ALLOW_SCIENCE) != OOM_ALLOW_SCIENCE) {
		st = look(f, &p, room, card, f->q->allow | OOM_ALLOW_SCIENCE, &g->found);
		g->science = g->found.found;
		if (st || g->science)
			return st ? st : host_of(f, g);
	}
	measure_shortage(f, p, room, g);
	return OOM_OK;
}

static double network_of(const struct oom_offer *o)
{
	return o->network_gbps > 0 ? o->network_gbps : 0;
}

/* Links matter from two GPUs on, the network from two nodes on. */
static bool linked_alike(const struct group *g, const struct oom_offer *o)
{
	return (g->count < 2 || !strcmp(g->interconnect, o->interconnect)) &&
	       (g->nodes < 2 || !(g->network_gbps < network_of(o) || g->network_gbps > network_of(o)));
}

static enum oom_status group_of(struct finder *f, const struct oom_offer *o, int64_t nodes,
				size_t *at)
{
	struct group *g;

	for (size_t i = 0; i < f->n_groups; i++)
		if (f->group[i].gpu == o->gpu && f->group[i].count == o->gpu_count &&
		    f->group[i].nodes == nodes && linked_alike(&f->group[i], o)) {
			*at = i;
			return OOM_OK;
		}
	if (f->n_groups == f->cap_groups) {
		void *q = realloc(f->group, (f->cap_groups * 2 + 64) * sizeof(*f->group));

		if (!q)
			return oom_error_set(f->err, OOM_ERR_MEMORY, "out of host memory");
		f->group = q;
		f->cap_groups = f->cap_groups * 2 + 64;
	}
	*at = f->n_groups;
	g = &f->group[f->n_groups++];
	memset(g, 0, sizeof(*g));
	g->gpu = o->gpu;
	g->count = o->gpu_count;
	g->nodes = nodes;
	snprintf(g->interconnect, sizeof(g->interconnect), "%s", o->interconnect);
	g->network_gbps = network_of(o);
	return search(f, g);
}

/* ---- one offer ---- */

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

/* Searches asked for verdicts; what is listed is priced as estimate does, once a group. */
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

/* Where the fastest plan asks too much of the host, one that asks less; short of all, the fastest
 * says by how much. */
static enum oom_status choose(const struct finder *f, const struct oom_offer *o, struct group *g,
			      struct oom_box *b)
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
	st = price_exactly(f, candidate(g, chosen));
	b->plan = *candidate(g, chosen);
	return st;
}

static enum oom_status fill(const struct finder *f, const struct oom_offer *o, struct group *g,
			    struct oom_box *b)
{
	enum oom_status st;
	const double hour = f->q->spot ? o->spot_usd_h : o->ondemand_usd_h;

	*b = (struct oom_box){.offer = o,
			      .nodes = g->nodes,
			      .plan = g->found.best,
			      .needs_science = g->science,
			      .usd_h = hour * (double)g->nodes,
			      .tokens_per_s = NAN,
			      .usd_per_mtokens = NAN,
			      .ondemand_usd_per_mtokens = NAN,
			      .spot_usd_per_mtokens = NAN};
	if (!g->found.found) {
		b->shortage = g->layout ? OOM_BOX_LAYOUT : OOM_BOX_VRAM;
		b->short_bytes = g->short_bytes;
		return OOM_OK;
	}
	st = choose(f, o, g, b);
	b->tokens_per_s = (b->plan.plan.seq_len > 0 ? (double)b->plan.plan.seq_len : 1) /
			  b->plan.seconds_per_sample;
	b->usd_per_mtokens = b->usd_h / 3600 / b->tokens_per_s * 1e6;
	b->ondemand_usd_per_mtokens = o->ondemand_usd_h * (double)g->nodes / 3600 /
				      b->tokens_per_s * 1e6;
	b->spot_usd_per_mtokens = o->spot_usd_h * (double)g->nodes / 3600 / b->tokens_per_s * 1e6;
	return st;
}

static bool wanted(const struct finder *f, const struct oom_offer *o)
{
	const double hour = f->q->spot ? o->spot_usd_h : o->ondemand_usd_h;

	if (f->q->providers) {
		const char *p = f->q->providers;
		const size_t n = strlen(o->provider);
		bool found = false;

		for (; *p && !found; p += strcspn(p, ","), p += *p == ',')
			found = strcspn(p, ",") == n && !strncasecmp(p, o->provider, n);
		if (!found)
			return false;
	}
	if (f->gpu && strcmp(f->gpu, f->offers->gpus.items[o->gpu].name))
		return false;
	return !(f->q->max_usd_h > 0) || (!isnan(hour) && hour <= f->q->max_usd_h);
}

/* ---- order ---- */

static double key_of(const struct oom_box *b, enum oom_box_rank rank)
{
	double k;

	switch (rank) {
	case OOM_BOX_BY_HOUR: k = b->usd_h; break;
	case OOM_BOX_BY_TIME: k = -b->tokens_per_s; break;
	case OOM_BOX_BY_SCIENCE:
		k = (double)b->plan.cls * 1e9 +
		    (isnan(b->usd_per_mtokens) ? 1e8 : b->usd_per_mtokens);
		break;
	default: k = b->usd_per_mtokens;
	}
	return isnan(k) ? INFINITY : k;
}

static int better(const void *x, const void *y)
{
	const struct oom_box *a = x, *b = y;
	const int fa = a->shortage * 2 + (a->shortage == OOM_BOX_FITS && a->needs_science);
	const int fb = b->shortage * 2 + (b->shortage == OOM_BOX_FITS && b->needs_science);
	const double ka = a->key, kb = b->key;

	if (fa != fb)
		return fa - fb;
	if (a->shortage != OOM_BOX_FITS && a->short_bytes != b->short_bytes)
		return a->short_bytes < b->short_bytes ? -1 : 1;        /* the nearest miss first */
	if (ka != kb)
		return ka < kb ? -1 : 1;
	if (a->usd_h != b->usd_h && !isnan(a->usd_h) && !isnan(b->usd_h))
		return a->usd_h < b->usd_h ? -1 : 1;
	return strcmp(a->offer->instance, b->offer->instance);
}

static int by_price_then_speed(const void *x, const void *y)
{
	const struct oom_box *a = *(struct oom_box *const *)x, *b = *(struct oom_box *const *)y;

	if (a->usd_h != b->usd_h)
		return a->usd_h < b->usd_h ? -1 : 1;
	return (a->tokens_per_s < b->tokens_per_s) - (a->tokens_per_s > b->tokens_per_s);
}

/* From the cheapest up, each that is faster than all before it; equals of one on the front are
 * on it, too. */
static enum oom_status mark_pareto(struct oom_boxes *out, struct oom_error *err)
{
	struct oom_box **sorted = malloc((out->fitting + 1) * sizeof(*sorted)), *last = NULL;
	size_t n = 0;

	if (!sorted)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	for (size_t i = 0; i < out->fitting; i++)
		if (!isnan(out->items[i].usd_h))
			sorted[n++] = &out->items[i];
	qsort(sorted, n, sizeof(*sorted), by_price_then_speed);
	for (size_t i = 0; i < n; i++) {
		struct oom_box *b = sorted[i];

		b->pareto = !last || b->tokens_per_s > last->tokens_per_s ||
			    (b->tokens_per_s >= last->tokens_per_s && b->usd_h <= last->usd_h);
		if (b->pareto)
			last = b;
	}
	free(sorted);
	return OOM_OK;
}

static enum oom_status with_nodes(struct finder *f, const struct oom_offer *o, int64_t nodes,
				  struct oom_box *b)
{
	size_t g = 0;
	const enum oom_status st = group_of(f, o, nodes, &g);

	return st ? st : fill(f, o, &f->group[g], b);
}

static bool does(const struct oom_box *b)
{
	return b->shortage == OOM_BOX_FITS && !b->needs_science;
}

/* More nodes only where fewer do not do: doubled until it fits, then the fewest between the last
 * that did not and it. */
static enum oom_status fewest_nodes(struct finder *f, const struct oom_offer *o, int64_t most,
				    struct oom_box *b)
{
	int64_t low = 0, high = 1;
	enum oom_status st = with_nodes(f, o, 1, b);

	while (!st && !does(b) && high < most) {
		low = high;
		high = high * 2 < most ? high * 2 : most;
		st = with_nodes(f, o, high, b);
	}
	while (!st && does(b) && high - low > 1) {
		const int64_t mid = low + (high - low) / 2;
		struct oom_box fewer;

		st = with_nodes(f, o, mid, &fewer);
		if (!st && does(&fewer)) {
			*b = fewer;
			high = mid;
		} else {
			low = mid;
		}
	}
	return st;
}

enum oom_status oom_boxes_find(const struct oom_offers *offers, const struct oom_model *model,
			       const struct oom_plan *plan, const struct oom_box_query *q,
			       struct oom_boxes *out, struct oom_error *err)
{
	struct finder f = {.offers = offers, .model = model, .plan = plan, .q = q, .err = err};
	const int64_t most = q->max_nodes > 0 ? q->max_nodes : 1;
	enum oom_status st = OOM_OK;

	struct oom_gpu card;

	memset(out, 0, sizeof(*out));
	if (q->gpu) {
		st = oom_gpu_find(&offers->gpus, q->gpu, &card, NULL, err);
		if (st)
			return st;
		f.gpu = card.name;
	}
	f.ev = oom_evaluator_new();
	out->items = malloc((offers->n + 1) * sizeof(*out->items));
	if (!f.ev || !out->items)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	for (size_t i = 0; !st && i < offers->n; i++) {
		const struct oom_offer *o = &offers->items[i];

		if (!wanted(&f, o))
			continue;
		st = q->nodes > 0 ? with_nodes(&f, o, q->nodes, &out->items[out->n]) :
				    fewest_nodes(&f, o, most, &out->items[out->n]);
		out->n += !st;
	}
	if (!st) {
		for (size_t i = 0; i < out->n; i++)
			out->items[i].key = key_of(&out->items[i], q->rank);
		qsort(out->items, out->n, sizeof(*out->items), better);
		while (out->fitting < out->n && out->items[out->fitting].shortage == OOM_BOX_FITS &&
		       !out->items[out->fitting].needs_science)
			out->fitting++;
		st = mark_pareto(out, err);
		out->priced_groups = f.n_groups;
	}
	oom_evaluator_free(f.ev);
	free(f.group);
	if (st)
		oom_boxes_release(out);
	return st;
}

void oom_boxes_release(struct oom_boxes *b)
{
	if (!b)
		return;
	free(b->items);
	memset(b, 0, sizeof(*b));
}
