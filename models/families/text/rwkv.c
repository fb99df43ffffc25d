/* RWKV (version 4): token shifts, a recurrence over the tokens in fp32, squared ReLU.
 * Reference: transformers 5.12, models/rwkv/modeling_rwkv.py, rwkv_linear_attention_cpu: the loop
 * that runs without the custom CUDA kernel (which keeps keys, values and the result only). */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"

enum { WIDTH };                         /* extra[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_LAYER;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->extra[WIDTH] = oom_read_count_or(r, "attention_hidden_size", 0);
	a->extra[WIDTH] = a->extra[WIDTH] ? a->extra[WIDTH] : a->d_model;
	a->d_ff = oom_read_count_or(r, "intermediate_size", 0);
	a->d_ff = a->d_ff ? a->d_ff : 4 * a->d_model;
	a->max_positions = oom_read_count_or(r, "context_length", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->kind[0] = 1;                         /* a norm of its own before the first */
	snprintf(a->warning, sizeof(a->warning),
		 "%s: counted as it runs without its custom CUDA kernel; with it training needs "
		 "far less.",
		 a->model_type);
}

/* hidden * mix + shifted * (1 - mix) */
static struct oom_val mixed(struct oom_tape *t, const char *name, struct oom_val x,
			    struct oom_val shifted)
{
	struct oom_val m = oom_param(t, name, 0, x.width, 0), y;

	y = oom_op_mul(t, oom_keep(x), oom_keep(m));
	return oom_op_add(t, y,
			  oom_op_mul(t, oom_keep(shifted), oom_op_unary(t, OOM_ADD_SCALAR, m)));
}

struct wkv {
	struct oom_dim w;
	struct oom_val first, decay, k, v;
};

/* exp(a - b) */
static struct oom_val exp_of(struct oom_tape *t, struct oom_val a, struct oom_val b)
{
	return oom_op_unary(t, OOM_EXP, oom_op_add(t, a, b));
}

/* s[0], s[1], s[2]: numerator, denominator, maximum. */
static struct oom_val turn(struct oom_tape *t, const struct wkv *x, struct oom_val s[3],
			   struct oom_val out, bool last, struct oom_hold *held)
{
	const bool grad = t->grad;
	const enum oom_dtype dt = (enum oom_dtype)out.dt;
	struct oom_val k, v, m, e1, e2, num, den, sum;

	oom_release(t, held);
	k = oom_op_cast(t, oom_op_slice(t, oom_keep(x->k), t->m_b, x->w), OOM_F32);
	v = oom_op_slice(t, oom_keep(x->v), t->m_b, x->w);
	sum = oom_op_add(t, oom_keep(k), oom_keep(x->first));
	/* maximum: keeps both */
	m = oom_hold(t, held, oom_op_mul(t, oom_keep(s[2]), sum));
	e1 = oom_hold(t, held, exp_of(t, oom_keep(s[2]), oom_keep(m)));
	e2 = oom_hold(t, held, exp_of(t, oom_op_add(t, oom_keep(k), oom_keep(x->first)), m));
	num = oom_op_mul(t, oom_keep(e1), oom_keep(s[0]));
	num = oom_hold(t, held, oom_op_add(t, num, oom_op_mul(t, oom_keep(e2), oom_keep(v))));
	den = oom_op_mul(t, e1, oom_keep(s[1]));
	den = oom_hold(t, held, oom_op_add(t, den, e2));
	out = oom_op_set(t, out, oom_op_cast(t, oom_op_div(t, num, den), dt));
	t->grad = grad && !last;                /* the state after the last token is given up */
	sum = oom_op_add(t, oom_keep(s[2]), oom_keep(x->decay));
	m = oom_op_mul(t, sum, oom_keep(k));
	e1 = oom_hold(t, held, exp_of(t, oom_op_add(t, s[2], oom_keep(x->decay)), oom_keep(m)));
	e2 = oom_hold(t, held, exp_of(t, k, oom_keep(m)));
	s[0] = oom_op_mul(t, oom_keep(e1), s[0]);
	s[0] = oom_op_add(t, s[0], oom_op_mul(t, oom_keep(e2), v));
	s[1] = oom_op_add(t, oom_op_mul(t, e1, s[1]), e2);
	s[2] = m;
	t->grad = grad;
	return out;
}

