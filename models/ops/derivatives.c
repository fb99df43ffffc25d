/* Derivatives of arithmetic, products, norms and views, and the table of all. */
#include "derivatives.h"

struct grad oom_grad_fresh(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width, uint8_t dt, bool perm)
{
	struct oom_val v = oom_new(t, name, mono, (struct oom_dim){width, NULL}, (enum oom_dtype)dt);

	return (struct grad){.sto = v.sto, .mono = mono, .width = width, .dt = dt, .perm = perm, .given = true};
}

struct grad oom_grad_for_edge(struct oom_tape *t, const struct oom_node *n, int i, uint8_t dt)
{
	return oom_grad_fresh(t, n->name, n->edge[i].mono, n->edge[i].width, dt, false);
}

struct grad oom_grad_shared(struct oom_tape *t, const struct oom_node *n)
{
	oom_ref(t, n->grad[0]);
	return (struct grad){.sto = n->grad[0],
			     .mono = n->mono,
			     .width = n->width,
			     .dt = n->dt,
			     .perm = n->gperm[0],
			     .given = true};
}

static void linear(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	const uint64_t w = oom_needs_grad(n, 1) ? n->edge[1].width : 0;
	const bool first = n->added;
	/* The input's gradient comes through view(), the weight's through t(): views hold the products, whose storages have two
	 * owners (torch/csrc/autograd/variable.h, ViewInfo).  Compiled graphs have none; of a weight that its layer runs again it
	 * is one matrix, and left out: repeated layers are recorded once.  Of inputs in two dimensions (experts') the gradient is
	 * no view, and is taken for one: a tensor too many for a moment. */
	const bool views = t->plan->view_sums && !t->plan->compile;
	/* in fp8: the gradient of the result, and the weight or the input that it meets */
	struct grad narrow[2] = {{.sto = -1}, {.sto = -1}};

	if (n->aux_width) {
		narrow[0] = oom_grad_fresh(t, "gradient in fp8", n->mono, n->width, OOM_U8, false);
		narrow[1] = oom_grad_fresh(t, "weight in fp8", OOM_MONO_ONE, n->aux_width, OOM_U8, false);
	}
	/* in the order of the arguments' names: addmm's mat1, mat2, self, but mm's mat2, self */
	if (first && oom_needs_grad(n, 0))
		g[0] = oom_grad_for_edge(t, n, 0, n->dt);
	if (oom_needs_grad(n, 1))
		g[1] = oom_grad_fresh(t, n->name, OOM_MONO_ONE, w, n->dt, false);
	if (!first && oom_needs_grad(n, 0))
		g[0] = oom_grad_for_edge(t, n, 0, n->dt);
	if (oom_needs_grad(n, 2))
		g[2] = oom_grad_shared(t, n);            /* summed over the tokens by validate_outputs */
	for (int i = 0; i < 2; i++)
		if (oom_needs_grad(n, i)) {
			oom_of_cublas(t, g[i].sto);
			g[i].gaps = views && (i == 0 || !t->in_layer);
		}
	for (int i = 0; i < 2; i++)
		oom_unref(t, narrow[i].sto);
}

/* convolution_backward makes all three; the weight's lies as the input does
 * (turned: channels last). */
static void conv(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	for (int i = 0; i < 3; i++)
		if (oom_needs_grad(n, i))
			g[i] = oom_grad_fresh(t, n->name, n->edge[i].mono, n->edge[i].width, n->dt, i == 1 && n->turned);
}

/* MatMul4Bit.backward, MatMul8bitLt.backward (bitsandbytes/autograd/_functions.py) */
static void quantised(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	if (oom_needs_grad(n, 1))                       /* grad_output.sum(0) first */
		g[1] = oom_grad_for_edge(t, n, 1, n->dt);
	if (oom_needs_grad(n, 0)) {
		const struct oom_val dq = oom_dequantised_back(t, n->aux_width, (enum oom_dtype)n->dt);

		g[0] = oom_grad_for_edge(t, n, 0, n->dt);
		oom_of_cublas(t, g[0].sto);
		oom_drop(t, dq);
	}
}

