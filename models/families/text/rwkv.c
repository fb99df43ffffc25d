/* RWKV (version 4): token shifts, a recurrence over the tokens in fp32, squared ReLU.
 * Reference: transformers 5.12, models/rwkv/modeling_rwkv.py, rwkv_linear_attention_cpu: the loop
 * that runs without the custom CUDA kernel (which keeps keys, values and the result only). */
#include "blocks/decoder.h"
#include "blocks/mixers.h"
#include "config/keys.h"

struct rwkv {
	uint64_t width;
};
OOM_OWN(rwkv, struct rwkv);

static const struct oom_key_row rwkv_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"),
	MUST(n_layers, "num_hidden_layers"), OR_OWN(struct rwkv, width, "attention_hidden_size", 0),
	OR(d_ff, "intermediate_size", 0), OR(max_positions, "context_length", 0),
	FLAG(tie, "tie_word_embeddings", false), OOM_KEYS_END};

static void rwkv_parse(struct oom_arch *a)
{
	struct rwkv *own = rwkv_own(a);

	own->width = own->width ? own->width : a->d_model;
	a->d_ff = a->d_ff ? a->d_ff : 4 * a->d_model;
	a->kind[0] = 1;                         /* a norm of its own before the first */
	oom_warn_kernels(a, "its custom CUDA kernel", "it");
}

/* hidden * mix + shifted * (1 - mix); both are borrowed. */
static struct oom_val mixed(struct oom_tape *t, const char *name, struct oom_val x,
			    struct oom_val shifted)
{
	struct oom_val m = oom_param(t, name, 0, x.width, 0), y = oom_op_mul(t, x, m);

	return oom_op_add(t, y, oom_op_mul(t, shifted, oom_op_unary(t, OOM_ADD_SCALAR, m)));
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

/* s[0], s[1], s[2]: numerator, denominator, maximum.  Names of held's live until the next turn. */
static struct oom_val turn(struct oom_frame *held, const struct wkv *x, struct oom_val s[3],
			   struct oom_val out, bool last)
{
	const enum oom_dtype dt = out.dt;
	struct oom_tape *t = held->t;
	struct oom_frame f = {.t = t};
	const bool grad = t->grad;
	struct oom_val k, v, m, e1, e2, num, den, sum;

	oom_leave(held, oom_none());
	oom_name_each(&f, s, 3);
	k = oom_op_cast(t, oom_op_slice(t, x->k, t->m_b, x->w), OOM_F32);
	k = oom_name(&f, k);
	v = oom_name(&f, oom_op_slice(t, x->v, t->m_b, x->w));
	sum = oom_op_add(t, k, x->first);
	m = oom_name(held, oom_op_maximum(t, s[2], sum));
	e1 = oom_name(held, exp_of(t, s[2], m));
	e2 = oom_name(held, exp_of(t, oom_op_add(t, k, x->first), m));
	num = oom_op_mul(t, e1, s[0]);
	num = oom_name(held, oom_op_add(t, num, oom_op_mul(t, e2, v)));
	den = oom_op_mul(t, e1, s[1]);
	den = oom_name(held, oom_op_add(t, den, e2));
	out = oom_op_set(t, out, oom_op_cast(t, oom_op_div(t, num, den), dt));
	t->grad = grad && !last;                /* the state after the last token is given up */
	sum = oom_op_add(t, s[2], x->decay);
	m = oom_name(&f, oom_op_maximum(t, k, sum));
	e1 = oom_name(held, exp_of(t, oom_op_add(t, oom_take(&f, s[2]), x->decay), m));
	e2 = oom_name(held, exp_of(t, oom_take(&f, k), m));
	s[0] = oom_op_mul(t, e1, oom_take(&f, s[0]));
	s[0] = oom_op_add(t, s[0], oom_op_mul(t, e2, oom_take(&f, v)));
	s[1] = oom_op_add(t, oom_op_mul(t, e1, oom_take(&f, s[1])), e2);
	s[2] = oom_take(&f, m);
	t->grad = grad;
	return out;
}

static struct oom_val recurrence(struct oom_tape *t, struct wkv *x)
{
	const struct oom_loop l = oom_loop_over(t, 1);
	/* key, its sum with time_first, four exponentials, numerator, denominator, the decayed
	 * maximum, three states */
	const struct oom_dim kept = {x->w.n * (x->k.dt == OOM_F32 ? 11 : 12), "kept by a turn"};
	struct oom_frame f = {.t = t}, held = {.t = t};
	struct oom_val s[3], out = oom_new(t, "output", t->m_bs, x->w, x->k.dt);

