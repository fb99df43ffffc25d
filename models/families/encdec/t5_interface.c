/* T5's attention through transformers' attention interface (huggingface/transformers#47014, merged on 2026-07-30; read in
 * 5.17, which 5.12 is before): eager_attention_forward in modeling_t5.py, and integrations/sdpa_attention.py
 * create_position_bias_mask.
 *
 * Before, scores had an fp32 copy for the softmax, and the mask was added to the bias once for all layers.  Now the softmax
 * computes in the scores' type (2 bytes a score less in pure 16 bit), and bias and mask are added one after the other in
 * every layer.  SDPA takes bias and mask as one: looked up by position and permuted, its rows do not lie together, which no
 * fused kernel takes (sdp_utils_cpp.h check_last_dim_stride_equals_1_dense), so that the scores of self-attention exist in
 * fp32; the zeros of cross-attention do lie so. */
#include "t5.h"

/* Statements of one name, attn_weights. */
static struct oom_val written_out(struct oom_tape *t, const struct t5_stack *s, const struct t5_heads *h)
{
	const struct oom_dim heads = {s->a->n_heads, "num_heads"}, inner = {s->a->n_heads * s->a->head_dim, "num_heads * d_kv"};
	struct oom_frame f = {.t = t};
	struct oom_val w, y;

	w = oom_op_bmm(t, "scores", h->q, h->k, oom_mono_mul(t, s->m_tokens, h->len), heads, s->a->head_dim);
	w = oom_name(&f, oom_op_unary(t, OOM_SCALE, w));
	w = oom_rename(&f, w, oom_op_add(t, w, h->bias));
	if (!oom_is_none(h->mask))
		w = oom_rename(&f, w, oom_op_add(t, w, h->mask));
	w = oom_rename(&f, w, oom_op_softmax(t, w, false));
	w = oom_rename(&f, w, oom_op_dropout(t, w, s->a->dropout));
	y = oom_op_bmm(t, "attention", w, h->v, s->m_tokens, inner, oom_mono_now(t, h->len));
	return oom_leave(&f, oom_op_merge_heads(t, y));
}

/* torch.where(mask, position_bias, min), the causal mask made on the spot where there is no other. */
static struct oom_val bias_and_mask(struct oom_frame *f, const struct t5_stack *s, const struct t5_heads *h)
{
	struct oom_tape *t = f->t;
	struct oom_val mask = h->mask, bias = h->bias;

	if (oom_is_none(mask) && (h->cross || !s->decoder))
		return bias;
	if (oom_is_none(mask))
		mask = oom_name(f, oom_new(t, "causal mask", oom_mono_mul(t, s->m_len, h->len), (struct oom_dim){1, NULL}, OOM_U8));
	/* of the whole batch where the mask is */
	if (mask.mono != bias.mono)
		bias = oom_op_expand(t, bias, oom_mono_mul(t, t->m_b, bias.mono), (struct oom_dim){s->a->n_heads, "num_heads"});
	return oom_name(f, oom_op_masked(t, "position bias and mask", bias, mask));
}

static struct oom_val fused(struct oom_tape *t, const struct t5_stack *s, const struct t5_heads *h)
{
	const struct oom_sdpa a = {.heads = s->a->n_heads, .kv_heads = s->a->n_heads, .d = s->a->head_dim, .dv = s->a->head_dim,
				   .mq = s->m_tokens, .mk = oom_mono_mul(t, t->m_b, h->len), .sk = h->len, .sq = s->m_len,
				   .rows_apart = !h->cross, .dropout = t->train ? s->a->dropout : 0};
	struct oom_frame f = {.t = t};
	const struct oom_val bias = bias_and_mask(&f, s, h);

	return oom_leave(&f, oom_op_merge_heads(t, oom_op_sdpa(t, h->q, h->k, h->v, bias, &a)));
}

bool t5_fuses(const struct oom_tape *t, const struct oom_arch *a)
{
	return t5_by_name(t) && t->plan->attn == OOM_ATTN_SDPA && t5_kind_of(a)->fuses;
}

struct oom_val t5_by_interface(struct oom_tape *t, const struct t5_stack *s, const struct t5_heads *h)
{
	return t5_fuses(t, s->a) ? fused(t, s, h) : written_out(t, s, h);
}
