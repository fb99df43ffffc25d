/* MiniMax M3's text model: grouped heads with norms, sigmoid router, clamped gates, and layers
 * whose queries see only the blocks of keys that an indexer picks.
 * Reference: transformers 5.12, models/minimax_m3_vl/modeling_minimax_m3_vl.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

enum { DENSE = 1, SPARSE = 2 };         /* of kind[] */

struct minimax_m3 {
	uint64_t heads, dim, block, kept;       /* of the indexer; kept: blocks of keys for a query */
};
OOM_OWN(minimax_m3, struct minimax_m3);

static const struct oom_key_row minimax_m3_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "dense_intermediate_size"),
	LIKE(n_kv_heads, "num_key_value_heads", 1, n_heads),
	QUOTIENT(head_dim, "head_dim", d_model, n_heads), OOM_USUAL_KEYS,
	REAL(rotary_share, "rope_parameters.partial_rotary_factor", 1),
	MUST(n_experts, "num_local_experts"), MUST(top_k, "num_experts_per_tok"),
	MUST(d_expert, "intermediate_size"),
	LIKE(d_shared, "shared_intermediate_size", 1, d_expert),
	OR_OWN(struct minimax_m3, heads, "index_n_heads", 1),
	LIKE_OWN(struct minimax_m3, dim, "index_head_dim", 1, head_dim),
	OR_OWN(struct minimax_m3, block, "index_block_size", 128),
	OR_OWN(struct minimax_m3, kept, "index_topk_blocks", 16), OOM_KEYS_END};

static void minimax_m3_parse(struct oom_arch *a)
{
	const uint64_t block = minimax_m3_of(a)->block;
	struct oom_reader *r = &a->rd;

	a->qk_norm = true;
	if (!a->n_kv_heads || !a->head_dim || a->top_k > a->n_experts || !block || block > 1 << 20)
		oom_read_fail(r, "num_key_value_heads, head_dim, num_experts_per_tok and "
				 "index_block_size do not describe a model");
	for (uint32_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const bool dense = !oom_read_says(a, "mlp_layer_types", i, "sparse", true),
			   sparse = oom_read_says(a, "layer_types", i, "minimax_m3_sparse", false);

		a->kind[i] = (uint8_t)((dense ? DENSE : 0) | (sparse ? SPARSE : 0));
	}
}

/* A projection of the indexer and its norm. Its results are indices, so that no gradient arrives;
 * under autocast the weight's copy is kept like any other. */
static struct oom_val projected(struct oom_tape *t, const struct oom_decoder_layer *l, const char *name,
				struct oom_val x, uint64_t heads)
{
	const uint64_t d = minimax_m3_of(l->a)->dim;
	const enum oom_dtype dt = oom_linear_dtype(t, x.dt);
	const struct oom_dim width = {heads * d, "index_n_heads * index_head_dim"};
	struct oom_frame f = {.t = t};
	struct oom_val y;

	if (dt != x.dt)
		oom_name(&f, oom_new_like(t, "_to_copy", x, dt));
	oom_name(&f, oom_amp_cast(t, oom_linear_unused(t, name, x.width, width.n, 0)));
	y = oom_leave(&f, oom_new(t, name, x.mono, width, dt));
	t->scope = "indexer";
	oom_param(t, "norm.weight", 0, d, OOM_P_NORM | OOM_P_UNUSED);
	y = oom_name(&f, y);
	y = oom_norm(t, OOM_NORM_RMS_PLAIN, "norm", oom_op_cast(t, y, OOM_F32), d);
	return oom_leave(&f, oom_op_cast(t, oom_op_unary(t, OOM_SCALE, y), dt));
}

/* Every query's score of every key, -inf for later ones, with keys up to a whole block. */
static struct oom_val key_scores(struct oom_frame *f, const struct minimax_m3 *own, struct oom_val q,
				 struct oom_val k)
{
	const struct oom_dim heads = {own->heads, "index_n_heads"},
			     wide = {own->heads * own->dim, "index_n_heads * index_head_dim"};
	struct oom_tape *t = f->t;
	const uint16_t whole = oom_len_round_up(t, t->m_bs, own->block);
	struct oom_val s;

	q = oom_op_cast(t, q, OOM_F32);
	k = oom_op_cast(t, k, OOM_F32);
	if (own->heads > 1)
		k = oom_op_expand_copy(t, k, k.mono, wide);
	s = oom_name(f, oom_op_bmm(t, "index scores", q, k, t->m_bss, heads, own->dim));
	oom_name(f, oom_new(t, "k_positions", t->m_s, D(1), OOM_I64));
	oom_name(f, oom_new(t, "token_future", t->m_bss, D(1), OOM_U8));
	s = oom_rename(f, s, oom_new_like(t, "masked_fill", s, OOM_F32));
	if (oom_cond_more(t, whole, 1, t->m_bs, 1))
		s = oom_rename(f, s, oom_new(t, "pad", whole, heads, OOM_F32));
	return s;
}

/* The blocks a query keeps, min(index_topk_blocks, blocks) of them. */
static struct oom_val kept_blocks(struct oom_tape *t, const struct minimax_m3 *own, const char *name,
				  enum oom_dtype dt)
{
	const uint16_t blocks = oom_len_ceil(t, t->m_bs, own->block);

	if (oom_cond_more(t, blocks, 1, t->m_bs, own->kept))
		return oom_new(t, name, t->m_bs, (struct oom_dim){own->kept, "index_topk_blocks"}, dt);
	return oom_new(t, name, blocks, D(1), dt);
}

