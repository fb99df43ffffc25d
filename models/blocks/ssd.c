/* Mamba 2's mixer in the form PyTorch runs without the mamba_ssm and causal_conv1d kernels:
 * sequences cut into chunks, and every product of the chunked scan laid out in memory, [b, chunks,
 * l, l, heads, d_state] among them. Reference: transformers 5.12,
 * models/{mamba2,bamba,falcon_h1,granitemoehybrid,zamba2,nemotron_h}/modeling_*.py,
 * torch_forward.  Names in comments are that function's. */
#include <string.h>

#include "mixers.h"

bool oom_ssd_check(struct oom_reader *r, const struct oom_ssd *m)
{
	uint64_t w;

	if (r->status)
		return false;
	if (!m->heads || !m->d_head || !m->d_state || !m->groups || !m->inner ||
	    m->heads % m->groups || m->inner != m->heads * m->d_head) {
		oom_read_fail(r,
			      "the scan's heads (%llu), their size (%llu), states (%llu) and "
			      "groups (%llu) do not fit an inner width of %llu: heads x size is the "
			      "width (expand x hidden_size, or mamba_d_ssm), and mamba_n_groups or "
			      "n_groups divides the heads",
			      (unsigned long long)m->heads, (unsigned long long)m->d_head,
			      (unsigned long long)m->d_state, (unsigned long long)m->groups,
			      (unsigned long long)m->inner);
		return false;
	}
	if (!m->chunk || m->chunk > 1u << 20 || !m->kernel || m->kernel > 1u << 20 ||
	    m->d_state > 1u << 24 || m->d_head > 1u << 24 ||
	    __builtin_mul_overflow(m->heads * m->chunk, m->chunk, &w) ||
	    __builtin_mul_overflow(w, m->d_state > m->d_head ? m->d_state : m->d_head, &w) ||
	    w >> 52) {
		oom_read_fail(r,
			      "the scan's chunk size (%llu), kernel (%llu) or states (%llu) are "
			      "out of range",
			      (unsigned long long)m->chunk, (unsigned long long)m->kernel,
			      (unsigned long long)m->d_state);
		return false;
	}
	return true;
}

void oom_mamba_adapters(struct oom_tape *t)
{
	t->approximate |= oom_lora_takes_all(t) ||
			  (oom_plan_adapted(t->plan) && strstr(t->plan->lora_targets, "out_proj"));
}

struct oom_val oom_mask_padding(struct oom_tape *t, struct oom_val x, bool any_batch)
{
	if (!t->plan->padding_mask || (!any_batch && !oom_cond_above(t, t->m_b, 1)))
		return x;
	return oom_op_mul(t, x, oom_input(t, "attention_mask", t->m_bs, 1, OOM_I64));
}

struct oom_val oom_short_conv(struct oom_tape *t, const char *name, struct oom_val x,
			      uint64_t kernel, bool bias, enum oom_act act)
{
	const struct oom_dim w = {x.width, x.text};
	const uint16_t longer = kernel > 1 ? oom_len_plus(t, t->m_b, kernel - 1) : t->m_bs;

	x = oom_op_slice(t, oom_op_conv_depthwise(t, name, x, kernel, bias, longer, w), t->m_bs, w);
	return oom_activation(t, act, x);
}

/* Lower triangle of the cumulative sums: [.., l, l] from x expanded; locals live until the
 * function returns. */
static struct oom_val segment_sum(struct oom_tape *t, struct oom_val x, uint16_t mono,
				  struct oom_dim width, uint16_t square, uint64_t size)
{
	const struct oom_dim n = {size, NULL};
	struct oom_frame f = {.t = t};
	struct oom_val mask, y;

