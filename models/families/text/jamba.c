/* Jamba: Mamba layers, every eighth softmax attention without positions, every other feed-forward a
 * mixture. Reference: transformers 5.12, models/jamba/modeling_jamba.py. */
#include "blocks/decoder.h"
#include "blocks/mixers.h"
#include "config/keys.h"

struct jamba {
	uint64_t inner, state, rank, kernel;    /* of the Mamba mixer */
	bool bias, conv_bias;
};
OOM_OWN(jamba, struct jamba);

enum { ATTENTION = 1, EXPERTS = 2 };                                    /* kinds */

static const struct oom_key_row jamba_keys[] = {
	OOM_DECODER_KEYS, OOM_GROUPED_KEYS, MUST(d_ff, "intermediate_size"), OOM_USUAL_KEYS,
	ACT(act, "hidden_act", "silu"), MUST(n_experts, "num_experts"),
	MUST(top_k, "num_experts_per_tok"), LIKE(d_expert, NULL, 1, d_ff),
	MUST_OWN(struct jamba, inner, "mamba_expand"),
	MUST_OWN(struct jamba, state, "mamba_d_state"),
	MUST_OWN(struct jamba, kernel, "mamba_d_conv"),
	FLAG_OWN(struct jamba, bias, "mamba_proj_bias", false),
	FLAG_OWN(struct jamba, conv_bias, "mamba_conv_bias", true), OOM_KEYS_END};

static struct oom_selective mixer_of(const struct oom_arch *a)
{
	const struct jamba *j = jamba_of(a);

	return (struct oom_selective){.module = "mamba", .inner = j->inner, .d_state = j->state, .rank = j->rank,
				      .kernel = j->kernel, .heads = 1, .bias = j->bias,
				      .conv_bias = j->conv_bias, .normed = true,
				      .norm = OOM_NORM_RMS, .act = a->act};
}

static void jamba_parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct jamba *j = jamba_own(a);
	struct oom_selective m;
	bool experts = false;

	j->inner *= a->d_model;                 /* mamba_expand */
	j->rank = oom_read_dt_rank(a, "mamba_dt_rank");
	if (a->n_experts > 1 && a->top_k > a->n_experts)
		oom_read_fail(r, "num_experts_per_tok (%llu) is more than the %llu experts",
			      (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
	if (r->status)
		return;
	oom_read_every(a, "attn_layer_period", "attn_layer_offset", ATTENTION);
	if (a->n_experts > 1)
		experts = oom_read_every(a, "expert_layer_period", "expert_layer_offset", EXPERTS);
	if (!experts)
		a->n_experts = 0;
	m = mixer_of(a);
	if (!oom_selective_check(r, &m))
		return;
	oom_warn_kernels(a, "the mamba_ssm and causal_conv1d kernels", "them");
}

static struct oom_val jamba_mixer(struct oom_frame *layer, const struct oom_decoder_layer *l,
				  uint8_t kind, struct oom_val x)
{
	const struct oom_selective mixer = mixer_of(l->a);
	struct oom_attn at = oom_layer_attn(layer->t, l, false);

	at.repeat_kv_flash = true;
	return kind & ATTENTION ? oom_attention(layer->t, &at, x) :
				  oom_selective_mixer(layer->t, &mixer, x);
}

static struct oom_val jamba_feed_forward(struct oom_frame *layer, const struct oom_decoder_layer *l,
					 uint8_t kind, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_moe m = OOM_MOE(a, .scores_in_input_type = true, .router_linear = true);

	return kind & EXPERTS ? oom_moe_mlp(layer->t, &m, x) :
				oom_gated_mlp(layer->t, x, a->act, D(a->d_ff), false);
}

const struct oom_family oom_family_jamba = {
	.name = "jamba",
	.summary = "Mamba layers with softmax attention and experts between them",
	.source = "transformers 5.12 models/jamba/modeling_jamba.py",
	.types = OOM_TYPE("jamba"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "in_proj+q_proj+v_proj",
	.keys = jamba_keys,
	.parse = jamba_parse,
	.decoder = OOM_DECODER(.embed = "embed_tokens", .norm = "final_layernorm",
			       .position_ids = true, .kinds = true, .mixer = jamba_mixer,
			       .feed_forward = jamba_feed_forward,
			       .norms = {NULL, "pre_ff_layernorm"}),
};
