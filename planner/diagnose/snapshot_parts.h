/* Between the files of the snapshot reader. */
#ifndef OOM_SNAPSHOT_PARTS_H
#define OOM_SNAPSHOT_PARTS_H

#include "oomplan/snapshot.h"
#include "pickle.h"

typedef struct oom_pickle_node node;

/* The value of a key; NULL when it is absent, or when this is no dict. */
const node *oom_node_get(const struct oom_pickle *p, const node *dict, const char *key);
/* The same, for lists only. */
const node *oom_node_list(const struct oom_pickle *p, const node *dict, const char *key);
bool oom_node_is(const node *n, const char *word);
/* Bytes, addresses, lines: what is no number, or negative, is 0. */
uint64_t oom_node_number(const struct oom_pickle *p, const node *dict, const char *key);

/* What a list of frames says; remembered for each list, so that shared ones are read once. */
struct oom_told {
	/* of a text: 0 not looked at, else the rule's number + 1; NONE */
	uint8_t file_rule, name_rule;
	bool known, zero_grad;          /* of a list */
	uint8_t held;
	uint32_t frame;                 /* the telling one; UINT32_MAX: none */
};
/* told: one for each node of p, zeroed. */
const struct oom_told *oom_frames_tell(const struct oom_pickle *p, struct oom_told *told,
				       const node *frames);
/* "models/gpt2.py:12 in forward": the last two parts of the path. */
void oom_frame_where(const struct oom_pickle *p, const node *frame, char *out, size_t size);

/* ---- blocks by address: snapshot_blocks.c ---- */

struct oom_block {
	uint64_t addr, size;
	const node *frames;
	bool used, live, recorded, grad;
	uint8_t held;                   /* of the timeline: enum oom_held */
};
struct oom_blocks {
	struct oom_block *slot;
	size_t mask, live;
	uint64_t bytes;
};
bool oom_blocks_init(struct oom_blocks *m, size_t most);
struct oom_block *oom_blocks_at(struct oom_blocks *m, uint64_t addr);
void oom_blocks_remove(struct oom_blocks *m, struct oom_block *b);
void oom_blocks_put(struct oom_blocks *m, struct oom_block *b, uint64_t size, const node *frames);

/* ---- the trace of one device ---- */

struct oom_event {
	enum { OOM_EVENT_ALLOC, OOM_EVENT_FREE, OOM_EVENT_OOM, OOM_EVENT_OTHER } kind;
	uint64_t addr, size;
	const node *frames;
	bool grad;                      /* of an allocation: zero_grad() frees it */
};
struct oom_snapshot_reader {
	const struct oom_pickle *p;
	struct oom_told *told;
	struct oom_event *event;
	size_t n_events;
	const node *segments;
	int64_t device;
	struct oom_snapshot out;
};
/* What a block is for. */
enum oom_held oom_block_held(struct oom_snapshot_reader *r, const struct oom_block *b);
/* Fills r->out from a device's segments and its trace, which may be NULL. */
enum oom_status oom_snapshot_device(struct oom_snapshot_reader *r, const node *trace, struct oom_error *err);
/* snapshot_shares.c: who holds what, by the frame that asked. False: out of host memory. */
bool oom_snapshot_summarise(struct oom_snapshot_reader *r, const struct oom_blocks *m);

#endif
