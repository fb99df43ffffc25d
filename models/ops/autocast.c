/* Autocast: a 16-bit copy of every fp32 weight that needs a gradient, made at its first use and kept
 * to the end of the region (aten/src/ATen/autocast_mode.cpp, cached_cast). */
#include "ops.h"

void oom_amp_enter(struct oom_tape *t)
{
	if (t->amp)
		t->amp_region = ++t->amp_seq;
}

void oom_amp_leave(struct oom_tape *t)
{
	if (!t->amp)
		return;
	for (size_t i = 0; i < t->n_params; i++) {
		struct oom_param *p = &t->params[i];

		if (p->amp >= 0 && p->amp_region == t->amp_region) {
			oom_unref(t, p->amp);
			p->amp = -1;
		}
	}
	if (t->leaf.region == t->amp_region && t->leaf.region) {
		oom_drop(t, t->leaf.copy);
		oom_drop(t, t->leaf.x);         /* held with its copy */
		t->leaf.copy = oom_none();
		t->leaf.region = 0;
	}
	t->amp_region = 0;
}

static bool is_leaf_input(const struct oom_tape *t, struct oom_val x)
{
	const struct oom_val l = t->leaf.x;

	return !oom_is_none(l) && x.sto == l.sto && x.node == l.node && x.width == l.width &&
	       x.dt == OOM_F32;
}

/* cached_cast (aten/src/ATen/autocast_mode.cpp): any fp32 leaf that needs a gradient. */
static struct oom_val leaf_cast(struct oom_tape *t, struct oom_val x)
{
	struct oom_leaf *l = &t->leaf;

	if (l->region != t->amp_region) {
		l->copy = oom_op_cast(t, oom_keep(x), (enum oom_dtype)t->amp_dt);
		l->region = t->amp_region;
		oom_ref(t, l->x.sto);
		if (l->copy.sto >= 0)
			t->rows[l->copy.sto].cat = OOM_CAT_AMP;
	}
	oom_done(t, x);
	return oom_share(t, l->copy);
}

struct oom_val oom_amp_cast(struct oom_tape *t, struct oom_val x)
{
	struct oom_param *p;

	if (!t->amp || x.dt == t->amp_dt || !oom_dtype_is_float((enum oom_dtype)x.dt))
		return x;
	if (is_leaf_input(t, x))
		return leaf_cast(t, x);
	/* not a trainable fp32 leaf: cast anew at every use */
	if (x.node > -2 || !t->params[-2 - x.node].trainable || x.dt != OOM_F32) {
		const bool leaf = x.node <= -2;
		struct oom_val y = oom_op_cast(t, x, (enum oom_dtype)t->amp_dt);

		if (leaf && y.sto >= 0)
			t->rows[y.sto].cat = OOM_CAT_AMP;
		return y;
	}
	p = &t->params[-2 - x.node];
	if ((p->amp < 0 && !t->dry) || p->amp_region != t->amp_region) {
		struct oom_val y = oom_op_cast(t, x, (enum oom_dtype)t->amp_dt);

		if (y.sto < 0 && !t->dry)
			return y;
		if (y.sto >= 0) {
			t->rows[y.sto].cat = OOM_CAT_AMP;
			t->rows[y.sto].name = "weight copy";
		}
		/* a dry run has no storage, yet it must cast a weight used twice once, as the
		 * real one does */
		p = &t->params[-2 - x.node];
		p->amp = y.sto;
		p->amp_node = y.node;
		p->amp_region = t->amp_region;
	}
	if (p->amp >= 0)
		oom_ref(t, p->amp);
	x.sto = p->amp;
	x.node = p->amp_node;
	x.dt = t->amp_dt;
	x.slot = 0;
	return x;
}

void oom_amp_cast_all(struct oom_tape *t, struct oom_val *const *arg, int n)
{
	for (int i = 0; i < n; i++) {
		struct oom_val *x = arg[t->plan->casts_backwards ? n - 1 - i : i];

		if (!oom_is_none(*x))
			*x = oom_amp_cast(t, *x);
	}
}
