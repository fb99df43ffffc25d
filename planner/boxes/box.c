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

#include "finder.h"
#include "offers_parts.h"

const char *oom_shortage_str(enum oom_shortage s)
{
	static const char *const words[] = {"fits", "VRAM", "host RAM", "disk", "layout", "fabric", "batch"};

	return words[s];
}

/* The step's sequences over the plan's GPUs: no more at once than before, the rest in accumulation. */
void finder_lay_batch(const struct finder *f, struct oom_plan *p)
{
	const struct oom_plan *asked = f->plan;
	const int64_t batch = asked->global_batch ? asked->global_batch :
						    asked->micro_batch * asked->grad_accum;
	int64_t mine = batch / oom_plan_data_parallel(p);

	if (mine < 1)
		mine = 1;
	if (p->micro_batch > mine)
		p->micro_batch = mine;
	while (mine % p->micro_batch)
		p->micro_batch--;
	p->grad_accum = mine / p->micro_batch;
}

bool finder_batch_is_small(const struct finder *f, int64_t gpus)
{
	const struct oom_plan *asked = f->plan;

	return asked->global_batch > 0 && gpus / (asked->tp * asked->pp * asked->cp) > asked->global_batch;
}

/* The plan as it would be launched on so many GPUs: the batch a GPU sees shrinks with their number,
 * so that the step stays the same; one GPU alone trains plainly. */
static struct oom_plan launched(const struct finder *f, const struct oom_gpu *card, int64_t gpus,
				int64_t nodes)
{
	struct oom_plan p = *f->plan;
	p.gpus = gpus;
	p.nodes = nodes;
	p.gpus_per_node = 0;            /* the machine's */
	if (card->network_gbps > 0)
		p.network_gbps = 0;     /* too */
	if (p.compute_capability <= 0)
		p.compute_capability = card->compute_capability;
	finder_lay_batch(f, &p);
	return p;
}

/* Host memory, disk and seconds follow from the plan and the card: once per group, not once per offer. */
static enum oom_status host_of(struct finder *f, const struct oom_gpu *card, struct group *g)
{
	for (size_t i = 0; i <= g->found.n_alternatives; i++) {
		const struct oom_plan *p = &finder_candidate(g, i)->plan;
		struct oom_eval e;
		const enum oom_status st = oom_evaluate(f->ev, f->model, p, OOM_EVAL_FAST, &e,
							f->err);

		if (st)
			return st;
		g->need[i] = oom_host_need(p, &e);
		g->time[i] = oom_step_time(p, &e, card);
	}
	return OOM_OK;
}

/* The card as it is linked in these machines. */
const struct oom_gpu *finder_as_linked(const struct finder *f, const struct group *g, struct oom_gpu *card)
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
				       .by_kind = f->q->by_kind,
				       .confidence = f->q->confidence,
				       .rules = &f->rules};

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

/* Whether what fits on no card of an earlier group fits on none of this one: as many cards of the same generation, which
 * take the same plans, with as much memory or more, linked alike. */
static bool no_less_room(const struct finder *f, const struct group *old, const struct group *g)
{
	const struct oom_gpu *a = &f->offers->gpus.items[old->gpu], *b = &f->offers->gpus.items[g->gpu];

	return old->count == g->count && old->nodes == g->nodes && a->capacity_bytes >= b->capacity_bytes &&
	       !(a->compute_capability < b->compute_capability || a->compute_capability > b->compute_capability) &&
	       !strcmp(a->vendor, b->vendor) && !strcmp(a->architecture, b->architecture) &&
	       (g->count * g->nodes < 2 || !strcmp(old->interconnect, g->interconnect));
}

/* Of the same card it is known by how much, too: what does not fit over one network fits over no other. */
static bool known_short(const struct finder *f, struct group *g)
{
	for (size_t i = 0; i + 1 < f->n_groups; i++) {
		const struct group *old = &f->group[i];

		if (old->gpu != g->gpu || !no_less_room(f, old, g) || old->found.found)
			continue;
		g->layout = old->layout;
		g->short_bytes = old->short_bytes;
		return true;
	}
	return false;
}

static bool known_not_to_fit(const struct finder *f, const struct group *g)
{
	for (size_t i = 0; &f->group[i] < g; i++)
		if (!f->group[i].found.found && no_less_room(f, &f->group[i], g))
			return true;
	return false;
}

static enum oom_status search(struct finder *f, struct group *g)
{
	struct oom_gpu linked;
	const struct oom_gpu *card = finder_as_linked(f, g, &linked);
	const struct oom_plan p = launched(f, card, (int64_t)g->count * g->nodes, g->nodes);
	const uint64_t room = card->capacity_bytes -
			      (uint64_t)((double)card->capacity_bytes * f->q->min_headroom);
	enum oom_status st = OOM_OK;

	if (!known_not_to_fit(f, g))
		st = look(f, &p, room, card, f->q->allow, &g->found);
	if (st || g->found.found)
		return st ? st : host_of(f, card, g);
	measure_shortage(f, p, room, g);
	return OOM_OK;
}

/* Not even with changes of the science. */
static bool known_hopeless(const struct finder *f, const struct group *g)
{
	for (size_t i = 0; i < f->n_groups; i++)
		if (f->group[i].science_tried && !f->group[i].science && no_less_room(f, &f->group[i], g))
			return true;
	return false;
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
	return known_short(f, g) ? OOM_OK : search(f, g);
}