/* MiniMaxM3VLIndexer.forward: maxima of the scores by block, and the indices of the best. */
static struct oom_val block_indices(struct oom_tape *t, const struct oom_decoder_layer *l, struct oom_val x)
{
	const struct minimax_m3 *own = minimax_m3_of(l->a);
	const struct oom_dim heads = {own->heads, "index_n_heads"};
	const uint16_t blocks = oom_len_ceil(t, t->m_bs, own->block);
	struct oom_frame f = {.t = t};
	struct oom_val p[2], y;

	p[0] = oom_name(&f, projected(t, l, "q_proj", x, own->heads));
	p[1] = oom_name(&f, projected(t, l, "k_proj", x, 1));
	oom_rope_pair(t, &p[0], &p[1], &l->rope, own->heads, 1, own->dim, own->dim);
	p[0] = oom_name(&f, oom_op_copy(t, "cat", p[0]));
	p[1] = oom_name(&f, oom_op_copy(t, "cat", p[1]));
	key_scores(&f, own, p[0], p[1]);
	y = oom_name(&f, oom_new(t, "amax", blocks, heads, OOM_F32));
	oom_name(&f, oom_new(t, "block_scores", blocks, D(1), OOM_F32));
	oom_forget(&f, y);
	oom_name(&f, oom_new(t, "q_block", t->m_bs, D(1), OOM_I64));
	oom_name(&f, oom_new(t, "local_idx", t->m_bs, D(1), OOM_I64));
	oom_name(&f, kept_blocks(t, own, "topk_scores", OOM_F32));
	oom_name(&f, kept_blocks(t, own, "topk_indices", OOM_I64));
	oom_name(&f, kept_blocks(t, own, "none left", OOM_U8));
	return oom_leave(&f, kept_blocks(t, own, "block_indices", OOM_I64));
}

/* build_block_mask: the blocks spread over their keys, and the attention's own mask among them. */
static struct oom_val block_mask(struct oom_tape *t, const struct oom_decoder_layer *l, enum oom_dtype dt)
{
	const struct minimax_m3 *own = minimax_m3_of(l->a);
	const uint16_t blocks = oom_len_ceil(t, t->m_bs, own->block),
		       whole = oom_len_round_up(t, t->m_bs, own->block);
	struct oom_frame f = {.t = t};
	struct oom_val y;

	oom_name(&f, kept_blocks(t, own, "safe", OOM_I64));
	oom_name(&f, oom_new(t, "bias", oom_len_chunks(t, t->m_bs, own->block, 1), D(1), dt));
	y = oom_name(&f, oom_new(t, "bias == 0", blocks, D(1), OOM_U8));
	oom_name(&f, oom_new(t, "block_keep", whole, D(1), OOM_U8));
	oom_forget(&f, y);
	/* token_future, or padding_mask of an additive mask; a mask of booleans is taken as it is */
	if (oom_is_none(l->mask) || l->mask.dt != OOM_U8)
		oom_name(&f, oom_new(t, "token_future", t->m_bss, D(1), OOM_U8));
	oom_name(&f, oom_new(t, "keep", t->m_bss, D(1), OOM_U8));
	oom_name(&f, oom_new(t, "zeros", t->m_bss, D(1), dt));
	oom_name(&f, oom_new(t, "~keep", t->m_bss, D(1), OOM_U8));
	return oom_leave(&f, oom_new(t, "block mask", t->m_bss, D(1), dt));
}

/* After queries, keys and values; the indices are a local of the attention, as the mask is. */
static struct oom_val chosen_keys(struct oom_frame *f, const void *ctx, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	struct oom_tape *t = f->t;
	const bool grad = t->grad;
	struct oom_val mask;

	t->grad = false;
	oom_name(f, block_indices(t, l, x));
	mask = oom_name(f, block_mask(t, l, oom_linear_dtype(t, x.dt)));
	t->grad = grad;
	return mask;
}

static struct oom_val minimax_m3_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
					   uint8_t kind, struct oom_val x)
{
	struct oom_attn at = oom_layer_attn(layer->t, l, false);

	at.caller = layer;
	at.rot_dim = oom_rot_dim(l->a);
	at.rope_cat = true;
	if (kind & SPARSE) {
		at.chosen_keys = chosen_keys;
		at.chosen_by = l;
	}
	return oom_attention(layer->t, &at, x);
}

static struct oom_val minimax_m3_feed_forward(struct oom_frame *layer,
					      const struct oom_decoder_layer *l, uint8_t kind,
					      struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_moe m = OOM_MOE(a, .d_shared = a->d_shared, .norm_topk = true,
					 .router_fp32 = true, .sigmoid = true, .route_late = true,
					 .shared_first = true, .glu = OOM_GLU_OAI,
					 .scale_output = true);

	return kind & DENSE ? oom_glu_mlp(layer->t, &m, x, D(a->d_ff), true) :
			      oom_moe_mlp(layer->t, &m, x);
}

const struct oom_family oom_family_minimax_m3 = {
	.name = "minimax_m3",
	.summary = "grouped heads with norms, block-sparse layers, sigmoid router, clamped gates",
	.source = "transformers 5.12 models/minimax_m3_vl/modeling_minimax_m3_vl.py",
	.types = OOM_TYPE("minimax_m3_vl_text"),
	.norm = OOM_NORM_RMS_PLUS1,
	.lora_targets = "q_proj+v_proj",
	.keys = minimax_m3_keys,
	.parse = minimax_m3_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .position_ids = true,
			       .kinds = true, .rope_part = true, .mixer = minimax_m3_attention,
			       .feed_forward = minimax_m3_feed_forward),
};
