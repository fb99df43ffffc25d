/* Parts of T5's relatives: Switch's experts, LongT5's attention within blocks, UDOP's and
 * Pop2Piano's other tables. Reference: transformers 5.12,
 * models/{switch_transformers,longt5,udop,pop2piano}/modeling_*.py. */
#include "t5.h"

bool oom_t5_is_sparse(const struct oom_t5_stack *s, uint32_t layer)
{
	const uint64_t step = s->a->extra[s->decoder ? OOM_T5_DEC_SPARSE : OOM_T5_ENC_SPARSE];

	return step && (layer % step == 1 || step == 1);
}

/* Which tokens go where is the data's to say; here every token meets one expert. */
struct oom_val oom_t5_experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t e = a->n_experts, d = a->d_model, f = a->d_ff;
	const struct oom_dim ff = {f, "d_ff"}, h = {d, "d_model"}, experts = {e, "num_experts"};
	struct oom_val y, w, probs, at, noise, none = oom_none();

	t->warning = "which tokens an expert of Switch Transformers gets is the data's to say: its "
		     "sparse layers are approximated";
	t->scope = "router";
	y = oom_op_cast(t, oom_keep(x), OOM_F32);
	if (t->train) {                         /* multiplicative jitter, in place */
		noise = oom_new_like(t, "jitter", y, OOM_F32);
		y = oom_op_mul(t, y, noise);
	}
	w = oom_op_cast(t, oom_param(t, "weight", e, d, OOM_P_LINEAR), OOM_F32);
	y = oom_op_matmul_param(t, "classifier", y, w,
				a->extra[OOM_T5_ROUTER_BIAS] ? oom_param(t, "bias", 0, e, 0) : none,
				experts);
	probs = oom_op_cast(t, oom_op_softmax(t, y, true), (enum oom_dtype)x.dt);
	at = oom_new(t, "expert index", x.mono, experts, OOM_I64);
	probs = oom_op_gather(t, "max", probs, oom_keep(at), x.mono, D(1));
	t->scope = "experts";
	y = oom_op_copy(t, "current_state", oom_keep(x));
	y = oom_op_grouped_mm(t, "wi", y,
			      oom_param(t, "wi.weight", e * f, d, OOM_P_EXPERT | OOM_P_LINEAR),
			      none, d, ff);
	y = oom_op_dropout(t, oom_activation(t, a->act, y), a->dropout);
	y = oom_op_grouped_mm(t, "wo", y,
			      oom_param(t, "wo.weight", e * d, f, OOM_P_EXPERT | OOM_P_LINEAR),
			      none, f, h);
	y = oom_op_mul(t, y, probs);
	oom_drop(t, at);
	oom_done(t, x);
	return y;
}

/* ---- LongT5: blocks of local_radius + 1 tokens attend to themselves and their neighbours ---- */

struct oom_val oom_t5_block_bias(struct oom_tape *t, struct oom_t5_stack *s)
{
	const uint64_t block = s->a->extra[OOM_T5_LOCAL], h = s->a->n_heads;
	const uint16_t m_padded = oom_len_round_up(t, t->m_b, block);
	struct oom_val mask, b;

	/* the encoder's own, given to all layers; the first one makes an additive mask of it */
	s->mask = oom_new(t, "local mask", m_padded, (struct oom_dim){3 * block, "3 * block_len"},
			  OOM_U8);
	b = oom_op_embedding(t, "relative_attention_bias",
			     oom_new(t, "relative buckets", OOM_MONO_ONE,
				     (struct oom_dim){3 * block * block, NULL}, OOM_I64),
			     s->a->extra[OOM_T5_BUCKETS], (struct oom_dim){h, "num_heads"}, 0);
	mask = oom_new(t, "additive mask", m_padded, (struct oom_dim){3 * block, "3 * block_len"},
		       OOM_F32);
	b = oom_op_add_into(t, oom_op_cast(t, b, OOM_F32), mask, m_padded,
			    (struct oom_dim){3 * block * h, "3 * block_len * num_heads"});
	return b;
}

/* A block, the one before and the one after: padded by a block at both ends, three slices
 * joined. */
