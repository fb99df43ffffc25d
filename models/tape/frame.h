/* Frames: a name lives until its function returns, as in Python.
 *
 * A storage is freed when its last reference goes, and in PyTorch most of these references are
 * names: `h = norm(x)` keeps h alive until h is reassigned, deleted, or the function returns.  A
 * family that writes
 *
 *     struct oom_frame f = {.t = t};
 *     struct oom_val h = oom_name(&f, oom_norm(t, a->norm, "input_layernorm", x, 0));
 *     struct oom_val y = oom_op_linear(t, "up_proj", h, D(a->d_ff), 0);
 *
 *     y = oom_op_linear(t, "down_proj", oom_activation(t, a->act, y), D(a->d_model), 0);
 *     return oom_leave(&f, oom_op_add(t, x, y));
 *
 * says that h has a name and y has not.  A value is therefore one of two things:
 *
 *   a temporary, as every operation returns it: consumed by the operation it is passed to;
 *   borrowed, as oom_name returns it and as a block gets its argument: left alone by operations,
 *   given up by the frame that holds it, or by the caller.
 *
 * Every temporary must end as the argument of one operation, as a name, or as the result.  A test
 * runs all model types and fails when a pass ends with a row that somebody still holds. */
#ifndef OOM_FRAME_H
#define OOM_FRAME_H

#include "tape.h"

enum { OOM_FRAME_NAMES = 48 };

/* The names of one call.  Begin with {.t = t}; end with oom_leave. */
struct oom_frame {
	struct oom_tape *t;
	int n;
	int32_t sto[OOM_FRAME_NAMES];
	bool shared[OOM_FRAME_NAMES];
};

/* `h = x`: a name for x, which is returned borrowed.  Too many names: a status on the tape. */
struct oom_val oom_name(struct oom_frame *f, struct oom_val x);
/* The same for each of x[0..n), in place. */
void oom_name_each(struct oom_frame *f, struct oom_val *x, int n);
/* A parameter of this function: a temporary that the caller passed lives until the function returns
 * (`self.mlp(self.norm(x))`), what is borrowed stays the caller's.  Blocks need not call it: their
 * argument is the caller's. */
struct oom_val oom_arg(struct oom_frame *f, struct oom_val x);
/* `h = x` for a name that exists: what it stood for goes only now, when x has been made. */
struct oom_val oom_rename(struct oom_frame *f, struct oom_val old, struct oom_val x);
/* `del h`. */
void oom_forget(struct oom_frame *f, struct oom_val h);
/* The name's last use: its value, for the operation to consume. */
struct oom_val oom_take(struct oom_frame *f, struct oom_val h);
/* A statement whose result nobody names. */
void oom_discard(struct oom_tape *t, struct oom_val x);
/* A name for a tensor that all layers of a stack use (a mask, a rotary table): once it is given up,
 * checkpointed layers still hold it until the first of them has been recomputed. */
struct oom_val oom_name_shared(struct oom_frame *f, struct oom_val x);
/* One or the other: a mask that no layer takes (a shallow Gemma has no full layer) is a name of the
 * model alone, and no checkpoint holds it. */
struct oom_val oom_name_for(struct oom_frame *f, struct oom_val x, bool any_layer);
/* Gives up all names that oom_name_shared made. */
void oom_forget_shared(struct oom_frame *f);
/* A second result of the function (`return y, weights`): a temporary for the caller to name,
 * whatever name it has here. */
struct oom_val oom_give(struct oom_frame *f, struct oom_val x);
/* `return result`: all names are given up, last to first as CPython does; the result, which may have
 * had one of them, is a temporary for the caller. */
struct oom_val oom_leave(struct oom_frame *f, struct oom_val result);

/* A second result of a layer, for whoever runs the stack (`layer_outputs[1]`): the block gives it
 * before it leaves, the loop over the layers takes it after each (absent when none was given). */
void oom_give_beside(struct oom_frame *f, struct oom_val x);
struct oom_val oom_take_beside(struct oom_tape *t);

#endif
