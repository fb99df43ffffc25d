/* T5Gemma: t5gemma_types.c reads its configs, t5gemma.c runs it. */
#ifndef OOM_FAMILIES_T5GEMMA_H
#define OOM_FAMILIES_T5GEMMA_H

#include "blocks/encdec.h"
#include "config/keys.h"

struct t5gemma_kind {
	const struct oom_key_row *encoder;
	const char *types;              /* key of the encoder's layer_types */
	uint32_t period;                /* without that, all but the last of so many layers slide */
	double softcap_attn, softcap_logits;
	bool merged;                    /* the decoder attends to both at once; a tower (2) */
};
static inline const struct t5gemma_kind *t5gemma_kind_of(const struct oom_arch *a)
{
	return a->type->kind;
}

struct t5gemma_sizes {
	uint64_t vocab, d, ff, layers, heads, kv_heads, head_dim, window;
	bool bias;                      /* in attention */
};
struct t5gemma {
	struct t5gemma_sizes enc, dec;
	struct {
		uint64_t d, ff, layers, patch, side, channels;
	} vision;
};
OOM_OWN(t5gemma, struct t5gemma);

/* The forward pass and the loss (t5gemma.c). */
struct oom_val t5gemma_step(struct oom_tape *t, const struct oom_arch *a);

#endif