	for (int i = 0; i < 3; i++)
		s[i] = oom_new(t, "state", t->m_b, x->w, OOM_F32);
	x->decay = oom_op_unary(t, OOM_NEG, oom_op_unary(t, OOM_EXP, x->decay));
	x->decay = oom_name(&f, x->decay);
	for (int i = 0; i < l.turns; i++) {
		if (i)
			s[0] = oom_loop_carry(t, &l, i - 1, s[0], kept, OOM_F32);
		out = turn(&held, x, s, out, i + 1 == l.turns);
	}
	oom_name_each(&f, s, 3);
	oom_leave(&held, oom_none());
	return oom_leave(&f, out);
}

/* x is borrowed. */
static struct oom_val time_mix(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim w = {rwkv_of(a)->width, "attention_hidden_size"},
			     h = {x.width, x.text};
	/* _keep_in_fp32_modules: for fp16 alone */
	const uint32_t kept = t->plan->precision == OOM_FP16 ? OOM_P_FP32 : 0;
	struct oom_frame f = {.t = t};
	struct wkv in = {.w = w};
	struct oom_val shifted, r;

	t->scope = "attention";
	in.decay = oom_param(t, "time_decay", 0, w.n, kept);
	in.first = oom_param(t, "time_first", 0, w.n, kept);
	shifted = oom_name(&f, oom_op_pad(t, x, t->m_bs, h));
	in.k = mixed(t, "time_mix_key", x, shifted);
	in.v = mixed(t, "time_mix_value", x, shifted);
	r = oom_name(&f, mixed(t, "time_mix_receptance", x, shifted));
	in.k = oom_name(&f, oom_op_linear(t, "key", in.k, w, 0));
	in.v = oom_name(&f, oom_op_linear(t, "value", in.v, w, 0));
	r = oom_rename(&f, r, oom_op_unary(t, OOM_SIGMOID, oom_op_linear(t, "receptance", r, w, 0)));
	oom_forget(&f, shifted);
	r = oom_op_mul(t, r, oom_name(&f, recurrence(t, &in)));
	return oom_leave(&f, oom_op_linear(t, "output", r, h, 0));
}

/* x is borrowed. */
static struct oom_val channel_mix(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val shifted = oom_name(&f, oom_op_pad(t, x, t->m_bs, h)), k, r, v, y;

	t->scope = "feed_forward";
	k = oom_name(&f, mixed(t, "time_mix_key", x, shifted));
	r = oom_name(&f, mixed(t, "time_mix_receptance", x, shifted));
	y = oom_op_unary(t, OOM_RELU, oom_op_linear(t, "key", k, D(a->d_ff), 0));
	k = oom_rename(&f, k, oom_op_unary(t, OOM_SQUARE, y));
	v = oom_name(&f, oom_op_linear(t, "value", k, h, 0));
	r = oom_rename(&f, r, oom_op_unary(t, OOM_SIGMOID, oom_op_linear(t, "receptance", r, h, 0)));
	return oom_leave(&f, oom_op_mul(t, r, v));
}

static struct oom_val rwkv_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_arch *a = ((const struct oom_decoder_layer *)ctx)->a;
	struct oom_frame f = {.t = t};
	struct oom_val h, y;

	if (!i)
		x = oom_name(&f, oom_norm(t, a->norm, "pre_ln", x, 0));
	h = oom_name(&f, oom_norm(t, a->norm, "ln1", x, 0));
	y = oom_name(&f, time_mix(t, a, h));
	oom_forget(&f, h);
	x = i ? oom_name(&f, oom_op_add(t, x, y)) : oom_rename(&f, x, oom_op_add(t, x, y));
	h = oom_name(&f, oom_norm(t, a->norm, "ln2", x, 0));
	y = oom_name(&f, channel_mix(t, a, h));
	oom_forget(&f, h);
	return oom_leave(&f, oom_op_add(t, x, y));
}

const struct oom_family oom_family_rwkv = {
	.name = "rwkv",
	.summary = "token shifts and a recurrence over the tokens instead of attention",
	.source = "transformers 5.12 models/rwkv/modeling_rwkv.py",
	.types = OOM_TYPE("rwkv"),
	.norm = OOM_NORM_LAYER,
	.lora_targets = "key+value+receptance+output",
	.keys = rwkv_keys,
	.parse = rwkv_parse,
	.decoder = OOM_DECODER(.embed = "embeddings", .norm = "ln_out", .head = "head",
			       .kinds = true, .block = rwkv_block, .bare = true),
};
