/* Attention whose scores are tensors: torch's math path, and what a compiled graph writes out.
 *
 * Reference: aten/src/ATen/native/transformers/attention.cpp, read as of PyTorch 2.14. */
#include "attn.h"

struct oom_val oom_mask_to_bias(struct oom_tape *t, struct oom_val mask, enum oom_dtype dt)
{
	struct oom_val z, inv;

	if (mask.dt != OOM_U8) {
		return mask.kept ? oom_share(t, mask) : mask;
	}
	z = oom_new(t, "attention bias", mask.mono, (struct oom_dim){mask.width, NULL}, dt);
	inv = oom_new(t, "logical_not", mask.mono, (struct oom_dim){mask.width, NULL}, OOM_U8);
	oom_drop(t, inv);
	oom_done(t, mask);
	return z;
}

/* _scaled_dot_product_attention_math: the scores exist, in fp32 for 16-bit inputs unless torch is told or too old.  Autocast's
 * wrapper of scaled_dot_product_attention excludes its own dispatch key
 * (aten/src/ATen/autocast_mode.h), so nothing in here is cast again. */
struct oom_val oom_attention_math(struct oom_tape *t, struct oom_val q, struct oom_val k, struct oom_val v, struct oom_val mask,
				  const struct oom_sdpa *a)
{
	const enum oom_dtype dt = (enum oom_dtype)q.dt, in = t->plan->math_sdp_fp32 ? OOM_F32 : dt;
	const uint16_t scores = oom_mono_mul(t, a->mq, a->sk);
	const bool amp = t->amp, broadcast = a->heads != a->kv_heads && !a->gqa;
	const struct oom_dim wide = {a->heads * a->d, NULL}, widev = {a->heads * a->dv, NULL};
	struct oom_val s, m = oom_none(), y, scaled, weights = oom_none(), acc[2] = {oom_none(), oom_none()};

	t->amp = false;
	q = oom_op_cast(t, q, in);
	k = oom_op_cast(t, k, in);
	v = oom_op_cast(t, v, in);
	/* query_acc, key_acc and value_acc are locals of the function, and so are key_expanded and value_expanded */
	s = oom_op_unary(t, OOM_SCALE, oom_keep(q));
	if (a->causal && oom_is_none(mask)) {
		struct oom_val ones = oom_new(t, "causal mask", oom_mono_mul(t, a->sk, a->sk), D(1),
					      OOM_U8);

		m = oom_mask_to_bias(t, ones, in);
	} else if (!oom_is_none(mask)) {
		m = oom_mask_to_bias(t, mask, dt);
	}
	if (a->heads != a->kv_heads && a->gqa) {        /* repeat_interleave */
		acc[0] = k;
		acc[1] = v;
		k = oom_op_expand_copy(t, oom_keep(k), a->mk, wide);
		v = oom_op_expand_copy(t, oom_keep(v), a->mk, widev);
	}
	y = oom_op_unary(t, OOM_SCALE, oom_keep(k));
	if (broadcast)                          /* matmul expands what it broadcasts */
		y = oom_op_expand(t, y, a->mk, wide);
	y = oom_op_bmm(t, "scores", oom_keep(s), y, scores, (struct oom_dim){a->heads, NULL}, a->d);
	scaled = s;
	s = y;
	if (!oom_is_none(m))
		/* attn_mask is a local to the end */
		s = oom_op_add_inplace(t, s, oom_keep(m));
	s = oom_op_softmax(t, s, false);
	s = oom_op_dropout(t, s, a->dropout);
	/* make_tuple(matmul(attn, value).to(dtype), attn.to(dtype)): compilers begin with the last */
	if (dt != in)
		weights = oom_new_like(t, "attention weights", s, dt);
	y = broadcast ? oom_op_expand(t, oom_keep(v), a->mk, widev) : oom_share(t, v);
	y = oom_op_bmm(t, "attention", oom_keep(s), y, a->mq, widev, oom_mono_now(t, a->sk));
	y = oom_op_cast(t, y, dt);
	if (!oom_is_none(m))
		oom_done(t, m);
	oom_drop(t, s);
	oom_drop(t, scaled);
	oom_drop(t, q);
	oom_drop(t, k);
	oom_drop(t, v);
	oom_drop(t, acc[0]);
	oom_drop(t, acc[1]);
	oom_drop(t, weights);
	t->amp = amp;
	return y;
}

/* The same in a compiled graph.  The partitioner keeps the scores, in fp32, and what dropout leaves, and makes the
 * softmax again; q, k and v are kept in their own type, for inductor's products read that (trace of BERT and ViT on an
 * H100, PyTorch 2.11). */
struct oom_val oom_attention_traced(struct oom_tape *t, struct oom_val q, struct oom_val k, struct oom_val v,
				    const struct oom_sdpa *a)
{
	const bool rg = oom_wants_grad(t, q) || oom_wants_grad(t, k) || oom_wants_grad(t, v);
	const enum oom_dtype in = t->plan->math_sdp_fp32 ? OOM_F32 : (enum oom_dtype)q.dt;
	const uint16_t plane = oom_mono_mul(t, a->mq, a->sk);
	const struct oom_dim heads = {a->heads, NULL};
	struct oom_val scores = oom_new(t, "scores", plane, heads, in), left = oom_none(), probs, y;
	const int32_t n = rg ? oom_attention_node(t, OOM_NODE_TRACED, q, k, v, a) : -1;

	if (a->dropout > 0 && t->train)
		left = oom_new(t, "native_dropout", plane, heads, OOM_U8);
	if (rg) {
		oom_node_save(t, n, scores);
		if (!oom_is_none(left))
			oom_node_save(t, n, left);
	}
	probs = oom_new(t, "softmax", plane, heads, in);
	y = oom_new(t, "attention", a->mq, (struct oom_dim){a->heads * a->dv, q.text}, (enum oom_dtype)q.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_drop(t, probs);
	oom_drop(t, left);
	oom_drop(t, scores);
	oom_done(t, q);
	oom_done(t, k);
	oom_done(t, v);
	return y;
}
