/* DeepSeek and its kin: multi-head latent attention or grouped heads, dense layers first, then
 * experts behind a sigmoid router with shared experts.
 * Reference: transformers 5.12, models/{deepseek_v3,deepseek_v2,glm4_moe,glm4_moe_lite,dots1,youtu,
 * solar_open,exaone_moe,hy_v3,minimax_m2}/modeling_*.py. */
#include "config/keys.h"
#include "deepseek.h"

#define LATENT_MOE .latent = true, .experts = true
#define SIGMOID_MOE .experts = true, .sigmoid = true
static const struct deepseek_kind
	v3 = {LATENT_MOE, .sigmoid = true, .interleave = true},
	v2 = {LATENT_MOE, .complex_rope = true, .mlp_bias = true},
	youtu = {.latent = true, .interleave = true, .tied = true},
	glm4_moe = {SIGMOID_MOE, .cat_rope = true, .o_plain = true, .rotary = 0.5},
	dots1 = {SIGMOID_MOE, .qk_norm = true},
	hy_v3 = {SIGMOID_MOE, .qk_norm = true, .mlp_bias = true, .divided_apart = true},
	solar_open = {SIGMOID_MOE, .all_sparse = true, .o_plain = true},
	exaone_moe = {SIGMOID_MOE, .qk_norm = true, .local_rope = true},
	afmoe = {SIGMOID_MOE, .qk_norm = true, .local_rope = true, .route_late = true,
		 .sandwich = true},
	mistral4 = {LATENT_MOE, .interleave = true, .plain_softmax = true, .no_dense = true,
		    .scaled_query = true},
	dsa = {LATENT_MOE, .sigmoid = true, .interleave = true, .sparse = true},
	longcat = {LATENT_MOE, .interleave = true, .twice = true},
	minimax_m2 = {SIGMOID_MOE, .all_sparse = true, .qk_norm = true, .qk_norm_full = true,
		      .route_late = true, .cat_rope = true};
static const struct oom_family_type deepseek_types[] = {
	{"deepseek_v3", &v3}, {"deepseek_v2", &v2}, {"glm4_moe", &glm4_moe},
	{"glm4_moe_lite", &v3}, {"dots1", &dots1}, {"youtu", &youtu},
	{"solar_open", &solar_open}, {"exaone_moe", &exaone_moe}, {"hy_v3", &hy_v3},
	{"minimax_m2", &minimax_m2}, {"mistral4", &mistral4}, {"afmoe", &afmoe},
	{"deepseek_v32", &dsa}, {"glm_moe_dsa", &dsa}, {"longcat_flash", &longcat}, {NULL, NULL},
};
/* Latent attention has no q_proj and v_proj, and PEFT no default for it. */
static const struct oom_type_targets deepseek_targets[] = {
	{"deepseek_v3", "all-linear", NULL}, {"deepseek_v2", "all-linear", NULL}, {"deepseek_v32", "all-linear", NULL},
	{"glm4_moe_lite", "all-linear", NULL}, {"youtu", "all-linear", NULL}, {"mistral4", "all-linear", NULL},
	{"glm_moe_dsa", "all-linear", NULL}, {"longcat_flash", "all-linear", NULL}, {NULL, NULL, NULL},
};
static const struct oom_key_row deepseek_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"),
	MUST(n_heads, "num_attention_heads"), LIKE(n_kv_heads, "num_key_value_heads", 1, n_heads),
	QUOTIENT(head_dim, "head_dim", d_model, n_heads),
	OR(max_positions, "max_position_embeddings", 0), ACT(act, "hidden_act", "silu"),
	FLAG(qkv_bias, "attention_bias", false),
	REAL(attn_dropout, "attention_dropout", 0), FLAG(qk_norm, "use_qk_norm", false),
	FLAG_OWN(struct deepseek, norm_topk, "norm_topk_prob", true),
	FLAG_OWN(struct deepseek, combine_fp32, "enable_moe_fp32_combine", false),
	FLAG_OWN(struct deepseek, mup, "mup_enabled", false), OOM_KEYS_END};
static const struct oom_key_row latent_keys[] = {
	OR_OWN(struct deepseek, q_rank, "q_lora_rank", 0),
	MUST_OWN(struct deepseek, kv_rank, "kv_lora_rank"),
	MUST_OWN(struct deepseek, nope, "qk_nope_head_dim"),
	MUST_OWN(struct deepseek, rot, "qk_rope_head_dim"), MUST(v_head_dim, "v_head_dim"),
	FLAG_OWN(struct deepseek, interleave, "rope_interleave", true), OOM_KEYS_END};
