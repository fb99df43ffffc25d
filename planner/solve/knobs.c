/* What can be solved for, and the steps in which a person would try its values. */
#include <stdio.h>
#include <string.h>

#include "oomplan/box.h"
#include "oomplan/rules.h"
#include "parts.h"

/* GPUs of a node where nobody says and nobody rents such a card: a guess. */
#define USUAL_NODE 8

/* How many of this card a machine mostly has among the offers that come with the library, of machines with
 * four and more: single cards are let by the piece and say nothing of a node.  *node 0: there is none. */
static enum oom_status rented_node(const struct oom_gpu *gpu, int64_t *node, struct oom_error *err)
{
	enum { LEAST = 4, MOST = 64 };
	struct oom_offers offers = {0};
	unsigned n[MOST + 1] = {0};
	int64_t best = 0;
	enum oom_status st = gpu ? oom_offers_load(&offers, err) : OOM_OK;

	if (!st)
		for (size_t i = 0; i < offers.n; i++) {
			const struct oom_offer *o = &offers.items[i];

			if (o->gpu >= 0 && o->gpu_count <= MOST &&
			    !strcmp(offers.gpus.items[o->gpu].name, gpu->name))
				n[o->gpu_count]++;
		}
	for (int64_t k = LEAST; k <= MOST; k++)
		best = n[k] && n[k] >= n[best] ? k : best;
	oom_offers_release(&offers);
	*node = best;
	return st;
}

enum oom_status solved_node(const struct oom_solve_query *q, struct oom_solution *out, struct oom_error *err)
{
	const struct oom_plan *p = q->plan;
	const bool asked = p->gpus_per_node || p->nodes > 1;
	int64_t rented = 0;
	const enum oom_status st = asked ? OOM_OK : rented_node(q->gpu, &rented, err);

	out->node_from = asked ? OOM_NODE_ASKED : rented ? OOM_NODE_RENTED : OOM_NODE_GUESSED;
	out->node = p->gpus_per_node ? p->gpus_per_node :
		    asked	     ? p->gpus / p->nodes :
		    rented	     ? rented :
				       USUAL_NODE;
	return st;
}

static int64_t tokens(const struct oom_model *m, const struct oom_plan *p)
{
	(void)m;
	/* context parallelism cuts a sequence in 2 cp pieces */
	return 64 * (p->cp > 1 ? p->cp : 1);
}

static int64_t side(const struct oom_model *m, const struct oom_plan *p)
{
	(void)p;
	return (int64_t)oom_model_shape(m).image_step;
}

/* PEFT's examples and every published recipe: 8, 16, 32, 64, ... */
static int64_t rank(const struct oom_model *m, const struct oom_plan *p)
{
	(void)m;
	(void)p;
	return 8;
}

/* The positions that a config names.  Tables of learned ones have no row beyond, and rotary ones were not
 * trained there.  Whoever asks for more tokens than that knows it. */
static int64_t positions(const struct oom_model *m, const struct oom_plan *p, const char **why)
{
	const int64_t n = (int64_t)oom_model_shape(m).max_positions;

	*why = "the model has no more positions";
	return p->seq_len > n && p->seq_len != oom_plan_default().seq_len ? 0 : n;
}

/* A product of rank d is any matrix of d rows: a higher rank adds parameters and nothing that they could say. */
static int64_t full_rank(const struct oom_model *m, const struct oom_plan *p, const char **why)
{
	(void)p;
	*why = "the rank of the model's own layers";
	return (int64_t)oom_model_shape(m).d_model;
}

/* What can be solved for. */
static const struct solved solved[] = {
	{.knob = "micro-batch", .batch = true},
	{.knob = "seq-len", .step = tokens, .most = positions},
	{.knob = "tgt-len", .step = tokens, .may_idle = true},
	{.knob = "image-size", .step = side, .may_idle = true},
	{.knob = "num-layers"},
	{.knob = "lora-r", .step = rank, .most = full_rank},
	{.knob = "grad-accum", .batch = true, .no_changes = true},
	/* it costs nothing beyond the micro-batch it is cut into */
	{.knob = "global-batch", .by = "micro-batch", .batch = true},
	{.knob = "gpus", .fewest = true},
	{.knob = "nodes", .by = "gpus", .fewest = true, .nodes = true},
	{.knob = "gpu-memory", .no_changes = true},
	/* what changes make room for is a training step */
	{.knob = "eval-batch", .no_changes = true, .evaluates = true},
	{.knob = "eval-accumulation", .no_changes = true, .evaluates = true},
	/* each takes its tokens of the sequence, which is as long as was asked */
	{.knob = "images", .may_idle = true},
	{.knob = "video-frames", .may_idle = true},
};
enum { SOLVED = sizeof(solved) / sizeof(solved[0]) };

enum oom_status solved_find(const char *knob, const struct solved **out, struct oom_error *err)
{
	const char *names[SOLVED + 1] = {NULL}, *near;
	const struct oom_option *known = oom_knob_find(knob);
	char all[300] = "";

	if (known)
		knob = known->name;
	if (!strcmp(knob, "layers"))
		knob = "num-layers";
	for (size_t i = 0; i < SOLVED; i++) {
		names[i] = solved[i].knob;
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "", names[i]);
		*out = &solved[i];
		if (!strcmp(knob, names[i]))
			return OOM_OK;
	}
	near = oom_nearest(knob, names);
	return oom_error_set(err, OOM_ERR_INVALID, "cannot solve for \"%s\"%s%s%s; what can be: %s", knob,
			     near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "", all);
}
