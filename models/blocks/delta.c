/* The gated delta rule as transformers writes it in PyTorch (torch_chunk_gated_delta_rule): chunks
 * of 64 tokens, a triangular inverse built row by row in place, and a loop over the chunks that
 * carries a state. Reference: Yang et al. 2024, arXiv:2412.06464; transformers 5.12,
 * models/qwen3_next/modeling_qwen3_next.py.  Names in comments are that function's.
 *
 *   h value heads, dk and dv widths of their keys and values, c = 64 tokens a chunk, everything in
 *   fp32
 * The inverse dominates: its row i keeps i + i * i elements, 87360 in all for every head of every
 * chunk, against c * c = 4096 of the matrix itself. */
#include "mixers.h"

enum { CHUNK = 64 };

bool oom_delta_check(struct oom_reader *r, const struct oom_delta *m, uint64_t kernel)
{
	const uint64_t most = 1u << 24;

	if (r->status)
		return false;
	if (!m->k_heads || !m->v_heads || !m->dk || !m->dv || m->v_heads % m->k_heads ||
	    m->k_heads > most || m->v_heads > most || m->dk > most || m->dv > most || !kernel ||
	    kernel > 1u << 20 || (m->v_heads * m->dk) >> 32 || (m->v_heads * m->dv) >> 32) {
		oom_read_fail(r,
			      "linear attention of %llu key heads of %llu and %llu value heads of "
			      "%llu, kernel %llu: out of range",
			      (unsigned long long)m->k_heads, (unsigned long long)m->dk,
			      (unsigned long long)m->v_heads, (unsigned long long)m->dv,
			      (unsigned long long)kernel);
		return false;
	}
	return true;
}

struct delta {
	const struct oom_delta *m;
	uint16_t cs, nc, bh;            /* padded tokens, chunks; batch: times the batch */
	struct oom_dim q, v, one, cc, state;
	struct oom_val query, key, value, k_beta, v_beta, g, decay, cumdecay;
	struct oom_hold *held;
};

/* x * rsqrt(sum(x * x) + eps) of every head. */
static struct oom_val l2_norm(struct oom_tape *t, struct oom_val x, uint64_t heads)
{
	struct oom_val v = oom_op_mul(t, oom_keep(x), oom_keep(x));

	v = oom_op_sum_wide(t, v, x.mono, (struct oom_dim){heads, "heads"});
	v = oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, v));
	return oom_op_mul(t, x, v);
}

/* transpose(1, 2).contiguous().to(float32) */
static struct oom_val laid_out(struct oom_tape *t, struct oom_val x)
{
	return oom_op_cast(t, oom_op_copy(t, "clone", x), OOM_F32);
}

/* Row i of the inverse: attn[..., i, :i] = row + (row[..., None] * sub).sum(-2) */
static struct oom_val inverse_row(struct oom_tape *t, const struct delta *d, struct oom_val attn,
				  uint64_t i)
{
	const uint64_t h = d->m->v_heads;
	const struct oom_dim line = {h * CHUNK, "heads * chunk"}, n = {h * i, "heads * row"},
			     nn = {h * i * i, "heads * row^2"};
	const struct oom_dim rows = {h * i * CHUNK, "heads * row * chunk"};
	struct oom_val row, sub, sum;

	row = oom_op_slice(t, oom_op_slice(t, oom_keep(attn), d->nc, line), d->nc, n);
	row = oom_op_copy(t, "row", row);
	sub = oom_op_slice(t, oom_op_slice(t, oom_keep(attn), d->nc, rows), d->nc, nn);
	sub = oom_op_copy(t, "sub", sub);
	sum = oom_op_sum(t, oom_op_mul(t, oom_keep(row), sub), d->nc, n);
	return oom_op_set(t, attn, oom_op_add(t, row, sum));
}

