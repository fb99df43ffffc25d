/* Elementwise operations, views, reductions, norms and lookups against PyTorch (measured/ops.csv;
 * the same cases in Python: tests/tools/measured/ops.py). */
#include "blocks/mixers.h"
#include "tape_case.h"

#define UNARY(name, f) CASE(name, 64) { return oom_op_unary(t, f, x); }

UNARY(relu, OOM_RELU)
UNARY(gelu, OOM_GELU)
UNARY(silu, OOM_SILU)
UNARY(tanh, OOM_TANH)
UNARY(sigmoid, OOM_SIGMOID)
UNARY(exp, OOM_EXP)
UNARY(log, OOM_LOG)
UNARY(square, OOM_SQUARE)
UNARY(pow, OOM_POW)
UNARY(rsqrt, OOM_RSQRT)
UNARY(sqrt, OOM_SQRT)
UNARY(neg, OOM_NEG)
UNARY(scale, OOM_SCALE)
UNARY(softplus, OOM_SOFTPLUS)
UNARY(cos, OOM_COS)
UNARY(abs, OOM_ABS)
UNARY(hardswish, OOM_HARDSWISH)
UNARY(hardsigmoid, OOM_HARDSIGMOID)
UNARY(leaky_relu, OOM_LEAKY_RELU)
UNARY(elu, OOM_ELU)
UNARY(mish, OOM_MISH)
UNARY(clamp, OOM_CLAMP)
UNARY(clamp_max, OOM_CLAMP_SIDE)
UNARY(add_scalar, OOM_ADD_SCALAR)
UNARY(logsigmoid, OOM_LOGSIGMOID)
UNARY(relu6, OOM_RELU6)
UNARY(cumsum, OOM_CUMSUM)
UNARY(erf, OOM_ERF)
UNARY(maximum, OOM_MAXIMUM)

static struct oom_val part(struct oom_tape *t, struct oom_val x, uint64_t width)
{
	return oom_op_slice(t, x, x.mono, (struct oom_dim){width, "width"});
}

CASE(unary_of_slice, 64) { return oom_op_unary(t, OOM_SILU, part(t, x, 48)); }

/* ---- functions of two ---- */

static struct oom_val weight(struct oom_tape *t, uint64_t n)
{
	return oom_param(t, "weight", 0, n, 0);
}

/* An input that was there before the step. */
static struct oom_val constant(struct oom_tape *t, uint16_t mono, uint64_t width)
{
	return oom_input(t, "constant", mono, width, tape_dtype(t));
}

CASE(add, 64) { return oom_op_add(t, x, tape_in(t, 64)); }
CASE(add_weight, 64) { return oom_op_add(t, x, weight(t, 64)); }
CASE(add_same, 64) { return oom_op_add(t, oom_keep(x), x); }
CASE(add_of_types, 64) { return oom_op_add(t, x, tape_input(t, t->m_bs, 64, OOM_F32)); }
CASE(add_positions, 64) { return oom_op_add(t, x, tape_input(t, t->m_s, 64, tape_dtype(t))); }
CASE(add_outer, 64)
{
	oom_drop(t, x);
	return oom_op_add_into(t, tape_in(t, 16), tape_input(t, t->m_b, 24 * 16, tape_dtype(t)),
			       t->m_bs, D(24 * 16));
}
CASE(add_in_place, 64)
{
	return oom_op_add_inplace(t, oom_op_unary(t, OOM_SILU, x), tape_in(t, 64));
}
CASE(mul, 64) { return oom_op_mul(t, x, tape_in(t, 64)); }
CASE(mul_weight, 64) { return oom_op_mul(t, x, weight(t, 64)); }
CASE(mul_same, 64) { return oom_op_mul(t, oom_keep(x), x); }
CASE(mul_column, 64) { return oom_op_mul(t, x, tape_in(t, 1)); }
CASE(mul_constant, 64) { return oom_op_mul(t, x, constant(t, t->m_bs, 1)); }
CASE(mul_of_types, 64) { return oom_op_mul(t, x, tape_input(t, t->m_bs, 64, OOM_F32)); }
CASE(mul_outer, 64)
{
	oom_drop(t, x);
	return oom_op_mul_into(t, tape_in(t, 16), tape_input(t, t->m_b, 24 * 16, tape_dtype(t)),
			       t->m_bs, D(24 * 16));
}
CASE(div, 64) { return oom_op_div(t, x, tape_in(t, 64)); }
CASE(div_sum, 64)
{
	struct oom_val sum = oom_op_sum_wide(t, oom_keep(x), x.mono, D(1));

	return oom_op_div(t, x, sum);
}
CASE(div_constant, 64) { return oom_op_div(t, x, constant(t, t->m_bs, 1)); }

