/* What a model makes of its inputs before the first layer: masks, ids, the gradients of
 * embeddings that PEFT asks for.  Reference: transformers 5.12, masking_utils.py. */
#include "blocks.h"

/* Traced, a mask that hides nothing is made as well: a column of true, spread over the keys (masking_utils.py
 * _ignore_bidirectional_mask_sdpa, sdpa_mask).  Fused kernels refuse a mask whose last dimension has no stride
 * (sdp_utils_cpp.h check_last_dim_stride_equals_1_dense), and attention is written out in the graph. */
void oom_mask_nothing(struct oom_tape *t, bool nothing)
{
	t->spread_mask = nothing && t->plan->attn == OOM_ATTN_SDPA && t->plan->compile && !t->plan->compile_layers;
}

/* transformers.masking_utils: sdpa skips the mask when the kernel's own causality (or nothing) says
 * the same; eager always has a float one for causal models; flash passes the 2D mask on. */
struct oom_val oom_make_mask(struct oom_tape *t, bool causal, uint64_t window, enum oom_dtype dt,
			     uint16_t mb, uint16_t mq, uint16_t mk)
{
	/* samples that share a sequence are kept apart by a mask, or by flash's own lengths, of models that look where
	 * they begin (masking_utils.py, find_packed_sequence_indices) */
	const bool packed = t->plan->packing && t->plan->attn != OOM_ATTN_FLASH && causal &&
			    !(t->arch && t->arch->family && t->arch->family->one_sample),
		   padded = t->plan->padding_mask || t->typed_mask || packed,
		   grad = t->grad;
	/* a cache's keys stand before the batch's own: the kernels' causality does not say which */
	const bool cached = causal && mq == t->m_s && mk == t->m_s && oom_prefix_tokens(t);
	const bool local = window && oom_cond_above(t, mk, window - 1);
	const uint16_t keys = cached ? oom_len_plus(t, OOM_MONO_ONE, oom_prefix_tokens(t)) : mk;
	const uint16_t plane = oom_mono_mul(t, mq, keys);
	const uint16_t full = oom_mono_mul(t, mb, plane);
	struct oom_val b, m;

	if (!causal)
		oom_mask_nothing(t, !padded && !local);
	if (t->plan->attn == OOM_ATTN_FLASH || (!causal && t->spread_mask))
		return oom_none();
	/* while a model is traced, a mask is made even where the kernel's causality would do
	 * (masking_utils.py _ignore_causal_mask_sdpa); not by those of torchtune and torchtitan */
	if (t->plan->attn == OOM_ATTN_SDPA && !padded && !local && !cached && (!t->plan->compile || t->plan->compile_layers))
		return oom_none();
	if (t->plan->attn == OOM_ATTN_EAGER && !causal && !padded && !local)
		return oom_none();
	t->grad = false;
	/* kv <= q [and window] [and padding], as broadcast boolean operations */
	b = oom_new(t, "mask", plane, D(1), OOM_U8);
	if (window && causal) {
		struct oom_val w = oom_new(t, "mask", plane, D(1), OOM_U8);
		struct oom_val both = oom_new(t, "mask", plane, D(1), OOM_U8);

		oom_drop(t, w);
		oom_drop(t, b);
		b = both;
	}
	if (padded) {
		struct oom_val both = oom_new(t, "mask", full, D(1), OOM_U8);

		oom_drop(t, b);
		b = both;
	}
	if (t->plan->attn == OOM_ATTN_SDPA && !t->plan->compile) {
		t->grad = grad;
		b.mono = full;                  /* expanded over the batch: a view */
		return b;
	}
	/* eager; compiled: one additive mask of the queries' type serves all layers */
	if (t->plan->compile && t->amp)
		dt = (enum oom_dtype)t->amp_dt;
	m = oom_new(t, "attention mask", full, D(1), dt);       /* torch.where(mask, 0, min) */
	oom_drop(t, b);
	t->grad = grad;
	return m;
}

struct oom_val oom_make_written_mask(struct oom_tape *t, bool causal, enum oom_dtype dt,
				     uint16_t mb, uint16_t mq, uint16_t mk)
{
	const struct oom_plan *real = t->plan;
	struct oom_plan eager = *real;
	struct oom_val m;

	eager.attn = OOM_ATTN_EAGER;
	t->plan = &eager;
	m = oom_make_mask(t, causal, 0, dt, mb, mq, mk);
	t->plan = real;
	return m;
}

struct oom_val oom_causal_mask(struct oom_tape *t, uint64_t window, enum oom_dtype dt)
{
	return oom_make_mask(t, true, window, dt, t->m_b, t->m_s, t->m_s);
}