/* (I - tril(k_beta k^T * decay))^-1, row by row. */
static struct oom_val inverse(struct oom_tape *t, struct delta *d)
{
	struct oom_val attn, mask, eye;

	mask = oom_hold(t, d->held,
			oom_new(t, "mask", OOM_MONO_ONE, (struct oom_dim){CHUNK * CHUNK, "chunk^2"},
				OOM_U8));
	attn = oom_op_bmm(t, "k_beta k^T", oom_keep(d->k_beta), oom_keep(d->key), d->nc, d->cc,
			  d->m->dk);
	attn = oom_op_masked(t, "masked_fill", oom_op_mul(t, attn, oom_keep(d->decay)), mask);
	attn = oom_op_unary(t, OOM_NEG, attn);
	for (uint64_t i = 1; i < CHUNK; i++)
		attn = inverse_row(t, d, attn, i);
	eye = oom_new(t, "eye", OOM_MONO_ONE, (struct oom_dim){CHUNK * CHUNK, "chunk^2"},
		      (enum oom_dtype)attn.dt);
	return oom_op_add(t, attn, eye);
}

/* One chunk: reads queries, keys, values and the state, writes its part of the output. */
static struct oom_val chunk_turn(struct oom_tape *t, struct delta *d, struct oom_val *state,
				 struct oom_val out, bool last, struct oom_hold *turn)
{
	const bool grad = t->grad;
	const uint16_t b = d->bh;
	const struct oom_dim line = {d->m->v_heads * CHUNK, "heads * chunk"},
			     h = {d->m->v_heads, "heads"};
	const struct oom_dim ql = {d->q.n * CHUNK, "heads * chunk * dk"},
			     vl = {d->v.n * CHUNK, "heads * chunk * dv"};
	struct oom_val q, k, v, attn, prime, inter, e, w;

	oom_release(t, turn);
	q = oom_op_slice(t, oom_keep(d->query), b, ql);
	k = oom_op_slice(t, oom_keep(d->key), b, ql);
	v = oom_op_slice(t, oom_keep(d->value), b, vl);
	attn = oom_op_bmm(t, "q k^T", oom_keep(q), oom_keep(k), b, d->cc, d->m->dk);
	attn = oom_hold(t, turn,
			oom_op_mul(t, attn, oom_op_slice(t, oom_keep(d->decay), b, d->cc)));
	prime = oom_op_slice(t, oom_keep(d->cumdecay), b, ql);
	prime = oom_hold(t, turn,
			 oom_op_bmm(t, "v_prime", prime, oom_keep(*state), b, vl, d->m->dk));
	/* v_new */
	v = oom_hold(t, turn, oom_op_add(t, v, prime));
	e = oom_op_unary(t, OOM_EXP, oom_op_slice(t, oom_keep(d->g), b, line));
	inter = oom_op_bmm(t, "attn_inter", oom_op_mul(t, q, e), oom_keep(*state), b, vl, d->m->dk);
	oom_hold(t, turn, inter);
	attn = oom_op_bmm(t, "attn v_new", attn, oom_keep(v), b, vl, CHUNK);
	out = oom_op_set(t, out, oom_op_add(t, inter, attn));
	/* the last state is given up, and its graph with it */
	t->grad = grad && !last;
	e = oom_op_unary(t, OOM_EXP, oom_op_slice(t, oom_keep(d->g), b, h));
	w = oom_op_mul(t, *state, e);
	e = oom_op_add(t, oom_op_slice(t, oom_keep(d->g), b, h),
		       oom_op_slice(t, oom_keep(d->g), b, line));
	k = oom_op_mul(t, k, oom_op_unary(t, OOM_EXP, e));
	*state = oom_op_add(t, w, oom_op_bmm(t, "k v_new", k, v, b, d->state, CHUNK));
	t->grad = grad;
	return out;
}

/* Bytes one turn of the loop keeps.  In fp32: q k^T and its masked product, the state, q and k
 * times their decays, v_new, three exponentials.  Under autocast every factor of a product is a
 * 16-bit copy: the state twice, q and k by themselves. */
