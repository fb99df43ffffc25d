/* Longformer's attention: every token sees a window around it.
 *
 * The window's scores are computed in overlapping chunks of twice its half (2s - window rows in
 * all) and laid out as bands; global attention, which a batch asks for with a mask of its own, is
 * not modelled.  Reference: transformers 5.12, models/longformer/modeling_longformer.py
 * (LongformerSelfAttention), models/led/modeling_led.py (LEDEncoderSelfAttention); Beltagy et al.
 * 2020, arXiv:2004.05150. */
#include "ops/scan.h"
#include "sparse.h"

uint64_t oom_read_window(struct oom_reader *r, const char *key, uint64_t def)
{
	const struct oom_key *k = oom_read_key(r, key);
	uint64_t w = def;

	if (k && k->type == OOM_KEY_LIST) {
		const double first = oom_read_item_real(r, key, 0, (double)def);

		w = first >= 2 && first <= 1 << 20 ? (uint64_t)first : 0;
	} else if (k) {
		w = oom_read_count(r, key, 2);
	}
	if (w < 2 || w % 2 || w > 1 << 20)
		oom_read_fail(r, "%s must be even numbers from 2 to 2^20", key);
	return w;
}

/* The parts of a sequence's scores that land in its band: chunks of w rows of w + 1 scores each, of which every
 * one has m_rows half chunks, the last of a sequence one. */
struct chunks {
	uint64_t w, heads;
	uint16_t m_rows, m_tokens;
};

static struct oom_val part(struct oom_tape *t, struct oom_val x, uint16_t mono, uint64_t width)
{
	return oom_op_slice(t, x, mono, (struct oom_dim){width, NULL});
}

/* diagonal_attention_scores[...] = half a chunk's rows of `cols` scores, of every chunk. */
static struct oom_val from_all(struct oom_tape *t, const struct chunks *c, struct oom_val z, struct oom_val y,
			       uint64_t cols)
{
	y = part(t, oom_keep(y), c->m_rows, c->heads * (c->w + 1));
	return oom_op_set(t, z, part(t, y, c->m_rows, c->heads * cols));
}

/* The same of one chunk. */
static struct oom_val from_one(struct oom_tape *t, const struct chunks *c, struct oom_val z, struct oom_val y,
			       uint64_t rows, uint64_t cols)
{
	y = part(t, oom_keep(y), t->m_b, c->heads * c->w * (c->w + 1));
	y = part(t, y, t->m_b, c->heads * rows * (c->w + 1));
	return oom_op_set(t, z, part(t, y, t->m_b, c->heads * rows * cols));
}

/* _mask_invalid_locations: what lies before the first token and after the last; the condition is kept. */
static struct oom_val masked(struct oom_tape *t, const struct chunks *c, struct oom_val z)
{
	const uint64_t rows = c->w / 2 * c->heads;
	const struct oom_dim edge = {rows * (c->w / 2 + 1), NULL},
			     square = {c->w / 2 * (c->w / 2 + 1), "window / 2 * (window / 2 + 1)"};
	struct oom_frame f = {.t = t};

	/* ones, their lower triangle turned upside down, and that turned round */
	oom_name(&f, oom_new(t, "beginning_mask", OOM_MONO_ONE, square, (enum oom_dtype)z.dt));
	oom_name(&f, oom_new(t, "ending_mask", OOM_MONO_ONE, square, (enum oom_dtype)z.dt));
	for (int i = 0; i < 2; i++) {
		struct oom_val y = oom_op_over(t, "transpose", oom_keep(z)), full, outside;

		y = part(t, y, t->m_b, rows * (c->w + 1));
		y = part(t, y, t->m_b, edge.n);
		full = oom_new(t, "full_like", t->m_b, edge, (enum oom_dtype)z.dt);
		outside = oom_new(t, "outside", t->m_b, edge, OOM_U8);
		y = oom_op_masked(t, "where", y, outside);
		oom_discard(t, full);
		z = oom_op_set(t, z, y);
	}
	oom_leave(&f, oom_none());
	return z;
}

/* Chunks of x.  Those that overlap are made contiguous for the product; one window makes one chunk, which is x. */
static struct oom_val chunked(struct oom_tape *t, struct oom_val x, uint64_t w, uint16_t mono, uint64_t width,
			      bool turned)
{
	if (!oom_cond_above(t, oom_len_round_up(t, OOM_MONO_ONE, w), w))
		return oom_op_view(t, oom_keep(x), mono, (struct oom_dim){width, "chunks"});
	return oom_op_as_strided(t, oom_keep(x), mono, (struct oom_dim){width, "overlapping chunks"}, turned);
}

static struct oom_val contiguous(struct oom_tape *t, struct oom_val x, uint64_t w)
{
	return oom_cond_above(t, oom_len_round_up(t, OOM_MONO_ONE, w), w) ? oom_op_copy(t, "clone", x) : x;
}

/* _sliding_chunks_query_key_matmul: a product of queries and keys in chunks of a window, its band laid out as
 * (tokens, heads, window + 1).  k absent: of ones and a mask, which is multiplied. */
