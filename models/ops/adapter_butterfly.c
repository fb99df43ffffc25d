/* BOFT: a layer's input is turned by an orthogonal matrix of the layer's width, made anew in every call out of small blocks,
 * and its result is scaled (peft 0.20, tuners/boft/layer.py).  The permutation lies beside every layer as a whole matrix in
 * fp32: a plain buffer, which PEFT leaves where it was made (_move_adapter_to_device_of_base_layer moves parameters alone) and
 * the Trainer takes to the card with the model; a loop of one's own around a model that lies there already keeps it on the
 * host (PEFT's method comparison: 1.97 GiB less for Llama-3.2-3B).  With one butterfly factor, PEFT's default and what remains
 * where its CUDA extension does not build; the intermediates of the small blocks' solution are a handful of tensors of the
 * blocks' size. */
#include "adapters.h"
#include "config/arch.h"
#include "tape/frame.h"

static size_t params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
		     struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	(void)name;
	q[0] = (struct oom_adapter_param){"boft_R", in, (uint64_t)t->plan->lora_r, OOM_P_LINEAR};
	q[1] = (struct oom_adapter_param){"boft_s", out, 1, OOM_P_LINEAR};
	return 2;
}

/* A function of two tensors of its result's size that keeps what it is given, its result, and a third one. */
static struct oom_val solved(struct oom_tape *t, struct oom_val a, struct oom_val b, struct oom_dim size, uint64_t rows)
{
	const enum oom_dtype dt = (enum oom_dtype)a.dt;
	struct oom_val y, lu, pivots;
	int32_t node = -1;

	if (t->grad) {
		node = oom_node(t, OOM_NODE_CUSTOM, "linalg_solve");
		oom_node_edge(t, node, a);
		oom_node_edge(t, node, b);
		oom_node_save(t, node, a);
	}
	y = oom_new(t, "linalg_solve", OOM_MONO_ONE, size, dt);
	lu = oom_scratch_hold(t, "LU", OOM_MONO_ONE, size.n, dt);
	pivots = oom_scratch_hold(t, "pivots", OOM_MONO_ONE, rows, OOM_I32);
	if (t->grad) {
		oom_node_save(t, node, lu);
		oom_node_save(t, node, pivots);
		y = oom_node_out(t, node, 0, y);
		oom_node_save(t, node, y);
	}
	oom_drop(t, pivots);
	oom_drop(t, lu);
	oom_done(t, b);
	oom_done(t, a);
	return y;
}

/* cayley_batch: (I + S)^-1 (I - S) of the blocks' skew parts, in the parameters' type. */
static struct oom_val cayley(struct oom_tape *t, struct oom_val blocks, uint64_t in, uint64_t k)
{
	const struct oom_dim size = {in * k, "d_in * boft_block_size"};
	struct oom_frame f = {.t = t};
	struct oom_val skew, eye, plus;

	skew = oom_op_sub(t, oom_keep(blocks), oom_keep(blocks));
	skew = oom_name(&f, oom_op_unary(t, OOM_SCALE, skew));
	eye = oom_name(&f, oom_scratch_hold(t, "identity", OOM_MONO_ONE, k * k, (enum oom_dtype)blocks.dt));
	(void)eye;
	plus = oom_op_unary(t, OOM_ADD_SCALAR, skew);
	return oom_leave(&f, solved(t, plus, oom_op_unary(t, OOM_NEG, skew), size, in));
}

/* MultiplicativeDropoutLayer: some blocks become identities. */
static struct oom_val dropped(struct oom_tape *t, struct oom_val blocks, uint64_t in, uint64_t k)
{
	const enum oom_dtype dt = (enum oom_dtype)blocks.dt;
	struct oom_frame f = {.t = t};
	struct oom_val mask, eye, kept;

	if (t->plan->lora_dropout <= 0 || !t->train)
		return blocks;
	blocks = oom_arg(&f, blocks);
	mask = oom_name(&f, oom_scratch_hold(t, "mask", OOM_MONO_ONE, in / k, OOM_F32));
	eye = oom_name(&f, oom_scratch_hold(t, "identities", OOM_MONO_ONE, in * k, dt));
	kept = oom_op_mul(t, oom_op_unary(t, OOM_NEG, mask), blocks);
	eye = oom_op_mul(t, mask, eye);
	return oom_leave(&f, oom_op_add(t, kept, eye));
}

