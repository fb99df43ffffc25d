/* Mamba's mixer in the form PyTorch runs without the mamba_ssm and causal_conv1d kernels: [b,
 * d_inner, s, d_state] laid out a few times, then a loop over the tokens that carries [b, d_inner,
 * d_state], or an associative scan (scan.c).  Reference: Gu and Dao 2023, arXiv:2312.00752;
 * transformers 5.12, models/{mamba,falcon_mamba,jamba,zamba}/modeling_*.py, slow_forward.  Names in
 * comments are that function's. */
#include "mixers.h"
#include "tape/round.h"

uint64_t oom_read_dt_rank(struct oom_arch *a, const char *key)
{
	const struct oom_key *k = oom_read_key(&a->rd, key);

	return k && k->type == OOM_KEY_NUMBER ? oom_read_count(&a->rd, key, 1) : (a->d_model + 15) / 16;
}

bool oom_selective_check(struct oom_reader *r, const struct oom_selective *m)
{
	if (r->status)
		return false;
	if (!m->inner || !m->d_state || !m->rank || !m->kernel || !m->heads ||
	    m->inner % m->heads || m->inner > UINT32_MAX || m->d_state > 1u << 24 ||
	    m->rank > UINT32_MAX || m->kernel > 1u << 20 || (m->inner * m->d_state) >> 40) {
		oom_read_fail(r,
			      "a scan of %llu channels in %llu heads with %llu states, rank %llu "
			      "and kernel %llu is out of range",
			      (unsigned long long)m->inner, (unsigned long long)m->heads,
			      (unsigned long long)m->d_state, (unsigned long long)m->rank,
			      (unsigned long long)m->kernel);
		return false;
	}
	return true;
}

struct scan {
	const struct oom_selective *m;
	struct oom_dim inner, state, all;
	struct oom_val a, bu, c;                /* discrete_A, deltaB_u, C */
};

/* ssm_state = discrete_A[:, :, i] * ssm_state + deltaB_u[:, :, i]; scan_output =
 * ssm_state.to(dtype) @ C[:, i] */
static struct oom_val turn(struct oom_tape *t, struct scan *s, struct oom_val *state,
			   enum oom_dtype dt)
{
	struct oom_val a = oom_op_slice(t, s->a, t->m_b, s->all), before = *state, x;

	*state = oom_op_mul(t, a, oom_keep(before));
	*state = oom_op_add(t, *state, oom_op_slice(t, s->bu, t->m_b, s->all));
	oom_drop(t, before);                    /* the name is taken over only now */
	x = oom_op_cast(t, oom_keep(*state), dt);
	return oom_op_bmm(t, "scan_output", x, oom_op_slice(t, s->c, t->m_b, s->state),
			  t->m_b, s->inner, s->m->d_state);
}

/* What the turns that are not recorded keep: the two factors of the state's product with C, of which the state
 * is the product's type already, and C's, unless they are.  A token's C is small and takes a block of its own. */
static struct oom_val carried(struct oom_tape *t, const struct oom_loop *l, int turn_before,
			      const struct scan *s, enum oom_dtype product, struct oom_val state)
{
	const uint64_t wide = s->all.n * (product == OOM_F32 ? 4 : 4 + 2), c = s->state.n * 2;
	struct oom_loop one = *l;

	state = oom_loop_carry(t, l, turn_before, state, (struct oom_dim){wide, "kept by a turn"}, OOM_U8);
	if (s->c.dt == product)
		return state;
	if (oom_cond_above(t, t->m_b, OOM_BLOCK / c))
		return oom_loop_carry(t, l, turn_before, state, (struct oom_dim){c, "C of a turn"}, OOM_U8);
	one.rest = oom_len_chunks(t, OOM_MONO_ONE, 1, -OOM_LOOP_TURNS);
	return oom_loop_carry(t, &one, turn_before, state, (struct oom_dim){OOM_BLOCK, "C of a turn"}, OOM_U8);
}

