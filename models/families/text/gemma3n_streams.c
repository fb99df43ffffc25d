/* Gemma 3n's AltUp: four streams out of the embeddings, which every layer predicts from one another
 * and corrects by what it computed.  Reference: transformers 5.12,
 * models/gemma3n/modeling_gemma3n.py Gemma3nTextAltUp. */
#include "gemma3n.h"

/* One module, called twice: the second time with the parameters it has (`again`: where they
 * begin). */
static struct oom_val gemma3n_modalities(struct oom_tape *t, const struct oom_arch *a,
					 struct oom_val x, const size_t *again)
{
	const size_t cursor = t->cursor;
	const enum oom_dtype dt = x.dt;
	const struct oom_dim n = {gemma3n_of(a)->altup, "altup_num_inputs"};
	struct oom_val y;

	if (again)
		t->cursor = *again;
	y = oom_op_unary(t, OOM_SCALE, oom_norm(t, a->norm, "router_norm", x, 0));
	y = oom_op_linear(t, "modality_router", y, n, 0);
	if (again)
		t->cursor = cursor;
	return oom_op_cast(t, oom_op_unary(t, OOM_TANH, oom_op_cast(t, y, OOM_F32)), dt);
}

/* streams @ coefficients + streams */
struct oom_val gemma3n_predict(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t n = gemma3n_of(a)->altup;
	const struct oom_dim one = {a->d_model, "d_model"}, all = {x.width, x.text},
			     square = {n * n, "altup_num_inputs ^ 2"};
	const enum oom_dtype dt = x.dt;
	struct oom_frame f = {.t = t};
	struct oom_val c, m, p;

	m = oom_name(&f, gemma3n_modalities(t, a, oom_op_slice(t, x, x.mono, one), NULL));
	c = oom_name(&f, oom_op_linear(t, "prediction_coefs", m, square, 0));
	p = oom_op_add_inplace(t, oom_op_bmm(t, "predictions", x, c, x.mono, all, n), x);
	return oom_leave(&f, oom_op_cast(t, oom_op_copy(t, "contiguous", p), dt));
}

/* predictions + (activated - predictions[0]) * coefficients */
struct oom_val gemma3n_correct(struct oom_tape *t, const struct oom_arch *a, struct oom_val pred,
			       struct oom_val activated, size_t router)
{
	const struct oom_dim one = {a->d_model, "d_model"},
			     n = {gemma3n_of(a)->altup, "altup_num_inputs"},
			     all = {pred.width, pred.text};
	struct oom_frame f = {.t = t};
	struct oom_val m, w, c, in;

	m = oom_name(&f, gemma3n_modalities(t, a, activated, &router));
	in = oom_op_add(t, activated, oom_op_slice(t, pred, pred.mono, one));
	in = oom_op_expand_copy(t, in, pred.mono, all);         /* repeat */
	t->scope = "correction_coefs";
	w = oom_param(t, "weight", n.n, n.n, OOM_P_LINEAR);
	if (t->train)
		w = oom_op_unary(t, OOM_CLAMP, w);
	c = oom_op_matmul_param(t, "correction_coefs", m, w, oom_none(), n);
	c = oom_op_mul(t, in, oom_op_unary(t, OOM_ADD_SCALAR, c));
	return oom_op_add_inplace(t, oom_leave(&f, c), pred);
}

/* A stream of the same magnitude: x * target / sqrt(max(mean(x^2), eps)). */
static struct oom_val rescaled(struct oom_tape *t, struct oom_val x, struct oom_val target)
{
	struct oom_frame f = {.t = t};
	struct oom_val m;

	x = oom_arg(&f, x);
	m = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, x), x.mono, D(1));
	m = oom_op_unary(t, OOM_SQRT, oom_op_at_least(t, m));
	return oom_leave(&f, oom_op_div(t, oom_op_mul(t, oom_take(&f, x), target), m));
}

static struct oom_val magnitude(struct oom_tape *t, struct oom_val x)
{
	return oom_op_unary(t, OOM_POW,
			    oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, x), x.mono, D(1)));
}

/* torch.stack of the parts, which have names: one storage made at once, a chain of joins only to
 * autograd. */
static struct oom_val stacked(struct oom_tape *t, const struct oom_arch *a,
			      const struct oom_val *part)
{
	const uint64_t n = gemma3n_of(a)->altup;
	struct oom_frame f = {.t = t};
	struct oom_val y = part[0], v;

	for (uint64_t i = 1; i < n; i++) {
		const struct oom_dim w = {(i + 1) * a->d_model, "altup_num_inputs * d_model"};

		if (i + 1 == n) {
			y = oom_op_cat(t, y, part[i], w);
			break;
		}
		v = (struct oom_val){.sto = -1, .node = -1, .mono = y.mono, .width = w.n,
				     .text = w.text, .dt = y.dt};
		if (t->grad && (y.rg || part[i].rg)) {
			const int32_t node = oom_node(t, OOM_NODE_CAT, "stack");

			oom_node_edge(t, node, y);
			oom_node_edge(t, node, part[i]);
			v = oom_node_out(t, node, 0, v);
		}
		y = v;
	}
	return oom_leave(&f, y);
}

/* The streams out of the embeddings x; their parts are f's names. */
struct oom_val gemma3n_streams(struct oom_frame *f, const struct oom_arch *a, struct oom_val x)
{
	struct oom_val part[GEMMA3N_STREAMS], target;
	struct oom_tape *t = f->t;
	struct oom_frame own = {.t = t};

	target = oom_name(&own, magnitude(t, x));
	part[0] = x;
	for (uint64_t i = 1; i < gemma3n_of(a)->altup; i++) {
		part[i] = oom_op_linear(t, "altup_projections", x, D(a->d_model), 0);
		part[i] = oom_name(f, rescaled(t, part[i], target));
	}
	oom_forget(&own, target);
	return oom_leave(&own, stacked(t, a, part));
}

/* Their mean, back in the first one's magnitude. */
struct oom_val gemma3n_joined(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val part[GEMMA3N_STREAMS], target;
	struct oom_frame f = {.t = t};

	x = oom_arg(&f, x);
	target = oom_name(&f, magnitude(t, oom_op_slice(t, x, x.mono, h)));
	part[0] = oom_name(&f, oom_op_slice(t, x, x.mono, h));
	for (uint64_t i = 1; i < gemma3n_of(a)->altup; i++) {
		part[i] = oom_op_linear(t, "altup_unembed_projections",
					oom_op_slice(t, x, x.mono, h), h, 0);
		part[i] = oom_name(&f, rescaled(t, part[i], target));
	}
	oom_forget(&f, target);
	oom_forget(&f, x);
	return oom_leave(&f, oom_op_mean(t, stacked(t, a, part), x.mono, h));
}