/* torch.block_diag: zeros of the whole, into which the blocks are copied. */
static struct oom_val diagonal(struct oom_tape *t, struct oom_val blocks, uint64_t in)
{
	const enum oom_dtype dt = (enum oom_dtype)blocks.dt;
	struct oom_val y;
	int32_t node = -1;

	if (t->grad) {
		node = oom_node(t, OOM_NODE_CUSTOM, "block_diag");
		oom_node_edge(t, node, blocks);
	}
	y = oom_new(t, "block_diag", OOM_MONO_ONE, (struct oom_dim){in * in, "d_in * d_in"}, dt);
	if (t->grad)
		y = oom_node_out(t, node, 0, y);
	oom_done(t, blocks);
	return y;
}

/* P (blocks P^T) I, in the type of what came in, with the names that live until the layer has returned. */
static struct oom_val rotation(struct oom_frame *f, const struct oom_linear *l, enum oom_dtype dt)
{
	struct oom_tape *t = f->t;
	const uint64_t n = l->in, k = (uint64_t)t->plan->lora_r;
	const struct oom_dim whole = {n * n, "d_in * d_in"};
	const struct oom_val order = {.sto = -1, .node = -1, .mono = OOM_MONO_ONE, .width = n * n, .dt = OOM_F32};
	struct oom_val eye, blocks, p, w;

	eye = oom_name(f, oom_scratch_hold(t, "identity", OOM_MONO_ONE, n * n, dt));
	blocks = oom_name(f, dropped(t, cayley(t, l->p[0], n, k), n, k));
	w = oom_name(f, diagonal(t, blocks, n));
	p = oom_name(f, oom_op_cast(t, oom_keep(order), dt));
	w = oom_rename(f, w, oom_op_cast(t, w, dt));
	w = oom_name(f, oom_op_bmm(t, "blocks P^T", w, p, OOM_MONO_ONE, whole, n));
	w = oom_rename(f, w, oom_op_bmm(t, "P blocks P^T", p, w, OOM_MONO_ONE, whole, n));
	w = oom_rename(f, eye, oom_op_bmm(t, "rotation", w, eye, OOM_MONO_ONE, whole, n));
	return oom_rename(f, w, oom_op_cast(t, w, dt));
}

/* Linear.forward */
static struct oom_val run(struct oom_tape *t, struct oom_val x, const struct oom_linear *l)
{
	const enum oom_dtype given = (enum oom_dtype)x.dt;
	const struct oom_dim side = {l->in, "d_in"};
	const uint64_t k = (uint64_t)t->plan->lora_r;
	struct oom_frame f = {.t = t};
	struct oom_val scale, turned, y;

	if (l->in % k) {
		if (!t->status)
			oom_tape_fail(t, OOM_ERR_INVALID, "lora-r: BOFT's block size has to divide the layer's width (%s)", l->name);
		return x;
	}
	oom_buffer(t, l->in * l->in, OOM_F32);
	x = oom_arg(&f, x);
	turned = rotation(&f, l, given);
	scale = oom_scratch_hold(t, "ones", OOM_MONO_ONE, l->out.n, given);
	scale = oom_name(&f, oom_op_mul(t, oom_keep(l->p[1]), scale));
	turned = oom_name(&f, oom_op_matmul_param(t, "rotated", x, turned, oom_none(), side));
	y = oom_name(&f, oom_op_matmul_param(t, l->name, turned, l->w, l->bias, l->out));
	if (!oom_is_none(l->bias))
		y = oom_rename(&f, y, oom_op_sub(t, y, oom_keep(l->bias)));
	y = oom_rename(&f, y, oom_op_mul(t, y, scale));
	if (!oom_is_none(l->bias))
		y = oom_rename(&f, y, oom_op_add(t, y, oom_keep(l->bias)));
	return oom_leave(&f, oom_op_cast(t, y, given));
}

const struct oom_adapter oom_adapter_boft = {.params = params, .instead = run};
