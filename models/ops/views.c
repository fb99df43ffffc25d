/* Views and copies of them, parts and their joining, reductions and expansions. */
#include "ops.h"

struct oom_val oom_op_view(struct oom_tape *t, struct oom_val x, uint16_t mono,
			   struct oom_dim width)
{
	if (x.kept)
		x = oom_share(t, x);
	x.mono = mono;
	x.width = width.n;
	x.text = width.text;
	return x;
}

static struct oom_val pass(struct oom_tape *t, uint8_t kind, const char *name, struct oom_val x)
{
	if (x.kept)
		x = oom_share(t, x);
	if (oom_wants_grad(t, x)) {
		int32_t n = oom_node(t, kind, name);

		oom_node_edge(t, n, x);
		x = oom_node_out(t, n, 0, x);
	}
	return x;
}

struct oom_val oom_op_heads(struct oom_tape *t, struct oom_val x)
{
	x = pass(t, OOM_NODE_HEADS, "transpose", x);
	x.perm = true;
	return x;
}

struct oom_val oom_op_copy(struct oom_tape *t, const char *name, struct oom_val x)
{
	struct oom_val y;
	int32_t n = -1;
	const bool rg = oom_wants_grad(t, x);

	if (rg) {
		n = oom_node(t, OOM_NODE_PASS, name);
		oom_node_edge(t, n, x);
	}
	y = oom_new_like(t, name, x, (enum oom_dtype)x.dt);
	y.perm = false;
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	return y;
}

struct oom_val oom_op_merge_heads(struct oom_tape *t, struct oom_val x)
{
	const bool view = x.perm;

	x = pass(t, OOM_NODE_MERGE, "transpose", x);
	if (!view)
		x = oom_op_copy(t, "clone", x);
	x.perm = false;
	return x;
}

struct oom_val oom_op_temper(struct oom_tape *t, struct oom_val x, uint16_t view)
{
	oom_forget_casts(t, x);
	x = pass(t, OOM_NODE_IN_VIEW, "div_", x);
	if (x.node >= 0) {
		t->nodes[x.node].aux_mono = view;
		t->nodes[x.node].aux_width = x.width;
	}
	return x;
}

struct oom_val oom_op_slice(struct oom_tape *t, struct oom_val x, uint16_t mono,
			    struct oom_dim width)
{
	int32_t n = -1;
	const bool rg = oom_wants_grad(t, x);

	if (rg) {
		n = oom_node(t, OOM_NODE_SLICE, "slice");
		oom_node_edge(t, n, x);
	}
	x = oom_op_view(t, x, mono, width);
	return rg ? oom_node_out(t, n, 0, x) : x;
}

struct oom_val oom_op_over(struct oom_tape *t, const char *name, struct oom_val x)
{
	return pass(t, OOM_NODE_WHERE, name, x);
}

struct oom_val oom_op_viewed(struct oom_tape *t, struct oom_val x)
{
	return pass(t, OOM_NODE_PASS, "view", x);
}

struct oom_val oom_op_add_in_view(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	oom_forget_casts(t, a);
	if (oom_wants_grad(t, a) || oom_wants_grad(t, b)) {
		const int32_t n = oom_node(t, OOM_NODE_SET_SLICE, "CopySlices");

		if (n >= 0)
			t->nodes[n].added = true;
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
		a = oom_node_out(t, n, 0, a);
	}
	oom_done(t, b);
	return a;
}

struct oom_val oom_op_as_strided(struct oom_tape *t, struct oom_val x, uint16_t mono,
				 struct oom_dim width, bool turned)
{
	const bool rg = oom_wants_grad(t, x);
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_AS_STRIDED, "as_strided");
		if (n >= 0)                     /* not where a checkpointed forward packs */
			t->nodes[n].turned = turned;
		oom_node_edge(t, n, x);
	}
	x = oom_op_view(t, x, mono, width);
	return rg ? oom_node_out(t, n, 0, x) : x;
}

void oom_op_split(struct oom_tape *t, struct oom_val x, int n_parts, const struct oom_dim *widths,
		  struct oom_val *out)
{
	int32_t n = -1;
	const bool rg = oom_wants_grad(t, x);

	if (rg) {
		n = oom_node(t, OOM_NODE_SPLIT, "split");
		oom_node_edge(t, n, x);
	}
	for (int i = 0; i < n_parts; i++) {
		out[i] = oom_op_view(t, oom_keep(x), x.mono, widths[i]);
		if (rg)
			out[i] = oom_node_out(t, n, (uint8_t)i, out[i]);
	}
	oom_done(t, x);
}

struct oom_val oom_op_cat(struct oom_tape *t, struct oom_val a, struct oom_val b,
			  struct oom_dim width)
{
	return oom_op_cat_into(t, a, b, oom_larger(t, a, b).mono, width);
}

struct oom_val oom_op_cat_into(struct oom_tape *t, struct oom_val a, struct oom_val b,
			       uint16_t mono, struct oom_dim width)
{
	const bool rg = oom_wants_grad(t, a) || oom_wants_grad(t, b);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_CAT, "cat");
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
	}
	y = oom_new(t, "cat", mono, width, oom_promote(a, b));
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, a);
	oom_done(t, b);
	return y;
}

/* ---- reductions and expansions ---- */

static struct oom_val resized(struct oom_tape *t, uint8_t kind, const char *name, struct oom_val x,
			      uint16_t mono, struct oom_dim width)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, kind, name);
		oom_node_edge(t, n, x);
	}
	y = oom_new(t, name, mono, width, (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	return y;
}

struct oom_val oom_op_mean(struct oom_tape *t, struct oom_val x, uint16_t mono,
			   struct oom_dim width)
{
	return resized(t, OOM_NODE_MEAN, "mean", x, mono, width);
}

struct oom_val oom_op_sum(struct oom_tape *t, struct oom_val x, uint16_t mono, struct oom_dim width)
{
	return resized(t, OOM_NODE_SUM, "sum", x, mono, width);
}

struct oom_val oom_op_expand_copy(struct oom_tape *t, struct oom_val x, uint16_t mono,
				  struct oom_dim width)
{
	return resized(t, OOM_NODE_EXPAND, "clone", x, mono, width);
}

struct oom_val oom_op_expand(struct oom_tape *t, struct oom_val x, uint16_t mono,
			     struct oom_dim width)
{
	int32_t n = -1;
	const bool rg = oom_wants_grad(t, x);

	if (rg) {
		n = oom_node(t, OOM_NODE_EXPAND, "expand");
		oom_node_edge(t, n, x);
	}
	x = oom_op_view(t, x, mono, width);
	x.perm = true;                          /* not contiguous: whoever folds it copies it */
	return rg ? oom_node_out(t, n, 0, x) : x;
}