/* ---- differences, quotients in place, sums of logarithms ---- */

CASE(sub, 64) { return oom_op_sub(t, x, tape_in(t, 64)); }
CASE(sub_same, 64) { return oom_op_sub(t, oom_keep(x), x); }
CASE(sub_weight, 64) { return oom_op_sub(t, x, weight(t, 64)); }
CASE(div_weight, 64) { return oom_op_div(t, x, weight(t, 64)); }
CASE(div_in_place, 64)
{
	struct oom_val y = oom_op_unary(t, OOM_GELU, x);
	struct oom_val sum = oom_op_sum(t, oom_keep(y), y.mono, D(1));

	return oom_op_div_inplace(t, y, sum);
}
CASE(div_in_place_of_types, 64)
{
	struct oom_val y = oom_op_unary(t, OOM_GELU, x);
	struct oom_val sum = oom_op_sum(t, oom_op_cast(t, oom_keep(y), OOM_F32), y.mono, D(1));

	return oom_op_div_inplace(t, y, sum);
}
CASE(log_add, 64) { return oom_op_log_add(t, x, tape_in(t, 64)); }
CASE(log_add_shifted, 64)
{
	x = oom_op_unary(t, OOM_ADD_SCALAR, x);
	return oom_op_log_add(t, x, oom_op_unary(t, OOM_ADD_SCALAR, tape_in(t, 64)));
}
CASE(at_least, 64) { return oom_op_at_least(t, x); }
/* kl_div(a, b, log_target=True): exp(b) * (b - a) */
CASE(divergence, 64)
{
	const struct oom_val a = oom_op_log_softmax(t, x), b = oom_op_log_softmax(t, tape_in(t, 64));
	struct oom_val y = oom_op_unary(t, OOM_EXP, oom_keep(b));

	y = oom_op_mul(t, y, oom_op_sub(t, oom_keep(b), oom_keep(a)));
	oom_drop(t, a);
	oom_drop(t, b);
	return y;
}
CASE(dropout_in_place, 64) { return oom_op_dropout_inplace(t, oom_op_unary(t, OOM_SILU, x), 0.1); }
CASE(dropout_residual, 64)
{
	struct oom_val y = oom_op_dropout(t, oom_op_unary(t, OOM_SILU, oom_keep(x)), 0.1);

	return oom_op_add(t, x, y);
}

/* ---- chains ---- */

