/* Longformer's attention: every token sees a window around it.
 *
 * The window's scores are computed in overlapping chunks of twice its half (2s - window rows in
 * all) and laid out as bands; global attention, which a batch asks for with a mask of its own, is
 * not modelled.  Reference: transformers 5.12, models/longformer/modeling_longformer.py
 * (LongformerSelfAttention), models/led/modeling_led.py (LEDEncoderSelfAttention); Beltagy et al.
 * 2020, arXiv:2004.05150. */
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

/* One product of queries and keys in chunks of a window, its band laid out as (tokens, heads,
 * window + 1). */
static struct oom_val band(struct oom_tape *t, uint64_t w, struct oom_val q, struct oom_val k,
			   uint64_t heads, uint64_t d)
{
	/* the overlapping chunks hold 2 x (s - window / 2) rows */
	const uint16_t m_rows = oom_len_padded(t, t->m_b, w, -1);
	struct oom_val y;

	q = oom_op_expand_copy(t, q, m_rows,
			       (struct oom_dim){2 * heads * d, "2 * n_heads * head_dim"});
	k = oom_op_expand_copy(t, k, m_rows,
			       (struct oom_dim){2 * heads * d, "2 * n_heads * head_dim"});
	y = oom_op_bmm(t, "chunked scores", q, k, m_rows,
		       (struct oom_dim){2 * heads * w, "2 * n_heads * window"}, d);
	y = oom_op_expand_copy(t, y, m_rows,
			       (struct oom_dim){2 * heads * (w + 1), "2 * n_heads * (window + 1)"});
	y = oom_op_expand_copy(t, y, oom_len_round_up(t, t->m_b, w),
			       (struct oom_dim){heads * (w + 1), "n_heads * (window + 1)"});
	/* what lies before the first token and after the last */
	for (int i = 0; i < 2; i++)
		y = oom_op_masked_inplace(
			t, y,
			oom_new(t, "outside", t->m_b,
				(struct oom_dim){w / 2 * heads * (w / 2 + 1), NULL}, OOM_U8));
	return y;
}

struct oom_val oom_window_attention(struct oom_tape *t, const struct oom_window *win,
				    struct oom_val x)
{
	const uint64_t w = win->width, heads = win->heads, d = win->d;
	const struct oom_dim h = {heads * d, "n_heads * head_dim"};
	const uint16_t m_tokens = oom_len_round_up(t, t->m_b, w);
	struct oom_frame f = {.t = t};
	struct oom_val turned = x, q, k, v, y, mask, out, scores, p, e;

	turned.perm = true;                     /* (tokens, batch): every projection copies it */
	q = oom_op_linear(t, "query", turned, h, OOM_BIAS);
	k = oom_name(&f, oom_op_linear(t, "key", turned, h, OOM_BIAS));
	v = oom_name(&f, oom_op_linear(t, "value", turned, h, OOM_BIAS));
	oom_linear_unused(t, "query_global", x.width, h.n, OOM_BIAS);
	oom_linear_unused(t, "key_global", x.width, h.n, OOM_BIAS);
	oom_linear_unused(t, "value_global", x.width, h.n, OOM_BIAS);
	q = oom_name(&f, oom_op_unary(t, OOM_SCALE, q));
	y = band(t, w, q, k, heads, d);
	mask = oom_name(&f, oom_new(t, "float mask", m_tokens, D(1), (enum oom_dtype)y.dt));
	out = oom_name(&f, band(t, w, oom_op_copy(t, "ones", mask), mask, 1, 1));
	scores = oom_name(&f, oom_op_add_inplace(t, y, out));
	y = oom_op_softmax(t, scores, true);
	y = oom_op_masked(t, "masked_fill", y, win->masked);
	y = oom_op_cast(t, y, (enum oom_dtype)q.dt);
	oom_forget(&f, scores);                 /* by hand, once the weights are there */
	y = oom_name(&f, oom_op_dropout(t, y, win->dropout));
	p = oom_op_expand_copy(t, y, m_tokens,
			       (struct oom_dim){heads * (3 * w / 2 + 2), NULL});
	e = oom_op_expand_copy(t, v, oom_len_padded(t, t->m_b, w, 2), h);
	e = oom_op_expand_copy(t, e, m_tokens, (struct oom_dim){3 * h.n, "3 * d_model"});
	p = oom_op_bmm(t, "context", p, e, m_tokens, h, 3 * w / 2);
	p = oom_op_copy(t, "contiguous", p);
	p.perm = true;
	return oom_leave(&f, p);
}
