/* Playing a schedule through the caching allocator. */
#ifndef OOM_REPLAY_H
#define OOM_REPLAY_H

#include "step/allocator.h"
#include "step/schedule.h"
#include "step/variant.h"

/* The rank's part of what FSDP1 has joined, and that; none: no bytes. */
struct oom_wrapped {
	int32_t block;
	uint64_t bytes, whole;
};

/* A row as it is played. */
struct oom_played {
	uint64_t size;                  /* in blocks of the allocator */
	int32_t block;                  /* or -1 */
	uint16_t bin;                   /* of the free set: where blocks of that size would be, in the row's pool */
	bool joins_wait : 1, opens_wait : 1;    /* as the row's */
	bool product : 1;               /* of matrices */
};

/* What a replay of ZeRO-3's gathering remembers of a parameter. */
enum oom_gather_state { OOM_GATHER_AWAY, OOM_GATHER_SENT, OOM_GATHER_COPIED, OOM_GATHER_THERE };
struct oom_gathered {
	int32_t block;                  /* its own, or -1 */
	int32_t first, following;       /* of those that came with it, the first and the next one; -1 */
	int32_t buffer;                 /* of the first: what they came in, ... */
	uint32_t waiting;               /* ... and how many of them are still to be asked for */
	int32_t passed;                 /* the call up to which it need not be sent for */
	uint8_t state;                  /* enum oom_gather_state */
};
/* A module is called, in a forward or a backward pass. */
struct oom_call {
	int32_t param, next;            /* its parameter, and the next call that needs it, or -1 */
	uint64_t before;                /* elements that are needed before this call */
};

/* The memory of replays.  Zero-initialise it; it is kept from one replay to the next. */
struct oom_player {
	struct oom_played *row;
	int32_t *grad;                  /* the block of each gradient that waits for the step, or -1 */
	size_t cap;
	struct oom_param *parts;        /* the parameters as this rank's shards */
	int32_t *moved;                 /* the blocks of a unit's parameters while FSDP wraps it */
	struct oom_wrapped *units;          /* the rank's parts of FSDP1's units, the root's first */
	size_t cap_units;
	size_t cap_parts;               /* of parts and moved */
	int32_t *late;                  /* blocks that another stream still reads */
	size_t cap_late;
	struct oom_gathered *gathered;  /* by parameter */
	size_t cap_gathered;
	struct oom_call *call;          /* of a step */
	size_t cap_calls;
	int32_t *slot;                  /* for engines that play steps of their own */
	size_t cap_slot;
	unsigned workspaces;            /* of cuBLAS: bit 0 the forward's is there, bit 1 the backward's */
	struct oom_replay allocator;
};
void oom_player_release(struct oom_player *p);

struct oom_replay_result {
	uint64_t reserved;              /* the peak of reserved bytes (until it ran out of memory) */
	/* the peak of what max_memory_allocated counts, whole blocks; 0 with several streams: it takes a block off when it
	 * is freed, the replay when the other stream is through with it */
	uint64_t held;
	uint64_t later;                 /* the same of ranks after a node's first, where it is another; 0 */
	/* on a card of limited size: how many requests made the allocator release cached segments, and
	 * whether one of them failed even so, which is out of memory */
	uint32_t retries;
	bool died;
};
/* Begins with an empty allocator that follows the plan's settings, on a card with `limit` bytes for it (0: no
 * limit).  oom_player_end gives the result: OOM_ERR_LIMIT if the replay was given up; OOM_ERR_MEMORY. */
void oom_player_begin(struct oom_player *p, const struct oom_plan *plan, uint64_t limit);
enum oom_status oom_player_end(const struct oom_player *p, struct oom_replay_result *out);
/* An array of n handles that are all -1; NULL if memory is short. */
int32_t *oom_player_slots(struct oom_player *p, size_t n);
/* Plays two training steps of s over v's streams, in which every layer is recorded by itself, on a card with
 * `limit` bytes for the allocator (0: no limit), as a node's first rank or a later one.  Holdings that are not on
 * the card are left out.
 * OOM_ERR_LIMIT: the tape has more than MOST_EVENTS events (replay.c), or frees a row twice; OOM_ERR_MEMORY. */
enum oom_status oom_replay(struct oom_player *p, const struct oom_schedule *s,
			   const struct oom_variant *v, const struct oom_plan *plan,
			   uint64_t input_bytes, uint64_t limit, bool later, struct oom_replay_result *out);

#endif
