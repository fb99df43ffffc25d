/* Softmax, dropout and masks. */
#include "ops.h"

/* The kernel for CUDA multiplies gradient and result before it sums (aten/src/ATen/native/cuda/SoftMax.cu
 * softmax_backward_cuda_out: Tensor tmp = grad * output); log_softmax's does not, nor what inductor makes of it. */
static struct oom_val softmax(struct oom_tape *t, const char *name, struct oom_val x, bool to_fp32, bool product)
{
	const bool rg = oom_wants_grad(t, x);
	const struct oom_val arg = oom_argument(t, x);
	struct oom_val y;
	int32_t n = -1;
	enum oom_dtype dt = to_fp32 ? OOM_F32 : (enum oom_dtype)x.dt;

	/* fp16 -> fp32 is fused into the kernel; bf16 is converted first
	 * (aten/src/ATen/native/SoftMax.cpp) */
	if (x.dt == OOM_DT_BF16 && dt == OOM_F32)
		x = oom_op_cast(t, x, OOM_F32);
	if (rg) {
		n = oom_node(t, OOM_NODE_SOFTMAX, name);
		oom_node_edge(t, n, x);
		if (n >= 0)
			t->nodes[n].product = product && t->plan->softmax_product && !t->plan->compile;
	}
	y = oom_new_like(t, name, x, dt);
	y.perm = false;
	if (rg) {
		y = oom_node_out(t, n, 0, y);
		oom_node_save(t, n, y);
		if (t->plan->keep_softmax_inputs)
			oom_node_save(t, n, x);
	}
	oom_done(t, x);
	oom_drop(t, arg);
	return y;
}

struct oom_val oom_op_softmax(struct oom_tape *t, struct oom_val x, bool to_fp32)
{
	return softmax(t, "softmax", x, to_fp32 || t->amp, true);
}

struct oom_val oom_op_softmax_own(struct oom_tape *t, struct oom_val x)
{
	return softmax(t, "softmax", x, false, true);
}

/* cross_entropy_loss calls log_softmax with the input's type spelt out, so autocast leaves it
 * alone. */
struct oom_val oom_op_log_softmax(struct oom_tape *t, struct oom_val x)
{
	return softmax(t, "log_softmax", x, false, false);
}

struct oom_val oom_op_dropout(struct oom_tape *t, struct oom_val x, double p)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y, mask;
	int32_t n = -1;

	if (!t->train || p <= 0)
		return x.kept ? oom_share(t, x) : x;
	if (rg) {
		n = oom_node(t, OOM_NODE_UNARY, "native_dropout");
		oom_node_edge(t, n, x);
	}
	y = oom_new_like(t, "dropout", x, (enum oom_dtype)x.dt);
	mask = oom_new_like(t, "dropout mask", x, OOM_U8);
	if (rg) {
		y = oom_node_out(t, n, 0, y);
		oom_node_save(t, n, mask);
	}
	oom_done(t, x);
	oom_drop(t, mask);
	return y;
}

/* Not fused: noise of x's type, kept for the derivative (aten/src/ATen/native/Dropout.cpp,
 * _dropout<inplace>). */
struct oom_val oom_op_dropout_inplace(struct oom_tape *t, struct oom_val x, double p)
{
	struct oom_val noise;
	int32_t n = -1;

	if (!t->train || p <= 0)
		return x;
	oom_forget_casts(t, x);
	noise = oom_new_like(t, "dropout noise", x, (enum oom_dtype)x.dt);
	if (oom_wants_grad(t, x)) {
		n = oom_node(t, OOM_NODE_MUL, "mul_");
		oom_node_edge(t, n, x);
		oom_node_save(t, n, noise);
		x = oom_node_out(t, n, 0, x);
	}
	oom_drop(t, noise);
	return x;
}

struct oom_val oom_op_masked(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_val mask)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_WHERE, name);
		oom_node_edge(t, n, x);
		oom_node_save(t, n, mask);
	}
	y = oom_new_like(t, name, x, (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	oom_done(t, mask);
	return y;
}

struct oom_val oom_op_masked_inplace(struct oom_tape *t, struct oom_val x, struct oom_val mask)
{
	oom_forget_casts(t, x);
	if (oom_wants_grad(t, x)) {
		int32_t n = oom_node(t, OOM_NODE_WHERE, "masked_fill_");

		oom_node_edge(t, n, x);
		oom_node_save(t, n, mask);
		x = oom_node_out(t, n, 0, x);
	}
	oom_done(t, mask);
	return x;
}
