/* The backward pass: nodes in reverse order of creation, as autograd's engine takes them.
 *
 * One node (torch/csrc/autograd/engine.cpp, call_function and evaluate_function):
 *   1. the derivative makes a gradient for every edge that needs one; inputs and saved tensors are
 *   alive meanwhile;
 *   2. the incoming gradient and the saved tensors are released;
 *   3. each gradient is reduced to its edge's shape and cast to its type (validate_outputs);
 *   4. it goes into the next node's buffer: stored, or added in place to what is there.  A
 *   parameter's gradient is
 *      taken over as .grad (AccumulateGrad), or added to the one that exists. */
#include <string.h>

#include "ops.h"
#include "tape/round.h"

struct grad {
	uint64_t width;
	int32_t sto;
	uint16_t mono;
	uint8_t dt;
	bool perm, given;
	bool gaps;              /* a view with gaps: nothing is added in place */
};

static struct grad fresh(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width,
			 uint8_t dt, bool perm)
{
	struct oom_val v = oom_new(t, name, mono, (struct oom_dim){width, NULL},
				   (enum oom_dtype)dt);

	return (struct grad){
		.sto = v.sto, .mono = mono, .width = width, .dt = dt, .perm = perm, .given = true};
}

/* A gradient the size of the edge's tensor, in the type the arithmetic is done in. */
static struct grad for_edge(struct oom_tape *t, const struct oom_node *n, int i, uint8_t dt)
{
	return fresh(t, n->name, n->edge[i].mono, n->edge[i].width, dt, false);
}

static bool needed(const struct oom_node *n, int i)
{
	return i < n->n_edge && n->edge[i].to != -1;
}

/* ---- a parameter's gradient ---- */

static void accumulate_grad(struct oom_tape *t, int32_t param, struct grad g)
{
	struct oom_param *p = &t->params[param];

	if (g.sto < 0)
		return;
	p->got++;
	/* tied weights: the second gradient is added and dies */
	if (p->grad >= 0) {
		oom_unref(t, g.sto);
		if (p->got == p->edges)
			oom_tape_event(t, p->grad, OOM_EV_GRAD);
		return;
	}
	/* shared with another branch, or laid out otherwise than the weight (convolutions, adapters
	 * of embeddings): AccumulateGrad clones it */
	if (t->refs[g.sto] > 1 || (g.perm && (p->mid || p->flags & OOM_P_LORA))) {
		struct grad c = fresh(t, "grad clone", g.mono, g.width, g.dt, false);

		oom_unref(t, g.sto);
		g = c;
	}
	p->grad = g.sto;
	t->rows[g.sto].cat = OOM_CAT_GRAD;
	t->rows[g.sto].name = p->name;
	t->rows[g.sto].scope = p->scope;
	/* a tied weight's waits in the engine's buffer for the others */
	if (p->got >= p->edges)
		oom_tape_event(t, g.sto, OOM_EV_GRAD);
}

/* Gradients whose other half never came: on no path from the loss. */
static void settle(struct oom_tape *t)
{
	for (size_t i = 0; i < t->n_params; i++)
		if (t->params[i].grad >= 0 && t->params[i].got < t->params[i].edges)
			oom_tape_event(t, t->params[i].grad, OOM_EV_GRAD);
}

/* ---- into the next buffer ---- */

static void push(struct oom_tape *t, const struct oom_edge *e, struct grad g)
{
	struct oom_node *to;

	if (!g.given)
		return;
	if (e->to == -1) {
		oom_unref(t, g.sto);
		return;
	}
	if (e->to <= -2) {
		accumulate_grad(t, -2 - e->to, g);
		return;
	}
	to = &t->nodes[e->to];
	if (!to->has[e->slot]) {
		to->has[e->slot] = true;
		to->grad[e->slot] = g.sto;
		to->gperm[e->slot] = g.perm;
		to->ggaps[e->slot] = g.gaps;
		return;
	}
	/* not ours alone, or with gaps (can_accumulate_inplace of
	 * torch/csrc/autograd/input_buffer.cpp): out of place */
	if (to->grad[e->slot] >= 0 &&
	    (to->ggaps[e->slot] || t->refs[to->grad[e->slot]] > 1)) {
		struct grad c = fresh(t, "grad sum", e->mono, e->width, e->dt, g.perm);

		oom_unref(t, to->grad[e->slot]);
		to->grad[e->slot] = c.sto;
		to->ggaps[e->slot] = false;
	}
	oom_unref(t, g.sto);
}

static struct grad validated(struct oom_tape *t, const struct oom_edge *e, struct grad g)
{
	if (!g.given)
		return g;
	if (g.mono != e->mono || g.width != e->width) {
		struct grad r = fresh(t, "sum", e->mono, e->width, g.dt, false);

		oom_unref(t, g.sto);
		g = r;
	}
	if (g.dt != e->dt) {
		struct grad r = fresh(t, "_to_copy", e->mono, e->width, e->dt, g.perm);

		oom_unref(t, g.sto);
		g = r;
	}
	return g;
}

