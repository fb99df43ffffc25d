/* Batch and group norms, pools, padding and joins of the maps that convolutions make.
 *
 * Saved for backward (tools/autograd/derivatives.yaml): native_batch_norm its input, weight and the two batch
 * statistics; max_pool2d_with_indices its input and the int64 indices; avg_pool2d its input.  Left out, as the measured
 * rows leave it out: the reserve space of cuDNN's batch norm.  The statistics are counted in the input's type; cuDNN
 * keeps them in fp32, a few kB more. */
#include "conv.h"

struct oom_map oom_map_share(struct oom_tape *t, struct oom_map m)
{
	m.x = oom_share(t, m.x);
	return m;
}

/* Weight and bias, and stats numbers of the batch kept for backward. */
static struct oom_map norm(struct oom_tape *t, const char *op, const char *name, struct oom_map m,
			   struct oom_val x, uint16_t m_stats, uint64_t stats, enum oom_dtype dt)
{
	const char *scope = t->scope;
	struct oom_val w, b, y, s[2] = {oom_none(), oom_none()};
	int32_t node = -1;
	bool rg;

	t->scope = name;
	w = oom_param(t, "weight", 0, m.c, OOM_P_NORM);
	b = oom_param(t, "bias", 0, m.c, OOM_P_NORM);
	rg = oom_wants_grad(t, x) || w.rg || b.rg;
	if (rg) {
		node = oom_node(t, OOM_NODE_LAYER_NORM, op);
		oom_node_edge(t, node, x);
		oom_node_edge(t, node, w);
		oom_node_edge(t, node, b);
		oom_node_save(t, node, x);
		oom_node_save(t, node, w);
	}
	y = oom_new_like(t, op, x, (enum oom_dtype)x.dt);
	if (stats)
		for (int i = 0; i < 2; i++)
			s[i] = oom_new(t, "statistics", m_stats, (struct oom_dim){stats, NULL}, dt);
	if (rg) {
		y = oom_node_out(t, node, 0, y);
		oom_node_save(t, node, s[0]);
		oom_node_save(t, node, s[1]);
	}
	oom_drop(t, s[0]);
	oom_drop(t, s[1]);
	oom_done(t, x);
	t->scope = scope;
	m.x = y;
	return m;
}

struct oom_map oom_batch_norm(struct oom_tape *t, const char *name, struct oom_map m)
{
	const enum oom_dtype dt = (enum oom_dtype)m.x.dt;
	struct oom_param p = {.name = "weight", .elems = m.c, .flags = OOM_P_NORM};

	if (t->status)
		return m;
	oom_param_policy(t, &p);        /* the weight's dtype is the buffers' */
	/* running_mean, running_var, num_batches_tracked */
	oom_buffer(t, m.c, (enum oom_dtype)p.dt);
	oom_buffer(t, m.c, (enum oom_dtype)p.dt);
	oom_buffer(t, 1, OOM_I64);
	/* a batch's mean and variance are sums over all of it (cudnnBatchNormalizationForwardTraining, and its
	 * Backward, which sums the gradient with and without the input) */
	if (t->train)
		oom_tape_twice(t, m.x);
	return norm(t, "native_batch_norm", name, m, m.x, OOM_MONO_ONE, t->train ? m.c : 0, dt);
}

struct oom_map oom_group_norm(struct oom_tape *t, const char *name, struct oom_map m,
			      uint64_t groups)
{
	struct oom_val x = m.x, arg;

	if (t->status)
		return m;
	arg = oom_argument(t, x);
	if (t->amp)                             /* on autocast's fp32 list */
		x = oom_op_cast(t, x, OOM_F32);
	m = norm(t, "native_group_norm", name, m, x, t->m_b, groups, (enum oom_dtype)x.dt);
	oom_drop(t, arg);
	return m;
}

struct oom_map oom_channel_norm(struct oom_tape *t, const char *name, struct oom_map m)
{
	if (!t->status)
		m.x = oom_op_layer_norm(t, name, m.x, m.c, true, true);
	return m;
}

/* One result a window; what is kept besides the input is made by the pool. */
static struct oom_map pool(struct oom_tape *t, const char *op, struct oom_map m, uint64_t kernel,
			   uint64_t stride, uint64_t pad, bool indices)
{
	const uint64_t h = oom_map_side(m.h, kernel, stride, pad, 1),
		       w = oom_map_side(m.w, kernel, stride, pad, 1);
	const bool rg = oom_wants_grad(t, m.x);
	struct oom_val y, at = oom_none();
	int32_t node = -1;
	uint64_t n;

	if (!oom_map_elems(t, op, m.c, h, w, &n))
		return m;
	if (rg) {
		node = oom_node(t, OOM_NODE_GATHER, op);
		oom_node_edge(t, node, m.x);
		oom_node_save(t, node, m.x);
	}
	y = oom_new(t, op, m.x.mono, (struct oom_dim){n, NULL}, (enum oom_dtype)m.x.dt);
	if (indices)
		at = oom_new(t, "pool indices", m.x.mono, (struct oom_dim){n, NULL}, OOM_I64);
	if (rg) {
		y = oom_node_out(t, node, 0, y);
		if (indices)
			oom_node_save(t, node, at);
	}
	oom_drop(t, at);
	oom_done(t, m.x);
	return (struct oom_map){y, m.c, h, w};
}

