/* Mamba 2 and its mixtures with attention: what sets the types apart, and what a config says. */
#ifndef OOM_MAMBA2_H
#define OOM_MAMBA2_H

#include "blocks/decoder.h"
#include "blocks/mixers.h"
#include "config/keys.h"

enum { MAMBA2_MIXER, MAMBA2_ATTENTION, MAMBA2_MOE, MAMBA2_MLP };

/* What sets the types apart. */
struct mamba2_kind {
	const struct oom_key_row *keys;         /* the mixer's, whose words differ */
	const char *d_head, *expand, *ssm_act, *act;    /* more of them */
	const char *layer_list;         /* key of the layers' types; NULL: none */
	bool single;                    /* one mixer per layer, no attention beside it in another */
	bool attention;                 /* some layers, or all, have attention or feed-forwards */
	bool both;                      /* Mamba 2 and attention side by side (Falcon-H1) */
	bool multipliers;               /* of embeddings and logits (Granite, Falcon-H1) */
	bool scaled_branches;           /* of every layer's branches (Granite) */
	bool float_logits;              /* the head's result is converted to fp32 by the class */
	bool fp32_residual;             /* by residual_in_fp32 */
	bool cast_hidden;               /* the head's input goes to the weights' type (Mamba 2) */
	bool peft_refuses;              /* adapters on out_proj */
	bool pattern;                   /* hybrid_override_pattern, which also counts the layers */
	bool indices;                   /* attn_layer_indices */
	/* position_embedding_type says whether there are rotary tables; never; else always */
	bool rope_by_key, no_rope;
	bool joins_rope;                /* all of a head is rotated by code for a part of it */
	/* of struct oom_ssd */
	const char *module;
	bool scaled, mask_any_batch, name_taken_over, mask_twice;
	enum oom_gated_norm norm;
	bool norm_by_key;               /* mamba_rms_norm, mamba_norm_before_gate (Falcon-H1) */
	const char *second_norm;
	const char *embed, *last_norm;  /* what the model calls its table and its last norm */
	struct oom_val (*feed_forward)(struct oom_tape *t, const struct oom_arch *a, uint8_t layer,
				       struct oom_val x);
};

struct mamba2 {
	uint64_t inner, heads, d_head, state, groups, kernel, chunk;
	bool bias, out_bias, conv_bias;
	enum oom_gated_norm norm;
	enum oom_act act;               /* the mixer's */
	bool rope, fp32_residual, norm_topk;
	uint64_t latent;
};
OOM_OWN(mamba2, struct mamba2);

static inline const struct mamba2_kind *mamba2_kind(const struct oom_arch *a)
{
	return a->type->kind;
}

/* The words of the mixer's keys (mamba2_config.c). */
extern const struct oom_key_row oom_mamba2_words[], oom_nemotron_words[], oom_prefixed_words[];
void mamba2_parse(struct oom_arch *a);
/* The mixer of one layer. */
struct oom_ssd mamba2_ssd(const struct oom_arch *a);

#endif
