/* The linear attention of gated delta nets (blocks/delta.c has the rule).
 * Reference: transformers 5.12, models/{qwen3_next,qwen3_5,olmo_hybrid}/modeling_*.py. */
#include "qwen3_next.h"

/* -exp(A_log) * softplus(a + dt_bias), in fp32. */
static struct oom_val decay(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t heads = delta_net_of(a)->v_heads;
	struct oom_val e = oom_param(t, "A_log", 0, heads, delta_net_kind_of(a)->olmo ? OOM_P_FP32 : 0);

	e = oom_op_unary(t, OOM_NEG, oom_op_unary(t, OOM_EXP, oom_op_cast(t, e, OOM_F32)));
	x = oom_op_cast(t, x, OOM_F32);
	x = oom_op_unary(t, OOM_SOFTPLUS, oom_op_add(t, x, oom_param(t, "dt_bias", 0, heads, 0)));
	return oom_op_mul(t, e, x);
}

static struct oom_dim key_width(const struct delta_net *n)
{
	return (struct oom_dim){n->k_heads * n->dk, "key heads * dk"};
}

static struct oom_dim value_width(const struct delta_net *n)
{
	return (struct oom_dim){n->v_heads * n->dv, "value heads * dv"};
}

/* Queries, keys and values: parts of the convolved projection. */
static void convolved(struct oom_frame *f, const struct delta_net *n, struct oom_val mixed,
		      struct delta_net_inputs *in)
{
	const struct oom_dim kd = key_width(n), parts[3] = {kd, kd, value_width(n)};
	struct oom_val p[3];

	mixed = oom_short_conv(f->t, "conv1d", mixed, n->kernel, false, OOM_ACT_SILU);
	oom_op_split(f->t, oom_name(f, mixed), 3, parts, p);
	in->q = p[0];
	in->k = p[1];
	in->v = p[2];
}

/* Qwen3-Next: two projections, interleaved by key head; every part is copied out. */
struct delta_net_inputs delta_net_project_next(struct oom_frame *f, const struct delta_net *n, struct oom_val x)
{
	const struct oom_dim kd = key_width(n), vd = value_width(n), h = {n->v_heads, "value heads"},
			     parts[4] = {kd, kd, vd, vd}, two[2] = {h, h};
	const struct oom_dim all = {2 * kd.n + 2 * vd.n, "2 * (key heads * dk + value heads * dv)"};
	struct oom_tape *t = f->t;
	struct oom_val p[4], q[2], ba, mixed;
	struct delta_net_inputs in;

	mixed = oom_name(f, oom_op_linear(t, "in_proj_qkvz", x, all, 0));
	ba = oom_op_linear(t, "in_proj_ba", x, (struct oom_dim){2 * h.n, "2 * value heads"}, 0);
	ba = oom_name(f, ba);
	oom_op_split(t, mixed, 4, parts, p);
	oom_op_split(t, ba, 2, two, q);
	/* one value head a key head: the gate stays a view until the norm */
	for (int i = 0; i < 4; i++)
		if (i < 3 || n->v_heads != n->k_heads)
			p[i] = oom_op_copy(t, "clone", p[i]);
	oom_name_each(f, p, 4);
	in.b = oom_name(f, oom_op_copy(t, "clone", q[0]));
	in.a = oom_name(f, oom_op_copy(t, "clone", q[1]));
	in.z = p[3];
	mixed = oom_op_cat3(t, p[0], p[1], p[2], (struct oom_dim){2 * kd.n + vd.n, "conv_dim"});
	convolved(f, n, mixed, &in);
	for (int i = 0; i < 3; i++)             /* names of the convolution's parts now */
		oom_forget(f, p[i]);
	return in;
}

struct delta_net_inputs delta_net_project_qwen35(struct oom_frame *f, const struct delta_net *n,
				    struct oom_val x)
{
	const struct oom_dim kd = key_width(n), vd = value_width(n), h = {n->v_heads, "value heads"},
			     all = {2 * kd.n + vd.n, "conv_dim"};
	struct oom_tape *t = f->t;
	struct oom_val mixed = oom_op_linear(t, "in_proj_qkv", x, all, 0);
	struct delta_net_inputs in;

