/* What the configs of Mamba 2 and its mixtures with attention say. */
#include <string.h>

#include "mamba2.h"

#define MIXER_KEYS(d_state, n_groups, d_conv, chunk_size, n_heads, conv, proj) \
	MUST_OWN(struct mamba2, state, d_state), MUST_OWN(struct mamba2, groups, n_groups), \
		MUST_OWN(struct mamba2, kernel, d_conv), \
		MUST_OWN(struct mamba2, chunk, chunk_size), \
		MUST_OWN(struct mamba2, heads, n_heads), \
		FLAG_OWN(struct mamba2, conv_bias, conv, true), \
		FLAG_OWN(struct mamba2, bias, proj, false), \
		FLAG_OWN(struct mamba2, out_bias, proj, false)

const struct oom_key_row oom_mamba2_words[] = {
	MIXER_KEYS("state_size", "n_groups", "conv_kernel", "chunk_size", "num_heads",
		   "use_conv_bias", "use_bias"),
	OOM_KEYS_END};
const struct oom_key_row oom_nemotron_words[] = {
	MIXER_KEYS("ssm_state_size", "n_groups", "conv_kernel", "chunk_size", "mamba_num_heads",
		   "use_conv_bias", "use_bias"),
	OOM_KEYS_END};
const struct oom_key_row oom_prefixed_words[] = {
	MIXER_KEYS("mamba_d_state", "mamba_n_groups", "mamba_d_conv", "mamba_chunk_size",
		   "mamba_n_heads", "mamba_conv_bias", "mamba_proj_bias"),
	OOM_KEYS_END};

static const struct oom_key_row attention_keys[] = {
	MUST(n_heads, "num_attention_heads"), OOM_GROUPED_KEYS,
	REAL(attn_dropout, "attention_dropout", 0), FLAG(mlp_bias, "mlp_bias", false),
	MUST(d_ff, "intermediate_size"), OR(max_positions, "max_position_embeddings", 0),
	OOM_KEYS_END};

static void parse_mixer(struct oom_arch *a, const struct mamba2_kind *kind)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, kind->d_head);
	struct mamba2 *m = mamba2_own(a);

	oom_read_rows(a, kind->keys);
	m->norm = kind->norm;
	m->act = oom_read_act(r, kind->ssm_act, "silu");
	m->inner = (uint64_t)(oom_read_real(r, kind->expand, 2) * (double)a->d_model);
	if (kind->norm_by_key) {
		m->inner = oom_read_count_or(r, "mamba_d_ssm", m->inner);
		m->out_bias = oom_read_bool(r, "projectors_bias", false);
		m->norm = !oom_read_bool(r, "mamba_rms_norm", false)	   ? OOM_GATED_PLAIN :
			  oom_read_bool(r, "mamba_norm_before_gate", true) ? OOM_GATED_BEFORE :
									     OOM_GATED_AFTER;
	}
	m->d_head = m->heads ? m->inner / m->heads : 0;
	/* "auto" unless a number is written; Falcon-H1's default width of 1024 goes with heads
	 * of 64 in no published model */
	if (k && k->type == OOM_KEY_NUMBER)
		m->d_head = oom_read_count(r, kind->d_head, 1);
	if (kind->pattern)
		m->inner = m->heads * m->d_head;
}

/* Layer i by a list of words, by a pattern of letters, or by a list of indices. */
static uint8_t layer_of(struct oom_arch *a, const struct mamba2_kind *kind, bool listed,
			const char *pattern, uint32_t i)
{
	static const char *const words[] = {"mamba", "attention", "moe", "mlp"};
	static const char letters[] = "M*E-";
	static const uint8_t nemotron_default[] = {MAMBA2_MIXER, MAMBA2_MOE, MAMBA2_ATTENTION,
						   MAMBA2_MLP};
	const char *word = listed ? oom_read_item(&a->rd, kind->layer_list, i) : NULL;
	uint8_t layer = kind->pattern ? nemotron_default[i % 4] : MAMBA2_MIXER;

	for (uint8_t w = 0; w < 4; w++)
		if ((word && !strcmp(word, words[w])) ||
		    (!listed && pattern && pattern[i] == letters[w]))
			layer = w;
	if (kind->indices && oom_read_lists(a, "attn_layer_indices", i))
		layer = MAMBA2_ATTENTION;
	return layer;
}

