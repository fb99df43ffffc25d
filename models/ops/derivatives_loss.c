/* Derivatives of heads with their losses, of log-probabilities, of Liger's modules. */
#include "derivatives.h"
#include "kernels.h"
#include "tape/round.h"

/* gather_backward: zeros of the logits, into which the gradient is scattered in place.  Where the tensors are of a subclass,
 * as the emulation's are, it makes a second tensor (torch/csrc/autograd/FunctionsManual.cpp, isTensorSubclassLike): seen on an
 * H100, whose smoothed losses took 800 MB less than that. */
static struct grad picked(struct oom_tape *t, const struct oom_node *n, uint8_t dt)
{
	const struct grad zeros = oom_grad_for_edge(t, n, 0, dt);
	struct grad scattered;

	if (t->plan->view_sums)
		return zeros;
	scattered = oom_grad_for_edge(t, n, 0, dt);
	oom_unref(t, zeros.sto);
	return scattered;
}

/* Of one sequence, or of all as one: grad * (self - result).exp() of logsumexp; or a pick's zeros and what it is
 * scattered into, the zeros gone by the time of the log_softmax's gradient.  Returned is the last; the first two are
 * as large as a sequence. */
static struct oom_val sequence_grad(struct oom_tape *t, const struct oom_node *n, uint16_t mono)
{
	const enum oom_dtype dt = (enum oom_dtype)n->dt;
	const uint64_t width = n->edge[0].width;
	const struct oom_val first = oom_scratch_hold(t, n->name, n->aux_mono, width, dt),
			     second = oom_scratch_hold(t, n->name, n->aux_mono, width, dt);
	struct oom_val y;

	if (dt != OOM_F32)
		oom_drop(t, first);
	y = oom_scratch_hold(t, n->name, mono, width, dt);
	oom_drop(t, second);
	if (dt == OOM_F32)
		oom_drop(t, first);
	return y;
}

/* Sequence by sequence, from the last on; each gives up what it saved.  UnbindBackward stacks what they made. */
void oom_derive_rows(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	struct oom_val part[OOM_MAX_SAVED];
	const int parts = n->sequences ? n->sequences : 1;

	for (int i = 0; i < parts; i++) {
		const int s = n->n_saved - 1 - i;

		part[i] = sequence_grad(t, n, n->sequences ? n->aux_mono : n->edge[0].mono);
		if (s >= 0 && n->dt != OOM_F32) {
			oom_unref(t, n->saved[s]);
			n->saved[s] = -1;
		}
	}
	g[0] = oom_grad_for_edge(t, n, 0, n->dt);
	for (int i = 0; i < parts; i++)
		oom_drop(t, part[i]);
}

/* CopySlices: a copy of the gradient, whose part under the view is cloned and goes through the operation
 * (torch/csrc/autograd/functions/tensor.cpp). */
void oom_derive_in_view(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	struct grad part, divided;

	g[0] = oom_grad_for_edge(t, n, 0, n->dt);
	part = oom_grad_fresh(t, n->name, n->aux_mono, n->aux_width, n->dt, false);
	divided = oom_grad_fresh(t, n->name, n->aux_mono, n->aux_width, n->dt, false);
	oom_unref(t, part.sto);
	oom_unref(t, divided.sto);
}

void oom_derive_smooth(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	struct grad pick;

	if (n->dt != OOM_F32)
		g[0] = oom_grad_for_edge(t, n, 0, n->dt);
	pick = picked(t, n, n->dt);
	if (n->dt == OOM_F32) {
		/* gather's backward is through and has let go of the log-probabilities before the engine sums what it made
		 * with the expanded gradient of the sum, out of place (torch/csrc/autograd/engine.cpp, evaluate_function) */
		oom_unref(t, n->saved[0]);
		n->saved[0] = -1;
		g[0] = oom_grad_for_edge(t, n, 0, n->dt);
	}
	oom_unref(t, pick.sto);
}

/* One chunk of a head and its loss (aux: its logits) again, whole, and back: log-probabilities, the zeros
 * nll_loss fills, the logits' gradient; then the weight's in fp32 and the input's, beside the fp32 copies that a 16-bit
 * weight and input were made, and cast: the weight's, whose copy was made last, before the input's.  The engine's buffer
 * sums the chunks'. */
