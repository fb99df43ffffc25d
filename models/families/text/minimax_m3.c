/* MiniMax M3's text model: grouped heads with norms, sigmoid router, clamped gates, and layers
 * whose queries see only the blocks of keys that an indexer picks.
 * Reference: transformers 5.12, models/minimax_m3_vl/modeling_minimax_m3_vl.py. */
#include <string.h>

#include "blocks/decoder.h"
#include "config/keys.h"

enum { DENSE = 1, SPARSE = 2 };         /* of kind[] */

struct minimax_m3 {
	uint64_t heads, dim, block;     /* of the indexer */
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
	OR_OWN(struct minimax_m3, block, "index_block_size", 128), OOM_KEYS_END};

static void minimax_m3_parse(struct oom_arch *a)
{
	const uint64_t block = minimax_m3_of(a)->block;
	struct oom_reader *r = &a->rd;

	a->qk_norm = true;
	if (!a->n_kv_heads || !a->head_dim || a->top_k > a->n_experts || !block || block > 1 << 20)
		oom_read_fail(r, "num_key_value_heads, head_dim, num_experts_per_tok and "
				 "index_block_size do not describe a model");
	for (uint32_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *mlp = oom_read_item(r, "mlp_layer_types", i),
			   *type = oom_read_item(r, "layer_types", i);

		a->kind[i] = (uint8_t)((mlp && strcmp(mlp, "sparse") ? DENSE : 0) |
				       (type && !strcmp(type, "minimax_m3_sparse") ? SPARSE : 0));
	}
}

/* What the indexer alone uses: its results are indices, so that no gradient arrives. */
static struct oom_val chosen_by(struct oom_tape *t, const struct oom_decoder_layer *l,
				const char *name, struct oom_val x, uint64_t heads)
{
	const uint64_t d = minimax_m3_of(l->a)->dim;
	const struct oom_dim width = {heads * d, "index_n_heads * index_head_dim"};
	struct oom_frame f = {.t = t};
	struct oom_val y = oom_name(&f, oom_new(t, name, x.mono, width, (enum oom_dtype)x.dt));

	oom_linear_unused(t, name, x.width, width.n, 0);
	t->scope = "indexer";
	oom_param(t, "norm.weight", 0, d, OOM_P_NORM | OOM_P_UNUSED);
	y = oom_leave(&f, oom_new_like(t, "index norm", y, (enum oom_dtype)y.dt));
	return oom_op_cast(t, oom_rope_apply(t, y, &l->rope, heads, d, d), OOM_F32);
}

/* MiniMaxM3VLIndexer.forward and build_block_mask: scores by key, their maxima by block, the
 * kept ones as a mask. */
static struct oom_val block_mask(struct oom_tape *t, const struct oom_decoder_layer *l,
				 struct oom_val x)
{
	const struct minimax_m3 *own = minimax_m3_of(l->a);
	const struct oom_dim H = {own->heads, "index_n_heads"};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_frame f = {.t = t};
	const bool grad = t->grad;
	struct oom_val q, k, s, m, keep;

	t->grad = false;
	q = chosen_by(t, l, "q_proj", x, H.n);
	k = chosen_by(t, l, "k_proj", x, 1);
	s = oom_name(&f, oom_op_bmm(t, "index scores", q, k, t->m_bss, H, own->dim));
	m = oom_name(&f, oom_new_like(t, "causal scores", s, OOM_F32));
	oom_forget(&f, s);
	oom_forget(&f, m);
	keep = oom_name(&f, oom_new(t, "kept blocks", t->m_bss, D(1), OOM_U8));
	oom_name(&f, oom_new(t, "kept keys", t->m_bss, D(1), OOM_U8));
	oom_forget(&f, keep);
	oom_name(&f, oom_new(t, "zeros", t->m_bss, D(1), dt));
	oom_name(&f, oom_new(t, "not kept", t->m_bss, D(1), OOM_U8));
	s = oom_leave(&f, oom_new(t, "block mask", t->m_bss, D(1), dt));
	t->grad = grad;
	return s;
}

/* The attention's frame is the mask's: it is made within. */
static struct oom_val sparse_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				       struct oom_attn *at, struct oom_val x)
{
	struct oom_frame f = {.t = t};

	x = oom_name(&f, x);
	at->mask = oom_name(&f, block_mask(t, l, x));
	return oom_leave(&f, oom_attention(t, at, oom_take(&f, x)));
}

static struct oom_val minimax_m3_block(struct oom_tape *t, const void *ctx, uint32_t i,
				       struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	const struct oom_moe m = {.experts = a->n_experts, .top_k = a->top_k,
				  .d_expert = a->d_expert, .d_shared = a->d_shared,
				  .norm_topk = true, .router_fp32 = true, .sigmoid = true,
				  .route_late = true, .shared_first = true, .glu = OOM_GLU_OAI,
				  .scale_output = true};
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_rope rope = l->rope;
	struct oom_frame f = {.t = t};
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", x, 0);

	at.caller = &f;
	at.rope = &rope;
	at.rot_dim = oom_rot_dim(a);
	at.rope_cat = true;
	at.mask = l->mask;
	h = kind & SPARSE ? sparse_attention(t, l, &at, h) : oom_attention(t, &at, h);
	x = oom_name(&f, oom_op_add(t, x, h));
	h = oom_norm(t, a->norm, "post_attention_layernorm", x, 0);
	h = kind & DENSE ? oom_glu_mlp(t, &m, h, D(a->d_ff), true) : oom_moe_mlp(t, &m, h);
	return oom_leave(&f, oom_op_add(t, x, h));
}

static const struct oom_decoder minimax_m3_decoder = {
	.embed = "embed_tokens",
	.norm = "norm",
	.position_ids = true,
	.kinds = true,
	.rope_part = true,
	.block = minimax_m3_block,
};

const struct oom_family oom_family_minimax_m3 = {
	.name = "minimax_m3",
	.summary = "grouped heads with norms, block-sparse layers, sigmoid router, clamped gates",
	.source = "transformers 5.12 models/minimax_m3_vl/modeling_minimax_m3_vl.py",
	.types = OOM_TYPE("minimax_m3_vl_text"),
	.norm = OOM_NORM_RMS_PLUS1,
	.lora_targets = "q_proj+v_proj",
	.keys = minimax_m3_keys,
	.parse = minimax_m3_parse,
	.decoder = &minimax_m3_decoder,
};
