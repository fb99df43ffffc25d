/* What the configs of Llama's family say. */
#include <string.h>

#include "llama.h"

/* width: the row of the feed-forward's width */
#define KEYS(width) \
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"), width, \
		MUST(n_layers, "num_hidden_layers"), MUST(n_heads, "num_attention_heads"), \
		OOM_GROUPED_KEYS, OR(max_positions, "max_position_embeddings", 0), \
		FLAG(mlp_bias, "mlp_bias", false), FLAG(head_bias, "lm_head_bias", false), \
		REAL(attn_dropout, "attention_dropout", 0), \
		REAL(softcap_attn, "attn_logit_softcapping", 0), \
		REAL(softcap_logits, "final_logit_softcapping", 0), OOM_KEYS_END

static const struct oom_key_row llama_keys[] = {KEYS(MUST(d_ff, "intermediate_size"))};
static const struct oom_key_row moshi_keys[] = {KEYS(MUST(d_ff, "ffn_dim"))};
static const struct oom_key_row wide_keys[] = {KEYS(LIKE(d_ff, "intermediate_size", 4, d_model))};
/* of types whose layers have sizes of their own */
static const struct oom_key_row uneven_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"), MUST(n_layers, "num_hidden_layers"),
	OR(head_dim, "head_dim", 0), OR(max_positions, "max_position_embeddings", 0), OOM_KEYS_END};

static void parse_experts(struct oom_arch *a, const struct oom_llama_experts *e)
{
	struct oom_reader *r = &a->rd;

	a->n_experts = oom_read_count_or(r, "num_local_experts", 0);
	if (!a->n_experts)
		a->n_experts = oom_read_count(r, "num_experts", 1);
	if (e->top_k) {                         /* one number, or one for every layer */
		a->top_k = (uint64_t)oom_read_item_real(r, e->top_k, 0, 0);
		a->top_k = a->top_k ? a->top_k : oom_read_count_or(r, e->top_k, 1);
	} else {
		a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	}
	a->d_expert = oom_read_count_or(r, "moe_intermediate_size", a->d_ff);
	llama_own(a)->norm_topk = oom_read_bool(r, "norm_topk_prob", !e->scores_cast) &&
				  !e->topk_first;
	if (e->as_wide)
		a->d_shared = a->d_expert = a->d_ff;
	if (e->shared_width)
		a->d_shared = oom_read_count_or(r, e->shared_width, 0);
	if (e->shared_count)
		a->d_shared = a->d_expert * oom_read_count_or(r, e->shared_count, 0);
	if (e->dense_width)
		a->d_ff = oom_read_count_or(r, e->dense_width, a->d_ff);
	if (a->top_k > a->n_experts)
		oom_warn(a, "num_experts_per_tok (%llu) is more than the %llu experts: no step "
			 "runs so.",
			 (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
	if (e->always_top && a->n_experts > 1)
		a->top_k = e->always_top;
}

/* Whether layer i slides when layer_types does not say it; period: sliding_window_pattern. */
static bool slides(const struct oom_arch *a, const struct oom_llama_kind *k, uint64_t period,
		   uint64_t i)
{
	switch (k->slide) {
	case OOM_SLIDE_EVEN: return !(i % 2);
	case OOM_SLIDE_BUT_LAST: return (i + 1) % period != 0;
	case OOM_SLIDE_BUT_FIRST: return i % k->period != 0;
	case OOM_SLIDE_LISTED: return false;
	case OOM_SLIDE_ALL: break;
	}
	return a->window != 0;
}

static void mark_sliding(struct oom_arch *a, const struct oom_llama_kind *k)
{
	struct oom_reader *r = &a->rd;
	const uint64_t set = oom_read_count_or(r, "sliding_window_pattern",
					       k->period ? k->period : 6);
	bool any = false;

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		a->kind[i] = oom_read_says(a, "layer_types", i, "sliding_attention",
					   slides(a, k, set ? set : 6, i));
		any |= a->kind[i];
	}
	if (k->slide == OOM_SLIDE_LISTED && !any)
		a->window = 0;
}

/* Which layers are dense although the model has experts: mlp_only_layers, decoder_sparse_step (Qwen),
 * moe_layer_* (ERNIE). */
static void mark_dense(struct oom_arch *a, const struct oom_llama_experts *e)
{
	struct oom_reader *r = &a->rd;
	const uint64_t sparse = oom_read_count_or(r, "decoder_sparse_step", 1);
	uint64_t start = 0, every = 1;
	double end = -1;

	if (e->layer_indices) {
		start = oom_read_count_or(r, "moe_layer_start_index", 1);
		every = oom_read_count_or(r, "moe_layer_interval", 1);
		end = oom_read_real(r, "moe_layer_end_index", -1);
	}
	if (e->dense_first)
		start = oom_read_count_or(r, e->dense_first, 0);
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const bool dense = oom_read_says(a, "mlp_layer_types", i, "dense",
						 sparse > 1 && (i + 1) % sparse) ||
				   oom_read_lists(a, "mlp_only_layers", i) || i < start ||
				   (every && (i + 1) % every) || (end >= 0 && (double)i > end);

		a->kind[i] = (uint8_t)(a->kind[i] | dense << 1);
	}
}