/* ---- derivatives ---- */

static struct grad shared(struct oom_tape *t, const struct oom_node *n)
{
	oom_ref(t, n->grad[0]);
	return (struct grad){.sto = n->grad[0],
			     .mono = n->mono,
			     .width = n->width,
			     .dt = n->dt,
			     .perm = n->gperm[0],
			     .given = true};
}

static void linear_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	const uint64_t w = needed(n, 1) ? n->edge[1].width : 0;
	const bool first = n->added;

	/* in the order of the arguments' names: addmm's mat1, mat2, self, but mm's mat2, self */
	if (first && needed(n, 0))
		g[0] = for_edge(t, n, 0, n->dt);
	if (needed(n, 1))
		g[1] = fresh(t, n->name, OOM_MONO_ONE, w, n->dt, false);
	if (!first && needed(n, 0))
		g[0] = for_edge(t, n, 0, n->dt);
	if (needed(n, 2))
		g[2] = shared(t, n);            /* summed over the tokens by validate_outputs */
}

/* convolution_backward makes all three; the weight's lies as the input does
 * (turned: channels last). */
static void conv_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	for (int i = 0; i < 3; i++)
		if (needed(n, i))
			g[i] = fresh(t, n->name, n->edge[i].mono, n->edge[i].width, n->dt,
				     i == 1 && n->turned);
}

/* MatMul4Bit.backward, MatMul8bitLt.backward (bitsandbytes/autograd/_functions.py) */
static void quantised_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	if (needed(n, 1))                       /* grad_output.sum(0) first */
		g[1] = for_edge(t, n, 1, n->dt);
	if (needed(n, 0)) {
		const struct oom_val dq = oom_dequantised_back(t, n->aux_width, (enum oom_dtype)n->dt);

		g[0] = for_edge(t, n, 0, n->dt);
		oom_drop(t, dq);
	}
}

/* The most that a row of ops.c's table has. */
enum { MAX_TEMPS = 4 };

static void unary_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	int32_t temp[MAX_TEMPS] = {-1, -1, -1, -1};
	struct grad flags = {.sto = -1}, zero = {.sto = -1};

	if (n->temps.scalar)
		zero = fresh(t, n->name, OOM_MONO_ONE, 1, n->dt, false);
	/* pow_backward: grad * (exponent * self.pow(exponent - 1)): two temporaries, alive until
	 * the result is made */
	if (n->temps.flags)
		flags = fresh(t, n->name, n->mono, n->temps.flags * n->width, OOM_U8, false);
	for (int i = 0; i < n->temps.full && i < MAX_TEMPS; i++)
		temp[i] = fresh(t, n->name, n->mono, n->width, n->dt, n->gperm[0]).sto;
	g[0] = fresh(t, n->name, n->edge[0].mono, n->edge[0].width, n->dt, n->gperm[0]);
	for (int i = 0; i < MAX_TEMPS; i++)
		oom_unref(t, temp[i]);
	oom_unref(t, flags.sto);
	oom_unref(t, zero.sto);
}

static void custom_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	struct grad own = {.sto = -1}, more = {.sto = -1};

	if (n->temps.full)
		own = fresh(t, n->name, n->mono, n->temps.full * n->width, n->dt, false);
	if (n->temps.flags)
		more = fresh(t, n->name, n->mono, n->temps.flags * n->width, OOM_U8, false);
	for (int i = 0; i < n->n_edge; i++)
		if (needed(n, i))
			g[i] = for_edge(t, n, i, n->edge[i].dt);
	oom_unref(t, own.sto);
	oom_unref(t, more.sto);
}

static void mul_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	for (int i = 0; i < 2; i++)
		if (needed(n, i))
			g[i] = fresh(t, n->name, n->mono, n->width, n->dt, n->gperm[0]);
}

static void div_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	if (needed(n, 0))
		g[0] = fresh(t, n->name, n->mono, n->width, n->dt, n->gperm[0]);
	if (needed(n, 1)) {                     /* -grad * ((self / other) / other) */
		int32_t neg = fresh(t, n->name, n->mono, n->width, n->dt, false).sto;
		int32_t q = fresh(t, n->name, n->mono, n->width, n->dt, false).sto;
		int32_t qq = fresh(t, n->name, n->mono, n->width, n->dt, false).sto;

		oom_unref(t, q);
		g[1] = fresh(t, n->name, n->mono, n->width, n->dt, false);
		oom_unref(t, neg);
		oom_unref(t, qq);
	}
}

/* CopySlices (torch/csrc/autograd/functions/tensor.cpp): the whole gradient is copied, the part
 * cloned for the source and zeroed in the copy. */