static struct oom_val loop(struct oom_tape *t, struct scan *s, enum oom_dtype dt,
			   struct oom_frame *f)
{
	const struct oom_loop l = oom_loop_over(t, 1);
	const enum oom_dtype product = t->amp ? (enum oom_dtype)t->amp_dt : dt;
	struct oom_val state, x[OOM_LOOP_TURNS];

	state = oom_new(t, "ssm_state", t->m_b, s->all, dt);
	/* the elements of the list, until the mixer returns */
	if (l.more)
		oom_name(f, oom_new(t, "scan_outputs", l.rest, s->inner, product));
	for (int i = 0; i < l.turns; i++) {
		if (i)
			state = carried(t, &l, i - 1, s, product, state);
		x[i] = oom_op_slice(t, turn(t, s, &state, dt), t->m_b, s->inner);
		x[i] = oom_keep(oom_name(f, x[i]));
	}
	oom_name(f, state);
	return oom_op_stack(t, x, l.turns, t->m_bs, s->inner);
}

/* The scan: all states at once, multiplied as one batch. */
static struct oom_val at_once(struct oom_tape *t, struct scan *s, enum oom_dtype dt,
			      struct oom_frame *f)
{
	/* ssm_state of the loop, until it gets its name for the scan's last state */
	struct oom_val state = oom_name(f, oom_new(t, "ssm_state", t->m_b, s->all, dt)), x, y;

	x = oom_op_cast(t, oom_associative_scan(t, s->a, s->bu, f), dt);
	x.perm = true;                          /* [b, s, d_inner, d_state] of [s, b, ...] */
	y = oom_op_bmm(t, "scan_output", x, s->c, t->m_bs, s->inner, s->m->d_state);
	oom_forget(f, state);
	return y;
}

/* Time steps, B and C: normed by themselves (Jamba), by a norm without a weight (Falcon Mamba),
 * or not. */
static struct oom_val normed(struct oom_tape *t, const struct oom_selective *m, const char *name,
			     struct oom_val x)
{
	return m->normed ? oom_norm(t, m->norm, name, x, 0) : x;
}

/* x @ weight of every head, the weight spread over a batch of several, over which only heads that were made
 * first (time steps) fold without a copy. */
static struct oom_val product_by_head(struct oom_tape *t, const char *name, struct oom_val x,
				      uint64_t rows, uint64_t cols, uint64_t heads, bool heads_first)
{
	const struct oom_dim out = {rows * heads, name}, all = {rows * cols * heads, NULL};
	struct oom_val w = oom_param(t, name, rows * heads, cols, 0);

	if (oom_cond_above(t, t->m_b, 1)) {
		w = oom_op_expand_copy(t, w, t->m_b, all);
		x = heads_first ? x : oom_op_copy(t, "clone", x);
	} else {
		w = oom_op_view(t, w, OOM_MONO_ONE, all);
	}
	return oom_op_bmm(t, name, x, w, t->m_bs, out, cols);
}

/* Time steps (after softplus), B and C, from the convolved states. */
static struct oom_val select_steps(struct oom_tape *t, const struct oom_selective *m,
				   struct oom_val u, struct scan *s, struct oom_val *b,
				   struct oom_frame *f)
{
	const struct oom_dim rank = {m->rank * m->heads, "dt_rank"},
			     state = {m->d_state * m->heads, "d_state"},
			     parts[3] = {rank, state, state};
	const uint64_t width = m->rank + 2 * m->d_state;
	struct oom_val x = u, p[3], step;

	if (m->by_head) {
		x = product_by_head(t, "x_proj_weight", x, width, m->inner / m->heads, m->heads,
				    false);
	} else {
		/* transposed: folding the batch copies it */
		x.perm = oom_cond_above(t, t->m_b, 1);
		x = oom_op_linear(t, "x_proj", x, (struct oom_dim){width, "dt_rank + 2 * d_state"},
				  OOM_BATCHED);
	}
	oom_op_split(t, oom_keep(oom_name(f, x)), 3, parts, p);        /* ssm_parameters */
	p[0] = oom_name(f, normed(t, m, "dt_layernorm", p[0]));
	*b = oom_name(f, normed(t, m, "b_layernorm", p[1]));
	s->c = oom_name(f, normed(t, m, "c_layernorm", p[2]));
	if (m->by_head) {
		step = product_by_head(t, "dt_proj_weight", p[0], m->inner / m->heads, m->rank,
				       m->heads, true);
		step = oom_op_add(t, step, oom_param(t, "dt_proj_bias", 0, m->inner, 0));
	} else {
		step = oom_op_linear(t, "dt_proj", p[0], s->inner, OOM_BIAS);
	}
	return oom_op_unary(t, OOM_SOFTPLUS, step);
}