static struct oom_val recurrence(struct oom_tape *t, struct wkv *x)
{
	const struct oom_loop l = oom_loop_over(t, 1);
	/* key, its sum with time_first, four exponentials, numerator, denominator, the decayed
	 * maximum, three states */
	const uint64_t kept = x->w.n * (x->k.dt == OOM_F32 ? 11 : 12);
	struct oom_hold held = {.n = 0};
	struct oom_val s[3], out = oom_new(t, "output", t->m_bs, x->w, (enum oom_dtype)x->k.dt);

	for (int i = 0; i < 3; i++)
		s[i] = oom_new(t, "state", t->m_b, x->w, OOM_F32);
	x->decay = oom_op_unary(t, OOM_NEG, oom_op_unary(t, OOM_EXP, x->decay));
	for (int i = 0; i < l.turns; i++) {
		if (i)
			s[0] = oom_loop_carry(t, &l, i - 1, s[0],
					      (struct oom_dim){kept, "kept by a turn"}, OOM_F32);
		out = turn(t, x, s, out, i + 1 == l.turns, &held);
	}
	for (int i = 0; i < 3; i++)
		oom_drop(t, s[i]);
	oom_release(t, &held);
	oom_drop(t, x->decay);
	return out;
}

static struct oom_val time_mix(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim w = {a->extra[WIDTH], "attention_hidden_size"}, h = {x.width, x.text};
	/* _keep_in_fp32_modules: for fp16 alone */
	const uint32_t kept = t->plan->precision == OOM_FP16 ? OOM_P_FP32 : 0;
	struct wkv in = {.w = w};
	struct oom_val shifted, r, y;

	t->scope = "attention";
	in.decay = oom_param(t, "time_decay", 0, w.n, kept);
	in.first = oom_param(t, "time_first", 0, w.n, kept);
	shifted = oom_op_pad(t, oom_keep(x), t->m_bs, h);
	in.k = mixed(t, "time_mix_key", x, shifted);
	in.v = mixed(t, "time_mix_value", x, shifted);
	r = mixed(t, "time_mix_receptance", x, shifted);
	in.k = oom_op_linear(t, "key", in.k, w, 0);
	in.v = oom_op_linear(t, "value", in.v, w, 0);
	r = oom_op_unary(t, OOM_SIGMOID, oom_op_linear(t, "receptance", r, w, 0));
	oom_drop(t, shifted);
	y = recurrence(t, &in);
	oom_drop(t, in.k);
	oom_drop(t, in.v);
	y = oom_op_linear(t, "output", oom_op_mul(t, r, y), h, 0);
	oom_drop(t, x);
	return y;
}

static struct oom_val channel_mix(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	struct oom_val shifted = oom_op_pad(t, oom_keep(x), t->m_bs, h), k, r;

	t->scope = "feed_forward";
	k = mixed(t, "time_mix_key", x, shifted);
	r = mixed(t, "time_mix_receptance", x, shifted);
	k = oom_op_linear(t, "key", k, D(a->d_ff), 0);
	k = oom_op_unary(t, OOM_SQUARE, oom_op_unary(t, OOM_RELU, k));
	k = oom_op_linear(t, "value", k, h, 0);
	r = oom_op_unary(t, OOM_SIGMOID, oom_op_linear(t, "receptance", r, h, 0));
	r = oom_op_mul(t, r, k);
	oom_drop(t, shifted);
	oom_drop(t, x);
	return r;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_arch *a = *(const struct oom_arch *const *)ctx;

	if (!i)
		x = oom_norm(t, a->norm, "pre_ln", x, 0);
	x = oom_op_add(t, x, time_mix(t, a, oom_norm(t, a->norm, "ln1", oom_keep(x), 0)));
	return oom_op_add(t, x, channel_mix(t, a, oom_norm(t, a->norm, "ln2", oom_keep(x), 0)));
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	t->scope = "embeddings";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &a, x);
	x = oom_norm(t, a->norm, "ln_out", x, 0);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_rwkv = {
	.name = "rwkv",
	.summary = "token shifts and a recurrence over the tokens instead of attention",
	.source = "transformers 5.12 models/rwkv/modeling_rwkv.py",
	.types = OOM_TYPE("rwkv"),
	.lora_targets = "key+value+receptance+output",
	.parse = parse,
	.step = step,
};
