/* DeepSeek and its kin: multi-head latent attention or grouped heads, dense layers first, then
 * experts behind a sigmoid router with shared experts.
 * Reference: transformers 5.12, models/{deepseek_v3,deepseek_v2,glm4_moe,glm4_moe_lite,dots1,youtu,
 * solar_open,exaone_moe,hy_v3,minimax_m2}/modeling_*.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/blocks.h"
#include "config/keys.h"

enum {
	MLA = 1, SIGMOID = 2, SHARED = 4, INTERLEAVE = 8, COMPLEX_ROPE = 16, QK_NORM = 32,
	TIED = 64,
	ALL_SPARSE = 128,       /* no dense layers (Solar Open, MiniMax M2) */
	QK_NORM_FULL = 256,     /* one norm over all heads (MiniMax M2) */
	LOCAL_ROPE = 512,       /* sliding layers, and full ones without positions (EXAONE MoE) */
	/* router product in the model's type, scores in fp32 (MiniMax M2) */
	ROUTE_LATE = 1024,
	PLAIN_SOFTMAX = 4096,   /* router and scores in the model's type (Mistral 4) */
	SCALED_QUERY = 8192,    /* queries times a factor of their position (Mistral 4) */
	/* norms after attention and feed-forward too, gated attention (AFMoE) */
	SANDWICH = 16384,
	CAT_ROPE = 2048,        /* rotated and passed parts are joined even when all is rotated */
	/* an indexer chooses the keys of every query: a mask of its own in every layer (DSA) */
	SPARSE = 1 << 15,
	/* two attentions and dense feed-forwards a layer, the experts beside them (LongCat) */
	DOUBLE = 1 << 16,
};
static const struct {
	const char *type;
	unsigned flags;
	double rotary;
} kinds[] = {
	{"deepseek_v3", MLA | SIGMOID | SHARED | INTERLEAVE, 1}, {"deepseek_v2", MLA | SHARED | COMPLEX_ROPE, 1},
	{"glm4_moe_lite", MLA | SIGMOID | SHARED | INTERLEAVE, 1}, {"youtu", MLA | INTERLEAVE | TIED, 1},
	{"glm4_moe", SIGMOID | SHARED | CAT_ROPE, 0.5}, {"dots1", SIGMOID | SHARED | QK_NORM, 1},
	{"solar_open", SIGMOID | SHARED | ALL_SPARSE, 1}, {"exaone_moe", SIGMOID | SHARED | QK_NORM | LOCAL_ROPE, 1},
	{"afmoe", SIGMOID | SHARED | QK_NORM | LOCAL_ROPE | ROUTE_LATE | SANDWICH, 1},
	{"mistral4", MLA | SHARED | INTERLEAVE | PLAIN_SOFTMAX | SCALED_QUERY, 1},
	{"deepseek_v32", MLA | SIGMOID | SHARED | INTERLEAVE | SPARSE, 1},
	{"glm_moe_dsa", MLA | SIGMOID | SHARED | INTERLEAVE | SPARSE, 1},
	{"longcat_flash", MLA | SHARED | INTERLEAVE | DOUBLE, 1},
	{"hy_v3", SIGMOID | SHARED | QK_NORM, 1},
	{"minimax_m2", SIGMOID | SHARED | ALL_SPARSE | QK_NORM | QK_NORM_FULL | ROUTE_LATE | CAT_ROPE, 1},
};
enum {
	FLAGS,
	Q_RANK,
	KV_RANK,
	NOPE,
	ROT,
	INDEX_HEADS,
	INDEX_DIM,
	INDEX_TOPK,
	ZERO_EXPERTS,
	N_EXTRA
};

