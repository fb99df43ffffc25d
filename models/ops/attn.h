/* What the attention kernels share: fused ones (ops_attn.c) and those that have scores (attn_scores.c).  q, k, v and the mask
 * are given up to each. */
#ifndef OOM_OPS_ATTN_H
#define OOM_OPS_ATTN_H

#include "ops.h"

/* The node of an attention kernel, which saves q, k and v. */
int32_t oom_attention_node(struct oom_tape *t, uint8_t kind, struct oom_val q, struct oom_val k, struct oom_val v,
			   const struct oom_sdpa *a);
/* A boolean mask becomes an additive one of the query's type in every layer, and is kept. */
struct oom_val oom_mask_to_bias(struct oom_tape *t, struct oom_val mask, enum oom_dtype dt);
struct oom_val oom_attention_math(struct oom_tape *t, struct oom_val q, struct oom_val k, struct oom_val v, struct oom_val mask,
				  const struct oom_sdpa *a);
struct oom_val oom_attention_traced(struct oom_tape *t, struct oom_val q, struct oom_val k, struct oom_val v,
				    const struct oom_sdpa *a);

#endif
