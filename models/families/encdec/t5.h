/* What T5's relatives put in the place of its parts (t5_parts.c). */
#ifndef OOM_FAMILIES_T5_H
#define OOM_FAMILIES_T5_H

#include "blocks/blocks.h"

enum oom_t5_extra {
	OOM_T5_DEC_LAYERS,
	OOM_T5_BUCKETS,
	OOM_T5_SCALE_OUT,
	OOM_T5_FLAGS,
	OOM_T5_LOCAL,
	OOM_T5_GLOBAL,
	OOM_T5_ENC_SPARSE,
	OOM_T5_DEC_SPARSE,
	OOM_T5_ROUTER_BIAS,
	OOM_T5_MORE,
	OOM_T5_PATCH,
	OOM_T5_COORDS
};
enum oom_t5_flag {
	OOM_T5_EACH = 1,                /* every layer makes its own bias */
	OOM_T5_TABLE_ONCE = 2,          /* and only the first has a table (Switch) */
	OOM_T5_EXPERTS = 4,
	/* the encoder attends within blocks and their neighbours (LongT5) */
	OOM_T5_BLOCKS = 8,
	OOM_T5_FEATURES = 16,           /* the encoder is fed features of d_model (Pop2Piano) */
	OOM_T5_LAYOUT = 32,             /* image patches and boxes beside the text (UDOP) */
	OOM_T5_OWN_HEAD = 64,           /* the head is never tied */
	/* untied, encoder and decoder have tables of their own beside the shared one */
	OOM_T5_OWN_TABLES = 128,
};

struct oom_t5_stack {
	const struct oom_arch *a;
	struct oom_val bias, cross_bias, encoded;       /* shared by all layers */
	struct oom_val mask, cross_mask;                /* what a layer's own bias is added to */
	uint16_t m_tokens, m_len, m_src, m_src_len;
	bool decoder;
};

bool oom_t5_is_sparse(const struct oom_t5_stack *s, uint32_t layer);
/* Switch's router and experts; consumes x. */
struct oom_val oom_t5_experts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
/* LongT5's bias of one block and its two neighbours with the mask added, and the attention that
 * uses it; consumes x. */
struct oom_val oom_t5_block_bias(struct oom_tape *t, struct oom_t5_stack *s);
struct oom_val oom_t5_block_attention(struct oom_tape *t, const struct oom_t5_stack *s,
				      struct oom_val x);
/* Parameters beside the text model that a step on text does not meet. */
void oom_t5_idle_parts(struct oom_tape *t, const struct oom_arch *a);

#endif