static void parse_mla(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[Q_RANK] = oom_read_count_or(r, "q_lora_rank", 0);
	a->extra[KV_RANK] = oom_read_count(r, "kv_lora_rank", 1);
	a->extra[NOPE] = oom_read_count(r, "qk_nope_head_dim", 1);
	a->extra[ROT] = oom_read_count(r, "qk_rope_head_dim", 1);
	a->v_head_dim = oom_read_count(r, "v_head_dim", 1);
	a->head_dim = a->extra[NOPE] + a->extra[ROT];
	a->n_kv_heads = a->n_heads;
	if (!oom_read_bool(r, "rope_interleave", true))
		a->extra[FLAGS] &= ~(uint64_t)INTERLEAVE;
	if (a->extra[FLAGS] & SPARSE) {
		a->extra[INDEX_HEADS] = oom_read_count(r, "index_n_heads", 1);
		a->extra[INDEX_DIM] = oom_read_count(r, "index_head_dim", 1);
		a->extra[INDEX_TOPK] = oom_read_count(r, "index_topk", 1);
		if (!a->extra[Q_RANK] || a->extra[INDEX_DIM] < a->extra[ROT])
			oom_read_fail(r,
				      "%s needs q_lora_rank, and index_head_dim of at least "
				      "qk_rope_head_dim",
				      a->model_type);
	}
}

static void parse_experts(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const bool all = a->extra[FLAGS] & ALL_SPARSE;
	const uint64_t usual = a->extra[FLAGS] & PLAIN_SOFTMAX ? 0 : 1;
	const uint64_t dense = all ? 0 :
				     oom_read_count_or(r, "first_k_dense_replace",
						       oom_read_count_or(r, "num_dense_layers",
									 usual));

	if (!(a->extra[FLAGS] & SHARED))
		return;
	a->n_experts = oom_read_count_or(r, "num_local_experts",
					 oom_read_count_or(r, "num_experts", 0));
	if (!a->n_experts)
		a->n_experts = oom_read_count(r, "n_routed_experts", 1);
	a->top_k = oom_read_count_or(r,
				     a->extra[FLAGS] & DOUBLE ? "moe_topk" : "num_experts_per_tok",
				     1);
	a->d_expert = oom_read_count_or(r,
					a->extra[FLAGS] & DOUBLE ? "expert_ffn_hidden_size" :
								   "moe_intermediate_size",
					a->d_ff);
	a->extra[ZERO_EXPERTS] = a->extra[FLAGS] & DOUBLE ?
					 oom_read_count_or(r, "zero_expert_num", 0) :
					 0;
	a->d_shared = a->d_expert *
		      oom_read_count_or(r, "n_shared_experts",
					oom_read_count_or(r, "num_shared_experts", 0));
	oom_check_experts(a);
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "mlp_layer_types", (uint32_t)i);

		a->kind[i] = type ? !strcmp(type, "dense") :
				    i < dense && !(a->extra[FLAGS] & DOUBLE);
		if ((type = oom_read_item(r, "indexer_types", (uint32_t)i)) &&
		    !strcmp(type, "shared"))
			a->kind[i] |= 4;        /* the previous layer's choice of keys (GLM) */
	}
}

/* Layers that slide: the config's list, else all but every fourth (EXAONE MoE). */
static void parse_windows(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t set = oom_read_count_or(r, "sliding_window_pattern",
					       oom_read_count_or(r, "global_attn_every_n_layers",
								 4)),
		       pattern = set ? set : 4;

	a->window = a->extra[FLAGS] & LOCAL_ROPE ? oom_read_count_or(r, "sliding_window", 0) : 0;
	for (uint64_t i = 0; a->window && i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i);

		if (type ? !strcmp(type, "sliding_attention") : (i + 1) % pattern != 0)
			a->kind[i] |= 2;
	}
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS;
	a->rotary_share = 1;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		if (!strcmp(kinds[k].type, a->model_type)) {
			a->extra[FLAGS] = kinds[k].flags;
			a->rotary_share = kinds[k].rotary;
		}
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = a->extra[FLAGS] & DOUBLE     ? oom_read_count(r, "ffn_hidden_size", 1) :
		  a->extra[FLAGS] & ALL_SPARSE ? oom_read_count_or(r, "intermediate_size", 1) :
						 oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r,
				     a->extra[FLAGS] & DOUBLE ? "num_layers" : "num_hidden_layers",
				     1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->gated = true;
	a->tie = oom_read_bool(r, "tie_word_embeddings", (a->extra[FLAGS] & TIED) != 0);
	a->qkv_bias = oom_read_bool(r, "attention_bias", false);
	a->o_bias = a->qkv_bias && strcmp(a->model_type, "glm4_moe") &&
		    strcmp(a->model_type, "solar_open");
	a->mlp_bias = oom_read_bool(r, "mlp_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->qk_norm = a->extra[FLAGS] & QK_NORM || oom_read_bool(r, "use_qk_norm", false);
	if (!(a->extra[FLAGS] & MLA))
		a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
						oom_read_real(r, "partial_rotary_factor",
							      a->rotary_share));
	if (a->extra[FLAGS] & MLA)
		parse_mla(a);
	if (a->extra[FLAGS] & SANDWICH)
		a->norm = OOM_NORM_RMS_FP32;
	parse_experts(a);
	parse_windows(a);
	if (a->extra[FLAGS] & DOUBLE) {
		a->approximate = true;
		snprintf(a->warning, sizeof(a->warning),
			 "%s: the loop over experts is approximated by one product of all of them.",
			 a->model_type);
	}
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask[2]; /* full, sliding */
};