	x = oom_op_expand(t, x, mono, width);
	mask = oom_name(&f, oom_new(t, "mask", square, n, OOM_U8));
	x = oom_op_masked(t, "masked_fill", x, oom_new(t, "~mask", square, n, OOM_U8));
	x.perm = false;
	x = oom_name(&f, x);
	y = oom_op_unary(t, OOM_CUMSUM, x);
	oom_forget(&f, mask);
	oom_name(&f, oom_new(t, "mask", square, n, OOM_U8));
	y = oom_op_masked(t, "masked_fill", y, oom_new(t, "~mask", square, n, OOM_U8));
	return oom_leave(&f, y);
}

/* y and its gate, normalised. */
static struct oom_val gated_norm(struct oom_tape *t, const struct oom_ssd *m, struct oom_val y,
				 struct oom_val gate)
{
	const enum oom_dtype in = (enum oom_dtype)y.dt;
	const struct oom_dim stats = {m->norm == OOM_GATED_RMS ? 1 : m->groups, NULL};
	const bool falcon = m->norm > OOM_GATED_PLAIN;
	const char *scope = t->scope;
	struct oom_val w, v;

	if (m->norm == OOM_GATED_PLAIN)
		return oom_op_mul(t, y, oom_op_unary(t, OOM_SILU, gate));
	t->scope = "norm";
	w = oom_norm_param(t, "weight", m->inner);
	if (m->norm != OOM_GATED_BEFORE)
		y = oom_op_mul(t, oom_op_cast(t, y, OOM_F32),
			       oom_op_unary(t, OOM_SILU, oom_op_cast(t, gate, OOM_F32)));
	y = oom_op_cast(t, y, OOM_F32);
	v = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, oom_keep(y)), y.mono, stats);
	v = oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, v));
	y = oom_op_mul(t, y, v);
	y = falcon ? oom_op_mul(t, w, y) : oom_op_mul(t, w, oom_op_cast(t, y, in));
	if (m->norm == OOM_GATED_BEFORE)
		y = oom_op_mul(t, y, oom_op_unary(t, OOM_SILU, oom_op_cast(t, gate, OOM_F32)));
	t->scope = scope;
	return falcon ? oom_op_cast(t, y, in) : y;
}

struct scan {                           /* everything in fp32, padded to whole chunks */
	struct oom_val x, a, b, c, cum, residual;
	/* padded tokens, chunks, chunks + 1, that squared; times the batch */
	uint16_t cs, nc, n1, nn;
};

/* Diagonal blocks: what each chunk's tokens give each other. */
static struct oom_val intra(struct oom_tape *t, const struct oom_ssd *m, struct scan *s,
			    struct oom_frame *f)
{
	const uint64_t ll = m->chunk * m->chunk;
	const struct oom_dim hll = {m->heads * ll, "heads * chunk^2"},
			     wide = {m->heads * ll * m->d_state, "heads * chunk^2 * d_state"};
	const struct oom_dim values = {m->heads * ll * m->d_head, "heads * chunk^2 * d_head"},
			     inner = {m->inner, "d_inner"};
	struct oom_val l, g, y;

	l = segment_sum(t, s->a, s->nc, hll, OOM_MONO_ONE, ll);
	l = oom_name(f, oom_op_unary(t, OOM_EXP, l));
	/* G_intermediate */
	g = oom_name(f, oom_op_mul_into(t, s->c, s->b, s->nc, wide));
	g = oom_name(f, oom_op_sum(t, g, s->nc, hll));
	/* M_intermediate */
	g = oom_name(f, oom_op_mul(t, g, l));
	g = oom_name(f, oom_op_sum(t, g, s->nc, hll));
	y = oom_op_mul_into(t, g, s->x, s->nc, values);
	/* Y_diag */
	return oom_name(f, oom_op_sum(t, y, s->cs, inner));
}

/* Off-diagonal blocks: states at the chunks' ends, carried on, and read out. */
static struct oom_val inter(struct oom_tape *t, const struct oom_ssd *m, struct scan *s,
			    struct oom_frame *f)
{
	const struct oom_dim heads = {m->heads, "heads"}, inner = {m->inner, "d_inner"};
	const struct oom_dim state = {m->inner * m->d_state, "d_inner * d_state"};
	struct oom_val d, b, states, before, c;

