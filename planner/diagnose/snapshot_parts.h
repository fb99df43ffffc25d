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

#endif
