/* Types of Llama's shape whose code lies in the repositories of their models (data/remote_types.jsonl has
 * their keys and the files that were read): other names, a fused projection, biases, and layers that are
 * not all of one size (OpenELM, Nemotron-NAS). */
#include <stdio.h>

#include "blocks/image.h"
#include "llama.h"

#define KIND(...) &(const struct oom_llama_kind){__VA_ARGS__}
#define EXPERTS(...) &(const struct oom_llama_experts){__VA_ARGS__}

const struct oom_family_type oom_llama_remote_types[] = {
	{"baichuan", KIND(.qkv = "W_pack")},
	{"bailing_moe", KIND(.qkv = "query_key_value", .o = "dense",
			     .experts = EXPERTS(.scores_cast = true,
						.shared_count = "num_shared_experts",
						.dense_first = "first_k_dense_replace"))},
	{"chatglm", KIND(.qkv = "query_key_value", .o = "dense", .bias = OOM_BIAS_QKV, .rotary = 0.5,
			 .mlp = oom_llama_fused_mlp, .up = "dense_h_to_4h", .down = "dense_4h_to_h")},
	{"deepseek", KIND(.experts = EXPERTS(.scores_cast = true,
					     .shared_count = "n_shared_experts",
					     .dense_first = "first_k_dense_replace"))},
	{"exaone", KIND(.o = "out_proj", .mlp = oom_llama_named_mlp, .gate = "c_fc_0",
			.up = "c_fc_1", .down = "c_proj")},
	{"internlm2", KIND(.qkv = "wqkv", .o = "wo", .mlp = oom_llama_named_mlp, .gate = "w1",
			   .up = "w3", .down = "w2")},
	{"internlm3", KIND(.bias = OOM_BIAS_QKV)},
	{"nemotron-nas", KIND(.sizes = oom_llama_nas_sizes)},
	{"openelm", KIND(.qk = OOM_QK_HEAD, .mlp = oom_llama_fused_mlp, .up = "proj_1",
			 .down = "proj_2", .o = "out_proj", .tied = true,
			 .sizes = oom_llama_openelm_sizes)},
	{"orion", KIND(.norm = OOM_NORM_LAYER)},
	{"phi-msft", KIND(.norm = OOM_NORM_LAYER, .shape = OOM_SHAPE_PARALLEL, .bias = OOM_BIAS_ALL,
			  .head_bias = true, .rotary = 0.5, .rope_inline = true, .o = "out_proj",
			  .up = "fc1", .down = "fc2", .dropout = "resid_pdrop", .four_wide = true,
			  .embed_dropout = "embd_pdrop", .branch_dropout = true,
			  .embed_dropout_renames = true)},
	{"phi3_v", KIND(.fused_qkv = true, .mlp = oom_llama_fused_mlp, .dropout = "resid_pdrop",
			.repeat_kv_flash = true, .towers = true, .unused = oom_llama_phi3v_unused)},
	{"qwen", KIND(.qkv = "c_attn", .o = "c_proj", .bias = OOM_BIAS_QKV, .halves = true,
		      .no_bias = "no_bias", .mlp = oom_llama_named_mlp, .gate = "w2", .up = "w1",
		      .down = "c_proj")},
	{"telechat", KIND(.o = "dense", .o_bias = true, .mlp = oom_llama_named_mlp,
			  .gate = "gate_proj", .up = "up_proj", .down = "down_proj",
			  .down_bias = true)},
	{NULL, NULL},
};

/* down(act(gate(x)) * up(x)) by the type's own names. */
struct oom_val oom_llama_named_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_llama_kind *k = llama_kind(a);
	const char *const names[3] = {k->gate, k->up, k->down};

	return oom_named_glu(t, x, names, a->act, D(a->d_ff), a->mlp_bias, k->down_bias || a->mlp_bias);
}

/* ---- layers of sizes of their own ---- */

