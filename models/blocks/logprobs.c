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

struct oom_val oom_picked_logps(struct oom_tape *t, struct oom_val x)
{
	struct oom_val all = oom_op_log_softmax(t, oom_keep(x)), y = pick(t, all);

	oom_drop(t, all);
	return y;
}

/* More sequences than this are recorded as one piece of their size: at the peak, where the stacked gradients
 * are beside those of every sequence, it is the same. */
enum { SEQUENCES_APART = 16 };

/* What one sequence after another leaves for the backward: a log_softmax each; all in one piece where `n` is 0.
 * Without a graph a name holds the one before until the next is there. */
static void log_softmaxes(struct oom_tape *t, struct oom_val x, uint16_t row, uint32_t n, int32_t node)
{
	const struct oom_dim width = {x.width, x.text};
	struct oom_val last = oom_none();

	for (uint32_t i = 0; i < (n ? n : 1); i++) {
		struct oom_val y = oom_new(t, "log_softmax", n || node < 0 ? row : x.mono, width,
					   (enum oom_dtype)x.dt);

		oom_drop(t, last);
		if (node >= 0)
			oom_node_save(t, node, y);
		last = y;
	}
	if (!n && node < 0)
		oom_scratch(t, "log_softmax", row, x.width, (enum oom_dtype)x.dt);
	oom_drop(t, last);
}

/* One sequence after another: logsumexp of fp32 logits, whose difference from their maximum is a
 * temporary (aten/src/ATen/native/ReduceOps.cpp); a log_softmax of 16-bit ones, which autograd
 * keeps, and a pick out of it. */
static struct oom_val row_by_row(struct oom_tape *t, struct oom_val x, uint16_t row)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const bool full = dt == OOM_F32, rg = oom_wants_grad(t, x);
	const uint32_t sequences = oom_cond_sequences(t, SEQUENCES_APART);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_ROWS, full ? "logsumexp_backward" :
						      "_log_softmax_backward_data");
		oom_node_edge(t, n, x);
		if (n >= 0) {
			t->nodes[n].dt = dt;
			t->nodes[n].aux_mono = row;
			t->nodes[n].sequences = (uint16_t)sequences;
		}
	}
	if (!full)
		log_softmaxes(t, x, row, sequences, n);
	else
		oom_scratch(t, "logsumexp", row, x.width, dt);
	if (rg && full)
		oom_node_save(t, n, x);
	y = oom_new(t, full ? "logsumexp" : "gather", x.mono, D(1), dt);
	if (n >= 0)
		y = oom_node_out(t, n, 0, y);
	/* each sequence's result, of which y is stacked */
	for (uint32_t i = 0; n >= 0 && full && i < (sequences ? sequences : 1); i++) {
		struct oom_val part = oom_new(t, "logsumexp", sequences ? row : x.mono, D(1), dt);

		oom_node_save(t, n, part);
		oom_drop(t, part);
	}
	return y;
}

struct oom_val oom_token_logps(struct oom_tape *t, struct oom_val x, uint16_t row)
{
	struct oom_val picked = oom_none(), sums;

	if (x.dt == OOM_F32)
		picked = pick(t, x);
	sums = row_by_row(t, x, row);
	return oom_is_none(picked) ? sums : oom_op_add(t, picked, sums);
}

/* Rows of logits: log-probabilities, their exponentials, the product; the log-probabilities keep their name
 * until those of the next chunk, and are returned. */
static struct oom_val entropy_of(struct oom_tape *t, struct oom_val x, uint16_t mono, uint64_t rows,
				 struct oom_val before)
{
	struct oom_val temp[3];

	for (int i = 0; i < 3; i++) {
		temp[i] = oom_new(t, "entropy", mono, (struct oom_dim){rows * x.width, NULL},
				  (enum oom_dtype)x.dt);
		if (!i)
			oom_drop(t, before);
	}
	oom_drop(t, temp[1]);
	oom_drop(t, temp[2]);
	return temp[0];
}

enum { ENTROPY_CHUNK = 128 };