/* Pairs (x0, x1) rotated on strided slices: [x1 cos - x2 sin, x2 cos + x1 sin] joined. */
static struct oom_val rotate_pairs(struct oom_tape *t, struct oom_val x, const struct oom_rope *r)
{
	const struct oom_dim half[2] = {{x.width / 2, NULL}, {x.width / 2, NULL}},
			     whole = {x.width, x.text};
	struct oom_val p[2], c, s;

	struct oom_rope h = *r;

	h.cos.width /= 2;
	h.sin.width /= 2;
	oom_op_split(t, x, 2, half, p);
	c = oom_op_mul(t, oom_keep(p[0]), oom_keep(h.cos));
	c = oom_op_add(t, c, oom_op_mul(t, oom_keep(p[1]), oom_keep(h.sin)));
	s = oom_op_mul(t, p[1], oom_keep(h.cos));
	s = oom_op_add(t, s, oom_op_mul(t, p[0], oom_keep(h.sin)));
	return oom_op_cat(t, c, s, whole);
}

/* view_as_complex(x.float()) * frequencies, back in x's type (DeepSeek-V2). */
static struct oom_val rotate_complex(struct oom_tape *t, struct oom_val x, const struct oom_rope *r)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val y = oom_op_cast(t, x, OOM_F32);

	/* .float() is x itself; reshape of the transposed view copies */
	if (x.dt == OOM_F32)
		y = oom_op_copy(t, "reshape", y);
	y = oom_op_mul(t, y, oom_keep(r->cos));
	return oom_op_cast(t, y, dt);
}

static struct oom_val rotate(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			     const struct oom_rope *r, uint64_t heads)
{
	const uint64_t flags = a->extra[FLAGS];

	if (flags & COMPLEX_ROPE)
		return rotate_complex(t, x, r);
	if (flags & INTERLEAVE)
		return rotate_pairs(t, x, r);
	return oom_rope_apply(t, x, r, heads, a->extra[ROT], a->extra[ROT]);
}

static struct oom_val index_rotated(struct oom_tape *t, const struct layer *l, struct oom_val x,
				    uint64_t heads)
{
	const uint64_t d = l->a->extra[INDEX_DIM];

	/* .float(), and what autocast makes of it for the product */
	return oom_amp_cast(t,
			    oom_op_cast(t,
					oom_rope_apply(t, x, &l->rope, heads, d, l->a->extra[ROT]),
					OOM_F32));
}

/* The lightning indexer: scores of every query against every key, the largest kept, as an additive
 * mask; under no_grad, so that its weights never get a gradient (DeepSeek-V3.2 DeepseekV32Indexer.forward and the lines of the attention that use it). */
static struct oom_val sparse_mask(struct oom_tape *t, const struct layer *l, struct oom_val x,
				  struct oom_val q, bool shared)
{
	const struct oom_arch *a = l->a;
	const uint64_t H = a->extra[INDEX_HEADS], d = a->extra[INDEX_DIM];
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const bool grad = t->grad;
	const uint16_t bss = oom_mono_mul(t, t->m_b, oom_mono_mul(t, t->m_s, t->m_s));
	struct oom_val k, s, w, chosen, m;

