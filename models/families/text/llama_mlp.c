/* Feed-forwards of Llama's family that differ from down(act(gate(x)) * up(x)). */
#include "llama.h"

struct oom_val oom_llama_fused_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim ff[2] = {D(a->d_ff), D(a->d_ff)}, h = {x.width, x.text};
	const char *up = llama_kind(a)->up, *down = llama_kind(a)->down;
	const unsigned bias = a->mlp_bias ? OOM_BIAS : 0;
	struct oom_frame f = {.t = t};
	struct oom_val p[2];

	x = oom_arg(&f, x);
	oom_op_split(t, oom_op_linear(t, up ? up : "gate_up_proj", x, D(2 * a->d_ff), bias), 2, ff,
		     p);
	p[0] = oom_name(&f, p[0]);              /* a view of both halves */
	p[1] = oom_op_mul(t, p[1], oom_activation(t, a->act, p[0]));
	return oom_leave(&f, oom_op_linear(t, down ? down : "down_proj", p[1], h, bias));
}

/* where(x > 0, alpha_p * x * x + beta * x, (expm1(min(x, eps)) - x) * alpha_n + beta * x),
 * written out in Python. */
static struct oom_val xielu(struct oom_tape *t, struct oom_val x)
{
	const enum oom_dtype dt = x.dt;
	struct oom_val ap, an, pos, neg, cond;
	struct oom_frame f = {.t = t};

	t->scope = "act_fn";
	ap = oom_param(t, "alpha_p", 0, 1, 0);
	an = oom_param(t, "alpha_n", 0, 1, 0);
	x = oom_arg(&f, x);
	oom_buffer(t, 1, dt);
	oom_buffer(t, 1, dt);
	ap = oom_op_unary(t, OOM_SOFTPLUS, ap);
	an = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_unary(t, OOM_SOFTPLUS, an));
	cond = oom_new(t, "x > 0", x.mono, (struct oom_dim){x.width, x.text}, OOM_U8);
	pos = oom_op_mul(t, oom_op_mul(t, ap, x), x);
	pos = oom_op_add(t, pos, oom_op_unary(t, OOM_SCALE, x));
	neg = oom_op_unary(t, OOM_EXP, oom_op_unary(t, OOM_CLAMP, x));
	neg = oom_op_mul(t, oom_op_add(t, neg, x), an);
	neg = oom_op_add(t, neg, oom_op_unary(t, OOM_SCALE, oom_take(&f, x)));
	return oom_leave(&f, oom_op_add(t, oom_op_masked(t, "where", pos, cond), neg));
}

struct oom_val oom_llama_xielu_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val y;

	x = oom_arg(&f, x);
	y = xielu(t, oom_op_linear(t, "up_proj", x, D(a->d_ff), 0));
	return oom_leave(&f, oom_op_linear(t, "down_proj", y, h, 0));
}

/* BitNet: down(norm(act(gate(x)) * up(x))). */
struct oom_val oom_llama_sub_norm_mlp(struct oom_tape *t, const struct oom_arch *a,
				      struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, ff = D(a->d_ff);
	struct oom_frame f = {.t = t};
	struct oom_val gate;

	x = oom_arg(&f, x);
	gate = oom_activation(t, a->act, oom_op_linear(t, "gate_proj", x, ff, 0));
	gate = oom_op_mul(t, gate, oom_op_linear(t, "up_proj", x, ff, 0));
	gate = oom_norm(t, a->norm, "ffn_sub_norm", gate, 0);
	return oom_leave(&f, oom_op_linear(t, "down_proj", gate, h, 0));
}

/* Moshi: both halves are picked out of one projection. */
struct oom_val oom_llama_moshi_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, ff = D(a->d_ff);
	struct oom_frame f = {.t = t};
	struct oom_val y, g;

	x = oom_arg(&f, x);
	y = oom_name(&f, oom_op_linear(t, "fc1", x, D(2 * a->d_ff), 0));
	g = oom_activation(t, a->act, oom_op_slice(t, y, y.mono, ff));
	g = oom_op_mul(t, g, oom_op_slice(t, oom_take(&f, y), y.mono, ff));
	return oom_leave(&f, oom_op_linear(t, "fc2", g, h, 0));
}

static struct oom_val experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_llama_experts *e = llama_kind(a)->experts;
	const struct oom_moe m = {.experts = a->n_experts, .top_k = a->top_k,
				  .d_expert = a->d_expert, .d_shared = a->d_shared, .act = a->act,
				  .norm_topk = llama_of(a)->norm_topk,
				  .scores_in_model_type = e->scores_cast || e->weights_cast,
				  .shared_gate = e->shared_gate,
				  .latent_bias = llama_kind(a)->bias == OOM_BIAS_ALL && a->mlp_bias,
				  .router_frozen_bias = e->frozen_bias, .topk_first = e->topk_first,
				  .gate_fp32 = e->gate_fp32, .three_results = e->three_results};

	return e->one_by_one ? oom_moe_parallel_experts(t, &m, x) : oom_moe_mlp(t, &m, x);
}

struct oom_val oom_llama_feed_forward(struct oom_tape *t, const struct oom_arch *a, bool dense,
				      struct oom_val x)
{
	const struct oom_llama_kind *k = llama_kind(a);

	if (k->experts && (!dense || k->experts->one_by_one))
		return experts(t, a, x);
	if (k->mlp)
		return k->mlp(t, a, x);
	if (k->up)
		return oom_plain_mlp(t, x, k->up, k->down, a->act, D(a->d_ff), a->mlp_bias);
	return oom_gated_mlp(t, x, a->act, D(a->d_ff), a->mlp_bias);
}