static struct grad chunk_again(struct oom_tape *t, const struct oom_node *n, bool weight)
{
	const struct oom_edge *h = &n->edge[0], *e = &n->edge[1];
	const bool full = e->dt == OOM_F32;
	const uint64_t in = n->aux_width / t->vocab * h->width;
	const bool copied = h->dt != OOM_F32;
	struct grad w = {.sto = -1}, x = {.sto = -1}, gx = {.sto = -1}, lp, zeros, logits, gw = {.given = false}, cast;
	int32_t measures[5];

	if (copied)
		x = oom_grad_fresh(t, "input chunk", n->aux_mono, in, OOM_F32, false);
	if (!full)
		w = oom_grad_fresh(t, "weight in fp32", OOM_MONO_ONE, e->width, OOM_F32, false);
	logits = oom_grad_fresh(t, "logits chunk", n->aux_mono, n->aux_width, OOM_F32, false);
	if (!weight) {                          /* only the weight's gradient is made of the input */
		oom_unref(t, x.sto);
		x.sto = -1;
	}
	lp = oom_grad_fresh(t, "log_softmax", n->aux_mono, n->aux_width, OOM_F32, false);
	/* nll_loss' two scalars and the right answers' number; which labels count; exp, its product with the
	 * log-probabilities, and the sums of that */
	measures[0] = oom_grad_fresh(t, "nll_loss", OOM_MONO_ONE, 3 * oom_block(4), OOM_U8, false).sto;
	measures[1] = oom_grad_fresh(t, "labels that count", n->aux_mono, n->aux_width / t->vocab, OOM_U8, false).sto;
	for (int i = 2; i < 4; i++)
		measures[i] = oom_grad_fresh(t, "entropy", n->aux_mono, n->aux_width, OOM_F32, false).sto;
	measures[4] = oom_grad_fresh(t, "entropies", n->aux_mono, n->aux_width / t->vocab, OOM_F32, false).sto;
	for (int i = 0; i < 5; i++)
		oom_unref(t, measures[i]);
	oom_unref(t, logits.sto);
	zeros = oom_grad_fresh(t, "nll_loss_backward", n->aux_mono, n->aux_width, OOM_F32, false);
	logits = oom_grad_fresh(t, "_log_softmax_backward_data", n->aux_mono, n->aux_width, OOM_F32, false);
	oom_unref(t, zeros.sto);
	oom_unref(t, lp.sto);
	if (weight)
		gw = oom_grad_fresh(t, n->name, OOM_MONO_ONE, e->width, OOM_F32, false);
	if (oom_needs_grad(n, 0))
		gx = oom_grad_fresh(t, "input chunk", n->aux_mono, in, OOM_F32, false);
	oom_unref(t, w.sto);
	oom_unref(t, x.sto);
	oom_unref(t, logits.sto);
	if (weight && !full) {
		cast = oom_grad_fresh(t, "_to_copy", OOM_MONO_ONE, e->width, e->dt, false);
		oom_unref(t, gw.sto);
		gw = cast;
	}
	if (oom_needs_grad(n, 0) && copied)
		oom_scratch(t, "_to_copy", n->aux_mono, in, (enum oom_dtype)h->dt);
	oom_unref(t, gx.sto);
	return gw;
}

void oom_derive_chunked(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	const bool many = n->aux_mono == OOM_MONO_ONE;
	/* hidden[order], what the chunks are cut from: without the last tokens */
	const struct oom_row *sorted = &t->rows[n->saved[0]];
	const uint16_t tokens = sorted->mono;
	const uint64_t width = sorted->width;
	const enum oom_dtype dt = (enum oom_dtype)n->edge[0].dt;
	struct grad x = {.sto = -1};
	/* of the sum of the chunks' losses, which each of them gets */
	const int32_t each = oom_grad_fresh(t, n->name, OOM_MONO_ONE, 1, OOM_F32, false).sto;

	for (int i = 0; i < (many ? 2 : 1); i++) {
		const struct grad gw = chunk_again(t, n, oom_needs_grad(n, 1));

		/* of all tokens, zeros but for the chunk's: the first, to which the others' are added */
		if (oom_needs_grad(n, 0) && i)
			oom_scratch(t, "slice_backward", tokens, width, dt);
		else if (oom_needs_grad(n, 0))
			x = oom_grad_fresh(t, "slice_backward", tokens, width, dt, false);
		if (g[1].given)
			oom_unref(t, gw.sto);
		else
			g[1] = gw;
	}
	if (oom_needs_grad(n, 0)) {                     /* hidden[order], [..., :-1, :] */
		oom_scratch(t, "index_backward", tokens, width, dt);
		g[0] = oom_grad_for_edge(t, n, 0, n->edge[0].dt);
	}
	oom_unref(t, x.sto);
	oom_unref(t, each);
}