	t->grad = false;
	if (!shared) {
		q = oom_op_linear(t, "wq_b", oom_keep(q), (struct oom_dim){H * d, NULL}, 0);
		k = oom_op_linear(t, "wk", oom_keep(x), (struct oom_dim){d, NULL}, 0);
		oom_drop(t, oom_param(t, "k_norm.weight", 0, d, OOM_P_NORM | OOM_P_UNUSED));
		oom_drop(t, oom_param(t, "k_norm.bias", 0, d, OOM_P_NORM | OOM_P_UNUSED));
		w = oom_new_like(t, "native_layer_norm", k,
				 t->amp ? OOM_F32 : (enum oom_dtype)k.dt);
		oom_drop(t, k);
		q = index_rotated(t, l, q, H);
		k = index_rotated(t, l, w, 1);
		/* broadcast over the queries: matmul copies it */
		if (oom_cond_above(t, t->m_b, 1))
			k = oom_op_expand_copy(t, k, bss, (struct oom_dim){d, "index_head_dim"});
		s = oom_op_bmm(t, "index scores", q, k, bss, (struct oom_dim){H, "index_n_heads"},
			       d);
		s = oom_op_unary(t, OOM_RELU, oom_op_unary(t, OOM_SCALE, s));
		/* _keep_in_fp32_modules: not quantised either */
		w = oom_op_linear(t, "weights_proj", oom_keep(x), (struct oom_dim){H, NULL},
				  OOM_NO_QUANT);
		w = oom_op_unary(t, OOM_SCALE, oom_op_cast(t, w, OOM_F32));
		s = oom_op_bmm(t, "weighted scores", w, s, bss, D(1), H);
		w = oom_new_like(t, "causal scores", s, OOM_F32);
		oom_drop(t, s);
		m = oom_cond_above(t, t->m_s, a->extra[INDEX_TOPK]) ?
			    oom_new(t, "topk", oom_mono_mul(t, t->m_b, t->m_s),
				    (struct oom_dim){a->extra[INDEX_TOPK], "index_topk"}, OOM_I64) :
			    oom_new(t, "topk", bss, D(1), OOM_I64);
		oom_drop(t, w);
		oom_drop(t, m);
	}
	chosen = oom_new(t, "index mask", bss, D(1), OOM_U8);
	if (oom_is_none(l->mask[0])) {
		m = oom_new(t, "index mask", bss, D(1), OOM_U8);
		oom_drop(t, chosen);
		chosen = m;
		s = oom_new(t, "zeros", bss, D(1), dt);
	} else {
		s = oom_share(t, l->mask[0]);
	}
	m = oom_new(t, "sparse mask", bss, D(1), dt);
	oom_drop(t, s);
	oom_drop(t, chosen);
	t->grad = grad;
	return m;
}