/* The most that a row of elementwise.c's table has. */
enum { MAX_TEMPS = 4 };

static void unary(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	int32_t temp[MAX_TEMPS] = {-1, -1, -1, -1};
	struct grad flags = {.sto = -1}, zero = {.sto = -1};

	if (n->temps.scalar)
		zero = oom_grad_fresh(t, n->name, OOM_MONO_ONE, 1, n->dt, false);
	/* pow_backward: grad * (exponent * self.pow(exponent - 1)): two temporaries, alive until
	 * the result is made */
	if (n->temps.flags)
		flags = oom_grad_fresh(t, n->name, n->mono, n->temps.flags * n->width, OOM_U8, false);
	for (int i = 0; i < n->temps.full && i < MAX_TEMPS; i++)
		temp[i] = oom_grad_fresh(t, n->name, n->mono, n->width, n->dt, n->gperm[0]).sto;
	g[0] = oom_grad_fresh(t, n->name, n->edge[0].mono, n->edge[0].width, n->dt, n->gperm[0]);
	for (int i = 0; i < MAX_TEMPS; i++)
		oom_unref(t, temp[i]);
	oom_unref(t, flags.sto);
	oom_unref(t, zero.sto);
}

static void custom(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	struct grad own = {.sto = -1}, more = {.sto = -1};

	if (n->temps.full)
		own = oom_grad_fresh(t, n->name, n->mono, n->temps.full * n->width, n->dt, false);
	if (n->temps.flags)
		more = oom_grad_fresh(t, n->name, n->mono, n->temps.flags * n->width, OOM_U8, false);
	for (int i = 0; i < n->n_edge; i++)
		if (oom_needs_grad(n, i))
			g[i] = oom_grad_for_edge(t, n, i, n->edge[i].dt);
	oom_unref(t, own.sto);
	oom_unref(t, more.sto);
}

static void mul(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	for (int i = 0; i < 2; i++)
		if (oom_needs_grad(n, i))
			g[i] = oom_grad_fresh(t, n->name, n->mono, n->width, n->dt, n->gperm[0]);
}

/* div_tensor_other_grad comes first: -grad * ((self / other) / other), whose terms live until the product is
 * made, the quotients in the type that both promote to. */
static void div(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	const struct oom_val self = {.dt = n->edge[0].dt}, other = {.dt = n->edge[1].dt};
	const enum oom_dtype wide = oom_promote(self, other);

	if (oom_needs_grad(n, 1)) {
		int32_t term[3];

		for (int i = 0; i < 3; i++)
			term[i] = oom_grad_fresh(t, n->name, n->mono, n->width, i < 2 ? wide : n->dt, false).sto;
		g[1] = oom_grad_fresh(t, n->name, n->mono, n->width, wide, false);
		for (int i = 0; i < 3; i++)
			oom_unref(t, term[i]);
	}
	if (oom_needs_grad(n, 0))
		g[0] = oom_grad_fresh(t, n->name, n->mono, n->width, wide, n->gperm[0]);
}

/* CopySlices (torch/csrc/autograd/functions/tensor.cpp): the whole gradient is copied, the part
 * cloned for the source and, unless the source was added, zeroed in the copy. */
static void set_slice(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	struct grad whole = oom_grad_fresh(t, n->name, n->mono, n->width, n->dt, false);

	g[1] = oom_grad_fresh(t, n->name, n->edge[1].mono, n->edge[1].width, n->dt, false);
	if (oom_needs_grad(n, 0)) {
		if (!n->added)
			oom_scratch(t, n->name, n->edge[1].mono, n->edge[1].width, (enum oom_dtype)n->dt);
		g[0] = whole;
	} else {
		oom_unref(t, whole.sto);
	}
	if (!oom_needs_grad(n, 1)) {
		oom_unref(t, g[1].sto);
		g[1].given = false;
	}
}

static void cat(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	for (int i = 0; i < n->n_edge; i++)
		if (oom_needs_grad(n, i)) {             /* narrow(): a view of the gradient */
			g[i] = oom_grad_shared(t, n);
			g[i].mono = n->edge[i].mono;
			g[i].width = n->edge[i].width;
			g[i].gaps = n->kind == OOM_NODE_STACK;
		}
}

