/* Matrix multiplies, adapters and 4-bit weights against PyTorch (measured/linear.csv; the same cases
 * in Python: tests/tools/measured/linear.py). */
#include "tape_case.h"

CASE(linear, 64) { return oom_op_linear(t, "proj", x, D(96), 0); }
CASE(linear_bias, 64) { return oom_op_linear(t, "proj", x, D(96), OOM_BIAS); }
CASE(linear_of_heads, 64) { return oom_op_linear_in(t, "proj", x, 16, D(24), 0); }
CASE(linear_of_turned, 64) { return oom_op_linear_in(t, "proj", oom_op_heads(t, x), 16, D(24), 0); }
CASE(linear_of_turned_frozen, 64)
{
	struct oom_val w = oom_param(t, "weight", 24, 16, OOM_P_LINEAR | OOM_P_FROZEN);

	return oom_op_matmul_param(t, "proj", oom_op_heads(t, x), w, oom_none(), D(24));
}
CASE(linear_frozen_bias, 64)
{
	struct oom_val w = oom_param(t, "weight", 96, 64, OOM_P_LINEAR);

	return oom_op_matmul_param(t, "proj", x, w, oom_param(t, "bias", 0, 96, OOM_P_FROZEN), D(96));
}
CASE(conv1d, 64) { return oom_op_linear(t, "proj", x, D(96), OOM_BIAS | OOM_CONV1D); }
CASE(not_leaf, 64) { return oom_op_linear(t, "proj", x, D(96), OOM_NOT_LEAF); }
CASE(linear_twice, 64)
{
	struct oom_linear l;

	oom_linear_open(t, &l, "proj", 64, D(64), 0);
	return oom_linear_run(t, &l, oom_linear_run(t, &l, x));
}
CASE(mlp, 64)
{
	x = oom_op_linear(t, "up", x, D(96), OOM_BIAS);
	return oom_op_linear(t, "down", oom_op_unary(t, OOM_RELU, x), D(64), OOM_BIAS);
}
CASE(three_projections, 64)
{
	struct oom_val q = oom_op_linear(t, "q", oom_keep(x), D(96), 0);
	struct oom_val k = oom_op_linear(t, "k", oom_keep(x), D(96), 0);
	const struct oom_val name = k;

	q = oom_op_mul(t, q, oom_keep(k));
	q = oom_op_add(t, q, oom_op_linear(t, "v", x, D(96), 0));
	oom_drop(t, name);
	return q;
}
CASE(unused, 64)
{
	oom_linear_unused(t, "proj", 64, 96, OOM_BIAS);
	return oom_op_unary(t, OOM_SILU, x);
}

static struct oom_val ids(struct oom_tape *t)
{
	return oom_input(t, "ids", t->m_bs, 1, OOM_I64);
}

static struct oom_val tied_head(struct oom_tape *t, bool bias)
{
	struct oom_val w = oom_param(t, "weight", 1000, 64, OOM_P_EMBEDDING);
	struct oom_val b = bias ? oom_param(t, "bias", 0, 1000, 0) : oom_none();
	struct oom_val x = oom_op_embedding_param(t, w, ids(t), 1000, D(64));

	return oom_op_matmul_param(t, "head", oom_op_unary(t, OOM_SILU, x), w, b, D(1000));
}
CASE_OF_NOTHING(tied) { return tied_head(t, false); }
CASE_OF_NOTHING(tied_bias) { return tied_head(t, true); }

/* ---- batched products: 4 heads of 16 ---- */

static struct oom_val scores_of(struct oom_tape *t, struct oom_val q, struct oom_val k)
{
	return oom_op_bmm(t, "scores", q, k, t->m_bss, D(4), 16);
}
CASE(scores, 64)
{
	struct oom_val q = oom_op_heads(t, x);

	return scores_of(t, q, oom_op_heads(t, tape_in(t, 64)));
}
CASE(scores_of_contiguous, 64)
{
	struct oom_val q = oom_op_unary(t, OOM_SILU, oom_op_copy(t, "clone", oom_op_heads(t, x)));

	return scores_of(t, q, oom_op_copy(t, "clone", oom_op_heads(t, tape_in(t, 64))));
}
CASE(context, 64)
{
	struct oom_val p = oom_op_softmax(t, tape_input(t, t->m_bss, 4, tape_dtype(t)), false);

	p = oom_op_bmm(t, "context", p, oom_op_heads(t, x), t->m_bs, D(64), 1);
	return oom_op_merge_heads(t, p);
}
CASE(with_itself, 64)
{
	x = oom_op_heads(t, x);
	return scores_of(t, oom_keep(x), x);
}

/* ---- stacked experts ---- */

static struct oom_val experts(struct oom_tape *t, struct oom_val x, struct oom_val offs, uint64_t in,
			      struct oom_dim out)
{
	struct oom_val w = oom_param(t, "weight", 4 * out.n, in, OOM_P_EXPERT);

	return oom_op_grouped_mm(t, "experts", x, w, offs, in, out);
}
static struct oom_val offsets(struct oom_tape *t)
{
	return tape_input(t, OOM_MONO_ONE, 4, OOM_I32);
}
CASE(grouped, 64) { return experts(t, x, offsets(t), 64, D(96)); }
CASE(grouped_twice, 64)
{
	struct oom_val offs = offsets(t);

	x = oom_op_unary(t, OOM_SILU, experts(t, x, oom_keep(offs), 64, D(96)));
	return experts(t, x, offs, 96, D(64));
}

/* ---- NF4 weights ---- */

CASE(nf4, 128) { return oom_op_linear(t, "proj", x, D(96), 0); }
CASE(nf4_twice, 128)
{
	x = oom_op_unary(t, OOM_SILU, oom_op_linear(t, "up", x, D(96), 0));
	return oom_op_linear(t, "down", x, D(128), 0);
}

/* ---- adapters ---- */

CASE(lora, 64) { return oom_op_linear(t, "q_proj", x, D(96), 0); }
CASE(lora_bias, 64) { return oom_op_linear(t, "q_proj", x, D(96), OOM_BIAS); }
CASE(lora_nf4, 128) { return oom_op_linear(t, "q_proj", x, D(96), 0); }
CASE(lora_nf4_bias, 128) { return oom_op_linear(t, "q_proj", x, D(96), OOM_BIAS); }
CASE(lora_conv1d, 64) { return oom_op_linear(t, "q_proj", x, D(96), OOM_BIAS | OOM_CONV1D); }
CASE(lora_beside_frozen, 64)
{
	x = oom_op_unary(t, OOM_SILU, oom_op_linear(t, "up_proj", x, D(64), 0));
	return oom_op_linear(t, "q_proj", x, D(96), 0);
}

int main(void)
{
	return tape_cases_check("linear") != 0;
}
