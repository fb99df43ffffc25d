/* A tape with every layer by itself, made of one that holds a repeated layer once. */
#ifndef OOM_TAPE_UNROLL_H
#define OOM_TAPE_UNROLL_H

#include "tape.h"

/* Fills the released or zeroed tape *to with what recording `from` in full (expand) would have put there: the same
 * rows, events and parameters in the same order.  Its evaluation, its graph and the step's arithmetic are left out.
 * OOM_ERR_LIMIT: the repeated layers hand each other what this cannot tell apart, record them; OOM_ERR_MEMORY.
 * Unless it is OOM_OK *to is empty. */
enum oom_status oom_unroll(const struct oom_tape *from, struct oom_tape *to);

#endif