static void layer_norm(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	if (oom_needs_grad(n, 0))
		g[0] = oom_grad_for_edge(t, n, 0, n->dt);
	for (int i = 1; i < 3; i++)
		if (oom_needs_grad(n, i))
			g[i] = oom_grad_for_edge(t, n, i, n->edge[i].dt);
}

/* embedding_dense_backward: above 3072 tokens the sort-based kernel keeps seven index arrays and a row in fp32 for each
 * word that occurs, at most one per token, and for every tenth token (aten/src/ATen/native/cuda/Embedding.cu,
 * EmbeddingBackwardKernel.cu: max_segments, NROWS_PER_THREAD).  An emulated card has rows for the tokens alone. */
static void grouped(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	for (int i = 1; i >= 0; i--)
		if (oom_needs_grad(n, i))
			g[i] = oom_grad_for_edge(t, n, i, n->dt);
}

static void given(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	for (int i = 0; i < n->n_saved && i < n->n_edge; i++)
		if (oom_needs_grad(n, i) && n->saved[i] >= 0) {
			oom_ref(t, n->saved[i]);
			g[i] = (struct grad){.sto = n->saved[i],
					     .mono = n->edge[i].mono,
					     .width = n->edge[i].width,
					     .dt = n->edge[i].dt,
					     .given = true};
		}
}

static void add(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	for (int i = 0; i < 2; i++)
		if (oom_needs_grad(n, i))
			g[i] = oom_grad_shared(t, n);
}

static void sub(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	if (oom_needs_grad(n, 1))                       /* neg, which validate_outputs sums where b was broadcast */
		g[1] = oom_grad_fresh(t, n->name, n->mono, n->width, n->dt, false);
	if (oom_needs_grad(n, 0))
		g[0] = oom_grad_shared(t, n);
}

static void sum(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	g[0] = oom_grad_shared(t, n);
	g[0].mono = n->edge[0].mono;
	g[0].width = n->edge[0].width;
	g[0].perm = false;
}

static void pass(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	g[0] = oom_grad_shared(t, n);
}

static void heads(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	if (n->gperm[0]) {
		g[0] = oom_grad_shared(t, n);
		g[0].perm = false;
	} else {
		g[0] = oom_grad_for_edge(t, n, 0, n->dt);
	}
}

static void merge(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	g[0] = oom_grad_shared(t, n);
	g[0].perm = true;
}

static void cast(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	g[0] = oom_grad_fresh(t, n->name, n->edge[0].mono, n->edge[0].width, n->edge[0].dt, n->gperm[0]);
}

static void softmax(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	const struct oom_dim all = {n->edge[0].width, NULL};
	struct oom_val zeros = oom_none(), product = oom_none();

	if (n->zeros)
		zeros = oom_scratch_hold(t, "zeros for the logits returned", n->edge[0].mono, all.n, (enum oom_dtype)n->edge[0].dt);
	g[0] = oom_grad_for_edge(t, n, 0, n->edge[0].dt);
	if (n->product)
		product = oom_scratch_hold(t, n->name, n->mono, n->width, (enum oom_dtype)n->dt);
	oom_drop(t, product);
	/* what the graph was handed lives until it returns; hooks that gather parameters cut it behind the head (program.c) */
	if (n->zeros && t->plan->zero_stage != 3 && zeros.sto >= 0 && !t->returned_zeros)
		t->returned_zeros = zeros.sto + 1;
	else
		oom_drop(t, zeros);
}

static void index_add(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	if (oom_needs_grad(n, 0))
		g[0] = oom_grad_shared(t, n);
	if (oom_needs_grad(n, 1))
		g[1] = oom_grad_for_edge(t, n, 1, n->dt);
}

/* What its own operand's size is made, and nothing besides. */
static void whole(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	g[0] = oom_grad_for_edge(t, n, 0, n->dt);
}

/* Summed over the batch; of one sequence nothing was expanded, and what came is passed on: of a token before an image's
 * patches a view of the gradient of all of them, which AccumulateGrad takes over, storage and all. */