struct oom_val oom_make_eager_mask(struct oom_tape *t, enum oom_dtype dt)
{
	return oom_make_written_mask(t, true, dt, t->m_b, t->m_s, t->m_s);
}

struct oom_val oom_input(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width,
			 enum oom_dtype dt)
{
	(void)name;
	(void)t;
	return (struct oom_val){
		.sto = -1, .node = -1, .mono = mono, .width = width, .dt = (uint8_t)dt};
}

/* position_ids: arange(s), one row for all sequences, unless the batch has its own. */
struct oom_val oom_position_ids(struct oom_tape *t)
{
	return t->plan->packing ? oom_input(t, "position ids", t->m_bs, 1, OOM_I64) :
				  oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
}

/* shift_tokens_right(labels), or what DataCollatorForSeq2Seq adds (data/data_collator.py, decoder_input_ids). */
struct oom_val oom_decoder_ids(struct oom_tape *t, uint16_t tokens)
{
	return t->no_labels ? oom_input(t, "decoder input ids", tokens, 1, OOM_I64) :
			      oom_new(t, "decoder input ids", tokens, D(1), OOM_I64);
}

/* transformers integrations/neftune.py neftune_post_forward_hook: output + torch.zeros_like(output).uniform_(), of the
 * module that get_input_embeddings() names. */
static struct oom_val with_noise(struct oom_tape *t, struct oom_val x)
{
	if (!(t->plan->neftune > 0) || !t->train || t->beside.running)
		return x;
	return oom_op_add(t, x, oom_new_like(t, "noise", x, (enum oom_dtype)x.dt));
}

/* Checkpointing calls enable_input_require_grads: the output of a frozen embedding, or of any where
 * no graph is made, becomes a leaf that needs a gradient (transformers/modeling_utils.py). */
struct oom_val oom_scaled_embedding(struct oom_tape *t, struct oom_val x)
{
	oom_buffer(t, 1, x.dt == OOM_F32 && !oom_plan_four_bit(t->plan) ? OOM_F32 : OOM_DT_BF16);
	return oom_op_unary(t, OOM_SCALE, x);
}

struct oom_val oom_hooked(struct oom_tape *t, struct oom_val x)
{
	int32_t n;

	if (!t->grad || x.rg || t->plan->grad_ckpt == OOM_CKPT_NONE || !oom_plan_adapted(t->plan))
		return x;
	n = oom_node(t, OOM_NODE_LEAF, "embedding output");
	x = oom_node_out(t, n, 0, x);
	oom_node_save(t, n, x);                 /* AccumulateGrad holds its leaf */
	return x;
}

struct oom_val oom_input_grads(struct oom_tape *t, struct oom_val x)
{
	const bool ckpt = t->plan->grad_ckpt != OOM_CKPT_NONE,
		   leaf = ckpt && (!t->grad || !x.rg ||
				   (oom_plan_adapted(t->plan) && !*t->plan->modules_to_save &&
				    !t->plan->trainable_tokens));

	if (t->grad && leaf) {
		const int32_t n = oom_node(t, OOM_NODE_LEAF, "embedding output");

		x = oom_node_out(t, n, 0, x);
		oom_node_save(t, n, x);         /* AccumulateGrad holds its leaf */
	}
	if (leaf)
		t->leaf = (struct oom_leaf){.x = x, .copy = oom_none()};
	x = oom_lora_embedded(t, x);
	x = with_noise(t, x);
	/* PEFT hooks what it wrapped once more, unless the model is quantised; with a graph the sum
	 * is no leaf (peft_model.py, _prepare_model_for_gradient_checkpointing) */
	if (ckpt && !t->grad && !oom_plan_quantised(t->plan))
		t->leaf.x = x;
	x = oom_prompted(t, x);
	oom_prefix_made(t, (enum oom_dtype)x.dt);
	oom_bank_made(t);
	if (t->merge) {                         /* once: the first embeddings are the prompt's */
		struct oom_val (*merge)(struct oom_tape *, void *, struct oom_val) = t->merge;

		t->merge = NULL;
		x = merge(t, t->merge_ctx, x);
	}
	return x;
}

bool oom_any_layer(struct oom_tape *t, const struct oom_arch *a, uint8_t bits, uint8_t value)
{
	const uint64_t n = oom_depth(t, a->n_layers);

	for (uint64_t i = 0; i < n && i < OOM_MAX_LAYERS; i++)
		if ((a->kind[i] & bits) == value)
			return true;
	return false;
}
