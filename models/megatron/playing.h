/* Between the files that play a rank: play.c (passes and steps), play_weights.c (rows, weights, states). */
#ifndef OOM_MEGATRON_PLAYING_H
#define OOM_MEGATRON_PLAYING_H

#include "parts.h"
#include "step/replay.h"

/* What is a tensor for each matrix. */
enum per_matrix { WEIGHT, GRADIENT, COPY, MASTER, MOMENT, MOMENT_2, PER_MATRIX };

struct playing {
	const struct mg_flow *f;
	struct oom_replay *r;
	int32_t *slot;                  /* [micro-batch][layer of the rank, then chunk][piece] */
	int32_t *per[PER_MATRIX];       /* [layer, then chunk][matrix] */
	int64_t micro, layers;          /* micro-batches played, layers of all chunks */
	int64_t first[MG_CHUNKS];       /* a chunk's first layer */
	int32_t held[OOM_MG_ROWS], rest;
	bool stepped;                   /* the optimizer's states are there */
	int32_t ahead, reducing;        /* of FSDP2 */
};

static inline int32_t play_put(struct playing *g, double bytes)
{
	return bytes >= 1 ? oom_allocate(g->r, (uint64_t)bytes) : -1;
}

static inline void play_drop(struct playing *g, int32_t *block)
{
	oom_free(g->r, *block);
	*block = -1;
}

static inline const struct mg_flow_layer *play_kind(const struct playing *g, size_t c, int64_t i)
{
	return &g->f->layer[i >= g->f->chunk[c].dense];
}

static inline int64_t play_layers(const struct mg_chunk *c)
{
	return c->dense + c->moe + c->mtp;
}

/* Rows of this kind are there; are not there any more. */
void oom_play_come(struct playing *g, enum oom_mg_row_kind kind);
void oom_play_go(struct playing *g, enum oom_mg_row_kind kind);
/* Matrices of the embedding and the head. */
struct mg_matrices oom_play_ends(const struct mg_flow *f, size_t c);
/* A tensor for each matrix of a layer (`at`: which, of the rank), for each matrix of the rank; their end. */
void oom_play_put(struct playing *g, enum per_matrix which, const struct mg_matrices *w, int64_t at,
		  double bytes);
void oom_play_put_all(struct playing *g, enum per_matrix which, double bytes);
void oom_play_drop_all(struct playing *g, enum per_matrix which);
/* What is there before the first step; the optimizer's states, at the first. */
void oom_play_load(struct playing *g);
void oom_play_states(struct playing *g);

#endif
