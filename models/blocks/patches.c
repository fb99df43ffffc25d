/* What vision transformers share: attention over patches, tokens as maps and back. */
#include "image.h"

struct oom_val oom_project_heads(struct oom_tape *t, const char *name, struct oom_val x,
				 uint64_t width, bool bias, uint64_t heads)
{
	x = oom_op_linear(t, name, x, (struct oom_dim){width, "channels"}, bias ? OOM_BIAS : 0);
	/* a single head's transpose moves nothing */
	return heads == 1 ? x : oom_op_heads(t, x);
}

struct oom_attn oom_attn_over(struct oom_tape *t, const struct oom_arch *a, uint64_t heads,
			      uint64_t width, uint64_t queries, uint64_t keys)
{
	struct oom_attn at = oom_attn_of(t, a);

	at.causal = false;
	at.heads = at.kv_heads = heads;
	at.d = at.dv = heads ? width / heads : width;
	at.mq = oom_tokens_of(t, queries);
	at.mk = oom_tokens_of(t, keys);
	at.sk = oom_length_of(t, keys);
	at.mask = oom_none();
	at.dropout = a->attn_dropout;
	return at;
}

struct oom_val oom_attention_in(struct oom_frame *f, const struct oom_attn *a, struct oom_val q,
				struct oom_val k, struct oom_val v, const struct oom_val bias[2])
{
	const struct oom_dim heads = {a->heads, "n_heads"}, out = {a->heads * a->dv, "channels"};
	const uint16_t scores = oom_mono_mul(f->t, a->mq, a->sk);
	struct oom_tape *t = f->t;
	struct oom_val w, p, y;

	q = oom_arg(f, q);
	k = oom_arg(f, k);
	v = oom_arg(f, v);
	w = oom_op_unary(t, OOM_SCALE, oom_op_bmm(t, "scores", q, k, scores, heads, a->d));
	for (int i = 0; bias && i < 2; i++)
		if (!oom_is_none(bias[i]))
			w = oom_op_add(t, w, oom_keep(bias[i]));
	w = oom_name(f, w);
	p = oom_name(f, oom_op_dropout(t, oom_op_softmax(t, w, false), a->dropout));
	y = oom_op_bmm(t, "attention", p, v, a->mq, out, oom_mono_now(t, a->sk));
	y.perm = a->heads == 1;
	return oom_op_merge_heads(t, y);
}

struct oom_val oom_written_attention(struct oom_tape *t, const struct oom_attn *a, struct oom_val q,
				     struct oom_val k, struct oom_val v,
				     const struct oom_val bias[2])
{
	struct oom_frame f = {.t = t};

	return oom_leave(&f, oom_attention_in(&f, a, q, k, v, bias));
}

struct oom_val oom_param_tokens(struct oom_tape *t, const char *name, uint64_t n, uint64_t width)
{
	/* [1, n, width]: factored optimizers see n x width */
	struct oom_val x = oom_param(t, name, n, width, 0);

	x.mono = oom_length_of(t, n);
	x.width = width;
	return x;
}

struct oom_val oom_vector_norm(struct oom_tape *t, struct oom_val x, uint16_t mono,
			       struct oom_dim width)
{
	const bool rg = t->grad && x.rg;
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_UNARY, "linalg_vector_norm");
		oom_node_edge(t, n, x);
		oom_node_save(t, n, x);
	}
	/* autocast asks for a result in fp32, computed from the input as it is */
	y = oom_new(t, "linalg_vector_norm", mono, width, t->amp ? OOM_F32 : (enum oom_dtype)x.dt);
	if (rg) {
		y = oom_node_out(t, n, 0, y);
		oom_node_save(t, n, y);
	}
	oom_done(t, x);
	return y;
}

struct oom_val oom_normalize(struct oom_tape *t, struct oom_val x, uint64_t groups)
{
	struct oom_frame f = {.t = t};
	struct oom_val n;

	x = oom_arg(&f, x);
	n = oom_vector_norm(t, x, x.mono, (struct oom_dim){groups, NULL});
	return oom_leave(&f, oom_op_div(t, x, oom_op_unary(t, OOM_CLAMP_SIDE, n)));
}

struct oom_val oom_cat3(struct oom_tape *t, struct oom_val a, struct oom_val b, struct oom_val c,
			uint16_t mono, struct oom_dim width)
{
	const bool rg = t->grad && (a.rg || b.rg || c.rg);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {                               /* every part's gradient is a view of the whole's */
		n = oom_node(t, OOM_NODE_CAT, "cat");
		oom_node_edge(t, n, a);
		oom_node_edge(t, n, b);
		oom_node_edge(t, n, c);
	}
	y = oom_new(t, "cat", mono, width, (enum oom_dtype)a.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, a);
	oom_done(t, b);
	oom_done(t, c);
	return y;
}

struct oom_map oom_tokens_map(struct oom_tape *t, struct oom_val x, uint64_t c, uint64_t h,
			      uint64_t w)
{
	return (struct oom_map){oom_op_view(t, x, t->m_b, (struct oom_dim){c * h * w, NULL}), c, h,
				w};
}
