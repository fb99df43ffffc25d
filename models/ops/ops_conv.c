/* Convolutions, batch and group norms, pools.
 *
 * Saved for backward (tools/autograd/derivatives.yaml): convolution its input and weight;
 * native_batch_norm its input, weight and the two batch statistics; max_pool2d_with_indices its
 * input and the int64 indices; avg_pool2d its input. Left out, as the measured rows leave them out:
 * cuDNN's workspaces (chosen by benchmark or heuristics, up to gigabytes for some algorithms) and
 * its batch norm's reserve space.  The statistics are counted in the input's type; cuDNN keeps them
 * in fp32, a few kB more. Padding, strides, dilation: torch.nn.Conv2d, "Shape". */
#include "conv.h"

enum { MAX_CHANNELS = 1 << 20 };

/* A map's size in elements, checked: 2^46 of them are far beyond any machine. */
static bool size_of(struct oom_tape *t, const char *name, uint64_t c, uint64_t h, uint64_t w,
		    uint64_t *n)
{
	if (t->status)
		return false;
	if (!c || !h || !w || c > MAX_CHANNELS || __builtin_mul_overflow(h, w, n) ||
	    __builtin_mul_overflow(*n, c, n) || *n >> 46) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "%s would make a map of %llu x %llu x %llu: check the image size, "
			      "channels and strides", name, (unsigned long long)c,
			      (unsigned long long)h, (unsigned long long)w);
		return false;
	}
	return true;
}

/* Output length along one side. */
static uint64_t side_of(uint64_t n, uint64_t kernel, uint64_t stride, uint64_t pad,
			uint64_t dilation)
{
	const uint64_t reach = dilation * (kernel - 1) + 1;

	return n + 2 * pad < reach || !stride ? 0 : (n + 2 * pad - reach) / stride + 1;
}

struct oom_map oom_map_share(struct oom_tape *t, struct oom_map m)
{
	m.x = oom_share(t, m.x);
	return m;
}

/* batch_norm(weight.reshape(1, out, -1)) with the weight's own statistics: a new weight, the old
 * one and they kept. */
static struct oom_val standardized(struct oom_tape *t, struct oom_val w, uint64_t out)
{
	const bool rg = oom_wants_grad(t, w);
	struct oom_val y, s[2];
	int32_t node = -1;

	if (rg) {
		node = oom_node(t, OOM_NODE_LAYER_NORM, "native_batch_norm");
		oom_node_edge(t, node, w);
		oom_node_save(t, node, w);
	}
	y = oom_new_like(t, "native_batch_norm", w, (enum oom_dtype)w.dt);
	for (int i = 0; i < 2; i++)
		s[i] = oom_new(t, "statistics", OOM_MONO_ONE, (struct oom_dim){out, NULL},
			       (enum oom_dtype)w.dt);
	if (rg) {
		y = oom_node_out(t, node, 0, y);
		oom_node_save(t, node, s[0]);
		oom_node_save(t, node, s[1]);
	}
	oom_drop(t, s[0]);
	oom_drop(t, s[1]);
	oom_done(t, w);
	return y;
}

/* What of a convolution is computed from its descriptor. */
struct kernel {
	uint64_t w, groups;             /* the kernel's width */
	uint64_t map_h, map_w, n;       /* the map it makes: sides and elements */
};

/* False: it cannot be; what is wrong is said. */
static bool kernel_of(struct oom_tape *t, const char *name, const struct oom_map *m, const struct oom_conv *c,
		      struct kernel *k)
{
	const uint64_t pw = c->kernel_w ? c->pad_w : c->pad, stride = c->stride ? c->stride : 1,
		       sw = c->stride_w ? c->stride_w : stride, dilation = c->dilation ? c->dilation : 1;

	*k = (struct kernel){.w = c->kernel_w ? c->kernel_w : c->kernel, .groups = c->groups ? c->groups : 1};
	k->map_h = side_of(m->h, c->kernel, stride, c->pad, dilation);
	k->map_w = side_of(m->w, k->w, sw, pw, dilation);
	if (!size_of(t, name, c->out, k->map_h, k->map_w, &k->n))
		return false;
	if (m->c % k->groups || c->out % k->groups) {
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "%s: %llu channels do not divide into %llu groups", name,
			      (unsigned long long)(m->c % k->groups ? m->c : c->out),
			      (unsigned long long)k->groups);
		return false;
	}
	return true;
}

/* With an input laid out channels last, so is the weight's gradient: AccumulateGrad copies it into
 * the weight's own layout (torch/csrc/autograd/utils/grad_layout_contract.h), where the two
 * differ: not for 1 x 1 kernels, nor single channels. */
struct oom_map oom_conv2d(struct oom_tape *t, const char *name, struct oom_map m,
			  const struct oom_conv *c)
{
	const char *scope = t->scope;
	struct oom_val weight, bias = oom_none(), x = m.x, y, arg, named;
	struct kernel k;
	bool rg;
	int32_t node = -1;

	if (!kernel_of(t, name, &m, c, &k))
		return m;
	t->scope = name;
	weight = oom_param(t, "weight", c->out * (m.c / k.groups) * c->kernel, k.w, 0);
	oom_param_stacked(t, weight, c->kernel);
	if (c->bias)
		bias = oom_param(t, "bias", 0, c->out, 0);
	if (c->standardized)
		weight = standardized(t, weight, c->out);
	arg = oom_argument(t, x);
	named = c->standardized ? oom_share(t, weight) : oom_none();
	x = oom_amp_cast(t, x);
	weight = oom_amp_cast(t, weight);
	if (c->bias)
		bias = oom_amp_cast(t, bias);
	rg = oom_wants_grad(t, x) || weight.rg || bias.rg;
	if (rg) {
		node = oom_node(t, OOM_NODE_CONV, "convolution");
		oom_node_edge(t, node, x);
		oom_node_edge(t, node, weight);
		oom_node_edge(t, node, bias);
		oom_node_save(t, node, x);
		oom_node_save(t, node, weight);
		if (node >= 0)
			t->nodes[node].turned = c->channels_last && c->kernel * k.w > 1 &&
					     m.c / k.groups > 1;
	}
	y = oom_new(t, "convolution", t->m_b, (struct oom_dim){k.n, NULL}, (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, node, 0, y);
	oom_tape_flops(t, t->m_b, 2.0 * (double)k.n * (double)(m.c / k.groups * c->kernel * k.w),
		       (enum oom_dtype)x.dt);
	oom_done(t, x);
	oom_done(t, weight);
	oom_done(t, bias);
	oom_drop(t, named);
	oom_drop(t, arg);
	t->scope = scope;
	return (struct oom_map){y, c->out, k.map_h, k.map_w};
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
	const uint64_t h = side_of(m.h, kernel, stride, pad, 1),
		       w = side_of(m.w, kernel, stride, pad, 1);
	const bool rg = oom_wants_grad(t, m.x);
	struct oom_val y, at = oom_none();
	int32_t node = -1;
	uint64_t n;

	if (!size_of(t, op, m.c, h, w, &n))
		return m;
	if (rg) {
		node = oom_node(t, OOM_NODE_GATHER, op);
		oom_node_edge(t, node, m.x);
		oom_node_save(t, node, m.x);
	}
	y = oom_new(t, op, t->m_b, (struct oom_dim){n, NULL}, (enum oom_dtype)m.x.dt);
	if (indices)
		at = oom_new(t, "pool indices", t->m_b, (struct oom_dim){n, NULL}, OOM_I64);
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
	if (!size_of(t, "cat", c, m.h, m.w, &total))
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

	if (!size_of(t, "pad", m.c, h, w, &n))
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