static struct oom_val discretise(struct oom_tape *t, const struct oom_selective *m,
				 struct oom_val u, struct scan *s, struct oom_frame *f)
{
	struct oom_val log = oom_param(t, "A_log", m->inner, m->d_state,
				       m->by_head ? OOM_P_FP32 : 0),
		       step, a, b, in;

	step = oom_name(f, select_steps(t, m, u, s, &in, f));
	t->scope = m->module ? m->module : "mixer";
	a = oom_op_unary(t, OOM_NEG, oom_op_unary(t, OOM_EXP, oom_op_cast(t, log, OOM_F32)));
	a = oom_name(f, a);
	a = oom_op_mul_into(t, a, step, t->m_bs, s->all);
	s->a = oom_name(f, oom_op_unary(t, OOM_EXP, a));
	b = oom_op_mul_into(t, step, oom_op_cast(t, in, OOM_F32), t->m_bs, s->all);
	b = oom_name(f, b);
	s->bu = oom_name(f,
			 oom_op_mul_into(t, b, oom_op_cast(t, u, OOM_F32), t->m_bs,
					 s->all));
	return u;
}

struct oom_val oom_selective_mixer(struct oom_tape *t, const struct oom_selective *m,
				   struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	struct scan s = {.m = m, .inner = {m->inner, "d_inner"}, .state = {m->d_state, "d_state"},
			 .all = {m->inner * m->d_state, "d_inner * d_state"}};
	const struct oom_dim parts[2] = {s.inner, s.inner};
	const unsigned bias = m->bias ? OOM_BIAS : 0;
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_frame f = {.t = t};
	const char *scope = t->scope;
	struct oom_val p[2], in, u, d, y;

	x = oom_arg(&f, x);
	y = oom_name(&f,
		     oom_op_linear(t, "in_proj", x, (struct oom_dim){2 * m->inner, "2 * d_inner"},
				   bias));
	oom_op_split(t, y, 2, parts, p);
	if (m->by_head)
		p[0] = oom_name(&f, oom_op_copy(t, "contiguous", p[0]));
	in = oom_mask_padding(t, p[0], true);
	if (m->by_head && t->plan->padding_mask)
		in = oom_rename(&f, p[0], in);
	u = oom_short_conv(t, "conv1d", in, m->kernel, m->conv_bias, m->act);
	u = oom_mask_padding(t, u, true);
	u = m->by_head ? oom_rename(&f, in, u) : oom_name(&f, u);       /* hidden_states */
	t->scope = m->module ? m->module : "mixer";
	u = discretise(t, m, u, &s, &f);
	d = oom_param(t, "D", 0, m->inner, 0);
	y = m->associative ? at_once(t, &s, dt, &f) : loop(t, &s, dt, &f);
	y = oom_op_add(t, y, oom_op_mul(t, u, d));
	y = oom_name(&f, oom_op_mul(t, y, oom_activation(t, m->act, p[1])));
	if (m->by_head && oom_cond_above(t, t->m_b, 1))
		y = oom_op_copy(t, "reshape", y);       /* the heads, behind the batch again */
	/* transposed; the scan's product lies as [b, s, d_inner], and sums keep to it */
	y.perm = !m->associative && oom_cond_above(t, t->m_b, 1);
	y = oom_leave(&f, oom_op_linear(t, "out_proj", y, h, bias | OOM_BATCHED));
	t->scope = scope;
	return y;
}