	d = oom_op_add(t, oom_op_slice(t, s->cum, s->nc, heads), s->cum);
	/* decay_states */
	d = oom_name(f, oom_op_unary(t, OOM_EXP, d));
	b = oom_name(f, oom_op_mul(t, s->b, d));
	states = oom_op_mul_into(t, b, s->x, s->cs, state);
	states = oom_op_sum(t, states, s->nc, state);
	before = oom_name(f, oom_new(t, "previous_states", t->m_b, state, OOM_F32));
	states = oom_name(f, oom_op_cat_into(t, before, states, s->n1, state));
	d = oom_op_pad(t, oom_op_slice(t, s->cum, s->nc, heads), s->n1, heads);
	d = segment_sum(t, d, s->nn, heads,
			oom_len_chunks(t, oom_len_chunks(t, OOM_MONO_ONE, m->chunk, 1),
				       m->chunk, 1),
			1);
	/* decay_chunk */
	d = oom_name(f, oom_op_unary(t, OOM_EXP, d));
	states = oom_op_mul_into(t, d, states, s->nn, state);
	/* new_states */
	states = oom_name(f, oom_op_sum(t, states, s->n1, state));
	states = oom_op_slice(t, states, s->nc, state);
	/* state_decay_out */
	d = oom_name(f, oom_op_unary(t, OOM_EXP, s->cum));
	/* C_times_states */
	c = oom_name(f, oom_op_mul_into(t, s->c, states, s->cs, state));
	c = oom_op_sum(t, c, s->cs, inner);
	/* Y_off */
	return oom_name(f, oom_op_mul(t, c, d));
}

/* hidden_states, A, B, C, names of f, padded to whole chunks: the old ones go when all four are
 * there. */
static void pad_all(struct oom_frame *f, const struct oom_ssd *m, struct scan *s)
{
	const struct oom_dim inner = {m->inner, "d_inner"},
			     bc = {m->heads * m->d_state, "heads * d_state"},
			     heads = {m->heads, "heads"};
	const struct scan old = *s;
	struct oom_tape *t = f->t;

	s->x = oom_name(f, oom_op_pad(t, old.x, s->cs, inner));
	s->a = oom_name(f, oom_op_pad(t, old.a, s->cs, heads));
	s->b = oom_name(f, oom_op_pad(t, old.b, s->cs, bc));
	s->c = oom_name(f, oom_op_pad(t, old.c, s->cs, bc));
	oom_forget(f, old.x);
	oom_forget(f, old.a);
	oom_forget(f, old.b);
	oom_forget(f, old.c);
}

static struct oom_val scan(struct oom_tape *t, const struct oom_ssd *m, struct oom_val u,
			   struct oom_val dt, struct oom_frame *f)
{
	const uint64_t bc = m->groups * m->d_state;
	const struct oom_dim inner = {m->inner, "d_inner"}, heads = {m->heads, "heads"},
			     all = {m->heads * m->d_state, "heads * d_state"};
	const struct oom_dim parts[3] = {inner, {bc, "groups * d_state"}, {bc, "groups * d_state"}};
	const uint32_t l = (uint32_t)m->chunk;
	struct scan s = {.cs = oom_len_round_up(t, t->m_b, l),
			 .nc = oom_len_chunks(t, t->m_b, l, 0),
			 .n1 = oom_len_chunks(t, t->m_b, l, 1)};
	struct oom_frame own = {.t = t};        /* f: the mixer's */
	struct oom_val p[3], a, d, y, off;