static void set_slice_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	struct grad whole = fresh(t, n->name, n->mono, n->width, n->dt, false);

	g[1] = fresh(t, n->name, n->edge[1].mono, n->edge[1].width, n->dt, false);
	if (needed(n, 0)) {
		oom_scratch(t, n->name, n->edge[1].mono, n->edge[1].width, (enum oom_dtype)n->dt);
		g[0] = whole;
	} else {
		oom_unref(t, whole.sto);
	}
	if (!needed(n, 1)) {
		oom_unref(t, g[1].sto);
		g[1].given = false;
	}
}

static void split_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	g[0] = for_edge(t, n, 0, n->dt);
}

static void cat_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	for (int i = 0; i < n->n_edge; i++)
		if (needed(n, i)) {             /* narrow(): a view of the gradient */
			g[i] = shared(t, n);
			g[i].mono = n->edge[i].mono;
			g[i].width = n->edge[i].width;
			g[i].gaps = n->kind == OOM_NODE_STACK;
		}
}

static void layer_norm_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	if (needed(n, 0))
		g[0] = for_edge(t, n, 0, n->dt);
	for (int i = 1; i < 3; i++)
		if (needed(n, i))
			g[i] = for_edge(t, n, i, n->edge[i].dt);
}

/* embedding_dense_backward: above 3072 tokens the sort-based kernel keeps seven index arrays and an
 * fp32 row per token (aten/src/ATen/native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu). */
static void embedding_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	struct oom_val s[9];
	int k = 0;
	const uint16_t m = n->aux_mono;
	const uint64_t w = n->aux_width;

	g[0] = for_edge(t, n, 0, n->dt);
	/* an adapter's A is looked up transposed */
	g[0].perm = n->edge[0].to <= -2 && t->params[-2 - n->edge[0].to].flags & OOM_P_LORA;
	if (!oom_cond_above(t, m, 3072 / (w ? w : 1)))
		return;
	s[k++] = oom_scratch_hold(t, "sorted ids", m, w, OOM_I64);
	s[k++] = oom_scratch_hold(t, "permutation", m, w, OOM_I64);
	s[k++] = oom_scratch_hold(t, "sort scratch", m, 2 * w, OOM_I64);
	s[k++] = oom_scratch_hold(t, "sort scratch", OOM_MONO_ONE, 512, OOM_I64);
	for (int i = 0; i < 4; i++)
		s[k++] = oom_scratch_hold(t, "segments", m, w, OOM_I64);
	s[k++] = oom_scratch_hold(t, "partial sums", n->mono, n->width, OOM_F32);
	for (int i = 0; i < k; i++)
		oom_drop(t, s[i]);
}

/* mha_varlen_bwd: softmax_d and an fp32 accumulator for dq; grouped heads expand dk and dv to
 * the query heads. */
static void flash_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	const uint64_t heads = n->heads, d = n->d, kv = n->aux_width;
	const uint64_t dr = d <= 128 ? oom_round_up(d, 32) : oom_round_up(d, 64);
	struct oom_val s[6];
	int k = 0;

	for (int i = 0; i < 3; i++)
		g[i] = fresh(t, n->name, n->edge[i].mono, n->edge[i].width, n->dt,
			     n->perm >> i & 1);
	/* the kernel wants out and its gradient as [b, s, h, d] */
	if (!(n->perm & 1))
		s[k++] = oom_scratch_hold(t, "out copy", n->mono, n->width, (enum oom_dtype)n->dt);
	if (!n->gperm[0])
		s[k++] = oom_scratch_hold(t, "grad copy", n->mono, n->width, (enum oom_dtype)n->dt);
	s[k++] = oom_scratch_hold(t, "softmax_d", n->aux_mono, heads, OOM_F32);
	s[k++] = oom_scratch_hold(t, "dq accumulator", n->aux_mono, heads * dr, OOM_F32);
	if (heads != kv)
		for (int i = 0; i < 2; i++)
			s[k++] = oom_scratch_hold(t, "expanded dk dv", n->edge[1].mono, heads * d,
						  (enum oom_dtype)n->dt);
	for (int i = 0; i < k; i++)
		oom_drop(t, s[i]);
}

/* dk and dv that do not fit in registers, in fp32, for each of the parts the keys are split into:
 * at most 200 over batch x heads of them (attention_backward.cu, num_splits_key).  The batch and
 * the length decide: others record anew. */
static struct oom_val dk_workspace(struct oom_tape *t, const struct oom_node *n, uint64_t heads,
				   uint64_t width)
{
	const uint16_t keys = n->edge[1].mono;
	const uint64_t b = t->val_b, most = 200 / (b * heads) ? 200 / (b * heads) : 1;
	const uint64_t length = b ? oom_mono_now(t, keys) / b : 0;
	uint64_t splits = oom_ceil_div(length, 128);

	if (most > 1 || splits < 1) {
		oom_cond_above(t, t->m_b, b);
		oom_cond_above(t, t->m_b, b - 1);
		oom_cond_above(t, keys, b * splits * 128);
		if (splits)
			oom_cond_above(t, keys, b * (splits - 1) * 128);
	}
	splits = splits > most ? most : splits;
	return oom_scratch_hold(t, "dk dv workspace", t->m_b, heads * splits * 128 * width, OOM_F32);
}

