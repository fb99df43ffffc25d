/* Between the files of a replay: replay.c plays passes and steps, replay_holdings.c what lies on the card
 * from one moment of the step to another. */
#ifndef OOM_PLAYING_H
#define OOM_PLAYING_H

#include "step/replay.h"

/* Blocks that wait, beside parameters' gradients. */
enum { OOM_LATE_BESIDE = 64 };

struct playing {
	struct oom_player *p;
	const struct oom_schedule *s;
	const struct oom_variant *v;
	const struct oom_plan *plan;
	uint64_t input_bytes;
	uint64_t workspace;                     /* of cuBLAS, for each thread; 0: it is not played */
	uint32_t there;                         /* holdings, a bit each */
	int32_t held[OOM_MAX_HOLDINGS];         /* the block of what lies in one */
	bool first;                             /* step */
	bool wrapped;                           /* by FSDP1, in units */
	bool pools;                             /* ZeRO-3's streams have theirs */
	bool settled;                           /* a micro-batch that adds to gradients ended where it had begun, ... */
	uint64_t there_again;                   /* ... which was there (mark in replay.c) */
	size_t late_to[OOM_MOST_WAITS];         /* of player->late: behind what each wait holds, the oldest first */
	size_t n_waits;
	/* of a later rank: the buckets that it has been sent while FSDP1 wraps; NULL: they are free at once */
	int32_t *sent;
	int32_t *loaded;                        /* of a model that is whole before it is divided: the block of each parameter */
	size_t n_sent;
};

/* Layers are the tape's units, numbered as the forward meets them. */
enum { BEFORE_ALL = -1 };

static inline struct oom_replay *playing_allocator(struct playing *g)
{
	return &g->p->allocator;
}

/* Room for what the tape's rows, parameters and units are played with; false: out of host memory. */
bool oom_player_holds(struct oom_player *p, const struct oom_tape *t);
/* Room for ZeRO-3's gathering; false: out of host memory.  Its streams' pools are played; what is there at the peak
 * comes, so many bytes, and goes (replay_gathers.c). */
bool oom_player_gathers(struct oom_player *p, const struct oom_tape *t);
int32_t oom_playing_gathered(struct playing *g, uint64_t bytes);
void oom_playing_gathered_go(struct playing *g);
/* A rank that has part of the chain: are the layer `unit` (from 0), or what comes before all of them
 * (BEFORE_ALL) and after, its own? */
bool oom_playing_mine(const struct playing *g, int64_t unit);
/* The same of parameter i.  Those outside of the layers come before or after them as they are recorded:
 * *outside, BEFORE_ALL at first, is which. */
bool oom_playing_param(const struct playing *g, size_t i, int64_t *outside);
/* A parameter's blocks, of all of which `part` of `whole` bytes are this rank's. */
void oom_playing_weight(struct playing *g, const struct oom_param *p, uint64_t part, uint64_t whole);
/* A quantised base is loaded on the card, where its codes are made; adapters follow. */
void oom_playing_load_quantised(struct playing *g);
/* The model is there: the cache is emptied, or not, and FSDP1 makes its units' tensors. */
void oom_playing_loaded(struct playing *g);
void oom_playing_attributes(struct playing *g);
/* A block for each trained parameter, in proportion to its size; together so many bytes. */
void oom_playing_per_trained(struct playing *g, uint64_t bytes);
/* Holdings that are there from this moment on, and those that are there until it. */
void oom_playing_come(struct playing *g, enum oom_moment_of_step moment);
void oom_playing_go(struct playing *g, enum oom_moment_of_step moment);

/* A row is freed that waits, in a forward or a backward pass; a unit's parameters are gathered; the host waits for all. */
void oom_playing_free_late(struct playing *g, const struct oom_played *row, enum oom_stream_id stream);
void oom_playing_before_gather(struct playing *g, enum oom_stream_id stream);
void oom_playing_sync(void *playing);

#endif