	s.nn = oom_len_chunks(t, s.n1, l, 1);
	a = oom_param(t, "A_log", 0, m->heads, 0);
	d = oom_param(t, "D", 0, m->heads, 0);
	oom_op_split(t, u, 3, parts, p);
	a = oom_op_unary(t, OOM_NEG, oom_op_unary(t, OOM_EXP, oom_op_cast(t, a, OOM_F32)));
	dt = oom_op_unary(t, OOM_SOFTPLUS,
			  oom_op_add(t, dt, oom_param(t, "dt_bias", 0, m->heads, 0)));
	dt = oom_name(f, oom_op_unary(t, OOM_CLAMP, dt));
	s.x = oom_name(&own, oom_op_cast(t, p[0], OOM_F32));
	s.b = oom_op_cast(t, p[1], OOM_F32);
	s.c = oom_op_cast(t, p[2], OOM_F32);
	s.b = oom_name(&own, oom_op_expand_copy(t, s.b, t->m_bs, all));
	s.c = oom_name(&own, oom_op_expand_copy(t, s.c, t->m_bs, all));
	s.residual = oom_name(f, oom_op_mul(t, d, oom_op_pad(t, s.x, s.cs, inner)));
	s.x = oom_rename(&own, s.x, oom_op_mul(t, s.x, dt));
	s.a = oom_name(&own, oom_op_mul(t, a, dt));
	pad_all(&own, m, &s);
	s.cum = oom_op_view(t, s.a, s.nc,
			    (struct oom_dim){m->heads * m->chunk, "heads * chunk"});
	s.cum = oom_op_view(t, oom_op_unary(t, OOM_CUMSUM, s.cum), s.cs, heads);
	s.cum = oom_name(&own, s.cum);
	y = intra(t, m, &s, f);
	off = inter(t, m, &s, f);
	oom_name(f, s.x);
	oom_name(f, s.b);
	oom_leave(&own, oom_none());
	y = oom_op_add(t, oom_op_add(t, y, off), s.residual);
	if (oom_cond_more(t, s.cs, 1, t->m_bs, 1))
		y = oom_op_slice(t, y, t->m_bs, inner);
	return oom_op_view(t, y, t->m_bs, inner);
}

struct oom_val oom_ssd_mixer(struct oom_tape *t, const struct oom_ssd *m, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, conv = {m->inner + 2 * m->groups * m->d_state,
							    "d_inner + 2 * groups * d_state"};
	const struct oom_dim parts[3] = {{m->inner, "d_inner"}, conv, {m->heads, "heads"}};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_frame f = {.t = t};
	const char *scope = t->scope;
	struct oom_val p[3], u, y;

	x = oom_arg(&f, x);
	if (m->mask_twice)
		x = oom_name(&f, oom_mask_padding(t, x, m->mask_any_batch));
	x = oom_mask_padding(t, x, m->mask_any_batch);
	if (m->scaled)
		x = oom_op_unary(t, OOM_SCALE, x);
	x = oom_name(&f, x);
	x = oom_op_linear(t, "in_proj", x,
			  (struct oom_dim){m->inner + conv.n + m->heads, "d_inner + conv + heads"},
			  m->bias ? OOM_BIAS : 0);
	if (m->scaled) {                        /* mup_vector, a buffer of every layer */
		struct oom_val v = oom_input(t, "mup_vector", OOM_MONO_ONE, x.width,
					     t->plan->precision == OOM_FP32 ? OOM_F32 : dt);

		oom_buffer(t, x.width, (enum oom_dtype)v.dt);
		x = oom_op_mul(t, x, v);
	}
	x = oom_name(&f, x);
	oom_op_split(t, x, 3, parts, p);
	u = oom_short_conv(t, "conv1d", p[1], m->kernel, m->conv_bias, m->act);
	u = oom_mask_padding(t, u, m->mask_any_batch);
	if (!m->name_taken_over)
		u = oom_name(&f, u);
	t->scope = m->module ? m->module : "mixer";
	y = scan(t, m, u, p[2], &f);
	y = oom_name(&f, y);
	y = oom_name(&f, gated_norm(t, m, y, p[0]));
	y = oom_op_linear(t, "out_proj", oom_op_cast(t, y, dt), h, m->out_bias ? OOM_BIAS : 0);
	y = oom_leave(&f, y);
	t->scope = scope;
	return y;
}
