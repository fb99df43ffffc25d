/* Operations of recurrences and chunked scans written in Python, and the loops around them. */
#ifndef OOM_SCAN_H
#define OOM_SCAN_H

#include "ops.h"

/* a * b broadcast to a shape neither has. */
struct oom_val oom_op_mul_into(struct oom_tape *t, struct oom_val a, struct oom_val b,
			       uint16_t mono, struct oom_dim width);
/* F.pad with zeros. */
struct oom_val oom_op_pad(struct oom_tape *t, struct oom_val x, uint16_t mono,
			  struct oom_dim width);
/* x[part] = y, in place; consumes y, returns x. */
struct oom_val oom_op_set(struct oom_tape *t, struct oom_val x, struct oom_val part);

/* Three tensors joined along their last dimension. */
struct oom_val oom_op_cat3(struct oom_tape *t, struct oom_val a, struct oom_val b, struct oom_val c,
			   struct oom_dim width);
/* torch.stack of a list.  Consumes its n elements, which may be the last alone of one that is longer. */
struct oom_val oom_op_stack(struct oom_tape *t, const struct oom_val *x, int n, uint16_t mono,
			    struct oom_dim width);
/* torch.maximum(a, b) of fp32 in a's size: keeps both, whichever of them needs a gradient.  Consumes b alone. */
struct oom_val oom_op_maximum(struct oom_tape *t, struct oom_val a, struct oom_val b);
/* x.tril(). */
struct oom_val oom_op_tril(struct oom_tape *t, struct oom_val x);
/* x.sum(): autocast sets the result's type to fp32 without casting x (fp32_set_opt_dtype,
 * aten/src/ATen/autocast_mode.h). */
struct oom_val oom_op_sum_wide(struct oom_tape *t, struct oom_val x, uint16_t mono,
			       struct oom_dim width);

enum { OOM_LOOP_TURNS = 3 };            /* recorded at most */
/* A Python loop over the chunks of a sequence.  At most three turns are recorded, the last three;
 * what the turns before them leave saved rides on the first recorded one (oom_loop_carry): the
 * backward pass meets the peak of such a loop in the turns it takes first. */
struct oom_loop {
	uint16_t rest;          /* batch times the turns not recorded */
	uint8_t turns;
	bool more;              /* some are not recorded */
};
struct oom_loop oom_loop_over(struct oom_tape *t, uint32_t chunk);
/* In turn 0: adds `width` elements for every turn not recorded to what the graph behind x keeps. */
struct oom_val oom_loop_carry(struct oom_tape *t, const struct oom_loop *l, int turn,
			      struct oom_val x, struct oom_dim width, enum oom_dtype dt);

#endif