static uint64_t kept_by_turn(const struct oom_tape *t, const struct oom_delta *m)
{
	const uint64_t c = CHUNK, state = m->dk * m->dv;

	if (t->amp)
		return m->v_heads * (2 * (2 * c * c + c * m->dv + 4 * c * m->dk + 2 * state) +
				     4 * (state + 2 * c + 1));
	return m->v_heads * 4 * (2 * c * c + state + 2 * c * m->dk + c * m->dv + 2 * c + 1);
}

static struct oom_val loop(struct oom_tape *t, struct delta *d)
{
	const struct oom_loop l = oom_loop_over(t, CHUNK);
	struct oom_hold turn = {.n = 0};
	struct oom_val state, out;

	state = oom_new(t, "recurrent state", d->bh, d->state, (enum oom_dtype)d->value.dt);
	out = oom_new(t, "core_attn_out", d->cs, d->v, (enum oom_dtype)d->value.dt);
	for (int i = 0; i < l.turns; i++) {
		if (i)
			state = oom_loop_carry(t, &l, i - 1, state,
					       (struct oom_dim){kept_by_turn(t, d->m),
								"kept by a turn"},
					       OOM_U8);
		out = chunk_turn(t, d, &state, out, i + 1 == l.turns, &turn);
	}
	oom_drop(t, state);
	oom_release(t, &turn);
	return out;
}

/* Padded to whole chunks; the shorter ones go as their names are taken over. */
static void prepare(struct oom_tape *t, struct delta *d, struct oom_val q, struct oom_val k,
		    struct oom_val v, struct oom_val g, struct oom_val beta)
{
	const struct oom_dim h = {d->m->v_heads, "heads"};

	q = oom_op_pad(t, q, d->cs, d->q);
	k = oom_op_pad(t, k, d->cs, d->q);
	v = oom_op_pad(t, v, d->cs, d->v);
	beta = oom_hold(t, d->held, oom_op_pad(t, beta, d->cs, h));
	g = oom_op_pad(t, g, d->cs, h);
	d->query = oom_op_unary(t, OOM_SCALE, q);
	d->v_beta = oom_op_mul(t, v, oom_keep(beta));
	d->k_beta = oom_op_mul(t, oom_keep(k), beta);
	d->key = k;
	g = oom_op_view(t, g, d->nc, (struct oom_dim){d->m->v_heads * CHUNK, "heads * chunk"});
	d->g = oom_op_unary(t, OOM_CUMSUM, g);
	d->query = oom_op_view(t, d->query, d->nc,
			       (struct oom_dim){d->q.n * CHUNK, "heads * chunk * dk"});
	d->key = oom_op_view(t, d->key, d->nc,
			     (struct oom_dim){d->q.n * CHUNK, "heads * chunk * dk"});
	d->k_beta = oom_op_view(t, d->k_beta, d->nc,
				(struct oom_dim){d->q.n * CHUNK, "heads * chunk * dk"});
	d->v_beta = oom_op_view(t, d->v_beta, d->nc,
				(struct oom_dim){d->v.n * CHUNK, "heads * chunk * dv"});
}

struct oom_val oom_delta_rule(struct oom_tape *t, const struct oom_delta *m, struct oom_val q,
			      struct oom_val k, struct oom_val v, struct oom_val g,
			      struct oom_val beta)
{
	const struct oom_dim kd = {m->v_heads * m->dk * CHUNK, "heads * chunk * dk"},
			     vd = {m->v_heads * m->dv * CHUNK, "heads * chunk * dv"};
	const enum oom_dtype dt = (enum oom_dtype)q.dt;
	struct oom_hold held = {.n = 0};
	struct delta d = {.m = m,
			  .cs = oom_len_round_up(t, t->m_b, CHUNK),
			  .nc = oom_len_chunks(t, t->m_b, CHUNK, 0),
			  .bh = t->m_b,
			  .q = {m->v_heads * m->dk, "heads * dk"},
			  .v = {m->v_heads * m->dv, "heads * dv"},
			  .cc = {m->v_heads * CHUNK * CHUNK, "heads * chunk^2"},
			  .state = {m->v_heads * m->dk * m->dv, "heads * dk * dv"},
			  .held = &held};
	const char *scope = t->scope;
	struct oom_val caller[3] = {oom_share(t, q), oom_share(t, k), oom_share(t, v)}, attn, e,
		       out;

