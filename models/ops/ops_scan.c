/* Operations of recurrences and chunked scans written in Python: outer products, padding, writes
 * into a part, and loops whose turns grow with the sequence. */
#include "scan.h"

struct oom_val oom_op_mul_into(struct oom_tape *t, struct oom_val a, struct oom_val b,
			       uint16_t mono, struct oom_dim width)
{
	const bool rg = oom_wants_grad(t, a) || oom_wants_grad(t, b);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_MUL, "mul");
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
		if (oom_wants_grad(t, b))
			oom_node_save(t, n, a);
		if (oom_wants_grad(t, a))
			oom_node_save(t, n, b);
	}
	y = oom_new(t, "mul", mono, width, a.dt == b.dt ? (enum oom_dtype)a.dt : OOM_F32);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, a);
	oom_done(t, b);
	return y;
}

/* constant_pad_nd copies even when nothing is added, and so does its derivative
 * (aten/src/ATen/native/PadNd.cpp). */
struct oom_val oom_op_pad(struct oom_tape *t, struct oom_val x, uint16_t mono, struct oom_dim width)
{
	return oom_op_expand_copy(t, x, mono, width);
}

struct oom_val oom_op_set(struct oom_tape *t, struct oom_val x, struct oom_val part)
{
	if (oom_wants_grad(t, x) || oom_wants_grad(t, part)) {
		int32_t n = oom_node(t, OOM_NODE_SET_SLICE, "CopySlices");

		oom_node_edge(t, n, x);
		oom_node_edge(t, n, part);
		x = oom_node_out(t, n, 0, x);
	}
	oom_done(t, part);
	return x;
}

/* Joined or stacked: the gradient of each part is a view of the whole's. */
static struct oom_val joined(struct oom_tape *t, const char *name, const struct oom_val *x, int n,
			     uint16_t mono, struct oom_dim width)
{
	struct oom_val y;
	int32_t node = -1;
	bool rg = false;

	for (int i = 0; i < n; i++)
		rg = rg || oom_wants_grad(t, x[i]);
	if (rg) {
		node = oom_node(t, OOM_NODE_CAT, name);
		for (int i = 0; i < n; i++)
			oom_node_edge(t, node, x[i]);
	}
	y = oom_new(t, name, mono, width, (enum oom_dtype)x[0].dt);
	if (rg)
		y = oom_node_out(t, node, 0, y);
	for (int i = 0; i < n; i++)
		oom_done(t, x[i]);
	return y;
}

struct oom_val oom_op_cat3(struct oom_tape *t, struct oom_val a, struct oom_val b, struct oom_val c,
			   struct oom_dim width)
{
	return joined(t, "cat", (struct oom_val[]){a, b, c}, 3, a.mono, width);
}

struct oom_val oom_op_stack(struct oom_tape *t, const struct oom_val *x, int n, uint16_t mono,
			    struct oom_dim width)
{
	return joined(t, "stack", x, n, mono, width);
}

/* derivatives.yaml maximum: masked_fill_inplace_if_safe(where(self == other, grad / 2, grad), self < other, 0).  Both comparisons
 * and the half live until the gradient has been filled. */
struct oom_val oom_op_maximum(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	const bool rg = oom_wants_grad(t, a) || oom_wants_grad(t, b);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_CUSTOM, "maximum");
		if (n >= 0)
			t->nodes[n].temps = (struct oom_temps){.full = 1, .flags = 2};
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
		oom_node_save(t, n, a);
		oom_node_save(t, n, b);
	}
	y = oom_new_like(t, "maximum", a, OOM_F32);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, b);
	return y;
}

struct oom_val oom_op_tril(struct oom_tape *t, struct oom_val x)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_UNARY, "tril");
		oom_node_edge(t, n, x);
	}
	y = oom_new_like(t, "tril", x, (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	return y;
}

struct oom_val oom_op_sum_wide(struct oom_tape *t, struct oom_val x, uint16_t mono,
			       struct oom_dim width)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y;
	int32_t n = -1;

	if (!t->amp || x.dt == OOM_F32)
		return oom_op_sum(t, x, mono, width);
	if (rg) {
		n = oom_node(t, OOM_NODE_SUM, "sum");
		oom_node_edge(t, n, x);
	}
	y = oom_new(t, "sum", mono, width, OOM_F32);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	return y;
}

/* ---- loops ---- */

struct oom_loop oom_loop_over(struct oom_tape *t, uint32_t chunk)
{
	const uint16_t n = oom_len_chunks(t, OOM_MONO_ONE, chunk, 0);
	struct oom_loop l = {.turns = 1, .rest = oom_len_chunks(t, t->m_b, chunk, -OOM_LOOP_TURNS)};

	while (l.turns < OOM_LOOP_TURNS && oom_cond_above(t, n, (uint64_t)l.turns))
		l.turns++;
	l.more = l.turns == OOM_LOOP_TURNS && oom_cond_above(t, n, OOM_LOOP_TURNS);
	return l;
}

struct oom_val oom_loop_carry(struct oom_tape *t, const struct oom_loop *l, int turn,
			      struct oom_val x, struct oom_dim width, enum oom_dtype dt)
{
	int32_t n;
	struct oom_val rest;

	if (turn || !l->more || !oom_wants_grad(t, x) || !width.n)
		return x;
	n = oom_node(t, OOM_NODE_PASS, "turns before");
	oom_node_edge(t, n, x);
	/* a checkpointed forward pass packs what it saves away at once */
	rest = oom_new(t, "turns before", l->rest, t->packing ? (struct oom_dim){1, NULL} : width,
		       dt);
	oom_node_save(t, n, rest);
	oom_drop(t, rest);
	return oom_node_out(t, n, 0, x);
}