CASE(gate, 64)
{
	const struct oom_dim half[2] = {D(32), D(32)};
	struct oom_val p[2];

	oom_op_split(t, x, 2, half, p);
	const struct oom_val names[2] = {oom_share(t, p[0]), oom_share(t, p[1])};

	x = oom_op_mul(t, oom_op_unary(t, OOM_GELU, p[0]), p[1]);
	oom_drop(t, names[0]);
	oom_drop(t, names[1]);
	return x;
}
CASE(swish_by_hand, 64)
{
	struct oom_val y = oom_op_unary(t, OOM_SCALE, oom_keep(x));

	return oom_op_mul(t, x, oom_op_unary(t, OOM_SIGMOID, y));
}
/* h is bound anew, which drops what it was; the product saves what it multiplies */
CASE(rms_by_hand, 64)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const struct oom_val w = weight(t, 64);
	struct oom_val h = oom_op_cast(t, x, OOM_F32);
	struct oom_val r = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, oom_keep(h)), h.mono, D(1));

	r = oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, r));
	h = oom_op_mul(t, h, r);
	const struct oom_val name = oom_share(t, h);

	h = oom_op_mul(t, w, oom_op_cast(t, h, dt));
	oom_drop(t, name);
	return h;
}
CASE(normalised, 64)
{
	struct oom_val d = oom_op_sub(t, oom_keep(x), oom_op_mean(t, oom_keep(x), x.mono, D(1)));
	struct oom_val r = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, x), x.mono, D(1));

	return oom_op_div(t, d, oom_op_unary(t, OOM_SQRT, oom_op_unary(t, OOM_ADD_SCALAR, r)));
}

/* ---- types ---- */

CASE(to_fp32, 64) { return oom_op_cast(t, x, OOM_F32); }
CASE(to_bf16, 64) { return oom_op_cast(t, x, OOM_DT_BF16); }
CASE(there_and_back, 64)
{
	return oom_op_cast(t, oom_op_unary(t, OOM_SILU, oom_op_cast(t, x, OOM_F32)), tape_dtype(t));
}

/* ---- one tensor used more than once ---- */

CASE(residual, 64) { return oom_op_add(t, x, oom_op_unary(t, OOM_SILU, oom_keep(x))); }
CASE(three_uses, 64)
{
	struct oom_val a = oom_op_unary(t, OOM_SILU, oom_keep(x));

	a = oom_op_add(t, a, oom_op_unary(t, OOM_GELU, oom_keep(x)));
	return oom_op_add(t, a, oom_op_unary(t, OOM_TANH, x));
}
CASE(residual_of_slice, 64)
{
	struct oom_val a = part(t, oom_keep(x), 48);

	return oom_op_add(t, a, part(t, x, 48));
}
CASE(weight_twice, 64)
{
	struct oom_val w = weight(t, 64);

	return oom_op_mul(t, oom_op_mul(t, x, w), w);
}

/* ---- views ---- */

CASE(heads, 64) { return oom_op_heads(t, x); }
CASE(heads_and_back, 64) { return oom_op_merge_heads(t, oom_op_heads(t, x)); }
CASE(heads_silu_and_back, 64)
{
	return oom_op_merge_heads(t, oom_op_unary(t, OOM_SILU, oom_op_heads(t, x)));
}
CASE(merge_contiguous, 64)
{
	return oom_op_merge_heads(t, oom_op_copy(t, "clone", oom_op_heads(t, x)));
}
CASE(clone, 64) { return oom_op_copy(t, "clone", x); }
CASE(slice_, 64) { return part(t, x, 48); }
CASE(split, 64)
{
	const struct oom_dim half[2] = {D(32), D(32)};
	struct oom_val p[2];

	oom_op_split(t, x, 2, half, p);
	return oom_op_mul(t, p[0], p[1]);
}
CASE(split_three, 64)
{
	const struct oom_dim parts[3] = {D(32), D(16), D(16)};
	struct oom_val p[3], a, b;

	oom_op_split(t, oom_op_unary(t, OOM_SILU, x), 3, parts, p);
	a = oom_op_unary(t, OOM_SCALE, oom_keep(p[0]));
	b = oom_op_mul(t, p[1], p[2]);
	a = oom_op_cat(t, a, b, D(48));
	oom_drop(t, p[0]);
	return a;
}
CASE(cat, 64) { return oom_op_cat(t, x, tape_in(t, 32), D(96)); }
CASE(cat_of_types, 64) { return oom_op_cat(t, x, tape_input(t, t->m_bs, 64, OOM_F32), D(128)); }
CASE(cat_same, 64) { return oom_op_cat(t, oom_keep(x), x, D(128)); }
CASE(cat_tokens, 64) { return oom_op_cat_into(t, x, tape_in(t, 64), t->m_bs, D(128)); }
CASE(cat_frozen, 64) { return oom_op_cat(t, x, constant(t, t->m_bs, 32), D(96)); }

