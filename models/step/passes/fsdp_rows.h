/* The rows that FSDP's pass adds for each unit. */
#ifndef OOM_FSDP_ROWS_H
#define OOM_FSDP_ROWS_H

#include "step/engines.h"
#include "step/rewrite.h"

/* Rows of one unit: all-gather output, parameters, the reduce-scatter's input (FSDP2, or FSDP1 where it is a
 * cast), its output before a cast, gradient shard, FSDP1's flat gradient, its part as it is sent. */
struct oom_fsdp_rows {
	int32_t gathered, params, input, output, shard, flat, sent, sum;
	bool made;
	bool again;             /* a layer whose parameters an earlier one has gathered before */
};
/* A rewrite's own memory: one for every layer, and [0] for the root, which also keeps what waits
 * to be freed and how many layers of the pass have been met. */
struct oom_fsdp_own {
	struct oom_fsdp_rows rows;
	bool runs;              /* the backward pass comes to it */
	bool ahead;             /* gathered for a backward that has not come to it yet */
	int32_t gathered_before, reduced_before;
	size_t met;
};

/* FSDP2 copies parameters out of what it has gathered, and gradients into what it reduces; FSDP1 has views of both. */
static inline bool oom_fsdp_copies_out(const struct oom_rewrite *w)
{
	return oom_engine_of(w->plan)->gathers_apart;
}

bool oom_fsdp_reduces_wide(const struct oom_plan *p);
/* The rows of layer unit - 1, or with 0 of the root, made when they are first asked for. */
const struct oom_fsdp_rows *oom_fsdp_rows_of(struct oom_rewrite *w, size_t unit);

#endif
