/* A schedule played through the caching allocator. */
#ifndef OOM_REPLAY_H
#define OOM_REPLAY_H

#include "step/allocator.h"
#include "step/schedule.h"
#include "step/variant.h"

/* A replay's own memory; zeroed to begin with, kept from one to the next. */
struct oom_player {
	struct oom_replay allocator;
	int32_t *block;                 /* of a row, or -1 */
	uint64_t *bytes;                /* of a row */
	int32_t *grad;                  /* of a gradient that waits for the step, or -1 */
	size_t cap;
	struct oom_param *parts;        /* parameters as one rank's shards */
	int32_t *moved;                 /* blocks of a unit's parameters while it is wrapped */
	size_t cap_parts;               /* of both */
	int32_t *slot;                  /* of engines that play steps of their own */
	size_t cap_slot;
};
void oom_player_release(struct oom_player *p);

struct oom_replay_result {
	uint64_t reserved;              /* peak of reserved bytes, until it died */
	/* on a card of limited size: requests that had cached segments released, and whether one of
	 * them found too little even so: out of memory */
	uint32_t retries;
	bool died;
};
/* An empty allocator under the plan's rules on a card that gives it `limit` bytes (0: as many as it
 * wants); and what came of playing it.  OOM_ERR_LIMIT where it gave up, OOM_ERR_MEMORY. */
void oom_player_begin(struct oom_player *p, const struct oom_plan *plan, uint64_t limit);
enum oom_status oom_player_end(const struct oom_player *p, struct oom_replay_result *out);
/* n blocks, none of them there (-1); NULL: out of memory. */
int32_t *oom_player_slots(struct oom_player *p, size_t n);
/* Plays two training steps of s over v's streams, in which every layer is recorded by itself, on a
 * card that gives the allocator `limit` bytes (0: as many as it wants).  A holding that is not on
 * the card is nowhere.  OOM_ERR_LIMIT for tapes beyond MOST_EVENTS (replay.c), and for those that
 * free twice; OOM_ERR_MEMORY. */
enum oom_status oom_replay(struct oom_player *p, const struct oom_schedule *s,
			   const struct oom_variant *v, const struct oom_plan *plan,
			   uint64_t input_bytes, uint64_t limit, struct oom_replay_result *out);

#endif