/* One of cut cross-entropy's gradients: zeros of the operand's own type, and cast to the parameter's
 * where autocast had cast that. */
static struct grad cut_grad(struct oom_tape *t, const struct oom_node *n, int i)
{
	const struct grad own = oom_grad_for_edge(t, n, i, n->dt);
	struct grad cast;

	if (n->edge[i].dt == n->dt)
		return own;
	cast = oom_grad_for_edge(t, n, i, n->edge[i].dt);
	oom_unref(t, own.sto);
	return cast;
}

/* The order of the vocabulary (an argsort: 8 and 4 bytes per word), both gradients in the operands'
 * types, then casts: the weight's first (cut_cross_entropy/cce.py backward, cce_backward.py). */
void oom_derive_cut(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	const struct oom_val order = oom_scratch_hold(t, "vocabulary order", OOM_MONO_ONE,
						      n->aux_width, OOM_F32);
	struct grad de = {.sto = -1};

	oom_scratch(t, "argsort", OOM_MONO_ONE, n->aux_width, OOM_I64);
	if (oom_needs_grad(n, 0))
		de = oom_grad_for_edge(t, n, 0, n->dt);
	if (oom_needs_grad(n, 1))
		g[1] = cut_grad(t, n, 1);
	g[0] = de;
	if (oom_needs_grad(n, 0) && n->edge[0].dt != n->dt) {
		g[0] = oom_grad_for_edge(t, n, 0, n->edge[0].dt);
		oom_unref(t, de.sto);
	}
	oom_drop(t, order);
}

/* dX over dY, or beside it; the weight's gradient in as many partial sums as the GPU has
 * multiprocessors (ops/rms_norm.py rms_norm_backward; an A100's 108, others differ).  Unsloth's gives the weight
 * no gradient (kernels/rms_layernorm.py); the few bytes of one are counted all the same. */
void oom_derive_liger_rms(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	enum { MULTIPROCESSORS = 108 };
	struct oom_val sums = oom_none();

	if (oom_needs_grad(n, 0))
		g[0] = n->added ? oom_grad_for_edge(t, n, 0, n->dt) : oom_grad_shared(t, n);
	if (t->plan->compile || oom_kernel_runs(t, OOM_KERNEL_SUMS))
		sums = oom_scratch_hold(t, "partial sums", OOM_MONO_ONE, MULTIPROCESSORS * n->edge[1].width, OOM_F32);
	if (oom_needs_grad(n, 1))
		g[1] = oom_grad_for_edge(t, n, 1, n->edge[1].dt);
	oom_drop(t, sums);
}

/* The base's own node makes the gradient of x; here is what lies beside it: dY B A and where dropout left something, as numbers
 * and multiplied (fast_lora.py LoRA_W.backward). */
void oom_derive_fast_lora(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	const enum oom_dtype dt = (enum oom_dtype)n->dt;
	struct oom_val beside[4];

	for (int i = 1; i <= 2; i++)
		if (oom_needs_grad(n, i))
			g[i] = oom_grad_for_edge(t, n, i, n->dt);
	if (!oom_needs_grad(n, 0))
		return;
	for (int i = 0; i < 4; i++)
		beside[i] = oom_scratch_hold(t, n->name, n->aux_mono, n->aux_width, i == 2 ? OOM_U8 : dt);
	for (int i = 0; i < 4; i++)
		oom_drop(t, beside[i]);
	g[0] = oom_grad_shared(t, n);
}

/* grad * (self - result).exp() of the whole stack, whose halves are what it was made of. */
void oom_derive_log_add(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	const enum oom_dtype dt = (enum oom_dtype)n->dt;
	const struct oom_edge e = n->edge[0];
	struct oom_val temp[2];
	struct grad both;

	for (int i = 0; i < 2; i++)
		temp[i] = oom_scratch_hold(t, n->name, e.mono, 2 * e.width, dt);
	both = oom_grad_fresh(t, n->name, e.mono, 2 * e.width, n->dt, false);
	for (int i = 0; i < 2; i++)
		oom_drop(t, temp[i]);
	both.width = e.width;
	for (int i = 0; i < 2; i++)
		if (oom_needs_grad(n, i)) {
			oom_ref(t, both.sto);
			g[i] = both;
		}
	oom_unref(t, both.sto);
}

void oom_derive_pick(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	g[0] = picked(t, n, n->dt);
}