static struct oom_val latent_attention(struct oom_tape *t, const struct layer *l, uint32_t i,
				       struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint64_t H = a->n_heads, nope = a->extra[NOPE], rot = a->extra[ROT],
		       rank = a->extra[KV_RANK];
	const struct oom_dim h = {x.width, x.text},
			     qd = {H * (nope + rot), "n_heads * qk_head_dim"};
	const struct oom_dim qs[2] = {{H * nope, "n_heads * qk_nope_head_dim"},
				      {H * rot, "n_heads * qk_rope_head_dim"}};
	const struct oom_dim cs[2] = {{rank, "kv_lora_rank"}, {rot, "qk_rope_head_dim"}};
	const struct oom_dim ks[2] = {{H * nope, "n_heads * qk_nope_head_dim"},
				      {H * a->v_head_dim, "n_heads * v_head_dim"}};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	const uint64_t flags = a->extra[FLAGS];
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_rope rope = l->rope;
	struct oom_val q, c[2], k[2], p[2], y, resid = oom_none(), local[7];

	if (a->extra[Q_RANK]) {
		q = oom_op_linear(t, "q_a_proj", oom_keep(x),
				  (struct oom_dim){a->extra[Q_RANK], "q_lora_rank"}, bias);
		q = oom_norm(t, a->norm, "q_a_layernorm", q, 0);
		if (flags & SPARSE)
			resid = oom_share(t, q);
		q = oom_op_linear(t, "q_b_proj", q, qd, 0);
	} else {
		q = oom_op_linear(t, "q_proj", oom_keep(x), qd, 0);
	}
	oom_op_split(t, oom_op_heads(t, q), 2, qs, p);
	oom_op_split(t,
		     oom_op_linear(t, "kv_a_proj_with_mqa", oom_keep(x),
				   (struct oom_dim){rank + rot, "kv_lora_rank + qk_rope_head_dim"},
				   bias),
		     2, cs, c);
	c[0] = oom_norm(t, a->norm, "kv_a_layernorm", c[0], 0);
	if (flags & DOUBLE) {                   /* scaled up for their ranks */
		p[0] = oom_op_unary(t, OOM_SCALE, p[0]);
		p[1] = oom_op_unary(t, OOM_SCALE, p[1]);
		c[0] = oom_op_unary(t, OOM_SCALE, c[0]);
	}
	c[0] = oom_op_linear(t, "kv_b_proj", c[0],
			     (struct oom_dim){H * (nope + a->v_head_dim),
					      "n_heads * (qk_nope + v)_head_dim"},
			     0);
	oom_op_split(t, oom_op_heads(t, c[0]), 2, ks, k);
	/* q_pass, compressed_kv, q_rot, k_rot and the states: names to the end */
	local[0] = oom_share(t, p[0]);
	local[1] = oom_share(t, c[1]);
	p[1] = rotate(t, a, p[1], &rope, H);
	c[1] = rotate(t, a, c[1], &rope, 1);
	local[2] = oom_share(t, p[1]);
	local[3] = oom_share(t, c[1]);
	c[1] = oom_op_expand(t, c[1], c[1].mono,
			     (struct oom_dim){H * rot, "n_heads * qk_rope_head_dim"});
	q = oom_op_cat(t, p[0], p[1], qd);
	k[0] = oom_op_cat(t, k[0], c[1], qd);
	/* 1 + beta * log(1 + floor(position / length)), cast to the queries' type */
	if (flags & SCALED_QUERY) {
		struct oom_val f = oom_new(t, "query scale", t->m_s, D(1), OOM_F32);

		q = oom_op_mul(t, q, oom_op_cast(t, f, (enum oom_dtype)q.dt));
	}
	at.layer_names_weights = true;
	at.mask = flags & SPARSE ?
			  sparse_mask(t, l, x, resid, i < OOM_MAX_LAYERS && a->kind[i] & 4) :
			  l->mask[0];
	local[4] = oom_share(t, q);
	local[5] = oom_share(t, k[0]);
	local[6] = oom_share(t, k[1]);
	y = oom_attention_core(t, &at, q, k[0], k[1]);
	y = oom_op_linear(t, "o_proj", y, h, a->o_bias ? OOM_BIAS : 0);
	if (flags & SPARSE)
		oom_drop(t, at.mask);
	for (int n = 0; n < 7; n++)
		oom_drop(t, local[n]);
	oom_drop(t, resid);
	oom_done(t, x);
	return y;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .act = a->act,
				  .router_fp32 = true,
				  .scale_weights = true,
				  .zero_experts = a->extra[ZERO_EXPERTS]};

	return oom_moe_mlp(t, &m, x);
}

/* Two attentions and two dense feed-forwards; the experts see the first's input and are added at
 * the end. */
static struct oom_val double_block(struct oom_tape *t, const struct layer *l, uint32_t i,
				   struct oom_val x)
{
	const struct oom_arch *a = l->a;
	struct oom_val h, moe = oom_none();