	t->scope = "chunk_gated_delta_rule";
	oom_hold(t, &held, g);
	oom_hold(t, &held, beta);
	q = l2_norm(t, q, m->v_heads);
	k = l2_norm(t, k, m->v_heads);
	{
		/* names taken over when the list is done */
		struct oom_val old[2] = {oom_share(t, q), oom_share(t, k)};

		q = laid_out(t, q);
		k = laid_out(t, k);
		v = laid_out(t, v);
		beta = laid_out(t, beta);
		g = laid_out(t, g);
		oom_drop(t, old[0]);
		oom_drop(t, old[1]);
	}
	prepare(t, &d, q, k, v, g, beta);
	e = oom_op_add_into(t, oom_keep(d.g), oom_keep(d.g), d.nc, d.cc);
	e = oom_op_unary(t, OOM_EXP, oom_op_tril(t, e));
	d.decay = oom_op_tril(t, e);
	attn = inverse(t, &d);
	d.value = oom_op_bmm(t, "attn v_beta", oom_keep(attn), oom_keep(d.v_beta), d.nc, vd, CHUNK);
	e = oom_op_mul(t, oom_keep(d.k_beta), oom_op_unary(t, OOM_EXP, oom_keep(d.g)));
	d.cumdecay = oom_op_bmm(t, "k_cumdecay", attn, e, d.nc, kd, CHUNK);
	out = loop(t, &d);
	if (oom_cond_more(t, d.cs, 1, t->m_bs, 1))
		out = oom_op_slice(t, out, t->m_bs, d.v);
	else
		out = oom_op_view(t, out, t->m_bs, d.v);
	out = oom_op_cast(t, oom_op_copy(t, "clone", out), dt);
	oom_drop(t, d.query);
	oom_drop(t, d.key);
	oom_drop(t, d.value);
	oom_drop(t, d.k_beta);
	oom_drop(t, d.v_beta);
	oom_drop(t, d.g);
	oom_drop(t, d.decay);
	oom_drop(t, d.cumdecay);
	oom_release(t, &held);
	for (int i = 0; i < 3; i++)
		oom_drop(t, caller[i]);
	t->scope = scope;
	return out;
}

struct oom_val oom_delta_norm(struct oom_tape *t, const char *name, struct oom_val y,
			      struct oom_val gate, uint64_t dv)
{
	const enum oom_dtype in = (enum oom_dtype)y.dt;
	const struct oom_dim heads = {y.width / dv, "heads"};
	const struct oom_val arg = oom_share(t, y);
	const char *scope = t->scope;
	struct oom_val w, f, v;

	t->scope = name;
	w = oom_param(t, "weight", 0, dv, OOM_P_NORM);
	f = oom_op_cast(t, y, OOM_F32);
	v = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, oom_keep(f)), f.mono, heads);
	v = oom_op_unary(t, OOM_RSQRT, oom_op_unary(t, OOM_ADD_SCALAR, v));
	f = oom_op_mul(t, w, oom_op_cast(t, oom_op_mul(t, f, v), in));
	f = oom_op_mul(t, f, oom_op_unary(t, OOM_SILU, oom_op_cast(t, gate, OOM_F32)));
	f = oom_op_cast(t, f, in);
	oom_drop(t, arg);
	t->scope = scope;
	return f;
}