static const struct oom_key_row index_keys[] = {
	MUST_OWN(struct deepseek, index_heads, "index_n_heads"),
	MUST_OWN(struct deepseek, index_dim, "index_head_dim"),
	MUST_OWN(struct deepseek, index_topk, "index_topk"), OOM_KEYS_END};

static void parse_latent(struct oom_arch *a)
{
	struct deepseek *own = deepseek_own(a);

	oom_read_rows(a, latent_keys);
	a->head_dim = own->nope + own->rot;
	if (oom_read_count_or(&a->rd, "qk_head_dim", a->head_dim) != a->head_dim)
		oom_read_fail(&a->rd,
			      "%s: qk_head_dim is not qk_nope_head_dim (%llu) + qk_rope_head_dim (%llu): no step runs so",
			      a->model_type, (unsigned long long)own->nope, (unsigned long long)own->rot);
	a->n_kv_heads = a->n_heads;
	own->interleave &= deepseek_kind_of(a)->interleave;
	if (!deepseek_kind_of(a)->sparse)
		return;
	oom_read_rows(a, index_keys);
	if (!own->q_rank || own->index_dim < own->rot)
		oom_read_fail(&a->rd,
			      "%s needs q_lora_rank, and index_head_dim of at least "
			      "qk_rope_head_dim",
			      a->model_type);
}

static void parse_experts(struct oom_arch *a)
{
	const struct deepseek_kind *k = deepseek_kind_of(a);
	struct oom_reader *r = &a->rd;
	uint64_t dense = oom_read_count_or(r, "num_dense_layers", k->no_dense ? 0 : 1);

	dense = k->all_sparse || k->twice ? 0 :
					    oom_read_count_or(r, "first_k_dense_replace", dense);
	a->n_experts = oom_read_count_or(r, "num_local_experts",
					 oom_read_count_or(r, "num_experts", 0));
	if (!a->n_experts)
		a->n_experts = oom_read_count(r, "n_routed_experts", 1);
	a->top_k = oom_read_count_or(r, k->twice ? "moe_topk" : "num_experts_per_tok", 1);
	a->d_expert = oom_read_count_or(
		r, k->twice ? "expert_ffn_hidden_size" : "moe_intermediate_size", a->d_ff);
	if (k->twice)
		deepseek_own(a)->zero_experts = oom_read_count_or(r, "zero_expert_num", 0);
	a->d_shared = a->d_expert *
		      oom_read_count_or(r, "n_shared_experts",
					oom_read_count_or(r, "num_shared_experts", 0));
	oom_check_experts(a);
	for (uint32_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		a->kind[i] = oom_read_says(a, "mlp_layer_types", i, "dense", i < dense) ? DEEPSEEK_DENSE : 0;
		if (oom_read_says(a, "indexer_types", i, "shared", false))
			a->kind[i] |= DEEPSEEK_CHOSEN;
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

	a->window = oom_read_count_or(r, "sliding_window", 0);
	for (uint32_t i = 0; a->window && i < a->n_layers && i < OOM_MAX_LAYERS; i++)
		if (oom_read_says(a, "layer_types", i, "sliding_attention", (i + 1) % pattern))
			a->kind[i] |= DEEPSEEK_SLIDES;
}

static void deepseek_parse(struct oom_arch *a)
{
	const struct deepseek_kind *k = deepseek_kind_of(a);
	struct oom_reader *r = &a->rd;

	a->norm = k->sandwich ? OOM_NORM_RMS_FP32 : OOM_NORM_RMS;
	a->gated = true;
	a->d_ff = k->twice	? oom_read_count(r, "ffn_hidden_size", 1) :
		  k->all_sparse ? oom_read_count_or(r, "intermediate_size", 1) :
				  oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, k->twice ? "num_layers" : "num_hidden_layers", 1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", k->tied);
	a->o_bias = a->qkv_bias && !k->o_plain;
	a->mlp_bias = k->mlp_bias && oom_read_bool(r, "mlp_bias", false);
	a->qk_norm |= k->qk_norm;
	a->rotary_share = k->rotary > 0 ? k->rotary : 1;
	deepseek_own(a)->norm_topk &= k->sigmoid || k->plain_softmax;
	if (k->latent)
		parse_latent(a);
	else
		a->rotary_share = oom_read_rotary(a, a->rotary_share);
	if (k->experts)
		parse_experts(a);
	if (k->local_rope)
		parse_windows(a);
	if (k->twice) {
		a->approximate = true;
		oom_warn(a, "%s: the loop over experts is approximated by one product of all of "
			 "them.", a->model_type);
	}
}

static struct oom_val grouped_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
					uint8_t kind, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct deepseek_kind *k = deepseek_kind_of(a);
	const bool slides = kind & DEEPSEEK_SLIDES;
	struct oom_attn at = oom_layer_attn(layer->t, l, slides);

	at.caller = layer;
	if (k->local_rope && a->window && !slides)
		at.rope = NULL;
	at.rot_dim = oom_rot_dim(a);
	at.rope_cat = k->cat_rope;
	at.gated = k->sandwich;
	at.qk_norm_full = k->qk_norm_full;
	return oom_attention(layer->t, &at, x);
}