static void parse_biases(struct oom_arch *a, const struct oom_llama_kind *k)
{
	struct oom_reader *r = &a->rd;

	switch (k->bias) {
	case OOM_BIAS_ATTENTION:
	case OOM_BIAS_PROJECTIONS:
		a->qkv_bias = oom_read_bool(r, "attention_bias", false);
		a->o_bias = a->qkv_bias && k->bias == OOM_BIAS_ATTENTION;
		break;
	case OOM_BIAS_QKV: a->qkv_bias = oom_read_bool(r, "qkv_bias", true); break;
	case OOM_BIAS_ALL:
		a->qkv_bias = a->o_bias = a->mlp_bias = oom_read_bool(r, "use_bias", true);
		break;
	}
	a->head_bias |= k->head_bias || (k->head_bias_as_layers && a->qkv_bias);
	a->qkv_bias |= oom_read_bool(r, "use_qkv_bias", false);
	a->o_bias |= oom_read_bool(r, "attention_out_bias", false);
	a->o_bias |= k->o_bias;
	a->o_bias &= !k->no_o_bias;
	if (k->no_bias)
		a->o_bias = a->mlp_bias = !oom_read_bool(r, k->no_bias, true);
}

static void parse_dropouts(struct oom_arch *a, const struct oom_llama_kind *k)
{
	struct oom_reader *r = &a->rd;
	const double p = k->dropout ? oom_read_real(r, k->dropout, 0) : 0;

	a->dropout = oom_read_real(r, "residual_dropout", p);
	/* embedding_dropout: StarCoder 2 */
	a->embed_dropout = oom_read_real(r, k->embed_dropout ? k->embed_dropout :
							       "embedding_dropout", 0);
}

/* Positions and the window. */
static void parse_attention(struct oom_arch *a, const struct oom_llama_kind *k)
{
	struct oom_reader *r = &a->rd;

	a->rotary_share = oom_read_rotary(a, k->rotary > 0 ? k->rotary : 1);
	if (oom_read_sliding(a) && oom_read_bool(r, "use_sliding_window", !k->window_off))
		a->window = oom_read_sliding(a);
	if (k->head_norms)
		llama_own(a)->head_norms = oom_read_bool(r, "qk_layernorm", false);
	if (k->qk_by_key)
		llama_own(a)->qk_norm = oom_read_bool(r, "use_qk_norm", false);
	if ((k->qk == OOM_QK_PLAIN && !k->qk_by_key && oom_read_bool(r, "use_qk_norm", false)) ||
	    (!k->head_norms && oom_read_bool(r, "qk_layernorm", false)))
		oom_read_fail(r, "%s with query and key norms is not modelled", a->model_type);
	if (k->o_square && a->n_heads * a->head_dim != a->d_model)
		oom_warn(a, "%s's output projection takes hidden_size, not num_attention_heads * "
			 "head_dim: no step runs so.", a->model_type);
}

/* Layers that only images meet: 3, 8, ... 38 where the config is silent. */
static void count_cross_layers(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, "cross_attention_layers");
	const bool listed = k && k->type == OOM_KEY_LIST;
	struct oom_llama *own = llama_own(a);

	for (uint32_t i = 0; listed && i < k->n_items; i++) {
		const double at = oom_read_item_real(r, "cross_attention_layers", i, -1);
		const bool there = at >= 0 && at < (double)a->n_layers && at < OOM_MAX_LAYERS;

		own->cross += there;
		if (there)
			a->kind[(uint32_t)at] |= OOM_LLAMA_CROSS;
	}
	for (uint64_t i = 3; !listed && i < a->n_layers && i < 40; i += 5) {
		own->cross++;
		a->kind[i] |= OOM_LLAMA_CROSS;
	}
	if (own->cross >= a->n_layers)
		oom_read_fail(r, "cross_attention_layers leaves no layer for text");
}

static void parse_shape(struct oom_arch *a, const struct oom_llama_kind *k)
{
	struct oom_reader *r = &a->rd;
	struct oom_llama *own = llama_own(a);

	own->norms = k->norms;
	own->shape = k->shape;
	if (oom_read_bool(r, "use_post_norm", false))   /* HyperCLOVA X */
		own->norms = OOM_NORMS_AROUND;
	if (k->parallel_by_key && oom_read_bool(r, "use_parallel_residual", false))
		own->shape = OOM_SHAPE_PARALLEL;
	if (k->ffn_dim || k->halves)            /* counts gate and up together */
		a->d_ff = (a->d_ff + 1) / 2;
	if (!k->own_act)
		a->act = oom_read_act(r,
				      oom_read_key(r, "hidden_activation") ? "hidden_activation" :
									     "hidden_act",
				      "silu");
}

void oom_llama_parse(struct oom_arch *a)
{
	const struct oom_llama_kind *k = llama_kind(a);
	struct oom_reader *r = &a->rd;

	oom_read_rows(a, k->ffn_dim   ? moshi_keys :
			 k->sizes     ? uneven_keys :
			 k->four_wide ? wide_keys :
					llama_keys);
	a->norm = k->norm;
	a->tie = oom_read_bool(r, "tie_word_embeddings", k->tied);
	a->tie = a->tie && !k->embed_more;      /* head and embedding differ in length */
	a->float_logits = k->embed_more != 0;
	a->scale_logits = k->scale_logits;
	parse_shape(a, k);
	parse_biases(a, k);
	parse_dropouts(a, k);
	parse_attention(a, k);
	mark_sliding(a, k);
	if (k->cross_layers)
		count_cross_layers(a);
	if (k->sizes)
		k->sizes(a);
	if (!k->experts)
		return;
	parse_experts(a, k->experts);
	mark_dense(a, k->experts);
	if (k->experts->topk_first &&
	    (a->d_shared || oom_read_real(r, "rms_norm_eps", 0) > 0 ||
	     strcmp(oom_read_string(r, "expert_selection_fn", "softmax"), "softmax"))) {
		a->approximate = true;
		oom_warn(a, "%s: shared experts, sigmoid scores and RMS norms are approximated.",
			 a->model_type);
	}
}