void oom_token_entropy(struct oom_tape *t, struct oom_val x, uint64_t each)
{
	const bool grad = t->grad;
	struct oom_val flat = oom_none(), logps = oom_none(), e;

	t->grad = false;
	/* logits.reshape(-1, V): of one sequence a view */
	if (oom_cond_above(t, t->m_b, 1))
		flat = oom_new(t, "flat logits", x.mono, (struct oom_dim){x.width, x.text},
			       (enum oom_dtype)x.dt);
	/* a block for every chunk before the last whole one, beside whose logits the rest of a chunk is small */
	e = oom_new(t, "entropies", oom_len_chunks_before(t, OOM_MONO_ONE, ENTROPY_CHUNK, each), D(ENTROPY_CHUNK), OOM_F32);
	if (oom_cond_above(t, x.mono, ENTROPY_CHUNK))
		for (int i = 0; i < 2; i++)     /* and so on */
			logps = entropy_of(t, x, OOM_MONO_ONE, ENTROPY_CHUNK, logps);
	else
		logps = entropy_of(t, x, x.mono, 1, logps);
	oom_drop(t, logps);
	oom_drop(t, e);
	oom_drop(t, flat);
	t->grad = grad;
}

/* logits[..., :-1, :].contiguous(); -log_softmax; gather, by labels that are clamped; sum in fp32; which labels are
 * padding, and how many: counted in int64 (transformers trainer_pt_utils.py LabelSmoother.__call__). */
struct oom_val oom_smoothed_loss(struct oom_tape *t, struct oom_val logits, bool shift)
{
	struct oom_val x = oom_share(t, logits), y, padding, labels, loss, sum = oom_none(), count[2];
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
	padding = oom_new(t, "padding mask", y.mono, D(1), OOM_U8);
	labels = oom_new(t, "clamped labels", y.mono, D(1), OOM_I64);
	if (n >= 0)
		oom_node_save(t, n, labels);
	/* what is picked, in the logits' own type, and the sum over the vocabulary in fp32, whose gradient is cast at once */
	loss = oom_new(t, "smoothed loss", y.mono, D(y.dt == OOM_F32 ? 2 : 1), (enum oom_dtype)y.dt);
	loss = n >= 0 ? oom_node_out(t, n, 0, loss) : loss;
	if (y.dt != OOM_F32)
		sum = oom_new(t, "sum", y.mono, D(1), OOM_F32);
	if (n >= 0)
		t->nodes[n].dt = y.dt;
	count[0] = oom_new(t, "padding", y.mono, D(1), OOM_I64);
	count[1] = oom_new(t, "padded tokens", OOM_MONO_ONE, D(1), OOM_I64);
	oom_drop(t, count[0]);
	oom_drop(t, count[1]);
	oom_drop(t, sum);
	oom_drop(t, labels);
	oom_drop(t, padding);
	oom_drop(t, y);
	oom_drop(t, x);
	return oom_reduce(t, loss);
}

/* kl_div(mixture, of, log_target=True, reduction="none"): exp(of) * (of - mixture)
 * (aten/src/ATen/native/Loss.cpp). */
static struct oom_val pointwise_kl(struct oom_tape *t, struct oom_val mixture, struct oom_val of)
{
	struct oom_val p = oom_op_unary(t, OOM_EXP, oom_keep(of));

	return oom_op_mul(t, p, oom_op_sub(t, oom_keep(of), oom_keep(mixture)));
}

/* trl/experimental/gkd/gkd_trainer.py generalized_jsd_loss, 0 < beta < 1: both over the temperature, their
 * log-probabilities, those of the mixture, a divergence from it each, weighed and added; of the answers' tokens,
 * taken as all.  What has a name lives until the function returns. */
struct oom_val oom_divergence(struct oom_tape *t, struct oom_val student, struct oom_val teacher)
{
	const struct oom_dim vocab = {student.width, student.text};
	const uint16_t tokens = student.mono;
	struct oom_val named[7], x, at;
	int n = 0;

	t->scope = "loss";
	named[n++] = oom_op_unary(t, OOM_SCALE, oom_keep(student));
	named[n++] = oom_op_unary(t, OOM_SCALE, oom_keep(teacher));
	for (int i = 0; i < 2; i++)
		named[n++] = oom_op_log_softmax(t, oom_keep(named[i]));
	x = oom_op_unary(t, OOM_ADD_SCALAR, oom_keep(named[2]));
	named[n++] = oom_op_log_add(t, x, oom_op_unary(t, OOM_ADD_SCALAR, oom_keep(named[3])));
	for (int i = 3; i >= 2; i--)
		named[n++] = pointwise_kl(t, named[4], named[i]);
	x = oom_op_unary(t, OOM_SCALE, oom_keep(named[5]));
	x = oom_op_add(t, x, oom_op_unary(t, OOM_SCALE, oom_keep(named[6])));
	at = oom_new(t, "answers' positions", tokens, D(2), OOM_I64);
	x = oom_reduce(t, oom_op_gather(t, "answers", x, at, tokens, vocab));
	while (n)
		oom_drop(t, named[--n]);
	return x;
}
