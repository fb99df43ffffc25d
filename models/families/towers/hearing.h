/* Audio towers that run: Whisper's encoder (whisper.c). */
#ifndef OOM_HEARING_H
#define OOM_HEARING_H

#include "vision.h"

struct oom_hearing {
	uint64_t d, ff, layers, heads, mels, positions;
	double dropout, act_dropout, attn_dropout;
	enum oom_act act;
	uint64_t windows;       /* of a sample's recordings */
	uint64_t rest;          /* frames of the last of them */
	bool partial;           /* it is not full */
	bool masked;            /* a mask of the frames comes along */
	bool pooled;            /* pairs of states are averaged, before the last norm */
	bool cast;              /* positions are added in the convolutions' type */
	/* GLM-ASR's: a part of every head is turned, so many elements; 0: positions are a table.  Fewer heads of keys and
	 * values; softmax in fp32, nothing scaled or copied before it. */
	uint64_t turned, kv_heads;
};
/* From the batch's recordings to e->m_tokens x d. */
struct oom_val oom_hear(struct oom_emit *e, const struct oom_hearing *h);

#endif