static void parse_layers(struct oom_arch *a, const struct mamba2_kind *kind)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *list = kind->layer_list ? oom_read_key(r, kind->layer_list) : NULL;
	const char *pattern = kind->pattern ? oom_read_string(r, "hybrid_override_pattern", NULL) :
					      NULL;
	const bool listed = list && list->type == OOM_KEY_LIST;

	if (kind->pattern)
		a->n_layers = listed ? list->n_items : pattern ? strlen(pattern) : 4;
	if (a->n_layers > OOM_MAX_LAYERS) {
		oom_read_fail(r, "%llu layers: at most %d are modelled",
			      (unsigned long long)a->n_layers, OOM_MAX_LAYERS);
		return;
	}
	for (uint32_t i = 0; i < a->n_layers; i++)
		a->kind[i] = layer_of(a, kind, listed, pattern, i);
}

struct oom_ssd mamba2_ssd(const struct oom_arch *a)
{
	const struct mamba2_kind *kind = mamba2_kind(a);
	const struct mamba2 *m = mamba2_of(a);

	return (struct oom_ssd){
		.module = kind->module,
		.inner = m->inner,
		.heads = m->heads,
		.d_head = m->d_head,
		.d_state = m->state,
		.groups = m->groups,
		.kernel = m->kernel,
		.chunk = m->chunk,
		.bias = m->bias,
		.out_bias = m->out_bias,
		.conv_bias = m->conv_bias,
		.scaled = kind->scaled,
		.mask_any_batch = kind->mask_any_batch,
		.name_taken_over = kind->name_taken_over,
		.mask_twice = kind->mask_twice,
		.norm = m->norm,
		.act = m->act,
	};
}

static void parse_attention(struct oom_arch *a, const struct mamba2_kind *kind)
{
	struct oom_reader *r = &a->rd;

	oom_read_rows(a, attention_keys);
	a->qkv_bias = a->o_bias = !kind->pattern && oom_read_bool(r, "attention_bias", false);
	a->rotary_share = 1;
	mamba2_own(a)->rope = kind->rope_by_key ?
				      !strcmp(oom_read_string(r, "position_embedding_type", ""),
					      "rope") :
				      !kind->no_rope;
}

static void parse_experts(struct oom_arch *a, const struct mamba2_kind *kind)
{
	struct oom_reader *r = &a->rd;
	struct mamba2 *m = mamba2_own(a);

	if (kind->scaled_branches) {            /* Granite: in every layer */
		a->n_experts = oom_read_count_or(r, "num_local_experts", 0);
		a->d_expert = a->d_ff;
		a->d_shared = oom_read_count(r, "shared_intermediate_size", 1);
	} else if (memchr(a->kind, MAMBA2_MOE,
			  a->n_layers < OOM_MAX_LAYERS ? a->n_layers : OOM_MAX_LAYERS)) {
		a->n_experts = oom_read_count(r, "n_routed_experts", 1);
		a->d_expert = oom_read_count(r, "moe_intermediate_size", 1);
		a->d_shared = oom_read_count(r, "moe_shared_expert_intermediate_size", 1);
		m->latent = oom_read_count_or(r, "moe_latent_size", 0);
		m->norm_topk = oom_read_bool(r, "norm_topk_prob", true);
	}
	a->top_k = a->n_experts ? oom_read_count(r, "num_experts_per_tok", 1) : 0;
	oom_check_experts(a);
}

void mamba2_parse(struct oom_arch *a)
{
	const struct mamba2_kind *kind = mamba2_kind(a);
	struct oom_reader *r = &a->rd;
	struct oom_ssd m;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	if (!kind->pattern)
		a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false) && !kind->pattern;
	a->act = oom_read_act(r, kind->act, "silu");
	a->scale_logits = kind->multipliers;
	mamba2_own(a)->fp32_residual = kind->fp32_residual &&
				       oom_read_bool(r, "residual_in_fp32", true);
	parse_mixer(a, kind);
	if (r->status)
		return;
	parse_layers(a, kind);
	if (r->status)
		return;
	if (kind->attention) {
		parse_attention(a, kind);
		parse_experts(a, kind);
	}
	m = mamba2_ssd(a);
	if (!oom_ssd_check(r, &m))
		return;
	oom_warn_kernels(a, "the mamba_ssm and causal_conv1d kernels", "them");
}