	in.z = oom_name(f, oom_op_linear(t, "in_proj_z", x, vd, 0));
	in.b = oom_name(f, oom_op_linear(t, "in_proj_b", x, h, 0));
	in.a = oom_name(f, oom_op_linear(t, "in_proj_a", x, h, 0));
	convolved(f, n, mixed, &in);
	return in;
}

/* OLMo Hybrid: a convolution each; conv_state, the padded input, is a copy that nobody reads. */
static struct oom_val olmo_conv(struct oom_frame *f, const struct delta_net *n, const char *name,
				struct oom_val x)
{
	oom_name(f, oom_new_like(f->t, "conv_state", x, x.dt));
	return oom_short_conv(f->t, name, x, n->kernel, false, OOM_ACT_SILU);
}

struct delta_net_inputs delta_net_project_olmo(struct oom_frame *f, const struct delta_net *n, struct oom_val x)
{
	const struct oom_dim kd = key_width(n), vd = value_width(n), h = {n->v_heads, "value heads"};
	struct oom_tape *t = f->t;
	struct delta_net_inputs in = {.z = oom_none()};

	in.q = oom_op_linear(t, "q_proj", x, kd, 0);
	in.k = oom_op_linear(t, "k_proj", x, kd, 0);
	in.v = oom_op_linear(t, "v_proj", x, vd, 0);
	in.q = olmo_conv(f, n, "q_conv1d", in.q);
	in.k = olmo_conv(f, n, "k_conv1d", in.k);
	in.v = olmo_conv(f, n, "v_conv1d", in.v);
	in.b = oom_op_linear(t, "b_proj", x, h, 0);
	in.a = oom_op_linear(t, "a_proj", x, h, 0);
	return in;
}

/* beta and g, by which the rule forgets. */
static void gates(struct oom_frame *f, const struct oom_arch *a, const struct delta_net_inputs *in,
		  struct oom_val *beta, struct oom_val *g)
{
	*beta = oom_op_unary(f->t, OOM_SIGMOID, in->b);
	if (delta_net_kind_of(a)->olmo && delta_net_of(a)->neg_eigval)
		*beta = oom_op_unary(f->t, OOM_SCALE, *beta);
	*beta = oom_name(f, *beta);
	*g = oom_name(f, decay(f->t, a, in->a));
}

struct oom_val delta_net_attention(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val x)
{
	const struct delta_net_kind *kind = delta_net_kind_of(a);
	const struct delta_net *n = delta_net_of(a);
	const struct oom_delta m = delta_net_rule(n);
	const struct oom_dim h = {x.width, x.text}, all = {m.v_heads * m.dk, "value heads * dk"};
	struct oom_frame f = {.t = t};
	const char *scope = t->scope;
	struct oom_val y, beta, g;
	struct delta_net_inputs in;

	x = oom_name(&f, oom_mask_padding(t, oom_arg(&f, x), false));
	in = kind->project(&f, n, x);
	t->scope = "linear_attn";
	if (!kind->olmo)
		gates(&f, a, &in, &beta, &g);
	if (m.v_heads != m.k_heads) {
		in.q = oom_op_expand_copy(t, in.q, t->m_bs, all);
		in.k = oom_op_expand_copy(t, in.k, t->m_bs, all);
	}
	if (kind->olmo)
		gates(&f, a, &in, &beta, &g);
	in.q = oom_name(&f, in.q);
	in.k = oom_name(&f, in.k);
	in.v = oom_name(&f, in.v);
	y = oom_name(&f, oom_delta_rule(t, &m, in.q, in.k, in.v, g, beta));
	if (kind->olmo)
		in.z = oom_name(&f, oom_op_linear(t, "g_proj", x, value_width(n), 0));
	else if (kind->gate_late && m.v_heads == m.k_heads)
		in.z = oom_name(&f, oom_op_copy(t, "clone", in.z));
	y = oom_delta_norm(t, kind->olmo ? "o_norm" : "norm", y, in.z, m.dv);
	y = oom_leave(&f, oom_op_linear(t, kind->olmo ? "o_proj" : "out_proj", y, h, 0));
	t->scope = scope;
	return y;
}
