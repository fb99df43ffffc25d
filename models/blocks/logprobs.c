/* Log-probabilities, entropies and smoothed losses of logits that a model has returned. */
#include "logprobs.h"

struct oom_val oom_shifted(struct oom_tape *t, struct oom_val logits)
{
	return oom_op_slice(t, oom_keep(logits), oom_len_minus(t, t->m_b, 1),
			    (struct oom_dim){logits.width, logits.text});
}

struct oom_val oom_reduce(struct oom_tape *t, struct oom_val x)
{
	return oom_op_mean(t, x, OOM_MONO_ONE, D(1));
}

/* torch.gather(logits, -1, index): autograd keeps the logits, whose size it needs. */
static struct oom_val pick(struct oom_tape *t, struct oom_val x)
{
	int32_t n = -1;
	struct oom_val y;

	if (oom_wants_grad(t, x)) {
		n = oom_node(t, OOM_NODE_PICK, "gather_backward");
		oom_node_edge(t, n, x);
		oom_node_save(t, n, x);
		if (n >= 0)
			t->nodes[n].dt = x.dt;
	}
	y = oom_new(t, "gather", x.mono, D(1), (enum oom_dtype)x.dt);
	return n >= 0 ? oom_node_out(t, n, 0, y) : y;
}

/* One sequence after another: logsumexp of fp32 logits, whose difference from their maximum is a
 * temporary (aten/src/ATen/native/ReduceOps.cpp); a log_softmax of 16-bit ones, which autograd
 * keeps, and a pick out of it. */
static struct oom_val row_by_row(struct oom_tape *t, struct oom_val x, uint16_t row)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const bool full = dt == OOM_F32, rg = oom_wants_grad(t, x);
	struct oom_val kept = oom_none(), y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_ROWS, full ? "logsumexp_backward" :
						      "_log_softmax_backward_data");
		oom_node_edge(t, n, x);
		if (n >= 0) {
			t->nodes[n].dt = dt;
			t->nodes[n].aux_mono = row;
		}
	}
	if (!full && rg)
		kept = oom_new(t, "log_softmax", x.mono, (struct oom_dim){x.width, x.text}, dt);
	else
		oom_scratch(t, full ? "logsumexp" : "log_softmax", row, x.width, dt);
	if (rg)
		oom_node_save(t, n, full ? x : kept);
	oom_drop(t, kept);
	y = oom_new(t, full ? "logsumexp" : "gather", x.mono, D(1), dt);
	return n >= 0 ? oom_node_out(t, n, 0, y) : y;
}

struct oom_val oom_token_logps(struct oom_tape *t, struct oom_val x, uint16_t row)
{
	struct oom_val picked = oom_none(), sums;

	if (x.dt == OOM_F32)
		picked = pick(t, x);
	sums = row_by_row(t, x, row);
	return oom_is_none(picked) ? sums : oom_op_add(t, picked, sums);
}

/* Rows of logits: log-probabilities, their exponentials, the product. */
static void entropy_of(struct oom_tape *t, struct oom_val x, uint16_t mono, uint64_t rows)
{
	struct oom_val temp[3];

	for (int i = 0; i < 3; i++)
		temp[i] = oom_new(t, "entropy", mono, (struct oom_dim){rows * x.width, NULL},
				  (enum oom_dtype)x.dt);
	for (int i = 0; i < 3; i++)
		oom_drop(t, temp[i]);
}

enum { ENTROPY_CHUNK = 128 };

void oom_token_entropy(struct oom_tape *t, struct oom_val x)
{
	const bool grad = t->grad;
	struct oom_val flat = oom_none(), e;

	t->grad = false;
	/* logits.reshape(-1, V): of one sequence a view */
	if (oom_cond_above(t, t->m_b, 1))
		flat = oom_new(t, "flat logits", x.mono, (struct oom_dim){x.width, x.text},
			       (enum oom_dtype)x.dt);
	e = oom_new(t, "entropies", x.mono, D(1), (enum oom_dtype)x.dt);
	if (oom_cond_above(t, x.mono, ENTROPY_CHUNK))
		entropy_of(t, x, OOM_MONO_ONE, ENTROPY_CHUNK);
	else
		entropy_of(t, x, x.mono, 1);
	oom_drop(t, e);
	oom_drop(t, flat);
	t->grad = grad;
}

/* logits[..., :-1, :].contiguous(); -log_softmax; gather; sum in fp32. */
struct oom_val oom_smoothed_loss(struct oom_tape *t, struct oom_val logits, bool shift)
{
	struct oom_val x = oom_share(t, logits), y;
	int32_t n = -1;

	t->scope = "label smoothing";
	if (shift) {
		oom_drop(t, x);
		x = oom_shifted(t, logits);
		if (oom_cond_above(t, t->m_b, 1))
			x = oom_op_copy(t, "shifted logits", x);
	}
	y = oom_op_log_softmax(t, oom_keep(x));
	y = oom_op_unary(t, OOM_NEG, y);
	if (oom_wants_grad(t, y)) {
		n = oom_node(t, OOM_NODE_SMOOTH, "gather_backward");
		oom_node_edge(t, n, y);
		oom_node_save(t, n, y);
		if (n >= 0)
			t->nodes[n].dt = y.dt;
	}
	oom_drop(t, x);
	x = oom_new(t, "smoothed loss", y.mono, D(2), OOM_F32);
	x = n >= 0 ? oom_node_out(t, n, 0, x) : x;
	if (n >= 0)
		t->nodes[n].dt = y.dt;
	oom_drop(t, y);
	return oom_reduce(t, x);
}