/* mem_efficient backward: delta and a per-tile fp32 workspace for dq (sizes approximate: tile 64
 * or 128). */
static void efficient_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	const uint64_t heads = n->heads, d = n->d, dv = n->width / heads;
	const uint64_t wide = d > dv ? d : dv;
	const bool half = n->dt != OOM_F32;
	const uint64_t bi = wide <= 64 || !half ? 64 : 128, cap = wide <= 64 ? 64 : 128;
	const uint64_t cols = oom_ceil_div(d, cap), dw = oom_round_up(d, 32);
	const uint64_t tile = bi * (dw < 128 ? dw : 128);
	const uint16_t blocks = oom_mono_tiles(t, n->aux_mono, n->length, (uint32_t)bi);
	struct oom_val s[4];
	int k = 0;

	for (int i = 0; i < 3; i++)
		g[i] = fresh(t, n->name, n->edge[i].mono, n->edge[i].width, n->dt, true);
	if (n->n_edge > 3 && needed(n, 3))      /* a learned bias (grad_bias of the kernel) */
		g[3] = for_edge(t, n, 3, n->dt);
	if (!n->gperm[0])
		s[k++] = oom_scratch_hold(t, "grad copy", n->mono, n->width, (enum oom_dtype)n->dt);
	s[k++] = oom_scratch_hold(t, "delta", n->aux_mono, heads, OOM_F32);
	s[k++] = oom_scratch_hold(t, "dq workspace", blocks, heads * cols * (4 + tile), OOM_F32);
	if (half && wide > 128)
		s[k++] = dk_workspace(t, n, heads, oom_round_up(d, bi) + oom_round_up(dv, bi));
	for (int i = 0; i < k; i++)
		oom_drop(t, s[i]);
}

static void grouped_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	for (int i = 1; i >= 0; i--)
		if (needed(n, i))
			g[i] = for_edge(t, n, i, n->dt);
}

static void given_rule(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	for (int i = 0; i < n->n_saved && i < n->n_edge; i++)
		if (needed(n, i) && n->saved[i] >= 0) {
			oom_ref(t, n->saved[i]);
			g[i] = (struct grad){.sto = n->saved[i],
					     .mono = n->edge[i].mono,
					     .width = n->edge[i].width,
					     .dt = n->edge[i].dt,
					     .given = true};
		}
}

/* gather_backward: zeros of the logits, and a second tensor that the gradient is scattered into.
 * On eager tensors that is done in place, which takes one less: the runs that were measured were
 * traced, whose tensors are a subclass (torch/csrc/autograd/FunctionsManual.cpp). */
static struct grad picked(struct oom_tape *t, const struct oom_node *n, uint8_t dt)
{
	const struct grad zeros = for_edge(t, n, 0, dt), all = for_edge(t, n, 0, dt);

	oom_unref(t, zeros.sto);
	return all;
}

/* Every sequence by itself: grad * (self - result).exp() of logsumexp, whose temporaries are as
 * large as the gradient; or a pick's two tensors and the gradient of a log_softmax, which then dies.
 * UnbindBackward stacks what the sequences made. */
static void rows_rule(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	struct oom_val temp[2];
	struct grad rows = {.sto = -1};

	if (n->dt == OOM_F32)
		rows = for_edge(t, n, 0, n->dt);
	for (int i = 0; i < 2; i++)
		temp[i] = oom_scratch_hold(t, n->name, n->aux_mono, n->edge[0].width,
					   (enum oom_dtype)n->dt);
	for (int i = 0; i < 2; i++)
		oom_drop(t, temp[i]);
	for (int s = 0; s < n->n_saved; s++) {
		oom_unref(t, n->saved[s]);
		n->saved[s] = -1;
	}
	if (rows.sto < 0)
		rows = for_edge(t, n, 0, n->dt);
	g[0] = for_edge(t, n, 0, n->dt);
	oom_unref(t, rows.sto);
}

/* Of log-probabilities: the sum's gradient is one number a token, spread out (cast to 16 bit it is
 * written out); the pick's is added to it out of place. */
static void in_view_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	struct grad part, divided;

	g[0] = for_edge(t, n, 0, n->dt);
	part = for_edge(t, n, 0, n->dt);
	divided = for_edge(t, n, 0, n->dt);
	oom_unref(t, part.sto);
	oom_unref(t, divided.sto);
}

static void smooth_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	struct grad pick;

	if (n->dt != OOM_F32)
		g[0] = for_edge(t, n, 0, n->dt);
	pick = picked(t, n, n->dt);
	if (n->dt == OOM_F32)
		g[0] = for_edge(t, n, 0, n->dt);
	oom_unref(t, pick.sto);
}

