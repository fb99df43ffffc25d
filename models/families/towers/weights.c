/* Weights of modules a step holds but does not run. */
#include "weights.h"

void oom_weights_begin(struct oom_tape *t, struct oom_weights *w)
{
	w->grad = t->grad;
	w->stopped = t->stopped;
	w->conds = t->n_conds;
	w->tally = t->sums->tally;
	t->grad = false;
	t->stopped = true;
}

void oom_weights_end(struct oom_tape *t, const struct oom_weights *w)
{
	t->grad = w->grad;
	t->stopped = w->stopped;
	t->n_conds = w->conds;
	t->sums->tally = w->tally;
}

void oom_weight(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols)
{
	oom_param(t, name, rows, cols, 0);
}

void oom_weight_linear(struct oom_tape *t, const char *name, uint64_t in, uint64_t out, bool bias)
{
	const struct oom_val x = oom_input(t, "input", OOM_MONO_ONE, in, OOM_F32);

	oom_discard(t, oom_op_linear_in(t, name, x, in, (struct oom_dim){out, NULL},
				     bias ? OOM_BIAS : 0));
}

void oom_weight_norm(struct oom_tape *t, const char *name, uint64_t n, bool bias)
{
	const char *scope = t->scope;

	t->scope = name;
	oom_norm_param(t, "weight", n);
	if (bias)
		oom_norm_param(t, "bias", n);
	t->scope = scope;
}

void oom_weight_conv(struct oom_tape *t, const char *name, uint64_t out, uint64_t each, bool bias)
{
	const char *scope = t->scope;

	t->scope = name;
	oom_weight(t, "weight", out, each);
	if (bias)
		oom_weight(t, "bias", 0, out);
	t->scope = scope;
}

void oom_weight_mha(struct oom_tape *t, uint64_t d)
{
	oom_weight(t, "in_proj_weight", 3 * d, d);
	oom_weight(t, "in_proj_bias", 0, 3 * d);
	oom_weight(t, "out_proj.weight", d, d);
	oom_weight(t, "out_proj.bias", 0, d);
}

void oom_weight_layers(struct oom_tape *t, uint64_t n, oom_weights_fn fn, const void *ctx)
{
	const uint16_t mult = t->mult;

	if (n > OOM_MAX_LAYERS || (uint64_t)mult * n > UINT16_MAX) {
		oom_tape_impossible(t, OOM_ERR_LIMIT, "%llu layers: more than %d", (unsigned long long)n,
			      OOM_MAX_LAYERS);
		return;
	}
	if (t->expand) {
		for (uint64_t i = 0; i < n && !t->status; i++)
			fn(t, ctx, i);
		return;
	}
	if (!n)
		return;
	t->mult = (uint16_t)(mult * n);
	fn(t, ctx, 0);
	t->mult = mult;
}

void oom_weight_rows(struct oom_tape *t, const struct oom_weight_row *w, const uint64_t *n)
{
	for (; w->kind != OOM_WEIGHT_END; w++) {
		const uint64_t in = n[w->in], out = n[w->out];
		const bool bias = n[w->bias];

		switch ((enum oom_weight_kind)w->kind) {
		case OOM_WEIGHT_LINEAR: oom_weight_linear(t, w->name, in, out, bias); break;
		case OOM_WEIGHT_NORM: oom_weight_norm(t, w->name, in, bias); break;
		case OOM_WEIGHT_CONV: oom_weight_conv(t, w->name, out, in, bias); break;
		case OOM_WEIGHT_ALONE: oom_weight(t, w->name, in, out); break;
		case OOM_WEIGHT_ONLY: w += out ? 0 : w->in; break;
		case OOM_WEIGHT_END: break;
		}
	}
}

struct stack {
	const struct oom_weight_row *rows;
	const uint64_t *n;
};

static void stacked(struct oom_tape *t, const void *ctx, uint64_t i)
{
	const struct stack *s = ctx;

	(void)i;
	oom_weight_rows(t, s->rows, s->n);
}

void oom_weight_stack(struct oom_tape *t, uint64_t layers, const struct oom_weight_row *rows,
		      const uint64_t *n)
{
	oom_weight_layers(t, layers, stacked, &(struct stack){rows, n});
}