static bool same_size(const struct oom_llama_size *a, const struct oom_llama_size *b)
{
	return a->heads == b->heads && a->kv_heads == b->kv_heads && a->ff == b->ff &&
	       a->linear_attention == b->linear_attention && a->linear_ff == b->linear_ff &&
	       a->no_attention == b->no_attention && a->no_ff == b->no_ff;
}

/* Gives layer i its sizes; layers of one size are one kind. */
static void set_layer(struct oom_arch *a, uint64_t i, struct oom_llama_size s)
{
	struct oom_llama *own = llama_own(a);
	uint32_t k = 0;

	if (i >= OOM_MAX_LAYERS)
		return;
	while (k < own->n_sizes && !same_size(&own->size[k], &s))
		k++;
	if (k == OOM_LLAMA_SIZES) {
		oom_read_fail(&a->rd, "%s has layers of more than %d different sizes",
			      a->rd.family, OOM_LLAMA_SIZES);
		return;
	}
	if (k == own->n_sizes)
		own->size[own->n_sizes++] = s;
	a->kind[i] = (uint8_t)((k + 1) << OOM_LLAMA_SIZE_SHIFT);
	a->n_heads = s.heads > a->n_heads ? s.heads : a->n_heads;
	a->d_ff = s.ff > a->d_ff ? s.ff : a->d_ff;
}

/* The model's own sizes are the largest of its layers'. */
static void finish_sizes(struct oom_arch *a)
{
	a->n_kv_heads = a->n_heads;
	if (!a->n_heads || !a->d_ff)
		oom_read_fail(&a->rd, "%s: no layer has attention and a feed-forward", a->rd.family);
	else if (!a->head_dim)
		a->head_dim = a->d_model / a->n_heads;
	llama_own(a)->shape = OOM_SHAPE_UNEVEN;
}

static uint64_t count_of(struct oom_arch *a, const char *key, uint64_t i, double most)
{
	const double v = oom_read_item_real(&a->rd, key, (uint32_t)i, 0);

	if (!(v >= 1 && v <= most)) {
		oom_read_fail(&a->rd, "\"%s\" must list a number for each of the %llu layers of %s",
			      key, (unsigned long long)a->n_layers, a->rd.family);
		return 1;
	}
	return (uint64_t)v;
}

/* OpenELM: lists of heads, and of the feed-forward's width over the model's, which is rounded to
 * ffn_dim_divisor (make_divisible of its modeling_openelm.py). */
void oom_llama_openelm_sizes(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t divisor = oom_read_count(r, "ffn_dim_divisor", 1);

	if (!oom_read_bool(r, "ffn_with_glu", true) ||
	    !oom_read_bool(r, "normalize_qk_projections", true))
		oom_read_fail(r, "openelm without gates or without norms of queries and keys is not "
				 "modelled");
	for (uint64_t i = 0; i < a->n_layers && !r->status; i++) {
		const double times = oom_read_item_real(r, "ffn_multipliers", (uint32_t)i, 0);
		struct oom_llama_size s = {
			.heads = (uint32_t)count_of(a, "num_query_heads", i, 65536),
			.kv_heads = (uint32_t)count_of(a, "num_kv_heads", i, 65536)};

		if (!(times > 0 && times < 1024) || s.heads % s.kv_heads)
			oom_read_fail(r, "ffn_multipliers, num_query_heads and num_kv_heads of layer "
					 "%llu make no layer (model type %s)",
				      (unsigned long long)i, r->family);
		else
			s.ff = oom_make_divisible(times * (double)a->d_model, divisor, divisor);
		set_layer(a, i, s);
	}
	finish_sizes(a);
}

/* block_configs.i.part.key */
static const struct oom_key *block_key(struct oom_arch *a, uint64_t i, const char *part,
				       const char *key)
{
	char path[96];

	snprintf(path, sizeof(path), "block_configs.%llu.%s.%s", (unsigned long long)i, part, key);
	return oom_read_key(&a->rd, path);
}

