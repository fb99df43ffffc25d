/* Between the files that look for machines: one search over all offers. */
#ifndef OOM_BOXES_FINDER_H
#define OOM_BOXES_FINDER_H

#include <time.h>

#include "oomplan/answer.h"
#include "oomplan/box.h"

/* Offers that share cards, their number and their links. */
struct group {
	int32_t gpu;
	uint32_t count;
	int64_t nodes;
	char interconnect[32];
	double network_gbps;            /* 0 = unknown */
	struct oom_search found;
	bool science_tried;             /* changes that must be allowed were looked at, */
	bool science;                   /* and a plan was found only with one */
	uint64_t short_bytes;           /* of the cards, when nothing fits */
	bool layout;                    /* nothing could even run */
	/* of the plan found, and of those beside it */
	struct oom_host_need need[1 + OOM_ALTERNATIVES];
	struct oom_step_time time[1 + OOM_ALTERNATIVES];
	/* those of them that some box took */
	const struct oom_candidate *kept[1 + OOM_ALTERNATIVES];
};

struct finder {
	const struct oom_offers *offers;
	const struct oom_model *model;
	const struct oom_plan *plan;
	const struct oom_box_query *q;
	struct oom_boxes *out;
	struct oom_evaluator *ev;
	struct oom_compat rules;                /* of frameworks, as the last search needed them */
	struct group *group;
	size_t n_groups, cap_groups, last;      /* last: asked about */
	time_t now;                     /* read once, so that all prices have their age on the same day */
	struct oom_error *err;
};

/* A box of which nothing is known yet but its offer. */
struct oom_box finder_blank(const struct finder *f, const struct oom_offer *o, int64_t nodes, double usd_h);
/* The global batch over the plan's GPUs. */
void finder_lay_batch(const struct finder *f, struct oom_plan *p);
/* Whether the step that was asked for has fewer sequences than so many GPUs have ranks. */
bool finder_batch_is_small(const struct finder *f, int64_t gpus);
/* The card with the links of the group's machines, written to *card. */
const struct oom_gpu *finder_as_linked(const struct finder *f, const struct group *g, struct oom_gpu *card);
/* The best that an offer does with so many nodes. */
enum oom_status finder_with_nodes(struct finder *f, const struct oom_offer *o, int64_t nodes,
				  struct oom_box *b);


/* one_offer.c: the best plan of a group, or one of those that it does not dominate; what an offer does with
 * the fastest of them that its host bears. */
struct oom_candidate *finder_candidate(struct group *g, size_t i);
enum oom_status finder_fill(const struct finder *f, const struct oom_offer *o, struct group *g,
			    struct oom_box *b);

/* turns.c: offers in an order in which what was recorded for one does for the next: by the generation of
 * their cards, which decides kernels and precision, and their number, which decides shards; and the largest cards first,
 * which show what fits on no smaller one.  NULL without memory; free it. */
struct finder_turn {
	double generation;
	uint32_t count;
	uint64_t room;
	int32_t gpu;
	const struct oom_offer *offer;
};
struct finder_turn *finder_turns(const struct oom_offers *offers);

/* nodes.c: exactly the nodes asked for, or as few as suffice. */
enum oom_status finder_one_offer(struct finder *f, const struct oom_offer *o, struct oom_box *b);
/* Guesses that would be on the front are searched for; the others are no points. */
enum oom_status finder_settle_points(struct finder *f);

#endif
