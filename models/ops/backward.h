/* The backward pass, and what its two parts ask of each other: the walk over autograd's nodes (backward.c), and
 * checkpointed blocks, which run again in the middle of it (recompute.c). */
#ifndef OOMPLAN_OPS_BACKWARD_H
#define OOMPLAN_OPS_BACKWARD_H

#include "derivatives.h"

/* Records the backward pass of everything recorded so far.  Consumes loss. */
void oom_backward(struct oom_tape *t, struct oom_val loss);

/* ---- for recompute.c ---- */

/* Runs node i: its derivative, and what that gives into the buffers of the nodes behind its edges. */
void oom_run_node(struct oom_tape *t, int32_t i);
/* Runs the nodes from `from` down to `to`, both included. */
void oom_run_nodes(struct oom_tape *t, int32_t from, int32_t to);
/* Hands g on along e: stored, added to what is there, or a parameter's.  Consumes g. */
void oom_push_grad(struct oom_tape *t, const struct oom_edge *e, struct grad g);
/* Lets go of what the node has saved. */
void oom_release_saved(struct oom_tape *t, const struct oom_node *n);
void oom_release_node(struct oom_tape *t, struct oom_node *n);

/* ---- for backward.c ---- */

/* Takes the checkpointed block whose node has this index through its backward pass: as use_reentrant=True does, and as
 * use_reentrant=False does. */
void oom_block_reenter(struct oom_tape *t, int32_t index);
void oom_block_recompute(struct oom_tape *t, int32_t index);

#endif