static struct oom_val experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct deepseek_kind *k = deepseek_kind_of(a);
	const struct deepseek *own = deepseek_of(a);
	const struct oom_moe m = OOM_MOE(
		a, .d_shared = k->twice ? 0 : a->d_shared, .norm_topk = own->norm_topk,
		.router_fp32 = true, .sigmoid = k->sigmoid,
		.scale_weights = !k->route_late || k->sandwich, .bias_param = k->sandwich,
		.shared_first = k->sandwich, .route_late = k->route_late, .divided_apart = k->divided_apart,
		.route_plain = k->plain_softmax, .combine_fp32 = !k->twice && own->combine_fp32,
		.latent_bias = a->mlp_bias, .zero_experts = own->zero_experts);

	return oom_moe_mlp(t, &m, x);
}

/* Two attentions and two dense feed-forwards; the experts see the first's input and are added at
 * the end. */
static struct oom_val double_block(struct oom_tape *t, const struct oom_decoder_layer *l, uint32_t i,
				   struct oom_val x)
{
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val h, moe = oom_none();

	for (int j = 0; j < 2; j++) {
		h = deepseek_latent_attention(&f, l, i, oom_norm(t, a->norm, "input_layernorm", x, 0));
		x = oom_rename(&f, x, oom_op_add(t, x, h));
		h = oom_name(&f, oom_norm(t, a->norm, "post_attention_layernorm", x, 0));
		if (!j)
			moe = experts(t, a, h);
		h = oom_gated_mlp(t, oom_take(&f, h), a->act, D(a->d_ff), false);
		x = oom_rename(&f, x, oom_op_add(t, x, h));
	}
	return oom_leave(&f, oom_op_add(t, x, moe));
}

static struct oom_val deepseek_block(struct oom_tape *t, const void *ctx, uint32_t i,
				     struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct deepseek_kind *k = deepseek_kind_of(a);
	const uint8_t kind = oom_layer_kind(a, i);
	struct oom_frame f = {.t = t};
	struct oom_val h;

	if (k->twice)
		return double_block(t, l, i, x);
	h = oom_norm(t, a->norm, "input_layernorm", x, 0);
	h = k->latent ? deepseek_latent_attention(&f, l, i, h) : grouped_attention(&f, l, kind, h);
	if (k->sandwich)
		h = oom_norm(t, a->norm, "post_attention_layernorm", h, 0);
	x = oom_name(&f, oom_op_add(t, x, h));
	h = oom_norm(t, a->norm, k->sandwich ? "pre_mlp_layernorm" : "post_attention_layernorm", x,
		     0);
	h = a->n_experts && !(kind & DEEPSEEK_DENSE) ? experts(t, a, h) :
					      oom_gated_mlp(t, h, a->act, D(a->d_ff), a->mlp_bias);
	if (k->sandwich)
		h = oom_norm(t, a->norm, "post_mlp_layernorm", h, 0);
	return oom_leave(&f, oom_op_add(t, x, h));
}

static struct oom_val deepseek_prepare(struct oom_frame *f, const struct oom_arch *a,
				       struct oom_decoder_layer *l, struct oom_val x)
{
	const struct deepseek_kind *k = deepseek_kind_of(a);
	const uint64_t rot = k->latent ? deepseek_of(a)->rot : oom_rot_dim(a);
	const enum oom_dtype dt = x.dt;
	struct oom_tape *t = f->t;

	if (deepseek_of(a)->mup)
		x = oom_op_unary(t, OOM_SCALE, x);
	oom_decoder_masks(f, l, DEEPSEEK_SLIDES, a->window, dt);
	l->rope = oom_rope_tables_of(t, a, rot, k->complex_rope ? OOM_F32 : dt);
	l->rope = oom_name_tables(f, l->rope);
	return x;
}

const struct oom_family oom_family_deepseek = {
	.name = "deepseek",
	.summary = "latent attention or grouped heads, dense layers first, then experts behind an "
		   "fp32 router with shared experts",
	.source = "transformers 5.12 models/deepseek_v3/modeling_deepseek_v3.py",
	.types = deepseek_types,
	.lora_targets = "q_proj+v_proj",
	.type_targets = deepseek_targets,
	.keys = deepseek_keys,
	.parse = deepseek_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "norm", .position_ids = true,
			       .kinds = true, .block = deepseek_block, .prepare = deepseek_prepare),
};