static void expanded(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	if (n->mono != t->m_b || n->edge[0].mono != OOM_MONO_ONE || n->width != n->edge[0].width ||
	    oom_cond_above(t, t->m_b, 1)) {
		whole(t, n, g);
		return;
	}
	g[0] = oom_grad_shared(t, n);
	g[0].mono = n->edge[0].mono;
	g[0].own = true;
}

/* as_strided_backward (torch/csrc/autograd/FunctionsManual.cpp) where elements overlap: the places of the whole
 * in 64-bit numbers, those of the view made contiguous, as its gradient is; index_add_ adds by them. */
static void as_strided(struct oom_tape *t, struct oom_node *n, struct grad *g)
{
	struct grad all, mine = {.sto = -1}, places;

	g[0] = oom_grad_for_edge(t, n, 0, n->dt);
	all = oom_grad_for_edge(t, n, 0, OOM_I64);
	if (n->turned)
		mine = oom_grad_fresh(t, n->name, n->mono, n->width, n->dt, false);
	places = oom_grad_fresh(t, n->name, n->mono, n->width, OOM_I64, false);
	oom_unref(t, places.sto);
	oom_unref(t, mine.sto);
	oom_unref(t, all.sto);
}

oom_derivative_fn *oom_derivative_of(enum oom_node_kind kind)
{
	static oom_derivative_fn *const rules[OOM_NODE_KINDS] = {
		[OOM_NODE_LINEAR] = linear,
		[OOM_NODE_CONV] = conv,
		[OOM_NODE_QUANTISED_LINEAR] = quantised,
		[OOM_NODE_MUL] = mul,
		[OOM_NODE_DIV] = div,
		[OOM_NODE_UNARY] = unary,
		[OOM_NODE_SPLIT] = whole,
		[OOM_NODE_AS_STRIDED] = as_strided,
		[OOM_NODE_SET_SLICE] = set_slice,
		[OOM_NODE_CAT] = cat,
		[OOM_NODE_STACK] = cat,
		[OOM_NODE_BMM] = grouped,
		[OOM_NODE_GROUPED_MM] = grouped,
		[OOM_NODE_LAYER_NORM] = layer_norm,
		[OOM_NODE_GROUP_NORM] = layer_norm,
		[OOM_NODE_EMBEDDING] = oom_derive_embedding,
		[OOM_NODE_FLASH] = oom_derive_flash,
		[OOM_NODE_EFFICIENT] = oom_derive_efficient,
		[OOM_NODE_TRACED] = oom_derive_traced,
		[OOM_NODE_GIVEN] = given,
		[OOM_NODE_ROWS] = oom_derive_rows,
		[OOM_NODE_IN_VIEW] = oom_derive_in_view,
		[OOM_NODE_CHUNKED] = oom_derive_chunked,
		[OOM_NODE_SMOOTH] = oom_derive_smooth,
		[OOM_NODE_CUT] = oom_derive_cut,
		[OOM_NODE_LIGER_RMS] = oom_derive_liger_rms,
		[OOM_NODE_FAST_LORA] = oom_derive_fast_lora,
		[OOM_NODE_CUSTOM] = custom,
		[OOM_NODE_CUMULATION] = oom_derive_cumulation,
		[OOM_NODE_ADD] = add,
		[OOM_NODE_SUB] = sub,
		[OOM_NODE_SUM] = sum,
		[OOM_NODE_LOGSUMEXP] = oom_derive_log_add,
		[OOM_NODE_SOFTMAX] = softmax,
		[OOM_NODE_PASS] = pass,
		[OOM_NODE_HEADS] = heads,
		[OOM_NODE_MERGE] = merge,
		[OOM_NODE_CAST] = cast,
		[OOM_NODE_INDEX_ADD] = index_add,
		[OOM_NODE_PICK] = oom_derive_pick,
		[OOM_NODE_SLICE] = whole,
		[OOM_NODE_MEAN] = whole,
		[OOM_NODE_EXPAND] = expanded,
		[OOM_NODE_NLL] = whole,
		[OOM_NODE_GATHER] = whole,
		[OOM_NODE_WHERE] = whole,
	};

	return kind < OOM_NODE_KINDS ? rules[kind] : NULL;
}