/* One chunk of a head and its loss (aux: its logits) again, whole, and back: log-probabilities, the zeros
 * nll_loss fills, the logits' gradient; then the weight's in fp32, beside the fp32 copy that a 16-bit
 * weight was made, and cast.  The engine's buffer sums the chunks'. */
static struct grad chunk_again(struct oom_tape *t, const struct oom_node *n, bool weight)
{
	const struct oom_edge *h = &n->edge[0], *e = &n->edge[1];
	const bool full = e->dt == OOM_F32;
	struct grad w = {.sto = -1}, lp, zeros, logits, gw = {.given = false}, cast;
	int32_t entropy[2];

	if (!full)
		w = fresh(t, "weight in fp32", OOM_MONO_ONE, e->width, OOM_F32, false);
	logits = fresh(t, "logits chunk", n->aux_mono, n->aux_width, OOM_F32, false);
	lp = fresh(t, "log_softmax", n->aux_mono, n->aux_width, OOM_F32, false);
	for (int i = 0; i < 2; i++)             /* exp, and its product with the log-probabilities */
		entropy[i] = fresh(t, "entropy", n->aux_mono, n->aux_width, OOM_F32, false).sto;
	for (int i = 0; i < 2; i++)
		oom_unref(t, entropy[i]);
	oom_unref(t, logits.sto);
	zeros = fresh(t, "nll_loss_backward", n->aux_mono, n->aux_width, OOM_F32, false);
	logits = fresh(t, "_log_softmax_backward_data", n->aux_mono, n->aux_width, OOM_F32, false);
	oom_unref(t, zeros.sto);
	oom_unref(t, lp.sto);
	if (weight)
		gw = fresh(t, n->name, OOM_MONO_ONE, e->width, OOM_F32, false);
	oom_scratch(t, "input chunk", n->aux_mono, n->aux_width / t->vocab * h->width, OOM_F32);
	oom_unref(t, w.sto);
	oom_unref(t, logits.sto);
	if (weight && !full) {
		cast = fresh(t, "_to_copy", OOM_MONO_ONE, e->width, e->dt, false);
		oom_unref(t, gw.sto);
		gw = cast;
	}
	return gw;
}

static void chunked_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	const bool many = n->aux_mono == OOM_MONO_ONE;
	struct grad x = {.sto = -1};

	if (needed(n, 0))                       /* of all chunks: zeros, filled one by one */
		x = for_edge(t, n, 0, n->edge[0].dt);
	for (int i = 0; i < (many ? 2 : 1); i++) {
		const struct grad gw = chunk_again(t, n, needed(n, 1));

		if (needed(n, 0))
			oom_scratch(t, "slice_backward", n->edge[0].mono, n->edge[0].width,
				    (enum oom_dtype)n->edge[0].dt);
		if (g[1].given)
			oom_unref(t, gw.sto);
		else
			g[1] = gw;
	}
	if (needed(n, 0)) {                     /* hidden[order], [..., :-1, :] */
		oom_scratch(t, "index_backward", n->edge[0].mono, n->edge[0].width,
			    (enum oom_dtype)n->edge[0].dt);
		g[0] = for_edge(t, n, 0, n->edge[0].dt);
	}
	oom_unref(t, x.sto);
}

/* One of cut cross-entropy's gradients: zeros of the operand's own type, and cast to the parameter's
 * where autocast had cast that. */
static struct grad cut_grad(struct oom_tape *t, const struct oom_node *n, int i)
{
	const struct grad own = for_edge(t, n, i, n->dt);
	struct grad cast;

	if (n->edge[i].dt == n->dt)
		return own;
	cast = for_edge(t, n, i, n->edge[i].dt);
	oom_unref(t, own.sto);
	return cast;
}

/* The order of the vocabulary (an argsort: 8 and 4 bytes a word), both gradients in the operands'
 * types, then casts: the weight's first (cut_cross_entropy/cce.py backward, cce_backward.py). */
static void cut_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	const struct oom_val order = oom_scratch_hold(t, "vocabulary order", OOM_MONO_ONE,
						      n->aux_width, OOM_F32);
	struct grad de = {.sto = -1};

	oom_scratch(t, "argsort", OOM_MONO_ONE, n->aux_width, OOM_I64);
	if (needed(n, 0))
		de = for_edge(t, n, 0, n->dt);
	if (needed(n, 1))
		g[1] = cut_grad(t, n, 1);
	g[0] = de;
	if (needed(n, 0) && n->edge[0].dt != n->dt) {
		g[0] = for_edge(t, n, 0, n->edge[0].dt);
		oom_unref(t, de.sto);
	}
	oom_drop(t, order);
}

/* dX over dY, or beside it; the weight's gradient in as many partial sums as the GPU has
 * multiprocessors (ops/rms_norm.py rms_norm_backward; an A100's 108, others differ). */