static bool block_says(struct oom_arch *a, uint64_t i, const char *part, const char *key)
{
	const struct oom_key *k = block_key(a, i, part, key);

	return k && k->type == OOM_KEY_BOOL && k->number != 0;
}

static double block_number(struct oom_arch *a, uint64_t i, const char *part, const char *key)
{
	const struct oom_key *k = block_key(a, i, part, key);

	return k && k->type == OOM_KEY_NUMBER ? k->number : 0;
}

/* The feed-forward's width: intermediate_size, or two thirds of ffn_mult times the model's, rounded up
 * to 256 (_ffn_mult_to_intermediate_size). */
static uint64_t nas_width(struct oom_arch *a, uint64_t i)
{
	const double given = block_number(a, i, "ffn", "intermediate_size"),
		     times = block_number(a, i, "ffn", "ffn_mult");
	uint64_t n;

	if (given >= 1 && given < 1e9)
		return (uint64_t)given;
	if (!(times > 0 && times < 1024))
		return 0;
	n = (uint64_t)(2 * times * (double)a->d_model / 3);
	return (n + 255) / 256 * 256;
}

/* Nemotron-NAS (DeciLM): every block says which attention and which feed-forward it has; either may
 * be a single linear layer, or absent together with its norm. */
void oom_llama_nas_sizes(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t heads = oom_read_count(r, "num_attention_heads", 1);

	for (uint64_t i = 0; i < a->n_layers && !r->status; i++) {
		const double group = block_number(a, i, "attention", "n_heads_in_group");
		struct oom_llama_size s = {
			.no_attention = block_says(a, i, "attention", "no_op"),
			.no_ff = block_says(a, i, "ffn", "no_op"),
			.linear_attention = block_says(a, i, "attention", "replace_with_linear"),
			.linear_ff = block_says(a, i, "ffn", "replace_with_linear")};

		if (!s.no_attention && !s.linear_attention) {
			s.heads = (uint32_t)heads;
			s.kv_heads = group >= 1 && group <= (double)heads ?
					     (uint32_t)(heads / (uint64_t)group) : 0;
		}
		if (!s.no_ff && !s.linear_ff)
			s.ff = nas_width(a, i);
		if ((s.heads && (!s.kv_heads || s.heads % s.kv_heads)) ||
		    (!s.no_ff && !s.linear_ff && !s.ff))
			oom_read_fail(r, "block_configs.%llu makes no layer (model type %s)",
				      (unsigned long long)i, r->family);
		set_layer(a, i, s);
	}
	finish_sizes(a);
}

/* A layer as its own sizes say; at: what all layers have in common. */
struct oom_val oom_llama_uneven(struct oom_frame *f, const struct oom_arch *a, struct oom_attn at,
				uint8_t kind, struct oom_val x)
{
	const struct oom_llama *own = llama_of(a);
	const uint32_t k = kind >> OOM_LLAMA_SIZE_SHIFT;
	const struct oom_llama_size *s = &own->size[k && k <= own->n_sizes ? k - 1 : 0];
	const struct oom_dim d = {x.width, x.text};
	struct oom_tape *t = f->t;
	struct oom_arch sized = *a;
	struct oom_val h;

	at.heads = sized.n_heads = s->heads;
	at.kv_heads = sized.n_kv_heads = s->kv_heads;
	sized.d_ff = s->ff;
	if (!s->no_attention) {
		h = oom_norm(t, a->norm, "input_layernorm", x, 0);
		h = s->linear_attention ? oom_op_linear(t, "linear_attn", h, d, 0) :
					  oom_attention(t, &at, h);
		x = oom_name(f, oom_op_add(t, x, h));
	}
	if (s->no_ff)
		return x;
	h = oom_norm(t, a->norm, "post_attention_layernorm", x, 0);
	h = s->linear_ff ? oom_op_linear(t, "linear_mlp", h, d, 0) :
			   oom_llama_feed_forward(t, &sized, false, h);
	return oom_op_add(t, x, h);
}