static struct oom_val band(struct oom_tape *t, uint64_t w, struct oom_val q, struct oom_val k,
			   uint64_t heads, uint64_t d)
{
	/* the overlapping chunks hold 2 x (s - window / 2) rows */
	const struct chunks c = {w, heads, oom_len_padded(t, t->m_b, w, -1), oom_len_round_up(t, t->m_b, w)};
	const struct oom_dim scores = {2 * heads * w, "2 * n_heads * window"};
	struct oom_frame f = {.t = t};
	struct oom_val y, z;

	if (oom_is_none(k)) {
		y = oom_new(t, "mul", c.m_rows, scores, (enum oom_dtype)q.dt);
	} else {
		q = chunked(t, q, w, c.m_rows, 2 * heads * d, false);
		k = chunked(t, k, w, c.m_rows, 2 * heads * d, true);
		q = contiguous(t, q, w);
		y = oom_op_bmm(t, "chunked scores", q, contiguous(t, k, w), c.m_rows, scores, d);
	}
	y = oom_op_pad(t, y, c.m_rows, (struct oom_dim){2 * heads * (w + 1), "2 * n_heads * (window + 1)"});
	y = oom_name(&f, y);
	z = oom_new(t, "new_zeros", c.m_tokens, (struct oom_dim){heads * (w + 1), "n_heads * (window + 1)"},
		    (enum oom_dtype)y.dt);
	z = from_all(t, &c, z, y, w / 2 + 1);   /* main diagonal and upper triangle */
	z = from_one(t, &c, z, y, w / 2, w / 2 + 1);
	z = from_all(t, &c, z, y, w / 2);       /* lower triangle */
	z = from_one(t, &c, z, y, w / 2 - 1, w / 2 - 1);
	return oom_leave(&f, masked(t, &c, z));
}

/* _sliding_chunks_matmul_attn_probs_value: every token's weights, moved to where the values of its chunk stand,
 * times these, of which chunks of a window and a half overlap. */
static struct oom_val context(struct oom_tape *t, const struct oom_window *win, struct oom_val p,
			      struct oom_val v)
{
	const uint64_t w = win->width, wide = w + 1 + w / 2 + 1;
	const uint16_t m_tokens = oom_len_round_up(t, t->m_b, w);
	const struct oom_dim h = {win->heads * win->d, "n_heads * head_dim"};
	struct oom_frame f = {.t = t};
	struct oom_val e;

	p = oom_name(&f, oom_op_copy(t, "reshape", p));
	e = oom_op_over(t, "transpose", v);
	e = oom_name(&f, oom_op_pad(t, e, oom_len_padded(t, t->m_b, w, 2), h));
	/* overlapping even in one window, whose halves see what was added */
	e = oom_op_as_strided(t, oom_keep(e), m_tokens, (struct oom_dim){3 * h.n, "overlapping chunks"}, false);
	/* _pad_and_diagonalize: rows of another length, the last places of a chunk and of a row cut */
	p = oom_rename(&f, p, oom_op_pad(t, p, m_tokens, (struct oom_dim){win->heads * wide, NULL}));
	p = part(t, oom_keep(p), m_tokens, win->heads * (wide - 1));
	p = part(t, p, m_tokens, win->heads * (wide - 2));
	e = oom_op_copy(t, "clone", e);
	return oom_leave(&f, oom_op_bmm(t, "context", p, e, m_tokens, h, 3 * w / 2));
}

struct oom_val oom_window_attention(struct oom_tape *t, const struct oom_window *win,
				    struct oom_val x)
{
	const uint64_t w = win->width, heads = win->heads, d = win->d;
	const struct oom_dim h = {heads * d, "n_heads * head_dim"};
	const uint16_t m_tokens = oom_len_round_up(t, t->m_b, w);
	const unsigned flags = OOM_BIAS | OOM_BATCHED;
	struct oom_frame f = {.t = t};
	struct oom_val turned = x, q, k, v, y, mask, out, scores, p;

	turned.perm = oom_cond_above(t, t->m_b, 1);     /* (tokens, batch) */
	q = oom_op_linear(t, "query", turned, h, flags);
	k = oom_name(&f, oom_op_linear(t, "key", turned, h, flags));
	v = oom_name(&f, oom_op_linear(t, "value", turned, h, flags));
	oom_linear_unused(t, "query_global", x.width, h.n, OOM_BIAS);
	oom_linear_unused(t, "key_global", x.width, h.n, OOM_BIAS);
	oom_linear_unused(t, "value_global", x.width, h.n, OOM_BIAS);
	q = oom_name(&f, oom_op_over(t, "div_", q));
	y = band(t, w, q, k, heads, d);
	oom_name(&f, oom_new(t, "remove_from_windowed_attention_mask", m_tokens, D(1), OOM_U8));
	mask = oom_name(&f, oom_new(t, "float mask", m_tokens, D(1), (enum oom_dtype)y.dt));
	p = oom_new(t, "new_ones", m_tokens, D(1), (enum oom_dtype)y.dt);
	out = oom_name(&f, band(t, w, mask, oom_none(), 1, 1));
	oom_discard(t, p);
	y = oom_op_add_in_view(t, y, oom_keep(out));
	scores = oom_name(&f, oom_op_over(t, "transpose", y));
	y = oom_op_softmax(t, scores, true);
	y = oom_op_masked(t, "masked_fill", y, win->masked);
	y = oom_op_cast(t, y, (enum oom_dtype)q.dt);
	oom_forget(&f, scores);                 /* by hand, once the weights are there */
	y = oom_name(&f, oom_op_dropout(t, y, win->dropout));
	p = oom_op_over(t, "transpose", context(t, win, y, v));
	p = oom_op_copy(t, "contiguous", p);
	p.perm = turned.perm;
	return oom_leave(&f, p);
}
