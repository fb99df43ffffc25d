/* Convolutions: over rows of tokens, over frames, over images.
 *
 * Saved for backward (tools/autograd/derivatives.yaml): the input and the weight.  Left out, as the measured rows leave
 * it out: cuDNN's workspaces (chosen by benchmark or heuristics, up to gigabytes for some algorithms).  Padding,
 * strides, dilation: torch.nn.Conv2d, "Shape". */
#include "conv.h"

/* ---- the operation ---- */

/* x with weight w, whose products per element of the result are `each`; turned: of the weight's gradient, as of a node.
 * Autocast's casts are its own. */
static struct oom_val convolved(struct oom_tape *t, struct oom_val x, struct oom_val w, struct oom_val bias,
				uint16_t mono, struct oom_dim width, uint64_t each, bool turned)
{
	struct oom_val y;
	const bool trains = oom_trains(t, w);
	bool rg;
	int32_t n = -1;

	oom_amp_cast_all(t, (struct oom_val *[]){&x, &w, &bias}, 3);
	rg = oom_wants_grad(t, x) || w.rg || bias.rg;
	if (rg) {
		n = oom_node(t, OOM_NODE_CONV, "convolution");
		oom_node_edge(t, n, x);
		oom_node_edge(t, n, w);
		oom_node_edge(t, n, bias);
		oom_node_save(t, n, x);
		oom_node_save(t, n, w);
		if (n >= 0)
			t->nodes[n].turned = turned;
	}
	y = oom_new(t, "convolution", mono, width, (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_tape_flops(t, mono, 2.0 * (double)width.n * (double)each, (enum oom_dtype)x.dt, trains);
	oom_done(t, x);
	oom_done(t, w);
	oom_done(t, bias);
	return y;
}

struct oom_val oom_op_conv_param(struct oom_tape *t, struct oom_val x, struct oom_val w,
				 struct oom_val bias, uint16_t mono, struct oom_dim width)
{
	const struct oom_val arg = oom_argument(t, x);
	const struct oom_val y = convolved(t, x, w, bias, mono, width, w.width / (width.n ? width.n : 1), false);

	oom_drop(t, arg);
	return y;
}

/* ---- over tokens and frames ---- */

/* mid: the dimension before the weight's last where it has three or more, 0 where nobody asks; biases 0: none. */
static struct oom_val conv(struct oom_tape *t, const char *name, struct oom_val x, uint64_t rows,
			   uint64_t cols, uint64_t mid, uint64_t biases, uint16_t mono,
			   struct oom_dim width)
{
	const char *scope = t->scope;
	struct oom_val w, bias = oom_none(), y;

	t->scope = name;
	w = oom_param(t, "weight", rows, cols, 0);
	oom_param_stacked(t, w, mid);
	if (biases)
		bias = oom_param(t, "bias", 0, biases, 0);
	y = oom_op_conv_param(t, x, w, bias, mono, width);
	t->scope = scope;
	return y;
}

struct oom_val oom_op_conv(struct oom_tape *t, const char *name, struct oom_val x, uint64_t rows,
			   uint64_t cols, bool has_bias, uint16_t mono, struct oom_dim width)
{
	return conv(t, name, x, rows, cols, 0, has_bias ? rows : 0, mono, width);
}

struct oom_val oom_op_conv_square(struct oom_tape *t, const char *name, struct oom_val x, uint64_t planes, uint64_t kernel,
				  bool has_bias, uint16_t mono, struct oom_dim out)
{
	return conv(t, name, x, out.n * planes * kernel, kernel, kernel, has_bias ? out.n : 0, mono, out);
}

struct oom_val oom_op_conv_depthwise(struct oom_tape *t, const char *name, struct oom_val x,
				     uint64_t kernel, bool has_bias, uint16_t mono,
				     struct oom_dim width)
{
	return conv(t, name, x, width.n, kernel, 1, has_bias ? width.n : 0, mono, width);
}

struct oom_val oom_op_conv1d(struct oom_tape *t, const char *name, struct oom_val x,
			     const struct oom_conv1d *c, uint16_t mono)
{
	const uint64_t in = c->groups ? c->in / c->groups : c->in;
	const char *scope = t->scope;
	struct oom_val w, bias = oom_none(), y;

	if (!in || !c->out || !c->kernel) {
		oom_tape_impossible(t, OOM_ERR_INVALID,
			      "%s would be a convolution of %llu x %llu x %llu: check channels and "
			      "kernel sizes", name, (unsigned long long)c->out,
			      (unsigned long long)in, (unsigned long long)c->kernel);
		return x;
	}
	t->scope = name;
	w = oom_param(t, "weight", c->out * in, c->kernel, 0);
	oom_param_stacked(t, w, in);
	if (c->bias)
		bias = oom_param(t, "bias", 0, c->out, 0);
	y = convolved(t, x, w, bias, mono, (struct oom_dim){c->out, NULL}, in * c->kernel, false);
	t->scope = scope;
	return y;
}

/* ---- over images ---- */

enum { MAX_CHANNELS = 1 << 20 };

/* A map's size in elements, checked: 2^46 of them are far beyond any machine. */
bool oom_map_elems(struct oom_tape *t, const char *name, uint64_t c, uint64_t h, uint64_t w,
		    uint64_t *n)
{
	if (t->status)
		return false;
	if (!c || !h || !w || c > MAX_CHANNELS || __builtin_mul_overflow(h, w, n) ||
	    __builtin_mul_overflow(*n, c, n) || *n >> 46) {
		oom_tape_impossible(t, OOM_ERR_INVALID,
			      "%s would make a map of %llu x %llu x %llu: check the image size, "
			      "channels and strides", name, (unsigned long long)c,
			      (unsigned long long)h, (unsigned long long)w);
		return false;
	}
	return true;
}

/* Output length along one side. */
uint64_t oom_map_side(uint64_t n, uint64_t kernel, uint64_t stride, uint64_t pad,
			uint64_t dilation)
{
	const uint64_t reach = dilation * (kernel - 1) + 1;

	return n + 2 * pad < reach || !stride ? 0 : (n + 2 * pad - reach) / stride + 1;
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
	k->map_h = oom_map_side(m->h, c->kernel, stride, c->pad, dilation);
	k->map_w = oom_map_side(m->w, k->w, sw, pw, dilation);
	if (!oom_map_elems(t, name, c->out, k->map_h, k->map_w, &k->n))
		return false;
	if (m->c % k->groups || c->out % k->groups) {
		oom_tape_impossible(t, OOM_ERR_INVALID,
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
	struct oom_val weight, bias = oom_none(), y, arg, named;
	struct kernel k;

	if (!kernel_of(t, name, &m, c, &k))
		return m;
	t->scope = name;
	weight = oom_param(t, "weight", c->out * (m.c / k.groups) * c->kernel, k.w, 0);
	oom_param_stacked(t, weight, c->kernel);
	if (c->bias)
		bias = oom_param(t, "bias", 0, c->out, 0);
	if (c->standardized)
		weight = standardized(t, weight, c->out);
	arg = oom_argument(t, m.x);
	named = c->standardized ? oom_share(t, weight) : oom_none();
	y = convolved(t, m.x, weight, bias, t->m_b, (struct oom_dim){k.n, NULL}, m.c / k.groups * c->kernel * k.w,
		      c->channels_last && c->kernel * k.w > 1 && m.c / k.groups > 1);
	oom_drop(t, named);
	oom_drop(t, arg);
	t->scope = scope;
	return (struct oom_map){y, c->out, k.map_h, k.map_w};
}