struct oom_map oom_max_pool(struct oom_tape *t, struct oom_map m, uint64_t kernel, uint64_t stride,
			    uint64_t pad)
{
	return pool(t, "max_pool2d", m, kernel, stride, pad, true);
}

struct oom_map oom_avg_pool(struct oom_tape *t, struct oom_map m, uint64_t kernel, uint64_t stride,
			    uint64_t pad)
{
	return pool(t, "avg_pool2d", m, kernel, stride, pad, false);
}

struct oom_val oom_global_pool(struct oom_tape *t, struct oom_map m)
{
	return oom_op_mean(t, m.x, t->m_b, (struct oom_dim){m.c, "channels"});
}

struct oom_map oom_cat_maps(struct oom_tape *t, const struct oom_map *part, int n)
{
	struct oom_map m = part[0];
	struct oom_val whole;
	uint64_t total = 0, c = 0;
	bool rg = false;

	for (int i = 0; i < n; i++) {
		rg |= oom_wants_grad(t, part[i].x);
		c += part[i].c;
	}
	if (!oom_map_elems(t, "cat", c, m.h, m.w, &total))
		return m;
	/* a node has few edges: further parts are joined to what has been joined, which owns no
	 * storage of its own */
	whole = part[0].x;
	for (int i = 1; i < n; i += 3) {
		const bool last = i + 3 >= n;
		uint64_t width = whole.width;
		struct oom_val y = oom_none();
		int32_t node = -1;

		if (rg) {
			node = oom_node(t, OOM_NODE_CAT, "cat");
			oom_node_edge(t, node, whole);
		}
		for (int j = i; j < n && j < i + 3; j++) {
			width += part[j].x.width;
			if (rg)
				oom_node_edge(t, node, part[j].x);
		}
		if (last)
			y = oom_new(t, "cat", t->m_b, (struct oom_dim){total, NULL},
				    (enum oom_dtype)m.x.dt);
		y.mono = t->m_b;
		y.width = width;
		y.dt = m.x.dt;
		if (rg)
			y = oom_node_out(t, node, 0, y);
		whole = y;
	}
	if (n == 1)
		return m;
	for (int i = 0; i < n; i++)
		oom_done(t, part[i].x);
	return (struct oom_map){whole, c, m.h, m.w};
}

struct oom_map oom_pad_map(struct oom_tape *t, struct oom_map m, uint64_t h, uint64_t w)
{
	uint64_t n;

	if (!oom_map_elems(t, "pad", m.c, h, w, &n))
		return m;
	m.x = oom_op_expand_copy(t, m.x, t->m_b, (struct oom_dim){n, NULL});
	m.h = h;
	m.w = w;
	return m;
}

struct oom_map oom_map_act(struct oom_tape *t, enum oom_act act, struct oom_map m)
{
	if (!t->status)
		m.x = oom_activation(t, act, m.x);
	return m;
}

struct oom_map oom_conv_bn_act(struct oom_tape *t, struct oom_map m, const struct oom_conv *c,
			       enum oom_act act)
{
	struct oom_val held = oom_share(t, m.x);

	m = oom_map_act(t, act,
			oom_batch_norm(t, "normalization", oom_conv2d(t, "convolution", m, c)));
	oom_drop(t, held);
	return m;
}

struct oom_val oom_drop_path(struct oom_tape *t, struct oom_val x)
{
	struct oom_val held = oom_share(t, x), y;

	if (!t->train) {
		oom_drop(t, held);
		return x.kept ? oom_share(t, x) : x;
	}
	y = oom_op_unary(t, OOM_SCALE, x);
	y = oom_op_mul(t, y, oom_new(t, "drop path", t->m_b, D(1), (enum oom_dtype)y.dt));
	oom_drop(t, held);
	return y;
}

uint16_t oom_length_of(struct oom_tape *t, uint64_t n)
{
	return oom_len_const(t, OOM_MONO_ONE, n);
}

uint16_t oom_tokens_of(struct oom_tape *t, uint64_t n)
{
	return oom_mono_mul(t, t->m_b, oom_length_of(t, n));
}

struct oom_val oom_map_tokens(struct oom_tape *t, struct oom_map m)
{
	return oom_op_view(t, m.x, oom_tokens_of(t, m.h * m.w), (struct oom_dim){m.c, "channels"});
}