	for (int j = 0; j < 2; j++) {
		h = latent_attention(t, l, i,
				     oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0));
		x = oom_op_add(t, x, h);
		h = oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
		if (!j)
			moe = feed_forward(t, a, oom_keep(h));
		x = oom_op_add(t, x, oom_gated_mlp(t, h, a->act, D(a->d_ff), false));
	}
	return oom_op_add(t, x, moe);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint64_t flags = a->extra[FLAGS];
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	struct oom_reader r = a->rd;
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = a->top_k,
				  .d_expert = a->d_expert,
				  .d_shared = a->d_shared,
				  .act = a->act,
				  .norm_topk = flags & (SIGMOID | PLAIN_SOFTMAX) &&
					       oom_read_bool(&r, "norm_topk_prob", true),
				  .router_fp32 = true,
				  .sigmoid = flags & SIGMOID,
				  .scale_weights = !(flags & ROUTE_LATE) || flags & SANDWICH,
				  .bias_param = flags & SANDWICH,
				  .shared_first = flags & SANDWICH,
				  .route_late = flags & ROUTE_LATE,
				  .route_plain = flags & PLAIN_SOFTMAX,
				  .combine_fp32 =
					  oom_read_bool(&r, "enable_moe_fp32_combine", false)};
	struct oom_rope rope = l->rope;
	struct oom_val h;

	if (flags & DOUBLE)
		return double_block(t, l, i, x);
	h = oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);
	if (flags & MLA) {
		h = latent_attention(t, l, i, h);
	} else {
		struct oom_attn at = oom_attn_of(t, a);

		at.layer_names_weights = true;
		at.rope = flags & LOCAL_ROPE && a->window && !(kind & 2) ? NULL : &rope;
		at.rot_dim = oom_rot_dim(a);
		at.rope_cat = flags & CAT_ROPE;
		at.gated = flags & SANDWICH;
		at.qk_norm_full = flags & QK_NORM_FULL;
		at.mask = l->mask[kind >> 1 & 1];
		h = oom_attention(t, &at, h);
	}
	if (flags & SANDWICH)
		h = oom_norm(t, a->norm, "post_attention_layernorm", h, 0);
	x = oom_op_add(t, x, h);
	h = oom_norm(t, a->norm,
		     flags & SANDWICH ? "pre_mlp_layernorm" : "post_attention_layernorm",
		     oom_keep(x), 0);
	if (a->n_experts && !(kind & 1))
		h = oom_moe_mlp(t, &m, h);
	else
		h = oom_gated_mlp(t, h, a->act, D(a->d_ff), a->mlp_bias);
	if (flags & SANDWICH)
		h = oom_norm(t, a->norm, "post_mlp_layernorm", h, 0);
	return oom_op_add(t, x, h);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t flags = a->extra[FLAGS];
	const uint64_t rot = flags & MLA ? a->extra[ROT] :
					   oom_rot_dim(a);
	struct oom_val embed, x, first, positions,
		ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};
	struct oom_reader r = a->rd;
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	if (oom_read_bool(&r, "mup_enabled", false))
		x = oom_op_unary(t, OOM_SCALE, x);
	dt = (enum oom_dtype)x.dt;
	/* position_ids: every layer's argument, and a local of the model until it returns */
	positions = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask[0] = oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s);
	l.mask[1] = a->window ? oom_make_mask(t, true, a->window, dt, t->m_b, t->m_s, t->m_s) :
				oom_none();
	l.rope = oom_rope_tables(t, rot, flags & COMPLEX_ROPE ? OOM_F32 : dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	for (int i = 0; i < 2; i++)
		if (oom_any_layer(t, a, 2, i ? 2 : 0))
			oom_drop_shared(t, l.mask[i]);
		else
			oom_drop(t, l.mask[i]);
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop_shared(t, positions);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

static const struct oom_family_type types[] = {
	{"deepseek_v3", NULL}, {"deepseek_v2", NULL}, {"glm4_moe", NULL}, {"glm4_moe_lite", NULL},
	{"dots1", NULL}, {"youtu", NULL}, {"solar_open", NULL}, {"exaone_moe", NULL},
	{"hy_v3", NULL}, {"minimax_m2", NULL}, {"mistral4", NULL}, {"afmoe", NULL},
	{"deepseek_v32", NULL}, {"glm_moe_dsa", NULL}, {"longcat_flash", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_deepseek = {
	.name = "deepseek",
	.summary = "latent attention or grouped heads, dense layers first, then experts behind an "
		   "fp32 router with shared experts",
	.source = "transformers 5.12 models/deepseek_v3/modeling_deepseek_v3.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