static struct oom_val three_blocks(struct oom_tape *t, struct oom_val x, uint16_t m_padded,
				   uint64_t block)
{
	const struct oom_dim one = {x.width, x.text}, three = {3 * x.width, "3 * num_heads * d_kv"};
	struct oom_val p = oom_op_expand_copy(t, x, oom_len_plus(t, t->m_b, 2 * block), one),
		       part[3], y;
	const bool rg = t->grad && p.rg;
	int32_t n = -1;

	for (int i = 0; i < 3; i++)
		part[i] = oom_op_slice(t, oom_keep(p), m_padded, one);
	oom_drop(t, p);
	if (rg) {
		n = oom_node(t, OOM_NODE_CAT, "cat");
		for (int i = 0; i < 3; i++)
			oom_node_edge(t, n, part[i]);
	}
	y = oom_new(t, "cat", m_padded, three, (enum oom_dtype)p.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	for (int i = 0; i < 3; i++)
		oom_drop(t, part[i]);
	return y;
}

struct oom_val oom_t5_block_attention(struct oom_tape *t, const struct oom_t5_stack *s,
				      struct oom_val x)
{
	static const char *const names[] = {"q", "k", "v"};
	const struct oom_arch *a = s->a;
	const uint64_t block = a->extra[OOM_T5_LOCAL];
	const uint16_t m_padded = oom_len_round_up(t, t->m_b, block);
	const struct oom_dim inner = {a->n_heads * a->head_dim, "num_heads * d_kv"};
	const bool pad = oom_cond_more(t, m_padded, 1, s->m_tokens, 1);
	struct oom_val p[3], w, y;
	enum oom_dtype dt;

	for (int i = 0; i < 3; i++)
		p[i] = oom_op_linear(t, names[i], oom_keep(x), inner, 0);
	for (int i = 0; i < 3; i++) {
		if (pad)
			p[i] = oom_op_expand_copy(t, p[i], m_padded, inner);
		if (i)
			p[i] = three_blocks(t, p[i], m_padded, block);
		p[i] = oom_op_heads(t, p[i]);
	}
	w = oom_op_bmm(t, "scores", oom_keep(p[0]), oom_keep(p[1]), m_padded,
		       (struct oom_dim){3 * block * a->n_heads, "3 * block_len * num_heads"},
		       a->head_dim);
	dt = (enum oom_dtype)w.dt;
	w = oom_op_add_inplace(t, w, oom_keep(s->bias));
	y = oom_op_softmax(t, oom_op_cast(t, oom_keep(w), OOM_F32), true);
	y = oom_op_dropout(t, oom_op_cast(t, y, dt), a->dropout);
	y = oom_op_bmm(t, "attention", y, oom_keep(p[2]), m_padded, inner, 3 * block);
	y = oom_op_copy(t, "contiguous", y);
	if (pad)
		y = oom_op_slice(t, y, s->m_tokens, inner);
	y = oom_op_linear(t, "o", y, (struct oom_dim){a->d_model, "d_model"}, 0);
	oom_drop(t, w);
	for (int i = 0; i < 3; i++)
		oom_drop(t, p[i]);
	if (a->extra[OOM_T5_GLOBAL]) {
		oom_drop(t, oom_param(t, "global_input_layer_norm.weight", 0, a->d_model,
				      OOM_P_UNUSED | OOM_P_NORM));
		t->warning = "LongT5's transient global tokens are approximated: only their "
			     "weights are counted";
	}
	oom_done(t, x);
	return y;
}

/* ---- weights beside the text ---- */

static void idle(struct oom_tape *t, const char *scope, uint64_t rows, uint64_t cols,
		 uint32_t flags)
{
	t->scope = scope;
	oom_drop(t, oom_param(t, "weight", rows, cols, OOM_P_UNUSED | flags));
}

void oom_t5_idle_parts(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t *e = a->extra, d = a->d_model;

	if (e[OOM_T5_FLAGS] & OOM_T5_FEATURES)
		idle(t, "mel_conditioner.embedding", e[OOM_T5_MORE], d, OOM_P_EMBEDDING);
	if (e[OOM_T5_FLAGS] & OOM_T5_BLOCKS && e[OOM_T5_GLOBAL])
		idle(t, "global_relative_attention_bias", e[OOM_T5_BUCKETS], a->n_heads,
		     OOM_P_EMBEDDING);
	if (!(e[OOM_T5_FLAGS] & OOM_T5_LAYOUT))
		return;
	t->warning = "UDOP's image patches and boxes are counted as weights only: their "
		     "activations are not modelled";
	/* the encoder's patches are shared, the decoder has its own */
	for (int i = 0; i < 2; i++) {
		t->scope = "patch_embed";
		oom_drop(t, oom_param(t, "weight", d * a->channels * e[OOM_T5_PATCH],
				      e[OOM_T5_PATCH], OOM_P_UNUSED));
		oom_drop(t, oom_param(t, "bias", 0, d, OOM_P_UNUSED));
		idle(t, "cell_2d_embedding", e[OOM_T5_COORDS], d, OOM_P_EMBEDDING);
	}
	for (uint64_t i = 0; i < 2 * e[OOM_T5_MORE] && !t->status; i++)
		idle(t, "relative_bias", e[OOM_T5_BUCKETS], a->n_heads, OOM_P_EMBEDDING);
}