/* ---- reductions and expansions ---- */

CASE(mean, 64) { return oom_op_mean(t, x, x.mono, D(1)); }
CASE(mean_of_square, 64) { return oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, x), x.mono, D(1)); }
CASE(sum_, 64) { return oom_op_sum_wide(t, x, x.mono, D(1)); }
CASE(sum_of_heads, 64) { return oom_op_sum_wide(t, oom_op_heads(t, x), x.mono, D(16)); }
CASE(expand, 64) { return oom_op_expand(t, x, x.mono, D(192)); }
CASE(expand_copy, 64) { return oom_op_expand_copy(t, x, x.mono, D(192)); }
CASE(expand_weight, 64)
{
	return oom_op_add(t, x, oom_op_expand(t, weight(t, 64), t->m_b, D(64)));
}

/* ---- softmax, dropout, masks ---- */

CASE(softmax, 64) { return oom_op_softmax(t, x, false); }
CASE(softmax_fp32, 64) { return oom_op_softmax(t, x, true); }
CASE(log_softmax, 64) { return oom_op_log_softmax(t, x); }
CASE(dropout, 64) { return oom_op_dropout(t, x, 0.1); }
CASE(dropout_0, 64) { return oom_op_dropout(t, oom_op_unary(t, OOM_SILU, x), 0); }
CASE(masked_fill, 64)
{
	return oom_op_masked(t, "masked_fill", x, tape_input(t, t->m_bs, 64, OOM_U8));
}
CASE(masked_fill_in_place, 64)
{
	struct oom_val y = oom_op_unary(t, OOM_GELU, x);

	return oom_op_masked_inplace(t, y, tape_input(t, t->m_bs, 64, OOM_U8));
}

/* ---- norms ---- */

CASE(layer_norm, 64) { return oom_op_layer_norm(t, "norm", x, 0, true, true); }
CASE(layer_norm_no_bias, 64) { return oom_op_layer_norm(t, "norm", x, 0, true, false); }
CASE(layer_norm_plain, 64) { return oom_op_layer_norm(t, "norm", x, 0, false, false); }
CASE(layer_norm_heads, 64) { return oom_op_layer_norm(t, "norm", x, 16, true, true); }
CASE(layer_norm_of_used, 64)
{
	return oom_op_add(t, x, oom_op_layer_norm(t, "norm", oom_keep(x), 0, true, true));
}
CASE(layer_norm_1p, 64) { return oom_op_layer_norm_1p(t, "norm", x); }

/* ---- lookups ---- */

static struct oom_val ids(struct oom_tape *t)
{
	return oom_input(t, "ids", t->m_bs, 1, OOM_I64);
}

CASE_OF_NOTHING(embedding) { return oom_op_embedding(t, "embed", ids(t), 1000, D(64), 0); }
CASE_OF_NOTHING(embedding_twice)
{
	struct oom_val w = oom_param(t, "weight", 1000, 64, OOM_P_EMBEDDING);
	struct oom_val a = oom_op_embedding_param(t, w, ids(t), 1000, D(64));

	return oom_op_add(t, a, oom_op_embedding_param(t, w, ids(t), 1000, D(64)));
}
CASE(rows, 64)
{
	return oom_op_gather(t, "index", x, tape_input(t, t->m_bs, 2, OOM_I64), t->m_bs, D(2 * 64));
}
CASE(index_select, 64)
{
	return oom_op_gather(t, "index", x, tape_input(t, t->m_bs, 2, OOM_I64), t->m_bs, D(2 * 64));
}
CASE(topk, 64)
{
	struct oom_val index = tape_input(t, t->m_bs, 8, OOM_I64);

	return oom_op_gather(t, "topk", x, index, t->m_bs, D(8));
}

int main(void)
{
	return tape_cases_check("ops") != 0;
}
