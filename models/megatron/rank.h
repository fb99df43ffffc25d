/* Between the files that price one rank: states.c (between steps), rank.c (in flight), flow.c (to be played). */
#ifndef OOM_MEGATRON_RANK_H
#define OOM_MEGATRON_RANK_H

#include "parts.h"

/* Adds a row; nothing where it has no bytes. */
void oom_mg_row(struct oom_mg_rank *o, const char *name, const char *formula, enum oom_mg_row_kind kind,
		double bytes);
/* Ranks that the optimizer's part lies over, of so many. */
double oom_mg_optimizer_ranks(const struct oom_megatron *m, double ranks);

/* Weights, gradients, optimizer state, and what is kept for good: rows of o and its sums.  *copies: bytes of them that
 * are there between the steps alone. */
void oom_mg_between_steps(const struct oom_megatron *m, const struct mg_params *sum, const struct mg_chunk *c, size_t n,
			  struct oom_mg_rank *o, double *copies);

/* A layer of each kind, a dense one and one of experts: the same on every rank, worked out when the first one asks. */
struct mg_layers {
	bool known[2];
	struct mg_layer of[2];
};

/* What the chunks of a rank hold together. */
struct chunk_sums {
	struct mg_params params;
	double bytes[MG_CHUNKS], away[MG_CHUNKS];       /* of one pass through each: kept, offloaded */
	double loss, head, late, margin;
	struct mg_layer layer[2];       /* a dense one, and one of experts, where there are such */
};

/* layers, zeroed before the first call, are the launch's. */
void oom_mg_add_up(const struct oom_megatron *m, int64_t r, const struct mg_chunk *c, size_t n,
		   struct mg_layers *layers, struct chunk_sums *s);
/* oom_megatron_rank of one rank of a launch after another. */
enum oom_status oom_mg_next_rank(const struct oom_megatron *m, int64_t r, struct mg_layers *layers,
				 struct oom_mg_rank *o, struct oom_error *err);
/* Of the logits of one micro-batch where the loss is taken, or a moment later. */
double oom_mg_logit_bytes(const struct oom_megatron *m);

#endif
