/* MiniMax M3's text model: grouped heads with norms, sigmoid router, clamped gates, and layers
 * whose queries see only the blocks of keys that an indexer picks.
 * Reference: transformers 5.12, models/minimax_m3_vl/modeling_minimax_m3_vl.py. */
#include <string.h>

#include "blocks/blocks.h"

enum { INDEX_HEADS, INDEX_DIM, INDEX_BLOCK };
enum { DENSE = 1, SPARSE = 2 };         /* of kind[] */

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS_PLUS1;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "dense_intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor", 1);
	a->n_experts = oom_read_count(r, "num_local_experts", 1);
	a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	a->d_expert = oom_read_count(r, "intermediate_size", 1);
	a->d_shared = oom_read_count_or(r, "shared_intermediate_size", a->d_expert);
	a->qk_norm = true;
	a->extra[INDEX_HEADS] = oom_read_count_or(r, "index_n_heads", 1);
	a->extra[INDEX_DIM] = oom_read_count_or(r, "index_head_dim", a->head_dim);
	a->extra[INDEX_BLOCK] = oom_read_count_or(r, "index_block_size", 128);
	if (!a->n_kv_heads || !a->head_dim || a->top_k > a->n_experts || !a->extra[INDEX_BLOCK] ||
	    a->extra[INDEX_BLOCK] > 1 << 20)
		oom_read_fail(r, "num_key_value_heads, head_dim, num_experts_per_tok and "
				 "index_block_size do not describe a model");
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *mlp = oom_read_item(r, "mlp_layer_types", (uint32_t)i),
			   *type = oom_read_item(r, "layer_types", (uint32_t)i);

		a->kind[i] = (uint8_t)((mlp && strcmp(mlp, "sparse") ? DENSE : 0) |
				       (type && !strcmp(type, "minimax_m3_sparse") ? SPARSE : 0));
	}
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
};

/* What the indexer alone uses: its results are indices, so that no gradient arrives. */
static struct oom_val chosen_by(struct oom_tape *t, const struct layer *l, const char *name,
				struct oom_val x, uint64_t heads)
{
	const uint64_t d = l->a->extra[INDEX_DIM];
	struct oom_val y = oom_new(t, name, x.mono,
				   (struct oom_dim){heads * d, "index_n_heads * index_head_dim"},
				   (enum oom_dtype)x.dt),
		       n;

	oom_linear_unused(t, name, x.width, heads * d, 0);
	t->scope = "indexer";
	oom_param(t, "norm.weight", 0, d, OOM_P_NORM | OOM_P_UNUSED);
	n = oom_new_like(t, "index norm", y, (enum oom_dtype)y.dt);
	oom_drop(t, y);
	return oom_op_cast(t, oom_rope_apply(t, n, &l->rope, heads, d, d), OOM_F32);
}

/* MiniMaxM3VLIndexer.forward and build_block_mask: scores by key, their maxima by block, the
 * kept ones as a mask. */
static struct oom_val block_mask(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint16_t bss = oom_mono_mul(t, t->m_b, oom_mono_mul(t, t->m_s, t->m_s));
	const struct oom_dim H = {a->extra[INDEX_HEADS], "index_n_heads"};
	const bool grad = t->grad;
	struct oom_val q, k, s, m, keep, zero;

	t->grad = false;
	q = chosen_by(t, l, "q_proj", x, H.n);
	k = chosen_by(t, l, "k_proj", x, 1);
	s = oom_op_bmm(t, "index scores", q, k, bss, H, a->extra[INDEX_DIM]);
	m = oom_new_like(t, "causal scores", s, OOM_F32);
	oom_drop(t, s);
	oom_drop(t, m);
	keep = oom_new(t, "kept blocks", bss, D(1), OOM_U8);
	m = oom_new(t, "kept keys", bss, D(1), OOM_U8);
	oom_drop(t, keep);
	zero = oom_new(t, "zeros", bss, D(1), (enum oom_dtype)x.dt);
	keep = oom_new(t, "not kept", bss, D(1), OOM_U8);
	s = oom_new(t, "block mask", bss, D(1), (enum oom_dtype)x.dt);
	oom_drop(t, m);
	oom_drop(t, zero);
	oom_drop(t, keep);
	t->grad = grad;
	return s;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .d_shared = a->d_shared,
				  .norm_topk = true,
				  .router_fp32 = true,
				  .sigmoid = true,
				  .route_late = true,
				  .shared_first = true,
				  .glu = OOM_GLU_OAI,
				  .scale_output = true};
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_rope rope = l->rope;
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);

	at.layer_names_weights = true;
	at.rope = &rope;
	at.rot_dim = oom_rot_dim(a);
	at.rope_cat = true;
	at.mask = kind & SPARSE ? block_mask(t, l, oom_keep(h)) : l->mask;
	h = oom_attention(t, &at, h);
	if (kind & SPARSE)
		oom_drop(t, at.mask);
	x = oom_op_add(t, x, h);
	h = oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	h = kind & DENSE ? oom_glu_mlp(t, &m, h, D(a->d_ff), true) : oom_moe_mlp(t, &m, h);
	return oom_op_add(t, x, h);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model)));
	first = oom_share(t, x);
	l.mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.rope = oom_rope_tables(t, oom_rot_dim(a),
				 (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_minimax_m3 = {
	.name = "minimax_m3",
	.summary = "grouped heads with norms, block-sparse layers, sigmoid router, clamped gates",
	.source = "transformers 5.12 models/minimax_m3_vl/modeling_minimax_m3_vl.py",
	.types = OOM_TYPE("minimax_m3_vl_text"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
