/* Attention in which a query meets only some of the keys, or their likes: Longformer's window,
 * Nystromformer's landmarks, YOSO's hashes. */
#ifndef OOM_SPARSE_H
#define OOM_SPARSE_H

#include "blocks.h"

/* A window around every token.  Sequences are padded to whole windows. */
struct oom_window {
	uint64_t width, heads, d;       /* keys a window holds (even), heads, head_dim */
	struct oom_val masked;          /* is_index_masked of the padded tokens (kept) */
	double dropout;
};
/* attention_window as a number or a list, whose first stands for all. */
uint64_t oom_read_window(struct oom_reader *r, const char *key, uint64_t def);
/* Projections and context of (batch, tokens) turned around; the global projections, which a batch
 * without global tokens leaves idle, have their weights.  x is kept. */
struct oom_val oom_window_attention(struct oom_tape *t, const struct oom_window *w,
				    struct oom_val x);

/* Landmarks stand for segments of queries and keys, the inverse of their own weights found by
 * iteration; as many landmarks as a segment has tokens mean full attention.  A depthwise
 * convolution of the values is added.  q, k, v as heads; consumed. */
struct oom_val oom_nystrom_attention(struct oom_tape *t, const struct oom_arch *a, struct oom_val q,
				     struct oom_val k, struct oom_val v, struct oom_val mask);
/* The expectation of YOSO's hashes, which training computes by default. */
struct oom_val oom_yoso_attention(struct oom_tape *t, const struct oom_arch *a, struct oom_val q,
				  struct oom_val k, struct oom_val v);

/* Blocks of tokens that meet a few others (BigBird), at lengths beyond (5 + 2 random) blocks. */
struct oom_blocks {
	uint64_t block, random, heads, d;       /* tokens of a block; random blocks */
	enum oom_dtype mask_dt;                 /* of the masks made of attention_mask */
	enum oom_dtype dt;                      /* of the hidden states, which some are cast to */
};
/* q, k, v as heads, consumed; *weights gets the zeros that the whole attention is drawn on. */
struct oom_val oom_block_attention(struct oom_tape *t, const struct oom_blocks *b,
				   struct oom_val q, struct oom_val k, struct oom_val v,
				   struct oom_val *weights);
/* What of the masks lives through all layers: [b, s - 4 blocks, 3 blocks]. */
struct oom_val oom_band_mask(struct oom_tape *t, uint64_t block, enum oom_dtype dt);

#endif