static void liger_rms_rule(struct oom_tape *t, const struct oom_node *n, struct grad *g)
{
	enum { MULTIPROCESSORS = 108 };
	struct oom_val sums = oom_none();

	if (needed(n, 0))
		g[0] = n->added ? for_edge(t, n, 0, n->dt) : shared(t, n);
	sums = oom_scratch_hold(t, "partial sums", OOM_MONO_ONE, MULTIPROCESSORS * n->edge[1].width,
				OOM_F32);
	if (needed(n, 1))
		g[1] = for_edge(t, n, 1, n->edge[1].dt);
	oom_drop(t, sums);
}

static void derive(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	switch ((enum oom_node_kind)n->kind) {
	case OOM_NODE_LINEAR: linear_rule(t, n, g); break;
	case OOM_NODE_CONV: conv_rule(t, n, g); break;
	case OOM_NODE_QUANTISED_LINEAR: quantised_rule(t, n, g); break;
	case OOM_NODE_MUL: mul_rule(t, n, g); break;
	case OOM_NODE_DIV: div_rule(t, n, g); break;
	case OOM_NODE_ADD:
		for (int i = 0; i < 2; i++)
			if (needed(n, i))
				g[i] = shared(t, n);
		break;
	case OOM_NODE_UNARY: unary_rule(t, n, g); break;
	case OOM_NODE_SUM:
		g[0] = shared(t, n);
		g[0].mono = n->edge[0].mono;
		g[0].width = n->edge[0].width;
		g[0].perm = false;
		break;
	case OOM_NODE_SOFTMAX: g[0] = for_edge(t, n, 0, n->edge[0].dt); break;
	case OOM_NODE_PASS: g[0] = shared(t, n); break;
	case OOM_NODE_HEADS:
		if (n->gperm[0]) {
			g[0] = shared(t, n);
			g[0].perm = false;
		} else {
			g[0] = for_edge(t, n, 0, n->dt);
		}
		break;
	case OOM_NODE_MERGE:
		g[0] = shared(t, n);
		g[0].perm = true;
		break;
	case OOM_NODE_CAST:
		g[0] = fresh(t, n->name, n->edge[0].mono, n->edge[0].width, n->edge[0].dt,
			     n->gperm[0]);
		break;
	case OOM_NODE_SPLIT: split_rule(t, n, g); break;
	case OOM_NODE_SET_SLICE: set_slice_rule(t, n, g); break;
	case OOM_NODE_INDEX_ADD:
		if (needed(n, 0))
			g[0] = shared(t, n);
		if (needed(n, 1))
			g[1] = for_edge(t, n, 1, n->dt);
		break;
	case OOM_NODE_CAT: case OOM_NODE_STACK: cat_rule(t, n, g); break;
	case OOM_NODE_BMM: case OOM_NODE_GROUPED_MM: grouped_rule(t, n, g); break;
	case OOM_NODE_LAYER_NORM: case OOM_NODE_GROUP_NORM: layer_norm_rule(t, n, g); break;
	case OOM_NODE_EMBEDDING: embedding_rule(t, n, g); break;
	case OOM_NODE_FLASH: flash_rule(t, n, g); break;
	case OOM_NODE_EFFICIENT: efficient_rule(t, n, g); break;
	case OOM_NODE_GIVEN: given_rule(t, n, g); break;
	case OOM_NODE_PICK: g[0] = picked(t, n, n->dt); break;
	case OOM_NODE_ROWS: rows_rule(t, n, g); break;
	case OOM_NODE_IN_VIEW: in_view_rule(t, n, g); break;
	case OOM_NODE_CHUNKED: chunked_rule(t, n, g); break;
	case OOM_NODE_SMOOTH: smooth_rule(t, n, g); break;
	case OOM_NODE_CUT: cut_rule(t, n, g); break;
	case OOM_NODE_LIGER_RMS: liger_rms_rule(t, n, g); break;
	case OOM_NODE_SLICE:
	case OOM_NODE_MEAN:
	case OOM_NODE_EXPAND:
	case OOM_NODE_NLL:
	case OOM_NODE_GATHER:
	case OOM_NODE_WHERE:
		g[0] = for_edge(t, n, 0, n->dt);
		break;
	case OOM_NODE_CUSTOM: custom_rule(t, n, g); break;
	case OOM_NODE_LEAF: case OOM_NODE_KINDS: break;
	}
}

static void run_node(struct oom_tape *t, int32_t i);
static void run_nodes(struct oom_tape *t, int32_t from, int32_t to);

/* Runs a checkpointed block again, recording its nodes; what it returns is the caller's. */
static struct oom_val run_again(struct oom_tape *t, const struct oom_ckpt *c, bool dry)
{
	const struct oom_tally tally = t->tally;
	struct oom_val y;

	t->cursor = c->param0;
	t->packs = 0;
	t->pack_limit = oom_ckpt_reenters(t->plan) ? UINT32_MAX : c->packs;
	t->grad = true;
	t->recompute = true;
	t->dry = t->stopped = dry;
	oom_amp_enter(t);
	y = oom_layer_run(t, c);
	oom_amp_leave(t);
	t->stopped = t->dry = false;
	t->grad = false;
	if (dry)                                /* nothing was computed */
		t->tally = tally;
	oom_drop(t, t->side);
	t->side = oom_none();
	return y;
}