static enum oom_status search_science(struct finder *f, struct group *g)
{
	struct oom_gpu linked;
	const struct oom_gpu *card = finder_as_linked(f, g, &linked);
	const struct oom_plan p = launched(f, card, (int64_t)g->count * g->nodes, g->nodes);
	const uint64_t room = card->capacity_bytes -
			      (uint64_t)((double)card->capacity_bytes * f->q->min_headroom);
	enum oom_status st;

	if (known_hopeless(f, g)) {
		g->science_tried = true;
		return OOM_OK;
	}
	st = look(f, &p, room, card, f->q->allow | OOM_ALLOW_SCIENCE, &g->found);
	g->science_tried = true;
	g->science = g->found.found;
	return st || !g->science ? st : host_of(f, card, g);
}

static enum oom_status with_science(struct finder *f, struct oom_box *b)
{
	size_t i = 0;
	enum oom_status st;

	if (b->shortage != OOM_BOX_VRAM && b->shortage != OOM_BOX_LAYOUT)
		return OOM_OK;
	st = group_of(f, b->offer, b->nodes, &i);
	if (!st && !f->group[i].science_tried)
		st = search_science(f, &f->group[i]);
	return st || !f->group[i].science ? st : finder_fill(f, b->offer, &f->group[i], b);
}

/* What is not allowed is looked for all the same, and listed apart: for the number of nodes that an offer is listed
 * with, not for each that was tried, as such a search goes through ten times as many plans; and not beside a quote that
 * others can give for the run as it is. */
static enum oom_status look_at_science(struct finder *f)
{
	bool quoted = false;
	enum oom_status st = OOM_OK;

	for (size_t i = 0; i < f->out->n; i++)
		quoted |= f->q->tokens > 0 && f->out->items[i].shortage == OOM_BOX_FITS;
	if (quoted || (f->q->allow & OOM_ALLOW_SCIENCE) == OOM_ALLOW_SCIENCE)
		return OOM_OK;
	for (size_t i = 0; !st && i < f->out->n; i++)
		st = with_science(f, &f->out->items[i]);
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
	if (f->q->gpu && !oom_gpu_may_be(&f->offers->gpus, f->q->gpu, f->offers->gpus.items[o->gpu].name))
		return false;
	if (f->q->gpus_each && o->gpu_count != f->q->gpus_each)
		return false;
	return !(f->q->max_usd_h > 0) || (!isnan(hour) && hour <= f->q->max_usd_h);
}

enum oom_status finder_with_nodes(struct finder *f, const struct oom_offer *o, int64_t nodes,
				  struct oom_box *b)
{
	size_t g = 0;
	enum oom_status st;

	if (finder_batch_is_small(f, nodes * o->gpu_count)) {
		*b = finder_blank(f, o, nodes, NAN);
		b->shortage = OOM_BOX_BATCH;
		return OOM_OK;
	}
	st = group_of(f, o, nodes, &g);
	f->last = g;
	return st ? st : finder_fill(f, o, &f->group[g], b);
}

static bool names_a_card(const struct oom_gpus *gpus, const char *word)
{
	for (size_t i = 0; i < gpus->n; i++)
		if (oom_gpu_may_be(gpus, word, gpus->items[i].name))
			return true;
	return false;
}

enum oom_status oom_boxes_find(const struct oom_offers *offers, const struct oom_model *model,
			       const struct oom_plan *plan, const struct oom_box_query *q,
			       struct oom_boxes *out, struct oom_error *err)
{
	struct finder f = {.offers = offers, .model = model, .plan = plan, .q = q, .out = out, .err = err,
			   .now = time(NULL)};
	enum oom_status st = OOM_OK;
	struct finder_turn *turns = NULL;
	struct oom_gpu card;

	memset(out, 0, sizeof(*out));
	if (q->gpu && !names_a_card(&offers->gpus, q->gpu))
		return oom_gpu_find(&offers->gpus, q->gpu, &card, NULL, err);
	f.ev = oom_evaluator_new();
	out->items = malloc((offers->n + 1) * sizeof(*out->items));
	turns = finder_turns(offers);
	if (!f.ev || !out->items || !turns)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	for (size_t i = 0; !st && i < offers->n; i++) {
		const struct oom_offer *o = turns[i].offer;

		if (!wanted(&f, o))
			continue;
		st = finder_one_offer(&f, o, &out->items[out->n]);
		out->n += !st;
	}
	if (!st)
		st = look_at_science(&f);
	if (!st)
		st = finder_settle_points(&f);
	if (!st)
		st = oom_boxes_order(out, q, err);
	out->priced_groups = f.n_groups;
	if (f.ev && oom_evaluator_starved(f.ev) && !st)
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	oom_evaluator_free(f.ev);
	free(f.group);
	free(turns);
	if (st)
		oom_boxes_release(out);
	return st;
}

void oom_boxes_release(struct oom_boxes *b)
{
	if (!b)
		return;
	free(b->items);
	free(b->points);
	for (size_t i = 0; i < b->n_plans; i++)
		free(b->plans[i]);
	free(b->plans);
	memset(b, 0, sizeof(*b));
}
