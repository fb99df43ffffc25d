/* Frames: the names of one call, given up together.  frame.h says what a name is. */
#include "frame.h"

/* Parameters, inputs and absent tensors own no storage: their names need no place. */
static struct oom_val enter(struct oom_frame *f, struct oom_val x, bool shared)
{
	int i = 0;

	if (x.sto < 0)
		return oom_keep(x);
	if (x.kept)                             /* a second name for what has one */
		x = oom_share(f->t, x);
	while (i < f->n && f->sto[i] >= 0)
		i++;
	if (i == OOM_FRAME_NAMES) {
		oom_tape_fail(f->t, OOM_ERR_LIMIT, "more than %d names in one frame",
			      OOM_FRAME_NAMES);
		return oom_keep(x);
	}
	if (i == f->n)
		f->n++;
	f->sto[i] = x.sto;
	f->shared[i] = shared;
	return oom_keep(x);
}

/* Where the frame holds h; -1: nowhere (absent, a parameter, or a bug, which the tape reports when
 * the storage is given up). */
static int find(const struct oom_frame *f, struct oom_val h)
{
	int i = f->n;

	while (i-- > 0 && (h.sto < 0 || f->sto[i] != h.sto))
		;
	return i;
}

static void give_up(struct oom_frame *f, int i)
{
	const struct oom_val v = {.sto = f->sto[i], .node = -1};

	f->sto[i] = -1;
	if (f->shared[i])
		oom_drop_shared(f->t, v);
	else
		oom_drop(f->t, v);
}

struct oom_val oom_name(struct oom_frame *f, struct oom_val x)
{
	return enter(f, x, false);
}

void oom_name_each(struct oom_frame *f, struct oom_val *x, int n)
{
	for (int i = 0; i < n; i++)
		x[i] = oom_name(f, x[i]);
}

struct oom_val oom_arg(struct oom_frame *f, struct oom_val x)
{
	return x.kept ? x : enter(f, x, false);
}

struct oom_val oom_rename(struct oom_frame *f, struct oom_val old, struct oom_val x)
{
	const int i = find(f, old);

	if (i < 0)
		return enter(f, x, false);
	if (x.kept)
		x = oom_share(f->t, x);
	give_up(f, i);
	f->sto[i] = x.sto;
	return oom_keep(x);
}

void oom_forget(struct oom_frame *f, struct oom_val h)
{
	const int i = find(f, h);

	if (i >= 0)
		give_up(f, i);
}

struct oom_val oom_take(struct oom_frame *f, struct oom_val h)
{
	const int i = find(f, h);

	if (i >= 0) {
		f->sto[i] = -1;
		h.kept = false;
	}
	return h;
}

void oom_discard(struct oom_tape *t, struct oom_val x)
{
	oom_done(t, x);
}

struct oom_val oom_name_shared(struct oom_frame *f, struct oom_val x)
{
	return enter(f, x, true);
}

struct oom_val oom_name_for(struct oom_frame *f, struct oom_val x, bool any_layer)
{
	return enter(f, x, any_layer);
}

void oom_forget_shared(struct oom_frame *f)
{
	for (int i = f->n; i-- > 0;)
		if (f->shared[i] && f->sto[i] >= 0)
			give_up(f, i);
}

struct oom_val oom_give(struct oom_frame *f, struct oom_val x)
{
	return x.kept ? oom_share(f->t, x) : x;
}

struct oom_val oom_leave(struct oom_frame *f, struct oom_val result)
{
	result = oom_give(f, result);
	while (f->n)
		give_up(f, --f->n);
	return result;
}

void oom_give_beside(struct oom_frame *f, struct oom_val x)
{
	oom_drop(f->t, f->t->side);
	f->t->side = oom_give(f, x);
}

struct oom_val oom_take_beside(struct oom_tape *t)
{
	struct oom_val x = t->side;

	t->side = oom_none();
	return x;
}