static struct oom_val block_again(struct oom_tape *t, const struct oom_ckpt *c, bool dry)
{
	const struct oom_val y = run_again(t, c, dry);

	oom_drop(t, y);
	return y;
}

static void release_saved(struct oom_tape *t, const struct oom_node *n)
{
	for (int s = 0; s < n->n_saved; s++)
		oom_unref(t, n->saved[s]);
}

/* The gradient that has come to a checkpoint, taken from it. */
static struct grad incoming(struct oom_tape *t, int32_t index)
{
	struct oom_node *n = &t->nodes[index];
	const struct grad g = {.sto = n->grad[0],
			       .mono = n->mono,
			       .width = n->width,
			       .dt = n->dt,
			       .perm = n->gperm[0],
			       .given = n->has[0]};

	n->grad[0] = -1;
	return g;
}

static void push_output(struct oom_tape *t, const struct oom_val *y, struct grad g)
{
	push(t,
	     &(struct oom_edge){.to = y->rg ? y->node : -1,
				.slot = y->slot,
				.mono = y->mono,
				.width = y->width,
				.dt = y->dt},
	     g);
}

/* A checkpointed block, use_reentrant=True: it runs again as a whole, and a backward pass of its own
 * walks its graph.  CheckpointFunction.backward (torch/utils/checkpoint.py) names the outputs and
 * the gradients that came until it returns, so that nothing is added into the latter. */
static void reenter(struct oom_tape *t, int32_t index)
{
	const struct oom_ckpt c = t->ckpts[t->nodes[index].ckpt];
	const int32_t mark = (int32_t)t->n_nodes;
	const size_t cursor = t->cursor, ckpts = t->n_ckpts;
	const bool within = t->recompute;
	const uint32_t packs = t->packs, limit = t->pack_limit;
	struct oom_val y = run_again(t, &c, false);
	const struct grad g = incoming(t, index);

	if (g.sto >= 0)
		oom_ref(t, g.sto);
	t->recompute = false;                   /* saved tensors are the graph's, as in any backward */
	push_output(t, &y, g);
	run_nodes(t, (int32_t)t->n_nodes - 1, mark);
	oom_drop(t, y);
	if (g.sto >= 0)
		oom_unref(t, g.sto);
	release_saved(t, &t->nodes[index]);
	t->cursor = cursor;
	t->packs = packs;
	t->pack_limit = limit;
	t->n_nodes = (size_t)mark;
	t->n_ckpts = ckpts;
	t->recompute = within;
}

/* A checkpointed block: its last nodes run as far as they need no saved tensor; the first that does
 * sets off the recomputation, after which the graph goes on (torch.utils.checkpoint,
 * use_reentrant=False, early_stop=True). */
static void recompute(struct oom_tape *t, int32_t index)
{
	const struct oom_ckpt c = t->ckpts[t->nodes[index].ckpt];
	const int32_t mark = (int32_t)t->n_nodes;
	const size_t cursor = t->cursor, ckpts = t->n_ckpts;
	const bool within = t->recompute;       /* a checkpointed layer of a checkpointed stage */
	const uint32_t packs = t->packs, limit = t->pack_limit;
	const size_t kept_at = t->kept.at, kept_end = t->kept.end;
	struct oom_val y = block_again(t, &c, true);
	int32_t k = (int32_t)t->n_nodes - 1, real = (int32_t)t->n_nodes, saves;

	push_output(t, &y, incoming(t, index));
	while (k >= mark && !t->nodes[k].n_packed)
		run_node(t, k--);
	t->kept.at = c.kept0;
	t->kept.end = c.kept1;
	block_again(t, &c, false);
	if ((int32_t)t->n_nodes - real < k + 1 - mark) {
		oom_tape_fail(t, OOM_ERR_LIMIT, "a recomputed block differs from its forward");
		return;
	}
	for (int32_t i = mark; i <= k; i++) {
		struct oom_node *to = &t->nodes[real + i - mark];
		const struct oom_node *from = &t->nodes[i];

		memcpy(to->has, from->has, sizeof(to->has));
		memcpy(to->grad, from->grad, sizeof(to->grad));
		memcpy(to->gperm, from->gperm, sizeof(to->gperm));
		memcpy(to->ggaps, from->ggaps, sizeof(to->ggaps));
	}
	/* What nodes of the first run hold by themselves goes with each of them; those of the second,
	 * which died with its graph, are its size: they stand for them from here. */
	while (t->nodes[index].n_saved > 1)
		oom_unref(t, t->nodes[index].saved[--t->nodes[index].n_saved]);
	/* The block's input is the hooks', which the saved tensors hold (_CheckpointFrame): the views
	 * and casts before the first of these do without it. */
	saves = real;
	while (saves < real + k - mark && !t->nodes[saves].n_saved)
		saves++;
	run_nodes(t, real + k - mark, saves);
	oom_drop_kept(t);
	t->kept.at = kept_at;
	t->kept.end = kept_end;
	release_saved(t, &t->nodes[index]);
	run_nodes(t, saves - 1, real);
	t->cursor = cursor;
	t->packs = packs;
	t->pack_limit = limit;
	t->n_nodes = (size_t)mark;
	t->n_ckpts = ckpts;
	t->recompute = within;
}

