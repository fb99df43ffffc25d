/* DoRA over linear layers: what stands beside LoRA's own product (ops_lora.c). */
#include "adapters.h"
#include "config/arch.h"

/* What only a graph holds that nobody will go back through: it lives until the locals of a forward
 * die, and under a checkpoint not even so long. */
static void graph_lets_go(struct oom_tape *t, struct oom_val *x)
{
	if (t->grad && !t->packing)
		return;
	oom_drop(t, *x);
	*x = oom_none();
}

/* B(A(identity)) of the layer's size, made with a graph whose result is detached (DoraLinearLayer,
 * get_lora_weight).  held: what that graph keeps.  A policy that saves matrix products saves these two as well, as large
 * as the layer: create_selective_checkpoint_contexts looks at no gradient. */
static struct oom_val product_of_adapters(struct oom_tape *t, const struct oom_linear *l,
					  enum oom_dtype dt, struct oom_val held[2])
{
	const enum oom_dtype half = t->amp ? (enum oom_dtype)t->amp_dt : (enum oom_dtype)l->p[0].dt;
	const uint64_t r = l->p[0].width / l->in, n = l->in * l->out.n;
	struct oom_val eye, y, wa, wb;

	eye = oom_scratch_hold(t, "identity", OOM_MONO_ONE, l->in * l->in, (enum oom_dtype)l->p[0].dt);
	held[0] = oom_op_cast(t, oom_keep(eye), half);
	wa = oom_amp_cast(t, oom_keep(l->p[0]));
	held[1] = oom_new_kept(t, OOM_KEPT_PRODUCT, "lora_A", OOM_MONO_ONE, (struct oom_dim){l->in * r, "in r"}, half);
	oom_drop(t, wa);
	graph_lets_go(t, &held[0]);
	wb = oom_amp_cast(t, oom_keep(l->p[1]));
	y = oom_new_kept(t, OOM_KEPT_PRODUCT, "B A", OOM_MONO_ONE, (struct oom_dim){n, "in out"}, half);
	oom_drop(t, wb);
	oom_drop(t, eye);
	graph_lets_go(t, &held[1]);
	if (half != dt) {
		const struct oom_val z = oom_scratch_hold(t, "B A", OOM_MONO_ONE, n, dt);

		oom_drop(t, y);
		y = z;
	}
	return y;
}

/* The base's weight in the type of the adapter's input. */
static struct oom_val weight_as(struct oom_tape *t, const struct oom_linear *l, enum oom_dtype dt)
{
	const uint64_t n = l->in * l->out.n;
	struct oom_val w, y;

	if (l->w.node > -2 || !(t->params[-2 - l->w.node].flags & OOM_P_QUANTISED))
		return l->w.dt == dt ? l->w : oom_scratch_hold(t, "weight", OOM_MONO_ONE, n, dt);
	w = oom_dequantised(t, n, oom_plan_four_bit(t->plan) ? oom_four_bit_dtype(t->plan) : OOM_F32);
	if (w.dt == dt)
		return w;
	y = oom_scratch_hold(t, "weight", OOM_MONO_ONE, n, dt);
	oom_drop(t, w);
	return y;
}

/* (m / |W + B A| - 1) * base(x) + m / |W + B A| * B(A(x)) * scaling, with the norms of rows detached
 * (arXiv:2402.09353 section 4.3; peft/tuners/lora/dora.py, DoraLinearLayer.forward).  Without dropout
 * base(x) is the layer's own result, else it is computed again; all of it is local to one call. */
struct oom_val oom_dora_delta(struct oom_tape *t, struct oom_val x, struct oom_val y,
			      const struct oom_linear *l)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const bool drops = t->train && t->plan->lora_dropout > 0;
	const uint64_t n = l->in * l->out.n;
	struct oom_val again, held[2], ba, w, base, norm, scale, d, sum;

	again = drops ? oom_op_dropout(t, oom_keep(x), t->plan->lora_dropout) : oom_share(t, x);
	ba = product_of_adapters(t, l, dt, held);
	w = weight_as(t, l, dt);
	d = oom_scratch_hold(t, "B A * scaling", OOM_MONO_ONE, n, dt);
	sum = oom_scratch_hold(t, "W + B A", OOM_MONO_ONE, n, dt);
	oom_drop(t, d);
	norm = oom_new(t, "norm", OOM_MONO_ONE, l->out, dt);
	oom_drop(t, sum);
	scale = oom_op_div(t, l->p[2], oom_keep(norm));
	d = oom_lora_through(t, oom_keep(again), l);
	if (drops)
		base = oom_op_matmul_param(t, l->name, oom_keep(again), oom_keep(w), oom_none(), l->out);
	else if (!oom_is_none(l->bias))
		base = oom_op_add(t, oom_keep(y), l->bias);
	else
		base = oom_share(t, y);
	sum = oom_op_mul(t, oom_op_unary(t, OOM_ADD_SCALAR, oom_keep(scale)), oom_keep(base));
	y = oom_op_unary(t, OOM_SCALE, oom_op_mul(t, oom_keep(scale), oom_keep(d)));
	sum = oom_op_add(t, sum, y);
	oom_drop(t, base);
	oom_drop(t, d);
	oom_drop(t, scale);
	oom_drop(t, norm);
	oom_drop(t, w);
	oom_drop(t, ba);
	for (int i = 0; i < 2; i++)
		oom_drop(t, held[i]);
	oom_drop(t, again);
	return sum;
}

/* m / |W + A B| * (result + embedding(ids, A) B * scaling), of the table W (DoraEmbeddingLayer.forward,
 * DoraEmbeddingVariant.forward); an embed_scale is left out, as there.  A B is local to the call. */
struct oom_val oom_dora_lookup(struct oom_tape *t, struct oom_val y,
			       const struct oom_embedding_adapter *e)
{
	const enum oom_dtype dt = (enum oom_dtype)y.dt, own = (enum oom_dtype)e->a.dt,
			     half = t->amp ? (enum oom_dtype)t->amp_dt : own;
	const uint64_t n = e->rows * e->out.n, r = e->a.width / e->rows;
	struct oom_val ab, part, sum, norm, scale, after, b = e->b, d;

	ab = oom_scratch_hold(t, "A B", OOM_MONO_ONE, n, half);
	part = oom_scratch_hold(t, "A B * scaling", OOM_MONO_ONE, n, half);
	sum = oom_scratch_hold(t, "W + A B", OOM_MONO_ONE, n, half == dt ? dt : OOM_F32);
	oom_drop(t, part);
	norm = oom_new(t, "norm", OOM_MONO_ONE, e->out, half == dt ? dt : OOM_F32);
	oom_drop(t, sum);
	scale = oom_op_div(t, e->m, oom_keep(norm));
	after = oom_embedding_lookup(t, e->a, e->ids, (struct oom_dim){r, "lora_r"});
	if (t->amp)
		b = oom_op_cast(t, b, half);
	d = oom_op_matmul_param(t, "lora_embedding_B", after, b, oom_none(), e->out);
	d = oom_op_unary(t, OOM_SCALE, oom_op_mul(t, oom_keep(scale), d));
	oom_drop(t, ab);
	y = oom_op_mul(t, oom_keep(scale), y);
	y = oom_op_cast(t, oom_op_add(t, y, d), dt);
	oom_drop(t, scale);
	oom_drop(t, norm);
	return y;
}