/* Masks and tables the checkpointed blocks of one stack held: gone with its first layer's graph.
 *  node -1: all. */
static void drop_held(struct oom_tape *t, int32_t node)
{
	size_t left = 0;

	for (size_t i = 0; i < t->n_held; i++)
		if (node < 0 || t->held_node[i] == node) {
			oom_unref(t, t->held[i]);
		} else {
			t->held_node[left] = t->held_node[i];
			t->held[left++] = t->held[i];
		}
	t->n_held = left;
}

static void run_node(struct oom_tape *t, int32_t i)
{
	struct oom_node *n = &t->nodes[i], copy;
	struct grad g[OOM_MAX_EDGES];
	bool any = false;

	for (int s = 0; s < n->n_out; s++)
		any |= n->has[s];
	memset(g, 0, sizeof(g));
	/* not on the path from the loss: dies with the graph */
	if (!any) {
		release_saved(t, n);
		if (n->kind == OOM_NODE_CKPT)
			for (uint32_t k = t->ckpts[n->ckpt].kept0; k < t->ckpts[n->ckpt].kept1; k++)
				oom_unref(t, t->kept.row[k]);
		return;
	}
	if (n->kind == OOM_NODE_CKPT) {
		if (oom_ckpt_reenters(t->plan))
			reenter(t, i);
		else
			recompute(t, i);
		drop_held(t, i);
		return;
	}
	copy = *n;
	t->scope = copy.scope;
	derive(t, &copy, g);
	/* torch/csrc/autograd/engine.cpp: call_function holds the incoming gradients until
	 * validate_outputs is through, and evaluate_function calls release_variables only then.
	 * What a checkpoint recomputed is unpacked once and dies with the derivative's own
	 * locals (torch/utils/checkpoint.py, unpack_hook). */
	if (t->recompute)
		release_saved(t, &copy);
	for (int e = 0; e < copy.n_edge; e++)
		if (needed(&copy, e))
			g[e] = validated(t, &copy.edge[e], g[e]);
	for (int s = 0; s < copy.n_out; s++)
		if (copy.has[s])
			oom_unref(t, copy.grad[s]);
	if (!t->recompute)
		release_saved(t, &copy);
	for (int e = 0; e < copy.n_edge; e++)
		if (needed(&copy, e))
			push(t, &copy.edge[e], g[e]);
		else if (g[e].given) /* a kernel makes all its gradients, asked for or not */
			oom_unref(t, g[e].sto);
}

static void run_nodes(struct oom_tape *t, int32_t from, int32_t to)
{
	for (int32_t i = from; i >= to && !t->status; i--)
		run_node(t, i);
}

void oom_backward(struct oom_tape *t, struct oom_val loss)
{
	int32_t at = (int32_t)t->n_nodes - 1, root = -1;

	t->stream = OOM_STREAM_BWD;
	t->in_bwd = true;
	t->grad = false;
	if (loss.node >= 0 && loss.rg) {                   /* the root gradient: ones_like(loss) */
		struct oom_val one = oom_new(t, "grad of loss", OOM_MONO_ONE, D(1), OOM_F32);

		t->nodes[loss.node].has[loss.slot] = true;
		t->nodes[loss.node].grad[loss.slot] = root = one.sto;
		/* torch.autograd.backward's own tuple of them lives until it returns */
		oom_ref(t, root);
	}
	for (size_t l = t->n_layers; l-- > 0 && !t->status;) {
		const struct oom_layer_rec r = t->layers[l];
		size_t rep = 0;

		run_nodes(t, at, r.node1);
		t->group = r.group;
		t->mult = r.reps;
		t->in_layer = true;
		if (r.reps > 1 && !oom_tape_repeat(t, r.reps, &rep))
			return;
		for (size_t u = r.unit1; u-- > r.unit0;) {
			oom_tape_mark_unit(t, u, false);
			run_nodes(t, t->units[u].node1 - 1, t->units[u].node0);
			oom_tape_mark_unit(t, u, true);
		}
		if (r.reps > 1)
			oom_tape_mark(t, rep, true);
		t->in_layer = false;
		t->group = 0;
		t->mult = 1;
		at = r.node0 - 1;
	}
	if (t->n_layers)
		drop_held(t, -1);
	run_nodes(t, at, 0);
	drop_held(t, -1);
	settle(t);
	t->in_bwd = false;
	t->grad = true;
	oom_unref(t, root);
	oom_drop(t, loss);
}
